"""Drafts beside the target, side by side: every method of the catalogue that drafts on devices of
its own, with the window that is best for each batch, beside plain decoding and serial speculation.

A method that takes more devices is compared with what they bring otherwise: the same requests,
shared out evenly over as many copies of the target as there would be devices for, in plain decoding
and in serial speculation with the draft on the target's own devices. Serial speculation has the
best window of its batch, too.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import ceil, floor
from typing import NamedTuple, TypeAlias

from simulator.core.faults import BadInput, Fault
from simulator.core.parallel import counted
from simulator.core.plain import PlainData
from simulator.core.strategies.common.beside import DraftsBeside
from simulator.core.strategies.common.capabilities import draft_devices
from simulator.inputs.catalogue import Catalogue
from simulator.scenario import Loaded, evaluate, load
from simulator.scenario.decision.by_law import drawn_speedup
from simulator.scenario.decision.verdict import Verdict, verdict
from simulator.studies.batches import at_size
from simulator.studies.method_features import read_method

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
WINDOWS = range(1, 9)
"""Windows that each method may choose from, in draft tokens, beside that of its file."""
SERIAL = "serial"
SERIAL_APART = "serial, draft apart"
TimeOfToken: TypeAlias = Callable[[int], float]
"""Seconds a token of one of so many requests that decode together."""


class ParallelCandidate(NamedTuple):
    """Holds a method with each of its windows: what would run, or why it cannot."""

    method: str
    windows: Mapping[int, Loaded]
    """Scenarios by their window, in draft tokens."""
    reason: str = ""


class ParallelCandidates(NamedTuple):
    """Holds serial speculation on the target's devices, and all that is compared with it."""

    serial: ParallelCandidate
    methods: tuple[ParallelCandidate, ...]


@dataclass(frozen=True)
class ParallelPoint:
    """Holds what a method with its best window comes to in one batch, by law."""

    method: str
    batch: int
    """Requests that decode together at one target."""
    window: int
    """Draft tokens of a window."""
    devices: float
    """Devices for one target, with those of its drafts."""
    tpot_ms: float
    """Milliseconds a token of one request."""
    speedup: float
    """Over plain decoding of the same batch on the target's devices."""
    chance: float
    """Chance that it is faster than that, as a share of 1."""
    tokens_per_s_per_device: float
    over_plain: float
    """Over plain decoding of the same requests on as many devices."""
    over_serial: float | None
    """Over serial speculation of the same requests on as many devices; None of that itself."""
    chance_on_devices: float
    """Chance that it is faster than both of these, as uncertain as the speed-up; a share of 1."""

    @property
    def verdict(self) -> Verdict:
        """Return whether a token comes sooner than without speculation."""
        return verdict(self.chance)

    @property
    def verdict_on_devices(self) -> Verdict:
        """Return whether its devices are worth more to it than otherwise."""
        return verdict(self.chance_on_devices)

    @property
    def on_devices(self) -> float:
        """Return its speed over the better of both ways to use as many devices otherwise."""
        if self.over_serial is None:
            return self.over_plain
        return min(self.over_plain, self.over_serial)


@dataclass(frozen=True)
class ExcludedParallel:
    """Names a method that does not run, at all or in larger batches, and why."""

    method: str
    reason: str


@dataclass(frozen=True)
class ParallelComparison:
    """Holds the points of all methods, by batch, the quickest first."""

    scenario: str
    conditions: str
    """Target and draft with their devices, in words."""
    points: tuple[ParallelPoint, ...]
    excluded: tuple[ExcludedParallel, ...]
    never_off_exit: tuple[str, ...] = ()
    """Methods that send tokens of an early exit, of which the acceptance states no misses."""

    def as_data(self) -> PlainData:
        """Return the comparison as plain data."""
        rows = []
        for point in self.points:
            verdicts = {
                "verdict": point.verdict,
                "verdict_on_devices": point.verdict_on_devices,
            }
            rows.append(asdict(point) | verdicts)
        return {
            "scenario": self.scenario,
            "points": rows,
            "left_out": [asdict(method) for method in self.excluded],
        }

    def worth_it(self, method: str) -> list[int]:
        """Return the batches in which a method is quicker than its devices are otherwise."""
        return [
            point.batch
            for point in self.points
            if point.method == method and point.on_devices > 1.0
        ]


def candidates(
    scenario: str,
    overrides: Sequence[str] = (),
    catalogue: Catalogue | None = None,
    seed: int | None = None,
    only: Collection[str] = (),
) -> ParallelCandidates:
    """Return serial speculation, and every method of the catalogue that drafts beside the target,
    or those of ``only``.

    Raises :class:`BadInput` for faults of the scenario itself, and for a name in ``only`` that is
    no such method.
    """
    catalogue = catalogue or Catalogue()
    base = load(scenario, overrides, catalogue, seed)

    def with_windows(
        name: str, chosen: str, own: int = 1, more: Sequence[str] = ()
    ) -> ParallelCandidate:
        windows = {}
        reason = ""
        for window in sorted({*WINDOWS, own}):
            sets = [*overrides, "requests.concurrency=1", f"strategy={chosen}", *more]
            try:
                windows[window] = load(
                    scenario, [*sets, f"strategy.gamma={window}"], catalogue, seed
                )
            except BadInput as error:
                reason = reason or error.faults[0].message
        return ParallelCandidate(name, windows, reason)

    serial = with_windows(SERIAL, "{name: vanilla_sd}", more=_on_the_targets_devices(base))
    beside = {}
    for name, path in catalogue.names("method").items():
        strategy = read_method(path).strategy
        if isinstance(strategy, DraftsBeside):
            beside[name] = (str(path.resolve()), strategy.window)
    for name in only:
        if name not in beside:
            known = ", ".join(beside)
            message = f"'{name}' does not draft beside the target; these do: {known}"
            raise BadInput.at(f"--only {name}", message)
    methods = [with_windows(SERIAL_APART, "{name: vanilla_sd}")]
    for name in only or beside:
        methods.append(with_windows(name, *beside[name]))
    return ParallelCandidates(serial, tuple(methods))


def _on_the_targets_devices(base: Loaded) -> list[str]:
    """Return what puts the draft of a scenario on its target's devices."""
    target = base.scenario.target
    if target is None or base.scenario.draft is None:
        return []
    sets = [f"draft.device={target.device.name}", "draft.tensor_parallel=1", "channel=null"]
    return [f"draft.machine={target.machine or 'server'}", *sets, "draft.link=null"]


def study(
    tried: ParallelCandidates, scenario: str, sizes: Iterable[int] = SIZES
) -> ParallelComparison:
    """Return all methods at all sizes, and why some do not run.

    Raises :class:`BadInput` where serial speculation, with which all are compared, does not run.
    """
    serial = tried.serial
    if not serial.windows:
        raise BadInput([Fault((scenario, 0, 0), "", f"no serial speculation: {serial.reason}")])
    points = list[ParallelPoint]()
    excluded = []

    @cache
    def serial_tpot_s(requests: int) -> float:
        found = _best(serial, requests)
        return found.tpot_s if found else float("inf")

    for candidate in counted((serial, *tried.methods), "methods"):
        against = None if candidate is serial else serial_tpot_s
        own, reason = _of_method(candidate, against, sizes)
        points += own
        if reason:
            excluded.append(ExcludedParallel(candidate.method, reason))
    points.sort(key=lambda point: (point.batch, point.tpot_ms))
    never_off_exit = []
    for candidate in tried.methods:
        if any(map(_is_never_off_exit, candidate.windows.values())):
            never_off_exit.append(candidate.method)
    return ParallelComparison(
        scenario, _conditions(serial), tuple(points), tuple(excluded), tuple(never_off_exit)
    )


def _of_method(
    candidate: ParallelCandidate, serial_tpot_s: TimeOfToken | None, sizes: Iterable[int]
) -> tuple[list[ParallelPoint], str]:
    """Return what a method comes to at the sizes that it takes, and why it takes no others; empty
    where it takes them all. ``serial_tpot_s``: None for serial speculation itself.
    """
    if not candidate.windows:
        return [], candidate.reason
    points = []
    reason = ""
    for size in sizes:
        try:
            point = _point(candidate, serial_tpot_s, size)
        except BadInput as error:
            reason = reason or error.faults[0].message
            continue
        if point is None:
            reason = reason or f"{size} requests find no room in the cache"
        else:
            points.append(point)
    return points, reason


def _is_never_off_exit(loaded: Loaded) -> bool:
    """Return whether a strategy sends tokens of an early exit that are stated to hold the right one
    always.
    """
    exits = loaded.scenario.schedule.needs.exit is not None
    return exits and loaded.trace is None and loaded.scenario.acceptance.overlap == 1.0


def _conditions(serial: ParallelCandidate) -> str:
    """Return target and draft in words, and the devices of the target."""
    scenario = next(iter(serial.windows.values())).scenario
    if scenario.target is None or scenario.draft is None:
        return "stated durations"
    own = scenario.target
    return (
        f"{own.model.name} on {own.devices} with {own.engine.name}, {scenario.draft.model.name} "
        "drafts"
    )


class _Best(NamedTuple):
    window: int
    loaded: Loaded
    tpot_s: float


def _best(candidate: ParallelCandidate, size: int) -> _Best | None:
    """Return the window with which a token comes soonest in a batch of ``size``, by law; None where
    memory has no room for any. Raises :class:`BadInput` for a batch that the method does not take.
    """
    best = None
    for window, read in candidate.windows.items():
        loaded = evaluate.tuned(at_size(read, size))
        if loaded.scenario.waits:
            continue
        tpot_s = float(evaluate.law(loaded.scenario, loaded.acceptance()).tpot_s)
        if best is None or tpot_s < best.tpot_s:
            best = _Best(window, loaded, tpot_s)
    return best


def _point(
    candidate: ParallelCandidate, serial_tpot_s: TimeOfToken | None, size: int
) -> ParallelPoint | None:
    """Return what a method comes to in a batch of ``size``; None where that finds no room."""
    best = _best(candidate, size)
    if best is None:
        return None
    scenario = best.loaded.scenario
    own, extra = 1, 1.0
    if scenario.target:
        own = scenario.target.tensor_parallel * max(1, scenario.stages)
        extra = float(scenario.draft.tensor_parallel) if scenario.draft else 0.0
    if scenario.one_lane or serial_tpot_s is None:
        extra = 0.0
    devices = own + extra * draft_devices(scenario.strategy, size)

    def plain_tpot_s(requests: int) -> float:
        return float(evaluate.baseline(scenario, requests).tpot_s)

    elsewhere = size * own / devices
    over_plain = _at(plain_tpot_s, elsewhere) / best.tpot_s
    over_serial = None
    if serial_tpot_s is not None:
        over_serial = _at(serial_tpot_s, elsewhere) / best.tpot_s
    drawn = drawn_speedup(best.loaded, size)
    point = ParallelPoint(
        method=candidate.method,
        batch=size,
        window=best.window,
        devices=devices,
        tpot_ms=best.tpot_s * 1e3,
        speedup=plain_tpot_s(size) / best.tpot_s,
        chance=drawn.chance_above(1.0),
        tokens_per_s_per_device=size / best.tpot_s / devices,
        over_plain=over_plain,
        over_serial=over_serial,
        chance_on_devices=0.0,
    )
    return replace(point, chance_on_devices=drawn.chance_above(drawn.value / point.on_devices))


def _at(tpot_s: TimeOfToken, requests: float) -> float:
    """Return a time per token at a number of requests between two whole ones, on the line between
    them; a device has one request at least.
    """
    requests = max(1.0, requests)
    low, high = floor(requests), ceil(requests)
    if low == high:
        return tpot_s(low)
    share = requests - low
    return (1.0 - share) * tpot_s(low) + share * tpot_s(high)
