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

from simulator.core.acceptance.sources import Acceptance, Rates, odds_of
from simulator.core.faults import BadInput
from simulator.scenario import Loaded
from simulator.scenario.evaluate import baseline, tuned
from simulator.studies.batches import LawAtBatch, crossover
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
    batch = max(1, round(finding.outcome.serving.mean_batch))
    acceptance = loaded.acceptance()
    sizes = []
    for size in range(1, loaded.scenario.batch + 1):
        sizes.append(LawAtBatch(size, 0, speedup(loaded, acceptance, size)))
    linked = True
    ratio = None
    try:
        slower_links(loaded)
    except BadInput:
        linked = False
    if linked:
        ratio = _root(
            lambda times: speedup(slower_links(loaded, times), acceptance, batch) - 1.0,
            1.0,
            SLOWEST,
        )
    return BreakEven(
        batch,
        speedup(loaded, acceptance, batch),
        _root(lambda rate: speedup(loaded, strategy.reads(Rates((rate,))), batch) - 1.0, 0.0, 1.0),
        crossover(sizes)[0],
        loaded.scenario.batch,
        ratio,
        linked,
    )


def speedup(loaded: Loaded, acceptance: Acceptance, batch: int) -> float:
    """Return the speed-up of the strategy over autoregressive decoding of the same batch on the
    same target, by law.
    """
    scenario = loaded.scenario
    law = scenario.law_at(odds_of(acceptance, scenario.exit), batch)
    return float(baseline(scenario, batch).tpot_s / law.tpot_s)


def _root(f: Callable[[float], float], low: float, high: float) -> float | None:
    """Return the root of ``f`` between two ends; None where it has the same sign at both."""
    ends = f(low), f(high)
    if (ends[0] > 0.0) == (ends[1] > 0.0):
        return None
    return float(brentq(f, low, high, xtol=1e-4))
