"""What if: the law of a scenario over a grid of acceptance and window, in pieces that a page can
put together again.

    time per token = sum pi B T / sum pi n     shares pi, batches B, seconds T and tokens n of
                                               the kinds of step

    T |          /    over the share s of one named duration, the law of a step is the longer
      |         /     of two times, a + b s and c + d s: drafting is hidden up to a corner,
      |________/      and is waited for behind it
      +--------------- s

Everything is worked out here; whoever shows it adds, divides and takes the longer of two numbers. A
duration of which the law of some step has more than one corner is left out, as is checked at all of
``SHARES``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.sources import Acceptance, Rates, odds_of
from simulator.core.numeric import Numbers
from simulator.core.plain import PlainData
from simulator.core.strategies.common.base import LONGEST_WINDOW, law_parts, share_emitted
from simulator.core.strategies.common.law import Part, means
from simulator.core.strategies.common.step import NO_DURATIONS, Kind
from simulator.scenario import Loaded
from simulator.scenario.evaluate import observed_batch, plain_tpot_s, tuned
from simulator.scenario.expenses import rented_devices, usd_per_hour
from simulator.scenario.result.run_result import RunResult
from simulator.studies.window import windows_of

Floats = NDArray[np.float64]
WhatIf = PlainData
"""Plain data: ``name``; ``requests`` that decode together; ``rates`` in the order of tokens per
step, None for the acceptance of the scenario; ``windows`` in draft tokens; ``start``, the places of
the scenario's own; ``steps`` by window, each kind with ``seconds``, ``batch`` and ``lines`` (a, b,
c, d in seconds by duration); ``mixes`` by rate and window: place of the kind, its share, tokens;
``tpot_s`` by rate and window; ``durations`` and ``shares`` that may be chosen; ``plain_s``, the
time per token of autoregressive decoding (where clients wait for room, over how many more of them
run); ``usd_per_hour`` of a replica, None where a device states
no price."""
SHARES: Floats = np.arange(41) / 20
"""Shares of a duration that may be chosen."""
BESIDE = 2.0**-7
"""Distance from an end of ``SHARES`` at which a law is taken once more, for the slope there."""
ROUNDING = 1e-12
"""Difference of a law and the longer of its two times that is rounding, over the longest of all."""
RATES = tuple(round(0.05 * step, 2) for step in range(1, 20))
FEW_RATES = (0.3, 0.5, 0.7, 0.9)
"""Chances that a draft token is kept; the few where kinds of step are many, or have to be solved
one rate at a time.
"""
WINDOWS = 12
FEW_WINDOWS = 4
MANY_KINDS = 8
"""Windows of a grid, about; the few where a step has more than so many kinds."""
NEVER = 1e-13
"""Share of a kind of step below which it is left out."""


def what_if(loaded: Loaded, requests: int | None = None) -> WhatIf:
    """Return the grid of a scenario for so many requests at a time, at the mean context; None: one
    for every place.

    Rates are chances of independent places; a rejected token is outside an early exit as often as
    it is in the scenario.
    """
    scenario = loaded.scenario
    requests = requests or scenario.batch
    many_kinds = len(_parts(loaded, loaded.acceptance(), requests)) > MANY_KINDS
    windows = WINDOWS
    chances: Sequence[float] = RATES
    if many_kinds:
        windows = FEW_WINDOWS
    if many_kinds or scenario.schedule.needs.single_rates:
        chances = FEW_RATES
    grid = _windows(loaded, requests, windows)
    laws = _laws(grid, _sources(loaded, chances), requests)
    plain_s = plain_tpot_s(scenario, requests)
    start = list(grid).index(scenario.schedule.window)
    rates = sorted(laws, key=lambda rate: laws[rate][start].tokens)
    by_window = list(zip(*(laws[rate] for rate in rates), strict=True))
    parts = [_kinds(of_window) for of_window in by_window]
    steps = [list(map(_step, of_window.values())) for of_window in parts]
    lines = [step["lines"] for step in chain(*steps)]
    return {
        "name": scenario.method_name,
        "requests": requests,
        "rates": rates,
        "windows": list(grid),
        "start": [rates.index(None), start],
        "durations": [name for name in lines[0] if _matters(name, lines)],
        "shares": SHARES.tolist(),
        "steps": steps,
        "mixes": [list(map(_mix, laws[rate], parts)) for rate in rates],
        "tpot_s": [[law.tpot_s for law in laws[rate]] for rate in rates],
        "plain_s": plain_s,
        "usd_per_hour": usd_per_hour(rented_devices(scenario)),
    }


class _AtRate(NamedTuple):
    """The law at a rate and a window: the kinds of step that occur, tokens per step, and time per
    token.
    """

    parts: list[Part]
    tokens: float
    tpot_s: float


class _Source(NamedTuple):
    """Where verdicts come from, and the rates that they are at; None is the scenario's own."""

    rates: Sequence[float | None]
    acceptance: Acceptance


def _laws(
    grid: Mapping[int, Loaded], sources: Iterable[_Source], requests: int
) -> dict[float | None, list[_AtRate]]:
    """Return the law by rate, at every window; without the rates at which a window has no step,
    since a rule may ask a recording, which rates are not.
    """
    laws = {}
    for source in sources:
        by_window = [_over_rates(at_window, source, requests) for at_window in grid.values()]
        for rate, *at_rate in zip(source.rates, *by_window, strict=True):
            if all(law.parts for law in at_rate):
                laws[rate] = at_rate
    return laws


def _over_rates(loaded: Loaded, source: _Source, requests: int) -> list[_AtRate]:
    """Return the law at a window for every rate of a source."""
    count = len(source.rates)
    parts = _parts(loaded, source.acceptance, requests)
    if not parts:
        return [_AtRate([], 0.0, 0.0)] * count
    _, tokens, request_step_s = means(parts)
    occurring: list[list[Part]] = [[] for _ in source.rates]
    for part in parts:
        shares = _each(part.share, count)
        for place, committed in enumerate(_each(part.committed, count)):
            if shares[place] > NEVER:
                at_rate = part._replace(share=shares[place], committed=committed)
                occurring[place].append(at_rate)
    return list(
        map(_AtRate, occurring, _each(tokens, count), _each(request_step_s / tokens, count))
    )


def _each(numbers: Numbers, count: int) -> list[float]:
    """Return an array over ``count`` rates, or a number for all of them, as plain numbers."""
    return list(map(float, np.broadcast_to(numbers, count)))


def _kinds(laws: Iterable[_AtRate]) -> dict[Kind, Part]:
    """Return the kinds of step that occur at any rate, each with its last part."""
    return {part.kind: part for law in laws for part in law.parts}


def of_run(loaded: Loaded, result: RunResult) -> WhatIf:
    """Return the grid of a scenario as it was run, for as many requests as decoded together."""
    return what_if(tuned(loaded), observed_batch(result.scenario, result.simulated))


def _windows(loaded: Loaded, requests: int, many: int) -> dict[int, Loaded]:
    """Return the scenario with so many windows, about; with its own alone where a rule chooses, or
    there is none.
    """
    own = loaded.scenario.schedule.window
    fields = type(loaded.scenario.strategy).model_fields
    if "gamma" not in fields:
        return {own: loaded}
    most = max(8, min(2 * own, LONGEST_WINDOW))
    wanted = np.linspace(1, most, many).round().astype(int).tolist()
    grid = {}
    for window, other in windows_of(loaded, sorted({own, *wanted})):
        if other.scenario.schedule.window_for(requests) == window:
            grid[window] = other
    if own in grid:
        return grid | {own: loaded}
    return {own: loaded}


def _sources(loaded: Loaded, rates: Sequence[float]) -> Iterator[_Source]:
    """Yield the source of verdicts of the scenario, and of the rates: all at once, where the law
    takes an array of them.
    """
    scenario = loaded.scenario
    acceptance = loaded.acceptance()
    strategy = scenario.schedule
    yield _Source([None], acceptance)
    if not strategy.window:
        return
    odds = acceptance.odds(strategy.window, scenario.exit)
    outside = 0.0
    if odds.accepted[0]:
        outside = float(odds.off_exit[0] / odds.accepted[0])

    def stated(rate: Numbers) -> Acceptance:
        return scenario.at_rates(Rates((rate,), 1.0 - outside * (1.0 - rate)))

    if strategy.needs.single_rates:
        for rate in rates:
            yield _Source([rate], stated(rate))
    else:
        yield _Source(rates, stated(np.array(rates)))


def _parts(loaded: Loaded, acceptance: Acceptance, requests: int) -> list[Part]:
    """Return the kinds of step, each with its share and the tokens of its outputs."""
    scenario = loaded.scenario
    odds = odds_of(acceptance, scenario.exit)
    parts = law_parts(scenario.schedule, scenario.cost, odds, requests, scenario.mean_context)
    emitted = share_emitted(scenario.schedule, parts, odds, scenario.outputs)
    occurring = [part for part in parts if np.any(part.share > NEVER)]
    return [part._replace(committed=part.committed * emitted) for part in occurring]


def _matters(name: str, each: Sequence[Mapping[str, Sequence[float]]]) -> bool:
    """Return whether a duration changes a step, and is the longer of two times in all of them."""
    if not all(name in lines for lines in each):
        return False
    for lines in each:
        _, rise, _, end_rise = lines[name]
        if rise or end_rise:
            return True
    return False


def _mix(law: _AtRate, kinds: Iterable[Kind]) -> list[list[float]]:
    """Return place of the kind, share and tokens of every step at a rate and a window."""
    places = {kind: place for place, kind in enumerate(kinds)}
    return [[places[part.kind], part.share, part.committed] for part in law.parts]


def _step(part: Part) -> PlainData:
    return {
        "seconds": float(part.seconds(part.durations)),
        "batch": part.batch,
        "lines": dict(_lines(part)),
    }


def _lines(part: Part) -> Iterator[tuple[str, list[float]]]:
    """Yield the durations over which the step is the longer of two times, with these; a straight
    line has twice the same.
    """
    most = SHARES[-1]
    shares = np.concatenate((SHARES, (BESIDE, most - BESIDE)))
    for name in part.durations._fields:
        if name in NO_DURATIONS:
            continue
        *seconds, beside_first, beside_last = _seconds(part, name, shares)
        first = seconds[0]
        last = seconds[-1]
        rise = (beside_first - first) / BESIDE
        end_rise = (last - beside_last) / BESIDE
        straight = (first, (last - first) / most)
        cornered = (first, rise, last - end_rise * most, end_rise)
        for a, b, c, d in (straight * 2, cornered):
            longer = np.maximum(a + b * SHARES, c + d * SHARES)
            if np.all(np.abs(longer - seconds) <= ROUNDING * last):
                yield name, [float(a), float(b), float(c), float(d)]
                break


def _seconds(part: Part, name: str, shares: Floats) -> Floats:
    """Return the seconds of a step (shares,) where one of its durations, or each of its entries, is
    as much of itself.
    """
    duration = getattr(part.durations, name)
    if isinstance(duration, tuple):
        changed = tuple(entry * shares for entry in duration)
    else:
        changed = duration * shares
    durations = part.durations._replace(**{name: changed})
    return np.broadcast_to(part.seconds(durations), shares.shape)
