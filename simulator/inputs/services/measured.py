"""What one file of a service holds, and how its requests are summed up."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np

from simulator.core.faults import BadInput
from simulator.inputs.services.observed import (
    MeasuredTime,
    NotHeld,
    ObservedAcceptance,
    ObservedLengths,
    ObservedLoad,
    ObservedState,
    Quantity,
    Side,
)

MS = 1e3
"""Milliseconds of a second."""
SHORTEST_S = 1e-9
"""Shortest time that a rate is of."""
STATE_NOT_HELD = NotHeld(
    what="queue, KV cache, preemptions", remedy="a scrape of /metrics before and after"
)
Value = TypeVar("Value")


class ServedRequest(NamedTuple):
    """A request that was answered; None for what its file does not say."""

    arrival_s: float | None = None
    """From any beginning."""
    session: str = ""
    turn: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    steps: int | None = None
    """Decode steps: chunks of the answer behind the first."""
    drafts: int | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None


class ServedPass(NamedTuple):
    """A pass of the engine and what was in it."""

    rank: int
    wall_ms: float
    prefill_requests: int
    prefill_tokens: int
    prefill_kv_tokens: int
    decode_requests: int
    decode_kv_tokens: int
    waiting_requests: int | None


class RequestSteps(NamedTuple):
    """Draft tokens by step of a request, steps that drafted alone."""

    accepted: tuple[int, ...]
    drafted: tuple[int, ...]
    request: int | None = None
    """Place of the request among those of its file, from 0; None where that is not known."""


@dataclass(frozen=True)
class ServiceFile:
    """What a file of a service holds."""

    file: str
    kind: str
    engine: str | None = None
    model: str | None = None
    """As it is stated, which may be a path."""
    load: ObservedLoad = field(default_factory=ObservedLoad)
    times: Sequence[MeasuredTime] = ()
    acceptance: ObservedAcceptance | None = None
    state: ObservedState | None = None
    requests: Sequence[ServedRequest] = ()
    passes: Sequence[ServedPass] = ()
    steps: Sequence[RequestSteps] = ()
    not_held: Sequence[NotHeld] = ()
    whole: bool = True
    """Whether it is about all requests of its time, so that its counts are those of other files."""


def listing_of(services: Sequence[ServiceFile]) -> ServiceFile | None:
    """Return the first file that lists all requests; None where none does."""
    return next((each for each in services if each.requests and each.whole), None)


def places_by_arrival(requests: Sequence[ServedRequest]) -> list[int]:
    """Return the places of requests in the order of their arrival; their own order where that is
    not known.
    """
    return sorted(range(len(requests)), key=lambda place: requests[place].arrival_s or 0.0)


def by_arrival(requests: Sequence[ServedRequest]) -> list[ServedRequest]:
    """Return requests in the order of their arrival, as :func:`places_by_arrival`."""
    return [requests[place] for place in places_by_arrival(requests)]


def time_of(
    quantity: Quantity, side: Side, file: str, definition: str, values_ms: Sequence[float]
) -> list[MeasuredTime]:
    """Return the time that values add up to; none where there are none."""
    if not values_ms:
        return []
    p50, p90, p99 = np.percentile(values_ms, (50, 90, 99)).tolist()
    return [
        MeasuredTime(
            quantity=quantity,
            seen_by=side,
            file=file,
            definition=definition,
            count=len(values_ms),
            mean_ms=float(np.mean(values_ms)),
            p50_ms=p50,
            p90_ms=p90,
            p99_ms=p99,
        )
    ]


def client_times(
    file: str,
    definitions: Mapping[Quantity, str],
    requests: Sequence[ServedRequest],
    gaps_ms: Sequence[float] = (),
) -> list[MeasuredTime]:
    """Return the times of requests as a client sees them, by what each is; ``gaps_ms`` lie between
    chunks of all of them.
    """
    values: dict[str, Sequence[float]] = {
        "ttft": known(request.ttft_ms for request in requests),
        "itl": gaps_ms,
        "tpot": known(request.tpot_ms for request in requests),
        "e2e": known(request.e2e_ms for request in requests),
    }
    times = []
    for quantity, words in definitions.items():
        times += time_of(quantity, "client", file, words, values[quantity])
    return times


def known(values: Iterable[Value | None]) -> list[Value]:
    """Return the values that are known."""
    return [value for value in values if value is not None]


def sum_of_known(values: Iterable[int | None]) -> int | None:
    """Return the sum of the values that are known; None where none is."""
    summed = known(values)
    return sum(summed) if summed else None


def sum_of_all(values: Sequence[int | None]) -> int | None:
    """Return the sum of values that are all known; None where one is not, or there are none."""
    return None if None in values else sum_of_known(values)


def mean_of(values: Sequence[float]) -> float | None:
    """Return the mean of values; None where there are none."""
    return float(np.mean(values)) if values else None


def lengths_of(tokens: Sequence[float]) -> ObservedLengths | None:
    """Return how long prompts or outputs are; None where there are none."""
    if not tokens:
        return None
    p50, p90, p99 = np.percentile(tokens, (50, 90, 99)).tolist()
    return ObservedLengths(
        mean_tokens=float(np.mean(tokens)),
        p50_tokens=p50,
        p90_tokens=p90,
        p99_tokens=p99,
        most_tokens=max(tokens),
    )


def load_of(requests: Sequence[ServedRequest], stated: ObservedLoad) -> ObservedLoad:
    """Return the load of requests; what a file states of it goes before."""
    given = {name: value for name, value in stated if value is not None}
    load = _summed(requests).model_copy(update=given)
    if load.output_tokens_per_s is not None or not load.output_tokens:
        return load
    if load.duration_s is None or load.duration_s <= SHORTEST_S:
        return load
    rate_per_s = load.output_tokens / load.duration_s
    return load.model_copy(update={"output_tokens_per_s": rate_per_s})


def _summed(requests: Sequence[ServedRequest]) -> ObservedLoad:
    """Return the load that requests add up to."""
    prompts = [request.prompt_tokens for request in requests]
    outputs = [request.output_tokens for request in requests]
    rate_per_s, variation = arrivals_of(known(request.arrival_s for request in requests))
    sessions = {request.session for request in requests} - {""}
    turns = known(request.turn for request in requests)
    return ObservedLoad(
        requests=len(requests) or None,
        prompt_tokens=sum_of_all(prompts),
        output_tokens=sum_of_all(outputs),
        cached_tokens=sum_of_all([request.cached_tokens for request in requests]),
        prompts=lengths_of(known(prompts)),
        outputs=lengths_of(known(outputs)),
        arrival_rate_per_s=rate_per_s,
        gap_variation=variation,
        sessions=len(sessions) if len(sessions) < len(requests) else None,
        most_turns=max(turns) + 1 if turns else None,
    )


def arrivals_of(arrivals_s: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the rate of arrivals, and the variation of the times between them."""
    if len(arrivals_s) < 3:
        return None, None
    gaps_s = np.diff(np.sort(arrivals_s))
    mean_s = float(np.mean(gaps_s))
    if not mean_s > SHORTEST_S:
        return None, None
    return 1.0 / mean_s, float(np.std(gaps_s) / mean_s)


def counted(
    file: str,
    drafts: int | None,
    drafted_tokens: int | None,
    accepted_tokens: int | None,
    by_position: Sequence[int] = (),
    steps_by_accepted: Sequence[int] = (),
    window: int | None = None,
) -> ObservedAcceptance | None:
    """Return acceptance as counts state it; None where no draft is counted. Raises
    :class:`BadInput` for more accepted than drafted tokens.
    """
    if not drafted_tokens:
        return None
    if accepted_tokens is not None and accepted_tokens > drafted_tokens:
        message = f"counts {accepted_tokens:,} accepted of {drafted_tokens:,} drafted tokens"
        raise BadInput.at(file, f"{message}; expected no more than those")
    tokens_per_draft = None
    shares: list[float] = []
    if drafts:
        shares = [accepted / drafts for accepted in by_position]
        if accepted_tokens is not None:
            tokens_per_draft = 1.0 + accepted_tokens / drafts
    return ObservedAcceptance(
        file=file,
        window=window,
        drafts=drafts,
        drafted_tokens=drafted_tokens,
        accepted_tokens=accepted_tokens,
        accepted_by_position_tokens=tuple(by_position),
        kept_share_by_position=tuple(shares),
        steps_by_accepted=tuple(steps_by_accepted),
        tokens_per_draft=tokens_per_draft,
    )


def positions_of(steps_by_accepted: Sequence[int]) -> list[int]:
    """Return how many steps kept each position, from how many kept no token, one, two, ..."""
    positions = []
    for position in range(1, len(steps_by_accepted)):
        positions.append(sum(steps_by_accepted[position:]))
    return positions


def over_all_steps(
    acceptance: ObservedAcceptance | None, tokens: int | None, steps: int | None
) -> ObservedAcceptance | None:
    """Return acceptance with the tokens of decode steps of all requests, drafts or not."""
    if acceptance is None or not steps or tokens is None:
        return acceptance
    update = {"steps": steps, "tokens_per_step": tokens / steps}
    return acceptance.model_copy(update=update)


def over_steps_of(
    acceptance: ObservedAcceptance | None, requests: Sequence[ServedRequest]
) -> ObservedAcceptance | None:
    """Return acceptance with the tokens of decode steps of requests, where each states its steps.
    The first token of a request is of none of them.
    """
    steps = sum_of_all([request.steps for request in requests])
    tokens = sum(max(0, (request.output_tokens or 0) - 1) for request in requests)
    return over_all_steps(acceptance, tokens, steps)


def bare_name(model: str | None) -> str | None:
    """Return the name of a model, without the folders of a path."""
    if model is None or not model.startswith(("/", ".", "~")):
        return model
    return model.rstrip("/").rpartition("/")[2]
