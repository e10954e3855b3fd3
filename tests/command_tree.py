"""The commands of ``specsim`` by the words that they are called by."""

from __future__ import annotations

from collections.abc import Iterator

import click

from simulator.cli.main import main


def children(group: click.Group) -> dict[str, click.Command]:
    """The commands of a group, loaded, by name."""
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def every(command: click.Command = main, *path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that is no group, with the words that it is called by."""
    if isinstance(command, click.Group):
        for name, inner in children(command).items():
            yield from every(inner, *path, name)
    else:
        yield " ".join(path), command


def command_at(words: str) -> click.Command:
    """The command that is called by these words; raises KeyError where there is none."""
    return dict(every())[words]


def choices(words: str, option: str) -> list[str]:
    """The values that an option of a command may have."""
    (parameter,) = [param for param in command_at(words).params if option in param.opts]
    assert isinstance(parameter.type, click.Choice)
    return list(parameter.type.choices)
