"""Adaptive windows follow the batch or each request: they say how many draft tokens a request gets
in its next step.

A larger batch makes verification dearer per token, so the best window shrinks with it; and the best
window of a request is what will be kept of it, which an oracle knows and a gate or a controller
guesses. ``gamma`` of the strategy is the longest window; each rule here answers with a window from
0 (no speculation in this step) to ``gamma``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise
from math import prod
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from simulator.core.acceptance.cursors import RecordedCursor
from simulator.core.acceptance.sources import Odds
from simulator.core.numeric import Numbers, stationary
from simulator.core.quantities import Fraction, Frozen
from simulator.core.strategies.common.step import Progress, State, intern_chain, intern_progress
from simulator.core.strategies.common.tiers import BatchSize, TierWindow

GOLDEN = (5**0.5 - 1) / 2
"""Its multiples, less whole numbers, are spread evenly however many are taken."""
NEGLIGIBLE = 1e-12
"""Share of steps that changes no digit of a law."""


class FixedWindow(Frozen):
    """The window is the same whatever the batch."""

    name: Literal["fixed"] = "fixed"

    def window(self, gamma: int, requests: int) -> int:
        """Return gamma, in draft tokens."""
        return gamma


Tabled = dict[Annotated[int, Field(gt=0, le=1_000_000)], Annotated[int, Field(ge=0, le=1_000_000)]]
"""Draft tokens from each batch size on."""


def tabled_window(windows: Tabled, gamma: int, requests: int) -> int:
    """Return the draft tokens of the largest listed size not above ``requests``; gamma where there
    is none.
    """
    sizes = [size for size in windows if size <= requests]
    if sizes:
        return min(gamma, windows[max(sizes)])
    return gamma


class TabledWindow(Frozen):
    """The window changes at each size of the batch that ``windows`` lists."""

    name: str
    windows: Tabled

    def window(self, gamma: int, requests: int) -> int:
        """Return the draft tokens of the largest listed size not above ``requests``; gamma where
        there is none.
        """
        return tabled_window(self.windows, gamma, requests)


class WindowTable(TabledWindow):
    """The window changes at each listed batch size (vLLM's "dynamic speculative decoding").

    ``windows: {1: 7, 8: 3, 64: 0}`` drafts seven tokens for one to seven requests and none from 64
    on. Below the smallest size the window is ``gamma``.
    """

    name: Literal["table"] = "table"
    windows: Tabled = Field(min_length=1)
    """Draft tokens from each batch size on."""


Drafts = Annotated[int, Field(ge=0, le=1_000_000)]
"""Draft tokens of a window; 0: nothing is drafted."""


class WindowRanges(Frozen):
    """The window is that of the range in which the batch lies, as vLLM takes it
    (``num_speculative_tokens_per_batch_size``).

    ``ranges: [[1, 64, 3], [65, 128, 1], [129, 512, 0]]`` drafts three tokens for up to 64 requests
    and none from 129 on. A batch between two ranges, or behind the last, has the window of the
    range before it. (vLLM, ``v1/spec_decode/dynamic/utils.py``, vllm-project/vllm 14b450ca.)
    """

    name: Literal["ranges"] = "ranges"
    ranges: tuple[tuple[BatchSize, BatchSize, Drafts], ...] = Field(min_length=1, max_length=10_000)
    """First and last batch of each range, and its draft tokens."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.ranges[0][0] != 1:
            raise ValueError("ranges: the first has to begin with 1, the smallest batch")
        for first, last, _ in self.ranges:
            if first > last:
                raise ValueError(f"ranges: {first} to {last} ends before it begins")
        for (_, last, _), (first, _, _) in pairwise(self.ranges):
            if first <= last:
                raise ValueError(f"ranges: one ends with {last}, and the next begins with {first}")
        return self

    @property
    def windows(self) -> dict[int, int]:
        """Return the draft tokens of each range by its first batch."""
        return {first: tokens for first, _, tokens in self.ranges}

    def window(self, gamma: int, requests: int) -> int:
        """Return the draft tokens of a batch of ``requests``."""
        return tabled_window(self.windows, gamma, requests)


class OffAbove(Frozen):
    """The window is gamma up to a batch of ``requests``, and 0 above (vLLM's
    ``speculative_disable_by_batch_size``).
    """

    name: Literal["off_above"] = "off_above"
    requests: int = Field(gt=0, le=1_000_000)
    """Largest batch that speculates, in requests."""

    def window(self, gamma: int, requests: int) -> int:
        """Return gamma or 0 draft tokens."""
        if requests <= self.requests:
            return gamma
        return 0


class GoodputWindow(TabledWindow):
    """The window has the most verified tokens per second by law, for each size of the batch
    (SmartSpec's goodput).

    ``windows`` is worked out before a run from the strategy's law, marginal acceptance rates and
    the mean context; a scenario may state it, which makes it a table.
    """

    name: Literal["goodput"] = "goodput"
    windows: Tabled = Field(default_factory=dict)
    """Draft tokens from each batch size on; worked out before a run, unless stated."""


class RequestWindow(Frozen, ABC):
    """The window follows each request; gamma is the longest."""

    gates: ClassVar[bool] = False
    """Whether a window ends before a token that was drafted and does not pass."""

    def window(self, gamma: int, requests: int) -> int:
        """Return gamma, the most draft tokens of a window."""
        return gamma

    def opened(self, gamma: int, state: State) -> int:
        """Return the draft tokens of the window that a request is about to write, before the
        scheduler cuts it.
        """
        if state.window is None:
            return self.after(gamma, None, False, 0)
        return state.window

    def after(self, gamma: int, window: int | None, kept_all: bool, turn: int) -> int:
        """Return the window behind one of so many tokens in this turn of a request; None: the
        first. By default gamma.
        """
        return gamma

    @abstractmethod
    def shares(self, gamma: int, odds: Callable[[int], Odds]) -> dict[int, Numbers]:
        """Return the long-run share of steps of each window."""

    def kept(self, gamma: int, window: int, odds: Callable[[int], Odds]) -> Numbers:
        """Return the mean accepted draft tokens of the steps that have this window."""
        return odds(window).mean_accepted

    def passes_beyond(self, gamma: int, window: int) -> int:
        """Return 1 for the pass whose token does not pass a gate; 0 for a window of gamma, and
        without a gate.
        """
        return int(self.gates and window < gamma)


class OracleWindow(RequestWindow):
    """The window is what will be kept, up to gamma: no rule for the window can gain more."""

    name: Literal["oracle"] = "oracle"

    def opened(self, gamma: int, state: State) -> int:
        """Return the tokens that the next verification keeps, which is judged now, of as many rows
        as are granted.
        """
        state.foreseen = state.cursor.judge(intern_chain(min(gamma, state.most_rows - 1)))
        return state.foreseen.accepted

    def settled(self, state: State) -> Progress:
        """Return the progress of a request by the verdict that its window was chosen by."""
        accepted, committed, _, _ = state.foreseen
        state.context += committed
        return intern_progress(committed, committed, accepted, accepted)

    def shares(self, gamma: int, odds: Callable[[int], Odds]) -> dict[int, Numbers]:
        """Return the chance of each number of kept tokens."""
        return dict(enumerate(odds(gamma).accepted))

    def kept(self, gamma: int, window: int, odds: Callable[[int], Odds]) -> Numbers:
        """Return the window, which is kept whole."""
        return window


class MovingWindow(RequestWindow):
    """The window grows where it was kept whole, else it shrinks (``heuristic`` schedule of Hugging
    Face Transformers).
    """

    name: Literal["moving"] = "moving"
    start: int = Field(default=5, ge=1, le=1_000)
    """Draft tokens of a request's first window."""
    up: int = Field(default=2, ge=0, le=1_000)
    """Tokens by which a window grows that was kept whole."""
    down: int = Field(default=1, ge=0, le=1_000)
    """Tokens by which any other shrinks, to 1 at least."""

    def after(self, gamma: int, window: int | None, kept_all: bool, turn: int) -> int:
        """Return the window behind one that was kept whole or not."""
        if window is None:
            return min(gamma, self.start)
        if kept_all:
            return min(gamma, window + self.up)
        return max(1, window - self.down)

    def shares(self, gamma: int, odds: Callable[[int], Odds]) -> dict[int, Numbers]:
        """Return the stationary shares of the chain of windows that a request's first one leads
        to.
        """
        windows = [self.after(gamma, None, False, 0)]
        moves = dict[int, dict[int, float]]()
        for window in windows:
            whole = float(odds(window).accepted[-1])
            moves[window] = {}
            for kept_all, chance in ((True, whole), (False, 1.0 - whole)):
                if chance > 0.0:
                    reached = self.after(gamma, window, kept_all, 0)
                    moves[window][reached] = moves[window].get(reached, 0.0) + chance
                    if reached not in windows:
                        windows.append(reached)
        shares = stationary(
            np.array([[moves[before].get(after, 0.0) for after in windows] for before in windows])
        )
        return {
            window: float(share)
            for window, share in zip(windows, shares, strict=True)
            if share > NEGLIGIBLE
        }


class GatedWindow(RequestWindow):
    """Drafting stops at the first token of which the draft is less sure than ``p_min`` (llama.cpp's
    ``--draft-p-min``).

    Tokens pass independently, by a sequence that fills every window's share evenly, so that no run
    depends on luck. What is stated of acceptance is about tokens that passed: others are not
    proposed.
    """

    gates: ClassVar[bool] = True
    name: Literal["gated"] = "gated"
    p_min: float = Field(default=0.75, ge=0, le=1)
    """Least chance of a token that is proposed; it acts through ``passed`` alone."""
    passed: Fraction | Annotated[tuple[Fraction, ...], Field(min_length=1, max_length=1_000)]
    """Share of draft tokens whose chance reaches it; or that at each position of a window, of those
    behind tokens that passed, the last repeats.
    """

    def reach(self, tokens: int) -> float:
        """Return the share of windows of which so many tokens pass."""
        if isinstance(self.passed, Fraction):
            return float(self.passed.value**tokens)
        shares = [share.value for share in self.passed[:tokens]]
        shares += [shares[-1]] * (tokens - len(shares)) if tokens else []
        return prod(shares)

    def after(self, gamma: int, window: int | None, kept_all: bool, turn: int) -> int:
        """Return the tokens that pass in this turn."""
        reach = 1.0 - turn * GOLDEN % 1.0
        tokens = 0
        while tokens < gamma and reach <= self.reach(tokens + 1):
            tokens += 1
        return tokens

    def shares(self, gamma: int, odds: Callable[[int], Odds]) -> dict[int, Numbers]:
        """Return the shares of windows that end at each length, by gamma at the latest."""
        if isinstance(self.passed, Fraction):
            passed = self.passed.value
            return {
                tokens: passed**tokens * (1.0 if tokens == gamma else 1.0 - passed)
                for tokens in range(gamma + 1)
            }
        reached = [self.reach(tokens) for tokens in range(gamma + 1)]
        ends = {tokens: reached[tokens] - reached[tokens + 1] for tokens in range(gamma)}
        return {**ends, gamma: reached[gamma]}


class ConfidentWindow(RequestWindow):
    """Drafting stops at the first token of which the draft, or a head, is less sure than ``p_min``,
    as the roll-outs of a recording say.
    """

    gates: ClassVar[bool] = True
    name: Literal["confidence"] = "confidence"
    p_min: float = Field(default=0.75, ge=0, le=1)
    """Least chance of a token that is proposed."""

    def opened(self, gamma: int, state: State) -> int:
        """Return the tokens of which the draft is sure at this position of the recording."""
        cursor = state.cursor
        if isinstance(cursor, RecordedCursor):
            return min(gamma, cursor.sure)
        raise TypeError(f"{type(cursor).__name__} does not know how sure the draft is")

    def shares(self, gamma: int, odds: Callable[[int], Odds]) -> dict[int, Numbers]:
        """Return the shares with which decoding meets each window."""
        return {window: share for window, (share, _) in odds(gamma).gated.items()}

    def kept(self, gamma: int, window: int, odds: Callable[[int], Odds]) -> Numbers:
        """Return the mean accepted draft tokens: where a draft is sure more of them are kept."""
        gated = odds(gamma).gated
        if gated:
            return gated[window][1]
        return super().kept(gamma, window, odds)


Adaptive = Annotated[
    FixedWindow
    | WindowTable
    | WindowRanges
    | OffAbove
    | TierWindow
    | GoodputWindow
    | MovingWindow
    | GatedWindow
    | ConfidentWindow
    | OracleWindow,
    Field(discriminator="name"),
    BeforeValidator(lambda rule: {"name": rule} if isinstance(rule, str) else rule),
]


def stated_windows(rule: Frozen) -> dict[int, int]:
    """Return the draft tokens that a rule states from each batch size on, at most; empty for a rule
    without a table.
    """
    if isinstance(rule, TabledWindow | WindowRanges):
        return rule.windows
    if isinstance(rule, TierWindow):
        return rule.longest
    return {}
