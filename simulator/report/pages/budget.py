"""The sweep over budgets: c, where each accounting has its optimum, the ablations of the paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from simulator.report.console import WIDEST, item, new_table
from simulator.report.markdown import table
from simulator.report.run_summary import number
from simulator.studies.budget import FLAT, BudgetPoint, BudgetStudy

HEAD = ("draft ms", "step ms", "law", "replay", "simul.", "emitted: law", "simul.", "program counts")
LEGEND = (
    "Tokens per second while decoding: verified by law, replay and simulation, then emitted, where a request ends when its "
    "last token is shown, checked or not. Program counts: tokens that the released program reports over those of them that are "
    "verified (law). Budgets are compared with one sequence."
)


def rows(points: Sequence[BudgetPoint], field: str) -> Iterator[tuple[str, ...]]:
    """One line for each point that was simulated, under its ``field`` and ``HEAD``."""
    for one in points:
        if one.verified.simulation is None or one.emitted.simulation is None:
            continue
        verified = one.verified.law, one.verified.replay or 0.0, one.verified.simulation
        rates = map(number, (*verified, one.emitted.law, one.emitted.simulation))
        times = number(one.draft_ms, 3), number(one.step_ms, 3)
        yield (str(getattr(one, field)), *times, *rates, f"x {one.reported_ratio:.2f}")


def sentences(study: BudgetStudy) -> Iterator[str]:
    """c, the optimum in both accountings, what budgets beside c lose."""
    yield f"c = T_target / T_draft = {number(study.cost_coefficient, 4)}, so gamma = {study.budget}"
    for count in ("verified", "emitted"):
        found = []
        for way in ("law", "simulation"):
            if study.read(count, way):
                first, last = study.flat(count, way)
                found.append(f"gamma = {study.best(count, way)} by {way} (within {FLAT:.0%} from {first} to {last})")
        yield f"most {count} tokens per second at {', '.join(found)}"
    for way in ("law", "simulation"):
        beside = {count: study.around(count, way) for count in ("verified", "emitted")}
        if all(beside.values()):
            changes = (", ".join(f"{gamma}: {change:+.2%}" for gamma, change in beside[count].items()) for count in beside)
            yield "against gamma = c by {}: verified {}; emitted {}".format(way, *changes)
    yield f"law: {study.source}"


def print_budgets(studies: Sequence[BudgetStudy], console: Console) -> None:
    """On a terminal."""
    width = min(console.width, WIDEST)
    for study in studies:
        console.print(study.scenario, style="bold", highlight=False)
        for points, field in ((study.points, "gamma"), (study.sequences, "sequences")):
            shown = new_table(field, *(name.replace("emitted:", "emit.").replace("program", "prog.") for name in HEAD))
            for row in rows(points, field):
                shown.add_row(*row)
            console.print(shown, width=width)
        for sentence in sentences(study):
            item(console, sentence, width)
    item(console, LEGEND, width)


def sections(studies: Sequence[BudgetStudy]) -> Iterator[str]:
    """The same as blocks of a page."""
    for study in studies:
        yield f"## {study.scenario}"
        yield "\n".join(f"- {sentence}" for sentence in sentences(study))
        yield table(("gamma", *HEAD), rows(study.points, "gamma"))
        yield table(("sequences", *HEAD), rows(study.sequences, "sequences"))
    yield LEGEND
