"""What vLLM, SGLang and TensorRT-LLM write about acceptance becomes the ``acceptance`` block of a
scenario.

A count that a file does not hold is unknown, never 0: such a file is refused in words that name
what is missing. A 0 that was counted is 0. ``patterns.yaml`` holds the wordings.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import isfinite

import numpy as np

from simulator.acceptance.converters import fault
from simulator.acceptance.logs.patterns import NO_COUNTERS, PATTERNS, unknown
from simulator.acceptance.logs.rates import (
    BEHIND_THE_END,
    Block,
    count,
    measured_mean,
    measured_positions,
    measured_share,
    number,
    numbers,
    rates_by_position,
)
from simulator.files import reading
from simulator.files.schema import BadInput

# ---- counters that are scraped


def _increases(pattern: str, lines: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return by name and labels what each counter of one scrape is, or how much it grew from the
    first to the last.

    Raises :class:`BadInput` where a counter fell, or one of its kind is in another number of
    scrapes.
    """
    scrapes: dict[tuple[str, str], list[float]] = {}
    for line, match in enumerate(map(PATTERNS[pattern].match, lines), 1):
        if match:
            value = number(line, match[3])
            if not isfinite(value):
                raise fault(line, f"expected a finite number, found '{match[3]}'")
            scrapes.setdefault((match[1], match[2] or ""), []).append(value)
    increases: dict[str, dict[str, float]] = {}
    for (name, labels), values in scrapes.items():
        for before, after in pairwise(values):
            if after < before:
                message = (
                    f"the counter of {name} fell from {before:g} to {after:g} between two scrapes"
                )
                raise unknown(
                    f"{message}: the server was started anew in between, take two scrapes "
                    "behind that"
                )
        if len(values) > 1:
            increases.setdefault(name, {})[labels] = values[-1] - values[0]
        else:
            increases.setdefault(name, {})[labels] = values[0]
    most = max(map(len, scrapes.values()), default=0)
    for (name, labels), values in scrapes.items():
        if len(values) < most:
            if len(values) > 1:
                stands = f"{len(values)} of {most} scrapes"
            else:
                stands = "one of several scrapes"
            raise unknown(f"the counter {name}{{{labels}}} stands in {stands}; is one cut off?")
    return increases


def vllm_metrics(lines: Sequence[str], window: int | None, _: str | None = None) -> Block:
    """Return ``per_position`` rates from the text of vLLM's ``/metrics``, whose ``position="0"`` is
    the first draft token.

    Engines of one server are summed. A file that holds two scrapes, one behind the other, is about
    the time between them. Wider windows (``window``) are continued. Steps that drafted nothing are
    in none of the counters. Servers that do not count by position have a mean at ``window``.
    """
    increases = _increases("counter", lines)
    if not increases:
        needed = (
            "vllm:spec_decode_num_drafts_total and "
            "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        )
        raise BadInput.at("", f"{NO_COUNTERS}{needed}")
    if "drafts" not in increases:
        raise unknown("the counter vllm:spec_decode_num_drafts_total is missing")
    drafts = sum(increases["drafts"].values())
    if not drafts > 0.0:
        raise unknown("vllm:spec_decode_num_drafts_total is 0, nothing was drafted")
    accepted = sum(increases.get("accepted_tokens", {}).values())
    counted = f", {accepted:,.0f} tokens accepted" if "accepted_tokens" in increases else ""
    source = (
        f"/metrics: {drafts:,.0f} drafts{counted}; steps that drafted nothing are not counted, "
        f"{BEHIND_THE_END}"
    )
    if survival := _survival(increases.get("accepted_tokens_per_pos", {}), drafts):
        return measured_positions(survival, window, source)
    if not counted:
        raise unknown("the counters vllm:spec_decode_num_accepted_tokens_per_pos_total are missing")
    if window is None:
        raise BadInput.at(
            "",
            "the counters vllm:spec_decode_num_accepted_tokens_per_pos_total are missing, so the "
            "window is unknown: expected --window, the num_speculative_tokens served with",
        )
    return measured_share(accepted, drafts * window, window, source)


def _survival(by_labels: Mapping[str, float], drafts: float) -> list[float]:
    """Return the shares of drafts that keep each position, from counters by labels; empty where
    none are counted.
    """
    by_position: dict[int, float] = {}
    for labels, accepted in by_labels.items():
        if place := PATTERNS["position"].search(labels):
            by_position[int(place[1])] = by_position.get(int(place[1]), 0.0) + accepted
    for position in range(max(by_position, default=-1) + 1):
        if position not in by_position:
            raise unknown(
                f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{position}"}} '
                "is missing"
            )
    return [by_position[position] / drafts for position in range(len(by_position))]


def trtllm(lines: Sequence[str], window: int | None, _: str | None = None) -> Block:
    """Return the share accepted from TensorRT-LLM's ``/metrics`` or from its statistics of
    iterations.

    Two scrapes in one file are about the time between them. The window is that of
    ``trtllm_speculative_config_info``.
    """
    text = "\n".join(lines)
    totals = {
        name: sum(of_labels.values())
        for name, of_labels in _increases("trtllm_counter", lines).items()
    }
    if not totals:
        for name in ("draft", "accepted"):
            if found := PATTERNS[f"trtllm_{name}"].findall(text):
                totals[name] = float(sum(count(0, digits) for digits in found))
    if not totals:
        needed = "trtllm_spec_decode_num_draft_tokens_total or specDecodingStats"
        raise BadInput.at("", f"{NO_COUNTERS}{needed}")
    for name in ("draft", "accepted"):
        if name not in totals:
            raise unknown(
                f"the number of {name} tokens, trtllm_spec_decode_num_{name}_tokens_total, is "
                "missing"
            )
    if not totals["draft"] > 0.0:
        raise unknown("no draft token is counted")
    windows = {int(found) for found in PATTERNS["trtllm_window"].findall(text)}
    window = window or (windows.pop() if len(windows) == 1 else None)
    if window is None:
        raise BadInput.at(
            "", "holds no window: expected --window, the draft tokens a step served with"
        )
    source = f"TensorRT-LLM: {totals['draft']:,.0f} drafted, {totals['accepted']:,.0f} accepted"
    return measured_share(totals["accepted"], totals["draft"], window, source)


# ---- logs and results of vLLM and SGLang


def vllm_log(lines: Sequence[str], window: int | None = None, _: str | None = None) -> Block:
    """Return ``per_position`` rates from lines "SpecDecoding metrics" of a vLLM log, or from bare
    rates.

    A line is about one interval; intervals are weighted by their drafted tokens, and idle ones have
    none.
    """
    logged = [
        (line, match)
        for line, match in enumerate(map(PATTERNS["vllm_interval"].search, lines), 1)
        if match
    ]
    if not logged:
        if any(PATTERNS["vllm_said"].search(text) for text in lines):
            raise unknown("lines 'SpecDecoding metrics' without 'Drafted: 300 tokens'")
        if _bare_numbers(lines):
            return rates_by_position(numbers(lines))
        raise BadInput.at(
            "", f"{NO_COUNTERS}lines 'SpecDecoding metrics: ...', or the rates by position alone"
        )
    busy = [
        (line, drafted, match[2]) for line, match in logged if (drafted := count(line, match[1]))
    ]
    if not busy:
        raise unknown("every interval of this log drafted 0 tokens")
    intervals = [(drafted, numbers([rates])) for _, drafted, rates in busy if rates]
    if not intervals:
        message = (
            "'Per-position acceptance rate: 0.800, 0.500' is missing behind the drafted tokens"
        )
        raise fault(busy[0][0], f"{message}; acceptance is unknown")
    if len({len(rates) for _, rates in intervals}) != 1:
        raise BadInput.at("", "mixes windows of different lengths; convert the log of one setting")
    weights = [drafted for drafted, _ in intervals]
    mean = np.average([rates for _, rates in intervals], axis=0, weights=weights).tolist()
    without = len(busy) - len(intervals)
    left = f"; {without:,} more hold no rates by position and are left out" if without else ""
    source = (
        f"vLLM's log: {sum(weights):,} tokens drafted in {len(intervals):,} intervals{left}; "
        f"{BEHIND_THE_END}"
    )
    return measured_positions(mean, window, source)


def _bare_numbers(lines: Sequence[str]) -> bool:
    """Return whether half of the words of a text or more are numbers, comments apart."""
    words = " ".join(line.partition("#")[0] for line in lines).replace(",", " ").split()
    return 0 < len(words) <= 2 * sum(map(_is_number, words))


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def vllm_bench(lines: Sequence[str], window: int | None, _: str | None = None) -> Block:
    """Return ``per_position`` rates from the result of ``vllm bench serve --save-result``."""
    try:
        result = reading.from_json("\n".join(lines))
    except ValueError as error:
        raise BadInput.at("", f"is not JSON: {error}") from error
    if not isinstance(result, dict):
        raise BadInput.at("", "expected one object, the result of vllm bench serve --save-result")
    if not any(key.startswith("spec_decode_") for key in map(str, result)):
        raise BadInput.at("", f"{NO_COUNTERS}spec_decode_per_position_acceptance_rates")
    rates, drafts = (
        result.get(f"spec_decode_{name}")
        for name in ("per_position_acceptance_rates", "num_drafts")
    )
    if type(drafts) is int and drafts == 0:
        raise unknown("spec_decode_num_drafts is 0, nothing was drafted")
    if not isinstance(rates, list) or not rates:
        raise unknown("spec_decode_per_position_acceptance_rates, a list of rates, is missing")
    if not all(type(rate) in (int, float) for rate in rates):
        raise unknown("spec_decode_per_position_acceptance_rates: expected numbers")
    if type(drafts) is int:
        counted = f"{drafts:,} drafts"
    else:
        counted = "an unknown number of drafts"
    source = (
        f"vllm bench serve: {counted}; steps that drafted nothing are not counted, {BEHIND_THE_END}"
    )
    return measured_positions([float(rate) for rate in rates], window, source)


def sglang(lines: Sequence[str], window: int | None, _: str | None = None) -> Block:
    """Return the mean of an SGLang server: of its log's ``accept len:``, or of ``accept_length`` in
    a result of its benchmark.

    A line of the log is about so many passes, each for all running requests, by which it is
    weighted. ``/get_server_info`` states ``avg_spec_accept_length`` and the window,
    ``speculative_num_steps``; ``/metrics`` has a gauge. A length of 0 is that of an idle server.
    """
    text = "\n".join(lines)
    stated = [
        (float(match[2]), float(match[1] or 1))
        for match in map(PATTERNS["sglang_log"].search, lines)
        if match
    ]
    if not stated:
        found = PATTERNS["sglang_result"].findall(text)
        found += [match[1] for match in map(PATTERNS["sglang_gauge"].match, lines) if match]
        stated = [(float(length), 1.0) for length in found]
    if not stated:
        raise BadInput.at(
            "",
            f"{NO_COUNTERS}'accept len: 2.47', 'accept_length': 2.47 or sglang:spec_accept_length",
        )
    means = [(length, weight) for length, weight in stated if length > 0.0 and weight > 0.0]
    if not means:
        raise unknown("every accept length in this file is 0, as of a server that is idle")
    steps = {int(found) for found in PATTERNS["sglang_steps"].findall(text)}
    window = window or (steps.pop() if len(steps) == 1 else None)
    if not window:
        raise BadInput.at("", "holds no window: expected --window, the draft steps served with")
    lengths, weights = zip(*means, strict=True)
    if len(stated) > len(means):
        idle = f", {len(stated) - len(means):,} of an idle server left out"
    else:
        idle = ""
    return measured_mean(
        float(np.average(lengths, weights=weights)),
        window,
        f"SGLang, {len(means)} value{'s' * (len(means) > 1)} of accept length{idle}",
    )
