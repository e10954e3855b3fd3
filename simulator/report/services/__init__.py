"""Pages about running services."""
