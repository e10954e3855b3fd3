"""Steps of Lyanna as tests write them down: what was kept, and whether a tree sampled again was
verified too.
"""

from __future__ import annotations

from typing import NamedTuple

from simulator.core.acceptance.cursors import Chain
from simulator.papers.lyanna.resampling import ResampledReplay


class ResampledVerification(NamedTuple):
    """One step of Lyanna was verified with this outcome."""

    accepted: int
    """Draft tokens kept of the better of the two trees."""
    resampled: bool
    """Whether a tree that was sampled again from the hidden states of the step before was verified
    too (LYA-7).
    """


def verified(replay: ResampledReplay) -> ResampledVerification:
    """The outcome of the next step, which proposes a drafted tree of all levels."""
    resampled = replay.left is not None
    return ResampledVerification(replay.judge(Chain(len(replay.runs))).accepted, resampled)
