"""Lyanna: a draft layer rolled forward on hidden states, and what a rejection leaves to sample
again.
"""

from simulator.papers.lyanna.strategy import (
    FUSING,
    HEAD,
    HOT_TOKENS,
    LAYER,
    Drafted,
    Lyanna,
    ResampledDetail,
    table_bytes,
)

__all__ = [
    "FUSING",
    "HEAD",
    "HOT_TOKENS",
    "LAYER",
    "Drafted",
    "Lyanna",
    "ResampledDetail",
    "table_bytes",
]
