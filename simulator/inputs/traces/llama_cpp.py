"""What llama.cpp writes about acceptance, and about the times of batches, becomes blocks of a
scenario.

A count that a log does not hold is unknown, never 0: such a log is refused in words that name what
is missing.
"""

from collections import Counter
from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import numpy as np

from simulator.core.faults import BadInput
from simulator.inputs.traces.converters import fault
from simulator.inputs.traces.engines import counts_acceptance, vllm_metrics
from simulator.inputs.traces.patterns import NO_COUNTERS, PATTERNS, unknown
from simulator.inputs.traces.rates import (
    BEHIND_THE_END,
    Block,
    count,
    measured_mean,
    measured_positions,
    measured_share,
    number,
    numbers,
)

SWITCH = "the server's --draft-max or --spec-draft-n-max"
ROUNDING_OF_WINDOW = 0.02
"""Draft tokens by which a window may seem wider, as its mean length was rounded."""
ROUNDING_OF_MEAN = 0.01
"""Tokens by which a mean length may be off, as it was rounded."""


class _Drafted(NamedTuple):
    """What llama.cpp counted of a request, or of all requests of a drafter."""

    accepted: int
    drafted: int
    length: float | None
    """Mean tokens of the steps that drafted, the target's own counted; None: not logged."""
    survival: Sequence[float]
    """Shares of these steps that keep each position; empty: not logged."""
    stated_drafts: int | None = None
    """Number of these steps; None: not logged."""

    @property
    def drafts(self) -> float | None:
        """Return the number of steps that drafted, as counted or as it follows from the means; None
        where it is unknown.
        """
        if self.accepted and self.survival and sum(self.survival) > 0.0:
            return self.accepted / sum(self.survival)
        if self.accepted and self.length is not None and self.length > 1.0:
            return self.accepted / (self.length - 1.0)
        if self.stated_drafts is None and self.survival:
            return self.drafted / len(self.survival)
        return self.stated_drafts


def llama_cpp(lines: Sequence[str], window: int | None, _: str | None = None) -> Block:
    """Return what a log of ``llama-server`` or ``llama-speculative`` says of acceptance.

    Rates by position, where the log has them, say the window, too. Else steps are counted as tokens
    predicted less drafts accepted, since drafting may stop early or not start at all: every step
    commits one token of the target's own. Where a request lacks its predicted tokens there is the
    mean length of the steps that drafted, or the share accepted of those drafted.
    """
    requests = _requests(lines)
    statistics = _statistics(lines)
    predicted = []
    for line, text in enumerate(lines, 1):
        for digits in PATTERNS["llama_cpp_predicted"].findall(text):
            predicted.append(count(line, digits))
    if requests and all(request.survival for request in requests):
        return _llama_positions(requests, predicted, window)
    if statistics and all(drafter.survival for drafter in statistics):
        return _llama_positions(statistics, [], window)
    if requests:
        steps = 0
        if len(predicted) >= len(requests):
            steps = sum(predicted) - sum(request.accepted for request in requests)
        return _llama_mean(requests, steps, window)
    if statistics:
        return _llama_mean(statistics, 0, window)
    if any(map(counts_acceptance, lines)):
        return vllm_metrics(lines, window)
    return _llama_program(lines, window)


def _requests(lines: Sequence[str]) -> list[_Drafted]:
    """Return what was counted of each request that drafted; raises :class:`BadInput` for a share
    without its counts.
    """
    requests = []
    for line, text in enumerate(lines, 1):
        if not PATTERNS["llama_cpp_said"].search(text):
            continue
        match = PATTERNS["llama_cpp_request"].search(text)
        if match is None:
            message = (
                "expected counts behind the share, as in 'draft acceptance = 0.57 (171 accepted "
                "/ 297 generated)'"
            )
            raise fault(line, f"{message}; acceptance is unknown")
        accepted = count(line, match[1])
        drafted = count(line, match[2])
        if accepted > drafted:
            raise fault(
                line,
                f"expected at most {drafted:,} accepted tokens, as many as were generated, got "
                f"{accepted:,}",
            )
        if match[3] is None:
            length = None
        else:
            length = number(line, match[3])
        if drafted:
            requests.append(_Drafted(accepted, drafted, length, numbers([match[4] or ""])))
    return requests


def _statistics(lines: Sequence[str]) -> list[_Drafted]:
    """Return what was counted of each drafter in its last line, which is about all requests up to
    it.
    """
    drafters: dict[str, _Drafted] = {}
    for line, text in enumerate(lines, 1):
        match = PATTERNS["llama_cpp_statistics"].search(text)
        if match is None:
            continue
        drafts = count(line, match["drafts"])
        drafted = count(line, match["drafted"])
        accepted = count(line, match["accepted"])
        if match["length"] is None:
            length = None
        else:
            length = number(line, match["length"])
        rates = numbers([match["rates"] or ""])
        if match["verified"] is not None and count(line, match["verified"]) == 0:
            drafted = 0
        drafters[match["drafter"]] = _Drafted(accepted, drafted, length, rates, drafts)
    return [drafter for drafter in drafters.values() if drafter.drafted and drafter.stated_drafts]


def _llama_positions(
    parts: Sequence[_Drafted], predicted: Sequence[int], window: int | None
) -> Block:
    """Return rates by position, over all steps where the tokens of each request were ``predicted``,
    one of them by its prompt.

    Drafters whose windows differ take turns, so that a position of the longer is not drafted by the
    shorter.
    """
    longest = max(len(part.survival) for part in parts)
    drafts = [part.drafts or 0.0 for part in parts]
    if not sum(drafts) > 0.0:
        message = "expected rates from 0 to 1 that fall from position to position"
        raise BadInput.at("", message)
    padded = []
    for part in parts:
        not_drafted = [0.0] * (longest - len(part.survival))
        padded.append([*part.survival, *not_drafted])
    survival = np.average(padded, axis=0, weights=drafts)
    accepted = sum(part.accepted for part in parts)
    drafted = sum(part.drafted for part in parts)
    source = f"llama.cpp: {drafted:,} drafted, {accepted:,} accepted ({accepted / drafted:.3f}), "
    source += f"mean length {1.0 + float(survival.sum()):.2f}"
    steps = sum(predicted) - len(predicted) - accepted
    drafting = sum(map(round, drafts))
    if len(predicted) < len(parts):
        source += "; steps that drafted nothing are not counted"
    elif steps > drafting:
        survival = survival * (drafting / steps)
        source += f"; {drafting:,} of {steps:,} steps drafted, which the first rate counts"
    return measured_positions(survival.tolist(), window, f"{source}; {BEHIND_THE_END}")


def _llama_mean(parts: Sequence[_Drafted], steps: int, window: int | None) -> Block:
    """Return a mean, or the share accepted, of requests or drafters that are not counted by
    position.

    ``steps`` are all that were taken, with drafts or without; 0 where that is unknown.
    """
    accepted = sum(part.accepted for part in parts)
    drafted = sum(part.drafted for part in parts)
    window = _window_of(parts, window)
    counts = f"{drafted:,} drafted, {accepted:,} accepted"
    if accepted and steps > 0:
        tokens = steps + accepted
        source = f"llama.cpp: {tokens:,} predicted, {counts}, {steps:,} steps; {BEHIND_THE_END}"
        return measured_mean(tokens / steps, window, source)
    drafts = _steps_that_drafted(parts)
    if drafts and 0 < accepted < window * drafts:
        source = (
            f"llama.cpp: {counts}; steps that drafted nothing are not counted, {BEHIND_THE_END}"
        )
        return measured_mean(1.0 + accepted / drafts, window, source)
    return measured_share(accepted, drafted, window, f"llama.cpp: {counts}; {BEHIND_THE_END}")


def _steps_that_drafted(parts: Sequence[_Drafted]) -> float | None:
    """Return the number of steps that drafted, over all requests or drafters; None where it is
    unknown of any.
    """
    known = [part.drafts for part in parts if part.drafts is not None]
    if len(known) < len(parts):
        return None
    return sum(known)


def _window_of(parts: Sequence[_Drafted], window: int | None) -> int:
    """Return the window; raise :class:`BadInput` where none is stated, or one that is narrower than
    what a draft keeps.
    """
    if window is None:
        drafts = _steps_that_drafted(parts)
        if drafts is None:
            least = ""
        else:
            drafted = sum(part.drafted for part in parts)
            least = f", at least {ceil(drafted / drafts - ROUNDING_OF_WINDOW)}"
        raise BadInput.at(
            "", f"holds no window: expected --window, the draft tokens of a step{least} ({SWITCH})"
        )
    kept = max((part.accepted / part.drafts for part in parts if part.drafts), default=0.0)
    if kept > window + ROUNDING_OF_MEAN:
        message = (
            f"a draft keeps {kept:.2f} tokens in the mean: expected --window, the draft tokens "
            "of a step,"
        )
        least_window = ceil(kept - ROUNDING_OF_MEAN)
        raise BadInput.at("", f"{message} at least {least_window}, got {window} ({SWITCH})")
    return window


def _llama_program(lines: Sequence[str], window: int | None) -> Block:
    """Return a mean, or the share accepted, of ``llama-speculative`` or of the timings in a
    server's answer.
    """
    totals = Counter[str]()
    for line, text in enumerate(lines, 1):
        for name in ("n_predict", "n_drafted", "n_accept"):
            for digits in PATTERNS[f"llama_cpp_{name}"].findall(text):
                totals[name] += count(line, digits)
    lacking = [name for name in ("n_drafted", "n_accept") if name not in totals]
    if len(lacking) == 2:
        wordings = "'draft acceptance = 0.57 (171 accepted / 297 generated)'"
        raise BadInput.at("", f"{NO_COUNTERS}{wordings}, or n_drafted and n_accept")
    if lacking:
        raise unknown(f"the count {lacking[0]} is missing")
    if not totals["n_drafted"]:
        raise unknown("n_drafted is 0, nothing was drafted")
    counted = _Drafted(totals["n_accept"], totals["n_drafted"], None, ())
    if counted.accepted > counted.drafted:
        raise BadInput.at(
            "",
            f"expected at most n_drafted = {counted.drafted:,} accepted tokens, got "
            f"{counted.accepted:,}",
        )
    return _llama_mean([counted], totals["n_predict"] - counted.accepted, window)


def llama_batched_bench(lines: Sequence[str], *_: object) -> Block:
    """Return ``durations`` from the table of ``llama-batched-bench``: ms of a pass of the target
    and of a prompt, by its rows.

    T_TG is that of TG passes over a row of each of B sequences, T_PP that of their prompts. No
    verification is measured: a row of a window is priced as one of a further sequence. Of several
    lengths of prompt the longest is taken that several batches have: the benchmark leaves out those
    that the cache cannot hold.
    """
    by_prompt: dict[float, dict[float, Sequence[float]]] = {}
    for line in lines:
        if not PATTERNS["batched_bench"].match(line):
            continue
        prompt, tokens, batch, *times = numbers([line.replace("|", " ")])
        has_both_times = prompt and tokens  # not a row of prompts alone, or of tokens alone
        if has_both_times:
            by_prompt.setdefault(prompt, {})[batch] = (tokens, *times)
    several_batches = [prompt for prompt, rows in by_prompt.items() if len(rows) > 1]
    longest = max(several_batches, default=None)
    if longest is None:
        message = (
            "expected the table of llama-batched-bench, | PP | TG | B | ..., with two batches B "
            "or more of one prompt PP"
        )
        raise BadInput.at("", f"{message}, and of tokens TG")
    chosen = by_prompt[longest]
    target = [[batch, row[4] / row[0] * 1e3] for batch, row in sorted(chosen.items())]
    prefill = [[batch * longest, row[2] * 1e3] for batch, row in sorted(chosen.items())]
    return {
        "target_ms": {"columns": ["rows", "ms"], "points": target},
        "prefill_ms": {"columns": ["rows", "ms"], "points": prefill},
    }
