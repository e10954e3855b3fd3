"""The command ``specsim``, assembled. A command imports what it needs when it runs, so that ``--help`` is quick."""

import click

from simulator import __version__
from simulator.cli.calibrate import calibrate
from simulator.cli.catalogue import list_, schema, show
from simulator.cli.claims import figure
from simulator.cli.options import COMMANDS, SectionedGroup, beside_the_package
from simulator.cli.plan import plan
from simulator.cli.scenario import explain, law, new, run
from simulator.cli.studies import commands as study_commands
from simulator.cli.sweep import plot, sweep
from simulator.cli.trace import trace
from simulator.cli.validate import validate

SECTIONS = COMMANDS["sections"]


@click.group(
    cls=SectionedGroup, sections=SECTIONS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
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


@main.command(hidden=True, add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def measure(words: tuple[str, ...]) -> None:
    """Say what measures a machine, its budgets or its decoding, where the repository is at hand."""
    what = words[0] if words else "machine"
    beside_the_package(f"measure {what}", f"benchmarks.live {what}, with the same options")
