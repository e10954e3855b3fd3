"""Devices and links fitted to measured times of operations: what was measured, fits, errors,
profiles.
"""
