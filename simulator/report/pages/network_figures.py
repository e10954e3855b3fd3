"""Figure of the network study as SVG text: an exchange with sending overlapped and in turn, and what links cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from simulator.report.figures import BLUE, GREY, LOOK, VERMILLION, WIDTH_IN, svg
from simulator.report.pipeline_timeline import COLOURS, draw
from simulator.studies.network import NetworkPoint
from simulator.world import Span

SHOWN = 4.0
"""How many times an exchange the two timelines are long."""
SENDING = ((True, "sending while stages prune"), (False, "sending after pruning"))


def network_figure(
    exchanges: Sequence[Sequence[Span]], link: int, by_latency: Sequence[NetworkPoint], by_rate: Sequence[NetworkPoint]
) -> str:
    """Above: stages on both sides of ``link`` (counted from 1), overlapped and in turn; below: ms added to a token."""
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(WIDTH_IN, 5.6), layout="constrained")
        (above, below) = figure.subplots(2, 2, height_ratios=(1, 2))
        for axes, spans, (_, title) in zip(above, exchanges, SENDING, strict=True):
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
        _added(below[0], [(one.latency_us / 1e3, one) for one in by_latency], "latency between servers (ms)")
        _added(below[1], [(one.gbit_s, one) for one in by_rate], "rate between servers (Gbit/s)")
        below[0].legend(loc="upper left")
        return svg(figure)


def _added(axes: Any, points: Sequence[tuple[float, NetworkPoint]], label: str) -> None:
    at = [where for where, _ in points]
    axes.plot(at, [one.overlapped_ms for _, one in points], "-o", ms=4, color=BLUE, label=SENDING[0][1])
    axes.plot(at, [one.in_turn_ms for _, one in points], "--s", ms=4, color=VERMILLION, label=SENDING[1][1])
    axes.axhline(0.0, color=GREY, lw=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(label)
    axes.set_ylabel("ms per token more than on one server")


def exchange(spans: Sequence[Span], link: int) -> tuple[float, float]:
    """Begin and end of a stretch around a full level on ``link``, with the pruning before or beside it."""
    carried = [span for span in spans if span.lane == f"link {link}"]
    pruned = [span for span in spans if span.lane == f"stage {link}" and span.label == "prune"]
    longest = max(span.end_s - span.start_s for span in carried)
    full = [span for span in carried if span.end_s - span.start_s > 0.99 * longest]
    for sent in full[len(full) // 2 :]:
        beside = [one for one in pruned if one.start_s <= sent.start_s <= one.end_s + 1e-9]
        if beside:
            begin, end = beside[0].start_s, max(beside[0].end_s, sent.end_s)
            return begin - (end - begin), begin + (SHOWN - 1) * (end - begin)
    sent = full[0]
    return sent.start_s, sent.start_s + SHOWN * longest
