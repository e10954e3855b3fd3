"""What the network between servers costs: a table, and in words beside what the paper prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from rich.console import Console

from simulator.evidence.published import cells
from simulator.report.console import WIDEST, item, new_table
from simulator.report.markdown import table
from simulator.report.run_summary import number, share
from simulator.studies.network import Breaking, NetworkRow

HEAD = ("scenario", "between servers", "sending", "ms per token", "added ms", "added", "speed-up")
LEGEND = (
    "ms per token: simulation. Overlapped: links carry while stages prune; in turn: behind that. Added: more than with all "
    "links as within a server and overlapped. Speed-up: over one request at a time on the plain pipeline, over the same links."
)
PAPER = {"one server": "8x RTX 3090", "two servers": "4x RTX 3090 + 4x RTX 4090"}
"""The hardware that SpecPipe names (sec. 4)."""


def rows(found: Sequence[NetworkRow]) -> Iterator[tuple[str, ...]]:
    """One line for each simulation, under ``HEAD``."""
    networked = {row.scenario for row in found if not row.one_server}
    for one in found:
        between = "as within one" if one.one_server and one.scenario in networked else "none" if one.one_server else "network"
        yield (
            *(one.scenario, between, "overlapped" if one.overlapped else "in turn"),
            *(number(one.tpot_ms), number(one.added_ms), share(one.added_share), f"{one.speedup:.2f}"),
        )


def sentences(found: Sequence[NetworkRow]) -> Iterator[str]:
    """The cost of each network, and how the first and the last scenario compare in the paper's terms."""
    for beside, after in pairwise(found):
        if not beside.one_server and beside.overlapped:
            yield (
                f"{beside.scenario}: the network between servers costs {number(beside.added_ms)} ms a token "
                f"({share(beside.added_share)}) where sending is overlapped with pruning, {number(after.added_ms)} ms "
                f"({share(after.added_share)}) where it is not."
            )
    one, two = found[0], next((row for row in reversed(found) if row.overlapped and not row.one_server), found[0])
    if one.scenario != two.scenario:
        yield (
            f"Speed-up over the plain pipeline: {one.speedup:.2f} times for {one.scenario}, {two.speedup:.2f} for "
            f"{two.scenario}: {share(1 - two.speedup / one.speedup)} less{_without(found, one, two)}. {published()}"
        )


def _without(found: Sequence[NetworkRow], one: NetworkRow, two: NetworkRow) -> str:
    """How much less it would be without the network: what the other devices make of it."""
    alone = next(row for row in found if row.scenario == two.scenario and row.one_server and row.overlapped)
    return f", of which {share(1 - alone.speedup / one.speedup)} without any network, from the devices alone"


def published() -> str:
    """The same of the paper (sec. 4.2): the ends of its ranges."""
    ends = {name: _ends(hardware) for name, hardware in PAPER.items()}
    less = " and ".join(share(1 - two / one) for one, two in zip(*ends.values(), strict=True))
    ranges = (f"{low:g} to {high:g} on {name}" for name, (low, high) in ends.items())
    return f"SpecPipe prints {', '.join(ranges)}: {less} less."


def _ends(hardware: str) -> tuple[float, float]:
    found = {
        cell.qualifier: float(cell.published)
        for cell in cells()["specpipe"]
        if cell.quantity == "tbt_improvement_over_PP" and cell.source == "Sec 4.2" and cell.hardware.startswith(hardware)
    }
    return found["range_min"], found["range_max"]


def print_network(found: Sequence[NetworkRow], console: Console) -> None:
    """The table and the sentences."""
    width = min(console.width, WIDEST)
    for name in dict.fromkeys(row.scenario for row in found):
        console.print(name, style="bold", highlight=False)
        shown = new_table(*HEAD[1:])
        for row in rows(found):
            if row[0] == name:
                shown.add_row(*row[1:])
        console.print(shown, width=width)
    for sentence in (*sentences(found), LEGEND):
        item(console, sentence, width)


def broken(found: Sequence[Breaking]) -> Iterator[str]:
    """Where the network makes a token take twice as long."""
    for one in found:
        sending = "overlapped" if one.overlapped else "in turn"
        late = "at no latency up to 1 s" if one.latency_ms is None else f"from {number(one.latency_ms, 2)} ms of latency on"
        slow = "at no rate down to 1 Mbit/s" if one.gbit_s is None else f"below {number(one.gbit_s, 2)} Gbit/s"
        yield (
            f"{one.scenario}, sending {sending}: a token takes twice as long as on one server {late} "
            f"(at {one.own_gbit_s:g} Gbit/s), or {slow} (at {one.own_latency_ms:g} ms)."
        )


def sections(found: Sequence[NetworkRow], breakings: Sequence[Breaking] = ()) -> Iterator[str]:
    """The same as blocks of a page, with where the network breaks the last scenario."""
    yield "\n".join(f"- {sentence}" for sentence in (*sentences(found), *broken(breakings)))
    yield table(HEAD, rows(found))
    yield LEGEND
