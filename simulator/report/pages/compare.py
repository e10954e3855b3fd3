"""Scenarios side by side: which is faster, what to know first, what differs, where the time
goes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from simulator.report.blocks import (
    FIRST,
    Block,
    Bullets,
    Code,
    Figure,
    Highlight,
    Page,
    Paragraph,
    Remark,
    Section,
    Standing,
    Strong,
    Table,
    Words,
)
from simulator.report.columns import Column, table
from simulator.report.drawing import WIDTH_IN, canvas
from simulator.report.inputs import resolved_blocks
from simulator.report.pages import decision as decided
from simulator.report.panels import (
    GREY,
    dress,
    look,
)
from simulator.report.wording import number, share, whole_share
from simulator.scenario.uncertain.draws import SHARE
from simulator.studies.compare import ComparedRun, Comparison, Value, measured, parts_ms

FIELDS_SHOWN = 16
"""Fields that differ, of those that a terminal shows."""
LEGEND = (
    "In brackets: against A. Law: step over tokens at the mean context, with marginal acceptance; "
    "simulation: mean over requests. Autoregressive decoding is simulated for each on its own "
    "target. USD and J count every device for the whole run."
)
PARTS_LEGEND = (
    "Mean over the steps of the simulation, by the cost model at the mean context; parts that run "
    "side by side overlap."
)
MOST_PARTS = 8
"""Parts of a step that are drawn, the longest; the table of parts has all."""


def page(result: Comparison) -> Page:
    """Return the page of a comparison: the answer, what to be careful about, the picture, and
    tables of what differs.
    """
    runs = result.runs
    opening: list[Block] = [Bullets([_named(run) for run in runs])]
    cautions = [(Strong("Caution: "), f"{caution}.") for caution in result.cautions]
    if cautions:
        opening.append(Bullets(cautions))
    letters = [run.letter for run in runs if run.result.scenario.acceptance.stand_in]
    if letters:
        opening.append(Paragraph(borrowed(letters)))
    title = "Time per token of each scenario, and the parts of a step"
    opening.append(Figure(title, "compare.svg", lambda: comparison_figure(result)))
    numbers = Table(_head(result, ""), list(measure_rows(result)), "Numbers of the scenarios")
    parts = Table(_head(result, ""), list(part_rows(result)), "Parts of a step, and lanes")
    commands = Bullets([(Strong(run.letter), " ", Code(run.command)) for run in runs])
    resolved = [block for scenario in result.scenarios for block in resolved_blocks(scenario)]
    sections = [
        Section("Results", [numbers, Paragraph(LEGEND)]),
        Section("Inputs that differ", list(_differences(result))),
        Section("Sources of the numbers that differ", list(_sources(result)), terminal=False),
        Section("Where the time goes", [parts, Paragraph(PARTS_LEGEND)]),
        Section("Commands that run each alone", [commands], terminal=False),
        Section("The scenarios, resolved", resolved, terminal=False),
    ]
    names = dict.fromkeys(scenario.name for scenario in result.scenarios)
    return Page(
        " against ".join(names),
        answer=headline(runs),
        highlights=list(highlights(runs)),
        opening=opening,
        sections=[section for section in sections if section.blocks],
        standing=_standing(result),
    )


def _standing(result: Comparison) -> Standing:
    """Return what the speed-ups of the runs are worth, by letter, and on what the last one, which
    is compared with the first, rests.
    """
    speedups = []
    verdicts = []
    for run in result.runs:
        if not run.result.scenario.schedule.window:
            continue
        low, high = run.interval
        speedups.append(f"{run.letter} {run.result.speedup:.2f}x ({low:.2f} to {high:.2f})")
        if run.result.decision:
            chance = decided.chance_words(run.result.decision.chance)
            verdicts.append(f"{run.letter} {chance} ({run.result.decision.verdict})")
    interval = verdict = ""
    if speedups:
        interval = f"Over plain decoding {', '.join(speedups)}, {whole_share(SHARE)} intervals."
    if verdicts:
        verdict = f"Chance that speculation is faster: {', '.join(verdicts)}."
    doubts = []
    for run in reversed(result.runs):
        doubts += [f"{run.letter}: {doubt}" for doubt in run.result.doubts[:1]]
    more = [Remark("Beware", f"{caution}.", FIRST) for caution in _cautions(result)]
    return Standing(interval, verdict, doubts, more)


def _cautions(result: Comparison) -> list[str]:
    """Return why numbers may not be comparable, without what runs rest on, which is said by
    itself.
    """
    rests = {f"{run.letter}: {run.result.rests_on}" for run in result.runs}
    return [caution for caution in result.cautions if caution not in rests]


def headline(runs: Sequence[ComparedRun]) -> str:
    """Return the time per token of the first run, and how many times as fast the rest are."""
    first, *others = runs
    first_ms = _tpot_ms(first)
    clauses = [f"{first.letter} takes {number(first_ms, 3)} ms per token (simulation)"]
    for run in others:
        own_ms = _tpot_ms(run)
        speedup = first_ms / own_ms
        clauses.append(f"{run.letter} {number(own_ms, 3)} ms, {speedup:.2f} times as fast")
    return f"{'; '.join(clauses)}."


def highlights(runs: Sequence[ComparedRun]) -> Iterator[Highlight]:
    """Yield the time per token of the first and of the fastest of the others, and their ratio."""
    first, *others = runs
    fastest = min(others, key=_tpot_ms)
    which = f"{fastest.letter}: {fastest.name}"
    if len(others) > 1:
        which += ", the fastest of the others"
    first_ms = _tpot_ms(first)
    fastest_ms = _tpot_ms(fastest)
    yield Highlight(f"{number(first_ms, 3)} ms", f"per token, {first.letter}: {first.name}")
    yield Highlight(f"{number(fastest_ms, 3)} ms", f"per token, {which}")
    speedup = f"{first_ms / fastest_ms:.2f} ×"
    yield Highlight(speedup, f"as fast, {fastest.letter} against {first.letter}")


def borrowed(letters: Sequence[str]) -> str:
    """Return whose acceptance is recorded from other models."""
    *others, last = letters
    named = last
    if others:
        named = f"{', '.join(others)} and {last}"
    return f"Acceptance of {named} is a stand-in, recorded from other models."


def _tpot_ms(run: ComparedRun) -> float:
    return run.result.simulated.tpot_s * 1e3


def _named(run: ComparedRun) -> Words:
    about = run.result.scenario.about
    words = f" {run.name}"
    if about:
        words += f": {about}"
    return (Strong(run.letter), words)


def _head(result: Comparison, first: str) -> list[str]:
    return [first, *(run.letter for run in result.runs)]


def measure_rows(result: Comparison) -> Iterator[tuple[str, ...]]:
    """Yield a row per measure: its words, and its values with their ratio to the first."""
    for measure, values in measured(result):
        yield measure.words, *ratios(values)
        if measure.key == "speedup":
            yield f"its {whole_share(SHARE)} interval", *map(_interval, result.runs)


def _interval(run: ComparedRun) -> str:
    if run.result.scenario.schedule.window:
        return f"{run.interval.low:.2f} to {run.interval.high:.2f}"
    return "–"


def ratios(values: Sequence[float | None]) -> Iterator[str]:
    """Yield numbers with their ratio to the first."""
    first = values[0]
    for place, value in enumerate(values):
        if value is None:
            yield "–"
        elif place and first:
            yield f"{number(value)} ({value / first:.2f} ×)"
        else:
            yield number(value)


def _differences(result: Comparison) -> Iterator[Block]:
    if not result.differences:
        yield Paragraph("None: the scenarios are the same.")
        return
    rows: list[Sequence[Words]] = []
    for difference in result.differences:
        rows.append((Code(difference.field), *map(_said, difference.values)))
    head = _head(result, "field")
    yield Table(head, rows, "Fields that differ", sortable=True, terminal_rows=FIELDS_SHOWN)


def _said(value: Value | None) -> str:
    if value is None:
        return "–"
    if value.confidence:
        return f"{value.text} ({value.confidence})"
    return value.text


def _sources(result: Comparison) -> Iterator[Block]:
    rows = list(_sourced(result))
    if rows:
        columns: list[Column[SourcedNumber]] = [
            Column("field", lambda row: Code(row.field)),
            Column("", lambda row: f"{row.letter}: {row.value.text}"),
            Column("confidence", lambda row: row.value.confidence),
            Column("source", lambda row: row.value.source),
        ]
        yield table("Sources of the numbers that differ", rows, columns, badges=(2,))


class SourcedNumber(NamedTuple):
    """Holds a number that differs, with its source, and the letter of its scenario."""

    field: str
    letter: str
    value: Value


def _sourced(result: Comparison) -> Iterator[SourcedNumber]:
    """Yield the numbers with a source in the fields that differ."""
    for difference in result.differences:
        for run, value in zip(result.runs, difference.values, strict=True):
            if value and value.confidence:
                yield SourcedNumber(difference.field, run.letter, value)


def part_rows(result: Comparison) -> Iterator[tuple[str, ...]]:
    """Yield the parts of a step in ms, then the busy shares of lanes."""
    parts = [parts_ms(run.result) for run in result.runs]
    for name in _names(parts):
        yield f"{name} (ms)", *ratios([durations.get(name) for durations in parts])
    busy = [run.result.busy for run in result.runs]
    for lane in _names(busy):
        yield f"{lane} busy", *(_busy(lanes, lane) for lanes in busy)


def _busy(lanes: Mapping[str, float], lane: str) -> str:
    if lane in lanes:
        return share(lanes[lane])
    return "–"


def _names(mappings: Iterable[Any]) -> list[str]:
    """Return the keys of all mappings in the order in which they come up."""
    return list(dict.fromkeys(name for mapping in mappings for name in mapping))


def comparison_figure(result: Comparison) -> Drawing:
    """Return bars of ms per token, law and autoregressive decoding marked, and the longest parts of
    a step.
    """
    count = len(result.runs)
    parts = _longest(result)
    height = 1.4 + max(0.5 * count, 0.13 * len(parts) * (count + 1))
    with canvas(min(height, 9.0), WIDTH_IN * 1.1) as figure:
        tokens, steps = figure.subplots(1, 2)
        _draw_tokens(tokens, result)
        _draw_parts(steps, result, parts)
        handles, labels = tokens.get_legend_handles_labels()
        by_label = dict(zip(labels, handles, strict=True))
        columns = min(4, count + 2)
        figure.legend(by_label.values(), by_label, loc="outside lower center", ncols=columns)
        return figure


def _colour(place: int) -> str:
    return look(place).colour


def _draw_tokens(axes: Axes, result: Comparison) -> None:
    for place, run in enumerate(result.runs):
        law_ms = run.result.law.tpot_s * 1e3
        plain_ms = run.result.baseline.tpot_s * 1e3
        axes.barh(place, _tpot_ms(run), 0.6, color=_colour(place), label=run.letter)
        axes.plot(law_ms, place, "D", ms=5, mfc="white", mec="black", label="law")
        if run.result.scenario.schedule.window:
            axes.plot(plain_ms, place, "|", ms=16, mew=2, color=GREY, label="autoregressive")
    labels = [f"{run.letter}\n{number(_tpot_ms(run))}" for run in result.runs]
    axes.set_yticks(range(len(result.runs)), labels)
    dress(axes, x_label="time per token (ms)", title="a token, simulation", xlim=(0, None))
    axes.invert_yaxis()


def _draw_parts(axes: Axes, result: Comparison, names: list[str]) -> None:
    thick = 0.8 / len(result.runs)
    for place, run in enumerate(result.runs):
        parts = parts_ms(run.result)
        heights = [row - 0.4 + thick * (place + 0.5) for row in range(len(names))]
        durations = [parts.get(name, 0.0) for name in names]
        axes.barh(heights, durations, thick, color=_colour(place))
    axes.set_yticks(range(len(names)), names)
    dress(axes, x_label="ms in a mean step", title="its parts; some run side by side")
    axes.invert_yaxis()


def _longest(result: Comparison) -> list[str]:
    """Return names of parts in the order of the step, only the longest where there are many."""
    parts = [parts_ms(run.result) for run in result.runs]
    names = _names(parts)

    def most_ms(name: str) -> float:
        return max(durations.get(name, 0.0) for durations in parts)

    by_length = sorted(names, key=most_ms, reverse=True)
    longest = by_length[:MOST_PARTS]
    return [name for name in names if name in longest]
