"""SpecPipe keeps a pipeline full with the levels of a draft tree."""

from simulator.strategies.specpipe.strategy import FillDetail, InPipeline, SpecPipe, filled

__all__ = ["FillDetail", "InPipeline", "SpecPipe", "filled"]
