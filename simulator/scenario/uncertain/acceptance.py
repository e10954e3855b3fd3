"""Between what means acceptance lies, as changes of the tokens of a step."""

import numpy as np

from simulator.scenario import Loaded
from simulator.scenario.evaluate import law
from simulator.scenario.stated.means import range_window, stated_range
from simulator.scenario.uncertain.draws import SHARE_DEVIATIONS


def acceptance_range(loaded: Loaded) -> tuple[float, float]:
    """Return the log changes of tokens per step from what the law has to both ends of the stated
    range; 0 without one.
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
    measured = acceptance.odds(range_window(scenario), scenario.exit)
    return stated_range(scenario, tokens, float(measured.committed()), SHARE_DEVIATIONS)
