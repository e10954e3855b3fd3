"""Methods next to each other: their features, and one comparison of all of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from matplotlib.figure import Figure as Drawing

from simulator.report.blocks import Block, Bullets, Figure, Page, Section
from simulator.report.drawing import canvas
from simulator.report.panels import BLUE, GREY, VERMILLION
from simulator.report.wording import Wording
from simulator.studies.crossovers import Crossover
from simulator.studies.method_features import Features
from simulator.studies.methods import ExcludedMethod, MethodComparison, MethodPoint

AnyPoint = TypeVar("AnyPoint", MethodPoint, Crossover)
say = Wording("methods")
ORIGINS = ("recorded", "stand_in", "published", "stated")
"""Origins of acceptance, in the order of their panels."""
BAR_IN, PANEL_IN = 0.24, 0.75
"""Height of a bar, and of what surrounds those of a panel, in inches."""


def page(result: MethodComparison) -> Page:
    """Return the page of the comparison: its picture, and a table of methods for all origins of
    acceptance.
    """
    title = f"{result.scenario}: {result.conditions}"
    sections = [
        Section(words, [say.table("methods", points, points=points)])
        for words, points in by_origin(result.points)
    ]
    notes = Section(
        "How to read it", [Bullets([*_notes(result.points), *left_out(result.excluded)])]
    )
    picture = Figure(say("picture"), "methods.svg", lambda: bar_figure(result.points, title))
    return Page(
        **say.first_screen(title=title, result=result),
        opening=[picture],
        sections=[*sections, notes],
    )


def by_origin(points: Sequence[AnyPoint]) -> Iterator[tuple[str, list[AnyPoint]]]:
    """Yield the sentence about an origin of acceptance, and the points that have this origin."""
    for origin in ORIGINS:
        chosen = [point for point in points if point.origin == origin]
        if chosen:
            yield say(origin), chosen


def _notes(points: Sequence[MethodPoint]) -> Iterator[str]:
    """Yield what the numbers of the tables are, and which of them may be compared."""
    stated = any(point.published_speedup for point in points)
    yield from say.all("notes", origins=len({point.origin for point in points}), stated=stated)
    yield from (
        f"{name}: {words}"
        for name, words in {point.method: point.rests_on for point in points}.items()
        if words
    )
    yield say("simulated")
    for name, relation in sorted(
        {point.method: point.relation for point in points if point.relation}.items()
    ):
        yield f"{name}: the law is no equality here ({relation})"


def left_out(excluded: Iterable[ExcludedMethod]) -> Iterator[str]:
    """Yield the methods that do not run here, and why."""
    for method in excluded:
        yield f"{method.method} is left out: {method.reason}"


def features_page(features: Mapping[str, Features]) -> Page:
    """Return the page of features: SpecPipe's Table 2, weights, rows, and where acceptance can come
    from.
    """
    opening: list[Block] = [
        say.table("features", features.items()),
        Bullets(list(say.all("features_legend"))),
    ]
    return Page("Methods and their features", opening=opening, command="specsim list method")


def bar_figure(points: Sequence[MethodPoint], title: str) -> Drawing:
    """Return the speed-up of all methods over autoregressive decoding, a panel per origin of
    acceptance.
    """
    parts = list(by_origin(points))
    sizes = [len(chosen) for _, chosen in parts] or [1]
    with canvas(BAR_IN * sum(sizes) + PANEL_IN * len(sizes) + 0.4) as figure:
        figure.suptitle(title, x=0.01, ha="left", size=9)
        rows = figure.subplots(
            len(sizes), 1, sharex=True, squeeze=False, height_ratios=[size + 1 for size in sizes]
        )[:, 0]
        for axes, (words, chosen) in zip(rows, parts, strict=False):
            _bars(axes, words, chosen)
        stated, beside = (
            any(point.published_speedup for point in points),
            any("one lane" in point.relation for point in points),
        )
        rows[-1].set_xlabel(say("axis", stated=stated, beside=beside), size=8)
        rows[-1].set_xlim(0.0, 1.28 * max(map(_end, points), default=1.0))
        return figure


def _end(point: MethodPoint) -> float:
    """Return where the bar or the diamond of a method ends, as a speed-up."""
    return max(point.speedup, point.published_speedup or 0.0)


def _bars(axes: Any, words: str, points: Sequence[MethodPoint]) -> None:
    places, speedups = np.arange(len(points)), [point.speedup for point in points]
    axes.barh(places, speedups, 0.72, color=BLUE)
    stated = [
        (point.published_speedup, place)
        for place, point in enumerate(points)
        if point.published_speedup
    ]
    if stated:
        axes.plot(*zip(*stated, strict=True), "D", mfc="white", mec=VERMILLION, mew=1.2, ms=5)
    for place, point in enumerate(points):
        text = f"{point.speedup:.2f}: {point.tokens_per_step:.2f} tokens in {point.step_ms:.1f} ms"
        axes.text(_end(point) + 0.07, place, text, va="center", size=7, color=GREY)
    axes.axvline(1.0, color=GREY, lw=0.8)
    label_rows(
        axes, words, [f"{point.method} *" if point.relation else point.method for point in points]
    )


def label_rows(axes: Any, words: str, names: Sequence[str]) -> None:
    """Name the rows of a panel, from the top down, and say above it where acceptance comes from."""
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.tick_params(labelbottom=True)
    axes.invert_yaxis()
    axes.set_title(words, loc="left", size=8.5)
