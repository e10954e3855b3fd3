"""Scenario: one what-if, read from YAML, checked, frozen.

It names a strategy, the models and the hardware they run on (or durations outright), where acceptance
comes from, and the requests. ``load`` resolves every name, applies overrides and reports all faults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Union

from pydantic import Field, SerializeAsAny, ValidatorFunctionWrapHandler, WrapValidator, model_validator

from simulator.acceptance import Acceptance, Exit
from simulator.acceptance_spec import AcceptanceSpec, Rescale
from simulator.added import added
from simulator.catalogue import Catalogue, shown
from simulator.cost import Cost, HardwareCost, Placement
from simulator.given import Given, GivenCost
from simulator.hardware import Link
from simulator.method import Method
from simulator.rescale import rescaled
from simulator.schema import BadInput, Document, Fault, Frozen, Infeasible, Path_, Sourced, did_you_mean, validate
from simulator.serving.memory import Blocks
from simulator.serving.policies import FixedBatch, Serving
from simulator.serving.requests import Requests
from simulator.serving.slo import Slo
from simulator.strategies import Strategy, strategies
from simulator.strategies.protocol import UNLIMITED, ChainStrategy
from simulator.traces import Trace
from simulator.traces import read_once as read_trace


def _made_already(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """A strategy as it is, also one that no file can name; anything else is read."""
    return value if isinstance(value, Strategy) else read(value)


if TYPE_CHECKING:
    AnyStrategy = Strategy
else:
    _Known = Annotated[Union[tuple(strategies().values())], Field(discriminator="name")]  # noqa: UP007
    AnyStrategy = Annotated[SerializeAsAny[_Known], WrapValidator(_made_already)]


class SharedMemory(Frozen):
    """Target and draft use one memory: each is ``slowdown`` times slower while both are busy."""

    slowdown: Sourced
    """How many times longer each takes while both are busy; 1 or more."""

    @model_validator(mode="after")
    def _slows(self) -> SharedMemory:
        if self.slowdown.value < 1.0:
            raise ValueError(f"slowdown: expected 1 or more, got {self.slowdown.value:g}")
        return self


class Held(NamedTuple):
    """A role on its devices and the size of its weights on each, in 1e9 bytes."""

    role: str
    place: Placement
    weights_gb: float


class DeviceGroup(NamedTuple):
    """Roles in one memory, of which ``utilisation`` may be used."""

    roles: tuple[Held, ...]
    utilisation: float

    @property
    def limit_gb(self) -> float:
        """What weights and caches may take."""
        return self.utilisation * min(place.device.memory_gb.value for _, place, _ in self.roles)

    def needed_gb(self, tokens: int) -> float:
        """Weights and the caches of ``tokens``."""
        return added(weights + place.kv_gb(tokens) for _, place, weights in self.roles)

    @property
    def room_tokens(self) -> int:
        """Tokens whose caches fit beside the weights; 0 if those do not fit."""
        left = self.limit_gb - added(weights for _, _, weights in self.roles)
        return max(0, int(left / added(place.kv_gb(1) for _, place, _ in self.roles)))


class Scenario(Frozen):
    """Everything that a run needs to know."""

    name: str = Field(pattern=r"^[\w.-]*\w[\w.-]*$")
    """What reports call it; the file's name where none is stated."""
    about: str = ""
    """What it is for, in a sentence."""
    strategy: AnyStrategy
    """How tokens are drafted and verified; a name alone takes every default."""
    method: Method | None = None
    """The published system that the strategy runs; its file states the strategy."""
    target: Placement | None = None
    """The model whose tokens come out, and where it runs; left out where ``durations`` state all times."""
    draft: Placement | None = None
    """The model that drafts, and where it runs; for strategies that need one."""
    channel: Link | None = None
    """The link between target and draft, where they sit on different devices."""
    shared_memory: SharedMemory | None = None
    """How much target and draft slow each other down, where they use one memory."""
    durations: Given | None = None
    """Times stated outright, instead of models and hardware."""
    acceptance: AcceptanceSpec
    """Which draft tokens the target keeps."""
    requests: Requests = Requests()
    """What is asked for, and when."""
    serving: Serving = Serving()
    """How requests are batched, where their caches live, how many replicas there are."""
    slo: Slo | None = None
    """What users were promised; runs then count goodput."""
    seed: int = Field(default=0, ge=0)
    """Of everything that is drawn by chance."""

    @property
    def method_name(self) -> str:
        """What decodes: a method by its name, or a strategy."""
        return self.method.name if self.method else self.strategy.name

    @property
    def layers(self) -> int | None:
        """Layers of the target, None where durations are given that do not tell."""
        if self.durations and self.durations.layers_ms:
            return len(self.durations.layers_ms)
        return self.target.model.num_hidden_layers if self.target else None

    @property
    def stages(self) -> int:
        """Stages of the target's pipeline; 0 without one."""
        if self.durations:
            return len(self.durations.stages_ms or ())
        return len(self.target.pipeline.stages) if self.target and self.target.pipeline else 0

    @property
    def batch(self) -> int:
        """Requests that decode together when nothing holds them up: what the law is taken at, and the strategy is set for.

        In one replica; of an open workload, all places there are.
        """
        places = self.serving.policy.max_requests or UNLIMITED
        return places if self.requests.arrivals else min(-(-self.requests.concurrency // self.serving.replicas), places)

    @cached_property
    def schedule(self) -> Strategy:
        """The strategy as it is set for this many requests at a time."""
        return self.strategy.for_batch(self.batch).on_stages(self.stages)

    @cached_property
    def exit(self) -> Exit | None:
        """The early exit that acceptance must know about."""
        return self.schedule.exit(self.layers)

    @property
    def contention(self) -> float:
        """Slowdown of target and draft while both are busy."""
        return self.shared_memory.slowdown.value if self.shared_memory else 1.0

    @property
    def one_lane(self) -> bool:
        """Target and draft sit on the same device of the same machine."""
        if not (self.target and self.draft and self.target.machine):
            return False
        return (self.target.machine, self.target.device.name) == (self.draft.machine, self.draft.device.name)

    @cached_property
    def cost(self) -> Cost:
        """Where durations come from."""
        if self.durations:
            return GivenCost(self.durations, self.schedule.window_steps, self.contention)
        if self.target is None:
            raise BadInput([Fault((self.name, 0, 0), "target", "is required and missing")])
        return HardwareCost(self.target, self.draft, self.channel, self.contention)

    def replace(self, **updates: Any) -> Scenario:
        """A copy that has computed nothing yet; ``model_copy`` would keep the cost and schedule of the old fields."""
        return type(self)(**{name: getattr(self, name) for name in type(self).model_fields} | updates)

    @cached_property
    def lengths(self) -> tuple[float, float, int]:
        """Mean prompt tokens, mean output tokens, and both together of the longest request."""
        return self.requests.totals(self.seed)

    @property
    def mean_context(self) -> int:
        """Cached tokens halfway through the output, at which the law takes its durations."""
        prompt, output, _ = self.lengths
        return int(prompt + output // 2)

    def memory(self) -> Blocks:
        """An empty KV cache of the size that the hardware leaves."""
        block, room = self.serving.memory.block_tokens, self.kv_tokens
        return Blocks(block, None if room is None else room // block)

    @cached_property
    def kv_tokens(self) -> int | None:
        """Tokens that the KV caches of all requests together can hold; None without a limit."""
        stated = self.serving.memory.kv_tokens
        return stated if stated is not None else min((group.room_tokens for group in self.device_groups), default=None)

    @property
    def device_groups(self) -> list[DeviceGroup]:
        """Target and draft with what each needs, together where they share a memory."""
        held: dict[tuple[str, str], list[Held]] = {}
        pipeline = self.target.pipeline if self.target else None
        if self.target and pipeline:
            for number, part in enumerate(self.target.parts, start=1):
                size = part.weights_gb() + pipeline.runtime_gb.value
                held[f"stage {number}", ""] = [Held(f"stage {number}", part, size)]
        for role, place in (("target", self.target), ("draft", self.draft)):
            used = self.strategy.needs_draft if role == "draft" else pipeline is None
            if place is not None and used:
                beside = (self.strategy.extra_weights(place.model), self.strategy.table_bytes(place.model))
                extra, table = beside if role == "target" else (0, 0)
                key = (place.machine or role, "" if self.shared_memory else place.device.name)
                held.setdefault(key, []).append(Held(role, place, place.weights_gb(extra) + table / 1e9))
        return [DeviceGroup(tuple(roles), self.serving.memory.utilisation) for roles in held.values()]


@dataclass(frozen=True)
class Loaded:
    """A scenario, the trace it replays (if any) and the document it came from."""

    scenario: Scenario
    trace: Trace | None
    document: Document
    verdicts: dict[object, Acceptance] = field(default_factory=dict, repr=False, compare=False)
    """Sources of verdicts made from the trace, by what they depend on; shared with scenarios that differ elsewhere."""
    known: Acceptance | None = None
    """What :meth:`acceptance` gives, where it was worked out before."""

    def acceptance(self) -> Acceptance:
        """The source of verdicts that the scenario asks for, as its strategy reads it."""
        return self._acceptance

    @cached_property
    def _acceptance(self) -> Acceptance:
        if self.known is not None:
            return self.known
        scenario, spec = self.scenario, self.scenario.acceptance
        key = spec, scenario.seed
        plain = self.verdicts.get(key) or self.verdicts.setdefault(key, spec.verdicts(self.trace, scenario.seed))
        found = scenario.schedule.reads(plain)
        if spec.rescale is None:
            return found
        window = spec.rescale.window or scenario.schedule.window
        if found is not plain:
            return self._rescaled(found, spec.rescale, window)
        return self.verdicts.get((key, window)) or self.verdicts.setdefault(
            (key, window), self._rescaled(found, spec.rescale, window)
        )

    def _rescaled(self, found: Acceptance, wanted: Rescale, window: int) -> Acceptance:
        try:
            return rescaled(found, wanted.tokens_per_step, window, self.scenario.seed, wanted.stretch)
        except BadInput as error:
            where = ("acceptance", "rescale", "tokens_per_step")
            raise BadInput([self.document.fault(where, fault.message) for fault in error.faults]) from error

    def change(self, **updates: Any) -> Loaded:
        """The same with fields of the strategy replaced, checked like the file."""
        strategy = self.scenario.strategy
        return self.replace(strategy=type(strategy).model_validate(strategy.model_dump() | updates))

    def replace(self, **updates: Any) -> Loaded:
        """The same with whole fields of the scenario replaced."""
        return Loaded(self.scenario.replace(**updates), self.trace, self.document, self.verdicts)


def load(name: str, overrides: Sequence[str] = (), catalogue: Catalogue | None = None, seed: int | None = None) -> Loaded:
    """Read a scenario by name or path.

    The file first, then every ``key=value`` of ``overrides``, then ``seed``. Raises :class:`BadInput`
    with all faults found, :class:`Infeasible` where a model does not fit its devices.
    """
    catalogue = catalogue or Catalogue()
    document = catalogue.scenario(name)
    for assignment in overrides:
        document.override(assignment)
        catalogue.expand(document)
    if seed is not None:
        document.data["seed"] = seed
    return checked(document, catalogue)


def checked(document: Document, catalogue: Catalogue, base: Loaded | None = None) -> Loaded:
    """A document with all its files in place as a scenario; raises as :func:`load` does.

    What it shares with ``base``, down to the very objects, is taken over instead of being read again.
    """
    same = {name for name, value in document.data.items() if base and value is base.document.data.get(name)}
    if "requests" not in same:
        catalogue.find_traffic(document)
    kept = {name: getattr(base.scenario, name) for name in same & set(Scenario.model_fields)} if base else {}
    scenario = validate(Scenario, replace(document, data=document.data | kept))
    faults = list(_faults(scenario, document))
    if faults:
        raise BadInput(faults)
    if "requests" not in same:
        scenario = scenario.replace(requests=scenario.requests.counted())
    _check_memory(scenario, document)
    if base and "acceptance" in same and (scenario.seed == base.scenario.seed or not _drawn(scenario, base.trace)):
        trace = base.trace and _fitting(base.trace, scenario, document, catalogue)
        loaded = Loaded(scenario, trace, document, base.verdicts)
    else:
        loaded = Loaded(scenario, _trace(scenario, document, catalogue), document)
    if scenario.acceptance.rescale:
        loaded.acceptance()  # now, while a fault still ends the reading
    return loaded


def _faults(scenario: Scenario, document: Document) -> Iterator[Fault]:
    strategy = scenario.strategy
    if (scenario.durations is None) == (scenario.target is None):
        yield document.fault((), "expected either target (a model on hardware) or durations")
    if scenario.durations is None and scenario.target and strategy.needs_draft and scenario.draft is None:
        yield document.fault(("strategy",), f"{strategy.name} needs a draft, and the scenario has none")
    yield from _wrong_stages(scenario, document)
    exit_layer = getattr(strategy, "exit_layer", None)
    if isinstance(exit_layer, int):
        if scenario.layers is None:
            yield document.fault(
                ("strategy", "exit_layer"), "expected a share of the depth, as the number of layers is not known"
            )
        elif exit_layer > scenario.layers:
            yield document.fault(("strategy", "exit_layer"), f"the target has {scenario.layers} layers, got {exit_layer}")
    elif exit_layer and scenario.layers and round(exit_layer * scenario.layers) < 1:
        message = f"{exit_layer:g} of {scenario.layers} layers is less than one layer"
        yield document.fault(("strategy", "exit_layer"), message)
    if scenario.target and scenario.draft and strategy.needs_draft:
        sizes = scenario.target.model.vocab_size, scenario.draft.model.vocab_size
        if sizes[0] != sizes[1]:
            message = f"the draft's vocabulary of {sizes[1]:,} is not the target's of {sizes[0]:,}; they must share a tokenizer"
            yield document.fault(("draft", "model"), message)
    if isinstance(strategy, ChainStrategy):
        longest = max(getattr(strategy.adaptive, "windows", {}).values(), default=0)
        if longest > strategy.gamma:
            message = f"a window of {longest} is longer than gamma = {strategy.gamma}, which is the longest"
            yield document.fault(("strategy", "adaptive", "windows"), message)
    if scenario.acceptance.trace is None and (found := strategy.unstated):
        yield document.fault(("strategy", found[0]), found[1])
    if scenario.durations:
        yield from _missing_durations(scenario, document)


def _wrong_stages(scenario: Scenario, document: Document) -> Iterator[Fault]:
    """A strategy for pipelines without one, or a pipeline under a strategy that stops within a pass."""
    strategy, stages = scenario.strategy, scenario.stages
    stated = getattr(strategy, "stages", 0)
    if stated:
        yield document.fault(("strategy", "stages"), f"comes from target.pipeline, which has {stages}; leave it out")
    policy = scenario.serving.policy.name
    if strategy.prompts_apart and policy not in ("fixed_batch", "prefill_first"):
        message = f"{strategy.name} takes prompts in passes of their own; choose fixed_batch or prefill_first"
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
    elif strategy.alone and scenario.batch > 1:
        message = f"{strategy.name} takes one request at a time, got {scenario.batch}"
        remedy = "; set serving.policy.max_requests=1" if scenario.requests.arrivals else ""
        yield document.fault(("requests", "arrivals" if scenario.requests.arrivals else "concurrency"), message + remedy)
    if strategy.staged and not stages:
        held = "durations.stages_ms" if scenario.durations else "target.pipeline"
        yield document.fault(("strategy",), f"{strategy.name} runs on the stages of a pipeline; set {held}")
    if strategy.staged and scenario.shared_memory:
        yield document.fault(
            ("shared_memory",), "slows a target and a draft that work side by side; stages have memories of their own"
        )
    if scenario.target and (found := strategy.impossible(scenario.target.model)):
        yield document.fault(("strategy", found[0]), found[1])
    if stages and (scenario.exit or strategy.splits_passes):
        yield document.fault(("strategy",), f"{strategy.name} stops within a pass, which a pipeline cannot do")


def _missing_durations(scenario: Scenario, document: Document) -> Iterator[Fault]:
    given, strategy = scenario.durations, scenario.strategy
    if given and strategy.window and strategy.window_steps and given.draft_ms is None and given.draft_step_ms is None:
        yield document.fault(("durations",), f"{strategy.name} needs draft_ms (a window) or draft_step_ms")
    if given and strategy.splits_passes and given.target_ms is not None:
        message = f"{strategy.name} stops within a pass; state prefix_ms and suffix_ms, or layers_ms"
        yield document.fault(("durations", "target_ms"), message)


def _trace(scenario: Scenario, document: Document, catalogue: Catalogue) -> Trace | None:
    """The trace that acceptance names, as its drafter sees it; None where it names none."""
    spec = scenario.acceptance
    if spec.trace is None:
        return None
    path = _trace_path(scenario, document, catalogue)
    try:
        trace = read_trace(path)
    except BadInput as error:
        messages = (f"{'' if fault.field == 'trace' else f'{fault.field}: '}{fault.message}" for fault in error.faults)
        faults = [document.fault(("acceptance", "trace"), f"{shown(path)} {message}") for message in messages]
        raise BadInput(faults) from error
    _check_vocabulary(trace, scenario, document, catalogue)
    if spec.drafter not in trace.drafters:
        message = f"the trace has no drafter '{spec.drafter}'{did_you_mean(spec.drafter, trace.drafters)}"
        raise BadInput([document.fault(("acceptance", "drafter"), message)])
    return _fitting(trace.drafted_by(spec.drafter, scenario.seed), scenario, document, catalogue)


def _drawn(scenario: Scenario, trace: Trace | None) -> bool:
    """Whether the seed decides what the trace's drafter proposes."""
    return trace is not None and trace.temperature != 0 and scenario.acceptance.drafter != "draft"


def _trace_path(scenario: Scenario, document: Document, catalogue: Catalogue) -> Path:
    return catalogue.path("trace", scenario.acceptance.trace or "", document, ("acceptance", "trace"))


def _check_vocabulary(trace: Trace, scenario: Scenario, document: Document, catalogue: Catalogue) -> None:
    size = scenario.target.model.vocab_size if scenario.target else trace.vocabulary
    if size != trace.vocabulary and not scenario.acceptance.stand_in:
        recorded = f"a vocabulary of {trace.vocabulary:,}" if trace.vocabulary else "an unknown vocabulary"
        message = (
            f"{shown(_trace_path(scenario, document, catalogue))} was recorded with {recorded}, the target has {size:,}; "
            "record one from your models, or set acceptance.stand_in=true to borrow its shape"
        )
        raise BadInput([document.fault(("acceptance", "trace"), message)])


def _fitting(trace: Trace, scenario: Scenario, document: Document, catalogue: Catalogue) -> Trace:
    """The trace, if it can answer what the scenario asks; raises :class:`BadInput`."""
    spec = scenario.acceptance
    _check_vocabulary(trace, scenario, document, catalogue)
    asked: dict[Path_, tuple[str, ...]] = {("acceptance", "flavours"): spec.flavours}
    dealt = spec.flavours or trace.flavours
    for task, flavours in scenario.requests.task_flavours.items():
        asked["requests", "task_flavours", task] = flavours
        if not set(flavours) & set(dealt) and set(flavours) <= set(trace.flavours):
            message = f"none of these is among the flavours of acceptance, {', '.join(dealt)}"
            raise BadInput([document.fault(("requests", "task_flavours", task), message)])
    for place, flavours in asked.items():
        if unknown := [flavour for flavour in flavours if flavour not in trace.flavours]:
            message = f"the trace has no flavour '{unknown[0]}'{did_you_mean(unknown[0], trace.flavours)}"
            raise BadInput([document.fault(place, message)])
    faults = list(_beyond_trace(scenario, trace, document, lambda: shown(_trace_path(scenario, document, catalogue))))
    if faults:
        raise BadInput(faults)
    return trace


def _beyond_trace(scenario: Scenario, trace: Trace, document: Document, file: Callable[[], str]) -> Iterator[Fault]:
    """What the strategy asks for and the recording cannot answer."""
    strategy = scenario.strategy
    if scenario.exit and not trace.exit_fractions:
        message = (
            f"{strategy.name} needs early exits, and {file()} was recorded without; record it with --exits, or choose another"
        )
        yield document.fault(("acceptance", "trace"), message)
    if getattr(strategy, "borrowed", False) and not scenario.acceptance.rescale:
        name = scenario.method.name if scenario.method else strategy.name
        message = f"{file()} holds no drafting of {name}, only another's to borrow the bursts of; "
        yield document.fault(("acceptance", "trace"), message + "set acceptance.rescale.tokens_per_step, or state a rate")
    if found := scenario.schedule.unrecorded(trace):
        drafter = scenario.acceptance.drafter
        known = f"drafter '{drafter}' of {file()}" if drafter != "draft" else file()
        yield document.fault(("strategy", found[0]), f"{known} {found[1]}")


def _check_memory(scenario: Scenario, document: Document) -> None:
    """Weights and KV caches must fit their devices: those of the whole batch where it is fixed, else of any one request."""
    policy, strategy, longest = scenario.serving.policy, scenario.strategy, scenario.lengths[2]
    fixed = isinstance(policy, FixedBatch)
    places = scenario.batch if fixed and not scenario.requests.arrivals else 1
    tokens = places * (longest + strategy.lookahead)
    for group in scenario.device_groups:
        needed, limit = group.needed_gb(tokens), group.limit_gb
        if needed > limit:
            role, place, _ = max(group.roles, key=lambda one: one.weights_gb + one.place.kv_gb(tokens))
            where, remedy = _remedy(role, place, needed / limit)
            remedy += f", or fewer than {places:,} requests at a time" if places > 1 else ""
            sizes = ((one.role, one.place, one.weights_gb + one.place.kv_gb(tokens)) for one in group.roles)
            parts = " + ".join(f"{name} {one.model.name} {size:.1f} GB" for name, one, size in sizes)
            whole = place.device.memory_gb.value
            room = f"{whole:g} GB, of which {limit:g} may be used" if group.utilisation < 1.0 else f"{whole:g} GB"
            message = f"{parts} does not fit {place.device.name} with {room}; {remedy}"
            raise Infeasible([document.fault(where, message)])
    if fixed and scenario.kv_tokens is not None and places * longest > scenario.kv_tokens:
        message = f"{places} x {longest:,} tokens do not fit a KV cache of {scenario.kv_tokens:,} tokens"
        raise Infeasible([document.fault(("requests", "concurrency"), message)])
    if refusal := policy.refusal(longest, strategy.lookahead, scenario.memory()):
        raise Infeasible([_about_longest(scenario, document, refusal)])
    context = scenario.target.model.context_tokens if scenario.target else None
    if context is not None and longest > context:
        message = f"{scenario.target.model.name} has a context of {context:,} tokens" if scenario.target else ""
        remedy = (
            f"; requests.arrivals.drop_above_tokens={context} leaves such requests out" if scenario.requests.traffic else ""
        )
        raise BadInput([_about_longest(scenario, document, f"a request of {longest:,} tokens is too long: {message}{remedy}")])


def _about_longest(scenario: Scenario, document: Document, message: str) -> Fault:
    """A fault about the longest request, at its line where it was read from a file."""
    traffic, longest = scenario.requests.traffic, scenario.lengths[2]
    if traffic is None:
        return document.fault(("requests",), message)
    line = next(line for line in scenario.requests.lines() if line.tokens == longest)
    return Fault((traffic.file, line.number, 1), "", message)


def _remedy(role: str, place: Placement, times: float) -> tuple[Path_, str]:
    """Where to change something, and what, when a role needs so many times the memory that it has."""
    if role.startswith("stage"):
        return ("target", "pipeline", "stages", int(role.split()[1]) - 1), "give it fewer layers or another device"
    ranks = next((n for n in (2, 4, 8, 16, 32) if n > place.tensor_parallel and times * place.tensor_parallel <= n), None)
    remedy = f"set {role}.tensor_parallel={ranks}" if ranks else "choose a smaller model or a smaller weight format"
    return (role, "tensor_parallel"), remedy


def resolved(scenario: Scenario) -> dict[str, Any]:
    """The scenario with every default and every looked-up file in place, as plain data."""
    return scenario.model_dump(mode="json", exclude_none=True)
