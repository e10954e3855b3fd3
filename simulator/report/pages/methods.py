"""Methods next to each other: their features, and one comparison of all of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from simulator.core.numeric import grouped
from simulator.core.plain import PlainData
from simulator.report import WANTED
from simulator.report.blocks import (
    THEN,
    Block,
    Bullets,
    Figure,
    Highlight,
    Page,
    Remark,
    Section,
    Standing,
    Table,
)
from simulator.report.columns import Column, table
from simulator.report.drawing import canvas
from simulator.report.pages import decision as decided, parallel_methods
from simulator.report.panels import BLUE, GREY, VERMILLION
from simulator.report.wording import as_sentence, number, shown
from simulator.scenario.decision.answer import Decision
from simulator.studies.crossovers import Crossover
from simulator.studies.method_features import Features
from simulator.studies.methods import ExcludedMethod, MethodComparison, MethodPoint
from simulator.studies.parallel_methods import ParallelComparison

AnyPoint = TypeVar("AnyPoint", MethodPoint, Crossover)
ORIGINS = {
    "recorded": "Acceptance recorded from the scenario's own models",
    "stand_in": "Acceptance recorded from other, small models",
    "published": "Acceptance published or measured for large models",
    "stated": "Acceptance stated by the scenario",
}
"""Origins of acceptance in words, in the order of their panels."""
SHORT_ORIGINS = {
    "recorded": "recorded from its models",
    "stand_in": "of stand-ins",
    "published": "as published",
    "stated": "as stated",
}
NOT_COMPARABLE = (
    "The two parts are not comparable: their acceptance is of models of very different size"
)
PUBLISHED = (
    "publ.: the speed-up that the source of the mean reports, on its own hardware and software"
)
SIMULATED = (
    "Times are simulated; law: with marginal acceptance. Draft and rows: of a step in which all "
    "propose"
)
FEATURES_LEGEND = (
    "Free draft: drafting adds no latency. As in SpecPipe's Table 2, but worked out from the "
    "method's law and file",
    "Rows: of the target's pass in one step of a request; 1e9: weights in addition to a target of "
    "7B",
    "From: acceptance is recorded from small models, published as a mean, both, or only yours to "
    "state",
)
LEAST_WEIGHTS = 10_000_000
"""Weights that a method adds, below which a table only says that they are few."""
BAR_IN = 0.24
PANEL_IN = 0.75
WORDS_OF_BAR: PlainData = {
    "textcoords": "offset points",
    "va": "center",
    "size": 7,
    "color": GREY,
}
BEHIND = (6, 0)
"""From the end of a bar to its words, in points of print."""
BESIDE = 1.28
BESIDE_IN_COLUMN = 2.15
"""Width of a panel over its longest bar, so that words find room beside that."""
"""Height of a bar, and of what surrounds those of a panel, in inches."""


def page(result: MethodComparison | ParallelComparison) -> Page:
    """Return the page of the comparison: its picture, and a table of methods for all origins of
    acceptance; of methods that draft beside the target, their own.
    """
    if isinstance(result, ParallelComparison):
        return parallel_methods.page(result)
    title = f"{result.scenario}: {result.conditions}"
    sections = [Section(words, [_methods(points)]) for words, points in by_origin(result.points)]
    notes = list(_notes(result.points))
    notes += left_out(result.excluded)
    drawing = "Speed-up of all methods"
    picture = Figure(drawing, "methods.svg", lambda: bar_figure(result.points, title))
    return Page(
        title,
        answer=f"{first_decision(result)}{headline(result)}",
        highlights=[*decided.highlights(_first(result)), *highlights(result)],
        opening=[picture, *_reasons(result)],
        sections=[*sections, Section("How to read it", [Bullets(notes)])],
        standing=_standing(result),
    )


def _standing(result: MethodComparison) -> Standing:
    """Return what the first method rests on, and the verdicts on the others."""
    if not result.points:
        return Standing()
    first, *others = result.points
    clauses = []
    for point in others:
        said = f" ({point.decision.verdict})" if point.decision else ""
        clauses.append(f"{point.method} {point.speedup:.2f}x{said}")
    more = [Remark("Others", f"{', '.join(clauses)}.", THEN)] if clauses else []
    return Standing(doubts=first.doubts, more=more)


def _first(result: MethodComparison) -> Decision | None:
    """Return the decision on the first method of the list; None where none runs."""
    if not result.points:
        return None
    return result.points[0].decision


def first_decision(result: MethodComparison) -> str:
    """Return whether the first method of the list helps; empty where none runs."""
    decision = _first(result)
    if decision is None:
        return ""
    return (
        f"Speculation with {result.points[0].method} {decision.verdict}: "
        f"{decided.faster(decision.chance)}. "
    )


def _reasons(result: MethodComparison) -> Iterator[Block]:
    decision = _first(result)
    if decision:
        yield decided.reasons(decision)


def headline(result: MethodComparison) -> str:
    """Return the fastest method of every origin of acceptance."""
    if not result.points:
        return "No method runs here."
    clauses = []
    points_of = grouped(result.points, lambda point: point.origin)
    for origin in sorted(points_of):
        best = max(points_of[origin], key=lambda point: point.speedup)
        clauses.append(
            f"with acceptance {SHORT_ORIGINS[origin]} {best.method} is the fastest: "
            f"{best.speedup:.2f} times autoregressive decoding"
        )
    return as_sentence("; ".join(clauses))


def highlights(result: MethodComparison) -> Iterator[Highlight]:
    """Yield the speed-ups of the first and of the last method, and how many run."""
    if result.points:
        first = result.points[0]
        last = result.points[-1]
        most = f"as fast as autoregressive decoding: {first.method}, {first.acceptance}"
        least = f"as fast: {last.method}, the last of the list, {last.acceptance}"
        yield Highlight(f"{first.speedup:.2f} ×", most)
        yield Highlight(f"{last.speedup:.2f} ×", least)
    run_here = len({point.method for point in result.points})
    yield Highlight(str(run_here), f"methods run here, of {run_here + len(result.excluded)}")


def _methods(points: Sequence[MethodPoint]) -> Table:
    columns: list[Column[MethodPoint]] = [
        Column("method", lambda point: point.method),
        Column("speed-up", lambda point: f"{point.speedup:.2f}"),
    ]
    if any(point.decision for point in points):
        columns.append(Column("verdict", _verdict))
    if any(point.published_speedup for point in points):
        columns.append(Column("publ.", lambda point: shown(point.published_speedup, ".2f")))
    columns += [
        Column("ms per token", lambda point: number(point.tpot_ms, 3)),
        Column("law", lambda point: number(point.law_tpot_ms, 3)),
        Column("tokens / step", lambda point: number(point.tokens_per_step, 3)),
        Column("draft ms", lambda point: number(point.draft_ms, 3)),
        Column("rows", lambda point: point.verified_rows),
    ]
    return table("Methods, fastest first", points, columns, sortable=True)


def _verdict(point: MethodPoint) -> str:
    """Return whether a method helps, and how sure that is."""
    if point.decision is None:
        return ""
    return f"{point.decision.verdict}, {decided.chance_words(point.decision.chance)}"


def by_origin(points: Sequence[AnyPoint]) -> Iterator[tuple[str, list[AnyPoint]]]:
    """Yield the sentence about an origin of acceptance, and the points that have this origin."""
    for origin, words in ORIGINS.items():
        chosen = [point for point in points if point.origin == origin]
        if chosen:
            yield words, chosen


def _notes(points: Sequence[MethodPoint]) -> Iterator[str]:
    """Yield what the numbers of the tables are, and which of them may be compared."""
    if len({point.origin for point in points}) > 1:
        yield NOT_COMPARABLE
    if any(point.published_speedup for point in points):
        yield PUBLISHED
    doubts = {point.method: point.rests_on for point in points}
    for name, doubt in doubts.items():
        if doubt:
            yield f"{name}: {doubt}"
    yield SIMULATED
    relations = {point.method: point.relation for point in points if point.relation}
    for name, relation in sorted(relations.items()):
        yield f"{name}: the law is no equality here ({relation})"


def left_out(excluded: Iterable[ExcludedMethod]) -> Iterator[str]:
    """Yield the methods that do not run here, and why."""
    for method in excluded:
        yield f"{method.method} is left out: {method.reason}"


def features_page(features: Mapping[str, Features]) -> Page:
    """Return the page of features: SpecPipe's Table 2, weights, rows, and where acceptance can come
    from.
    """
    columns: list[Column[str]] = [
        Column("method", lambda method: method),
        Column("free draft", lambda method: yes_no(features[method].adds_no_latency)),
        Column("not trained", lambda method: yes_no(features[method].no_training)),
        Column("large batch", lambda method: yes_no(features[method].large_batch)),
        Column("dyn. draft", lambda method: yes_no(features[method].dynamic_draft)),
        Column("rows", lambda method: features[method].verified_rows),
        Column("1e9", lambda method: _billions(features[method].extra_weights)),
        Column("from", lambda method: _from(features[method].acceptance)),
    ]
    shown_features = table("Features of methods", features, columns)
    opening: list[Block] = [shown_features, Bullets(FEATURES_LEGEND)]
    return Page("Methods and their features", opening=opening, command="specsim list method")


def yes_no(value: bool) -> str:
    """Return yes or no."""
    if value:
        return "yes"
    return "no"


def _billions(weights: int) -> str:
    """Return a number of weights in billions; nothing for none."""
    if not weights:
        return ""
    if weights >= LEAST_WEIGHTS:
        return f"{weights / 1e9:.2f}"
    return "< 0.01"


def _from(acceptance: str) -> str:
    return {"recorded": "rec.", "published": "publ."}.get(acceptance, acceptance)


def bar_figure(points: Sequence[MethodPoint], title: str) -> Drawing:
    """Return the speed-up of all methods over autoregressive decoding, a panel per origin of
    acceptance.
    """
    parts = list(by_origin(points))
    sizes = [len(chosen) for _, chosen in parts] or [1]
    with canvas(rows_in(sizes) + 0.4) as figure:
        figure.suptitle(title, x=0.01, ha="left", size=9)
        panels = row_panels(figure, sizes)
        for axes, (words, chosen) in zip(panels, parts, strict=False):
            _bars(axes, words, chosen)
        longest = max(map(_end, points), default=1.0)
        panels[-1].set_xlabel(_axis(points), size=8)
        beside = BESIDE_IN_COLUMN if WANTED.narrow else BESIDE
        panels[-1].set_xlim(0.0, beside * longest)
        return figure


def rows_in(sizes: Sequence[int]) -> float:
    """Return the height in inches of panels with so many rows each."""
    return BAR_IN * sum(sizes) + PANEL_IN * len(sizes)


def row_panels(figure: Drawing, sizes: Sequence[int]) -> Any:
    """Return panels below each other, as high as so many rows each; shape (panels,)."""
    heights = [size + 1 for size in sizes]
    grid = figure.subplots(len(sizes), 1, sharex=True, squeeze=False, height_ratios=heights)
    return grid[:, 0]


def _axis(points: Sequence[MethodPoint]) -> str:
    """Return what the lower axis shows, and what the marks mean."""
    lines = ["speed-up over autoregressive decoding (simulation)"]
    if any(point.published_speedup for point in points):
        lines.append("diamond: published speed-up, on its source's own hardware and software")
    if any("one lane" in point.relation for point in points):
        beside = "* drafts beside the target on a device of its own, which it does not have here"
        lines.append(beside)
    return "\n".join(lines)


def _end(point: MethodPoint) -> float:
    """Return where the bar or the diamond of a method ends, as a speed-up."""
    return max(point.speedup, point.published_speedup or 0.0)


def _bars(axes: Axes, words: str, points: Sequence[MethodPoint]) -> None:
    places = np.arange(len(points))
    speedups = [point.speedup for point in points]
    axes.barh(places, speedups, 0.72, color=BLUE)
    published = []
    published_places = []
    names = []
    for place, point in enumerate(points):
        if point.published_speedup:
            published.append(point.published_speedup)
            published_places.append(place)
        text = f"{point.speedup:.2f}: {point.tokens_per_step:.2f} tokens in {point.step_ms:.1f} ms"
        end = (_end(point), place)
        axes.annotate(text, end, BEHIND, **WORDS_OF_BAR)
        names.append(point.method)
        if point.relation:
            names[-1] += " *"
    if published:
        diamond: PlainData = {"mfc": "white", "mec": VERMILLION, "mew": 1.2, "ms": 5}
        axes.plot(published, published_places, "D", **diamond)
    axes.axvline(1.0, color=GREY, lw=0.8)
    label_rows(axes, words, names)


def label_rows(axes: Axes, words: str, names: Sequence[str]) -> None:
    """Name the rows of a panel, from the top down, and say above it where acceptance comes from."""
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.tick_params(labelbottom=True)
    axes.invert_yaxis()
    axes.set_title(words, loc="left", size=8.5)
