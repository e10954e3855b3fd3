"""The command ``specsim``, assembled. A command imports what it needs when it runs, so that
``--help`` is quick.
"""

import click

from simulator import __version__
from simulator.cli.options import COMMANDS, SectionedGroup, beside_the_package, command_at
from simulator.cli.studies import commands as study_commands

SECTIONS = COMMANDS["sections"]


@click.group(
    cls=SectionedGroup,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="specsim")
def main() -> None:
    """Which way of speculative decoding pays, on which hardware, with which settings.

    Start with `specsim list scenario`, then `specsim run NAME`.
    """


for command in (*map(command_at, COMMANDS["homes"].values()), *study_commands()):
    main.add_command(command)


@main.command(hidden=True, add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def measure(words: tuple[str, ...]) -> None:
    """Say what measures a machine, its budgets or its decoding, where the repository is at hand."""
    what = words[0] if words else "machine"
    beside_the_package(f"measure {what}", f"benchmarks.live {what}, with the same options")
