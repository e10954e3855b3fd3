"""Scenarios side by side, on a terminal and as a page: who is faster, what to know first, what differs, where the time goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from simulator.report.blocks import Block, Bullets, Code, Figure, Highlight, Page, Paragraph, Strong, Table, Words, sections
from simulator.report.console import BAR, WIDEST, item, new_table
from simulator.report.inputs import resolved_blocks
from simulator.report.page import page_files, write_files
from simulator.report.pages.compare_figures import comparison_figure
from simulator.report.run_summary import number, share
from simulator.scenario.uncertainty import SHARE
from simulator.studies.compare import Compared, Comparison, Difference, Value, measured, parts_ms

NAME, PICTURE = "compare", "compare.svg"
FIELDS_SHOWN = 16
"""Fields that differ, of those that a terminal shows."""
LEGEND = (
    "In brackets: against A. Law: step over tokens at the mean context, with marginal acceptance; simulation: mean over "
    "requests. Autoregressive decoding is simulated for each on its own target. USD and J count every device for the whole run."
)
PARTS = "Mean over the steps of the simulation, by the cost model at the mean context; parts that run side by side overlap."


def headline(found: Comparison) -> str:
    """Every other scenario against the first, in one sentence."""
    first, *others = found.compared
    told = [f"{one.letter} {number(_tpot(one), 3)} ms, {_tpot(first) / _tpot(one):.2f} times as fast" for one in others]
    return f"{first.letter} takes {number(_tpot(first), 3)} ms per token (simulation); {'; '.join(told)}."


def borrowed(found: Comparison) -> Iterator[str]:
    """Whose acceptance was recorded from other models than its own, in one sentence; nothing where nobody's was."""
    letters = [one.letter for one in found.compared if one.result.scenario.acceptance.stand_in]
    if letters:
        last = f"{', '.join(letters[:-1])} and {letters[-1]}" if letters[1:] else letters[0]
        yield f"Acceptance of {last} is a stand-in, recorded from other models."


def _tpot(one: Compared) -> float:
    return one.result.simulated.tpot_s * 1e3


def beside(values: Sequence[float | None]) -> Iterator[str]:
    """Numbers with their ratio to the first."""
    for place, value in enumerate(values):
        if value is None:
            yield "–"
        else:
            yield number(value) + (f" ({value / values[0]:.2f} ×)" if place and values[0] else "")


def measure_rows(found: Comparison) -> Iterator[tuple[str, ...]]:
    """Every number of the results."""
    for measure, values in measured(found):
        yield measure.words, *beside(values)
        if measure.key == "speedup":
            drafts = [one.result.scenario.schedule.window for one in found.compared]
            held = [one.interval for one in found.compared]
            yield (
                f"its {SHARE:.0%} interval",
                *(f"{one.low:.2f} to {one.high:.2f}" if window else "–" for one, window in zip(held, drafts, strict=True)),
            )


def part_rows(found: Comparison) -> Iterator[tuple[str, ...]]:
    """Parts of a step in ms, then busy shares of lanes."""
    parts = [parts_ms(one.result) for one in found.compared]
    for name in dict.fromkeys(name for one in parts for name in one):
        yield f"{name} (ms)", *beside([one.get(name) for one in parts])
    busy = [one.result.busy for one in found.compared]
    for lane in dict.fromkeys(lane for one in busy for lane in one):
        yield f"{lane} busy", *(share(one[lane]) if lane in one else "–" for one in busy)


def difference_rows(apart: Sequence[Difference]) -> Iterator[tuple[str, ...]]:
    """What each scenario says, with the confidence of a number that has one."""
    for one in apart:
        yield one.field, *map(_said, one.values)


def _said(value: Value | None) -> str:
    if value is None:
        return "–"
    return f"{value.text} ({value.confidence})" if value.confidence else value.text


# ---- on a terminal


def print_comparison(found: Comparison, console: Console) -> None:
    """Answer, cautions, bars, tables."""
    width, letters = min(console.width, WIDEST), [one.letter for one in found.compared]
    for one in found.compared:
        console.print(Text(f"{one.letter}  {one.name}"), width=width)
    console.print(Text(headline(found), style="bold"), width=width)
    for caution in found.cautions:
        item(console, f"Caution: {caution}", width)
    for note in borrowed(found):
        item(console, note, width)
    _print_bars(found, console, width)

    def show(head: str, rows: Sequence[Sequence[str]]) -> None:
        shown = new_table(head, *letters)
        for row in rows:
            shown.add_row(*row)
        console.print(shown, width=width)

    show("what they come to", list(measure_rows(found)))
    show("where the time goes", list(part_rows(found)))
    rows = list(difference_rows(found.differences))
    show("what differs in what went in", rows[:FIELDS_SHOWN])
    if len(rows) > FIELDS_SHOWN:
        item(console, f"{len(rows) - FIELDS_SHOWN} more fields differ: --out writes a page with all of them", width)
    item(console, LEGEND, width)


def _print_bars(found: Comparison, console: Console, width: int) -> None:
    slowest = max(map(_tpot, found.compared))
    bars = new_table("ms per token, simulation", "", "")
    bars.columns[2].justify = "left"
    for one in found.compared:
        bars.add_row(one.letter, number(_tpot(one)), "#" * max(1, round(_tpot(one) / slowest * BAR)))
    console.print(bars, width=width)


# ---- as a page


def write_comparison(found: Comparison, folder: Path) -> None:
    """Page and picture; every file complete, or not at all. Raises BadInput where the folder cannot be made."""
    write_files(folder, page_files(comparison_page(found), NAME))


def comparison_page(found: Comparison) -> Page:
    """All of it."""
    opening: list[Block] = [Bullets([_named(one) for one in found.compared])]
    if found.cautions:
        opening.append(Bullets([(Strong("Caution: "), f"{caution}.") for caution in found.cautions]))
    opening += map(Paragraph, borrowed(found))
    opening.append(Figure("Time per token of each scenario, and the parts of a step", PICTURE, comparison_figure(found)))
    return Page(
        title=" against ".join(dict.fromkeys(one.result.scenario.name for one in found.compared)),
        about="",
        answer=headline(found),
        opening=opening,
        sections=sections(
            ("What they come to", _measures(found)),
            ("What differs in what went in", _differences(found)),
            ("Where the time goes", _parts(found)),
            ("Each of them alone", _alone(found)),
            ("The scenarios, resolved", (block for one in found.scenarios for block in resolved_blocks(one))),
        ),
        command=found.command,
        highlights=[Highlight(f"{number(_tpot(one), 3)} ms", f"per token, {one.letter}: {one.name}") for one in found.compared],
    )


def _named(one: Compared) -> Words:
    about = one.result.scenario.about
    return (Strong(one.letter), f" {one.name}" + (f": {about}" if about else ""))


def _head(found: Comparison, first: str) -> list[str]:
    return [first, *(one.letter for one in found.compared)]


def _measures(found: Comparison) -> Iterator[Block]:
    yield Table(_head(found, ""), list(measure_rows(found)), "Numbers of each scenario")
    yield Paragraph(LEGEND)


def _differences(found: Comparison) -> Iterator[Block]:
    if not found.differences:
        yield Paragraph("Nothing: the scenarios are the same.")
        return
    rows: list[Sequence[Words]] = [(Code(field), *said) for field, *said in difference_rows(found.differences)]
    yield Table(_head(found, "field"), rows, "Fields that differ", sortable=True)
    sourced = list(_sources(found))
    if sourced:
        yield Table(("field", "", "confidence", "source"), sourced, "Where differing numbers come from", badges=(2,))


def _sources(found: Comparison) -> Iterator[tuple[Words, ...]]:
    for one in found.differences:
        for compared, value in zip(found.compared, one.values, strict=True):
            if value and value.confidence:
                yield Code(one.field), f"{compared.letter}: {value.text}", value.confidence, value.source


def _parts(found: Comparison) -> Iterator[Block]:
    yield Table(_head(found, ""), list(part_rows(found)), "Parts of a step, and lanes")
    yield Paragraph(PARTS)


def _alone(found: Comparison) -> Iterator[Block]:
    yield Bullets([(Strong(one.letter), " ", Code(one.command)) for one in found.compared])


# ---- as data


def as_data(found: Comparison) -> dict[str, Any]:
    """All of it, for ``--json``; times in ms."""
    numbers = list(measured(found))
    scenarios = {
        one.letter: {
            "name": one.name,
            "command": one.command,
            **{measure.key: values[place] for measure, values in numbers},
            "speedup_interval": one.interval._asdict(),
            "parts_ms": parts_ms(one.result),
            "busy": one.result.busy,
        }
        for place, one in enumerate(found.compared)
    }
    letters = [one.letter for one in found.compared]
    apart = [
        {"field": one.field, **{key: value and value._asdict() for key, value in zip(letters, one.values, strict=True)}}
        for one in found.differences
    ]
    return {"scenarios": scenarios, "differences": apart, "cautions": list(found.cautions)}
