"""A law is a closed form evaluated: a renewal-reward over the kinds of step of a strategy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import add
from typing import NamedTuple

from simulator.core.acceptance.sources import Odds
from simulator.core.numeric import Numbers
from simulator.core.strategies.common.claim import Claim
from simulator.core.strategies.common.step import Kind

OddsOf = Callable[[int], Odds]
"""Odds of a verification by window length in draft tokens."""


@dataclass(frozen=True)
class Law:
    """A law holds the mean step, the tokens per step and request, and the share of each kind of
    step.

    They are numbers, or arrays over a grid (:mod:`simulator.studies.sweep.grid`).
    """

    step_s: Numbers
    """Seconds of the mean step."""
    verified_per_step: Numbers
    """Tokens that a step commits for one request, those behind the end of an output included."""
    claimed: Claim | Callable[[], Claim] = field(compare=False)
    """The claim, or what works it out: that of a pipeline prices thousands of stages."""
    source: str
    """Equation of the law, and where its acceptance comes from."""
    kinds: Mapping[Kind, float] = field(default_factory=dict)
    """Share of each kind of step; the shares add up to 1."""
    request_step_s: Numbers = None
    """Seconds of the mean step as a request meets it, where large batches count more; None: the
    mean step.
    """
    share_emitted: Numbers = 1.0
    """Share of the tokens that a step commits which are output; the others lie behind the end of
    one.
    """

    @cached_property
    def claim(self) -> Claim:
        """Return how the law relates to the process: exact, a bound, an idealisation."""
        if callable(self.claimed):
            return self.claimed()
        return self.claimed

    @property
    def relation(self) -> str:
        """Return the claim in words."""
        return str(self.claim)

    @property
    def tokens_per_step(self) -> Numbers:
        """Return the tokens of an output that a step brings one request: those behind its end are
        verified for nothing.
        """
        return self.verified_per_step * self.share_emitted

    @property
    def tpot_s(self) -> Numbers:
        """Return the seconds per output token of one request (X-1)."""
        return (
            self.step_s if self.request_step_s is None else self.request_step_s
        ) / self.tokens_per_step


class Part(NamedTuple):
    """A part of a law is one kind of step; share, durations and tokens may be arrays that fit each
    other.
    """

    kind: Kind
    share: Numbers
    """Share of this kind among all steps."""
    seconds: Callable[[NamedTuple], Numbers]
    """Seconds of a step from its durations."""
    durations: NamedTuple
    """Named durations of a step in seconds."""
    committed: Numbers
    """Tokens that a step commits over all its requests."""
    batch: int
    """Requests in the batch of a step."""


def means(parts: Sequence[Part]) -> tuple[Numbers, Numbers, Numbers]:
    """Return the mean step, the tokens per step and request, and the mean step as a request meets
    it; steps in seconds.

    A request's time per token is ``sum pi_k B_k T_k / sum pi_k n_k`` with shares pi_k, batches B_k,
    steps T_k, tokens n_k.
    """
    seconds = [part.seconds(part.durations) for part in parts]
    step_s = _mean([(part.share, part_s) for part, part_s in zip(parts, seconds, strict=True)])
    tokens = _mean([(part.share, part.committed) for part in parts])
    if len({part.batch for part in parts}) == 1:
        return step_s, tokens / parts[0].batch, step_s
    requests = _mean([(part.share, part.batch) for part in parts])
    request_seconds = _mean(
        [(part.share, part.batch * part_s) for part, part_s in zip(parts, seconds, strict=True)]
    )
    return step_s, tokens / requests, request_seconds / requests


def _mean(weighted: Sequence[tuple[Numbers, Numbers]]) -> Numbers:
    """Return the mean of values by their shares, which add up to 1; a single value is returned as
    it is.
    """
    if len(weighted) == 1:
        return weighted[0][1]
    return reduce(add, (share * value for share, value in weighted))
