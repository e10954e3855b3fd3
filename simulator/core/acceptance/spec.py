"""A scenario states its acceptance in these fields, and they make the source of verdicts."""

from collections.abc import Callable
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from simulator.core.acceptance.by_context import ByContext
from simulator.core.acceptance.continuation import (
    LONGEST,
    ContinuedLength,
    continued_range,
    continued_rates,
    even,
)
from simulator.core.acceptance.lossy.rules import Rule, relaxed
from simulator.core.acceptance.sources import BEST_OF, Acceptance, Cycle, Rates, Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.plain import PlainData, PlainMapping
from simulator.core.quantities import Confidence, Frozen

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Means = (
    Annotated[float, Field(gt=0)]
    | Annotated[dict[str, Annotated[float, Field(gt=0)]], Field(min_length=1)]
)
"""Tokens per step, or those of each kind of text."""


def each(means: Means, change: Callable[[float], float]) -> Means:
    """Return tokens per step that are changed, those of each kind of text if there are several."""
    if isinstance(means, dict):
        return {name: change(mean) for name, mean in means.items()}
    return change(means)


class CycleSpec(Frozen):
    """A cycle repeats verdicts: accepted tokens, and whether the next token was off the exit."""

    accepted: tuple[Annotated[int, Field(ge=0, le=1_000)], ...] = Field(min_length=1)
    """Draft tokens kept of each window, in turn."""
    off_exit: tuple[bool, ...] = Field(default=(False,), min_length=1)
    """Whether the token behind the kept ones is outside the exit's candidates, in turn."""


class Rescale(Frozen):
    """A recording is rescaled to another mean; its bursts stay
    (:mod:`simulator.core.acceptance.rescale`).

    ``window`` is the window at which the mean is reached, by default that of the strategy.
    ``stretch`` makes a chain's bursts longer, as they are in text that repeats itself.
    """

    tokens_per_step: (
        Annotated[float, Field(gt=1)]
        | Annotated[dict[str, Annotated[float, Field(gt=1)]], Field(min_length=1)]
    )
    """Mean tokens per step to reach, correction or bonus included; or one for each kind of text
    that requests replay.
    """
    window: int | None = Field(default=None, ge=1, le=1_000)
    """Window, in draft tokens, at which the mean is reached; by default the strategy's."""
    adaptive: PlainData | None = None
    """How windows followed each request, up to ``window``, where the mean was measured, as
    ``adaptive`` of a strategy says it; by default as the strategy's do where no window is
    stated."""
    stretch: float = Field(default=0.0, ge=0.0, le=1.0)
    """How much longer the bursts of a chain become, from 0 to 1; 0 leaves them as recorded."""
    source: str = "not stated"
    """Where the mean comes from."""
    confidence: Confidence = "assumed"
    """How well the mean is known."""

    @property
    def words(self) -> str:
        """Return the mean in words, or that of each kind of text."""
        means = self.tokens_per_step
        if isinstance(means, dict):
            return ", ".join(f"{name} {of:g}" for name, of in means.items())
        return f"{means:g}"


SOURCES = (
    "trace",
    "tokens_per_step",
    "accepted_share",
    "rate",
    "per_position",
    "lengths",
    "always",
    "cycle",
)
"""Fields of which acceptance states one."""


def replaces_source(stated: PlainMapping, before: PlainMapping) -> bool:
    """Return whether what is stated over acceptance has another source, and leaves the one before
    in place, so that both cannot be meant.
    """
    new = [name for name in SOURCES if stated.get(name) is not None]
    left = [name for name in SOURCES if before.get(name) is not None and name not in stated]
    return bool(new) and bool(left)


class AcceptanceSpec(Frozen):
    """Acceptance comes from exactly one of: a recorded trace, a mean, a rate, rates by position,
    lengths, a constant, a cycle.

    A mean that was measured elsewhere is lent the bursts of the nearest recording, re-scaled to it
    once, at ``window``, or, by a strategy whose reading cannot be re-scaled, the i.i.d. rate.
    Without ``stand_in`` the vocabularies must be equal.
    """

    trace: str | None = None
    """Name of a recording to replay."""
    stand_in: bool = False
    """Whether the recording is of other models than the scenario's and only lends its shape."""
    rescale: Rescale | None = None
    """Another mean to which the recording is moved."""
    flavours: tuple[str, ...] = ()
    """Kinds of text of the recording that are replayed; by default all, or those that have means of
    their own.
    """
    drafter: str = "draft"
    """Which of the recording's drafters is replayed; ``best_of`` for the best of those named there
    at every position.
    """
    best_of: tuple[str, ...] = ()
    """Drafters of the recording of which ``drafter: best_of`` takes the best."""
    tokens_per_step: Means | None = None
    """Mean tokens per step measured elsewhere, or one for each kind of text; ``bonus`` says whether
    a bonus is counted.
    """
    accepted_share: Share | None = None
    """Accepted over drafted tokens of a measurement elsewhere, at ``window``."""
    bonus: bool | None = None
    """Whether ``tokens_per_step`` counts the correction or bonus of each step; by default it
    does.
    """
    window: int | None = Field(default=None, ge=1, le=1_000)
    """Draft tokens in a row, or levels of a tree, with which the mean was measured, or for which
    ``tokens_per_step_between`` is stated; by default the strategy's."""
    adaptive: PlainData | None = None
    """How windows followed each request, up to ``window``, where ``tokens_per_step`` was measured,
    as a strategy's ``adaptive`` says it; by default as the strategy's do where no window is
    stated."""
    method: str | None = None
    """Method for which the mean was measured; a chain borrows the bursts of the drafter that its
    file calls nearest.
    """
    temperature: float | None = Field(default=None, ge=0.0)
    """Temperature at which the mean was measured, by default 0; the recording nearest to it is
    taken.
    """
    rate: Share | None = None
    """Chance that a draft token is kept, the same at every position."""
    per_position: tuple[Share, ...] | None = Field(default=None, min_length=1)
    """Chance that a draft token is kept, by position of a window; the last repeats."""
    known_positions: int | None = Field(default=None, ge=1, le=1_000)
    """Positions of ``per_position`` that were measured, where those behind them were continued; by
    default all.
    """
    lengths: tuple[Annotated[float, Field(ge=1.0)], ...] | None = Field(
        default=None, min_length=1, max_length=LONGEST
    )
    """Mean tokens per step, correction or bonus included, at windows of 1, 2, 3, ... draft tokens;
    the curve is continued.
    """
    overlap: Share = 1.0
    """Chance that the next token is among the early exit's candidates; at least the rate."""
    always: int | None = Field(default=None, ge=0, le=1_000)
    """Number of draft tokens that are kept of every window."""
    cycle: CycleSpec | None = None
    """Verdicts that repeat."""
    tokens_per_step_between: (
        tuple[Annotated[float, Field(ge=1.0)], Annotated[float, Field(ge=1.0)]] | None
    ) = None
    """Between what means acceptance may lie here (90 %), at ``window``; part of the interval of a
    speed-up.
    """
    rule: Rule | None = None
    """Rule by which a verification keeps more than the target alone would have written (lossy); by
    default none: outputs are the target's. Acceptance that is stated is taken as that under the
    rule, unless ``passes`` says what the rule adds to it.
    """
    by_context: ByContext | None = None
    """How lengths fall while a context grows; what is stated above is that of the shortest."""
    source: str | None = None
    """Where stated rates come from."""
    confidence: Confidence | None = None
    """How well stated rates are known."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Check the fields against each other; the first contradiction is raised."""
        self._check_source()
        self._check_origin_of_mean()
        self._check_known_positions()
        self._check_mean()
        self._check_trace_fields()
        self._check_interval()
        self._check_lengths()
        self._check_overlap()
        self._check_rule()
        return self

    def _check_source(self) -> None:
        """Raise :class:`ValueError` unless exactly one source is stated."""
        stated = self._stated_sources
        if len(stated) != 1:
            raise ValueError(
                f"expected exactly one of {', '.join(SOURCES)}; found "
                f"{' and '.join(stated) or 'none'}"
            )

    def _check_origin_of_mean(self) -> None:
        """Raise :class:`ValueError` for fields that describe a measured mean where none is
        stated.
        """
        measured = {"tokens_per_step", "accepted_share"}.intersection(self._stated_sources)
        has_window_of_mean = bool(self.window) and not self.tokens_per_step_between
        describes_mean = bool(self.method) or has_window_of_mean
        if describes_mean and not (self.rescale or measured):
            raise ValueError(
                "window and method say where tokens_per_step or accepted_share were measured; "
                "neither is stated"
            )
        if self.adaptive and self.tokens_per_step is None and not self.rescale:
            raise ValueError(
                "adaptive says how windows moved where tokens_per_step was measured, which is "
                "not stated"
            )

    def _check_known_positions(self) -> None:
        """Raise :class:`ValueError` where more positions are called known than are stated."""
        positions = len(self.per_position or ())
        if self.known_positions and self.known_positions > positions:
            raise ValueError("known_positions: expected at most as many as per_position states")

    def _check_mean(self) -> None:
        """Raise :class:`ValueError` for a mean that counts a bonus and leaves no room for it."""
        means = self.tokens_per_step
        if means is None or self.bonus is False:
            return
        least = min(means.values()) if isinstance(means, dict) else means
        if least <= 1.0:
            raise ValueError(
                f"tokens_per_step {least:g}: a correction or bonus makes it more than 1; if "
                "none is counted, say bonus: false"
            )

    def _check_trace_fields(self) -> None:
        """Raise :class:`ValueError` for fields that only a trace can have, or that need each
        other.
        """
        takes_best = self.drafter == BEST_OF
        names_drafters = bool(self.best_of)
        if takes_best != names_drafters or (names_drafters and self.trace is None):
            raise ValueError(
                "drafter: best_of and best_of: [...], several drafters of a trace, are stated "
                "together"
            )
        if self.rescale and self.trace is None:
            raise ValueError("rescale is for a trace; other sources state their mean themselves")

    def _check_interval(self) -> None:
        """Raise :class:`ValueError` for an interval of the mean whose ends are swapped."""
        if self.tokens_per_step_between:
            low, high = self.tokens_per_step_between
            if low > high:
                raise ValueError("tokens_per_step_between: expected the lower mean first")

    def _check_lengths(self) -> None:
        """Raise :class:`ValueError` for lengths that no windows can have."""
        if not self.lengths:
            return
        even(self.lengths)
        for window, length in enumerate(self.lengths, 1):
            if length > window + 1:
                raise ValueError(
                    f"lengths: {length:g} cannot be: at window {window} a mean lies between 1 "
                    f"and {window + 1}"
                )

    def _check_overlap(self) -> None:
        """Raise :class:`ValueError` where more tokens are accepted than are on the exit."""
        highest = max(self.stated_rates)
        if self.overlap < min(highest, 1.0):
            raise ValueError(
                f"overlap {self.overlap:g} must be at least the acceptance rate {highest:g}: "
                "accepted tokens are on the exit"
            )

    def _check_rule(self) -> None:
        """Raise :class:`ValueError` for a rule beside what it can say nothing about."""
        if self.rule is None:
            return
        if self.best_of:
            raise ValueError(
                "rule: no recording knows what it keeps of the best of several drafters; leave "
                "best_of or rule out"
            )
        rates = self.rate is not None or self.per_position is not None or self.lengths is not None
        if self.rule.passes is not None and not (rates or (self.trace and not self.rescale)):
            raise ValueError(
                "rule.passes is for rate, per_position, lengths or a trace; a stated mean is that "
                "under the rule"
            )

    @property
    def _stated_sources(self) -> list[str]:
        """Return the sources that are stated, in the order of their fields."""
        return [name for name in SOURCES if getattr(self, name) is not None]

    @property
    def stated_rates(self) -> tuple[float, ...]:
        """Return the chances that a draft token is kept, by position of a window; the last repeats,
        0 where none are stated.
        """
        if self.lengths:
            return tuple(continued_rates(self.lengths))
        return self.per_position or (self.rate or 0.0,)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of text that have means of their own; none where all have one."""
        means = (self.rescale or self).tokens_per_step
        if isinstance(means, dict):
            return tuple(means)
        return ()

    def continuation(self, window: int) -> ContinuedLength | None:
        """Return tokens a step at a ``window`` behind the last known position, and their interval;
        None where all are known.
        """
        if self.lengths:
            known = len(self.lengths)
        elif self.known_positions:
            known = self.known_positions
        else:
            known = len(self.per_position or ())
        if not known or window <= known:
            return None
        rates = self.stated_rates
        last = len(rates) - 1
        reached = np.cumprod([rates[min(position, last)] for position in range(window)])
        lengths = (1.0 + np.cumsum(reached)).tolist()
        measured = self.lengths or lengths[:known]
        return continued_range(measured, window, lengths[-1])

    def mean_at(self, window: int) -> Means | None:
        """Return the measured tokens per step, correction or bonus included, of a ``window``; None
        where no mean is stated.
        """
        if self.accepted_share is not None:
            return 1.0 + self.accepted_share * window
        if self.tokens_per_step is None or self.bonus is not False:
            return self.tokens_per_step
        return each(self.tokens_per_step, lambda mean: mean + 1.0)

    def lent(self, mean: Means, window: int, trace: str, drafter: str) -> "AcceptanceSpec":
        """Return the acceptance of a recording that is re-scaled to the measured mean."""
        rescale = Rescale(
            tokens_per_step=mean,
            window=window,
            adaptive=self.adaptive,
            source=self.source or "not stated",
            confidence=self.confidence or "assumed",
        )
        return AcceptanceSpec(
            trace=trace,
            drafter=drafter,
            flavours=self.flavours,
            stand_in=True,
            rescale=rescale,
            window=window,
            method=self.method,
            temperature=self.temperature,
            by_context=self.by_context,
            tokens_per_step_between=self.tokens_per_step_between,
            rule=self.rule,
        )

    def verdicts(self, trace: Trace | None, seed: int) -> Acceptance:
        """Return the source of verdicts on chains; ``trace`` is the content of the trace that is
        named.
        """
        plain = self._plain(trace, seed)
        if self.rule is not None and self.rule.passes is not None:
            return relaxed(plain, self.rule.passes.value, seed)
        return plain

    def _plain(self, trace: Trace | None, seed: int) -> Acceptance:
        """Return the source of verdicts as it is stated or recorded."""
        if trace is not None:
            return Replay(trace, self.flavours or self.kinds, seed)
        if self.cycle:
            return Cycle(self.cycle.accepted, self.cycle.off_exit)
        if self.always is not None:
            return Cycle((self.always,))
        return Rates(self.stated_rates, self.overlap, seed)
