#!/usr/bin/env python3
"""How errors grow outside of what engines were fitted on, from a table of measured runs.

    python -m benchmarks.distance rows.csv --catalogue mine

Every source of the table is a group that took no part in a fit, but for those inside of a hull.
Where a source lies outside on an axis of counts alone (requests, rows, ranks), it decides it: its
mean squared error, as far as the doubts other than distance do not hold it, by the squares of the
distances. What such axes leave of the squared errors of other sources is shared evenly among the
other axes on which they lie outside, and an axis takes the mean over its sources. (Shared in
proportion instead, round after round, sources by the constants of others are held no better.) Plain
steps give what every pass has, speed-ups what a speculative step has beyond that. The constants of
``simulator/scenario/uncertain/distance.py`` are these.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from pathlib import Path
from statistics import NormalDist, fmean

import numpy as np

from simulator.evidence.ledger.rows import PLAIN_STEP, SPEEDUP, LedgerRow, read_table
from simulator.inputs.catalogue import Catalogue
from simulator.scenario.uncertain.distance import OUTSIDE, Axis, farthest
from simulator.scenario.uncertain.draws import Deviates
from simulator.scenario.uncertain.intervals import doubts_of, plain_step_by_law, speedup_by_law

COUNTED: tuple[Axis, ...] = ("batch", "rows", "ranks")
"""Axes along which several distances of one source show the growth itself."""
OF_DRAFTS = frozenset(("rows", "verification", "drafting"))
"""Axes that plain decoding does not have."""
AWAY: tuple[Axis, ...] = ("card", "architecture", "maker")
"""Steps away from home, each at least as far as the one before."""
SHARE = 0.8
"""Share of errors that intervals should hold."""
QUANTITIES = {PLAIN_STEP: plain_step_by_law, SPEEDUP: speedup_by_law}


@dataclass(frozen=True)
class Missed:
    """An error of a row, as a log, beside what is known of it."""

    source: str
    error: float
    known: float
    """One standard deviation by all doubts but distance."""
    distance: dict[Axis, float]


def missed(rows: Sequence[LedgerRow], quantity: str) -> Iterator[Missed]:
    """Yield the errors of a quantity, as far as it was measured."""
    for row in rows:
        comparison = row.of(quantity)
        if comparison is None:
            continue
        doubt = doubts_of(row.loaded, (), [QUANTITIES[quantity]])[0]
        near = {name: size for name, size in doubt.changes.items() if OUTSIDE not in name}
        changes = Deviates().drawn(1.0, doubt._replace(changes=near)).changes
        error = log(comparison.measured / comparison.predicted.value)
        distance = farthest(row.loaded.scenario)
        if quantity == PLAIN_STEP:
            distance = {axis: far for axis, far in distance.items() if axis not in OF_DRAFTS}
        yield Missed(row.source, error, float(np.std(changes)), distance)


def outside_by_source(errors: Sequence[Missed]) -> dict[str, list[Missed]]:
    """Return the errors outside of a hull by source."""
    by_source = defaultdict[str, list[Missed]](list)
    for one in errors:
        if one.distance:
            by_source[one.source].append(one)
    return by_source


def shared(group: Sequence[Missed], decided: Mapping[Axis, float]) -> float:
    """Return the squared error of a source by unit of squared distance on the axes that are not
    decided; ``decided`` are squares by axis.
    """
    left = []
    squares = []
    for one in group:
        known = one.known**2
        known += sum(
            decided[axis] * far**2 for axis, far in one.distance.items() if axis in decided
        )
        left.append(one.error**2 - known)
        squares.append(sum(far**2 for axis, far in one.distance.items() if axis not in decided))
    if not any(squares):
        return 0.0
    return max(0.0, fmean(left)) / fmean(squares)


def growth_of(errors: Sequence[Missed]) -> dict[Axis, dict[str, float]]:
    """Return the squared error by unit of squared distance along each axis, by source."""
    by_source = outside_by_source(errors)
    found = defaultdict[Axis, dict[str, float]](dict)
    for source, group in by_source.items():
        axes = {axis for one in group for axis in one.distance}
        if len(axes) == 1 and axes <= {*COUNTED}:
            found[axes.pop()][source] = shared(group, {})
    decided = {axis: fmean(squares.values()) for axis, squares in found.items()}
    for source, group in by_source.items():
        for axis in {axis for one in group for axis in one.distance} - decided.keys():
            found[axis][source] = shared(group, decided)
    return found


def constants(errors: Sequence[Missed]) -> dict[Axis, float]:
    """Return the standard deviation by unit of distance along each axis."""
    found = {}
    for axis, squares in growth_of(errors).items():
        found[axis] = sqrt(fmean(squares.values()))
    least = 0.0
    for axis in AWAY:
        least = found[axis] = max(least, found.get(axis, 0.0))
    return found


def held(errors: Sequence[Missed], growth: Mapping[Axis, float]) -> float:
    """Return the share of errors that intervals of ``SHARE`` hold."""
    ends = NormalDist().inv_cdf((1.0 + SHARE) / 2.0)
    inside = []
    for one in errors:
        square = one.known**2
        for axis, far in one.distance.items():
            square += (growth.get(axis, 0.0) * far) ** 2
        inside.append(abs(one.error) <= ends * sqrt(square))
    return fmean(inside)


def with_each_left_out(errors: Sequence[Missed]) -> float:
    """Return the same of errors outside of a hull, each source by the constants of the others."""
    by_source = outside_by_source(errors)
    shares = []
    for source, group in by_source.items():
        others = [one for one in errors if one.source != source]
        shares.append(held(group, constants(others)) * len(group))
    return sum(shares) / sum(map(len, by_source.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--catalogue", type=Path, action="append", default=[])
    asked = parser.parse_args()
    rows = read_table(asked.table, Catalogue(tuple(asked.catalogue))).rows
    for quantity in QUANTITIES:
        errors = list(missed(rows, quantity))
        print(f"\n{quantity}: standard deviation of its log by unit of distance")
        for source, group in sorted(outside_by_source(errors).items()):
            rms = sqrt(fmean(one.error**2 for one in group))
            axes = {axis: round(far, 1) for one in group for axis, far in one.distance.items()}
            print(f"  {source:45.45} {len(group)} rows, rms {rms:.3f} {axes}")
        growth = constants(errors)
        sources = growth_of(errors)
        for axis, deviation in sorted(growth.items()):
            print(f"{axis:14} {deviation:.2f} of {len(sources.get(axis, ()))} sources")
        beyond = [one for one in errors if one.distance]
        near = [one for one in errors if not one.distance]
        print(f"held of {SHARE:.0%}: {held(near, {}):.0%} of {len(near)} inside,")
        print(f"  {held(beyond, {}):.0%} of {len(beyond)} outside without growth,")
        by_others = with_each_left_out(errors)
        print(f"  {held(beyond, growth):.0%} with it, {by_others:.0%} by that of other sources")


if __name__ == "__main__":
    main()
