"""What engines write about acceptance, read into the blocks of a scenario."""
