"""Let the engine decide what a scenario leaves open: how it batches, and whether it keeps prompts
for others.

An engine's profile says what its server does where nothing is stated (``server``), and a stated
field always wins:

* ``serving.policy: {name: engine}`` becomes the policy of the server, with its limits on the device
  of the target.
* ``serving.memory.prefix_caching``, where it is not stated, is on where the server has it on and it
  can act: the traffic names the prefixes of its prompts (``hash_ids``, sessions).
* ``serving.memory.block_tokens`` of such a cache, where it is not stated, is the unit of the server
  (:func:`cache_unit_tokens`), and its states stay where those of the server do.
"""

import os
from collections.abc import Iterator
from math import ceil
from pathlib import Path

from simulator.core.cost.formats import CACHE_BYTES
from simulator.core.serving.policies import (
    ChunkedPrefill,
    EngineDefault,
    Policy,
    PrefillFirst,
    UnifiedBudget,
)
from simulator.core.serving.requests import Requests
from simulator.core.strategies.common.capabilities import dropped_units
from simulator.inputs.document import Document
from simulator.scenario.fields import Scenario

POLICY = ("serving", "policy", "name")
CACHING = ("serving", "memory", "prefix_caching")
UNIT = ("serving", "memory", "block_tokens")
STATES = ("serving", "memory", "state_blocks")
CONVOLVED = 4
"""Tokens that a short convolution reads, all but one of which belong to a state: the width of the
kernel in every family that is read here, but lfm2's 3.
"""
KEPT = 32
"""Traffic files of which it is remembered whether they name prefixes."""
_faults: dict[tuple[object, ...], str] = {}


def left_to_engine(document: Document) -> bool:
    """Return whether a scenario leaves anything of how it is served to its engine."""
    return document.get(POLICY) == "engine" or document.get(CACHING) is None


def with_policy_of_engine(scenario: Scenario) -> Scenario:
    """Return a scenario with the policy of its engine where it asks for it; one without an engine
    as it is.
    """
    stated = scenario.serving.policy
    target = scenario.target
    if not isinstance(stated, EngineDefault) or target is None:
        return scenario
    server = target.engine.server
    strategy = scenario.strategy
    limits = server.limits_on(target.device, strategy.window > 0)
    requests = stated.max_requests or min(limits.max_requests, limits.batch_tokens)
    policy: Policy
    if server.policy == "prefill_first" or strategy.traits.separate_prompts:
        policy = PrefillFirst(
            max_requests=requests, batch_tokens=limits.batch_tokens, splits_prompts=True
        )
    elif server.policy == "chunked_prefill":
        policy = ChunkedPrefill(
            name="chunked_prefill", max_requests=requests, chunk_tokens=limits.batch_tokens
        )
    else:
        policy = UnifiedBudget(
            name="unified_budget", max_requests=requests, budget_tokens=limits.batch_tokens
        )
    return scenario.replace(serving=scenario.serving.model_copy(update={"policy": policy}))


def with_caching_of_engine(scenario: Scenario, document: Document) -> Scenario:
    """Return a scenario that keeps prompts for others where its engine does so by itself and
    nothing is stated, in units of its engine.
    """
    updates: dict[str, object] = {}
    stated = scenario.serving.memory.prefix_caching
    keeps = cached_by_default(scenario) if document.get(CACHING) is None else stated
    if keeps and not stated:
        updates["prefix_caching"] = True
    if keeps and scenario.target and document.get(UNIT) is None:
        updates["block_tokens"] = cache_unit_tokens(scenario)
    if keeps and document.get(STATES) is None:
        updates["state_blocks"] = _state_blocks(scenario)
    if not updates:
        return scenario
    memory = scenario.serving.memory.model_copy(update=updates)
    return scenario.replace(serving=scenario.serving.model_copy(update={"memory": memory}))


def _state_blocks(scenario: Scenario) -> int:
    """Return the blocks that a state takes in all layers that have one, each as much as a layer's
    share of a block; 0 where the server does not keep states as passes end.
    """
    target = scenario.target
    if target is None or not isinstance(scenario.serving.policy, UnifiedBudget):
        return 0
    layers = target.model.mixer_layers
    with_state = sum(count for mixer, count in layers if mixer.state_bytes)
    caching = sum(count for mixer, count in layers if mixer.own_cache and mixer.kind != "linear")
    if not (target.engine.server.state_fills_unit and with_state and caching):
        return 0
    return ceil(with_state / caching)


def cache_unit_tokens(scenario: Scenario) -> int:
    """Return the tokens of a block of the prefix cache, as the engine of the target sets it.

    vLLM has one size of page for all layers: where some keep a state, a block has so many tokens
    that their keys and values in one layer are no smaller than the largest state, rounded up to its
    usual block. Verification of ``window`` drafts lengthens what a short convolution keeps by as
    many tokens (vLLM 0.32, ``_align_hybrid_block_size`` and ``MambaStateShapeCalculator``; 2,144
    tokens of vllm#54360 are those of Qwen3.5-35B-A3B in 8 bits with MTP 3).
    """
    target = scenario.target
    if target is None:
        return scenario.serving.memory.block_tokens
    server = target.engine.server
    unit = server.cache_unit_tokens
    mixers = [mixer for mixer, _ in target.model.mixer_layers]
    caching = [mixer for mixer in mixers if mixer.own_cache and mixer.kind != "linear"]
    with_state = [mixer for mixer in mixers if mixer.state_bytes]
    if not (server.state_fills_unit and caching and with_state):
        return unit
    longer = 1.0 + scenario.strategy.window / (CONVOLVED - 1)
    page_bytes = max(4 * mixer.state + 2 * mixer.tail * longer for mixer in with_state)
    value_bytes = CACHE_BYTES[target.kv_cache]
    token_bytes = max(mixer.cache_bytes(1, value_bytes) for mixer in caching)
    return unit * ceil(page_bytes / (unit * token_bytes))


def why_not_cached(scenario: Scenario) -> str:
    """Return why blocks of prompts cannot be kept for others, in words; empty where they can."""
    requests = scenario.requests
    if requests.sessions is not None:
        return ""
    if requests.traffic is None:
        return "nobody knows what drawn prompts have in common"
    return _hash_fault(requests)


def _hash_fault(requests: Requests) -> str:
    """Return what the traffic lacks to name its prefixes; a file is read once as long as it stays
    as it is.
    """
    file = requests.traffic.file if requests.traffic else ""
    facts = os.stat(file)
    key = requests.model_dump_json(), facts.st_mtime_ns, facts.st_size
    if key not in _faults:
        while len(_faults) >= KEPT:
            del _faults[next(iter(_faults))]
        _faults[key] = _first_fault(requests, Path(file).name)
    return _faults[key]


def _first_fault(requests: Requests, file: str) -> str:
    """Return what is wrong with the hashes of a traffic file, in words; empty where they name
    prefixes.
    """
    first = next(requests.lines(), None)
    if first is None or not first.hashes:
        return "the traffic does not name the prefixes of its prompts (hash_ids)"
    fault = requests.hash_fault()
    if fault:
        return f"{file}:{fault.faults[0].place[1]}: {fault.faults[0].message}"
    return ""


def cached_by_default(scenario: Scenario) -> bool:
    """Return whether the engine of a scenario keeps prompts by itself, and can do so here."""
    return bool(
        scenario.target and scenario.target.engine.server.prefix_caching
    ) and not why_not_cached(scenario)


def said_of_engine(scenario: Scenario, document: Document) -> Iterator[str]:
    """Yield what a scenario takes over from its engine, in sentences: batching, and with arrivals,
    sessions or a prefix cache whether prompts are kept.
    """
    target = scenario.target
    if target is None:
        return
    server = target.engine.server
    policy = scenario.serving.policy
    whose = f"engine {target.engine.name}"
    source = f"({server.source}, {server.confidence})"
    if document.get(POLICY) == "engine":
        with_drafts, without = (server.limits_on(target.device, drafts) for drafts in (True, False))
        limits = with_drafts if scenario.strategy.window else without
        how = " with drafts" if scenario.strategy.window else " without drafts"
        depends = how if with_drafts != without else ""
        most = (
            f"at most {policy.max_requests:,} requests together and {limits.batch_tokens:,} "
            f"tokens a pass{depends}"
        )
        yield f"batching: {policy.name}, {most}, as {whose} does on {target.device.name} {source}"
        yield from _said_of_passes(scenario, whose)
    if document.get(CACHING) is not None:
        return
    if not (scenario.requests.varies or scenario.serving.memory.prefix_caching):
        return
    if scenario.serving.memory.prefix_caching:
        yield f"prefix caching: on, {_in_blocks(scenario)}, as in {whose} {source}"
    elif server.prefix_caching:
        yield f"prefix caching: left out, though on in {whose} {source}: {why_not_cached(scenario)}"
    elif server.prefix_caching is None:
        yield f"prefix caching: off ({source[1:-1]})"
    else:
        yield f"prefix caching: off, as in {whose}, whose requests share no prompts {source}"


def _said_of_passes(scenario: Scenario, whose: str) -> Iterator[str]:
    """Yield whether prompts are cut over passes, and which passes are captured as graphs."""
    target = scenario.target
    if target is None:
        return
    match scenario.serving.policy:
        case UnifiedBudget() | ChunkedPrefill():
            yield f"prompts: cut into chunks that decode beside other requests, as in {whose}"
        case PrefillFirst(splits_prompts=True):
            yield f"prompts: in passes of their own, long ones in several, as in {whose}"
    captured = target.engine.graph_rows
    if captured:
        sizes = f"{len(captured):,} sizes up to {captured[-1]:,} rows"
        yield f"graphs: {sizes} are captured, larger passes are launched eagerly, as in {whose}"


def _in_blocks(scenario: Scenario) -> str:
    """Return in words in which blocks prompts are kept, and which of them drafts drop."""
    memory = scenario.serving.memory
    if memory.block_tokens == 1:
        blocks = "token by token"
    else:
        blocks = f"in blocks of {memory.block_tokens:,} tokens"
    if memory.drops_last_block and dropped_units(scenario.schedule):
        return f"{blocks} of which {scenario.method_name} computes the last one again"
    return blocks


def source_of_engine(scenario: Scenario, document: Document) -> dict[str, str]:
    """Return where values come from that the engine decided, by dotted field."""
    if scenario.target is None:
        return {}
    server = scenario.target.engine.server
    if document.get(CACHING) is None:
        fields = [".".join(CACHING)]
    else:
        fields = []
    if document.get(POLICY) == "engine":
        fields += [f"serving.policy.{name}" for name in type(scenario.serving.policy).model_fields]
    return dict.fromkeys(fields, f"{server.source} ({server.confidence})")
