"""A row of a table of measured runs as it is written, and the scenario that its words describe."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from simulator.core.faults import BadInput, Place
from simulator.core.plain import PlainData
from simulator.evidence.ledger.names import (
    Windows,
    device_of,
    drafts,
    engine_of,
    format_of,
    strategy_of,
    uses_draft_model,
)
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import Document
from simulator.inputs.models.named import find_model
from simulator.inputs.usual import usual_link
from simulator.scenario import Loaded, Scenario, checked

ALSO: Mapping[str, tuple[str, ...]] = {
    "engine": ("software",),
    "gpu_count": ("tensor_parallel",),
    "draft_steps": ("draft_length",),
    "verified_rows": ("draft_tokens_verified",),
    "tokens_per_step": ("acceptance_length",),
    "plain_tokens_per_s": ("baseline_tokens_per_s",),
    "speculative_tokens_per_s": ("output_tokens_per_s", "tokens_per_s"),
    "step_ms": ("median_itl_ms",),
}
"""What tables call a column otherwise."""
SAME_RUN = ("source", "target_model", "hardware", "concurrency")
"""Columns in which a speculative run equals the plain run that it is divided by."""
NOT_CONTRARY = (
    "gpu_count",
    "target_format",
    "engine",
    "task",
    "dataset",
    "temperature",
    "prompt_tokens",
    "output_tokens",
)
"""Columns in which the two may not differ where both are stated; so are fields by dotted key, but
those of the draft.
"""
REQUESTS = 1
PROMPT_TOKENS = 512
OUTPUT_TOKENS = 256
DRAFT_STEPS = 3
"""What is taken, and said, where a row does not state it."""
MACHINE = "server"


@dataclass
class WrittenRow:
    """The cells of a row that hold something, by the names of columns that are used here."""

    place: Place
    cells: Mapping[str, str]
    assumed: list[str] = field(default_factory=list)
    """What was taken where the row says nothing, in words."""

    @property
    def method(self) -> str:
        """Return what the row calls its method; empty for plain decoding."""
        return self.cells.get("method", "")

    @property
    def drafts(self) -> bool:
        """Return whether the run drafts anything."""
        return drafts(self.method)

    @property
    def words(self) -> str:
        """Return which run it is, for a reader."""
        columns = ("target_model", "method", "hardware", "engine")
        said = [self.cells[column] for column in columns if column in self.cells]
        return f"{', '.join(said)}, {self.cells.get('concurrency', REQUESTS)} at a time"

    def number(self, column: str) -> float | None:
        """Return a number above zero; None for an empty cell. Raises :class:`BadInput` for
        anything else.
        """
        cell = self.cells.get(column)
        if cell is None:
            return None
        try:
            value = float(cell)
        except ValueError:
            value = 0.0
        if not 0.0 < value < inf:
            raise BadInput.at(self.place, f"expected a number above 0, got '{cell}'", column)
        return value

    def count(self, column: str) -> int | None:
        """Return a whole number from 1 on; None for an empty cell. Raises :class:`BadInput` for
        anything else.
        """
        value = self.number(column)
        if value is None:
            return None
        if value != int(value):
            message = f"expected a whole number, got '{self.cells[column]}'"
            raise BadInput.at(self.place, message, column)
        return int(value)

    def count_or(self, column: str, default: int, words: str) -> int:
        """Return a whole number, or the default, which is said, where neither the column nor the
        field of the scenario states one.
        """
        value = self.count(column)
        if value is not None:
            return value
        if f"requests.{column}" not in self.cells:
            self.assumed.append(words)
        return default

    def fields(self) -> Iterator[tuple[str, str]]:
        """Yield the fields of a scenario that the row states by their key."""
        for key, cell in self.cells.items():
            first, _, within = key.partition(".")
            if key == "strategy" or (within and first in Scenario.model_fields):
                yield key, cell

    def is_plain_run_of(self, other: "WrittenRow") -> bool:
        """Return whether this is the plain run that another one is divided by."""
        if self.drafts:
            return False
        same = all(self.cells.get(column) == other.cells.get(column) for column in SAME_RUN)
        shared = self.cells.keys() & other.cells.keys()
        by_key = {key for key, _ in self.fields() if not key.startswith("draft.")}
        contrary = [
            column
            for column in shared & {*NOT_CONTRARY, *by_key}
            if self.cells[column] != other.cells[column]
        ]
        return same and not contrary


def written(place: Place, cells: Mapping[str | None, str | None]) -> WrittenRow:
    """Return a row under the names of columns that are used here."""
    stated = {}
    for key, cell in cells.items():
        if key and cell and cell.strip():
            stated[key] = cell.strip()
    for name, others in ALSO.items():
        for other in others:
            if other in stated:
                stated.setdefault(name, stated[other])
    return WrittenRow(place, stated)


def scenario_of(row: WrittenRow, catalogue: Catalogue) -> Loaded:
    """Return the scenario of a row; note in the row what is assumed.

    Raises :class:`BadInput`, :class:`Infeasible` or
    :class:`~simulator.evidence.ledger.names.UnknownName` where the catalogue cannot run it.
    """
    target = _target(row, catalogue)
    data: PlainData = {
        "name": f"row_{row.place[1]}",
        "target": target,
        "requests": _requests(row),
    }
    if row.drafts:
        data |= _drafting(row, target, catalogue)
    else:
        data |= {"strategy": "autoregressive", "acceptance": {"always": 0}}
    document = Document(data, {(): row.place})
    for key, cell in row.fields():
        document.override(f"{key}={cell}")
        document.places[tuple(key.split("."))] = row.place
    catalogue.expand(document)
    return checked(document, catalogue)


def _target(row: WrittenRow, catalogue: Catalogue) -> PlainData:
    device = row.cells.get("target.device")
    if device is None:
        device, taken = device_of(row.cells.get("hardware", ""), catalogue)
        if taken:
            row.assumed.append(taken)
    path = catalogue.path("device", device, Document({}, {(): row.place}), ())
    maker = catalogue.content("device", path).data.get("maker")
    engine = row.cells.get("target.engine")
    if engine is None:
        engine = engine_of(row.cells.get("engine", ""), maker, catalogue)
        if "engine" not in row.cells:
            row.assumed.append(f"engine {engine}")
    named = row.cells.get("target.model") or row.cells.get("target_model", "")
    model = find_model(named, catalogue, _at(row.place))
    weights = format_of(row.cells.get("target_format", ""), model.spec)
    if weights is None:
        weights = model.spec.expert_format or model.spec.weight_format or "bf16"
        if "target.weights" not in row.cells:
            row.assumed.append(f"weights in {weights}")
    target: PlainData = {
        "model": model.reference,
        "machine": MACHINE,
        "device": device,
        "engine": engine,
        "weights": weights,
    }
    ranks = row.count("gpu_count") or 1
    if ranks > 1:
        target |= {"tensor_parallel": ranks, "link": usual_link(device)}
    return target


def _requests(row: WrittenRow) -> PlainData:
    requests = row.count_or("concurrency", REQUESTS, "one request at a time")
    prompt = row.count_or("prompt_tokens", PROMPT_TOKENS, f"prompts of {PROMPT_TOKENS} tokens")
    output = row.count_or("output_tokens", OUTPUT_TOKENS, f"outputs of {OUTPUT_TOKENS} tokens")
    return {
        "count": max(2, requests),
        "concurrency": requests,
        "prompt_tokens": prompt,
        "output_tokens": output,
    }


def _drafting(row: WrittenRow, target: PlainData, catalogue: Catalogue) -> PlainData:
    """Return strategy, acceptance and draft of a row."""
    tokens = row.number("tokens_per_step")
    if tokens is None:
        message = "is missing in a row that drafts: how many tokens a step commits"
        raise BadInput.at(row.place, message, "tokens_per_step")
    drafting: PlainData = {"acceptance": {"tokens_per_step": tokens}}
    if "strategy" not in row.cells:
        drafting["strategy"] = strategy_of(row.method, _windows(row), catalogue)
    if uses_draft_model(row.method):
        named = row.cells.get("draft.model") or row.cells.get("draft_model")
        if named is None:
            message = "is missing: which model drafts"
            raise BadInput.at(row.place, message, "draft_model")
        draft = find_model(named, catalogue, _at(row.place))
        drafting["draft"] = target | {"model": draft.reference, "weights": "bf16"}
        if "draft.weights" not in row.cells:
            row.assumed.append("draft in bf16")
    return drafting


def _windows(row: WrittenRow) -> Windows:
    """Return what a step of a row drafts and verifies."""
    steps = row.count_or("draft_steps", DRAFT_STEPS, f"a chain of {DRAFT_STEPS}")
    top_k = row.count("top_k") or 1
    return Windows(steps, top_k, row.count("verified_rows") or steps + 1)


def _at(place: Place) -> str:
    return f"{place[0]}:{place[1]}"
