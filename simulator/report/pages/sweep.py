"""Show a sweep as a page: the best point, the pictures, law against simulation, every point, what
went in.
"""

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import yaml

from simulator.core.plain import PlainData
from simulator.inputs.writing import Content, write_all
from simulator.report.blocks import (
    Block,
    Code,
    Figure,
    Highlight,
    Hyperlink,
    Listing,
    Page,
    Paragraph,
    Standing,
    sections,
)
from simulator.report.columns import Column, table
from simulator.report.inputs import PROVENANCE, RESOLVED, provenance_blocks, resolved_blocks
from simulator.report.page import page_files
from simulator.report.pages.plot import label, picture
from simulator.report.wording import number, percent
from simulator.scenario import Scenario
from simulator.studies.sweep.metrics import LAW_METRICS, METRICS
from simulator.studies.sweep.table import SweepTable, best, cautions, faults, table_writer

MOST_ROWS = 400
"""Points that a page lists at most; the table in the file with it has all."""


def page(points: SweepTable, base: Scenario, command: str) -> Page:
    """Return the page of a sweep over ``base``, the scenario before any axis.

    The page links to the table as CSV, :func:`points_file`, in the same folder.
    """
    chosen = best(points)
    pictures = sections(("Pictures", _pictures(points)), terminal=False)
    everywhere = sections(("Law against simulation", _gap(points)))
    in_files = sections(
        ("Every point", _points(points)),
        ("What could not be evaluated", _faults(points)),
        ("The sweep as stated", _stated(points)),
        (PROVENANCE, provenance_blocks(base)),
        (RESOLVED, resolved_blocks(base)),
        terminal=False,
    )
    return Page(
        title=f"{points.name}: {len(points.design):,} points of {points.file.scenario}",
        about=points.file.about,
        answer=_answer(chosen),
        opening=list(_opening(points, base, chosen)),
        sections=[*pictures, *everywhere, *in_files],
        command=command,
        highlights=_highlights(points, chosen),
        standing=_standing(points, base, chosen),
    )


def write_sweep(points: SweepTable, base: Scenario, command: str, folder: Path) -> None:
    """Write the page of a sweep, its pictures and its table, all of them or none."""
    sweep_page = page(points, base, command)
    files: dict[str, Content] = dict(page_files(sweep_page, points.name))
    files[points_file(points)] = table_writer(points)
    write_all({folder / name: content for name, content in files.items()})


def points_file(points: SweepTable) -> str:
    """Return the name of the table's file in the folder of the page."""
    return f"{points.name}.csv"


Best: TypeAlias = dict[str, PlainData]
"""What :func:`~simulator.studies.sweep.table.best` returns: by column the value, number and labels
of the best point.
"""


def _standing(points: SweepTable, base: Scenario, chosen: Best) -> Standing:
    """Return between what the metrics of all points lie, how many points are better than plain
    decoding, and what to beware of.
    """
    frame = points.frame
    spans = []
    for metric in chosen:
        values = frame[metric].dropna()
        low, high = number(values.min(), 3), number(values.max(), 3)
        spans.append(f"{label(metric)} {low} to {high}")
    interval = ""
    if spans:
        interval = f"Over all points {'; '.join(spans)}; a point has none of its own."
    verdict = ""
    if "speedup" in frame and frame["speedup"].notna().any():
        faster = int((frame["speedup"] > 1.0).sum())
        verdict = f"Faster than plain decoding at {faster:,} of {len(frame):,} points."
    return Standing(interval, verdict, list(cautions(points, base)))


def _answer(chosen: Best) -> str:
    """Return where the best points are, with all metrics that are best there."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for metric, point in chosen.items():
        place = _at(point["at"])
        places[place].append(f"{label(metric)}: {number(point['value'], 3)}")
    if not places:
        return "No point has a time per token or a speed-up."
    parts = [f"at {place} ({'; '.join(values)})" for place, values in places.items()]
    return f"Best {' and '.join(parts)}."


def _highlights(points: SweepTable, chosen: Best) -> list[Highlight]:
    shown = []
    for metric, point in chosen.items():
        shown.append(Highlight(number(point["value"], 3), f"best {label(metric)}"))
    evaluated = f"{len(points.frame):,} of {len(points.design):,}"
    faulty = f"{len(faults(points)):,}"
    shown.append(Highlight(evaluated, "points evaluated"))
    shown.append(Highlight(faulty, "of them could not run"))
    return shown


def _at(values: Mapping[str, Any]) -> str:
    """Return in words where a point is: the value of each axis."""
    return ", ".join(f"{axis} = {value}" for axis, value in values.items())


def _opening(points: SweepTable, base: Scenario, chosen: Best) -> Iterator[Block]:
    evaluators = ", the best of them by ".join(points.file.evaluators)
    yield Paragraph(
        f"Evaluated: {len(points.frame):,} of {len(points.design):,} points, "
        f"{len(faults(points)):,} of them faulty. Points are {base.name} with the axes below "
        f"changed, evaluated by {evaluators}. Each is evaluated once, so none has an interval here."
    )
    for caution in cautions(points, base):
        yield Paragraph(f"Caution: {caution}.")
    if chosen:
        *_, (metric, point) = chosen.items()
        yield Paragraph(
            f"The best point by {label(metric)}, with its interval, its timeline and what went "
            "into it:"
        )
        yield Listing(_command(points, base, point["point"]))


def _command(points: SweepTable, base: Scenario, place: int) -> str:
    """Return the command that runs a point alone."""
    settings = dict(points.file.set) | dict(points.design.point(place).settings)
    mean = base.acceptance.rescale
    if mean:  # stated at the window of the scenario, not at the point's
        field = "acceptance.rescale.window"
        if base.acceptance.window:
            field = "acceptance.window"
        settings[field] = mean.window
    words = ["specsim", "run", points.file.scenario]
    for key, value in settings.items():
        in_brackets = yaml.safe_dump([value], default_flow_style=True, width=10_000)
        words += ["--set", f"{key}={in_brackets[1:-2]}"]
    return shlex.join(words)


def _pictures(points: SweepTable) -> Iterator[Block]:
    for place, plot in enumerate(points.file.plots, start=1):
        title = f"{plot.kind}: {plot.value or plot.y} over {plot.x}"
        if plot.value:
            title += f" and {plot.y}"
        if plot.title:
            title = f"{plot.title}, {title}"
        file = f"{points.name}_{plot.name or place}.svg"
        yield Figure(title, file, partial(picture, points, plot))


def _gap(points: SweepTable) -> Iterator[Block]:
    if points.file.evaluators != ("law", "simulation"):
        return
    both = points.frame.dropna(subset=["law_tpot_ms", "simulation_tpot_ms"])
    if both.empty:
        return
    gap_percent = (both["law_tpot_ms"] / both["simulation_tpot_ms"] - 1.0) * 100.0
    worst = both.loc[gap_percent.abs().idxmax()]
    where = _at(worst[list(points.axes)])
    median = float(gap_percent.median())
    most = float(gap_percent[worst.name])
    yield Paragraph(
        f"The law (marginal rates) is off the simulation's time per token by {percent(median)} in "
        f"the median, and by {percent(most)} at {where}, the worst. Points that both evaluated: "
        f"{len(both):,}."
    )


def _points(points: SweepTable) -> Iterator[Block]:
    frame = points.frame[points.frame["fault"].isna()]
    columns = [name for name in points.frame if name not in ("point", "fault")]
    judge = next(iter(best(points)), None)
    caption = "All of them as a table: "
    if judge and len(frame) > MOST_ROWS:
        _, _, metric = judge.partition("_")
        ascending = [METRICS[metric].less_is_better, True]
        frame = frame.sort_values([judge, "point"], ascending=ascending).head(MOST_ROWS)
        caption = (
            f"The best {MOST_ROWS} of {len(points.frame):,} points by {label(judge)}; all of them: "
        )
    file = points_file(points)
    yield Paragraph((caption, Hyperlink(file, file), "."))
    shown = [_column(name, name in points.axes) for name in columns]
    rows = [row for _, row in frame.iterrows()]
    yield table("Points", rows, shown, sortable=True)


def _column(name: str, stated: bool) -> Column[Any]:
    """Return the column of an axis, whose values are ``stated``, or of a metric."""
    head = label(name)
    if stated:
        head = name
    return Column(head, lambda row: _cell(row[name], stated))


def _cell(value: Any, stated: bool) -> str:
    """Return a value as text; a ``stated`` one as it was written."""
    if stated or not isinstance(value, float):
        return str(value)
    if pd.isna(value):
        return ""
    if abs(value) >= 0.001:
        return number(value)
    return f"{value:.3g}"


def _faults(points: SweepTable) -> Iterator[Block]:
    wrong = list(faults(points).values())
    columns: list[Column[dict[str, str]]] = [
        Column("point", lambda fault: fault["at"]),
        Column("why", lambda fault: fault["fault"]),
    ]
    if wrong:
        yield table("Faults", wrong[:MOST_ROWS], columns)


def _stated(points: SweepTable) -> Iterator[Block]:
    stated = points.file.model_dump(mode="json", exclude_defaults=True)
    written = yaml.safe_dump(stated, sort_keys=False, allow_unicode=True, width=110)
    yield Listing(written, "yaml")
    evaluated = tuple(METRICS)
    if points.file.evaluators == ("law",):
        evaluated = LAW_METRICS
    columns = [Column[str]("column", Code), Column[str]("what", lambda name: METRICS[name].label)]
    yield table("Metrics", points.file.metrics or evaluated, columns)
