"""SpecPipe keeps a pipeline full with the levels of a draft tree."""

from simulator.strategies.specpipe.levels import FillDetail, InPipeline, filled
from simulator.strategies.specpipe.strategy import SpecPipe

__all__ = ["FillDetail", "InPipeline", "SpecPipe", "filled"]
