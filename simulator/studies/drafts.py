"""Does a bigger draft pay: the same target and draft device with other drafts, by law, as their
tokens are kept more often.

    speed-up |      small ___----      all drafts with their best window, over the chance a token
             |    ___-----  ___--- big is kept; a bigger draft is slower, so its tokens have to be
             |----____------           kept more often: how often, to come level with the
             |                         scenario's draft, is its ``needed``
             +------------------- kept

How often the tokens of a further draft are kept is not assumed: the study says how often they would
have to be. Chances are taken as independent.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from scipy.optimize import brentq

from simulator.core.acceptance.sources import Rates, odds_of
from simulator.core.acceptance.statistics import independent
from simulator.core.cost.rows import Rows
from simulator.core.faults import BadInput
from simulator.core.plain import PlainData
from simulator.core.strategies.common.capabilities import least_window
from simulator.scenario import Loaded, Scenario
from simulator.scenario.evaluate import speedup_of

LONGEST = 12
"""Draft tokens; the best window is looked for up to here."""
RATES = tuple(step / 100 for step in range(30, 100, 2))


@dataclass(frozen=True)
class DraftPoint:
    """Holds what a draft is worth: speed-ups over autoregressive decoding by law, with its best
    window at all rates.
    """

    model: str
    billions: float
    """Weights of the draft, in 1e9."""
    draft_ms: float
    """Time in ms of a token of the draft, for a single request."""
    windows: tuple[int, ...]
    """The best windows at ``RATES``, in draft tokens."""
    speedups: tuple[float, ...]
    """The speed-ups of these windows at ``RATES``."""
    needed: float | None
    """Chance that a token must be kept for this draft to be as good as the scenario's draft; None:
    no chance is enough.
    """
    pays: float | None
    """Chance that a token must be kept for this draft to be as good as no draft at all; None: no
    chance is enough.
    """


@dataclass(frozen=True)
class DraftStudy:
    """Holds several drafts for a target; that of the scenario is the first."""

    scenario: str
    stand_in: bool
    """Whether the acceptance was recorded from models that are not the scenario's."""
    own_rate: float
    """Independent chance that gives as many kept tokens as the scenario's draft has by law at its
    window.
    """
    own_speedup: float
    """Speed-up of the scenario's draft with its best window at that chance."""
    points: tuple[DraftPoint, ...]

    def as_data(self) -> PlainData:
        """Return the study as plain data."""
        return asdict(self)


def study(loaded: Sequence[Loaded]) -> DraftStudy:
    """Return the draft study of a scenario, the first, and of the same scenario with further
    drafts.

    Raises :class:`BadInput` for a strategy without a draft model or a window ``gamma``, and for one
    that reads an early exit.
    """
    base = loaded[0]
    scenario = loaded[0].scenario
    _check(scenario)
    rate = _rate(base, scenario.schedule.window)
    _, best = _best(base, rate)
    points = tuple(_point(one, best) for one in loaded)
    return DraftStudy(scenario.name, scenario.acceptance.stand_in, rate, best, points)


def _check(scenario: Scenario) -> None:
    """Raise :class:`BadInput` where one chance of a kept token does not make a law."""
    name = scenario.strategy.name
    serial = "--set strategy=vanilla_sd compares them with drafting in series"
    if scenario.draft is None or not scenario.schedule.needs.draft_model:
        message = f"{name} drafts with no model of its own, so there is none to compare others with"
        remedy = "name a scenario with a draft model, as vanilla_llama_2_7b_a100"
    elif "gamma" not in type(scenario.schedule).model_fields:
        message = f"{name} has no window gamma, of which each draft is given its best"
        remedy = serial
    elif scenario.exit is not None:
        message = (
            f"{name} drafts on from an early exit of the target, and how often a token is kept "
            "does not say how often that exit has it"
        )
        remedy = serial
    else:
        return
    raise BadInput.at(scenario.name, f"{message}; {remedy}", "strategy")


def _rate(loaded: Loaded, gamma: int) -> float:
    """Return the independent chance that keeps as many tokens of a window as the acceptance of the
    scenario.
    """
    kept = loaded.acceptance().odds(gamma, None).mean_accepted
    return float(brentq(lambda rate: independent(rate, gamma) - kept, 0.0, 1.0))


def _point(loaded: Loaded, wanted: float) -> DraftPoint:
    """Return the point of a draft; ``wanted``: the speed-up that it has to come level with."""
    draft = loaded.scenario.draft
    if draft is None:
        raise BadInput.at(loaded.scenario.name, "is required and missing", "draft")
    best = [_best(loaded, rate) for rate in RATES]
    return DraftPoint(
        draft.model.name,
        draft.model.weights / 1e9,
        loaded.scenario.cost.draft(Rows.decode(1, loaded.scenario.mean_context)).wall_s * 1e3,
        tuple(window for window, _ in best),
        tuple(speedup for _, speedup in best),
        _least_rate(loaded, wanted),
        _least_rate(loaded, 1.0),
    )


def _best(loaded: Loaded, rate: float) -> tuple[int, float]:
    """Return the best window where tokens are kept at ``rate``, and its speed-up."""
    windows = range(least_window(loaded.scenario.schedule), LONGEST + 1)
    speedups = {window: _speedup(loaded, window, rate) for window in windows}
    return max(speedups.items(), key=lambda pair: pair[1])


def _least_rate(loaded: Loaded, wanted: float) -> float | None:
    """Return the chance at which the best window reaches a speed-up; None where not even certainty
    does.
    """

    def over(rate: float) -> float:
        return _best(loaded, rate)[1] - wanted

    if over(1.0) > 0.0 > over(0.0):
        return float(brentq(over, 0.0, 1.0, xtol=1e-4))
    return None


def _speedup(loaded: Loaded, window: int, rate: float) -> float:
    """Return the speed-up of a window over autoregressive decoding by law, where tokens are kept at
    ``rate``.
    """
    scenario = loaded.scenario
    strategy = scenario.schedule.model_copy(update={"gamma": window})
    law = strategy.law(
        scenario.cost,
        odds_of(strategy.reads(Rates((rate,))), None),
        scenario.batch,
        scenario.mean_context,
        one_lane=scenario.one_lane,
        outputs=scenario.outputs,
    )
    return speedup_of(scenario, law)
