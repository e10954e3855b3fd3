"""Explain a scenario before it is run: its parts in words, and every default that applies."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from simulator.core.acceptance.spec import AcceptanceSpec
from simulator.core.cost.placement import Placement
from simulator.core.faults import Path_
from simulator.core.quantities import Frozen, Named, Sourced, provenance
from simulator.core.serving.cache.tiers import MemoryTier
from simulator.core.serving.fields import ReplicaPool, Serving
from simulator.core.serving.fleet.handover import Handover
from simulator.core.serving.fleet.scaling import Scaling
from simulator.core.serving.load.sessions import SessionFile, SystemPrompts
from simulator.core.serving.requests import Requests
from simulator.inputs.catalogue import strategy_files
from simulator.inputs.descriptions import summary
from simulator.inputs.document import Document
from simulator.scenario import Loaded, Scenario
from simulator.scenario.as_served import source_of_engine
from simulator.scenario.caveats import caveats
from simulator.scenario.pools import (
    handed_bytes,
    needs_draft_cache,
    pool_names,
    pool_scenarios,
)
from simulator.scenario.routing import why_by_law
from simulator.scenario.stability import least_first_token_s, load_of
from simulator.scenario.uncertain.footings import Footing, footings


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
    scenario = loaded.scenario
    if scenario.about:
        yield "about", scenario.about
    purpose = _purpose(scenario.strategy.name)
    equation = scenario.schedule.traits.equation
    yield "strategy", f"{scenario.method_name}: {purpose}; a step takes {equation}"
    if scenario.target:
        yield "target", _placed(scenario.target)
    if scenario.draft and scenario.schedule.needs.draft_model:
        yield "draft", _placed(scenario.draft)
    if scenario.target and scenario.target.model.experts:
        yield "experts", _experts(loaded, scenario.target)
    if scenario.durations:
        yield "times", "stated outright, no hardware or engine"
    yield "acceptance", acceptance_in_words(scenario.acceptance)
    yield "requests", _requests(scenario)
    if scenario.requests.sessions:
        yield "sessions", _sessions(scenario)
    yield "batching", summary(type(scenario.serving.policy).__doc__).replace("``", "`")
    if scenario.serving.pools:
        yield from _pools(scenario)
        yield from _by_law(loaded)
    elif scenario.serving.copies > 1:
        yield "routing", _routing(scenario.serving)
    if scenario.serving.scaling:
        yield "scaling", _scaling(scenario, scenario.serving.scaling)
    room = "no limit stated"
    if scenario.kv_tokens is not None:
        room = f"room for {scenario.kv_tokens:,} tokens of KV cache"
    below = [_tier(tier) for tier in scenario.serving.memory.tiers]
    yield "memory", "; below it ".join([room, *below])
    beside = "the law, a replay of the same acceptance, and autoregressive decoding of the same"
    yield "beside it", f"{beside} requests"
    yield "seed", str(scenario.seed)


def _tier(tier: MemoryTier) -> str:
    """Return a tier of memory with its room, its link and what is written to it."""
    room = "no limit stated"
    if tier.room_tokens is not None:
        room = f"{tier.room_tokens:,} tokens"
    elif tier.room_gb is not None:
        room = f"{tier.room_gb:g} GB"
    filled = {"through": "as they are filled", "on_eviction": "as they are evicted"}[tier.write]
    way = " to the tier above" if tier.via_above else ""
    return f"{tier.name} ({room}) over {tier.link.name}{way}, which gets blocks {filled}"


def _placed(place: Placement) -> str:
    """Return a model with the formats of its weights, its devices and its engine."""
    words = f"{place.model.name}, {place.model.weights / 1e9:.3g}e9 weights as {place.weights}"
    if place.expert_weights:
        words += f", routed experts as {place.expert_weights}"
    words += f", on {place.devices}"
    if place.link:
        words += f", joined by {place.link.name}"
    return f"{words}, with {place.engine.name}"


def _routing(serving: Serving) -> str:
    """Return how many replicas there are, of which roles, and how a request's is chosen."""
    pools = serving.router.pools(serving.replicas)
    if len(pools) > 1:
        roles = " (" + ", ".join(f"{count:,} {role}" for role, count in pools.items()) + ")"
    else:
        roles = ""
    rule = summary(type(serving.router).__doc__).replace("``", "`")
    count = f"{serving.replicas:,}"
    if serving.scaling and serving.scaling.moves:
        count = f"{serving.scaling.least:,} to {serving.scaling.most:,}"
    return f"{count} replicas{roles}. {rule}"


COMPARED = {
    "outstanding": "requests of a replica with {}",
    "kv_use": "the share of the KV cache in use with {}",
    "slo": "the share of requests that meet the SLO with {}",
}


def _scaling(scenario: Scenario, scaling: Scaling) -> str:
    """Return between which numbers of replicas, by what, how often, and how long a start takes."""
    if not scaling.moves:
        return f"{scaling.most:,} replicas at any time"
    compared = COMPARED[scaling.by].format(f"{scaling.target:g}")
    weights = ""
    if scaling.start_s is None and scaling.link:
        size = f"{scenario.weight_bytes / 1e9:.3g} GB of weights"
        weights = f", with {size} over {scaling.link.name or 'a link'}"
    return (
        f"{scaling.least:,} to {scaling.most:,} replicas; every {scaling.every_s.value:g} s a look "
        f"compares {compared}; a start takes {scenario.start_s:.3g} s{weights}; one goes when "
        f"fewer have done for {scaling.stable_s.value:g} s"
    )


def _pools(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield what each pool is, how requests are routed, and what goes over between them."""
    names = pool_names(scenario)
    for name, (pool, own) in zip(names, pool_scenarios(scenario), strict=True):
        replicas = "a replica" if pool.replicas == 1 else f"{pool.replicas:,} replicas"
        words = [replicas]
        if own.target:
            words.append(f"on {own.target.devices}")
        words.append(f"batching by {own.serving.policy.name}")
        if pool.role == "prefill" and needs_draft_cache(scenario.strategy):
            beside = "the draft reads prompts beside it" if pool.draft else "no draft"
            words.append(beside)
        if own.kv_tokens is not None:
            words.append(f"room for {own.kv_tokens:,} tokens of KV cache")
        yield f"{name} pool", ", ".join(words)
    yield "routing", summary(type(scenario.serving.router).__doc__).replace("``", "`")
    handover = scenario.serving.handover
    if handover:
        yield "handover", _handover(scenario, handover)


def _by_law(loaded: Loaded) -> Iterator[tuple[str, str]]:
    """Yield what pools serve by law, and the least that a first token takes."""
    scenario = loaded.scenario
    words = []
    load = load_of(scenario, loaded.acceptance())
    if load:
        slower = f" (the {load.slower} is the slowest part)" if load.slower else ""
        words.append(f"{load.served}{slower}")
    least_s = least_first_token_s(scenario)
    if least_s is not None:
        prompt = round(scenario.lengths[0])
        words.append(
            f"a prompt of {prompt:,} tokens, alone, shows its first token after "
            f"{least_s * 1e3:.4g} ms"
        )
    if words:
        yield "by law", "; ".join(words)


def _handover(scenario: Scenario, handover: Handover) -> str:
    """Return what goes from prefill to decode, over what, when, and what the draft has of it."""
    prompt = round(scenario.lengths[0])
    size = handed_bytes(scenario, handover, prompt)
    seconds = handover.seconds(size)
    if handover.routing == "decode_first":
        routing = "the replica that decodes is chosen first, and holds room during the prefill"
    else:
        routing = "the replica that decodes is chosen behind the prefill"
    link = handover.link.name or "a link"
    links = link if handover.connections == 1 else f"{handover.connections} x {link}"
    hidden = ", layer by layer during the prefill" if handover.overlap == "by_layer" else ""
    words = (
        f"{size / 1e6:,.4g} MB for a mean prompt of {prompt:,} tokens, {seconds * 1e3:.3g} ms over "
        f"{links}{hidden}; {routing}; the first token is shown where a request "
        f"{'decodes' if handover.shown_by == 'decode' else 'is read'}"
    )
    if needs_draft_cache(scenario.strategy):
        words += f"; {DRAFT_STATES[handover.draft_state]}"
    return words


DRAFT_STATES = {
    "transferred": "the draft's cache goes over with it",
    "recomputed": "the draft reads the prompt again where the request decodes",
    "absent": "the draft knows nothing of the prompt where the request decodes",
}
"""What the draft has of a prompt, in words."""


def _experts(loaded: Loaded, target: Placement) -> str:
    """Return how many experts of a mixture a window reads."""
    by_law = why_by_law(target, loaded.scenario.schedule, loaded.acceptance())
    if by_law:
        return f"as many are read as the law says: {by_law}"
    return (
        "each window reads those that it took when recorded; law and plain decoding by two numbers "
        "fitted to that"
    )


def acceptance_in_words(spec: AcceptanceSpec) -> str:
    """Return where the verdicts of a run come from."""
    if spec.trace is not None:
        recorded = ", recorded from other models" if spec.stand_in else ""
        return f"replayed from the recording {spec.trace}, drafter {spec.drafter}{recorded}"
    if spec.cycle or spec.always is not None:
        return "a stated cycle"
    return "stated rates, every window drawn"


def _requests(scenario: Scenario) -> str:
    """Return how many requests there are, when they come, and how long they are."""
    requests = scenario.requests
    come = f"{requests.concurrency} at a time"
    if requests.sessions:
        come = f"turns of sessions of {come}"
    if requests.arrivals:
        come = requests.arrivals.name
        if requests.sessions:
            come = f"turns of sessions that begin {come}"
    prompt, output, longest = scenario.lengths
    return (
        f"{requests.count:,} in the simulation, {come}; {prompt:,.0f} prompt and {output:,.0f} "
        f"output tokens in the mean, {longest:,} together at most{_classes(requests)}"
    )


def _sessions(scenario: Scenario) -> str:
    """Return how many sessions there are, what their turns hold, and when these come."""
    stated = scenario.requests.sessions
    turns = list(scenario.requests.turns(scenario.seed))
    mean = sum(map(len, turns)) / len(turns)
    words = [f"{len(turns):,} with {mean:.3g} turns in the mean"]
    if isinstance(stated, SessionFile):
        words.append(f"as recorded in {Path(stated.file).name}")
        if stated.think_s is not None:
            words.append(f"think times {_drawn(stated.think_s)} s instead of those in it")
    elif stated:
        words.append(f"turns {_drawn(stated.turns)}")
        words.append(f"new text of later turns {_drawn(stated.turn_tokens)} tokens")
        words.append(f"think times {_drawn(stated.think_s)} s")
        if stated.tools:
            tools = f"{stated.tools.share:g} of later turns behind a tool of "
            words.append(f"{tools}{_drawn(stated.tools.tool_s)} s")
        if stated.system_prompts:
            words.append(_system_prompts(stated.system_prompts))
        if stated.branch_share:
            words.append(f"{stated.branch_share:g} of the turns from the third on go back")
    if stated and stated.context_tokens is not None:
        words.append(f"none beyond {stated.context_tokens:,} tokens")
    return "; ".join(words)


def _system_prompts(stated: SystemPrompts) -> str:
    """Return how many system prompts there are, how long, and how often each comes."""
    tokens = f"{_drawn(stated.tokens)} tokens"
    if stated.count == 1:
        return f"one system prompt of {tokens}"
    alike = f", the k-th with weight 1 / k^{stated.zipf:g}" if stated.zipf else ""
    return f"{stated.count:,} system prompts of {tokens}{alike}"


def _drawn(stated: float | Frozen) -> str:
    """Return a number, or a distribution with its parameters."""
    if not isinstance(stated, Frozen):
        return f"{stated:,g}"
    parameters = stated.model_dump(exclude={"name"}, exclude_none=True)
    told = [f"{name} {value:,g}" for name, value in parameters.items()]
    return f"{getattr(stated, 'name', '')} ({', '.join(told)})"


def _classes(requests: Requests) -> str:
    """Return which classes of service there are; nothing without any."""
    if not requests.classes:
        return ""
    words = []
    for name, given in requests.classes.items():
        if given.share is None:
            whose = f"of {', '.join(given.tasks)}"
        else:
            whose = f"{given.share:g} of all"
        words.append(f"{name} ({whose}, priority {given.priority})")
    return f"; classes {', '.join(words)}"


def _purpose(strategy: str) -> str:
    """Return what the docstring of a strategy's module begins with."""
    module = ast.parse(strategy_files()[strategy].read_text("utf-8"))
    return summary(ast.get_docstring(module))


def defaults(settings: Frozen, document: Document, path: Path_ = ()) -> Iterator[Default]:
    """Yield every field at ``path`` and below that no file and no ``--set`` states, and that is not
    empty.
    """
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        where = (*path, name)
        if _plays_no_part(settings, name, document.get(where)):
            continue
        if isinstance(value, Named) and value.plain:
            value = value.name
        if name == "name" and document.get(path) == value:  # given by its name alone
            continue
        if isinstance(value, Frozen) and not isinstance(value, Sourced):
            yield from defaults(value, document, where)
        elif isinstance(value, tuple) and any(isinstance(part, Frozen) for part in value):
            for place, part in enumerate(value):
                yield from defaults(part, document, (*where, place))
        elif value not in (None, (), {}, "") and document.get(where) is None:
            yield _default(settings, where, value)


def _plays_no_part(settings: Frozen, name: str, stated: Any) -> bool:
    """Return whether a field says nothing here: of a pool, what is as the scenario has it; what
    stands aside for pools or arrivals.
    """
    if isinstance(settings, ReplicaPool):
        return name == "target" or stated is None
    if isinstance(settings, Serving):
        return name == "replicas" and settings.pools is not None
    if isinstance(settings, Requests):
        return name == "concurrency" and settings.arrivals is not None
    return False


def _default(settings: Frozen, where: Path_, value: Any) -> Default:
    """Return a field that nobody states, with its source if it has one."""
    source = f"{value.source} ({value.confidence})" if isinstance(value, Sourced) else ""
    field = ".".join("*" if isinstance(part, int) else part for part in where)
    rule = summary(type(settings).__doc__).replace("``", "`")
    return Default(field, _shown(value), source, rule)


def _shown(value: Any) -> str:
    """Return a value as YAML on one line, so that it can be typed."""
    if isinstance(value, Sourced):
        value = value.value
    elif isinstance(value, tuple):
        value = list(value)
    elif isinstance(value, dict):
        value = {key: _plain(part) for key, part in value.items()}
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return yaml.safe_dump([value], default_flow_style=True, width=1_000)[1:-2]


def _plain(part: Any) -> Any:
    """Return the number of a sourced one, and anything else as it is."""
    if isinstance(part, Sourced):
        return part.value
    return part
