"""Acceptance that other programs recorded is converted to a trace or to the ``acceptance`` block of a scenario.

A record of every step becomes a :class:`Trace` in format 2; a summary (rates, a mean) can
only become rates. ``replay`` in the header of a trace says which questions a replay of it can answer.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from simulator.acceptance.header import MOST_FLAVOURS
from simulator.acceptance.rescale import check_length
from simulator.acceptance.statistics import independent
from simulator.acceptance.trace import CONVERTED, Trace
from simulator.files.reading import from_json
from simulator.files.schema import BadInput, Fault

Row = Mapping[str, Any]
MOST = np.iinfo(np.uint16).max
"""Largest count that a trace can hold."""
FROM_ANY_START = (
    "exact at every window up to the recorded one, since what a window keeps was recorded at every position; "
    "token ids, ranks and probabilities are not known, and there are no early exits"
)
FROM_STEPS = (
    "exact at the recorded window only; a smaller window is replayed as if what a step kept were kept by a window that "
    "starts inside it, and what lies behind a window kept in full were rejected; a larger one was never judged; "
    "token ids, ranks and probabilities are not known, and there are no early exits"
)


class ConvertedRequest(NamedTuple):
    """A converted request holds these fields."""

    flavour: str
    """Kind of text."""
    run: Sequence[int]
    """Draft tokens that a window keeps, by the position at which it starts."""


def fault(line: int, message: str) -> BadInput:
    """Return the exception for a fault in line ``line`` (from 1) of a record; the caller adds the file."""
    return BadInput([Fault(("", line, 0), "", message)])


def positional(rows: Iterable[Row], method: str, window: int | None = None) -> Trace:
    """Return a trace of SpecDecode-Bench, which states how many tokens a speculation from every position yields.

    ``method`` is ``eagle`` or ``ngram``; the bonus is included. Replays exactly the walk "start at p, emit length[p] tokens,
    go on at p + length[p]", capped at the window plus one. The window is the largest kept unless stated.
    """
    field = f"acc_len_{method}"
    requests = [
        ConvertedRequest(_flavour(line, row, "dataset"), [length - 1 for length in _counts(line, row, field, least=1)])
        for line, row in enumerate(rows, 1)
    ]
    names = {"target": "Llama-3.1-8B-Instruct", "draft": method}
    source = f"SpecDecode-Bench positional accepted lengths, field {field}"
    return _trace(requests, window, FROM_ANY_START, source, names, vocabulary=128_256)


def rest(rows: Iterable[Row], window: int | None = None) -> Trace:
    """Return a trace of REST's answers on MT-bench (Vicuna 7B), which state the tokens of each step, turn after turn.

    ``steps_idx`` is the index of each turn's last step. A turn's first entry leaves its own correction out
    and all others count it (REST starts counting one token late), so lengths of a turn add up to its new
    tokens less one. Exact at the recorded window only, see ``FROM_STEPS``.
    """
    requests = []
    for line, row in enumerate(rows, 1):
        flavour, lengths, taken = _flavour(line, row, "category"), _counts(line, row, "accept_lengths"), 0
        for last in _counts(line, row, "steps_idx"):
            first, *following = lengths[taken : taken + last + 1] or [0]
            taken += last + 1
            if 0 in following:
                raise fault(line, "accept_lengths: a step that is not a turn's first cannot yield 0 tokens")
            kept = [first, *(length - 1 for length in following)]
            requests.append(ConvertedRequest(flavour, _inside_steps(kept)))
        if taken != len(lengths):
            raise fault(line, f"accept_lengths: expected {taken} steps by steps_idx, found {len(lengths)}")
    names = {"target": "Vicuna-7B-v1.5", "draft": "REST retrieval"}
    return _trace(requests, window, FROM_STEPS, "REST accepted lengths by step", names, vocabulary=32_000)


def steps(rows: Iterable[Row], window: int | None = None) -> Trace:
    """Return a trace of accepted draft tokens by step, correction not counted, as vLLM counts ``num_accepted_tokens``.

    One object per request: ``{"accepted": [2, 0, 3], "flavour": "code"}``, the flavour optional. State the window that was
    served; without it the largest count is taken, which may be smaller. Exact at that window only, see ``FROM_STEPS``.
    """
    requests = [
        ConvertedRequest(_flavour(line, row, "flavour"), _inside_steps(_counts(line, row, "accepted")))
        for line, row in enumerate(rows, 1)
    ]
    return _trace(requests, window, FROM_STEPS, "accepted draft tokens by step", {}, vocabulary=None)


def _flavour(line: int, row: object, field: str) -> str:
    """Return the kind of text of a request; raises :class:`BadInput` for a row that is no object."""
    if not isinstance(row, Mapping):
        raise fault(line, "expected an object, one per request")
    return str(row.get(field, "all"))


def _counts(line: int, row: Row, field: str, least: int = 0) -> list[int]:
    """Return a field that is a list of whole numbers; raises :class:`BadInput` for any other and for an empty one."""
    counts = row.get(field)
    if not isinstance(counts, list) or not counts:
        raise fault(line, f"expected an object with '{field}', a list of counts")
    if not all(type(count) is int and least <= count <= MOST for count in counts):
        raise fault(line, f"{field}: expected whole numbers from {least} to {MOST:,}")
    return counts


def _inside_steps(kept: Iterable[int]) -> list[int]:
    """Return run lengths by position: a step that kept 2 covers three positions, from which 2, 1 and 0 are kept."""
    return [left for accepted in kept for left in range(accepted, -1, -1)]


def _trace(
    requests: Sequence[ConvertedRequest],
    window: int | None,
    how: str,
    source: str,
    names: Mapping[str, str],
    vocabulary: int | None,
) -> Trace:
    """Return a trace in format 2; raises :class:`BadInput` for no requests, too small a window or too many flavours."""
    if not requests:
        raise BadInput([Fault(("", 0, 0), "", "holds no requests")])
    largest = max(1, *(max(request.run) for request in requests))
    if window is not None and window < largest:
        message = f"--window {window}: a window was kept up to {largest} draft tokens, so the recorded one was not smaller"
        raise BadInput([Fault(("", 0, 0), "", message)])
    flavours = list(dict.fromkeys(request.flavour for request in requests))
    if len(flavours) > MOST_FLAVOURS:
        raise BadInput([Fault(("", 0, 0), "", f"holds {len(flavours)} flavours; a trace can distinguish {MOST_FLAVOURS}")])
    header = {
        "format": CONVERTED,
        "temperature": None,
        "vocabulary": vocabulary,
        "flavours": flavours,
        "exit_layers": [],
        "window": window or largest,
        "models": {role: {"name": names.get(role), "shape": None} for role in ("target", "draft")},
        "source": source,
        "replay": how,
    }
    lengths = [len(request.run) + 1 for request in requests]
    return Trace(
        header,
        offsets=np.cumsum([0, *lengths], dtype=np.int64),
        flavour=np.array([flavours.index(request.flavour) for request in requests], dtype=np.uint8),
        token=np.empty(0, dtype=np.uint16),
        draft_rank=np.empty(0, dtype=np.uint16),
        p=np.empty(0, dtype=np.float16),
        q=np.empty(0, dtype=np.float16),
        exit_rank=np.empty((0, sum(lengths)), dtype=np.uint16),
        run=np.concatenate([[0, *request.run] for request in requests]).astype(np.uint16),
    )


# ---- summaries: rates for a scenario


def rates_by_position(survival: Sequence[float]) -> dict[str, list[float]]:
    """Return ``per_position`` rates of a scenario from the "per-position acceptance rate" of vLLM.

    vLLM divides accepted tokens at a position by all windows, whether they got there or not; a scenario wants the rate given
    that they did. The mean of accepted tokens is kept exactly at the logged window; at smaller ones if starting elsewhere
    changes nothing; beyond, the last rate repeats. Bursts are lost: windows are drawn independently of each other.
    """
    chances = [1.0, *survival]
    if not survival or not all(0.0 <= after <= before for before, after in pairwise(chances)):
        raise BadInput([Fault(("", 0, 0), "", "expected rates from 0 to 1 that fall from position to position")])
    return {"per_position": [after / before if before else 0.0 for before, after in pairwise(chances)]}


def rates_from_lengths(lengths: Sequence[float]) -> dict[str, list[float]]:
    """Return ``per_position`` rates from mean accepted lengths, correction or bonus included, at windows 1, 2, 3, ...

    This is a golden curve: every further draft token adds the chance that it is reached and kept. Exact if the
    chance of a position is the same at every window, which i.i.d. text has and bursts break a little.
    """
    return rates_by_position([round(after - before, 12) for before, after in pairwise([1.0, *lengths])])


def rate_from_length(length: float, window: int) -> dict[str, float]:
    """Return the i.i.d. ``rate`` that gives a mean accepted length, correction or bonus included, at ``window``.

    Solves rate + rate^2 + ... + rate^window = length - 1. Other windows follow the i.i.d. formula, which
    errs where acceptance comes in bursts.
    """
    check_length(length, window)
    return {"rate": float(brentq(lambda rate: independent(rate, window) - (length - 1.0), 0.0, 1.0, xtol=1e-12))}


# ---- files


def vllm_log(lines: Sequence[str]) -> dict[str, list[float]]:
    """Return ``per_position`` rates from lines "SpecDecoding metrics" of a vLLM log, or from bare rates.

    A line is about one interval; intervals are weighted by their drafted tokens, and idle ones have none.
    """
    logged = [(line, match) for line, match in enumerate(map(LOGGED.search, lines), 1) if match]
    for line, match in logged:
        if len(match[1]) > MOST_DIGITS:
            raise fault(line, f"expected a number of tokens, found '{match[1][:40]}'")
    intervals = [(int(match[1]), match[2]) for _, match in logged if int(match[1])]
    if not intervals:
        return rates_by_position(numbers(lines))
    rates = [numbers([text]) for _, text in intervals]
    if len(set(map(len, rates))) != 1:
        raise BadInput([Fault(("", 0, 0), "", "mixes windows of different lengths; convert the log of one setting")])
    return rates_by_position(np.average(rates, axis=0, weights=[drafted for drafted, _ in intervals]).tolist())


MOST_DIGITS = 18
"""Most digits of a count in a log."""
LOGGED = re.compile(r"Drafted: (\d+) tokens, Per-position acceptance rate: ([\d., ]*\d)")


def numbers(lines: Sequence[str]) -> list[float]:
    """Return the numbers of a text, separated by commas or white space; ``#`` starts a comment."""
    values = []
    for line, text in enumerate(lines, 1):
        for word in text.partition("#")[0].replace(",", " ").split():
            try:
                values.append(float(word))
            except ValueError as error:
                raise fault(line, f"expected numbers, found '{word[:40]}'") from error
    return values


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


def _rate_from_single_length(lines: Sequence[str], window: int | None) -> dict[str, float]:
    """Return the i.i.d. rate of a file that holds a single mean accepted length."""
    given = numbers(lines)
    if len(given) != 1 or window is None:
        raise BadInput([Fault(("", 0, 0), "", "expected one mean accepted length and --window")])
    return rate_from_length(given[0], window)


TO_TRACE: Mapping[str, Callable[[Sequence[str], int | None], Trace]] = {
    "specdecode_bench_eagle": lambda lines, window: positional(json_lines(lines), "eagle", window),
    "specdecode_bench_ngram": lambda lines, window: positional(json_lines(lines), "ngram", window),
    "rest": lambda lines, window: rest(json_lines(lines), window),
    "steps": lambda lines, window: steps(json_lines(lines), window),
}
"""Functions from the lines of a file, and the window if it is stated, to a trace, by name of the format."""

TO_RATES: Mapping[str, Callable[[Sequence[str], int | None], Mapping[str, Any]]] = {
    "vllm_log": lambda lines, window: vllm_log(lines),
    "golden_lengths": lambda lines, window: rates_from_lengths(numbers(lines)),
    "mean_length": _rate_from_single_length,
}
"""Functions from the lines of a file, and the window if it is stated, to an acceptance block, by name of the format."""
