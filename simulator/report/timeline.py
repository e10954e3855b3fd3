"""Timelines: a Chrome trace for Perfetto, and a drawing of a few steps as SVG.

Both are made from spans alone, so they show what the lanes did.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10
from textwrap import wrap
from typing import Any, Self

from simulator.world import Span

OPENING = ("prefill", "draft prefill", "first window")
"""Labels of spans that lie before a request's first step."""

BLUE, SKY, ORANGE, VERMILLION = "#0072B2", "#56B4E9", "#E69F00", "#D55E00"
YELLOW, GREEN, PURPLE = "#F0E442", "#009E73", "#CC79A7"
PALETTE = (SKY, ORANGE, GREEN, YELLOW, PURPLE, BLUE, VERMILLION)  # Okabe and Ito
FAMILIES = {
    "target": (SKY, BLUE),
    "draft": (ORANGE, VERMILLION, YELLOW),
    "rendezvous": (GREEN, PURPLE),
    "stage": (BLUE, PURPLE),
    "link": (GREEN,),
}

WIDTH, MARGIN, ROW, GAP = 760.0, 14.0, 46.0, 10.0
EM = 0.62  # width of an average letter of a wide sans serif, in font sizes
STYLE = """
text { font-family: Arial, Helvetica, "Liberation Sans", "DejaVu Sans", sans-serif; }
.page { fill: #ffffff; } .ink { fill: #1a1a1a; } .soft { fill: #595959; }
.lane { fill: #efefef; } .grid { stroke: #c8c8c8; stroke-width: 1; } .edge { stroke: #1a1a1a; stroke-width: 0.5; }
@media (prefers-color-scheme: dark) {
.page { fill: #16181c; } .ink { fill: #ececec; } .soft { fill: #b4b4b4; }
.lane { fill: #2a2d33; } .grid { stroke: #4a4e55; } .edge { stroke: #16181c; }
}
"""


def chrome_trace(spans: Sequence[Span], limit: int = 20_000) -> dict[str, Any]:
    """Return the first ``limit`` spans as Chrome trace events; ``ts`` and ``dur`` in microseconds."""
    tids = {lane: tid for tid, lane in enumerate(lanes_of(spans), start=1)}
    events: list[dict[str, Any]] = [{"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "specsim"}}]
    for lane, tid in tids.items():
        events.append({"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": lane}})
        events.append({"ph": "M", "pid": 1, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}})
    for span in spans[:limit]:
        begin, duration = round(span.start_s * 1e6, 3), round((span.end_s - span.start_s) * 1e6, 3)
        events.append({"ph": "X", "pid": 1, "tid": tids[span.lane], "ts": begin, "dur": duration, "name": span.label})
    shown = min(limit, len(spans))
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"spans": len(spans), "shown": shown}}


def span_data(spans: Sequence[Span], window_s: tuple[float, float], limit: int = 3_000) -> dict[str, Any]:
    """Return the first ``limit`` spans for a drawing that can be zoomed; times in microseconds, ``view`` is shown first.

    ``spans``: lane, kind, start, length; ``kinds``: label and colours of what a lane does.
    """
    shown = [span for span in spans[:limit] if span.end_s > span.start_s]
    lanes = lanes_of(shown)
    colours = _colours(lanes, shown)
    kinds, rows = list(colours), {lane: row for row, lane in enumerate(lanes)}
    return {
        "lanes": lanes,
        "kinds": [{"lane": lane, "label": label, "fill": fill, "ink": ink_on(fill)} for (lane, label), fill in colours.items()],
        "spans": [
            [
                rows[span.lane],
                kinds.index((family(span.lane), span.label)),
                round(span.start_s * 1e6, 2),
                round((span.end_s - span.start_s) * 1e6, 2),
            ]
            for span in shown
        ],
        "view": [round(end * 1e6, 2) for end in window_s],
    }


def ink_on(fill: str) -> str:
    """Return the colour of words on a span of colour ``fill``."""
    return "#ffffff" if fill == BLUE else "#000000"


def lanes_of(spans: Iterable[Span]) -> list[str]:
    """Return lanes in the order target, draft, rendezvous, then the numbered ones: a stage, and the link behind it."""
    roles = list(FAMILIES)

    def place(lane: str) -> tuple[int, int, int, str]:
        name = family(lane)
        role = roles.index(name) if name in roles else len(roles)
        return role if lane == name else len(roles), int(lane[len(name) :] or 0), role, lane

    return sorted({span.lane for span in spans}, key=place)


def family(lane: str) -> str:
    """Return the name of a lane without its number: ``stage`` of ``stage 3``."""
    return lane.rstrip("0123456789").rstrip()


def steady_window(spans: Sequence[Span], steps: int = 3, look: int = 3_000) -> tuple[float, float]:
    """Return begin and end in seconds of the first ``steps`` steps in a row that show most of what can happen.

    A step begins where the first label after the prefill comes back on its lane; stretches with a prefill in them
    are passed over if there are others. Of a pipeline, a stretch is best that begins with all stages at work and goes on
    with most of them idle: a refill. Only the first ``look`` spans are searched.
    """
    spans = [span for span in spans[:look] if span.end_s > span.start_s]
    working = [span for span in spans if span.label not in OPENING]
    if not working:
        return (0.0, max((span.end_s for span in spans), default=1e-3))
    first = working[0]
    begins = [span.start_s for span in working if (span.lane, span.label) == (first.lane, first.label)]
    windows = list(zip(begins, begins[steps:], strict=False)) or [(first.start_s, working[-1].end_s)]

    by_start = sorted(spans, key=lambda span: span.start_s)
    starts, longest_s = [span.start_s for span in by_start], max(span.end_s - span.start_s for span in spans)

    def shown(window: tuple[float, float]) -> tuple[bool, int, bool, float]:
        near = by_start[bisect_left(starts, window[0] - longest_s) : bisect_left(starts, window[1])]
        inside = [span for span in near if span.end_s > window[0]]
        stages = [span for span in inside if family(span.lane) == "stage"]
        computed = sum(span.end_s - span.start_s for span in stages)
        full = len({span.lane for span in stages if span.start_s <= window[0]}) == len({span.lane for span in stages})
        no_prefill = not any(span.label in OPENING for span in inside)
        return no_prefill, len({span.label for span in inside}), full, -computed / (window[1] - window[0])

    return max(windows, key=shown)


def timeline_svg(spans: Sequence[Span], window_s: tuple[float, float], caption: str = "") -> str:
    """Draw lanes as rows, spans as rectangles and gaps as idle; ``window_s``: begin and end in seconds; SVG text."""
    drawing = _Drawing.of(spans, window_s)
    top = MARGIN
    body: list[str] = []
    for line in wrap(caption, floor((WIDTH - 2 * MARGIN) / (13 * EM))):
        top += 17
        body.append(_text(MARGIN, top - 4, line, 13))
    top += 8
    bottom = top + len(drawing.lanes) * (ROW + GAP)
    body.extend(drawing.axis(top, bottom))
    for row, lane in enumerate(drawing.lanes):
        body.append(f'<g class="row" id="lane-{escape(lane)}">')
        body.extend(drawing.row(lane, top + row * (ROW + GAP)))
        body.append("</g>")
    legend, height = drawing.legend(bottom + 56)
    body.extend(legend)
    size = f'width="{WIDTH:g}" height="{height:g}" viewBox="0 0 {WIDTH:g} {height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>Timeline of a few steps</title>'
    return "\n".join([head, f"<style>{STYLE}</style>", '<rect class="page" width="100%" height="100%"/>', *body, "</svg>", ""])


@dataclass(frozen=True)
class _Drawing:
    """A drawing of lanes over a window of time: lengths in user units of the SVG, times in seconds."""

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
        inside = [s for s in spans if s.start_s < end - tiny and s.end_s > begin + tiny and s.end_s > s.start_s]
        left = MARGIN + max([*(len(lane) * 13 * EM for lane in lanes), 80.0]) + 10
        return cls(lanes, inside, _colours(lanes, inside), begin, end, left)

    def x(self, time: float) -> float:
        clipped = min(max(time, self.begin), self.end)
        return self.left + (clipped - self.begin) / (self.end - self.begin) * (WIDTH - MARGIN - self.left)

    def axis(self, top: float, bottom: float) -> Iterator[str]:
        length_ms = (self.end - self.begin) * 1e3
        step = _tick(length_ms / 8)
        for index in range(floor(length_ms / step + 1e-9) + 1):
            x = self.x(self.begin + index * step * 1e-3)
            yield f'<line class="grid" x1="{x:.2f}" y1="{top:.2f}" x2="{x:.2f}" y2="{bottom:.2f}"/>'
            yield _text(x, bottom + 14, f"{index * step:.10g}", 12, "soft", "middle")
        name = f"time in ms, from {self.begin * 1e3:.2f} ms of the simulation on"
        yield _text((self.left + WIDTH - MARGIN) / 2, bottom + 32, name, 12, "soft", "middle")

    def row(self, lane: str, top: float) -> Iterator[str]:
        lane_spans = [span for span in self.spans if span.lane == lane]
        busy = sum(min(span.end_s, self.end) - max(span.start_s, self.begin) for span in lane_spans)
        yield _text(MARGIN, top + 20, lane, 13)
        yield _text(MARGIN, top + 35, f"busy {busy / (self.end - self.begin) * 100:.1f} %", 11, "soft")
        room = WIDTH - MARGIN - self.left
        yield f'<rect class="lane" x="{self.left:.2f}" y="{top:.2f}" width="{room:.2f}" height="{ROW:g}"/>'
        free = self.begin
        for span in lane_spans:
            yield from self._idle(free, span.start_s, top)
            yield from self._box(span, top)
            free = max(free, span.end_s)
        yield from self._idle(free, self.end, top)

    def _idle(self, begin: float, end: float, top: float) -> Iterator[str]:
        room = self.x(end) - self.x(begin)
        lines = _fitting(("idle", f"{(end - begin) * 1e3:.3g} ms"), room, 11)
        yield from _lines((self.x(begin) + self.x(end)) / 2, top, lines, 'class="soft"')

    def _box(self, span: Span, top: float) -> Iterator[str]:
        wide = max(1.6, self.x(span.end_s) - self.x(span.start_s))
        x = min(self.x(span.start_s), WIDTH - MARGIN - wide)
        fill = self.colours[family(span.lane), span.label]
        milliseconds = f"{(span.end_s - span.start_s) * 1e3:.3g} ms"
        yield f"<g><title>{escape(span.label)}: {milliseconds}</title>"
        yield f'<rect class="edge" x="{x:.2f}" y="{top:.2f}" width="{wide:.2f}" height="{ROW:g}" fill="{fill}"/>'
        yield from _lines(x + wide / 2, top, _labelled(span.label, milliseconds, wide), f'fill="{ink_on(fill)}"')
        yield "</g>"

    def legend(self, top: float) -> tuple[list[str], float]:
        """Return the elements of the legend, and the height of the whole picture."""
        parts: list[str] = []
        x, y = self.left, top
        entries = [(f"{lane}: {label}", colour) for (lane, label), colour in self.colours.items()]
        for name, colour in entries:
            wide = 18 + len(name) * 12 * EM + 14
            if x + wide > WIDTH - MARGIN and x > self.left:
                x, y = self.left, y + 20
            parts.append(f'<rect class="edge" x="{x:.2f}" y="{y - 10:.2f}" width="12" height="12" fill="{colour}"/>')
            parts.append(_text(x + 18, y, name, 12))
            x += wide
        return parts, y + MARGIN


def _colours(lanes: Sequence[str], spans: Iterable[Span]) -> dict[tuple[str, str], str]:
    """Return a colour for each family of lanes and label; the same label in two families has two colours."""
    labels = sorted({(lanes.index(span.lane), span.label) for span in spans})
    chosen: dict[tuple[str, str], str] = {}
    for row, label in labels:
        lane, used = family(lanes[row]), set(chosen.values())
        if (lane, label) in chosen:
            continue
        wanted = (*FAMILIES.get(lane, ()), *PALETTE)
        chosen[lane, label] = next((colour for colour in wanted if colour not in used), wanted[len(chosen) % len(wanted)])
    return chosen


def _tick(length: float) -> float:
    """Return the round number (1, 2 or 5 times a power of ten) at or above ``length``."""
    power = 10.0 ** floor(log10(length))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= length * (1 - 1e-9))


def _labelled(label: str, milliseconds: str, room: float) -> list[str]:
    """Return the label on at most two lines, and the time; the time alone where the label does not fit."""
    lines = wrap(label, max(1, floor((room - 4) / (11 * EM))), break_long_words=False)
    fits = len(lines) <= 2 and _fitting(lines, room, 11) == lines
    return [*(lines if fits else []), *_fitting([milliseconds], room, 11)]


def _fitting(lines: Sequence[str], room: float, size: float) -> list[str]:
    return [line for line in lines if len(line) * size * EM + 4 <= room]


def _lines(x: float, top: float, lines: Sequence[str], paint: str) -> Iterator[str]:
    """Yield up to three centred lines of text in a row."""
    for index, line in enumerate(lines):
        y = top + ROW / 2 + 4 + (index - (len(lines) - 1) / 2) * 13.5
        yield f'<text x="{x:.2f}" y="{y:.2f}" font-size="11" text-anchor="middle" {paint}>{escape(line)}</text>'


def _text(x: float, y: float, text: str, size: float, style: str = "ink", anchor: str = "start") -> str:
    where = f'x="{x:.2f}" y="{y:.2f}" font-size="{size:g}" text-anchor="{anchor}"'
    return f'<text class="{style}" {where}>{escape(text)}</text>'
