"""Reports of GuideLLM, ``--output kind=json`` or yaml: a benchmark for each rate.

Its inter-token latency is the time from the first to the last token over the tokens behind the
first, the TPOT of others; its time per output token has the first token in it and is not read.
Iterations are chunks as the client sees them: steps that arrive together count once.
Source: guidellm/schemas of 0.8, metadata.version 2; a file of 0.8.1.
"""

from collections.abc import Sequence

from simulator.inputs.services.answers import added, summed, vllm_speculation
from simulator.inputs.services.fields import Fields
from simulator.inputs.services.measured import (
    MS,
    STATE_NOT_HELD,
    RequestSteps,
    ServedRequest,
    ServiceFile,
    arrivals_of,
    client_times,
    known,
    load_of,
    over_steps_of,
)
from simulator.inputs.services.observed import (
    MeasuredTime,
    NotHeld,
    ObservedAcceptance,
    ObservedLengths,
    ObservedLoad,
    Quantity,
)

BLOCKS: dict[Quantity, tuple[str, float]] = {
    "ttft": ("time_to_first_token_ms", 1.0),
    "tpot": ("inter_token_latency_ms", 1.0),
    "e2e": ("request_latency", MS),
}
"""Name of a metric, and milliseconds of its unit."""
DEFINITIONS: dict[Quantity, str] = {
    "ttft": "from sending a request to the first token of its answer",
    "tpot": "of a request, the time from its first to its last token over its tokens less one",
    "e2e": "from sending a request to the end of its answer",
}
LATEST_S = 1e10
VERSION = 2


def is_guidellm(values: Fields) -> bool:
    """Return whether an object is such a report."""
    return isinstance(values.values.get("benchmarks"), list) and "metadata" in values


def read_guidellm(values: Fields) -> list[ServiceFile]:
    """Return what each benchmark of a report holds; raises :class:`BadInput` for a version of the
    format other than 2.
    """
    version = values.inner("metadata").count("version")
    if version not in (None, VERSION):
        raise values.inner("metadata").fault("version", f"expected {VERSION}, got {version}")
    read = [_benchmark(values.file, benchmark) for benchmark in values.objects("benchmarks")]
    if not read:
        raise values.fault("benchmarks", "holds no benchmark")
    return read


def _benchmark(file: str, benchmark: Fields) -> ServiceFile:
    """Return what a benchmark holds, by its sums where it does not list each request."""
    metrics = benchmark.inner("metrics")
    listed = list(benchmark.inner("requests").objects("successful"))
    requests: Sequence[ServedRequest] = [_request(request) for request in listed]
    stated = _stated_load(benchmark)
    acceptance, steps = _acceptance(file, listed, requests)
    whole = bool(requests) and stated.requests in (None, 0, len(requests))
    if whole:
        stated = stated.model_copy(update=_arrivals(benchmark.inner("requests")))
        acceptance = over_steps_of(acceptance, requests)
    else:
        requests = ()
        stated = stated.model_copy(update=_stated_lengths(metrics))
        acceptance = _of_some(acceptance)
    config = benchmark.inner("config")
    return ServiceFile(
        file=file,
        kind=f"GuideLLM, {config.inner('strategy').text('type_') or 'benchmark'}",
        model=config.inner("backend").text("model"),
        load=load_of(requests, stated),
        times=client_times(file, DEFINITIONS, requests) if whole else _stated_times(file, metrics),
        acceptance=acceptance,
        requests=requests,
        steps=steps,
        not_held=_not_held(acceptance, whole),
    )


def _stated_load(benchmark: Fields) -> ObservedLoad:
    """Return the load that a benchmark states in sums."""
    metrics = benchmark.inner("metrics")
    totals = metrics.inner("request_totals")
    answered = totals.count("successful")
    strategy = benchmark.inner("config").inner("strategy")
    return ObservedLoad(
        duration_s=benchmark.number("duration"),
        requests=answered,
        failed=totals.count("errored"),
        incomplete=totals.count("incomplete"),
        prompt_tokens=_total(metrics, "prompt_token_count"),
        output_tokens=_total(metrics, "output_token_count"),
        asked_rate_per_s=strategy.number("rate"),
        most_concurrent=strategy.count("streams"),
    )


def _request(request: Fields) -> ServedRequest:
    info = request.inner("info")
    timings = info.inner("timings")
    iterations = timings.count("token_iterations")
    latency_s = request.number("request_latency")
    counts = _speculation(request)
    return ServedRequest(
        arrival_s=request.number("request_start_time", LATEST_S),
        session=info.text("conversation_id") or "",
        turn=info.count("turn_index"),
        prompt_tokens=request.count("prompt_tokens"),
        cached_tokens=request.inner("input_metrics").count("cached_tokens"),
        output_tokens=request.count("output_tokens"),
        ttft_ms=request.number("time_to_first_token_ms"),
        tpot_ms=request.number("inter_token_latency_ms"),
        e2e_ms=None if latency_s is None else MS * latency_s,
        steps=max(0, iterations - 1) if iterations else None,
        drafts=counts.count("num_spec_steps"),
        drafted_tokens=counts.count("num_draft_tokens"),
        accepted_tokens=counts.count("num_accepted_draft_tokens"),
    )


def _speculation(request: Fields) -> Fields:
    return request.inner("response_metrics").inner("speculative_decoding")


def _acceptance(
    file: str, listed: Sequence[Fields], requests: Sequence[ServedRequest]
) -> tuple[ObservedAcceptance | None, list[RequestSteps]]:
    """Return what vLLM said of its drafts in the answers, and their steps, where it did."""
    histogram: list[int] = []
    steps = []
    for place, request in enumerate(listed):
        own_steps, own_histogram = vllm_speculation(_speculation(request))
        if own_steps is not None:
            steps.append(own_steps._replace(request=place))
        histogram = added([histogram, own_histogram])
    windows = known(_speculation(request).count("num_spec_tokens") for request in listed)
    return summed(file, requests, steps, histogram, max(windows, default=0) or None), steps


def _arrivals(by_end: Fields) -> dict[str, float | None]:
    """Return how requests arrive, those that failed or were left included."""
    begun_s: list[float] = []
    for end in ("successful", "errored", "incomplete"):
        for request in by_end.objects(end):
            begun_s += known([request.number("request_start_time", LATEST_S)])
    rate_per_s, variation = arrivals_of(begun_s)
    return {"arrival_rate_per_s": rate_per_s, "gap_variation": variation}


def _of_some(acceptance: ObservedAcceptance | None) -> ObservedAcceptance | None:
    """Return the acceptance of a sample of the requests: shares, and no counts of the run."""
    if acceptance is None:
        return None
    return ObservedAcceptance(
        file=acceptance.file,
        window=acceptance.window,
        kept_share_by_position=acceptance.kept_share_by_position,
        tokens_per_draft=acceptance.tokens_per_draft,
        replayable=acceptance.replayable,
    )


def _total(metrics: Fields, name: str) -> int | None:
    total = metrics.inner(name).inner("successful").number("total_sum")
    return None if total is None else round(total)


def _stated_lengths(metrics: Fields) -> dict[str, ObservedLengths | None]:
    return {
        "prompts": _lengths(metrics, "prompt_token_count"),
        "outputs": _lengths(metrics, "output_token_count"),
    }


def _lengths(metrics: Fields, name: str) -> ObservedLengths | None:
    """Return how long prompts or outputs are, of all requests that were answered."""
    block = metrics.inner(name).inner("successful")
    if not block.number("count"):
        return None
    percentiles = block.inner("percentiles")
    return ObservedLengths(
        mean_tokens=block.number("mean"),
        p50_tokens=block.number("median"),
        p90_tokens=percentiles.number("p90"),
        p99_tokens=percentiles.number("p99"),
        most_tokens=block.number("max"),
    )


def _stated_times(file: str, metrics: Fields) -> list[MeasuredTime]:
    """Return the times of a report whose requests were sampled or left out."""
    times = []
    for quantity, (name, unit_ms) in BLOCKS.items():
        block = metrics.inner(name).inner("successful")
        if not block.number("count"):
            continue
        percentiles = block.inner("percentiles")
        values = [
            block.number("mean"),
            block.number("median"),
            percentiles.number("p90"),
            percentiles.number("p99"),
        ]
        mean_ms, p50_ms, p90_ms, p99_ms = (
            None if value is None else unit_ms * value for value in values
        )
        times.append(
            MeasuredTime(
                quantity=quantity,
                seen_by="client",
                file=file,
                definition=DEFINITIONS[quantity],
                count=block.count("count"),
                mean_ms=mean_ms,
                p50_ms=p50_ms,
                p90_ms=p90_ms,
                p99_ms=p99_ms,
            )
        )
    return times


def _not_held(acceptance: ObservedAcceptance | None, whole: bool) -> list[NotHeld]:
    lacks = [
        NotHeld(what="times between chunks", remedy="vllm bench serve --save-detailed"),
        STATE_NOT_HELD,
    ]
    if acceptance is None:
        lacks.append(
            NotHeld(
                what="acceptance: no draft is counted",
                remedy="vllm serve --per-request-spec-decode-metrics summary, and speculation",
            )
        )
    if not whole:
        lacks.append(NotHeld(what="each request", remedy="a report without a sample size"))
    return lacks
