"""A running service beside its simulation: numbers fitted to it, and requests held to it."""
