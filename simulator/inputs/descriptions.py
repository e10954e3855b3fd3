"""The fields of files are described by the string behind each of them in its class."""

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise

from pydantic import BaseModel


def summary(docstring: str | None) -> str:
    """Return the first paragraph of a docstring as one line, without its full stop."""
    paragraph, _, _ = inspect.cleandoc(docstring or "").partition("\n\n")
    return " ".join(paragraph.split()).rstrip(".")


def field_descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return the descriptions of a model's fields, inherited ones included, by field; a field
    without one is left out.
    """
    descriptions: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            descriptions |= _by_class(base.__module__).get(base.__name__, {})
    return {name: words for name, words in descriptions.items() if name in model.model_fields}


@cache
def _by_class(module: str) -> dict[str, dict[str, str]]:
    """Return the strings behind the fields of a module's classes, by class and field."""
    descriptions: dict[str, dict[str, str]] = {}
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError):  # typed at a prompt or in a cell of a notebook
        return descriptions
    for definition in ast.parse(source).body:
        if not isinstance(definition, ast.ClassDef):
            continue
        for field, behind in pairwise(definition.body):
            match field, behind:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                    value=ast.Constant(value=str(words))
                ):
                    descriptions.setdefault(definition.name, {})[name] = " ".join(words.split())
    return descriptions
