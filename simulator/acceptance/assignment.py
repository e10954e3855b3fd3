"""Which recording a request replays: by its task where the workload maps tasks to flavours, else in the order of the seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from simulator.acceptance.sources import Acceptance, Replay


class TraceAssignment:
    """Deals out recordings, over and over.

    A source of acceptance is asked by number, and number n replays the n-th recording of its order, which the seed set.
    The k-th request of a task gets the number of the k-th recording with one of the task's flavours, then
    again from the first, a round further on, so that no two requests share a number. Any other request gets its own index.
    """

    def __init__(self, acceptance: Acceptance, flavours: Mapping[str, Sequence[str]]) -> None:
        self.places: dict[str, list[int]] = {}
        """By task: where its recordings stand in the order."""
        self._dealt: Counter[str] = Counter()
        self._round = 0
        if flavours and (replay := replay_behind(acceptance)):
            self._round = len(replay.order)
            for task, names in flavours.items():
                wanted = {one for name in names for one in replay.trace.requests_by_flavour[name]}
                self.places[task] = [place for place, one in enumerate(replay.order) if one in wanted]

    def __call__(self, index: int, task: str) -> int:
        """The number under which request ``index``, of ``task``, asks for acceptance."""
        places = self.places.get(task)
        if not places:
            return index
        turn, place = divmod(self._dealt[task], len(places))
        self._dealt[task] += 1
        return places[place] + turn * self._round


def replay_behind(acceptance: Acceptance) -> Replay | None:
    """The replay that a source takes its recordings from, be it itself; None where nothing is recorded."""
    source: object = acceptance
    while source is not None and not isinstance(source, Replay):
        source = getattr(source, "replay", None) or getattr(source, "verdicts", None)
    return source
