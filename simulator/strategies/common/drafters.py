"""A drafter says how a window is written: in how many internal draft steps, and with how many rows."""

from __future__ import annotations

from math import ceil
from typing import Annotated, Literal

from pydantic import Field

from simulator.cost.model import DraftHead
from simulator.cost.rows import Rows
from simulator.files.schema import Confidence, Frozen

ROUNDING = 1e-9
"""Ten steps of 1.9 tokens are 19, whatever is left of the last bit."""


def internal_steps(emitted: tuple[float, ...], gamma: int) -> int:
    """Return the smallest J whose steps emit ``gamma`` tokens; the last entry of ``emitted`` repeats (MSD-4).

    Mirror-SD prints ``J <= ceil(gamma / mean)``; by this definition it is ``J >=`` that (K10).
    """
    total = 0.0
    for step, tokens in enumerate(emitted, start=1):
        total += tokens
        if total >= gamma:
            return step
    return len(emitted) + ceil((gamma - total) / emitted[-1] - ROUNDING)


class AutoregressiveDrafter(Frozen):
    """The draft writes one token per internal step."""

    name: Literal["autoregressive"] = "autoregressive"

    @property
    def tokens_per_branch(self) -> int:
        """Return the rows that one branch adds to an internal step."""
        return 1

    def steps(self, gamma: int) -> int:
        """Return the internal steps for a window of ``gamma`` tokens."""
        return gamma


class StreamingDrafter(Frozen):
    """Speculative streaming runs a main stream and ``streams`` look-ahead streams in one pass.

    A pass verifies the draft's own previous proposal and extends it, so the window is the one that the
    plain draft would write, in fewer passes. ``emitted`` tokens per internal step (the last repeats) are
    taken as the number of streams unless stated: the paper prints none.
    """

    name: Literal["streaming"] = "streaming"
    streams: int = Field(default=2, gt=0)
    """Number of look-ahead streams besides the main one."""
    emitted: tuple[Annotated[float, Field(ge=1)], ...] = ()
    """Tokens of the internal steps, the last repeats; by default as many as streams."""

    @property
    def tokens_per_branch(self) -> int:
        """Return the rows that one branch adds to an internal step: the main stream and its look-ahead."""
        return 1 + self.streams

    def steps(self, gamma: int) -> int:
        """Return the internal steps for a window of ``gamma`` tokens."""
        return internal_steps(self.emitted or (float(self.streams),), gamma)


Drafter = Annotated[AutoregressiveDrafter | StreamingDrafter, Field(discriminator="name")]


def branch_rows(drafter: AutoregressiveDrafter | StreamingDrafter, branches: int, sequences: int, kv_tokens: int) -> Rows:
    """Return the rows of one internal step that extends ``branches`` branches of ``sequences`` requests.

    Branches of a request share its cache: it is read once, and every row attends to all of it.
    """
    tokens = branches * drafter.tokens_per_branch
    context = kv_tokens // sequences if sequences else 0
    return Rows(tokens, tokens, sequences, kv_tokens, tokens * context)


class DraftPass(Frozen):
    """An entry is passes with one set of weights, in series, over ``rows`` of each request.

    ``head`` computes beside the target, on its device; without one it is the draft model of the scenario. ``logits``:
    the LM head runs. ``reused``: the weights are those of an entry before. A first pass over what was accepted is
    stated as long as the longest path: batching engines pad it to that.
    """

    rows: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)
    """Rows of a request in the passes of this entry."""
    head: DraftHead | None = None
    """Head that computes on the target's device; without it the pass is one of the draft model."""
    logits: bool = True
    """Whether the LM head runs."""
    reused: bool = False
    """Whether the weights are those of an earlier entry."""
    source: str = "not stated"
    """Paper or program that this comes from."""
    confidence: Confidence = "assumed"
    """Confidence in the source."""

    def batch(self, rows: int, requests: int, kv_tokens: int) -> Rows:
        """Return one pass over ``rows`` of each of ``requests``, whose caches hold ``kv_tokens`` together.

        Branches of a request share its cache: it is read once, and every row attends to all of it.
        """
        tokens = rows * requests
        return Rows(tokens, tokens if self.logits else 0, requests, kv_tokens, rows * kv_tokens)
