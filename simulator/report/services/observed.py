"""What was observed of a service, in lines for a terminal: the answer first, twenty at most."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from simulator.inputs.services.observed import (
    MeasuredTime,
    Observed,
    ObservedAcceptance,
    ObservedLoad,
    ObservedState,
    Quantity,
)
from simulator.report.wording import plural

WIDTH = 100
MOST_LINES = 19
"""One is left for where it was written."""
SHOWN: Sequence[Quantity] = ("ttft", "itl", "tpot", "e2e", "queue", "prefill", "decode", "pass")
CALLED: dict[Quantity, str] = {
    "ttft": "first token",
    "itl": "between chunks",
    "tpot": "per output token",
    "e2e": "whole request",
    "queue": "in the queue",
    "prefill": "prefill",
    "decode": "decoding",
    "pass": "a pass",
}
UNKNOWN = "-"


def observed_lines(observed: Observed) -> list[str]:
    """Return what was observed in ``MOST_LINES`` lines of at most ``WIDTH`` columns."""
    lines = [
        *_wrapped(observed.bottleneck),
        *_wrapped(load_sentence(observed.load, observed.state.scrapes == 1)),
        *_times(observed),
    ]
    if observed.acceptance is not None:
        lines += _wrapped(acceptance_sentence(observed.acceptance))
    state = state_sentence(observed.state)
    if state:
        lines += _wrapped(state)
    contradictions = [f"Contradiction: {words}" for words in observed.contradictions]
    lacking = [f"Not held: {part.what} ({part.remedy})" for part in observed.not_held]
    for place, part in enumerate([*contradictions, *lacking]):
        further = _wrapped(part)
        if len(lines) + len(further) >= MOST_LINES:
            left = len(contradictions) + len(lacking) - place
            lines.append(f"... and {left} more, which --json and observed.yaml list")
            break
        lines += further
    return lines


def _wrapped(sentence: str) -> list[str]:
    return wrap(sentence, WIDTH, subsequent_indent="  ", break_long_words=True)


def load_sentence(load: ObservedLoad, since_it_began: bool) -> str:
    """Return what was asked of the service, perhaps since it began."""
    if load.requests is None and load.output_tokens is None:
        return "Load: unknown."
    parts = [*_requests(load, since_it_began), *_rates_and_lengths(load)]
    if load.sessions:
        parts.append(f"{load.sessions:,} sessions of up to {load.most_turns} turns")
    return f"Load: {', '.join(parts)}."


def _requests(load: ObservedLoad, since_it_began: bool) -> Iterator[str]:
    """Yield how many requests were answered, failed or were left."""
    if load.requests is not None:
        answered = plural(load.requests, "request")
        if load.duration_s:
            answered += f" in {load.duration_s:,.1f} s"
        elif since_it_began:
            answered += " since the server began"
        yield answered
    if load.failed:
        yield f"{load.failed:,} failed"
    if load.incomplete:
        yield f"{load.incomplete:,} left under way"


def _rates_and_lengths(load: ObservedLoad) -> Iterator[str]:
    """Yield how fast requests come, how long they are, and how many tokens are made of them."""
    if load.arrival_rate_per_s is not None:
        yield f"{load.arrival_rate_per_s:,.3g} arrive a second"
    elif load.ended_rate_per_s is not None:
        yield f"{load.ended_rate_per_s:,.3g} end a second"
    prompt = _mean_tokens(load.prompt_tokens, load.requests)
    output = _mean_tokens(load.output_tokens, load.requests)
    if (prompt, output) != (UNKNOWN, UNKNOWN):
        yield f"{prompt} prompt and {output} output tokens each"
    if load.in_flight_mean is not None:
        yield f"{load.in_flight_mean:,.3g} at a time"
    if load.output_tokens_per_s is not None:
        yield f"{load.output_tokens_per_s:,.0f} output tokens a second"


def _mean_tokens(tokens: int | None, requests: int | None) -> str:
    """Return mean tokens of a request."""
    if tokens is None or not requests:
        return UNKNOWN
    return f"{tokens / requests:,.0f}"


def _times(observed: Observed) -> Iterator[str]:
    """Yield a table of times: those of the client, of the server where no client has them."""
    rows = []
    for quantity in SHOWN:
        measured = observed.times_of(quantity)
        if measured:
            rows.append(_time_row(quantity, measured))
    if rows:
        head = f"{'Times (ms)':<17}"
        for name in ("mean", "p50", "p90", "p99"):
            head += f"{name:>9}"
        yield f"{head}  seen by"
        yield from rows


def _time_row(quantity: Quantity, measured: Sequence[MeasuredTime]) -> str:
    """Return a line for a time, with the mean of the server beside that of a client."""
    time = measured[0]
    row = f"  {CALLED[quantity]:<15}"
    for value in (time.mean_ms, time.p50_ms, time.p90_ms, time.p99_ms):
        row += f"{_ms(value):>9}"
    row += f"  {time.seen_by}"
    for other in measured[1:]:
        if other.seen_by != time.seen_by:
            return f"{row} (mean at the server {_ms(other.mean_ms)})"
    return row


def _ms(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    if value >= 100.0:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def acceptance_sentence(acceptance: ObservedAcceptance) -> str:
    """Return what became of drafts: of steps that drafted, and of all steps."""
    parts = []
    if acceptance.tokens_per_draft is not None:
        part = f"{acceptance.tokens_per_draft:.2f} tokens a step that drafted"
        if acceptance.drafts is not None:
            part += f" ({acceptance.drafts:,} of them)"
        parts.append(part)
    if acceptance.kept_share_by_position:
        shares = " ".join(f"{share:.2f}" for share in acceptance.kept_share_by_position)
        parts.append(f"kept by position {shares}")
    elif acceptance.drafted_tokens and acceptance.accepted_tokens is not None:
        share = acceptance.accepted_tokens / acceptance.drafted_tokens
        parts.append(f"{share:.0%} of {acceptance.drafted_tokens:,} drafted tokens kept")
    if acceptance.tokens_per_step is not None:
        part = f"{acceptance.tokens_per_step:.2f} a step"
        if acceptance.steps is not None:
            part += f" over all {acceptance.steps:,} decode steps"
        else:
            part += " over all decode steps"
        parts.append(part)
    return f"Acceptance: {'; '.join(parts) or 'counted, but not by step'}."


def state_sentence(state: ObservedState) -> str:
    """Return how full the service was; empty where nothing is known."""
    parts = []
    if state.hit_rate is not None:
        parts.append(f"{state.hit_rate:.0%} of prompt tokens found in the prefix cache")
    if state.running_most == 0.0 and not state.waiting_most:
        parts.append("nothing running when it was scraped")
    else:
        parts += _most_seen(state)
    if state.kv_capacity_tokens is not None:
        parts.append(f"room for {state.kv_capacity_tokens:,} tokens")
    if state.preemptions is not None:
        parts.append(plural(state.preemptions, "preemption"))
    if not parts:
        return ""
    return f"State: {', '.join(parts)}."


def _most_seen(state: ObservedState) -> Iterator[str]:
    """Yield how many requests were seen running and waiting at most, and how much memory used."""
    if state.running_most is not None:
        yield f"up to {plural(round(state.running_most), 'request')} seen running"
        if state.waiting_most is not None:
            yield f"{state.waiting_most:,.0f} waiting"
    if state.kv_used_share_most is not None:
        yield f"{state.kv_used_share_most:.0%} of the KV cache used"


def run_line(observed: Observed) -> str:
    """Return a line about one of several runs."""
    load = observed.load
    parts = [observed.files[0].file]
    if load.asked_rate_per_s is not None:
        parts.append(f"asked {load.asked_rate_per_s:g} a second")
    if load.most_concurrent is not None:
        parts.append(f"{load.most_concurrent:,} at a time")
    if load.output_tokens_per_s is not None:
        parts.append(f"{load.output_tokens_per_s:,.0f} tokens/s")
    for quantity in ("ttft", "tpot"):
        for time in observed.times_of(quantity)[:1]:
            parts.append(f"{quantity.upper()} {_ms(time.mean_ms)} ms")
    acceptance = observed.acceptance
    if acceptance is not None and acceptance.tokens_per_draft is not None:
        parts.append(f"{acceptance.tokens_per_draft:.2f} tokens a draft")
    line = ", ".join(parts)
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"
