"""Sweep axes over a scenario's fields: every point is evaluated by law, replay or simulation, and
kept in a store.
"""
