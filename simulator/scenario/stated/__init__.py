"""What a scenario states of acceptance, held to what is possible and to what runs."""
