"""What speculation is worth in a batch: speed-up, passes of the target with their tiles, exposed
draft time.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from simulator.report.blocks import Bullets, Figure, Highlight, Page, Paragraph, Section, Table
from simulator.report.columns import Column, table
from simulator.report.drawing import canvas
from simulator.report.pages.load import LINES
from simulator.report.panels import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SHADE,
    VERMILLION,
    Curve,
    draw,
    dress,
    legend_above,
    logarithmic,
)
from simulator.report.run.answer import origin
from simulator.report.wording import number, short_names, spread
from simulator.studies.batches import BatchPoint, BatchStudies, BatchStudy, crossover

LEGEND = (
    "Simulated speed-ups are of output tokens per second, with the prefills of all requests on "
    "both sides. Break-even is the chance of each draft token of a chain at which the law's "
    "speed-up is 1; its interval is of devices, hosts and experts read, that of the speed-up also "
    "of acceptance, where the scenario states a range of it."
)
PLAIN = {
    "law_tokens_per_s": "baseline_tokens_per_s",
    "simulated_tokens_per_s": "simulated_baseline_tokens_per_s",
}
"""Rates of autoregressive decoding, by those of a strategy that they are the base of."""


@runtime_checkable
class DrawsBatches(Protocol):
    """A strategy with this capability draws a panel of its own numbers at every batch size."""

    def draw_batches(self, axes: Axes, points: Sequence[BatchPoint]) -> None:
        """Draw the panel; ``points`` have the strategy's numbers in ``extra``."""
        ...


def page(result: BatchStudies) -> Page:
    """Return the page of the batch study: its picture, and a table of sizes for all scenarios."""
    studies = result.studies
    strategies = ", ".join(dict.fromkeys(study.scenario.strategy.name for study in studies))
    if len(studies) == 1:
        title = "Speed-up, passes and draft time by batch"
    else:
        title = "Tokens per second by batch"
    return Page(
        f"What {strategies} is worth in a batch, against autoregressive decoding",
        answer=f"By law, {'; '.join(map(headline, studies))}.",
        highlights=list(highlights(studies[0])),
        opening=[
            Figure(title, "batches.svg", lambda: batch_figure(studies)),
            Paragraph(LEGEND),
        ],
        sections=[_section(study) for study in studies],
    )


def headline(study: BatchStudy) -> str:
    """Return where a scenario gains most, and where autoregressive decoding overtakes it."""
    best = max(study.points, key=lambda point: point.speedup)
    first, _ = crossover(study.points)
    if first is None:
        end = f"faster up to B = {study.points[-1].batch}"
    else:
        end = f"first slower than it at B = {first}"
    return (
        f"{study.scenario.name} is at most {best.speedup:.2f} times as fast as autoregressive "
        f"decoding, at B = {best.batch}, and {end}"
    )


def highlights(study: BatchStudy) -> Iterator[Highlight]:
    """Yield the best speed-up, that of the largest batch, and where it falls below 1."""
    best = max(study.points, key=lambda point: point.speedup)
    last = study.points[-1]
    first, _ = crossover(study.points)
    yield Highlight(
        f"{best.speedup:.2f} ×",
        f"as fast at most, by law, at B = {best.batch} {spread(best.speedup_interval)}".rstrip(),
    )
    yield Highlight(
        f"{last.speedup:.2f} ×",
        f"as fast at B = {last.batch}, the largest {spread(last.speedup_interval)}".rstrip(),
    )
    yield Highlight(
        "nowhere" if first is None else f"B = {first}",
        "where autoregressive decoding is first ahead",
    )


def _section(study: BatchStudy) -> Section:
    """Return the table and the sentences of a scenario."""
    points = [point for point in study.points if point.simulated_requests] or study.points
    return Section(study.scenario.name, [_sizes(study, points), Bullets(list(sentences(study)))])


def _sizes(study: BatchStudy, points: Sequence[BatchPoint]) -> Table:
    """Return the table of batch sizes; columns that hold nothing are left out."""
    columns: list[Column[BatchPoint]] = [
        Column("B", lambda point: point.batch),
        Column("speed-up law", lambda point: number(point.speedup, 3)),
        Column("speed-up simul.", lambda point: number(point.simulated_speedup, 3)),
    ]
    if points[0].speedup_interval is not None:
        columns += [
            Column("interval", lambda point: spread(point.speedup_interval)),
            Column("verdict", lambda point: point.verdict),
            Column("break-even", lambda point: spread(point.break_even)),
        ]
    if any(point.vanilla_speedup is not None for point in points):
        columns += [
            Column("vanilla law", lambda point: number(point.vanilla_speedup, 3)),
            Column("vanilla simul.", lambda point: number(point.simulated_vanilla_speedup, 3)),
        ]
    columns += [
        Column("tokens/s law", lambda point: number(point.law_tokens_per_s, 3)),
        Column("tokens/s simul.", lambda point: number(point.simulated_tokens_per_s, 3)),
        Column("verify ms", lambda point: number(point.verify_ms, 3)),
        Column("T_draft ms", lambda point: number(point.draft_ms, 3)),
    ]
    if any(point.relative_draft_overhead is not None for point in points):
        columns.append(
            Column("rel. draft overhead", lambda point: number(point.relative_draft_overhead, 3))
        )
    return table(f"Batch sizes of {study.scenario.name}", points, columns)


def sentences(study: BatchStudy) -> Iterator[str]:
    """Yield what the strategy sets by size, where autoregressive decoding overtakes it, and where
    tiles begin.
    """
    points = study.points
    begins: dict[str, int] = {}
    for point in points:
        begins.setdefault(point.settings, point.batch)
    if len(begins) > 1:
        set_from = (f"{settings} from {size} on" for settings, size in begins.items())
        yield f"Set by batch: {'; '.join(set_from)}"
    where = crossed(*crossover(points), study.scenario.strategy.name)
    yield f"By law, for batches of {points[0].batch} to {points[-1].batch}: {where}"
    if study.tile_edges:
        edges = ", ".join(map(str, study.tile_edges))
        yield f"Verifying needs another tile of rows from these batches on: {edges}"


def crossed(first: int | None, for_good: int | None, name: str) -> str:
    """Return in words at which batch autoregressive decoding overtakes a strategy."""
    if first is None:
        return f"{name} is ahead at every size"
    if first == for_good:
        return f"{name} is slower from B = {first} on"
    if for_good is None:
        return f"{name} is slower first at B = {first}, and ahead again at the largest"
    return f"{name} is slower first at B = {first}, and for good from B = {for_good} on"


def batch_figure(studies: Sequence[BatchStudy]) -> Drawing:
    """Return the panels of a single scenario, or the tokens per second of several."""
    if len(studies) > 1:
        return throughput_figure(studies)
    return scenario_figure(studies[0])


def scenario_figure(study: BatchStudy) -> Drawing:
    """Return panels over the batch size on a logarithmic axis, with the sizes at which a pass needs
    another tile.
    """
    points = study.points
    name = study.scenario.strategy.name
    overhead = any(point.relative_draft_overhead is not None for point in points)
    own: DrawsBatches | None = None
    if isinstance(study.scenario.schedule, DrawsBatches) and any(point.extra for point in points):
        own = study.scenario.schedule
    panels = 2 + overhead + bool(own)
    with canvas(2.9 * panels) as figure:
        panel_axes = figure.subplots(panels, 1, sharex=True)
        _speedup(panel_axes[0], points, name)
        _passes(panel_axes[1], points, study.tile_edges)
        if overhead:
            _overhead(panel_axes[2], points)
        if own:
            own.draw_batches(panel_axes[-1], points)
        for axes in panel_axes:
            logarithmic(axes, 2)
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
            line = "--" if place >= len(LINES) else "-"
            reference = None if several else studies[0]
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
        dress(
            rates,
            y_label="tokens per second, all requests",
            title="lines: law, prefills left out; marks: simulation",
            log_x=2,
            ylim=(0.0, None),
        )
        dress(
            ratios,
            x_label="batch B (requests that decode together)",
            y_label="speed-up over autoregressive" if several else f"relative to {names[0]}",
            levels=(1.0,),
            log_x=2,
        )
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


def _batch(point: BatchPoint) -> int:
    return point.batch


def _speedup(axes: Axes, points: Sequence[BatchPoint], name: str) -> None:
    law = Curve[BatchPoint](lambda point: point.speedup, "-", BLUE, f"{name}, law")
    simulation = Curve[BatchPoint](
        lambda point: point.simulated_speedup, "o", VERMILLION, f"{name}, simulation", hollow=True
    )
    vanilla = Curve[BatchPoint](lambda point: point.vanilla_speedup, "--", GREY, "vanilla_sd, law")
    curves = [vanilla, law, simulation]
    if points[0].vanilla_speedup is not None:
        simulated_vanilla = Curve[BatchPoint](
            lambda point: point.simulated_vanilla_speedup,
            "s",
            GREY,
            "vanilla_sd, simulation",
            hollow=True,
        )
        curves.insert(1, simulated_vanilla)
    draw(axes, points, _batch, *curves)
    dress(axes, y_label="speed-up over autoregressive", levels=(1.0,), ylim=(0.0, None))
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


def _passes(axes: Axes, points: Sequence[BatchPoint], edges: Sequence[int]) -> None:
    rows = {point.batch: point.verify_rows for point in points}
    for edge in edges:
        axes.axvline(
            edge,
            color=ORANGE,
            lw=0.7,
            zorder=0,
            label="another tile of rows" if edge == edges[0] else None,
        )
    draw(
        axes,
        points,
        _batch,
        Curve(lambda point: point.verify_ms, "-", BLUE, "target verifies its windows"),
        Curve(lambda point: point.decode_ms, "-.", GREY, "target decodes one token per request"),
        Curve(lambda point: point.draft_ms, "--", GREEN, "T_draft"),
    )
    dress(axes, y_label="law (ms)", ylim=(0.0, None), room=1.08)
    top = axes.get_ylim()[1]
    last = 0.0
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


def _overhead(axes: Axes, points: Sequence[BatchPoint]) -> None:
    label = "exposed draft time / T_draft of vanilla_sd, law"
    draw(axes, points, _batch, Curve(lambda point: point.relative_draft_overhead, "-", BLUE, label))
    dress(axes, y_label="relative draft overhead", ylim=(0.0, None), room=1.3)
    top = axes.get_ylim()[1]
    before = None
    for point in points:
        if point.settings != before:
            axes.axvline(point.batch, color=GREY, lw=0.5, ls=":")
            text = point.settings.replace(", ", "\n").replace("kappa", "κ =")
            at_end = point.batch > 0.9 * points[-1].batch
            where = point.batch * (0.98 if at_end else 1.02)
            side = "right" if at_end else "left"
            axes.text(
                where, top * (0.8 if at_end else 0.98), text, va="top", ha=side, size=7, color=GREY
            )
            before = point.settings
