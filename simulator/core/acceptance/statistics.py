"""A trace is summed up in numbers: rates, hits, run lengths, and replayed windows next to the
formulas.

Windows are replayed as a run would: from position 1 of every request, each window starting behind
what the one before committed, until the request ends. All means are of accepted draft tokens,
correction or bonus not counted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from simulator.core.acceptance.draft_tree import Beam
from simulator.core.acceptance.sources import Replay
from simulator.core.acceptance.trace import Bools, Trace
from simulator.core.acceptance.tree_replay import recorded_beams
from simulator.core.acceptance.window_replay import WindowReplay
from simulator.core.faults import BadInput, did_you_mean
from simulator.core.numeric import ordered_sum

LONGEST = 16
"""Largest window replayed, in draft tokens."""
WIDTHS = (1, 2, 4, 8, 32)
"""Widths at which hits are counted: whether the emitted token is among that many first choices."""
VOCABULARY_SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
"""Shares of the vocabulary, its most frequent entries, whose tokens are counted."""
FEWEST = 50
"""Windows that must have reached a position for its rate to be shown."""


@dataclass(frozen=True)
class WindowMean:
    """The mean of accepted draft tokens of windows of ``gamma``, in three ways; errors are in per
    cent of the replay.
    """

    gamma: int
    """The window, in draft tokens."""
    replayed: float
    """Mean of the replay."""
    independent: float
    """The i.i.d. formula, rate + rate^2 + ... + rate^gamma, with the replayed rate of one-token
    windows.
    """
    law: float
    """Mean that a law sees: ``Replay.odds``, from all positions, visited or not."""
    independent_error_percent: float | None
    """Error of the i.i.d. formula; None where nothing is accepted."""
    law_error_percent: float | None
    """Error of the law's mean; None where nothing is accepted."""


@dataclass(frozen=True)
class FlavourNumbers:
    """One kind of text has these numbers."""

    flavour: str
    """Name of the kind of text."""
    requests: int
    """Number of recorded requests."""
    tokens: int
    """Number of recorded tokens, those emitted by a prefill included."""
    rate: float
    """Share of all positions at which a draft token is accepted."""
    windows: tuple[WindowMean, ...]
    """Means of replayed windows, from 1 draft token on."""
    by_position: tuple[float, ...]
    """Acceptance at each position of a window of eight, of the windows that got there."""
    repetition: float | None
    """Share of four-token sequences that occur earlier in the same request; None where the tokens
    are not known.
    """


@dataclass(frozen=True)
class Hits:
    """Hits are the emitted tokens among the first ``width`` choices of the draft or of an early
    exit, as shares.
    """

    fraction: float | None
    """Depth of the exit as a share of the target's layers; None: the draft."""
    width: int
    """Number of first choices."""
    everywhere: float
    """Share of hits at all positions."""
    at_corrections: float | None
    """Share of hits at rejected positions, where a correction is looked up; None where nothing was
    rejected.
    """


@dataclass(frozen=True)
class DrafterNumbers:
    """One drafter of the same text has these numbers."""

    name: str
    """Name of the drafter."""
    by_position: tuple[float, ...]
    """Share kept at each position of a window, of the windows that got there; windows start at
    every position.
    """
    window: int
    """Draft tokens, or levels of a tree, that a step proposes; 8 where there is no limit."""
    kept_per_step: float
    """Mean accepted draft tokens of replayed steps."""


@dataclass(frozen=True)
class PipelineNumbers:
    """One dynamic tree in a pipeline has these numbers (SpecPipe)."""

    width: int
    """Nodes of a level."""
    branching: int
    """Children that are considered for a node."""
    stages: int
    """Stages of the pipeline."""
    hit_rate: float
    """Share of tokens that were in the tree."""
    steps_per_token: float
    """Pipeline steps per token; 1 with every level in place."""
    rows_per_step: float
    """Mean rows that enter the first stage."""
    rows_in_flight: float
    """Mean rows at all stages together when a token leaves the last one."""


@dataclass(frozen=True)
class VocabularyShare:
    """The most frequent entries of a vocabulary make up a share of the recorded tokens (Lyanna,
    Figure 7).
    """

    entries: float
    """Share of the vocabulary, its most frequent entries."""
    tokens: float
    """Share of the recorded tokens that they are."""


@dataclass(frozen=True)
class Statistics:
    """The numbers of a trace are those that :func:`statistics` returns."""

    requests: int
    """Number of recorded requests."""
    tokens: int
    """Number of recorded tokens, those emitted by a prefill included."""
    rate: float
    """Share of all positions at which a draft token is accepted."""
    flavours: tuple[FlavourNumbers, ...]
    """Numbers by kind of text."""
    windows: tuple[WindowMean, ...]
    """Means of replayed windows, from 1 draft token on."""
    hits: tuple[Hits, ...]
    """Hits of the draft and of every exit, by width."""
    runs: dict[int, int]
    """Number of endless windows, by accepted draft tokens."""
    repetition: float | None
    """Share of four-token sequences that occur earlier in the same request; None where the tokens
    are not known.
    """
    drafters: tuple[DrafterNumbers, ...]
    """Numbers of every recorded drafter; empty where there is only one."""
    pipelines: tuple[PipelineNumbers, ...]
    """Numbers of every recorded pipeline tree."""
    vocabulary: tuple[VocabularyShare, ...] = ()
    """Shares of tokens by shares of the vocabulary; empty where the tokens are not known."""


def statistics(trace: Trace, flavours: Sequence[str] = (), seed: int = 0) -> Statistics:
    """Return the numbers of a trace, or of its chosen ``flavours``; ``seed`` draws the acceptance
    of a sampled trace.

    Raises :class:`BadInput` for a flavour that the trace does not have.
    """
    unknown = [name for name in flavours if name not in trace.flavours]
    if unknown:
        raise BadInput.at(
            "--flavour",
            f"the trace has no flavour '{unknown[0]}'{did_you_mean(unknown[0], trace.flavours)}",
        )
    replay = Replay(trace, flavours, seed)
    windows = WindowReplay.of(replay)
    endless = windows.kept(int(windows.lengths.max()))
    return Statistics(
        requests=len(replay.order),
        tokens=len(replay.positions()) + len(replay.order),
        rate=float(replay.accepted[replay.positions()].mean()),
        flavours=tuple(_flavour(trace, name, seed) for name in flavours or trace.flavours),
        windows=_windows(replay, windows),
        hits=tuple(_hits(trace, replay)),
        runs={kept: int(endless[kept]) for kept in np.flatnonzero(endless).tolist()},
        repetition=_repetition(trace, replay.order),
        drafters=tuple(_drafter(trace, name, flavours, seed) for name in trace.drafters)
        if len(trace.drafters) > 1
        else (),
        pipelines=tuple(_pipeline(trace, beam, replay) for beam in recorded_beams(trace)),
        vocabulary=tuple(_vocabulary(trace, replay)),
    )


def _drafter(trace: Trace, name: str, flavours: Sequence[str], seed: int) -> DrafterNumbers:
    replay = Replay(trace.drafted_by(name, seed), flavours, seed)
    runs = np.concatenate([replay.runs(recording) for recording in replay.order])
    window = min(replay.trace.window or 8, int(runs.max()), 8)
    reached = np.array([(runs >= depth).sum() for depth in range(window + 1)])
    rates = tuple(float(kept / got) for got, kept in pairwise(reached) if got >= FEWEST)
    return DrafterNumbers(name, rates, window, WindowReplay.of(replay).mean(window))


def _pipeline(trace: Trace, beam: Beam, replay: Replay) -> PipelineNumbers:
    index = recorded_beams(trace).index(beam)
    positions = replay.positions()
    steps, hit, rows = (
        trace.extra[f"beam.{name}"][index][..., positions] for name in ("steps", "hit", "rows")
    )
    pipeline_steps = int(steps.sum())
    entered = int(rows[np.arange(len(rows))[:, None] < steps].sum())
    return PipelineNumbers(
        *beam,
        hit_rate=float(hit.mean()),
        steps_per_token=pipeline_steps / len(positions),
        rows_per_step=entered / pipeline_steps,
        rows_in_flight=float(rows.sum(0).mean()),
    )


def independent(rate: float, gamma: int) -> float:
    """Return the mean accepted draft tokens of a window if every position is accepted with the same
    chance, independently.
    """
    return ordered_sum(rate**position for position in range(1, gamma + 1))


def _windows(replay: Replay, windows: WindowReplay) -> tuple[WindowMean, ...]:
    first = windows.mean(1)
    means = []
    for gamma in range(1, min(LONGEST, replay.trace.window or LONGEST) + 1):
        replayed = windows.mean(gamma)
        formula = independent(first, gamma)
        law = float(replay.odds(gamma, None).mean_accepted)
        errors = []
        for value in (formula, law):
            errors.append((value / replayed - 1.0) * 100.0 if replayed else None)
        means.append(WindowMean(gamma, replayed, formula, law, errors[0], errors[1]))
    return tuple(means)


def _flavour(trace: Trace, name: str, seed: int) -> FlavourNumbers:
    replay = Replay(trace, [name], seed)
    gamma = min(8, trace.window or 8)
    windows = WindowReplay.of(replay)
    return FlavourNumbers(
        flavour=name,
        requests=len(replay.order),
        tokens=len(replay.positions()) + len(replay.order),
        rate=float(replay.accepted[replay.positions()].mean()),
        windows=_windows(replay, windows),
        by_position=windows.by_place(gamma, FEWEST),
        repetition=_repetition(trace, replay.order),
    )


def _hits(trace: Trace, replay: Replay) -> Iterable[Hits]:
    positions = replay.positions()
    rejected = ~replay.accepted[positions]

    def share(fraction: float | None, width: int, hit: Bools) -> Hits:
        return Hits(
            fraction,
            width,
            float(hit.mean()),
            float(hit[rejected].mean()) if rejected.any() else None,
        )

    if len(trace.draft_rank):
        yield from (share(None, width, trace.draft_rank[positions] < width) for width in WIDTHS)
    for fraction in trace.exit_fractions:
        yield from (
            share(fraction, width, trace.on_exit(fraction, width)[positions]) for width in WIDTHS
        )


def _vocabulary(trace: Trace, replay: Replay) -> Iterable[VocabularyShare]:
    """Yield what share of the tokens the most frequent twentieth, tenth, ... of the vocabulary
    are.
    """
    if not len(trace.token):
        return
    size = int(trace.header["vocabulary"])
    counts = np.sort(np.bincount(trace.token[replay.positions()], minlength=size))[::-1].cumsum()
    for share in VOCABULARY_SHARES:
        yield VocabularyShare(share, float(counts[max(1, round(share * size)) - 1] / counts[-1]))


def _repetition(trace: Trace, requests: Sequence[int]) -> float | None:
    if len(trace.token):
        return trace.repetition(requests)
    return None
