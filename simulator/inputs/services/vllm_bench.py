"""The result of ``vllm bench serve --save-result``, with ``--save-detailed`` request by request.

Its ITL is the time between chunks of an answer, one for each step, however many tokens the step
kept: the mean ITL over the mean TPOT is the tokens of a step, of all steps. Its acceptance length
is that of the steps that drafted alone.
"""

from collections.abc import Sequence
from math import inf

from simulator.inputs.services.fields import Fields
from simulator.inputs.services.measured import (
    MS,
    ServedRequest,
    ServiceFile,
    arrivals_of,
    client_times,
    counted,
    load_of,
    over_all_steps,
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


def is_vllm_bench(values: Fields) -> bool:
    """Return whether an object is such a result."""
    return "model_id" in values and "completed" in values and "total_output_tokens" in values


def read_vllm_bench(values: Fields) -> ServiceFile:
    """Return what a result holds."""
    file = values.file
    requests, gaps_ms = served_requests(values)
    load = load_of(requests, stated_load(values))
    acceptance = _acceptance(values)
    drafted = acceptance is not None  # by counters that vLLM alone shows
    if requests and all(request.steps is not None for request in requests):
        decoded = sum(max(0, (request.output_tokens or 0) - 1) for request in requests)
        steps = sum(request.steps or 0 for request in requests)
        acceptance = over_all_steps(acceptance, decoded, steps)
    elif acceptance is not None:
        itl_ms = values.number("mean_itl_ms")
        tpot_ms = values.number("mean_tpot_ms")
        if itl_ms and tpot_ms:
            acceptance = acceptance.model_copy(update={"tokens_per_step": itl_ms / tpot_ms})
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
    lists: dict[str, Sequence[object]] = {
        "output_lens": outputs,
        "input_lens": prompts,
        "itls": gaps_s,
        "start_times": starts_s,
        "errors": errors,
    }
    for name, entries in lists.items():
        if entries and len(entries) != len(ttfts_s):
            message = f"expected {len(ttfts_s):,} entries, as ttfts has, found {len(entries):,}"
            raise values.fault(name, message)
    requests = []
    gaps_ms = []
    for place, ttft_s in enumerate(ttfts_s):
        if (errors and errors[place]) or not outputs[place]:
            continue
        tpot_ms = None
        e2e_ms = None
        steps = None
        if gaps_s:
            own_ms = [MS * gap_s for gap_s in gaps_s[place]]
            gaps_ms += own_ms
            steps = len(own_ms)
            e2e_ms = MS * ttft_s + sum(own_ms)
            if outputs[place] > 1:
                tpot_ms = sum(own_ms) / (outputs[place] - 1)
        requests.append(
            ServedRequest(
                arrival_s=starts_s[place] if starts_s else None,
                prompt_tokens=prompts[place] if prompts else None,
                output_tokens=outputs[place],
                ttft_ms=MS * ttft_s,
                tpot_ms=tpot_ms,
                e2e_ms=e2e_ms,
                steps=steps,
            )
        )
    return requests, gaps_ms


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


def _acceptance(values: Fields) -> ObservedAcceptance | None:
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
    lacks.append(
        NotHeld(what="queue, KV cache, preemptions", remedy="a scrape of /metrics before and after")
    )
    return lacks
