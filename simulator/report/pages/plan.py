"""Show a plan: the fleet first, then why, the alternatives, how robust it is, by law, prices, exports, what went in."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Drawing

from simulator.report.blocks import Block, Bullets, Code, Figure, Highlight, Listing, Page, Paragraph, Table, sections
from simulator.report.drawing import WIDTH_IN, canvas
from simulator.report.figures import BLUE, GREY, LOOKS, VERMILLION
from simulator.report.inputs import PROVENANCE, RESOLVED, provenance_blocks, resolved_blocks
from simulator.report.page import page_files, write_files
from simulator.report.wording import Wording, number, share
from simulator.scenario.uncertainty import SHARE
from simulator.studies.plan.export import DraftLengths
from simulator.studies.plan.file import Candidate
from simulator.studies.plan.robustness import Sensitivity
from simulator.studies.plan.search import Finding
from simulator.studies.plan.study import PlanStudy, limit_name

NAME, PICTURE, SCENARIO = "plan", "plan.svg", "scenario.yaml"
FIGURE_TITLE = "Cost of fleets against time per token; how much of each limit is used"
ON_TERMINAL = (0, 1, 2, 3, 5, 6, 8)
"""Columns of the table of alternatives that a terminal shows, before those of the limits."""
say = Wording("plan")
THICK = 0.3
"""Thickness of a bar, where the next bar is 1 away."""
LONGEST_OF_THREE = 22
"""Letters of a name up to which the legend has three columns."""


def write_plan(study: PlanStudy, folder: Path) -> None:
    """Write the page, its picture, and the answer for the programs that serve it; each file complete, or not at all.

    Raises BadInput where the folder cannot be made.
    """
    write_files(folder, page_files(page(study), NAME) | study.exports)


def page(study: PlanStudy) -> Page:
    """Return the page of a plan and its answer."""
    plan, chosen = study.search.plan, study.chosen.candidate.loaded.scenario
    return Page(
        title=f"Plan {plan.file.name}",
        about=plan.file.about,
        answer=headline(study),
        opening=[Bullets(list(sentences(study))), Figure(FIGURE_TITLE, PICTURE, lambda: plan_figure(study))],
        sections=[
            *sections(
                ("Alternatives", _families(study)), ("Sensitivity", _changes(study)), ("Taken by default", _assumed(study))
            ),
            *sections(
                ("By law, one replica", _laws(study)),
                ("Left out", _left_out(study)),
                ("Prices", _prices(study)),
                ("Exported", _exports(study)),
                (PROVENANCE, provenance_blocks(chosen)),
                (RESOLVED, resolved_blocks(chosen)),
                terminal=False,
            ),
        ],
        command=study.command,
        highlights=_highlights(study),
    )


# ---- the answer in words


def headline(study: PlanStudy) -> str:
    """Return the answer in one sentence."""
    return f"{fleet(study.chosen)}: {number(study.chosen.cost_usd_per_hour)} USD per hour."


def fleet(finding: Finding) -> str:
    """Return replicas, candidate and devices in words."""
    return f"{_replicas(finding)}, {_words(finding.candidate)} ({_devices(finding)})"


def _replicas(finding: Finding) -> str:
    return "1 replica" if finding.replicas == 1 else f"{finding.replicas} replicas"


def _words(candidate: Candidate) -> str:
    """Return a candidate's name for readers: ``plain on h100`` is ``plain decoding on H100``."""
    strategy = candidate.strategy
    if not candidate.loaded.scenario.schedule.window and "decoding" not in strategy:
        strategy = f"{strategy} decoding"
    hardware = re.sub(r"\b[a-z]\d+\b", lambda model: model[0].upper(), candidate.hardware)
    settings = candidate.name.removeprefix(f"{candidate.strategy} on {candidate.hardware}")
    return f"{strategy} on {hardware}{settings}"


def _devices(finding: Finding) -> str:
    return " + ".join(f"{count * finding.replicas} x {name}" for name, count in finding.candidate.devices.items())


def sentences(study: PlanStudy) -> Iterator[str]:
    """Yield how the answer meets the SLO, why it is not smaller, what it carries, and how sure that is."""
    chosen, longer, chance = study.chosen, study.longer, study.chance
    times = (
        f"{limit_name(measured.limit)} {_ms(measured.seconds)} of {_ms(measured.limit.seconds)} ms"
        for measured in chosen.measured
    )
    yield f"Simulated: {', '.join(times)}; {number(chosen.cost_usd_per_million_tokens)} USD per million output tokens."
    yield _why_not_fewer(study)
    yield f"It meets the SLO up to {study.capacity:.2f} times the traffic of the plan (bisection, to 1 %)."
    yield (
        f"Over {longer.requests:,} requests the SLO is {_met(longer.slo_met)} and the queue is "
        f"{'stable' if longer.stable else 'growing'} (drift {longer.drift:+.1%} of arrivals)."
    )
    yield (
        f"Stress-tested: the SLO was met in {chance.kept} of {chance.draws} resampled runs, {SHARE:.0%} interval "
        f"{chance.interval.low:.0%} to {chance.interval.high:.0%} (resampled: arrivals, recordings, device speeds; not links)."
    )
    if chosen.candidate.loaded.scenario.acceptance.stand_in:
        yield "Acceptance is a stand-in, recorded from small models; that of the planned models may be higher or lower."
    if study.rests_on:
        yield f"{study.rests_on[0].upper()}{study.rests_on[1:]}, by law and for one deviation each."
    yield from _break_even(study)
    if study.schedule:
        run = study.schedule.finding
        tightest = f"{limit_name(run.tightest.limit)} {_ms(run.tightest.seconds)} ms"
        places = chosen.candidate.loaded.scenario.batch
        ranges = ", ".join(f"{first} to {last}: {tokens}" for first, last, tokens in study.schedule.ranges(places))
        yield (
            f"Draft tokens by batch size that give the most tokens per second by law: {ranges}. "
            f"Run with them, the SLO is {_met(run.kept)}, {tightest}."
        )
    yield from _switched_off(study.lengths)
    looked = study.search
    ruled_out = sum(bool(finding.bound) for finding in looked.findings)
    yield (
        f"There are {len(looked.plan.candidates)} candidates; of {len(looked.findings)} fleets looked at, "
        f"{looked.simulated} were simulated and {ruled_out} ruled out by a bound."
    )


def _switched_off(lengths: DraftLengths) -> Iterator[str]:
    """Yield where speculation has to be off, by law."""
    off = {
        context: min((batch for batch, tokens in table.items() if not tokens), default=0) for context, table in lengths.items()
    }
    words = [f"from {batch} requests of {context:,} cached tokens on" for context, batch in off.items() if batch]
    if lengths:
        where = ", ".join(words) or "nowhere"
        yield f"By law speculation has to be switched off {where} (schedule.csv: draft tokens by batch and context)."


def _met(met: bool | None) -> str:
    return "met" if met else "missed"


def _why_not_fewer(study: PlanStudy) -> str:
    tightest = study.chosen.tightest
    if study.binding is None:
        return f"One replica is enough; the tightest limit is {limit_name(tightest.limit)}, at {share(tightest.strain)}."
    return f"With one replica fewer it breaks {limit_name(study.binding)}."


def _break_even(study: PlanStudy) -> Iterator[str]:
    point = study.break_even
    if point is None:
        return
    yield (
        f"By law it is {point.speedup:.2f} times as fast as autoregressive decoding on the same devices, "
        f"at its mean batch of {point.batch}."
    )
    if point.rate is None and point.speedup < 1.0:
        yield "Break-even: it is behind at any acceptance."
        return
    rate = "at any acceptance" if point.rate is None else f"while more than {point.rate:.0%} of draft tokens are kept"
    batch = f"up to {point.places}" if point.first_batch is None else f"below {point.first_batch}"
    latency = "there are no links"
    if point.latency_ratio is not None:
        latency = f"up to {point.latency_ratio:.3g} times the latency of the links"
    elif point.linked:
        latency = "whatever the latency of the links"
    yield f"Break-even: it stays ahead {rate}; in batches {batch}; {latency}."


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f}" if seconds >= 0.1 else number(seconds * 1e3, 3)


# ---- tables


def _highlights(study: PlanStudy) -> list[Highlight]:
    chosen, chance = study.chosen, study.chance
    low, high = chance.interval
    return [
        Highlight(_replicas(chosen), _words(chosen.candidate)),
        Highlight(f"{number(chosen.cost_usd_per_hour, 3)} USD", "an hour"),
        Highlight(f"{study.capacity:.2f} ×", "the traffic of the plan is carried"),
        Highlight(f"{chance.share:.0%}", f"of resampled runs met the SLO ({SHARE:.0%} interval {low:.0%} to {high:.0%})"),
    ]


def _families(study: PlanStudy) -> Iterator[Block]:
    """Yield the table of alternatives: a line for each family of candidates, and a column for each limit (ms)."""
    limits, families, times = study.search.plan.file.slo.limits, [], list[list[str]]()
    for (hardware, strategy), cheapest in study.runners_up.items():
        fleets = [finding for finding in study.search.findings if finding.candidate.family == (hardware, strategy)]
        if cheapest is None:  # of a family that meets the SLO nowhere, the limit that its last fleet missed
            limit = fleets[-1].missed if fleets else None
            facts: dict[str, Any] = {"settings": "none", "devices": "", "capacity": None}
            facts["replicas"] = f"up to {max((finding.replicas for finding in fleets), default=0)}"
        else:
            limit = study.search.binding(cheapest)
            settings = ", ".join(f"{path.split('.')[-1]} {value}" for path, value in cheapest.candidate.settings)
            facts = {"settings": settings or "as given", "replicas": cheapest.replicas, "devices": _devices(cheapest)}
            facts["capacity"] = study.capacities[cheapest.candidate.family]
        named = {"strategy": strategy, "hardware": hardware, "found": cheapest, "limit": limit_name(limit) if limit else ""}
        families.append(named | facts)
        times.append([_ms(measured.seconds) for measured in cheapest.measured] if cheapest else [""] * len(limits))
    table = say.table("families", families)
    rows = [(*row, *seconds) for row, seconds in zip(table.rows, times, strict=True)]
    shown = (*ON_TERMINAL, *range(len(table.head), len(table.head) + len(limits)))
    head = [*table.head, *(f"{limit_name(limit)} (ms)" for limit in limits)]
    yield replace(table, head=head, rows=rows, terminal_columns=shown)
    yield Paragraph(say("legend"))


def _changes(study: PlanStudy) -> Iterator[Block]:
    yield say.table("changes", study.sensitivity, answer=_answer)


def _answer(case: Sensitivity) -> str:
    if case.reason:
        return f"does not apply: {case.reason}"
    if case.answer is None:
        return "no fleet meets the SLO"
    if case.holds:
        tightest = case.answer.tightest
        return f"still holds; {limit_name(tightest.limit)} at {share(tightest.strain)} of its limit"
    return f"{fleet(case.answer)}, {number(case.answer.cost_usd_per_hour)} USD per hour"


def _assumed(study: PlanStudy) -> Iterator[Block]:
    if study.search.plan.file.assumed:
        yield Bullets(list(study.search.plan.file.assumed))


def _laws(study: PlanStudy) -> Iterator[Block]:
    sizes = sorted({point.batch for point in study.laws})
    lines = []
    for name in dict.fromkeys(point.candidate.name for point in study.laws):
        points = {point.batch: point for point in study.laws if point.candidate.name == name}
        times = [number(points[size].tpot_ms, 3) if size in points else "" for size in sizes]
        lines.append((name, *times, number(max(point.tokens_per_s for point in points.values()), 3)))
    columns = ("candidate", *(f"ms/token at {size}" for size in sizes), "most tokens/s")
    yield Table(columns, lines, "Time per token by law and batch size", sortable=True)


def _left_out(study: PlanStudy) -> Iterator[Block]:
    if combinations := study.search.plan.left_out:
        yield say.table("left_out", combinations)


def _prices(study: PlanStudy) -> Iterator[Block]:
    yield say.table("prices", study.search.plan.file.devices.items())


def _exports(study: PlanStudy) -> Iterator[Block]:
    for name, text in study.exports.items():
        if name != SCENARIO:
            yield Paragraph((Code(name), ":"))
            yield Listing(text)
    yield Paragraph((Code(SCENARIO), ": the answer, to be run by ", Code(f"specsim run {SCENARIO}"), "."))


# ---- the figure


def plan_figure(study: PlanStudy) -> Drawing:
    """Return a drawing: cost against mean time per token, a line for each family; and how much of each limit is used."""
    with canvas(4.2, WIDTH_IN * 1.1) as drawing:
        pareto, limits = drawing.subplots(1, 2, width_ratios=(5, 2))
        _draw_fleets(pareto, study)
        _draw_limits(limits, study)
        handles, labels = pareto.get_legend_handles_labels()
        columns = 3 if max(map(len, labels[1:]), default=0) <= LONGEST_OF_THREE else 2
        drawing.legend(handles, labels, loc="outside lower center", ncols=columns)
        return drawing


def front(fleets: Sequence[Finding]) -> list[Finding]:
    """Return the fleets that none beats in cost and time per token at once, cheapest first."""
    best: list[Finding] = []
    for finding in sorted(fleets, key=lambda finding: (finding.cost_usd_per_hour, _tpot_ms(finding))):
        if not best or _tpot_ms(finding) < _tpot_ms(best[-1]):
            best.append(finding)
    return best


def _draw_fleets(axes: Any, study: PlanStudy) -> None:
    best = front([finding for finding in study.sizes if finding.kept])
    axes.step(*_points(best), where="post", color=GREY, lw=4.0, alpha=0.25, label="Pareto front of those that meet the SLO")
    for family, (colour, marker) in zip(study.search.by_family, LOOKS * len(study.sizes), strict=False):
        sizes = [finding for finding in study.sizes if finding.candidate.family == family]
        axes.plot(*_points(sizes), lw=1.0, color=colour)
        for kept, face in (True, colour), (False, "white"):
            label = f"{family[1]} on {family[0]}" if kept else None
            points = _points([finding for finding in sizes if finding.kept is kept])
            axes.plot(*points, marker, ms=6, mfc=face, mec=colour, label=label)
        for finding in sizes:
            point = finding.cost_usd_per_hour, _tpot_ms(finding)
            axes.annotate(f"{finding.replicas}", point, (5, 4), textcoords="offset points", size=7)
    answer = study.chosen.cost_usd_per_hour, _tpot_ms(study.chosen)
    axes.annotate("answer", answer, (-8, -16), textcoords="offset points", ha="center", size=8, weight="bold")
    axes.set_xlabel("USD per hour")
    axes.set_ylabel("mean time per token (ms)")
    axes.set_title("cheapest of each family and its sizes (replicas); hollow: SLO missed", size=8, loc="left", color=GREY)
    axes.margins(0.12)


def _points(fleets: Sequence[Finding]) -> tuple[list[float], list[float]]:
    return [finding.cost_usd_per_hour for finding in fleets], [_tpot_ms(finding) for finding in fleets]


def _draw_limits(axes: Any, study: PlanStudy) -> None:
    limits = study.chosen.measured
    axes.barh(
        [limit_name(measured.limit) for measured in limits],
        [measured.strain * 100 for measured in limits],
        color=BLUE,
        height=THICK,
    )
    axes.axvline(100.0, color=VERMILLION, lw=1.2)
    for place, measured in enumerate(limits):
        text = f"{measured.seconds * 1e3:,.0f} of {measured.limit.seconds * 1e3:,.0f} ms"
        axes.annotate(text, (0, place + THICK / 2), (2, -3), textcoords="offset points", va="top", size=8)
    axes.set_xlim(0, 110)
    axes.set_xlabel("per cent of the limit")
    axes.set_title("the answer's use of the SLO", size=8, loc="left", color=GREY)
    axes.set_ylim(max(len(limits), 2) - 0.33, -0.67)  # a single bar is no thicker


def _tpot_ms(finding: Finding) -> float:
    return finding.outcome.tpot_s * 1e3 if finding.outcome else float("inf")
