"""A running service as a scenario: what was observed of it, laid over one that is named."""
