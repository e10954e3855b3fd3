"""A request replays a recording of its task or name where the workload has one, else the next in
the seed's order.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from simulator.core.acceptance.sources import Acceptance, Replay
from simulator.core.numeric import grouped


class TraceAssignment:
    """A trace assignment gives every request a recording, over and over.

    A source of acceptance is asked by number, and number n replays the n-th recording of its order,
    which the seed set. The k-th request of a task gets the number of the k-th recording with one of
    the task's flavours, then again from the first, a round further on, so that no two requests
    share a number. A request without a task gets its own index.
    """

    def __init__(self, acceptance: Acceptance, flavours: Mapping[str, Sequence[str]]) -> None:
        self.places: dict[str, list[int]] = {}
        """Indices of a task's recordings in the order, by task."""
        self._assigned: Counter[str] = Counter()
        self._round = 0
        if flavours and (replay := replay_behind(acceptance)):
            self._round = len(replay.order)
            where = grouped(range(len(replay.order)), replay.order.__getitem__)
            for task, names in flavours.items():
                wanted = {recording for name in names for recording in replay.trace.named(name)}
                self.places[task] = sorted(
                    place for recording in wanted for place in where.get(recording, ())
                )

    def __call__(self, index: int, task: str) -> int:
        """Return the number under which request ``index``, of ``task``, asks for acceptance."""
        places = self.places.get(task)
        if not places:
            return index
        turn, place = divmod(self._assigned[task], len(places))
        self._assigned[task] += 1
        return places[place] + turn * self._round


def replay_behind(acceptance: Acceptance) -> Replay | None:
    """Return the replay from which a source takes its recordings, perhaps itself; None where
    nothing is recorded.
    """
    source: object = acceptance
    while source is not None and not isinstance(source, Replay):
        source = getattr(source, "replay", None) or getattr(source, "verdicts", None)
    return source
