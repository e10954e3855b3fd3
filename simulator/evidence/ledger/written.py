"""A row of a table of measured runs as it is written, and the scenario that its words describe."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from simulator.core.faults import BadInput, Place
from simulator.core.plain import PlainData
from simulator.evidence.ledger.names import (
    Windows,
    cards_in,
    device_of,
    draft_of,
    drafts,
    drafts_apart,
    engine_of,
    format_of,
    lacks_p2p,
    lengths_of,
    model_of,
    released,
    strategy_of,
    uses_draft_model,
)
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import Document
from simulator.inputs.models.named import NamedModel
from simulator.inputs.usual import usual_link
from simulator.scenario import Loaded, Scenario, checked

ALSO: Mapping[str, tuple[str, ...]] = {
    "concurrency": ("requests.concurrency",),
    "engine": ("software",),
    "gpu_count": ("tensor_parallel",),
    "target_model": ("target",),
    "draft_model": ("draft",),
    "method": ("arm",),
    "draft_steps": ("draft_length", "beam_length"),
    "top_k": ("beam_width",),
    "verified_rows": ("draft_tokens_verified",),
    "prompt_tokens": ("mean_input_tokens",),
    "output_tokens": ("mean_output_tokens", "new_tokens"),
    "tokens_per_step": ("acceptance_length",),
    "tokens_per_run": ("mean_accepted_tokens",),
    "accepted_share": ("acceptance_aggregate", "acceptance_published", "acceptance_rate"),
    "plain_tokens_per_s": ("baseline_tokens_per_s",),
    "speculative_tokens_per_s": ("output_tokens_per_s", "tokens_per_s", "pearl_tokens_per_s"),
    "step_ms": ("median_itl_ms",),
}
"""What tables call a column otherwise."""
SAME_RUN = ("target_model", "hardware", "concurrency")
"""Columns in which a speculative run equals the plain run that it is divided by; the origin is the
same, too.
"""
NOT_CONTRARY = (
    "gpu_count",
    "target_format",
    "engine",
    "task",
    "dataset",
    "implementation",
    "run",
    "prompt_tokens",
    "output_tokens",
)
"""Columns in which the two may not differ where both are stated; so are fields by dotted key, but
those of the draft.
"""
TEMPERATURE = "temperature"
"""Column in which they differ only where no plain run is of the same."""
REQUESTS = 1
PROMPT_TOKENS = 512
OUTPUT_TOKENS = 256
"""What is taken, and said, where a row does not state it."""
KEEPS_NOTHING_FREE = frozenset(("llama_cpp_cuda", "llama_cpp_metal", "llama_cpp_cpu", "mlx"))
"""Engines that take what they need of a memory, where others take a stated share of it."""
MACHINE = "server"
DRAFT_MACHINE = "draft server"
WIDEST_RANGE = 0.3
"""Widest range of an accepted share whose middle is read, as a share of 1."""


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
    def origin(self) -> str:
        """Return whose measurement it is: the source without commit, file and brackets."""
        source = self.cells.get("source", self.place[0])
        return re.split(r"@[0-9a-f]{7,}|\s\(", source)[0]

    @property
    def whole_loop(self) -> bool:
        """Return whether the row says of a whole closed loop how many requests ran, and how many
        tokens a second they brought.
        """
        return {"requests", "speculative_tokens_per_s"} <= self.cells.keys()

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

    def rounded_or(self, column: str, default: int, words: str) -> int:
        """Return a mean as a whole number, or the default, which is said, where neither the column
        nor the field of the scenario states one.
        """
        value = self.number(column)
        if value is not None:
            return max(1, round(value))
        if f"requests.{column}" not in self.cells:
            self.assumed.append(words)
        return default

    def fields(self) -> Iterator[tuple[str, str]]:
        """Yield the fields of a scenario that the row states by their key."""
        for key, cell in self.cells.items():
            first, _, within = key.partition(".")
            if key == "strategy" or (within and first in Scenario.model_fields):
                yield key, cell

    def is_plain_run_of(self, other: "WrittenRow", but: str | None = None) -> bool:
        """Return whether this is the plain run that another one is divided by; the two may differ
        in the column ``but``.
        """
        if self.drafts:
            return False
        same = self.origin == other.origin and all(
            self.cells.get(column) == other.cells.get(column) for column in SAME_RUN
        )
        shared = self.cells.keys() & other.cells.keys()
        by_key = {key for key, _ in self.fields() if not key.startswith("draft.")}
        contrary = [
            column
            for column in shared & {*NOT_CONTRARY, TEMPERATURE, *by_key}
            if column != but and self.cells[column] != other.cells[column]
        ]
        return same and not contrary


def written(place: Place, cells: Mapping[str, str]) -> WrittenRow:
    """Return a row under the names of columns that are used here; cells of blanks state nothing."""
    stated = {}
    for key, cell in cells.items():
        if cell.strip():
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
    serving: PlainData = {}
    if data["requests"]["concurrency"] > 1:
        serving["policy"] = {"name": "engine"}
    if target["engine"] in KEEPS_NOTHING_FREE:
        serving["memory"] = {"utilisation": 1.0}
    if serving:
        data["serving"] = serving
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
    model = _model(row, named, catalogue)
    weights = format_of(row.cells.get("target_format", ""), model.spec, engine)
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
    ranks = row.count("gpu_count") or _ranks_in(named) or _ranks_by_cards(row)
    if ranks > 1:
        target |= {"tensor_parallel": ranks, "link": usual_link(device)}
        if lacks_p2p(row.cells.get("hardware", "")):
            target["p2p"] = False
    return target


def _ranks_by_cards(row: WrittenRow) -> int:
    """Return the cards of a row as its ranks; note in it that this is assumed."""
    ranks = cards_in(row.cells.get("hardware", ""))
    if ranks > 1 and "target.tensor_parallel" not in row.cells:
        row.assumed.append(f"{ranks} cards share every layer")
    return ranks


def _requests(row: WrittenRow) -> PlainData:
    requests = row.count("concurrency")
    if requests is None:
        requests = REQUESTS
        if "requests.concurrency" not in row.cells:
            row.assumed.append("one request at a time")
    told = " ".join(row.cells.get(column, "") for column in ("dataset", "task", "source"))
    prompts, outputs = lengths_of(told) or (PROMPT_TOKENS, OUTPUT_TOKENS)
    prompt = row.rounded_or("prompt_tokens", prompts, f"prompts of {prompts} tokens")
    output = row.rounded_or("output_tokens", outputs, f"outputs of {outputs} tokens")
    count = max(2, requests, row.count("requests") or 0)
    return {
        "count": count,
        "concurrency": requests,
        "prompt_tokens": prompt,
        "output_tokens": output,
    }


def _model(row: WrittenRow, text: str, catalogue: Catalogue) -> NamedModel:
    """Return the model that a cell names; note in the row what is assumed."""
    model, taken = model_of(text, catalogue, _at(row.place))
    if taken:
        row.assumed.append(taken)
    return model


def _ranks_in(target: str) -> int | None:
    """Return the cards that a target's name states: 2 of 'Qwen3-32B (tensor parallel 2)'; None
    without any.
    """
    found = re.search(r"tensor parallel (\d+)", target.lower())
    if found is None:
        return None
    return int(found[1])


def _drafting(row: WrittenRow, target: PlainData, catalogue: Catalogue) -> PlainData:
    """Return strategy, acceptance and draft of a row."""
    windows = None
    drafting: PlainData = {}
    if "strategy" not in row.cells:
        windows = _windows(row)
        drafting["strategy"] = strategy_of(row.method, windows, catalogue)
        if windows is None:
            row.assumed.append(f"windows of the method {released(row.method)}")
    drafting["acceptance"] = _acceptance(row, windows)
    if uses_draft_model(row.method):
        named = row.cells.get("draft.model") or row.cells.get("draft_model")
        if named is None:
            named = draft_of(row.method, row.cells.get("target_model", ""))
            if named is None:
                message = "is missing: which model drafts"
                raise BadInput.at(row.place, message, "draft_model")
            row.assumed.append(f"the draft is {named}")
        draft = target | {"model": _model(row, named, catalogue).reference, "weights": "bf16"}
        if drafts_apart(row.method):
            draft |= {"machine": DRAFT_MACHINE, "tensor_parallel": 1}
            drafting["channel"] = usual_link(target["device"])
        drafting["draft"] = draft
        if "draft.weights" not in row.cells:
            row.assumed.append("draft in bf16")
    return drafting


def _acceptance(row: WrittenRow, windows: Windows | None) -> PlainData:
    """Return the acceptance of a row: the tokens of a step, of a run without a rejection, or the
    share of the drafted tokens that was kept.
    """
    tokens = row.number("tokens_per_step")
    if tokens is not None:
        return {"tokens_per_step": tokens}
    if drafts_apart(row.method):
        run = row.number("tokens_per_run")
        if run is not None:
            return {"rate": 1.0 - 1.0 / run}
    share = _accepted_share(row)
    if share is not None and windows is not None and row.number("top_k") in (None, 1.0):
        if "draft_p_min" in row.cells:
            message = "is required where drafting stops early (draft_p_min)"
            raise BadInput.at(row.place, message, "tokens_per_step")
        return {"tokens_per_step": 1.0 + share * windows.steps}
    message = "is missing in a row that drafts: how many tokens a step commits"
    raise BadInput.at(row.place, message, "tokens_per_step")


def _accepted_share(row: WrittenRow) -> float | None:
    """Return the kept share of the drafted tokens, of a narrow range its middle; None where it is
    not stated.
    """
    cell = row.cells.get("accepted_share")
    if cell is None:
        return None
    ends = re.fullmatch(r"(0\.\d+)\s*(?:-|to)\s*(0\.\d+)", cell)
    if ends is None:
        share = row.number("accepted_share") or 0.0
        if not 0.0 < share <= 1.0:
            message = f"expected a share from 0 to 1 (0.625 for 62.5 %), got '{cell}'"
            raise BadInput.at(row.place, message, "accepted_share")
        return share
    low, high = float(ends[1]), float(ends[2])
    if high - low > WIDEST_RANGE:
        message = f"{cell} is too wide a range; state tokens_per_step"
        raise BadInput.at(row.place, message, "accepted_share")
    row.assumed.append("the middle of a range of accepted shares")
    return (low + high) / 2.0


def _windows(row: WrittenRow) -> Windows | None:
    """Return what a step of a row drafts and verifies; None where it states none."""
    steps = row.count("draft_steps")
    rows = row.count("verified_rows")
    top_k = row.count("top_k") or 1
    if rows is None:
        if steps is None:
            return None
        rows = steps + 1
    if steps is None:
        if top_k > 1:
            message = "is missing: in how many steps the tree is drafted"
            raise BadInput.at(row.place, message, "draft_steps")
        steps = max(1, rows - 1)
    return Windows(steps, top_k, rows)


def _at(place: Place) -> str:
    return f"{place[0]}:{place[1]}"
