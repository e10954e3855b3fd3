"""What the network between servers costs: a table, in words next to what the paper prints, and a sweep over links."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure as Drawing
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from simulator.evidence.published import cells
from simulator.report.blocks import Block, Bullets, Figure, Page, Paragraph, Section, Table
from simulator.report.drawing import canvas
from simulator.report.figures import BLUE, GREY, VERMILLION, log_x
from simulator.report.numbers import number, share
from simulator.report.pipeline_timeline import COLOURS, draw
from simulator.studies.network import Breaking, LinkSweep, NetworkPoint, NetworkRow, NetworkStudy
from simulator.world import Span

HEAD = ("between servers", "sending", "ms per token", "added ms", "added", "speed-up")
LEGEND = (
    "ms per token: simulation. Overlapped: links carry while stages prune; in turn: behind that. Added: more than with all "
    "links as within a server and overlapped. Speed-up: over one request at a time on the plain pipeline, over the same links."
)
PAPER = {"one server": "8x RTX 3090", "two servers": "4x RTX 3090 + 4x RTX 4090"}
"""The hardware that SpecPipe names (sec. 4)."""
SHOWN = 4.0
"""How many times an exchange the two timelines are long."""
SENDING = ((True, "sending while stages prune"), (False, "sending after pruning"))


def page(result: NetworkStudy) -> Page:
    """Return the page of the network study: the cost in words, a table per scenario, and a picture where a link was swept."""
    sweep = result.sweep
    opening: list[Block] = []
    if sweep:
        opening.append(Figure("An exchange, and what links cost", "network.svg", lambda: network_figure(sweep)))
    opening.append(Bullets([*sentences(result.rows), *broken(sweep.breaking if sweep else ())]))
    names = dict.fromkeys(row.scenario for row in result.rows)
    return Page(
        title="What the network between servers costs",
        opening=[*opening, Paragraph(LEGEND)],
        sections=[Section(name, [Table(HEAD, list(table_rows(result.rows, name)), f"Network of {name}")]) for name in names],
    )


def table_rows(rows: Sequence[NetworkRow], scenario: str) -> Iterator[tuple[str, ...]]:
    """Yield a row per simulation of a scenario, under ``HEAD``."""
    simulated = [row for row in rows if row.scenario == scenario]
    networked = any(not row.one_server for row in simulated)
    for row in simulated:
        between = "network"
        if row.one_server:
            between = "as within one" if networked else "none"
        sending = "overlapped" if row.overlapped else "in turn"
        yield between, sending, number(row.tpot_ms), number(row.added_ms), share(row.added_share), f"{row.speedup:.2f}"


def sentences(rows: Sequence[NetworkRow]) -> Iterator[str]:
    """Yield the cost of the networks, and how the first and the last scenario compare in the paper's terms."""
    for overlapped, in_turn in pairwise(rows):
        if not overlapped.one_server and overlapped.overlapped:
            yield (
                f"{overlapped.scenario}: the network between servers costs {number(overlapped.added_ms)} ms a token "
                f"({share(overlapped.added_share)}) where sending is overlapped with pruning, {number(in_turn.added_ms)} ms "
                f"({share(in_turn.added_share)}) where it is not."
            )
    first, networked = rows[0], [row for row in rows if row.overlapped and not row.one_server]
    last = networked[-1] if networked else first
    if first.scenario != last.scenario:
        yield (
            f"Speed-up over the plain pipeline: {first.speedup:.2f} times for {first.scenario}, {last.speedup:.2f} for "
            f"{last.scenario}: {share(1 - last.speedup / first.speedup)} less{_without(rows, first, last)}. {published()}"
        )


def _without(rows: Sequence[NetworkRow], first: NetworkRow, last: NetworkRow) -> str:
    """Return how much less it would be without the network: the part that the devices explain."""
    alone = next(row for row in rows if row.scenario == last.scenario and row.one_server and row.overlapped)
    return f", of which {share(1 - alone.speedup / first.speedup)} without any network, from the devices alone"


def published() -> str:
    """Return the speed-ups that the paper prints (sec. 4.2) and their ratio, by the ends of its ranges."""
    ends = {name: _ends(hardware) for name, hardware in PAPER.items()}
    less = " and ".join(share(1 - two / one_server) for one_server, two in zip(*ends.values(), strict=True))
    ranges = (f"{low:g} to {high:g} on {name}" for name, (low, high) in ends.items())
    return f"SpecPipe prints {', '.join(ranges)}: {less} less."


def _ends(hardware: str) -> tuple[float, float]:
    """Return the least and the largest improvement that the paper prints for a piece of hardware."""
    printed = {
        cell.qualifier: float(cell.published)
        for cell in cells()["specpipe"]
        if cell.quantity == "tbt_improvement_over_PP" and cell.source == "Sec 4.2" and cell.hardware.startswith(hardware)
    }
    return printed["range_min"], printed["range_max"]


def broken(breakings: Sequence[Breaking]) -> Iterator[str]:
    """Yield where the network makes a token take twice as long."""
    for limit in breakings:
        sending = "overlapped" if limit.overlapped else "in turn"
        late, slow = "at no latency up to 1 s", "at no rate down to 1 Mbit/s"
        if limit.latency_ms is not None:
            late = f"from {number(limit.latency_ms, 2)} ms of latency on"
        if limit.gbit_s is not None:
            slow = f"below {number(limit.gbit_s, 2)} Gbit/s"
        yield (
            f"{limit.scenario}, sending {sending}: a token takes twice as long as on one server {late} "
            f"(at {limit.own_gbit_s:g} Gbit/s), or {slow} (at {limit.own_latency_ms:g} ms)."
        )


# ---- the picture


def network_figure(sweep: LinkSweep) -> Drawing:
    """Return stages on both sides of the link, overlapped and in turn, above the ms that links add to a token."""
    link = sweep.link
    with canvas(5.6) as figure:
        (above, below) = figure.subplots(2, 2, height_ratios=(1, 2))
        for axes, spans, (_, title) in zip(above, sweep.exchanges, SENDING, strict=True):
            begin, end = exchange(spans, link)
            draw(axes, spans, (begin, end), (f"stage {link}", f"stage {link + 1}"))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _, begin=begin: f"{at - begin * 1e3:g}"))
            axes.set_xticks([begin * 1e3 + at for at in range(0, int((end - begin) * 1e3) + 1, 5)])
            axes.set_title(title, size=9, loc="left")
            axes.set_xlabel("time (ms)")
        above[0].legend(
            handles=[Patch(color=COLOURS[label], label=label) for label in ("compute", "prune", "transmit")],
            loc="lower left", bbox_to_anchor=(0.0, 1.18), ncols=3,
        )  # fmt: skip
        by_latency = [(point.latency_us / 1e3, point) for point in sweep.by_latency]
        _added(below[0], by_latency, "latency between servers (ms)")
        _added(below[1], [(point.gbit_s, point) for point in sweep.by_rate], "rate between servers (Gbit/s)")
        below[0].legend(loc="upper left")
        return figure


def _added(axes: Any, points: Sequence[tuple[float, NetworkPoint]], label: str) -> None:
    places = [place for place, _ in points]
    axes.plot(places, [point.overlapped_ms for _, point in points], "-o", ms=4, color=BLUE, label=SENDING[0][1])
    axes.plot(places, [point.in_turn_ms for _, point in points], "--s", ms=4, color=VERMILLION, label=SENDING[1][1])
    axes.axhline(0.0, color=GREY, lw=0.8)
    log_x(axes)
    axes.set_xlabel(label)
    axes.set_ylabel("ms per token more than on one server")


def exchange(spans: Sequence[Span], link: int) -> tuple[float, float]:
    """Return begin and end in s of a stretch around a full level on ``link``, with its pruning."""
    carried = [span for span in spans if span.lane == f"link {link}"]
    pruned = [span for span in spans if span.lane == f"stage {link}" and span.label == "prune"]
    longest = max(span.end_s - span.start_s for span in carried)
    full = [span for span in carried if span.end_s - span.start_s > 0.99 * longest]
    for sent in full[len(full) // 2 :]:
        pruning = next((span for span in pruned if span.start_s <= sent.start_s <= span.end_s + 1e-9), None)
        if pruning:
            begin, end = pruning.start_s, max(pruning.end_s, sent.end_s)
            return begin - (end - begin), begin + (SHOWN - 1) * (end - begin)
    sent = full[0]
    return sent.start_s, sent.start_s + SHOWN * longest
