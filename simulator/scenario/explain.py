"""Explain a scenario before it is run: its parts in words, and every default that applies."""

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from simulator.acceptance.spec import AcceptanceSpec
from simulator.cost.placement import Placement
from simulator.files.schema import Document, Frozen, Path_, Sourced, provenance
from simulator.names import strategy_files
from simulator.scenario import Loaded
from simulator.scenario.caveats import caveats
from simulator.scenario.routing import why_by_law
from simulator.scenario.uncertainty import Footing, footings

READ_AS_RECORDED = "each window reads those that it took when recorded; law and plain decoding by two numbers fitted to that"


class Default(NamedTuple):
    """A field that was not written down and takes its default."""

    field: str
    """Dotted key as for ``--set``; a ``*`` stands for every entry of a list."""
    value: str
    """The value as YAML on one line."""
    source: str
    """Where a sourced value comes from, with its confidence; empty for any other."""
    of: str
    """What it is a field of, in a sentence."""


class Explanation(NamedTuple):
    """A scenario in words."""

    topics: dict[str, str]
    """A sentence by topic."""
    defaults: list[Default]
    confidences: dict[str, int]
    """How many of its numbers have which confidence."""
    notes: list[str]
    """Caveats of the answer, in sentences."""
    rests_on: list[Footing]
    """Its numbers, those first that could change the answer most."""


def explain(loaded: Loaded) -> Explanation:
    """Return the explanation of a scenario; simulates nothing."""
    scenario = loaded.scenario
    counts = Counter(str(entry["confidence"]) for entry in provenance(scenario))
    distinct: dict[tuple[str, str], Default] = {}
    for default in defaults(scenario, loaded.document):
        distinct[default.field, default.value] = default  # the stages of a pipeline have most of theirs in common
    notes = list(caveats(loaded, loaded.acceptance()))
    return Explanation(dict(_topics(loaded)), list(distinct.values()), dict(counts.most_common()), notes, footings(loaded))


def _topics(loaded: Loaded) -> Iterator[tuple[str, str]]:
    """Yield topics of a scenario, each with a sentence about it."""
    scenario = loaded.scenario
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
            yield role, _placed(place)
    if scenario.target and scenario.target.model.experts:
        reason = why_by_law(scenario.target, scenario.schedule, loaded.acceptance())
        yield "experts", f"as many are read as the law says: {reason}" if reason else READ_AS_RECORDED
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
    """Return the first line of the docstring of a strategy's module."""
    module = ast.parse(strategy_files()[strategy].read_text("utf-8"))
    return (ast.get_docstring(module) or "").partition("\n")[0].rstrip(".")


def _placed(place: Placement) -> str:
    """Return a model, its devices and its engine in words."""
    words = f"{place.model.name}, {place.model.weights / 1e9:.3g}e9 weights as {place.weights}"
    words += f", routed experts as {place.expert_weights}" if place.expert_weights else ""
    joined = f", joined by {place.link.name}" if place.link else ""
    return f"{words}, on {place.devices}{joined}, with {place.engine.name}"


def _accepted(spec: AcceptanceSpec) -> str:
    """Return in words where acceptance comes from."""
    if spec.trace is not None:
        borrowed = ", recorded from other models" if spec.stand_in else ""
        return f"replayed from the recording {spec.trace}, drafter {spec.drafter}{borrowed}"
    return "a stated cycle" if spec.cycle or spec.always is not None else "stated rates, every window drawn"


def defaults(settings: Frozen, document: Document, path: Path_ = ()) -> Iterator[Default]:
    """Yield every field at ``path`` and below that no file and no ``--set`` states, and that is not empty."""
    for name in type(settings).model_fields:
        value, where = getattr(settings, name), (*path, name)
        if isinstance(value, Frozen) and not isinstance(value, Sourced):
            yield from defaults(value, document, where)
        elif isinstance(value, tuple) and any(isinstance(part, Frozen) for part in value):
            for place, part in enumerate(value):
                yield from defaults(part, document, (*where, place))
        elif value not in (None, (), {}, "") and document.get(where) is None:
            source = f"{value.source} ({value.confidence})" if isinstance(value, Sourced) else ""
            field = ".".join("*" if isinstance(part, int) else part for part in where)
            yield Default(field, _shown(value), source, _first_line(type(settings)))


def _shown(value: Any) -> str:
    """Return a value as YAML on one line, so that it can be typed."""
    if isinstance(value, Sourced):
        value = value.value
    elif isinstance(value, tuple):
        value = list(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return yaml.safe_dump([value], default_flow_style=True, width=1_000)[1:-2]


def _first_line(kind: type) -> str:
    """Return the first line of a class's docstring, without its full stop."""
    return (kind.__doc__ or "").partition("\n")[0].rstrip(".").replace("``", "`")
