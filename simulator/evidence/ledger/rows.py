"""Measured rows, and what the laws say of them without having seen them.

A table is one CSV, as people publish them: a row for a run with speculation and the plain run
beside it, or a row for each. Its columns:

* ``source``, whose measurement it is; ``hardware`` and ``gpu_count`` (or ``tensor_parallel``),
  ``engine``, ``target_model``, ``target_format``, ``method``, ``draft_model``, ``draft_steps`` (or
  ``draft_length``), ``top_k``, ``verified_rows``, ``concurrency``, ``prompt_tokens``,
  ``output_tokens``, in words that :mod:`simulator.evidence.ledger.names` reads,
* ``tokens_per_step`` (or ``acceptance_length``), those that a step commits, the target's own
  counted,
* what was measured: ``plain_tokens_per_s`` and ``speculative_tokens_per_s`` of all requests
  together, or ``baseline_step_ms`` and ``step_ms``, or ``speedup`` alone; or ``median_itl_ms`` and
  ``output_tokens_per_s`` of one run, the plain one in a row of its own, with the same source,
  target, hardware and concurrency,
* any dotted key of a scenario's field, as for ``--set``: it holds in place of the words.

Whatever else a table holds is for its reader. A row that the catalogue cannot run is left out, and
says why.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import NamedTuple

from simulator.core.acceptance.sources import Acceptance
from simulator.core.faults import BadInput, Fault, Place
from simulator.core.plain import PlainData
from simulator.evidence.ledger.names import (
    UnknownName,
    Windows,
    device_of,
    drafts,
    engine_of,
    format_of,
    strategy_of,
    uses_draft_model,
)
from simulator.inputs import reading
from simulator.inputs.catalogue import Catalogue, shown
from simulator.inputs.document import Document, readable
from simulator.inputs.models.named import find_model
from simulator.inputs.usual import usual_link
from simulator.scenario import Loaded, Scenario, checked
from simulator.scenario.evaluate import baseline, law
from simulator.scenario.uncertainty import (
    Drawn,
    Quantity,
    doubt_of,
    drawn,
    speedup_by_law,
    step_by_law,
)

ALSO = {
    "gpu_count": "tensor_parallel",
    "draft_steps": "draft_length",
    "tokens_per_step": "acceptance_length",
    "speculative_tokens_per_s": "output_tokens_per_s",
    "step_ms": "median_itl_ms",
}
"""What tables call a column otherwise."""
ONE_RUN = ("source", "target_model", "hardware", "concurrency")
"""Columns that a speculative run shares with the plain run that it is divided by."""
PROMPT_TOKENS = 512
OUTPUT_TOKENS = 256
"""Lengths of requests where a table states none."""
MACHINE = "server"
SPEEDUP = "speed-up"
PLAIN_STEP = "plain step"
STEP = "speculative step"


class Measured(NamedTuple):
    """What a row says was measured, as far as it says it; times in seconds."""

    speedup: float | None
    plain_step_s: float | None
    step_s: float | None


class RowComparison(NamedTuple):
    """A measured number and what the law says of it, in the same unit."""

    quantity: str
    measured: float
    predicted: Drawn

    @property
    def error(self) -> float:
        """Return the relative error of the prediction."""
        return self.predicted.value / self.measured - 1.0

    def held(self, share: float) -> bool:
        """Return whether the interval that should hold a share holds what was measured."""
        return self.predicted.interval(share).holds(self.measured)


@dataclass(frozen=True)
class LedgerRow:
    """A row of a table with its scenario, and the law's word on everything that was measured."""

    place: Place
    source: str
    words: str
    """Which run it is, for a reader."""
    loaded: Loaded
    tokens_per_step: float
    comparisons: tuple[RowComparison, ...]
    assumed: tuple[str, ...]
    """What was taken where the row says nothing, in words."""

    def of(self, quantity: str) -> RowComparison | None:
        """Return the comparison of a quantity; None where it was not measured."""
        for comparison in self.comparisons:
            if comparison.quantity == quantity:
                return comparison
        return None


class LeftOut(NamedTuple):
    """A row that the catalogue cannot run, and why."""

    fault: Fault
    words: str


class MeasuredTable(NamedTuple):
    """The rows of a table, and those that are left out."""

    rows: tuple[LedgerRow, ...]
    left_out: tuple[LeftOut, ...]


def read_table(path: Path, catalogue: Catalogue) -> MeasuredTable:
    """Return the rows of a table with what the laws say of them; raise :class:`BadInput` for a file
    that is none.
    """
    file = shown(path)
    try:
        with readable(file), reading.lines(path) as lines:
            cells = [_cells(row) for row in csv.DictReader(lines)]
    except csv.Error as error:
        raise BadInput.at(file, f"cannot be read: {error}") from error
    if not cells:
        raise BadInput.at((file, 1, 1), "holds no rows")
    rows = []
    left_out = []
    for line, row in enumerate(cells, 2):
        place = (file, line, 1)
        measured = _measured(row, cells)
        if drafts(row.get("method", "")) and measured == (None, None, None):
            message = "expected plain and speculative rates, two steps, or a speed-up"
            left_out.append(LeftOut(Fault(place, "", message), _words(row)))
            continue
        try:
            rows.append(_row(place, row, measured, catalogue))
        except BadInput as error:
            left_out.append(LeftOut(error.faults[0], _words(row)))
        except UnknownName as error:
            left_out.append(LeftOut(Fault(place, "", str(error)), _words(row)))
    return MeasuredTable(tuple(rows), tuple(left_out))


def _cells(row: Mapping[str | None, str | None]) -> dict[str, str]:
    """Return the cells of a row that hold something, under the names that are used here."""
    cells = {}
    for key, cell in row.items():
        if key and cell and cell.strip():
            cells[key] = cell.strip()
    for name, other in ALSO.items():
        if other in cells:
            cells.setdefault(name, cells[other])
    return cells


def _measured(row: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> Measured:
    """Return what was measured of a row, beside the plain run of the same table where it has one.

    A rate of all requests together is their number over the time per token.
    """
    requests = _number(row, "concurrency") or 1.0
    tokens = _number(row, "tokens_per_step") or 1.0
    rate = _number(row, "speculative_tokens_per_s")
    step_ms = _number(row, "step_ms")
    if not drafts(row.get("method", "")):
        return Measured(None, step_ms and step_ms / 1e3, None)
    plain_rate = _number(row, "plain_tokens_per_s")
    plain_step_ms = _number(row, "baseline_step_ms")
    beside = next((other for other in rows if _is_plain_run_of(row, other)), None)
    if beside:
        plain_rate = plain_rate or _number(beside, "speculative_tokens_per_s")
        plain_step_ms = plain_step_ms or _number(beside, "step_ms")
    speedup = _number(row, "speedup")
    if speedup is None and rate and plain_rate:
        speedup = rate / plain_rate
    if speedup is None and step_ms and plain_step_ms:
        speedup = tokens * plain_step_ms / step_ms
    step_s = step_ms and step_ms / 1e3
    if step_s is None and rate:
        step_s = requests * tokens / rate
    plain_step_s = plain_step_ms and plain_step_ms / 1e3
    if plain_step_s is None and plain_rate:
        plain_step_s = requests / plain_rate
    if beside:
        plain_step_s = None  # the plain run is a row of its own
    return Measured(speedup, plain_step_s, step_s)


def _is_plain_run_of(row: Mapping[str, str], other: Mapping[str, str]) -> bool:
    same = all(row.get(column) == other.get(column) for column in ONE_RUN)
    return same and not drafts(other.get("method", ""))


def _number(row: Mapping[str, str], column: str) -> float | None:
    """Return a number above zero; None where the cell holds none."""
    try:
        value = float(row.get(column, ""))
    except ValueError:
        return None
    if not 0.0 < value < inf:
        return None
    return value


def _words(row: Mapping[str, str]) -> str:
    """Return which run a row is, for a reader."""
    columns = ("target_model", "method", "hardware", "engine")
    said = [row[column] for column in columns if column in row]
    requests = row.get("concurrency", "1")
    return f"{', '.join(said)}, {requests} at a time"


def _row(
    place: Place, row: Mapping[str, str], measured: Measured, catalogue: Catalogue
) -> LedgerRow:
    """Return a row with its scenario and what the law says of it; raise :class:`BadInput` or
    :class:`UnknownName` where the catalogue cannot run it.
    """
    data, assumed = _scenario_of(place, row, catalogue)
    document = Document(data, {(): place})
    _set_fields(document, row, place)
    catalogue.expand(document)
    loaded = checked(document, catalogue)
    tokens = float(law(loaded.scenario, loaded.acceptance()).verified_per_step)
    comparisons = tuple(_comparisons(loaded, measured))
    source = row.get("source", place[0])
    return LedgerRow(place, source, _words(row), loaded, tokens, comparisons, tuple(assumed))


def _comparisons(loaded: Loaded, measured: Measured) -> Iterator[RowComparison]:
    """Yield what was measured of a row beside the law's draws of it."""
    acceptance = loaded.acceptance()
    plain_quantity: Quantity = plain_step_by_law
    if loaded.scenario.schedule.window == 0:
        plain_quantity = step_by_law
    asked = (
        (SPEEDUP, measured.speedup, speedup_by_law),
        (PLAIN_STEP, measured.plain_step_s, plain_quantity),
        (STEP, measured.step_s, step_by_law),
    )
    for name, number, quantity in asked:
        if number is None:
            continue
        value = quantity(loaded.scenario, acceptance)
        doubt = doubt_of(loaded, (), quantity)
        if name != SPEEDUP:
            doubt = doubt.of_a_step()
        yield RowComparison(name, number, drawn(value, doubt))


def plain_step_by_law(scenario: Scenario, _: Acceptance) -> float:
    """Return the time of a step of plain decoding in seconds, in the batch of a scenario."""
    return float(baseline(scenario).step_s)


def _set_fields(document: Document, row: Mapping[str, str], place: Place) -> None:
    """Put the fields that a row states by dotted key in place of those that its words led to."""
    for key, cell in row.items():
        if "." in key or key == "strategy":
            document.override(f"{key}={cell}")
            document.places[tuple(key.split("."))] = place


def _scenario_of(
    place: Place, row: Mapping[str, str], catalogue: Catalogue
) -> tuple[PlainData, list[str]]:
    """Return the scenario that the words of a row describe, and what was assumed of it."""
    assumed = []
    device = row.get("target.device")
    if device is None:
        device, taken = device_of(row.get("hardware", ""), catalogue)
        if taken:
            assumed.append(taken)
    maker = catalogue.content("device", catalogue.names("device")[device]).data.get("maker")
    engine = row.get("target.engine") or engine_of(row.get("engine", ""), maker, catalogue)
    model = find_model(
        row.get("target.model") or row.get("target_model", ""), catalogue, _at(place)
    )
    ranks = int(_number(row, "gpu_count") or 1)
    target: PlainData = {
        "model": model.reference,
        "machine": MACHINE,
        "device": device,
        "engine": engine,
    }
    weights = format_of(row.get("target_format", ""), model.spec)
    if weights is None:
        weights = model.spec.expert_format or model.spec.weight_format or "bf16"
        assumed.append(f"weights in {weights}")
    target["weights"] = weights
    if ranks > 1:
        target["tensor_parallel"] = ranks
        target["link"] = usual_link(device)
    if "prompt_tokens" not in row and "requests.prompt_tokens" not in row:
        assumed.append(f"prompts of {PROMPT_TOKENS} tokens, outputs of {OUTPUT_TOKENS}")
    requests = int(_number(row, "concurrency") or 1)
    data: PlainData = {
        "name": f"row_{place[1]}",
        "target": target,
        "requests": {
            "count": max(2, requests),
            "concurrency": requests,
            "prompt_tokens": int(_number(row, "prompt_tokens") or PROMPT_TOKENS),
            "output_tokens": int(_number(row, "output_tokens") or OUTPUT_TOKENS),
        },
    }
    method = row.get("method", "")
    if not drafts(method):
        return data | {"strategy": "autoregressive", "acceptance": {"always": 0}}, assumed
    windows = _windows(row)
    data["strategy"] = row.get("strategy") or strategy_of(method, windows, catalogue)
    data["acceptance"] = {"tokens_per_step": _number(row, "tokens_per_step")}
    if uses_draft_model(method):
        named = row.get("draft.model") or row.get("draft_model")
        if named is None:
            raise UnknownName("no draft model is named; name it in a column draft_model")
        draft = find_model(named, catalogue, _at(place))
        data["draft"] = target | {"model": draft.reference, "weights": "bf16"}
    return data, assumed


def _at(place: Place) -> str:
    return f"{place[0]}:{place[1]}"


def _windows(row: Mapping[str, str]) -> Windows:
    """Return what a step of a row drafts and verifies; a chain of 3 where it does not say."""
    steps = int(_number(row, "draft_steps") or 3)
    top_k = int(_number(row, "top_k") or 1)
    verified = int(_number(row, "verified_rows") or steps + 1)
    return Windows(steps, top_k, verified)
