"""A source of acceptance says how many draft tokens a verification keeps: drawn, stated or replayed
from a trace.

Every source answers two questions. ``cursor`` follows one request and judges its windows one by
one; ``odds`` gives the distribution that a law needs. A window of ``gamma`` tokens keeps its first
``A``; the token after them, correction or bonus, is the target's own.

Where a strategy has an early exit, a verdict also says whether that next token was among the exit's
top kappa (MSD-7): ``off_exit``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from itertools import accumulate
from math import ceil, isqrt
from operator import mul
from random import Random
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.confidence import RankedSlots
from simulator.core.acceptance.cursors import (
    Chain,
    CountedAhead,
    Cursor,
    RecordedCursor,
    RecordedVerdicts,
    Retraceable,
    Verdict,
    verdict,
)
from simulator.core.acceptance.trace import CONVERTED, Bools, Trace
from simulator.core.numeric import Numbers, ordered_sum


@dataclass(frozen=True)
class Exit:
    """An early exit sends its likeliest tokens from inside the target to the draft."""

    fraction: float
    """Depth of the exit, as a share of the target's layers."""
    kappa: int
    """Number of tokens that it sends."""


@dataclass(frozen=True)
class Odds:
    """Odds are the joint distribution of one verification of ``gamma`` tokens; index 0..gamma
    counts accepted tokens.
    """

    accepted: NDArray[np.float64]
    """(gamma + 1,) P(A = r); further axes, here and below, are those of a grid over which a law is
    evaluated.
    """
    off_exit: NDArray[np.float64]
    """(gamma + 1,) P(A = r and the next token is off the exit)."""
    off_path: Numbers
    """P(A = gamma and the verdict is off the path)."""
    source: str
    """Where the odds come from, in words."""
    unmatched: float = 0.0
    """Share of steps in which look-up finds nothing to propose; the fields above are about all
    steps but these.
    """
    gated: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """Share of steps and mean of the tokens that they keep, by window, where confidence ends
    windows; empty without.
    """
    independent: bool = False
    """Whether what a step keeps says nothing about the steps behind it."""
    by_kind: Sequence[tuple[float, Odds]] = ()
    """Share of steps and odds of each kind of text, where a request is of one of several kinds;
    empty where all are alike.
    """
    drafted: Sequence[tuple[Numbers, Odds]] = ()
    """Share of steps and odds of each drafter, where one of several drafts a step; the fields above
    are then about all steps. Empty where one drafts them all.
    """
    slots: RankedSlots | None = None
    """The slots of all blocks, likeliest first, where a recording says how sure the drafter was."""

    @property
    def mean_accepted(self) -> Numbers:
        """Return E[A], the mean of accepted draft tokens; correction and bonus do not count."""
        return ordered_sum(kept * share for kept, share in enumerate(self.accepted))

    def committed(self, bonus: bool = True) -> Numbers:
        """Return the expected tokens per step, correction or bonus included."""
        committed = self.mean_accepted + 1.0
        if bonus:
            return committed
        return committed - self.accepted[-1]


class Acceptance(Protocol):
    """A source of acceptance gives verdicts to a simulation and odds to a law."""

    def cursor(self, request: int, exit: Exit | None) -> Cursor:
        """Return a cursor for request number ``request``; the same number gives the same
        verdicts.
        """

    def odds(self, gamma: int, exit: Exit | None) -> Odds:
        """Return the distribution of one verification, from marginal rates."""


def mean_odds(parts: Sequence[tuple[float, Odds]]) -> Odds:
    """Return the odds of all steps of several parts, given with the tokens that they write: who
    keeps less takes more steps.
    """
    tokens, odds = zip(*parts, strict=True)
    matched = np.array([1.0 - odd.unmatched for odd in odds])
    kept = [odd.mean_accepted for odd in odds]
    steps = np.array(tokens) / (1.0 + matched * kept)
    weights = np.maximum(steps * matched, 1e-300)

    def mean(rows: Sequence[Numbers]) -> NDArray[np.float64]:
        return np.average(rows, axis=0, weights=weights)

    unmatched = 1.0 - float(steps @ matched / steps.sum())
    shares = (steps / steps.sum()).tolist()
    return Odds(
        accepted=mean([odd.accepted for odd in odds]),
        off_exit=mean([odd.off_exit for odd in odds]),
        off_path=mean([odd.off_path for odd in odds]),
        source=f"{odds[0].source}, by kind of text",
        unmatched=unmatched,
        by_kind=tuple(zip(shares, odds, strict=True)),
    )


def odds_of(source: Acceptance, exit: Exit | None) -> Callable[[int], Odds]:
    """Return a cached function from a window to its odds: a law asks for the same window with every
    kind of step.
    """
    return cache(partial(source.odds, exit=exit))


def chain_odds(
    rates: Sequence[Numbers],
    rejected_off: Sequence[Numbers],
    next_off: Numbers,
    path_off: Numbers,
    source: str,
) -> Odds:
    """Return the odds of independent positions, all of which may be arrays that fit each other.

    ``rates[r]`` is the chance of position r+1 given those before, ``rejected_off[r]`` that it is
    rejected and off the exit.
    """
    reach = list(accumulate(rates, mul, initial=1.0))
    stops = [1.0 - rate for rate in rates]
    accepted = _products(reach, [*stops, 1.0])
    off_exit = _products(reach, [*rejected_off, next_off])
    return Odds(accepted, off_exit, reach[-1] * path_off, source)


def _products(reach: Sequence[Numbers], chances: Sequence[Numbers]) -> NDArray[np.float64]:
    """Return (gamma + 1, ...) the chance to get to each place times what happens there."""
    rows = np.broadcast_arrays(*map(mul, reach, chances))
    return np.array(rows, dtype=np.float64)


@dataclass(frozen=True)
class Rates:
    """Rates are stated for independent positions (the last one repeats), with the exit overlap
    Omega.

    An accepted token is taken to be inside the exit's top kappa, as in MSD-8, so that a rejected
    one is outside with chance (1 - Omega) / (1 - rate). Only ``odds`` takes arrays of rates and
    overlaps.
    """

    rates: tuple[Numbers, ...]
    overlap: Numbers = 1.0
    seed: int = 0

    def rate(self, position: int) -> Numbers:
        """Return the chance that the draft token at ``position`` (from 0) of a window is kept,
        given those before.
        """
        return self.rates[min(position, len(self.rates) - 1)]

    def reach(self, window: int) -> tuple[float, ...]:
        """Return the chance that all tokens up to each place of a window are kept."""
        return _reach(self.rates[:window], window)

    def windows(self, proposal: Chain, tokens: int) -> int:
        """Return how many windows commit so many tokens in the mean, rounded up."""
        return ceil(tokens / _mean_committed(self.rates[: proposal.tokens], proposal))

    def cursor(self, request: int, exit: Exit | None) -> Cursor:
        """Return a cursor with random numbers of its own."""
        return _RateCursor(self, request)

    def odds(self, gamma: int, exit: Exit | None) -> Odds:
        """Return the exact odds of this source."""
        rates = [self.rate(position) for position in range(gamma)]
        off = 1.0 - self.overlap
        rejected_off = [off * (rate < 1.0) for rate in rates]
        path_off = 1.0 - self.rate(gamma)
        odds = chain_odds(rates, rejected_off, off, path_off, "stated rates")
        return replace(odds, independent=True)


@lru_cache(maxsize=4_096)
def _reach(rates: tuple[float, ...], window: int) -> tuple[float, ...]:
    """Return the chance that all tokens up to each place of a window are kept, from the chance of
    each given those before; the last one repeats.
    """
    longer = (*rates, *[rates[-1]] * (window - len(rates))) if window else ()
    return tuple(accumulate(longer, mul))


@lru_cache(maxsize=4_096)
def _mean_committed(rates: tuple[float, ...], proposal: Chain) -> float:
    """Return the tokens that a window commits in the mean."""
    window, bonus = proposal
    reach = _reach(rates, window)
    lost = 0.0 if bonus else (1.0, *reach)[-1]
    return 1.0 - lost + ordered_sum(reach)


@lru_cache(maxsize=4_096)
def _verdicts(proposal: Chain) -> tuple[Verdict, ...]:
    """Return the verdicts on a proposal by accepted tokens, exits left out."""
    window, bonus = proposal
    rejected = [verdict(accepted, accepted + 1, False, False) for accepted in range(window)]
    return (*rejected, verdict(window, window + bonus, False, False))


DRAWN_TOGETHER = 16
"""Requests whose first windows are judged together: half the time of one by one."""
FIRST_WINDOWS = 64
"""Windows of each that are judged then."""


class _FirstWindows:
    """The verdicts on the first windows of some requests, as if all propose the same."""

    def __init__(self, source: Rates, proposal: Chain, requests: range, windows: int) -> None:
        self.verdicts = _verdicts(proposal)
        reach = source.reach(proposal.tokens)
        luck = _luck(source.seed, requests, windows)
        self.accepted = len(reach) - np.searchsorted(reach[::-1], luck, side="right")
        """(requests, windows) accepted tokens of each window."""
        gains = np.array([judged.committed for judged in self.verdicts])
        self.before = np.zeros((len(requests), windows + 1), dtype=np.int64)
        """(requests, windows + 1) tokens that are committed before each window."""
        np.cumsum(gains[self.accepted], axis=1, out=self.before[:, 1:])

    def of(self, place: int, tokens: int) -> CountedAhead | None:
        """Return the windows of one of the requests by which ``tokens`` are committed; None where
        there are not enough.
        """
        before = self.before[place]
        windows = int(before.searchsorted(tokens))
        if windows == len(before):
            return None
        counts = np.bincount(self.accepted[place, :windows], minlength=len(self.verdicts))
        told = {}
        for judged, times in zip(self.verdicts, counts.tolist(), strict=True):
            if times:
                told[judged] = times
        return CountedAhead(before[: windows + 1], told)


@lru_cache(maxsize=64)
def _drawn_together(source: Rates, proposal: Chain, first: int) -> _FirstWindows:
    """Return the first windows of the requests whose numbers follow one another from ``first``."""
    requests = range(first, first + DRAWN_TOGETHER)
    return _FirstWindows(source, proposal, requests, FIRST_WINDOWS)


def _luck(seed: int, requests: range, windows: int) -> NDArray[np.float64]:
    """Return (requests, windows) the first draw of each of the first windows: what
    ``Random.random`` makes of its random bytes, of three draws each.
    """
    random = Random(0)
    drawn = []
    for request in requests:
        random.seed(_seed_of(seed, request))
        drawn.append(random.randbytes(3 * 8 * windows))
    words = np.frombuffer(b"".join(drawn), dtype="<u4").reshape(len(requests), windows, 6)
    return ((words[..., 0] >> 5) * 67_108_864.0 + (words[..., 1] >> 6)) / 9_007_199_254_740_992.0


def _seed_of(seed: int, request: int) -> str:
    """Return the seed of the draws of a request."""
    return f"{seed}/{request}"


class _RateCursor(Retraceable):
    """Takes the same number of draws for every window, so that runs whose rates are close meet the
    same luck.
    """

    def __init__(self, source: Rates, request: int) -> None:
        self.source = source
        self.request = request
        self.drawn: list[tuple[float, float, float]] = []
        """The draws of every window so far, where any was judged; forks share them."""
        self.random: Random | None = None
        """Goes on behind those."""

    def fork(self) -> Self:
        """Return a cursor at the same position, with the same draws."""
        self.random = self.random or Random(_seed_of(self.source.seed, self.request))
        return super().fork()

    def judge(self, proposal: Chain) -> Verdict:
        judged = self._judged(proposal)
        self.position += 1
        return judged

    def counted(self, proposal: Chain, tokens: int) -> CountedAhead:
        """Return the verdicts on the draws of the next windows, drawn in one go where none was
        judged before.
        """
        if self.position:
            return super().counted(proposal, tokens)
        request = self.request
        told = None
        windows = self.source.windows(proposal, tokens)
        if windows <= FIRST_WINDOWS:
            place = request % DRAWN_TOGETHER
            told = _drawn_together(self.source, proposal, request - place).of(place, tokens)
        while told is None:
            windows += 3 * isqrt(windows) + 8  # some three standard deviations
            alone = range(request, request + 1)
            told = _FirstWindows(self.source, proposal, alone, windows).of(0, tokens)
        return told

    def _judged(self, proposal: Chain) -> Verdict:
        """Return the verdict on the window at this position, from its draws."""
        if self.random is None:
            self.random = Random(_seed_of(self.source.seed, self.request))
        random = self.random.random
        drawn = self.drawn
        while len(drawn) <= self.position:
            drawn.append((random(), random(), random()))
        luck, exit_luck, path_luck = drawn[self.position]
        source = self.source
        tokens, bonus = proposal
        reach = source.reach(tokens)
        accepted = 0
        while accepted < tokens and luck < reach[accepted]:
            accepted += 1
        rate = source.rate(accepted)
        off = 1.0 - source.overlap
        if accepted == tokens:
            return verdict(accepted, accepted + bonus, exit_luck < off, path_luck >= rate)
        return verdict(accepted, accepted + 1, exit_luck * (1.0 - rate) < off, False)


@dataclass(frozen=True)
class Cycle:
    """A cycle repeats verdicts; ``accepted`` is cut to the window, ``off_exit`` repeats on its own,
    whatever its length.
    """

    accepted: tuple[int, ...]
    off_exit: tuple[bool, ...] = (False,)

    def cursor(self, request: int, exit: Exit | None) -> Cursor:
        """Return a cursor at the start of the cycle."""
        return _CycleCursor(self)

    def odds(self, gamma: int, exit: Exit | None) -> Odds:
        """Return the shares over one whole cycle of both sequences."""
        length = int(np.lcm(len(self.accepted), len(self.off_exit)))
        kept = np.minimum(np.resize(self.accepted, length), gamma)
        off = np.resize(self.off_exit, length)
        accepted = np.bincount(kept, minlength=gamma + 1) / length
        off_exit = np.bincount(kept, off, minlength=gamma + 1) / length
        path = float(np.mean(off & (kept == gamma)))
        alike = len(set(kept.tolist())) == 1
        return Odds(accepted, off_exit, path, "stated cycle", independent=alike)


class _CycleCursor(Retraceable):
    """Follows one request through the cycle."""

    def __init__(self, source: Cycle) -> None:
        self.source = source

    def judge(self, proposal: Chain) -> Verdict:
        kept = self.source.accepted[self.position % len(self.source.accepted)]
        off = self.source.off_exit[self.position % len(self.source.off_exit)]
        self.position += 1
        accepted = min(kept, proposal.tokens)
        own = accepted < proposal.tokens or proposal.bonus
        return verdict(accepted, accepted + own, off, off)


class Replay:
    """A replay gives verdicts as recorded: a request replays one request of the trace, from its
    position 1 on.

    Recordings of the chosen flavours are assigned in an order set by ``seed``, then again from the
    first. A request that wants more output than was recorded goes on at position 1 of its own
    recording.
    """

    p_min: float | None = None
    """Chance below which the draft ends its windows, as roll-outs recorded it; None: nobody
    asks.
    """
    reads_more = False
    """Whether cursors know more of the recording than kept tokens."""
    weights: Mapping[str, float] | None = None
    """Tokens that are written of each kind of text, where a law takes kinds apart and then the mean
    over steps.
    """
    sample: Callable[[], Replay | None] | None = None
    """Returns the replay that cursors follow instead, where the mean was set over the requests that
    run; None: this one.
    """

    def __init__(self, trace: Trace, flavours: Sequence[str] = (), seed: int = 0) -> None:
        self.trace = trace
        self.seed = seed
        self.accepted = trace.accepted(seed)
        pool: list[int] = []
        for name in flavours or trace.flavours:
            pool += trace.named(name)
        shuffled = np.random.default_rng(seed).permutation(len(pool))
        self.order = [pool[place] for place in shuffled]
        self._verdicts: dict[tuple[int, Exit | None], RecordedVerdicts] = {}
        self._known: dict[tuple[int, Exit | None], Odds] = {}
        """Odds that were asked for, by window and exit; a copy has its own, as it will differ."""

    def __copy__(self) -> Self:
        replay = object.__new__(type(self))
        replay.__dict__ |= self.__dict__
        replay._known = {}
        return replay

    def over(self, trace: Trace, seed: int = 0) -> Replay:
        """Return a replay of the same requests in the same order, from another trace of the same
        text.
        """
        replay = copy(self)
        replay.trace = trace
        replay.accepted = trace.accepted(seed)
        replay._verdicts = {}
        return replay

    def keeping(self, accepted: Bools) -> Self:
        """Return a replay of the same requests that keeps other draft tokens (positions,)."""
        replay = copy(self)
        replay.accepted = accepted
        replay._verdicts = {}
        return replay

    def only(self, flavour: str) -> Self:
        """Return a replay of the requests of one flavour."""
        replay = copy(self)
        named = set(self.trace.named(flavour))
        replay.order = [request for request in self.order if request in named]
        replay.weights = None
        return replay

    def behind_gate(self, p_min: float) -> Replay:
        """Return a replay of the same requests whose cursors know of how many tokens in a row the
        draft is so sure.
        """
        replay = copy(self)
        replay.p_min = p_min
        replay.reads_more = True
        replay._verdicts = {}
        return replay

    def cursor(self, request: int, exit: Exit | None) -> Cursor:
        """Return a cursor over the recording that is assigned to this request."""
        if self.sample is not None and (sampled := self.sample()):
            return sampled.cursor(request, exit)
        recording = self.order[request % len(self.order)]
        key = (recording, exit)
        if key not in self._verdicts:
            start, end = self._span(recording)
            run = self.runs(recording).tolist()
            off_exit = self._off(exit)[start:end].tolist()
            self._verdicts[key] = RecordedVerdicts(run, off_exit, self.sure(recording))
        return RecordedCursor(self._verdicts[key])

    def runs(self, recording: int) -> NDArray[np.int64]:
        """Return (positions,) the draft tokens that an endless window keeps from each position of a
        recording, from 1 on.

        They are as recorded where the trace holds ``run``, else counted from agreement; the end
        continues at the start.
        """
        start, end = self._span(recording)
        if self.trace.run is not None:
            return self.trace.run[start:end].astype(np.int64)
        accepted = self.accepted[start:end]
        stops = np.flatnonzero(~np.concatenate((accepted, accepted)))
        if not len(stops):
            return np.full(len(accepted), np.iinfo(np.int64).max)
        starts = np.arange(len(accepted))
        next_stops = stops[np.searchsorted(stops, starts)]
        return np.asarray(next_stops - starts, dtype=np.int64)

    def odds(self, gamma: int, exit: Exit | None) -> Odds:
        """Return the odds as if every position were independent, from the rates over *all* recorded
        positions.

        The replay visits them unevenly, in bursts; the difference is the first gap in a report. A
        trace with ``run`` is not broken up into positions: its windows start at every position with
        the same weight.
        """
        asked = (gamma, exit)
        if asked not in self._known:
            self._known[asked] = self._weighted_odds(gamma, exit)
        return self._known[asked]

    def _weighted_odds(self, gamma: int, exit: Exit | None) -> Odds:
        """Return the odds, of which each kind of text has its weight where it has one."""
        if self.weights:
            parts = []
            for name, tokens in self.weights.items():
                parts.append((tokens, self.only(name)._odds(gamma, exit)))
            odds = mean_odds(parts)
        else:
            odds = self._odds(gamma, exit)
        if self.p_min is None:
            return odds
        return replace(odds, gated=self._gated(gamma))

    def _odds(self, gamma: int, exit: Exit | None) -> Odds:
        """Return the odds of all requests in ``order`` as one, but for the gate."""
        if self.trace.run is not None:
            return self._run_odds(gamma, exit)
        positions = self.positions()
        kept = self.accepted[positions]
        off = self._off(exit)[positions]
        rate = float(kept.mean())
        rejected_off = float((~kept & off).mean())
        on_path = 0.0
        if rate:
            kept_off = float((kept & off).mean())
            on_path = rate * (1.0 - kept_off / rate)
        rates = [rate] * gamma
        next_off = float(off.mean())
        source = "marginal rates of the trace"
        return chain_odds(rates, [rejected_off] * gamma, next_off, 1.0 - on_path, source)

    def sure(self, recording: int) -> list[int]:
        """Return (positions,) the tokens that the draft writes before one of which it is less sure;
        empty if nobody asks.
        """
        if self.p_min is None:
            return []
        start, end = self._span(recording)
        written = self.trace.extra["rollout.q"][:, start:end]
        so_far = np.cumprod(written >= self.p_min, axis=0, dtype=np.int64)
        sure: list[int] = so_far.sum(axis=0).tolist()
        return sure

    def _gated(self, gamma: int) -> dict[int, tuple[float, float]]:
        """Return share and mean kept tokens by window, over the steps that decoding takes: few
        through sure stretches.
        """
        parts = [(0.0, self._visited(gamma))]
        if self.weights:
            parts = []
            for name, tokens in self.weights.items():
                parts.append((tokens, self.only(name)._visited(gamma)))
        steps = defaultdict[int, NDArray[np.float64]](lambda: np.zeros(2))
        for tokens, kept in parts:
            once = 1.0
            if tokens:
                written = sum(len(of_window) + sum(of_window) for of_window in kept.values())
                once = tokens / written
            for window, of_window in kept.items():
                steps[window] += np.array([len(of_window), sum(of_window)]) * once
        total = sum(many for many, _ in steps.values())
        gated = {}
        for window in sorted(steps):
            many, tokens = steps[window]
            gated[window] = (float(many / total), float(tokens / many))
        return gated

    def _visited(self, gamma: int) -> dict[int, list[int]]:
        """Return the kept tokens of every step, by the window that a gate leaves it."""
        kept: dict[int, list[int]] = {}
        for recording in self.order:
            run = self.runs(recording).tolist()
            sure = self.sure(recording)
            position = 0
            while position < len(run):
                window = min(sure[position], gamma)
                accepted = min(run[position], window)
                kept.setdefault(window, []).append(accepted)
                position += accepted + 1
        return kept

    def _run_odds(self, gamma: int, exit: Exit | None) -> Odds:
        """Return the odds of windows that start at every position of a trace with ``run``."""
        outside = self._off(exit)
        kept = []
        next_off = []
        path_off = 0
        for recording in self.order:
            start, end = self._span(recording)
            run = self.runs(recording)
            off = outside[start:end]
            accepted_tokens = np.minimum(run, gamma)
            next_places = (np.arange(len(run)) + accepted_tokens) % len(run)
            off_path = (run == gamma) | (off & (run > gamma))
            kept.append(accepted_tokens)
            next_off.append(off[next_places])
            path_off += int(off_path.sum())
        lengths = np.concatenate(kept)
        count = len(lengths)
        accepted = np.bincount(lengths, minlength=gamma + 1) / count
        off_exit = np.bincount(lengths, np.concatenate(next_off), minlength=gamma + 1) / count
        return Odds(accepted, off_exit, path_off / count, "marginal run lengths of the trace")

    def positions(self) -> NDArray[np.int64]:
        """Return (positions,) all positions of the requests in ``order``, without those emitted by
        a prefill.
        """
        spans = [np.arange(*self._span(recording)) for recording in self.order]
        return np.concatenate(spans)

    def length(self, request: int) -> int:
        """Return the recorded positions that request number ``request`` can replay before it starts
        over.
        """
        start, end = self._span(self.order[request % len(self.order)])
        return end - start

    def _span(self, recording: int) -> tuple[int, int]:
        """Return the first position of a recording behind its prefill, and the position behind its
        last.
        """
        return int(self.trace.offsets[recording]) + 1, int(self.trace.offsets[recording + 1])

    def _off(self, exit: Exit | None) -> Bools:
        """Return (positions,) whether the emitted token is off the exit; never without an exit."""
        if exit is None:
            return np.zeros(len(self.accepted), dtype=bool)
        return ~self.trace.on_exit(exit.fraction, exit.kappa)


BEST_OF = "best_of"
"""Name of the drafter that is the best of several at every position."""


def best_of(trace: Trace, names: Sequence[str], seed: int = 0) -> Trace:
    """Return the same text as the best of some drafters proposes it, as an oracle among them could.

    From every start it keeps the longest run that one of them keeps. It answers for windows up to
    the shortest to which one of them was recorded.
    """
    replays = [Replay(trace.drafted_by(name, seed), seed=seed) for name in names]
    most = min((replay.trace.window for replay in replays if replay.trace.window), default=None)
    runs = []
    for request in range(len(trace.flavour)):
        longest = np.max([replay.runs(request) for replay in replays], axis=0)
        runs.append([0, *longest])
    run = np.minimum(np.concatenate(runs), most or np.iinfo(np.uint16).max)
    models = {**trace.header["models"], "draft": {"name": f"the best of {', '.join(names)}"}}
    header = {**trace.header, "format": CONVERTED, "window": most, "models": models}
    none = trace.draft_rank[:0]
    run = run.astype(np.uint16)
    return replace(trace, header=header, run=run, draft_rank=none, q=trace.q[:0], extra={})
