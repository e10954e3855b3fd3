"""Recorded routing of a mixture: how many experts of a layer the rows of some windows read
together.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.sources import Replay
from simulator.core.acceptance.trace import Trace

ROWS = (1, 2, 3, 4, 6, 8, 12, 16)
REQUESTS = (1, 2, 4, 8, 16, 32)
"""Rows of a window, and windows of as many requests, whose experts are counted."""
DRAWS = 400
"""Draws of windows behind a mean, for more than one request."""


def experts_of(trace: Trace) -> tuple[int, int] | None:
    """Return how many experts a layer of the recorded target has, and how many a token takes; None
    where none are recorded.
    """
    target = trace.header["models"].get("target") or {}
    recorded = target.get("experts") or {}
    if "experts.taken" not in trace.extra or not {"routed", "per_token"} <= recorded.keys():
        return None
    return (recorded["routed"], recorded["per_token"])


class Window(NamedTuple):
    """A window of a request that replays a recording: the last emitted token, and the draft tokens
    behind it.
    """

    request: int
    """Number of the request, by which it is dealt a recording."""
    position: int
    """Where it is in that recording, as its cursor counts."""
    drafted: int
    """Draft tokens."""


class RecordedRouting:
    """Recorded routing says of windows of a replay which experts they really read, instead of how
    many on average.

    A draft token takes the experts that it took when its window was recorded, kept or not; behind
    the recorded depths, those of the token that was emitted there. Raises :class:`KeyError` for a
    trace without routing.
    """

    def __init__(self, replay: Replay) -> None:
        trace = replay.trace
        self._order = replay.order
        self._offsets = trace.offsets
        self._taken = trace.extra["experts.taken"].astype(np.int64)
        none = np.empty((0, *self._taken.shape), dtype=np.int64)
        self._drafted = trace.extra.get("experts.drafted", none).astype(np.int64)
        self._routed, _ = experts_of(trace) or (0, 0)

    def read(self, windows: Iterable[Window]) -> float:
        """Return the experts of a layer that all windows read together, mean over its layers."""
        taken = np.concatenate([self._of(*window) for window in windows], axis=1)
        hot = np.zeros((len(taken), self._routed), dtype=np.bool_)
        np.put_along_axis(hot, taken, values=True, axis=1)
        return float(hot.sum()) / len(hot)

    def _of(self, request: int, position: int, drafted: int) -> NDArray[np.int64]:
        """Return (layers, tokens x experts of a token) what the tokens of a window take."""
        recording = self._order[request % len(self._order)]
        start = int(self._offsets[recording]) + 1
        end = int(self._offsets[recording + 1])
        first = start + position
        recorded = min(drafted, len(self._drafted))
        further = position + np.arange(recorded, drafted)
        beyond = start + further % (end - start)  # a cursor goes round, and so does this
        parts = (
            self._taken[..., [first - 1]],
            *self._drafted[:recorded, ..., first, None],
            self._taken[..., beyond],
        )
        return np.concatenate(parts, axis=-1).reshape(len(self._taken), -1)


def experts_read(
    trace: Trace, flavours: Sequence[str] = (), layers: slice | Sequence[int] = slice(None)
) -> dict[tuple[int, int], float]:
    """Return the mean number of experts read by (rows, requests), over chosen flavours and layers;
    windows of emitted tokens.

    Windows of one request are all there are; of several they are drawn from different requests, as
    far as there are so many.
    """
    routed, _ = experts_of(trace) or (0, 0)
    taken = trace.extra["experts.taken"][layers]
    requests: list[int] = []
    for name in flavours or trace.flavours:
        requests += trace.named(name)
    hot = (taken[:, :, None, :] == np.arange(routed)[:, None]).any(1)  # layers, experts, positions
    random = np.random.default_rng(0)
    means = {}
    for rows in ROWS:
        windows = []
        for request in requests:
            start, end = trace.offsets[request : request + 2]
            windows.append(_windows(hot[..., start:end], rows))
        for together in REQUESTS:
            if together == 1:
                means[rows, 1] = float(np.concatenate(windows, -1).sum(1).mean())
                continue
            counts = [_experts_of_some(windows, together, random) for _ in range(DRAWS)]
            means[rows, together] = float(np.mean(counts))
    return means


def _experts_of_some(
    windows: Sequence[NDArray[np.bool_]], together: int, random: np.random.Generator
) -> float:
    """Return the experts that windows of so many requests read together, mean over layers; requests
    and starts are drawn.
    """
    some = random.choice(len(windows), together, replace=together > len(windows))
    drawn = []
    for index in some:
        starts = windows[index].shape[-1]
        drawn.append(windows[index][..., random.integers(starts)])
    return float(np.any(drawn, 0).sum(-1).mean())


def _windows(hot: NDArray[np.bool_], rows: int) -> NDArray[np.bool_]:
    """Return (layers, experts, starts): which experts the ``rows`` tokens from each start on
    take.
    """
    starts = hot.shape[-1] - rows + 1
    shifted = [hot[..., first : first + starts] for first in range(rows)]
    return np.asarray(np.any(shifted, 0))
