"""The command ``specsim``, assembled. A command imports what it needs when it runs, so that ``--help`` is quick."""

import click

from simulator import __version__
from simulator.cli.calibrate import calibrate
from simulator.cli.catalogue import list_, schema, show
from simulator.cli.claims import figure
from simulator.cli.options import SectionedGroup
from simulator.cli.plan import plan
from simulator.cli.scenario import explain, law, new, run
from simulator.cli.studies import commands as study_commands
from simulator.cli.sweep import plot, sweep
from simulator.cli.trace import trace
from simulator.cli.validate import validate

SECTIONS = {
    "A scenario": {
        "list": "Names of everything there is: scenarios, strategies, devices, ...",
        "show": "What a name stands for: its file, its numbers, their sources.",
        "new": "Copy a scenario to change; nothing is ever overwritten.",
        "explain": "What will be simulated, in words, with every default.",
        "law": "The closed form alone: durations, kinds of step, time per token.",
        "run": "Simulate beside the law, and write a report.",
        "compare": "Compare scenarios: their results, and the fields that differ.",
    },
    "Many at once": {
        "plan": "Which strategy on which hardware: the cheapest fleet.",
        "sweep": "Every point of a grid of settings, by law or simulation.",
        "plot": "Draw the points of a sweep: lines, maps, crossovers, Pareto.",
        "capacity": "Whether the arrivals can be served, and how many more could.",
        "load": "Throughput against time per token with 1, 2, 4, ... clients.",
    },
    "What pays": {
        "batches": "What speculation is worth in a batch of 1, 2, 3, ...",
        "methods": "Every published method on one device: table and bars.",
        "crossovers": "The batch at which each method stops paying, by law.",
        "drafts": "How much of a draft of another size has to be kept to pay.",
        "budget": "How many tokens a draft on the CPU should write.",
        "streams": "Speculative Streaming by its tree factor, pruned or not.",
        "trees": "What a token costs with every draft tree of a recording.",
        "network": "What the network between servers costs SpecPipe.",
    },
    "What is known": {
        "trace": "Recorded acceptance: inspect, convert, re-scale, record.",
        "measure": "This machine: its profile, and real decoding on it.",
        "calibrate": "Profiles from measured times, engines from published ones.",
        "validate": "Laws against simulation, published values against runs.",
        "figure": "A figure of a paper drawn anew, beside what it prints.",
        "schema": "JSON Schema of a kind of file, for editors.",
    },
}


@click.group(
    cls=SectionedGroup,
    sections=SECTIONS,
    lazy={"measure": "simulator.cli.measure:measure"},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="specsim")
def main() -> None:
    """Which way of speculative decoding pays, on which hardware, with which settings.

    Start with `specsim list scenario`, then `specsim run NAME`.
    """


for command in (
    list_,
    show,
    schema,
    new,
    explain,
    law,
    run,
    plan,
    sweep,
    plot,
    trace,
    calibrate,
    validate,
    figure,
    *study_commands(),
):
    main.add_command(command)
