"""The commands about the catalogue: ``specsim list``, ``show`` and ``schema``."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from simulator.cli import options
from simulator.cli.options import Paths, answer, faults_as_lines, print_json
from simulator.core.faults import CONTROLS, BadInput, did_you_mean
from simulator.core.plain import PlainData
from simulator.inputs.catalogue import (
    FOLDERS,
    OF_MODELS,
    PROFILES,
    REFERENCES,
    Catalogue,
    shown,
    strategy_files,
    strategy_names,
)
from simulator.inputs.derived import kernels_of
from simulator.inputs.plugins import plugin_file
from simulator.inputs.shell import typed

if TYPE_CHECKING:
    from simulator.core.quantities import Frozen

KINDS = (
    "scenario",
    "sweep",
    "plan",
    "workload",
    "strategy",
    "method",
    "device",
    "generation",
    "link",
    "engine",
    "model",
    "trace",
    "acceptance",
)
"""What ``specsim list`` and ``show`` know, in this order."""
PLURALS = {"strategies": "strategy"}
PLURALS |= {f"{kind}s": kind for kind in KINDS if kind not in ("strategy", "acceptance")}
NAME = 36
"""Letters of a name beside which its description begins, at most."""
LEAST_ABOUT = 24
"""Letters of a description that stand in a line at least, however narrow the terminal is."""
LISTED = click.Choice((*KINDS, *PLURALS))
POSITIVE = click.FloatRange(min=0, min_open=True)
CLASSES = {
    "scenario": "scenario:Scenario",
    "sweep": "studies.sweep.study:SweepFile",
    "plan": "studies.plan.file:PlanFile",
    "workload": "core.serving.requests:Requests",
    "device": "core.cost.device:Device",
    "generation": "core.cost.device:Generation",
    "link": "core.cost.device:Link",
    "engine": "core.cost.engine:Engine",
    "model": "core.cost.model:ModelSpec",
    "method": "studies.method_features:MethodFile",
    "acceptance": "scenario.bank:LentMeans",
    "observed": "inputs.services.observed:Observed",
    "prediction": "inputs.services.prediction:ServicePrediction",
}
"""Module and class that a file is read into, by kinds that have a JSON Schema."""


def _width() -> int:
    """Return the columns of the terminal, 120 at most, for the lines of ``list`` and ``show``; 80
    where there is none.
    """
    return min(120, get_terminal_size().columns)


@click.command("list")
@click.argument("kind", type=LISTED, required=False, metavar="[KIND]")
@click.argument("word", required=False)
@click.option("--sort", "by_name", is_flag=True, help="By name instead of by maker and age.")
@click.option(
    "--like",
    "card",
    metavar="NAME",
    help="Of devices: the measured ones, by how near they are to this one.",
)
@click.option(
    "--memory-bandwidth",
    type=POSITIVE,
    metavar="GB/S",
    help="For a card that is not here: bandwidth of its datasheet.",
)
@click.option("--peak-tflops", type=POSITIVE, help="Its dense peak in 16 bits.")
@click.option("--memory", type=POSITIVE, metavar="GB", help="Its memory.")
@click.option("--maker", default="", help="Who makes it.")
@click.option("--architecture", default="", help="Its maker's name for the generation of the chip.")
@click.option("--year", type=click.IntRange(1990, 2100), help="The year in which it came out.")
@options.as_json
@options.own
def list_(
    kind: str | None, word: str | None, by_name: bool, as_json: bool, own: Paths, **near: Any
) -> None:
    """List the names of everything in the catalogue, from scenarios to traces; of methods, their
    features.

    Devices are in the order of their makers and age; one without measurements says whose kernels
    it takes, and by how much a layer's time may then be off (one standard deviation). With a WORD,
    only what has it in its name or description.

    --like says which measured card another one should be like; a card that is not here is
    described by --memory-bandwidth, --peak-tflops, --maker, --architecture and --year.
    """
    kind = PLURALS.get(kind or "", kind)
    if any(near.values()):
        _list_measured(kind, near, as_json, own)
        return
    if kind == "method" and not word:
        _list_methods(as_json, own)
        return
    kinds = list(KINDS)
    if kind:
        kinds = [kind]
    with faults_as_lines():
        catalogue = Catalogue(own)
        abouts = {name: catalogue.abouts(name) for name in kinds}
    if word:
        abouts = {name: _with(word.lower(), names) for name, names in abouts.items()}
        if not kind:
            abouts = {name: names for name, names in abouts.items() if names}
    if as_json:
        print_json(abouts)
        return
    if "device" in abouts:
        abouts["device"] |= _with_origins(abouts["device"], catalogue.names("device"))
    _print_names(abouts, by_name)


def _with(word: str, abouts: dict[str, str]) -> dict[str, str]:
    found = {}
    for name, about in abouts.items():
        if word in name.lower() or word in about.lower():
            found[name] = about
    return found


def _with_origins(abouts: dict[str, str], files: dict[str, Path]) -> dict[str, str]:
    """Return the descriptions of those devices whose kernels were not measured: behind the year it
    says whose they are, and by how much a layer's time may be off.
    """
    derived = {}
    for name, about in abouts.items():
        year, _, rest = about.partition(" ")
        if not year.isdigit():  # a card whose year is not stated
            year, rest = "", about
        kernels = kernels_of(files[name])
        if kernels.like:
            spread = f"±{100 * kernels.spread:.0f} %"
            derived[name] = f"{year} derived from {kernels.like}, {spread}: {rest}".strip()
        elif not kernels.measured:
            derived[name] = f"{year} not measured: {rest}".strip()
    return derived


def _print_names(abouts: dict[str, dict[str, str]], by_name: bool) -> None:
    """Print the names of each kind with the first line of their descriptions in a column."""
    longest = 0
    for names in abouts.values():
        longest = max(longest, *map(len, names), 0)
    column = min(longest, NAME) + 2
    width = max(_width(), column + LEAST_ABOUT)
    for title, names in abouts.items():
        click.secho(f"{title} ({len(names)})", bold=True)
        ordered = list(names)
        if by_name:
            ordered.sort()
        for name in ordered:
            about, _, _ = names[name].partition("\n")
            padded = f"{name}  ".ljust(column)
            lines = fill(
                f"{padded}{about.translate(CONTROLS)}",
                width,
                initial_indent="  ",
                subsequent_indent=" " * (column + 2),
                max_lines=2,
                placeholder=" …",
            )
            click.echo(lines)


def _list_methods(as_json: bool, own: Paths) -> None:
    """List the methods with the features of SpecPipe's Table 2."""
    from dataclasses import asdict

    from simulator.report.pages.methods import features_page
    from simulator.studies.method_features import features

    with faults_as_lines():
        by_method = dict(features(Catalogue(own)))
    data = {"method": {name: asdict(method) for name, method in by_method.items()}}
    answer(as_json, lambda: data, lambda: features_page(by_method))


def _list_measured(kind: str | None, near: PlainData, as_json: bool, own: Paths) -> None:
    """List the measured devices by how near they are to one that is named, or whose numbers are
    stated.
    """
    from dataclasses import asdict

    from simulator.report.pages.measured_cards import page
    from simulator.studies.measured_cards import Sheet, near_card, near_sheet

    name = near["card"] or ""
    bandwidth, peak = near["memory_bandwidth"], near["peak_tflops"]
    with faults_as_lines():
        if kind != "device":
            raise BadInput.at("--like", "is for devices: specsim list device --like NAME")
        if (bandwidth is None) != (peak is None) or not (name or bandwidth):
            raise BadInput.at(
                "--like", "expected a name, or both --memory-bandwidth and --peak-tflops"
            )
        catalogue = Catalogue(own)
        if bandwidth:
            described = (near["memory"], near["maker"], near["architecture"], near["year"])
            nearness = near_sheet(name, Sheet(bandwidth, peak, *described), catalogue)
        else:
            nearness = near_card(name, catalogue)
    answer(as_json, lambda: asdict(nearness), lambda: page(nearness))


@click.command("show")
@click.argument("name")
@options.as_json
@options.own
def show(name: str, as_json: bool, own: Paths) -> None:
    """Show what a name stands for: its file, its numbers and where they come from."""
    with faults_as_lines():
        entry = details(name, Catalogue(own))
    answer(as_json, lambda: entry.data, None, entry.text.translate(CONTROLS))


@click.command("schema")
@click.argument("kind", type=click.Choice(tuple(CLASSES)), default="scenario")
def schema(kind: str) -> None:
    """Print the JSON Schema of a kind of file, for editors."""
    print_json(json_schema(kind))


class Details(NamedTuple):
    """A catalogue entry as text for people and as data for programs."""

    text: str
    data: PlainData


def details(name: str, catalogue: Catalogue) -> Details:
    """Return the entry of a name of any kind, or of the only longer one; raise :class:`BadInput`
    where nothing has the name.
    """
    if strategy := strategy_files().get(name) or plugin_file(name):
        import ast

        module = ast.parse(strategy.read_text("utf-8"))
        words = ast.get_docstring(module) or ""
        data: PlainData = {"kind": "strategy", "name": name, "about": words}
        return Details(f"strategy {name}\n\n{words}\n", data)
    for kind in FOLDERS:
        if path := catalogue.names(kind).get(name):
            if kind == "trace":
                return _trace_details(name, path)
            return _file_details(kind, name, path, catalogue)
    path = Path(name)
    if path.suffix in OF_MODELS or (path / "config.json").is_file():
        from simulator.inputs.models.huggingface import read_config

        model = read_config(path)
        content = model.model_dump(mode="json", exclude_defaults=True)
        data = {
            "kind": "model",
            "name": model.name,
            "file": name,
            "content": content,
            "computed": _computed(model),
        }
        text = f"{_yaml(content)}{_counts(model)}"
        return Details(f"model {model.name}   ({name})\n\n{text}", data)
    names: list[str] = []
    for kind in FOLDERS:
        names += catalogue.names(kind)
    names += strategy_names()
    longer = [entry for entry in names if entry.startswith(f"{name}_")]
    if len(longer) == 1:
        return details(longer[0], catalogue)
    if path.is_file():
        message = (
            "is a file, and of files only those of models are shown; in a folder laid out like "
            "the shipped one, as in mine/hardware_profiles/devices, --catalogue mine gives it a "
            "name"
        )
        raise BadInput.at(name, message)
    raise BadInput.at(name, f"nothing has this name{did_you_mean(name, names)}")


def _file_details(kind: str, name: str, path: Path, catalogue: Catalogue) -> Details:
    """Return a YAML file as it stands; of a model also the numbers that follow; of a profile every
    number with its source.
    """
    from simulator.core.cost.model import ModelSpec
    from simulator.core.quantities import provenance
    from simulator.inputs.schema import validate

    document = catalogue.content(kind, path)
    title = f"{kind} {name}   ({shown(path)})\n\n"
    text = title + path.read_text("utf-8")
    data = {"kind": kind, "name": name, "file": shown(path), "content": document.data}
    if kind == "model":
        model = validate(ModelSpec, document)
        data["computed"] = _computed(model)
        text += _counts(model)
    if kind in PROFILES:
        profile = validate(class_of(kind), document)
        numbers = list(provenance(profile))
        data["numbers"] = numbers
        about = " ".join(str(document.data.get("about", "")).split())
        text = f"{title}{fill(about, _width())}\n"
        if kind == "device":
            text += _origin(path)
            data["formats"], lines = _formats(profile)
            text += lines
        counts = Counter(str(number["confidence"]) for number in numbers)
        summary = ", ".join(f"{count} {confidence}" for confidence, count in counts.most_common())
        text += f"\n{fill(f'numbers, and where they come from: {summary}', _width())}\n"
        borrowed_last = sorted(numbers, key=lambda number: number["confidence"] == "borrowed")
        for number in borrowed_last:
            text += f"{_number(number)}\n"
    return Details(text, data)


def _origin(path: Path) -> str:
    """Return in lines whose kernels a device takes, and how far off its times may be; nothing for
    one with kernels of its own.
    """
    kernels = kernels_of(path)
    if kernels.like is None:
        return ""
    words = (
        f"Derived from {kernels.like}, whose kernels it takes (specsim show {kernels.like}): "
        f"±{100 * kernels.spread:.0f} % of a layer's time, one standard deviation"
    )
    return f"\n{fill(words, _width())}\n"


def _computed(model: Any) -> dict[str, float]:
    """Return what follows from a model's shapes and from how its weights were published."""
    from simulator.core.cost.stored.mixes import published

    computed: dict[str, float] = model.counts(published(model))
    return computed


def _counts(model: Any) -> str:
    """Return in lines what follows from a model's shapes."""
    lines = "\ncomputed\n"
    for key, value in _computed(model).items():
        shown_value = f"{value:,.0f}"
        if value % 1:
            shown_value = f"{value:,.6g}"
        lines += f"  {key}: {shown_value}\n"
    return lines


def _yaml(content: object) -> str:
    import yaml

    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=_width())


def _number(number: dict[str, object]) -> str:
    """Return a number of a profile with its source in lines of the terminal; a source may begin
    with its confidence, and of a borrowed number it is whose it is.
    """
    source = str(number["source"])
    confidence = str(number["confidence"])
    if confidence == "borrowed":
        source = _borrowed_from(source)
    elif not source.startswith(confidence):
        source = f"{confidence}: {source}"
    line = f"  {number['parameter']} = {number['value']:g}   {source}"
    return fill(
        line, _width(), subsequent_indent="      ", break_long_words=False, break_on_hyphens=False
    )


def _borrowed_from(source: str) -> str:
    """Return of the source of a borrowed number whose it is and what was changed; the rest stands
    there.
    """
    origin, _, rest = source.partition(": ")
    _, *changes = rest.split("; x ")
    return "; x ".join((origin, *changes))


def _formats(device: Any) -> tuple[dict[str, PlainData], str]:
    """Return, as data and as text, how a device computes with weights of each format, and whose
    kernels stand for them; mixes of files are counted only.
    """
    from simulator.core.cost.formats import FORMATS
    from simulator.core.cost.stored.mixes import OF_FILES

    rows = {}
    mixes = 0
    text = "\nformats of weights: bytes, what products compute in, whose kernels\n"
    for name in device.formats:
        if name in OF_FILES:
            mixes += 1
            continue
        form = FORMATS[name]
        size = form.weight_bytes
        arithmetic = form.arithmetic
        peak = device.peaks_tflops.get(arithmetic, device.peak_tflops).value
        kernels = _kernels(device, name)
        rows[name] = {
            "bytes": size,
            "arithmetic": arithmetic,
            "peak_tflops": peak,
            "kernels": kernels,
        }
        computed = f"{size:.4g} bytes, {arithmetic} ({peak:g} Tflops)"
        text += f"  {name}: {computed}, kernels of {kernels}\n"
    text += f"  and {mixes} of files (Q4_K_M, mlx_4), widened to 16 bits: kernels of their types\n"
    return rows, text


def _kernels(device: Any, weights: str) -> str:
    """Return the format whose curve of products stands for one of weights."""
    for name, curve in device.matmul.items():
        if curve is device.matmul_for(weights):
            return str(name)
    return "default"


def _trace_details(name: str, path: Path) -> Details:
    """Return the header of a trace, and how many of its draft tokens are accepted."""
    import yaml

    from simulator.core.acceptance.statistics import statistics
    from simulator.inputs.traces.file import read as read_trace

    trace = read_trace(path)
    numbers = statistics(trace)
    longest = numbers.windows[-1]
    at_longest = f"mean_accepted_at_gamma_{longest.gamma}"
    token_bytes = path.stat().st_size / numbers.tokens
    repetition = numbers.repetition
    if repetition is not None:
        repetition = round(repetition, 4)
    facts = {
        "requests": numbers.requests,
        "tokens": numbers.tokens,
        "bytes_per_token": round(token_bytes, 2),
        "acceptance_by_flavour": {kind.flavour: round(kind.rate, 4) for kind in numbers.flavours},
        at_longest: round(longest.replayed, 4),
        f"{at_longest}_by_law": round(longest.law, 4),
        "repeated_four_grams": repetition,
        "more": typed("specsim", "trace", "info", names=[name]),
    }
    content = {"facts": facts, "header": dict(trace.header)}
    file = shown(path)
    body = yaml.safe_dump(content, sort_keys=False, width=110)
    data = {"kind": "trace", "name": name, "file": file, **content}
    return Details(f"trace {name}   ({file})\n\n{body}", data)


def json_schema(kind: str) -> PlainData:
    """Return the JSON Schema of a kind of file, for editors, with the meaning of each field.

    A field that names a file may hold the name instead. A scenario or a profile may start from
    another one (``like``) and leave out what it says, so nothing in it is required; ``specsim``
    itself checks the whole.
    """
    from simulator.core.quantities import Frozen, descendants
    from simulator.inputs.descriptions import field_descriptions

    model = class_of(kind)
    schema_of_kind = model.model_json_schema()
    # a class of another package may have the name of a shipped one, which counts
    shipped_last = sorted(
        descendants(Frozen), key=lambda cls: cls.__module__.startswith("simulator.")
    )
    classes = {cls.__name__: cls for cls in shipped_last}
    parts = {model.__name__: schema_of_kind, **schema_of_kind.get("$defs", {})}
    for name, part in parts.items():
        for field, words in field_descriptions(classes[name]).items():
            properties = part["properties"][field]
            properties.setdefault("description", words.replace("``", "`"))
    if kind == "scenario":
        _allow_names(schema_of_kind)
    elif kind in PROFILES:
        _allow_like(schema_of_kind, kind)
    elif "required" in schema_of_kind:
        required = schema_of_kind["required"]
        schema_of_kind["required"] = [field for field in required if field != "name"]
    return schema_of_kind


def class_of(kind: str) -> type[Frozen]:
    """Return the class that a file of a kind is read into."""
    module, _, name = CLASSES[kind].partition(":")
    read_into: type[Frozen] = getattr(import_module(f"simulator.{module}"), name)
    return read_into


def _allow_names(scenario_schema: PlainData) -> None:
    """Let a scenario start from another one, and names stand for files."""
    _allow_like(scenario_schema, "scenario")
    _or_a_name(scenario_schema, "strategy", "strategy")
    for part in (scenario_schema, *scenario_schema["$defs"].values()):
        properties = part.get("properties", {})
        for field, target in REFERENCES.items():
            if "$ref" in str(properties.get(field)):  # a number of requests is no workload
                _or_a_name(part, field, target)


def _allow_like(schema: PlainData, kind: str) -> None:
    """Let a file start from another one, so that none of its fields is required."""
    words = f"name or path of the {kind} to start from"
    schema["properties"]["like"] = {"type": "string", "description": words}
    for part in (schema, *schema["$defs"].values()):
        part.pop("required", None)


def _or_a_name(part: PlainData, field: str, target: str) -> None:
    properties = part["properties"]
    by_name = {"type": "string", "description": f"name of a {target}"}
    properties[field] = {"anyOf": [by_name, properties[field]]}
