"""Between what means acceptance lies, as changes of the tokens of a step."""

from math import log

import numpy as np

from simulator.core.acceptance.cut_vocabulary import Covered
from simulator.scenario import Loaded
from simulator.scenario.evaluate import law
from simulator.scenario.lossy import ends_of, verdicts_under
from simulator.scenario.stated.means import range_window, stated_range
from simulator.scenario.uncertain.draws import SHARE_DEVIATIONS

MISSED = 0.09
"""By how much decoding keeps more tokens a step than a replay of a rule says, at most of those that
were held to decoding: 0, 2, 4 and 9 % (``python -m benchmarks.family.scored --check``). What
follows a token that the target would not have written is easier than its own text.
"""


def acceptance_range(loaded: Loaded, tokens_run: float | None = None) -> tuple[float, float]:
    """Return the log changes of tokens per step from what a run has, or None, the law, to both ends
    of the stated range; 0 without one. Where the draft's LM head is cut, and nothing says what that
    loses, the lower end is lower. What a rule keeps is known to its own range.
    """
    low, high = _stated(loaded, tokens_run)
    fewer, more = _range_of_rule(loaded)
    return low + fewer + _lost_at_most(loaded), high + more


def _lost_at_most(loaded: Loaded) -> float:
    """Return the log change of tokens per step where a cut LM head loses what a vocabulary loses
    that is cut so far (:func:`simulator.core.acceptance.cut_vocabulary.usual_share`); 0 where
    nothing is cut, or where it is known what that loses.
    """
    scenario = loaded.scenario
    share = scenario.least_covered
    if share == 1.0:
        return 0.0
    acceptance = loaded.acceptance()
    window = scenario.schedule.window
    whole = float(acceptance.odds(window, scenario.exit).mean_accepted)
    if not whole:
        return 0.0
    kept = float(Covered(acceptance, share).odds(window, scenario.exit).mean_accepted) / whole
    tokens = float(law(scenario, acceptance).verified_per_step)
    return log((1.0 + (tokens - 1.0) * kept) / tokens)


def _stated(loaded: Loaded, tokens_run: float | None) -> tuple[float, float]:
    """Return the log changes to both ends of the stated range; 0 without one. A run keeps as much
    less of a shorter window as the law does.
    """
    scenario = loaded.scenario
    acceptance = loaded.acceptance()
    spec = scenario.acceptance
    if not (spec.tokens_per_step_between or spec.per_position or spec.lengths):
        return 0.0, 0.0
    odds = acceptance.odds(scenario.schedule.window, scenario.exit)
    if np.all(odds.unmatched == 1.0):
        return 0.0, 0.0  # no step proposes anything that could be kept
    tokens = float(law(scenario, acceptance).verified_per_step)
    measured = float(acceptance.odds(range_window(scenario), scenario.exit).committed())
    if tokens_run is not None and tokens > 1.0:
        measured = 1.0 + (measured - 1.0) * (tokens_run - 1.0) / (tokens - 1.0)
    return stated_range(scenario, tokens_run or tokens, measured, SHARE_DEVIATIONS)


def _range_of_rule(loaded: Loaded) -> tuple[float, float]:
    """Return the log changes of tokens per step to both ends of what is stated of a rule, or of
    what a replay of scores misses; 0 without a rule.
    """
    scenario = loaded.scenario
    rule = scenario.acceptance.rule
    if rule is None:
        return 0.0, 0.0
    if rule.passes is None:
        scored = loaded.trace is not None and rule.lossy and not scenario.acceptance.rescale
        return (0.0, log(1.0 + MISSED)) if scored else (0.0, 0.0)
    changes = [0.0, 0.0]
    tokens = float(law(scenario, loaded.acceptance()).verified_per_step)
    for place, end in enumerate(ends_of(rule.passes)):
        read = scenario.schedule.reads(verdicts_under(loaded, end))
        changes[place] = log(float(law(scenario, read).verified_per_step) / tokens)
    return changes[0], changes[1]
