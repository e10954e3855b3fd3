"""Write ``docs/reference/`` from the command line and the classes that files are read into.

``python3 dev.py reference`` runs it; a test compares what is committed with what this writes.
"""

from __future__ import annotations

import ast
import inspect
import re
import runpy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click
import yaml
from pydantic import BaseModel

from simulator.cli.main import SECTIONS, main
from simulator.core.acceptance import trace as traces
from simulator.core.cost.device import Device, Link
from simulator.core.cost.engine import Engine
from simulator.core.cost.model import ModelSpec
from simulator.core.quantities import Frozen, Sourced, descendants
from simulator.core.strategies import strategies
from simulator.inputs import writing
from simulator.inputs.catalogue import REFERENCES, strategy_files
from simulator.inputs.descriptions import field_descriptions, summary
from simulator.inputs.traces.header import ARRAYS, Header
from simulator.report.markdown import table
from simulator.scenario import Scenario
from simulator.studies.method_features import MethodFile
from simulator.studies.plan.file import PlanFile
from simulator.studies.sweep.study import SweepFile

FOLDER = Path(__file__).parent / "reference"
MADE = (
    "*Made by `python3 dev.py reference`; changes go into the classes and commands that it reads.*"
)
EXITS = """\
| exit code | means |
| --- | --- |
| 0 | done |
| 2 | the input cannot be understood: one line per fault, with file, line, column, field and what \
was expected |
| 3 | it is understood but impossible: a model does not fit, no fleet meets the SLO, a bound is \
missed |
| 130, 143 | ended by Ctrl-C, by SIGTERM; no file is left half-written (a long `run` leaves a \
report of what was done) |"""
UNITS = {
    "_us_per_layer": "µs",
    "_us_per_pass": "µs",
    "_usd_per_hour": "USD/h",
    "_gb_s": "GB/s",
    "_tflops": "TFLOP/s",
    "_per_s": "1/s",
    "_gb": "GB",
    "_us": "µs",
    "_ms": "ms",
    "_s": "s",
    "_bytes": "bytes",
    "_tokens": "tokens",
    "_w": "W",
}
"""By the end of a key, longest first. GB: 1e9 bytes."""
SOURCED = {
    "Sourced": "number",
    "Positive": "number above 0",
    "NonNegative": "number, 0 or more",
    "OneOrMore": "number, 1 or more",
    "Share": "share, 0 to 1",
    "Fraction": "share above 0, to 1",
}


class Kind(NamedTuple):
    """A kind of file: its title, the class that reads it, and what to know first."""

    title: str
    model: type[BaseModel]
    words: str


FILES = {
    "profiles": (
        Kind("Device", Device, "`hardware_profiles/devices/NAME.yaml`; named by `device`."),
        Kind(
            "Link",
            Link,
            "`hardware_profiles/links/NAME.yaml`; named by `link`, `channel`, `within` and "
            "`between`.",
        ),
        Kind("Engine", Engine, "`hardware_profiles/engines/NAME.yaml`; named by `engine`."),
        Kind(
            "Model",
            ModelSpec,
            "`scenarios/models/NAME.yaml`, or a Hugging Face `config.json`; named by `model`.",
        ),
        Kind("Method", MethodFile, "`scenarios/methods/NAME.yaml`; named by `method`."),
    ),
    "scenario": (Kind("The file", Scenario, "`scenarios/NAME.yaml`, or any path with a slash."),),
    "sweep": (
        Kind("The file", SweepFile, "`scenarios/sweeps/NAME.yaml`; run by `specsim sweep`."),
    ),
    "plan": (
        Kind("The file", PlanFile, "`scenarios/plans/NAME.yaml`; answered by `specsim plan`."),
    ),
    "trace": (
        Kind("Header", Header, "JSON as bytes in the array `header`; more may stand in it."),
    ),
}
ABOUT = {
    "profiles": "# Profiles: devices, links, engines, models, methods\n\nYAML in a catalogue's "
    "folder, shipped or your own (`--catalogue DIR`); `specsim show NAME` prints one.",
    "scenario": "# Scenario\n\nWhat `run`, `law`, `explain`, `compare` and every study read. "
    "`like: NAME` starts from another scenario, of which only what differs is stated: then "
    "nothing is required. `--set` writes to any field below, dotted as in the titles here.",
    "sweep": "# Sweep\n\nMany points around one scenario. [How to sweep](../how-to/sweeps.md).",
    "plan": "# Plan\n\nThe cheapest fleet that keeps an SLO. [How to plan](../how-to/plan.md).",
    "trace": "# Trace",
}
NUMBERS = """\
A *number with source* is a number, or
`{value: 2039, source: "NVIDIA datasheet", confidence: datasheet}`; confidence is `measured`,
`calibrated`, `datasheet`, `published`, `computed`, `borrowed` (from another profile, by `like`) or
`assumed`, which a plain number is. Unknown fields, keys written twice and infinities are refused.
Codes like K07 are rows of `contradictions.csv` in `scenarios/papers` and its folders: where a paper
leaves a choice, or contradicts itself."""


def pages() -> dict[str, str]:
    """Text by file."""
    book = Book()
    return {"cli.md": command_page(), **{f"{page}.md": book.page(page) for page in FILES}}


# ---- fields of files


class Section(NamedTuple):
    """A class on its page, under the fields that hold it."""

    page: str
    schema: Mapping[str, Any]
    model: type[BaseModel]
    paths: list[str]

    @property
    def variant(self) -> str:
        """What its field ``name`` says, or its class, where that tells it from others."""
        return str(
            self.schema["properties"].get("name", {}).get("const", self.schema.get("variant", ""))
        )

    @property
    def title(self) -> str:
        """As a reader writes it in a file."""
        held = ", ".join(dict.fromkeys(self.paths[:3]))
        return (
            held
            if held[0].isupper()
            else f"`{held}: {self.variant}`"
            if self.variant
            else f"`{held}`"
        )

    def link(self, page: str) -> str:
        """From a page of the book; of one of several variants by its name alone."""
        place = "" if page == self.page else f"{self.page}.md"
        label = (
            f"`{self.variant}`"
            if self.variant
            else self.title.lower()
            if self.title[0].isupper()
            else self.title
        )
        return f"[{label}]({place}#{slug(self.title)})"


class Book:
    """Every class that a file is read into, each on one page."""

    def __init__(self) -> None:
        self.sections: dict[str, Section] = {}
        self.known = {one.__name__: one for base in (Frozen, BaseModel) for one in below(base)}
        for page, kinds in FILES.items():
            for kind in kinds:
                schema = kind.model.model_json_schema()
                self._add(page, kind.model.__name__, schema, schema.get("$defs", {}), kind.title)

    def _add(
        self, page: str, name: str, schema: Mapping[str, Any], defs: Mapping[str, Any], path: str
    ) -> None:
        if name in self.sections:
            if self.sections[name].paths[0][0].islower():  # kinds of files have titles of their own
                self.sections[name].paths.append(path)
            return
        if page == "profiles" and path.startswith("strategy"):  # a method's, which is a scenario's
            return
        if name not in self.known:  # a strategy of another package, which has a book of its own
            return
        self.sections[name] = Section(page, schema, self.known[name], [path])
        for field, part in schema["properties"].items():
            inner = field if path[0].isupper() else f"{path}.{field}"
            for ref, below_ in references(part, inner):
                if ref not in SOURCED:
                    self._add(page, ref, defs[ref], defs, below_)

    def page(self, page: str) -> str:
        """All classes of a page, in the order in which a file comes to them."""
        blocks = [ABOUT[page], MADE, *([NUMBERS] if page in ("scenario", "profiles") else [])]
        blocks += trace_arrays() if page == "trace" else []
        opening = {kind.model.__name__: kind.words for kind in FILES[page]}
        for name, one in self.sections.items():
            if one.page == page:
                blocks += [
                    f"## {one.title}",
                    *([opening[name]] if name in opening else []),
                    *self._section(one),
                ]
        return "\n\n".join(blocks) + "\n"

    def _section(self, one: Section) -> Iterator[str]:
        strategy = next((held for held in strategies().values() if held is one.model), None)
        if strategy:
            name = one.schema["properties"]["name"]["const"]
            yield purpose(name) + f" `specsim show {name}` has the law."
        yield marked(inspect.cleandoc(one.model.__doc__ or ""))
        told, required = field_descriptions(one.model), one.schema.get("required", ())
        rows = []
        for field, part in one.schema["properties"].items():
            if "const" in part and field == "name":
                continue
            unit = next((unit for end, unit in UNITS.items() if field.endswith(end)), "")
            by_name = by_name_alone(part) or (field in REFERENCES and "$ref" in str(part))
            words = ("a name, or " if by_name else "") + self._joined(part, one.page)
            rows.append(
                (
                    f"`{field}`",
                    words,
                    unit,
                    default(part, field in required and field != "name"),
                    marked(told[field]),
                )
            )
        if rows:
            yield table(("field", "type", "unit", "default", "meaning"), rows)

    def _types(self, part: Any, page: str) -> Iterator[str]:
        """What may stand in a field, with links to what it is made of."""
        if not isinstance(part, Mapping):  # ``true``: whatever it is
            return
        if "$ref" in part:
            name = part["$ref"].rpartition("/")[2]
            if name in SOURCED:
                yield f"{SOURCED[name]}, with source"
            elif name in self.sections:
                yield self.sections[name].link(page)
        elif "anyOf" in part or "oneOf" in part:
            for one in part.get("anyOf", part.get("oneOf", ())):
                if not (by_name_alone(part) and "enum" in one):
                    yield from self._types(one, page)
        elif "enum" in part or "const" in part:
            yield ", ".join(f"`{written(one)}`" for one in part.get("enum", [part.get("const")]))
        elif part.get("type") == "array":
            yield f"list of {self._joined(part.get('items'), page)}"
        elif part.get("type") == "object":
            yield f"mapping to {self._joined(part.get('additionalProperties'), page)}"
        elif part.get("type") != "null":
            yield plain_type(part)

    def _joined(self, part: Any, page: str) -> str:
        found = list(dict.fromkeys(self._types(part, page)))
        return (", " if all("[`" in one for one in found) else " or ").join(found) or "anything"


def by_name_alone(part: Any) -> bool:
    """Whether a field may hold the name of what it may also hold with all fields."""
    kinds = part.get("anyOf", ())
    return any("enum" in one for one in kinds) and any("discriminator" in one for one in kinds)


def below(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Classes of ours that come from it."""
    return (
        one
        for one in descendants(base)
        if one.__module__.startswith("simulator.") and not issubclass(one, Sourced)
    )


def references(part: Any, path: str) -> Iterator[tuple[str, str]]:
    """Classes that a field may hold, by name, each with where it stands."""
    if isinstance(part, Mapping):
        if "$ref" in part:
            yield part["$ref"].rpartition("/")[2], path
        for key, inner in part.items():
            if key in ("anyOf", "oneOf", "items", "additionalProperties"):
                yield from references(
                    inner, f"{path}.*" if key in ("items", "additionalProperties") else path
                )
    elif isinstance(part, list):
        for inner in part:
            yield from references(inner, path)


def plain_type(part: Mapping[str, Any]) -> str:
    """A number, a word or a truth, with its range."""
    kind = {
        "integer": "whole number",
        "number": "number",
        "string": "text",
        "boolean": "true or false",
    }.get(part.get("type", ""))
    if kind is None:
        return "anything"
    low, high = part.get("minimum"), part.get("maximum")
    above, under = part.get("exclusiveMinimum"), part.get("exclusiveMaximum")
    ends = [f"{low:,g} or more"] if low is not None and high is None and under is None else []
    ends += [f"{low:,g} to {high:,g}"] if low is not None and high is not None else []
    ends += [f"{low:,g} to below {under:,g}"] if low is not None and under is not None else []
    ends += [f"above {above:,g}"] if above is not None else []
    ends += [f"at most {high:,}"] if high is not None and low is None else []
    return ", ".join([kind, *ends])


def default(part: Mapping[str, Any], required: bool) -> str:
    """What applies where nothing is said."""
    if required:
        return "required"
    value = part.get("default")
    if value in (None, "", [], {}):
        return "–"
    if isinstance(value, dict) and "value" in value:
        return f"`{value['value']:g}` ({value['confidence']})"
    if isinstance(value, dict):
        return f"`{value['name']}`" if value.get("name") else "its defaults"
    return f"`{written(value)}`"


def written(value: Any) -> str:
    """As it stands in a file."""
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    return (
        value
        if isinstance(value, str)
        else str(yaml.safe_dump([whole], default_flow_style=True, width=1_000))[1:-2]
    )


def purpose(name: str) -> str:
    """What a strategy's file begins with."""
    module = ast.parse(strategy_files()[name].read_text("utf-8"))
    return marked(f"{summary(ast.get_docstring(module))}.")


def marked(text: str) -> str:
    """Words of a docstring as Markdown."""
    text = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text)
    return re.sub("<(?=[A-Za-z/!])", "&lt;", text.replace("``", "`"))


def slug(title: str) -> str:
    """The name that a title has as a place in its page."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


# ---- the trace's arrays


def trace_arrays() -> Iterator[str]:
    """The docstring of :mod:`simulator.core.acceptance.trace`, and behind it the arrays of
    ``arrays.yaml``.
    """
    first, arrays, *others = re.split(r"\n\n", inspect.cleandoc(traces.__doc__ or ""))
    own = [
        (f"`{name}`", array["type"], marked(array["meaning"]))
        for name, array in ARRAYS["own"].items()
    ]
    further = [(f"`{name}`", marked(meaning)) for name, meaning in ARRAYS["further"].items()]
    yield from (marked(first), marked(arrays), table(("array", "type", "meaning"), own))
    yield from (table(("array of a further drafter", "meaning"), further), *map(marked, others))


# ---- the command line


def command_page() -> str:
    """Every command, section by section as in the program's own help."""
    held = dict(commands(main, "specsim"))
    blocks = [
        "# Commands",
        MADE,
        "`specsim COMMAND --help` says the same on a terminal; `-h` does too.",
        EXITS,
    ]
    for section, names in SECTIONS.items():
        inside = [name for top in names for name in held if name.split()[1] == top]
        rows = [
            (f"[`{name}`](#{slug(name)})", held[name].get_short_help_str(110)) for name in inside
        ]
        blocks += [f"## {section}", table(("command", "what it does"), rows)]
        for name in inside:
            blocks += [f"### {name}", *command_blocks(name, held[name])]
    return "\n\n".join(blocks) + "\n"


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Those that do something, groups taken apart."""
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found and not found.hidden:
                yield from commands(found, f"{name} {inner}")
    else:
        yield name, command


def command_blocks(name: str, command: click.Command) -> Iterator[str]:
    """Usage, help and options."""
    context = click.Context(command, info_name=name, max_content_width=10_000)
    yield "    " + " ".join([name, *command.collect_usage_pieces(context)])
    yield marked(inspect.cleandoc(command.help or "").replace("\b\n", ""))
    records = [one.get_help_record(context) for one in command.params]
    rows = [(f"`{option}`", marked(words)) for option, words in filter(None, records) if words]
    if rows:
        yield table(("option", "meaning"), rows)


def write() -> None:
    """All of it, complete or not at all."""
    for name, text in pages().items():
        writing.write(FOLDER / name, text)


if __name__ == "__main__":
    write()
    for page in ("write_house.py", "write_laws.py", "write_api.py", "write_gallery.py"):
        runpy.run_path(str(Path(__file__).with_name(page)), run_name="__main__")
