"""What the pages of studies say of studies small enough to be written down, in whole sentences."""

from __future__ import annotations

from simulator.report.blocks import Highlight, Page, Table
from simulator.report.pages import budget
from simulator.studies.budget import BudgetPoint, BudgetRates, BudgetStudies, BudgetStudy


def tables(page: Page) -> list[Table]:
    """All tables of a page, in order."""
    return [block for block in page.blocks if isinstance(block, Table)]


# ---- budget


def budget_point(gamma: int, verified: float, emitted: float, simulated: bool) -> BudgetPoint:
    """A budget with rates by law, and the same by replay and simulation where simulated."""
    rates = [
        BudgetRates(rate, *((rate, rate) if simulated else ())) for rate in (verified, emitted)
    ]
    return BudgetPoint(gamma, 1, 3.0 * gamma, 10.0, 12.0, *rates, reported_ratio=1.25)


def budget_study(simulated: bool) -> BudgetStudy:
    """Four budgets around c = 3."""
    rates = {1: (50.0, 50.0), 2: (100.0, 101.0), 3: (99.5, 110.0), 4: (90.0, 105.0)}
    points = [budget_point(gamma, *rate, simulated) for gamma, rate in rates.items()]
    return BudgetStudy("any", 3.2, 3, "stated", points, [budget_point(3, 99.5, 110.0, True)])


def test_a_budget_study_in_sentences() -> None:
    study = budget_study(True)
    assert budget.headline(study) == (
        "any: c = 3.20, so the paper's budget is 3 tokens; the most verified tokens per second "
        "come at 2 by law"
    )
    assert list(budget.highlights(study)) == [
        Highlight("3.20", "T_target / T_draft = c"),
        Highlight("2", "tokens, the budget with most verified tokens per second (law)"),
        Highlight("100", "verified tokens per second there (law)"),
    ]
    changes = "verified 1: -49.75%, 2: +0.50%, 4: -9.55%; emitted 1: -54.55%, 2: -8.18%, 4: -4.55%"
    assert list(budget.sentences(study)) == [
        "c = T_target / T_draft = 3.200, so gamma = 3",
        "most verified tokens per second at gamma = 2 by law (within 1% from 2 to 3), gamma = 2 by "
        "simulation (within 1% from 2 to 3)",
        "most emitted tokens per second at gamma = 3 by law (within 1% from 3 to 3), gamma = 3 by "
        "simulation (within 1% from 3 to 3)",
        f"against gamma = c by law: {changes}",
        f"against gamma = c by simulation: {changes}",
        "law: stated",
    ]


def test_a_budget_study_by_law_alone_in_sentences() -> None:
    study = budget_study(False)
    without_c = BudgetStudy("any", 30.0, 30, "stated", study.points, [])
    assert list(budget.sentences(without_c)) == [
        "c = T_target / T_draft = 30.00, so gamma = 30",
        "most verified tokens per second at gamma = 2 by law (within 1% from 2 to 3)",
        "most emitted tokens per second at gamma = 3 by law (within 1% from 3 to 3)",
        "law: stated",
    ]


def test_a_page_of_budgets_reads_so() -> None:
    page = budget.page(BudgetStudies((budget_study(True), budget_study(False))))
    assert page.answer == (
        "any: c = 3.20, so the paper's budget is 3 tokens; the most verified tokens per second "
        "come at 2 by law; any: c = 3.20, so the paper's budget is 3 tokens; the most verified "
        "tokens per second come at 2 by law."
    )
    budgets, sequences, unsimulated, _ = tables(page)
    head = ["draft ms", "step ms", "law", "replay", "simul.", "emitted: law", "simul."]
    assert budgets.title == "Budgets of any"
    assert budgets.head == ["gamma", *head, "program counts"]
    assert sequences.title == "Sequences of any"
    assert sequences.head == ["sequences", *head, "program counts"]
    row = ("9.00", "12.0", "99.50", "99.50", "99.50", "110.0", "110.0", "x 1.25")
    assert budgets.rows[2] == ("3", *row)
    assert sequences.rows == [("1", *row)]
    assert not unsimulated.rows
