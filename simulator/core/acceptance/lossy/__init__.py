"""Verification that keeps more than the target would have written."""
