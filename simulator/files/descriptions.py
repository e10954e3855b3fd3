"""What the fields of files mean: the words that stand behind each field in its class."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise

from pydantic import BaseModel


def field_descriptions(model: type[BaseModel]) -> dict[str, str]:
    """By field, also of those that it inherits; a field without any is left out."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base.__module__.partition(".")[0] == __name__.partition(".")[0]:
            found |= _stated(base.__module__).get(base.__name__, {})
    return {name: words for name, words in found.items() if name in model.model_fields}


@cache
def _stated(module: str) -> dict[str, dict[str, str]]:
    """By class of a module, the words behind its fields."""
    found: dict[str, dict[str, str]] = {}
    body = ast.parse(inspect.getsource(sys.modules[module])).body
    for held in (one for one in body if isinstance(one, ast.ClassDef)):
        for field, behind in pairwise(held.body):
            match field, behind:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    found.setdefault(held.name, {})[name] = inspect.cleandoc(words)
    return found
