"""The report as Markdown: the answer first, then how it came about, then everything that went in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import yaml

from simulator.outcome import CONFIDENCE
from simulator.report import batches, memory
from simulator.report.facts import (
    choices,
    columns,
    conditions,
    fallback,
    gaps,
    headline,
    kind_name,
    number,
    percent,
    share,
    step_kinds,
)
from simulator.run import Result
from simulator.scenario import resolved
from simulator.sweep_window import SweepPoint

REPORT, SWEEP, ACCEPTED, TIMELINE, TRACE = (
    "report.md",
    "window_sweep.svg",
    "accepted_lengths.svg",
    "timeline.svg",
    "timeline.json",
)
CONFIDENCES = ("measured", "calibrated", "datasheet", "published", "computed", "assumed")
KINDS_SHOWN = 4


def report_markdown(result: Result, sweep: Sequence[SweepPoint]) -> str:
    """The whole report; figures by relative path, sweep figure only where there is a sweep."""
    scenario = result.scenario
    sections = (
        [f"# {scenario.name}: {scenario.method_name}", *([scenario.about] if scenario.about else [])],
        [f"**{headline(result)}**", conditions(result)],
        _answers(result),
        _time(result),
        _batches(result),
        _memory(result),
        _fallback(result),
        _window(result, sweep),
        _accepted(result),
        _timeline(result),
        ["## Notes", "\n".join(f"- {note}" for note in result.notes)] if result.notes else [],
        _provenance(result),
        _scenario(result),
        ["## Made by", f"```\n{result.command or '(the command was not recorded)'}\n```"],
    )
    return "\n\n".join(block for section in sections for block in section) + "\n"


def _answers(result: Result) -> Iterator[str]:
    found = columns(result)
    rows = [
        ("mean step (ms)", *(number(column.step_ms) for column in found)),
        ("tokens per step and request", *(number(column.tokens_per_step) for column in found)),
        ("**time per token (ms)**", *(f"**{number(column.tpot_ms)}**" for column in found)),
        ("time per token against the simulation", *(percent((c.tpot_ms / found[-1].tpot_ms - 1) * 100) for c in found)),
    ]
    yield "## Law, replay and simulation"
    yield table(("", *(column.origin for column in found)), rows)
    yield (
        "Law: step over tokens, at the mean context. Replay and simulation: mean over requests of "
        "(E2E − TTFT)/(tokens − 1). The law with replayed means is told the acceptance and the step kinds that the "
        "simulation counted: it explains, it does not predict."
    )
    lines = []
    for gap in gaps(result):
        parts = ", ".join(f"{name} {percent(size)}" for name, size in gap.parts)
        lines.append(f"- **{gap.title}: {percent(gap.percent)}** ({parts}). Why: {gap.why}.")
    yield "\n".join(lines)
    yield f"Law: {result.law.source}. Relation of the law to the process: {result.law.relation}."


def _time(result: Result) -> Iterator[str]:
    yield "## Where the time goes"
    kinds = list(result.phases)
    split = any(phase.busy for parts in result.phases.values() for phase in parts.values())
    rows, first = [], result.phases[kinds[0]]
    for kind in kinds[:KINDS_SHOWN]:
        parts = {name: phase for name, phase in result.phases[kind].items() if kind == kinds[0] or first.get(name) != phase}
        for index, (name, phase) in enumerate(parts.items()):
            row = [kind_name(kind) if not index else "", name, number(phase.wall_s * 1e3)]
            if split:
                for use in ("compute", "collectives", "host"):
                    held = [seconds for lane, seconds in phase.busy.items() if lane.endswith(f" {use}")]
                    row.append(number(sum(held) * 1e3) if held else "–")
            rows.append(row)
    yield table(("step kind", "part", "wall (ms)", *(("compute (ms)", "collectives (ms)", "host (ms)") * split)), rows)
    origin = "Origin: the cost model at the mean context" if split else "Origin: stated in the scenario, with no split"
    origin += "; draft and suffix run side by side" if any("suffix" in parts for parts in result.phases.values()) else ""
    left = max(0, len(kinds) - KINDS_SHOWN)
    yield (
        f"{origin}."
        + " A part that takes the same as in the first step kind is not repeated." * (len(kinds) > 1)
        + f" Rarer step kinds left out here: {left}." * (left > 0)
    )
    shares = [(name, share(law), share(run)) for name, law, run in step_kinds(result)][: 2 * KINDS_SHOWN]
    yield table(("step kind", "share by law (marginal rates)", "share in the simulation"), shares)
    busy = [(lane, share(fraction)) for lane, fraction in result.busy.items()]
    yield table(("lane", "busy share of the whole run (simulation)"), busy)


def _batches(result: Result) -> Iterator[str]:
    yield "## Requests and batches"
    serving = result.simulated.serving
    if serving.counted.slo:
        yield table(batches.SLO_HEAD, batches.verdicts(serving))
    yield table(batches.HEAD, batches.times(serving))
    if result.replications:
        yield table(batches.REPLICATION_HEAD, batches.replications(result))
        yield f"± is half of a {CONFIDENCE:.0%} interval over {result.seeds} seeds (Student's t), this run's the first."
    if result.simulated.replicas:
        yield table(batches.REPLICA_HEAD, batches.replicas(result.simulated))
    yield "\n".join(f"- {sentence}." for sentence in batches.sentences(result))
    policy = type(result.scenario.serving.policy)
    rule = (policy.__doc__ or "").partition("\n")[0]
    yield f"Origin: simulation; quantiles within 0.5 %. Batching: {rule}"


def _fallback(result: Result) -> Iterator[str]:
    if text := fallback(result):
        yield "## Fallback"
        yield f"{text}."
    if text := choices(result):
        yield f"{text[0].upper()}{text[1:]}."
    if not result.fallback:
        return
    yield (
        f"On all {result.fallback[0].windows:,} windows of the recording (γ = {result.scenario.schedule.window}), "
        "by exit depth and κ. "
        "The paper's bound, fallback ≤ 1 − Ω, speaks of a position and holds there; a step has up to γ + 1 chances. "
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
    yield table(("exit depth", "κ", "1 − Ω, all positions", "fallback per position", "fallback per step"), rows)


def _window(result: Result, sweep: Sequence[SweepPoint]) -> Iterator[str]:
    if not sweep:
        return
    yield "## Which window"
    yield f"![Step time and time per token against the window]({SWEEP})"
    best = min(sweep, key=lambda point: point.law_tpot_ms)
    text = f"Best window by law (marginal rates): γ = {best.gamma} with {number(best.law_tpot_ms)} ms per token"
    tried = {point.gamma: point.simulated_tpot_ms for point in sweep if point.simulated_tpot_ms is not None}
    if tried:
        gamma = min(tried, key=lambda known: tried[known])
        count = max(point.simulated_requests for point in sweep)
        text += f"; by simulation ({count} requests for each window): γ = {gamma} with {number(tried[gamma])} ms"
    yield f"{text}. This scenario runs γ = {result.scenario.schedule.window}."
    given = result.scenario.durations
    if given and given.draft_ms is not None:
        yield (
            f"The stated draft_ms of {number(given.draft_ms)} ms is for γ = {result.scenario.schedule.window}; other windows "
            "are taken in proportion to their internal draft steps, and the stated target time as the same for all."
        )


def _memory(result: Result) -> Iterator[str]:
    if stages := list(memory.stage_rows(result.scenario)):
        yield "## Memory of the stages"
        yield table(memory.HEAD, stages)
        yield memory.caption(result.scenario)


def _accepted(result: Result) -> Iterator[str]:
    if result.simulated.accepted:
        yield "## How many draft tokens are kept"
        yield f"![Accepted draft tokens per verified window]({ACCEPTED})"
        yield "Bars: simulation. Markers: law with marginal rates, as if positions were independent."


def _timeline(result: Result) -> Iterator[str]:
    yield "## A few steps"
    yield f"![Timeline of a few steps]({TIMELINE})"
    yield (
        f"Origin: simulation; chosen to show as many different spans as possible, so not typical shares. "
        f"[{TRACE}]({TRACE}) (the first 20,000 spans at most) opens in [Perfetto](https://ui.perfetto.dev)."
    )


def _provenance(result: Result) -> Iterator[str]:
    yield "## Where the numbers come from"
    entries = result.provenance()
    if not entries:
        yield "No number with a source went in: durations and rates are stated in the scenario."
        return
    counts = Counter(str(entry["confidence"]) for entry in entries)
    order = [name for name in CONFIDENCES if name in counts]
    yield f"{len(entries)} numbers: " + ", ".join(f"{counts[name]} {name}" for name in order) + "."
    ranked = sorted(entries, key=lambda entry: order.index(str(entry["confidence"])))
    rows = [(e["confidence"], f"`{e['parameter']}`", f"{e['value']:g}", e["source"]) for e in ranked]
    yield table(("confidence", "parameter", "value", "source"), rows)


def _scenario(result: Result) -> Iterator[str]:
    text = yaml.safe_dump(resolved(result.scenario), sort_keys=False, allow_unicode=True, width=110)
    yield "## The scenario, resolved"
    yield f"<details><summary>{result.scenario.name}, every default and every file filled in</summary>"
    yield f"```yaml\n{text}```"
    yield "</details>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""

    def line(cells: Iterable[object]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return "\n".join([line(head), line("---" for _ in head), *map(line, rows)])
