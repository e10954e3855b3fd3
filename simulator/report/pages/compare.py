"""Scenarios side by side: which is faster, what to know first, what differs, where the time
goes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from matplotlib.figure import Figure as Drawing

from simulator.report.blocks import (
    Block,
    Bullets,
    Code,
    Figure,
    Page,
    Paragraph,
    Section,
    Strong,
    Table,
    Words,
)
from simulator.report.drawing import WIDTH_IN, canvas
from simulator.report.figures import panel
from simulator.report.inputs import resolved_blocks
from simulator.report.panels import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, YELLOW
from simulator.report.wording import Wording, number, share
from simulator.scenario.uncertainty import SHARE
from simulator.studies.compare import ComparedRun, Comparison, Value, measured, parts_ms

FIELDS_SHOWN = 16
"""Fields that differ, of those that a terminal shows."""
say = Wording("compare")
COLOURS = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, YELLOW)
MOST_PARTS = 8
"""Parts of a step that are drawn, the longest; the table of parts has all."""


def page(result: Comparison) -> Page:
    """Return the page of a comparison: the answer, what to be careful about, the picture, and
    tables of what differs.
    """
    runs = result.runs
    opening: list[Block] = [Bullets([_named(run) for run in runs])]
    if result.cautions:
        opening.append(
            Bullets([(Strong("Caution: "), f"{caution}.") for caution in result.cautions])
        )
    if borrowed := say(
        "borrowed", letters=[run.letter for run in runs if run.result.scenario.acceptance.stand_in]
    ):
        opening.append(Paragraph(borrowed))
    opening.append(Figure(say("picture"), "compare.svg", lambda: comparison_figure(result)))
    numbers = Table(_head(result, ""), list(measure_rows(result)), "Numbers of the scenarios")
    parts = Table(_head(result, ""), list(part_rows(result)), "Parts of a step, and lanes")
    commands = Bullets([(Strong(run.letter), " ", Code(run.command)) for run in runs])
    resolved = [block for scenario in result.scenarios for block in resolved_blocks(scenario)]
    sections = [
        Section("What they come to", [numbers, Paragraph(say("legend"))]),
        Section("What differs in what went in", list(_differences(result))),
        Section("Where differing numbers come from", list(_sources(result)), terminal=False),
        Section("Where the time goes", [parts, Paragraph(say("parts_legend"))]),
        Section("Each of them alone", [commands], terminal=False),
        Section("The scenarios, resolved", resolved, terminal=False),
    ]
    return Page(
        **say.first_screen(runs=runs),
        opening=opening,
        sections=[section for section in sections if section.blocks],
    )


def _tpot_ms(run: ComparedRun) -> float:
    return run.result.simulated.tpot_s * 1e3


def _named(run: ComparedRun) -> Words:
    about = run.result.scenario.about
    return (Strong(run.letter), f" {run.name}" + (f": {about}" if about else ""))


def _head(result: Comparison, first: str) -> list[str]:
    return [first, *(run.letter for run in result.runs)]


def measure_rows(result: Comparison) -> Iterator[tuple[str, ...]]:
    """Yield a row per measure: its words, and its values with their ratio to the first."""
    for measure, values in measured(result):
        yield measure.words, *ratios(values)
        if measure.key == "speedup":
            yield f"its {SHARE:.0%} interval", *map(_interval, result.runs)


def _interval(run: ComparedRun) -> str:
    return (
        f"{run.interval.low:.2f} to {run.interval.high:.2f}"
        if run.result.scenario.schedule.window
        else "–"
    )


def ratios(values: Sequence[float | None]) -> Iterator[str]:
    """Yield numbers with their ratio to the first."""
    for place, value in enumerate(values):
        if value is None:
            yield "–"
        else:
            yield number(value) + (f" ({value / values[0]:.2f} ×)" if place and values[0] else "")


def _differences(result: Comparison) -> Iterator[Block]:
    if not result.differences:
        yield Paragraph(say("same"))
        return
    rows: list[Sequence[Words]] = [
        (Code(one.field), *map(_said, one.values)) for one in result.differences
    ]
    yield Table(
        _head(result, "field"),
        rows,
        "Fields that differ",
        sortable=True,
        terminal_rows=FIELDS_SHOWN,
    )


def _said(value: Value | None) -> str:
    if value is None:
        return "–"
    return f"{value.text} ({value.confidence})" if value.confidence else value.text


def _sources(result: Comparison) -> Iterator[Block]:
    each = ((one.field, zip(result.runs, one.values, strict=True)) for one in result.differences)
    differing = ((field, run.letter, value) for field, pairs in each for run, value in pairs)
    if rows := [row for row in differing if row[2] and row[2].confidence]:
        yield say.table("sources", rows)


def part_rows(result: Comparison) -> Iterator[tuple[str, ...]]:
    """Yield the parts of a step in ms, then the busy shares of lanes."""
    parts = [parts_ms(run.result) for run in result.runs]
    for name in _names(parts):
        yield f"{name} (ms)", *ratios([durations.get(name) for durations in parts])
    busy = [run.result.busy for run in result.runs]
    for lane in _names(busy):
        yield f"{lane} busy", *(share(lanes[lane]) if lane in lanes else "–" for lanes in busy)


def _names(mappings: Iterable[Any]) -> list[str]:
    """Return the keys of all mappings in the order in which they come up."""
    return list(dict.fromkeys(name for mapping in mappings for name in mapping))


def comparison_figure(result: Comparison) -> Drawing:
    """Return bars of ms per token, law and autoregressive decoding marked, and the longest parts of
    a step.
    """
    count, parts = len(result.runs), _longest(result)
    height = 1.4 + max(0.5 * count, 0.13 * len(parts) * (count + 1))
    with canvas(min(height, 9.0), WIDTH_IN * 1.1) as figure:
        tokens, steps = figure.subplots(1, 2)
        _draw_tokens(tokens, result)
        _draw_parts(steps, result, parts)
        handles = dict(zip(*reversed(tokens.get_legend_handles_labels()), strict=True))
        figure.legend(
            handles.values(), handles, loc="outside lower center", ncols=min(4, count + 2)
        )
        return figure


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _draw_tokens(axes: Any, result: Comparison) -> None:
    for place, run in enumerate(result.runs):
        law_ms, plain_ms = run.result.law.tpot_s * 1e3, run.result.baseline.tpot_s * 1e3
        axes.barh(place, _tpot_ms(run), 0.6, color=_colour(place), label=run.letter)
        axes.plot(law_ms, place, "D", ms=5, mfc="white", mec="black", label="law")
        if run.result.scenario.schedule.window:
            axes.plot(plain_ms, place, "|", ms=16, mew=2, color=GREY, label="autoregressive")
    labels = [f"{run.letter}\n{number(_tpot_ms(run))}" for run in result.runs]
    axes.set_yticks(range(len(result.runs)), labels)
    panel(axes, say, "tokens_panel", ())
    axes.invert_yaxis()


def _draw_parts(axes: Any, result: Comparison, names: list[str]) -> None:
    thick = 0.8 / len(result.runs)
    for place, run in enumerate(result.runs):
        parts = parts_ms(run.result)
        heights = [row - 0.4 + thick * (place + 0.5) for row in range(len(names))]
        axes.barh(heights, [parts.get(name, 0.0) for name in names], thick, color=_colour(place))
    axes.set_yticks(range(len(names)), names)
    panel(axes, say, "parts_panel", ())
    axes.invert_yaxis()


def _longest(result: Comparison) -> list[str]:
    """Return names of parts in the order of the step, only the longest where there are many."""
    parts = [parts_ms(run.result) for run in result.runs]
    names = _names(parts)
    longest = sorted(names, key=lambda name: -max(durations.get(name, 0.0) for durations in parts))[
        :MOST_PARTS
    ]
    return [name for name in names if name in longest]
