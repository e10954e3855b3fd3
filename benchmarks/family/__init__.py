"""Trains the small family of language models that is shipped and records what its drafters propose
(extra ``record``).
"""
