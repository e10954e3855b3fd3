"""Terms: numbers of a device or an engine that files of a running service may tell.

A term is a time, which is fitted in its unit and cannot be below 0, or an efficiency, which is
fitted as a ratio to what the profile has in all entries alike and keeps each of them at most 1.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from math import exp, inf, log
from typing import Any, Literal, NamedTuple

from simulator.core.cost.device import Device
from simulator.core.cost.engine import Engine
from simulator.core.faults import BadInput, did_you_mean
from simulator.core.plain import PlainData

Values = Mapping[str, float]
"""Values of terms by name: times in their units, efficiencies as the logarithm of a ratio."""
LEAST_RATIO = 1e-4
"""Least ratio of an efficiency to that of the profile that a fit starts from."""
TOGETHER = 8
"""Terms that are fitted together, at most."""


class Term(NamedTuple):
    """A number that may be fitted."""

    name: str
    """Dotted, as ``--free`` takes it; ``KIND`` in it stands for how drafts come about."""
    what: str
    """What it is, in words."""
    part: Literal["device", "engine"]
    paths: Sequence[tuple[str, ...]]
    """Where its numbers stand in the profile; ``*`` is every entry."""
    usual: float
    """A usual size in its unit, by which steps are taken from 0; 1 for an efficiency."""
    remedy: str
    """What a file would have to be of to tell it."""

    @property
    def is_ratio(self) -> bool:
        """Return whether it is an efficiency."""
        return self.name.endswith("efficiency")

    def numbers(self, profile: PlainData) -> Iterator[PlainData]:
        """Yield its numbers in the plain data of a profile, as mappings with a value."""
        for path in self.paths:
            yield from _numbers(profile, path)

    def value(self, profile: PlainData) -> float:
        """Return its value in a profile: of an efficiency the first."""
        return next((float(number["value"]) for number in self.numbers(profile)), 0.0)

    def start(self, profile: PlainData) -> float:
        """Return its value as a fit has it in the profile that it starts from."""
        return 0.0 if self.is_ratio else self.value(profile)

    def ends(self, profile: PlainData) -> tuple[float, float]:
        """Return between which values a fit may move it."""
        if not self.is_ratio:
            return 0.0, inf
        largest = max((float(number["value"]) for number in self.numbers(profile)), default=1.0)
        return log(LEAST_RATIO), max(1e-6, -log(largest))

    def put(self, profile: PlainData, value: float, words: PlainData) -> None:
        """Put a value into the plain data of a profile; ``words`` go beside each number."""
        if self.name.startswith("engine.speculation."):
            kind = self.paths[0][1]
            profile.setdefault("speculation", {}).setdefault(kind, {"fixed_us": {"value": 0.0}})
            host = profile["speculation"][kind]
            host.setdefault(self.paths[0][2], {"value": 0.0})
        for number in list(self.numbers(profile)):
            changed = float(number["value"]) * exp(value) if self.is_ratio else max(0.0, value)
            number.update({"value": changed, **words})
            for end in ("low", "high"):
                if end not in words:
                    number.pop(end, None)


def _numbers(data: Any, path: tuple[str, ...]) -> Iterator[PlainData]:
    """Yield the mappings at a path; a plain number becomes one."""
    if not isinstance(data, dict):
        return
    first, *rest = path
    names = list(data) if first == "*" else [name for name in (first,) if name in data]
    for name in names:
        if rest:
            yield from _numbers(data[name], tuple(rest))
            continue
        if isinstance(data[name], int | float):
            data[name] = {"value": data[name], "source": "not stated"}
        if isinstance(data[name], dict):
            yield data[name]


SPECULATION = "engine.speculation.KIND."
CLIENTS = "runs of one and of many clients (8 or more)"
TERMS = (
    Term(
        "engine.outside_ms",
        "time of a request outside of the engine, before its first token",
        "engine",
        [("outside_ms",)],
        10.0,
        "prompts of two lengths, or scrapes of /metrics beside a client's times",
    ),
    Term(
        "device.matmul.memory_efficiency",
        "share of the memory's bandwidth that products reach",
        "device",
        [("matmul", "*", "memory_efficiency"), ("experts", "*", "memory_efficiency")],
        1.0,
        "forward-pass metrics, or runs of a second model or weight format on the same device",
    ),
    Term(
        "device.matmul.compute_efficiency",
        "share of the peak that products over many rows reach",
        "device",
        [("matmul", "*", "compute_efficiency"), ("experts", "*", "compute_efficiency")],
        1.0,
        f"prompts of several hundred tokens, or {CLIENTS}",
    ),
    Term(
        "device.small_operations.fixed_us",
        "fixed time of a layer",
        "device",
        [("small_operations", "fixed_us")],
        20.0,
        "a run with a draft model and one without, or forward-pass metrics",
    ),
    Term(
        "engine.schedule_us",
        "time of the host to schedule a step, where the step waits for it",
        "engine",
        [("schedule_us",)],
        500.0,
        "an engine whose scheduling is waited for, and forward-pass metrics",
    ),
    Term(
        "engine.schedule_us_per_request",
        "the same for each request of the step",
        "engine",
        [("schedule_us_per_request",)],
        20.0,
        CLIENTS,
    ),
    Term(
        f"{SPECULATION}pass_us",
        "time of each pass of the draft beside what it computes",
        "engine",
        [("speculation", "KIND", "pass_us")],
        100.0,
        "two values of K",
    ),
    Term(
        "engine.verified_row_us",
        "time of a verified row: its logits, compared and sampled",
        "engine",
        [("verified_row_us",)],
        10.0,
        f"two values of K, and {CLIENTS}",
    ),
    Term(
        f"{SPECULATION}fixed_us",
        "time of a step that verifies drafts, whatever the batch",
        "engine",
        [("speculation", "KIND", "fixed_us")],
        200.0,
        "two values of K, and a run without speculation",
    ),
    Term(
        f"{SPECULATION}request_us",
        "the same for each request that verifies drafts",
        "engine",
        [("speculation", "KIND", "request_us")],
        20.0,
        f"{CLIENTS}, and a run without speculation",
    ),
    Term(
        "engine.sampling_us",
        "time to choose tokens from the logits of a pass",
        "engine",
        [("sampling_us",)],
        100.0,
        "a run with a draft model and one without",
    ),
    Term(
        "engine.host_us_per_pass",
        "time of the host for a pass, which the device hides where launches are asynchronous",
        "engine",
        [("host_us_per_pass",)],
        200.0,
        "an engine whose launches are waited for",
    ),
    Term(
        "engine.host_us_per_layer",
        "time of the host to launch a layer, hidden likewise",
        "engine",
        [("host_us_per_layer",)],
        20.0,
        "an engine whose launches are waited for",
    ),
    Term(
        "device.attention.memory_efficiency",
        "share of the memory's bandwidth that attention reaches",
        "device",
        [
            ("attention", "memory_efficiency"),
            ("attention", "decode", "memory_efficiency"),
            ("attention", "prefill", "memory_efficiency"),
        ],
        1.0,
        "contexts of a thousand tokens and more",
    ),
)
"""Terms in the order in which they are taken; the first that act are fitted, at most
:data:`TOGETHER` of them."""


def terms_of(kinds: Sequence[str], free: Sequence[str] = ()) -> list[Term]:
    """Return the terms that may be fitted, where drafts come about in these ``kinds``; those that
    are named in ``free`` where any are.

    Raises :class:`BadInput` for a name that is none, and for more than :data:`TOGETHER`.
    """
    known: dict[str, Term] = {}
    for term in TERMS:
        if "KIND" not in term.name:
            known[term.name] = term
            continue
        for kind in kinds:
            paths = [tuple(kind if key == "KIND" else key for key in path) for path in term.paths]
            name = term.name.replace("KIND", kind)
            known[name] = term._replace(name=name, paths=paths)
    for name in free:
        if name not in known:
            names = ", ".join(known)
            message = f"there is no term '{name}'{did_you_mean(name, known)}; there are {names}"
            raise BadInput.at("--free", message)
    if len(set(free)) > TOGETHER:
        message = f"expected at most {TOGETHER} terms, got {len(set(free))}"
        raise BadInput.at("--free", message)
    return [known[name] for name in dict.fromkeys(free)] if free else list(known.values())


class Profiles(NamedTuple):
    """A device and an engine, in which terms can be changed."""

    device: Device
    engine: Engine

    def data(self, term: Term) -> PlainData:
        """Return the plain data of the profile that a term is of."""
        profile: Device | Engine = self.device if term.part == "device" else self.engine
        return profile.model_dump(exclude_none=True)

    def with_values(self, terms: Sequence[Term], values: Values) -> "Profiles":
        """Return device and engine with other values of terms."""
        device = self.device.model_dump(exclude_none=True)
        engine = self.engine.model_dump(exclude_none=True)
        of_device = of_engine = False
        for term in terms:
            if term.name not in values:
                continue
            if term.part == "device":
                of_device = True
                term.put(device, values[term.name], {})
            else:
                of_engine = True
                term.put(engine, values[term.name], {})
        return Profiles(
            Device.model_validate(device) if of_device else self.device,
            Engine.model_validate(engine) if of_engine else self.engine,
        )


def written(term: Term, data: PlainData, value: float, spread: float, source: str) -> None:
    """Put a fitted value into the content of a profile's file; a time of an engine with a range of
    ``spread`` to both sides, 1.645 standard errors. A device's file has no ranges.
    """
    before = deepcopy(data)
    words: PlainData = {"source": f"calibrated-on: {source}", "confidence": "calibrated"}
    term.put(data, value, words)
    if not list(term.numbers(before)) and not list(term.numbers(data)):
        # a file that leaves it to the default states it from now on
        path = term.paths[0]
        inner = data
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = {"value": value, **words}
    for number in term.numbers(data):
        if term.is_ratio or term.part == "device":
            number["value"] = _rounded(float(number["value"]))
            continue
        centre = float(number["value"])
        number["value"] = _rounded(centre)
        number["low"] = min(number["value"], _rounded(max(0.0, centre - spread)))
        number["high"] = max(number["value"], _rounded(centre + spread))


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
