"""SpecPipe: a pipeline kept full with the levels of a draft tree."""

from simulator.strategies.specpipe.strategy import InPipeline, SpecPipe

__all__ = ["InPipeline", "SpecPipe"]
