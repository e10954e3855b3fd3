"""Files of one run become one observation, and what contradicts in them is said.

What a client saw request by request goes before its sums, and these before what a server counted;
each fills what those before it leave open.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple, TypeVar

from pydantic import BaseModel

from simulator.inputs.services.bottleneck import bottleneck_of, mean_request_ms
from simulator.inputs.services.measured import (
    MS,
    SHORTEST_S,
    ServedRequest,
    ServiceFile,
    bare_name,
    by_arrival,
    listing_of,
)
from simulator.inputs.services.observed import (
    MeasuredTime,
    NotHeld,
    Observed,
    ObservedAcceptance,
    ObservedFile,
    ObservedLoad,
    ObservedState,
)
from simulator.inputs.services.warm import without_first

COUNTS = {
    "requests": "requests",
    "prompt_tokens": "prompt tokens",
    "output_tokens": "output tokens",
}
COUNTS_OF_DRAFTS = {
    "drafts": "steps that drafted",
    "drafted_tokens": "drafted tokens",
    "accepted_tokens": "accepted tokens",
}
Part = TypeVar("Part", bound=BaseModel)
WARMING = 10.0
"""Waits of warm requests that the first one waits for a first token, at least, where the server
warms up.
"""
LEAST_WARM = 3
"""Requests by which it is known how long warm ones wait, at least."""
CLOCKS = 1.02
"""How much later a server may say that a first token came, by another clock."""


def joined(services: Sequence[ServiceFile], skipped: int = 0) -> Observed:
    """Return the observation that files of one run make together, without the times of the first
    requests to arrive, ``skipped`` of them. Raises as :func:`~.warm.without_first`.
    """
    first_said = sorted(services, key=_rank)
    load = ObservedLoad()
    state = ObservedState()
    times: list[MeasuredTime] = []
    for service in first_said:
        if service.whole or len(services) == 1:
            load = _filled(load, service.load)
        if service.state is not None:
            state = _filled(state, service.state)
        times += service.times
    acceptance = _acceptance(first_said)
    load = load.model_copy(update=_rates(load, state, times))
    warming = _warm_up(first_said)
    whole = Observed(
        files=tuple(ObservedFile(file=each.file, kind=each.kind) for each in services),
        engine=next((each.engine for each in first_said[::-1] if each.engine), None),
        model=bare_name(next((each.model for each in first_said if each.model), None)),
        load=load,
        times=tuple(times),
        acceptance=acceptance,
        state=state,
        bottleneck=warming.words + bottleneck_of(times, state, load),
        cold=warming.requests,
        contradictions=tuple(_contradictions(services)),
        not_held=tuple(_not_held(services, load, state, acceptance)),
    )
    if not skipped:
        return whole
    later = without_first(whole, by_arrival(_listed(services)), skipped, services[0].file)
    return later.model_copy(update={"bottleneck": bottleneck_of(later.times, state, later.load)})


def _listed(services: Sequence[ServiceFile]) -> Sequence[ServedRequest]:
    """Return the requests of the first file that lists all of them; none where no file does."""
    listing = listing_of(services)
    return listing.requests if listing else ()


class _WarmUp(NamedTuple):
    """So many first requests waited for a server that was not warm yet, and that as a sentence."""

    requests: int | None = None
    words: str = ""


def _warm_up(services: Sequence[ServiceFile]) -> _WarmUp:
    """Return how many first requests waited for a server that was not warm yet; of none nothing is
    said, nor where no file tells requests apart.

    The first is then the slowest to a first token, ``WARMING`` times as slow as the second half of
    the requests in the median, though its prompt is no longer than theirs.
    """
    requests = _listed(services)
    waits_ms = [request.ttft_ms for request in requests if request.ttft_ms is not None]
    half = len(waits_ms) // 2
    if half < LEAST_WARM or len(waits_ms) < len(requests):
        return _WarmUp()
    warm_ms = median(waits_ms[half:])
    lengths = [request.prompt_tokens or 0 for request in requests]
    if waits_ms[0] < max(waits_ms) or waits_ms[0] < WARMING * warm_ms:
        return _WarmUp()
    if lengths[0] > 2 * median(lengths[half:]):
        return _WarmUp()
    cold = next(place for place, wait_ms in enumerate(waits_ms) if wait_ms <= 2 * warm_ms)
    first = "request" if cold == 1 else f"{cold} requests"
    words = f"the first {first} waited up to {waits_ms[0]:,.0f} ms, later ones"
    return _WarmUp(cold, f"Warm-up: {words} {warm_ms:,.3g} (observe --skip {cold}). ")


def _rates(
    load: ObservedLoad, state: ObservedState, times: Sequence[MeasuredTime]
) -> dict[str, float]:
    """Return how many requests end in a second, and how many are under way in the mean; neither
    where duration or times are unknown, nor the latter where a scrape saw some under way.
    """
    rates: dict[str, float] = {}
    if load.requests is None or load.duration_s is None or load.duration_s < SHORTEST_S:
        return rates
    rates["ended_rate_per_s"] = load.requests / load.duration_s
    whole_ms = mean_request_ms(times, load)
    if whole_ms is not None and not state.running_most and not state.waiting_most:
        rates["in_flight_mean"] = rates["ended_rate_per_s"] * whole_ms / MS
    return rates


def _rank(service: ServiceFile) -> int:
    """Return how far behind a file is asked for what it says of the load."""
    if service.requests and service.whole:
        return 0
    return 2 if service.state is not None else 1


def _filled(first: Part, other: Part) -> Part:
    """Return a part of an observation, with what it leaves open taken from another."""
    update = {}
    for name, value in other:
        if getattr(first, name) in (None, ()) and value not in (None, ()):
            update[name] = value
    return first.model_copy(update=update)


def _acceptance(services: Sequence[ServiceFile]) -> ObservedAcceptance | None:
    """Return the acceptance of the file that counts most drafts, with what those that count the
    same drafts say beside it.
    """
    stated = [service.acceptance for service in services if service.acceptance is not None]
    if not stated:
        return None
    most = max(stated, key=_weight)
    for other in stated:
        same = other.drafted_tokens == most.drafted_tokens
        if same and other.accepted_tokens == most.accepted_tokens:
            most = _filled(most, other)
            if other.replayable:
                most = most.model_copy(update={"replayable": True})
    return most


def _weight(acceptance: ObservedAcceptance) -> tuple[int, int, int]:
    """Return how much an acceptance says, for the largest to be taken: a server knows all of its
    steps, a client the chunks that it has told apart.
    """
    counted = acceptance.drafted_tokens or 0
    of_server = acceptance.steps is not None and not acceptance.replayable
    return counted, int(of_server), len(acceptance.kept_share_by_position)


def _contradictions(services: Sequence[ServiceFile]) -> Iterator[str]:
    """Yield where two files about all requests of a run do not agree."""
    whole = [service for service in services if service.whole]
    yield from _differing_counts(whole)
    yield from _differing("engine", [(each.file, each.engine) for each in services])
    # a server may call a model that lies in a folder by any name
    named = [each for each in services if each.model == bare_name(each.model)]
    yield from _differing("model", [(each.file, each.model) for each in named])
    yield from _impossible_times(whole)


def _differing_counts(services: Sequence[ServiceFile]) -> Iterator[str]:
    """Yield where files count other requests, tokens or drafts."""
    for name, words in COUNTS.items():
        yield from _differing(words, [(each.file, getattr(each.load, name)) for each in services])
    drafting = [each for each in services if each.acceptance is not None]
    for name, words in COUNTS_OF_DRAFTS.items():
        counts = [(each.file, getattr(each.acceptance, name)) for each in drafting]
        yield from _differing(words, counts)


def _differing(words: str, stated: Sequence[tuple[str, object]]) -> Iterator[str]:
    """Yield a sentence where values of files differ that should be one."""
    known = [(file, value) for file, value in stated if value is not None]
    if len({value for _, value in known}) < 2:
        return
    parts = ", ".join(f"{_shown(value)} in {file}" for file, value in known)
    yield f"{words}: {parts}"


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _impossible_times(services: Sequence[ServiceFile]) -> Iterator[str]:
    """Yield where a client says that first tokens came before the server sent them."""
    by_side: dict[str, tuple[str, float]] = {}
    for service in services:
        for time in service.times:
            if time.quantity == "ttft" and time.mean_ms is not None:
                by_side.setdefault(time.seen_by, (service.file, time.mean_ms))
    if len(by_side) == 2:
        client, client_ms = by_side["client"]
        server, server_ms = by_side["server"]
        if server_ms > CLOCKS * client_ms:
            yield (
                f"mean time to a first token: {client_ms:,.1f} ms in {client}, "
                f"{server_ms:,.1f} ms in {server}, though a client sees it later"
            )


def _not_held(
    services: Sequence[ServiceFile],
    load: ObservedLoad,
    state: ObservedState,
    acceptance: ObservedAcceptance | None,
) -> Iterator[NotHeld]:
    """Yield what no file holds: what each lacks, but for what another has."""
    held = _held(services, load, state, acceptance)
    seen = set()
    for service in services:
        for part in service.not_held:
            words = part.what.split()
            known = held.get(" ".join(words[:2]), held.get(words[0], False))
            if not known and part.what not in seen:
                seen.add(part.what)
                yield part


def _held(
    services: Sequence[ServiceFile],
    load: ObservedLoad,
    state: ObservedState,
    acceptance: ObservedAcceptance | None,
) -> Mapping[str, bool]:
    """Return what any file holds, by the words that begin what another lacks."""
    return {
        "each": any(service.requests and service.whole for service in services),
        "acceptance:": acceptance is not None,
        "acceptance": acceptance is not None,
        "acceptance by": acceptance is not None and bool(acceptance.kept_share_by_position),
        "acceptance step": acceptance is not None and acceptance.replayable,
        "queue,": state.scrapes is not None or state.running_mean is not None,
        "times": any(service.times for service in services),
        "requests,": load.requests is not None,
    }
