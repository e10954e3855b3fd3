"""Reports: what a run found out, on paper and on screen. Nothing here runs a simulation."""
