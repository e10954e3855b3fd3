r"""Find where the answer of a plan stops being ahead of autoregressive decoding on the same
devices, by law.

    time per token |  \                 f(x) = law of autoregressive decoding - law of the answer
                   |---\-----------     its root is the break-even
                   |    \ answer
                   +-----x---------     acceptance, batch or link latency

One quantity is changed at a time, at the mean batch and the mean context of the run that was the
answer.
"""

from collections.abc import Callable
from dataclasses import dataclass

from scipy.optimize import brentq

from simulator.core.acceptance.sources import Rates, odds_of
from simulator.core.faults import BadInput
from simulator.core.strategies.common.law import OddsOf
from simulator.scenario import Loaded
from simulator.scenario.evaluate import baseline, tuned
from simulator.studies.plan.robustness import slower_links
from simulator.studies.plan.search import Finding

SLOWEST = 1_000.0
"""Multiple of the latency of the links beyond which a break-even is not looked for."""


@dataclass(frozen=True)
class BreakEven:
    """Holds three roots of the speed-up less one; a root is None where the answer stays on one side
    all the way.
    """

    batch: int
    """Mean batch of one replica, rounded: the other two roots are taken there."""
    speedup: float
    """Speed-up over autoregressive decoding at that batch."""
    rate: float | None
    """Chance that a draft token is kept, at the root."""
    first_batch: int | None
    """The first batch at which autoregressive decoding is faster."""
    places: int
    """The largest batch."""
    latency_ratio: float | None
    """Latency of the links at the root, over theirs."""
    linked: bool
    """Whether there are links at all."""


def break_even(finding: Finding) -> BreakEven | None:
    """Return the roots; None for an answer that does not speculate, or of which no run decoded."""
    loaded = tuned(finding.candidate.loaded)
    strategy = loaded.scenario.schedule
    if finding.outcome is None or not finding.outcome.steps or not strategy.window:
        return None
    batch = finding.mean_batch
    places = loaded.scenario.batch
    odds = odds_of(loaded.acceptance(), loaded.scenario.exit)
    slower = (size for size in range(1, places + 1) if speedup(loaded, odds, size) < 1.0)
    linked = True
    ratio = None
    try:
        slower_links(loaded)
    except BadInput:
        linked = False
    if linked:
        ratio = _root(
            lambda times: speedup(slower_links(loaded, times), odds, batch) - 1.0, 1.0, SLOWEST
        )

    def at_rate(rate: float) -> float:
        accepted = loaded.scenario.at_rates(Rates((rate,)))
        return speedup(loaded, odds_of(accepted, loaded.scenario.exit), batch) - 1.0

    return BreakEven(
        batch=batch,
        speedup=speedup(loaded, odds, batch),
        rate=_root(at_rate, 0.0, 1.0),
        first_batch=next(slower, None),
        places=places,
        latency_ratio=ratio,
        linked=linked,
    )


def speedup(loaded: Loaded, odds: OddsOf, batch: int) -> float:
    """Return the speed-up of the strategy over autoregressive decoding of the same batch on the
    same target, by law.
    """
    scenario = loaded.scenario
    law = scenario.law_at(odds, batch)
    return float(baseline(scenario, batch).tpot_s / law.tpot_s)


def _root(f: Callable[[float], float], low: float, high: float) -> float | None:
    """Return the root of ``f`` between two ends; None where it has the same sign at both."""
    ends = f(low), f(high)
    if (ends[0] > 0.0) == (ends[1] > 0.0):
        return None
    return float(brentq(f, low, high, xtol=1e-4))
