"""Find the fleet that meets an SLO at the least cost, and say how robust that answer is."""
