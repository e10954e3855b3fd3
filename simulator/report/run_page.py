"""The page of a run (``specsim run``): the answer first, then how it comes about, then all inputs."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from simulator.report import figures, run_serving
from simulator.report.blocks import Block, Bullets, Figure, Hyperlink, Page, Paragraph, Strong, Table, Words, sections
from simulator.report.inputs import PROVENANCE, RESOLVED, provenance_blocks, resolved_blocks
from simulator.report.pipeline_timeline import pipeline_timeline
from simulator.report.run_summary import (
    GAP_HEAD,
    GAP_TITLE,
    agreement_sentence,
    choices,
    columns,
    conditions,
    doubt,
    fallback,
    gap_rows,
    gaps,
    headline,
    highlights,
    kind_name,
    number,
    percent,
    regime,
    share,
    step_kinds,
)
from simulator.report.timeline import span_data, steady_window, timeline_svg
from simulator.scenario.outcome import CONFIDENCE
from simulator.scenario.run import RunResult
from simulator.scenario.uncertainty import Interval
from simulator.studies.window import SweepPoint

SWEEP, ACCEPTED, TIMELINE, TRACE = "window_sweep.svg", "accepted_lengths.svg", "timeline.svg", "timeline.json"
PERFETTO = "https://ui.perfetto.dev"
KINDS_SHOWN = 4
USES = ("compute", "collectives", "host")
"""What the time of a part of a step is split into, where the cost model says so."""


def run_page(result: RunResult, sweep: Sequence[SweepPoint], speedup: Interval | None = None) -> Page:
    """Return the page of a run. ``sweep``: other windows, if any; ``speedup``: the interval of the speed-up."""
    scenario = result.scenario
    opening: list[Block] = [Paragraph(conditions(result))]
    if speedup and scenario.schedule.window:
        opening.insert(0, Paragraph(f"{doubt(speedup).capitalize()}."))
    if result.rests_on:
        opening.insert(1, Paragraph(f"{result.rests_on[0].upper()}{result.rests_on[1:]}."))
    if result.agreement.disagreement:
        opening.insert(0, Paragraph((Strong(agreement_sentence(result)),)))
    notes = [Bullets(result.caveats)] if result.caveats else []
    return Page(
        title=f"{scenario.name}: {scenario.method_name}",
        about=scenario.about,
        answer=headline(result),
        opening=opening,
        sections=[
            *sections(
                ("Law, replay and simulation", _answers(result)),
                ("Where the time goes", _time(result)),
                ("Requests and batches", _serving(result)),
                ("Memory of the stages", _memory(result)),
                ("Fallback" if fallback(result) else "Choices", _fallback(result)),
                ("Which window", _window(result, sweep)),
            ),
            *sections(
                ("How many draft tokens are kept", _accepted(result)), ("A few steps", _timeline(result)), terminal=False
            ),
            *sections(("Notes", notes)),
            *sections((PROVENANCE, provenance_blocks(scenario)), (RESOLVED, resolved_blocks(scenario)), terminal=False),
        ],
        command=result.command,
        highlights=highlights(result, speedup),
    )


def _answers(result: RunResult) -> Iterator[Block]:
    """Yield the table of law, replay and simulation, and the gaps between them."""
    answers = columns(result)
    last_ms = answers[-1].tpot_ms
    rows: list[Sequence[Words]] = [
        ("mean step (ms)", *(number(column.step_ms) for column in answers)),
        ("tokens per step and request", *(number(column.tokens_per_step) for column in answers)),
        (Strong("time per token (ms)"), *(Strong(number(column.tpot_ms)) for column in answers)),
        ("time per token against the simulation", *(percent((column.tpot_ms / last_ms - 1) * 100) for column in answers)),
    ]
    yield Table(("", *(column.origin for column in answers)), rows, "Law, replay and simulation of a step and a token")
    yield Paragraph(
        "Law: step over tokens, at the mean context. Replay and simulation: mean over requests of "
        "(E2E − TTFT)/(tokens − 1). The law with replayed means uses the simulation's own acceptance and step mix, so it "
        "explains the gap but predicts nothing."
    )
    differences = []
    for gap in gaps(result):
        parts = ", ".join(f"{name} {percent(size)}" for name, size in gap.parts)
        differences.append((Strong(f"{gap.title}: {percent(gap.percent)}"), f" ({parts}). May be due to: {gap.why}."))
    yield Bullets(differences)
    if rows_of_gap := gap_rows(result):
        yield Table(GAP_HEAD, rows_of_gap, GAP_TITLE)
    yield Paragraph(f"Law: {result.law.source}. {agreement_sentence(result)}")


def _time(result: RunResult) -> Iterator[Block]:
    """Yield the parts of a step, the kinds of steps and how busy the lanes are."""
    split = any(phase.busy for parts in result.phases.values() for phase in parts.values())
    yield _parts_table(result, USES if split else ())
    origin = "Origin: the cost model at the mean context" if split else "Origin: stated in the scenario, with no split"
    if any("suffix" in parts for parts in result.phases.values()):
        origin += "; draft and suffix run at the same time"
    sentences = [f"{origin}."]
    if len(result.phases) > 1:
        sentences.append("A part that takes the same as in the first step kind is not repeated.")
    if len(result.phases) > KINDS_SHOWN:
        sentences.append(f"Rarer step kinds left out here: {len(result.phases) - KINDS_SHOWN}.")
    yield Paragraph(" ".join(sentences))
    shares = [(name, share(law), share(run)) for name, law, run in step_kinds(result)][: 2 * KINDS_SHOWN]
    head = ("step kind", "share by law (marginal rates)", "share in the simulation")
    yield Table(head, shares, "Kinds of steps", bars=(1, 2))
    busy = [(lane, share(fraction)) for lane, fraction in result.busy.items()]
    yield Table(("lane", "busy share of the whole run (simulation)"), busy, "Lanes", bars=(1,))


def _parts_table(result: RunResult, uses: Sequence[str]) -> Table:
    """Return the durations of each part of a step in ms, split by ``uses``; parts as in the first kind are not repeated."""
    rows: list[Sequence[Words]] = []
    first: Mapping[str, object] = {}
    for kind in list(result.phases)[:KINDS_SHOWN]:
        title = kind_name(kind)
        for name, phase in result.phases[kind].items():
            if first.get(name) == phase:
                continue
            rows.append((title, name, number(phase.wall_s * 1e3), *(_use_ms(phase.busy, use) for use in uses)))
            title = ""
        first = first or result.phases[kind]
    head = ("step kind", "part", "wall (ms)", *(f"{use} (ms)" for use in uses))
    return Table(head, rows, "Parts of a step")


def _use_ms(busy_s: Mapping[str, float], use: str) -> str:
    """Return the time of compute, collectives or host in a part of a step in ms; a dash where it takes none."""
    used_s = [seconds for lane, seconds in busy_s.items() if lane.endswith(f" {use}")]
    return number(sum(used_s) * 1e3) if used_s else "–"


def _serving(result: RunResult) -> Iterator[Block]:
    serving = result.simulated.serving
    if serving.counted.slo:
        yield Table(run_serving.SLO_HEAD, list(run_serving.verdicts(serving)), "Limits of the SLO, and simulated times")
    yield Table(run_serving.HEAD, list(run_serving.times(serving)), "Times of requests and tokens")
    if result.replications:
        yield Table(run_serving.REPLICATION_HEAD, list(run_serving.replications(result)), "Over several seeds")
        seeds = f"{result.seeds} seeds (Student's t), of which this run's is the first"
        yield Paragraph(f"± is half of a {CONFIDENCE:.0%} interval over {seeds}.")
    if result.simulated.replicas:
        yield Table(run_serving.REPLICA_HEAD, list(run_serving.replicas(result.simulated)), "Replica by replica")
    yield Bullets([f"{sentence}." for sentence in run_serving.sentences(result)])
    policy = type(result.scenario.serving.policy)
    rule = (policy.__doc__ or "").partition("\n")[0]
    yield Paragraph(f"Origin: simulation; quantiles within 0.5 %. Batching: {rule}")


def _fallback(result: RunResult) -> Iterator[Block]:
    if text := fallback(result):
        yield Paragraph(f"{text}.")
    if text := choices(result):
        yield Paragraph(f"{text[0].upper()}{text[1:]}.")
    if not result.fallback:
        return
    yield Paragraph(
        f"On all {result.fallback[0].windows:,} windows of the recording (γ = {result.scenario.schedule.window}), "
        "by exit depth and κ. "
        "The paper's bound, fallback ≤ 1 − Ω, is about a position and holds there; a step has up to γ + 1 chances. "
        "Wider is never worse; deeper need not be better, so it comes with an interval (95 %, whole requests resampled)."
    )
    rows = [
        (
            f"{rate.exit_fraction:.2f}",
            str(rate.kappa),
            share(rate.off_exit),
            share(rate.per_position),
            f"{share(rate.per_step)} ({rate.per_step_low * 100:.1f} to {rate.per_step_high * 100:.1f})",
        )
        for rate in result.fallback
    ]
    head = ("exit depth", "κ", "1 − Ω, all positions", "fallback per position", "fallback per step")
    yield Table(head, rows, "Fallback by exit depth and width", bars=(2, 3), sortable=True)


def _window(result: RunResult, sweep: Sequence[SweepPoint]) -> Iterator[Block]:
    """Yield the figure of other windows, and which window is best; nothing without a sweep."""
    if not sweep:
        return
    yield Figure("Step time and time per token against the window", SWEEP, partial(figures.window_sweep, sweep))
    best = min(sweep, key=lambda point: point.law_tpot_ms)
    text = f"Best window by law (marginal rates): γ = {best.gamma} with {number(best.law_tpot_ms)} ms per token"
    tried = {point.gamma: point.simulated_tpot_ms for point in sweep if point.simulated_tpot_ms is not None}
    if tried:
        gamma = min(tried, key=lambda window: tried[window])
        count = max(point.simulated_requests for point in sweep)
        where = ", ".join(map(str, tried))
        text += f"; by simulation ({count} requests at each of γ = {where}): γ = {gamma} with {number(tried[gamma])} ms"
    yield Paragraph(f"{text}. This scenario runs γ = {result.scenario.schedule.window}.")
    given = result.scenario.durations
    if given and given.draft_ms is not None:
        yield Paragraph(
            f"The stated draft_ms of {number(given.draft_ms)} ms is for γ = {result.scenario.schedule.window}; other windows "
            "are taken in proportion to their internal draft steps, and the stated target time as the same for all."
        )


def _memory(result: RunResult) -> Iterator[Block]:
    if stages := list(run_serving.stage_rows(result.scenario)):
        yield Table(run_serving.STAGE_HEAD, stages, "Memory of the stages")
        yield Paragraph(run_serving.stage_caption(result.scenario))


def _accepted(result: RunResult) -> Iterator[Block]:
    if result.simulated.accepted:
        drawn = partial(figures.accepted_lengths, result.simulated, result.odds)
        yield Figure("Accepted draft tokens per verified window", ACCEPTED, drawn)
        yield Paragraph("Bars: simulation. Markers: law with marginal rates, as if positions were independent.")


def _timeline(result: RunResult) -> Iterator[Block]:
    caption = f"{result.scenario.schedule.traits.equation.replace('Delta', 'Δ')}. Here {regime(result)}."
    drawing = pipeline_timeline if result.scenario.schedule.traits.staged else timeline_svg
    window = steady_window(result.spans, 3 + result.scenario.stages)
    still = partial(drawing, result.spans, window, caption)
    yield Figure("Timeline of a few steps", TIMELINE, still, span_data(result.spans, window))
    yield Paragraph(
        (
            "Origin: simulation; chosen to show as many different spans as possible, so not typical shares. ",
            Hyperlink(TRACE, TRACE),
            " (the first 20,000 spans at most) opens in ",
            Hyperlink("Perfetto", PERFETTO),
            ".",
        )
    )
