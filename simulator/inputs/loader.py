"""YAML as files of people have it: plain data with the numbers of YAML 1.2, within bounds of depth
and of values.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

SHIPPED: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEEPEST = 32
"""Most levels of nesting; far more than in any shipped file."""
MOST_VALUES = 20_000
"""Most values in a file, those behind an alias counted each time; a hundred times those of any
shipped file.
"""


def packaged(path: Path) -> Any:
    """Return what a YAML file of this package holds, by the parser of libyaml where it is there."""
    return yaml.load(path.read_text("utf-8"), SHIPPED)  # noqa: S506


class _Bounded(yaml.composer.Composer):
    """A composer with limits on depth and values."""

    depth = values = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Return the next value; raises :class:`yaml.MarkedYAMLError` for too many values, or too
        deep ones.
        """
        self.depth = self.depth + 1
        self.values = self.values + 1
        if self.depth > 2 * DEEPEST or self.values > MOST_VALUES:
            if self.depth > 2 * DEEPEST:
                what = "is nested too deeply"
            else:
                what = f"holds more than {MOST_VALUES:,} values"
            mark = self.peek_event().start_mark  # type: ignore[attr-defined]
            raise yaml.MarkedYAMLError(problem=what, problem_mark=mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class Loader(_Bounded, yaml.SafeLoader):
    """A safe loader with the number rules of YAML 1.2, which finds faults and words them."""


NUMBER = r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
Loader.yaml_implicit_resolvers = {}
for _kind, _pattern, _first in (
    ("bool", r"true|false", "tf"),
    ("null", r"null|~|", ["n", "~", ""]),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", NUMBER, "-+.0123456789"),
):
    Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_kind}", re.compile(f"^(?:{_pattern})$"), list(_first)
    )
FastLoader: Any = None
"""The same over the parser of libyaml, which is many times as fast; None where it is missing."""
with suppress(ImportError):
    from yaml._yaml import CParser

    class _FastLoader(_Bounded, CParser, yaml.resolver.Resolver):
        def __init__(self, text: str) -> None:
            CParser.__init__(self, text)
            _Bounded.__init__(self)
            yaml.resolver.Resolver.__init__(self)

    _FastLoader.yaml_implicit_resolvers = Loader.yaml_implicit_resolvers
    FastLoader = _FastLoader
UNLIKE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f!?]|[\ud800-\udfff]|[\u2028\u2029\ufeff\ufffe\uffff]"
    r"|[|>][-+0-9]*#|^(---|\.\.\.|%)",
    re.MULTILINE,
)
"""What libyaml reads in another way than PyYAML does: a tab and other rare characters, tags,
question marks, comments that touch the sign of a text over several lines, several documents.
"""


def compose(text: str) -> yaml.Node | None:
    """Return the values of a YAML text as nodes, None for a text without any.

    Raises :class:`yaml.YAMLError`, always in the words of PyYAML: what libyaml refuses is read
    again.
    """
    if FastLoader and not UNLIKE.search(text):
        with suppress(yaml.YAMLError):
            return yaml.compose(text, Loader=FastLoader)
    return yaml.compose(text, Loader=Loader)


PLAIN_TAGS = {
    f"tag:yaml.org,2002:{kind}" for kind in ("bool", "null", "int", "float", "str", "map", "seq")
}
SCALARS: Mapping[str, Callable[[str], str | float | bool | None]] = MappingProxyType(
    {
        "tag:yaml.org,2002:str": str,
        "tag:yaml.org,2002:int": int,
        "tag:yaml.org,2002:float": float,
        "tag:yaml.org,2002:null": lambda text: None,
        "tag:yaml.org,2002:bool": lambda text: Loader.bool_values[text.lower()],
    }
)
"""What the text of a scalar means, by tag; raises ValueError or KeyError for what does not fit."""
