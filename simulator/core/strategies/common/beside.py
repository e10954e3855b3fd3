"""A draft that works beside the target, on a machine of its own: what overlaps, and what the law of
it claims.
"""

from collections.abc import Mapping

import numpy as np

from simulator.core.cost.protocol import Cost
from simulator.core.numeric import Numbers
from simulator.core.strategies.common.claim import EXACT, Claim
from simulator.core.strategies.common.step import Kind


def overlap_s(target: Numbers, draft: Numbers, contention: float) -> Numbers:
    """Return the seconds of target and draft that begin together: those of the longer side, and of
    the shorter one what ``contention`` of one memory adds while both work.
    """
    return np.maximum(target, draft) + (contention - 1.0) * np.minimum(target, draft)


class DraftsBeside:
    """A strategy with this capability drafts while the target verifies, as two machines can."""

    def claim(
        self,
        cost: Cost,
        requests: int,
        context: int,
        shares: Mapping[Kind, Numbers],
        one_lane: bool,
    ) -> Claim:
        """Return that the law is exact on two machines, which are the point of the method."""
        if one_lane:
            return Claim("lower_bound", "target and draft share one lane and cannot overlap")
        return EXACT
