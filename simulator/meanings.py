"""What the fields of files mean: the words that stand behind each field in its class."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from textwrap import dedent

from pydantic import BaseModel


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """By field, also of those that it inherits; a field without any is left out."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base.__module__.partition(".")[0] == __name__.partition(".")[0]:
            found |= dict(_stated(base))
    return {name: words for name, words in found.items() if name in model.model_fields}


def _stated(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    (body,) = ast.parse(dedent(inspect.getsource(model))).body
    assert isinstance(body, ast.ClassDef)  # noqa: S101 (for mypy: that is what a class's source is)
    for field, behind in pairwise(body.body):
        match field, behind:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                yield name, inspect.cleandoc(words)
