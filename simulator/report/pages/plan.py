"""A plan as a page: the fleet first, then why, what else there is, how firm it is, by law, prices, exports, what went in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from simulator.report.blocks import Block, Bullets, Code, Figure, Highlight, Listing, Page, Paragraph, Table, sections
from simulator.report.inputs import PROVENANCE, RESOLVED, provenance_blocks, resolved_blocks
from simulator.report.page import page_files, write_files
from simulator.report.pages.plan_figures import plan_figure
from simulator.report.pages.plan_words import LEGEND, changes, head, headline, laws, rows, sentences
from simulator.report.run_summary import number
from simulator.scenario.uncertainty import SHARE
from simulator.studies.plan.study import PlanStudy

NAME, PICTURE, SCENARIO = "plan", "plan.svg", "scenario.yaml"


def write_plan(done: PlanStudy, folder: Path) -> None:
    """Page, picture, and the answer in the words of the programs that serve it; every file complete, or not at all.

    Raises BadInput where the folder cannot be made.
    """
    write_files(folder, page_files(plan_page(done), NAME) | done.exports)


def plan_page(done: PlanStudy) -> Page:
    """All of it."""
    plan, chosen = done.search.plan, done.chosen.candidate.loaded.scenario
    return Page(
        title=f"Plan {plan.file.name}",
        about=plan.file.about,
        answer=headline(done),
        opening=[
            Bullets(list(sentences(done))),
            Figure("Cost of fleets against time per token; how much of each limit is used", PICTURE, plan_figure(done)),
        ],
        sections=sections(
            ("What else there is", _families(done)),
            ("If the world is harder", _changes(done)),
            ("By law, one replica", _laws(done)),
            ("Left out", _left_out(done)),
            ("Prices", _prices(done)),
            ("Exported", _exports(done)),
            (PROVENANCE, provenance_blocks(chosen)),
            (RESOLVED, resolved_blocks(chosen)),
        ),
        command=done.command,
        highlights=_highlights(done),
    )


def _highlights(done: PlanStudy) -> list[Highlight]:
    chosen, chance = done.chosen, done.chance
    low, high = chance.interval
    return [
        Highlight(f"{chosen.replicas}", f"of {chosen.candidate.name}"),
        Highlight(f"{number(chosen.cost_usd_per_hour, 3)} USD", "an hour"),
        Highlight(f"{done.capacity:.2f} ×", "the traffic of the plan is carried"),
        Highlight(f"{chance.share:.0%}", f"of worlds keep the SLO ({SHARE:.0%} interval {low:.0%} to {high:.0%})"),
    ]


def _families(done: PlanStudy) -> Iterator[Block]:
    yield Table(head(done), list(rows(done)), "The cheapest fleet of every strategy on every hardware", sortable=True)
    yield Paragraph(LEGEND)


def _changes(done: PlanStudy) -> Iterator[Block]:
    yield Table(("change", "answer"), list(changes(done)), "The answer where something is harder")


def _laws(done: PlanStudy) -> Iterator[Block]:
    names, found = laws(done)
    yield Table(names, list(found), "Time per token by law and batch size", sortable=True)


def _left_out(done: PlanStudy) -> Iterator[Block]:
    if left := done.search.plan.left_out:
        yield Table(("combination", "why"), [(one.name, one.reason) for one in left], "Combinations that cannot run")


def _prices(done: PlanStudy) -> Iterator[Block]:
    offers = done.search.plan.file.devices.items()
    found = [(name, f"{one.price_usd_per_hour.value:g}", f"{one.count}", one.price_usd_per_hour.source) for name, one in offers]
    yield Table(("device", "USD/hour", "at most", "source"), found, "Prices", sortable=True)


def _exports(done: PlanStudy) -> Iterator[Block]:
    for name, text in done.exports.items():
        if name != SCENARIO:
            yield Paragraph((Code(name), ":"))
            yield Listing(text)
    yield Paragraph((Code(SCENARIO), ": the answer, to be run by ", Code(f"specsim run {SCENARIO}"), "."))
