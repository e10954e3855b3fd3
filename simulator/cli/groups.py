"""Groups of commands that are loaded by name: ``--help`` imports none of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from simulator.cli.streams import whole_streams
from simulator.studies.of_papers import StudyOfPaper

if TYPE_CHECKING:
    from simulator.core.faults import BadInput

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


class Entry(NamedTuple):
    """A command of a group: the module below ``simulator.cli`` and the function in it, and the line
    that ``--help`` of the group has for it.
    """

    module: str
    function: str
    line: str

    def command(self) -> click.Command:
        """Return the command, importing its module."""
        module = import_module(f"simulator.cli.{self.module}")
        command: click.Command = getattr(module, self.function)
        return command


class PaperEntry(NamedTuple):
    """The command of a paper's study, which the paper's folder tells of."""

    study: StudyOfPaper

    @property
    def line(self) -> str:
        """Return the line that ``--help`` of the group has for it."""
        return self.study.line

    def command(self) -> click.Command:
        """Return the command; what it needs is imported when it runs."""
        command: click.Command = import_module("simulator.cli.studies").of_paper(self.study)
        return command


def end_with(error: BadInput) -> NoReturn:
    """End the command with a line for each fault on stderr, and the exit code of the error."""
    for line in error.lines:
        click.echo(f"error: {line}", err=True)
    sys.exit(error.exit_code)


def _end_at_package(error: Exception) -> None:
    """End the command with a line where another package's code raised; an exception of ours that
    a package had to do with gets a note of that.
    """
    from simulator.core.package_errors import package_beside, raised_in_package

    fault = raised_in_package(error)
    if fault is not None:
        end_with(fault)
    note = package_beside(error)
    if note is not None:
        error.add_note(note)


class LazyGroup(click.Group):
    """A group of many commands, which ``--help`` lists with a line each, section by section."""

    def __init__(
        self, *args: Any, sections: Mapping[str, Mapping[str, Entry | PaperEntry]], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the sections."""
        return [name for entries in self.sections.values() for name in entries]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, importing its module; None where there is none of this name."""
        for entries in self.sections.values():
            if cmd_name in entries:
                return entries[cmd_name].command()
        return super().get_command(ctx, cmd_name)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command; what it prints is made to reach its reader, and Ctrl-C ends it with its
        exit code.
        """
        with whole_streams():
            return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named; Ctrl-C before there is anything to tidy up just ends
        it, and so does a package that cannot be loaded while the command is imported, or whose code
        raises while the command runs. An exception of ours keeps its traceback.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except Exception as error:
            from simulator.core.faults import BadInput

            if isinstance(error, BadInput):
                end_with(error)
            _end_at_package(error)
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of ``--help``; nothing is imported for it."""
        widest = max(len(name) for name in self.list_commands(ctx))
        for title, entries in self.sections.items():
            with formatter.section(title):
                lines = [(f"{name:<{widest}}", entry.line) for name, entry in entries.items()]
                formatter.write_dl(lines)
