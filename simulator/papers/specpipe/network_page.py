"""What the network between servers costs: a table, in words next to what the paper prints, and a
sweep over links.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FuncFormatter

from simulator.core.numeric import grouped
from simulator.core.world import Span
from simulator.evidence.published import cells
from simulator.papers.specpipe.network import (
    Breaking,
    LinkSweep,
    NetworkPoint,
    NetworkRow,
    NetworkStudy,
)
from simulator.report.blocks import (
    Block,
    Bullets,
    Figure,
    Highlight,
    Page,
    Paragraph,
    Section,
    Table,
)
from simulator.report.columns import Column, table
from simulator.report.drawing import canvas
from simulator.report.panels import BLUE, VERMILLION, Curve, draw, dress
from simulator.report.pipeline_timeline import COLOURS, Box, boxes
from simulator.report.wording import number, share

LEGEND = (
    "ms per token: simulation. Overlapped: links carry while stages prune; in turn: behind that. "
    "Added: more than with all links as within a server and overlapped. Speed-up: over one request "
    "at a time on the plain pipeline, over the same links."
)
PAPER = {"one server": "8x RTX 3090", "two servers": "4x RTX 3090 + 4x RTX 4090"}
"""The hardware that SpecPipe names (sec. 4)."""
SHOWN = 4.0
"""How many times an exchange the two timelines are long."""


def page(result: NetworkStudy) -> Page:
    """Return the page of the network study: the cost in words, a table per scenario, and a picture
    where a link was swept.
    """
    sweep = result.sweep
    rows = result.rows
    said = list(sentences(rows))
    opening: list[Block] = []
    if sweep:
        title = "An exchange, and what links cost"
        opening.append(Figure(title, "network.svg", lambda: network_figure(sweep)))
        said += broken(sweep.breaking)
    by_scenario = grouped(rows, lambda row: row.scenario)
    return Page(
        "What the network between servers costs",
        answer=headline(rows),
        highlights=list(highlights(rows)),
        opening=[*opening, Bullets(said), Paragraph(LEGEND)],
        sections=[Section(name, [_links(name, own)]) for name, own in by_scenario.items()],
    )


def headline(rows: Sequence[NetworkRow]) -> str:
    """Return what the network costs the first scenario that has one, where sending overlaps with
    pruning.
    """
    networked = [row for row in rows if not row.one_server]
    if not networked:
        tpot = number(rows[0].tpot_ms, 3)
        return (
            f"All stages share a server: {tpot} ms per token where sending overlaps with pruning."
        )
    first = networked[0]
    added = number(first.added_ms, 3)
    added_share = share(first.added_share)
    return (
        f"The network between servers costs {first.scenario} {added} ms per token ({added_share}) "
        "where sending overlaps with pruning."
    )


def highlights(rows: Sequence[NetworkRow]) -> Iterator[Highlight]:
    """Yield time per token, the network's part of it and the speed-up of the last scenario, with
    sending overlapped.
    """
    last = [row for row in rows if row.overlapped][-1]
    tpot = number(last.tpot_ms, 3)
    added = number(last.added_ms, 3)
    yield Highlight(f"{tpot} ms", f"per token, {last.scenario}, sending while stages prune")
    yield Highlight(f"{added} ms", "of that added by the network")
    yield Highlight(f"{last.speedup:.2f} ×", "as fast as the plain pipeline over the same links")


def _links(scenario: str, rows: Sequence[NetworkRow]) -> Table:
    """Return the table of a scenario, with its links as they are and as within a server."""
    networked = any(not row.one_server for row in rows)

    def between(row: NetworkRow) -> str:
        if not row.one_server:
            return "network"
        if networked:
            return "as within one"
        return "none"

    columns: list[Column[NetworkRow]] = [
        Column("between servers", between),
        Column("sending", _sending),
        Column("ms per token", lambda row: number(row.tpot_ms)),
        Column("added ms", lambda row: number(row.added_ms)),
        Column("added", lambda row: share(row.added_share)),
        Column("speed-up", lambda row: f"{row.speedup:.2f}"),
    ]
    return table(f"Network of {scenario}", rows, columns)


def _sending(row: NetworkRow | Breaking) -> str:
    if row.overlapped:
        return "overlapped"
    return "in turn"


def sentences(rows: Sequence[NetworkRow]) -> Iterator[str]:
    """Yield the cost of the networks, and how the first and the last scenario compare in the
    paper's terms.
    """
    for overlapped, in_turn in pairwise(rows):
        if not overlapped.one_server and overlapped.overlapped:
            hidden = _added(overlapped)
            shown = _added(in_turn, unit="ms")
            yield (
                f"{overlapped.scenario}: the network between servers costs {hidden} where sending "
                f"is overlapped with pruning, {shown} where it is not."
            )
    first = rows[0]
    networked = [row for row in rows if row.overlapped and not row.one_server]
    last = networked[-1] if networked else first
    if first.scenario != last.scenario:
        of_last = [row for row in rows if row.scenario == last.scenario]
        alone = next(row for row in of_last if row.one_server and row.overlapped)
        less = share(1 - last.speedup / first.speedup)
        by_devices = share(1 - alone.speedup / first.speedup)
        yield (
            f"Speed-up over the plain pipeline: {first.speedup:.2f} times for {first.scenario}, "
            f"{last.speedup:.2f} for {last.scenario}: {less} less, of which {by_devices} without "
            f"any network, from the devices alone. {published()}"
        )


def _added(row: NetworkRow, unit: str = "ms a token") -> str:
    """Return what the network adds to a token, and its share of the time without it."""
    added = number(row.added_ms)
    added_share = share(row.added_share)
    return f"{added} {unit} ({added_share})"


def published() -> str:
    """Return the speed-ups that the paper prints (sec. 4.2) and their ratio, by the ends of its
    ranges.
    """
    ends = {name: _ends(hardware) for name, hardware in PAPER.items()}
    losses = []
    for one_server, two_servers in zip(*ends.values(), strict=True):
        losses.append(share(1 - two_servers / one_server))
    less = " and ".join(losses)
    ranges = ", ".join(f"{low:g} to {high:g} on {name}" for name, (low, high) in ends.items())
    return f"SpecPipe prints {ranges}: {less} less."


def _ends(hardware: str) -> tuple[float, float]:
    """Return the least and the largest improvement that the paper prints for a piece of
    hardware.
    """
    printed = {}
    for cell in cells()["specpipe"]:
        improvement = cell.quantity == "tbt_improvement_over_PP" and cell.source == "Sec 4.2"
        if improvement and cell.hardware.startswith(hardware):
            printed[cell.qualifier] = float(cell.published)
    return printed["range_min"], printed["range_max"]


def broken(breakings: Sequence[Breaking]) -> Iterator[str]:
    """Yield where the network makes a token take twice as long."""
    for limit in breakings:
        if limit.latency_ms is None:
            latency = "at no latency up to 1 s"
        else:
            latency_ms = number(limit.latency_ms, 2)
            latency = f"from {latency_ms} ms of latency on"
        if limit.gbit_s is None:
            rate = "at no rate down to 1 Mbit/s"
        else:
            gbit_s = number(limit.gbit_s, 2)
            rate = f"below {gbit_s} Gbit/s"
        yield (
            f"{limit.scenario}, sending {_sending(limit)}: a token takes twice as long as on one "
            f"server {latency} (at {limit.own_gbit_s:g} Gbit/s), or {rate} (at "
            f"{limit.own_latency_ms:g} ms)."
        )


OVERLAPPED = Curve[NetworkPoint](
    lambda point: point.overlapped_ms, "-o", BLUE, "sending while stages prune", look={"ms": 4}
)
IN_TURN = Curve[NetworkPoint](
    lambda point: point.in_turn_ms, "--s", VERMILLION, "sending after pruning", look={"ms": 4}
)


def network_figure(sweep: LinkSweep) -> Drawing:
    """Return stages on both sides of the link, overlapped and in turn, above the ms that links add
    to a token.
    """
    with canvas(5.6) as figure:
        (above, below) = figure.subplots(2, 2, height_ratios=(1, 2))
        for axes, spans, curve in zip(above, sweep.exchanges, (OVERLAPPED, IN_TURN), strict=True):
            _exchange(axes, spans, sweep.link)
            axes.set_title(curve.label, size=9, loc="left")
        shown = ("compute", "prune", "transmit")
        patches = [Patch(color=COLOURS[label], label=label) for label in shown]
        above_title = (0.0, 1.18)
        above[0].legend(handles=patches, loc="lower left", bbox_to_anchor=above_title, ncols=3)
        by_latency, by_rate = below
        draw(by_latency, sweep.by_latency, _latency_ms, OVERLAPPED, IN_TURN)
        draw(by_rate, sweep.by_rate, lambda point: point.gbit_s, OVERLAPPED, IN_TURN)
        _dress(by_latency, "latency between servers (ms)")
        _dress(by_rate, "rate between servers (Gbit/s)")
        by_latency.legend(loc="upper left")
        return figure


def _exchange(axes: Axes, spans: Sequence[Span], link: int) -> None:
    """Draw what the stages on both sides of a link do around a full level."""
    begin, end = exchange(spans, link)
    begin_ms = begin * 1e3
    long_ms = int((end - begin) * 1e3)
    lanes = (f"stage {link}", f"stage {link + 1}")
    for label, found in boxes(spans, (begin, end), lanes).items():
        outlines = [_outline(box) for box in found]
        outline = Path.make_compound_path(*outlines)
        axes.add_patch(PathPatch(outline, color=COLOURS[label], lw=0))
    axes.set_yticks((0.5, 1.5), lanes)
    axes.set_ylim(2.0, 0.0)
    axes.set_xlim(begin_ms, end * 1e3)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{at - begin_ms:g}"))
    axes.set_xticks([begin_ms + at for at in range(0, long_ms + 1, 5)])
    axes.set_xlabel("time (ms)")


def _outline(box: Box) -> Path:
    """Return the outline of what a device does for a while."""
    left, right, top, bottom = box
    corners = [(left, bottom), (right, bottom), (right, top), (left, top), (left, bottom)]
    return Path(corners, closed=True)


def _latency_ms(point: NetworkPoint) -> float:
    return point.latency_us / 1e3


def _dress(axes: Axes, x_label: str) -> None:
    dress(axes, x_label, "ms per token more than on one server", levels=(0.0,), log_x=10)


def exchange(spans: Sequence[Span], link: int) -> tuple[float, float]:
    """Return begin and end in s of a stretch around a full level on ``link``, with its pruning."""
    carried = [span for span in spans if span.lane == f"link {link}"]
    pruned = [span for span in spans if span.lane == f"stage {link}" and span.label == "prune"]
    longest = max(span.end_s - span.start_s for span in carried)
    full = [span for span in carried if span.end_s - span.start_s > 0.99 * longest]
    settled = len(full) // 2
    for sent in full[settled:]:
        for pruning in pruned:
            if pruning.start_s <= sent.start_s <= pruning.end_s + 1e-9:
                begin = pruning.start_s
                end = max(pruning.end_s, sent.end_s)
                length = end - begin
                return begin - length, begin + (SHOWN - 1) * length
    sent = full[0]
    return sent.start_s, sent.start_s + SHOWN * longest
