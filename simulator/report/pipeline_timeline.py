"""Timeline of a pipeline as Figure 12 of SpecPipe has it: a row for each device, zoomed out and
zoomed in.

Compute, pruning and transmission have different colours; a link is drawn at the bottom of the row
of the stage that sends.
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from textwrap import wrap
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement

from simulator.core.world import Span
from simulator.report.chart_svg import (
    MARGIN,
    NUMBERS_APART,
    WIDTH,
    add_box,
    add_line,
    add_text,
    blank,
    scale,
    short,
    ticks,
    written,
)
from simulator.report.timeline import OPENING, PARTS, family

COLOURS = {label: colour for (_, label), colour in PARTS.items()}
"""Colours by label, in the order in which they are drawn over each other."""
FAR = 6
"""How many times as much time the zoomed-out panel shows."""
THIN = 0.3
"""Height of a transmission in the row of its stage, in rows."""
HAIR = 1 / 500
"""Smallest width of what is drawn, as a share of the panel's width."""
LEFT = 70.0
"""From the left edge to the rows: the names of the devices."""
ROW = 20.0
LINE = 18.0
"""Height of a row, and of a line of words."""
AXIS = 26.0
"""Height of the numbers below a panel."""
LETTERS = 110
"""Letters of a line of the caption."""
FAR_TITLE = "zoomed out, shaded what is zoomed in below; nothing is drawn thinner than a hair"


class Box(NamedTuple):
    """What a device does for a while: from when to when in ms, from where to where in rows."""

    left_ms: float
    right_ms: float
    top: float
    bottom: float


def pipeline_timeline(
    spans: Sequence[Span], window_s: tuple[float, float], caption: str = ""
) -> str:
    """Draw two panels, zoomed out and zoomed in, as SVG text. ``spans`` are in the order of their
    start; ``window_s``: begin and end of the lower panel in seconds.
    """
    begin, end = window_s
    first = next((span.start_s for span in spans if span.label not in OPENING), begin)
    far = max(first, begin - (FAR - 1) / 2 * (end - begin))
    far_s = (far, far + FAR * (end - begin))
    rows = devices(spans)
    begun = takewhile(lambda span: span.start_s < far_s[1], spans)
    near = [span for span in begun if span.end_s > far]
    lines = wrap(caption, LETTERS)
    out_top = MARGIN + LINE * (len(lines) + 1)
    close_top = out_top + ROW * len(rows) + AXIS + LINE
    legend = close_top + ROW * len(rows) + AXIS + 2 * LINE
    root = blank("Timeline of a few steps", legend + MARGIN)
    for place, line in enumerate(lines, start=1):
        add_text(root, MARGIN, MARGIN + LINE * place - 6, line, "ink")
    add_text(root, LEFT, out_top - 6, FAR_TITLE, "soft")
    _panel(root, near, far_s, rows, out_top, shaded_s=window_s)
    labels = _panel(root, near, window_s, rows, close_top)
    middle = (LEFT + WIDTH - MARGIN) / 2
    add_text(root, middle, legend - LINE, "time (ms)", "ink", "middle")
    x = LEFT
    for label in labels:
        add_box(root, x, legend - 10, 12, 12, "span").set("fill", COLOURS[label])
        add_text(root, x + 18, legend, label, "ink")
        x += 40 + 7 * len(label)
    return written(root)


def _panel(
    root: Element,
    spans: Sequence[Span],
    window_s: tuple[float, float],
    rows: Sequence[str],
    top: float,
    shaded_s: tuple[float, float] | None = None,
) -> list[str]:
    """Draw what the devices do in a window of seconds, below ``top``; return the labels that
    occur.
    """
    group = SubElement(root, "g")
    begin, end = window_s
    limits_ms = (begin * 1e3, end * 1e3)
    right = WIDTH - MARGIN
    bottom = top + ROW * len(rows)
    at = scale(limits_ms, LEFT, right)
    if shaded_s:
        left_ms = shaded_s[0] * 1e3
        right_ms = min(shaded_s[1] * 1e3, end * 1e3)
        add_box(group, at(left_ms), top, at(right_ms) - at(left_ms), bottom - top, "shade")
    for place, name in enumerate(rows):
        add_text(group, LEFT - 8, top + ROW * (place + 0.5) + 4, name, "ink", "end")
    add_line(group, (LEFT, bottom, right, bottom), "axis")
    for value in ticks(limits_ms, (right - LEFT) / NUMBERS_APART):
        add_line(group, (at(value), bottom, at(value), bottom + 4), "axis")
        add_text(group, at(value), bottom + 18, f"{value:.10g}", "soft", "middle")
    found = boxes(spans, window_s, rows)
    for label, drawn in found.items():
        outlines = []
        for box in drawn:
            left = at(box.left_ms)
            wide = at(box.right_ms) - left
            corner = f"M{short(left)} {short(top + ROW * box.top)}"
            high = ROW * (box.bottom - box.top)
            outlines.append(f"{corner}h{short(wide)}v{short(high)}h{short(-wide)}z")
        path = SubElement(group, "path", {"class": "span", "d": "".join(outlines)})
        path.set("style", f"fill: {COLOURS[label]}")
    return list(found)


def devices(spans: Iterable[Span]) -> list[str]:
    """Return the rows from the top: the draft's device, then the stages in order."""
    lanes = {span.lane for span in spans}
    stages = sorted(
        (lane for lane in lanes if family(lane) == "stage"), key=lambda lane: int(lane.split()[1])
    )
    return [*(["draft"] if "draft" in lanes else []), *stages]


def boxes(
    spans: Sequence[Span], window_s: tuple[float, float], rows: Sequence[str]
) -> dict[str, list[Box]]:
    """Return by label what the devices of ``rows`` do in a window of seconds, in the order of
    ``COLOURS``.
    """
    begin, end = window_s
    found: dict[str, list[Box]] = {}
    for span in spans:
        if family(span.lane) == "link":
            device = f"stage {span.lane.split()[1]}"
        else:
            device = span.lane
        if device in rows and span.label in COLOURS and span.start_s < end and span.end_s > begin:
            left_ms = max(span.start_s, begin) * 1e3
            right_ms = max(min(span.end_s, end) * 1e3, left_ms + HAIR * (end - begin) * 1e3)
            bottom = rows.index(device) + 0.9
            top = bottom - (THIN if span.label == "transmit" else 0.8)
            found.setdefault(span.label, []).append(Box(left_ms, right_ms, top, bottom))
    return {label: found[label] for label in COLOURS if label in found}
