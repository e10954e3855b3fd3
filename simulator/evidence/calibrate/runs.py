"""Runs: numbers of an engine fitted to measured steps and speed-ups, from one row up.

A table of runs is one CSV. A column is the dotted key of a scenario's field, as for ``--set``
(``strategy``, ``draft.model``, ``requests.concurrency``; an empty cell leaves the base scenario as
it is), begins with ``#`` (for the reader, and to name groups by), or is one of these, of the first
three exactly one in a row:

* ``step_ms``, measured time of a step; ``tokens_per_s`` of a request, prompts not in it;
  ``speedup`` over plain decoding,
* ``tokens_per_step``, those that a step commits, the target's own counted: 1 where nothing is
  drafted; a row that drafts needs it, but for a step's time alone,
* ``left_out``, why no fit uses the row, which is predicted all the same; ``source``, where it comes
  from.

The fit is least squares of ``log(law / measured)``, of which ``NOISE`` is taken as one deviation,
with each number pulled to the engine's own by its range, or by its size where that is more. So one
row decides what it can, and what is left of the pull says what no row identifies. Rows may be of
several machines, parallelisms and models: ``device`` stands for a number for each device, how many
of its spreads it is slower than its profile; it belongs to that machine and is not written. A
number that no row identifies stays about where it was, with a range that holds those of other
engines. Groups that are left out are unseen only as far as the engine's own numbers, to which all
are pulled, have not seen them: start from those of before.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import inf, log
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq, least_squares

from simulator.core.acceptance.sources import Acceptance, Rates
from simulator.core.cost.engine import Engine
from simulator.core.cost.hull import kinds_of
from simulator.core.cost.placement import Placement
from simulator.core.faults import BadInput
from simulator.core.numeric import ordered_sum
from simulator.core.plain import PlainData
from simulator.core.quantities import Ranged, replace_nested
from simulator.core.strategies.common.base import rows_of_a_request
from simulator.core.strategies.common.capabilities import uncut
from simulator.inputs import reading
from simulator.inputs.catalogue import Catalogue, shown
from simulator.inputs.document import readable
from simulator.scenario import Loaded, Scenario, load
from simulator.scenario.evaluate import law, plain_tpot_s, replay
from simulator.scenario.uncertain.devices import devices, with_slower
from simulator.scenario.uncertain.doubts import deviation
from simulator.scenario.uncertain.draws import SHARE_DEVIATIONS

MEASURED = ("step_ms", "tokens_per_s", "speedup", "tpot_ms")
OWN = (*MEASURED, "tokens_per_step", "left_out", "source")
DEVICE = "device"
NOISE = 0.02
"""Relative error of a measured time that is taken as one deviation."""
IDENTIFIED = 0.5
"""Most that may be left of the pull of a number which the rows identify."""
Values = Mapping[str, float]


@dataclass(frozen=True)
class MeasuredRun:
    """A row of the table, with its scenario and with acceptance at which a step commits the tokens
    that were measured.
    """

    loaded: Loaded
    acceptance: Acceptance
    quantity: str
    measured: float
    tokens: float
    columns: Mapping[str, str]

    @property
    def devices(self) -> list[str]:
        """Return the names of the devices that it ran on."""
        return devices(self.loaded.scenario)

    def predicted(self, engine: Engine, slower: Values | None = None) -> float:
        """Return what the law says of the row with this state of the engine, and with devices
        slower by so many spreads, by name.
        """

        def fitted(own: Engine) -> Engine:
            if own.name == engine.name:
                return engine
            return own

        scenario = replace_nested(self.loaded.scenario, Engine, fitted)
        if slower:
            loaded = replace(self.loaded, scenario=scenario)
            scenario = with_slower(slower, loaded).scenario
        if self.quantity == "tpot_ms":
            return float(replay(scenario, self.acceptance).tpot_s) * 1e3
        step_s = float(law(scenario, self.acceptance).step_s)
        if self.quantity == "step_ms":
            return step_s * 1e3
        tokens_per_s = self.tokens / step_s
        if self.quantity == "tokens_per_s":
            return tokens_per_s
        return tokens_per_s * plain_tpot_s(scenario)

    @property
    def simple(self) -> tuple[float, float]:
        """Return a fixed part and a measure of size: with one constant c, fixed + c size is what
        needs no simulator.

        A speed-up is 1 + c (tokens - 1); a step is c times the time in which the datasheets'
        bandwidth reads its weights.
        """
        if self.quantity == "speedup":
            return 1.0, self.tokens - 1.0
        scenario = self.loaded.scenario
        needs = scenario.schedule.needs
        passes = ((scenario.target, 1), (scenario.draft, needs.draft_steps * needs.draft_model))
        times_ms = []
        for place, times in passes:
            if place:
                size = place.weights_gb() * times
                times_ms.append(size / place.device.memory_bandwidth_gb_s.value * 1e3)
        step_ms = ordered_sum(times_ms)
        if self.quantity == "step_ms":
            return 0.0, step_ms
        if self.quantity == "tpot_ms":
            return 0.0, step_ms / self.tokens
        return 0.0, self.tokens / step_ms * 1e3


class FittedNumber(NamedTuple):
    """A free number of the engine: its value, the deviation that rows and range leave, and how much
    of the pull is left.
    """

    value: float
    deviation: float
    before: float
    left: float


class EngineFit(NamedTuple):
    """A fit: the engine, its free numbers by dotted name, errors by what they are of, and every row
    with its prediction.
    """

    engine: Engine
    numbers: Mapping[str, FittedNumber]
    errors: Mapping[str, float]
    """Mean absolute errors as shares: ``before`` and ``fitted``, of arithmetic with ``one
    constant`` fitted to the same rows, ``without COLUMN`` of rows whose group took no part, and of
    rows that are ``left out`` of every fit."""
    predictions: Sequence[tuple[MeasuredRun, float]]


def read_runs(
    path: Path, base: str, catalogue: Catalogue, overrides: Sequence[str] = ()
) -> list[MeasuredRun]:
    """Read a table of runs over the scenario ``base``; raise :class:`BadInput` with the line of a
    fault.
    """
    file = shown(path)
    try:
        with readable(file), reading.lines(path) as lines:
            rows = list(csv.DictReader(lines))
    except csv.Error as error:
        raise BadInput.at(file, f"cannot be read: {error}") from error
    if not rows:
        raise BadInput.at((file, 1, 1), "holds no rows")
    runs = []
    for line, row in enumerate(rows, 2):
        runs.append(_run((file, line, 1), row, base, overrides, catalogue))
    return runs


def _run(
    place: tuple[str, int, int],
    row: dict[Any, Any],
    base: str,
    overrides: Sequence[str],
    catalogue: Catalogue,
) -> MeasuredRun:
    """Return a row with its scenario and the acceptance that was measured; raise
    :class:`BadInput` for a row that says too little or contradicts itself.
    """
    cells = {key: (cell or "").strip() for key, cell in row.items() if key is not None}
    quantity = _quantity(place, cells, None in row)
    value = _number(place, quantity, cells)
    tokens = _number(place, "tokens_per_step", {"tokens_per_step": "1"} | cells)
    try:
        loaded = load(base, [*overrides, *_settings(cells)], catalogue)
    except BadInput as error:
        raise error.changed(lambda fault: replace(fault, place=place)) from error
    drafts = loaded.scenario.schedule.window > 0
    if drafts and quantity != "step_ms" and not cells.get("tokens_per_step"):
        message = f"is missing in a row that drafts: without it {quantity} says nothing of a step"
        raise BadInput.at(place, message, "tokens_per_step")
    return MeasuredRun(loaded, acceptance_of(loaded, tokens), quantity, value, tokens, cells)


def _quantity(
    place: tuple[str, int, int], cells: Mapping[str, str], has_more_cells_than_columns: bool
) -> str:
    """Return what a row measured; raise :class:`BadInput` unless it is exactly one quantity."""
    stated = [quantity for quantity in MEASURED if cells.get(quantity)]
    if has_more_cells_than_columns or len(stated) != 1:
        got = ", ".join(stated) or "none"
        raise BadInput.at(place, f"expected one of {', '.join(MEASURED)}, got {got}")
    return stated[0]


def _settings(cells: Mapping[str, str]) -> list[str]:
    """Return the fields of the scenario that a row changes, as ``--set`` takes them."""
    settings = []
    for key, cell in cells.items():
        is_field = key not in OWN and not key.startswith("#")
        if cell and is_field:
            settings.append(f"{key}={cell}")
    return settings


def _number(place: tuple[str, int, int], column: str, cells: Mapping[str, str]) -> float:
    try:
        value = float(cells[column] or "1")
    except ValueError:
        value = 0.0
    if not 0.0 < value < inf:
        raise BadInput.at(place, f"expected a number above 0, got '{cells[column]}'", column)
    return value


def acceptance_of(loaded: Loaded, tokens: float) -> Acceptance:
    """Return one rate for all positions at which a step commits so many tokens, as near as the
    strategy comes to it.
    """
    scenario = loaded.scenario
    strategy = uncut(scenario.schedule)  # what was measured is of a draft as it is

    def at(rate: float) -> Acceptance:
        return strategy.reads(Rates((rate,)))

    def over(rate: float) -> float:
        return float(law(scenario, at(rate)).verified_per_step) - tokens

    low = 1e-6
    high = 1.0 - 1e-9
    if over(low) >= 0.0:
        return at(low)
    if over(high) <= 0.0:
        return at(high)
    return at(float(brentq(over, low, high)))


def fit(
    runs: Sequence[MeasuredRun], engine: Engine, free: Sequence[str], groups: Sequence[str] = ()
) -> EngineFit:
    """Fit the ``free`` numbers of an engine to runs, and again without each group of rows that a
    column names.

    ``COLUMN+`` leaves out each value with all above it. Raises :class:`BadInput` for a number that
    the engine does not have.
    """
    used = [run for run in runs if not run.columns.get("left_out")]
    free = list(_expanded(free, used))
    numbers = _numbers(used, engine, free)
    values = {name: number.value for name, number in numbers.items()}
    predictions = _predictions(runs, engine, values)
    outside = [pair for pair in predictions if pair[0] not in used]
    fitted = [pair for pair in predictions if pair not in outside]
    errors = {
        "before": _mape(_predictions(used, engine, {})),
        "fitted": _mape(fitted),
        "one constant": _one_constant(used),
    }
    for column in groups:
        errors[f"without {column}"] = _mape(_left_out(used, engine, free, column))
    if outside:
        errors["left out"] = _mape(outside)
    return EngineFit(_with(engine, values), numbers, errors, predictions)


def _left_out(
    used: Sequence[MeasuredRun], engine: Engine, free: Sequence[str], column: str
) -> list[tuple[MeasuredRun, float]]:
    """Return the runs of each group of a column with what a fit without that group says of them."""
    if not any(run.columns.get(column.rstrip("+")) for run in used):
        message = "no row that is fitted has a cell in this column"
        raise BadInput.at(engine.name, message, column)
    predictions = []
    for group in _groups(used, column):
        others = _numbers([run for run in used if run not in group], engine, free)
        refitted = {name: number.value for name, number in others.items()}
        predictions += _predictions(group, engine, refitted)
    return predictions


def _expanded(free: Sequence[str], runs: Sequence[MeasuredRun]) -> Iterator[str]:
    """Yield the free numbers, in place of ``device`` one for each device of the rows."""
    for name in free:
        if name != DEVICE:
            yield name
            continue
        found = dict.fromkeys(device for run in runs for device in run.devices)
        yield from (f"{DEVICE} {device}" for device in found)


def _is_device(name: str) -> bool:
    return name.startswith(f"{DEVICE} ")


def _numbers(
    runs: Sequence[MeasuredRun], engine: Engine, free: Sequence[str]
) -> dict[str, FittedNumber]:
    """Return the free numbers that fit best; least squares in deviations from the engine's own."""
    start = np.zeros(len(free))
    pull = np.ones(len(free))
    least = np.full(len(free), -inf)
    for place, name in enumerate(free):
        if not _is_device(name):
            number = _at(engine, name)
            start[place] = number.value
            pull[place] = max(deviation(number), number.value)
            if not pull[place]:
                message = "is 0 and has no range; state low and high, between which it may move"
                raise BadInput.at(engine.name, message, name)
            least[place] = -number.value / pull[place]

    def residuals(moved: Any) -> Any:
        values = dict(zip(free, start + moved * pull, strict=True))
        pairs = _predictions(runs, engine, values)
        off = [log(value / run.measured) / NOISE for run, value in pairs]
        return np.array([*off, *moved])

    first = np.where(least < 0.0, 0.0, 1e-3)
    best = least_squares(residuals, first, bounds=(least, inf), diff_step=np.array(1e-3))
    jacobian: Any = np.asarray(best.jac)
    left = np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian)))
    values = start + best.x * pull
    columns = np.stack((values, left * pull, start, left), axis=1)
    fitted = zip(free, columns.tolist(), strict=True)
    return {name: FittedNumber(*row) for name, row in fitted}


def _predictions(
    runs: Sequence[MeasuredRun], engine: Engine, values: Values
) -> list[tuple[MeasuredRun, float]]:
    moved = _with(engine, values)
    slower = {}
    for name, spreads in values.items():
        if _is_device(name):
            slower[name.removeprefix(f"{DEVICE} ")] = spreads
    return [(run, run.predicted(moved, slower)) for run in runs]


def _mape(pairs: Sequence[tuple[MeasuredRun, float]]) -> float:
    if not pairs:
        return 0.0
    errors = [abs(value / run.measured - 1.0) for run, value in pairs]
    return float(np.mean(errors))


def _one_constant(runs: Sequence[MeasuredRun]) -> float:
    """Return the least error of arithmetic with one constant, which is where it meets a row."""
    rows = [(*run.simple, run.measured) for run in runs]
    meets = [(value - fixed) / size for fixed, size, value in rows if size]

    def error(constant: float) -> float:
        errors = [abs((fixed + constant * size) / value - 1.0) for fixed, size, value in rows]
        return float(np.mean(errors))

    return min(map(error, meets), default=0.0)


def _groups(runs: Sequence[MeasuredRun], column: str) -> Iterator[list[MeasuredRun]]:
    """Yield the rows of each value of a column, with ``+`` also those above it; rows without a
    value are never left out.
    """
    name = column.rstrip("+")
    above = column.endswith("+")
    cells = [cell for cell in dict.fromkeys(run.columns.get(name, "") for run in runs) if cell]
    for cell in cells:
        wanted = set()
        for other in cells:
            if other == cell or (above and float(other) > float(cell)):
                wanted.add(other)
        yield [run for run in runs if run.columns.get(name, "") in wanted]


def _at(engine: Engine, name: str) -> Ranged:
    part: Any = engine
    for key in name.split("."):
        if isinstance(part, dict):
            part = part.get(key)
        else:
            part = getattr(part, key, None)
    if not isinstance(part, Ranged):
        message = "expected a number of the engine, as speculation.tree.fixed_us"
        raise BadInput.at(engine.name, message, name)
    return part


def _with(engine: Engine, values: Values) -> Engine:
    """Return the engine with other numbers by dotted name, below none of which a time can lie."""
    data = engine.model_dump()
    for name, value in values.items():
        if not _is_device(name):
            *inner, last = name.split(".")
            _inner(data, inner)[last] = {"value": max(0.0, float(value))}
    return Engine.model_validate(data)


def written(
    fitted: EngineFit, data: PlainData, source: str, others: Sequence[Engine] = ()
) -> PlainData:
    """Return the content of the engine's file with the fit in it: values, ranges of what is left,
    and the errors.

    The range of what no row identifies holds what was fitted of the ``others``.
    """
    for name, number in fitted.numbers.items():
        if _is_device(name):
            continue
        *inner, last = name.split(".")
        reach = SHARE_DEVIATIONS * number.deviation
        ends = {
            "value": number.value,
            "low": max(0.0, number.value - reach),
            "high": number.value + reach,
        }
        words = {"source": f"calibrated-on: {source}", "confidence": "calibrated"}
        if number.left >= IDENTIFIED:
            lent = dict(_fitted_elsewhere(name, others))
            ends["low"] = min([ends["low"], *(low for low, _ in lent.values())])
            ends["high"] = max([ends["high"], *(high for _, high in lent.values())])
            words = {"source": f"assumed: not told apart by {source}", "confidence": "assumed"}
            if lent:
                words["source"] += f"; range with that of {', '.join(lent)}"
        rounded = {key: float(f"{end:.3g}") for key, end in ends.items()}
        _inner(data, inner)[last] = rounded | words
    used = [run for run, _ in fitted.predictions if not run.columns.get("left_out")]
    stated = {
        "source": source,
        "rows": len(used),
        "free": len(fitted.numbers),
        "errors": {name: round(error, 4) for name, error in fitted.errors.items()},
    }
    kept = {name: value for name, value in data.items() if name not in ("hull", "versions")}
    return kept | home_of([run.loaded.scenario for run in used]) | {"fit": stated}


def home_of(scenarios: Sequence[Scenario]) -> PlainData:
    """Return on which devices runs of scenarios were (``fitted_on``), and between which ends they
    lie (``hull``); nothing without hardware.
    """
    places = [scenario.target for scenario in scenarios if scenario.target]
    if not places:
        return {}
    first, *others = dict.fromkeys(place.device for place in places)
    home: PlainData = {"card": first.name, "others": [device.name for device in others]}
    home |= {"maker": first.maker or "", "architecture": first.architecture or ""}
    further = {device.architecture for device in others} - {first.architecture}
    if further:
        home["architectures"] = sorted(further)
    return {"fitted_on": home, "hull": _hull(scenarios, places)}


def _hull(scenarios: Sequence[Scenario], places: Sequence[Placement]) -> PlainData:
    """Return between which ends runs lie, and what they have in common."""
    counts = {
        "batch": [scenario.batch for scenario in scenarios],
        "rows": [rows_of_a_request(scenario.schedule) for scenario in scenarios],
        "ranks": [place.tensor_parallel for place in places],
    }
    hull: PlainData = {axis: [min(count), max(count)] for axis, count in counts.items()}
    kinds = set[str]()
    for place in places:
        kinds |= kinds_of(place.model)
    drafting = {getattr(scenario.cost, "drafting", None) for scenario in scenarios}
    hull |= {
        "kinds": sorted(kinds),
        "models": sorted({place.model.name for place in places}),
        "formats": sorted({place.weights for place in places}),
        "drafting": sorted(how for how in drafting if how),
    }
    return hull


def _fitted_elsewhere(
    name: str, engines: Sequence[Engine]
) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield the engines for which a number was fitted, each with the range of it."""
    for engine in engines:
        try:
            number = _at(engine, name)
        except BadInput:
            continue
        if number.confidence == "calibrated":
            low = number.value if number.low is None else number.low
            high = number.value if number.high is None else number.high
            yield engine.name, (low, high)


def _inner(data: Any, path: Sequence[str]) -> Any:
    return reduce(getitem, path, data)
