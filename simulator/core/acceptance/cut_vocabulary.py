"""A draft whose LM head is cut to the most frequent tokens proposes no others (FR-Spec, arXiv
2502.14856): where the target goes on with another token a window ends.

Where a text was recorded, its most frequent tokens that make up a share of it are the vocabulary,
and a window ends at the first token that is not among them. Where acceptance is stated, so is that
share, and every position holds its token independently of whether the draft would have found it:
fewer are kept than where rare tokens are hard to draft anyway. Nodes of a tree that rare tokens
would have had are not given to others.
"""

from dataclasses import dataclass, replace
from random import Random

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.by_context import FallingCursor
from simulator.core.acceptance.sources import Acceptance, Exit, Odds, Replay
from simulator.core.acceptance.trace import Bools, Trace
from simulator.core.quantities import Share

QUARTER = Share(
    value=0.95,
    source="FR-Spec (arXiv 2502.14856), section 1: three quarters of Llama 3's vocabulary make up "
    "less than 5 % of the tokens of SlimPajama",
    confidence="published",
)
"""Share of tokens that are among the most frequent quarter of a vocabulary."""
ENDLESS = 1 << 40
"""More covered tokens in a row than any run has."""
NO_TEXT = (
    "holds no text, whose tokens a cut vocabulary would hold; state rate or per_position instead"
)
"""What a recording lacks where its text was left out."""


def usual_share(part: float) -> float:
    """Return the share of tokens that are among the most frequent ``part`` of a vocabulary, where
    nothing is known of it.

    The odds of a token to be among them are taken to go with those of an entry of the vocabulary,
    and to be :data:`QUARTER` for a quarter: a sixteenth has 79 %, a half 98 %.
    """
    if part >= 1.0:
        return 1.0
    ratio = QUARTER.value / (1.0 - QUARTER.value) / (0.25 / 0.75)
    odds = ratio * part / (1.0 - part)
    return odds / (1.0 + odds)


def covered_tokens(trace: Trace, share: float) -> Bools:
    """Return whether each recorded token (positions,) is one of the most frequent ones that make up
    ``share`` of all of them.
    """
    counts = np.bincount(trace.token.astype(np.int64))
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    inside = np.zeros(len(counts), dtype=bool)
    inside[order[before < share * counts.sum() - 0.5]] = True
    return np.asarray(inside[trace.token], dtype=bool)


def cut_runs(trace: Trace, run: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """Return runs by start (positions,) that end before the first token that is not covered; what
    goes on behind the end of a request is not known, and stays.
    """
    inside = covered_tokens(trace, share).tolist()
    ends = set((trace.offsets[1:] - 1).tolist())
    ahead = np.zeros(len(inside), dtype=np.int64)
    for position in reversed(range(len(inside))):
        behind = ENDLESS if position in ends else int(ahead[position + 1])
        if inside[position]:
            ahead[position] = min(ENDLESS, behind + 1)
    return np.minimum(run, ahead)


def cut(verdicts: Acceptance, share: float) -> Acceptance:
    """Return verdicts on chains of a draft whose vocabulary holds ``share`` of the target's
    tokens.
    """
    if not isinstance(verdicts, Replay):
        return Covered(verdicts, share)
    trace = verdicts.trace
    if trace.run is None:
        return verdicts.keeping(verdicts.accepted & covered_tokens(trace, share))
    run = cut_runs(trace, trace.run.astype(np.int64), share)
    cut_replay = verdicts.keeping(verdicts.accepted)
    cut_replay.trace = replace(trace, run=run.astype(np.uint16))
    return cut_replay


@dataclass(frozen=True)
class Covered:
    """Covered verdicts are stated ones of which each position holds its token with a chance of
    ``share``.
    """

    verdicts: Acceptance
    share: float
    seed: int = 0

    def cursor(self, request: int, exit: Exit | None) -> FallingCursor:
        """Return a cursor with random numbers of its own."""
        random = Random(f"{self.seed}/covered/{request}")
        return FallingCursor(
            self.verdicts.cursor(request, exit), lambda context: self.share, 0, random
        )

    def odds(self, gamma: int, exit: Exit | None) -> Odds:
        """Return the exact odds of this source."""
        plain = self.verdicts.odds(gamma, exit)
        axes = (1,) * (plain.accepted.ndim - 1)
        kept = (self.share ** np.arange(gamma + 1)).reshape(-1, *axes)
        reached = kept * plain.accepted[::-1].cumsum(axis=0)[::-1]
        behind = np.concatenate((reached[1:], np.zeros((1, *reached.shape[1:]))))
        return replace(
            plain,
            accepted=reached - behind,
            off_exit=kept * plain.off_exit,
            off_path=kept[-1] * plain.off_path,
            source=f"{plain.source}, in a cut vocabulary",
        )
