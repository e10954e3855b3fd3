"""Passes of engines: forward-pass metrics as JSONL or Parquet (SGLang, vLLM, Dynamo), and the
iteration statistics of TensorRT-LLM.

A forward-pass record has the wall time of a pass and what was in it; one with a time of 0 is a
heartbeat. In vLLM the time spans target and draft (vllm#52061).
Source: sglang srt/observability/forward_pass_metrics.py; tensorrt_llm executor statistics.
"""

from collections.abc import Sequence

from simulator.inputs.services.fields import Fields
from simulator.inputs.services.measured import (
    MS,
    ServedPass,
    ServiceFile,
    counted,
    known,
    mean_of,
    sum_of_known,
    time_of,
)
from simulator.inputs.services.observed import NotHeld, ObservedState

LATEST_S = 1e10
REQUESTS_NOT_HELD = NotHeld(
    what="requests, their lengths and times", remedy="a benchmark beside it"
)


def is_forward_pass(values: Fields) -> bool:
    """Return whether an object is a forward-pass record."""
    return "scheduled_requests" in values


def is_iteration(values: Fields) -> bool:
    """Return whether an object is the statistics of an iteration of TensorRT-LLM."""
    return "iterLatencyMS" in values or "specDecodingStats" in values


def read_forward_passes(file: str, records: Sequence[Fields]) -> ServiceFile:
    """Return what forward-pass records hold."""
    passes = []
    for record in records:
        wall_s = record.number("wall_time", LATEST_S)
        if wall_s is None:
            raise record.fault("wall_time", "is missing; expected seconds, 0 for a heartbeat")
        if wall_s:
            passes.append(_pass(record, wall_s))
    words = "of a forward pass; in vLLM from the target's begin to the draft's end"
    walls = [one_pass.wall_ms for one_pass in passes]
    return ServiceFile(
        file=file,
        kind=f"forward-pass metrics, {len(passes):,} passes",
        times=time_of("pass", "server", file, words, walls),
        state=_state(passes),
        passes=passes,
        not_held=[
            REQUESTS_NOT_HELD,
            NotHeld(what="acceptance", remedy="scrapes of /metrics, or answers with their counts"),
        ],
    )


def _pass(record: Fields, wall_s: float) -> ServedPass:
    scheduled = record.inner("scheduled_requests")
    queued = record.inner("queued_requests")
    waiting = [queued.count("num_prefill_requests"), queued.count("num_decode_requests")]
    return ServedPass(
        rank=record.count("dp_rank") or 0,
        wall_ms=MS * wall_s,
        prefill_requests=scheduled.count("num_prefill_requests") or 0,
        prefill_tokens=scheduled.count("sum_prefill_tokens") or 0,
        prefill_kv_tokens=scheduled.count("sum_prefill_kv_tokens") or 0,
        decode_requests=scheduled.count("num_decode_requests") or 0,
        decode_kv_tokens=scheduled.count("sum_decode_kv_tokens") or 0,
        waiting_requests=sum_of_known(waiting),
    )


def _state(passes: Sequence[ServedPass]) -> ObservedState:
    running = [each.prefill_requests + each.decode_requests for each in passes]
    waiting = known(each.waiting_requests for each in passes)
    return ObservedState(
        running_mean=mean_of(running),
        running_most=max(running, default=None),
        waiting_mean=mean_of(waiting),
        waiting_most=max(waiting, default=None),
        engine_passes=len(passes),
    )


def read_iterations(file: str, records: Sequence[Fields]) -> ServiceFile:
    """Return what the iteration statistics of TensorRT-LLM hold."""
    passes = []
    used = []
    hit_rates = []
    drafts = []
    drafted = []
    accepted = []
    for record in records:
        passes += known([_pass_of_iteration(record)])
        cache = record.inner("kvCacheStats")
        used += known([_used_share(cache)])
        hit_rates += known([cache.number("cacheHitRate")])
        counts = record.inner("specDecodingStats")
        drafts.append(counts.count("numRequestsWithDraftTokens"))
        drafted.append(counts.count("numDraftTokens"))
        accepted.append(counts.count("numAcceptedTokens"))
    acceptance = counted(file, sum_of_known(drafts), sum_of_known(drafted), sum_of_known(accepted))
    state = _state(passes).model_copy(
        update={
            "kv_used_share_mean": mean_of(used),
            "kv_used_share_most": max(used, default=None),
            "hit_rate": hit_rates[-1] if hit_rates else None,
        }
    )
    return ServiceFile(
        file=file,
        kind=f"TensorRT-LLM, {len(records):,} iterations",
        engine="TensorRT-LLM",
        times=time_of("pass", "server", file, "of an iteration", [each.wall_ms for each in passes]),
        acceptance=acceptance,
        state=state,
        passes=passes,
        not_held=[
            REQUESTS_NOT_HELD,
            NotHeld(what="acceptance by position", remedy="answers with speculative_decoding"),
        ],
    )


def _pass_of_iteration(record: Fields) -> ServedPass | None:
    """Return the pass of an iteration; None where it took no time."""
    batch = record.inner("inflightBatchingStats")
    latency_ms = record.number("iterLatencyMS")
    if not latency_ms:
        return None
    return ServedPass(
        rank=0,
        wall_ms=latency_ms,
        prefill_requests=batch.count("numContextRequests") or 0,
        prefill_tokens=batch.count("numCtxTokens") or 0,
        prefill_kv_tokens=0,
        decode_requests=batch.count("numGenRequests") or 0,
        decode_kv_tokens=0,
        waiting_requests=record.count("numQueuedRequests"),
    )


def _used_share(cache: Fields) -> float | None:
    """Return the share of the blocks of a cache that are used."""
    most = cache.number("maxNumBlocks")
    used = cache.number("usedNumBlocks")
    return used / most if most and used is not None else None
