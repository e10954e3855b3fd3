"""An observation beside its simulation: what was measured of each request, and what is computed.

The load is the observed one (:mod:`simulator.scenario.live.service`); request i of the simulation
is request i of the log.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from simulator.core.acceptance.sources import odds_of
from simulator.core.cost.device import Device
from simulator.core.cost.engine import Engine
from simulator.core.cost.rows import NO_ROWS, Rows
from simulator.core.numeric import ordered_sum
from simulator.core.quantities import replace_nested
from simulator.core.serving.iteration import Iteration
from simulator.core.serving.load.sessions import SessionFile
from simulator.core.serving.requests import Request
from simulator.core.strategies.common.capabilities import drafting_of
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.services.measured import ServedPass, ServedRequest
from simulator.inputs.services.observed import Quantity
from simulator.inputs.services.tables import read_passes
from simulator.scenario import Loaded, Scenario
from simulator.scenario.evaluate import tuned
from simulator.scenario.live.service import LoadForm, ObservedScenario, load_observed
from simulator.scenario.pools import service_of

MS = 1e3
HELD_OUT = 4
"""One of so many requests is held out, by the CRC-32 of its row."""
MOST_PASSES = 400
"""Passes of an observation that are looked at, evenly chosen."""


class TimedRequest(NamedTuple):
    """The times of a request, measured or simulated; None where they are not known."""

    arrival_s: float | None
    ttft_ms: float | None
    tpot_ms: float | None
    """None for a request of one token."""
    e2e_ms: float | None
    output_tokens: int

    @property
    def decoding_ms(self) -> float | None:
        """Return the time behind the first token, in ms."""
        if self.tpot_ms is None:
            return None
        return self.tpot_ms * (self.output_tokens - 1)


@dataclass(frozen=True)
class ObservedCase:
    """An observation, with the scenario that stands for it."""

    name: str
    """The folder, or the file, that it was read from."""
    made: ObservedScenario
    loaded: Loaded
    measured: Sequence[TimedRequest]
    """Of each request, in the order of the scenario; empty where each is not known."""
    passes: Sequence[ServedPass]
    held_out: bool = False
    """Whether all of it is held out."""

    @property
    def scenario(self) -> Scenario:
        """Return the scenario, with the numbers of the profiles that it names."""
        return self.loaded.scenario

    @property
    def exact_steps(self) -> bool:
        """Return whether each request takes the steps in its simulation that it took: nothing is
        drafted, or its own steps are replayed.
        """
        if not self.scenario.schedule.window:
            return True
        requests = self.scenario.requests
        paired = bool(requests.recordings or requests.task_flavours)
        return paired and self.loaded.trace is not None

    def fitted_places(self) -> list[int]:
        """Return the places of the requests that a fit may see."""
        if self.held_out:
            return []
        return [place for place in self.later_places if not is_held_out(self.made.rows[place])]

    def held_places(self) -> list[int]:
        """Return the places of the requests that are held out."""
        fitted = set(self.fitted_places())
        return [place for place in self.later_places if place not in fitted]

    @property
    def later_places(self) -> list[int]:
        """Return the places of all requests that count: those behind the warm-up, which are neither
        fitted nor held out.
        """
        skipped = self.made.observed.skipped or 0
        return [place for place, row in enumerate(self.made.rows) if row > skipped]

    @cached_property
    def stretched(self) -> Sequence[float] | None:
        """Return by what the time behind the first token of each request is multiplied, so that it
        takes the steps that were measured and not those that were drawn; None where nobody has
        counted them. Drawn steps are counted with the profile that a fit starts from: where windows
        follow the batch, a fit may move their number a little.
        """
        measured: Sequence[int | None]
        if self.exact_steps:
            return [1.0] * self.scenario.requests.count
        measured = [_steps(request) for request in self.made.requests]
        if not measured or None in measured:
            return None
        drawn = self._drawn_steps()
        ratios = []
        for own, steps in zip(measured, drawn, strict=True):
            ratios.append(own / steps if own and steps else 1.0)
        return ratios

    def _drawn_steps(self) -> list[int]:
        """Return the decode steps of each request in a simulation, in the order of the scenario."""
        ended: list[Request] = []
        steps = Counter[int]()

        def note(iteration: Iteration) -> None:
            for request, tokens in zip(iteration.requests, iteration.tokens, strict=True):
                steps[request] += tokens > 0

        service = service_of(self.scenario, self.loaded.acceptance())
        service.run(on_iteration=note, on_finished=ended.append)
        counts = [steps[request.index] - 1 for request in ended]
        return [counts[place] for place in _order(self, ended)]


def is_held_out(row: int) -> bool:
    """Return whether a request is held out by the rule: the CRC-32 of its row in the table, as a
    decimal number, is a multiple of :data:`HELD_OUT`.
    """
    return crc32(str(row).encode()) % HELD_OUT == 0


def observed_case(
    path: Path,
    like: str,
    folder: Path,
    catalogue: Catalogue,
    held_out: bool = False,
    form: LoadForm = "as it was",
    skipped: int = 0,
) -> ObservedCase:
    """Return an observation and its scenario, whose files are written into ``folder``; it has to
    stay as long as the case is used. Raises as :func:`load_observed`.
    """
    made, loaded = load_observed(path, like, folder, catalogue, form, skipped)
    passes = read_passes(made.observed, path.parent)
    stride = -(-len(passes) // MOST_PASSES) or 1
    return ObservedCase(
        name=path.parent.name if path.name == "observed.yaml" else path.stem,
        made=made,
        loaded=tuned(loaded),
        measured=[_measured(request) for request in made.requests],
        passes=passes[::stride],
        held_out=held_out,
    )


def _steps(request: ServedRequest) -> int | None:
    """Return the decode steps of a request: stated, or its tokens behind the first less those that
    were drafted and kept; None where neither is known.
    """
    if request.steps is not None:
        return request.steps
    if request.accepted_tokens is None or not request.output_tokens:
        return None
    return max(1, request.output_tokens - 1 - request.accepted_tokens)


def _measured(request: ServedRequest) -> TimedRequest:
    """Return the times that were measured of a request; what is left out follows from the rest."""
    tokens = request.output_tokens or 0
    tpot_ms = request.tpot_ms
    e2e_ms = request.e2e_ms
    if tpot_ms is None and e2e_ms is not None and request.ttft_ms is not None and tokens > 1:
        tpot_ms = (e2e_ms - request.ttft_ms) / (tokens - 1)
    if e2e_ms is None and tpot_ms is not None and request.ttft_ms is not None:
        e2e_ms = request.ttft_ms + tpot_ms * (tokens - 1)
    if tokens < 2:
        tpot_ms = None
    return TimedRequest(request.arrival_s, request.ttft_ms, tpot_ms, e2e_ms, tokens)


def with_profiles(scenario: Scenario, device: Device, engine: Engine) -> Scenario:
    """Return a scenario with another device and engine in the place of those that are called so;
    clients of a closed loop pause for the time outside of the engine.
    """

    def own_device(part: Device) -> Device:
        return device if part.name == device.name else part

    def own_engine(part: Engine) -> Engine:
        return engine if part.name == engine.name else part

    changed: Scenario = replace_nested(scenario, Device, own_device)
    changed = replace_nested(changed, Engine, own_engine)
    requests = changed.requests
    if isinstance(requests.sessions, SessionFile) and requests.arrivals is None:
        between_s = engine.outside_ms.value / MS
        sessions = requests.sessions.model_copy(update={"between_s": between_s})
        changed = changed.replace(requests=requests.model_copy(update={"sessions": sessions}))
    return changed


class SimulatedCase(NamedTuple):
    """What a simulation of an observation comes to."""

    requests: Sequence[TimedRequest]
    """Each request, in the order of the scenario."""
    tokens_per_step: float
    """Of decode steps, mean over all requests."""

    def as_many_steps(self, case: ObservedCase) -> "SimulatedCase":
        """Return the requests with as many steps as were measured: of each where they are known,
        else in the mean.
        """
        if case.stretched is not None:
            ratios = case.stretched
        else:
            accepted = case.made.observed.acceptance
            mean = accepted.tokens_per_step if accepted else None
            ratios = [self.tokens_per_step / mean if mean else 1.0] * len(self.requests)
        requests = []
        for request, ratio in zip(self.requests, ratios, strict=True):
            if request.tpot_ms is None or request.ttft_ms is None:
                requests.append(request)
                continue
            tpot_ms = request.tpot_ms * ratio
            e2e_ms = request.ttft_ms + tpot_ms * (request.output_tokens - 1)
            requests.append(request._replace(tpot_ms=tpot_ms, e2e_ms=e2e_ms))
        return self._replace(requests=requests)


def simulated(case: ObservedCase, scenario: Scenario) -> SimulatedCase:
    """Return the times of every request in a simulation of a case with this ``scenario``, which is
    its own with other numbers.
    """
    ended: list[Request] = []
    done = service_of(scenario, case.loaded.acceptance()).run(on_finished=ended.append)
    times = [_simulated(request) for request in ended]
    order = _order(case, ended)
    requests = [times[place] for place in order]
    steps = done.tally.request_steps
    return SimulatedCase(requests, done.tally.shown / steps if steps else 1.0)


def _order(case: ObservedCase, ended: Sequence[Request]) -> list[int]:
    """Return the places of requests, in the order in which they ended, by the order of the log."""
    if not case.made.turns:
        return sorted(range(len(ended)), key=lambda place: ended[place].index)
    turns: dict[int, int] = {}
    places: dict[tuple[int, int], int] = {}
    for place in sorted(range(len(ended)), key=lambda place: ended[place].index):
        session = ended[place].session or 0
        turn = turns.get(session, 0)
        turns[session] = turn + 1
        places[session, turn] = place
    return [places[turn] for turn in case.made.turns if turn in places]


def _simulated(request: Request) -> TimedRequest:
    spent_s = request.spent_s
    tpot_s = spent_s.get("tpot")
    return TimedRequest(
        request.arrival_s,
        MS * spent_s["ttft"],
        None if tpot_s is None else MS * tpot_s,
        MS * spent_s["e2e"],
        request.output_tokens,
    )


def pass_ms(case: ObservedCase, scenario: Scenario, observed: ServedPass) -> float:
    """Return how long a pass with this composition takes, in ms, draft included: the mean over the
    kinds of step of its batch.
    """
    strategy = scenario.schedule
    cost = scenario.cost
    prompts = _prompts(observed)
    count = observed.decode_requests
    if not count:
        admission = strategy.admission(cost, prompts, observed.prefill_requests)
        return MS * (admission.target + admission.draft + admission.window)
    odds = odds_of(case.loaded.acceptance(), scenario.exit)
    context = observed.decode_kv_tokens // count
    parts = []
    for kind, share in strategy.kinds(odds, count).items():
        step = strategy.step(kind, context)
        whole = kind._replace(prompts=prompts.sequences)
        step = step._replace(kind=whole, prompts=prompts)
        seconds = strategy.step_seconds(strategy.durations(cost, step), whole)
        parts.append(float(share) * float(seconds))
    return MS * ordered_sum(parts)


def _prompts(observed: ServedPass) -> Rows:
    """Return the rows of the prompts of a pass, which are taken to be equally long."""
    rows = NO_ROWS
    left = observed.prefill_tokens
    cached = observed.prefill_kv_tokens
    for waiting in range(observed.prefill_requests, 0, -1):
        tokens = left // waiting
        context = cached // waiting
        if tokens:
            rows = rows + Rows.prefill(tokens, context)
        left -= tokens
        cached -= context
    return rows


def mean_of_times(case: ObservedCase) -> Mapping[Quantity, float]:
    """Return the means that an observation states of first token, token and whole request, in ms,
    those of clients first.
    """
    means: dict[Quantity, float] = {}
    quantities: Sequence[Quantity] = ("ttft", "tpot", "e2e")
    for quantity in quantities:
        for time in case.made.observed.times_of(quantity):
            if time.mean_ms:
                means.setdefault(quantity, time.mean_ms)
    return means


def drafting_kinds(cases: Sequence[ObservedCase]) -> list[str]:
    """Return how drafts come about in observations, each way once."""
    kinds = [drafting_of(case.scenario.schedule) for case in cases]
    return list(dict.fromkeys(str(kind) for kind in kinds if kind is not None))
