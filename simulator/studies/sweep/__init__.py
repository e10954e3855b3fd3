"""Sweeps: axes over a scenario's fields, every point evaluated by law, replay or simulation, kept in a store."""
