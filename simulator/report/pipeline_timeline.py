"""Timeline of a pipeline as Figure 12 of SpecPipe has it: a row for each device, zoomed out and
zoomed in.

Compute, pruning and transmission have different colours; a link is drawn at the bottom of the row
of the stage that sends.
"""

import re
from collections.abc import Iterable, Sequence
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path as MatplotlibPath

from simulator.core.world import Span
from simulator.report.drawing import WIDTH_IN, canvas, drawn
from simulator.report.panels import GREY, SHADE
from simulator.report.timeline import OPENING, PARTS, family

COLOURS = {label: colour for (_, label), colour in PARTS.items()}
"""Colours by label, in the order in which they are drawn over each other."""
FAR = 6
"""How many times as much time the zoomed-out panel shows."""
THIN = 0.3
"""Height of a transmission in the row of its stage, in rows."""
HAIR = 1 / 500
"""Smallest width of what is drawn, as a share of the panel's width."""


def pipeline_timeline(
    spans: Sequence[Span], window_s: tuple[float, float], caption: str = ""
) -> str:
    """Draw two panels, zoomed out and zoomed in, as SVG text; ``window_s``: begin and end of the
    lower panel in seconds.
    """
    begin, end = window_s
    first = min((span.start_s for span in spans if span.label not in OPENING), default=begin)
    far = max(first, begin - (FAR - 1) / 2 * (end - begin))
    rows = len(devices(spans))
    with canvas(1.6 + 2 * 0.26 * rows, WIDTH_IN * 1.2) as figure:
        figure.suptitle(fill(caption, 110), size=8, x=0.01, ha="left")
        out, close = figure.subplots(2, 1)
        out.axvspan(begin * 1e3, end * 1e3, color=SHADE, lw=0, zorder=0)
        labels = draw(out, spans, (far, far + FAR * (end - begin)))
        labels |= draw(close, spans, window_s)
        out.set_title(
            "zoomed out, shaded what is zoomed in below; nothing is drawn thinner than a hair",
            size=8,
            loc="left",
            color=GREY,
        )
        close.set_xlabel("time (ms)")
        handles = []
        for label, colour in COLOURS.items():
            if label in labels:
                handles.append(Patch(color=colour, label=label))
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
        # a hundredth of a point is finer than anybody sees
        return re.sub(r"(\d\.\d\d)\d+", r"\1", drawn(figure).decode())


def devices(spans: Iterable[Span]) -> list[str]:
    """Return the rows from the top: the draft's device, then the stages in order."""
    lanes = {span.lane for span in spans}
    stages = sorted(
        (lane for lane in lanes if family(lane) == "stage"), key=lambda lane: int(lane.split()[1])
    )
    return [*(["draft"] if "draft" in lanes else []), *stages]


def draw(
    axes: Axes, spans: Sequence[Span], window_s: tuple[float, float], rows: Sequence[str] = ()
) -> set[str]:
    """Draw what the devices of ``rows`` (all of them if empty) do in a window of seconds; return
    the labels that occur.
    """
    begin, end = window_s
    names = list(rows) or devices(spans)
    boxes: dict[str, list[MatplotlibPath]] = {}
    for span in spans:
        if family(span.lane) == "link":
            device = f"stage {span.lane.split()[1]}"
        else:
            device = span.lane
        if device in names and span.label in COLOURS and span.start_s < end and span.end_s > begin:
            left = max(span.start_s, begin) * 1e3
            low = names.index(device) + 0.4
            right = max(min(span.end_s, end) * 1e3, left + HAIR * (end - begin) * 1e3)
            high = low - (THIN if span.label == "transmit" else 0.8)
            corners = [(left, low), (right, low), (right, high), (left, high), (left, low)]
            boxes.setdefault(span.label, []).append(MatplotlibPath(corners, closed=True))
    for label in (label for label in COLOURS if label in boxes):
        axes.add_patch(
            PathPatch(MatplotlibPath.make_compound_path(*boxes[label]), color=COLOURS[label], lw=0)
        )
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(begin * 1e3, end * 1e3)
    axes.tick_params(axis="y", length=0)
    return set(boxes)
