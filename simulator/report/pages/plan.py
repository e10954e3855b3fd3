"""Show a plan: the fleet first, then why, the alternatives, how robust it is, by law, prices,
exports, what went in.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Drawing

from simulator.files.writing import write_all
from simulator.numeric import grouped
from simulator.report.blocks import (
    Block,
    Bullets,
    Code,
    Figure,
    Listing,
    Page,
    Paragraph,
    Strong,
    sections,
)
from simulator.report.drawing import WIDTH_IN, canvas
from simulator.report.figures import panel
from simulator.report.inputs import PROVENANCE, RESOLVED, provenance_blocks, resolved_blocks
from simulator.report.page import page_files
from simulator.report.pages import what_if
from simulator.report.panels import GREY, LOOKS, VERMILLION
from simulator.report.wording import Wording, number
from simulator.scenario.caveats import taken_over
from simulator.scenario.uncertainty import SHARE
from simulator.serving.busier import requests_in_words
from simulator.studies.plan.export import ENGINES
from simulator.studies.plan.file import Candidate
from simulator.studies.plan.headroom import Headroom
from simulator.studies.plan.question import DEFAULTS
from simulator.studies.plan.search import Finding
from simulator.studies.plan.study import PlanStudy, limit_name

NAME, PICTURE, SCENARIO, REQUESTS = "plan", "plan.svg", "scenario.yaml", "traffic.csv"
FIGURE_TITLE = "Cost of fleets against the SLO: the cheapest of each family, and its sizes"
ON_TERMINAL = (0, 1, 2, 3, 5, 6, 8)
"""Columns of the table of alternatives that a terminal shows, before those of the limits."""
MOST_USED = 200
"""Per cent of a limit, more of which is drawn as so much."""
say = Wording("plan")


def write_plan(study: PlanStudy, folder: Path) -> None:
    """Write the page, its picture, and the answer for the programs that serve it: all of them or
    none.

    A folder that holds an earlier answer alone is replaced whole. Raises BadInput where the folder
    cannot be made.
    """
    files = page_files(page(study), NAME) | study.exports
    ours = {
        *files,
        *(entry["file"] for entry in ENGINES.values()),
        SCENARIO,
        REQUESTS,
        "schedule.csv",
        "specpipe.yaml",
    }
    write_all({folder / name: content for name, content in files.items()}, ours)


def page(study: PlanStudy) -> Page:
    """Return the page of a plan and its answer."""
    plan, chosen = study.search.plan, study.chosen.candidate.loaded.scenario
    named = {
        "fleet": fleet,
        "words": _words,
        "replicas": _replicas,
        "covered": SHARE,
        "multiple": multiple,
    }
    return Page(
        **say.first_screen(study=study, plan=plan, chosen=study.chosen, **named),
        about=plan.file.about,
        opening=[
            Figure(FIGURE_TITLE, PICTURE, lambda: plan_figure(study)),
            *(
                Bullets([(Strong(f"{lead}:"), f" {words}") for lead, words in part(study)])
                for part in (reasons, changes)
            ),
            Bullets(list(sentences(study))),
        ],
        sections=[
            *sections(("Alternatives", _families(study)), ("Taken by default", _assumed(study))),
            *sections(
                (what_if.TITLE, what_if.blocks(study.law)),
                ("By law, one replica", _laws(study)),
                ("Left out", [say.table("left_out", plan.left_out)] if plan.left_out else []),
                ("Prices", [say.table("prices", plan.file.devices.items())]),
                ("Exported", _exports(study)),
                (PROVENANCE, provenance_blocks(chosen)),
                (RESOLVED, resolved_blocks(chosen)),
                terminal=False,
            ),
        ],
        command=study.command,
    )


# ---- the answer in words


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
    return " + ".join(
        f"{count * finding.replicas} x {name}" for name, count in finding.candidate.devices.items()
    )


def reasons(study: PlanStudy) -> Iterator[tuple[str, str]]:
    """Yield how the answer meets the SLO, why it is not smaller, what it carries, and what comes
    next, each with its topic.
    """
    chosen = study.chosen
    yield "Why", say("why", chosen=chosen, binding=study.binding, limit=limit_name, ms=_ms)
    if chosen.candidate.loaded.scenario.requests.prompts_alone:
        yield (
            "Not measured",
            "time per token (TPOT), as no output has a second token; drafts are of no use there.",
        )
    yield "Headroom", headroom_words(study.headroom)
    for finding in [
        finding for finding in study.search.by_family.values() if finding is not chosen
    ][:1]:
        yield "Next", say("next", dearer=finding, chosen=chosen, fleet=fleet)


def multiple(found: Headroom) -> str:
    """Return headroom as a number of times: two digits, or why there is none."""
    if found.times is None:
        return "unknown"
    return f"{'at least ' if found.capped else ''}{number(found.times, 2)} x"


def headroom_words(found: Headroom) -> str:
    """Return how much more traffic an answer carries, what that was drawn from, and what bounds
    it.
    """
    ceiling = f"flops, bytes and KV cache allow at most {number(found.by_arithmetic, 2)} times"
    if found.times is None:
        return (
            f"unknown from {requests_in_words(found.recorded or 0)}, too few to draw more from; "
            f"{ceiling}."
        )
    log = (
        f"the log's {requests_in_words(found.recorded)}"
        if found.recorded
        else "arrivals and lengths as stated"
    )
    run = f"{requests_in_words(found.requests)} within {number(found.lasted_s, 2)} s"
    if found.times < 1.0:
        law = "by law " if found.by_law else ""
        share = (
            f"carries {law}about {number(found.times, 1)} times it"
            if found.times
            else "carries none of it"
        )
        met = (
            "These requests meet the SLO, but"
            if found.recorded
            else "The SLO is met as long as stated, but"
        )
        return f"none. {met} of traffic that goes on in the same way the fleet {share}; {ceiling}."
    least = "at least " if found.capped else ""
    words = f"{least}{number(found.times, 2)} times the planned traffic ("
    if found.steady:
        words += f"{log}, drawn again: {run}, to 5 %)"
    else:
        words += f"{log}, once, their bursts so many times as large: {run}, to 5 %)"
    if found.interval:
        low, high = (number(end, 2) for end in found.interval)
        words += f"; from so few requests anything between {low} and {high} ({SHARE:.0%} interval)"
    tried = "; no more was tried" if found.capped else ""
    return f"{words}{tried}; {ceiling}."


def changes(study: PlanStudy) -> Iterator[tuple[str, str]]:
    """Yield what would change the answer: something harder, or another acceptance, batch or
    link.
    """
    for case in study.sensitivity:
        yield f"With {case.change}", f"{say('case', case=case, limit=limit_name, fleet=fleet)}."
    if study.break_even is not None:
        yield "Against plain decoding", say("break_even", point=study.break_even)


def sentences(study: PlanStudy) -> Iterator[str]:
    """Yield how sure the answer is, with which draft lengths it runs, where speculation is off, and
    what was looked at.
    """
    scenario, tables = study.chosen.candidate.loaded.scenario, study.lengths.items()
    off = [
        (min((batch for batch, tokens in table.items() if not tokens), default=0), context)
        for context, table in tables
    ]
    unknown, offers = DEFAULTS["price"]["source"], study.search.plan.file.devices.items()
    unpriced = [name for name, offer in offers if offer.price_usd_per_hour.source == unknown]
    facts = {"scenario": scenario, "looked": study.search, "covered": SHARE, "unpriced": unpriced}
    yield from say.all("sentences", study=study, off=off, limit=limit_name, ms=_ms, **facts)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f}" if seconds >= 0.1 else number(seconds * 1e3, 3)


# ---- tables


def _families(study: PlanStudy) -> Iterator[Block]:
    """Yield the table of alternatives: a line for each family of candidates, and a column for each
    limit (ms).
    """
    limits, families, times = study.search.plan.file.slo.limits, [], list[list[str]]()
    for (hardware, strategy), cheapest in study.runners_up.items():
        fleets = [
            finding
            for finding in study.search.findings
            if finding.candidate.family == (hardware, strategy)
        ]
        if (
            cheapest is None
        ):  # of a family that meets the SLO nowhere, the limit that its last fleet missed
            limit = fleets[-1].missed if fleets else None
            facts: dict[str, Any] = {"settings": "none", "devices": "", "capacity": None}
            facts["replicas"] = f"up to {max((finding.replicas for finding in fleets), default=0)}"
        else:
            limit = study.search.binding(cheapest)
            settings = ", ".join(
                f"{path.split('.')[-1]} {value}" for path, value in cheapest.candidate.settings
            )
            facts = {
                "settings": settings or "as given",
                "replicas": cheapest.replicas,
                "devices": _devices(cheapest),
            }
            facts["capacity"] = study.capacities[cheapest.candidate.family]
        named = {
            "strategy": strategy,
            "hardware": hardware,
            "found": cheapest,
            "limit": limit_name(limit) if limit else "",
        }
        families.append(named | facts)
        times.append(
            [_ms(measured.seconds) for measured in cheapest.measured]
            if cheapest
            else [""] * len(limits)
        )
    table = say.table("families", families, multiple=multiple)
    rows = [(*row, *seconds) for row, seconds in zip(table.rows, times, strict=True)]
    shown = (*ON_TERMINAL, *range(len(table.head), len(table.head) + len(limits)))
    head = [*table.head, *(f"{limit_name(limit)} (ms)" for limit in limits)]
    yield replace(table, head=head, rows=rows, terminal_columns=shown)
    yield Paragraph(say("legend"))


def _assumed(study: PlanStudy) -> Iterator[Block]:
    taken = [
        f"{words[0].upper()}{words[1:]}." for words in taken_over(study.chosen.candidate.loaded)
    ]
    if said := [*study.search.plan.file.assumed, *taken]:
        yield Bullets(said)


def _laws(study: PlanStudy) -> Iterator[Block]:
    by_name = grouped(study.laws, lambda point: point.candidate.name)
    lines = [(name, {point.batch: point for point in points}) for name, points in by_name.items()]
    yield say.table("laws", lines, sizes=sorted({point.batch for point in study.laws}))


def _exports(study: PlanStudy) -> Iterator[Block]:
    for name, text in study.exports.items():
        if name not in (SCENARIO, REQUESTS):
            yield Paragraph((Code(name), ":"))
            yield Listing(text)
    yield Paragraph(
        (Code(SCENARIO), ": the answer, to be run by ", Code(f"specsim run {SCENARIO}"), ".")
    )


# ---- the figure


def plan_figure(study: PlanStudy) -> Drawing:
    """Return a drawing: cost against the share of the tightest limit that is used, a line for each
    family.
    """
    with canvas(2.7, WIDTH_IN * 1.2) as drawing:
        axes = drawing.subplots()
        axes.axhline(100.0, color=VERMILLION, lw=1.2, label="SLO")
        for family, (colour, marker) in zip(
            study.search.by_family, (*LOOKS, (GREY, "h")) * len(study.sizes), strict=False
        ):
            sizes = [finding for finding in study.sizes if finding.candidate.family == family]
            axes.plot(*_points(sizes), lw=1.0, color=colour)
            for kept, face in (True, colour), (False, "white"):
                label = f"{family[1]} on {family[0]}" if kept else None
                points = _points([finding for finding in sizes if finding.kept is kept])
                axes.plot(*points, marker, ms=6, mfc=face, mec=colour, label=label)
            for finding, cost, used in zip(sizes, *_points(sizes), strict=True):
                axes.annotate(
                    f"{finding.replicas}", (cost, used), (5, 4), textcoords="offset points", size=7
                )
        ((cost,), (used,)) = _points([study.chosen])
        axes.annotate(
            "answer",
            (cost, used),
            (-8, -14),
            textcoords="offset points",
            ha="center",
            size=8,
            weight="bold",
        )
        axes.margins(0.12)
        panel(axes, say, "panel", (), most=MOST_USED)
        drawing.legend(loc="outside right upper")
        return drawing


def _points(fleets: Sequence[Finding]) -> tuple[list[float], list[float]]:
    used = [min(MOST_USED, finding.tightest.strain * 100) for finding in fleets]
    return [finding.cost_usd_per_hour for finding in fleets], used
