"""What a command writes is none of its inputs, and nothing else that it writes: looked at before
any work.

Options that write are made by :data:`simulator.cli.options.output`. Files that are reached by way
of others (``like``, a traffic file, a device) are looked at when something is written:
:func:`simulator.inputs.writing.apart`.
"""

import os
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import click

from simulator.core.faults import BadInput
from simulator.inputs.writing import same


class Output(click.Option):
    """An option that names what is written."""


def check_places(context: click.Context) -> None:
    """Raise :class:`BadInput` where two options of a command write to one place, or one writes to
    an input.
    """
    written = []
    read = []
    for option in context.command.params:
        values = list(_paths(context.params.get(option.name or "")))
        if isinstance(option, Output):
            written += [(option.opts[0], path) for path in values]
        else:
            read += [path for path in values if os.path.isfile(path)]
    for (flag, path), (other, again) in combinations(written, 2):
        if same(path, again):
            raise BadInput.at(
                f"{other} {again}",
                f"is the place of {flag}, too; choose another name for one of the two",
            )
    for flag, path in written:
        if any(same(path, file) for file in read):
            raise BadInput.at(
                f"{flag} {path}",
                "is an input of this command and stays as it is; choose another name",
            )


def outside(folder: Path, written: Mapping[str, Path | None]) -> None:
    """Raise :class:`BadInput` for the file of an option that is inside a folder which is replaced
    whole.
    """
    for option, path in written.items():
        if path and path.resolve().is_relative_to(folder.resolve()):
            raise BadInput.at(
                f"{option} {path}",
                f"is inside {folder}, which the report replaces whole; choose another place",
            )


def _paths(value: Any) -> Iterator[Path]:
    """Yield the paths that the value of an argument or option may name; a word may be one behind
    ``FORMAT:``.
    """
    if isinstance(value, tuple | list):
        for entry in value:
            yield from _paths(entry)
    elif isinstance(value, Path):
        yield value
    elif isinstance(value, str) and value and "\0" not in value and len(value) < 4_096:
        yield Path(value)
        yield Path(value.partition(":")[2] or value)
