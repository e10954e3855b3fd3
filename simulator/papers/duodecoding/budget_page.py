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
BUDGET_AXIS = "budget γ (draft tokens, one sequence)"
LEGEND_ROOM = 1.5
"""Height of the panel of times over its highest curve: the legend stands above that."""


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
        answer=f"{'; '.join(map(headline, studies))}. {advice(studies)}",
        highlights=list(highlights(studies[0])),
        opening=[picture, Paragraph(LEGEND)],
        sections=[_section(study) for study in studies],
    )


def headline(study: BudgetStudy) -> str:
    """Return c of a scenario, the budget that the paper makes of it, and the best one."""
    c = number(study.cost_coefficient, 3)
    best = study.best("verified", "law")
    return (
        f"{study.scenario}: c = {c}, so the paper's budget is {study.budget} tokens; the most "
        f"verified tokens per second come at {best} by law"
    )


def advice(studies: Sequence[BudgetStudy]) -> str:
    """Return how many tokens a draft should write, in a sentence; and in another one where no
    longer budget was asked for, though the rates still rise there.
    """
    budgets = {study.scenario: study.best("verified", "law") for study in studies}
    rising = [study.scenario for study in studies if _rises_at_the_end(study)]
    more = ""
    if rising:
        more = f" Ask for longer budgets of {', '.join(rising)}: its rate still rises there."
    if len(set(budgets.values())) == 1:
        return f"Write {next(iter(budgets.values()))} tokens.{more}"
    listed = ", ".join(f"{budget} tokens ({scenario})" for scenario, budget in budgets.items())
    return f"Write {listed}.{more}"


def _rises_at_the_end(study: BudgetStudy) -> bool:
    """Return whether the longest budget of several is the best one by law."""
    longest = study.points[-1].gamma
    return len(study.points) > 1 and study.best("verified", "law") == longest


def highlights(study: BudgetStudy) -> Iterator[Highlight]:
    """Yield c, the best budget by law, and its rate."""
    c = number(study.cost_coefficient, 3)
    best = study.best("verified", "law")
    rates = study.read("verified", "law")
    most = number(rates[best], 3)
    yield Highlight(c, "T_target / T_draft = c")
    yield Highlight(str(best), "tokens, the budget with most verified tokens per second (law)")
    yield Highlight(most, "verified tokens per second there (law)")


def _section(study: BudgetStudy) -> Section:
    """Return the sentences and the two tables of a scenario."""
    budget: Column[BudgetPoint] = Column("gamma", lambda point: point.gamma)
    sequences: Column[BudgetPoint] = Column("sequences", lambda point: point.sequences)
    blocks: list[Block] = [
        Bullets(list(sentences(study))),
        _points(f"Budgets of {study.scenario}", budget, study.points),
        _points(f"Sequences of {study.scenario}", sequences, study.sequences),
    ]
    return Section(study.scenario, blocks)


def _points(title: str, first: Column[BudgetPoint], points: Sequence[BudgetPoint]) -> Table:
    """Return the table of the points that were simulated."""
    simulated = [point for point in points if point.simulated]
    columns: list[Column[BudgetPoint]] = [
        first,
        Column("draft ms", lambda point: number(point.draft_ms, 3)),
        Column("step ms", lambda point: number(point.step_ms, 3)),
        Column("law", lambda point: number(point.verified.law)),
        Column("replay", lambda point: number(point.verified.replay)),
        Column("simul.", lambda point: number(point.verified.simulation)),
        Column("emitted: law", lambda point: number(point.emitted.law)),
        Column("simul.", lambda point: number(point.emitted.simulation)),
        Column("program counts", lambda point: f"x {point.reported_ratio:.2f}"),
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
    best = study.best(count, way)
    first, last = study.flat(count, way)
    return f"gamma = {best} by {way} (within {FLAT:.0%} from {first} to {last})"


def _changes(changes: Mapping[int, float]) -> str:
    return ", ".join(f"{gamma}: {change:+.2%}" for gamma, change in changes.items())


def budget_figure(studies: Sequence[BudgetStudy]) -> Drawing:
    """Return two panels over the budget for all studies: side by side for one of them, else in a
    column for each.
    """
    columns = len(studies)
    width = WIDTH_IN * (1.0 + 0.55 * (columns - 1))
    height = 6.6 if columns > 1 else 3.9
    with canvas(height, width) as figure:
        if columns > 1:
            panels = figure.subplots(2, columns, height_ratios=(2, 3), sharey="row")
        else:
            panels = figure.subplots(1, 2, width_ratios=(2, 3)).reshape(2, 1)
        for study, (times, rates) in zip(studies, panels.T, strict=True):
            _times(times, study)
            _rates(rates, study)
            times.set_title(study.scenario, size=9)
            least = study.points[0].gamma
            most = study.points[-1].gamma
            for axes in (times, rates):
                if least <= study.cost_coefficient <= most:
                    axes.axvline(study.cost_coefficient, color=GREY, lw=0.8)
                axes.set_xlim(least - 0.4, most + 0.4)
                axes.set_ylim(0.0)
        first_times, first_rates = panels[:, 0]
        first_times.set_ylim(0.0, LEGEND_ROOM * first_times.get_ylim()[1])
        first_times.legend(loc="upper left")
        first_rates.legend(loc="lower left")
        first_times.set_ylabel("time (ms)")
        first_rates.set_ylabel("tokens per second")
        return figure


def _budget(point: BudgetPoint) -> int:
    return point.gamma


def _times(axes: Axes, study: BudgetStudy) -> None:
    """Draw how long an iteration, a pass of the target and the draft take, and where c lies."""
    curves: list[Curve[BudgetPoint]] = [
        Curve(lambda point: point.step_ms, "-", BLUE, "mean iteration, law"),
        Curve(lambda point: point.target_ms, "-.", GREY, "target verifies a sequence"),
        Curve(lambda point: point.draft_ms, "--", GREEN, "draft writes γ tokens"),
    ]
    draw(axes, study.points, _budget, *curves)
    dress(axes, x_label=BUDGET_AXIS, integers=True)
    least = study.points[0].gamma
    most = study.points[-1].gamma
    c = study.cost_coefficient
    side = "left"
    if c > (least + most) / 2:
        side = "right"
    at = min(max(c, least), most)
    text = f" c = T_target / T_draft = {c:.1f} "
    axes.text(at, 1.0, text, ha=side, va="bottom", size=8, color=GREY)


def _rates(axes: Axes, study: BudgetStudy) -> None:
    """Draw verified and emitted tokens per second, and the budgets that are as good as the best."""

    def verified_law(point: BudgetPoint) -> float:
        return point.verified.law

    def verified_simulation(point: BudgetPoint) -> float | None:
        return point.verified.simulation

    def emitted_law(point: BudgetPoint) -> float:
        return point.emitted.law

    def emitted_simulation(point: BudgetPoint) -> float | None:
        return point.emitted.simulation

    curves: list[Curve[BudgetPoint]] = [
        Curve(verified_law, "-", BLUE, "verified, law"),
        Curve(verified_simulation, "o", VERMILLION, "verified, simulation", hollow=True),
        Curve(emitted_law, "--", ORANGE, "emitted, law"),
        Curve(emitted_simulation, "s", ORANGE, "emitted, simulation", hollow=True),
    ]
    draw(axes, study.points, _budget, *curves)
    dress(axes, x_label=BUDGET_AXIS, integers=True)
    if not study.read("verified", "simulation"):
        return
    first, last = study.flat("verified", "simulation")
    axes.axvspan(first - 0.4, last + 0.4, color=SHADE, lw=0, zorder=0)
    most_verified = study.best("verified", "simulation")
    most_emitted = study.best("emitted", "simulation")
    text = (
        f"shaded: verified within 1 % of the most, γ = {first} to {last}\n"
        f"most verified at γ = {most_verified}, emitted at γ = {most_emitted} (simulation)"
    )
    corner = axes.transAxes
    axes.text(0.985, 0.27, text, ha="right", va="bottom", size=8, transform=corner, bbox=BOX)
