"""SpecPipe keeps a pipeline full with the levels of a draft tree."""

from simulator.core.strategies.specpipe.levels import FillDetail, InPipeline, filled
from simulator.core.strategies.specpipe.strategy import SpecPipe

__all__ = ["FillDetail", "InPipeline", "SpecPipe", "filled"]
