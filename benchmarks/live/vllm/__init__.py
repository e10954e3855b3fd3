"""A running vLLM, recorded: which tokens of its requests were in its prefix cache."""
