"""Does a bigger draft pay: the same target and draft device with other drafts, by law, as their tokens are kept more often.

    speed-up |      small ___----          every draft with its best window at each chance that a token is kept;
             |    ___-----  ___--- big     a bigger one is slower, so it has to be kept more often:
             |----____------               how often, to come level with the scenario's own, is its ``needed``
             +------------------- kept

What another draft would be kept is not known here: it is asked for, not assumed. Chances are taken as independent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from scipy.optimize import brentq

from simulator.acceptance.sources import Rates
from simulator.acceptance.statistics import independent
from simulator.cost.rows import Rows
from simulator.files.schema import BadInput, Fault
from simulator.scenario import Loaded
from simulator.scenario.run import baseline
from simulator.strategies.common.capabilities import DraftsChain

LONGEST = 12
"""Draft tokens; the best window is looked for up to here."""
RATES = tuple(step / 100 for step in range(30, 100, 2))


@dataclass(frozen=True)
class DraftPoint:
    """One draft; speed-ups over autoregressive decoding, by law, each with its best window."""

    model: str
    billions: float
    """Weights."""
    draft_ms: float
    """One token of the draft, one request."""
    windows: tuple[int, ...]
    speedups: tuple[float, ...]
    """At each of ``RATES``."""
    needed: float | None
    """Chance that a token must be kept for this draft to be as good as the scenario's own; None: no chance is enough."""
    pays: float | None
    """The same to be as good as no draft at all."""


@dataclass(frozen=True)
class DraftStudy:
    """Several drafts for one target; the scenario's own is the first."""

    scenario: str
    stand_in: bool
    """The acceptance was recorded from other models."""
    own_rate: float
    """Independent chance that gives the tokens which the scenario's own draft keeps by law at its window."""
    own_speedup: float
    """With its best window at that chance."""
    points: tuple[DraftPoint, ...]


def draft_study(own: Loaded, others: Iterable[Loaded]) -> DraftStudy:
    """A scenario and the same with other drafts; BadInput for another strategy than vanilla_sd."""
    scenario = own.scenario
    serial = isinstance(scenario.strategy, DraftsChain) and scenario.strategy.serial
    if not serial or scenario.draft is None:
        raise BadInput([Fault((scenario.name, 0, 0), "strategy", "expected vanilla_sd with a draft model on its device")])
    rate = _rate(own, scenario.strategy.window)
    best = max(_speedup(own, window, rate) for window in range(1, LONGEST + 1))
    points = tuple(_point(one, best) for one in (own, *others))
    return DraftStudy(scenario.name, scenario.acceptance.stand_in, rate, best, points)


def _rate(loaded: Loaded, gamma: int) -> float:
    kept = loaded.acceptance().odds(gamma, None).mean_accepted
    return float(brentq(lambda rate: independent(rate, gamma) - kept, 0.0, 1.0))


def _point(loaded: Loaded, own: float) -> DraftPoint:
    draft = loaded.scenario.draft
    if draft is None:
        raise BadInput([Fault((loaded.scenario.name, 0, 0), "draft", "is required and missing")])
    found = list(_best(loaded))
    return DraftPoint(
        draft.model.name,
        draft.model.weights / 1e9,
        loaded.scenario.cost.draft(Rows.decode(1, loaded.scenario.mean_context)).wall_s * 1e3,
        tuple(window for window, _ in found),
        tuple(speed for _, speed in found),
        _least_rate(loaded, own),
        _least_rate(loaded, 1.0),
    )


def _best(loaded: Loaded) -> Iterator[tuple[int, float]]:
    """Window and speed-up at each of ``RATES``."""
    for rate in RATES:
        yield max(((window, _speedup(loaded, window, rate)) for window in range(1, LONGEST + 1)), key=lambda one: one[1])


def _least_rate(loaded: Loaded, wanted: float) -> float | None:
    """The chance at which the best window reaches a speed-up; None where not even certainty does."""

    def over(rate: float) -> float:
        return max(_speedup(loaded, window, rate) for window in range(1, LONGEST + 1)) - wanted

    return float(brentq(over, 0.0, 1.0, xtol=1e-4)) if over(1.0) > 0.0 > over(0.0) else None


def _speedup(loaded: Loaded, window: int, rate: float) -> float:
    scenario = loaded.scenario
    strategy = scenario.schedule.model_copy(update={"gamma": window})
    odds = Rates((rate,)).odds(window, None)
    law = strategy.law(scenario.cost, lambda gamma: odds, scenario.batch, scenario.mean_context, one_lane=scenario.one_lane)
    return float(baseline(scenario).tpot_s / law.tpot_s)
