"""What Speculative Streaming says, claim by claim."""
