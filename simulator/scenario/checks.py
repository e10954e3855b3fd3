"""Check that a scenario is possible: fields that belong together, and models that fit their
devices.
"""

from bisect import bisect
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from simulator.acceptance.header import share_tokenizer
from simulator.cost.degrees import working
from simulator.cost.model import ModelSpec
from simulator.cost.placement import Placement
from simulator.cost.rows import Rows
from simulator.files.schema import BadInput, Document, Fault, Infeasible, Path_, validate
from simulator.files.sentences import Sentences
from simulator.names import Catalogue, is_shipped
from simulator.scenario.as_served import cached_by_default
from simulator.scenario.fields import Scenario
from simulator.scenario.stated.means import impossible_means
from simulator.serving.policies import EngineDefault, FixedBatch
from simulator.serving.requests import HASHED_TOKENS
from simulator.strategies.common.capabilities import drafts_first
from simulator.strategies.common.traits import Facts

say = Sentences(Path(__file__).with_name("faults.yaml"))
"""What is said of every fault."""


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
    return scenario.replace(draft=None) if taken_over and draft != target else scenario


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
    yield from _wrong_target(scenario, document)
    target = scenario.target.model if scenario.target else None
    facts = Facts(
        target, scenario.layers, scenario.stages, stated=scenario.acceptance.trace is None
    )
    for field, message in strategy.findings(facts):
        yield document.fault(("strategy", *field.split(".")), message)
    sizes = [place.model.vocab_size for place in (scenario.target, scenario.draft) if place]
    if strategy.needs.draft_model and not share_tokenizer(*sizes):
        yield document.fault(
            ("draft", "model"), say("vocabularies", draft=sizes[1], target=sizes[0])
        )
    if scenario.durations:
        yield from _missing_durations(scenario, document)
    yield from impossible_means(scenario, document)


def _lacks_draft(
    scenario: Scenario, target: ModelSpec, document: Document, catalogue: Catalogue
) -> Fault:
    """Return the fault of a strategy without a draft: one that was not taken over, and which models
    could be one.
    """
    lost, size = document.get(("draft", "model", "name")), target.vocab_size
    models = dict[str, ModelSpec]()
    for name, path in catalogue.names("model").items():
        with suppress(BadInput):  # one that cannot be read is no draft either
            models[name] = validate(ModelSpec, catalogue.content("model", path))
    smaller = {name: model for name, model in models.items() if model.weights < target.weights / 2}
    fitting = [name for name, model in smaller.items() if share_tokenizer(model.vocab_size, size)]
    message = say("no_draft", strategy=scenario.strategy, lost=lost, fitting=fitting, size=size)
    return document.fault(("draft", "model") if lost else ("strategy",), message)


def _wrong_serving(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """Yield what is wrong with a policy that the strategy or the requests cannot be served
    under.
    """
    strategy, policy = scenario.strategy, scenario.serving.policy.name
    if isinstance(scenario.serving.policy, EngineDefault):
        yield document.fault(("serving", "policy"), say("no_engine"))
        return
    if strategy.traits.separate_prompts and policy not in ("fixed_batch", "prefill_first"):
        yield document.fault(("serving", "policy"), say("separate_prompts", strategy=strategy))
    if drafts_first(scenario.schedule) and policy != "fixed_batch":
        yield document.fault(("serving", "policy"), say("drafts_first", strategy=strategy))
    if scenario.requests.arrivals and scenario.serving.policy.max_requests is None:
        yield document.fault(("serving", "policy"), say("places_of_arrivals", policy=policy))
    elif scenario.serving.replicas > 1 and scenario.serving.policy.max_requests is None:
        yield document.fault(("serving", "policy"), say("places_of_replicas", policy=policy))
    elif strategy.traits.alone and scenario.batch > 1:
        arrivals = scenario.requests.arrivals
        message = say("alone", strategy=strategy, batch=scenario.batch, arrivals=arrivals)
        yield document.fault(("requests", "arrivals" if arrivals else "concurrency"), message)


def _wrong_prefix_caching(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """Yield why blocks of prompts cannot be kept for others."""
    memory, field = scenario.serving.memory, ("serving", "memory", "prefix_caching")
    if not memory.prefix_caching:
        stated_off, looks = memory.prefix_caching is False, scenario.serving.router == "most_cached"
        if looks and (stated_off or not cached_by_default(scenario)):
            yield document.fault(("serving", "router"), say("most_cached"))
        return
    if scenario.requests.traffic is None:
        yield document.fault(field, say("drawn_prompts"))
    if HASHED_TOKENS % memory.block_tokens:
        message = say("block_tokens", hashed=HASHED_TOKENS, block_tokens=memory.block_tokens)
        yield document.fault(("serving", "memory", "block_tokens"), message)
    if scenario.held_tokens:
        yield document.fault(field, say("held"))


def _wrong_target(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """Yield what is wrong with a target that the strategy cannot run on: its stages, its size, its
    memory.
    """
    strategy, stages = scenario.strategy, scenario.stages
    if strategy.traits.staged and not stages:
        yield document.fault(
            ("strategy",), say("stages", strategy=strategy, durations=scenario.durations)
        )
    if strategy.traits.staged and scenario.shared_memory:
        yield document.fault(("shared_memory",), say("shared_memory"))
    if stages and (scenario.exit or strategy.traits.splits_passes):
        yield document.fault(("strategy",), say("splits_on_stages", strategy=strategy))


def _missing_durations(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """Yield stated durations that the strategy cannot do with."""
    given, strategy = scenario.durations, scenario.strategy
    rows = (Rows.decode(1, 1), Rows.decode(1 + strategy.window, scenario.batch, scenario.batch))
    if given and not all(scenario.cost.target(pass_rows).wall_s for pass_rows in rows):
        yield document.fault(("durations",), say("no_time"))
    if (
        given
        and strategy.window
        and strategy.needs.draft_steps
        and given.draft_ms is None
        and given.draft_step_ms is None
    ):
        yield document.fault(("durations",), say("no_draft_time", strategy=strategy))
    if given and strategy.traits.splits_passes and given.target_ms is not None:
        yield document.fault(("durations", "target_ms"), say("splits_passes", strategy=strategy))


def check_memory(scenario: Scenario, document: Document) -> None:
    """Check that weights and KV caches fit their devices, and every request the model's context.

    The caches are those of the whole batch where it is fixed, else those of the longest request.
    Raises :class:`Infeasible`, and :class:`BadInput` for a context that is too short.
    """
    policy, strategy, longest = scenario.serving.policy, scenario.schedule, scenario.lengths[2]
    fixed = isinstance(policy, FixedBatch)
    places = scenario.batch if fixed and not scenario.requests.arrivals else 1
    rows = strategy.needs.cache_tokens
    for group in scenario.device_groups:
        needed, limit = group.needed_gb(longest + rows, places, rows), group.limit_gb
        if needed > limit:
            sizes = [
                group._replace(roles=(part,)).needed_gb(longest + rows, places, rows)
                for part in group.roles
            ]
            role, place, *_ = group.roles[sizes.index(max(sizes))]
            where, remedy = _remedy(role, place, max(sizes), limit - needed + max(sizes))
            fewer = bisect(
                range(1, places),
                limit,
                key=lambda count: group.needed_gb(longest + rows, count, rows),
            )
            facts = {
                "device": place.device,
                "limit": limit,
                "limited": group.utilisation < 1.0,
                "fewer": fewer,
            }
            message = say(
                "memory", parts=list(zip(group.roles, sizes, strict=True)), remedy=remedy, **facts
            )
            raise Infeasible([document.fault(where, message)])
    held = scenario.held_tokens(longest) if scenario.held_tokens else longest
    if fixed and scenario.kv_tokens is not None and places * held > scenario.kv_tokens:
        room = scenario.kv_tokens
        message = say("caches", places=places, longest=longest, room=room, fitting=room // held)
        raise Infeasible([document.fault(("requests", "concurrency"), message)])
    if refusal := policy.refusal(longest, strategy.needs.cache_tokens, scenario.memory()):
        raise Infeasible([_about_longest(scenario, document, refusal)])
    model = scenario.target.model if scenario.target else None
    if model and model.context_tokens is not None and longest > model.context_tokens:
        traffic, context = scenario.requests.traffic, model.context_tokens
        if traffic and all(line.tokens > context for line in scenario.requests.lines()):
            raise traffic.all_too_long(context, f"the context of {model.name}")
        facts = {"model": model.name, "context": context, "traffic": traffic}
        raise BadInput(
            [_about_longest(scenario, document, say("context", longest=longest, **facts))]
        )


def _about_longest(scenario: Scenario, document: Document, message: str) -> Fault:
    """Return a fault about the longest request, at its line where it was read from a file."""
    traffic, longest = scenario.requests.traffic, scenario.lengths[2]
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
    more = [ranks for ranks in working(place) if ranks > place.tensor_parallel]
    ranks = next((n for n in more if size_gb * place.tensor_parallel <= n * room_gb), None)
    link = "" if place.link else f" with a {role}.link"
    remedy = (
        f"set {role}.tensor_parallel={ranks}{link}"
        if ranks
        else "choose a smaller model or a smaller weight format"
    )
    return (role, "tensor_parallel"), remedy
