"""What vLLM, SGLang and TensorRT-LLM write about acceptance becomes the ``acceptance`` block of a
scenario.

A count that a file does not hold is unknown, never 0: such a file is refused in words that name
what is missing. A 0 that was counted is 0. ``patterns.yaml`` holds the wordings.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from simulator.core.faults import BadInput
from simulator.inputs import reading
from simulator.inputs.services.exposition import (
    Labels,
    check_complete,
    finite,
    increase,
    sample_in,
    series,
)
from simulator.inputs.traces.converters import fault
from simulator.inputs.traces.patterns import NO_COUNTERS, PATTERNS, unknown
from simulator.inputs.traces.rates import (
    BEHIND_THE_END,
    Block,
    count,
    measured_mean,
    measured_positions,
    measured_share,
    numbers,
    rates_by_position,
)

MOST_POSITION_DIGITS = 4
"""Most digits of a position in a window."""

# ---- counters that are scraped


def _counters(
    servers: Sequence[str], counted: Iterable[str], ending: str = ""
) -> Mapping[str, str]:
    """Return what is counted by the names of its counter, which older servers write without
    ``_total``.
    """
    names: dict[str, str] = {}
    for server in servers:
        for what in counted:
            name = f"{server}spec_decode_num_{what}{ending}"
            names |= {name: what, f"{name}_total": what}
    return names


VLLM_COUNTERS = _counters(
    ("vllm:", "llamacpp:"),  # llama-server has taken over vLLM's names
    ("drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos"),
)
TRTLLM_COUNTERS = _counters(("trtllm_",), ("draft", "accepted"), "_tokens")


def counts_acceptance(line: str) -> bool:
    """Return whether a line is one of the counters that vLLM and llama-server have."""
    sample = sample_in(line)
    return sample is not None and sample.name in VLLM_COUNTERS


def _increases(counters: Mapping[str, str], lines: Sequence[str]) -> dict[str, dict[Labels, float]]:
    """Return by what is counted and labels what each counter of one scrape is, or how much it grew
    from the first to the last.

    Raises :class:`BadInput` where a counter fell, or one of its kind is in another number of
    scrapes.
    """
    scrapes = series(lines, counters)
    increases: dict[str, dict[Labels, float]] = {}
    for (name, labels), values in scrapes.items():
        increases.setdefault(counters[name], {})[labels] = increase(name, values)
    check_complete(scrapes)
    return increases


def vllm_metrics(lines: Sequence[str], window: int | None, _: str | None = None) -> Block:
    """Return ``per_position`` rates from the text of vLLM's ``/metrics``, whose ``position="0"`` is
    the first draft token.

    Engines of one server are summed. A file that holds two scrapes, one behind the other, is about
    the time between them. Wider windows (``window``) are continued. Steps that drafted nothing are
    in none of the counters. Servers that do not count by position have a mean at ``window``.
    """
    increases = _increases(VLLM_COUNTERS, lines)
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
    counts_accepted = "accepted_tokens" in increases
    counted = f", {accepted:,.0f} tokens accepted" if counts_accepted else ""
    source = (
        f"/metrics: {drafts:,.0f} drafts{counted}; steps that drafted nothing are not counted, "
        f"{BEHIND_THE_END}"
    )
    survival = _survival(increases.get("accepted_tokens_per_pos", {}), drafts)
    if survival:
        return measured_positions(survival, window, source)
    if not counts_accepted:
        raise unknown("the counters vllm:spec_decode_num_accepted_tokens_per_pos_total are missing")
    if window is None:
        raise BadInput.at(
            "",
            "the counters vllm:spec_decode_num_accepted_tokens_per_pos_total are missing, so the "
            "window is unknown: expected --window, the num_speculative_tokens served with",
        )
    return measured_share(accepted, drafts * window, window, source)


def _survival(by_labels: Mapping[Labels, float], drafts: float) -> list[float]:
    """Return the shares of drafts that keep each position, from counters by labels; empty where
    none are counted.
    """
    by_position: dict[int, float] = {}
    for labels, accepted in by_labels.items():
        stated = dict(labels).get("position", "")
        if stated.isdecimal() and len(stated) <= MOST_POSITION_DIGITS:
            position = int(stated)
            by_position[position] = by_position.get(position, 0.0) + accepted
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
    totals = {}
    for name, by_labels in _increases(TRTLLM_COUNTERS, lines).items():
        totals[name] = sum(by_labels.values())
    if not totals:
        for name in ("draft", "accepted"):
            of_iterations = PATTERNS[f"trtllm_{name}"].findall(text)
            if of_iterations:
                totals[name] = float(sum(count(0, digits) for digits in of_iterations))
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
    stated_window = _only_window("trtllm_window", text)
    window = window or stated_window
    if window is None:
        raise BadInput.at(
            "", "holds no window: expected --window, the draft tokens a step served with"
        )
    source = f"TensorRT-LLM: {totals['draft']:,.0f} drafted, {totals['accepted']:,.0f} accepted"
    return measured_share(totals["accepted"], totals["draft"], window, source)


def _only_window(pattern: str, text: str) -> int | None:
    """Return the window that a text states; None where it states none, or several."""
    windows = {int(digits) for digits in PATTERNS[pattern].findall(text)}
    if len(windows) == 1:
        return windows.pop()
    return None


# ---- logs and results of vLLM and SGLang


class _Interval(NamedTuple):
    """An interval of a vLLM log that drafted something."""

    line: int
    drafted: int
    rates: str | None
    """Rates by position as they were logged; None: not logged."""


def vllm_log(lines: Sequence[str], window: int | None = None, _: str | None = None) -> Block:
    """Return ``per_position`` rates from lines "SpecDecoding metrics" of a vLLM log, or from bare
    rates.

    A line is about one interval; intervals are weighted by their drafted tokens, and idle ones have
    none.
    """
    matches = _vllm_matches(lines)
    if not matches:
        return _bare_rates(lines)
    busy = []
    for line, match in matches:
        drafted = count(line, match[1])
        if drafted:
            busy.append(_Interval(line, drafted, match[2]))
    if not busy:
        raise unknown("every interval of this log drafted 0 tokens")
    with_rates = [interval for interval in busy if interval.rates]
    if not with_rates:
        message = (
            "'Per-position acceptance rate: 0.800, 0.500' is missing behind the drafted tokens"
        )
        raise fault(busy[0].line, f"{message}; acceptance is unknown")
    rates = [numbers([interval.rates or ""]) for interval in with_rates]
    if len(set(map(len, rates))) != 1:
        raise BadInput.at("", "mixes windows of different lengths; convert the log of one setting")
    drafted_tokens = [interval.drafted for interval in with_rates]
    mean = np.average(rates, axis=0, weights=drafted_tokens).tolist()
    without = len(busy) - len(with_rates)
    left = f"; {without:,} more hold no rates by position and are left out" if without else ""
    source = (
        f"vLLM's log: {sum(drafted_tokens):,} tokens drafted in {len(with_rates):,} intervals"
        f"{left}; {BEHIND_THE_END}"
    )
    return measured_positions(mean, window, source)


def _vllm_matches(lines: Sequence[str]) -> list[tuple[int, re.Match[str]]]:
    """Return the lines about intervals, each with its number in the file."""
    matches = []
    for line, text in enumerate(lines, 1):
        match = PATTERNS["vllm_interval"].search(text)
        if match:
            matches.append((line, match))
    return matches


def _bare_rates(lines: Sequence[str]) -> Block:
    """Return ``per_position`` rates of a text that is nothing but them; raise :class:`BadInput` for
    any other text.
    """
    if any(PATTERNS["vllm_said"].search(text) for text in lines):
        raise unknown("lines 'SpecDecoding metrics' without 'Drafted: 300 tokens'")
    if _bare_numbers(lines):
        return rates_by_position(numbers(lines))
    raise BadInput.at(
        "", f"{NO_COUNTERS}lines 'SpecDecoding metrics: ...', or the rates by position alone"
    )


def _bare_numbers(lines: Sequence[str]) -> bool:
    """Return whether half of the words of a text or more are numbers, comments apart."""
    without_comments = " ".join(line.partition("#")[0] for line in lines)
    words = without_comments.replace(",", " ").split()
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
    rates = result.get("spec_decode_per_position_acceptance_rates")
    drafts = result.get("spec_decode_num_drafts")
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
    stated = _accept_lengths(lines)
    if not stated:
        raise BadInput.at(
            "",
            f"{NO_COUNTERS}'accept len: 2.47', 'accept_length': 2.47 or sglang:spec_accept_length",
        )
    busy = [(length, passes) for length, passes in stated if length > 0.0 and passes > 0.0]
    if not busy:
        raise unknown("every accept length in this file is 0, as of a server that is idle")
    stated_window = _only_window("sglang_steps", "\n".join(lines))
    window = window or stated_window
    if not window:
        raise BadInput.at("", "holds no window: expected --window, the draft steps served with")
    lengths, weights = zip(*busy, strict=True)
    values = "value" if len(busy) == 1 else "values"
    source = f"SGLang, {len(busy)} {values} of accept length"
    idle = len(stated) - len(busy)
    if idle:
        source += f", {idle:,} of an idle server left out"
    return measured_mean(float(np.average(lengths, weights=weights)), window, source)


def _accept_lengths(lines: Sequence[str]) -> list[tuple[float, float]]:
    """Return the accept lengths of a log with the passes of each; where it holds none, those of
    results and gauges, each of equal weight.
    """
    logged = []
    for text in lines:
        match = PATTERNS["sglang_log"].search(text)
        if match:
            logged.append((float(match[2]), float(match[1] or 1)))
    if logged:
        return logged
    lengths = PATTERNS["sglang_result"].findall("\n".join(lines))
    for line, text in enumerate(lines, 1):
        sample = sample_in(text)
        if sample is not None and sample.name == "sglang:spec_accept_length":
            lengths.append(finite(sample.value, line))
    return [(float(length), 1.0) for length in lengths]
