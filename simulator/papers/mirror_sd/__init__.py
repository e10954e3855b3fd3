"""What Mirror-SD says, claim by claim."""
