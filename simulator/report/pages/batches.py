"""What speculation is worth in a batch: speed-up, passes of the target with their tiles, exposed draft time."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simulator.report.blocks import Bullets, Figure, Page, Paragraph, Section, Table
from simulator.report.figures import BLUE, GREEN, GREY, ORANGE, SHADE, VERMILLION, canvas, curve, legend_above, log_x, svg
from simulator.report.pages.load import LINES
from simulator.report.run_serving import crossed
from simulator.report.numbers import number, short_names
from simulator.report.run_summary import origin
from simulator.studies.batches import BatchPoint, BatchStudies, BatchStudy, crossover

LEGEND = (
    "Simulated speed-ups are of output tokens per second, with the prefills of all requests on both sides. Break-even is the "
    "chance of each draft token of a chain at which the law's speed-up is 1; both intervals are of devices and experts read."
)


def page(result: BatchStudies) -> Page:
    """Return the page of the batch study: its picture, and a table of sizes for all scenarios."""
    studies = result.studies
    strategies = ", ".join(dict.fromkeys(study.scenario.strategy.name for study in studies))
    pictures = "Speed-up, passes and draft time by batch" if len(studies) == 1 else "Tokens per second by batch"
    return Page(
        title=f"What {strategies} is worth in a batch, against autoregressive decoding",
        opening=[Figure(pictures, "batches.svg", lambda: batch_figure(studies)), Paragraph(LEGEND)],
        sections=[_section(study) for study in studies],
    )


def _section(study: BatchStudy) -> Section:
    """Return the table and the sentences of a scenario."""
    shown = [point for point in study.points if point.simulated_requests] or study.points
    columns = _columns(shown)
    rows = [(str(point.batch), *(_cell(getattr(point, field)) for field in columns.values())) for point in shown]
    table = Table(("B", *columns), rows, f"Batch sizes of {study.scenario.name}")
    return Section(study.scenario.name, [table, Bullets(list(sentences(study)))])


def _cell(value: float | str | tuple[float, ...] | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, float | int):
        return number(value, 3)
    *best, low, high = (number(each, 3) for each in value)
    return f"{' '.join(best)} ({low} to {high})".lstrip()


def _columns(points: Sequence[BatchPoint]) -> Mapping[str, str]:
    """Return the field of a point for the columns that have something to show, by head."""
    columns = {"speed-up law": "speedup", "speed-up simul.": "simulated_speedup"}
    if points[0].speedup_interval is not None:
        columns |= {"interval": "speedup_interval", "verdict": "verdict", "break-even": "break_even"}
    if any(point.vanilla_speedup is not None for point in points):
        columns |= {"vanilla law": "vanilla_speedup", "vanilla simul.": "simulated_vanilla_speedup"}
    columns |= {"tokens/s law": "law_tokens_per_s", "tokens/s simul.": "simulated_tokens_per_s"}
    columns |= {"verify ms": "verify_ms", "T_draft ms": "draft_ms"}
    if any(point.relative_draft_overhead is not None for point in points):
        columns["rel. draft overhead"] = "relative_draft_overhead"
    return columns


def sentences(study: BatchStudy) -> Iterator[str]:
    """Yield what the strategy sets by size, where autoregressive decoding overtakes it, and where tiles begin."""
    points = study.points
    begins: dict[str, int] = {}
    for point in points:
        begins.setdefault(point.settings, point.batch)
    if len(begins) > 1:
        yield "Set by batch: " + "; ".join(f"{settings} from {size} on" for settings, size in begins.items())
    words = crossed(*crossover(points), study.scenario.strategy.name)
    yield f"By law, for batches of {points[0].batch} to {points[-1].batch}: {words}"
    if study.tile_edges:
        edges = ", ".join(map(str, study.tile_edges))
        yield f"Verifying needs another tile of rows from these batches on: {edges}"


# ---- the picture


def batch_figure(studies: Sequence[BatchStudy]) -> str:
    """Return the panels of a single scenario, or the tokens per second of several, as SVG text."""
    if len(studies) > 1:
        return throughput_figure(studies)
    return scenario_figure(studies[0])


def scenario_figure(study: BatchStudy) -> str:
    """Return panels over the batch size on a logarithmic axis, with the sizes at which a pass needs another tile; SVG text."""
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
            _trees(panel_axes[-1], points)
        for axes in panel_axes:
            log_x(axes, 2)
            axes.set_xlim(points[0].batch / 1.06, points[-1].batch * 1.06)
            axes.tick_params(labelbottom=True)
            legend_above(axes, 2)
        panel_axes[-1].set_xlabel("batch B (requests that decode together)")
        return svg(figure)


def throughput_figure(studies: Sequence[BatchStudy]) -> str:
    """Return tokens per second of scenarios over the batch size, and their ratio to the first scenario; SVG text."""
    with canvas(6.4) as figure:
        rates, ratios = figure.subplots(2, 1, sharex=True)
        names = short_names([study.scenario.name for study in studies])
        for name, study, (colour, marker) in zip(names, studies, LINES * len(studies), strict=False):
            label = f"{name} (acceptance {origin(study.scenario.acceptance)})"
            _rates(rates, ratios, study, studies[0], "law_tokens_per_s", "-", color=colour, label=label)
            _rates(rates, ratios, study, studies[0], "simulated_tokens_per_s", marker, color=colour, mfc="none", ms=5)
        rates.set_ylabel("tokens per second, all requests")
        rates.set_title("lines: law, prefills left out; marks: simulation", size=8, loc="left", color=GREY)
        ratios.set_ylabel(f"relative to {names[0]}")
        ratios.set_xlabel("batch B (requests that decode together)")
        for axes in (rates, ratios):
            log_x(axes, 2)
            axes.tick_params(labelbottom=True)
        rates.set_ylim(0.0)
        rates.legend(loc="upper left")
        return svg(figure)


def _rates(rates: Any, ratios: Any, study: BatchStudy, reference: BatchStudy, field: str, style: str, **look: Any) -> None:
    """Draw a rate of a scenario, and its ratio to that of the reference, at the sizes where both have it."""
    values = {point.batch: getattr(point, field) for point in study.points}
    base = {point.batch: getattr(point, field) for point in reference.points}
    sizes = [size for size, rate in values.items() if rate and base.get(size)]
    rates.plot(sizes, [values[size] for size in sizes], style, **look)
    ratios.plot(sizes, [values[size] / base[size] for size in sizes], style, **look)


def _speedup(axes: Any, points: Sequence[BatchPoint], name: str) -> None:
    if points[0].vanilla_speedup is not None:
        curve(axes, points, "batch", "vanilla_speedup", "--", color=GREY, label="vanilla_sd, law")
        look = {"mfc": "none", "mec": GREY, "ms": 5, "label": "vanilla_sd, simulation"}
        curve(axes, points, "batch", "simulated_vanilla_speedup", "s", **look)
    curve(axes, points, "batch", "speedup", "-", color=BLUE, label=f"{name}, law")
    curve(axes, points, "batch", "simulated_speedup", "o", mfc="none", mec=VERMILLION, ms=5, label=f"{name}, simulation")
    axes.axhline(1.0, color=GREY, lw=0.8)
    axes.set_ylabel("speed-up over autoregressive")
    axes.set_ylim(0.0)
    first, for_good = crossover(points)
    if for_good is not None:
        axes.axvspan(for_good, points[-1].batch * 1.06, color=SHADE, lw=0, zorder=0)
    axes.text(0.015, 0.06, crossed(first, for_good, name), ha="left", va="bottom", size=8, transform=axes.transAxes)


def _passes(axes: Any, points: Sequence[BatchPoint], edges: Sequence[int]) -> None:
    rows = {point.batch: point.verify_rows for point in points}
    for edge in edges:
        axes.axvline(edge, color=ORANGE, lw=0.7, zorder=0, label="another tile of rows" if edge == edges[0] else None)
    curve(axes, points, "batch", "verify_ms", "-", color=BLUE, label="target verifies its windows")
    curve(axes, points, "batch", "decode_ms", "-.", color=GREY, label="target decodes one token per request")
    curve(axes, points, "batch", "draft_ms", "--", color=GREEN, label="T_draft")
    axes.set_ylabel("law (ms)")
    axes.set_ylim(0.0, axes.get_ylim()[1] * 1.08)
    top, last = axes.get_ylim()[1], 0.0
    for edge in edges:
        if edge > last * 1.12:
            axes.text(edge, top * 0.99, f"{rows[edge]} rows ", ha="right", va="top", size=7, color=ORANGE, rotation=90)
            last = edge


def _overhead(axes: Any, points: Sequence[BatchPoint]) -> None:
    label = "exposed draft time / T_draft of vanilla_sd, law"
    curve(axes, points, "batch", "relative_draft_overhead", "-", color=BLUE, label=label)
    axes.set_ylabel("relative draft overhead")
    axes.set_ylim(0.0, axes.get_ylim()[1] * 1.3)
    top, before = axes.get_ylim()[1], None
    for point in points:
        if point.settings != before:
            axes.axvline(point.batch, color=GREY, lw=0.5, ls=":")
            text = point.settings.replace(", ", "\n").replace("kappa", "κ =")
            at_end = point.batch > 0.9 * points[-1].batch
            where, side = point.batch * (0.98 if at_end else 1.02), "right" if at_end else "left"
            axes.text(where, top * (0.8 if at_end else 0.98), text, va="top", ha=side, size=7, color=GREY)
            before = point.settings


def _trees(axes: Any, points: Sequence[BatchPoint]) -> None:
    curve(axes, points, "batch", "apart_trees_ms", "--", color=VERMILLION, label="all re-sampled trees in a second pass")
    curve(axes, points, "batch", "fused_trees_ms", "-", color=BLUE, label="all re-sampled trees in the same pass")
    curve(axes, points, "batch", "drafted_trees_ms", "-.", color=GREY, label="drafted trees alone")
    axes.set_ylabel("target in a step, law (ms)")
    axes.set_ylim(0.0, axes.get_ylim()[1] * 1.08)
