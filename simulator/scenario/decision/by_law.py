"""Decide on speculation by the laws alone, without a simulation."""

from typing import NamedTuple

from simulator.scenario import Loaded
from simulator.scenario.decision.answer import Decision
from simulator.scenario.decision.decide import decide
from simulator.scenario.uncertain.draws import Drawn, drawn
from simulator.scenario.uncertain.footings import footings
from simulator.scenario.uncertain.intervals import doubt_of, laws_of, speedup_by_law


class DecidedLaw(NamedTuple):
    """Holds the draws of a speed-up by law, and the decision that follows."""

    speedup: Drawn
    decision: Decision | None
    """None where nothing is drafted."""


def by_law(loaded: Loaded, batch: int | None = None, throughput: float | None = None) -> DecidedLaw:
    """Return the speed-up by law over plain decoding of the same batch, as it is drawn, and the
    decision.

    ``batch``: requests that decode together; None: one for every place. ``throughput``: the
    speed-up of output tokens per second, where a closed loop was simulated.
    """
    requests = batch or loaded.scenario.batch
    speedup = drawn_speedup(loaded, requests)
    doubted = footings(loaded, every=False)
    return DecidedLaw(speedup, decide(loaded, speedup, doubted, requests, throughput))


def drawn_speedup(loaded: Loaded, batch: int) -> Drawn:
    """Return the draws of the speed-up by law over plain decoding of the same batch."""
    value = speedup_by_law(laws_of(loaded.scenario, loaded.acceptance(), batch))
    return drawn(value, doubt_of(loaded, (), batch=batch))
