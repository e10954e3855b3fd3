"""What SpecPipe says, claim by claim."""
