"""Methods next to each other: their features, and one comparison of all of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from simulator.report.blocks import Block, Bullets, Figure, Page, Section, Table
from simulator.report.drawing import canvas
from simulator.report.figures import BLUE, GREY, VERMILLION
from simulator.report.numbers import number
from simulator.studies.crossovers import Crossover
from simulator.studies.method_features import Features
from simulator.studies.methods import ExcludedMethod, MethodComparison, MethodPoint

AnyPoint = TypeVar("AnyPoint", MethodPoint, Crossover)
ORIGINS = {
    "recorded": "acceptance recorded from the scenario's own models",
    "stand_in": "acceptance recorded from other, small models",
    "published": "acceptance published or measured for large models",
    "stated": "acceptance stated by the scenario",
}
"""What a panel or a section of a page says about where acceptance comes from."""
SHORT = {"recorded": "rec.", "published": "publ."}
BAR_IN, PANEL_IN = 0.24, 0.75
"""Height of a bar, and of what surrounds those of a panel, in inches."""
HATCH = {"recorded": "", "stand_in": "", "published": "////", "stated": "...."}
FEATURES = ("method", "free draft", "not trained", "large batch", "dyn. draft", "rows", "1e9", "from")
FEATURES_LEGEND = (
    "Free draft: drafting adds no latency. As in SpecPipe's Table 2, but worked out from the method's law and file",
    "Rows: of the target's pass in one step of a request; 1e9: weights in addition to a target of 7B",
    "From: acceptance is recorded from small models, published as a mean, both, or only yours to state",
)


def page(result: MethodComparison) -> Page:
    """Return the page of the comparison: its picture, and a table of methods for all origins of acceptance."""
    title = f"{result.scenario}: {result.conditions}"
    sections = [Section(words, [_table(points)]) for words, points in by_origin(result.points)]
    notes = Section("How to read it", [Bullets([*_notes(result.points), *left_out(result.excluded)])])
    return Page(
        title=title,
        opening=[Figure("Speed-up of all methods", "methods.svg", lambda: bar_figure(result.points, title))],
        sections=[*sections, notes],
    )


def by_origin(points: Sequence[AnyPoint]) -> Iterator[tuple[str, list[AnyPoint]]]:
    """Yield the sentence about an origin of acceptance, and the points that have this origin."""
    for origin, words in ORIGINS.items():
        chosen = [point for point in points if point.origin == origin]
        if chosen:
            yield f"{words[0].upper()}{words[1:]}", chosen


def _table(points: Sequence[MethodPoint]) -> Table:
    """Return the table of methods with one origin of acceptance, fastest first."""
    stated = any(point.published_speedup for point in points)
    head = ("method", "speed-up", *(("publ.",) if stated else ()), "ms per token", "law", "tokens / step", "draft ms", "rows")
    rows = []
    for point in points:
        ratios = [f"{point.speedup:.2f}"]
        if stated:
            ratios.append("" if point.published_speedup is None else f"{point.published_speedup:.2f}")
        times = (point.tpot_ms, point.law_tpot_ms, point.tokens_per_step, point.draft_ms)
        rows.append((point.method, *ratios, *(number(value, 3) for value in times), str(point.verified_rows)))
    return Table(head, rows, "Methods, fastest first", sortable=True)


def _notes(points: Sequence[MethodPoint]) -> Iterator[str]:
    """Yield what the numbers of the tables are, and which of them may be compared."""
    if len({point.origin for point in points}) > 1:
        yield "The two parts are not comparable: their acceptance is of models of very different size"
    if any(point.published_speedup for point in points):
        yield "publ.: the speed-up that the source of the mean reports, on its own hardware and software"
    for name, words in {point.method: point.rests_on for point in points if point.rests_on}.items():
        yield f"{name}: {words}"
    yield "Times are simulated; law: with marginal acceptance. Draft and rows: of a step in which all propose"
    for name, relation in sorted({point.method: point.relation for point in points if point.relation}.items()):
        yield f"{name}: the law is no equality here ({relation})"


def left_out(excluded: Iterable[ExcludedMethod]) -> Iterator[str]:
    """Yield the methods that do not run here, and why."""
    for method in excluded:
        yield f"{method.method} is left out: {method.reason}"


# ---- features


def features_page(features: Mapping[str, Features]) -> Page:
    """Return the page of features: SpecPipe's Table 2, weights, rows, and where acceptance can come from."""
    rows = []
    for name, method in features.items():
        answers = (method.adds_no_latency, method.no_training, method.large_batch, method.dynamic_draft)
        source = SHORT.get(method.acceptance, method.acceptance)
        cells = ("yes" if answer else "no" for answer in answers)
        rows.append((name, *cells, str(method.verified_rows), _billions(method.extra_weights), source))
    opening: list[Block] = [Table(FEATURES, rows, "Features of methods"), Bullets(list(FEATURES_LEGEND))]
    return Page("Methods and their features", opening=opening, command="specsim list method")


def _billions(weights: int) -> Drawing:
    if not weights:
        return ""
    return "< 0.01" if weights < 10_000_000 else f"{weights / 1e9:.2f}"


# ---- the picture


def bar_figure(points: Sequence[MethodPoint], title: str) -> str:
    """Return the speed-up of all methods over autoregressive decoding, a panel per origin of acceptance."""
    parts = list(by_origin(points))
    sizes = [len(chosen) for _, chosen in parts] or [1]
    with canvas(BAR_IN * sum(sizes) + PANEL_IN * len(sizes) + 0.4) as figure:
        figure.suptitle(title, x=0.01, ha="left", size=9)
        rows = figure.subplots(len(sizes), 1, sharex=True, squeeze=False, height_ratios=[size + 1 for size in sizes])[:, 0]
        for axes, (words, chosen) in zip(rows, parts, strict=False):
            _bars(axes, words, chosen)
        rows[-1].set_xlabel("speed-up over autoregressive decoding (simulation)" + _remarks(points), size=8)
        rows[-1].set_xlim(0.0, 1.28 * max(map(_end, points), default=1.0))
        return figure


def _remarks(points: Sequence[MethodPoint]) -> str:
    """Return what the marks in the picture stand for."""
    text = ""
    if any(point.published_speedup for point in points):
        text += "\ndiamond: published speed-up, on its source's own hardware and software"
    if any("one lane" in point.relation for point in points):
        text += "\n* drafts beside the target on a device of its own, which it does not have here"
    return text


def _end(point: MethodPoint) -> float:
    """Return where the bar or the diamond of a method ends, as a speed-up."""
    return max(point.speedup, point.published_speedup or 0.0)


def _bars(axes: Any, words: str, points: Sequence[MethodPoint]) -> None:
    places, speedups = np.arange(len(points)), [point.speedup for point in points]
    axes.barh(places, speedups, 0.72, color=BLUE, alpha=0.6, hatch=HATCH[points[0].origin], edgecolor="white")
    stated = [(point.published_speedup, place) for place, point in enumerate(points) if point.published_speedup]
    if stated:
        axes.plot(*zip(*stated, strict=True), "D", mfc="white", mec=VERMILLION, mew=1.2, ms=5)
    for place, point in enumerate(points):
        text = f"{point.speedup:.2f}: {point.tokens_per_step:.2f} tokens in {point.step_ms:.1f} ms"
        axes.text(_end(point) + 0.07, place, text, va="center", size=7, color=GREY)
    axes.axvline(1.0, color=GREY, lw=0.8)
    label_rows(axes, words, [f"{point.method} *" if point.relation else point.method for point in points])


def label_rows(axes: Any, words: str, names: Sequence[str]) -> None:
    """Name the rows of a panel, from the top down, and say above it where acceptance comes from."""
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.tick_params(labelbottom=True)
    axes.invert_yaxis()
    axes.set_title(words, loc="left", size=8.5)
