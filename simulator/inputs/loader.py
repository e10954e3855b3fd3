"""YAML as files of people have it: plain data with the numbers of YAML 1.2, within bounds of depth
and of values.
"""

import re

import yaml

DEEPEST = 32
"""Most levels of nesting; far more than in any shipped file."""
MOST_VALUES = 20_000
"""Most values in a file, those behind an alias counted each time; a hundred times those of any
shipped file.
"""


class Loader(yaml.SafeLoader):
    """A safe loader with the number rules of YAML 1.2 and limits on depth and values."""

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
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem=what, problem_mark=mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


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
PLAIN_TAGS = {
    f"tag:yaml.org,2002:{kind}" for kind in ("bool", "null", "int", "float", "str", "map", "seq")
}
Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(node.value))
Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: float(node.value))
