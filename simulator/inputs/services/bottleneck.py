"""What holds a service back, in a sentence: what its requests spend their time on."""

from collections.abc import Mapping, Sequence

from simulator.inputs.services.observed import MeasuredTime, ObservedLoad, ObservedState

FULL = 0.9
"""Share of the KV cache from which on it is full."""
OFTEN = 0.05
"""Preemptions of a request from which on they are what holds a service back."""
MUCH = 0.2
"""Share of a request's time from which on a wait is what holds it back."""


def bottleneck_of(times: Sequence[MeasuredTime], state: ObservedState, load: ObservedLoad) -> str:
    """Return what holds a service back, and what that is said by."""
    busy = load.output_tokens or state.running_most or state.waiting_most
    if load.requests == 0 and not busy:
        return "Idle: no request ended meanwhile, so nothing is seen to hold it back."
    by_server = _means(times, "server")
    parts = _parts(by_server)
    if state.preemptions and state.preemptions >= OFTEN * (load.requests or 0):
        return _of_preemptions(state.preemptions, load)
    waiting = _waiting(parts, state)
    if waiting:
        return waiting
    if parts:
        name, share = max(parts.items(), key=lambda part: part[1])
        quiet = "nothing waits" if parts.get("the queue", 0.0) < 0.01 else "little waits"
        return f"{PARTS[name]}: {share:.0%} of a request's time; {quiet} in the queue."
    return _of_clients(times, state, load)


def _of_preemptions(preemptions: int, load: ObservedLoad) -> str:
    """Return that requests are put back because the KV cache has no room for them."""
    plural = "" if preemptions == 1 else "s"
    of = f" of {load.requests:,} requests" if load.requests else ""
    return f"KV memory: {preemptions:,} preemption{plural}{of} for want of blocks."


def mean_request_ms(times: Sequence[MeasuredTime], load: ObservedLoad) -> float | None:
    """Return the mean time of a whole request (ms), of clients first; from its first token and its
    time per token where it is not stated, None where these are not, either.
    """
    for side in ("client", "server"):
        means = _means(times, side)
        if "e2e" in means:
            return means["e2e"]
        if "ttft" in means and "tpot" in means and load.output_tokens and load.requests:
            return means["ttft"] + means["tpot"] * (load.output_tokens / load.requests - 1.0)
    return None


def _of_clients(times: Sequence[MeasuredTime], state: ObservedState, load: ObservedLoad) -> str:
    """Return where the time of requests goes as clients see it."""
    means = _means(times, "client")
    whole_ms = mean_request_ms(times, load)
    if whole_ms and "ttft" in means:
        share = means["ttft"] / whole_ms
        more = "scrapes of /metrics would say whether requests wait"
        if state.scrapes:
            more = "scrapes are of all requests, so whether these wait is not known"
        if share < 0.5:
            return (
                f"Decoding: {1 - share:.0%} of a request's time is behind its first token; {more}."
            )
        return f"Before the first token: {share:.0%} of a request's time; {more}."
    return "Unknown: no file says where the time of requests goes."


PARTS = {
    "the queue": "The queue",
    "prefill": "Prefill",
    "decode": "Decoding",
    "the front": "Before the queue (HTTP, a busy engine)",
}


def _means(times: Sequence[MeasuredTime], side: str) -> Mapping[str, float]:
    """Return mean times (ms) of one side by quantity."""
    means: dict[str, float] = {}
    for time in times:
        if time.seen_by == side and time.mean_ms is not None:
            means.setdefault(time.quantity, time.mean_ms)
    return means


def _parts(means: Mapping[str, float]) -> dict[str, float]:
    """Return the shares of a request's time at the server; empty where it is not taken apart."""
    whole_ms = means.get("e2e")
    if not whole_ms or "queue" not in means or "ttft" not in means:
        return {}
    before_ms = means["ttft"] - means["queue"]
    prefill_ms = means.get("prefill", before_ms)
    decode_ms = means.get("decode", max(0.0, whole_ms - means["ttft"]))
    return {
        "the queue": means["queue"] / whole_ms,
        "prefill": prefill_ms / whole_ms,
        "decode": decode_ms / whole_ms,
        "the front": max(0.0, before_ms - prefill_ms) / whole_ms,
    }


def _waiting(parts: Mapping[str, float], state: ObservedState) -> str:
    """Return what requests wait for; empty where they hardly wait."""
    share = parts.get("the queue")
    waits = (share or 0.0) >= MUCH or (share is None and (state.waiting_mean or 0.0) >= 1.0)
    if not waits:
        return ""
    if share is None:
        how_long = f"{state.waiting_mean:,.0f} requests wait"
    else:
        how_long = f"{share:.0%} of a request's time is waiting"
    used = state.kv_used_share_most
    if used is None:
        return f"The queue: {how_long}; whether for KV memory or for a place is not known."
    if used >= FULL:
        return f"KV memory: {how_long} while up to {used:.0%} of the KV cache is used."
    return (
        f"Places in the batch: {how_long} while at most {used:.0%} of the KV cache is seen used; "
        "the limit of requests or of tokens of a pass holds them back."
    )
