"""A sweep as a page: the best point, how the pictures have it, law against simulation, every point, what went in."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pandas as pd
import yaml

from simulator.report.blocks import (
    Block,
    Code,
    Figure,
    Highlight,
    Hyperlink,
    Listing,
    Page,
    Paragraph,
    Table,
    Words,
    sections,
)
from simulator.report.inputs import PROVENANCE, RESOLVED, provenance_blocks, resolved_blocks
from simulator.report.pages.sweep_figures import label, picture
from simulator.report.run_summary import number, percent
from simulator.scenario import Scenario
from simulator.studies.sweep.metrics import LAW_METRICS, METRICS
from simulator.studies.sweep.study import Plot
from simulator.studies.sweep.table import SweepTable, best, cautions, faults

MOST_POINTS = 400
"""Rows of a page; the file beside it has all."""


def sweep_page(found: SweepTable, base: Scenario, command: str) -> Page:
    """All of it; the table as CSV, :func:`points_file`, stands beside it. ``base``: the scenario before any axis."""
    chosen = best(found)
    return Page(
        title=f"{found.name}: {len(found.design):,} points of {found.file.scenario}",
        about=found.file.about,
        answer=_answer(found, chosen),
        opening=list(_opening(found, base, chosen)),
        sections=sections(
            ("Pictures", _pictures(found)),
            ("Law against simulation", _gap(found)),
            ("Every point", _points(found)),
            ("What could not be evaluated", _faults(found)),
            ("The sweep as stated", _stated(found)),
            (PROVENANCE, provenance_blocks(base)),
            (RESOLVED, resolved_blocks(base)),
        ),
        command=command,
        highlights=_highlights(found, chosen),
    )


def points_file(found: SweepTable) -> str:
    """Name of the table beside the page."""
    return f"{found.name}.csv"


def _answer(found: SweepTable, chosen: dict[str, dict[str, Any]]) -> str:
    places: dict[str, list[str]] = {}
    for metric, one in chosen.items():
        places.setdefault(_at(one), []).append(f"{label(metric)}: {number(one['value'], 3)}")
    told = [f"at {place} ({'; '.join(values)})" for place, values in places.items()]
    return f"Best {' and '.join(told)}." if told else "No point has a time per token or a speed-up."


def _at(one: dict[str, Any]) -> str:
    return ", ".join(f"{axis} = {value}" for axis, value in one["at"].items())


def _highlights(found: SweepTable, chosen: dict[str, dict[str, Any]]) -> list[Highlight]:
    held = [Highlight(number(one["value"], 3), f"best {label(metric)}") for metric, one in chosen.items()]
    counted = Highlight(f"{len(found.frame):,} of {len(found.design):,}", "points evaluated")
    return [*held, counted, Highlight(f"{len(faults(found)):,}", "of them could not run")]


def _opening(found: SweepTable, base: Scenario, chosen: dict[str, dict[str, Any]]) -> Iterator[Block]:
    told = ", the best of them by ".join(found.file.evaluators)
    yield Paragraph(
        f"Points are {base.name} with the axes below changed, evaluated by {told}; each once, so none has an interval here."
    )
    for caution in cautions(found, base):
        yield Paragraph(f"Caution: {caution}.")
    for metric, one in list(chosen.items())[-1:]:
        yield Paragraph(f"The best by {label(metric)} with its interval, its timeline and what went into it:")
        sets = found.file.set | found.design.point(one["point"]).settings
        words = ["specsim", "run", found.file.scenario, *(word for key in sets for word in ("--set", _set(key, sets[key])))]
        yield Listing(shlex.join(words))


def _set(key: str, value: Any) -> str:
    return f"{key}={yaml.safe_dump([value], default_flow_style=True, width=10_000)[1:-2]}"


def _pictures(found: SweepTable) -> Iterator[Block]:
    for place, plot in enumerate(found.file.plots, start=1):
        yield Figure(_title(plot), f"{found.name}_{plot.name or place}.svg", picture(found, plot))


def _title(plot: Plot) -> str:
    over = f"{plot.kind}: {plot.value or plot.y} over {plot.x}{f' and {plot.y}' if plot.value else ''}"
    return f"{plot.title}, {over}" if plot.title else over


def _gap(found: SweepTable) -> Iterator[Block]:
    if found.file.evaluators != ("law", "simulation"):
        return
    both = found.frame.dropna(subset=["law_tpot_ms", "simulation_tpot_ms"])
    if both.empty:
        return
    off = (both["law_tpot_ms"] / both["simulation_tpot_ms"] - 1.0) * 100.0
    worst = both.loc[off.abs().idxmax()]
    where = ", ".join(f"{axis} = {worst[axis]}" for axis in found.axes)
    yield Paragraph(
        f"On {len(both):,} points that both evaluated, time per token by law (marginal rates) is "
        f"{percent(float(off.median()))} off the simulation in the median, {percent(float(off[worst.name]))} at {where}."
    )


def _points(found: SweepTable) -> Iterator[Block]:
    frame, rest = found.frame[found.frame["fault"].isna()], [one for one in found.frame if one not in ("point", "fault")]
    judge = next(iter(best(found)), None)
    if judge and len(frame) > MOST_POINTS:
        ascending = METRICS[judge.partition("_")[2]].less_is_better
        frame = frame.sort_values([judge, "point"], ascending=[ascending, True]).head(MOST_POINTS)
        told = f"The best {MOST_POINTS} of {len(found.frame):,} points by {label(judge)}; all of them: "
    else:
        told = "All of them as a table: "
    yield Paragraph((told, Hyperlink(points_file(found), points_file(found)), "."))
    rows: list[tuple[Words, ...]] = [
        tuple(_cell(row[name], name in found.axes) for name in rest) for _, row in frame.iterrows()
    ]
    yield Table([name if name in found.axes else label(name) for name in rest], rows, "Points", sortable=True)


def _cell(value: Any, stated: bool) -> str:
    if isinstance(value, float) and not stated:
        return "" if pd.isna(value) else number(value) if abs(value) >= 0.001 else f"{value:.3g}"
    return str(value)


def _faults(found: SweepTable) -> Iterator[Block]:
    if wrong := faults(found):
        yield Table(("point", "why"), [(one["at"], one["fault"]) for one in list(wrong.values())[:MOST_POINTS]], "Faults")


def _stated(found: SweepTable) -> Iterator[Block]:
    told = found.file.model_dump(mode="json", exclude_defaults=True)
    yield Listing(yaml.safe_dump(told, sort_keys=False, allow_unicode=True, width=110), "yaml")
    known = LAW_METRICS if found.file.evaluators == ("law",) else tuple(METRICS)
    rows = [(Code(name), METRICS[name].label) for name in found.file.metrics or known]
    yield Table(("column", "what"), rows, "Metrics")
