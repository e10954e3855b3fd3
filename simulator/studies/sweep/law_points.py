"""Evaluate laws of many points at once.

Points that differ only in numbers which a law takes as arrays
(:data:`~simulator.studies.sweep.grid.SPREAD`: stated durations, acceptance rates, the channel)
share one variant of the scenario and one evaluation. Their keys are put together from the digests
of the fields that each part of their settings changes, each worked out once.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from simulator.core.faults import BadInput
from simulator.scenario import Loaded, evaluate
from simulator.studies.sweep.axes import Point, Settings
from simulator.studies.sweep.base import Base, parts_of
from simulator.studies.sweep.grid import RATES, SPREAD, law_columns
from simulator.studies.sweep.key import Fields, key_of
from simulator.studies.sweep.metrics import LAW_METRICS

KeyAndMetrics = tuple[bytes, dict[str, float]]


def laws(base: Base, points: Sequence[Point]) -> list[KeyAndMetrics]:
    """Return key and metrics of every point; raises what the first point that cannot be would raise
    alone.
    """
    keys = _Keys(base)
    groups = defaultdict[str, list[int]](list)
    results = dict[int, KeyAndMetrics]()
    numbers = [_numbers(point.settings) for point in points]
    walked: list[Settings] = []
    for place, point in enumerate(points):
        walked.append(
            {key: value for key, value in point.settings.items() if key not in numbers[place]}
        )
        groups[repr((walked[place], list(numbers[place])))].append(place)
    for places in groups.values():
        first = places[0]
        loaded = base.with_acceptance(*base.point(walked[first]))
        columns = {key: [numbers[place][key] for place in places] for key in numbers[first]}
        for place, metrics in zip(places, _metrics(loaded, columns, len(places)), strict=True):
            results[place] = keys.of(points[place].settings), metrics
    return [results[place] for place in range(len(points))]


def _numbers(settings: Settings) -> dict[str, float]:
    """Return the settings that a law takes as arrays; an overlap that is bounded by a rate is
    walked, value by value.
    """
    numbers = {}
    for key, value in settings.items():
        if key in SPREAD and type(value) in (int, float):
            numbers[key] = value
    if numbers.keys() >= RATES:
        del numbers["acceptance.overlap"]
    return numbers


def _metrics(
    loaded: Loaded, columns: dict[str, list[float]], count: int
) -> Iterator[dict[str, float]]:
    """Yield the metrics of ``count`` points that differ in the numbers of ``columns``."""
    batch = loaded.scenario.batch
    if not columns:
        law = evaluate.law(loaded.scenario, loaded.acceptance())
        speedup = evaluate.speedup_of(loaded.scenario, law)
        rows = [(law.tpot_s, speedup, law.tokens_per_step, law.step_s)] * count
    else:
        arrays = law_columns(loaded, columns)
        rows = list(
            zip(
                *(
                    arrays[name].tolist()
                    for name in ("tpot_s", "speedup", "tokens_per_step", "step_s")
                ),
                strict=True,
            )
        )
    for tpot_s, speedup, tokens_per_step, step_s in rows:
        numbers = tpot_s * 1e3, batch / tpot_s, speedup, tokens_per_step, step_s * 1e3
        yield dict(zip(LAW_METRICS, numbers, strict=True))


class _Keys:
    """Puts the keys of points together from what each part of their settings changes in the
    base.
    """

    def __init__(self, base: Base) -> None:
        self.base = base
        self._changes: dict[str, dict[str, bytes | None]] = {}

    def of(self, settings: Settings) -> bytes:
        """Return the key of the base with fields set, as
        :func:`simulator.studies.sweep.key.fields_of` has it.
        """
        try:
            return key_of(self._fields(settings), "law")
        except BadInput:  # a part may be wrong alone and right with the rest
            return key_of(self.base.point(settings)[1], "law")

    def _fields(self, settings: Settings) -> Fields:
        """Return the digests of all fields with every part of the settings laid over the base."""
        fields: Fields = dict(self.base.fields)
        for part in parts_of(settings):
            for name, changed in self._changed(part).items():
                if changed is None:
                    fields.pop(name, None)
                else:
                    fields[name] = changed
        return fields

    def _changed(self, part: Settings) -> dict[str, bytes | None]:
        """Return the digests that a part of the settings changes; None for a field that it takes
        away.
        """
        text = repr(part)
        if text not in self._changes:
            after = self.base.part(part).fields
            before = self.base.fields
            names = after.keys() | before.keys()
            self._changes[text] = {
                name: after.get(name) for name in names if after.get(name) != before.get(name)
            }
        return self._changes[text]
