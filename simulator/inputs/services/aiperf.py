"""Exports of AIPerf: ``profile_export.jsonl`` with a line for every request, and the sums of
``profile_export_aiperf.json``, which GenAI-Perf's JSON resembles.

Its inter-token latency is the time behind the first token over the tokens behind it, the TPOT of
others. Chunks that come together are taken apart with a time of 0 between them, so that chunks are
no steps. Requests that were cancelled or failed, and those of a warm-up, are left out.
Source: ai-dynamo/aiperf, docs/tutorials/working-with-profile-exports.md; a file of 0.13.0.
"""

from collections.abc import Sequence

from simulator.inputs.services.fields import Fields
from simulator.inputs.services.measured import (
    MS,
    STATE_NOT_HELD,
    ServedRequest,
    ServiceFile,
    arrivals_of,
    client_times,
    counted,
    known,
    load_of,
    positions_of,
    sum_of_known,
)
from simulator.inputs.services.observed import (
    MeasuredTime,
    NotHeld,
    ObservedAcceptance,
    ObservedLengths,
    ObservedLoad,
    Quantity,
)

IN_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": MS, "sec": MS, "seconds": MS}
"""Milliseconds of a unit."""
TAGS: dict[Quantity, str] = {
    "ttft": "time_to_first_token",
    "itl": "inter_chunk_latency",
    "tpot": "inter_token_latency",
    "e2e": "request_latency",
}
DEFINITIONS: dict[Quantity, str] = {
    "ttft": "from sending a request to the first token of its answer",
    "itl": "from one chunk of an answer to the next; 0 where chunks came together",
    "tpot": "of a request, the time behind its first token over its tokens less one",
    "e2e": "from sending a request to the last of its answer",
}
LATEST_NS = 1e19


def is_record(values: Fields) -> bool:
    """Return whether an object is a line of ``profile_export.jsonl``."""
    return "metadata" in values and "metrics" in values


def is_sums(values: Fields) -> bool:
    """Return whether an object holds the sums of a run."""
    block = values.values.get("request_latency")
    return isinstance(block, dict) and "avg" in block


def read_records(file: str, records: Sequence[Fields]) -> ServiceFile:
    """Return what the lines of a run hold."""
    requests = []
    gaps_ms: list[float] = []
    failed = 0
    asked_ns: list[float] = []
    first_ns: list[float] = []
    last_ns: list[float] = []
    for record in records:
        metadata = record.inner("metadata")
        if metadata.text("benchmark_phase") == "warmup":
            continue
        asked_ns += known([metadata.number("request_start_ns", LATEST_NS)])
        if metadata.values.get("was_cancelled") or record.values.get("error"):
            failed += 1
            continue
        metrics = record.inner("metrics")
        request = _request(metadata, metrics)
        requests.append(request)
        gaps_ms += _gaps_ms(metrics)
        first_ns += known([metadata.number("request_start_ns", LATEST_NS)])
        last_ns += known([metadata.number("request_end_ns", LATEST_NS)])
    duration_s = None
    if first_ns and last_ns:
        duration_s = max(0.0, max(last_ns) - min(first_ns)) * 1e-9
    arrival_rate_per_s, variation = arrivals_of([start_ns * 1e-9 for start_ns in asked_ns])
    stated = ObservedLoad(
        duration_s=duration_s or None,
        failed=failed,
        arrival_rate_per_s=arrival_rate_per_s,
        gap_variation=variation,
    )
    load = load_of(requests, stated)
    acceptance = _summed(file, requests)
    return ServiceFile(
        file=file,
        kind="AIPerf, request by request",
        load=load,
        times=client_times(file, DEFINITIONS, requests, gaps_ms),
        acceptance=acceptance,
        requests=requests,
        not_held=_not_held(acceptance),
    )


def read_sums(values: Fields) -> ServiceFile:
    """Return what the sums of a run hold."""
    completed = _average(values, "request_count")
    load = ObservedLoad(
        duration_s=_average(values, "benchmark_duration"),
        requests=_whole(completed),
        failed=_whole(_average(values, "error_request_count")),
        prompt_tokens=_whole(_sum(values, "input_sequence_length")),
        output_tokens=_whole(_sum(values, "output_sequence_length")),
        prompts=_lengths(values, "input_sequence_length"),
        outputs=_lengths(values, "output_sequence_length"),
        output_tokens_per_s=_average(values, "output_token_throughput"),
    )
    times = []
    for quantity, tag in TAGS.items():
        times += _stated_time(values, quantity, tag)
    histogram = _histogram(values.inner("pooled_spec_decode_acceptance_histogram"))
    acceptance = counted(
        values.file,
        _whole(_average(values, "total_spec_decode_steps")),
        _whole(_average(values, "total_draft_tokens")),
        _whole(_average(values, "total_accepted_draft_tokens")),
        positions_of(histogram),
        histogram,
    )
    return ServiceFile(
        file=values.file,
        kind="AIPerf, sums",
        load=load,
        times=times,
        acceptance=acceptance,
        not_held=[
            NotHeld(what="each request", remedy="profile_export.jsonl of the same run"),
            *_not_held(acceptance),
        ],
    )


def _request(metadata: Fields, metrics: Fields) -> ServedRequest:
    start_ns = metadata.number("request_start_ns", LATEST_NS)
    return ServedRequest(
        arrival_s=None if start_ns is None else start_ns * 1e-9,
        session=metadata.text("x_correlation_id") or metadata.text("conversation_id") or "",
        turn=metadata.count("turn_index"),
        prompt_tokens=metrics.inner("input_sequence_length").count("value"),
        cached_tokens=metrics.inner("usage_prompt_cache_read_tokens").count("value"),
        output_tokens=metrics.inner("output_sequence_length").count("value"),
        ttft_ms=_ms(metrics.inner("time_to_first_token"), "value"),
        tpot_ms=_ms(metrics.inner("inter_token_latency"), "value"),
        e2e_ms=_ms(metrics.inner("request_latency"), "value"),
        drafts=metrics.inner("spec_decode_steps").count("value"),
        drafted_tokens=metrics.inner("spec_decode_draft_tokens").count("value"),
        accepted_tokens=metrics.inner("spec_decode_accepted_draft_tokens").count("value"),
    )


def _gaps_ms(metrics: Fields) -> list[float]:
    block = metrics.inner("inter_chunk_latency")
    return [gap * _unit_ms(block) for gap in block.numbers("value")]


def _ms(block: Fields, name: str) -> float | None:
    """Return a time of a block in milliseconds."""
    value = block.number(name)
    return None if value is None else value * _unit_ms(block)


def _unit_ms(block: Fields) -> float:
    unit = block.text("unit") or "ms"
    if unit not in IN_MS:
        raise block.fault("unit", f"expected one of {', '.join(IN_MS)}, got a text")
    return IN_MS[unit]


def _stated_time(values: Fields, quantity: Quantity, tag: str) -> list[MeasuredTime]:
    block = values.inner(tag)
    if "avg" not in block:
        return []
    return [
        MeasuredTime(
            quantity=quantity,
            seen_by="client",
            file=values.file,
            definition=DEFINITIONS[quantity],
            count=block.count("count"),
            mean_ms=_ms(block, "avg"),
            p50_ms=_ms(block, "p50"),
            p90_ms=_ms(block, "p90"),
            p99_ms=_ms(block, "p99"),
        )
    ]


def _summed(file: str, requests: Sequence[ServedRequest]) -> ObservedAcceptance | None:
    """Return the acceptance of the requests that state it."""
    return counted(
        file,
        sum_of_known(request.drafts for request in requests),
        sum_of_known(request.drafted_tokens for request in requests),
        sum_of_known(request.accepted_tokens for request in requests),
    )


def _average(values: Fields, tag: str) -> float | None:
    return values.inner(tag).number("avg")


def _sum(values: Fields, tag: str) -> float | None:
    """Return the sum of a metric over all requests, by their mean where it is not stated."""
    block = values.inner(tag)
    if "sum" in block:
        return block.number("sum")
    mean = block.number("avg")
    count = block.number("count") or _average(values, "request_count")
    return None if mean is None or count is None else mean * count


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _lengths(values: Fields, tag: str) -> ObservedLengths | None:
    block = values.inner(tag)
    if "avg" not in block:
        return None
    return ObservedLengths(
        mean_tokens=block.number("avg"),
        p50_tokens=block.number("p50"),
        p90_tokens=block.number("p90"),
        p99_tokens=block.number("p99"),
        most_tokens=block.number("max"),
    )


def _histogram(sparse: Fields) -> list[int]:
    """Return how many steps kept no token, one, two, ... from those that the file has."""
    counts: dict[int, int] = {}
    for accepted in sparse.values:
        if not (str(accepted).isdecimal() and len(str(accepted)) <= 3):
            raise sparse.fault("", "expected numbers of accepted tokens as names")
        counts[int(accepted)] = sparse.count(accepted) or 0
    return [counts.get(accepted, 0) for accepted in range(max(counts, default=-1) + 1)]


def _not_held(acceptance: ObservedAcceptance | None) -> list[NotHeld]:
    lacks = [STATE_NOT_HELD]
    if acceptance is None:
        lacks.append(
            NotHeld(
                what="acceptance",
                remedy="vllm serve --per-request-spec-decode-metrics summary, and speculation",
            )
        )
    return lacks
