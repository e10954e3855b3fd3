"""The best of several recorded drafters at every position: what an oracle among drafters could keep."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from simulator.acceptance.sources import Replay
from simulator.acceptance.trace import CONVERTED, Trace

BEST_OF = "best_of"
"""Name of this drafter."""


def best_of(trace: Trace, names: Sequence[str], seed: int = 0) -> Trace:
    """Return the same text as the best of some drafters proposes it: from every start the longest run that one of them keeps.

    It answers for windows up to the shortest to which one of them was recorded.
    """
    replays = [Replay(trace.drafted_by(name, seed), seed=seed) for name in names]
    most = min((replay.trace.window for replay in replays if replay.trace.window), default=None)
    runs = [np.max([replay.runs(request) for replay in replays], axis=0) for request in range(len(trace.flavour))]
    run = np.minimum(np.concatenate([[0, *request] for request in runs]), most or np.iinfo(np.uint16).max)
    models = {**trace.header["models"], "draft": {"name": f"the best of {', '.join(names)}"}}
    header = {**trace.header, "format": CONVERTED, "window": most, "models": models}
    none = trace.draft_rank[:0]
    return replace(trace, header=header, run=run.astype(np.uint16), draft_rank=none, q=trace.q[:0], extra={})
