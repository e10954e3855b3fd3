"""What a pass works on (:class:`Rows`), and what it takes (:class:`Phase`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from simulator.numeric import ordered_sum


class Rows(NamedTuple):
    """What a pass works on; additive, so that ragged batches, trees and mixed passes are sums.

    ``tokens``: rows of every matrix product; ``logit_rows``: rows that reach the LM head;
    ``sequences``: attention calls; ``kv_tokens``: cached tokens that attention reads; ``attention_pairs``:
    query-key pairs; ``adapted``: those of ``tokens`` that pass a low-rank adapter instead of the MLP, whose products are
    left out (of rank 8 they are 1/512 of the MLP at h = 4096, SS-7). What depends on the context, ``kv_tokens`` and
    ``attention_pairs``, may be arrays: the rows of many steps that differ in nothing else, priced at once.
    """

    tokens: int = 0
    logit_rows: int = 0
    sequences: int = 0
    kv_tokens: Any = 0
    attention_pairs: Any = 0
    adapted: int = 0

    def __add__(self, other: Rows) -> Rows:  # type: ignore[override]  # a sum of rows, not one long tuple
        return Rows(
            self.tokens + other.tokens,
            self.logit_rows + other.logit_rows,
            self.sequences + other.sequences,
            self.kv_tokens + other.kv_tokens,
            self.attention_pairs + other.attention_pairs,
            self.adapted + other.adapted,
        )

    @staticmethod
    def decode(tokens: int, context: Any, sequences: int = 1) -> Rows:
        """``tokens`` new tokens for each of ``sequences``, all with logits, behind ``context`` cached ones in total."""
        rows = tokens * sequences
        pairs = tokens * context + sequences * (tokens * (tokens + 1) // 2)
        return tuple.__new__(Rows, (rows, rows, sequences, context + rows, pairs, 0))  # for every step, at a third of the time

    @staticmethod
    def prefill(tokens: int, context: int = 0, ends: bool = True) -> Rows:
        """A prompt of one sequence, or a chunk of it behind ``context`` cached tokens; only its end needs logits."""
        return Rows(tokens, int(ends), 1, context + tokens, tokens * context + tokens * (tokens + 1) // 2)


NO_ROWS = Rows()


class Phase(NamedTuple):
    """One stretch between two synchronisations: its wall time and who was busy for how long in it."""

    wall_s: Any
    busy: Mapping[str, Any]


def together(*phases: Phase, times: int = 1) -> Phase:
    """Phases one after another, the whole ``times`` over."""
    busy: dict[str, float] = {}
    for phase in phases:
        for lane, seconds in phase.busy.items():
            busy[lane] = busy.get(lane, 0.0) + seconds * times
    return Phase(ordered_sum(phase.wall_s for phase in phases) * times, busy)
