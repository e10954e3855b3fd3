"""The result of ``python -m sglang.bench_serving --output-file``, with ``--output-details`` request
by request: a line for every run.

Asked in its own way (``backend`` sglang), a chunk of several tokens is as many equal times between
tokens, so that its ITL is a time per token and tells no steps.
"""

from collections.abc import Sequence

from simulator.inputs.services.fields import Fields
from simulator.inputs.services.measured import ServiceFile, client_times, load_of
from simulator.inputs.services.observed import MeasuredTime, NotHeld, ObservedAcceptance
from simulator.inputs.services.vllm_bench import (
    DEFINITIONS,
    served_requests,
    stated_load,
    times_of_means,
)

OWN = ("sglang", "sglang-native")
"""Backends that share the time of a chunk out to its tokens."""
TPOT = "from one chunk of an answer to the next over the tokens of the chunk, each token counted"


def is_sglang_bench(values: Fields) -> bool:
    """Return whether an object is such a result."""
    return "completed" in values and "mean_e2e_latency_ms" in values and "backend" in values


def read_sglang_bench(values: Fields) -> ServiceFile:
    """Return what a result holds; ``accept_length`` is that of the server since it began."""
    requests, gaps_ms = served_requests(values)
    lacks = [
        NotHeld(what="acceptance by position", remedy="answers with return_spec_tokens_details"),
        NotHeld(
            what="queue, KV cache, retractions",
            remedy="sglang --enable-metrics, and a scrape of /metrics before and after",
        ),
    ]
    if not requests:
        lacks.append(NotHeld(what="each request", remedy="bench_serving --output-details"))
    times = client_times(values.file, DEFINITIONS, requests, gaps_ms) or times_of_means(values)
    if values.text("backend") in OWN:
        requests = [request._replace(steps=None) for request in requests]
        times = _per_token(times)
    length = values.number("accept_length")
    acceptance = None
    if length:
        acceptance = ObservedAcceptance(file=values.file, tokens_per_draft=length)
    return ServiceFile(
        file=values.file,
        kind="SGLang bench_serving",
        engine="SGLang" if (values.text("backend") or "").startswith("sglang") else None,
        load=load_of(requests, stated_load(values)),
        times=times,
        acceptance=acceptance,
        requests=requests,
        not_held=lacks,
    )


def _per_token(times: Sequence[MeasuredTime]) -> list[MeasuredTime]:
    """Return times, with those between tokens behind the other times per token."""
    update = {"quantity": "tpot", "definition": TPOT}
    between = [time.model_copy(update=update) for time in times if time.quantity == "itl"]
    return [time for time in times if time.quantity != "itl"] + between
