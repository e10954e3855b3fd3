"""Check that a scenario is possible: fields that belong together, and models that fit their devices."""

from bisect import bisect
from collections.abc import Iterator
from contextlib import suppress

from simulator.cost.model import ModelSpec
from simulator.cost.placement import Placement
from simulator.cost.rows import Rows
from simulator.files.schema import BadInput, Document, Fault, Infeasible, Path_, validate
from simulator.names import Catalogue, is_shipped
from simulator.scenario.fields import Scenario
from simulator.serving.policies import FixedBatch
from simulator.serving.requests import HASHED_TOKENS
from simulator.strategies.common.capabilities import drafts_first
from simulator.strategies.common.traits import Facts


def with_fitting_draft(scenario: Scenario, document: Document) -> Scenario:
    """Return a scenario without a draft of another vocabulary that it took over; the document keeps where one would sit."""
    if not (scenario.target and scenario.draft) or scenario.target.model.vocab_size == scenario.draft.model.vocab_size:
        return scenario
    target, draft = (document.file((role, "model")) for role in ("target", "draft"))
    taken_over = draft.endswith(".yaml") and not draft.startswith("--") and (draft != document.file(()) or is_shipped(draft))
    return scenario.replace(draft=None) if taken_over and draft != target else scenario


def faults_of(scenario: Scenario, document: Document, catalogue: Catalogue) -> Iterator[Fault]:
    """Yield fields that contradict each other, or that need another one, each at its place in the file."""
    strategy = scenario.strategy
    if (scenario.durations is None) == (scenario.target is None):
        yield document.fault((), "expected either target (a model on hardware) or durations")
    if scenario.durations is None and scenario.target and strategy.needs.draft_model and scenario.draft is None:
        yield _lacks_draft(scenario, scenario.target.model, document, catalogue)
    yield from _wrong_serving(scenario, document)
    yield from _wrong_prefix_caching(scenario, document)
    yield from _wrong_target(scenario, document)
    target = scenario.target.model if scenario.target else None
    facts = Facts(target, scenario.layers, scenario.stages, stated=scenario.acceptance.trace is None)
    for field, message in strategy.findings(facts):
        yield document.fault(("strategy", *field.split(".")), message)
    sizes = [place.model.vocab_size for place in (scenario.target, scenario.draft) if place]
    if strategy.needs.draft_model and len(set(sizes)) > 1:
        message = f"the draft's vocabulary of {sizes[1]:,} is not the target's of {sizes[0]:,}; they must share a tokenizer"
        yield document.fault(("draft", "model"), message)
    if scenario.durations:
        yield from _missing_durations(scenario, document)


def _lacks_draft(scenario: Scenario, target: ModelSpec, document: Document, catalogue: Catalogue) -> Fault:
    """Return the fault of a strategy without a draft: one that was not taken over, and which models could be one."""
    lost, size = document.get(("draft", "model", "name")), target.vocab_size
    models = dict[str, ModelSpec]()
    for name, path in catalogue.names("model").items():
        with suppress(BadInput):  # one that cannot be read is no draft either
            models[name] = validate(ModelSpec, catalogue.content("model", path))
    fitting = [name for name, model in models.items() if model.vocab_size == size and model.weights < target.weights / 2]
    why = f"needs a draft, and {f'{lost} has another vocabulary' if lost else 'the scenario has none'}"
    drafts = f"; of the target's {size:,} tokens are {', '.join(fitting)}" if fitting else ""
    return document.fault(("draft", "model") if lost else ("strategy",), f"{scenario.strategy.name} {why}{drafts}")


def _wrong_serving(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """Yield what is wrong with a policy that the strategy or the requests cannot be served under."""
    strategy, policy = scenario.strategy, scenario.serving.policy.name
    if strategy.traits.separate_prompts and policy not in ("fixed_batch", "prefill_first"):
        message = f"{strategy.name} takes prompts in passes of their own; choose fixed_batch or prefill_first"
        yield document.fault(("serving", "policy"), message)
    if drafts_first(scenario.schedule) and policy != "fixed_batch":
        message = f"{strategy.name} with drafts_first verifies a window in a prompt's pass; choose fixed_batch"
        yield document.fault(("serving", "policy"), message)
    if scenario.requests.arrivals and scenario.serving.policy.max_requests is None:
        message = (
            f"{policy} needs max_requests where requests arrive: there are no clients to count as places; "
            "set it, or choose another policy, as in serving: {policy: {name: prefill_first}}"
        )
        yield document.fault(("serving", "policy"), message)
    elif scenario.serving.replicas > 1 and scenario.serving.policy.max_requests is None:
        message = f"{policy} needs max_requests where a router deals requests out: the clients of a replica change"
        yield document.fault(("serving", "policy"), message)
    elif strategy.traits.alone and scenario.batch > 1:
        message = f"{strategy.name} takes one request at a time, got {scenario.batch}"
        remedy = "; set serving.policy.max_requests=1" if scenario.requests.arrivals else ""
        yield document.fault(("requests", "arrivals" if scenario.requests.arrivals else "concurrency"), message + remedy)


def _wrong_prefix_caching(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """Yield why blocks of prompts cannot be kept for others."""
    memory, field = scenario.serving.memory, ("serving", "memory", "prefix_caching")
    if not memory.prefix_caching:
        if scenario.serving.router == "most_cached":
            yield document.fault(("serving", "router"), "looks into caches; set serving.memory.prefix_caching=true")
        return
    if scenario.requests.traffic is None:
        yield document.fault(
            field, "nobody knows what drawn prompts have in common; take traffic with hash_ids (format: mooncake)"
        )
    if HASHED_TOKENS % memory.block_tokens:
        message = f"expected a divisor of the {HASHED_TOKENS} tokens that a hash stands for, got {memory.block_tokens}"
        yield document.fault(("serving", "memory", "block_tokens"), message)
    if scenario.held_tokens:
        yield document.fault(field, "a window or a state of a layer is no sum over blocks, so that blocks cannot be shared")


def _wrong_target(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """Yield what is wrong with a target that the strategy cannot run on: its stages, its size, its memory."""
    strategy, stages = scenario.strategy, scenario.stages
    if strategy.traits.staged and not stages:
        missing = "durations.stages_ms" if scenario.durations else "target.pipeline"
        yield document.fault(("strategy",), f"{strategy.name} runs on the stages of a pipeline; set {missing}")
    if strategy.traits.staged and scenario.shared_memory:
        yield document.fault(
            ("shared_memory",), "slows a target and a draft that work side by side; stages have memories of their own"
        )
    if stages and (scenario.exit or strategy.traits.splits_passes):
        yield document.fault(("strategy",), f"{strategy.name} stops within a pass, which a pipeline cannot do")


def _missing_durations(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """Yield stated durations that the strategy cannot do with."""
    given, strategy = scenario.durations, scenario.strategy
    rows = (Rows.decode(1, 1), Rows.decode(1 + strategy.window, scenario.batch, scenario.batch))
    if given and not all(scenario.cost.target(pass_rows).wall_s for pass_rows in rows):
        yield document.fault(("durations",), "the target's passes take no time, so no speed can be told; state more than 0 ms")
    if given and strategy.window and strategy.needs.draft_steps and given.draft_ms is None and given.draft_step_ms is None:
        yield document.fault(("durations",), f"{strategy.name} needs draft_ms (a window) or draft_step_ms")
    if given and strategy.traits.splits_passes and given.target_ms is not None:
        message = f"{strategy.name} stops within a pass; state prefix_ms and suffix_ms, or layers_ms"
        yield document.fault(("durations", "target_ms"), message)


def check_memory(scenario: Scenario, document: Document) -> None:
    """Check that weights and KV caches fit their devices, and every request the model's context.

    The caches are those of the whole batch where it is fixed, else those of the longest request. Raises
    :class:`Infeasible`, and :class:`BadInput` for a context that is too short.
    """
    policy, strategy, longest = scenario.serving.policy, scenario.schedule, scenario.lengths[2]
    fixed = isinstance(policy, FixedBatch)
    places = scenario.batch if fixed and not scenario.requests.arrivals else 1
    rows = strategy.needs.cache_tokens
    for group in scenario.device_groups:
        needed, limit = group.needed_gb(longest + rows, places, rows), group.limit_gb
        if needed > limit:
            sizes = [group._replace(roles=(part,)).needed_gb(longest + rows, places, rows) for part in group.roles]
            role, place, *_ = group.roles[sizes.index(max(sizes))]
            where, remedy = _remedy(role, place, max(sizes), limit - needed + max(sizes))
            fewer = bisect(range(1, places), limit, key=lambda count: group.needed_gb(longest + rows, count, rows))
            remedy += f", or take at most {fewer:,} requests at a time" if fewer else ""
            parts = " + ".join(
                f"{part.role} {part.place.model.name} {size:.1f} GB" for part, size in zip(group.roles, sizes, strict=True)
            )
            whole = place.device.memory_gb.value
            room = f"{whole:g} GB, of which {limit:g} may be used" if group.utilisation < 1.0 else f"{whole:g} GB"
            raise Infeasible([document.fault(where, f"{parts} does not fit {place.device.name} with {room}; {remedy}")])
    held = scenario.held_tokens(longest) if scenario.held_tokens else longest
    if fixed and scenario.kv_tokens is not None and places * held > scenario.kv_tokens:
        message = f"{places} x {longest:,} tokens do not fit a KV cache of {scenario.kv_tokens:,} tokens; "
        fitting = scenario.kv_tokens // held
        message += f"{fitting:,} at a time fit" if fitting else f"requests of up to {scenario.kv_tokens:,} fit, one at a time"
        raise Infeasible([document.fault(("requests", "concurrency"), message)])
    if refusal := policy.refusal(longest, strategy.needs.cache_tokens, scenario.memory()):
        raise Infeasible([_about_longest(scenario, document, refusal)])
    context = scenario.target.model.context_tokens if scenario.target else None
    if context is not None and longest > context:
        message = f"{scenario.target.model.name} has a context of {context:,} tokens" if scenario.target else ""
        hint = f"; requests.arrivals.drop_above_tokens={context} leaves such requests out" if scenario.requests.traffic else ""
        raise BadInput([_about_longest(scenario, document, f"a request of {longest:,} tokens is too long: {message}{hint}")])


def _about_longest(scenario: Scenario, document: Document, message: str) -> Fault:
    """Return a fault about the longest request, at its line where it was read from a file."""
    traffic, longest = scenario.requests.traffic, scenario.lengths[2]
    if traffic is None:
        return document.fault(("requests",), message)
    line = next(line for line in scenario.requests.lines() if line.tokens == longest)
    return Fault((traffic.file, line.number, 1), "", message)


def _remedy(role: str, place: Placement, size_gb: float, room_gb: float) -> tuple[Path_, str]:
    """Return where to change a scenario, and how, when a role does not fit the room that the others of its group leave."""
    if role.startswith("stage"):
        return ("target", "pipeline", "stages", int(role.split()[1]) - 1), "give it fewer layers or another device"
    more = [n for n in (2, 4, 8, 16, 32) if n > place.tensor_parallel]
    ranks = next((n for n in more if size_gb * place.tensor_parallel <= n * room_gb), None)
    link = "" if place.link else f" with a {role}.link"
    remedy = f"set {role}.tensor_parallel={ranks}{link}" if ranks else "choose a smaller model or a smaller weight format"
    return (role, "tensor_parallel"), remedy
