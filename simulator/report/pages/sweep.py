"""Show a sweep as a page: the best point, the pictures, law against simulation, every point, what went in."""

import shlex
from collections.abc import Iterator
from functools import partial
from typing import Any, TypeAlias

import pandas as pd
import yaml

from simulator.report.blocks import Block, Code, Figure, Highlight, Hyperlink, Listing, Page, Paragraph, Table, Words, sections
from simulator.report.inputs import PROVENANCE, RESOLVED, provenance_blocks, resolved_blocks
from simulator.report.numbers import number, percent
from simulator.report.pages.plot import label, picture
from simulator.scenario import Scenario
from simulator.studies.sweep.metrics import LAW_METRICS, METRICS
from simulator.studies.sweep.table import SweepTable, best, cautions, faults

MOST_ROWS = 400
"""Points that a page lists at most; the table in the file with it has all."""


def page(points: SweepTable, base: Scenario, command: str) -> Page:
    """Return the page of a sweep over ``base``, the scenario before any axis.

    The page links to the table as CSV, :func:`points_file`, in the same folder.
    """
    chosen = best(points)
    return Page(
        title=f"{points.name}: {len(points.design):,} points of {points.file.scenario}",
        about=points.file.about,
        answer=_answer(chosen),
        opening=list(_opening(points, base, chosen)),
        sections=[
            *sections(("Pictures", _pictures(points)), terminal=False),
            *sections(("Law against simulation", _gap(points))),
            *sections(
                ("Every point", _points(points)),
                ("What could not be evaluated", _faults(points)),
                ("The sweep as stated", _stated(points)),
                (PROVENANCE, provenance_blocks(base)),
                (RESOLVED, resolved_blocks(base)),
                terminal=False,
            ),
        ],
        command=command,
        highlights=_highlights(points, chosen),
    )


def points_file(points: SweepTable) -> str:
    """Return the name of the table's file in the folder of the page."""
    return f"{points.name}.csv"


Best: TypeAlias = dict[str, dict[str, Any]]
"""What :func:`~simulator.studies.sweep.table.best` returns: by column the value, number and labels of the best point."""


def _answer(chosen: Best) -> str:
    places: dict[str, list[str]] = {}
    for metric, point in chosen.items():
        place = ", ".join(f"{axis} = {value}" for axis, value in point["at"].items())
        places.setdefault(place, []).append(f"{label(metric)}: {number(point['value'], 3)}")
    if not places:
        return "No point has a time per token or a speed-up."
    return "Best " + " and ".join(f"at {place} ({'; '.join(values)})" for place, values in places.items()) + "."


def _highlights(points: SweepTable, chosen: Best) -> list[Highlight]:
    best_values = [Highlight(number(point["value"], 3), f"best {label(metric)}") for metric, point in chosen.items()]
    evaluated = Highlight(f"{len(points.frame):,} of {len(points.design):,}", "points evaluated")
    return [*best_values, evaluated, Highlight(f"{len(faults(points)):,}", "of them could not run")]


def _opening(points: SweepTable, base: Scenario, chosen: Best) -> Iterator[Block]:
    evaluators = ", the best of them by ".join(points.file.evaluators)
    counts = f"{len(points.frame):,} of {len(points.design):,} points, {len(faults(points)):,} of them faulty"
    yield Paragraph(
        f"Evaluated: {counts}. Points are {base.name} with the axes below changed, evaluated by {evaluators}. "
        "Each is evaluated once, so none has an interval here."
    )
    for caution in cautions(points, base):
        yield Paragraph(f"Caution: {caution}.")
    for metric, point in list(chosen.items())[-1:]:
        yield Paragraph(f"The best point by {label(metric)}, with its interval, its timeline and what went into it:")
        words = ["specsim", "run", points.file.scenario]
        mean = base.acceptance.rescale  # stated at the window of the scenario, not at the point's
        field = "acceptance.window" if base.acceptance.window else "acceptance.rescale.window"
        at_window = {field: mean.window} if mean else {}
        for key, value in (points.file.set | points.design.point(point["point"]).settings | at_window).items():
            words += ["--set", f"{key}={yaml.safe_dump([value], default_flow_style=True, width=10_000)[1:-2]}"]
        yield Listing(shlex.join(words))


def _pictures(points: SweepTable) -> Iterator[Block]:
    for place, plot in enumerate(points.file.plots, start=1):
        over = f"{plot.kind}: {plot.value or plot.y} over {plot.x}{f' and {plot.y}' if plot.value else ''}"
        title = f"{plot.title}, {over}" if plot.title else over
        yield Figure(title, f"{points.name}_{plot.name or place}.svg", partial(picture, points, plot))


def _gap(points: SweepTable) -> Iterator[Block]:
    if points.file.evaluators != ("law", "simulation"):
        return
    both = points.frame.dropna(subset=["law_tpot_ms", "simulation_tpot_ms"])
    if both.empty:
        return
    gap_percent = (both["law_tpot_ms"] / both["simulation_tpot_ms"] - 1.0) * 100.0
    worst = both.loc[gap_percent.abs().idxmax()]
    where = ", ".join(f"{axis} = {worst[axis]}" for axis in points.axes)
    yield Paragraph(
        f"On {len(both):,} points that both evaluated, time per token by law (marginal rates) is "
        f"{percent(float(gap_percent.median()))} off the simulation in the median, "
        f"{percent(float(gap_percent[worst.name]))} at {where}."
    )


def _points(points: SweepTable) -> Iterator[Block]:
    frame = points.frame[points.frame["fault"].isna()]
    columns = [name for name in points.frame if name not in ("point", "fault")]
    judge = next(iter(best(points)), None)
    if judge and len(frame) > MOST_ROWS:
        ascending = METRICS[judge.partition("_")[2]].less_is_better
        frame = frame.sort_values([judge, "point"], ascending=[ascending, True]).head(MOST_ROWS)
        caption = f"The best {MOST_ROWS} of {len(points.frame):,} points by {label(judge)}; all of them: "
    else:
        caption = "All of them as a table: "
    yield Paragraph((caption, Hyperlink(points_file(points), points_file(points)), "."))
    rows: list[tuple[Words, ...]] = []
    for _, row in frame.iterrows():
        rows.append(tuple(_cell(row[name], name in points.axes) for name in columns))
    yield Table([name if name in points.axes else label(name) for name in columns], rows, "Points", sortable=True)


def _cell(value: Any, stated: bool) -> str:
    """Return a value as text; a ``stated`` one as it was written."""
    if stated or not isinstance(value, float):
        return str(value)
    if pd.isna(value):
        return ""
    return number(value) if abs(value) >= 0.001 else f"{value:.3g}"


def _faults(points: SweepTable) -> Iterator[Block]:
    rows = [(fault["at"], fault["fault"]) for fault in faults(points).values()]
    if rows:
        yield Table(("point", "why"), rows[:MOST_ROWS], "Faults")


def _stated(points: SweepTable) -> Iterator[Block]:
    stated = points.file.model_dump(mode="json", exclude_defaults=True)
    yield Listing(yaml.safe_dump(stated, sort_keys=False, allow_unicode=True, width=110), "yaml")
    evaluated = LAW_METRICS if points.file.evaluators == ("law",) else tuple(METRICS)
    rows = [(Code(name), METRICS[name].label) for name in points.file.metrics or evaluated]
    yield Table(("column", "what"), rows, "Metrics")
