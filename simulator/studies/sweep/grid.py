"""Laws over grids and columns: the same expressions, with arrays in the place of numbers, block by block.

A law is written in numpy expressions over named durations and odds. Where an axis of a sweep only changes a number that
enters them (a stated duration, an acceptance rate, the channel's latency), it is handed over as an array with an axis of
its own: what depends on few axes is worked out on few values, and spread only where axes meet. Any other axis (a window,
a device, a strategy) changes what is computed; its values are walked one by one, each as a variant of the scenario that
shares everything it leaves alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.acceptance.sources import Acceptance, Odds, Rates, odds_of
from simulator.cost.hardware_cost import HardwareCost
from simulator.cost.protocol import Cost
from simulator.cost.stated import StatedCost, StatedDurations
from simulator.scenario import Loaded, Scenario
from simulator.scenario.loading import variant
from simulator.scenario.run import tuned
from simulator.strategies.autoregressive import Autoregressive
from simulator.strategies.common.base import law_parts
from simulator.strategies.common.law import means
from simulator.strategies.common.pipeline_laws import PipelineTimes

Floats = NDArray[np.float64]
Axes = Mapping[str, Sequence[Any] | NDArray[Any]]
"""Values of each dotted key, in the order of the axes."""
QUANTITIES = ("step_s", "tokens_per_step", "tpot_s", "speedup")
"""Mean step; tokens that it commits for each request; time per output token; plain decoding's over that."""
BLOCK = 1 << 14
"""Points of a block: arrays of 128 KB stay in the cache, and longer ones the allocator would hand back each time."""
BLOCK_BYTES = 1 << 24
"""Of the odds that are held at a time, about."""
ONE_TOKEN = Odds(np.ones(1), np.zeros(1), 0.0, "one token per pass")
STATED = {f"durations.{name}" for name in StatedDurations.model_fields if name not in ("layers_ms", "stages_ms", "links_ms")}
RATES = {"acceptance.rate", "acceptance.overlap"}
CHANNEL = {"channel.latency_us", "channel.bandwidth_gb_s"}
SPREAD = STATED | RATES | CHANNEL
"""Keys whose values may be handed to a law as an array."""
ALL = slice(None)
Chosen = dict[str, Any]
Arrays = dict[str, Floats]
Rows = slice | NDArray[np.int64]


def law_grid(base: Loaded, axes: Axes, quantities: Sequence[str] = QUANTITIES) -> dict[str, Floats]:
    """The law at every combination of the values of ``axes``, marginal rates; each array has one axis for each key.

    Equal to :func:`simulator.scenario.run.law` of each variant, to 4 ulp. ``quantities``: which of ``QUANTITIES`` are wanted.
    Takes 16 MB beside the results, whatever their size. Raises as :func:`simulator.scenario.loading.variant` does where a
    combination cannot be, and ValueError for a key without values.
    """
    values = {key: _values(key, each) for key, each in axes.items()}
    found = {name: np.empty(tuple(map(len, values.values()))) for name in quantities}
    for chosen in _product(values, [key for key in values if key not in SPREAD]):
        numbers = {key: each for key, each in values.items() if key in SPREAD}
        for also in _product(numbers, _walked(base, _at(values, chosen), numbers)):
            places = chosen | also
            rest = {key: each for key, each in numbers.items() if key not in also}
            one = _variant(base, _at(values, places), rest)
            for within in _blocks({key: len(each) for key, each in rest.items()}, _rates_at_once(one), RATES | CHANNEL):
                held = {key: each[within[key]] for key, each in rest.items()}
                law = GridLaw(one, dict(zip(rest, np.ix_(*held.values()), strict=True)), quantities)
                for block in _blocks({key: len(each) for key, each in held.items()}, BLOCK):
                    where = places | {key: _inside(within[key], block[key]) for key in rest}
                    there = (*(where[key] for key in values), ...)
                    law.fill({name: found[name][there] for name in quantities}, tuple(block.values()))
    return found


def law_columns(base: Loaded, columns: Axes, quantities: Sequence[str] = QUANTITIES) -> dict[str, Floats]:
    """The law at point after point, each with its own value of every key: columns of one length, and results as long.

    Otherwise as :func:`law_grid`.
    """
    values = {key: _values(key, each) for key, each in columns.items()}
    (count,) = {len(each) for each in values.values()}
    found = {name: np.empty(count) for name in quantities}
    for chosen, rows in _groups(values, [key for key in values if key not in SPREAD], slice(0, count)):
        numbers = {key: each[rows] for key, each in values.items() if key in SPREAD}
        for also, those in _groups(values, _walked(base, chosen, numbers), rows):
            rest = {key: values[key] for key in numbers if key not in also}
            one = _variant(base, chosen | also, {key: each[those] for key, each in rest.items()})
            for part in _slices(_length(those), min(BLOCK, _rates_at_once(one))):
                here = _part(those, part)
                some = {name: np.empty(part.stop - part.start) for name in quantities}
                GridLaw(one, {key: each[here] for key, each in rest.items()}, quantities).fill(some, (ALL,))
                for name in quantities:
                    found[name][here] = some[name]
    return found


# ---- what is walked, what is spread


def _values(key: str, values: Sequence[Any] | NDArray[Any]) -> Any:
    if not len(values):
        raise ValueError(f"{key} has no values")
    return np.asarray(values, dtype=np.float64) if key in SPREAD else list(values)


def _walked(base: Loaded, chosen: Chosen, numbers: Arrays) -> list[str]:
    """Those of ``numbers`` that this variant's law cannot take as arrays.

    What works itself out before a run has to do so for each value; shares of steps that solve equations are solved one
    rate at a time.
    """
    one = variant(base, chosen | {key: float(each[0]) for key, each in numbers.items()})
    if tuned(one) is not one:
        return list(numbers)
    return [key for key in numbers if key in RATES and one.scenario.schedule.needs.single_rates]


def _variant(base: Loaded, chosen: Chosen, numbers: Arrays) -> Loaded:
    """A variant for which every value of ``numbers`` is known to be allowed, since the least and the most are."""
    for end in (np.max, np.min):
        one = variant(base, chosen | {key: float(end(each)) for key, each in numbers.items()})
    return tuned(one)


def _at(values: Mapping[str, Any], places: Mapping[str, int]) -> Chosen:
    return {key: _item(values[key][place]) for key, place in places.items()}


def _item(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _product(values: Mapping[str, Any], keys: Sequence[str]) -> Iterator[dict[str, int]]:
    """Every combination of places in the values of ``keys``."""
    for places in product(*(range(len(values[key])) for key in keys)):
        yield dict(zip(keys, places, strict=True))


def _groups(values: Mapping[str, Any], keys: Sequence[str], rows: Rows) -> Iterator[tuple[Chosen, Rows]]:
    """Rows that agree in all ``keys``, with the values that they have there."""
    if not keys:
        yield {}, rows
        return
    found = defaultdict[str, list[int]](list)
    for row in range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist():
        found[repr([values[key][row] for key in keys])].append(row)
    for each in found.values():
        yield {key: _item(values[key][each[0]]) for key in keys}, np.array(each)


def _length(rows: Rows) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def _part(rows: Rows, part: slice) -> Rows:
    return _inside(rows, part) if isinstance(rows, slice) else rows[part]


def _rates_at_once(one: Loaded) -> int:
    """Rates for which the odds of a window may be held at a time."""
    return max(1, BLOCK_BYTES // 8 // (8 + 4 * one.scenario.schedule.window))


def _blocks(lengths: Mapping[str, int], points: int, cut: Collection[str] = SPREAD) -> Iterator[dict[str, slice]]:
    """Slices that cover a grid, with at most so many points over those axes that may be ``cut``; last axes whole."""
    steps = dict(lengths)
    for key in reversed(list(lengths)):
        if key in cut:
            steps[key] = min(lengths[key], max(1, points))
            points //= steps[key]
    for block in product(*(_slices(lengths[key], step) for key, step in steps.items())):
        yield dict(zip(lengths, block, strict=True))


def _slices(length: int, step: int) -> list[slice]:
    return [slice(first, min(first + step, length)) for first in range(0, length, step)]


def _inside(outer: slice, inner: slice) -> slice:
    return slice(outer.start + inner.start, outer.start + inner.stop)


# ---- the law with arrays in it


class GridLaw:
    """What the law of a variant and that of plain decoding are made of, with arrays in the place of some of its numbers.

    Arrays have met as little as they have to: what depends on few axes has few values.
    """

    def __init__(self, one: Loaded, arrays: Arrays, quantities: Sequence[str]) -> None:
        scenario, cost, acceptance = one.scenario, _cost(one.scenario, arrays), _acceptance(one, arrays)
        requests, context = scenario.batch, scenario.mean_context
        parts = law_parts(scenario.schedule, cost, odds_of(acceptance, scenario.exit), requests, context)
        self.parts = _cutter(tuple(parts))
        if "speedup" in quantities:
            self.plain = _cutter(tuple(law_parts(Autoregressive(), cost, lambda gamma: ONE_TOKEN, requests, context)))

    def fill(self, found: Mapping[str, Floats], block: tuple[slice, ...]) -> None:
        """Evaluate a block of the arrays into views of the results."""
        step_s, tokens, request_step_s = means(self.parts(block))
        if "step_s" in found:
            found["step_s"][...] = step_s
        if "tokens_per_step" in found:
            found["tokens_per_step"][...] = tokens
        if "tpot_s" in found:
            np.divide(request_step_s, tokens, out=found["tpot_s"])
        if "speedup" in found:
            np.divide(means(self.plain(block))[2], request_step_s / tokens, out=found["speedup"])


def _cutter(held: Any) -> Callable[[tuple[slice, ...]], Any]:
    """Gives the block of every array within ``held``; along axes of length 1 all of it, and of the rest the thing itself."""
    if isinstance(held, np.ndarray) and held.ndim:
        long = [length > 1 for length in held.shape]
        return lambda block: held[tuple([part if cut else ALL for part, cut in zip(block, long, strict=True)])]
    if isinstance(held, PipelineTimes):
        names = [one.name for one in fields(held)]
        inner = _cutter(tuple(getattr(held, name) for name in names))
        return lambda block: replace(held, **dict(zip(names, inner(block), strict=True)))
    cutters = [(place, _cutter(each)) for place, each in enumerate(held) if _holds_arrays(each)]
    make = getattr(type(held), "_make", tuple)

    def cut(block: tuple[slice, ...]) -> Any:
        values = list(held)
        for place, cutter in cutters:
            values[place] = cutter(block)
        return make(values)

    return cut


def _holds_arrays(held: Any) -> bool:
    if isinstance(held, PipelineTimes):
        return any(_holds_arrays(getattr(held, one.name)) for one in fields(held))
    return any(map(_holds_arrays, held)) if isinstance(held, tuple) else isinstance(held, np.ndarray) and held.ndim > 0


def _cost(scenario: Scenario, arrays: Arrays) -> Cost:
    held = scenario.cost
    if isinstance(held, StatedCost):
        stated = {key.partition(".")[2]: each for key, each in arrays.items() if key in STATED}
        return replace(held, durations=held.durations.model_copy(update=stated))
    if isinstance(held, HardwareCost) and held.channel:
        carried = {key.partition(".")[2]: each for key, each in arrays.items() if key in CHANNEL}
        numbers = {name: getattr(held.channel, name).model_copy(update={"value": each}) for name, each in carried.items()}
        return replace(held, channel=held.channel.model_copy(update=numbers))
    return held


def _acceptance(one: Loaded, arrays: Arrays) -> Acceptance:
    scenario = one.scenario
    plain = scenario.acceptance.verdicts(one.trace, scenario.seed) if RATES & set(arrays) else None
    if not isinstance(plain, Rates):
        return one.acceptance()
    rate, overlap = arrays.get("acceptance.rate"), arrays.get("acceptance.overlap", plain.overlap)
    spread = replace(plain, rates=plain.rates if rate is None else (rate,), overlap=overlap)
    return scenario.schedule.reads(spread)
