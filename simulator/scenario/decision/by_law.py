"""Decide on speculation by the laws alone, without a simulation."""

from typing import NamedTuple

from simulator.core.faults import BadInput
from simulator.core.plain import PlainData
from simulator.scenario import Loaded
from simulator.scenario.decision.answer import Decision
from simulator.scenario.decision.decide import decide
from simulator.scenario.evaluate import tuned
from simulator.scenario.uncertain.draws import Drawn
from simulator.scenario.uncertain.footings import footings, in_words, worth_naming
from simulator.scenario.uncertain.intervals import intervals_by_law, intervals_data


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


def doubts_by_law(loaded: Loaded) -> tuple[str, ...]:
    """Return the numbers in doubt that change the speed-up of a scenario by law, in words, the
    largest change first; none where it has no law.
    """
    try:
        doubted = worth_naming(footings(tuned(loaded), every=False))
    except BadInput:
        return ()
    return tuple(map(in_words, doubted))


def drawn_speedup(loaded: Loaded, batch: int) -> Drawn:
    """Return the draws of the speed-up by law over plain decoding of the same batch."""
    return intervals_by_law(loaded, batch)["speedup"]
