"""Load scenarios: read files and overrides, check them, read the trace, and vary what was
loaded.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from simulator.core.acceptance.assignment import TraceAssignment
from simulator.core.acceptance.by_context import ByContext, Falling
from simulator.core.acceptance.lossy.scores import FORCED
from simulator.core.acceptance.rescale import rescaled
from simulator.core.acceptance.sequences import RecordedSequences
from simulator.core.acceptance.sources import Acceptance, Replay
from simulator.core.acceptance.spec import Rescale, replaces_source
from simulator.core.acceptance.trace import Trace
from simulator.core.acceptance.window_replay import Walk
from simulator.core.cost.placement import Placement
from simulator.core.faults import BadInput, Fault
from simulator.core.plain import PlainData
from simulator.core.plugin_group import POLICIES, ROUTERS, STRATEGIES
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.capabilities import DraftsChain
from simulator.inputs.catalogue import Catalogue, is_shipped
from simulator.inputs.document import Document, FieldChanges
from simulator.inputs.plugins import packages_found
from simulator.inputs.schema import validate
from simulator.scenario.as_served import (
    left_to_engine,
    with_caching_of_engine,
    with_policy_of_engine,
)
from simulator.scenario.checks import check_memory, faults_of, with_fitting_draft
from simulator.scenario.fields import Scenario
from simulator.scenario.pools import (
    POOLS,
    check_pools,
    faults_of_pools,
    with_policies_of_engines,
    with_pools,
    with_whole_targets,
)
from simulator.scenario.recording import borrowed, check_answers, drawn, fitting, read_trace
from simulator.scenario.routing import routed_as_recorded
from simulator.scenario.stated.means import moving_rule, stated_rule

PLAIN = Autoregressive.model_fields["name"].default
"""The strategy that drafts nothing."""
FEW = 1_024
"""Requests up to which a mean is set over those that run; the mean of more differs by less than is
said.
"""
MOST_MADE = 32
"""Acceptances made from one trace that are kept."""
MOST_PLACES = 512
"""Placements that are known again."""
SAMPLED = 256
PARTS = 16
"""Requests, and parts of their outputs, whose contexts a law of falling acceptance is taken
over.
"""


def written_by(scenario: Scenario, replay: Replay) -> tuple[tuple[int, int], ...]:
    """Return the recording and the tokens behind the first one of each request that runs."""
    order = replay.order
    return tuple(
        (order[number % len(order)], output - 1) for number, _, output in dealt(scenario, replay)
    )


class Verdicts:
    """Holds the acceptance that was last made from a trace, by what it depends on."""

    def __init__(self) -> None:
        self._made: dict[object, Acceptance] = {}

    def made_once(self, key: object, make: Callable[[], Acceptance]) -> Acceptance:
        """Return what ``make`` returns, made once for equal keys among the last ``MOST_MADE``."""
        made = self._made.pop(key, None)
        if made is None:
            made = make()
        self._made[key] = made  # the last one
        if len(self._made) > MOST_MADE:
            del self._made[next(iter(self._made))]
        return made


_OF_TRACES: WeakKeyDictionary[Trace, Verdicts] = WeakKeyDictionary()


def verdicts_of(trace: Trace | None) -> Verdicts:
    """Return what was made from a trace by all scenarios that read it; without one, nothing yet."""
    if trace is None:
        return Verdicts()
    return _OF_TRACES.setdefault(trace, Verdicts())


class AsRead(NamedTuple):
    """The fields of a scenario as they were read from a document, before one was fitted to another.

    A variant takes over what was made of the values that it shares with the document.
    """

    document: Document
    fields: Mapping[str, object]

    def has(self, name: str, value: object) -> bool:
        """Return whether the field ``name`` was read from this very value."""
        data = self.document.data
        return name in self.fields and name in data and data[name] is value

    def made_of(self, name: str, value: object) -> object:
        """Return a value of the field ``name`` with models for what it shares with the document."""
        return _made(value, self.document.data.get(name), self.fields.get(name))


def _made(value: object, before: object, model: object) -> object:
    """Return a value, with models in the place of the mappings of which ``model``, or a mapping of
    models, was made of ``before``.
    """
    if not isinstance(before, dict) or not isinstance(model, BaseModel | dict):
        return value
    if value is before:
        return model
    if not isinstance(value, dict) or value.get("name") != before.get("name"):
        return value
    if isinstance(model, BaseModel):
        known = {name: getattr(model, name) for name in type(model).model_fields}
    else:
        known = model
    return {
        key: _made(inner, before.get(key), known[key]) if key in known else inner
        for key, inner in value.items()
    }


@dataclass(frozen=True)
class Loaded:
    """A scenario, the trace it replays (if any) and the document it came from."""

    scenario: Scenario
    trace: Trace | None
    document: Document
    verdicts: Verdicts = field(default_factory=Verdicts, repr=False, compare=False)
    """Acceptance made from the trace; shared with scenarios that differ elsewhere."""
    precomputed: Acceptance | None = None
    """What :meth:`acceptance` returns, where that was worked out before."""
    as_read: AsRead | None = field(default=None, repr=False, compare=False)
    """What its variants take over; None where it was not read from its document."""

    def acceptance(self) -> Acceptance:
        """Return the source of verdicts that the scenario asks for, as its strategy reads it."""
        return self._acceptance

    @cached_property
    def _acceptance(self) -> Acceptance:
        if self.precomputed is not None:
            return self.precomputed
        scenario = self.scenario
        spec = self.scenario.acceptance
        if self.trace is not None:
            # fields may have been replaced since it was read
            check_answers(self.trace, scenario, self.document)
        key = spec.model_dump_json(exclude={"by_context"}), scenario.seed
        plain = self.verdicts.made_once(key, lambda: spec.verdicts(self.trace, scenario.seed))
        if spec.by_context and not isinstance(plain, Replay):
            return scenario.schedule.reads(falling(scenario, plain, spec.by_context))
        read = self._read(plain, key)
        self._check_rule(read)
        if spec.kinds:
            read = weighed(scenario, read)
        if spec.by_context is None:
            return read
        if not isinstance(read, Replay) or read.reads_more:
            message = (
                "this strategy reads more of a recording than kept tokens; state a rate or "
                "lengths instead of a trace"
            )
            raise self.document.refusal(("acceptance", "by_context"), message)
        return falling(scenario, read, spec.by_context)

    def _check_rule(self, read: Acceptance) -> None:
        """Raise :class:`BadInput` for a strategy that reads more of a recording than a rule says
        something about.
        """
        rule = self.scenario.acceptance.rule
        schedule = self.scenario.schedule
        if rule is None or self.trace is None or not schedule.window:
            return
        if self.scenario.acceptance.rescale:
            return
        if rule.passes is None:
            known = isinstance(read, Replay) and FORCED in read.trace.extra
        else:
            by_position = isinstance(read, Replay) and read.trace.run is None
            known = by_position and isinstance(schedule, DraftsChain)
        if not known:
            message = (
                "what this strategy reads of a recording is not known under a rule, only chains "
                "and static trees with scores are, and chains of a draft with passes; state "
                "acceptance.rate or acceptance.tokens_per_step"
            )
            raise self.document.refusal(("acceptance", "rule"), message)

    def _read(self, plain: Acceptance, key: object) -> Acceptance:
        """Return verdicts as the strategy reads them, at the mean that they are re-scaled to."""
        scenario = self.scenario
        spec = self.scenario.acceptance
        as_read = scenario.schedule.reads(plain)
        if spec.rescale is None:
            return as_read
        window = spec.rescale.window or scenario.schedule.window  # written down once it is loaded
        read = key, window, None if as_read is plain else scenario.schedule.model_dump_json()
        walk = Walk(stated_rule(spec.rescale.adaptive, self.document))
        made = self.verdicts.made_once(
            read, partial(self._rescaled, as_read, spec.rescale, window, walk)
        )
        return self._over_its_requests(made, as_read, read, walk)

    def _over_its_requests(
        self, made: Acceptance, as_read: Acceptance, read: tuple[object, ...], walk: Walk
    ) -> Acceptance:
        """Return re-scaled acceptance whose cursors have the mean over the requests that run, where
        these are few.

        The law keeps the mean over all recordings, of which a few requests are a sample that misses
        it by chance.
        """
        scenario = self.scenario
        wanted = self.scenario.acceptance.rescale
        if (
            wanted is None
            or wanted.window is None
            or scenario.requests.count > FEW
            or not isinstance(made, Replay)
        ):
            return made
        own = copy(made)
        own.sample = _Sample(self, made, as_read, read, walk)
        return own

    def sampled(
        self, made: Replay, as_read: Acceptance, read: tuple[object, ...], walk: Walk
    ) -> Replay:
        """Return acceptance at the wanted mean over the requests that run; ``made``, where these
        cannot reach it.
        """
        wanted = self.scenario.acceptance.rescale
        written = written_by(self.scenario, made)

        def over_these() -> Acceptance:
            sampled: Acceptance = made
            if wanted and wanted.window:
                # requests that cannot reach it run what they can, which is said
                with suppress(BadInput):
                    of_these = walk._replace(written=written)
                    sampled = self._rescaled(as_read, wanted, wanted.window, of_these)
            return sampled

        found = self.verdicts.made_once((read, written), over_these)
        return found if isinstance(found, Replay) else made

    def _rescaled(
        self, recorded: Acceptance, wanted: Rescale, window: int, walk: Walk
    ) -> Acceptance:
        """Return recorded acceptance at the wanted tokens per step; raises :class:`BadInput` where
        that cannot be.
        """
        try:
            return rescaled(
                recorded, wanted.tokens_per_step, window, self.scenario.seed, wanted.stretch, walk
            )
        except BadInput as error:
            where = ("acceptance", "rescale", "tokens_per_step")
            raise error.changed(lambda fault: self.document.fault(where, fault.message)) from error

    def change(self, **updates: Any) -> Self:
        """Return the same scenario with fields of the strategy replaced, checked like the file."""
        strategy = self.scenario.strategy
        return self.replace(strategy=type(strategy).model_validate(strategy.model_dump() | updates))

    def replace(self, **updates: Any) -> Self:
        """Return the same scenario with whole fields of it replaced."""
        return type(self)(
            self.scenario.replace(**updates),
            self.trace,
            self.document,
            self.verdicts,
            as_read=self.as_read,
        )


@dataclass
class _Sample:
    """A sample works out once, when it is first asked, the acceptance of the requests that run."""

    loaded: Loaded
    made: Replay
    as_read: Acceptance
    read: tuple[object, ...]
    walk: Walk
    found: Replay | None = None

    def __call__(self) -> Replay:
        if self.found is None:
            self.found = self.loaded.sampled(self.made, self.as_read, self.read, self.walk)
        return self.found


def dealt(scenario: Scenario, verdicts: Acceptance) -> Iterator[tuple[int, int, int]]:
    """Yield the number under which each request asks for acceptance, and its tokens of prompt and
    output.
    """
    requests = scenario.requests
    deal = TraceAssignment(verdicts, requests.flavours_by_task)
    lengths = requests.lengths(scenario.seed)
    for index, ((prompt, output), task) in enumerate(zip(lengths, requests.tasks(), strict=False)):
        yield deal(index, task), prompt, output


def weighed(scenario: Scenario, verdicts: Acceptance) -> Acceptance:
    """Return verdicts of which a law takes the kinds of text apart, each as often as the scenario's
    requests write it.
    """
    replay = verdicts.replay if isinstance(verdicts, RecordedSequences) else verdicts
    if not isinstance(replay, Replay):
        return verdicts
    kinds = {}
    for name in replay.trace.flavours:
        for recording in replay.trace.named(name):
            kinds[recording] = name
    replay, order = copy(replay), replay.order
    replay.weights = written = Counter[str]()
    for number, _, output in dealt(scenario, verdicts):
        written[kinds[order[number % len(order)]]] += output - 1
    if isinstance(verdicts, RecordedSequences):
        return RecordedSequences(replay, verdicts.split)
    return replay


def falling(scenario: Scenario, verdicts: Acceptance, stated: ByContext) -> Falling:
    """Return verdicts that fall with the contexts of the scenario's requests."""
    requests = scenario.requests
    window = stated.window or scenario.schedule.window
    prompts = {number: prompt for number, prompt, _ in dealt(scenario, verdicts)}
    met = [
        (round(prompt + (part + 0.5) / PARTS * output), output)
        for prompt, output in islice(requests.lengths(scenario.seed), SAMPLED)
        for part in range(PARTS)
    ]
    return Falling(verdicts, stated, window, prompts.__getitem__, met, scenario.seed)


def load(
    name: str,
    overrides: Sequence[str] = (),
    catalogue: Catalogue | None = None,
    seed: int | None = None,
) -> Loaded:
    """Read a scenario by name or path and return it, checked.

    The file first, then every ``key=value`` of ``overrides``, then ``seed``. Raises
    :class:`BadInput` with all faults found, :class:`Infeasible` where a model does not fit its
    devices.
    """
    catalogue = catalogue or Catalogue()
    document = catalogue.scenario(name)
    for assignment in overrides:
        if isinstance(document.override(assignment), str | dict | list):  # a number names no file
            catalogue.expand(document)
    _with_typed_acceptance(document)
    if seed is not None:
        document.data["seed"] = seed
    return checked(document, catalogue)


def _with_typed_acceptance(document: Document) -> None:
    """Leave of acceptance what was typed with ``--set``, where that has another source than the
    file.
    """
    whole = document.get(("acceptance",))
    if not isinstance(whole, dict):
        return
    within = document.set_within()
    typed = {name: value for name, value in whole.items() if ("acceptance", name) in within}
    if replaces_source(typed, whole):
        document.data["acceptance"] = typed


def checked(
    document: Document,
    catalogue: Catalogue,
    base: Loaded | None = None,
    parts: Sequence[Loaded] = (),
) -> Loaded:
    """Return the scenario of a document with all its files in place; raises as :func:`load` does.

    What it shares with ``base``, down to the very objects, is taken over instead of being read
    again, and so are fields that it shares with ``parts``, variants of the base.
    """
    try:
        return _checked(document, catalogue, base, parts)
    except BadInput as error:
        raise error.changed(lambda fault: _found(_blamed(fault, document))) from error


def _found(fault: Fault) -> Fault:
    """Return a fault about a strategy, a policy or a router that is not there with how those of
    other packages are found.
    """
    groups = {"strategy": STRATEGIES, "serving.policy": POLICIES, "serving.router": ROUTERS}
    for asked, group in groups.items():
        kind = asked.rpartition(".")[2]
        if fault.field == asked and fault.message.startswith(f"there is no {kind} '"):
            return replace(fault, message=f"{fault.message}; {packages_found(group)}")
    return fault


def _blamed(fault: Fault, document: Document) -> Fault:
    """Return a fault at what was written by hand: shipped files are sound, but not with everything
    laid over them.
    """
    written = document.places | document.mentions
    theirs = {file for file in {file for file, _, _ in written.values()} if is_shipped(file)}
    own = [path for path, (file, _, _) in written.items() if file not in theirs]
    field = tuple(fault.field.split("."))
    root = document.place(())[0]
    near = [path for path in own if path == () or path[-1] == field[-1] or path[0] == field[0]]
    if not near or not is_shipped(fault.place[0]):
        return fault
    nearest = max(
        near,
        key=lambda path: (path[-1:] == field[-1:], written[path][0] != root, path[:1] == field[:1]),
    )
    file, line, _ = fault.place
    return replace(
        fault,
        place=written[nearest],
        message=f"as {Path(file).name}:{line} has it, {fault.message}",
    )


def _accepting(data: PlainData) -> PlainData:
    """Return fields of a scenario, with nothing accepted where its strategy drafts nothing and no
    acceptance is stated.
    """
    strategy = data.get("strategy")
    nothing = (
        "acceptance" not in data and isinstance(strategy, dict) and strategy.get("name") == PLAIN
    )
    if nothing:
        return data | {"acceptance": {"always": 0}}
    return data


def _checked(
    document: Document, catalogue: Catalogue, base: Loaded | None, parts: Sequence[Loaded]
) -> Loaded:
    same = _unchanged(document, base)
    if "requests" not in same:
        catalogue.find_traffic(document)
    kept: PlainData = {}
    if base:
        kept = {name: getattr(base.scenario, name) for name in same & set(Scenario.model_fields)}
    sources = [loaded.as_read for loaded in (*parts, base) if loaded and loaded.as_read]
    scenario = _read(document, kept, sources)
    as_read = _as_read(document, scenario, kept, sources)
    scenario = with_pools(with_fitting_draft(scenario, document))
    scenario, document = borrowed(scenario, document, catalogue)
    scenario = with_policies_of_engines(with_policy_of_engine(scenario))
    _refuse_faults(scenario, document, catalogue)
    if "requests" not in same:
        scenario = scenario.replace(requests=scenario.requests.counted())
    scenario = _with_caching(scenario, document)
    if base and "acceptance" in same and _same_verdicts(scenario, base):
        trace = base.trace and fitting(base.trace, scenario, document, catalogue)
        loaded = Loaded(scenario, trace, document, base.verdicts, as_read=as_read)
    else:
        trace = read_trace(scenario, document, catalogue)
        loaded = Loaded(scenario, trace, document, verdicts_of(trace), as_read=as_read)
    return _as_recorded(loaded)


def _refuse_faults(scenario: Scenario, document: Document, catalogue: Catalogue) -> None:
    """Raise :class:`BadInput` with all that is wrong between the fields of a scenario."""
    faults = [
        *faults_of(scenario, document, catalogue),
        *faults_of_pools(scenario, document),
    ]
    if faults:
        raise BadInput(faults)


def _with_caching(scenario: Scenario, document: Document) -> Scenario:
    """Return a scenario whose caches are those of its engine; raises :class:`BadInput` where memory
    has no room, or where traffic states no prefixes that could be found again.
    """
    fault = scenario.requests.hash_fault() if scenario.serving.memory.prefix_caching else None
    if fault:
        raise fault
    scenario = with_caching_of_engine(scenario, document)
    if scenario.serving.pools:
        check_pools(scenario, document)
    else:
        check_memory(scenario, document)
    return scenario


def _read(document: Document, kept: PlainData, sources: Sequence[AsRead]) -> Scenario:
    """Return the scenario of a document with the fields that are ``kept``, and what was made of
    values that it shares with ``sources``.
    """
    data = with_whole_targets(_accepting(document.data))
    read: PlainData = {}
    made: PlainData = {}
    for name in data.keys() - kept.keys():
        value = data[name]
        for source in sources:
            if source.has(name, value):
                read[name] = source.fields[name]
                break
        else:
            if sources:  # the base comes last
                made[name] = sources[-1].made_of(name, value)
    if sources and not made:
        base = sources[-1]
        defaults = base.fields.keys() - base.document.data.keys() - data.keys()
        fields: PlainData = {name: base.fields[name] for name in defaults}
        return Scenario.model_construct(**fields | read | kept)
    made |= read
    try:
        scenario = validate(Scenario, replace(document, data=data | made | kept))
    except BadInput:  # said of what is written there
        scenario = validate(Scenario, replace(document, data=data | kept))
    places = {"target": scenario.target, "draft": scenario.draft}
    known = {role: _known(place) for role, place in places.items() if place is not None}
    return scenario.model_copy(update=known)


@lru_cache(MOST_PLACES)
def _known(place: Placement) -> Placement:
    """Return the first of equal placements, so that what is made of one is found for all of them
    without comparing them again.
    """
    return place


def _as_read(
    document: Document, scenario: Scenario, kept: PlainData, sources: Sequence[AsRead]
) -> AsRead:
    """Return the fields as read; of those that were ``kept``, what the last of ``sources``, the
    base, has.
    """
    fields = {name: getattr(scenario, name) for name in type(scenario).model_fields}
    for name in kept:
        fields.pop(name)
        if sources and name in sources[-1].fields:
            fields[name] = sources[-1].fields[name]
    return AsRead(document, fields)


def _unchanged(document: Document, base: Loaded | None) -> set[str]:
    """Return the fields that are taken from ``base`` as they stand."""
    if base is None:
        return set()
    before = base.document.data
    same = {name for name, value in document.data.items() if value is before.get(name)}
    if "acceptance" not in same:
        same.discard("strategy")  # which may have read the recording
    if left_to_engine(document):
        same.discard("serving")
    if document.get(POOLS) or base.document.get(POOLS):
        same -= {"serving", "target"}  # the scenario has the target of a pool
    if base.scenario.draft is None:
        same.discard("draft")  # it may fit the target now
    return same


def _same_verdicts(scenario: Scenario, base: Loaded) -> bool:
    """Return whether the same recording gives a scenario the verdicts that it gives ``base``."""
    return scenario.seed == base.scenario.seed or not drawn(scenario, base.trace)


def _as_recorded(loaded: Loaded) -> Loaded:
    """Return the scenario with what its recording says of target and strategy, and with the window
    of its mean.
    """
    scenario = loaded.scenario
    trace = loaded.trace
    if trace and scenario.target:
        routed = routed_as_recorded(scenario.target, trace)
        if routed is not scenario.target:
            loaded = loaded.replace(target=routed)
    if trace is not None and isinstance(scenario.strategy, DraftsChain):
        strategy = scenario.strategy.recorded_in(trace)
        if strategy is not scenario.strategy:
            loaded = loaded.replace(strategy=strategy)
    mean = loaded.scenario.acceptance.rescale
    if mean and mean.window is None:
        loaded = _at_its_window(loaded, mean)
    if mean or loaded.scenario.acceptance.by_context:
        loaded.acceptance()  # now, while a fault still ends the reading
    return loaded


def _at_its_window(loaded: Loaded, mean: Rescale) -> Loaded:
    """Return the scenario with the window of its mean written down: a sweep changes the strategy's,
    never what was measured.
    """
    window = loaded.scenario.schedule.window
    rule = mean.adaptive or moving_rule(loaded.scenario)
    place = ("acceptance", "rescale")
    document = loaded.document.branched([(*place, "window"), (*place, "adaptive")])
    document.put((*place, "window"), window, document.place((*place, "window")))
    if rule:
        document.put((*place, "adaptive"), rule, document.place((*place, "window")))
    measured = mean.model_copy(update={"window": window, "adaptive": rule})
    acceptance = loaded.scenario.acceptance.model_copy(update={"rescale": measured})
    return replace(
        loaded, scenario=loaded.scenario.replace(acceptance=acceptance), document=document
    )


def variant(
    base: Loaded, changes: Mapping[str, object], catalogue: Catalogue | None = None
) -> Loaded:
    """Return ``base`` with the value of each dotted key replaced, as ``load`` with ``key=value``
    overrides would have it.

    What does not change is shared with ``base``: models, devices, passes whose times were worked
    out, the trace and the verdicts read from it. So a point of a sweep costs what its change costs.

    Values are plain data: numbers, texts, lists, mappings; a text may name a file where the key
    holds one. A key is that of the scenario *as written*: fields that a program has replaced since
    (:meth:`Loaded.replace`) stay replaced as long as no key lies within them. Raises
    :class:`BadInput` and :class:`Infeasible` as ``load`` does, naming the key.
    """
    if not changes:
        return base
    paths = [tuple(key.split(".")) for key in changes]
    document = base.document.branched(paths)
    for path, (key, value) in zip(paths, changes.items(), strict=True):
        document.put(path, value, (f"--set {key}={value}", 0, 0))
    catalogue = catalogue or Catalogue()
    catalogue.expand(document, paths)
    return checked(document, catalogue, base)


def joined(
    base: Loaded, parts: Sequence[Loaded], changes: Sequence[FieldChanges], catalogue: Catalogue
) -> Loaded:
    """Return ``base`` with the ``changes`` that each of its variants ``parts`` makes in its
    document, no two in the same field.
    """
    document = base.document.branched([])
    for of_part in changes:
        document.take_over(of_part)
    return checked(document, catalogue, base, parts)
