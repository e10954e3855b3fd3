"""What a rule that keeps more than the target would have written does to outputs, in words."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.lossy.scores import changed_share
from simulator.core.acceptance.sources import Acceptance, Odds, Replay
from simulator.core.quantities import Ranged
from simulator.scenario import Loaded


def outputs_change(loaded: Loaded, acceptance: Acceptance) -> Iterator[str]:
    """Yield the sentence for the headline of a run whose outputs are not the target's alone."""
    rule = loaded.scenario.acceptance.rule
    if rule is None or not rule.lossy or not loaded.scenario.schedule.window:
        return
    yield (
        f"outputs are no longer those of the target alone: under {rule.words} "
        f"{_how_many(loaded, acceptance)}"
    )


def _how_many(loaded: Loaded, acceptance: Acceptance) -> str:
    """Return in words how many of the written tokens the target alone would not have written."""
    spec = loaded.scenario.acceptance
    rule = spec.rule
    wrong = "of the tokens written are ones that the target would have rejected"
    if rule is not None and rule.passes is not None:
        share = _percent(_changed_by(loaded, rule.passes.value))
        ends = ends_of(rule.passes)
        if ends:
            share += f" ({' to '.join(_percent(_changed_by(loaded, end)) for end in ends)})"
        return f"{share} {wrong}, by what is stated of the rule ({rule.passes.source})"
    if rule is not None and rule.changed is not None:
        share = _percent(rule.changed.value)
        ends = ends_of(rule.changed)
        if ends:
            share += f" ({' to '.join(map(_percent, ends))})"
        return f"{share} {wrong} ({rule.changed.source})"
    if isinstance(acceptance, Replay):
        changed = changed_share(acceptance, loaded.scenario.schedule.window)
        if changed is not None:
            return f"{_percent(changed)} {wrong}, as recorded"
    return (
        "how many tokens the target would have rejected is not known; "
        "acceptance.rule.changed says it"
    )


def _percent(share: float) -> str:
    return f"{100.0 * share:.2g} %"


def ends_of(share: Ranged) -> tuple[float, ...]:
    """Return the ends of a range, low first; none where the number is known."""
    if share.low is None and share.high is None:
        return ()
    low = share.value if share.low is None else share.low
    high = share.value if share.high is None else share.high
    return (low, high)


def _changed_by(loaded: Loaded, passes: float) -> float:
    """Return the share of written tokens that the target would have rejected, where a rule keeps a
    share of those: of a window's tokens the ones that it reaches, less what the target keeps of
    them.
    """
    scenario = loaded.scenario
    window = scenario.schedule.window
    strict = verdicts_under(loaded, 0.0).odds(window, scenario.exit)
    odds = verdicts_under(loaded, passes).odds(window, scenario.exit)
    reach = _reach(odds)
    reach_strict = _reach(strict)
    changed = 0.0
    for place in range(1, window + 1):
        if reach[place] and reach_strict[place - 1]:
            rate = reach[place] / reach[place - 1]
            own = reach_strict[place] / reach_strict[place - 1]
            changed += float(reach[place] * (1.0 - own / rate))
    return changed / (1.0 + float(reach[1:].sum()))


def _reach(odds: Odds) -> NDArray[np.float64]:
    """Return (gamma + 1,) the chance that so many tokens of a window are kept, or more."""
    return odds.accepted[::-1].cumsum()[::-1]


def verdicts_under(loaded: Loaded, passes: float) -> Acceptance:
    """Return verdicts on chains under a rule that keeps another share of rejected tokens."""
    spec = loaded.scenario.acceptance
    if spec.rule is None or spec.rule.passes is None:
        return spec.verdicts(loaded.trace, loaded.scenario.seed)
    share = spec.rule.passes.model_copy(update={"value": passes, "low": None, "high": None})
    rule = spec.rule.model_copy(update={"passes": share})
    changed = spec.model_copy(update={"rule": rule})
    return changed.verdicts(loaded.trace, loaded.scenario.seed)
