"""What was observed of a running service: the content of ``observed.yaml``.

A value that no file holds is None, never 0. Shares are from 0 to 1.
"""

from typing import Annotated, Literal

from pydantic import Field

from simulator.core.quantities import Frozen

Quantity = Literal["ttft", "itl", "tpot", "e2e", "queue", "prefill", "decode", "inference", "pass"]
"""What a time is of: to the first token; from one chunk of an answer to the next; per output token
behind the first; of a whole request; waiting; computing the prompt; decoding; prefill and decode
together; one pass of the engine."""
Side = Literal["client", "server"]
Count = Annotated[int, Field(le=10**18)]
"""A number that a service has counted, which no file can make longer than any counter is."""


class ObservedFile(Frozen):
    """A file, or an address, that was read."""

    file: str
    """Name without its folder; of an address scheme, host and path."""
    kind: str
    """What it is, such as ``vllm bench serve``."""


class MeasuredTime(Frozen):
    """A time, over all requests of a file."""

    quantity: Quantity
    seen_by: Side
    """Who measured it: a client's times hold the network and its own work."""
    file: str
    definition: str
    """What exactly was measured."""
    count: Count | None = None
    mean_ms: float | None = None
    p50_ms: float | None = None
    p90_ms: float | None = None
    p99_ms: float | None = None
    from_buckets: bool = False
    """Whether percentiles are read off a histogram, linearly inside a bucket."""


class ObservedLengths(Frozen):
    """How many tokens prompts or outputs have."""

    mean_tokens: float | None = None
    p50_tokens: float | None = None
    p90_tokens: float | None = None
    p99_tokens: float | None = None
    most_tokens: float | None = None


class ObservedLoad(Frozen):
    """What was asked of the service."""

    duration_s: float | None = None
    requests: Count | None = None
    """That were answered."""
    failed: Count | None = None
    incomplete: Count | None = None
    """That were still under way when a benchmark ended."""
    prompt_tokens: Count | None = None
    """Of all requests."""
    output_tokens: Count | None = None
    cached_tokens: Count | None = None
    """Prompt tokens that were found in a cache."""
    prompts: ObservedLengths | None = None
    outputs: ObservedLengths | None = None
    arrival_rate_per_s: float | None = None
    """Requests a second, from the first to the last that came."""
    ended_rate_per_s: float | None = None
    """Answered requests over the duration; that of arrivals where as many come as end."""
    gap_variation: float | None = None
    """Standard deviation of the times between arrivals over their mean: 1 is a Poisson process."""
    asked_rate_per_s: float | None = None
    """What a load generator was told; None: none, or all at once."""
    most_concurrent: Count | None = None
    """The limit that a load generator was told."""
    in_flight_mean: float | None = None
    """Requests under way, by Little's law: their rate times their mean time; None where some were
    under way when it began or ended."""
    sessions: Count | None = None
    """Conversations, where some have more than one turn."""
    most_turns: Count | None = None
    output_tokens_per_s: float | None = None


class ObservedAcceptance(Frozen):
    """What became of draft tokens."""

    file: str
    window: Count | None = None
    """Most draft tokens of a step, as stated."""
    drafts: Count | None = None
    """Steps that drafted."""
    drafted_tokens: Count | None = None
    accepted_tokens: Count | None = None
    accepted_by_position_tokens: tuple[Count, ...] = ()
    """Drafts that kept the first token, the second, ..."""
    kept_share_by_position: tuple[float, ...] = ()
    """The same over all drafts."""
    steps_by_accepted: tuple[Count, ...] = ()
    """Drafts that kept no token, one, two, ..."""
    tokens_per_draft: float | None = None
    """Tokens of a step that drafted, correction or bonus included."""
    steps: Count | None = None
    """Decode steps of all requests, those without a draft included."""
    tokens_per_step: float | None = None
    """Tokens of a decode step, those without a draft included."""
    replayable: bool = False
    """Whether accepted tokens are known step by step (``observed_steps.jsonl``)."""


class ObservedState(Frozen):
    """How full the service was."""

    scrapes: Count | None = None
    running_mean: float | None = None
    """Requests in the batch, over the scrapes or passes."""
    running_most: float | None = None
    waiting_mean: float | None = None
    waiting_most: float | None = None
    kv_used_share_mean: float | None = None
    kv_used_share_most: float | None = None
    kv_capacity_tokens: Count | None = None
    """For how many tokens the KV cache has room."""
    kv_block_tokens: Count | None = None
    queried_tokens: Count | None = None
    """Prompt tokens that were looked up in the prefix cache."""
    hit_tokens: Count | None = None
    hit_rate: float | None = None
    preemptions: Count | None = None
    engine_passes: Count | None = None


class NotHeld(Frozen):
    """Something that none of the files holds."""

    what: str
    remedy: str
    """The option of the server or benchmark that adds it."""


class Observed(Frozen):
    """What was observed of a running service, by files that belong together."""

    observed: Literal[1] = 1
    """Version of this format."""
    files: tuple[ObservedFile, ...] = ()
    engine: str | None = None
    """vLLM, SGLang, TensorRT-LLM or llama.cpp."""
    model: str | None = None
    """Name of the target, without folders."""
    load: ObservedLoad = ObservedLoad()
    times: tuple[MeasuredTime, ...] = ()
    acceptance: ObservedAcceptance | None = None
    """By the file that knows most of it."""
    state: ObservedState = ObservedState()
    bottleneck: str
    """What holds the service back, in a sentence."""
    cold: Count | None = None
    """So many requests, the first to arrive, waited for a server that was not warm yet, and are in
    the times. None: of none is that known."""
    skipped: Count | None = None
    """So many requests, the first to arrive, whose times are left out as those of a warm-up: times
    and output tokens a second are of later requests, all else is of all. None: of none."""
    contradictions: tuple[str, ...] = ()
    """Where two of the files do not agree."""
    not_held: tuple[NotHeld, ...] = ()
    requests_file: str | None = None
    """CSV beside this file, a line for every request."""
    passes_file: str | None = None
    """CSV beside this file, a line for every pass."""
    steps_file: str | None = None
    """JSONL beside this file: accepted tokens by step, which ``specsim trace convert`` reads."""

    def times_of(self, quantity: Quantity) -> tuple[MeasuredTime, ...]:
        """Return the times of one kind, those of clients first."""
        chosen = [time for time in self.times if time.quantity == quantity]
        return tuple(sorted(chosen, key=lambda time: time.seen_by))
