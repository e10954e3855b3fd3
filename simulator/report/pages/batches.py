"""What speculation is worth in a batch: speed-up, passes of the target with their tiles, exposed
draft time.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.figure import Figure as Drawing

from simulator.report.blocks import Bullets, Figure, Page, Paragraph, Section
from simulator.report.drawing import canvas
from simulator.report.figures import GREY, ORANGE, SHADE, legend_above, log_x, panel
from simulator.report.pages.load import LINES
from simulator.report.run_summary import origin
from simulator.report.wording import Wording, short_names
from simulator.studies.batches import BatchPoint, BatchStudies, BatchStudy, crossover

say = Wording("batches")
PLAIN = {
    "law_tokens_per_s": "baseline_tokens_per_s",
    "simulated_tokens_per_s": "simulated_baseline_tokens_per_s",
}
"""Rates of autoregressive decoding, by those of a strategy that they are the base of."""


def page(result: BatchStudies) -> Page:
    """Return the page of the batch study: its picture, and a table of sizes for all scenarios."""
    studies = result.studies
    strategies = ", ".join(dict.fromkeys(study.scenario.strategy.name for study in studies))
    pictures = (
        "Speed-up, passes and draft time by batch"
        if len(studies) == 1
        else "Tokens per second by batch"
    )
    return Page(
        **say.first_screen(strategies=strategies, studies=studies),
        opening=[
            Figure(pictures, "batches.svg", lambda: batch_figure(studies)),
            Paragraph(say("legend")),
        ],
        sections=[_section(study) for study in studies],
    )


def _section(study: BatchStudy) -> Section:
    """Return the table and the sentences of a scenario."""
    points = [point for point in study.points if point.simulated_requests] or study.points
    table = say.table("sizes", points, scenario=study.scenario, points=points)
    return Section(study.scenario.name, [table, Bullets(list(sentences(study)))])


def sentences(study: BatchStudy) -> Iterator[str]:
    """Yield what the strategy sets by size, where autoregressive decoding overtakes it, and where
    tiles begin.
    """
    points = study.points
    begins: dict[str, int] = {}
    for point in points:
        begins.setdefault(point.settings, point.batch)
    words = crossed(*crossover(points), study.scenario.strategy.name)
    yield from say.all(
        "sentences", points=points, begins=begins, crossed=words, edges=study.tile_edges
    )


def crossed(first: int | None, for_good: int | None, name: str) -> str:
    """Return in words at which batch autoregressive decoding overtakes a strategy."""
    return say("crossed", first=first, for_good=for_good, name=name)


def batch_figure(studies: Sequence[BatchStudy]) -> Drawing:
    """Return the panels of a single scenario, or the tokens per second of several."""
    return throughput_figure(studies) if len(studies) > 1 else scenario_figure(studies[0])


def scenario_figure(study: BatchStudy) -> Drawing:
    """Return panels over the batch size on a logarithmic axis, with the sizes at which a pass needs
    another tile.
    """
    points, name = study.points, study.scenario.strategy.name
    overhead = any(point.relative_draft_overhead is not None for point in points)
    trees = any(point.fused_trees_ms is not None for point in points)
    panels = 2 + overhead + trees
    with canvas(2.9 * panels) as figure:
        panel_axes = figure.subplots(panels, 1, sharex=True)
        _speedup(panel_axes[0], points, name)
        _passes(panel_axes[1], points, study.tile_edges)
        if overhead:
            _overhead(panel_axes[2], points)
        if trees:
            panel(panel_axes[-1], say, "trees_panel", points)
        for axes in panel_axes:
            log_x(axes, 2)
            axes.set_xlim(points[0].batch / 1.06, points[-1].batch * 1.06)
            axes.tick_params(labelbottom=True)
            legend_above(axes, 2)
        panel_axes[-1].set_xlabel("batch B (requests that decode together)")
        return figure


def throughput_figure(studies: Sequence[BatchStudy]) -> Drawing:
    """Return tokens per second of scenarios over the batch size, and their ratio to the first, or
    to plain decoding.
    """
    several = (
        len({study.scenario.target and study.scenario.target.model.name for study in studies}) > 1
    )
    with canvas(6.4) as figure:
        rates, ratios = figure.subplots(2, 1, sharex=True)
        names = short_names([study.scenario.name for study in studies])
        for place, (name, study, (colour, marker)) in enumerate(
            zip(names, studies, LINES * len(studies), strict=False)
        ):
            label = f"{name} (acceptance {origin(study.scenario.acceptance)})"
            line, reference = "--" if place >= len(LINES) else "-", None if several else studies[0]
            _rates(
                rates, ratios, study, reference, "law_tokens_per_s", line, color=colour, label=label
            )
            _rates(
                rates,
                ratios,
                study,
                reference,
                "simulated_tokens_per_s",
                marker,
                color=colour,
                mfc="none",
                ms=5,
            )
        panel(rates, say, "rates_panel", ())
        panel(ratios, say, "ratios_panel", (), base="" if several else names[0])
        rates.tick_params(labelbottom=True)
        rates.legend(loc="upper left")
        return figure


def _rates(
    rates: Any,
    ratios: Any,
    study: BatchStudy,
    reference: BatchStudy | None,
    field: str,
    style: str,
    **look: Any,
) -> None:
    """Draw a rate of a scenario, and its ratio to that of the reference, or of plain decoding,
    where both have it.
    """
    values = {point.batch: getattr(point, field) for point in study.points}
    of_base = field if reference else PLAIN[field]
    base = {point.batch: getattr(point, of_base) for point in (reference or study).points}
    sizes = [size for size, rate in values.items() if rate and base.get(size)]
    rates.plot(sizes, [values[size] for size in sizes], style, **look)
    ratios.plot(sizes, [values[size] / base[size] for size in sizes], style, **look)


def _speedup(axes: Any, points: Sequence[BatchPoint], name: str) -> None:
    panel(
        axes, say, "speedup_panel", points, name=name, vanilla=points[0].vanilla_speedup is not None
    )
    first, for_good = crossover(points)
    if for_good is not None:
        axes.axvspan(for_good, points[-1].batch * 1.06, color=SHADE, lw=0, zorder=0)
    axes.text(
        0.015,
        0.06,
        crossed(first, for_good, name),
        ha="left",
        va="bottom",
        size=8,
        transform=axes.transAxes,
    )


def _passes(axes: Any, points: Sequence[BatchPoint], edges: Sequence[int]) -> None:
    rows = {point.batch: point.verify_rows for point in points}
    for edge in edges:
        axes.axvline(
            edge,
            color=ORANGE,
            lw=0.7,
            zorder=0,
            label="another tile of rows" if edge == edges[0] else None,
        )
    panel(axes, say, "passes_panel", points)
    top, last = axes.get_ylim()[1], 0.0
    for edge in edges:
        if edge > last * 1.12:
            axes.text(
                edge,
                top * 0.99,
                f"{rows[edge]} rows ",
                ha="right",
                va="top",
                size=7,
                color=ORANGE,
                rotation=90,
            )
            last = edge


def _overhead(axes: Any, points: Sequence[BatchPoint]) -> None:
    panel(axes, say, "overhead_panel", points)
    top, before = axes.get_ylim()[1], None
    for point in points:
        if point.settings != before:
            axes.axvline(point.batch, color=GREY, lw=0.5, ls=":")
            text = point.settings.replace(", ", "\n").replace("kappa", "κ =")
            at_end = point.batch > 0.9 * points[-1].batch
            where, side = point.batch * (0.98 if at_end else 1.02), "right" if at_end else "left"
            axes.text(
                where, top * (0.8 if at_end else 0.98), text, va="top", ha=side, size=7, color=GREY
            )
            before = point.settings
