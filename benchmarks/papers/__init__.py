"""Fits what the papers leave open to their published values."""
