"""Rows say what a pass works on; a phase says how long it takes, and who is busy in it."""

from __future__ import annotations

from operator import add
from typing import NamedTuple

from simulator.core.numeric import Numbers, ordered_sum
from simulator.core.plain import PlainMapping


class Rows(NamedTuple):
    """Rows count what a pass works on; they are additive, so that ragged batches, trees and mixed
    passes are sums.

    What depends on the context, ``kv_tokens`` and ``attention_pairs``, may be arrays: the rows of
    many steps that differ in nothing else are priced at once. How many experts a sum of rows reads
    is not known from its parts.
    """

    tokens: int = 0
    """Rows of every matrix product."""
    logit_rows: int = 0
    """Rows that reach the LM head."""
    sequences: int = 0
    """Calls of attention."""
    kv_tokens: Numbers = 0
    """Cached tokens that attention reads."""
    attention_pairs: Numbers = 0
    """Pairs of a query and a key."""
    adapted: int = 0
    """Those of ``tokens`` that pass a low-rank adapter instead of the MLP.

    The adapter's products are left out: of rank 8 they are 1/512 of the MLP at h = 4096 (SS-7).
    """
    prompt_tokens: int = 0
    """Those of ``tokens`` that belong to prompts, whose attention has kernels of its own; likewise
    the next three.
    """
    prompt_sequences: int = 0
    """Those of ``sequences``."""
    prompt_kv_tokens: int = 0
    """Those of ``kv_tokens``."""
    prompt_pairs: int = 0
    """Those of ``attention_pairs``."""
    experts_read: Numbers = 0.0
    """Routed experts of a layer that all rows together read, mean over its layers, where recorded;
    0: as the law has it.
    """

    # a sum of rows, not one long tuple
    def __add__(self, more: Rows) -> Rows:  # type: ignore[override]
        added = [*map(add, self, more)]
        if self.tokens and more.tokens:
            added[-1] = 0.0  # experts: a union is no sum
        return tuple.__new__(Rows, added)

    @property
    def shape(self) -> tuple[float, ...]:
        """Return all that does not depend on the context, with the experts that are read."""
        tokens, logit_rows, sequences, _, _, adapted, prompt_tokens, prompts, _, _, read = self
        return tokens, logit_rows, sequences, adapted, prompt_tokens, prompts, read

    def on_rank(self, share: float) -> Rows:
        """Return the rows whose attention one device computes, where devices share requests out;
        all with a share of 1.
        """
        if share == 1.0:
            return self
        return Rows._make(value * share for value in self)

    @staticmethod
    def decode(tokens: int, context: Numbers, sequences: int = 1) -> Rows:
        """Return the rows of ``tokens`` new tokens in each sequence, with logits, behind
        ``context`` cached ones in total.
        """
        rows = tokens * sequences
        pairs = tokens * context + sequences * (tokens * (tokens + 1) // 2)
        # a third of the time
        return tuple.__new__(
            Rows, (rows, rows, sequences, context + rows, pairs, 0, 0, 0, 0, 0, 0.0)
        )

    @staticmethod
    def prefill(tokens: int, context: int = 0, ends: bool = True) -> Rows:
        """Return the rows of a prompt, or of a chunk behind ``context`` cached ones; if it ``ends``
        here, with a logit.
        """
        cached = context + tokens
        pairs = tokens * context + tokens * (tokens + 1) // 2
        return Rows(tokens, int(ends), 1, cached, pairs, 0, tokens, 1, cached, pairs)


NO_ROWS = Rows()


class Phase(NamedTuple):
    """A phase is one stretch between two synchronisations."""

    wall_s: Numbers
    """How long it takes, in seconds."""
    busy: PlainMapping
    """Seconds for which each lane is busy in it, by the name of the lane."""


def together(*phases: Phase, times: int = 1) -> Phase:
    """Return the phase in which ``phases`` follow one another, all of them ``times`` over."""
    if len(phases) == 1 and times == 1:
        return phases[0]
    wall_s = ordered_sum([phase.wall_s for phase in phases])
    busy: dict[str, float] = {}
    for phase in phases:
        for lane, seconds in phase.busy.items():
            busy[lane] = busy.get(lane, 0.0) + seconds * times
    return Phase(wall_s * times, busy)
