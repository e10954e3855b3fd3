"""What speculation is worth in a batch: speed-up, passes of the target with their tiles, exposed
draft time.
"""

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from simulator.core.plain import PlainData
from simulator.report.blocks import (
    ALWAYS,
    Block,
    Bullets,
    Figure,
    Highlight,
    Page,
    Paragraph,
    Remark,
    Section,
    Table,
)
from simulator.report.columns import Column, table
from simulator.report.drawing import canvas
from simulator.report.pages import decision as decided
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
    look,
)
from simulator.report.run.answer import origin
from simulator.report.wording import as_sentence, if_known, number, short_names, spread
from simulator.scenario.result.closed_loop import in_words
from simulator.studies.batches import (
    BatchPoint,
    BatchStudies,
    BatchStudy,
    CrossoverInterval,
    crossover,
    crossover_interval,
)

LEGEND = (
    "Simulated speed-ups are of output tokens per second, with the prefills of all requests on "
    "both sides. Break-even is the chance of each draft token of a chain at which the law's "
    "speed-up is 1, above 1 where none is enough; its interval is of devices, hosts and experts "
    "read, that of the speed-up also of acceptance, where the scenario states a range of it. The "
    "verdict is of output tokens per second: helps from a chance of 80 % on that speculation is "
    "faster, hurts below 20 %."
)
PLAIN = {
    "law_tokens_per_s": "baseline_tokens_per_s",
    "simulated_tokens_per_s": "simulated_baseline_tokens_per_s",
}
"""Rates of autoregressive decoding, by those of a strategy that they are the base of."""

FEW = 3
"""Sizes that the answer in brief names."""


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
    title = "Tokens per second by batch"
    if len(studies) == 1:
        title = "Speed-up, passes and draft time by batch"
    drawing = Figure(title, "batches.svg", lambda: batch_figure(studies))
    headlines = "; ".join(map(headline, studies))
    opening: list[Block] = [drawing, Paragraph(LEGEND)]
    decision = None
    if len(studies) == 1:
        decision = studies[0].decision
    if decision:
        opening = [decided.reasons(decision), *opening]
    return Page(
        f"What {strategies} is worth in a batch, against autoregressive decoding",
        answer=decided.led(decision, f"By law, {headlines}."),
        decides=decision is not None,
        highlights=[*decided.highlights(decision), *highlights(studies[0])],
        opening=[*_waiting(studies), *opening],
        sections=[_section(study, len(studies) == 1) for study in studies],
        in_short=list(in_short(studies[0])) if len(studies) == 1 else [],
    )


def in_short(study: BatchStudy) -> Iterator[Remark]:
    """Yield what speculation is worth at simulated sizes, a few of them where there are many."""
    known = [
        point
        for point in study.points
        if point.simulated_speedup is not None and point.chance is not None
    ]
    if not known:
        return
    places = dict.fromkeys(round((len(known) - 1) * part / (FEW - 1)) for part in range(FEW))
    first, *others = (known[place] for place in places)
    said = [f"{_worth(first, 'B = ')} chance)", *(f"{_worth(point)})" for point in others)]
    yield Remark("Simulated", f"{', '.join(said)}.", ALWAYS, 1)


def _worth(point: BatchPoint, of: str = "") -> str:
    """Return the simulated speed-up at a size and how sure it is, its bracket left open."""
    chance = if_known(point.chance, decided.chance_words)
    return f"{point.simulated_speedup:.2f}x at {of}{point.batch} ({chance}"


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


def waiting(study: BatchStudy) -> str:
    """Return from which size on clients wait for room, and how many at the largest; empty where
    none do.
    """
    serving = study.scenario.serving
    places = serving.replicas * (serving.policy.max_requests or inf)
    short = [point for point in study.points if point.running < min(point.batch, places)]
    if not short:
        return ""
    first, last = short[0], short[-1]
    words = in_words(last.batch, last.running, last.baseline_running)
    return f"From B = {first.batch} on clients wait for room in the KV cache; {words}"


def _waiting(studies: Sequence[BatchStudy]) -> Iterator[Paragraph]:
    for study in studies:
        words = waiting(study)
        if words and len(studies) > 1:
            words = f"{study.scenario.name}: {words}"
        if words:
            yield Paragraph(as_sentence(words))


def highlights(study: BatchStudy) -> Iterator[Highlight]:
    """Yield the best speed-up, that of the largest batch, and where it falls below 1."""
    best = max(study.points, key=lambda point: point.speedup)
    last = study.points[-1]
    first, _ = crossover(study.points)
    at_best = f"as fast at most, by law, at B = {best.batch} {spread(best.speedup_interval)}"
    at_last = f"as fast at B = {last.batch}, the largest {spread(last.speedup_interval)}"
    yield Highlight(f"{best.speedup:.2f} ×", at_best.rstrip())
    yield Highlight(f"{last.speedup:.2f} ×", at_last.rstrip())
    behind = "nowhere"
    if first is not None:
        behind = f"B = {first}"
    where = "where autoregressive decoding is first ahead"
    ends = crossover_interval(study.points)
    if ends is not None:
        where += f"; 80 % interval {crossing(ends, last.batch)}"
    yield Highlight(behind, where)


def crossing(ends: CrossoverInterval, largest: int) -> str:
    """Return between which batch sizes autoregressive decoding is first ahead, in words."""
    low, high = ends
    if low is None:
        return f"beyond B = {largest}"
    if high is None:
        return f"from B = {low} to beyond {largest}"
    return f"B = {low} to {high}"


def _section(study: BatchStudy, alone: bool) -> Section:
    """Return the table and the sentences of a scenario; behind its decision unless it is alone and
    the page begins with that.
    """
    simulated = [point for point in study.points if point.simulated_requests]
    sizes = _sizes(study, simulated or study.points)
    said = Bullets(list(sentences(study)))
    if alone or study.decision is None:
        return Section(study.scenario.name, [sizes, said])
    first = Paragraph(decided.sentence(study.decision))
    reasons = decided.reasons(study.decision)
    return Section(study.scenario.name, [first, reasons, sizes, said])


def _sizes(study: BatchStudy, points: Sequence[BatchPoint]) -> Table:
    """Return the table of batch sizes; columns that hold nothing are left out."""
    columns: list[Column[BatchPoint]] = [
        Column("B", lambda point: point.batch),
    ]
    if any(point.running < point.batch for point in points):
        columns += [
            Column("run", lambda point: point.running),
            Column("run without", lambda point: point.baseline_running),
        ]
    columns += [
        Column("speed-up law", lambda point: number(point.speedup, 3)),
        Column("speed-up simul.", lambda point: number(point.simulated_speedup, 3)),
    ]
    if points[0].speedup_interval is not None:
        columns += [
            Column("interval", lambda point: spread(point.speedup_interval)),
            Column("chance", lambda point: if_known(point.chance, decided.chance_words)),
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
    on_terminal = [place for place, column in enumerate(columns) if column.head != "T_draft ms"]
    title = f"Batch sizes of {study.scenario.name}"
    return table(title, points, columns, terminal_columns=tuple(on_terminal))


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
    schedule = study.scenario.schedule
    if isinstance(schedule, DrawsBatches) and any(point.extra for point in points):
        own = schedule
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
    names = short_names([study.scenario.name for study in studies])
    reference: BatchStudy | None = None
    relative_to = "speed-up over autoregressive"
    if len({_target(study) for study in studies}) == 1:
        reference = studies[0]
        relative_to = f"relative to {names[0]}"
    with canvas(6.4) as figure:
        panels = figure.subplots(2, 1, sharex=True)
        for place, (name, study) in enumerate(zip(names, studies, strict=True)):
            colour, marker, line = look(place)
            label = f"{name} (acceptance {origin(study.scenario.acceptance)})"
            law = _Rates.of(study, reference, "law_tokens_per_s")
            law.draw(panels, line, color=colour, label=label)
            simulated = _Rates.of(study, reference, "simulated_tokens_per_s")
            simulated.draw(panels, marker, color=colour, mfc="none", ms=5)
        rates, ratios = panels
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
            y_label=relative_to,
            levels=(1.0,),
            log_x=2,
        )
        rates.tick_params(labelbottom=True)
        rates.legend(loc="upper left")
        return figure


def _target(study: BatchStudy) -> str | None:
    """Return the name of the target's model; None where durations are stated."""
    if study.scenario.target is None:
        return None
    return study.scenario.target.model.name


class _Rates(NamedTuple):
    """A rate of a scenario by batch size, and its ratio to that of the reference, or of plain
    decoding, where both have it.
    """

    sizes: list[int]
    rates: list[float]
    ratios: list[float]

    @classmethod
    def of(cls, study: BatchStudy, reference: BatchStudy | None, field: str) -> Self:
        if reference is None:
            base = _by_batch(study, PLAIN[field])
        else:
            base = _by_batch(reference, field)
        drawn = cls([], [], [])
        for size, rate in _by_batch(study, field).items():
            if rate and base.get(size):
                drawn.sizes.append(size)
                drawn.rates.append(rate)
                drawn.ratios.append(rate / base[size])
        return drawn

    def draw(self, panels: Sequence[Axes], style: str, **look: Any) -> None:
        above, below = panels
        above.plot(self.sizes, self.rates, style, **look)
        below.plot(self.sizes, self.ratios, style, **look)


def _by_batch(study: BatchStudy, field: str) -> dict[int, Any]:
    return {point.batch: getattr(point, field) for point in study.points}


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
    where = crossed(first, for_good, name)
    axes.text(0.015, 0.06, where, ha="left", va="bottom", size=8, transform=axes.transAxes)


def _passes(axes: Axes, points: Sequence[BatchPoint], edges: Sequence[int]) -> None:
    rows = {point.batch: point.verify_rows for point in points}
    label: str | None = "another tile of rows"
    for edge in edges:
        axes.axvline(edge, color=ORANGE, lw=0.7, zorder=0, label=label)
        label = None  # one entry of the legend stands for all
    curves: list[Curve[BatchPoint]] = [
        Curve(lambda point: point.verify_ms, "-", BLUE, "target verifies its windows"),
        Curve(lambda point: point.decode_ms, "-.", GREY, "target decodes one token per request"),
        Curve(lambda point: point.draft_ms, "--", GREEN, "T_draft"),
    ]
    draw(axes, points, _batch, *curves)
    dress(axes, y_label="law (ms)", ylim=(0.0, None), room=1.08)
    _, top = axes.get_ylim()
    last = 0.0
    upright: PlainData = {"ha": "right", "va": "top", "size": 7, "color": ORANGE, "rotation": 90}
    for edge in edges:
        if edge > last * 1.12:
            axes.text(edge, top * 0.99, f"{rows[edge]} rows ", **upright)
            last = edge


def _overhead(axes: Axes, points: Sequence[BatchPoint]) -> None:
    label = "exposed draft time / T_draft of vanilla_sd, law"
    overhead = Curve[BatchPoint](lambda point: point.relative_draft_overhead, "-", BLUE, label)
    draw(axes, points, _batch, overhead)
    dress(axes, y_label="relative draft overhead", ylim=(0.0, None), room=1.3)
    _, top = axes.get_ylim()
    before = None
    for point in points:
        if point.settings == before:
            continue
        axes.axvline(point.batch, color=GREY, lw=0.5, ls=":")
        text = point.settings.replace(", ", "\n").replace("kappa", "κ =")
        look: PlainData = {"va": "top", "size": 7, "color": GREY}
        if point.batch > 0.9 * points[-1].batch:
            axes.text(point.batch * 0.98, top * 0.8, text, ha="right", **look)
        else:
            axes.text(point.batch * 1.02, top * 0.98, text, ha="left", **look)
        before = point.settings
