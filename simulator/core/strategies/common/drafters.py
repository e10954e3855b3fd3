"""A drafter says how a window is written: in how many internal draft steps, and with how many
rows.
"""

from math import ceil
from typing import Annotated, Literal

from pydantic import Field

from simulator.core.cost.model import DraftHead
from simulator.core.cost.protocol import Cost, Purpose
from simulator.core.cost.rows import Phase, Rows, together
from simulator.core.numeric import Numbers
from simulator.core.quantities import Confidence, Frozen

ROUNDING = 1e-9
"""Ten steps of 1.9 tokens are 19, whatever is left of the last bit."""


def internal_steps(emitted: tuple[float, ...], gamma: int) -> int:
    """Return the smallest J whose steps emit ``gamma`` tokens; the last entry of ``emitted``
    repeats (MSD-4).

    Mirror-SD prints ``J <= ceil(gamma / mean)``; by this definition it is ``J >=`` that (K10).
    """
    total = 0.0
    for step, tokens in enumerate(emitted, start=1):
        total += tokens
        if total >= gamma:
            return step
    return len(emitted) + ceil((gamma - total) / emitted[-1] - ROUNDING)


class TokenDrafter(Frozen):
    """An internal step writes one token."""

    name: str

    @property
    def tokens_per_branch(self) -> int:
        """Return the rows that one branch adds to an internal step."""
        return 1

    def steps(self, gamma: int) -> int:
        """Return the internal steps for a window of ``gamma`` tokens."""
        return gamma


class AutoregressiveDrafter(TokenDrafter):
    """The draft writes one token per internal step."""

    name: Literal["autoregressive"] = "autoregressive"

    def step(
        self,
        cost: Cost,
        branches: int,
        sequences: int,
        kv_tokens: Numbers,
        purpose: Purpose = "window",
    ) -> Phase:
        """Return the phase of one internal step that extends ``branches`` branches of ``sequences``
        requests.
        """
        return cost.draft(branch_rows(self, branches, sequences, kv_tokens), purpose)


class HeadDrafter(TokenDrafter):
    """A head beside the target writes one token per internal step (EAGLE, MTP), and the rows that
    were kept in its first.
    """

    name: Literal["head"]
    head: DraftHead
    """What computes on the target's device."""

    def step(
        self,
        cost: Cost,
        branches: int,
        sequences: int,
        kv_tokens: Numbers,
        purpose: Purpose = "window",
    ) -> Phase:
        """Return the phase of one internal step; kept rows cost what one does, as reading the
        head's weights decides.
        """
        return cost.head(self.head, branch_rows(self, branches, sequences, kv_tokens))


class StreamingDrafter(Frozen):
    """Speculative streaming runs a main stream and ``streams`` look-ahead streams in one pass.

    A pass verifies the draft's own previous proposal and extends it, so the window is the one that
    the plain draft would write, in fewer passes. Streams begin behind layer N - N_s (Speculative
    Streaming, Eq. 4): below, a branch is one row, or the whole proposal where ``verifies`` says so.
    """

    name: Literal["streaming"] = "streaming"
    streams: int = Field(default=2, gt=0, le=1_000)
    """Number of look-ahead streams besides the main one."""
    stream_layers: int = Field(default=4, ge=1, le=10_000)
    """Layers at the top of the draft that carry streams (N_s); all of them where it has no more."""
    verifies: Literal["main", "proposal"] = "main"
    """Rows of a branch in every layer: the main stream (Mirror-SD sec. 3.2), or the proposal too
    (its source, sec. 2.2).
    """
    emitted: tuple[Annotated[float, Field(ge=1)], ...] = ()
    """Tokens of the internal steps, the last repeats; by default ``per_pass`` of so many streams,
    else as many as streams.
    """
    per_pass: tuple[Annotated[float, Field(ge=1)], ...] = ()
    """Tokens of an internal step with 1, 2, ... streams, the last repeats; by default as
    recorded.
    """

    @property
    def tokens_below(self) -> int:
        """Return the rows that one branch adds to the layers without streams."""
        if self.verifies == "main":
            return 1
        return 1 + self.streams

    @property
    def tokens_per_branch(self) -> int:
        """Return the rows that one branch adds to the layers with streams, where each row has its
        own (SS-1).
        """
        return self.tokens_below * (1 + self.streams)

    def steps(self, gamma: int) -> int:
        """Return the internal steps for a window of ``gamma`` tokens."""
        recorded = self.per_pass[: self.streams][-1:]
        return internal_steps(self.emitted or recorded or (float(self.streams),), gamma)

    def step(
        self,
        cost: Cost,
        branches: int,
        sequences: int,
        kv_tokens: Numbers,
        purpose: Purpose = "window",
    ) -> Phase:
        """Return the phase of one internal step: below the top layers rows are fewer, and none
        reaches the LM head there.
        """
        first = -self.stream_layers
        above = branch_rows(self, branches, sequences, kv_tokens)
        below = _rows(branches * self.tokens_below, sequences, kv_tokens)._replace(logit_rows=0)
        return together(
            cost.draft(below, purpose, 0.0, first), cost.draft(above, purpose, first, 1.0)
        )


Drafter = Annotated[
    AutoregressiveDrafter | StreamingDrafter | HeadDrafter, Field(discriminator="name")
]


def branch_rows(
    drafter: TokenDrafter | StreamingDrafter,
    branches: int,
    sequences: int,
    kv_tokens: Numbers,
) -> Rows:
    """Return the rows of one internal step that extends ``branches`` branches of ``sequences``
    requests.

    Branches of a request share its cache: it is read once, and every row attends to all of it. Of a
    streaming drafter these are the rows of the layers with streams.
    """
    return _rows(branches * drafter.tokens_per_branch, sequences, kv_tokens)


def _rows(tokens: int, sequences: int, kv_tokens: Numbers) -> Rows:
    context = kv_tokens // sequences if sequences else 0
    return Rows(tokens, tokens, sequences, kv_tokens, tokens * context)


class DraftPass(Frozen):
    """An entry is passes with one set of weights, in series, over ``rows`` of each request.

    ``head`` computes beside the target, on its device; without one it is the draft model of the
    scenario. ``logits``: the LM head runs. ``reused``: the weights are those of an entry before. A
    first pass over what was accepted is stated as long as the longest path: batching engines pad it
    to that.
    """

    rows: tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...] = Field(min_length=1)
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

    def phases(self, cost: Cost, requests: int, kv_tokens: int) -> list[Phase]:
        """Return its passes over the rows of ``requests``, whose caches hold ``kv_tokens``
        together; none without requests.

        Branches of a request share its cache: it is read once, and every row attends to all of it.
        """
        if not requests:
            return []
        of_rows: dict[int, Phase] = {}
        for each in dict.fromkeys(self.rows):
            tokens = each * requests
            rows = Rows(tokens, tokens * self.logits, requests, kv_tokens, each * kv_tokens)
            of_rows[each] = cost.head(self.head, rows) if self.head else cost.draft(rows)
        return [of_rows[each] for each in self.rows]
