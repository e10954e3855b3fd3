"""Check that a scenario is possible: fields that belong together, and models that fit their
devices.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

from simulator.core.acceptance.tokenizers import share_tokenizer
from simulator.core.cost.degrees import working
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.placement import Placement
from simulator.core.cost.rows import Rows
from simulator.core.faults import BadInput, Fault, Infeasible, Path_
from simulator.core.serving.fields import Serving
from simulator.core.serving.fleet.scaling import Scaling
from simulator.core.serving.load.sessions import SessionFile
from simulator.core.serving.policies import EngineDefault
from simulator.core.strategies.common.capabilities import drafts_first
from simulator.core.strategies.common.traits import Facts
from simulator.inputs.catalogue import Catalogue, is_shipped
from simulator.inputs.document import Document
from simulator.inputs.schema import validate
from simulator.scenario.as_served import cached_by_default
from simulator.scenario.fields import DeviceGroup, Scenario
from simulator.scenario.stated.means import impossible_means


def with_fitting_draft(scenario: Scenario, document: Document) -> Scenario:
    """Return a scenario without a draft of another vocabulary that it took over; the document keeps
    where one would sit.
    """
    if not (scenario.target and scenario.draft):
        return scenario
    if share_tokenizer(scenario.target.model.vocab_size, scenario.draft.model.vocab_size):
        return scenario
    target, draft = (document.file((role, "model")) for role in ("target", "draft"))
    taken_over = (
        draft.endswith(".yaml")
        and not draft.startswith("--")
        and (draft != document.file(()) or is_shipped(draft))
    )
    if taken_over and draft != target:
        return scenario.replace(draft=None)
    return scenario


def faults_of(scenario: Scenario, document: Document, catalogue: Catalogue) -> Iterator[Fault]:
    """Yield fields that contradict each other, or that need another one, each at its place in the
    file.
    """
    strategy = scenario.strategy
    if (scenario.durations is None) == (scenario.target is None):
        yield document.fault((), "expected either target (a model on hardware) or durations")
    if (
        scenario.durations is None
        and scenario.target
        and strategy.needs.draft_model
        and scenario.draft is None
    ):
        yield _lacks_draft(scenario, scenario.target.model, document, catalogue)
    yield from _wrong_serving(scenario, document)
    yield from _wrong_prefix_caching(scenario, document)
    yield from _wrong_tiers(scenario, document)
    yield from _wrong_target(scenario, document)
    target = scenario.target.model if scenario.target else None
    facts = Facts(
        target, scenario.layers, scenario.stages, stated=scenario.acceptance.trace is None
    )
    for field, message in strategy.findings(facts):
        yield document.fault(("strategy", *field.split(".")), message)
    sizes = [place.model.vocab_size for place in (scenario.target, scenario.draft) if place]
    if strategy.needs.draft_model and not share_tokenizer(*sizes):
        target_size, draft_size = sizes
        message = (
            f"the draft's vocabulary of {draft_size:,} is not the target's of {target_size:,}; "
            "they must share a tokenizer"
        )
        yield document.fault(("draft", "model"), message)
    if scenario.durations:
        yield from _missing_durations(scenario, document)
    yield from impossible_means(scenario, document)


def _lacks_draft(
    scenario: Scenario, target: ModelSpec, document: Document, catalogue: Catalogue
) -> Fault:
    """Return the fault of a strategy without a draft: one that was not taken over, and which models
    could be one.
    """
    lost = document.get(("draft", "model", "name"))
    size = target.vocab_size
    models = dict[str, ModelSpec]()
    for name, path in catalogue.names("model").items():
        with suppress(BadInput):  # one that cannot be read is no draft either
            models[name] = validate(ModelSpec, catalogue.content("model", path))
    smaller = {name: model for name, model in models.items() if model.weights < target.weights / 2}
    fitting = [name for name, model in smaller.items() if share_tokenizer(model.vocab_size, size)]
    field: Path_ = ("strategy",)
    why = "the scenario has none"
    if lost:
        field = ("draft", "model")
        why = f"{lost} has another vocabulary"
    message = f"{scenario.strategy.name} needs a draft, and {why}"
    if fitting:
        message += f"; models with the target's vocabulary of {size:,}: {', '.join(fitting)}"
    return document.fault(field, message)


def _wrong_serving(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """Yield what is wrong with a policy that the strategy or the requests cannot be served
    under.
    """
    strategy = scenario.strategy
    policy = scenario.serving.policy.name
    field = ("serving", "policy")
    if isinstance(scenario.serving.policy, EngineDefault):
        message = (
            "engine is what the engine of a target does, and stated durations have none; choose "
            "another policy, as prefill_first"
        )
        yield document.fault(field, message)
        return
    if strategy.traits.separate_prompts and policy not in ("fixed_batch", "prefill_first"):
        message = (
            f"{strategy.name} takes prompts in passes of their own; choose fixed_batch or "
            "prefill_first"
        )
        yield document.fault(field, message)
    if drafts_first(scenario.schedule) and policy != "fixed_batch":
        message = (
            f"{strategy.name} with drafts_first verifies a window in a prompt's pass; choose "
            "fixed_batch"
        )
        yield document.fault(field, message)
    yield from _wrong_places(scenario, document)
    yield from _wrong_admission(scenario, document)
    yield from _wrong_scaling(scenario, document)
    refusal = scenario.serving.router.refusal(scenario.serving.replicas)
    if refusal:
        yield document.fault(("serving", "router"), refusal)


def _wrong_places(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """Yield that nobody says how many requests run at a time, or that the strategy takes fewer."""
    policy = scenario.serving.policy
    arrivals = scenario.requests.arrivals
    if scenario.serving.pools:
        return
    if arrivals and policy.max_requests is None:
        message = (
            f"{policy.name} needs max_requests where requests arrive: there are no clients to "
            "count as places; set it, or choose another policy, as in serving: {policy: {name: "
            "prefill_first}}"
        )
        yield document.fault(("serving", "policy"), message)
    elif scenario.serving.copies > 1 and policy.max_requests is None:
        message = (
            f"{policy.name} needs max_requests where a router deals requests out: the clients of a "
            "replica change"
        )
        yield document.fault(("serving", "policy"), message)
    elif scenario.strategy.traits.alone and scenario.batch > 1:
        message = f"{scenario.strategy.name} takes one request at a time, got {scenario.batch}"
        if arrivals:
            message += "; set serving.policy.max_requests=1"
        yield document.fault(("requests", "arrivals" if arrivals else "concurrency"), message)


def _wrong_admission(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """Yield why nobody can be turned away, or go before others."""
    classes = scenario.requests.classes or {}
    if scenario.serving.memory.tiers and any(given.priority for given in classes.values()):
        message = "loads blocks in order of arrival; leave the priorities of requests.classes out"
        yield document.fault(("serving", "memory", "tiers"), message)
    if scenario.serving.admission is None:
        return
    field = ("serving", "admission")
    requests = scenario.requests
    if requests.arrivals is None or requests.sessions is not None:
        message = (
            "is for requests that come by themselves: a client of a closed loop would send its "
            "next one at once, and a session would go on without an answer; set requests.arrivals"
        )
        yield document.fault(field, message)
    if scenario.serving.pools:
        message = "is for replicas that do both, prefill and decode; leave pools out"
        yield document.fault(field, message)


def _wrong_scaling(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """Yield why the number of replicas cannot follow the load."""
    serving = scenario.serving
    scaling = serving.scaling
    if scaling is None:
        return
    field = ("serving", "scaling")
    if serving.pools:
        message = (
            "is for replicas that do both, prefill and decode, and pools say how many each has; "
            "leave serving.pools out, or serving.scaling"
        )
        yield document.fault(field, message)
        return
    yield from _wrong_first_replicas(serving, scaling, document)
    if not scenario.requests.varies:
        message = (
            "is for load that changes, and a closed loop has all its clients at any time; set "
            "requests.arrivals"
        )
        yield document.fault(field, message)
    yield from _wrong_start_of_replicas(scenario, scaling, document)
    yield from _wrong_measure_of_load(scenario, scaling, document)


def _wrong_first_replicas(
    serving: Serving, scaling: Scaling, document: Document
) -> Iterator[Fault]:
    """Yield why a run cannot begin with the replicas that are stated and add to them."""
    if not scaling.least <= serving.replicas <= scaling.most:
        nearest = min(max(serving.replicas, scaling.least), scaling.most)
        message = (
            f"{serving.replicas:,} at the beginning, and serving.scaling has {scaling.least:,} to "
            f"{scaling.most:,}; set serving.replicas={nearest}"
        )
        yield document.fault(("serving", "replicas"), message)
    elif len(serving.router.pools(serving.replicas)) > 1:
        message = f"{serving.router.name} divides the replicas it has; choose another router"
        yield document.fault(("serving", "router"), message)


def _wrong_start_of_replicas(
    scenario: Scenario, scaling: Scaling, document: Document
) -> Iterator[Fault]:
    """Yield why nobody knows for how long a new replica starts."""
    if scaling.start_s is not None:
        return
    field = ("serving", "scaling")
    if scaling.link is None:
        message = "is where weights of a new replica come from; set start_s, or {link: NAME}"
        yield document.fault((*field, "link"), message)
    elif scenario.target is None:
        message = "stated durations have no weights that could be counted; set start_s"
        yield document.fault((*field, "start_s"), message)


def _wrong_measure_of_load(
    scenario: Scenario, scaling: Scaling, document: Document
) -> Iterator[Fault]:
    """Yield why a scenario lacks what its replicas are counted by."""
    if scaling.by == "kv_use" and scenario.kv_tokens is None:
        message = "nothing limits the KV cache, so that no share of it is in use; set kv_tokens"
        yield document.fault(("serving", "memory", "kv_tokens"), message)
    classes = (scenario.requests.classes or {}).values()
    if scaling.by == "slo" and not (scenario.slo or any(given.slo for given in classes)):
        message = "nobody was promised anything; set slo, as slo={ttft_ms: {p99: 500}}"
        yield document.fault(("serving", "scaling", "by"), message)


def _wrong_prefix_caching(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """Yield why blocks of prompts cannot be kept for others."""
    memory, field = scenario.serving.memory, ("serving", "memory", "prefix_caching")
    if not memory.prefix_caching:
        stated_off = memory.prefix_caching is False
        looks = scenario.serving.router.looks_into_caches
        if looks and (stated_off or not cached_by_default(scenario)):
            message = "looks into caches; set serving.memory.prefix_caching=true"
            yield document.fault(("serving", "router"), message)
        return
    if scenario.requests.traffic is None and scenario.requests.sessions is None:
        message = (
            "nobody knows what drawn prompts have in common; take sessions, or traffic with "
            "hash_ids (format: mooncake)"
        )
        yield document.fault(field, message)


def _wrong_tiers(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """Yield why blocks of prompts cannot be kept in lower tiers of memory."""
    memory, field = scenario.serving.memory, ("serving", "memory", "tiers")
    if not memory.tiers:
        return
    off = memory.prefix_caching is False
    if off or (memory.prefix_caching is None and not cached_by_default(scenario)):
        message = "keep what a prefix cache lets go; set serving.memory.prefix_caching=true"
        yield document.fault(field, message)
    if scenario.target is None and memory.token_bytes is None:
        message = "stated durations do not say how large a token is; set serving.memory.token_bytes"
        yield document.fault(field, message)
    places = (scenario.target, scenario.draft)
    if any(place and place.model.state_bytes for place in places):
        message = "keep blocks of keys and values, and some layers of this model keep a state"
        yield document.fault(field, message)


def _wrong_target(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """Yield what is wrong with a target that the strategy cannot run on: its stages, its size, its
    memory.
    """
    strategy = scenario.strategy
    stages = scenario.stages
    if scenario.target and scenario.target.lm_head_rows:
        message = (
            "a target needs all of its logits; set draft.lm_head_rows, or vocabulary of a head"
        )
        yield document.fault(("target", "lm_head_rows"), message)
    if scenario.draft and scenario.draft.offload:
        message = "a draft lies on one device; set draft.device, or target.offload"
        yield document.fault(("draft", "offload"), message)
    if strategy.traits.staged and not stages:
        wanted = "durations.stages_ms" if scenario.durations else "target.pipeline"
        message = f"{strategy.name} runs on the stages of a pipeline; set {wanted}"
        yield document.fault(("strategy",), message)
    if strategy.traits.staged and scenario.shared_memory:
        message = (
            "slows a target and a draft that work side by side; stages have memories of their own"
        )
        yield document.fault(("shared_memory",), message)
    if stages and (scenario.exit or strategy.traits.splits_passes):
        message = f"{strategy.name} stops within a pass, which a pipeline cannot do"
        yield document.fault(("strategy",), message)


def _missing_durations(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """Yield stated durations that the strategy cannot do with."""
    given = scenario.durations
    strategy = scenario.strategy
    if given is None:
        return
    rows = (Rows.decode(1, 1), Rows.decode(1 + strategy.window, scenario.batch, scenario.batch))
    if not all(scenario.cost.target(pass_rows).wall_s for pass_rows in rows):
        message = "the target's passes take no time, so no speed can be told; state more than 0 ms"
        yield document.fault(("durations",), message)
    no_draft_time = given.draft_ms is None and given.draft_step_ms is None
    if no_draft_time and strategy.window and strategy.needs.draft_steps:
        message = f"{strategy.name} needs draft_ms (a window) or draft_step_ms"
        yield document.fault(("durations",), message)
    if strategy.traits.splits_passes and given.target_ms is not None:
        message = (
            f"{strategy.name} stops within a pass; state prefix_ms and suffix_ms, or layers_ms"
        )
        yield document.fault(("durations", "target_ms"), message)


def check_memory(scenario: Scenario, document: Document) -> None:
    """Check that weights and the caches of the longest request fit their devices, and every request
    the model's context. Further requests wait for room.

    Raises :class:`Infeasible`, and :class:`BadInput` for a context that is too short.
    """
    policy = scenario.serving.policy
    longest = scenario.lengths[2]
    for group in scenario.device_groups:
        _check_device(group, scenario, document)
    refusal = policy.refusal(longest, scenario.schedule.needs.cache_tokens, scenario.memory())
    if refusal:
        raise Infeasible([_about_longest(scenario, document, refusal)])
    _check_context(scenario, document)


def _check_device(group: DeviceGroup, scenario: Scenario, document: Document) -> None:
    """Raise :class:`Infeasible` where what shares a device does not fit it, with what would."""
    rows = scenario.schedule.needs.cache_tokens
    tokens = scenario.lengths[2] + rows
    needed = group.needed_gb(tokens, rows=rows)
    limit = group.limit_gb
    if needed <= limit:
        return
    sizes = [group._replace(roles=(part,)).needed_gb(tokens, rows=rows) for part in group.roles]
    largest = max(sizes)
    role, place, *_ = group.roles[sizes.index(largest)]
    where, remedy = _remedy(role, place, largest, limit - needed + largest)
    parts = [
        f"{part.role} {part.place.model.name} {size:.1f} GB"
        for part, size in zip(group.roles, sizes, strict=True)
    ]
    device = place.device
    message = f"{' + '.join(parts)} does not fit {device.name} with {device.memory_gb.value:g} GB"
    if group.utilisation < 1.0:
        message += f", of which {limit:g} may be used"
    message += f"; {remedy}"
    raise Infeasible([document.fault(where, message)])


def _check_context(scenario: Scenario, document: Document) -> None:
    """Raise :class:`BadInput` where the longest request is longer than the model's context."""
    longest = scenario.lengths[2]
    model = scenario.target.model if scenario.target else None
    if model is None or model.context_tokens is None or longest <= model.context_tokens:
        return
    traffic = scenario.requests.traffic
    context = model.context_tokens
    if traffic and all(line.tokens > context for line in scenario.requests.lines()):
        raise traffic.all_too_long(context, f"the context of {model.name}")
    message = (
        f"a request of {longest:,} tokens is too long: {model.name} has a context of {context:,} "
        "tokens"
    )
    if traffic:
        message += f"; requests.arrivals.drop_above_tokens={context} leaves such requests out"
    if scenario.requests.sessions:
        message += f"; requests.sessions.context_tokens={context} ends sessions before that"
    raise BadInput([_about_longest(scenario, document, message)])


def _about_longest(scenario: Scenario, document: Document, message: str) -> Fault:
    """Return a fault about the longest request, at its line where it was read from a file."""
    traffic = scenario.requests.traffic
    longest = scenario.lengths[2]
    sessions = scenario.requests.sessions
    if isinstance(sessions, SessionFile):
        turns = chain.from_iterable(scenario.requests.turns(scenario.seed))
        turn = next(turn for turn in turns if turn.tokens == longest)
        return Fault((sessions.file, turn.line, 1), "", message)
    if traffic is None:
        return document.fault(("requests",), message)
    line = next(line for line in scenario.requests.lines() if line.tokens == longest)
    return Fault((traffic.file, line.number, 1), "", message)


def _remedy(role: str, place: Placement, size_gb: float, room_gb: float) -> tuple[Path_, str]:
    """Return where to change a scenario, and how, when a role does not fit the room that the others
    of its group leave.
    """
    if role.startswith("stage"):
        return (
            "target",
            "pipeline",
            "stages",
            int(role.split()[1]) - 1,
        ), "give it fewer layers or another device"
    if role.startswith("offload"):
        name = role.removeprefix("offload ")
        return (
            ("target", "offload", name),
            "offload fewer layers to it, or choose another device",
        )
    if place.offload:
        return (role, "offload"), "offload more layers, or the experts of more layers"
    more = [ranks for ranks in working(place) if ranks > place.tensor_parallel]
    ranks = next((n for n in more if size_gb * place.tensor_parallel <= n * room_gb), None)
    link = "" if place.link else f" with a {role}.link"
    if ranks:
        remedy = f"set {role}.tensor_parallel={ranks}{link}"
    else:
        remedy = "choose a smaller model or a smaller weight format"
    return (role, "tensor_parallel"), remedy
