"""Sentences that stand in a YAML file, filled in with what there is to say.

A sentence is a Jinja template. What is filled in stands as it is and is never read as a template;
of a number that is None an empty text is shown.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined


@cache
def environment() -> Environment:
    """Return the Jinja environment in which sentences are read; ``form`` shows a value in a format,
    and pages add their own.
    """
    # words are escaped where they are shown
    made = Environment(undefined=StrictUndefined, autoescape=False)  # noqa: S701
    made.filters["form"] = of_none(format)
    return made


def of_none(show: Callable[..., str]) -> Callable[..., str]:
    """Return a filter that shows a value, and nothing for None."""
    return lambda value, *form: "" if value is None else show(value, *form)


@cache
def compiled(template: str) -> Callable[..., str]:
    """Return the function that fills in a sentence."""
    fill: Callable[..., str] = environment().from_string(template).render
    return fill


@cache
def evaluated(cells: tuple[str, ...]) -> Callable[..., tuple[object, ...]]:
    """Return the function that evaluates expressions."""
    in_brackets = "".join(f"({cell})," for cell in cells)
    row: Callable[..., tuple[object, ...]] = environment().compile_expression(
        f"({in_brackets})", False
    )
    return row


class Sentences:
    """The sentences of a file, by their keys."""

    def __init__(self, path: Path) -> None:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self.said: dict[str, Any] = yaml.load(path.read_text("utf-8"), loader)  # noqa: S506

    def __call__(self, key: str, /, **values: object) -> str:
        """Return the sentence of a key, filled in."""
        return self.filled(self.said[key], **values)

    def filled(self, template: str, /, **values: object) -> str:
        """Return a template with its values filled in."""
        return compiled(template)(**values).strip()

    def value(self, expression: str, /, **values: object) -> Any:
        """Return what an expression comes to."""
        return evaluated((expression,))(**values)[0]

    def all(self, key: str, /, **values: object) -> Iterator[str]:
        """Yield the sentences of a key, filled in, without those that are empty."""
        for sentence in self.said[key]:
            if text := self.filled(sentence, **values):
                yield text
