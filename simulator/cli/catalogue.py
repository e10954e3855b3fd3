"""What there is, and what a name stands for: the content of ``show`` and ``schema``."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, NamedTuple

from simulator.catalogue import FOLDERS, REFERENCES, Catalogue, shown, strategy_files, strategy_names
from simulator.cost.device import Device, Link
from simulator.cost.engine import Engine
from simulator.cost.model import ModelSpec
from simulator.files.plugins import plugin_file
from simulator.files.schema import BadInput, Fault, Frozen, descendants, did_you_mean, read, validate

MODELS: dict[str, type[Frozen]] = {"device": Device, "link": Link, "engine": Engine, "model": ModelSpec}


class Details(NamedTuple):
    """One catalogue entry, for people and for programs."""

    text: str
    data: dict[str, Any]


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""


def details(name: str, catalogue: Catalogue) -> Details:
    """Everything about a name, whatever kind it is; raises :class:`BadInput` where there is none."""
    if path := strategy_files().get(name) or plugin_file(name):
        words = _docstring(path)
        return Details(f"strategy {name}\n\n{words}\n", {"kind": "strategy", "name": name, "about": words})
    for kind in FOLDERS:
        path_found = catalogue.names(kind).get(name)
        if path_found:
            return _trace_details(name, path_found) if kind == "trace" else _file_details(kind, name, path_found)
    every = [known for kind in FOLDERS for known in catalogue.names(kind)] + strategy_names()
    raise BadInput([Fault((name, 0, 0), "", f"nothing has this name{did_you_mean(name, every)}")])


def _file_details(kind: str, name: str, path: Path) -> Details:
    document = read(path, shown(path))
    text = f"{kind} {name}   ({shown(path)})\n\n{path.read_text('utf-8')}"
    data = {"kind": kind, "name": name, "file": shown(path), "content": document.data}
    if kind == "model":
        model = validate(ModelSpec, document)
        computed = {
            "weights": model.weights,
            "active_weights_per_token": model.active_weights,
            "fp16_weight_gb": model.weights * 2 / 1e9,
            "kv_bytes_per_token": model.kv_bytes_per_token(),
        }
        data["computed"] = computed
        text += "\ncomputed\n" + "".join(
            f"  {key}: {value:,.6g}\n" if value % 1 else f"  {key}: {value:,.0f}\n" for key, value in computed.items()
        )
    return Details(text, data)


def _trace_details(name: str, path: Path) -> Details:
    import yaml

    from simulator.acceptance.statistics import statistics
    from simulator.acceptance.trace import read as read_trace

    trace = read_trace(path)
    found = statistics(trace)
    longest = found.windows[-1]
    facts = {
        "requests": found.requests,
        "tokens": found.tokens,
        "bytes_per_token": round(path.stat().st_size / found.tokens, 2),
        "acceptance_by_flavour": {one.flavour: round(one.rate, 4) for one in found.flavours},
        f"mean_accepted_at_gamma_{longest.gamma}": round(longest.replayed, 4),
        f"mean_accepted_at_gamma_{longest.gamma}_by_law": round(longest.law, 4),
        "repeated_four_grams": None if found.repetition is None else round(found.repetition, 4),
        "more": f"specsim trace info {name}",
    }
    data = {"kind": "trace", "name": name, "file": shown(path), "facts": facts, "header": dict(trace.header)}
    body = yaml.safe_dump({"facts": facts, "header": dict(trace.header)}, sort_keys=False, width=110)
    return Details(f"trace {name}   ({shown(path)})\n\n{body}", data)


def json_schema(kind: str) -> dict[str, Any]:
    """JSON Schema of a kind of file, for editors, each field with its meaning.

    A field that names a file may hold the name instead. A scenario may start from another one (``like``) and
    leave out what it says, so nothing in it is required; ``specsim`` itself checks the whole.
    """
    from simulator.files.descriptions import field_descriptions

    model = _class_of(kind)
    found = model.model_json_schema()
    own_last = sorted(descendants(Frozen), key=lambda one: one.__module__.startswith("simulator."))
    known = {one.__name__: one for one in own_last}  # another package may use a name once more
    for name, part in {model.__name__: found, **found.get("$defs", {})}.items():
        for field, words in field_descriptions(known[name]).items():
            part["properties"][field].setdefault("description", words.replace("``", "`"))
    if kind == "scenario":
        _as_files_have_it(found)
    elif "required" in found:
        found["required"] = [field for field in found["required"] if field != "name"]
    return found


def _class_of(kind: str) -> type[Frozen]:
    """What a file of a kind is read into."""
    if kind == "method":
        from simulator.studies.method_features import MethodFile

        return MethodFile
    if kind == "plan":
        from simulator.studies.plan.file import PlanFile

        return PlanFile
    if kind == "workload":
        from simulator.serving.requests import Requests

        return Requests
    if kind == "sweep":
        from simulator.studies.sweep.study import SweepFile

        return SweepFile
    if kind == "scenario":
        from simulator.scenario import Scenario

        return Scenario
    return MODELS[kind]


def _as_files_have_it(found: dict[str, Any]) -> None:
    """A scenario may start from another one, and names may stand for files."""
    found["properties"]["like"] = {"type": "string", "description": "name or path of the scenario to start from"}
    _or_a_name(found, "strategy", "strategy")
    for part in (found, *found["$defs"].values()):
        part.pop("required", None)
        for field, target in REFERENCES.items():
            if "$ref" in str(part.get("properties", {}).get(field)):  # a number of requests is no workload
                _or_a_name(part, field, target)


def _or_a_name(part: dict[str, Any], field: str, target: str) -> None:
    by_name = {"type": "string", "description": f"name of a {target}"}
    part["properties"][field] = {"anyOf": [by_name, part["properties"][field]]}
