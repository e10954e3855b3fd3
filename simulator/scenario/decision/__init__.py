"""Shall one switch speculation on? The chance that it is faster than plain decoding, where that
turns, and what would settle it.
"""
