"""Acceptance that other programs recorded step by step is converted to a :class:`Trace` in format
2.

``replay`` in its header says which questions a replay of it can answer. Summaries are
:mod:`simulator.inputs.traces.summaries`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from simulator.core.acceptance.tokenizers import share_tokenizer
from simulator.core.acceptance.trace import CONVERTED, Trace
from simulator.core.faults import BadInput
from simulator.core.plain import PlainData, PlainMapping
from simulator.inputs.reading import from_json
from simulator.inputs.services.answers import vllm_speculation
from simulator.inputs.services.fields import Fields
from simulator.inputs.traces.header import MOST_FLAVOURS

Row = PlainMapping
MOST = np.iinfo(np.uint16).max
"""Largest count that a trace can hold."""
REPLAYS: Mapping[str, str] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
"""Which questions a replay can answer, by what was recorded."""
BEHIND = "those kept behind the end of an output count, as in vLLM"
"""What the last step of a request holds."""
FROM_ANY_START = REPLAYS["from_any_start"]
FROM_STEPS = REPLAYS["from_steps"]


class ConvertedRequest(NamedTuple):
    """A converted request holds these fields."""

    flavour: str
    """Kind of text."""
    run: Sequence[int]
    """Draft tokens that a window keeps, by the position at which it starts."""


class RecordedModel(NamedTuple):
    """Names a model whose tokens or drafts were recorded, as far as it is known."""

    name: str
    layers: int | None = None
    vocabulary: int | None = None
    """Number of tokens in its vocabulary; None: not known, as of a head that drafts."""

    @property
    def described(self) -> PlainData:
        """Return it as the header of a trace does."""
        if self.vocabulary is None:
            return {"name": self.name, "shape": None}
        shape = {"layers": self.layers, "vocabulary": self.vocabulary}
        return {"name": self.name, "shape": shape}


def recorded_from(trace: Trace, target: RecordedModel, draft: RecordedModel | None) -> Trace:
    """Return a trace that says from which models it is, which the log of an engine does not.

    Raises :class:`BadInput` for models that cannot have one tokenizer, and for a target of another
    vocabulary than the record has.
    """
    known = trace.vocabulary
    if known is not None and not share_tokenizer(target.vocabulary, known):
        message = f"has a vocabulary of {target.vocabulary:,}, and the record one of {known:,}"
        raise BadInput.at(f"--target {target.name}", f"{message}; leave --target out")
    models = {**trace.header["models"], "target": target.described}
    if draft is not None:
        if draft.vocabulary and not share_tokenizer(target.vocabulary, draft.vocabulary):
            message = (
                f"has a vocabulary of {draft.vocabulary:,}, and {target.name} one of "
                f"{target.vocabulary:,}; name the model that drafted for it"
            )
            raise BadInput.at(f"--draft {draft.name}", message)
        models["draft"] = draft.described
    header = {**trace.header, "models": models, "vocabulary": target.vocabulary}
    return replace(trace, header=header)


def fault(line: int, message: str) -> BadInput:
    """Return the exception for a fault in line ``line`` (from 1) of a record; the caller adds the
    file.
    """
    return BadInput.at(("", line, 0), message)


def positional(rows: Iterable[Row], method: str, window: int | None = None) -> Trace:
    """Return a trace of SpecDecode-Bench, which states how many tokens a speculation from every
    position yields.

    ``method`` is ``eagle`` or ``ngram``, bonus included. Rows are as in the files, ``{"acc_eagle":
    {"acc_len": [...]}}``, or flat, ``{"acc_len_eagle": [...]}``. Replays exactly the walk "start at
    p, emit length[p] tokens, go on at p + length[p]", capped at the window plus one; the first
    window takes entry 0, behind the token that the prefill emitted, the last may start at the last
    entry (the benchmark's own simulator ends one entry before). The window is the largest kept
    unless stated.
    """
    field = f"acc_len_{method}"
    requests = []
    for line, row in enumerate(rows, 1):
        flavour = _flavour(line, row, "dataset")
        run = [length - 1 for length in _positional(line, row, method)]
        requests.append(ConvertedRequest(flavour, run))
    names = {"target": "Llama-3.1-8B-Instruct", "draft": method}
    source = f"SpecDecode-Bench positional accepted lengths, field {field}"
    return _trace(requests, window, FROM_ANY_START, source, names, vocabulary=128_256)


def both(rows: Sequence[Row], window: int | None = None) -> Trace:
    """Return a trace of SpecDecode-Bench with both methods: ``draft`` is EAGLE, ``ngram`` a second
    drafter of the same text.

    Where the two differ in length, by a token or two at the end, the shorter counts.
    """
    cut: dict[str, list[Row]] = {"eagle": [], "ngram": []}
    for line, row in enumerate(rows, 1):
        lengths = {method: _positional(line, row, method) for method in cut}
        shorter = min(map(len, lengths.values()))
        flavour = _flavour(line, row, "dataset")
        for method, own in lengths.items():
            cut[method].append({"dataset": flavour, f"acc_len_{method}": own[:shorter]})
    eagle = positional(cut["eagle"], "eagle", window)
    ngram = positional(cut["ngram"], "ngram", window)
    models = {**eagle.header["models"], "ngram": {"name": "ngram", "shape": None}}
    largest = max(eagle.header["window"], ngram.header["window"])
    header = {**eagle.header, "models": models, "window": largest}
    return replace(eagle, header=header, extra={"ngram.run": np.asarray(ngram.run)})


def _positional(line: int, row: Row, method: str) -> list[int]:
    """Return the lengths of a method, which stand in an object of its own or flat in the row."""
    field = f"acc_len_{method}"
    nested = row.get(f"acc_{method}")
    if isinstance(nested, Mapping):
        row = {field: nested.get("acc_len")}
    return _counts(line, row, field, least=1)


def rest(rows: Iterable[Row], window: int | None = None) -> Trace:
    """Return a trace of REST's answers on MT-bench (Vicuna 7B), which state the tokens of each
    step, turn after turn.

    ``steps_idx`` is the index of each turn's last step. A turn's first entry leaves its own
    correction out and all others count it (REST starts counting one token late), so lengths of a
    turn add up to its new tokens less one. Exact at the recorded window only, see ``FROM_STEPS``.
    """
    requests = []
    for line, row in enumerate(rows, 1):
        flavour = _flavour(line, row, "category")
        lengths = _counts(line, row, "accept_lengths")
        taken = 0
        for last in _counts(line, row, "steps_idx"):
            first, *following = lengths[taken : taken + last + 1] or [0]
            taken += last + 1
            if 0 in following:
                message = "a step that is not a turn's first cannot yield 0 tokens"
                raise fault(line, f"accept_lengths: {message}")
            kept = [first]
            kept += [length - 1 for length in following]
            requests.append(ConvertedRequest(flavour, _inside_steps(kept)))
        if taken != len(lengths):
            message = f"expected {taken} steps by steps_idx, found {len(lengths)}"
            raise fault(line, f"accept_lengths: {message}")
    names = {"target": "Vicuna-7B-v1.5", "draft": "REST retrieval"}
    source = "REST accepted lengths by step"
    return _trace(requests, window, FROM_STEPS, source, names, vocabulary=32_000)


def steps(rows: Iterable[Row], window: int | None = None) -> Trace:
    """Return a trace of accepted draft tokens by step, correction not counted, as vLLM counts
    ``num_accepted_tokens``.

    One object per request: ``{"accepted": [2, 0, 3], "flavour": "code"}``, the flavour optional.
    State the window that was served; without it the largest count is taken, which may be smaller.
    Exact at that window only, see ``FROM_STEPS``. vLLM counts the last step of a request to its
    end, so that its outputs are up to a window longer than they were.
    """
    requests = []
    for line, row in enumerate(rows, 1):
        flavour = _flavour(line, row, "flavour")
        if "accepted" not in row and "p" in row:
            by_hand = "docs/how-to/traces.md says how it becomes a trace"
            raise fault(line, f"holds probabilities by position, no counts by step; {by_hand}")
        kept = _counts(line, row, "accepted")
        requests.append(ConvertedRequest(flavour, _inside_steps(kept)))
    source = f"accepted draft tokens by step; {BEHIND}"
    return _trace(requests, window, FROM_STEPS, source, {}, vocabulary=None)


def vllm_answers(rows: Iterable[Row], window: int | None = None) -> Trace:
    """Return a trace of answers of vLLM, one object per request, which state accepted and drafted
    tokens of every step that drafted.

    A step that drafted less than the window, as look-ups do, counts as one that kept no more; steps
    that drafted nothing are not in it. The last step of a request is counted to its end.
    """
    requests = []
    widest = 1
    for line, row in enumerate(rows, 1):
        values = Fields("", row if isinstance(row, Mapping) else {}, line)
        counts = values.inner("metrics").inner("speculative_decoding")
        counted, _ = vllm_speculation(counts)
        if counted is None:
            served = "the answer of a vLLM served with --per-request-spec-decode-metrics detailed"
            raise fault(line, f"expected an object with 'metrics', {served}, and drafts in it")
        widest = max(widest, counts.count("num_spec_tokens") or 0, *counted.drafted)
        if max(counted.accepted) > MOST:
            raise fault(line, f"per_step_accepted: expected whole numbers from 0 to {MOST:,}")
        requests.append(ConvertedRequest("all", _inside_steps(counted.accepted)))
    source = f"vLLM's answers: accepted draft tokens of steps that drafted; {BEHIND}"
    return _trace(requests, window or widest, FROM_STEPS, source, {}, vocabulary=None)


def _flavour(line: int, row: object, field: str) -> str:
    """Return the kind of text of a request; raises :class:`BadInput` for a row that is no
    object.
    """
    if not isinstance(row, Mapping):
        raise fault(line, "expected an object, one per request")
    return str(row.get(field, "all"))


def _counts(line: int, row: Row, field: str, least: int = 0) -> list[int]:
    """Return a field that is a list of whole numbers; raises :class:`BadInput` for any other and
    for an empty one.
    """
    counts = row.get(field)
    if not isinstance(counts, list) or not counts:
        raise fault(line, f"expected an object with '{field}', a list of counts")
    if not all(type(count) is int and least <= count <= MOST for count in counts):
        raise fault(line, f"{field}: expected whole numbers from {least} to {MOST:,}")
    return counts


def _inside_steps(kept: Iterable[int]) -> list[int]:
    """Return run lengths by position: a step that kept 2 covers three positions, from which 2, 1
    and 0 are kept.
    """
    run: list[int] = []
    for accepted in kept:
        run += range(accepted, -1, -1)
    return run


def _trace(
    requests: Sequence[ConvertedRequest],
    window: int | None,
    how: str,
    source: str,
    names: Mapping[str, str],
    vocabulary: int | None,
) -> Trace:
    """Return a trace in format 2; raises :class:`BadInput` for no requests, too small a window or
    too many flavours.
    """
    if not requests:
        raise BadInput.at("", "holds no requests")
    largest = max(1, *(max(request.run) for request in requests))
    if window is not None and window < largest:
        known = f"a window was kept up to {largest} draft tokens"
        raise BadInput.at("", f"--window {window}: {known}, so the recorded one was not smaller")
    flavours = list(dict.fromkeys(request.flavour for request in requests))
    if len(flavours) > MOST_FLAVOURS:
        message = f"holds {len(flavours):,} flavours; a trace can distinguish {MOST_FLAVOURS:,}"
        raise BadInput.at("", message)
    models = {role: {"name": names.get(role), "shape": None} for role in ("target", "draft")}
    header = {
        "format": CONVERTED,
        "temperature": None,
        "vocabulary": vocabulary,
        "flavours": flavours,
        "exit_layers": [],
        "window": window or largest,
        "models": models,
        "source": source,
        "replay": how,
    }
    offsets = [0]
    numbers = []
    run: list[int] = []
    for request in requests:
        numbers.append(flavours.index(request.flavour))
        run += [0, *request.run]
        offsets.append(len(run))
    return Trace(
        header,
        offsets=np.array(offsets, dtype=np.int64),
        flavour=np.array(numbers, dtype=np.min_scalar_type(len(flavours) - 1)),
        token=np.empty(0, dtype=np.uint16),
        draft_rank=np.empty(0, dtype=np.uint16),
        p=np.empty(0, dtype=np.float16),
        q=np.empty(0, dtype=np.float16),
        exit_rank=np.empty((0, len(run)), dtype=np.uint16),
        run=np.array(run).astype(np.uint16),
    )


def json_lines(lines: Sequence[str]) -> list[Row]:
    """Return the JSON values of the lines that are not blank."""
    rows = []
    for line, text in enumerate(lines, 1):
        if text.strip():
            try:
                rows.append(from_json(text))
            except json.JSONDecodeError as error:
                raise fault(line, f"is not JSON: {error}") from error
    return rows


TO_TRACE: Mapping[str, Callable[[Sequence[str], int | None], Trace]] = {
    "specdecode_bench_eagle": lambda lines, window: positional(json_lines(lines), "eagle", window),
    "specdecode_bench_ngram": lambda lines, window: positional(json_lines(lines), "ngram", window),
    "specdecode_bench": lambda lines, window: both(json_lines(lines), window),
    "rest": lambda lines, window: rest(json_lines(lines), window),
    "steps": lambda lines, window: steps(json_lines(lines), window),
    "vllm_answers": lambda lines, window: vllm_answers(json_lines(lines), window),
}
"""Functions from the lines of a file, and the window if it is stated, to a trace, by name of the
format.
"""
