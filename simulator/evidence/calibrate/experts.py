"""The experts of a layer: how many a measured call read, which files do not hold, and the roofline
with the least error.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from simulator.core.cost.device import Device
from simulator.core.cost.roofline import ExpertRoofline
from simulator.evidence.calibrate.fit import PRODUCTS_BESIDE_LAYERS, Form, nearest, roofline
from simulator.evidence.calibrate.measurements import Table

EXPERT_TILE = 16
"""Rows of one expert that tensor cores multiply at once."""
DECODES = 128
"""Tokens up to which a pass over experts is a step of decoding."""
DRAWS = 40
"""Draws behind a mean; the measured time is itself a mean over five."""


@cache
def experts_read(tokens: int, routed: int, per_token: int, distribution: str) -> float:
    """Return the mean number of different experts that ``tokens`` read by a collector's rule.

    ``balanced``: token i takes i + j ceil(E/k), fewer tokens than ceil(E/k) spread evenly.
    ``power_law_A``: loads drawn from x^-A, scaled to all choices, at most one a token, what is too
    much or missing going to the experts with the least.
    """
    if distribution == "balanced":
        stride = -(-routed // per_token)
        starts = np.arange(tokens, dtype=float)
        if tokens < stride:
            starts = np.arange(tokens) * stride / tokens
        chosen = (starts[:, None] + np.arange(per_token) * stride).astype(int) % routed
        return float(len(np.unique(chosen)))
    random = np.random.default_rng(0)
    alpha = float(distribution.removeprefix("power_law_"))
    return float(
        np.mean(
            [(_loads(random, tokens, routed, per_token, alpha) > 0).sum() for _ in range(DRAWS)]
        )
    )


def _loads(
    random: np.random.Generator, tokens: int, routed: int, per_token: int, alpha: float
) -> NDArray[np.int64]:
    """Return the tokens of each expert in one draw, by falling number before what is too much or
    missing is shared out.
    """
    choices = tokens * per_token
    low, high = (1.0, 0.8 * tokens) if choices > routed else (0.01, 2.0)
    drawn = (
        random.random(routed) * (high ** (1 - alpha) - low ** (1 - alpha)) + low ** (1 - alpha)
    ) ** (1 / (1 - alpha))
    loads = np.sort(np.minimum(np.rint(drawn / drawn.sum() * choices), tokens).astype(np.int64))[
        ::-1
    ].copy()
    missing = choices - int(loads.sum())
    while missing:
        room = loads < tokens if missing > 0 else loads > 0
        least = np.flatnonzero(room)[::-1][: abs(missing)]
        loads[least] += np.sign(missing)
        missing = choices - int(loads.sum())
    return loads


def fitted(device: Device, rows: Table) -> ExpertRoofline:
    """Return the roofline of experts; rows of more tokens than ``DECODES`` weigh as little as
    products beside layers.
    """
    weight = np.where(rows.tokens > DECODES, PRODUCTS_BESIDE_LAYERS, 1.0)

    def made(x: Sequence[float]) -> ExpertRoofline:
        named = dict(zip(("expert_us", "width_us", "pair_traffic_ratio"), x[4:], strict=True))
        plain = roofline(x[:4], Form((EXPERT_TILE,))).model_dump() | {"least_tile_tokens": None}
        return ExpertRoofline.model_validate(plain | named)

    bounds = ((0.0, 0.1, 0.02, 1.0, 0.0, 0.0, 0.0), (300.0, 1.0, 1.0, 50.0, 5.0, 20.0, 30.0))
    return nearest(made, device, rows, (15.0, 0.8, 0.5, 2.0, 0.1, 1.5, 3.0), bounds, weight)
