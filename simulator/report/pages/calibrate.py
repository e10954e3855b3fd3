"""The result of fitting a profile to measured times: page and JSON of ``specsim calibrate device``,
``link`` and ``engine``.
"""

from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MultipleLocator

from simulator.evidence.calibrate import fit
from simulator.evidence.calibrate.profile import FittedProfile, text
from simulator.evidence.calibrate.quality import (
    LEFT_OUT,
    LEFT_OUT_RANGES,
    SINGLE_PRODUCTS,
    FitError,
    HeldOutErrors,
)
from simulator.evidence.calibrate.runs import IDENTIFIED, EngineFit, MeasuredRun
from simulator.report.blocks import Block, Figure, Listing, Page, Paragraph, Table, sections
from simulator.report.drawing import canvas
from simulator.report.figures import panel
from simulator.report.wording import Wording, share

FEW_SHAPES = 3
"""How many shapes of a product are listed by name: those with the largest errors."""
MOST_PANELS = 12
MOST_TOKENS = 512
"""Largest token count that the figure shows."""
say = Wording("calibrate")


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
    head = ("left out", "", *(f"MAPE {low}..{high}" for low, high in LEFT_OUT_RANGES))
    yield say.table("errors", list(before), like=before)
    yield Table(head, list(_left_out_rows(profile.left_out)), say("left_out"))
    yield say.table("steps", zip(profile.steps, profile.steps_before, strict=True))


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
    weighted = [
        (errors.mape_percent[place], errors.rows[place]) for errors in group if errors.rows[place]
    ]
    if not weighted:
        return ""
    total = sum(mape * rows for mape, rows in weighted)
    return f"{total / sum(rows for _, rows in weighted):.1f}"


def as_data(profile: FittedProfile) -> dict[str, Any]:
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
    for table in tables(profile):
        opening += [Paragraph(f"{table.title}."), table] if table.rows else []
    if profile.tiles:
        opening.append(Paragraph(say("tiles", found=profile.tiles.items())))
    fitted = sections(("Profile", [Listing(text(profile.data), "yaml")]), terminal=False)
    return Page(
        f"{name}: fitted to measurements", opening=opening, sections=fitted, command=command
    )


def score_page(name: str, errors: Sequence[FitError], command: str) -> Page:
    """Return the page of a profile held against a table."""
    table = say.table("scores", errors, tokens="rows or bytes", rows="times")
    return Page(
        f"{name} against measured times", about=say("about"), opening=[table], command=command
    )


def figure(layers: pd.DataFrame) -> Drawing:
    """Draw the products of a layer by token count: measured, fitted, as before and by the
    datasheet.
    """
    shown = layers[layers.tokens <= MOST_TOKENS]
    groups = [
        (model, ranks, rows)
        for (model, ranks), rows in shown.groupby(fit.LAYER[:2])
        if ranks in _ends(shown, model)
    ]
    groups = groups[
        :: -(-len(groups) // MOST_PANELS)
    ]  # of many single products, some all over the sizes
    with canvas(0.4 + 2.3 * -(-len(groups) // 2)) as drawing:
        panels = drawing.subplots(-(-len(groups) // 2), 2, squeeze=False, sharex=True).ravel()
        for axes, (model, ranks, rows) in zip(panels, groups, strict=False):
            columns = (rows.tokens, rows.sheet, rows.like, rows.predicted, rows.seconds)
            panel(axes, say, "layer_panel", list(zip(*columns, strict=True)))
            axes.set_title(f"{model}, TP {ranks:g}", size=8.5)
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
    """Return the page of an engine's fit: its numbers, what the rows do not identify, errors, and
    every row.
    """

    def what(run: MeasuredRun) -> str:
        shown = ("step_ms", "tokens_per_s", "speedup", "left_out", "source")
        return ", ".join(cell for key, cell in run.columns.items() if cell and key not in shown)[
            :60
        ]

    errors = ", ".join(f"{what} {share(error)}" for what, error in fitted.errors.items())
    return Page(
        title=f"{name}, fitted to {len(fitted.predictions)} runs",
        answer=f"Mean absolute errors: {errors}.",
        opening=[say.table("numbers", fitted.numbers.items(), identified=IDENTIFIED)],
        sections=sections(("Runs", [say.table("runs", fitted.predictions, what=what)])),
    )
