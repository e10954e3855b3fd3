"""The result of fitting a profile to measured times: page and JSON of ``specsim calibrate device``,
``link`` and ``engine``.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, isnan
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MultipleLocator

from simulator.core.numeric import ordered_sum
from simulator.core.plain import PlainData
from simulator.evidence.calibrate import fit
from simulator.evidence.calibrate.measurements import REASONS
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
from simulator.report.blocks import (
    Block,
    Figure,
    Listing,
    Page,
    Paragraph,
    Standing,
    Table,
    sections,
)
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
    "spread; bare: MAPE of the datasheet's rates alone. Rows that no fit uses are named: "
    f"{', '.join(REASONS)}."
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
        of_like = {}
        for error in profile.before.get(name, ()):
            of_like[error[:3]] = f"{error.mape_percent:.1f}"
        kind = name.split(", ")[1:]
        if name.startswith("latent_"):
            kind.append("latents")
        # formats and latents have ranges of the same name; keys and values in 16 bits go without
        for error in own:
            what = ", ".join((*kind, error.what))
            before[error._replace(what=what)] = of_like.get(error[:3], "")
    yield _errors(list(before), before)
    ranges = [f"MAPE {low}..{high}" for low, high in LEFT_OUT_RANGES]
    left_out = list(_left_out_rows(profile.left_out))
    yield Table(("left out", "", *ranges), left_out, LEFT_OUT_ERRORS)
    yield _steps(list(map(_BehindStep, profile.steps, profile.steps_before)))


def _errors(errors: Sequence[FitError], before: Mapping[FitError, str]) -> Table:
    """Return the errors of a fit, beside those of the profile that it starts from."""
    columns = [
        *_error_columns("tokens", "rows"),
        Column("like", lambda error: before[error]),
        Column("sheet", _datasheet_mape),
    ]
    return table(ERRORS, errors, columns)


def _scores(errors: Sequence[FitError]) -> Table:
    """Return the errors of a profile that nothing was fitted to."""
    columns = [
        *_error_columns("rows or bytes", "times"),
        Column("inside", lambda error: shown(error.inside_percent, ".0f")),
        Column("bare", _datasheet_mape),
    ]
    return table("Errors (%)", errors, columns)


def _error_columns(tokens: str, rows: str) -> list[Column[FitError]]:
    """Return the columns that every table of errors begins with, two of them under these heads."""
    return [
        Column("", lambda error: error.what),
        Column(tokens, _tokens),
        Column(rows, lambda error: f"{error.rows:,}"),
        Column("MAPE", lambda error: f"{error.mape_percent:.1f}"),
        Column("p95", lambda error: f"{error.p95_percent:.1f}"),
        Column("bias", lambda error: f"{error.bias_percent:+.1f}"),
    ]


def _datasheet_mape(error: FitError) -> str:
    return shown(error.datasheet_mape_percent, ".1f")


def _tokens(error: FitError) -> str:
    if error.most_tokens:
        return f"{error.least_tokens}..{error.most_tokens}"
    return ""


class _BehindStep(NamedTuple):
    """By how much a layer grows behind a step: by this fit, and by what it starts from."""

    fit: TileStep
    like: TileStep


def _steps(steps: Sequence[_BehindStep]) -> Table:
    """Return by how much a layer grows behind every step."""
    columns: list[Column[_BehindStep]] = [
        Column("behind", lambda step: step.fit.after_tokens),
        Column("next", lambda step: step.fit.next_tokens),
        Column("measured", lambda step: f"{step.fit.measured_percent:+.1f}"),
        Column("predicted", lambda step: f"{step.fit.predicted_percent:+.1f}"),
        Column("like", lambda step: f"{step.like.predicted_percent:+.1f}"),
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
        means = [_weighted_mape(group, place) for place in range(len(LEFT_OUT_RANGES))]
        yield by.replace("_", " "), f"all {len(group)}", *means
        if by == "shape":
            group.sort(key=lambda errors: -errors.mape_percent[-1])
            group = group[:FEW_SHAPES]
        for errors in group:
            yield "", errors.name, *map(_measured_mape, errors.mape_percent)


def _measured_mape(mape_percent: float) -> str:
    if isnan(mape_percent):
        return ""
    return f"{mape_percent:.1f}"


def _weighted_mape(group: Sequence[HeldOutErrors], place: int) -> str:
    """Return the MAPE in per cent over a range of tokens, weighted by rows; empty where nothing was
    measured.
    """
    rows = 0
    weighted = 0.0
    for errors in group:
        if errors.rows[place]:
            rows += errors.rows[place]
            weighted += errors.mape_percent[place] * errors.rows[place]
    if not rows:
        return ""
    return f"{weighted / rows:.1f}"


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
        "errors": _plain_errors(profile.errors),
        "errors_of_like": _plain_errors(profile.before),
        "left_out": left_out,
        "steps": [step._asdict() for step in profile.steps],
        "steps_of_like": [step._asdict() for step in profile.steps_before],
        "layer_mape_percent_by_tiles": profile.tiles,
    }


def _plain_errors(errors: Mapping[str, Sequence[FitError]]) -> PlainData:
    return {name: [error._asdict() for error in own] for name, own in errors.items()}


def page(name: str, profile: FittedProfile, command: str) -> Page:
    """Return the page of the fitted profile ``name``: figure, errors, and the profile itself."""
    opening: list[Block] = []
    layers = profile.layers
    if layers is not None:
        drawing = Figure("Time of a layer by token count", f"{name}.svg", lambda: figure(layers))
        opening.append(drawing)
    for errors in tables(profile):
        if errors.rows:
            opening += [Paragraph(f"{errors.title}."), errors]
    if profile.tiles:
        tried = "; ".join(f"{tiles}: {error:.1f}" for tiles, error in profile.tiles.items())
        opening.append(Paragraph(f"Tiles tried, layer MAPE up to 512 tokens (%): {tried}."))
    listing = Listing(text(profile.data), "yaml")
    fitted = sections(("Profile", [listing]), terminal=False)
    title = f"{name}: fitted to measurements"
    return Page(
        title,
        answer=_fit_answer(profile),
        opening=opening,
        sections=fitted,
        command=command,
        standing=_fit_standing(profile.errors),
    )


def _fit_answer(profile: FittedProfile) -> str:
    """Return how far the fit is from its rows, beside the profile that it started from."""
    fitted = _mean_mape(profile.errors)
    before = _mean_mape(profile.before)
    if fitted is None:
        return ""
    words = f"Fitted: {number(fitted, 3)} % from the measured times in the mean (MAPE)"
    if before is None:
        return f"{words}."
    return f"{words}, {number(before, 3)} % before."


def _mean_mape(errors: Mapping[str, Sequence[FitError]]) -> float | None:
    """Return the MAPE over all rows, in per cent; None without any."""
    every = [error for own in errors.values() for error in own]
    rows = sum(error.rows for error in every)
    if not rows:
        return None
    return ordered_sum(error.mape_percent * error.rows for error in every) / rows


def _fit_standing(errors: Mapping[str, Sequence[FitError]]) -> Standing:
    """Return how far the worst rows are off, and what is fitted least well."""
    every = [error for own in errors.values() for error in own]
    if not every:
        return Standing()
    worst = max(error.p95_percent for error in every)
    interval = f"95 % of the rows of every kind are within {number(worst, 3)} %."
    ranked = sorted(every, key=lambda error: -error.mape_percent)
    doubts = [f"{error.what}: MAPE {number(error.mape_percent, 3)} %" for error in ranked]
    return Standing(interval, doubts=doubts)


def score_page(name: str, errors: Sequence[FitError], command: str) -> Page:
    """Return the page of a profile compared with a table of measured times."""
    title = f"{name} against measured times"
    mape = _mean_mape({"": errors})
    answer = "" if mape is None else f"{number(mape, 3)} % off in the mean (MAPE)."
    standing = _fit_standing({"": errors})
    scores = [_scores(errors)]
    return Page(
        title, about=SCORES, answer=answer, opening=scores, command=command, standing=standing
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
    groups = []
    for (model, ranks), rows in drawn.groupby(fit.LAYER[:2]):
        if ranks in _ends(drawn, model):
            groups.append((model, ranks, rows))
    every = ceil(len(groups) / MOST_PANELS)
    groups = groups[::every]  # of many single products, some all over the sizes
    lines = ceil(len(groups) / 2)
    with canvas(0.4 + 2.3 * lines) as drawing:
        grid = drawing.subplots(lines, 2, squeeze=False, sharex=True)
        panels = grid.ravel()
        for axes, (model, ranks, rows) in zip(panels, groups, strict=False):
            columns = (rows.tokens, rows.sheet, rows.like, rows.predicted, rows.seconds)
            _draw_layer(axes, list(map(LayerTimes, *columns)))
            axes.set_title(f"{model}, TP {ranks:g}", size=8.5)
            axes.xaxis.set_major_locator(MultipleLocator(64))
            axes.tick_params(labelsize=7.5)
        for axes in panels[len(groups) :]:
            axes.set_visible(False)
        drawing.supxlabel("tokens", size=9)
        drawing.supylabel("products of a layer (µs)", size=9)
        handles, labels = panels[0].get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside upper left", ncols=4)
        return drawing


def _draw_layer(axes: Axes, times: Sequence[LayerTimes]) -> None:
    """Draw the µs of a layer by token count."""
    curves: list[Curve[LayerTimes]] = [
        Curve(lambda time: time.sheet * 1e6, ":", GREY, "datasheet", look={"lw": 1.0}),
        Curve(lambda time: time.like * 1e6, "--", ORANGE, "like", look={"lw": 1.1}),
        Curve(lambda time: time.fitted * 1e6, "-", BLUE, "fitted", look={"lw": 1.3}),
        Curve(lambda time: time.measured * 1e6, ".", VERMILLION, "measured", look={"ms": 2.5}),
    ]
    draw(axes, times, lambda time: time.tokens, *curves)
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
        standing=_engine_standing(fitted.numbers),
    )


def _engine_standing(numbers: Mapping[str, FittedNumber]) -> Standing:
    """Return the free numbers with their deviations, those known least first."""
    ranked = sorted(numbers.items(), key=lambda named: -named[1].left)
    doubts = []
    for name, fitted in ranked:
        doubts.append(f"{name} {number(fitted.value, 3)} ± {number(fitted.deviation, 3)}")
    return Standing(doubts=doubts)


def _numbers(numbers: Mapping[str, FittedNumber]) -> Table:
    """Return the free numbers of an engine, and which of them the rows identify."""
    columns: list[Column[str]] = [
        Column("number", lambda name: name),
        Column("before", lambda name: number(numbers[name].before)),
        Column("fitted", lambda name: number(numbers[name].value)),
        Column("deviation", lambda name: number(numbers[name].deviation)),
        Column("rows", lambda name: identified(numbers[name].left)),
    ]
    return table("Numbers of the engine", numbers, columns)


def identified(left: float) -> str:
    """Return whether the rows identify a number, of whose pull so much is left."""
    if left < IDENTIFIED:
        return "identified"
    return f"not identified: {100 * left:.0f} % of its pull is left"


class _RunByLaw(NamedTuple):
    run: MeasuredRun
    law: float


def _runs(predictions: Sequence[tuple[MeasuredRun, float]]) -> Table:
    """Return every row of the table of runs, with what the law says of it."""
    columns: list[Column[_RunByLaw]] = [
        Column("run", lambda row: _name(row.run)),
        Column("what", lambda row: row.run.quantity),
        Column("measured", lambda row: number(row.run.measured)),
        Column("law", lambda row: number(row.law)),
        Column("error", lambda row: signed_share(row.law / row.run.measured - 1.0)),
    ]
    rows = [_RunByLaw(run, law) for run, law in predictions]
    return table("Runs by law", rows, columns, terminal_rows=SHOWN_RUNS)


def _name(run: MeasuredRun) -> str:
    """Return what distinguishes a run: its columns, cut to what a line has room for."""
    cells = (cell for key, cell in run.columns.items() if cell and key not in NOT_NAMES)
    return ", ".join(cells)[:60]
