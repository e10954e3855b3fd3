"""The result of ``vllm bench serve --save-result``, with ``--save-detailed`` request by request.

Its ITL is the time between chunks of an answer, one for each step, however many tokens the step
kept: the mean ITL over the mean TPOT is the tokens of a step, of all steps. Its acceptance length
is that of the steps that drafted alone.
"""

from collections.abc import Sequence
from math import inf
from typing import TypeVar

from simulator.inputs.services.fields import Fields
from simulator.inputs.services.measured import (
    MS,
    STATE_NOT_HELD,
    ServedRequest,
    ServiceFile,
    arrivals_of,
    client_times,
    counted,
    load_of,
    over_steps_of,
    sum_of_all,
)
from simulator.inputs.services.observed import (
    MeasuredTime,
    NotHeld,
    ObservedAcceptance,
    ObservedLoad,
    Quantity,
)

DEFINITIONS: dict[Quantity, str] = {
    "ttft": "from sending a request to the first chunk of its answer",
    "itl": "from one chunk of an answer to the next, of a step however many tokens it has",
    "tpot": "of a request, the time behind its first chunk over its tokens less one",
    "e2e": "from sending a request to the last chunk of its answer",
}
KEYS: dict[Quantity, Sequence[str]] = {
    "ttft": ("ttft",),
    "itl": ("itl",),
    "tpot": ("tpot",),
    "e2e": ("e2el", "e2e_latency"),
}
"""How results call a time."""
Entry = TypeVar("Entry")


def is_vllm_bench(values: Fields) -> bool:
    """Return whether an object is such a result."""
    return "model_id" in values and "completed" in values and "total_output_tokens" in values


def read_vllm_bench(values: Fields) -> ServiceFile:
    """Return what a result holds."""
    file = values.file
    requests, gaps_ms = served_requests(values)
    load = load_of(requests, stated_load(values))
    acceptance = _acceptance(values, requests)
    drafted = acceptance is not None  # by counters that vLLM alone shows
    return ServiceFile(
        file=file,
        kind="vllm bench serve",
        engine="vLLM" if drafted or values.text("backend") == "vllm" else None,
        model=values.text("model_id"),
        load=load,
        times=client_times(file, DEFINITIONS, requests, gaps_ms) or times_of_means(values),
        acceptance=acceptance,
        requests=requests,
        not_held=_not_held(requests, acceptance),
    )


def stated_load(values: Fields) -> ObservedLoad:
    """Return the load that a result of a benchmark states in sums."""
    rate = values.values.get("request_rate")
    asked_rate_per_s = None
    if not isinstance(rate, str) and rate != inf:  # "inf"; "trace", as a trace has it
        asked_rate_per_s = values.number("request_rate")
    arrival_rate_per_s, variation = arrivals_of(values.numbers("start_times"))
    return ObservedLoad(
        duration_s=values.number("duration"),
        requests=values.count("completed"),
        failed=values.count("failed"),
        prompt_tokens=values.count("total_input_tokens"),
        output_tokens=values.count("total_output_tokens"),
        arrival_rate_per_s=arrival_rate_per_s,
        gap_variation=variation,
        asked_rate_per_s=asked_rate_per_s,
        most_concurrent=values.count("max_concurrency"),
        output_tokens_per_s=values.number("output_throughput"),
    )


def served_requests(values: Fields) -> tuple[list[ServedRequest], list[float]]:
    """Return the requests of a detailed result, those that failed left out, and the times between
    chunks (ms) of all of them; neither where a result has sums alone.

    Raises :class:`BadInput` for lists of different lengths.
    """
    ttfts_s = values.numbers("ttfts")
    outputs = values.counts("output_lens")
    if not ttfts_s or not outputs:
        return [], []
    prompts = values.counts("input_lens")
    gaps_s = values.lists("itls")
    starts_s = values.numbers("start_times")
    errors = values.entries("errors")
    output_tokens = _one_each(values, "output_lens", outputs, len(ttfts_s))
    prompt_tokens = _one_each(values, "input_lens", prompts, len(ttfts_s))
    own_gaps_s = _one_each(values, "itls", gaps_s, len(ttfts_s))
    arrivals_s = _one_each(values, "start_times", starts_s, len(ttfts_s))
    failures = _one_each(values, "errors", errors, len(ttfts_s))
    requests = []
    gaps_ms: list[float] = []
    for place, ttft_s in enumerate(ttfts_s):
        tokens = output_tokens[place]
        if failures[place] or not tokens:
            continue
        request = ServedRequest(
            arrival_s=arrivals_s[place],
            prompt_tokens=prompt_tokens[place],
            output_tokens=tokens,
            ttft_ms=MS * ttft_s,
        )
        own_gaps = own_gaps_s[place]
        if own_gaps is not None:
            own_ms = [MS * gap_s for gap_s in own_gaps]
            gaps_ms += own_ms
            request = request._replace(
                tpot_ms=sum(own_ms) / (tokens - 1) if tokens > 1 else None,
                e2e_ms=MS * ttft_s + sum(own_ms),
                steps=len(own_ms),
            )
        requests.append(request)
    return requests, gaps_ms


def _one_each(
    values: Fields, name: str, entries: Sequence[Entry], count: int
) -> Sequence[Entry | None]:
    """Return the entry of each request in a list, None where there is no list; raises
    :class:`BadInput` for a list of another length.
    """
    if entries and len(entries) != count:
        message = f"expected {count:,} entries, as ttfts has, found {len(entries):,}"
        raise values.fault(name, message)
    return entries or [None] * count


def times_of_means(values: Fields) -> list[MeasuredTime]:
    """Return the times that a result states as mean, median and percentiles."""
    times = []
    for quantity, keys in KEYS.items():
        for key in keys:
            mean_ms = values.number(f"mean_{key}_ms")
            if mean_ms is None:
                continue
            times.append(
                MeasuredTime(
                    quantity=quantity,
                    seen_by="client",
                    file=values.file,
                    definition=DEFINITIONS[quantity],
                    count=None if quantity == "itl" else values.count("completed"),
                    mean_ms=mean_ms,
                    p50_ms=values.number(f"median_{key}_ms"),
                    p90_ms=values.number(f"p90_{key}_ms"),
                    p99_ms=values.number(f"p99_{key}_ms"),
                )
            )
            break
    return times


def _acceptance(values: Fields, requests: Sequence[ServedRequest]) -> ObservedAcceptance | None:
    """Return what the server counted, with the tokens of a step: by the steps of all requests, or
    the mean ITL over the mean TPOT where these are not known.
    """
    acceptance = _counted(values)
    if acceptance is None:
        return None
    if sum_of_all([request.steps for request in requests]) is not None:
        return over_steps_of(acceptance, requests)
    itl_ms = values.number("mean_itl_ms")
    tpot_ms = values.number("mean_tpot_ms")
    if itl_ms and tpot_ms:
        return acceptance.model_copy(update={"tokens_per_step": itl_ms / tpot_ms})
    return acceptance


def _counted(values: Fields) -> ObservedAcceptance | None:
    """Return what the server counted while the benchmark ran."""
    drafts = values.count("spec_decode_num_drafts")
    shares = values.numbers("spec_decode_per_position_acceptance_rates")
    by_position = []
    if drafts:
        by_position = [round(share * drafts) for share in shares]
    return counted(
        values.file,
        drafts,
        values.count("spec_decode_draft_tokens"),
        values.count("spec_decode_accepted_tokens"),
        by_position,
        window=len(shares) or None,
    )


def _not_held(
    requests: Sequence[ServedRequest], acceptance: ObservedAcceptance | None
) -> list[NotHeld]:
    lacks = []
    if not requests:
        lacks.append(
            NotHeld(what="each request, and all steps", remedy="vllm bench serve --save-detailed")
        )
    if acceptance is None:
        remedy = "vllm serve --speculative-config"
        lacks.append(NotHeld(what="acceptance: nothing was drafted", remedy=remedy))
    else:
        remedy = "vllm serve --per-request-spec-decode-metrics detailed, and its answers"
        lacks.append(NotHeld(what="acceptance step by step", remedy=remedy))
    lacks.append(STATE_NOT_HELD)
    return lacks
