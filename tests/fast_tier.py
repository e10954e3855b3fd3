"""Which tests are in the fast tier, and which of them take long."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import pytest

LONG = 1 / 100
"""Share of the time of a tier above which a test is told as long."""
TIER = 1_000
"""Tests in a run that is a tier."""


def function(nodeid: str) -> str:
    """Return the name of a test without its parameters."""
    return nodeid.partition("[")[0]


def spread(count: int, among: int) -> set[int]:
    """Return ``count`` places among so many, from the first to the last, as far apart as can be."""
    if count >= among:
        return set(range(among))
    steps = max(count - 1, 1)
    return {place * (among - 1) // steps for place in range(count)}


def leave_few(items: Iterable[pytest.Item]) -> None:
    """Mark as ``full`` all cases of a test but as many as ``few`` says."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("few"):
            cases[function(item.nodeid)].append(item)
    for those in cases.values():
        (count,) = those[0].get_closest_marker("few").args
        fast = spread(count, len(those))
        for place, item in enumerate(those):
            if place not in fast:
                item.add_marker(pytest.mark.full)


def long_ones(durations_s: Mapping[str, float]) -> list[str]:
    """Return the tests, by the time of all their cases, that take more than ``LONG`` of a tier.

    ``durations_s`` are those of every case; of fewer than ``TIER`` nothing is told.
    """
    if len(durations_s) < TIER:
        return []
    by_test: Counter[str] = Counter()
    for nodeid, duration_s in durations_s.items():
        by_test[function(nodeid)] += duration_s
    most_s = LONG * by_test.total()
    return [test for test, duration_s in by_test.most_common() if duration_s > most_s]
