"""Laws over grids and columns: the same expressions, with arrays in the place of numbers, block by block.

A law is written in numpy expressions over named durations and odds. Where an axis of a sweep only changes a number that
enters them (a stated duration, an acceptance rate, the channel's latency), it is handed over as an array with an axis of
its own: what depends on few axes is worked out on few values, and spread only where axes meet. Any other axis (a window,
a device, a strategy) changes what is computed; its values are walked one by one, each as a variant of the scenario that
shares everything it leaves alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.acceptance import Acceptance, Odds, Rates
from simulator.cost import Cost, HardwareCost
from simulator.given import Given, GivenCost
from simulator.run import tuned
from simulator.scenario import Loaded, Scenario
from simulator.strategies.autoregressive import Autoregressive
from simulator.variants import variant

Floats = NDArray[np.float64]
Axes = Mapping[str, Sequence[Any] | NDArray[Any]]
"""Values of each dotted key, in the order of the axes."""
QUANTITIES = ("step_s", "tokens_per_step", "tpot_s", "speedup")
"""Mean step; tokens that it commits for each request; time per output token; plain decoding's over that."""
BLOCK_BYTES = 1 << 23
"""Of all arrays that a law makes for a block, as far as can be told; what is worked out stays near the processor."""
ONE_TOKEN = Odds(np.ones(1), np.zeros(1), 0.0, "one token per pass")
STATED = {f"durations.{name}" for name in Given.model_fields if name not in ("layers_ms", "stages_ms", "links_ms")}
RATES = {"acceptance.rate", "acceptance.overlap"}
CHANNEL = {"channel.latency_us", "channel.bandwidth_gb_s"}
SPREAD = STATED | RATES | CHANNEL
"""Keys whose values may be handed to a law as an array."""
Chosen = dict[str, Any]
Arrays = dict[str, Floats]


def law_grid(base: Loaded, axes: Axes, quantities: Sequence[str] = QUANTITIES) -> dict[str, Floats]:
    """The law at every combination of the values of ``axes``, marginal rates; each array has one axis for each key.

    Equal to :func:`simulator.run.law` of each variant, to 4 ulp. ``quantities``: which of ``QUANTITIES`` are wanted. Takes
    16 MB beside the results, whatever their size. Raises as :func:`simulator.variants.variant` does where a combination
    cannot be, and ValueError for a key without values.
    """
    values = {key: _values(key, each) for key, each in axes.items()}
    found = {name: np.empty(tuple(map(len, values.values()))) for name in quantities}
    for chosen in _product(values, [key for key in values if key not in SPREAD]):
        numbers = {key: each for key, each in values.items() if key in SPREAD}
        for also in _product(numbers, _walked(base, _at(values, chosen), numbers)):
            places = chosen | also
            rest = {key: each for key, each in numbers.items() if key not in also}
            one = _variant(base, _at(values, places), rest)
            for block in _blocks([len(each) for each in rest.values()], one):
                parts = dict(zip(rest, block, strict=True))
                open_axes = np.ix_(*(each[parts[key]] for key, each in rest.items()))
                law = _law(one, dict(zip(rest, open_axes, strict=True)), quantities)
                for name in quantities:
                    found[name][tuple((places | parts)[key] for key in values)] = law[name]
    return found


def law_columns(base: Loaded, columns: Axes, quantities: Sequence[str] = QUANTITIES) -> dict[str, Floats]:
    """The law at point after point, each with its own value of every key: columns of one length, and results as long.

    Otherwise as :func:`law_grid`.
    """
    values = {key: _values(key, each) for key, each in columns.items()}
    (count,) = {len(each) for each in values.values()}
    found = {name: np.empty(count) for name in quantities}
    for chosen, rows in _groups(values, [key for key in values if key not in SPREAD], np.arange(count)):
        numbers = {key: each for key, each in values.items() if key in SPREAD}
        for also, those in _groups(values, _walked(base, chosen, numbers, rows), rows):
            rest = {key: each for key, each in numbers.items() if key not in also}
            one = _variant(base, chosen | also, {key: each[those] for key, each in rest.items()})
            for (part,) in _blocks([len(those)], one):
                law = _law(one, {key: each[those[part]] for key, each in rest.items()}, quantities)
                for name in quantities:
                    found[name][those[part]] = law[name]
    return found


# ---- what is walked, what is spread


def _values(key: str, values: Sequence[Any] | NDArray[Any]) -> Any:
    if not len(values):
        raise ValueError(f"{key} has no values")
    return np.asarray(values, dtype=np.float64) if key in SPREAD else list(values)


def _walked(base: Loaded, chosen: Chosen, numbers: Arrays, rows: Any = slice(None)) -> list[str]:
    """Those of ``numbers`` that this variant's law cannot take as arrays.

    What works itself out before a run has to do so for each value; shares of steps that solve equations are solved one
    rate at a time.
    """
    one = variant(base, chosen | {key: float(each[rows][0]) for key, each in numbers.items()})
    if tuned(one) is not one:
        return list(numbers)
    return [key for key in numbers if key in RATES and not one.scenario.schedule.takes_rates]


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


def _groups(values: Mapping[str, Any], keys: Sequence[str], rows: NDArray[np.int64]) -> Iterator[tuple[Chosen, Any]]:
    """Rows that agree in all ``keys``, with the values that they have there."""
    if not keys:
        yield {}, rows
        return
    found = defaultdict[str, list[int]](list)
    for row in rows.tolist():
        found[repr([values[key][row] for key in keys])].append(row)
    for each in found.values():
        yield {key: _item(values[key][each[0]]) for key in keys}, np.array(each)


def _blocks(lengths: Sequence[int], one: Loaded) -> Iterator[tuple[slice, ...]]:
    """Slices that cover a grid, last axes whole, such that the arrays of a law stay within ``BLOCK_BYTES``."""
    left = max(1, BLOCK_BYTES // 8 // (8 + one.scenario.schedule.window))
    steps: list[int] = []
    for length in reversed(lengths):
        steps.insert(0, min(length, max(1, left)))
        left //= steps[0]
    yield from product(*(_slices(length, step) for length, step in zip(lengths, steps, strict=True)))


def _slices(length: int, step: int) -> list[slice]:
    return [slice(first, first + step) for first in range(0, length, step)]


# ---- the law with arrays in it


def _law(one: Loaded, arrays: Arrays, quantities: Sequence[str]) -> dict[str, Any]:
    scenario, strategy = one.scenario, one.scenario.schedule
    cost, acceptance = _cost(scenario, arrays), _acceptance(one, arrays)
    requests, context = scenario.batch, scenario.mean_context
    law = strategy.law(cost, lambda gamma: acceptance.odds(gamma, scenario.exit), requests, context, None, scenario.one_lane)
    found = {"step_s": law.step_s, "tokens_per_step": law.tokens_per_step, "tpot_s": law.tpot_s}
    if "speedup" in quantities:
        found["speedup"] = Autoregressive().law(cost, lambda gamma: ONE_TOKEN, requests, context).tpot_s / found["tpot_s"]
    return found


def _cost(scenario: Scenario, arrays: Arrays) -> Cost:
    held = scenario.cost
    if isinstance(held, GivenCost):
        stated = {key.partition(".")[2]: each for key, each in arrays.items() if key in STATED}
        return replace(held, given=held.given.model_copy(update=stated))
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
