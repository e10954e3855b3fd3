"""Words of commands that somebody types or runs: whatever a file calls a thing, a shell takes it
for one word and runs none.

Commands that are shown or written are made of words here; those of specsim with overrides and
options by :func:`command_line`, which joins them by :func:`typed`.
"""

import shlex
from collections.abc import Iterable
from typing import Any


class Comment(str):
    """Words behind ``#``, which end with their line."""

    __slots__ = ()

    def __new__(cls, text: object) -> "Comment":
        """Return the words on one line, whatever letters they have."""
        return super().__new__(
            cls, "".join(letter if letter.isprintable() else "\ufffd" for letter in str(text))
        )


def quoted(value: Any) -> str:
    """Return a value as one word of a shell, a list or a tuple as a word for each entry, a
    :class:`Comment` as it is.
    """
    if isinstance(value, Comment):
        return str(value)
    if isinstance(value, list | tuple):
        return shlex.join(map(str, value))
    return shlex.quote(str(value))


def typed(*words: object, names: Iterable[object] = (), options: Iterable[object] = ()) -> str:
    """Return a command as it can be typed, with ``names`` before its options.

    Where a name begins with a dash, all stand behind ``--`` at the end.
    """
    named = list(map(str, names))
    ends = any(name.startswith("-") for name in named)
    if ends:
        order = [*words, *options, "--", *named]
    else:
        order = [*words, *named, *options]
    return shlex.join(map(str, order))


def repeated(flag: str, values: Iterable[object]) -> list[str]:
    """Return an option as it is typed, once for each value."""
    return [word for value in values for word in (flag, str(value))]


def command_line(
    verb: str,
    scenarios: Iterable[str],
    overrides: Iterable[str],
    seed: int | None = None,
    options: Iterable[str] = (),
) -> str:
    """Return a command of specsim as it can be typed again."""
    changes = [*repeated("--set", overrides), *repeated("--seed", [] if seed is None else [seed])]
    return typed("specsim", *verb.split(), names=scenarios, options=[*changes, *options])


def named_file(name: str) -> str:
    """Return the name of a file as a word that no program takes for an option."""
    if name.startswith("-"):
        return f"./{name}"
    return name
