"""What the network between servers costs: a table, in words next to what the paper prints, and a
sweep over links.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from matplotlib.figure import Figure as Drawing
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from simulator.evidence.published import cells
from simulator.numeric import grouped
from simulator.report.blocks import Block, Bullets, Figure, Page, Paragraph, Section
from simulator.report.drawing import canvas
from simulator.report.figures import panel
from simulator.report.pipeline_timeline import COLOURS, draw
from simulator.report.wording import Wording, share
from simulator.studies.network import Breaking, LinkSweep, NetworkRow, NetworkStudy
from simulator.world import Span

say = Wording("network")
PAPER = {"one server": "8x RTX 3090", "two servers": "4x RTX 3090 + 4x RTX 4090"}
"""The hardware that SpecPipe names (sec. 4)."""
SHOWN = 4.0
"""How many times an exchange the two timelines are long."""


def page(result: NetworkStudy) -> Page:
    """Return the page of the network study: the cost in words, a table per scenario, and a picture
    where a link was swept.
    """
    sweep, rows = result.sweep, result.rows
    opening: list[Block] = []
    if sweep:
        opening.append(Figure(say("picture"), "network.svg", lambda: network_figure(sweep)))
    opening.append(Bullets([*sentences(rows), *broken(sweep.breaking if sweep else ())]))
    return Page(
        **say.first_screen(rows=rows),
        opening=[*opening, Paragraph(say("legend"))],
        sections=[
            Section(name, [say.table("network", own, rows=own, scenario=name)])
            for name, own in grouped(rows, lambda row: row.scenario).items()
        ],
    )


def sentences(rows: Sequence[NetworkRow]) -> Iterator[str]:
    """Yield the cost of the networks, and how the first and the last scenario compare in the
    paper's terms.
    """
    for overlapped, in_turn in pairwise(rows):
        if not overlapped.one_server and overlapped.overlapped:
            yield say("cost", overlapped=overlapped, in_turn=in_turn)
    first, networked = rows[0], [row for row in rows if row.overlapped and not row.one_server]
    last = networked[-1] if networked else first
    if first.scenario != last.scenario:
        alone = next(
            row
            for row in rows
            if row.scenario == last.scenario and row.one_server and row.overlapped
        )
        yield say("less", first=first, last=last, alone=alone, published=published())


def published() -> str:
    """Return the speed-ups that the paper prints (sec. 4.2) and their ratio, by the ends of its
    ranges.
    """
    ends = {name: _ends(hardware) for name, hardware in PAPER.items()}
    less = " and ".join(
        share(1 - two / one_server) for one_server, two in zip(*ends.values(), strict=True)
    )
    ranges = (f"{low:g} to {high:g} on {name}" for name, (low, high) in ends.items())
    return f"SpecPipe prints {', '.join(ranges)}: {less} less."


def _ends(hardware: str) -> tuple[float, float]:
    """Return the least and the largest improvement that the paper prints for a piece of
    hardware.
    """
    printed = {
        cell.qualifier: float(cell.published)
        for cell in cells()["specpipe"]
        if cell.quantity == "tbt_improvement_over_PP"
        and cell.source == "Sec 4.2"
        and cell.hardware.startswith(hardware)
    }
    return printed["range_min"], printed["range_max"]


def broken(breakings: Sequence[Breaking]) -> Iterator[str]:
    """Yield where the network makes a token take twice as long."""
    for limit in breakings:
        yield say("broken", one=limit)


def network_figure(sweep: LinkSweep) -> Drawing:
    """Return stages on both sides of the link, overlapped and in turn, above the ms that links add
    to a token.
    """
    link = sweep.link
    with canvas(5.6) as figure:
        (above, below) = figure.subplots(2, 2, height_ratios=(1, 2))
        for axes, spans, curve in zip(
            above, sweep.exchanges, say.said["latency_panel"]["curves"], strict=True
        ):
            begin, end = exchange(spans, link)
            draw(axes, spans, (begin, end), (f"stage {link}", f"stage {link + 1}"))
            axes.xaxis.set_major_formatter(
                FuncFormatter(lambda at, _, begin=begin: f"{at - begin * 1e3:g}")
            )
            axes.set_xticks([begin * 1e3 + at for at in range(0, int((end - begin) * 1e3) + 1, 5)])
            axes.set_title(curve["label"], size=9, loc="left")
            axes.set_xlabel("time (ms)")
        above[0].legend(
            handles=[
                Patch(color=COLOURS[label], label=label)
                for label in ("compute", "prune", "transmit")
            ],
            loc="lower left",
            bbox_to_anchor=(0.0, 1.18),
            ncols=3,
        )
        panel(below[0], say, "latency_panel", sweep.by_latency)
        panel(below[1], say, "rate_panel", sweep.by_rate)
        below[0].legend(loc="upper left")
        return figure


def exchange(spans: Sequence[Span], link: int) -> tuple[float, float]:
    """Return begin and end in s of a stretch around a full level on ``link``, with its pruning."""
    carried = [span for span in spans if span.lane == f"link {link}"]
    pruned = [span for span in spans if span.lane == f"stage {link}" and span.label == "prune"]
    longest = max(span.end_s - span.start_s for span in carried)
    full = [span for span in carried if span.end_s - span.start_s > 0.99 * longest]
    for sent in full[len(full) // 2 :]:
        pruning = next(
            (span for span in pruned if span.start_s <= sent.start_s <= span.end_s + 1e-9), None
        )
        if pruning:
            begin, end = pruning.start_s, max(pruning.end_s, sent.end_s)
            return begin - (end - begin), begin + (SHOWN - 1) * (end - begin)
    sent = full[0]
    return sent.start_s, sent.start_s + SHOWN * longest
