"""Evaluate laws over columns of points: the same expressions, with arrays in the place of numbers,
block by block.

A law is written in numpy expressions over named durations and odds. Where an axis of a sweep only
changes a number that enters them (a stated duration, an acceptance rate, the channel's latency), it
is handed over as an array. Any other axis (a window, a device, a strategy) changes what is
computed; its values are walked in turn, each as a variant of the scenario that shares everything it
leaves alone.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.sources import Acceptance, Odds, Rates, odds_of
from simulator.core.cost.hardware_cost import HardwareCost
from simulator.core.cost.protocol import Cost
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.plain import PlainData, PlainMapping
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.base import law_parts, share_emitted
from simulator.core.strategies.common.law import means
from simulator.scenario import Loaded, Scenario
from simulator.scenario.evaluate import tuned
from simulator.scenario.loading import variant

Floats = NDArray[np.float64]
Axes = Mapping[str, Sequence[Any] | NDArray[Any]]
"""Values of each dotted key, in the order of the axes."""
QUANTITIES = ("step_s", "tokens_per_step", "tpot_s", "speedup")
"""Mean step; tokens that it commits for each request; time per output token; plain decoding's over
that.
"""
BLOCK = 1 << 14
"""Points of a block: arrays of 128 KB stay in the cache, and longer ones the allocator would hand
back each time.
"""
BLOCK_BYTES = 1 << 24
"""Bytes of the odds that are kept at a time, about."""
ONE_TOKEN = Odds(np.ones(1), np.zeros(1), 0.0, "one token per pass")
STATED = {
    f"durations.{name}"
    for name in StatedDurations.model_fields
    if name not in ("layers_ms", "stages_ms", "links_ms")
}
RATES = {"acceptance.rate", "acceptance.overlap"}
CHANNEL = {"channel.latency_us", "channel.bandwidth_gb_s"}
SPREAD = STATED | RATES | CHANNEL
"""Keys whose values may be handed to a law as an array."""
Chosen = PlainData
Arrays = dict[str, Floats]
Rows = slice | NDArray[np.int64]


def law_columns(
    base: Loaded, columns: Axes, quantities: Sequence[str] = QUANTITIES
) -> dict[str, Floats]:
    """Return the law (marginal rates) at every point, a row of ``columns``: columns of one length,
    and results as long.

    Equal to :func:`simulator.scenario.evaluate.law` of each variant, to 4 ulp. ``quantities``:
    which of ``QUANTITIES`` are wanted. Takes 16 MB more than the results, whatever their size.
    Raises as :func:`simulator.scenario.loading.variant` does where a point cannot be, and
    ValueError for a key without values.
    """
    values = {key: _values(key, column) for key, column in columns.items()}
    (count,) = {len(column) for column in values.values()}
    results = {name: np.empty(count) for name in quantities}
    for loaded, arrays, rows in _variants(base, values, slice(0, count)):
        for block in _blocks(rows, min(BLOCK, _rates_at_once(loaded))):
            laws = _laws(loaded, _taken(arrays, block), quantities)
            for name, law in laws.items():
                results[name][block] = law
    return results


def _variants(
    base: Loaded, values: PlainMapping, rows: Rows
) -> Iterator[tuple[Loaded, Arrays, Rows]]:
    """Yield the variants that are walked, each with the columns that its law takes as arrays, and
    its rows of them.
    """
    for chosen, of_chosen in _groups(values, [key for key in values if key not in SPREAD], rows):
        spread = {key: column for key, column in values.items() if key in SPREAD}
        walked_keys = _walked(base, chosen, _taken(spread, of_chosen))
        for walked, group in _groups(values, walked_keys, of_chosen):
            arrays = {key: column for key, column in spread.items() if key not in walked}
            yield _variant(base, chosen | walked, _taken(arrays, group)), arrays, group


def _taken(columns: Mapping[str, Floats], rows: Rows) -> Arrays:
    """Return some rows of columns."""
    return {key: column[rows] for key, column in columns.items()}


# ---- what is walked, what is spread


def _values(key: str, values: Sequence[Any] | NDArray[Any]) -> Any:
    """Return the values of a key: an array of numbers where a law takes one, else a list."""
    if not len(values):
        raise ValueError(f"{key} has no values")
    if key in SPREAD:
        return np.asarray(values, dtype=np.float64)
    return list(values)


def _walked(base: Loaded, chosen: Chosen, numbers: Arrays) -> list[str]:
    """Return the keys of ``numbers`` that this variant's law cannot take as arrays.

    A strategy that is tuned before a run has to be tuned for each value; shares of steps that solve
    equations are solved a rate at a time.
    """
    loaded = variant(base, chosen | {key: float(column[0]) for key, column in numbers.items()})
    if tuned(loaded) is not loaded:
        return list(numbers)
    one_at_a_time = (
        loaded.scenario.schedule.needs.single_rates or loaded.scenario.acceptance.by_context
    )
    return [key for key in numbers if key in RATES and one_at_a_time]


def _variant(base: Loaded, chosen: Chosen, numbers: Arrays) -> Loaded:
    """Return a variant for which every value of ``numbers`` is allowed, since the least and the
    most are.
    """
    for end in (np.max, np.min):
        loaded = variant(
            base, chosen | {key: float(end(column)) for key, column in numbers.items()}
        )
    return tuned(loaded)


def _plain(value: Any) -> Any:
    """Return a numpy scalar as Python's, and any other value as it is."""
    if isinstance(value, np.generic):
        return value.item()
    return value


def _groups(values: PlainMapping, keys: Sequence[str], rows: Rows) -> Iterator[tuple[Chosen, Rows]]:
    """Yield rows that agree in all ``keys``, with the values that they have there."""
    if not keys:
        yield {}, rows
        return
    groups = defaultdict[str, list[int]](list)
    for row in range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist():
        groups[repr([values[key][row] for key in keys])].append(row)
    for group in groups.values():
        yield {key: _plain(values[key][group[0]]) for key in keys}, np.array(group)


def _blocks(rows: Rows, step: int) -> Iterator[Rows]:
    """Yield rows in parts of ``step`` at most."""
    if isinstance(rows, slice):
        yield from (
            slice(first, min(first + step, rows.stop))
            for first in range(rows.start, rows.stop, step)
        )
    else:
        yield from (rows[first : first + step] for first in range(0, len(rows), step))


def _rates_at_once(loaded: Loaded) -> int:
    """Return the number of rates for which the odds of a window may be kept at a time."""
    return max(1, BLOCK_BYTES // 8 // (8 + 4 * loaded.scenario.schedule.window))


# ---- the law with arrays in it


def _laws(loaded: Loaded, arrays: Arrays, quantities: Sequence[str]) -> PlainMapping:
    """Return the wanted quantities of a law with arrays in the place of numbers: arrays, or numbers
    for all points.
    """
    scenario = loaded.scenario
    cost = _cost(scenario, arrays)
    requests = scenario.batch
    context = scenario.mean_context
    odds = odds_of(_acceptance(loaded, arrays), scenario.exit)
    parts = law_parts(scenario.schedule, cost, odds, requests, context)
    step_s, verified, request_step_s = means(parts)
    tokens = verified * share_emitted(scenario.schedule, parts, odds, scenario.outputs)
    tpot_s = request_step_s / tokens
    laws = {"step_s": step_s, "tokens_per_step": tokens, "tpot_s": tpot_s}
    if "speedup" in quantities:
        plain_requests = scenario.plain_batch
        plain = means(
            law_parts(Autoregressive(), cost, lambda gamma: ONE_TOKEN, plain_requests, context)
        )
        laws["speedup"] = plain[2] / tpot_s * (requests / plain_requests)
    return {name: laws[name] for name in quantities}


def _cost(scenario: Scenario, arrays: Arrays) -> Cost:
    """Return the cost of a scenario with arrays for stated durations, or for the numbers of its
    channel.
    """
    cost = scenario.cost
    if isinstance(cost, StatedCost):
        stated = {key.partition(".")[2]: array for key, array in arrays.items() if key in STATED}
        return replace(cost, durations=cost.durations.model_copy(update=stated))
    if isinstance(cost, HardwareCost) and cost.channel:
        carried = {key.partition(".")[2]: array for key, array in arrays.items() if key in CHANNEL}
        numbers = {
            name: getattr(cost.channel, name).model_copy(update={"value": array})
            for name, array in carried.items()
        }
        return replace(cost, channel=cost.channel.model_copy(update=numbers))
    return cost


def _acceptance(loaded: Loaded, arrays: Arrays) -> Acceptance:
    """Return the acceptance of a scenario, with arrays for its rate and its overlap."""
    scenario = loaded.scenario
    if RATES & set(arrays):
        plain = scenario.acceptance.verdicts(loaded.trace, scenario.seed)
    else:
        plain = None
    if not isinstance(plain, Rates):
        return loaded.acceptance()
    rate = arrays.get("acceptance.rate")
    overlap = arrays.get("acceptance.overlap", plain.overlap)
    spread = replace(plain, rates=plain.rates if rate is None else (rate,), overlap=overlap)
    return scenario.schedule.reads(spread)
