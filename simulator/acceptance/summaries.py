"""What engines log about acceptance, and what papers print of it, becomes the ``acceptance`` block of a scenario.

A summary holds no bursts: rates by position are drawn independently, and a mean is lent the bursts of the nearest recording.
The first draft token of a window is position 1 here, ``position="0"`` in vLLM's counters. Lengths count correction or bonus.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from simulator.acceptance.continuation import LONGEST, continued_rates
from simulator.acceptance.converters import fault
from simulator.acceptance.rescale import check_length
from simulator.files.document import parse
from simulator.files.schema import BadInput

Block = Mapping[str, Any]  # content of the acceptance block of a scenario


def rates_by_position(survival: Sequence[float]) -> dict[str, list[float]]:
    """Return ``per_position`` rates of a scenario from the "per-position acceptance rate" of vLLM.

    vLLM divides accepted tokens at a position by all windows, whether they got there or not; a scenario wants the rate given
    that they did. The mean of accepted tokens is kept exactly at the logged window; at smaller ones if starting elsewhere
    changes nothing; beyond, the last rate repeats. Bursts are lost: windows are drawn independently of each other.
    """
    chances = [1.0, *survival]
    if not survival or not all(0.0 <= after <= before for before, after in pairwise(chances)):
        raise BadInput.at("", "expected rates from 0 to 1 that fall from position to position")
    return {"per_position": [after / before if before else 0.0 for before, after in pairwise(chances)]}


def rates_from_lengths(lengths: Sequence[float], window: int | None = None) -> dict[str, list[float]]:
    """Return ``per_position`` rates from mean accepted lengths, correction or bonus included, at windows 1, 2, 3, ...

    This is a golden curve: every further draft token adds the chance that it is reached and kept. Exact if the
    chance of a position is the same at every window, which i.i.d. text has and bursts break a little. Beyond the known windows
    the curve is continued up to ``window`` (:mod:`simulator.acceptance.continuation`).
    """
    try:
        return {"per_position": continued_rates(lengths, max(min(window or 0, LONGEST), len(lengths)))}
    except ValueError as error:
        raise BadInput.at("", str(error)) from error


def vllm_log(lines: Sequence[str], *_: object) -> Block:
    """Return ``per_position`` rates from lines "SpecDecoding metrics" of a vLLM log, or from bare rates.

    A line is about one interval; intervals are weighted by their drafted tokens, and idle ones have none.
    """
    logged = [(line, match) for line, match in enumerate(map(PATTERNS["vllm_interval"].search, lines), 1) if match]
    intervals = [(_count(line, match[1]), match[2]) for line, match in logged]
    intervals = [(drafted, rates) for drafted, rates in intervals if drafted]
    if not intervals:
        return rates_by_position(numbers(lines))
    rates = [numbers([text]) for _, text in intervals]
    if len(set(map(len, rates))) != 1:
        raise BadInput.at("", "mixes windows of different lengths; convert the log of one setting")
    return rates_by_position(np.average(rates, axis=0, weights=[drafted for drafted, _ in intervals]).tolist())


def vllm_metrics(lines: Sequence[str], window: int | None, _: str | None = None) -> Block:
    """Return ``per_position`` rates from the text of vLLM's ``/metrics``, whose ``position="0"`` is the first draft token.

    Engines of one server are summed. A file that holds two scrapes, one behind the other, is about the time between them.
    Wider windows (``window``) are continued.
    """
    scrapes: dict[tuple[str, str], list[float]] = {}
    for line, match in enumerate(map(PATTERNS["vllm_counter"].match, lines), 1):
        if match:
            scrapes.setdefault((match[1], match[2] or ""), []).append(_number(line, match[3]))
    windows, by_position = 0.0, dict[int, float]()
    for (name, labels), values in scrapes.items():
        since = values[-1] - (values[0] if len(values) > 1 else 0.0)
        if name == "drafts":
            windows += since
        elif place := PATTERNS["vllm_position"].search(labels):
            by_position[int(place[1])] = by_position.get(int(place[1]), 0.0) + since
    if not (windows > 0.0 and by_position and sorted(by_position) == list(range(len(by_position)))):
        raise BadInput.at(
            "", "expected the counters vllm:spec_decode_num_drafts_total and ..._num_accepted_tokens_per_pos_total, not 0"
        )
    survival = [by_position[place] / windows for place in range(len(by_position))]
    if window and window > len(survival):
        return rates_from_lengths((1.0 + np.cumsum(survival)).tolist(), window)
    return rates_by_position(survival)


def sglang(lines: Sequence[str], window: int | None, _: str | None = None) -> Block:
    """Return the mean of an SGLang server: of its log's ``accept len:``, or of ``accept_length`` in a result of its benchmark.

    A line of the log is about so many passes, each for all running requests, by which it is weighted. ``/get_server_info``
    states ``avg_spec_accept_length`` and the window, ``speculative_num_steps``.
    """
    means = [(float(match[2]), float(match[1] or 1)) for match in map(PATTERNS["sglang_log"].search, lines) if match]
    if not means:
        means = [(float(found), 1.0) for found in PATTERNS["sglang_result"].findall("\n".join(lines))]
    steps = {int(found) for found in PATTERNS["sglang_steps"].findall("\n".join(lines))}
    window = window or (steps.pop() if len(steps) == 1 else None)
    if not means or window is None:
        raise BadInput.at("", "expected 'accept len: 2.47' or 'accept_length': 2.47, and --window, the draft steps served with")
    lengths, weights = zip(*means, strict=True)
    return _mean(float(np.average(lengths, weights=weights)), window, f"SGLang, {len(means)} values of accept length")


def llama_cpp(lines: Sequence[str], window: int | None, _: str | None = None) -> Block:
    """Return the mean of llama.cpp, from the counts of its server's log or of ``llama-speculative``.

    Steps are counted as tokens predicted less drafts accepted, since drafting may stop early or not start at all: every step
    commits one token of the target's own. Without a count of predicted tokens there is the share accepted of those drafted.
    """
    totals = dict.fromkeys(LLAMA_CPP, 0)
    for line, text in enumerate(lines, 1):
        for name in LLAMA_CPP:
            totals[name] += sum(_count(line, digits) for digits in PATTERNS[f"llama_cpp_{name}"].findall(text))
    if not totals["drafted"] or totals["accepted"] > totals["drafted"] or window is None:
        raise BadInput.at(
            "", "expected 'draft acceptance rate = 0.57 (171 accepted / 297 generated)' or n_drafted, and --window, --draft-max"
        )
    counts = ", ".join(f"{count:,} {name}" for name, count in totals.items() if count)
    if totals["predicted"] > totals["accepted"]:
        steps = totals["predicted"] - totals["accepted"]
        return _mean(totals["predicted"] / steps, window, f"llama.cpp: {counts}, {steps:,} steps")
    share = {"accepted_share": totals["accepted"] / totals["drafted"], "window": window}
    return {**share, "source": f"llama.cpp: {counts}, as if every step drafted {window}", "confidence": "measured"}


def llama_batched_bench(lines: Sequence[str], *_: object) -> Block:
    """Return ``durations`` from the table of ``llama-batched-bench``: ms of a pass of the target and of a prompt, by its rows.

    T_TG is that of TG passes over a row of each of B sequences, T_PP that of their prompts. No verification is measured: a row
    of a window is priced as one of a further sequence. Of several lengths of prompt the longest is taken.
    """
    rows = [numbers([line.replace("|", " ")]) for line in lines if PATTERNS["batched_bench"].match(line)]
    if len({(prompt, batch) for prompt, _, batch, *_ in rows}) < 2:
        raise BadInput.at("", "expected the table of llama-batched-bench, | PP | TG | B | ..., with two batches B or more")
    longest = max(prompt for prompt, *_ in rows)
    chosen = {batch: (tokens, *rest) for prompt, tokens, batch, *rest in rows if prompt == longest}
    target = [[batch, row[4] / row[0] * 1e3] for batch, row in sorted(chosen.items())]
    prefill = [[batch * longest, row[2] * 1e3] for batch, row in sorted(chosen.items())]
    return {
        "target_ms": {"columns": ["rows", "ms"], "points": target},
        "prefill_ms": {"columns": ["rows", "ms"], "points": prefill},
    }


def _mean(length: float, window: int, source: str) -> Block:
    check_length(length, window)
    return {"tokens_per_step": length, "window": window, "source": source, "confidence": "measured"}


def golden_lengths(lines: Sequence[str], window: int | None, series: str | None = None) -> Block:
    """Return rates from mean lengths at windows 1, 2, 3, ...: bare numbers, or a YAML file of InferenceX, model by mode.

    Of a file with several curves ``series`` names one, such as ``thinking_on``. Continued to ``window``.
    """
    if not any(":" in line.partition("#")[0] for line in lines):
        return rates_from_lengths(numbers(lines), window)
    curves = dict(_curves(parse("\n".join(line.rstrip("\n") for line in lines), "").data))
    chosen = [curve for name, curve in curves.items() if series in (None, name, name.rpartition(" ")[2])]
    if len(chosen) != 1:
        raise BadInput.at(
            "", f"expected --series, one of: {', '.join(curves) or 'none, it holds no curve by window 1, 2, 3, ...'}"
        )
    return rates_from_lengths(chosen[0], window)


def _curves(content: object, name: str = "") -> Iterator[tuple[str, list[float]]]:
    """Yield every mapping from windows 1, 2, 3, ... to lengths, with the keys that lead to it."""
    if isinstance(content, Mapping):
        windows = [str(window) for window in range(1, len(content) + 1)]
        if list(content) == windows and all(type(value) in (int, float) for value in content.values()):
            yield name, [float(value) for value in content.values()]
        else:
            for key, value in content.items():
                yield from _curves(value, f"{name} {key}".strip())


def mean_length(lines: Sequence[str], window: int | None, _: str | None = None) -> Block:
    """Return a mean accepted length with its window."""
    given = numbers(lines)
    if len(given) != 1 or window is None:
        raise BadInput.at("", "expected one mean accepted length and --window")
    return _mean(given[0], window, "not stated")


MOST_DIGITS = 18
"""Most digits of a count in a log."""
STATED = Path(__file__).with_name("engine_logs.yaml").read_text("utf-8")
PATTERNS: Mapping[str, re.Pattern[str]] = {name: re.compile(pattern) for name, pattern in yaml.safe_load(STATED).items()}
LLAMA_CPP = ("predicted", "drafted", "accepted")
"""Counts of tokens that llama.cpp prints."""


def _count(line: int, digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise fault(line, f"expected a number of tokens, found '{digits[:40]}'")
    return int(digits)


def _number(line: int, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise fault(line, f"expected numbers, found '{text[:40]}'") from error


def numbers(lines: Sequence[str]) -> list[float]:
    """Return the numbers of a text, separated by commas or white space; ``#`` starts a comment."""
    words = ((line, word) for line, text in enumerate(lines, 1) for word in text.partition("#")[0].replace(",", " ").split())
    return [_number(line, word) for line, word in words]


TO_RATES: Mapping[str, Callable[[Sequence[str], int | None, str | None], Block]] = {
    "vllm_log": vllm_log,
    "vllm_metrics": vllm_metrics,
    "sglang": sglang,
    "llama_cpp": llama_cpp,
    "llama_batched_bench": llama_batched_bench,
    "golden_lengths": golden_lengths,
    "mean_length": mean_length,
}
"""Functions from the lines of a file, and what the command line says of it, to an acceptance block, by name of the format."""
