"""Shall one switch speculation on? A word for the chance that it is faster than plain decoding."""

from typing import Literal

Verdict = Literal["helps", "may hurt", "hurts"]
HELPS = 0.8
"""Chance of being faster from which on speculation helps."""
HURTS = 0.2
"""Chance of being faster below which speculation hurts."""


def verdict(chance: float) -> Verdict:
    """Return the word for a chance, as a share of 1, that speculation is faster than none."""
    if chance >= HELPS:
        return "helps"
    if chance < HURTS:
        return "hurts"
    return "may hurt"
