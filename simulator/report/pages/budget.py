"""The sweep over budgets: c, where both accountings have their optimum, the ablations of the
paper.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.figure import Figure as Drawing

from simulator.report.blocks import Bullets, Figure, Page, Paragraph, Section, Table
from simulator.report.drawing import WIDTH_IN, canvas
from simulator.report.figures import panel
from simulator.report.panels import GREY, SHADE
from simulator.report.wording import Wording
from simulator.studies.budget import FLAT, BudgetPoint, BudgetStudies, BudgetStudy

say = Wording("budget")
BOX = {"fc": "white", "alpha": 0.8, "lw": 0}


def page(result: BudgetStudies) -> Page:
    """Return the page of the budget study: its picture, and the optima and tables of all
    scenarios.
    """
    picture = Figure(say("picture"), "budget.svg", lambda: budget_figure(result.studies))
    return Page(
        **say.first_screen(studies=result.studies),
        opening=[picture, Paragraph(say("legend"))],
        sections=[_section(study) for study in result.studies],
    )


def _section(study: BudgetStudy) -> Section:
    """Return the sentences and the two tables of a scenario."""

    def table(head: str, what: str, points: Sequence[BudgetPoint]) -> Table:
        run = [
            point
            for point in points
            if None not in (point.verified.simulation, point.emitted.simulation)
        ]
        return say.table("budgets", run, head=head, what=what, scenario=study.scenario)

    tables = (
        table("gamma", "Budgets", study.points),
        table("sequences", "Sequences", study.sequences),
    )
    return Section(study.scenario, [Bullets(list(sentences(study))), *tables])


def sentences(study: BudgetStudy) -> Iterator[str]:
    """Yield c, the optimum in both accountings, what budgets around c lose, and where acceptance
    comes from.
    """
    yield say("first", study=study)
    for count in ("verified", "emitted"):
        ways = [way for way in ("law", "simulation") if study.read(count, way)]
        optima = [(way, study.best(count, way), *study.flat(count, way)) for way in ways]
        yield say("most", count=count, optima=optima, flat=FLAT)
    for way in ("law", "simulation"):
        if text := say(
            "around",
            way=way,
            **{count: study.around(count, way) for count in ("verified", "emitted")},
        ):
            yield text
    yield f"law: {study.source}"


def budget_figure(studies: Sequence[BudgetStudy]) -> Drawing:
    """Return two panels over the budget for all studies, a column per study."""
    width = WIDTH_IN * (1.0 + 0.55 * (len(studies) - 1))
    with canvas(6.6, width) as figure:
        panels = figure.subplots(2, len(studies), squeeze=False, height_ratios=(2, 3), sharey="row")
        for study, (times, rates) in zip(studies, panels.T, strict=True):
            _times(times, study)
            _rates(rates, study)
            times.set_title(study.scenario, size=9)
            for axes in (times, rates):
                axes.axvline(study.cost_coefficient, color=GREY, lw=0.8)
                axes.set_xlim(study.points[0].gamma - 0.4, study.points[-1].gamma + 0.4)
                axes.set_ylim(0.0)
        panels[0, 0].legend(loc="upper left")
        panels[1, 0].legend(loc="lower left")
        panels[0, 0].set_ylabel("time (ms)")
        panels[1, 0].set_ylabel("tokens per second")
        return figure


def _times(axes: Any, study: BudgetStudy) -> None:
    panel(axes, say, "times_panel", study.points)
    gammas = [point.gamma for point in study.points]
    c = study.cost_coefficient
    side = "right" if c > (gammas[0] + gammas[-1]) / 2 else "left"
    axes.text(
        c, 1.0, f" c = T_target / T_draft = {c:.1f} ", ha=side, va="bottom", size=8, color=GREY
    )


def _rates(axes: Any, study: BudgetStudy) -> None:
    panel(axes, say, "rates_panel", study.points)
    if study.read("verified", "simulation"):
        first, last = study.flat("verified", "simulation")
        axes.axvspan(first - 0.4, last + 0.4, color=SHADE, lw=0, zorder=0)
        most = tuple(study.best(count, "simulation") for count in ("verified", "emitted"))
        text = f"shaded: verified within 1 % of the most, γ = {first} to {last}\n"
        text += "most verified at γ = {}, emitted at γ = {} (simulation)".format(*most)
        axes.text(
            0.985, 0.27, text, ha="right", va="bottom", size=8, transform=axes.transAxes, bbox=BOX
        )
