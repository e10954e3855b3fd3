"""What DuoDecoding says, claim by claim."""
