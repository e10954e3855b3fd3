"""Timelines: a Chrome trace for Perfetto, and a drawing of a few steps as SVG.

Both are made from spans alone, so they show what the lanes did.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor
from textwrap import wrap
from typing import NamedTuple, Self

from simulator.core.plain import PlainData
from simulator.core.serving.cache.tiers import LOAD
from simulator.core.world import Span
from simulator.inputs.writing import json_text
from simulator.report.chart import round_up
from simulator.report.html import rendered
from simulator.report.panels import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, YELLOW

OPENING = ("prefill", "draft prefill", "first window", "KV", LOAD)
"""Labels of spans that lie before a request's first step."""

FAMILIES: dict[str, tuple[str, ...]] = {
    "target": (SKY, BLUE),
    "draft": (ORANGE, VERMILLION, YELLOW),
    "rendezvous": (GREEN, PURPLE),
    "stage": (),
    "link": (),
}
"""Lanes in their order, and the colours that their parts take first."""
SPANS = (
    SKY,
    ORANGE,
    GREEN,
    YELLOW,
    PURPLE,
    BLUE,
    VERMILLION,
    "#999933",
    "#88CCEE",
    "#DDCC77",
    "#EE99AA",
    "#44AA99",
)
"""Okabe and Ito's colours, then some of Paul Tol's, for the parts that are left."""
PARTS = {
    ("draft", "draft level"): GREEN,
    ("stage", "compute"): BLUE,
    ("stage", "prune"): ORANGE,
    ("link", "transmit"): VERMILLION,
}
"""Colours that a part of a lane has in every picture."""

WIDTH = 760.0
MARGIN = 14.0
ROW = 46.0
GAP = 10.0
EM = 0.62  # width of an average letter of a wide sans serif, in font sizes


def chrome_trace(spans: Sequence[Span], limit: int = 20_000) -> str:
    """Return the first ``limit`` spans as Chrome trace events, JSON text; ``ts`` and ``dur`` in
    microseconds.
    """
    shown = spans[:limit]
    tids = {lane: tid for tid, lane in enumerate(lanes_of(shown), start=1)}
    process: PlainData = {"ph": "M", "pid": 1}
    named: list[PlainData] = [process | {"name": "process_name", "args": {"name": "specsim"}}]
    for lane, tid in tids.items():
        thread = process | {"tid": tid}
        named.append(thread | {"name": "thread_name", "args": {"name": lane}})
        named.append(thread | {"name": "thread_sort_index", "args": {"sort_index": tid}})
    labels = {label: json_text(label) for label in {span.label for span in shown}}
    events = [json_text(event, indent=None) for event in named]
    for lane, start_s, end_s, label in shown:
        when = f'"ts": {start_s * 1e6:.3f}, "dur": {(end_s - start_s) * 1e6:.3f}'
        what = f'"tid": {tids[lane]}, "name": {labels[label]}'
        events.append(f'{{"ph": "X", "pid": 1, {when}, {what}}}')
    counts = json_text({"spans": len(spans), "shown": len(shown)}, indent=None)
    every = ",\n".join(events)
    return f'{{"displayTimeUnit": "ms", "otherData": {counts}, "traceEvents": [\n{every}\n]}}\n'


def span_data(
    spans: Sequence[Span], window_s: tuple[float, float], limit: int = 3_000
) -> PlainData:
    """Return the first ``limit`` spans for a drawing that can be zoomed; times in microseconds,
    ``view`` is shown first.

    ``spans``: lane, kind, start, length; ``kinds``: label and colours of what a lane does.
    """
    shown = [span for span in spans[:limit] if span.end_s > span.start_s]
    lanes = lanes_of(shown)
    colours = _colours(lanes, shown)
    kinds = list(colours)
    kinds_data = []
    for (lane, label), fill in colours.items():
        kinds_data.append({"lane": lane, "label": label, "fill": fill, "ink": ink_on(fill)})
    spans_data = []
    for span in shown:
        row = lanes.index(span.lane)
        kind = kinds.index((family(span.lane), span.label))
        times_us = _us(span.start_s, span.end_s - span.start_s)
        spans_data.append([row, kind, *times_us])
    view = _us(*window_s)
    return {"lanes": lanes, "kinds": kinds_data, "spans": spans_data, "view": view}


def _us(*times_s: float) -> list[float]:
    return [round(time_s * 1e6, 2) for time_s in times_s]


def ink_on(fill: str) -> str:
    """Return the colour of words on a span of colour ``fill``."""
    if fill == BLUE:
        return "#ffffff"
    return "#000000"


def lanes_of(spans: Iterable[Span]) -> list[str]:
    """Return lanes in the order target, draft, rendezvous, then the numbered ones: a stage, and the
    link behind it.
    """
    roles = list(FAMILIES)

    def place(lane: str) -> tuple[int, int, int, str]:
        name = family(lane)
        role = len(roles)
        if name in roles:
            role = roles.index(name)
        if lane == name:
            return role, 0, role, lane
        number = int(lane[len(name) :])
        return len(roles), number, role, lane

    return sorted({span.lane for span in spans}, key=place)


def family(lane: str) -> str:
    """Return the name of a lane without its number: ``stage`` of ``stage 3``."""
    return lane.rstrip("0123456789").rstrip()


def steady_window(spans: Sequence[Span], steps: int = 3, look: int = 3_000) -> tuple[float, float]:
    """Return begin and end in seconds of the first ``steps`` steps in a row that show most of what
    can happen.

    A step begins where the first label after the prefill comes back on its lane; stretches with a
    prefill in them are passed over if there are others. Of a pipeline, a stretch is best that
    begins with all stages at work and goes on with most of them idle: a refill. Only the first
    ``look`` spans are searched.
    """
    spans = [span for span in spans[:look] if span.end_s > span.start_s]
    working = [span for span in spans if span.label not in OPENING]
    if not working:
        return (0.0, max((span.end_s for span in spans), default=1e-3))
    by_start = sorted(spans, key=lambda span: span.start_s)
    starts = [span.start_s for span in by_start]
    longest_s = max(span.end_s - span.start_s for span in spans)

    def shown(window: tuple[float, float]) -> tuple[bool, int, bool, float]:
        begin, end = window
        earliest = bisect_left(starts, begin - longest_s)
        near = by_start[earliest : bisect_left(starts, end)]
        inside = [span for span in near if span.end_s > begin]
        stages = [span for span in inside if family(span.lane) == "stage"]
        computed = sum(span.end_s - span.start_s for span in stages)
        at_work = {span.lane for span in stages if span.start_s <= begin}
        full = at_work == {span.lane for span in stages}
        labels = {span.label for span in inside}
        no_prefill = labels.isdisjoint(OPENING)
        return no_prefill, len(labels), full, -computed / (end - begin)

    return max(_windows_of(working, steps), key=shown)


def opening_window(spans: Sequence[Span], steps: int = 3) -> tuple[float, float]:
    """Return begin and end in seconds from the first span to the end of the first ``steps`` steps
    in a row: where prefill and decode are apart, the way of the first request.
    """
    busy = [span for span in spans if span.end_s > span.start_s]
    _, end_s = steady_window(spans, steps)
    working = [span for span in busy if span.label not in OPENING]
    if working:
        _, end_s = _windows_of(working, steps)[0]
    return min((span.start_s for span in busy), default=0.0), end_s


def load_window(spans: Sequence[Span], steps: int = 3) -> tuple[float, float] | None:
    """Return begin and end in seconds from the longest load from a tier of memory to the end of the
    first ``steps`` steps in a row behind it; None where no load has as many behind it.
    """
    loads = [span for span in spans if span.label == LOAD]
    working = [span for span in spans if span.label not in OPENING and span.end_s > span.start_s]
    for load in sorted(loads, key=lambda span: span.start_s - span.end_s):
        behind = [span for span in working if span.start_s >= load.end_s]
        windows = _windows_of(behind, steps) if behind else []
        if len(windows) > 1:
            _, end_s = windows[0]
            return load.start_s, end_s
    return None


def _windows_of(working: Sequence[Span], steps: int) -> list[tuple[float, float]]:
    """Return begin and end in seconds of every ``steps`` steps in a row; all of it where there are
    fewer.
    """
    first = working[0]
    begins = []
    for span in working:
        if (span.lane, span.label) == (first.lane, first.label):
            begins.append(span.start_s)
    windows = list(zip(begins, begins[steps:], strict=False))
    return windows or [(first.start_s, working[-1].end_s)]


def timeline_svg(spans: Sequence[Span], window_s: tuple[float, float], caption: str = "") -> str:
    """Draw lanes as rows, spans as rectangles and gaps as idle; ``window_s``: begin and end in
    seconds; SVG text.
    """
    drawing = _Drawing.of(spans, window_s)
    letters = floor((WIDTH - 2 * MARGIN) / (13 * EM))
    lines = wrap(caption, letters)
    top = MARGIN + 17 * len(lines) + 8
    pitch = ROW + GAP
    bottom = top + len(drawing.lanes) * pitch
    last_line = bottom + 56
    legend = list(drawing.legend(last_line))
    if legend:
        _, last_line, _, _ = legend[-1]
    sizes = {"width": WIDTH, "height": last_line + MARGIN, "margin": MARGIN, "row": ROW}
    places = {"top": top, "bottom": bottom, "pitch": pitch}
    words = {"caption": lines, "legend": legend}
    return rendered("timeline.svg", drawing=drawing, **words, **sizes, **places)


class _Box(NamedTuple):
    """A stretch of a lane: from ``x`` so ``wide``, and the lines of text that fit; without a
    ``fill`` it is idle.
    """

    x: float
    wide: float
    lines: Sequence[str]
    fill: str = ""
    ink: str = ""
    title: str = ""


@dataclass(frozen=True)
class _Drawing:
    """What ``timeline.svg`` draws of a window of time: lengths in user units of the SVG, times in
    seconds.
    """

    lanes: list[str]
    spans: list[Span]
    colours: Mapping[tuple[str, str], str]
    begin: float
    end: float
    left: float

    @classmethod
    def of(cls, spans: Sequence[Span], window_s: tuple[float, float]) -> Self:
        begin, end = window_s
        lanes = lanes_of(spans)
        tiny = (end - begin) * 1e-9
        inside = []
        for span in spans:
            overlaps = span.start_s < end - tiny and span.end_s > begin + tiny
            if overlaps and span.end_s > span.start_s:
                inside.append(span)
        names_wide = 80.0
        for lane in lanes:
            names_wide = max(names_wide, len(lane) * 13 * EM)
        left = MARGIN + names_wide + 10
        return cls(lanes, inside, _colours(lanes, inside), begin, end, left)

    @property
    def axis(self) -> str:
        return f"time in ms, from {self.begin * 1e3:.2f} ms of the simulation on"

    def x(self, time: float) -> float:
        clipped = min(max(time, self.begin), self.end)
        share = (clipped - self.begin) / (self.end - self.begin)
        return self.left + share * (WIDTH - MARGIN - self.left)

    def ticks(self) -> Iterator[tuple[float, str]]:
        length_ms = (self.end - self.begin) * 1e3
        step = round_up(length_ms / 8)
        last = floor(length_ms / step + 1e-9)
        for index in range(last + 1):
            place = self.x(self.begin + index * step * 1e-3)
            yield place, f"{index * step:.10g}"

    def busy(self, lane: str) -> str:
        busy = 0.0
        for span in self.spans:
            if span.lane == lane:
                busy += min(span.end_s, self.end) - max(span.start_s, self.begin)
        percent = busy / (self.end - self.begin) * 100
        return f"busy {percent:.1f} %"

    def boxes(self, lane: str) -> Iterator[_Box]:
        free = self.begin
        for span in (span for span in self.spans if span.lane == lane):
            yield self._idle(free, span.start_s)
            begin = self.x(span.start_s)
            wide = max(1.6, self.x(span.end_s) - begin)
            begin = min(begin, WIDTH - MARGIN - wide)
            fill = self.colours[family(lane), span.label]
            milliseconds = _milliseconds(span.end_s - span.start_s)
            lines = _labelled(span.label, milliseconds, wide)
            title = f"{span.label}: {milliseconds}"
            yield _Box(begin, wide, lines, fill, ink_on(fill), title)
            free = max(free, span.end_s)
        yield self._idle(free, self.end)

    def _idle(self, begin: float, end: float) -> _Box:
        room = self.x(end) - self.x(begin)
        lines = _fitting(("idle", _milliseconds(end - begin)), room, 11)
        return _Box(self.x(begin), room, lines)

    def legend(self, y: float) -> Iterator[tuple[float, float, str, str]]:
        """Yield place, name and colour of each entry, in as many lines as they take."""
        x = self.left
        for (lane, label), colour in self.colours.items():
            name = f"{lane}: {label}"
            wide = 18 + len(name) * 12 * EM + 14
            if x + wide > WIDTH - MARGIN and x > self.left:
                x = self.left
                y = y + 20
            yield x, y, name, colour
            x += wide


def _colours(lanes: Sequence[str], spans: Iterable[Span]) -> dict[tuple[str, str], str]:
    """Return a colour for each family of lanes and label; the same label in two families has two
    colours.
    """
    labels = sorted({(lanes.index(span.lane), span.label) for span in spans})
    kept = set(PARTS.values()) if "stage 1" in lanes else set()
    chosen: dict[tuple[str, str], str] = {}
    for row, label in labels:
        lane = family(lanes[row])
        if (lane, label) in chosen:
            continue
        wanted = (*FAMILIES.get(lane, ()), *SPANS)
        free = [colour for colour in wanted if colour not in kept.union(chosen.values())]
        if (lane, label) in PARTS:
            chosen[lane, label] = PARTS[lane, label]
        elif free:
            chosen[lane, label] = free[0]
        else:
            chosen[lane, label] = wanted[len(chosen) % len(wanted)]
    return chosen


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _labelled(label: str, milliseconds: str, room: float) -> list[str]:
    """Return the label on at most two lines, and the time; the time alone where the label does not
    fit.
    """
    letters = max(1, floor((room - 4) / (11 * EM)))
    lines = wrap(label, letters, break_long_words=False)
    if len(lines) > 2 or _fitting(lines, room, 11) != lines:
        lines = []
    return lines + _fitting([milliseconds], room, 11)


def _fitting(lines: Sequence[str], room: float, size: float) -> list[str]:
    return [line for line in lines if len(line) * size * EM + 4 <= room]
