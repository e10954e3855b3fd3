"""A question as it is typed in one line, and as a plan takes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from simulator.core.faults import BadInput
from simulator.core.plain import PlainData
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.logs import ROLES
from simulator.inputs.models.named import find_model
from simulator.inputs.shell import repeated
from simulator.studies.plan.line.load import busiest, talked
from simulator.studies.plan.line.words import (
    CountedGroup,
    Limits,
    TypedDevices,
    option_fault,
    read_classes,
    read_devices,
    read_fleets,
    read_pairs,
    read_prices,
    read_slo,
)
from simulator.studies.plan.question import (
    DEFAULTS,
    PlanQuestion,
    workload_fields,
)

OF_LOGS = ("rate", "requests", "columns")
"""Fields about a file of requests, which a workload by name has itself."""


@dataclass(frozen=True)
class PlanLine:
    """States a question as somebody types it, each field what stands behind one option; None and
    empty where it was left out.
    """

    model: str | None = None
    device: str | None = None
    fleets: tuple[str, ...] = field(default=(), metadata={"option": "--compare"})
    traffic: str | None = None
    sessions: str | None = None
    columns: str | None = None
    rate: float | None = None
    requests: int | None = None
    limits: Mapping[str, str] = field(default_factory=dict)
    """Limits by option: a time by ``ttft_p95``."""
    slos: tuple[str, ...] = field(default=(), metadata={"option": "--slo"})
    classes: tuple[str, ...] = field(default=(), metadata={"option": "--class"})
    price: str | None = None
    engine: str | None = None
    draft: str | None = None
    weights: str | None = None
    apart: str | None = None
    link: str | None = None

    @property
    def stated(self) -> dict[str, Any]:
        """Return the fields that were typed, by name."""
        named = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: value for name, value in named.items() if value not in (None, (), {})}

    @property
    def words(self) -> list[str]:
        """Return the line as it can be typed again."""
        words = []
        for name, value in self.stated.items():
            if name == "limits":
                for limit, time in self.limits.items():
                    words += [f"--{limit.replace('_', '-')}", time]
            elif isinstance(value, tuple):
                words += repeated(typed_option(name), value)
            else:
                words += [typed_option(name), str(value)]
        return words

    def fault(self, name: str, message: str) -> BadInput:
        """Return the error of a field that was typed."""
        return option_fault(typed_option(name), getattr(self, name), message)


def typed_option(name: str) -> str:
    """Return the option of a field of :class:`PlanLine`."""
    for entry in fields(PlanLine):
        if entry.name == name:
            return str(entry.metadata.get("option", f"--{name}"))
    return f"--{name}"


class AskedFleets(NamedTuple):
    """Holds what a line asks of the fleets that it compares."""

    question: PlanQuestion
    fleets: Sequence[Sequence[CountedGroup]]
    """The devices that serve in each."""


def asked_fleets(line: PlanLine, catalogue: Catalogue) -> AskedFleets:
    """Return the fleets that a line compares, and what it asks of them; the numbers of devices are
    each fleet's.

    Raises :class:`BadInput` as :func:`asked_question`.
    """
    if line.device is not None:
        message = "says what is owned beside --compare, which does; leave one of them out"
        raise line.fault("device", message)
    fleets = read_fleets(line.fleets, catalogue)
    groups = []
    for fleet in fleets:
        for group in fleet:
            groups.append(TypedDevices(group.device, None, group.begun))
    return AskedFleets(_asked(line, groups, catalogue), fleets)


def asked_question(line: PlanLine, catalogue: Catalogue) -> PlanQuestion:
    """Return the question of a line, whose devices are those of ``--device``.

    Raises :class:`BadInput` for what it lacks, and for options that say nothing.
    """
    groups: Sequence[TypedDevices] = ()
    if line.device is not None:
        groups = read_devices(line.device, catalogue)
    return _asked(line, groups, catalogue)


def _asked(line: PlanLine, groups: Sequence[TypedDevices], catalogue: Catalogue) -> PlanQuestion:
    """Return the question of a line about these devices."""
    slo = read_slo(line.limits, line.slos)
    classes = read_classes(line.classes)
    _check_complete(line, slo, classes)
    model = str(line.model)
    requests, said = _asked_load(line, model, catalogue)
    return PlanQuestion(
        model=model,
        devices=tuple(dict.fromkeys(group.device for group in groups)),
        requests=requests,
        slo=slo,
        prices=read_prices(line.price, catalogue),
        engine=line.engine,
        draft=line.draft,
        weights=line.weights,
        said=(*said, *dict.fromkeys(group.taken for group in groups if group.taken)),
        classes=classes,
        apart=line.apart or "no",
        link=_link(line),
        owned={group.device: group.count for group in groups if group.count is not None},
    )


def _check_complete(line: PlanLine, slo: Limits, classes: Mapping[str, PlainData]) -> None:
    """Raise :class:`BadInput` where a question lacks something: a model, a device, its load, or a
    limit on the wait, which classes may have instead of all requests.
    """
    missing = []
    if line.model is None:
        missing.append("--model")
    if line.device is None and not line.fleets:
        missing.append("--device")
    if line.traffic is None and line.sessions is None:
        missing.append("--traffic")
    limits_of_classes = bool(classes) and all("slo" in given for given in classes.values())
    if not (slo.keys() & {"ttft_ms", "e2e_ms"} or (limits_of_classes and not slo)):
        missing.append("a limit on the wait (--ttft-p95 1s)")
    if missing:
        message = f"needs a PLAN, or a question; it lacks {', '.join(missing)}"
        if "--device" in missing:
            message += "; specsim list device names them, as in --device a100_80g_sxm,h100_sxm"
        raise BadInput.at("specsim plan", message)


def _asked_load(
    line: PlanLine, model: str, catalogue: Catalogue
) -> tuple[str | PlainData, tuple[str, ...]]:
    """Return the requests of a line, and what is said of how they were read; the name of a workload
    stays as it is.
    """
    count = line.requests or DEFAULTS["requests"]["value"]
    if line.sessions is not None:
        for name in ("traffic", "columns"):
            if name in line.stated:
                raise line.fault(name, "is for a log of requests; leave it out beside --sessions")
        if line.rate is not None and not 0.0 < line.rate < inf:
            raise line.fault("rate", "expected sessions per second above 0")
        requests, said = talked(line.sessions, count, line.rate, _context(model, catalogue))
        return requests, tuple(said)
    traffic = str(line.traffic)
    if not (Path(traffic).suffix or "/" in traffic):
        _refuse_beside_workload(line, traffic, catalogue)
        return traffic, ()
    columns = dict(read_pairs("--columns", line.columns, ROLES))
    requests, said = busiest(traffic, columns, count, line.rate, _context(model, catalogue))
    return requests, tuple(said)


def _context(model: str, catalogue: Catalogue) -> int | None:
    """Return the most tokens of a request that a model takes; None where that is not known."""
    return find_model(model, catalogue, f"--model {model}").spec.context_tokens


def _refuse_beside_workload(line: PlanLine, workload: str, catalogue: Catalogue) -> None:
    """Raise :class:`BadInput` for options about a log beside a workload, which has them itself."""
    for name in OF_LOGS:
        if name not in line.stated:
            continue
        arrivals = workload_fields(workload, catalogue).get("arrivals") or {}
        if name == "requests":
            remedy = f"write --set scenario.requests.count={line.requests}"
        elif name == "columns":
            remedy = "leave it out"
        elif "rate_per_s" in arrivals:
            remedy = f"write --set scenario.requests.arrivals.rate_per_s={line.rate:g}"
        else:
            remedy = (
                "write --set scenario.requests.arrivals.rate_scale=2 for twice as many a second"
            )
        message = f"is for a file, and the workload '{workload}' states it itself; {remedy}"
        raise line.fault(name, message)


def _link(line: PlanLine) -> str | None:
    """Return the link between prefill and decode; raises :class:`BadInput` where they stay
    together.
    """
    if line.link is not None and line.apart in (None, "no"):
        raise line.fault("link", "is between prefill and decode; add --apart try")
    return line.link
