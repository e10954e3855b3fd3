"""Decide on speculation by the laws alone, without a simulation."""

from typing import NamedTuple

from simulator.core.faults import BadInput
from simulator.core.plain import PlainData
from simulator.scenario import Loaded
from simulator.scenario.decision.answer import Decision
from simulator.scenario.decision.decide import decide
from simulator.scenario.evaluate import tuned
from simulator.scenario.uncertain.draws import Drawn
from simulator.scenario.uncertain.footings import footings
from simulator.scenario.uncertain.intervals import intervals_by_law, intervals_data
from simulator.scenario.uncertain.named import named_doubts


class DecidedLaw(NamedTuple):
    """Holds the draws of a speed-up by law, and the decision that follows."""

    speedup: Drawn
    decision: Decision | None
    """None where nothing is drafted."""
    intervals: PlainData
    """Intervals of step, time per token, rate and speed-up, as of a run."""


def by_law(loaded: Loaded, batch: int | None = None, throughput: float | None = None) -> DecidedLaw:
    """Return the speed-up by law over plain decoding of the same batch, as it is drawn, and the
    decision.

    ``batch``: requests that decode together; None: one for every place. ``throughput``: the
    speed-up of output tokens per second, where a closed loop was simulated.
    """
    requests = batch or loaded.scenario.batch
    drawn = intervals_by_law(loaded, requests)
    speedup = drawn["speedup"]
    doubted = footings(loaded, every=False)
    decision = decide(loaded, speedup, doubted, requests, throughput)
    return DecidedLaw(speedup, decision, intervals_data(drawn))


def doubts_by_law(loaded: Loaded, batch: int | None = None) -> tuple[str, ...]:
    """Return what is in doubt and changes the speed-up of a scenario by law, in words, the largest
    change first; none where it has no law. ``batch``: requests that decode together; None: one for
    every place.
    """
    try:
        loaded = tuned(loaded)
        return named_doubts(loaded, footings(loaded, every=False), batch)
    except BadInput:
        return ()


def drawn_speedup(loaded: Loaded, batch: int) -> Drawn:
    """Return the draws of the speed-up by law over plain decoding of the same batch."""
    return intervals_by_law(loaded, batch)["speedup"]
