"""The sweep over budgets: c, where both accountings have their optimum, the ablations of the paper."""

from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from simulator.report.blocks import Bullets, Figure, Page, Paragraph, Section, Table
from simulator.report.drawing import WIDTH_IN, canvas
from simulator.report.figures import BLUE, GREEN, GREY, ORANGE, SHADE, VERMILLION
from simulator.report.numbers import number
from simulator.studies.budget import FLAT, BudgetPoint, BudgetStudies, BudgetStudy

HEAD = ("draft ms", "step ms", "law", "replay", "simul.", "emitted: law", "simul.", "program counts")
LEGEND = (
    "Tokens per second while decoding: verified by law, replay and simulation, then emitted, where a request ends when its "
    "last token is shown, checked or not. Program counts: tokens that the released program reports over those of them that are "
    "verified (law). Budgets are compared with one sequence."
)
BOX = {"fc": "white", "alpha": 0.8, "lw": 0}


def page(result: BudgetStudies) -> Page:
    """Return the page of the budget study: its picture, and the optima and tables of all scenarios."""
    return Page(
        title="Budget of a draft that runs beside its target",
        opening=[
            Figure("Times and tokens per second over the budget", "budget.svg", lambda: budget_figure(result.studies)),
            Paragraph(LEGEND),
        ],
        sections=[_section(study) for study in result.studies],
    )


def _section(study: BudgetStudy) -> Section:
    """Return the sentences and the two tables of a scenario."""
    budgets = Table(("gamma", *HEAD), list(rows(study.points, "gamma")), f"Budgets of {study.scenario}")
    sequences = Table(("sequences", *HEAD), list(rows(study.sequences, "sequences")), f"Sequences of {study.scenario}")
    return Section(study.scenario, [Bullets(list(sentences(study))), budgets, sequences])


def rows(points: Sequence[BudgetPoint], field: str) -> Iterator[tuple[str, ...]]:
    """Yield a row for the points that were simulated, under their ``field`` and ``HEAD``."""
    for point in points:
        if point.verified.simulation is None or point.emitted.simulation is None:
            continue
        verified = point.verified.law, point.verified.replay or 0.0, point.verified.simulation
        rates = map(number, (*verified, point.emitted.law, point.emitted.simulation))
        times = number(point.draft_ms, 3), number(point.step_ms, 3)
        yield (str(getattr(point, field)), *times, *rates, f"x {point.reported_ratio:.2f}")


def sentences(study: BudgetStudy) -> Iterator[str]:
    """Yield c, the optimum in both accountings, what budgets around c lose, and where acceptance comes from."""
    yield f"c = T_target / T_draft = {number(study.cost_coefficient, 4)}, so gamma = {study.budget}"
    for count in ("verified", "emitted"):
        optima = []
        for way in ("law", "simulation"):
            if study.read(count, way):
                first, last = study.flat(count, way)
                optima.append(f"gamma = {study.best(count, way)} by {way} (within {FLAT:.0%} from {first} to {last})")
        yield f"most {count} tokens per second at {', '.join(optima)}"
    for way in ("law", "simulation"):
        verified, emitted = (
            ", ".join(f"{gamma}: {change:+.2%}" for gamma, change in study.around(count, way).items())
            for count in ("verified", "emitted")
        )
        if verified and emitted:
            yield f"against gamma = c by {way}: verified {verified}; emitted {emitted}"
    yield f"law: {study.source}"


# ---- the picture


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
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
                axes.set_xlabel("budget γ (draft tokens per iteration, one sequence)")
        panels[0, 0].legend(loc="upper left")
        panels[1, 0].legend(loc="lower left")
        panels[0, 0].set_ylabel("time (ms)")
        panels[1, 0].set_ylabel("tokens per second")
        return figure


def _times(axes: Any, study: BudgetStudy) -> None:
    gammas = [point.gamma for point in study.points]
    axes.plot(gammas, [point.step_ms for point in study.points], "-", color=BLUE, label="mean iteration, law")
    axes.plot(gammas, [point.target_ms for point in study.points], "-.", color=GREY, label="target verifies a sequence")
    axes.plot(gammas, [point.draft_ms for point in study.points], "--", color=GREEN, label="draft writes γ tokens")
    c = study.cost_coefficient
    side = "right" if c > (gammas[0] + gammas[-1]) / 2 else "left"
    axes.text(c, 1.0, f" c = T_target / T_draft = {c:.1f} ", ha=side, va="bottom", size=8, color=GREY)


def _rates(axes: Any, study: BudgetStudy) -> None:
    for count, line, marker, colour, edge in (("verified", "-", "o", BLUE, VERMILLION), ("emitted", "--", "s", ORANGE, ORANGE)):
        law, simulated = study.read(count, "law"), study.read(count, "simulation")
        axes.plot(list(law), list(law.values()), line, color=colour, label=f"{count}, law")
        look = {"mfc": "none", "mec": edge, "ms": 5}
        axes.plot(list(simulated), list(simulated.values()), marker, label=f"{count}, simulation", **look)
    if study.read("verified", "simulation"):
        first, last = study.flat("verified", "simulation")
        axes.axvspan(first - 0.4, last + 0.4, color=SHADE, lw=0, zorder=0)
        most = tuple(study.best(count, "simulation") for count in ("verified", "emitted"))
        text = f"shaded: verified within 1 % of the most, γ = {first} to {last}\n"
        text += "most verified at γ = {}, emitted at γ = {} (simulation)".format(*most)
        axes.text(0.985, 0.27, text, ha="right", va="bottom", size=8, transform=axes.transAxes, bbox=BOX)
