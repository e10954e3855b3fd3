"""Drafters: how a window is written, as a number of internal draft steps and the rows of each."""

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
    """Smallest J whose steps emit ``gamma`` tokens; the last entry of ``emitted`` repeats (MSD-4).

    Mirror-SD prints ``J <= ceil(gamma / mean)``; by this definition it is ``J >=`` that (K10).
    """
    total = 0.0
    for step, tokens in enumerate(emitted, start=1):
        total += tokens
        if total >= gamma:
            return step
    return len(emitted) + ceil((gamma - total) / emitted[-1] - ROUNDING)


class AutoregressiveDrafter(Frozen):
    """One token per internal step."""

    name: Literal["autoregressive"] = "autoregressive"

    @property
    def tokens_per_branch(self) -> int:
        """Rows that one branch adds to an internal step."""
        return 1

    def steps(self, gamma: int) -> int:
        """Internal steps for a window of ``gamma``."""
        return gamma


class StreamingDrafter(Frozen):
    """Speculative streaming: a main stream and ``streams`` look-ahead streams in one pass.

    A pass verifies the draft's own previous proposal and extends it, so the window is the one that the
    plain draft would write, in fewer passes. ``emitted`` tokens per internal step (the last repeats) are
    taken as the number of streams unless stated: the paper prints none.
    """

    name: Literal["streaming"] = "streaming"
    streams: int = Field(default=2, gt=0)
    """Look-ahead streams beside the main one."""
    emitted: tuple[Annotated[float, Field(ge=1)], ...] = ()
    """Tokens of each internal step, the last repeats; by default as many as streams."""

    @property
    def tokens_per_branch(self) -> int:
        """Rows that one branch adds to an internal step: the main stream and its look-ahead."""
        return 1 + self.streams

    def steps(self, gamma: int) -> int:
        """Internal steps for a window of ``gamma``."""
        return internal_steps(self.emitted or (float(self.streams),), gamma)


Drafter = Annotated[AutoregressiveDrafter | StreamingDrafter, Field(discriminator="name")]


def branch_rows(drafter: AutoregressiveDrafter | StreamingDrafter, branches: int, sequences: int, kv_tokens: int) -> Rows:
    """Rows of one internal step that extends ``branches`` branches of ``sequences`` requests.

    Branches of a request share its cache: it is read once, and every row attends to all of it.
    """
    tokens = branches * drafter.tokens_per_branch
    context = kv_tokens // sequences if sequences else 0
    return Rows(tokens, tokens, sequences, kv_tokens, tokens * context)


class DraftPass(Frozen):
    """Passes with one set of weights, one after another, over ``rows`` of each request.

    ``head`` computes beside the target, on its device; without one it is the draft model of the scenario. ``logits``:
    the LM head runs. ``reused``: the weights are those of an entry before. A first pass over what was accepted is
    stated as long as the longest path: batching engines pad it to that.
    """

    rows: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)
    """Rows of a request in each pass of this entry."""
    head: DraftHead | None = None
    """Computes beside the target; without one it is the draft model."""
    logits: bool = True
    """Whether the LM head runs."""
    reused: bool = False
    """The weights are those of an entry before."""
    source: str = "not stated"
    """Where this comes from."""
    confidence: Confidence = "assumed"
    """How well it is known."""

    def batch(self, rows: int, requests: int, kv_tokens: int) -> Rows:
        """One pass over ``rows`` of each of ``requests``, whose caches hold ``kv_tokens`` together.

        Branches of a request share its cache: it is read once, and every row attends to all of it.
        """
        tokens = rows * requests
        return Rows(tokens, tokens if self.logits else 0, requests, kv_tokens, rows * kv_tokens)
