"""Answers of servers to requests, one a file or a line: what they say of their own drafts.

* vLLM, served with ``--per-request-spec-decode-metrics``: ``metrics.speculative_decoding``.
  ``detailed`` states accepted and drafted tokens of every step that drafted.
* SGLang, asked with ``return_spec_tokens_details``: ``spec_verify_ct`` and a histogram beside it.
* TensorRT-LLM: ``choices[0].speculative_decoding``.

Their texts are not kept.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from simulator.inputs.services.fields import Fields
from simulator.inputs.services.measured import (
    MS,
    RequestSteps,
    ServedRequest,
    ServiceFile,
    counted,
    known,
    load_of,
    positions_of,
    sum_of_all,
    time_of,
)
from simulator.inputs.services.observed import NotHeld, ObservedAcceptance, ObservedLoad

DEEPEST = 6
"""Levels in which SGLang's counts are looked for."""
COUNTS_OF_SGLANG = "spec_verify_ct"
DRAFTED_OF_SGLANG = ("spec_num_proposed_drafts", "spec_draft_token_num")
ACCEPTED_OF_SGLANG = ("spec_num_correct_drafts", "spec_accept_token_num")
HISTOGRAMS_OF_SGLANG = ("spec_correct_drafts_histogram", "spec_accept_histogram")
"""How releases call it, the newest first. A histogram ends with the most that was ever accepted,
which is no window."""
REMEDIES = {
    "vLLM": "vllm serve --per-request-spec-decode-metrics detailed",
    "SGLang": "return_spec_tokens_details in the request",
    "TensorRT-LLM": "speculative decoding in the server's configuration",
}
STATED = "as the server states it in its answer"


class Speculation(NamedTuple):
    """What an answer says of its drafts."""

    drafts: int | None
    drafted_tokens: int | None
    accepted_tokens: int | None
    steps_by_accepted: Sequence[int]
    """Drafts that kept no token, one, two, ...; empty where it is not said."""
    window: int | None = None
    steps: RequestSteps | None = None


def is_answer(values: Fields) -> bool:
    """Return whether an object is an answer of a server."""
    choices = values.values.get("choices")
    return isinstance(choices, list) or isinstance(values.values.get("meta_info"), Mapping)


def read_answers(file: str, answers: Sequence[Fields]) -> ServiceFile:
    """Return what answers say; raises :class:`BadInput` where a count contradicts another."""
    engine = next(filter(None, map(_engine, answers)), None)
    requests = []
    speculations = []
    steps = []
    for place, answer in enumerate(answers):
        speculation = _speculation(answer)
        requests.append(_request(answer, speculation))
        speculations.append(speculation)
        if speculation.steps is not None:
            steps.append(speculation.steps._replace(request=place))
    histogram = added([each.steps_by_accepted for each in speculations])
    windows = known(each.window for each in speculations)
    acceptance = summed(file, requests, steps, histogram, max(windows, default=0) or None)
    ttfts_ms = known(request.ttft_ms for request in requests)
    e2es_ms = known(request.e2e_ms for request in requests)
    return ServiceFile(
        file=file,
        kind=f"{engine or 'a server'}, {len(answers):,} answer{'' if len(answers) == 1 else 's'}",
        engine=engine,
        model=answers[0].text("model"),
        load=load_of(requests, ObservedLoad()),
        times=[
            *time_of("ttft", "server", file, STATED, ttfts_ms),
            *time_of("e2e", "server", file, STATED, e2es_ms),
        ],
        acceptance=acceptance,
        requests=requests,
        steps=steps,
        whole=False,
        not_held=_not_held(engine, acceptance),
    )


def vllm_speculation(counts: Fields) -> tuple[RequestSteps | None, list[int]]:
    """Return the steps of a request that vLLM states, and how many kept no token, one, two, ...

    Raises :class:`BadInput` where lists by step are not as long as each other or as the count of
    steps says, or a step keeps more than it drafted.
    """
    histogram = counts.counts("acceptance_histogram")
    accepted = counts.counts("per_step_accepted")
    drafted = counts.counts("per_step_drafted")
    if not accepted and not drafted:
        return None, histogram
    steps = counts.count("num_spec_steps")
    if len(accepted) != len(drafted) or steps not in (None, len(accepted)):
        message = f"expected as many steps as per_step_drafted has, {len(drafted):,}"
        raise counts.fault("per_step_accepted", f"{message}, found {len(accepted):,}")
    for place, (kept, proposed) in enumerate(zip(accepted, drafted, strict=True)):
        if kept > proposed:
            message = f"keeps {kept:,} of {proposed:,} drafted tokens"
            raise counts.fault(f"per_step_accepted.{place}", message)
    return RequestSteps(tuple(accepted), tuple(drafted)), histogram


def summed(
    file: str,
    requests: Sequence[ServedRequest],
    steps: Sequence[RequestSteps],
    histogram: Sequence[int],
    window: int | None,
) -> ObservedAcceptance | None:
    """Return the acceptance of requests that state their counts; it can be replayed where there are
    steps of each that drafted.
    """
    stated = [request for request in requests if request.drafted_tokens is not None]
    acceptance = counted(
        file,
        sum_of_all([request.drafts for request in stated]),
        sum_of_all([request.drafted_tokens for request in stated]),
        sum_of_all([request.accepted_tokens for request in stated]),
        positions_of(histogram),
        histogram,
        window,
    )
    drafting = [request for request in stated if request.drafted_tokens]
    if acceptance is not None and len(steps) == len(drafting):
        return acceptance.model_copy(update={"replayable": True})
    return acceptance


def _engine(answer: Fields) -> str | None:
    """Return which engine has answered, where that is seen."""
    fingerprint = answer.values.get("system_fingerprint")
    if "metrics" in answer or str(fingerprint).startswith("vllm"):
        return "vLLM"
    if "meta_info" in answer or _with(answer.values, COUNTS_OF_SGLANG, 0) is not None:
        return "SGLang"
    choice = _choice(answer)
    if "speculative_decoding" in choice or "avg_decoded_tokens_per_iter" in choice:
        return "TensorRT-LLM"
    return None


def _choice(answer: Fields) -> Fields:
    """Return the first choice of an answer."""
    return next(answer.objects("choices"), answer.inner("choice"))


def _with(value: Any, name: str, depth: int) -> Mapping[str, Any] | None:
    """Return the first object within a value that has a field of this name."""
    if depth > DEEPEST:
        return None
    if isinstance(value, Mapping):
        if name in value:
            return value
        inner: Iterator[Any] = iter(value.values())
    elif isinstance(value, list):
        inner = iter(value)
    else:
        return None
    for part in inner:
        held = _with(part, name, depth + 1)
        if held is not None:
            return held
    return None


def _speculation(answer: Fields) -> Speculation:
    """Return what an answer says of its drafts, in the words of the engine that gave it."""
    of_sglang = _with(answer.values, COUNTS_OF_SGLANG, 0)
    if of_sglang is not None:
        return _sglang_speculation(Fields(answer.file, of_sglang, answer.line))
    counts = answer.inner("metrics").inner("speculative_decoding")
    if "num_draft_tokens" in counts:
        steps, histogram = vllm_speculation(counts)
        return Speculation(
            drafts=counts.count("num_spec_steps"),
            drafted_tokens=counts.count("num_draft_tokens"),
            accepted_tokens=counts.count("num_accepted_draft_tokens"),
            steps_by_accepted=histogram,
            window=counts.count("num_spec_tokens"),
            steps=steps,
        )
    counts = _choice(answer).inner("speculative_decoding")
    return Speculation(
        drafts=counts.count("num_spec_steps"),
        drafted_tokens=counts.count("total_draft_tokens"),
        accepted_tokens=counts.count("total_accepted_draft_tokens"),
        steps_by_accepted=counts.counts("acceptance_histogram"),
        window=counts.count("num_spec_tokens"),
    )


def _sglang_speculation(counts: Fields) -> Speculation:
    histogram: list[int] = []
    for name in HISTOGRAMS_OF_SGLANG:
        histogram = histogram or counts.counts(name)
    return Speculation(
        drafts=counts.count(COUNTS_OF_SGLANG),
        drafted_tokens=_first(*map(counts.count, DRAFTED_OF_SGLANG)),
        accepted_tokens=_first(*map(counts.count, ACCEPTED_OF_SGLANG)),
        steps_by_accepted=histogram,
    )


def _request(answer: Fields, speculation: Speculation) -> ServedRequest:
    """Return a request as its answer states it."""
    usage = answer.inner("usage")
    meta = answer.inner("meta_info")
    metrics = answer.inner("metrics")
    cached = usage.inner("prompt_tokens_details").count("cached_tokens")
    latency_s = meta.number("e2e_latency")
    return ServedRequest(
        prompt_tokens=_first(usage.count("prompt_tokens"), meta.count("prompt_tokens")),
        cached_tokens=_first(cached, meta.count("cached_tokens")),
        output_tokens=_first(usage.count("completion_tokens"), meta.count("completion_tokens")),
        ttft_ms=metrics.number("time_to_first_token_ms"),
        e2e_ms=None if latency_s is None else MS * latency_s,
        drafts=speculation.drafts,
        drafted_tokens=speculation.drafted_tokens,
        accepted_tokens=speculation.accepted_tokens,
    )


def _first(stated: int | None, other: int | None) -> int | None:
    return other if stated is None else stated


def added(histograms: Sequence[Sequence[int]]) -> list[int]:
    """Return histograms added up, place by place."""
    added: list[int] = []
    for histogram in histograms:
        added += [0] * (len(histogram) - len(added))
        for place, steps in enumerate(histogram):
            added[place] += steps
    return added


def _not_held(engine: str | None, acceptance: ObservedAcceptance | None) -> list[NotHeld]:
    lacks = [NotHeld(what="times and load", remedy="a benchmark, or two scrapes of /metrics")]
    remedy = REMEDIES.get(engine or "", " or ".join(REMEDIES.values()))
    if acceptance is None:
        lacks.append(NotHeld(what="acceptance: the answer counts no drafts", remedy=remedy))
    elif not acceptance.replayable and engine == "vLLM":
        lacks.append(NotHeld(what="acceptance step by step", remedy=remedy))
    return lacks
