"""What the commands of ``specsim`` have in common."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from simulator.scenario import Loaded


@contextmanager
def faults_as_lines() -> Iterator[None]:
    """Bad input ends the command with one line per fault on stderr: exit code 2, or 3 if infeasible.

    SIGTERM ends it too, once everything that was begun is tidied up.
    """
    from simulator.files.document import BadInput
    from simulator.files.writing import ended_by_sigterm

    try:
        with ended_by_sigterm():
            yield
    except BadInput as error:
        for fault in error.faults:
            click.echo(f"error: {fault}", err=True)
        sys.exit(error.exit_code)


def overrides_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--set KEY=VALUE``, repeatable."""
    text = "Override any field, e.g. strategy.gamma=5 or target.device.memory_bandwidth_gb_s=1000."
    return click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help=text)(command)


def seed_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--seed N``."""
    return click.option("--seed", type=click.IntRange(min=0), help="Replaces the scenario's seed.")(command)


def catalogue_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--catalogue DIR``, repeatable."""
    folder = click.Path(exists=True, file_okay=False, path_type=Path)
    text = "Folder of your own, laid out like the shipped one, searched first."
    return click.option("--catalogue", "own", multiple=True, type=folder, help=text)(command)


class Asked(NamedTuple):
    """What the user of a study asked for."""

    scenarios: tuple[str, ...]
    overrides: tuple[str, ...]
    seed: int | None
    out: Path | None
    as_json: bool
    own: tuple[Path, ...]

    def loaded(self) -> list[Loaded]:
        """Every scenario."""
        from simulator.catalogue import Catalogue
        from simulator.scenario import load

        return [load(name, self.overrides, Catalogue(self.own), self.seed) for name in self.scenarios]

    def changed(self, *overrides: str) -> Asked:
        """The same with more overrides."""
        return self._replace(overrides=(*self.overrides, *overrides))

    def typed(self, verb: str, *others: str) -> str:
        """The command as it can be typed again."""
        return typed(
            verb, self.scenarios, self.overrides, self.seed, (*others, *(("--out", str(self.out)) if self.out else ()))
        )


def study_options(function: Callable[..., None]) -> Callable[..., None]:
    """What every study over scenarios takes; ``function`` is handed it as one :class:`Asked`."""

    @wraps(function)
    def gathered(**options: Any) -> None:
        function(Asked(*(options.pop(name) for name in Asked._fields)), **options)

    text = "File for the study: a picture (.svg), or a page (.md) with its picture beside it."
    command = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout and nothing else there.")(
        gathered
    )
    command = click.option("--out", type=Ending(".svg", ".md"), help=text)(command)
    return click.argument("scenarios", nargs=-1, required=True, metavar="SCENARIO...")(
        overrides_option(seed_option(catalogue_option(command)))
    )


def typed(
    verb: str, scenarios: Iterable[str], overrides: Iterable[str], seed: int | None = None, others: Iterable[str] = ()
) -> str:
    """A command as it can be typed again."""
    words = ["specsim", verb, *scenarios, *(word for one in overrides for word in ("--set", one))]
    return shlex.join([*words, *(["--seed", str(seed)] if seed is not None else []), *others])


class LazyGroup(click.Group):
    """A group whose commands stand in modules of their own, imported when they are asked for."""

    def __init__(self, *args: Any, lazy: dict[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every name, also of what is not imported yet."""
        return sorted({*super().list_commands(ctx), *self.lazy})

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of this name, imported now where it has to be."""
        if name not in self.lazy:
            return super().get_command(ctx, name)
        module, _, attribute = self.lazy[name].partition(":")
        found: click.Command = getattr(importlib.import_module(module), attribute)
        return found


class SectionedGroup(LazyGroup):
    """A group of many commands, of which ``--help`` lists each with a line of its own, section by section."""

    def __init__(self, *args: Any, sections: dict[str, dict[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Nothing is imported for it."""
        widest = max(len(name) for lines in self.sections.values() for name in lines)
        for title, lines in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{widest}}", line) for name, line in lines.items()])


class Ending(click.Path):
    """A file to write whose name has to say what it holds."""

    def __init__(self, *endings: str) -> None:
        super().__init__(path_type=Path, dir_okay=False)
        self.endings = endings

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Its path."""
        path: Any = super().convert(value, param, ctx)
        if path.suffix not in self.endings:
            self.fail(f"expected a name that ends in {' or '.join(self.endings)}, got '{value}'", param, ctx)
        return path


class Sizes(click.ParamType):  # type: ignore[type-arg]  # click before 8.4 cannot subscript it
    """``1,2,4-8``: sizes and ranges of sizes."""

    name = "sizes"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """Ascending batch sizes."""
        if isinstance(value, list):
            return value
        found: set[int] = set()
        for part in str(value).split(","):
            size = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part)
            if not size:
                self.fail(f"expected sizes like 1,2,4-8, got '{value}'", param, ctx)
            found |= set(range(int(size[1]), int(size[2] or size[1]) + 1))
        if not found or min(found) < 1 or max(found) > 4_096:
            self.fail(f"expected sizes from 1 to 4,096, got '{value}'", param, ctx)
        return sorted(found)
