"""The sweep over budgets: c, where both accountings have their optimum, the ablations of the
paper.
"""

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from simulator.papers.duodecoding.budget import FLAT, BudgetPoint, BudgetStudies, BudgetStudy
from simulator.report.blocks import (
    Block,
    Bullets,
    Figure,
    Highlight,
    Page,
    Paragraph,
    Section,
    Table,
)
from simulator.report.columns import Column, table
from simulator.report.drawing import WIDTH_IN, canvas
from simulator.report.panels import BLUE, GREEN, GREY, ORANGE, SHADE, VERMILLION, Curve, draw, dress
from simulator.report.wording import number

BOX = {"fc": "white", "alpha": 0.8, "lw": 0}


LEGEND = (
    "Tokens per second while decoding: verified by law, replay and simulation, then emitted, where "
    "a request ends when its last token is shown, checked or not. Program counts: tokens that the "
    "released program reports over those of them that are verified (law). Budgets are compared "
    "with one sequence."
)
BUDGET_AXIS = "budget γ (draft tokens per iteration, one sequence)"


def page(result: BudgetStudies) -> Page:
    """Return the page of the budget study: its picture, and the optima and tables of all
    scenarios.
    """
    studies = result.studies
    picture = Figure(
        "Times and tokens per second over the budget",
        "budget.svg",
        lambda: budget_figure(studies),
    )
    return Page(
        "Budget of a draft that runs beside its target",
        answer=f"{'; '.join(map(headline, studies))}.",
        highlights=list(highlights(studies[0])),
        opening=[picture, Paragraph(LEGEND)],
        sections=[_section(study) for study in studies],
    )


def headline(study: BudgetStudy) -> str:
    """Return c of a scenario, the budget that the paper makes of it, and the best one."""
    return (
        f"{study.scenario}: c = {number(study.cost_coefficient, 3)}, so the paper's budget is "
        f"{study.budget} tokens; the most verified tokens per second come at "
        f"{study.best('verified', 'law')} by law"
    )


def highlights(study: BudgetStudy) -> Iterator[Highlight]:
    """Yield c, the best budget by law, and its rate."""
    rates = study.read("verified", "law")
    yield Highlight(number(study.cost_coefficient, 3), "T_target / T_draft = c")
    yield Highlight(
        str(study.best("verified", "law")),
        "tokens, the budget with most verified tokens per second (law)",
    )
    yield Highlight(number(max(rates.values()), 3), "verified tokens per second there (law)")


def _section(study: BudgetStudy) -> Section:
    """Return the sentences and the two tables of a scenario."""
    budget = Column[BudgetPoint]("gamma", lambda point: point.gamma)
    sequences = Column[BudgetPoint]("sequences", lambda point: point.sequences)
    blocks: list[Block] = [
        Bullets(list(sentences(study))),
        _points(f"Budgets of {study.scenario}", budget, study.points),
        _points(f"Sequences of {study.scenario}", sequences, study.sequences),
    ]
    return Section(study.scenario, blocks)


def _points(title: str, first: Column[BudgetPoint], points: Sequence[BudgetPoint]) -> Table:
    """Return the table of the points that were simulated."""
    simulated = [
        point
        for point in points
        if None not in (point.verified.simulation, point.emitted.simulation)
    ]
    columns = [
        first,
        Column[BudgetPoint]("draft ms", lambda point: number(point.draft_ms, 3)),
        Column[BudgetPoint]("step ms", lambda point: number(point.step_ms, 3)),
        Column[BudgetPoint]("law", lambda point: number(point.verified.law)),
        Column[BudgetPoint]("replay", lambda point: number(point.verified.replay)),
        Column[BudgetPoint]("simul.", lambda point: number(point.verified.simulation)),
        Column[BudgetPoint]("emitted: law", lambda point: number(point.emitted.law)),
        Column[BudgetPoint]("simul.", lambda point: number(point.emitted.simulation)),
        Column[BudgetPoint]("program counts", lambda point: f"x {point.reported_ratio:.2f}"),
    ]
    return table(title, simulated, columns)


def sentences(study: BudgetStudy) -> Iterator[str]:
    """Yield c, the optimum in both accountings, what budgets around c lose, and where acceptance
    comes from.
    """
    c = number(study.cost_coefficient, 4)
    yield f"c = T_target / T_draft = {c}, so gamma = {study.budget}"
    for count in ("verified", "emitted"):
        ways = [way for way in ("law", "simulation") if study.read(count, way)]
        optima = ", ".join(_optimum(study, count, way) for way in ways)
        yield f"most {count} tokens per second at {optima}"
    for way in ("law", "simulation"):
        verified = study.around("verified", way)
        emitted = study.around("emitted", way)
        if verified and emitted:
            yield (
                f"against gamma = c by {way}: verified {_changes(verified)}; emitted "
                f"{_changes(emitted)}"
            )
    yield f"law: {study.source}"


def _optimum(study: BudgetStudy, count: str, way: str) -> str:
    """Return the best budget, and which ones are as good within ``FLAT``."""
    first, last = study.flat(count, way)
    return f"gamma = {study.best(count, way)} by {way} (within {FLAT:.0%} from {first} to {last})"


def _changes(changes: Mapping[int, float]) -> str:
    return ", ".join(f"{gamma}: {change:+.2%}" for gamma, change in changes.items())


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


def _budget(point: BudgetPoint) -> int:
    return point.gamma


def _times(axes: Axes, study: BudgetStudy) -> None:
    """Draw how long an iteration, a pass of the target and the draft take, and where c lies."""
    draw(
        axes,
        study.points,
        _budget,
        Curve(lambda point: point.step_ms, "-", BLUE, "mean iteration, law"),
        Curve(lambda point: point.target_ms, "-.", GREY, "target verifies a sequence"),
        Curve(lambda point: point.draft_ms, "--", GREEN, "draft writes γ tokens"),
    )
    dress(axes, x_label=BUDGET_AXIS, integers=True)
    gammas = [point.gamma for point in study.points]
    c = study.cost_coefficient
    if c > (gammas[0] + gammas[-1]) / 2:
        side = "right"
    else:
        side = "left"
    axes.text(
        c, 1.0, f" c = T_target / T_draft = {c:.1f} ", ha=side, va="bottom", size=8, color=GREY
    )


def _rates(axes: Axes, study: BudgetStudy) -> None:
    """Draw verified and emitted tokens per second, and the budgets that are as good as the best."""
    verified = Curve[BudgetPoint](lambda point: point.verified.law, "-", BLUE, "verified, law")
    simulated = Curve[BudgetPoint](
        lambda point: point.verified.simulation,
        "o",
        VERMILLION,
        "verified, simulation",
        hollow=True,
    )
    emitted = Curve[BudgetPoint](lambda point: point.emitted.law, "--", ORANGE, "emitted, law")
    shown = Curve[BudgetPoint](
        lambda point: point.emitted.simulation, "s", ORANGE, "emitted, simulation", hollow=True
    )
    draw(axes, study.points, _budget, verified, simulated, emitted, shown)
    dress(axes, x_label=BUDGET_AXIS, integers=True)
    if not study.read("verified", "simulation"):
        return
    first, last = study.flat("verified", "simulation")
    axes.axvspan(first - 0.4, last + 0.4, color=SHADE, lw=0, zorder=0)
    text = (
        f"shaded: verified within 1 % of the most, γ = {first} to {last}\n"
        f"most verified at γ = {study.best('verified', 'simulation')}, "
        f"emitted at γ = {study.best('emitted', 'simulation')} (simulation)"
    )
    axes.text(
        0.985, 0.27, text, ha="right", va="bottom", size=8, transform=axes.transAxes, bbox=BOX
    )
