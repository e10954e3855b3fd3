"""Law against simulation, for every shipped scenario: two programs that must say the same, or say why not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from simulator.catalogue import Catalogue
from simulator.parallel import Spread
from simulator.scenario import load
from simulator.scenario.run import law, law_from, simulate, tuned


class LawGap(NamedTuple):
    """Milliseconds of a step, or of a token, by law and by simulation."""

    scenario: str
    relation: str
    """What the law says of itself: exact, a bound, ..."""
    simulated_step_ms: float
    law_step_ms: float
    """With the acceptance and the kinds of steps that the simulation met."""
    simulated_tpot_ms: float
    law_tpot_ms: float
    """With marginal acceptance rates, which know nothing of the run."""

    @property
    def step_gap(self) -> float:
        """How much longer a step is by law, as a share."""
        return self.law_step_ms / self.simulated_step_ms - 1.0

    @property
    def tpot_gap(self) -> float:
        """How much longer a token takes by law, as a share."""
        return self.law_tpot_ms / self.simulated_tpot_ms - 1.0


def law_gap(name: str) -> LawGap:
    """Of one scenario."""
    loaded = tuned(load(name))
    scenario, acceptance = loaded.scenario, loaded.acceptance()
    simulated, _ = simulate(scenario, acceptance)
    marginal, met = law(scenario, acceptance), law_from(scenario, simulated)
    times = (simulated.step_s, met.step_s, simulated.tpot_s, marginal.tpot_s)
    return LawGap(name, marginal.relation, *(1e3 * seconds for seconds in times))


def law_gaps(spread: Spread) -> Sequence[LawGap]:
    """Of every shipped scenario, by name."""
    return spread(law_gap, Catalogue().names("scenario"))
