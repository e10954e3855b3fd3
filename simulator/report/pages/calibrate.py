"""The result of fitting a profile to measured times: page and JSON of ``specsim calibrate device``, ``link`` and ``engine``."""

from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MultipleLocator

from simulator.evidence.calibrate import fit
from simulator.evidence.calibrate.profile import FittedProfile, text
from simulator.evidence.calibrate.quality import LEFT_OUT, LEFT_OUT_RANGES, SINGLE_PRODUCTS, FitError, HeldOutErrors, TileStep
from simulator.evidence.calibrate.runs import IDENTIFIED, EngineFit
from simulator.report.blocks import Block, Figure, Listing, Page, Paragraph, Table, sections
from simulator.report.drawing import canvas
from simulator.report.figures import BLUE, GREY, ORANGE, VERMILLION
from simulator.report.numbers import number, share, signed_share

FEW_SHAPES = 3
"""How many shapes of a product are listed by name: those with the largest errors."""
MOST_PANELS = 12
MOST_TOKENS = 512
"""Largest token count that the figure shows."""
HEADS = {
    "errors": ("", "tokens", "rows", "MAPE", "p95", "bias", "like", "sheet"),
    "left_out": ("left out", "", *(f"MAPE {low}..{high}" for low, high in LEFT_OUT_RANGES)),
    "steps": ("behind", "next", "measured", "predicted", "like"),
}
TITLES = {
    "errors": "Errors in % of the measured time; like: MAPE of the profile it starts from; sheet: of the datasheet's rates",
    "left_out": "Predicted by a fit to all the others: layers of a model or degree, products of a shape (%)",
    "steps": "Growth of a layer behind a step, median over models and degrees (%)",
}


def tables(profile: FittedProfile) -> dict[str, list[tuple[str, ...]]]:
    """Return the rows of every table that is not empty, by its key in ``HEADS``."""
    errors: list[tuple[str, ...]] = []
    for operation, fit_errors in profile.errors.items():
        errors += _error_rows(fit_errors, profile.before.get(operation, ()))
    steps = [_step_row(*pair) for pair in zip(profile.steps, profile.steps_before, strict=True)]
    rows = {"errors": errors, "left_out": list(_left_out_rows(profile.left_out)), "steps": steps}
    return {name: filled for name, filled in rows.items() if filled}


def _error_rows(errors: Sequence[FitError], before: Sequence[FitError]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each range of tokens; ``before`` are the errors of the profile that the fit starts from."""
    mape_before = {error[:3]: f"{error.mape_percent:.1f}" for error in before}
    for error in errors:
        tokens = f"{error.least_tokens}..{error.most_tokens}" if error.most_tokens else ""
        sheet = "" if error.datasheet_mape_percent is None else f"{error.datasheet_mape_percent:.1f}"
        sizes = f"{error.mape_percent:.1f}", f"{error.p95_percent:.1f}", f"{error.bias_percent:+.1f}"
        yield error.what, tokens, f"{error.rows:,}", *sizes, mape_before.get(error[:3], ""), sheet


def _left_out_rows(left_out: Sequence[HeldOutErrors]) -> Iterator[tuple[str, ...]]:
    """Yield the mean weighted by rows, then every model and degree; of the shapes only the worst."""
    for by in (*LEFT_OUT, *SINGLE_PRODUCTS):
        group = [errors for errors in left_out if errors.by == by]
        if not group:
            continue
        means = (_weighted_mape(group, place) for place in range(len(LEFT_OUT_RANGES)))
        yield by.replace("_", " "), f"all {len(group)}", *means
        if by == "shape":
            group = sorted(group, key=lambda errors: -errors.mape_percent[-1])[:FEW_SHAPES]
        for errors in group:
            yield "", errors.name, *("" if isnan(mape) else f"{mape:.1f}" for mape in errors.mape_percent)


def _weighted_mape(group: Sequence[HeldOutErrors], place: int) -> str:
    """Return the MAPE in per cent over a range of tokens, weighted by rows; empty where nothing was measured."""
    weighted = [(errors.mape_percent[place], errors.rows[place]) for errors in group if errors.rows[place]]
    if not weighted:
        return ""
    return f"{sum(mape * rows for mape, rows in weighted) / sum(rows for _, rows in weighted):.1f}"


def _step_row(step: TileStep, before: TileStep) -> tuple[str, ...]:
    growth = step.measured_percent, step.predicted_percent, before.predicted_percent
    return str(step.after_tokens), str(step.next_tokens), *(f"{percent:+.1f}" for percent in growth)


def as_data(profile: FittedProfile) -> dict[str, Any]:
    """Return the fit and its errors as the object that ``--json`` prints; what was not measured is null."""
    left_out = []
    for errors in profile.left_out:
        mape_percent = [None if isnan(mape) else mape for mape in errors.mape_percent]
        left_out.append(errors._asdict() | {"mape_percent": mape_percent})
    return {
        "profile": profile.data,
        "errors": {name: [error._asdict() for error in errors] for name, errors in profile.errors.items()},
        "errors_of_like": {name: [error._asdict() for error in errors] for name, errors in profile.before.items()},
        "left_out": left_out,
        "steps": [step._asdict() for step in profile.steps],
        "steps_of_like": [step._asdict() for step in profile.steps_before],
        "layer_mape_percent_by_tiles": profile.tiles,
    }


def page(name: str, profile: FittedProfile, command: str) -> Page:
    """Return the page of the fitted profile ``name``: figure, errors, and the profile itself."""
    opening: list[Block] = []
    if profile.layers is not None:
        layers = profile.layers
        opening.append(Figure("Time of a layer by token count", f"{name}.svg", lambda: figure(layers)))
    for kind, rows in tables(profile).items():
        opening += [Paragraph(f"{TITLES[kind]}."), Table(HEADS[kind], rows, TITLES[kind])]
    if profile.tiles:
        errors = "; ".join(f"{tiles}: {error:.1f}" for tiles, error in profile.tiles.items())
        opening.append(Paragraph(f"Tiles tried, layer MAPE up to 512 tokens (%): {errors}."))
    fitted = sections(("Profile", [Listing(text(profile.data), "yaml")]), terminal=False)
    return Page(f"{name}: fitted to measurements", opening=opening, sections=fitted, command=command)


def score_page(name: str, errors: Sequence[FitError], command: str) -> Page:
    """Return the page of a profile held against a table."""
    inside = ["" if error.inside_percent is None else f"{error.inside_percent:.0f}" for error in errors]
    rows = [(*cells[:6], share, cells[7]) for cells, share in zip(_error_rows(errors, ()), inside, strict=True)]
    head = ("", "rows or bytes", "times", "MAPE", "p95", "bias", "inside", "bare")
    about = (
        "Errors in % of the measured time, without a fit. inside: share of times within the profile's spread; bare: MAPE of the"
        " datasheet's rates alone. Rows that no fit uses are named: cached, test, eager."
    )
    return Page(f"{name} against measured times", about=about, opening=[Table(head, rows, "Errors (%)")], command=command)


def figure(layers: pd.DataFrame) -> Drawing:
    """Draw the products of a layer by token count: measured, fitted, as before and by the datasheet."""
    shown = layers[layers.tokens <= MOST_TOKENS]
    groups = [(model, ranks, rows) for (model, ranks), rows in shown.groupby(fit.LAYER[:2]) if ranks in _ends(shown, model)]
    groups = groups[:: -(-len(groups) // MOST_PANELS)]  # of many single products, some all over the sizes
    with canvas(0.4 + 2.3 * -(-len(groups) // 2)) as drawing:
        panels = drawing.subplots(-(-len(groups) // 2), 2, squeeze=False, sharex=True).ravel()
        for axes, (model, ranks, rows) in zip(panels, groups, strict=False):
            axes.plot(rows.tokens, rows.sheet * 1e6, ":", color=GREY, lw=1.0, label="datasheet")
            axes.plot(rows.tokens, rows.like * 1e6, "--", color=ORANGE, lw=1.1, label="like")
            axes.plot(rows.tokens, rows.predicted * 1e6, "-", color=BLUE, lw=1.3, label="fitted")
            axes.plot(rows.tokens, rows.seconds * 1e6, ".", color=VERMILLION, ms=2.5, label="measured")
            axes.set_title(f"{model}, TP {ranks:g}", size=8.5)
            axes.set_ylim(bottom=0.0)
            axes.xaxis.set_major_locator(MultipleLocator(64))
            axes.tick_params(labelsize=7.5)
        for axes in panels[len(groups) :]:
            axes.set_visible(False)
        drawing.supxlabel("tokens", size=9)
        drawing.supylabel("products of a layer (µs)", size=9)
        drawing.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=4)
        return drawing


def _ends(shown: pd.DataFrame, model: object) -> tuple[float, float]:
    """Return the smallest and the largest tensor-parallel degree that was measured of a model."""
    ranks = shown[shown.model == model].tensor_parallel
    return float(ranks.min()), float(ranks.max())


def engine_page(fitted: EngineFit, name: str) -> Page:
    """Return the page of an engine's fit: its numbers, what the rows do not identify, errors, and every row."""
    numbers = []
    for key, one in fitted.numbers.items():
        known = "identified" if one.left < IDENTIFIED else f"not identified: {100 * one.left:.0f} % of its pull is left"
        numbers.append((key, number(one.before), number(one.value), number(one.deviation), known))
    shown = ("step_ms", "tokens_per_s", "speedup", "left_out", "source")
    rows = []
    for run, value in fitted.predictions:
        what = ", ".join(cell for key, cell in run.columns.items() if cell and key not in shown)
        rows.append((what[:60], run.quantity, number(run.measured), number(value), signed_share(value / run.measured - 1.0)))
    errors = ", ".join(f"{what} {share(error)}" for what, error in fitted.errors.items())
    return Page(
        title=f"{name}, fitted to {len(fitted.predictions)} runs",
        answer=f"Mean absolute errors: {errors}.",
        opening=[Table(("number", "before", "fitted", "deviation", "rows"), numbers, "Numbers of the engine")],
        sections=sections(
            ("Runs", [Table(("run", "what", "measured", "law", "error"), rows, "Runs by law", terminal_rows=20)])
        ),
    )
