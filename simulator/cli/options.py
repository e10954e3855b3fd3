"""Options, types and groups that the commands of ``specsim`` share."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

import click

from simulator.cli.groups import INTERRUPTED, end_with
from simulator.cli.places import Output, check_places
from simulator.inputs import reading
from simulator.report import WANTED, Wanted
from simulator.report.blocks import PICTURES

if TYPE_CHECKING:
    from simulator.cli.bars import Display
    from simulator.cli.display import Lines
    from simulator.report.blocks import Page


Names: TypeAlias = tuple[str, ...]
Paths: TypeAlias = tuple[Path, ...]
Command = TypeVar("Command", bound=Callable[..., Any])


@contextmanager
def faults_as_lines() -> Iterator[None]:
    """End the command on bad input with a line for each fault on stderr: exit code 2, or 3 if
    infeasible.

    SIGTERM and Ctrl-C end it too, after whatever was begun is tidied up.
    """
    from simulator.core.faults import BadInput, Fault
    from simulator.core.package_errors import raised_in_package
    from simulator.inputs.writing import apart, ended_by_sigterm

    context = click.get_current_context(silent=True)
    try:
        with ended_by_sigterm(), apart():
            if context is not None:
                check_places(context)
            yield
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BadInput as error:
        end_with(error)
    except OSError as error:
        # not about a file: a bug, or a terminal that went away; or of a package, told by the group
        if error.filename is None or raised_in_package(error):
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
    from simulator.core.faults import BadInput

    with faults_as_lines():
        message = (
            f"stands beside the package; in a checkout of the repository, type python -m {instead}"
        )
        raise BadInput.at(f"specsim {typed}", message)


def print_json(data: object) -> None:
    """Print plain data as one JSON object, nothing of which is infinite or no number; end the
    command where it cannot be.
    """
    from simulator.inputs.writing import json_text

    with faults_as_lines():
        text = json_text(data)
    click.echo(text)


def answer(
    as_json: bool,
    data: Callable[[], object],
    page: Callable[[], Page] | None,
    *lines: str,
    page_at: Path | str | None = None,
) -> None:
    """Print plain data as one JSON object, or a page, if there is one, and further lines behind
    it; ``page_at``: the file that it was written to.

    A page whose answer has a standing is printed in brief, unless ``--long`` is asked for.
    """
    if as_json:
        print_json(data())
        return
    if page:
        from rich.console import Console

        from simulator.report.pages.brief import in_brief
        from simulator.report.terminal import print_page

        shown = page()
        brief = bool(shown.standing) and is_brief()
        if brief:
            report = f"{page_at} (all tables here: --long)" if page_at else _how_to_read()
            shown = in_brief(shown, report, len(lines))
        print_page(shown, Console())
        if page_at and not brief:
            click.echo(f"Report: {page_at}")
    for line in lines:
        click.echo(line)


def page_in(out: Path | None, name: str) -> Path | None:
    """Return the page or picture that was written to ``out``; of a folder its page of a name."""
    if out is None or not out.is_dir():
        return out
    return out / f"{name}.html"


def is_brief() -> bool:
    """Return whether a command that has ``--long`` was called without it."""
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(LONG) is False


def _how_to_read() -> str:
    """Return which options of the command write a page and print its tables."""
    flags = []
    for option in click.get_current_context().command.params:
        if isinstance(option, Output):
            flags.append(option.opts[0])
    for flag in ("--report", "--out"):
        if flag in flags:
            return f"{flag} writes a page, --long prints its tables here"
    return "--long prints the tables here"


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
    from simulator.inputs.document import readable

    with faults_as_lines():
        for file in value if option.name == "style" else ():
            with readable(file):
                reading.text(file)
    name = str(option.name)
    setattr(WANTED, name, value or vars(Wanted())[name])  # one that was refused has left its own
    context.call_on_close(lambda: setattr(WANTED, name, vars(Wanted())[name]))


LONG = "specsim.long"
"""Where a context keeps whether ``--long`` was typed."""
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
OWN_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
PATH = click.Path(path_type=Path)
PICTURE = Ending(*PICTURES)
HTML = Ending(".html")
STUDY_FILE = Ending(*PICTURES, ".md", ".html")
SIZES = Sizes()
SEEDS = click.IntRange(0, 10**18)

output = partial(click.option, cls=Output)
"""An option that names what is written, so that it may be no input and no other output."""
own = click.option(
    "--catalogue",
    "own",
    type=OWN_FOLDER,
    multiple=True,
    help="Folder of your own, laid out like the shipped one, searched first.",
)
as_json = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object on stdout and nothing else there."
)
overrides = click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Override any field, e.g. strategy.gamma=5 or target.device.memory_bandwidth_gb_s=1000.",
)
seed = click.option("--seed", type=SEEDS, help="Replaces the scenario's seed.")
draws_seed = click.option(
    "--seed", type=SEEDS, default=0, help="Seed of the draws of sampled traces [default: 0]."
)
flavours = click.option(
    "--flavour",
    "flavours",
    metavar="NAME",
    multiple=True,
    help="Only this kind of text; repeatable [default: all].",
)


skip = click.option(
    "--skip",
    metavar="N",
    type=click.IntRange(0, 1_000_000),
    default=0,
    help="First requests of each observation that do not count, as a server warms up.",
)


def _keep_long(context: click.Context, option: click.Parameter, value: bool) -> None:
    """Keep whether the tables of a page are asked for."""
    context.meta[LONG] = value


long = click.option(
    "--long",
    is_flag=True,
    callback=_keep_long,
    expose_value=False,
    help="Print the tables of the page too, not its answer alone.",
)


def pictures(command: Command) -> Command:
    """Add what all pictures of a command can be asked: their width and their style."""
    wide = click.option(
        "--paper-columns",
        type=click.IntRange(1, 2),
        callback=_look,
        expose_value=False,
        help="Width of pictures, in columns of a paper [default: that of a page].",
    )
    style = click.option(
        "--style",
        type=FILE,
        metavar="FILE",
        multiple=True,
        callback=_look,
        expose_value=False,
        help="A matplotlib style file over the shipped one.",
    )
    return wide(style(command))
