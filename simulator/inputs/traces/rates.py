"""Rates, shares and means of acceptance as a scenario states them, and the numbers of a text.

The first draft token of a window is position 1 here, ``position="0"`` in vLLM's counters. Lengths
count correction or bonus.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from simulator.core.acceptance.continuation import LONGEST, continued_rates
from simulator.core.acceptance.rescale import check_length
from simulator.core.faults import BadInput
from simulator.core.plain import PlainMapping
from simulator.inputs.traces.converters import fault

Block = PlainMapping
"""Content of the acceptance block of a scenario."""
MOST_DIGITS = 18
"""Most digits of a count in a log."""


def rates_by_position(survival: Sequence[float]) -> dict[str, list[float]]:
    """Return ``per_position`` rates of a scenario from the "per-position acceptance rate" of vLLM.

    vLLM divides accepted tokens at a position by all windows, whether they got there or not; a
    scenario wants the rate given that they did. The mean of accepted tokens is kept exactly at the
    logged window; at smaller ones if starting elsewhere changes nothing; beyond, the last rate
    repeats. Bursts are lost: windows are drawn independently of each other.
    """
    chances = [1.0, *survival]
    if not survival or not all(0.0 <= after <= before for before, after in pairwise(chances)):
        raise BadInput.at("", "expected rates from 0 to 1 that fall from position to position")
    return {
        "per_position": [after / before if before else 0.0 for before, after in pairwise(chances)]
    }


def rates_from_lengths(lengths: Sequence[float], window: int | None = None) -> Block:
    """Return ``per_position`` rates from mean accepted lengths, correction or bonus included, at
    windows 1, 2, 3, ...

    This is a golden curve: every further draft token adds the chance that it is reached and kept.
    Exact if the chance of a position is the same at every window, which i.i.d. text has and bursts
    break a little. Beyond the known windows the curve is continued up to ``window``
    (:mod:`simulator.core.acceptance.continuation`).
    """
    try:
        rates = {
            "per_position": continued_rates(lengths, max(min(window or 0, LONGEST), len(lengths)))
        }
    except ValueError as error:
        raise BadInput.at("", str(error)) from error
    return rates | (
        {"known_positions": len(lengths)} if len(rates["per_position"]) > len(lengths) else {}
    )


BEHIND_THE_END = "drafts kept behind the end of an output count"
"""Of a server that counts what a verification kept before it looks for the end of the output:
vLLM's scheduler takes the sampled tokens less one (``update_from_output`` in 0.32), llama.cpp's
server those of the verified batch."""


def measured_mean(length: float, window: int, source: str) -> Block:
    """Return a measured mean length, correction or bonus included, with its window; raises
    :class:`BadInput` for no such.
    """
    check_length(length, window)
    return {"tokens_per_step": length, "window": window, "source": source, "confidence": "measured"}


def measured_positions(survival: Sequence[float], window: int | None, source: str) -> Block:
    """Return measured rates from the shares of all drafts that keep each position, continued to a
    wider ``window``.
    """
    rates: Block
    if window and window > len(survival):
        rates = rates_from_lengths((1.0 + np.cumsum(survival)).tolist(), window)
        source += f"; {len(survival)} positions are known, those up to {window} continued"
    else:
        rates = rates_by_position(survival)
    return {**rates, "source": source, "confidence": "measured"}


def measured_share(accepted: float, drafted: float, window: int, source: str) -> Block:
    """Return the share accepted of what was drafted, as if every step drafted ``window`` tokens."""
    if accepted > drafted:
        raise BadInput.at(
            "",
            f"counts {accepted:,.0f} accepted of {drafted:,.0f} drafted tokens; expected no "
            "more than those",
        )
    share = {"accepted_share": accepted / drafted, "window": window}
    return {
        **share,
        "source": f"{source}, as if every step drafted {window}",
        "confidence": "measured",
    }


def count(line: int, digits: str) -> int:
    """Return a count of tokens in a line; raises :class:`BadInput` for one of too many digits."""
    if len(digits) > MOST_DIGITS:
        raise fault(line, f"expected a number of tokens, found '{digits[:40]}'")
    return int(digits)


def number(line: int, text: str) -> float:
    """Return the number that a text is; raises :class:`BadInput` with its line for any other
    text.
    """
    try:
        return float(text)
    except ValueError as error:
        raise fault(line, f"expected numbers, found '{text[:40]}'") from error


def numbers(lines: Sequence[str]) -> list[float]:
    """Return the numbers of a text, separated by commas or white space; ``#`` starts a comment."""
    words = (
        (line, word)
        for line, text in enumerate(lines, 1)
        for word in text.partition("#")[0].replace(",", " ").split()
    )
    return [number(line, word) for line, word in words]
