"""The result of fitting a profile to measured times: page and JSON of ``specsim calibrate device``,
``link`` and ``engine``.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MultipleLocator

from simulator.core.plain import PlainData
from simulator.evidence.calibrate import fit
from simulator.evidence.calibrate.profile import FittedProfile, text
from simulator.evidence.calibrate.quality import (
    LEFT_OUT,
    LEFT_OUT_RANGES,
    SINGLE_PRODUCTS,
    FitError,
    HeldOutErrors,
    TileStep,
)
from simulator.evidence.calibrate.runs import IDENTIFIED, EngineFit, FittedNumber, MeasuredRun
from simulator.report.blocks import Block, Figure, Listing, Page, Paragraph, Table, sections
from simulator.report.columns import Column, table
from simulator.report.drawing import canvas
from simulator.report.panels import BLUE, GREY, ORANGE, VERMILLION, Curve, draw, dress
from simulator.report.wording import number, share, shown, signed_share

FEW_SHAPES = 3
"""How many shapes of a product are listed by name: those with the largest errors."""
MOST_PANELS = 12
MOST_TOKENS = 512
"""Largest token count that the figure shows."""
ERRORS = (
    "Errors in % of the measured time; like: MAPE of the profile it starts from; sheet: of the "
    "datasheet's rates"
)
LEFT_OUT_ERRORS = (
    "Predicted by a fit to all the others: layers of a model or degree, products of a shape (%)"
)
STEPS = "Growth of a layer behind a step, median over models and degrees (%)"
SCORES = (
    "Errors in % of the measured time, without a fit. inside: share of times within the profile's "
    "spread; bare: MAPE of the datasheet's rates alone. Rows that no fit uses are named: cached, "
    "test, eager."
)
SHOWN_RUNS = 20
"""Runs of an engine's fit that a terminal shows."""
NOT_NAMES = ("step_ms", "tokens_per_s", "speedup", "left_out", "source")
"""Columns of a run that say nothing about which run it is."""


def tables(profile: FittedProfile) -> Iterator[Table]:
    """Yield every table that is not empty: errors, errors of what was left out, growth behind the
    steps of a tile.
    """
    before: dict[FitError, str] = {}
    for name, own in profile.errors.items():
        of_like = {error[:3]: f"{error.mape_percent:.1f}" for error in profile.before.get(name, ())}
        kind = name.split(", ")[1:] + ["latents"] * name.startswith("latent_")
        # formats and latents have ranges of the same name; keys and values in 16 bits go without
        for error in own:
            before[error._replace(what=", ".join((*kind, error.what)))] = of_like.get(error[:3], "")
    yield _errors(list(before), before)
    head = ("left out", "", *(f"MAPE {low}..{high}" for low, high in LEFT_OUT_RANGES))
    yield Table(head, list(_left_out_rows(profile.left_out)), LEFT_OUT_ERRORS)
    yield _steps(list(zip(profile.steps, profile.steps_before, strict=True)))


def _errors(errors: Sequence[FitError], before: Mapping[FitError, str]) -> Table:
    """Return the errors of a fit, beside those of the profile that it starts from."""
    columns: list[Column[FitError]] = [
        Column("", lambda error: error.what),
        Column("tokens", _tokens),
        Column("rows", lambda error: f"{error.rows:,}"),
        Column("MAPE", lambda error: f"{error.mape_percent:.1f}"),
        Column("p95", lambda error: f"{error.p95_percent:.1f}"),
        Column("bias", lambda error: f"{error.bias_percent:+.1f}"),
        Column("like", lambda error: before[error]),
        Column("sheet", lambda error: shown(error.datasheet_mape_percent, ".1f")),
    ]
    return table(ERRORS, errors, columns)


def _scores(errors: Sequence[FitError]) -> Table:
    """Return the errors of a profile that nothing was fitted to."""
    columns: list[Column[FitError]] = [
        Column("", lambda error: error.what),
        Column("rows or bytes", _tokens),
        Column("times", lambda error: f"{error.rows:,}"),
        Column("MAPE", lambda error: f"{error.mape_percent:.1f}"),
        Column("p95", lambda error: f"{error.p95_percent:.1f}"),
        Column("bias", lambda error: f"{error.bias_percent:+.1f}"),
        Column("inside", lambda error: shown(error.inside_percent, ".0f")),
        Column("bare", lambda error: shown(error.datasheet_mape_percent, ".1f")),
    ]
    return table("Errors (%)", errors, columns)


def _tokens(error: FitError) -> str:
    if error.most_tokens:
        return f"{error.least_tokens}..{error.most_tokens}"
    return ""


def _steps(steps: Sequence[tuple[TileStep, TileStep]]) -> Table:
    """Return by how much a layer grows behind a step, by this fit and by what it starts from."""
    columns = [
        Column[tuple[TileStep, TileStep]]("behind", lambda pair: pair[0].after_tokens),
        Column[tuple[TileStep, TileStep]]("next", lambda pair: pair[0].next_tokens),
        Column[tuple[TileStep, TileStep]](
            "measured", lambda pair: f"{pair[0].measured_percent:+.1f}"
        ),
        Column[tuple[TileStep, TileStep]](
            "predicted", lambda pair: f"{pair[0].predicted_percent:+.1f}"
        ),
        Column[tuple[TileStep, TileStep]]("like", lambda pair: f"{pair[1].predicted_percent:+.1f}"),
    ]
    return table(STEPS, steps, columns)


def _left_out_rows(left_out: Sequence[HeldOutErrors]) -> Iterator[tuple[str, ...]]:
    """Yield the mean weighted by rows, then every model and degree; of the shapes only the
    worst.
    """
    for by in (*LEFT_OUT, *SINGLE_PRODUCTS):
        group = [errors for errors in left_out if errors.by == by]
        if not group:
            continue
        means = (_weighted_mape(group, place) for place in range(len(LEFT_OUT_RANGES)))
        yield by.replace("_", " "), f"all {len(group)}", *means
        if by == "shape":
            group = sorted(group, key=lambda errors: -errors.mape_percent[-1])[:FEW_SHAPES]
        for errors in group:
            yield (
                "",
                errors.name,
                *("" if isnan(mape) else f"{mape:.1f}" for mape in errors.mape_percent),
            )


def _weighted_mape(group: Sequence[HeldOutErrors], place: int) -> str:
    """Return the MAPE in per cent over a range of tokens, weighted by rows; empty where nothing was
    measured.
    """
    weighted = []
    for errors in group:
        if errors.rows[place]:
            weighted.append((errors.mape_percent[place], errors.rows[place]))
    if not weighted:
        return ""
    total = sum(mape * rows for mape, rows in weighted)
    return f"{total / sum(rows for _, rows in weighted):.1f}"


def as_data(profile: FittedProfile) -> PlainData:
    """Return the fit and its errors as the object that ``--json`` prints; what was not measured is
    null.
    """
    left_out = []
    for errors in profile.left_out:
        mape_percent = [None if isnan(mape) else mape for mape in errors.mape_percent]
        left_out.append(errors._asdict() | {"mape_percent": mape_percent})
    return {
        "profile": profile.data,
        "errors": {
            name: [error._asdict() for error in errors] for name, errors in profile.errors.items()
        },
        "errors_of_like": {
            name: [error._asdict() for error in errors] for name, errors in profile.before.items()
        },
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
        opening.append(
            Figure("Time of a layer by token count", f"{name}.svg", lambda: figure(layers))
        )
    for errors in tables(profile):
        if errors.rows:
            opening += [Paragraph(f"{errors.title}."), errors]
    if profile.tiles:
        tried = "; ".join(f"{tiles}: {error:.1f}" for tiles, error in profile.tiles.items())
        opening.append(Paragraph(f"Tiles tried, layer MAPE up to 512 tokens (%): {tried}."))
    fitted = sections(("Profile", [Listing(text(profile.data), "yaml")]), terminal=False)
    return Page(
        f"{name}: fitted to measurements", opening=opening, sections=fitted, command=command
    )


def score_page(name: str, errors: Sequence[FitError], command: str) -> Page:
    """Return the page of a profile compared with a table of measured times."""
    return Page(
        f"{name} against measured times", about=SCORES, opening=[_scores(errors)], command=command
    )


class LayerTimes(NamedTuple):
    """Holds the seconds of a layer at a number of tokens: of the datasheet's rates, of the profile
    that the fit starts from, of the fit, and measured.
    """

    tokens: float
    sheet: float
    like: float
    fitted: float
    measured: float


def figure(layers: pd.DataFrame) -> Drawing:
    """Draw the products of a layer by token count: measured, fitted, as before and by the
    datasheet.
    """
    drawn = layers[layers.tokens <= MOST_TOKENS]
    groups = [
        (model, ranks, rows)
        for (model, ranks), rows in drawn.groupby(fit.LAYER[:2])
        if ranks in _ends(drawn, model)
    ]
    groups = groups[
        :: -(-len(groups) // MOST_PANELS)
    ]  # of many single products, some all over the sizes
    with canvas(0.4 + 2.3 * -(-len(groups) // 2)) as drawing:
        panels = drawing.subplots(-(-len(groups) // 2), 2, squeeze=False, sharex=True).ravel()
        for axes, (model, ranks, rows) in zip(panels, groups, strict=False):
            columns = (rows.tokens, rows.sheet, rows.like, rows.predicted, rows.seconds)
            _draw_layer(axes, [LayerTimes(*times) for times in zip(*columns, strict=True)])
            axes.set_title(f"{model}, TP {ranks:g}", size=8.5)
            axes.xaxis.set_major_locator(MultipleLocator(64))
            axes.tick_params(labelsize=7.5)
        for axes in panels[len(groups) :]:
            axes.set_visible(False)
        drawing.supxlabel("tokens", size=9)
        drawing.supylabel("products of a layer (µs)", size=9)
        drawing.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=4)
        return drawing


def _draw_layer(axes: Axes, times: Sequence[LayerTimes]) -> None:
    """Draw the µs of a layer by token count."""
    draw(
        axes,
        times,
        lambda time: time.tokens,
        Curve(lambda time: time.sheet * 1e6, ":", GREY, "datasheet", look={"lw": 1.0}),
        Curve(lambda time: time.like * 1e6, "--", ORANGE, "like", look={"lw": 1.1}),
        Curve(lambda time: time.fitted * 1e6, "-", BLUE, "fitted", look={"lw": 1.3}),
        Curve(lambda time: time.measured * 1e6, ".", VERMILLION, "measured", look={"ms": 2.5}),
    )
    dress(axes, ylim=(0.0, None))


def _ends(layers: pd.DataFrame, model: object) -> tuple[float, float]:
    """Return the smallest and the largest tensor-parallel degree that was measured of a model."""
    ranks = layers[layers.model == model].tensor_parallel
    return float(ranks.min()), float(ranks.max())


def engine_page(fitted: EngineFit, name: str) -> Page:
    """Return the page of an engine's fit: its numbers, what the rows do not identify, errors, and
    every row.
    """
    errors = ", ".join(f"{what} {share(error)}" for what, error in fitted.errors.items())
    return Page(
        title=f"{name}, fitted to {len(fitted.predictions)} runs",
        answer=f"Mean absolute errors: {errors}.",
        opening=[_numbers(fitted.numbers)],
        sections=sections(("Runs", [_runs(fitted.predictions)])),
    )


def _numbers(numbers: Mapping[str, FittedNumber]) -> Table:
    """Return the free numbers of an engine, and which of them the rows identify."""
    columns = [
        Column[tuple[str, FittedNumber]]("number", lambda row: row[0]),
        Column[tuple[str, FittedNumber]]("before", lambda row: number(row[1].before)),
        Column[tuple[str, FittedNumber]]("fitted", lambda row: number(row[1].value)),
        Column[tuple[str, FittedNumber]]("deviation", lambda row: number(row[1].deviation)),
        Column[tuple[str, FittedNumber]]("rows", lambda row: identified(row[1].left)),
    ]
    return table("Numbers of the engine", numbers.items(), columns)


def identified(left: float) -> str:
    """Return whether the rows identify a number, of whose pull so much is left."""
    if left < IDENTIFIED:
        return "identified"
    return f"not identified: {100 * left:.0f} % of its pull is left"


def _runs(predictions: Sequence[tuple[MeasuredRun, float]]) -> Table:
    """Return every row of the table of runs, with what the law says of it."""
    columns = [
        Column[tuple[MeasuredRun, float]]("run", lambda row: _name(row[0])),
        Column[tuple[MeasuredRun, float]]("what", lambda row: row[0].quantity),
        Column[tuple[MeasuredRun, float]]("measured", lambda row: number(row[0].measured)),
        Column[tuple[MeasuredRun, float]]("law", lambda row: number(row[1])),
        Column[tuple[MeasuredRun, float]](
            "error", lambda row: signed_share(row[1] / row[0].measured - 1.0)
        ),
    ]
    return table("Runs by law", predictions, columns, terminal_rows=SHOWN_RUNS)


def _name(run: MeasuredRun) -> str:
    """Return what distinguishes a run: its columns, cut to what a line has room for."""
    cells = (cell for key, cell in run.columns.items() if cell and key not in NOT_NAMES)
    return ", ".join(cells)[:60]
