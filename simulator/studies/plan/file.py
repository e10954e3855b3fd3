"""Read a plan file: models, traffic, an SLO, the devices that may be rented, and the alternatives
to choose among.

    candidates = hardware x strategies x everything that either of them varies

Every candidate is a whole scenario: ``scenario`` with an entry of ``hardware`` and one of
``strategies`` laid over it, field by field as with ``like``. So whatever a scenario can say can be
planned with, and this module need not know what that is.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, model_validator

from simulator.core.cost.device import Device
from simulator.core.faults import BadInput, Infeasible, Path_, told
from simulator.core.identifiers import checkpoint_name
from simulator.core.numeric import ordered_sum
from simulator.core.plain import PlainData
from simulator.core.quantities import Frozen, NonNegative, replace_nested
from simulator.core.serving.load.arrivals import Daily
from simulator.core.serving.slo import Limit, Slo
from simulator.core.strategies.common.capabilities import sharing_targets
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import Document, in_a_line
from simulator.inputs.schema import validate
from simulator.scenario import Loaded, Scenario, checked
from simulator.scenario.as_served import said_of_engine
from simulator.scenario.decision.verdict import HELPS
from simulator.scenario.expenses import rented_devices
from simulator.studies.plan.limits import limits_of, with_slo_by_class

Fields = Annotated[PlainData, Field(min_length=1)]
"""Fields of a scenario as its file has them, and ``vary``: dotted fields, each with the values to
try.
"""
Change = Callable[[Loaded], Loaded]
"""Takes a scenario and returns it with something changed."""
Settings = tuple[tuple[str, Any], ...]
"""Dotted fields and the values that a candidate has there."""
VARY = "vary"
UNBOUNDED = "needs a limit on ttft_ms or e2e_ms; without one a queue could grow for ever"
SHARED_FIELD = re.compile(r"(?<![\w.])(?=(?:serving|requests)\.[\w.]+=)")
"""Where a remedy names a field of a scenario that no entry of hardware or strategies states as a
rule.
"""


def _bounds_waiting(limits: Iterable[Limit]) -> bool:
    """Return whether limits bound how long a request waits."""
    return any(limit.metric in ("ttft", "e2e") for limit in limits)


class Offer(Frozen):
    """States a device that may be rented: the price of one, and how many there are."""

    price_usd_per_hour: NonNegative
    """Price of one device (USD per hour); 0 where it is paid for anyway: among fleets that cost
    nothing the answer is that of the fewest devices.
    """
    priced: bool = True
    """Whether that is its price; false where none is known, and it only counts devices."""
    count: int = Field(gt=0, le=1_000_000)
    """How many there are."""
    owned: int | None = Field(default=None, gt=0, le=1_000_000)
    """How many are there already, where no more are to be used; the answer says how many are left,
    and how many would do where these do not. None: as many as there are.
    """

    @model_validator(mode="after")
    def _owned_are_there(self) -> Self:
        if self.owned is not None and self.owned > self.count:
            raise ValueError(f"owned: {self.owned} are more than there are (count: {self.count})")
        return self

    @property
    def usable(self) -> int:
        """Return how many a fleet may use."""
        return self.count if self.owned is None else self.owned


class PlanFile(Frozen):
    """States a plan as it is written; ``scenario`` is what all candidates share, with ``like`` to
    start from another one.
    """

    name: str = ""
    """The name that reports use; the file's name where none is stated."""
    about: str = ""
    """The question that the plan asks, in a sentence."""
    assumed: tuple[str, ...] = ()
    """What was taken by default, in words; the answer repeats it."""
    heads: dict[str, Annotated[str, AfterValidator(checkpoint_name)]] = Field(default={})
    """Checkpoints of draft heads on Hugging Face, by strategy of the plan; exported commands name
    them.
    """
    scenario: Fields
    """The fields that all candidates share, as in a scenario's file."""
    slo: Slo = Slo()
    """The limits that have to be met, by each class of requests where one has an SLO of its own
    and it has none; needs one on ttft_ms or e2e_ms."""
    devices: dict[str, Offer] = Field(min_length=1)
    """The devices that may be rented, by name."""
    hardware: dict[str, Fields] = Field(min_length=1)
    """Ways to place the models, each combined with every strategy. Fields of a scenario, and
    ``vary``.
    """
    strategies: dict[str, Fields] = Field(min_length=1)
    """Ways to decode. Fields of a scenario, and ``vary``."""
    replicas: int = Field(default=8, gt=0, le=10_000)
    """The most replicas that a fleet may have."""
    apart: Literal["no", "try", "only"] = "no"
    """Whether replicas are also split into those that read prompts and those that decode (``try``),
    or all fleets are (``only``).
    """
    handover: PlainData = Field(default={})
    """How requests then go over, as ``serving.handover`` of a scenario; by default over the link
    between the devices of a replica, with a connection for each of them.
    """
    least_chance: float = Field(default=HELPS, ge=0.0, le=1.0)
    """Least chance that speculation is faster than plain decoding with which a fleet that
    speculates is recommended; 0 asks for none."""

    @model_validator(mode="after")
    def _waiting_is_limited(self) -> Self:
        if "slo" in self.model_fields_set and not _bounds_waiting(self.slo.limits):
            raise ValueError(f"slo: {UNBOUNDED}")
        return self


APART = "prefill and decode apart"
"""How the name of a combination ends that cannot be split."""


class FleetSplit(NamedTuple):
    """Says how many replicas of a fleet read prompts, and how many decode."""

    prefill: int
    decode: int

    def __str__(self) -> str:
        """Return both in words."""
        return f"{self.prefill} for prefill and {self.decode} for decode"


@dataclass(frozen=True)
class Candidate:
    """Is one way to serve: a scenario with a single replica, its entries in the plan, and the
    devices that a replica rents.
    """

    hardware: str
    strategy: str
    settings: Settings
    """The values of the fields that are varied, by dotted field."""
    loaded: Loaded = field(repr=False, compare=False)
    devices: Mapping[str, int]
    """The number of devices of one replica, by name; of ``sharing`` where these share some."""
    price_usd_per_hour: float
    """Price of these devices (USD per hour)."""
    most_replicas: int
    """The most replicas within the devices that may be used; 0 where one alone needs more."""
    most_to_rent: int
    """The same within all that there are, owned or not."""
    fewest: int = 1
    """The fewest replicas that are looked at."""
    split: FleetSplit | None = None
    """Its replicas where prefill and decode are apart; None where each does both."""
    sharing: int = 1
    """Replicas that share devices of their draft, and are rented together."""

    def fleet_devices(self, replicas: int) -> dict[str, int]:
        """Return the number of devices of so many replicas, by name."""
        return {name: count * replicas // self.sharing for name, count in self.devices.items()}

    def fleet_usd_per_hour(self, replicas: int) -> float:
        """Return the price of so many replicas (USD per hour)."""
        return replicas * self.price_usd_per_hour / self.sharing

    @property
    def sizes(self) -> list[int]:
        """Return the numbers of replicas that may be rented and that the router has pools for."""
        if self.split:
            return [sum(self.split)]
        router = self.loaded.scenario.serving.router
        sizes = []
        for replicas in range(self.fewest, self.most_replicas + 1):
            if replicas % self.sharing == 0 and router.refusal(replicas) is None:
                sizes.append(replicas)
        return sizes

    @property
    def family(self) -> tuple[str, str]:
        """Return hardware and strategy; candidates that differ in settings alone are one family,
        and those that are split another.
        """
        if self.split:
            return f"{self.hardware}, apart", self.strategy
        return self.hardware, self.strategy

    @property
    def placed(self) -> str:
        """Return the family and the settings, in words: what a replica is, however many there
        are.
        """
        hardware, strategy = self.family
        return ", ".join([f"{strategy} on {hardware}", *self._varied])

    @property
    def name(self) -> str:
        """Return the family and the settings, in words."""
        words = [f"{self.strategy} on {self.hardware}", *self._varied]
        if self.split:
            words.append(str(self.split))
        return ", ".join(words)

    @property
    def _varied(self) -> list[str]:
        """Return the values of the fields that are varied, in words."""
        return [f"{path.split('.')[-1]} {_short(value)}" for path, value in self.settings]

    def changed(self, change: Change) -> Self:
        """Return the candidate with its scenario changed."""
        return replace(self, loaded=change(self.loaded))


@dataclass(frozen=True)
class NoCandidate:
    """Names a combination that cannot run, with its fault."""

    family: tuple[str, str]
    name: str
    error: BadInput = field(repr=False, compare=False)

    @property
    def reason(self) -> str:
        """Return the message of the first fault."""
        return self.error.faults[0].message

    @property
    def no_room(self) -> bool:
        """Return whether it is memory that is short."""
        return isinstance(self.error, Infeasible)


@dataclass(frozen=True)
class Plan:
    """Holds a plan that was read: its file, the candidates to choose among, and the combinations
    that cannot run.
    """

    file: PlanFile
    candidates: tuple[Candidate, ...]
    left_out: tuple[NoCandidate, ...]
    too_large: tuple[Candidate, ...] = ()
    """Those of which one replica needs more devices than are owned."""
    apart: tuple[Candidate, ...] = ()
    """Candidates whose prefill and decode may be apart, each as a replica for either."""
    catalogue: Catalogue = field(default=Catalogue(), repr=False, compare=False)
    """What its names were found in."""

    @property
    def beyond(self) -> Self:
        """Return the plan of the fleets of more devices than are owned, as far as there are any."""
        together = map(_more_of, (*self.candidates, *self.too_large))
        apart = map(_more_of, self.apart)
        return replace(self, candidates=tuple(together), apart=tuple(apart), too_large=())

    def of(self, candidates: Iterable[Candidate], apart: Iterable[Candidate]) -> Self:
        """Return the plan with these candidates alone."""
        return replace(self, candidates=tuple(candidates), apart=tuple(apart))

    def changed(self, change: Callable[[Candidate], Candidate]) -> Self:
        """Return the plan with every candidate changed."""
        return self.of(map(change, self.candidates), map(change, self.apart))


def _more_of(candidate: Candidate) -> Candidate:
    """Return a candidate in all the numbers that are more than may be used, and that there are."""
    most = candidate.most_to_rent
    return replace(candidate, fewest=candidate.most_replicas + 1, most_replicas=most)


def load_plan(
    name: str,
    overrides: tuple[str, ...] = (),
    catalogue: Catalogue | None = None,
    seed: int | None = None,
) -> Plan:
    """Read a plan by name or path; ``overrides`` reach its fields, as ``slo.ttft_ms.p90=500``.

    An entry that fits nothing else in the file is a fault of its own, and one that fits something
    is left out where it does not fit. Raises :class:`BadInput` with all faults found,
    :class:`Infeasible` where no candidate has room for its model.
    """
    catalogue = catalogue or Catalogue()
    plan = combined(amended(catalogue.plan(name), overrides, seed), catalogue)
    _check_entries(plan)
    assumed = with_said(plan.file.assumed, plan)
    return replace(plan, file=plan.file.model_copy(update={"assumed": assumed}))


def with_said(assumed: Iterable[str], plan: Plan) -> tuple[str, ...]:
    """Return what was taken by default, and what candidates take over from their engines and for
    their splits; every sentence once.
    """
    said = []
    for one in plan.candidates:
        for words in said_of_engine(one.loaded.scenario, one.loaded.document):
            said.append(words)
    for one in plan.apart:
        said.append(_said_of_split(plan.file, one))
    return tuple(dict.fromkeys([*assumed, *said]))


def _said_of_split(file: PlanFile, candidate: Candidate) -> str:
    """Return how the requests of a split candidate go over, in words."""
    handover = candidate.loaded.scenario.serving.handover
    if handover is None:
        return ""
    stated = "as stated"
    if "link" not in file.handover:
        stated = f"the link between the devices of {candidate.hardware}"
    words = f"prefill apart from decode: caches go over {handover.link.name} ({stated})"
    if "connections" not in file.handover:
        words += ", a connection for each device of a replica"
    if candidate.loaded.scenario.schedule.window:
        words += f"; what the draft has of a prompt: {handover.draft_state}"
    return words


def amended(document: Document, overrides: tuple[str, ...], seed: int | None) -> Document:
    """Return the document of a plan with ``key=value`` and the seed written into it."""
    for assignment in overrides:
        document.override(assignment)
    if seed is not None and isinstance(document.data.get("scenario"), dict):
        document.data["scenario"]["seed"] = seed
    return document


class _Sources(NamedTuple):
    """What candidates are made from: a plan as it was read, its document, which knows the places of
    faults, and the catalogue that has what both name.
    """

    file: PlanFile
    document: Document
    catalogue: Catalogue


def combined(document: Document, catalogue: Catalogue) -> Plan:
    """Return a plan with every combination of its entries, entries that fit nothing else among
    them.

    Raises :class:`BadInput` for faults of the file itself.
    """
    file = validate(PlanFile, document)
    sources = _Sources(file, document, catalogue)
    base = _base(document, catalogue)
    candidates = []
    too_large = []
    apart = []
    left_out = []
    for names in product(file.hardware, file.strategies):
        for combination in _combinations(sources, base, *names):
            if isinstance(combination, NoCandidate):
                left_out.append(combination)
            elif combination.split:
                apart.append(combination)
            elif combination.most_replicas:
                candidates.append(combination)
            else:
                too_large.append(combination)
                left_out.append(_more_than_owned(file, document, combination))
    return Plan(file, tuple(candidates), tuple(left_out), tuple(too_large), tuple(apart), catalogue)


def _more_than_owned(file: PlanFile, document: Document, candidate: Candidate) -> NoCandidate:
    """Return a candidate of which one replica needs more devices than are owned, with its fault."""
    needs = []
    for name, count in candidate.devices.items():
        owned = file.devices[name].usable
        if count > owned:
            verb = "is" if owned == 1 else "are"
            needs.append(f"{count} x {name}, and {owned} {verb} owned")
    message = f"one replica needs {', '.join(needs)}"
    error = document.refusal(("hardware", candidate.hardware), message)
    return NoCandidate(candidate.family, candidate.name, error)


def _check_entries(plan: Plan) -> None:
    """Raise the fault of an entry that runs with nothing else in the file; that it has no room
    only where nothing in the file runs.
    """
    nothing_runs = not (plan.candidates or plan.too_large)
    for failed in _entries_that_never_run(plan):
        wrong = [entry for entry in failed if not entry.no_room]
        if wrong or nothing_runs:
            raise (wrong or failed)[0].error


def _entries_that_never_run(plan: Plan) -> Iterator[list[NoCandidate]]:
    """Yield the combinations of every entry that runs with nothing else in the file."""
    runnable = (*plan.candidates, *plan.too_large)
    for part, names in enumerate((plan.file.hardware, plan.file.strategies)):
        running = {candidate.family[part] for candidate in runnable}
        for name in names:
            if name not in running:
                yield [entry for entry in plan.left_out if entry.family[part] == name]


def _base(document: Document, catalogue: Catalogue) -> Document:
    """Return what all candidates share, as a scenario's document."""
    shared = _part(document, ("scenario",))
    like = shared.data.pop("like", None)
    if like is None and "target" not in shared.data:
        raise document.refusal(
            ("scenario",), "needs like: the scenario that each candidate starts from; or a target"
        )
    if like is None:
        base = shared
        base.data["name"] = str(document.data.get("name") or "plan")
    else:
        base = catalogue.scenario_of(str(like), shared, ("like",))
        catalogue.lay_over(base, shared)
    catalogue.expand(base)
    return base


def _part(document: Document, path: Path_) -> Document:
    """Return a copy of the document at ``path``."""
    places = {}
    for inner, place in document.places.items():
        if inner[: len(path)] == path:
            places[inner[len(path) :]] = place
    places.setdefault((), document.place(path))
    return Document(deepcopy(document.get(path)), places)


def _combinations(
    sources: _Sources, base: Document, hardware: str, strategy: str
) -> Iterator[Candidate | NoCandidate]:
    """Yield every setting of one family."""
    _, document, catalogue = sources
    paths = (("hardware", hardware), ("strategies", strategy))
    parts = [_part(document, path) for path in paths]
    axes: dict[str, list[Any]] = {}
    for part, path in zip(parts, paths, strict=True):
        axes |= _varied(part, path, document)
    merged = deepcopy(base)
    try:
        for part in parts:
            catalogue.lay_over(merged, part)
            catalogue.expand(merged)
    except BadInput as error:
        yield NoCandidate((hardware, strategy), f"{strategy} on {hardware}", _as_set_here(error))
        return
    for values in product(*axes.values()):
        settings = tuple(zip(axes, values, strict=True))
        yield from _with_settings(sources, deepcopy(merged), hardware, strategy, settings)


def _with_settings(
    sources: _Sources, scenario: Document, hardware: str, strategy: str, settings: Settings
) -> Iterator[Candidate | NoCandidate]:
    """Yield a family's scenario with its varied fields set, and split where the plan says so."""
    try:
        for field_path, value in settings:
            scenario.override(f"{field_path}={in_a_line(value)}")
            sources.catalogue.expand(scenario)
        apart = None if sources.file.apart == "no" else deepcopy(scenario)
        loaded = checked(scenario, sources.catalogue)
        whole = _candidate(sources, loaded, hardware, strategy, settings)
        yield whole
        if apart is not None:
            yield _split(sources, whole, apart)
    except BadInput as error:
        words = [f"{field_path} {_short(value)}" for field_path, value in settings]
        name = ", ".join([f"{strategy} on {hardware}", *words])
        yield NoCandidate((hardware, strategy), name, _as_set_here(error))


def _split(sources: _Sources, whole: Candidate, scenario: Document) -> Candidate | NoCandidate:
    """Return a candidate, whose ``scenario`` is given, with a replica for prefill and one for
    decode; or why they cannot be apart.
    """
    file, document, catalogue = sources
    where = document.place(("apart",))
    target = whole.loaded.scenario.target
    handover: PlainData = deepcopy(file.handover)
    if whole.sharing > 1:
        message = "replicas that share devices of their draft are not split"
        raise BadInput.at(file.name, message, "apart")
    link = scenario.get(("target", "link"))
    if "link" not in handover and isinstance(link, dict):
        handover["link"] = deepcopy(link)
    handover.setdefault("connections", target.tensor_parallel if target else 1)
    try:
        if "link" not in handover:
            message = "no link is known over which requests would go; state one: {link: NAME}"
            raise document.refusal(("handover",), message)
        scenario.put(("serving", "replicas"), 1, where)
        scenario.put(("serving", "scaling"), None, where)
        scenario.put(("serving", "pools"), [{"role": "prefill"}, {"role": "decode"}], where)
        scenario.put(("serving", "handover"), handover, where)
        catalogue.expand(scenario)
        loaded = _priced(file, checked(scenario, catalogue))
        if loaded.scenario.requests.prompts_alone:
            message = "no output has a second token, so that nothing is decoded"
            raise document.refusal(("apart",), message)
    except BadInput as error:
        name = f"{whole.name}, {APART}"
        return NoCandidate(whole.family, name, _as_set_here(error))
    return replace(whole, loaded=loaded, split=FleetSplit(1, 1))


def _as_set_here(error: BadInput) -> BadInput:
    """Return an error whose remedies name fields of the shared scenario as they are set in a
    plan.
    """
    faults = []
    for fault in error.faults:
        faults.append(replace(fault, message=SHARED_FIELD.sub("scenario.", fault.message)))
    return type(error)(faults)


def _varied(part: Document, path: Path_, document: Document) -> dict[str, list[Any]]:
    """Take out of an entry the fields that it varies; return their values by dotted field."""
    axes = part.data.pop(VARY, {})
    where = (*path, VARY)
    if not isinstance(axes, dict):
        raise document.refusal(where, "expected dotted fields, each with a list of values")
    for key, values in axes.items():
        if not isinstance(values, list) or not values:
            raise document.refusal(
                (*where, key), f"expected a list of values to try, got {told(values)}"
            )
    return dict(axes)


def _candidate(
    sources: _Sources, loaded: Loaded, hardware: str, strategy: str, settings: Settings
) -> Candidate:
    """Return a scenario as a candidate; raises :class:`BadInput` where it cannot be planned
    with.
    """
    file, document, _ = sources
    scenario = loaded.scenario
    _check_traffic(scenario, document)
    _check_replica(scenario, document, hardware)
    priced = _priced(file, loaded)
    _check_waiting(priced.scenario, document)
    devices = devices_of(scenario)
    sharing = sharing_targets(scenario.strategy)
    _check_devices(sources, devices, hardware)
    offers = [(file.devices[name], count) for name, count in devices.items()]
    price = ordered_sum(offer.price_usd_per_hour.value * count for offer, count in offers)
    most = file.replicas // sharing
    usable = min([most, *(offer.usable // count for offer, count in offers)])
    to_rent = min([most, *(offer.count // count for offer, count in offers)])
    candidate = Candidate(
        hardware,
        strategy,
        settings,
        priced,
        devices,
        price,
        usable * sharing,
        to_rent * sharing,
        sharing=sharing,
    )
    if usable and not candidate.sizes:
        refusal = scenario.serving.router.refusal(usable) or ""
        raise document.refusal(("scenario", "serving", "router"), refusal)
    return candidate


def _check_traffic(scenario: Scenario, document: Document) -> None:
    """Raise that a plan cannot be about the traffic of a scenario."""
    if not scenario.requests.arrivals:
        raise document.refusal(
            ("scenario", "requests"), "a plan is about traffic: requests needs arrivals"
        )
    if isinstance(scenario.requests.arrivals, Daily):
        raise document.refusal(
            ("scenario", "requests"),
            "a plan is about one rate; take that of the busiest hour, as poisson",
        )
    if scenario.serving.admission is not None:
        raise document.refusal(
            ("scenario", "serving"),
            "a plan serves everybody who comes; leave serving.admission out of the scenario",
        )


def _check_replica(scenario: Scenario, document: Document, hardware: str) -> None:
    """Raise that a scenario has no replica that a plan can price and count."""
    if scenario.target is None:
        raise document.refusal(
            ("hardware", hardware),
            "a plan needs a target on devices; stated durations have no price",
        )
    if scenario.serving.pools:
        raise document.refusal(
            ("scenario", "serving", "pools"),
            "a plan counts replicas that do both; of prefill and decode apart, run each fleet",
        )


def _check_waiting(scenario: Scenario, document: Document) -> None:
    """Raise that requests, or those of a class that has an SLO, may wait for ever within it."""
    classes = scenario.requests.classes or {}
    held = [name for name, given in classes.items() if given.slo is not None]
    limits = limits_of(scenario)
    for of in held or [""]:
        if not _bounds_waiting(limit for limit in limits if limit.of == of):
            raise document.refusal(("slo",), f"{of} {UNBOUNDED}".lstrip())


def _check_devices(sources: _Sources, devices: Mapping[str, int], hardware: str) -> None:
    """Raise that there are not the devices that one replica needs."""
    offers = sources.file.devices
    where = ("hardware", hardware)
    for name, count in devices.items():
        if name not in offers:
            message = f"uses {name}, which is not among devices: {', '.join(offers)}"
            raise sources.document.refusal(where, message)
        if count > offers[name].count:
            message = f"needs {count} x {name}, and there are {offers[name].count}"
            raise sources.document.refusal(where, message)


def devices_of(scenario: Scenario) -> Counter[str]:
    """Return the number of devices that one replica rents, by name; or as many replicas as share
    some of them.
    """
    devices: Counter[str] = Counter()
    sharing = sharing_targets(scenario.strategy)
    for group in rented_devices(scenario):
        devices[group.device.name] += round(sharing * group.number)
    return devices


def _priced(file: PlanFile, loaded: Loaded) -> Loaded:
    """Return a scenario with the limits and prices of the plan."""

    def priced(device: Device) -> Device:
        offer = file.devices.get(device.name)
        if offer:
            return device.model_copy(update={"price_usd_per_hour": offer.price_usd_per_hour})
        return device

    scenario = replace_nested(loaded.scenario, Device, priced)
    return Loaded(
        scenario.replace(slo=file.slo, requests=with_slo_by_class(scenario.requests, file.slo)),
        loaded.trace,
        loaded.document,
        loaded.verdicts,
    )


def _short(value: Any) -> str:
    if isinstance(value, dict | list):
        return in_a_line(value)
    return str(value)
