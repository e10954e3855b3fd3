"""Explain a scenario before it is run: its parts in words, and every default that applies."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from simulator.files.descriptions import summary
from simulator.files.schema import Document, Frozen, Path_, Sourced, provenance
from simulator.files.sentences import Sentences
from simulator.names import strategy_files
from simulator.scenario import Loaded
from simulator.scenario.as_served import source_of_engine
from simulator.scenario.caveats import caveats
from simulator.scenario.routing import why_by_law
from simulator.scenario.uncertainty import Footing, footings

say = Sentences(Path(__file__).with_suffix(".yaml"))


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
    of_engine = source_of_engine(scenario, loaded.document)
    for default in defaults(scenario, loaded.document):
        known = default._replace(source=default.source or of_engine.get(default.field, ""))
        distinct[default.field, default.value] = (
            known  # the stages of a pipeline have most of theirs in common
        )
    notes = list(caveats(loaded, loaded.acceptance()))
    return Explanation(
        dict(_topics(loaded)),
        list(distinct.values()),
        dict(counts.most_common()),
        notes,
        footings(loaded),
    )


def _topics(loaded: Loaded) -> Iterator[tuple[str, str]]:
    """Yield topics of a scenario, each with a sentence about it."""
    scenario, mixture = loaded.scenario, None
    if scenario.about:
        yield "about", scenario.about
    if scenario.target and scenario.target.model.experts:
        mixture = scenario.target
    places = {
        "target": scenario.target,
        "draft": scenario.draft if scenario.schedule.needs.draft_model else None,
    }
    facts = {
        "scenario": scenario,
        "requests": scenario.requests,
        "spec": scenario.acceptance,
        "purpose": _purpose(scenario.strategy.name),
        "placed": {role: say("placed", one=place) for role, place in places.items() if place},
        "mixture": mixture,
        "by_law": mixture and why_by_law(mixture, scenario.schedule, loaded.acceptance()),
        "policy": summary(type(scenario.serving.policy).__doc__).replace("``", "`"),
    }
    for topic, sentence in say.said["topics"].items():
        if text := say.filled(sentence, **facts):
            yield topic, text


def _purpose(strategy: str) -> str:
    """Return what the docstring of a strategy's module begins with."""
    module = ast.parse(strategy_files()[strategy].read_text("utf-8"))
    return summary(ast.get_docstring(module))


def defaults(settings: Frozen, document: Document, path: Path_ = ()) -> Iterator[Default]:
    """Yield every field at ``path`` and below that no file and no ``--set`` states, and that is not
    empty.
    """
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
            yield Default(
                field, _shown(value), source, summary(type(settings).__doc__).replace("``", "`")
            )


def _shown(value: Any) -> str:
    """Return a value as YAML on one line, so that it can be typed."""
    if isinstance(value, Sourced):
        value = value.value
    elif isinstance(value, tuple):
        value = list(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return yaml.safe_dump([value], default_flow_style=True, width=1_000)[1:-2]
