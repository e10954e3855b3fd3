"""Pools of replicas, where prefill and decode are apart: each is a scenario of its own, together
they are one service.

A scenario with pools is read as that of its first pool that decodes: laws, steps and memory of a
replica are those there. A single pool of role ``both`` is no pool at all, but its replicas.
"""

from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np

from simulator.core.acceptance.sources import Acceptance
from simulator.core.cost.placement import Placement
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import Rows
from simulator.core.faults import BadInput, Fault, Path_
from simulator.core.numeric import ordered_sum
from simulator.core.plain import PlainData
from simulator.core.serving.fields import ReplicaPool
from simulator.core.serving.fleet.apart import ApartService, ServicePool
from simulator.core.serving.fleet.between import Luggage
from simulator.core.serving.fleet.handover import Handover
from simulator.core.serving.fleet.sizes import request_bytes
from simulator.core.serving.service import Service
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.capabilities import (
    CarriesPrompts,
    StepsPlainly,
    drafts_first,
    heads_of,
)
from simulator.inputs.document import Document
from simulator.scenario.as_served import with_policy_of_engine
from simulator.scenario.checks import check_memory
from simulator.scenario.fields import Scenario

POOLS: Path_ = ("serving", "pools")
HANDOVER: Path_ = ("serving", "handover")


# ---- reading


def with_whole_targets(data: PlainData) -> PlainData:
    """Return the fields of a scenario in which the target of each pool is laid over that of the
    scenario; the fields that were given stay as they are.
    """
    serving = data.get("serving")
    target = data.get("target")
    if not isinstance(serving, dict) or not isinstance(target, dict):
        return data
    pools = serving.get("pools")
    if not isinstance(pools, list):
        return data
    whole = []
    for pool in pools:
        own = pool.get("target") if isinstance(pool, dict) else None
        if isinstance(own, dict):
            base = Document(deepcopy(target))
            overlay = Document(deepcopy(own))
            base.merge(_placed(overlay))
            whole.append(pool | {"target": base.data})
        else:
            whole.append(pool)
    return data | {"serving": serving | {"pools": whole}}


def _placed(overlay: Document) -> Document:
    """Return a document in which every mapping has some place, as merging asks for it."""
    paths: list[Path_] = [()]
    for path in paths:
        value = overlay.get(path)
        overlay.places[path] = ("input", 0, 0)
        if isinstance(value, dict):
            paths += [(*path, key) for key in value]
    return overlay


def with_pools(scenario: Scenario) -> Scenario:
    """Return a scenario as its first pool that decodes has it; without pools, or with a single one
    of role both, that of its replicas.
    """
    serving = scenario.serving
    if serving.pools is None:
        return scenario
    pools = []
    for pool in serving.pools:
        own = {"policy": pool.policy or serving.policy, "target": pool.target or scenario.target}
        pools.append(pool.model_copy(update=own))
    first = next((pool for pool in pools if pool.role != "prefill"), pools[0])
    changed: dict[str, Any] = {"policy": first.policy, "pools": tuple(pools)}
    if len(pools) == 1 and first.role == "both" and first.draft:
        changed |= {"replicas": first.replicas, "pools": None, "handover": None}
    return scenario.replace(target=first.target, serving=serving.model_copy(update=changed))


def with_policies_of_engines(scenario: Scenario) -> Scenario:
    """Return a scenario whose pools have the policies of their engines where they ask for them."""
    serving = scenario.serving
    if serving.pools is None:
        return scenario
    pools = []
    for pool, own in pool_scenarios(scenario):
        policy = with_policy_of_engine(own).serving.policy
        pools.append(pool.model_copy(update={"policy": policy}))
    return scenario.replace(serving=serving.model_copy(update={"pools": tuple(pools)}))


# ---- what is wrong


def faults_of_pools(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """Yield what is wrong with the pools of a scenario and their handover, each at its place."""
    serving = scenario.serving
    pools = serving.pools
    if pools is None:
        if serving.handover:
            message = "is for pools of prefill and decode; there are none (serving.pools)"
            yield document.fault(HANDOVER, message)
        return
    roles = [pool.role for pool in pools]
    if serving.replicas > 1:
        message = "stands beside pools, which have replicas of their own; leave it out"
        yield document.fault(("serving", "replicas"), message)
    if len(serving.router.pools(serving.copies)) > 1:
        message = f"{serving.router.name} makes pools of its own; choose another router"
        yield document.fault(("serving", "router"), message)
    for role, other in (("prefill", "decode"), ("decode", "prefill")):
        if role in roles and other not in roles:
            message = (
                f"a pool of role {role} needs one of role {other}, and there is none; add "
                f"{{role: {other}}}, or make it both"
            )
            yield document.fault((*POOLS, roles.index(role)), message)
    if "prefill" in roles and serving.handover is None:
        message = "prefill and decode are apart; say over which link a request goes: {link: NAME}"
        yield document.fault(HANDOVER, message)
    for place, pool in enumerate(pools):
        yield from _wrong_pool(scenario, pool, (*POOLS, place), document)
    if "prefill" in roles:
        yield from _wrong_strategy(scenario, document)
    if serving.handover and "prefill" in roles:
        yield from _wrong_handover(scenario, serving.handover, document)


def _wrong_pool(
    scenario: Scenario, pool: ReplicaPool, where: Path_, document: Document
) -> Iterator[Fault]:
    """Yield what is wrong with a pool by itself."""
    strategy = scenario.strategy
    policy = pool.policy or scenario.serving.policy
    if pool.target is not None and scenario.target is None:
        message = "stands beside stated durations, which are those of all pools"
        yield document.fault((*where, "target"), message)
    if pool.role != "prefill" and not pool.draft and strategy.window:
        message = (
            f"{strategy.name} drafts where a request decodes, and this pool has no draft; set "
            "strategy=autoregressive, or draft=true"
        )
        yield document.fault((*where, "draft"), message)
    if pool.role == "prefill" and policy.reserves:
        message = (
            f"{policy.name} keeps places and room for whole outputs, which are written elsewhere; "
            "choose another policy, as in policy: {name: prefill_first}"
        )
        yield document.fault((*where, "policy"), message)
    if policy.max_requests is None:
        message = f"{policy.name} needs max_requests where a router deals requests out"
        yield document.fault((*where, "policy"), message)
    yield from _another_target(scenario, pool, where, document)


def _another_target(
    scenario: Scenario, pool: ReplicaPool, where: Path_, document: Document
) -> Iterator[Fault]:
    """Yield in what the target of a pool may not differ from that of the first one that decodes."""
    own, first = pool.target, scenario.target
    if own is None or first is None:
        return
    if own.model.name != first.model.name:
        message = f"{own.model.name} is another model than {first.model.name}; all pools serve one"
        yield document.fault(_stated_at(scenario, where, "model", document), message)
    if own.kv_cache != first.kv_cache:
        message = (
            f"caches of {own.kv_cache} in the {pool.role} pool do not fit those of "
            f"{first.kv_cache} where the request decodes"
        )
        yield document.fault(_stated_at(scenario, where, "kv_cache", document), message)


def _stated_at(scenario: Scenario, where: Path_, name: str, document: Document) -> Path_:
    """Return where a field of the target is stated in which a pool differs from the first one that
    decodes: in the pool, or in that one.
    """
    pools = scenario.serving.pools or ()
    first = next((place for place, pool in enumerate(pools) if pool.role != "prefill"), 0)
    field = (*where, "target", name)
    decoding = (*POOLS, first, "target", name)
    if document.get(field) is None and document.get(decoding) is not None:
        return decoding
    return field


def _wrong_strategy(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """Yield why a strategy cannot decode what another replica has read."""
    strategy = scenario.strategy
    needs = strategy.needs
    why = ""
    if strategy.traits.staged or needs.in_flight > 1 or isinstance(strategy, CarriesPrompts):
        why = "carries prompts through the stages that decode"
    elif drafts_first(strategy):
        why = "verifies its first window in the pass that reads the prompt"
    elif strategy.traits.alone:
        why = "takes one request at a time"
    if why:
        message = f"{strategy.name} {why}, so that prefill and decode cannot be apart"
        yield document.fault(("strategy",), message)


def _wrong_handover(scenario: Scenario, handover: Handover, document: Document) -> Iterator[Fault]:
    """Yield what contradicts itself in a handover, or the pools."""
    if handover.overlap == "by_layer":
        yield from _wrong_overlap(scenario, handover, document)
    if scenario.target is None and handover.token_bytes is None:
        message = "stated durations have no model whose caches could be counted; set token_bytes"
        yield document.fault((*HANDOVER, "token_bytes"), message)
    if scenario.strategy.window:
        yield from _wrong_draft_state(scenario, handover, document)


def _wrong_overlap(scenario: Scenario, handover: Handover, document: Document) -> Iterator[Fault]:
    """Yield why caches cannot leave layer by layer."""
    field = (*HANDOVER, "overlap")
    if handover.routing == "prefill_first":
        message = (
            "by_layer sends caches during the prefill, and prefill_first looks for a replica "
            "behind it; choose one of the two"
        )
        yield document.fault(field, message)
    if scenario.layers is None:
        message = "by_layer needs a target with layers, and durations state none"
        yield document.fault(field, message)


def _wrong_draft_state(
    scenario: Scenario, handover: Handover, document: Document
) -> Iterator[Fault]:
    """Yield why the draft cannot have what it is said to have of a prompt."""
    strategy = scenario.strategy
    state = (*HANDOVER, "draft_state")
    if handover.draft_state == "transferred" and needs_draft_cache(strategy):
        for place, pool in enumerate(scenario.serving.pools or ()):
            if pool.role == "prefill" and not pool.draft:
                message = (
                    "the draft's cache is transferred, and nobody fills it here; set draft=true, "
                    "or serving.handover.draft_state=recomputed"
                )
                yield document.fault((*POOLS, place, "draft"), message)
    if handover.draft_state == "absent" and not isinstance(strategy, StepsPlainly):
        message = f"{strategy.name} has no plain steps; choose transferred or recomputed"
        yield document.fault(state, message)
    if handover.draft_state == "recomputed" and scenario.shared_memory:
        message = (
            "the draft would read prompts beside steps of which nobody measured how they share a "
            "memory with it; choose transferred or absent"
        )
        yield document.fault(state, message)


def needs_draft_cache(strategy: Strategy) -> bool:
    """Return whether a draft has a cache of the prompt: a model, or a head with layers."""
    return bool(strategy.needs.draft_model or heads_of(strategy))


def check_pools(scenario: Scenario, document: Document) -> None:
    """Check that weights and caches fit the devices of each pool; raises as
    :func:`simulator.scenario.checks.check_memory` does, at the pool.
    """
    for place, (pool, own) in enumerate(pool_scenarios(scenario)):
        try:
            check_memory(own, document)
        except BadInput as error:
            raise error.changed(partial(_in_pool, pool, place, document)) from error


def _in_pool(pool: ReplicaPool, place: int, document: Document, fault: Fault) -> Fault:
    """Return a fault about a scenario of a pool at what the pool states itself."""
    parts = fault.field.split(".")
    if parts[0] == "target":
        field = (*POOLS, place, *parts)
    elif parts[:2] == ["serving", "policy"]:
        field = (*POOLS, place, *parts[1:])
    else:
        return fault
    message = fault.message.replace("; set target.", "; set its target.")
    return document.fault(field, f"in the {pool.role} pool, {message}")


def left_out_of_law(scenario: Scenario) -> str:
    """Return what the law of a replica's steps leaves out of those of pools, in words; empty where
    it leaves out nothing.
    """
    serving = scenario.serving
    handover = serving.handover
    decoding = [pool.target for pool in serving.pools or () if pool.role != "prefill"]
    if any(target != decoding[0] for target in decoding):
        return "pools decode on unlike devices, and the law is that of the first"
    if handover is None or not scenario.strategy.window:
        return ""
    if handover.draft_state == "recomputed" and needs_draft_cache(scenario.strategy):
        return "the draft reads prompts again between the steps"
    if handover.draft_state == "absent":
        return "steps behind a handover are plain ones until a window is written"
    return ""


def together(scenario: Scenario) -> Scenario | None:
    """Return the scenario in which the replicas of all pools read and decode, each for itself; None
    without pools of two roles, and where their devices are not alike.
    """
    serving = scenario.serving
    pools = serving.pools or ()
    if len({pool.role for pool in pools}) < 2 or any(
        pool.target != scenario.target for pool in pools
    ):
        return None
    changes = {"pools": None, "handover": None, "replicas": serving.copies}
    return scenario.replace(serving=serving.model_copy(update=changes))


# ---- what each pool is


def scenario_of(scenario: Scenario, pool: ReplicaPool) -> Scenario:
    """Return the scenario of one pool by itself, all of whose replicas do what its role says."""
    serving = scenario.serving
    changes: dict[str, Any] = {
        "policy": pool.policy or serving.policy,
        "replicas": pool.replicas,
        "pools": None,
        "handover": None,
    }
    if pool.role == "decode":
        # what is handed over is not shared
        changes["memory"] = serving.memory.model_copy(update={"prefix_caching": False})
    fields: dict[str, Any] = {"serving": serving.model_copy(update=changes)}
    if pool.target is not None:
        fields["target"] = pool.target
        fields["draft"] = _draft_beside(scenario, pool.target)
    if not pool.draft:
        fields["strategy"] = Autoregressive()
    own = scenario.replace(**fields)
    if pool.role == "prefill":
        own.__dict__["lengths"] = prompts_alone(scenario)
    return own


def _draft_beside(scenario: Scenario, target: Placement) -> Placement | None:
    """Return where the draft runs beside a pool's target: on its device, if it is on that of the
    scenario's target there.
    """
    draft = scenario.draft
    if draft is None or not scenario.one_lane:
        return draft
    return draft.model_copy(update={"device": target.device, "machine": target.machine})


def prompts_alone(scenario: Scenario) -> tuple[float, float, int]:
    """Return mean prompt tokens, an output of one token, and the tokens of the longest prompt with
    it.
    """
    longest = 0
    for block in scenario.requests.drawn_lengths(scenario.seed):
        longest = max(longest, int(np.max(block[0])))
    return scenario.lengths[0], 1, longest + 1


def pool_scenarios(scenario: Scenario) -> list[tuple[ReplicaPool, Scenario]]:
    """Return each pool with its scenario; nothing where there are none."""
    return [(pool, scenario_of(scenario, pool)) for pool in scenario.serving.pools or ()]


def pool_names(scenario: Scenario) -> list[str]:
    """Return what reports call each pool: its role, with a number where several have that."""
    roles = [pool.role for pool in scenario.serving.pools or ()]
    names = []
    for place, role in enumerate(roles):
        number = roles[: place + 1].count(role)
        names.append(role if roles.count(role) == 1 else f"{role} {number}")
    return names


def service_of(scenario: Scenario, acceptance: Acceptance) -> Service:
    """Return the service that a scenario describes, ready to run; of one pool, to replay too."""
    whole = scenario.service(acceptance)
    if scenario.serving.pools is None:
        return whole
    pools = []
    names = pool_names(scenario)
    for name, (pool, own) in zip(names, pool_scenarios(scenario), strict=True):
        service = own.service(acceptance)
        fields = {name: getattr(service, name) for name in service.__dataclass_fields__}
        # whoever decodes asks for acceptance, wherever its prompt was read
        fields |= {"exit": whole.exit}
        pools.append(ServicePool(name, pool.role, Service(**fields)))
    fields = {name: getattr(whole, name) for name in whole.__dataclass_fields__}
    handover = scenario.serving.handover
    if handover is None:
        return ApartService(**fields, pools=tuple(pools))
    plain = 0
    if handover.draft_state == "absent":
        plain = scenario.schedule.window
    luggage = luggage_of(scenario, handover)
    return ApartService(
        **fields, pools=tuple(pools), handover=handover, luggage=luggage, plain_tokens=plain
    )


def luggage_of(scenario: Scenario, handover: Handover) -> Luggage:
    """Return what a request takes along from the replica that reads it to the one that decodes."""
    strategy = scenario.schedule
    layers = scenario.layers or 1
    redraft_s = None
    if handover.draft_state == "recomputed" and needs_draft_cache(strategy):
        cost = scenario.cost

        def read_again(tokens: int) -> float:
            return redraft_seconds(strategy, cost, tokens)

        redraft_s = read_again
    on_target = not strategy.needs.draft_model

    def size_bytes(tokens: int) -> float:
        return handed_bytes(scenario, handover, tokens)

    return Luggage(size_bytes, layers, redraft_s, on_target)


def handed_bytes(scenario: Scenario, handover: Handover, tokens: int) -> float:
    """Return the bytes that go over with a request whose prompt has so many tokens."""
    if handover.token_bytes is not None:
        return handover.token_bytes * tokens
    if scenario.target is None:
        return 0.0
    strategy = scenario.schedule
    draft = scenario.draft if strategy.needs.draft_model else None
    return request_bytes(handover, strategy, scenario.target, draft, tokens)


def redraft_seconds(strategy: Strategy, cost: Cost, tokens: int) -> float:
    """Return the seconds in which the draft, model or heads, reads a prompt of so many tokens."""
    rows = Rows.prefill(tokens)
    seconds = [float(cost.head(head, rows).wall_s) for head in heads_of(strategy)]
    if strategy.needs.draft_model:
        seconds.append(float(cost.prefill("draft", rows).wall_s))
    return float(ordered_sum(seconds))
