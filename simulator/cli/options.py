"""Options, types and groups that the commands of ``specsim`` share."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import click
import yaml

from simulator.cli.places import Output, check_places
from simulator.cli.streams import whole_streams
from simulator.files import reading
from simulator.files.shell import typed as typed_command
from simulator.report import WANTED, Wanted
from simulator.report.blocks import PICTURES

if TYPE_CHECKING:
    from simulator.cli.display import Display, Lines
    from simulator.report.blocks import Page


def _described(name: str) -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    # safe
    text = Path(__file__).with_name(name).read_text("utf-8")
    content: dict[str, Any] = yaml.load(text, loader)  # noqa: S506
    return content


COMMANDS = _described("commands.yaml")
"""What ``--help`` says about every command, by section, and what each study is called and asked."""
Names: TypeAlias = tuple[str, ...]
Paths: TypeAlias = tuple[Path, ...]
OPTIONS = _described("options.yaml")
"""Arguments and options of all other commands."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


@contextmanager
def faults_as_lines() -> Iterator[None]:
    """End the command on bad input with a line for each fault on stderr: exit code 2, or 3 if
    infeasible.

    SIGTERM and Ctrl-C end it too, after whatever was begun is tidied up.
    """
    from simulator.files.document import BadInput, Fault
    from simulator.files.writing import apart, ended_by_sigterm

    context = click.get_current_context(silent=True)
    try:
        with ended_by_sigterm(), apart():
            if context is not None:
                check_places(context)
            yield
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BadInput as error:
        for line in error.lines:
            click.echo(f"error: {line}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.filename is None:  # not about a file: a bug, or a terminal that went away
            raise
        click.echo(
            f"error: {Fault((str(error.filename), 0, 0), '', error.strerror or str(error))}",
            err=True,
        )
        sys.exit(BadInput.exit_code)


@contextmanager
def working(on: str) -> Iterator[Display | Lines]:
    """Show on stderr what the block is at, which may change, and end it as :func:`faults_as_lines`
    does.
    """
    from simulator.cli.display import showing

    with faults_as_lines(), showing(on) as display:
        yield display


def beside_the_package(typed: str, instead: str) -> NoReturn:
    """End a command that only a checkout has, with a line that says what to type there: exit code
    2.
    """
    from simulator.files.document import BadInput

    with faults_as_lines():
        message = (
            f"stands beside the package; in a checkout of the repository, type python -m {instead}"
        )
        raise BadInput.at(f"specsim {typed}", message)


def print_json(data: object) -> None:
    """Print plain data as one JSON object, nothing of which is infinite or no number; end the
    command where it cannot be.
    """
    from simulator.files.writing import json_text

    with faults_as_lines():
        text = json_text(data)
    click.echo(text)


def answer(
    as_json: bool, data: Callable[[], object], page: Callable[[], Page] | None, *lines: str
) -> None:
    """Print plain data as one JSON object, or a page, if there is one, and further lines behind
    it.
    """
    if as_json:
        print_json(data())
        return
    if page:
        from rich.console import Console

        from simulator.report.terminal import print_page

        print_page(page(), Console())
    for line in lines:
        click.echo(line)


def repeated(flag: str, values: Iterable[object]) -> list[str]:
    """Return an option as it is typed, once for each value."""
    return [word for value in values for word in (flag, str(value))]


def typed(
    verb: str,
    scenarios: Iterable[str],
    overrides: Iterable[str],
    seed: int | None = None,
    options: Iterable[str] = (),
) -> str:
    """Return a command as it can be typed again."""
    changes = [*repeated("--set", overrides), *repeated("--seed", [] if seed is None else [seed])]
    return typed_command("specsim", *verb.split(), names=scenarios, options=[*changes, *options])


def command_at(home: str) -> click.Command:
    """Return the command that stands at ``module:function``, the module below ``simulator.cli``."""
    module, _, function = home.partition(":")
    command: click.Command = getattr(importlib.import_module(f"simulator.cli.{module}"), function)
    return command


class SectionedGroup(click.Group):
    """A group of many commands, which ``--help`` lists with a line each, section by section."""

    def __init__(self, *args: Any, sections: dict[str, dict[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command; what it prints is made to reach its reader, and Ctrl-C ends it with its
        exit code.
        """
        with whole_streams():
            return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named; Ctrl-C before there is anything to tidy up just ends
        it.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of ``--help``; nothing is imported for it."""
        widest = max(len(name) for lines in self.sections.values() for name in lines)
        for title, lines in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{widest}}", line) for name, line in lines.items()])


class Ending(click.Path):
    """A path to write to, whose ending has to be one of a few."""

    def __init__(self, *endings: str) -> None:
        super().__init__(path_type=Path, dir_okay=False)
        self.endings = endings

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; fail where the ending is another one."""
        path: Any = super().convert(value, param, ctx)
        if path.suffix not in self.endings:
            self.fail(
                f"expected a name that ends in {' or '.join(self.endings)}, got '{value}'",
                param,
                ctx,
            )
        return path


class Sizes(click.ParamType):  # type: ignore[type-arg]  # click before 8.4 cannot subscript it
    """A list of sizes and ranges of sizes: ``1,2,4-8``."""

    name = "sizes"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[int]:
        """Return the sizes, ascending."""
        if isinstance(value, list):
            return value
        sizes: set[int] = set()
        for part in str(value).split(","):
            match = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part)
            if not match:
                self.fail(f"expected sizes like 1,2,4-8, got '{value}'", param, ctx)
            sizes |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
        if not sizes or min(sizes) < 1 or max(sizes) > 4_096:
            self.fail(f"expected sizes from 1 to 4,096, got '{value}'", param, ctx)
        return sorted(sizes)


def _look(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Draw all pictures of this command so many columns wide, or in style files over the shipped
    one, looked at first.
    """
    from simulator.files.document import readable

    with faults_as_lines():
        for file in value if option.name == "style" else ():
            with readable(file):
                reading.text(file)
    name = str(option.name)
    setattr(WANTED, name, value or vars(Wanted())[name])  # one that was refused has left its own
    context.call_on_close(lambda: setattr(WANTED, name, vars(Wanted())[name]))


KINDS: dict[str, Any] = {
    "file": click.Path(exists=True, dir_okay=False, path_type=Path),
    "new_file": click.Path(dir_okay=False, path_type=Path),
    "folder": click.Path(file_okay=False, path_type=Path),
    "own_folder": click.Path(exists=True, file_okay=False, path_type=Path),
    "path": click.Path(path_type=Path),
    "picture": Ending(*PICTURES),
    "html": Ending(".html"),
    "study": Ending(*PICTURES, ".md", ".html"),
    "sizes": Sizes(),
    "integer": click.INT,
    "number": click.FLOAT,
    "positive": click.FloatRange(min=0),
    "part": click.FloatRange(0.0, 1.0, min_open=True),
}
"""Types of arguments and options by the names that ``options.yaml`` and ``commands.yaml`` use."""


def parameter(
    flag: str,
    type: str = "",
    choice: Sequence[str] = (),
    least: int | None = None,
    most: int | None = None,
    **stated: Any,
) -> click.Parameter:
    """Return an option, or without dashes an argument; ``least`` and ``most``: of a whole number;
    ``name``: in Python.
    """
    kind: Any = KINDS.get(type)
    if choice:
        kind = click.Choice(choice)
    elif least is not None:
        kind = click.IntRange(least, most)
    if flag in ("--paper-columns", "--style"):
        stated |= {"callback": _look, "expose_value": False}
    if flag.startswith("-"):
        name = [stated.pop("name")] if "name" in stated else []
        option = Output if stated.pop("writes", False) else click.Option
        return option([flag, *name], type=kind, **stated)
    return click.Argument([flag], type=kind, **{"required": True, **stated})


def stated(command: str, *first: click.Parameter) -> dict[str, Any]:
    """Return the parameters of a command in their order, and its help if it is more than a line, as
    ``options.yaml`` says.
    """
    facts = dict(OPTIONS[command])
    said = {"help": facts.pop("help").replace("\\b", "\b")} if "help" in facts else {}
    return {"params": [*first, *(parameter(flag, **one) for flag, one in facts.items())], **said}
