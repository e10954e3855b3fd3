"""Which doubts are named beside an answer: the numbers that it rests on, and how far it lies from
what its engine was fitted on.
"""

from collections.abc import Sequence
from math import exp, hypot

from simulator.core.cost.engine import Engine
from simulator.core.quantities import nested
from simulator.scenario import Loaded
from simulator.scenario.uncertain.distance import farthest_fits, lone_window, outside
from simulator.scenario.uncertain.footings import Footing, in_words, worth_naming

MOST_AXES = 2
"""Axes on which a scenario lies outside that are named; of more it is said how many."""


def named_doubts(
    loaded: Loaded, doubted: Sequence[Footing], batch: int | None = None
) -> tuple[str, ...]:
    """Return the doubts of an answer that change it by more than a little in words, the largest
    first: numbers, and the distance from the fit, of ``batch`` requests that decode together (None:
    one for every place).
    """
    distance = distance_footing(loaded, batch)
    doubts = [*doubted, distance] if distance else list(doubted)
    doubts.sort(key=lambda footing: -abs(footing.change))
    return tuple(map(in_words, worth_naming(doubts)))


def distance_footing(loaded: Loaded, batch: int | None = None) -> Footing | None:
    """Return what the distance from the fits of its engines could change in the speed-up of a
    scenario, where nothing is drafted in its speed; None inside of all fits.

    The errors of several axes are independent.
    """
    scenario = loaded.scenario
    fits = farthest_fits(scenario, batch)
    if any(lone_window(engine) is not None for engine in nested(scenario, Engine)):
        fits.pop("rows", None)  # such a fit has a doubt of its own for them
    drafts = scenario.schedule.window > 0
    errors = {}
    for beyond in outside({axis: far.distance for axis, far in fits.items()}):
        error = beyond.speculation if drafts else beyond.every_pass
        if error:
            errors[beyond.axis] = error
    if not errors:
        return None
    axes = sorted(errors, key=lambda axis: -errors[axis])
    named = [fits[axis].in_words(scenario, batch or scenario.batch) for axis in axes[:MOST_AXES]]
    if len(axes) > MOST_AXES:
        named.append(f"{len(axes) - MOST_AXES} more")
    home = fits[axes[0]].home
    fitted = f"fitted on {home.card}" if home and home.card else "fitted elsewhere"
    change = exp(-hypot(*errors.values())) - 1.0
    words = f"distance from the fit: {', '.join(named)}"
    return Footing(words, hypot(*errors.values()), "borrowed", fitted, change)
