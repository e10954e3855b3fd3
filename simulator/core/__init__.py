"""What happens: world, costs, acceptance, strategies and serving. No files, no YAML, no tables."""
