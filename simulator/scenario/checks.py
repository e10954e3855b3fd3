"""Check that a scenario is possible: fields that belong together, and models that fit their devices."""

from bisect import bisect
from collections.abc import Iterator

from simulator.cost.placement import Placement
from simulator.cost.rows import Rows
from simulator.files.schema import BadInput, Document, Fault, Infeasible, Path_
from simulator.scenario.fields import Scenario
from simulator.serving.policies import FixedBatch
from simulator.strategies.common.capabilities import drafts_first
from simulator.strategies.common.traits import Facts


def faults_of(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """Yield fields that contradict each other, or that need another one, each at its place in the file."""
    strategy = scenario.strategy
    if (scenario.durations is None) == (scenario.target is None):
        yield document.fault((), "expected either target (a model on hardware) or durations")
    if scenario.durations is None and scenario.target and strategy.needs.draft_model and scenario.draft is None:
        yield document.fault(("strategy",), f"{strategy.name} needs a draft, and the scenario has none")
    yield from _wrong_serving(scenario, document)
    yield from _wrong_target(scenario, document)
    target = scenario.target.model if scenario.target else None
    facts = Facts(target, scenario.layers, scenario.stages, stated=scenario.acceptance.trace is None)
    for field, message in strategy.findings(facts):
        yield document.fault(("strategy", *field.split(".")), message)
    if scenario.target and scenario.draft and strategy.needs.draft_model:
        sizes = scenario.target.model.vocab_size, scenario.draft.model.vocab_size
        if sizes[0] != sizes[1]:
            message = f"the draft's vocabulary of {sizes[1]:,} is not the target's of {sizes[0]:,}; they must share a tokenizer"
            yield document.fault(("draft", "model"), message)
    if scenario.durations:
        yield from _missing_durations(scenario, document)


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
            message = f"{parts} does not fit {place.device.name} with {room}; {remedy}"
            raise Infeasible([document.fault(where, message)])
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
        remedy = (
            f"; requests.arrivals.drop_above_tokens={context} leaves such requests out" if scenario.requests.traffic else ""
        )
        raise BadInput([_about_longest(scenario, document, f"a request of {longest:,} tokens is too long: {message}{remedy}")])


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
