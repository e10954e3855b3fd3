"""Trains a small family of language models and records how a draft's tokens fare with its target.

Extra ``record`` (torch, tokenizers). Nothing else in the package imports it; what it leaves behind
is a trace file in the format of :mod:`simulator.acceptance.trace`.
"""
