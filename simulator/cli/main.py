"""The command ``specsim``, assembled. A command is imported when it is named, and imports what it
needs when it runs, so that ``--help`` is quick.
"""

import click

from simulator import __version__
from simulator.cli.groups import Entry, LazyGroup, PaperEntry
from simulator.studies.of_papers import studies_of_papers

SECTIONS: dict[str, dict[str, Entry | PaperEntry]] = {
    "A scenario": {
        "list": Entry(
            "catalogue",
            "list_",
            "Names of everything there is: scenarios, strategies, devices, ...",
        ),
        "show": Entry(
            "catalogue", "show", "What a name stands for: its file, its numbers, their sources."
        ),
        "new": Entry("scenario", "new", "Copy a scenario to change; nothing is ever overwritten."),
        "explain": Entry(
            "scenario", "explain", "What will be simulated, in words, with every default."
        ),
        "law": Entry(
            "scenario", "law", "The closed form alone: durations, kinds of step, time per token."
        ),
        "run": Entry("scenario", "run", "Simulate beside the law, and write a report."),
        "compare": Entry(
            "studies", "compare", "Compare scenarios: their results, and the fields that differ."
        ),
    },
    "Fleets and sweeps": {
        "plan": Entry("plan", "plan", "Which strategy on which hardware: the cheapest fleet."),
        "sweep": Entry(
            "sweep", "sweep", "Every point of a grid of settings, by law or simulation."
        ),
        "plot": Entry(
            "sweep", "plot", "Draw the points of a sweep: lines, maps, crossovers, Pareto."
        ),
        "capacity": Entry(
            "studies", "capacity", "Whether the arrivals can be served, and how many more could."
        ),
        "load": Entry(
            "studies", "load", "Throughput against time per token with 1, 2, 4, ... clients."
        ),
    },
    "When is it worth it": {
        "batches": Entry(
            "studies", "batches", "What speculation is worth in a batch of 1, 2, 3, ..."
        ),
        "methods": Entry(
            "studies", "methods", "Every published method on one device: table and bars."
        ),
        "crossovers": Entry(
            "studies", "crossovers", "The batch at which each method stops paying, by law."
        ),
        "drafts": Entry(
            "studies", "drafts", "How much of a draft of another size has to be kept to pay."
        ),
        **{study.name: PaperEntry(study) for study in studies_of_papers().values()},
    },
    "Data and validation": {
        "observe": Entry(
            "observe", "observe", "A running service: load, times, acceptance, bottleneck."
        ),
        "what-if": Entry(
            "observe", "what_if", "Changes tried on a running service: helps, may hurt, hurts."
        ),
        "verify": Entry(
            "observe", "verify", "What was predicted of a service beside what was measured after."
        ),
        "trace": Entry(
            "trace", "trace", "Recorded acceptance: inspect, convert, re-scale, record."
        ),
        "calibrate": Entry(
            "calibrate", "calibrate", "Profiles from measured times, engines from published ones."
        ),
        "validate": Entry(
            "validate", "validate", "Laws against simulation, published values against runs."
        ),
        "claims": Entry(
            "claims", "kept", "What papers claim, and what did not come out, by which bound."
        ),
        "figure": Entry(
            "claims", "figure", "A figure of a paper drawn anew, beside what it prints."
        ),
        "schema": Entry("catalogue", "schema", "JSON Schema of a kind of file, for editors."),
        "doctor": Entry("doctor", "doctor", "Whether the installation is whole; what is missing."),
    },
}
"""All commands, by the sections of ``specsim --help``."""


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="specsim")
def main() -> None:
    """Which speculative-decoding method is worth using, on which hardware, with which settings.

    Start with `specsim list scenario`, then `specsim run NAME`.
    """


@main.command(hidden=True, add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def measure(words: tuple[str, ...]) -> None:
    """Say what measures a machine, its budgets or its decoding, where the repository is at hand."""
    from simulator.cli.options import beside_the_package

    what = words[0] if words else "machine"
    beside_the_package(f"measure {what}", f"benchmarks.live {what}, with the same options")
