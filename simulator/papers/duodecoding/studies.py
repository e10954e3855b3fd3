"""The study of DuoDecoding: how many tokens a draft beside its target should write."""

from simulator.studies.of_papers import SizesOption, StudyOfPaper

STUDIES = (
    StudyOfPaper(
        "budget",
        "simulator.papers.duodecoding.budget",
        line="How many tokens a draft on the CPU should write.",
        help="""\
The budget of a DuoDecoding SCENARIO: c, gamma = c, the true optimum, numbers of sequences.

By law, replay and simulation, with verified tokens counted and with shown ones.""",
        status="sweeping the budget",
        options=(
            SizesOption("--budgets", "budgets", "Budgets for the law [default: 1 to well past c]."),
            SizesOption(
                "--simulate",
                "simulated",
                "Budgets to simulate [default: a dozen, and those around c].",
            ),
        ),
    ),
)
