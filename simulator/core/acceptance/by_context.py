"""Acceptance falls while a context grows beyond what a draft was trained for: every source of
verdicts can be made to.

Accepted drafts a step behind c tokens of context are A(c) = A(0) exp(-(c / s)^2), half of a bell:
level where the draft was trained, then ever steeper, then at an end. A fall that the noise of the
lengths explains as well is none. The form was chosen on one head, EAGLE-3's at 2k to 8k tokens
(vllm-project/speculators#684); ``docs/background/acceptance.md`` has the others. The range spans
one that falls slower (the root of c) and one that falls faster (c^2.5): of 21 lengths behind
further contexts, of two published heads and three drafters of the shipped family
(``scenarios/pairs/six_flavours_by_context.csv``), it holds 18.

The mean falls because every position does: each draft token is kept with the same further chance,
as that family's are.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp, log
from random import Random
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from simulator.core.acceptance.cursors import (
    Chain,
    Cursor,
    Forking,
    Matching,
    Verdict,
    Wrapping,
    forked,
    forks,
    verdict,
)
from simulator.core.acceptance.sources import Acceptance, Exit, Odds
from simulator.core.quantities import Confidence, Frozen

POWERS = 2.0, 0.5, 2.5
"""Power of the context by which accepted drafts fall, and two that bound the range."""
NOISE = 0.03
"""Standard deviation of a length over ten prompts of 128 tokens: of the head of that source which
does not fall.
"""
NEEDED = 4.0
"""Sum of squared misses, in units of the noise, that a fall has to save before it is taken (two
standard deviations).
"""
HALF = 1.2816 * NOISE
"""Half of the 80 % interval of a length that is known."""
RATES = np.concatenate(([0.0], np.geomspace(1e-3, 30.0, 4_001)))
"""Falls that are tried, in powers of e at the longest measured context."""
KEPT = np.linspace(0.0, 1.0, 2_049)
"""Further chances of a position that are tried."""
Fall = Callable[[float], float]
"""Accepted drafts a step, by tokens of context."""


class ByContext(Frozen):
    """Lengths were measured behind several contexts; what acceptance states is that of the
    shortest.
    """

    tokens_per_step: dict[
        Annotated[int, Field(ge=1, le=1_000_000_000)], Annotated[float, Field(ge=1.0)]
    ] = Field(min_length=2)
    """Mean tokens per step, correction or bonus included, by tokens of context."""
    window: int | None = Field(default=None, ge=1, le=1_000)
    """Window, in draft tokens, with which they were measured; by default the strategy's."""
    source: str = "not stated"
    """Where they come from."""
    confidence: Confidence = "assumed"
    """How well they are known."""
    fall: Literal["likely", "lowest"] = "likely"
    """The likeliest curve, or the lower end of its range."""

    @property
    def ends(self) -> tuple[int, int]:
        """Return the shortest and the longest measured context, in tokens."""
        return min(self.tokens_per_step), max(self.tokens_per_step)

    def fitted(self, power: float, needed: float) -> Fall:
        """Return the curve of a power that is nearest to the lengths; a level one where a fall
        saves less than ``needed``.

        Behind less than the shortest measured context it is as there.
        """
        (first, last), accepted = self.ends, np.array(list(self.tokens_per_step.values())) - 1.0
        curves = np.exp(-np.outer(RATES, (np.array(list(self.tokens_per_step)) / last) ** power))
        amounts = curves @ accepted / (curves**2).sum(axis=1)
        misses = (((amounts[:, None] * curves - accepted) / NOISE) ** 2).sum(axis=1)
        if misses[0] - misses.min() > needed:
            best = int(misses.argmin())
        else:
            best = 0
        amount = float(amounts[best])
        rate = float(RATES[best])
        return lambda context: amount * exp(-rate * (max(context, first) / last) ** power)

    def accepted(self, context: float) -> float:
        """Return the accepted drafts a step behind ``context`` tokens."""
        if self.fall == "likely":
            return self._curves[0](context)
        return min(curve(context) for curve in self._curves)

    def between(self, context: int) -> tuple[float, float]:
        """Return the 80 % interval of the tokens a step behind ``context`` tokens."""
        accepted = [curve(context) for curve in self._curves]
        return max(1.0, 1.0 + min(accepted) - HALF), 1.0 + max(accepted) + HALF

    @cached_property
    def _curves(self) -> Sequence[Fall]:
        """Return the likeliest curve, and those that bound its range, whether or not a fall is
        seen.
        """
        return [self.fitted(POWERS[0], NEEDED), *(self.fitted(power, 0.0) for power in POWERS[1:])]


class FallingCursor(Wrapping, Forking):
    """A falling cursor follows one request; tokens that the source keeps are lost with the chance
    of its context.
    """

    def __init__(
        self, cursor: Cursor, kept: Callable[[int], float], context: int, random: Random
    ) -> None:
        self.cursor = cursor
        self.kept = kept
        self.context = context
        self.random = random.random
        self.drawn = list[float]()
        """The draws of every window so far; forks share them."""
        self.windows = 0
        self.looked_up = cursor if isinstance(cursor, Matching) else None

    @property
    def matched(self) -> bool:
        """Return whether look-up has something to propose, as the source's cursor knows it."""
        return self.looked_up is None or self.looked_up.matched

    @property
    def can_fork(self) -> bool:
        """Return whether the source's cursor does."""
        return forks(self.cursor)

    def fork(self) -> Self:
        """Return a cursor behind as many windows."""
        fork = copy(self)
        fork.cursor = cursor = forked(self.cursor)
        fork.looked_up = cursor if isinstance(cursor, Matching) else None
        return fork

    def pass_by(self, tokens: int) -> None:
        """Move behind ``tokens`` that came without a verdict of this source."""
        self.context += tokens

    def judge(self, proposal: Chain) -> Verdict:
        """Verify a proposal behind so much context, move on, and return the verdict; one draw a
        window whatever its length.
        """
        if self.windows == len(self.drawn):
            self.drawn.append(self.random())
        luck = 1.0 - self.drawn[self.windows]
        self.windows += 1
        kept = self.kept(self.context)
        if luck <= kept**proposal.tokens:
            judged = self.cursor.judge(proposal)
        else:
            judged = self.cursor.judge(Chain(int(log(luck) / log(kept)) if kept else 0))
            judged = verdict(judged.accepted, judged.committed, judged.off_exit, False)
        self.context += judged.committed
        return judged


@dataclass(frozen=True)
class Falling:
    """Falling acceptance is that of a source, less what contexts take.

    ``prompts`` gives the prompt tokens of a request by its number; a law takes the mean over the
    contexts that are ``met``, each with the tokens that are written there. ``window`` is that of
    the measured lengths.
    """

    verdicts: Acceptance
    stated: ByContext
    window: int
    prompts: Callable[[int], int]
    met: Sequence[tuple[int, int]]
    seed: int
    chances: dict[int, float] = field(default_factory=dict)
    """Those that :meth:`kept` has worked out, by context."""

    @cached_property
    def _means(self) -> NDArray[np.float64]:
        """Return the mean accepted drafts with each of :data:`KEPT`, as a share of those of the
        source.
        """
        survival = self.verdicts.odds(self.window, None).accepted[::-1].cumsum()[::-1][1:]
        means = KEPT[:, None] ** np.arange(1, self.window + 1) @ survival
        return np.asarray(means / max(float(means[-1]), 1e-300), dtype=np.float64)

    def kept(self, context: int) -> float:
        """Return the chance with which a position keeps, behind ``context`` tokens, a token that
        the source keeps.
        """
        if context not in self.chances:
            share = self.stated.accepted(context) / max(self.stated.accepted(0), 1e-300)
            if share >= 1.0:
                self.chances[context] = 1.0
            else:
                self.chances[context] = float(np.interp(share, self._means, KEPT))
        return self.chances[context]

    def cursor(self, request: int, exit: Exit | None) -> FallingCursor:
        """Return a cursor over the source that knows the request's context."""
        random = Random(f"{self.seed}/context/{request}")
        return FallingCursor(
            self.verdicts.cursor(request, exit), self.kept, self.prompts(request), random
        )

    def odds(self, gamma: int, exit: Exit | None) -> Odds:
        """Return the odds of the source, mean over the contexts that steps meet; a token lost to
        its context is on the exit.
        """
        plain = self.verdicts.odds(gamma, exit)
        kept = np.array([self.kept(context) for context, _ in self.met])[:, None] ** np.arange(
            gamma + 1
        )
        reached = kept * plain.accepted[::-1].cumsum()[::-1]
        steps = np.array([tokens for _, tokens in self.met]) / reached.sum(axis=1)
        reached = (steps / steps.sum()) @ reached
        kept = (steps / steps.sum()) @ kept
        changed = {"off_exit": kept * plain.off_exit, "off_path": kept[-1] * plain.off_path}
        source = f"{plain.source}, falling with the context"
        accepted = reached - np.append(reached[1:], 0.0)
        return replace(plain, accepted=accepted, source=source, independent=False, **changed)
