"""The study of Speculative Streaming, on screen."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from simulator.report.run_summary import number
from simulator.strategies.speculative_streaming.laws import parity
from simulator.studies.streams import StreamPoint, StreamStudy, TwoModels, best, fall


def print_streams(study: StreamStudy, console: Console) -> None:
    """One line for each tree, then the other model."""
    table = Table("k", "nodes", "kept", "tokens", "step (ms)", "plain steps", "ms/token", "speed-up", "", box=None)
    fastest = best(study.whole), best(study.pruned)
    for point in sorted({*study.whole, *study.pruned}, key=lambda one: (one.branching, one.kept is not None)):
        table.add_row(
            str(point.branching),
            f"{point.nodes:,}",
            "all" if point.kept is None else str(point.kept),
            number(point.tokens_per_step, 3),
            number(point.step_ms),
            f"{point.step_cost:.3f}",
            number(point.tpot_ms),
            f"{point.speedup:.2f}",
            "best" if point in fastest else "",
        )
    console.print(table)
    console.print(
        "Replay of recorded streams. tokens: per step; plain steps: a step in units of one of autoregressive decoding."
    )
    console.print(f"Slower than the chain (k = 1): whole trees {_falls(study.whole)}, pruned ones {_falls(study.pruned)}.")
    emitted = ", ".join(f"{tokens:.2f}" for tokens in study.emitted)
    streams = f"1 to {len(study.emitted)} streams" if len(study.emitted) > 1 else "a stream"
    console.print(
        f"As the drafter of mirror_sd, with {streams}: {emitted} tokens per internal step (strategy.drafter.emitted)."
    )
    if study.two_models:
        console.print(_compared(study.two_models))


def _falls(points: Sequence[StreamPoint]) -> str:
    found = fall(points)
    return f"from k = {found.branching} on" if found else f"nowhere up to k = {points[-1].branching}"


def _compared(other: TwoModels) -> str:
    even = float(parity(other.gamma, other.latency_ratio, other.target_over_single))
    return (
        f"Beside {other.draft} as the draft of {other.gamma} tokens: R = {number(other.latency_ratio, 3)}, "
        f"C_target / C_ss = {number(other.target_over_single, 3)}, zeta / beta = {number(other.token_ratio, 3)} "
        f"(even at {number(even, 3)}): streaming is {number(other.speedup, 3)} times as fast (Eq. 10, law)."
    )
