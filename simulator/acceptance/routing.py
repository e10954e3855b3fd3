"""Recorded routing of a mixture: how many experts of a layer the rows of some windows read together."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.acceptance.trace import Trace

ROWS, REQUESTS = (1, 2, 3, 4, 6, 8, 12, 16), (1, 2, 4, 8, 16, 32)
"""Rows of a window, and windows of as many requests, whose experts are counted."""
DRAWS = 400
"""Draws of windows behind a mean, for more than one request."""


def experts_of(trace: Trace) -> tuple[int, int] | None:
    """Return how many experts a layer of the recorded target has, and how many a token takes; None where none are recorded."""
    recorded = (trace.header["models"].get("target") or {}).get("experts")
    return (recorded["routed"], recorded["per_token"]) if recorded and "experts.taken" in trace.extra else None


def experts_read(trace: Trace, flavours: Sequence[str] = (), layers: Any = slice(None)) -> dict[tuple[int, int], float]:
    """Return the mean number of experts read by (rows, requests), over chosen flavours and layers; windows of emitted tokens.

    Windows of one request are all there are; of several they are drawn from different requests, as far as there are so many.
    """
    routed = (experts_of(trace) or (0, 0))[0]
    taken, chosen = trace.extra["experts.taken"][layers], flavours or trace.flavours
    requests = [request for name in chosen for request in trace.requests_by_flavour[name]]
    hot = (taken[:, :, None, :] == np.arange(routed)[:, None]).any(1)  # layers, experts, positions
    random, means = np.random.default_rng(0), {}
    for rows in ROWS:
        windows = [_windows(hot[..., slice(*trace.offsets[request : request + 2])], rows) for request in requests]
        for together in REQUESTS:
            if together == 1:
                means[rows, 1] = float(np.concatenate(windows, -1).sum(1).mean())
                continue
            drawn = (random.choice(len(windows), together, replace=together > len(windows)) for _ in range(DRAWS))
            unions = [
                np.any([windows[index][..., random.integers(windows[index].shape[-1])] for index in some], 0) for some in drawn
            ]
            means[rows, together] = float(np.mean([union.sum(-1).mean() for union in unions]))
    return means


def _windows(hot: NDArray[np.bool_], rows: int) -> NDArray[np.bool_]:
    """Return (layers, experts, starts): which experts the ``rows`` tokens from each start on take."""
    starts = hot.shape[-1] - rows + 1
    return np.asarray(np.any([hot[..., first : first + starts] for first in range(rows)], 0))
