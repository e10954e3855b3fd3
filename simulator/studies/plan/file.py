"""Plan file: models, traffic, an SLO, the devices that may be rented, and the alternatives to choose among.

    candidates = hardware x strategies x everything that either of them varies

Every candidate is a whole scenario: ``scenario`` with an entry of ``hardware`` and one of ``strategies`` laid over it, field by
field as with ``like``. So whatever a scenario can say can be planned with, and nothing here knows what that is.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import product
from typing import Annotated, Any

from pydantic import Field, model_validator

from simulator.catalogue import Catalogue
from simulator.cost.device import Device
from simulator.files.schema import BadInput, Document, Frozen, Infeasible, Path_, Positive, replace_nested, validate
from simulator.numeric import ordered_sum
from simulator.scenario import Loaded, Scenario, checked
from simulator.scenario.expenses import rented_devices
from simulator.serving.slo import Slo

Fields = Annotated[dict[str, Any], Field(min_length=1)]
"""Fields of a scenario as its file has them; beside them ``vary``: dotted fields, each with the values to try."""
VARY = "vary"


class Offer(Frozen):
    """A device that may be rented: the price of one, and how many there are."""

    price_usd_per_hour: Positive
    """Of one."""
    count: int = Field(gt=0)
    """How many there are."""


class PlanFile(Frozen):
    """A plan as it is written; ``scenario`` is what all candidates share, with ``like`` to start from another one."""

    name: str = ""
    """What reports call it; the file's name where none is stated."""
    about: str = ""
    """What it asks, in a sentence."""
    scenario: Fields
    """What all candidates share, as in a scenario's file."""
    slo: Slo
    """What has to be kept; needs a limit on ttft_ms or e2e_ms."""
    devices: dict[str, Offer] = Field(min_length=1)
    """What may be rented, by name of the device."""
    hardware: dict[str, Fields] = Field(min_length=1)
    """Ways to place it: every one of these with every strategy. Fields of a scenario, and ``vary``."""
    strategies: dict[str, Fields] = Field(min_length=1)
    """Ways to decode. Fields of a scenario, and ``vary``."""
    replicas: int = Field(default=8, gt=0)
    """At most so many."""

    @model_validator(mode="after")
    def _waiting_is_limited(self) -> PlanFile:
        if not {"ttft", "e2e"} & {limit.metric for limit in self.slo.limits}:
            raise ValueError("slo: needs a limit on ttft_ms or e2e_ms; without one a queue could grow for ever")
        return self


@dataclass(frozen=True)
class Candidate:
    """One way to serve: a scenario with a single replica, what it is made of, and what a replica of it rents."""

    hardware: str
    strategy: str
    settings: tuple[tuple[str, Any], ...]
    """What was varied, by dotted field."""
    loaded: Loaded = field(repr=False, compare=False)
    devices: Mapping[str, int]
    """Devices of one replica, by name."""
    price_usd_per_hour: float
    """Of one replica."""
    most_replicas: int

    @property
    def family(self) -> tuple[str, str]:
        """Candidates that differ in settings alone are one family."""
        return self.hardware, self.strategy

    @property
    def name(self) -> str:
        """Its family and settings, in words."""
        varied = (f"{path.split('.')[-1]} {_short(value)}" for path, value in self.settings)
        return ", ".join([f"{self.strategy} on {self.hardware}", *varied])


@dataclass(frozen=True)
class NoCandidate:
    """A combination that cannot run, and why."""

    family: tuple[str, str]
    name: str
    error: BadInput = field(repr=False, compare=False)

    @property
    def reason(self) -> str:
        """The first fault."""
        return self.error.faults[0].message

    @property
    def no_room(self) -> bool:
        """It is the memory that is short."""
        return isinstance(self.error, Infeasible)


@dataclass(frozen=True)
class Plan:
    """A plan that was read: its file and everything there is to choose among."""

    file: PlanFile
    candidates: tuple[Candidate, ...]
    left_out: tuple[NoCandidate, ...]


def load_plan(name: str, overrides: tuple[str, ...] = (), catalogue: Catalogue | None = None, seed: int | None = None) -> Plan:
    """Read a plan by name or path; ``overrides`` reach its fields, as ``slo.ttft_ms.p90=500``.

    An entry that fits nothing else in the file is a fault of its own, and one that fits something is left out where it does
    not fit. Raises :class:`BadInput` with all faults found, :class:`Infeasible` where no candidate has room for its model.
    """
    catalogue = catalogue or Catalogue()
    document = catalogue.plan(name)
    for assignment in overrides:
        document.override(assignment)
    if seed is not None and isinstance(document.data.get("scenario"), dict):
        document.data["scenario"]["seed"] = seed
    file = validate(PlanFile, document)
    base = _base(document, catalogue)
    found = [_try(file, document, base, catalogue, *names) for names in product(file.hardware, file.strategies)]
    every = [one for tried in found for one in tried]
    plan = Plan(
        file,
        tuple(one for one in every if isinstance(one, Candidate)),
        tuple(one for one in every if isinstance(one, NoCandidate)),
    )
    _check_entries(plan)
    return plan


def _check_entries(plan: Plan) -> None:
    """Raise the fault of an entry that runs with nothing else in the file."""
    for part, names in enumerate((plan.file.hardware, plan.file.strategies)):
        for name in names:
            if not any(one.family[part] == name for one in plan.candidates):
                errors = [one.error for one in plan.left_out if one.family[part] == name]
                wrong = [error for error in errors if not isinstance(error, Infeasible)]
                if wrong or not plan.candidates:
                    raise (wrong or errors)[0]


def _base(document: Document, catalogue: Catalogue) -> Document:
    """What all candidates share, as a scenario's document."""
    shared = _part(document, ("scenario",))
    like = shared.data.pop("like", None)
    if like is None:
        raise BadInput([document.fault(("scenario",), "needs like: the scenario that every candidate starts from")])
    base = catalogue.scenario_of(str(like), shared, ("like",))
    catalogue.lay_over(base, shared)
    catalogue.expand(base)
    return base


def _part(document: Document, path: Path_) -> Document:
    """The document at ``path``, to be changed at will."""
    places = {inner[len(path) :]: place for inner, place in document.places.items() if inner[: len(path)] == path}
    return Document(deepcopy(document.get(path)), places)


def _try(
    file: PlanFile, document: Document, base: Document, catalogue: Catalogue, hardware: str, strategy: str
) -> Iterator[Candidate | NoCandidate]:
    """Every setting of one family."""
    parts = [_part(document, ("hardware", hardware)), _part(document, ("strategies", strategy))]
    varied = [
        _varied(part, path, document)
        for part, path in zip(parts, (("hardware", hardware), ("strategies", strategy)), strict=True)
    ]
    merged = deepcopy(base)
    try:
        for part in parts:
            catalogue.lay_over(merged, part)
            catalogue.expand(merged)
    except BadInput as error:
        yield NoCandidate((hardware, strategy), f"{strategy} on {hardware}", error)
        return
    axes = varied[0] | varied[1]
    for values in product(*axes.values()):
        settings = tuple(zip(axes, values, strict=True))
        one = deepcopy(merged)
        try:
            for path, value in settings:
                one.override(f"{path}={json.dumps(value)}")
                catalogue.expand(one)
            yield _candidate(file, document, checked(one, catalogue), hardware, strategy, settings)
        except BadInput as error:
            words = ", ".join(f"{path} {_short(value)}" for path, value in settings)
            yield NoCandidate((hardware, strategy), f"{strategy} on {hardware}" + (f", {words}" if words else ""), error)


def _varied(part: Document, path: Path_, document: Document) -> dict[str, list[Any]]:
    """What an entry varies, taken out of it."""
    found = part.data.pop(VARY, {})
    where = (*path, VARY)
    if not isinstance(found, dict):
        raise BadInput([document.fault(where, "expected dotted fields, each with a list of values")])
    for key, values in found.items():
        if not isinstance(values, list) or not values:
            raise BadInput([document.fault((*where, key), f"expected a list of values to try, got {values!r}")])
    return dict(found)


def _candidate(
    file: PlanFile, document: Document, loaded: Loaded, hardware: str, strategy: str, settings: tuple[tuple[str, Any], ...]
) -> Candidate:
    scenario, where = loaded.scenario, ("hardware", hardware)
    if not scenario.requests.arrivals:
        raise BadInput([document.fault(("scenario", "requests"), "a plan is about traffic: requests needs arrivals")])
    if scenario.target is None:
        raise BadInput([document.fault(where, "a plan needs a target on devices; stated durations have no price")])
    devices = devices_of(scenario)
    for name, count in devices.items():
        offer = file.devices.get(name)
        if offer is None:
            raise BadInput([document.fault(where, f"uses {name}, which is not among devices: {', '.join(file.devices)}")])
        if count > offer.count:
            raise BadInput([document.fault(where, f"needs {count} x {name}, and there are {offer.count}")])
    price = ordered_sum(file.devices[name].price_usd_per_hour.value * count for name, count in devices.items())
    most = min(file.replicas, *(file.devices[name].count // count for name, count in devices.items()))
    return Candidate(hardware, strategy, settings, _priced(file, loaded), devices, price, most)


def devices_of(scenario: Scenario) -> Counter[str]:
    """Devices that one replica rents, by name."""
    found: Counter[str] = Counter()
    for one in rented_devices(scenario):
        found[one.device.name] += one.number
    return found


def _priced(file: PlanFile, loaded: Loaded) -> Loaded:
    """With the plan's limits and prices in place of the scenario's own."""

    def priced(device: Device) -> Device:
        offer = file.devices.get(device.name)
        return device.model_copy(update={"price_usd_per_hour": offer.price_usd_per_hour}) if offer else device

    scenario = replace_nested(loaded.scenario, Device, priced)
    return Loaded(scenario.replace(slo=file.slo), loaded.trace, loaded.document)


def _short(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)
