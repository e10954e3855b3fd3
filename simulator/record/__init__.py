"""Records how a draft's tokens fare with its target: any two models of Hugging Face.

Extra ``record`` (torch, transformers). It leaves behind a trace in the format of
:mod:`simulator.core.acceptance.trace`.
"""
