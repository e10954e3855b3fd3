"""What KV caches keep, and what of it a request finds."""
