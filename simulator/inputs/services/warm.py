"""An observation without its first requests: a warm-up, whose times tell nothing of a service.

Times and output tokens a second are then of later requests alone, as clients saw them. Load,
acceptance, hit rate and memory stay those of all requests: a server that warms up is slow, but
keeps the same drafts and finds the same blocks, and a simulation has all of its requests, too.
"""

from collections.abc import Iterator, Sequence

from simulator.core.faults import BadInput
from simulator.inputs.services.measured import (
    MS,
    SHORTEST_S,
    ServedRequest,
    client_times,
    known,
)
from simulator.inputs.services.observed import MeasuredTime, NotHeld, Observed, Quantity

OF_REQUESTS: Sequence[Quantity] = ("ttft", "tpot", "e2e")
"""Times that each request has one of."""
NOT_OF_LATER = NotHeld(
    what="times at the server and between chunks without the warm-up",
    remedy="a first scrape of /metrics behind the warm-up",
)


def without_first(
    observed: Observed, requests: Sequence[ServedRequest], skipped: int, place: str
) -> Observed:
    """Return an observation whose times and rate leave out the first requests to arrive:
    ``skipped`` of them, or as many more as it leaves out already.

    ``requests`` are all of its requests, in the order of their arrival. Raises :class:`BadInput`
    at ``place`` where no file tells requests apart, or none is left.
    """
    skipped = max(skipped, observed.skipped or 0)
    if not skipped:
        return observed
    if not requests:
        message = "holds no times of each request, so its first ones cannot be left out"
        remedy = "observe a detailed result of a benchmark (vllm bench serve --save-detailed)"
        raise BadInput.at(place, f"{message}; {remedy}")
    if skipped >= len(requests):
        message = f"holds {len(requests):,} requests; {skipped:,} left out leave none"
        raise BadInput.at(place, f"{message}; expected fewer")
    later = requests[skipped:]
    load = observed.load.model_copy(update={"output_tokens_per_s": _rate_per_s(later)})
    not_held = [part for part in observed.not_held if part != NOT_OF_LATER]
    times = list(_times(observed, later))
    if len(times) < len(observed.times):
        not_held.append(NOT_OF_LATER)
    return observed.model_copy(
        update={
            "load": load,
            "times": tuple(times),
            "not_held": tuple(not_held),
            "skipped": skipped,
            "cold": observed.cold if (observed.cold or 0) > skipped else None,
        }
    )


def cold_words(observed: Observed) -> Iterator[str]:
    """Yield that first requests which waited for a server that was not warm are in the times, with
    the option that leaves them out.
    """
    if observed.cold:
        first = "request" if observed.cold == 1 else f"{observed.cold:,} requests"
        yield (
            f"the first {first} waited for a server that was not warm, which is in what was "
            f"measured: --skip {observed.cold} leaves that out"
        )


def _times(observed: Observed, later: Sequence[ServedRequest]) -> Iterator[MeasuredTime]:
    """Yield the times of later requests, as those of all of them are defined."""
    for quantity in OF_REQUESTS:
        of_clients = [time for time in observed.times_of(quantity) if time.seen_by == "client"]
        for time in of_clients[:1]:
            yield from client_times(time.file, {quantity: time.definition}, later)


def _rate_per_s(later: Sequence[ServedRequest]) -> float | None:
    """Return output tokens a second of later requests, from the arrival of the first to the end of
    the last; None where arrivals, times or lengths are not known of all of them.
    """
    arrivals_s = known(request.arrival_s for request in later)
    whole_ms = known(request.e2e_ms for request in later)
    tokens = known(request.output_tokens for request in later)
    if not len(arrivals_s) == len(whole_ms) == len(tokens) == len(later):
        return None
    ends_s = [at_s + ms / MS for at_s, ms in zip(arrivals_s, whole_ms, strict=True)]
    span_s = max(ends_s) - min(arrivals_s)
    return sum(tokens) / span_s if span_s > SHORTEST_S else None
