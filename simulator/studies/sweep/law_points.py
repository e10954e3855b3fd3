"""Laws of many points at once.

Points that differ only in numbers which a law takes as arrays (:data:`~simulator.studies.sweep.grid.SPREAD`:
stated durations, acceptance rates, the channel) share one variant of the scenario and one evaluation. Their keys are put
together from the digests of the fields that each part of their settings changes, each worked out once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from simulator.files.schema import BadInput
from simulator.scenario import Loaded, run
from simulator.studies.sweep.axes import Point, Settings
from simulator.studies.sweep.base import Base
from simulator.studies.sweep.grid import RATES, SPREAD, law_columns
from simulator.studies.sweep.key import Fields, key_of

SAME_PART = {"method": "strategy", "serving": "requests"}
"""Fields that are set together with others: a method states its strategy, the policy bounds the batch."""
Found = tuple[bytes, dict[str, float]]


def laws(base: Base, points: Sequence[Point]) -> list[Found]:
    """Key and metrics of every point; raises what the first of them that cannot be would raise alone."""
    keys, groups, found = _Keys(base), defaultdict[str, list[int]](list), dict[int, Found]()
    numbers = [_numbers(point.settings) for point in points]
    rest = [
        {key: point.settings[key] for key in point.settings if key not in of} for point, of in zip(points, numbers, strict=True)
    ]
    for place, (walked, spread) in enumerate(zip(rest, numbers, strict=True)):
        groups[repr((walked, list(spread)))].append(place)
    for places in groups.values():
        one = base.with_acceptance(*base.point(rest[places[0]]))
        metrics = _metrics(one, {key: [numbers[place][key] for place in places] for key in numbers[places[0]]}, len(places))
        for place, each in zip(places, metrics, strict=True):
            found[place] = keys.of(points[place].settings), each
    return [found[place] for place in range(len(points))]


def _numbers(settings: Settings) -> dict[str, float]:
    """Those that a law takes as arrays; an overlap that is bounded by a rate goes with it, one by one."""
    found = {key: value for key, value in settings.items() if key in SPREAD and type(value) in (int, float)}
    if found.keys() >= RATES:
        del found["acceptance.overlap"]
    return found


def _metrics(one: Loaded, columns: dict[str, list[float]], count: int) -> Iterator[dict[str, float]]:
    batch = one.scenario.batch
    if not columns:
        law, plain = run.law(one.scenario, one.acceptance()), run.baseline(one.scenario)
        found = [(law.tpot_s, plain.tpot_s / law.tpot_s, law.tokens_per_step, law.step_s)] * count
    else:
        arrays = law_columns(one, columns)
        found = list(zip(*(arrays[name].tolist() for name in ("tpot_s", "speedup", "tokens_per_step", "step_s")), strict=True))
    for tpot_s, speedup, tokens_per_step, step_s in found:
        yield {
            "tpot_ms": tpot_s * 1e3,
            "tokens_per_s": batch / tpot_s,
            "speedup": speedup,
            "tokens_per_step": tokens_per_step,
            "step_ms": step_s * 1e3,
        }


class _Keys:
    """Keys of points from what each part of their settings changes in the base."""

    def __init__(self, base: Base) -> None:
        self.base = base
        self._changes: dict[str, dict[str, bytes | None]] = {}

    def of(self, settings: Settings) -> bytes:
        """The key of the base with fields set, as :func:`simulator.studies.sweep.key.fields_of` has it."""
        parts = defaultdict[str, Settings](dict)
        for key, value in settings.items():
            first = key.partition(".")[0]
            parts[SAME_PART.get(first, first)][key] = value
        try:
            return key_of(self._fields(parts.values()), "law")
        except BadInput:  # a part may be wrong alone and right with the others
            return key_of(self.base.point(settings)[1], "law")

    def _fields(self, parts: Iterable[Settings]) -> Fields:
        fields: Fields = dict(self.base.fields)
        for part in parts:
            for name, changed in self._changed(part).items():
                if changed is None:
                    fields.pop(name, None)
                else:
                    fields[name] = changed
        return fields

    def _changed(self, part: Settings) -> dict[str, bytes | None]:
        known = repr(part)
        if known not in self._changes:
            after, before = self.base.point(part)[1], self.base.fields
            names = after.keys() | before.keys()
            self._changes[known] = {name: after.get(name) for name in names if after.get(name) != before.get(name)}
        return self._changes[known]
