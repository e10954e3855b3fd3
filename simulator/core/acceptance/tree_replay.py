"""Competing branches are replayed from recorded outcomes: static trees, trees in pipelines.

A chain is judged from agreement per position (:mod:`simulator.core.acceptance.sources`). Where
branches compete for a budget, the kept tokens depend on the branches off the path too, so that
outcomes were recorded live; every class here names the arrays that it reads
(:mod:`simulator.core.acceptance.trace` describes them). Positions count within one recorded
request; position 0 is its prefill's token. A request that wants more than was recorded goes on at
position 1.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from itertools import cycle, product
from random import Random
from typing import Self

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.confidence import Floats, RankedSlots
from simulator.core.acceptance.cursors import (
    Chain,
    Cursor,
    Following,
    Forking,
    Verdict,
    forked,
    forks,
    verdict,
)
from simulator.core.acceptance.draft_tree import Beam, Passage, PrunedTree
from simulator.core.acceptance.sources import Acceptance, Exit, Odds, Replay, chain_odds
from simulator.core.acceptance.trace import UNKNOWN, Trace

Ints = NDArray[np.int64]
RankPath = tuple[int, ...]
"""A node of a static tree, as the rank of the drafter's choice (from 0) on every level down to
it.
"""
LARGEST_TREE = 1 << 16
"""Most nodes of a static tree; a thousand times those of any published tree."""


def tree_of(branching: Sequence[int]) -> list[RankPath]:
    """Return the nodes of a tree with ``branching[d]`` children below a node of level d, as
    SpecInfer's <1,1,3> (SP-11).
    """
    nodes: list[RankPath] = []
    for depth in range(1, len(branching) + 1):
        nodes += product(*map(range, branching[:depth]))
    return nodes


def ranks_ahead(trace: Trace, drafter: str, depths: int) -> Ints:
    """Return (depths, positions) the rank that ``drafter`` gives to the token ``d`` behind each
    position.

    Reads ``draft_rank`` or ``NAME.rank``; ranks are 65,535 behind the end of a request. A head
    answers for the depths it has.
    """
    if drafter == "draft":
        rank = trace.draft_rank
    else:
        rank = trace.extra[f"{drafter}.rank"]
    if rank.ndim == 2:
        return rank[:depths].astype(np.int64)
    ranks = np.full((depths, trace.positions), UNKNOWN, dtype=np.int64)
    for start, end in zip(trace.offsets[:-1], trace.offsets[1:], strict=True):
        for depth in range(min(depths, end - start)):
            ranks[depth, start : end - depth] = rank[start + depth : end]
    return ranks


def static_tree_run(ranks: Ints, tree: Iterable[RankPath]) -> Ints:
    """Return (positions,) the tokens kept of a static tree that starts there; ``ranks`` as of
    :func:`ranks_ahead`.

    Exact for every drafter that reads only what it proposed on the same path: a token that is
    judged at depth d stands behind d right tokens.
    """
    node_of: dict[RankPath, int] = {(): 0}
    for path in sorted(tree, key=len):
        node_of[path] = len(node_of)
    widest = 1 + max(path[-1] for path in node_of if path)
    child = np.full((len(node_of), widest + 1), -1)
    for path, node in node_of.items():
        if path:
            child[node_of[path[:-1]], path[-1]] = node
    reached, kept = np.zeros((2, ranks.shape[1]), dtype=np.int64)
    for rank in ranks:
        reached = np.where(reached < 0, -1, child[reached, np.minimum(rank, widest)])
        kept += reached >= 0
    return kept


def tokens_per_pass(trace: Trace) -> tuple[float, ...]:
    """Return the tokens of a pass with 1, 2, ... recorded streams and the best path alone; empty
    without streams.

    Every request is walked through once, from its second token on.
    """
    if "streams.rank" not in trace.extra:
        return ()
    ranks = ranks_ahead(trace, "streams", len(trace.extra["streams.rank"]))
    kept = np.cumsum(np.cumprod(ranks == 0, axis=0), axis=0)
    spans = [
        (start + 1, end) for start, end in zip(trace.offsets[:-1], trace.offsets[1:], strict=True)
    ]
    tokens = sum(end - start for start, end in spans)
    return tuple(
        float(tokens) / sum(_passes(chain[start:end].tolist()) for start, end in spans)
        for chain in kept
    )


def _passes(kept: Sequence[int]) -> int:
    """Return the passes through one request, each over what it keeps and a token more."""
    passes = position = 0
    while position < len(kept):
        position += kept[position] + 1
        passes += 1
    return passes


def pruned_trees(trace: Trace) -> list[PrunedTree]:
    """Return the recorded trees of streams that were pruned before verification, in the order of
    ``streams_pruned.run``.
    """
    if "streams_pruned.run" not in trace.extra:
        return []
    return [PrunedTree(**tree) for tree in trace.header.get("pruned_trees", [])]


@dataclasses.dataclass(frozen=True, eq=False)
class RecordedRun:
    """What one recorded request kept, by position."""

    run: list[int]
    """Draft tokens that are kept of the proposal."""
    matched: list[bool]
    """Whether there was something to propose."""


class RunCursor(Following):
    """A run cursor follows one recorded request from position 1 on, and starts over at its end."""

    recorded: RecordedRun

    @property
    def matched(self) -> bool:
        """Return whether there is something to propose at this position."""
        return self.recorded.matched[self.position]

    def judge(self, proposal: Chain) -> Verdict:
        """Verify a proposal, move behind the committed tokens, and return the verdict."""
        run = self.recorded.run
        accepted = min(run[self.position], proposal.tokens)
        committed = accepted + (0 if accepted == proposal.tokens and not proposal.bonus else 1)
        self.position = (self.position + committed) % len(run)
        return verdict(accepted, committed, False, False)


class RecordedRuns(Replay):
    """Recorded runs give acceptance by start: the draft tokens kept of the proposal at every
    position.

    ``run`` (positions,) holds them, ``window`` is the most that is kept. With ``proposed``
    (positions,) a cursor knows before it is asked whether there is anything to propose
    (``matched``), as look-up does.
    """

    def __init__(
        self, replay: Replay, run: Ints, window: int, proposed: Ints | None = None
    ) -> None:
        header = {**replay.trace.header, "window": window}
        self.kept: Ints = np.minimum(run, window).astype(np.int64)
        self.trace = dataclasses.replace(
            replay.trace, header=header, run=self.kept.astype(np.uint16)
        )
        self.order = replay.order
        self.accepted = replay.accepted
        self.proposed = proposed
        self._cursors: dict[int, RecordedRun] = {}
        self._known = {}

    def cursor(self, request: int, exit: Exit | None) -> Cursor:
        """Return a cursor over the recording that is assigned to this request."""
        if self.sample is not None and (sampled := self.sample()):
            return sampled.cursor(request, exit)
        recording = self.order[request % len(self.order)]
        if recording not in self._cursors:
            start, end = self._span(recording)
            run = self.kept[start:end]
            self._cursors[recording] = self._recorded(recording, run)
        return self._follow(self._cursors[recording])

    def _recorded(self, recording: int, run: Ints) -> RecordedRun:
        """Return what a request kept, and where it had something to propose."""
        if self.proposed is None:
            return RecordedRun(run.tolist(), [True] * len(run))
        start, end = self._span(recording)
        return RecordedRun(run.tolist(), (self.proposed[start:end] > 0).tolist())

    def _follow(self, recorded: RecordedRun) -> RunCursor:
        """Return a cursor at the begin of a recorded request."""
        return RunCursor(recorded)

    def _odds(self, gamma: int, exit: Exit | None) -> Odds:
        """Return the shares over every start at which something is proposed, visited or not."""
        positions = self.positions()
        if self.proposed is None:
            matched = positions
        else:
            matched = positions[self.proposed[positions] > 0]
        kept = np.bincount(np.minimum(self.kept[matched], gamma), minlength=gamma + 1) / max(
            1, len(matched)
        )
        unmatched = 1.0 - len(matched) / len(positions)
        return Odds(kept, np.zeros(gamma + 1), 0.0, "marginal run lengths of the trace", unmatched)

    def with_runs(self, run: Ints) -> "RecordedRuns":
        """Return the same with other tokens kept at each position (positions,)."""
        return RecordedRuns(self, run, self.most, self.proposed)

    @property
    def most(self) -> int:
        """Return the most draft tokens that are kept."""
        return int(self.trace.header["window"])


@dataclasses.dataclass(frozen=True, eq=False)
class SureRun(RecordedRun):
    """What one recorded request kept, and how sure its drafter was of it."""

    confidences: Floats
    """(positions, window) chance of each draft token, given those before."""


class SureCursor(RunCursor):
    """A run cursor that knows how sure its drafter is of the next block."""

    recorded: SureRun

    @property
    def confidences(self) -> Floats:
        """Return (window,) the chance of each token of the next block, given those before."""
        return np.asarray(self.recorded.confidences[self.position], dtype=np.float64)


class SureRuns(RecordedRuns):
    """Recorded runs whose cursors know how sure the drafter is.

    ``calibrate`` returns (positions, window) chances from the tokens kept at each position and the
    positions to which they are fitted: what changes the one changes the other. These, and those of
    the odds, are all positions, or with ``as_decoded`` those at which decoding starts whole blocks:
    few in stretches that are copied.
    """

    reads_more = True

    def __init__(
        self,
        replay: Replay,
        run: Ints,
        window: int,
        calibrate: Callable[[Ints, Ints], Floats],
        as_decoded: bool = False,
    ) -> None:
        super().__init__(replay, run, window)
        self.calibrate = calibrate
        self.as_decoded = as_decoded

    @cached_property
    def confidences(self) -> Floats:
        """Return (positions, window) the chance of each token of the block that starts there, given
        those before it.
        """
        return self.calibrate(self.kept, self.starts())

    def starts(self) -> Ints:
        """Return (starts,) the positions that the odds are about."""
        if not self.as_decoded:
            return self.positions()
        starts = list[int]()
        for recording in self.order:
            position, end = self._span(recording)
            while position < end:
                starts.append(position)
                position += int(self.kept[position]) + 1
        return np.array(starts, dtype=np.int64)

    def with_runs(self, run: Ints) -> RecordedRuns:
        """Return the same with other tokens kept at each position, calibrated anew."""
        return SureRuns(self, run, self.most, self.calibrate, self.as_decoded)

    def _recorded(self, recording: int, run: Ints) -> RecordedRun:
        """Return what a request kept, and how sure its drafter was."""
        start, end = self._span(recording)
        return SureRun(run.tolist(), [True] * len(run), self.confidences[start:end])

    def _follow(self, recorded: RecordedRun) -> RunCursor:
        """Return a cursor that knows how sure the drafter is."""
        return SureCursor(recorded)

    def _odds(self, gamma: int, exit: Exit | None) -> Odds:
        """Return the shares over the starts, with the slots of their blocks in their order."""
        starts = self.starts()
        run = np.minimum(self.kept[starts], gamma)
        slots = RankedSlots(self.confidences[starts, :gamma], run)
        shares = np.bincount(run, minlength=gamma + 1) / len(run)
        what = "steps" if self.as_decoded else "marginal run lengths"
        none = np.zeros(gamma + 1)
        return Odds(shares, none, 0.0, f"{what} of the trace", slots=slots)


class MatchCursor(Forking):
    """A match cursor draws for every step whether there is something to propose."""

    def __init__(self, cursor: Cursor, random: Random, share: float) -> None:
        self.cursor = cursor
        self.random = random
        self.share = share
        self.drawn = list[bool]()
        """Whether there is something to propose, by step so far; forks share it."""
        self.step = 0

    @property
    def matched(self) -> bool:
        """Return whether there is something to propose in this step."""
        while self.step >= len(self.drawn):
            self.drawn.append(self._drawn(len(self.drawn)))
        return self.drawn[self.step]

    def _drawn(self, step: int) -> bool:
        """Return whether there is something to propose in a step, which is drawn now."""
        return self.random.random() < self.share

    @property
    def can_fork(self) -> bool:
        """Return whether the cursor of the verdicts does."""
        return forks(self.cursor)

    def fork(self) -> Self:
        """Return a cursor at the same step."""
        fork = copy(self)
        fork.cursor = forked(self.cursor)
        return fork

    def judge(self, proposal: Chain) -> Verdict:
        """Verify a proposal and return the verdict; a step without a proposal uses up none of the
        verdicts.
        """
        self.step += 1
        if proposal.tokens:
            return self.cursor.judge(proposal)
        return Verdict(0, 1, False, False)


class DrawnMatches:
    """Drawn matches are stated verdicts for look-up: a ``share`` of the steps, drawn independently,
    propose something.
    """

    def __init__(self, verdicts: Acceptance, share: float, seed: int = 0) -> None:
        self.verdicts = verdicts
        self.share = share
        self.seed = seed

    def cursor(self, request: int, exit: Exit | None) -> MatchCursor:
        """Return a cursor with random numbers of its own."""
        random = Random(f"{self.seed}/match/{request}")
        return MatchCursor(self.verdicts.cursor(request, exit), random, self.share)

    def odds(self, gamma: int, exit: Exit | None) -> Odds:
        """Return the odds of the verdicts, for the steps that propose something."""
        return dataclasses.replace(self.verdicts.odds(gamma, exit), unmatched=1.0 - self.share)


class Recording:
    """A recording is one recorded request of a trace: its arrays from position 1 on, and the
    position of a replay in it.
    """

    def __init__(self, trace: Trace, recording: int) -> None:
        self.trace = trace
        self.recording = recording
        self.start = int(trace.offsets[recording]) + 1
        self.end = int(trace.offsets[recording + 1])
        self.position = 0

    def array(self, name: str) -> NDArray[np.generic]:
        """Return (..., positions) ``Trace.extra[name]`` of this request; raises KeyError where it
        was not recorded.
        """
        return self.trace.extra[name][..., self.start : self.end]

    def move(self, tokens: int) -> None:
        """Move on by ``tokens``, from the end back to the start."""
        self.position = (self.position + tokens) % (self.end - self.start)


def recorded_passages(trace: Trace, recording: int, beam: Beam) -> Iterator[Passage]:
    """Return the passage of every token of one recorded request, as recorded live; behind the end,
    from the first one again.

    Reads ``beam.steps``, ``beam.hit`` and ``beam.rows``. Raises ValueError for a tree that was not
    recorded.
    """
    recorded = recorded_beams(trace)
    if beam not in recorded:
        raise ValueError(f"{beam} is not recorded; {', '.join(map(str, recorded)) or 'no tree is'}")
    index = recorded.index(beam)
    here = Recording(trace, recording)
    steps, hit, rows = (here.array(f"beam.{name}")[index] for name in ("steps", "hit", "rows"))
    tokens = zip(
        steps.tolist(), rows[: beam.stages].T.tolist(), hit.astype(bool).tolist(), strict=True
    )
    return cycle([Passage(*token) for token in tokens])


class PassageCursor:
    """A passage cursor takes one request's passages, one after another."""

    def __init__(self, passages: Iterator[Passage]) -> None:
        self.passage = passages.__next__
        """Returns the next passage."""

    def judge(self, proposal: Chain) -> Verdict:
        """Return the verdict of one token without the pipeline, as a prefill emits it."""
        self.passage()
        return Verdict(0, 1, False, False)


class RecordedPassages:
    """Recorded passages give acceptance to a pipeline tree from a trace: every request walks one
    recording.

    ``odds`` of a window of one token are the share of recorded tokens that were in the tree.
    """

    def __init__(self, replay: Replay, beam: Beam) -> None:
        self.replay = replay
        self.beam = beam

    def cursor(self, request: int, exit: Exit | None) -> PassageCursor:
        """Return a cursor over the recording that is assigned to this request."""
        order = self.replay.order
        return PassageCursor(
            recorded_passages(self.replay.trace, order[request % len(order)], self.beam)
        )

    def odds(self, gamma: int, exit: Exit | None) -> Odds:
        """Return odds with the marginal share of hits as the chance of every position."""
        trace = self.replay.trace
        index = recorded_beams(trace).index(self.beam)
        hit = float(trace.extra["beam.hit"][index][self.replay.positions()].mean())
        return chain_odds(
            [hit] * gamma, [0.0] * gamma, 0.0, 0.0, "marginal hits of the recorded tree"
        )


class DrawnPassages:
    """Drawn passages come from stated verdicts: a token is in the pipeline tree if a window of one
    token is kept.

    After a miss a tree grows into an empty pipeline; no refill is partial. The branches that a
    token leaves are not known, so that every level but that of the token keeps all its rows: no
    fewer than any tree would.
    """

    def __init__(self, verdicts: Acceptance, beam: Beam) -> None:
        self.verdicts = verdicts
        self.beam = beam

    def cursor(self, request: int, exit: Exit | None) -> PassageCursor:
        """Return a cursor with a pipeline of its own."""
        return PassageCursor(self._passages(self.verdicts.cursor(request, exit)))

    def odds(self, gamma: int, exit: Exit | None) -> Odds:
        """Return the odds of the verdicts."""
        return self.verdicts.odds(gamma, exit)

    def _passages(self, cursor: Cursor) -> Iterator[Passage]:
        width, branching, stages = self.beam
        depth = 0
        steps = stages
        rows = list[int]()
        while True:
            entered = [
                min(width, branching ** min(depth + step, width.bit_length()))
                for step in range(steps)
            ]
            rows = [*reversed(entered), *rows][:stages]
            hit = cursor.judge(Chain(1)).accepted == 1
            yield Passage(steps, [*rows[:-1], 1], hit)
            depth, steps = (depth + steps, 1) if hit else (0, stages)


def recorded_beams(trace: Trace) -> list[Beam]:
    """Return the recorded pipeline trees, in the order of the arrays; none where a derived trace
    has left them out.
    """
    if "beam.steps" in trace.extra:
        return [Beam(**beam) for beam in trace.header.get("beams", [])]
    return []
