"""Scenarios under the same load: a table for each, and in words who brings more tokens from which size on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console

from simulator.report.console import WIDEST, item, new_table
from simulator.report.markdown import table
from simulator.report.run_summary import number
from simulator.studies.load import Curves, LoadPoint, crossing

HEAD = ("clients", "tokens per second", "ms per token", "TBT p50", "TBT p99", "preempted")
LEGEND = (
    "Simulation of a closed loop: each client has its next request as soon as its last one has ended. Tokens per second are of "
    "all requests, prefills included in the time. Ms per token: of one request behind its first token, waiting to be admitted "
    "left out. TBT: between two deliveries to one request, however many tokens come with one."
)


def rows(points: Iterable[LoadPoint]) -> Iterator[tuple[str, ...]]:
    """One line for each size, under ``HEAD``."""
    for one in points:
        times = (one.tokens_per_s, one.tpot_ms, one.tbt_p50_ms, one.tbt_p99_ms)
        yield (str(one.clients), *map(number, times), str(one.preemptions))


def sentences(curves: Curves) -> Iterator[str]:
    """Every other scenario against the first: crossings of tokens per second, and ratios from two clients on."""
    (reference, theirs), *others = curves.items()
    for name, ours in others:
        yield f"{name} against {reference}: {_crossed(ours, theirs)}{_ratios(ours, theirs)}."


def _crossed(ours: Sequence[LoadPoint], theirs: Sequence[LoadPoint]) -> str:
    ahead = [one.clients for one, other in zip(ours, theirs, strict=True) if one.tokens_per_s > other.tokens_per_s]
    passed = crossing(list(ours), list(theirs))
    sizes = ", ".join(map(str, ahead))
    if passed is None:
        return f"more tokens per second with {sizes} clients" if ahead else "never fewer, never more tokens per second"
    return f"fewer tokens per second from {passed} clients on" + (f", more with {sizes}" if ahead else "")


def _ratios(ours: Sequence[LoadPoint], theirs: Sequence[LoadPoint]) -> str:
    pairs = [(one, other) for one, other in zip(ours, theirs, strict=True) if one.clients > 1]
    if not pairs:
        return ""
    rates = [one.tokens_per_s / other.tokens_per_s for one, other in pairs]
    times = [other.tpot_ms / one.tpot_ms for one, other in pairs]
    return (
        f". From two clients on its throughput is {min(rates):.2f} to {max(rates):.2f} times as high, "
        f"and tokens follow each other {min(times):.2f} to {max(times):.2f} times as fast"
    )


def print_load(curves: Curves, console: Console) -> None:
    """The tables and the sentences."""
    width = min(console.width, WIDEST)
    for name, points in curves.items():
        console.print(name, style="bold", highlight=False)
        shown = new_table(*HEAD)
        for row in rows(points):
            shown.add_row(*row)
        console.print(shown, width=width)
    for sentence in (*sentences(curves), LEGEND):
        item(console, sentence, width)


def sections(curves: Curves) -> Iterator[str]:
    """The same as blocks of a page."""
    if len(curves) > 1:
        yield "\n".join(f"- {sentence}" for sentence in sentences(curves))
    for name, points in curves.items():
        yield f"## {name}"
        yield table(HEAD, rows(points))
    yield LEGEND
