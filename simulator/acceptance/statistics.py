"""What a trace says, in numbers: rates, hits, run lengths, and replayed windows beside the formulas.

Windows are replayed as a run would: from position 1 of every request, each window starting behind what the
one before committed, until the request ends. All means are of accepted draft tokens, correction or bonus
not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from simulator.acceptance.draft_tree import Beam
from simulator.acceptance.sources import Replay
from simulator.acceptance.trace import Bools, Trace
from simulator.acceptance.tree_replay import recorded_beams
from simulator.acceptance.window_replay import WindowReplay
from simulator.files.schema import BadInput, Fault, did_you_mean
from simulator.numeric import ordered_sum

LONGEST = 16
"""Largest window replayed, in draft tokens."""
WIDTHS = (1, 2, 4, 8, 32)
"""Widths at which hits are counted: the emitted token is among that many first choices."""
FEWEST = 50
"""Windows that must have reached a position for its rate to be shown."""


@dataclass(frozen=True)
class WindowMean:
    """Mean accepted draft tokens of windows of ``gamma``, three ways; errors in per cent of the replay."""

    gamma: int
    replayed: float
    independent: float
    """The i.i.d. formula, rate + rate^2 + ... + rate^gamma, with the replayed rate of one-token windows."""
    law: float
    """What a law sees: ``Replay.odds``, from all positions, visited or not."""
    independent_error_percent: float | None
    """None where nothing is accepted."""
    law_error_percent: float | None


@dataclass(frozen=True)
class FlavourNumbers:
    """One kind of text."""

    flavour: str
    requests: int
    tokens: int
    rate: float
    """Share of all positions at which a draft token is accepted."""
    windows: tuple[WindowMean, ...]
    by_position: tuple[float, ...]
    """Acceptance at each position of a window of eight, of the windows that got there."""
    repetition: float | None
    """Share of four-token sequences seen earlier in the same request; None where the tokens are not known."""


@dataclass(frozen=True)
class Hits:
    """Share of emitted tokens among the first ``width`` choices of the draft or of an early exit."""

    fraction: float | None
    """Depth of the exit as a share of the target's layers; None: the draft."""
    width: int
    everywhere: float
    at_corrections: float | None
    """At rejected positions only, where a correction is looked up; None where nothing was rejected."""


@dataclass(frozen=True)
class DrafterNumbers:
    """One way of drafting the same text."""

    name: str
    by_position: tuple[float, ...]
    """Share kept at each position of a window, of the windows that got there; windows start at every position."""
    window: int
    """Draft tokens, or levels of a tree, proposed in a step; 8 where there is no limit."""
    kept_per_step: float
    """Mean accepted draft tokens of replayed steps."""


@dataclass(frozen=True)
class PipelineNumbers:
    """One dynamic tree in a pipeline (SpecPipe)."""

    width: int
    branching: int
    stages: int
    hit_rate: float
    """Share of tokens that were in the tree."""
    steps_per_token: float
    """Pipeline steps per token; 1 with every level in place."""
    rows_per_step: float
    """Mean rows that enter the first stage."""
    rows_in_flight: float
    """Mean rows at all stages together when a token leaves the last one."""


@dataclass(frozen=True)
class Statistics:
    """Everything :func:`statistics` finds."""

    requests: int
    tokens: int
    """Tokens recorded, those emitted by a prefill included."""
    rate: float
    flavours: tuple[FlavourNumbers, ...]
    windows: tuple[WindowMean, ...]
    hits: tuple[Hits, ...]
    runs: dict[int, int]
    """Windows without an end, by accepted draft tokens."""
    repetition: float | None
    """None where the tokens are not known."""
    drafters: tuple[DrafterNumbers, ...]
    """Every drafter that was asked about this text; empty where there is but one."""
    pipelines: tuple[PipelineNumbers, ...]


def statistics(trace: Trace, flavours: Sequence[str] = (), seed: int = 0) -> Statistics:
    """The numbers of a trace, or of its chosen ``flavours``; ``seed`` draws the acceptance of a sampled one."""
    unknown = [name for name in flavours if name not in trace.flavours]
    if unknown:
        message = f"the trace has no flavour '{unknown[0]}'{did_you_mean(unknown[0], trace.flavours)}"
        raise BadInput([Fault(("--flavour", 0, 0), "", message)])
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
        drafters=tuple(_drafter(trace, name, flavours, seed) for name in trace.drafters) if trace.extra else (),
        pipelines=tuple(_pipeline(trace, beam, replay) for beam in recorded_beams(trace)),
    )


def _drafter(trace: Trace, name: str, flavours: Sequence[str], seed: int) -> DrafterNumbers:
    replay = Replay(trace.drafted_by(name, seed), flavours, seed)
    runs = np.concatenate([replay.runs(recording) for recording in replay.order])
    window = min(replay.trace.window or 8, int(runs.max()), 8)
    reached = np.array([(runs >= depth).sum() for depth in range(window + 1)])
    rates = tuple(float(kept / got) for got, kept in pairwise(reached) if got >= FEWEST)
    return DrafterNumbers(name, rates, window, WindowReplay.of(replay).mean(window))


def _pipeline(trace: Trace, beam: Beam, replay: Replay) -> PipelineNumbers:
    index, positions = recorded_beams(trace).index(beam), replay.positions()
    steps, hit, rows = (trace.extra[f"beam.{name}"][index][..., positions] for name in ("steps", "hit", "rows"))
    every = int(steps.sum())
    entered = int(rows[np.arange(len(rows))[:, None] < steps].sum())
    return PipelineNumbers(*beam, float(hit.mean()), every / len(positions), entered / every, float(rows.sum(0).mean()))


def independent(rate: float, gamma: int) -> float:
    """Mean accepted draft tokens of a window if every position is accepted alike and on its own."""
    return ordered_sum(rate**position for position in range(1, gamma + 1))


def _windows(replay: Replay, windows: WindowReplay) -> tuple[WindowMean, ...]:
    first = windows.mean(1)
    found = []
    for gamma in range(1, min(LONGEST, replay.trace.window or LONGEST) + 1):
        replayed, formula = windows.mean(gamma), independent(first, gamma)
        law = float(replay.odds(gamma, None).mean_accepted)
        errors = [(value / replayed - 1.0) * 100.0 if replayed else None for value in (formula, law)]
        found.append(WindowMean(gamma, replayed, formula, law, errors[0], errors[1]))
    return tuple(found)


def _flavour(trace: Trace, name: str, seed: int) -> FlavourNumbers:
    replay = Replay(trace, [name], seed)
    gamma = min(8, trace.window or 8)
    windows = WindowReplay.of(replay)
    kept = windows.kept(gamma)
    reached = kept[::-1].cumsum()[::-1]
    return FlavourNumbers(
        flavour=name,
        requests=len(replay.order),
        tokens=len(replay.positions()) + len(replay.order),
        rate=float(replay.accepted[replay.positions()].mean()),
        windows=_windows(replay, windows),
        by_position=tuple(float(reached[i + 1] / reached[i]) for i in range(gamma) if reached[i] >= FEWEST),
        repetition=_repetition(trace, replay.order),
    )


def _hits(trace: Trace, replay: Replay) -> Iterable[Hits]:
    positions = replay.positions()
    rejected = ~replay.accepted[positions]

    def share(fraction: float | None, width: int, hit: Bools) -> Hits:
        return Hits(fraction, width, float(hit.mean()), float(hit[rejected].mean()) if rejected.any() else None)

    if len(trace.draft_rank):
        yield from (share(None, width, trace.draft_rank[positions] < width) for width in WIDTHS)
    for fraction in trace.exit_fractions:
        yield from (share(fraction, width, trace.on_exit(fraction, width)[positions]) for width in WIDTHS)


def _repetition(trace: Trace, requests: Sequence[int]) -> float | None:
    return trace.repetition(requests) if len(trace.token) else None
