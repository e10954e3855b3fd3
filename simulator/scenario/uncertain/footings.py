"""What an answer rests on: the numbers behind it, that which could change it most first."""

from collections.abc import Sequence
from math import exp
from typing import NamedTuple

from simulator.scenario import Loaded
from simulator.scenario.evaluate import law, plain_tpot_s, tuned
from simulator.scenario.uncertain.acceptance import acceptance_range
from simulator.scenario.uncertain.doubts import (
    at_ends,
    continued_further,
    deviation,
    evenly,
    in_doubt,
    numbers_of,
    uncurved,
    uneven,
    with_number,
)
from simulator.scenario.uncertain.draws import SHARE_DEVIATIONS

WORTH_NAMING = 0.005
"""Change of a speed-up from which on a number in doubt is named beside it."""
ACCEPTANCE = "acceptance, tokens per step"
"""What acceptance is called among the numbers in doubt."""


class Footing(NamedTuple):
    """A number that an answer rests on, and what it could change in it."""

    parameter: str
    value: float
    confidence: str
    source: str
    change: float
    """Relative change of the speed-up by law where the number is off by one deviation."""
    ends: tuple[float, float] | None = None
    """The same at both ends of its range, where these lie unevenly around it."""


def footings(loaded: Loaded, every: bool = True) -> list[Footing]:
    """Return the numbers that the speed-up rests on, that which changes it most first; without
    ``every`` only those in doubt: assumed, borrowed, or with a range.

    Where nothing is drafted it is the speed. Numbers that state the same are one, and are moved
    together.
    """
    loaded = tuned(loaded)
    scenario = loaded.scenario
    acceptance = loaded.acceptance()

    def by_law(other: Loaded) -> float:
        reference = 1.0
        if other.scenario.schedule.window:
            reference = plain_tpot_s(other.scenario)
        return float(reference / law(other.scenario, acceptance).tpot_s)

    before = by_law(loaded)

    def moved(other: Loaded) -> float:
        return by_law(other) / before - 1.0

    ranked = []
    numbers = numbers_of(scenario)
    for span in uneven(numbers, scenario):
        low, high = at_ends(span, loaded, by_law)
        farther = exp(max(low, high, key=abs) / SHARE_DEVIATIONS) - 1.0
        known = (span.number.value, span.known.confidence, span.known.source)
        ends = (exp(low) - 1.0, exp(high) - 1.0)
        ranked.append(Footing(span.name, *known, farther, ends))
    for name, number in evenly(numbers, scenario).items():
        if deviation(number) and (every or in_doubt(number)):
            change = moved(with_number(number, loaded))
            ranked.append(Footing(name, number.value, number.confidence, number.source, change))
    for name, without_curve in uncurved(scenario):
        change = moved(without_curve(loaded))
        ranked.append(Footing(name, 1.0, "borrowed", "no curve of the format", change))
    for name, continued in continued_further(scenario):
        change = moved(continued(loaded))
        source = "a formula beyond what it was fitted to"
        ranked.append(Footing(name, 1.0, "assumed", source, change))
    lower, _ = acceptance_range(loaded)
    if lower:
        change = exp(lower / SHARE_DEVIATIONS) - 1.0
        mean = float(law(scenario, acceptance).verified_per_step)
        confidence = scenario.acceptance.confidence or "assumed"
        source = scenario.acceptance.source or "not stated"
        ranked.append(Footing(ACCEPTANCE, mean, confidence, source, change))
    return sorted(ranked, key=lambda footing: -abs(footing.change))


def rests_on(loaded: Loaded, most: int = 4) -> str:
    """Return which number in doubt could change the speed-up most, and by how much, and then the
    next ones; empty where they change little.
    """
    return largest_in_words(loaded, footings(loaded, every=False), most)


def largest_in_words(loaded: Loaded, doubted: Sequence[Footing], most: int = 4) -> str:
    """Return the same of numbers in doubt that are known already."""
    named = worth_naming(doubted)
    if not named:
        return ""
    largest, *others = named[:most]
    what = "speed"
    if loaded.scenario.schedule.window:
        what = "speed-up"
    how_far = "if it is off by one standard deviation"
    if largest.ends is not None:
        how_far = "over its range"
    words = (
        f"largest uncertainty: {largest.parameter} ({_known(largest)}); {how_far}, the {what} "
        f"changes by {_size(largest)} %"
    )
    if others:
        words += f"; then {', '.join(map(in_words, others))}"
    return words


def worth_naming(doubted: Sequence[Footing]) -> list[Footing]:
    """Return the numbers in doubt that change an answer by more than a little, in their order."""
    return [footing for footing in doubted if abs(footing.change) >= WORTH_NAMING]


def in_words(footing: Footing) -> str:
    """Return what a number is called, how well it is known, and how far it moves the answer."""
    return f"{footing.parameter} ({_known(footing)}, {_size(footing)} %)"


def _known(footing: Footing) -> str:
    """Return how well a number is known: its confidence, or where it is borrowed from."""
    if footing.confidence == "borrowed":
        origin, _, _ = footing.source.partition(" (")
        return origin
    return footing.confidence


def _size(footing: Footing) -> str:
    """Return how far a number moves a speed-up in per cent: by one deviation, or at both ends of an
    uneven range.
    """
    if footing.ends is None:
        return f"{100 * footing.change:+.1f}"
    low, high = footing.ends
    return f"{100 * low:+.1f} to {100 * high:+.1f}"
