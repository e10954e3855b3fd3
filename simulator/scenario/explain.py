"""What a scenario comes to before it is run: its parts in words, and every default that applies."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from simulator.acceptance.spec import AcceptanceSpec
from simulator.catalogue import strategy_files
from simulator.cost.cost import Placement
from simulator.files.schema import Document, Frozen, Path_, Sourced, provenance
from simulator.scenario import Loaded, Scenario
from simulator.scenario.caveats import caveats


class Default(NamedTuple):
    """A field that nobody wrote down: its value, where a sourced one comes from, and what it is a field of.

    ``field`` is dotted as for ``--set``; a ``*`` stands for each of a list.
    """

    field: str
    value: str
    source: str
    of: str


class Explanation(NamedTuple):
    """A scenario in sentences by topic, its defaults, its numbers by confidence, and what to know about the answer."""

    topics: dict[str, str]
    defaults: list[Default]
    confidences: dict[str, int]
    notes: list[str]


def explain(loaded: Loaded) -> Explanation:
    """All of it; runs nothing."""
    scenario = loaded.scenario
    counts = Counter(str(entry["confidence"]) for entry in provenance(scenario))
    found = {(one.field, one.value): one for one in defaults(scenario, loaded.document)}  # stages have most in common
    told = list(caveats(loaded, loaded.acceptance()))
    return Explanation(dict(_topics(scenario)), list(found.values()), dict(counts.most_common()), told)


def _topics(scenario: Scenario) -> Iterator[tuple[str, str]]:
    if scenario.about:
        yield "about", scenario.about
    yield (
        "strategy",
        f"{scenario.method_name}: {_purpose(scenario.strategy.name)}; a step takes {scenario.schedule.traits.equation}",
    )
    for role, place in (
        ("target", scenario.target),
        ("draft", scenario.draft if scenario.schedule.needs.draft_model else None),
    ):
        if place:
            yield role, _held(place)
    if scenario.durations:
        yield "times", "stated outright, no hardware or engine"
    yield "acceptance", _accepted(scenario.acceptance)
    requests, (prompt, output, longest) = scenario.requests, scenario.lengths
    coming = requests.arrivals.name if requests.arrivals else f"{requests.concurrency} at a time"
    sizes = f"{prompt:,.0f} prompt and {output:,.0f} output tokens in the mean, {longest:,} together at most"
    yield "requests", f"{requests.count:,} in the simulation, {coming}; {sizes}"
    yield "batching", _first_line(type(scenario.serving.policy))
    room = scenario.kv_tokens
    yield "memory", f"room for {room:,} tokens of KV cache" if room is not None else "no limit stated"
    yield "beside it", "the law, a replay of the same acceptance, and autoregressive decoding of the same requests"
    yield "seed", str(scenario.seed)


def _purpose(strategy: str) -> str:
    return (ast.get_docstring(ast.parse(strategy_files()[strategy].read_text("utf-8"))) or "").partition("\n")[0].rstrip(".")


def _held(place: Placement) -> str:
    words = f"{place.model.name}, {place.model.weights / 1e9:.3g}e9 weights as {place.weights}"
    joined = f", joined by {place.link.name}" if place.link else ""
    return f"{words}, on {place.devices}{joined}, with {place.engine.name}"


def _accepted(spec: AcceptanceSpec) -> str:
    if spec.trace is not None:
        borrowed = ", recorded from other models" if spec.stand_in else ""
        return f"replayed from the recording {spec.trace}, drafter {spec.drafter}{borrowed}"
    return "a stated cycle" if spec.cycle or spec.always is not None else "stated rates, every window drawn"


def defaults(one: Frozen, document: Document, path: Path_ = ()) -> Iterator[Default]:
    """Every field below that stands in no file and in no ``--set``, and is not empty."""
    for name in type(one).model_fields:
        value, where = getattr(one, name), (*path, name)
        if isinstance(value, Frozen) and not isinstance(value, Sourced):
            yield from defaults(value, document, where)
        elif isinstance(value, tuple) and any(isinstance(part, Frozen) for part in value):
            for place, part in enumerate(value):
                yield from defaults(part, document, (*where, place))
        elif value not in (None, (), {}, "") and document.get(where) is None:
            source = f"{value.source} ({value.confidence})" if isinstance(value, Sourced) else ""
            field = ".".join("*" if isinstance(part, int) else part for part in where)
            yield Default(field, _shown(value), source, _first_line(type(one)))


def _shown(value: Any) -> str:
    """A value as YAML on one line, so that it can be typed."""
    plain = value.value if isinstance(value, Sourced) else list(value) if isinstance(value, tuple) else value
    whole = int(plain) if isinstance(plain, float) and plain.is_integer() else plain
    return yaml.safe_dump([whole], default_flow_style=True, width=1_000)[1:-2]


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").partition("\n")[0].rstrip(".").replace("``", "`")
