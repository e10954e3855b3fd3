"""The result of ``python -m sglang.bench_serving --output-file``, with ``--output-details`` request
by request: a line for every run.
"""

from simulator.inputs.services.fields import Fields
from simulator.inputs.services.measured import ServiceFile, client_times, load_of
from simulator.inputs.services.observed import NotHeld, ObservedAcceptance
from simulator.inputs.services.vllm_bench import (
    DEFINITIONS,
    served_requests,
    stated_load,
    times_of_means,
)


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
    length = values.number("accept_length")
    acceptance = None
    if length:
        acceptance = ObservedAcceptance(file=values.file, tokens_per_draft=length)
    return ServiceFile(
        file=values.file,
        kind="SGLang bench_serving",
        engine="SGLang" if (values.text("backend") or "").startswith("sglang") else None,
        load=load_of(requests, stated_load(values)),
        times=client_times(values.file, DEFINITIONS, requests, gaps_ms) or times_of_means(values),
        acceptance=acceptance,
        requests=requests,
        not_held=lacks,
    )
