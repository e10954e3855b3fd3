"""Load scenarios: read files and overrides, check them, read the trace, and vary what was loaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, repeat
from typing import Any, Self

from simulator.acceptance.assignment import TraceAssignment
from simulator.acceptance.by_context import ByContext, Falling
from simulator.acceptance.rescale import rescaled
from simulator.acceptance.sources import Acceptance, Replay
from simulator.acceptance.spec import Rescale
from simulator.acceptance.trace import Trace
from simulator.files.schema import BadInput, Document, validate
from simulator.names import Catalogue
from simulator.scenario.checks import check_memory, faults_of
from simulator.scenario.fields import Scenario
from simulator.scenario.recording import borrowed, check_answers, drawn, fitting, read_trace
from simulator.scenario.routing import routed_as_recorded
from simulator.strategies.common.capabilities import DraftsChain

SAMPLED, PARTS = 256, 16
"""Requests, and parts of their outputs, whose contexts a law of falling acceptance is taken over."""


@dataclass(frozen=True)
class Loaded:
    """A scenario, the trace it replays (if any) and the document it came from."""

    scenario: Scenario
    trace: Trace | None
    document: Document
    verdicts: dict[object, Acceptance] = field(default_factory=dict, repr=False, compare=False)
    """Acceptance made from the trace, by what it depends on; shared with scenarios that differ elsewhere."""
    precomputed: Acceptance | None = None
    """What :meth:`acceptance` returns, where that was worked out before."""

    def acceptance(self) -> Acceptance:
        """Return the source of verdicts that the scenario asks for, as its strategy reads it."""
        return self._acceptance

    @cached_property
    def _acceptance(self) -> Acceptance:
        if self.precomputed is not None:
            return self.precomputed
        scenario, spec = self.scenario, self.scenario.acceptance
        if self.trace is not None:
            check_answers(self.trace, scenario, self.document)  # fields may have been replaced since it was read
        key = spec.model_copy(update={"by_context": None}), scenario.seed
        plain = self.verdicts.get(key) or self.verdicts.setdefault(key, spec.verdicts(self.trace, scenario.seed))
        if spec.by_context and not isinstance(plain, Replay):
            return scenario.schedule.reads(falling(scenario, plain, spec.by_context))
        read = self._read(plain, key)
        if spec.by_context is None:
            return read
        if not isinstance(read, Replay) or read.p_min is not None:
            message = "this strategy reads more of a recording than kept tokens; state a rate or lengths instead of a trace"
            raise BadInput([self.document.fault(("acceptance", "by_context"), message)])
        return falling(scenario, read, spec.by_context)

    def _read(self, plain: Acceptance, key: object) -> Acceptance:
        """Return verdicts as the strategy reads them, at the mean that they are re-scaled to."""
        scenario, spec = self.scenario, self.scenario.acceptance
        as_read = scenario.schedule.reads(plain)
        if spec.rescale is None:
            return as_read
        window = spec.rescale.window or scenario.schedule.window  # written down once it is loaded
        if as_read is not plain:
            return self._rescaled(as_read, spec.rescale, window)
        return self.verdicts.get((key, window)) or self.verdicts.setdefault(
            (key, window), self._rescaled(plain, spec.rescale, window)
        )

    def _rescaled(self, recorded: Acceptance, wanted: Rescale, window: int) -> Acceptance:
        """Return recorded acceptance at the wanted tokens per step; raises :class:`BadInput` where that cannot be."""
        try:
            return rescaled(recorded, wanted.tokens_per_step, window, self.scenario.seed, wanted.stretch)
        except BadInput as error:
            where = ("acceptance", "rescale", "tokens_per_step")
            raise BadInput([self.document.fault(where, fault.message) for fault in error.faults]) from error

    def change(self, **updates: Any) -> Self:
        """Return the same scenario with fields of the strategy replaced, checked like the file."""
        strategy = self.scenario.strategy
        return self.replace(strategy=type(strategy).model_validate(strategy.model_dump() | updates))

    def replace(self, **updates: Any) -> Self:
        """Return the same scenario with whole fields of it replaced."""
        return type(self)(self.scenario.replace(**updates), self.trace, self.document, self.verdicts)


def falling(scenario: Scenario, verdicts: Acceptance, stated: ByContext) -> Falling:
    """Return verdicts that fall with the contexts of the scenario's requests."""
    requests, window = scenario.requests, stated.window or scenario.schedule.window
    deal, tasks = TraceAssignment(verdicts, requests.task_flavours), (line.task for line in requests.lines())
    lengths = enumerate(zip(requests.lengths(scenario.seed), tasks if requests.traffic else repeat(""), strict=False))
    prompts = {deal(index, task): prompt for index, ((prompt, _), task) in lengths}
    met = [
        (round(prompt + (part + 0.5) / PARTS * output), output)
        for prompt, output in islice(requests.lengths(scenario.seed), SAMPLED)
        for part in range(PARTS)
    ]
    return Falling(verdicts, stated, window, prompts.__getitem__, met, scenario.seed)


def load(name: str, overrides: Sequence[str] = (), catalogue: Catalogue | None = None, seed: int | None = None) -> Loaded:
    """Read a scenario by name or path and return it, checked.

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
    """Return the scenario of a document with all its files in place; raises as :func:`load` does.

    What it shares with ``base``, down to the very objects, is taken over instead of being read again.
    """
    same = {name for name, value in document.data.items() if base and value is base.document.data.get(name)}
    if "acceptance" not in same:
        same -= {"strategy"}  # which may have read the recording
    if "requests" not in same:
        catalogue.find_traffic(document)
    kept = {name: getattr(base.scenario, name) for name in same & set(Scenario.model_fields)} if base else {}
    scenario = validate(Scenario, replace(document, data=document.data | kept))
    scenario, document = borrowed(scenario, document, catalogue)
    faults = list(faults_of(scenario, document))
    if faults:
        raise BadInput(faults)
    if "requests" not in same:
        scenario = scenario.replace(requests=scenario.requests.counted())
    check_memory(scenario, document)
    if base and "acceptance" in same and (scenario.seed == base.scenario.seed or not drawn(scenario, base.trace)):
        trace = base.trace and fitting(base.trace, scenario, document, catalogue)
        loaded = Loaded(scenario, trace, document, base.verdicts)
    else:
        loaded = Loaded(scenario, read_trace(scenario, document, catalogue), document)
    if (
        loaded.trace
        and (target := loaded.scenario.target)
        and (routed := routed_as_recorded(target, loaded.trace)) is not target
    ):
        loaded = loaded.replace(target=routed)
    if loaded.trace is not None and isinstance(scenario.strategy, DraftsChain):
        loaded = loaded.replace(strategy=scenario.strategy.recorded_in(loaded.trace))
    mean = loaded.scenario.acceptance.rescale
    if mean and mean.window is None:
        loaded = _at_its_window(loaded, mean)
    if mean or loaded.scenario.acceptance.by_context:
        loaded.acceptance()  # now, while a fault still ends the reading
    return loaded


def _at_its_window(loaded: Loaded, mean: Rescale) -> Loaded:
    """Return the scenario with the window of its mean written down: a sweep changes the strategy's, never what was measured."""
    path, window = ("acceptance", "rescale", "window"), loaded.scenario.schedule.window
    document = loaded.document.branched([path])
    document.put(path, window, document.place(path))
    acceptance = loaded.scenario.acceptance.model_copy(update={"rescale": mean.model_copy(update={"window": window})})
    return replace(loaded, scenario=loaded.scenario.replace(acceptance=acceptance), document=document)


def variant(base: Loaded, changes: Mapping[str, object], catalogue: Catalogue | None = None) -> Loaded:
    """Return ``base`` with the value of each dotted key replaced, as ``load`` with ``key=value`` overrides would have it.

    What does not change is shared with ``base``: models, devices, passes whose times were worked out, the trace and the
    verdicts read from it. So a point of a sweep costs what its change costs.

    Values are plain data: numbers, texts, lists, mappings; a text may name a file where the key holds one. A key is that
    of the scenario *as written*: fields that a program has replaced since (:meth:`Loaded.replace`) stay replaced as long
    as no key lies within them. Raises :class:`BadInput` and :class:`Infeasible` as ``load`` does, naming the key.
    """
    if not changes:
        return base
    paths = [tuple(key.split(".")) for key in changes]
    document = base.document.branched(paths)
    for path, (key, value) in zip(paths, changes.items(), strict=True):
        document.put(path, value, (f"--set {key}={value}", 0, 0))
    catalogue = catalogue or Catalogue()
    catalogue.expand(document)
    return checked(document, catalogue, base)
