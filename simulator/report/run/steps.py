"""Where the time of a run goes: the parts of a step, kinds of steps, lanes, and the steps drawn."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from simulator.core.strategies.common.step import Kind
from simulator.report.blocks import Block, Figure, Hyperlink, Paragraph, Section, Table, Words
from simulator.report.columns import Column, table
from simulator.report.pipeline_timeline import pipeline_timeline
from simulator.report.run.drafting import regime
from simulator.report.timeline import (
    load_window,
    opening_window,
    span_data,
    steady_window,
    timeline_svg,
)
from simulator.report.wording import number, plural, share
from simulator.scenario.result.run_result import RunResult

TIMELINE = "timeline.svg"
TRACE = "timeline.json"
PERFETTO = "https://ui.perfetto.dev"
KINDS_SHOWN = 4
USES = ("compute", "collectives", "host")
"""What the time of a part of a step is split into, where the cost model says so."""
USES_OF_OFFLOADS = ("elsewhere", "links")
"""The same of layers and experts that lie on other devices, where some do."""


class KindShares(NamedTuple):
    """How often a kind of step occurs."""

    name: str
    by_law: float
    simulated: float


def section(result: RunResult) -> Section:
    """Return the parts of a step, the kinds of steps and how busy the lanes are."""
    lanes = [
        Column[tuple[str, float]]("lane", lambda lane: lane[0]),
        Column[tuple[str, float]](
            "busy share of the whole run (simulation)", lambda lane: share(lane[1])
        ),
    ]
    blocks: list[Block] = [
        _parts(result),
        Paragraph(parts_origin(result)),
        _kinds(result),
        table("Lanes", result.busy.items(), lanes, bars=(1,)),
    ]
    return Section("Where the time goes", blocks)


def _parts(result: RunResult) -> Table:
    """Return the durations of each part of a step in ms; parts as in the first kind are not
    repeated.
    """
    uses: Sequence[str] = USES if _is_split(result) else ()
    target = result.scenario.target
    if target and target.offload:
        uses = (*uses, *USES_OF_OFFLOADS)
    rows: list[Sequence[Words]] = []
    first: Mapping[str, object] = {}
    for kind in list(result.phases)[:KINDS_SHOWN]:
        title = kind_name(kind)
        for name, phase in result.phases[kind].items():
            if first.get(name) == phase:
                continue
            of_uses = [_use_ms(phase.busy, use) for use in uses]
            rows.append((title, name, number(phase.wall_s * 1e3), *of_uses))
            title = ""
        first = first or result.phases[kind]
    head = ("step kind", "part", "wall (ms)", *(f"{use} (ms)" for use in uses))
    return Table(head, rows, "Parts of a step")


def _is_split(result: RunResult) -> bool:
    """Return whether the cost model says what the time of a part is spent on."""
    return any(phase.busy for phases in result.phases.values() for phase in phases.values())


def _use_ms(busy_s: Mapping[str, float], use: str) -> str:
    """Return the time of compute, collectives or host in a part of a step in ms; a dash where it
    takes none.
    """
    used_s = [seconds for lane, seconds in busy_s.items() if lane.endswith(f" {use}")]
    if used_s:
        return number(sum(used_s) * 1e3)
    return "–"


def parts_origin(result: RunResult) -> str:
    """Return where the durations of the parts come from, and what their table leaves out."""
    if _is_split(result):
        words = "Origin: the cost model at the mean context"
    else:
        words = "Origin: stated in the scenario, with no split"
    if any("suffix" in phases for phases in result.phases.values()):
        words += "; draft and suffix run at the same time"
    words += "."
    kinds = len(result.phases)
    if kinds > 1:
        words += " A part that takes the same as in the first step kind is not repeated."
    if kinds > KINDS_SHOWN:
        words += f" Rarer step kinds left out here: {kinds - KINDS_SHOWN}."
    return words


def _kinds(result: RunResult) -> Table:
    law = result.law.kinds
    simulated = result.simulated
    rows = [
        KindShares(
            kind_name(kind), law.get(kind, 0.0), simulated.kinds.get(kind, 0) / simulated.steps
        )
        for kind in list(result.phases)[: 2 * KINDS_SHOWN]
    ]
    columns: list[Column[KindShares]] = [
        Column("step kind", lambda kind: kind.name),
        Column("share by law (marginal rates)", lambda kind: share(kind.by_law)),
        Column("share in the simulation", lambda kind: share(kind.simulated)),
    ]
    return table("Kinds of steps", rows, columns, bars=(1, 2))


def kind_name(kind: Kind) -> str:
    """Return a step kind in words."""
    parts = ", ".join(_kind_parts(kind))
    if parts:
        return f"{kind.name} ({parts})"
    return kind.name


def _kind_parts(kind: Kind) -> Iterator[str]:
    """Yield how many requests do what in a step of this kind."""
    if kind.verifying and kind.window is None:
        yield f"{kind.verifying} verifying a window"
    elif kind.verifying:
        yield f"{kind.verifying} verifying a window of {kind.window}"
    if kind.bare:
        yield f"{kind.bare} without a window"
    if kind.redrafts:
        yield f"{plural(kind.redrafts, 'window')} redrafted"
    elif kind.waiting:
        yield f"{kind.waiting} waiting"
    if kind.detail and kind.detail.words:
        yield kind.detail.words
    if kind.prompts:
        yield f"{plural(kind.prompts, 'prompt')} beside them"


def timeline(result: RunResult) -> Figure:
    """Return the picture of a few steps in the middle of the run."""
    traits = result.scenario.schedule.traits
    caption = f"{traits.equation.replace('Delta', 'Δ')}. Here {regime(result)}."
    drawing = pipeline_timeline if traits.staged else timeline_svg
    loading = load_window(result.spans)
    if result.simulated.pools:
        window = opening_window(result.spans)
    elif loading:
        window = loading
    else:
        window = steady_window(result.spans, 3 + result.scenario.stages)
    still = partial(drawing, result.spans, window, caption)
    return Figure("Timeline of a few steps", TIMELINE, still, span_data(result.spans, window))


def steps_drawn() -> Section:
    """Return where the steps of the timeline come from, and how to see more of them."""
    words = (
        "Origin: simulation; chosen to show as many different spans as possible, so not typical "
        "shares. ",
        Hyperlink(TRACE, TRACE),
        " (the first 20,000 spans at most) opens in ",
        Hyperlink("Perfetto", PERFETTO),
        ".",
    )
    return Section("The steps drawn", [Paragraph(words)], terminal=False)
