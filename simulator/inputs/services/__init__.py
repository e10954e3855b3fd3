"""Files of running services: what they hold of load, times, acceptance and state."""
