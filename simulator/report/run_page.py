"""The page of a run (``specsim run``): the answer first, then how it comes about, then all
inputs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from simulator.files.descriptions import summary
from simulator.report import figures, run_serving
from simulator.report.blocks import (
    Block,
    Bullets,
    Figure,
    Hyperlink,
    Page,
    Paragraph,
    Strong,
    Table,
    Words,
    sections,
)
from simulator.report.inputs import PROVENANCE, RESOLVED, provenance_blocks, resolved_blocks
from simulator.report.pages import what_if
from simulator.report.pipeline_timeline import pipeline_timeline
from simulator.report.run_summary import (
    agreement_sentence,
    choices,
    conditions,
    doubt,
    fallback,
    gaps,
    headline,
    kind_name,
    regime,
    say,
)
from simulator.report.timeline import span_data, steady_window, timeline_svg
from simulator.report.wording import number, percent
from simulator.scenario.outcome import CONFIDENCE
from simulator.scenario.run import RunResult
from simulator.scenario.uncertainty import SHARE, Interval
from simulator.studies.what_if import WhatIf
from simulator.studies.window import SweepPoint

SWEEP, ACCEPTED, TIMELINE, TRACE = (
    "window_sweep.svg",
    "accepted_lengths.svg",
    "timeline.svg",
    "timeline.json",
)
ANSWERS, SERVING = "Law, replay and simulation", "Requests and batches"
PERFETTO = "https://ui.perfetto.dev"
KINDS_SHOWN = 4
USES = ("compute", "collectives", "host")
"""What the time of a part of a step is split into, where the cost model says so."""


def run_page(
    result: RunResult,
    sweep: Sequence[SweepPoint],
    speedup: Interval | None = None,
    law: WhatIf | None = None,
) -> Page:
    """Return the page of a run. ``sweep``: other windows, if any; ``speedup``: its interval;
    ``law``: what sliders are over.
    """
    scenario = result.scenario
    opening: list[Block] = [Paragraph(conditions(result))]
    if speedup and scenario.schedule.window:
        opening.insert(0, Paragraph(f"{doubt(speedup).capitalize()}."))
    if result.rests_on:
        opening.insert(1, Paragraph(f"{result.rests_on[0].upper()}{result.rests_on[1:]}."))
    opening[:0] = [Paragraph(f"{caution[0].upper()}{caution[1:]}.") for caution in result.cautions]
    if result.agreement.disagreement:
        opening.insert(0, Paragraph((Strong(agreement_sentence(result)),)))
    if scenario.acceptance.stand_in:
        opening.insert(-1, Paragraph(say("stand_in")))
    if limits := result.simulated.serving.counted.slo:
        opening.insert(-1, Paragraph(say("limits", limits=limits)))
    opening.append(_timeline(result))
    notes = [Bullets(result.caveats)] if result.caveats else []
    return Page(
        title=f"{scenario.name}: {scenario.method_name}",
        about=scenario.about,
        answer=headline(result),
        opening=opening,
        sections=[
            *sections(
                (ANSWERS, _answers(result)),
                ("Where the time goes", _time(result)),
                (SERVING, _serving(result)),
                ("Memory of the stages", _memory(result)),
                ("Fallback" if fallback(result) else "Choices", _fallback(result)),
                ("Which window", _window(result, sweep)),
            ),
            *sections((what_if.TITLE, what_if.blocks(law) if law else ()), terminal=False),
            *sections(
                ("How many draft tokens are kept", _accepted(result)),
                ("The steps drawn", _steps()),
                terminal=False,
            ),
            *sections(("Notes", notes)),
            *sections(
                (PROVENANCE, provenance_blocks(scenario)),
                (RESOLVED, resolved_blocks(scenario)),
                terminal=False,
            ),
        ],
        command=result.command,
        highlights=say.highlights(result=result, speedup=speedup, covered=SHARE),
    )


def brief(page: Page, asked: Sequence[str] = ()) -> Page:
    """Return what a run ends with on a terminal: the answer, how sure it is, and the sections that
    were asked for.
    """
    kept = [section for section in page.sections if section.title in asked]
    return replace(page, about="", opening=page.opening[:-2], sections=kept)


def _answers(result: RunResult) -> Iterator[Block]:
    """Yield the table of law, replay and simulation, and the gaps between them."""
    answers = (result.law, result.law_replayed, result.replay, result.simulated)
    times_ms = [answer.tpot_s * 1e3 for answer in answers]
    yield say.table(
        "answers",
        [
            ("mean step (ms)", *(number(answer.step_s * 1e3) for answer in answers)),
            (
                "tokens per step and request",
                *(number(answer.tokens_per_step) for answer in answers),
            ),
            (
                "verified, those behind an end too",
                *(number(answer.verified_per_step) for answer in answers),
            ),
            (Strong("time per token (ms)"), *(Strong(number(tpot_ms)) for tpot_ms in times_ms)),
            (
                "time per token against the simulation",
                *(percent((tpot_ms / times_ms[-1] - 1) * 100) for tpot_ms in times_ms),
            ),
        ],
    )
    yield Paragraph(say("answers_caption"))
    found = gaps(result)
    yield Bullets(
        [
            (Strong(f"{gap.title}: {percent(gap.percent)}"), " ", say("gap", gap=gap))
            for gap in found
        ]
    )
    if result.gap_parts:
        yield say.table("gap_parts", result.gap_parts)
    yield Paragraph(f"Law: {result.law.source}. {agreement_sentence(result)}")


def _time(result: RunResult) -> Iterator[Block]:
    """Yield the parts of a step, the kinds of steps and how busy the lanes are."""
    split = any(phase.busy for parts in result.phases.values() for phase in parts.values())
    suffix = any("suffix" in parts for parts in result.phases.values())
    yield _parts_table(result, USES if split else ())
    yield Paragraph(
        say("parts_origin", split=split, suffix=suffix, kinds=len(result.phases), shown=KINDS_SHOWN)
    )
    law, run, steps = result.law.kinds, result.simulated.kinds, result.simulated.steps
    kinds = [
        (kind_name(kind), law.get(kind, 0.0), run.get(kind, 0) / steps) for kind in result.phases
    ]
    yield say.table("kinds", kinds[: 2 * KINDS_SHOWN])
    yield say.table("lanes", result.busy.items())


def _parts_table(result: RunResult, uses: Sequence[str]) -> Table:
    """Return the durations of each part of a step in ms, split by ``uses``; parts as in the first
    kind are not repeated.
    """
    rows: list[Sequence[Words]] = []
    first: Mapping[str, object] = {}
    for kind in list(result.phases)[:KINDS_SHOWN]:
        title = kind_name(kind)
        for name, phase in result.phases[kind].items():
            if first.get(name) == phase:
                continue
            rows.append(
                (
                    title,
                    name,
                    number(phase.wall_s * 1e3),
                    *(_use_ms(phase.busy, use) for use in uses),
                )
            )
            title = ""
        first = first or result.phases[kind]
    head = ("step kind", "part", "wall (ms)", *(f"{use} (ms)" for use in uses))
    return Table(head, rows, "Parts of a step")


def _use_ms(busy_s: Mapping[str, float], use: str) -> str:
    """Return the time of compute, collectives or host in a part of a step in ms; a dash where it
    takes none.
    """
    used_s = [seconds for lane, seconds in busy_s.items() if lane.endswith(f" {use}")]
    return number(sum(used_s) * 1e3) if used_s else "–"


def _serving(result: RunResult) -> Iterator[Block]:
    serving = result.simulated.serving
    if serving.counted.slo:
        yield say.table("slo", serving.counted.slo)
    yield run_serving.times(serving)
    if result.replications:
        yield Table(
            run_serving.REPLICATION_HEAD,
            list(run_serving.replications(result)),
            "Over several seeds",
        )
        yield Paragraph(say("seeds", confidence=CONFIDENCE, seeds=result.seeds))
    if result.simulated.replicas:
        yield run_serving.replicas(result.simulated)
    yield Bullets(list(run_serving.sentences(result)))
    rule = summary(type(result.scenario.serving.policy).__doc__)
    yield Paragraph(say("serving_origin", rule=f"{rule}."))


def _fallback(result: RunResult) -> Iterator[Block]:
    if text := fallback(result):
        yield Paragraph(f"{text}.")
    if text := choices(result):
        yield Paragraph(f"{text[0].upper()}{text[1:]}.")
    if rates := result.fallback:
        yield Paragraph(
            say("recording", windows=rates[0].windows, gamma=result.scenario.schedule.window)
        )
        yield say.table("depths", rates)


def _window(result: RunResult, sweep: Sequence[SweepPoint]) -> Iterator[Block]:
    """Yield the figure of other windows, and which window is best; nothing without a sweep."""
    if not sweep:
        return
    yield Figure(
        "Step time and time per token against the window",
        SWEEP,
        partial(figures.window_sweep, sweep),
    )
    best, gamma = min(sweep, key=lambda point: point.law_tpot_ms), result.scenario.schedule.window
    tried = {
        point.gamma: point.simulated_tpot_ms
        for point in sweep
        if point.simulated_tpot_ms is not None
    }
    count = max(point.simulated_requests for point in sweep)
    found = min(tried, key=lambda window: tried[window], default=None)
    yield Paragraph(
        say("best_window", best=best, tried=tried, count=count, found=found, gamma=gamma)
    )
    given = result.scenario.durations
    if given and given.draft_ms is not None:
        yield Paragraph(say("stated_draft", draft_ms=given.draft_ms, gamma=gamma))


def _memory(result: RunResult) -> Iterator[Block]:
    if table := run_serving.stages(result.scenario):
        yield table
        yield Paragraph(run_serving.stage_caption(result.scenario))


def _accepted(result: RunResult) -> Iterator[Block]:
    if result.simulated.accepted:
        drawn = partial(figures.accepted_lengths, result.simulated, result.odds)
        yield Figure("Accepted draft tokens per verified window", ACCEPTED, drawn)
        yield Paragraph(say("accepted"))


def _timeline(result: RunResult) -> Figure:
    caption = (
        f"{result.scenario.schedule.traits.equation.replace('Delta', 'Δ')}. Here {regime(result)}."
    )
    drawing = pipeline_timeline if result.scenario.schedule.traits.staged else timeline_svg
    window = steady_window(result.spans, 3 + result.scenario.stages)
    still = partial(drawing, result.spans, window, caption)
    return Figure("Timeline of a few steps", TIMELINE, still, span_data(result.spans, window))


def _steps() -> Iterator[Block]:
    opens = Hyperlink("Perfetto", PERFETTO)
    yield Paragraph(
        (
            say("steps_origin"),
            " ",
            Hyperlink(TRACE, TRACE),
            " (the first 20,000 spans at most) opens in ",
            opens,
            ".",
        )
    )
