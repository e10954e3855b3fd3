"""What was observed of a service: the answer first, then load, times, acceptance and state."""

from collections.abc import Iterator, Sequence

from simulator.inputs.services.observed import (
    MeasuredTime,
    NotHeld,
    Observed,
    ObservedAcceptance,
    ObservedFile,
    ObservedLengths,
    ObservedLoad,
    ObservedState,
    Quantity,
)
from simulator.report.blocks import (
    ALWAYS,
    FIRST,
    Block,
    Bullets,
    Figure,
    Highlight,
    Page,
    Paragraph,
    Remark,
    Standing,
    sections,
)
from simulator.report.columns import Column, table
from simulator.report.services.pictures import observed_figure
from simulator.report.wording import as_sentence, number, plural, share

NAME = "observed"
PICTURE = "observed.svg"
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
OF_ANSWER: Sequence[Quantity] = ("ttft", "tpot", "e2e")
"""Times that the answer in brief has."""
UNKNOWN = "-"
LEGEND = (
    "Times are over all requests but those that are left out as a warm-up. A client's hold the "
    "network and its own work. Percentiles of a server are read off its histogram."
)
TIMES = [
    Column[MeasuredTime]("time (ms)", lambda time: CALLED[time.quantity]),
    Column[MeasuredTime]("mean", lambda time: _ms(time.mean_ms)),
    Column[MeasuredTime]("p50", lambda time: _ms(time.p50_ms)),
    Column[MeasuredTime]("p90", lambda time: _ms(time.p90_ms)),
    Column[MeasuredTime]("p99", lambda time: _ms(time.p99_ms)),
    Column[MeasuredTime]("seen by", lambda time: time.seen_by),
    Column[MeasuredTime]("what exactly", lambda time: time.definition),
    Column[MeasuredTime]("file", lambda time: time.file),
]
ON_A_TERMINAL = (0, 1, 2, 3, 4, 5)
"""Columns of the times that a terminal shows."""
LENGTHS = [
    Column[tuple[str, ObservedLengths]]("tokens of", lambda row: row[0]),
    Column[tuple[str, ObservedLengths]]("mean", lambda row: number(row[1].mean_tokens, 4)),
    Column[tuple[str, ObservedLengths]]("p50", lambda row: number(row[1].p50_tokens, 4)),
    Column[tuple[str, ObservedLengths]]("p90", lambda row: number(row[1].p90_tokens, 4)),
    Column[tuple[str, ObservedLengths]]("p99", lambda row: number(row[1].p99_tokens, 4)),
    Column[tuple[str, ObservedLengths]]("most", lambda row: number(row[1].most_tokens, 4)),
]
POSITIONS = [
    Column[tuple[int, float]]("draft token", lambda row: row[0]),
    Column[tuple[int, float]]("kept", lambda row: share(row[1])),
]
NOT_HELD = [
    Column[NotHeld]("not in the files", lambda part: part.what),
    Column[NotHeld]("what adds it", lambda part: part.remedy),
]
FILES = [
    Column[ObservedFile]("file", lambda file: file.file),
    Column[ObservedFile]("what it is", lambda file: file.kind),
]
RUNS = [
    Column[Observed]("run", lambda run: run.files[0].file),
    Column[Observed]("asked (1/s)", lambda run: number(run.load.asked_rate_per_s, 3)),
    Column[Observed]("at a time", lambda run: run.load.most_concurrent),
    Column[Observed]("tokens/s", lambda run: number(run.load.output_tokens_per_s, 3)),
    Column[Observed]("TTFT (ms)", lambda run: _ms(_mean_ms(run, "ttft"))),
    Column[Observed]("TPOT (ms)", lambda run: _ms(_mean_ms(run, "tpot"))),
    Column[Observed]("tokens a draft", lambda run: number(_tokens_per_draft(run), 3)),
]


def observed_page(observed: Observed, command: str = "") -> Page:
    """Return the page of an observation: what holds the service back, then all that is known."""
    opening: list[Block] = []
    if any(_spread(time) for time in observed.times):
        title = "Times of requests: median to 99 %"
        opening.append(Figure(title, PICTURE, lambda: observed_figure(observed, CALLED)))
    if observed.times:
        times = [time for quantity in SHOWN for time in observed.times_of(quantity)]
        opening.append(table("Times", times, TIMES, terminal_columns=ON_A_TERMINAL))
        opening.append(Paragraph(LEGEND))
    if observed.contradictions:
        opening.append(Bullets([f"Contradiction: {words}" for words in observed.contradictions]))
    of_service = f"{observed.model or 'a model'} on {observed.engine or 'an engine'}"
    return Page(
        f"Observed: {of_service}",
        answer=observed.bottleneck,
        highlights=list(_highlights(observed)),
        opening=opening,
        sections=sections(
            ("Load", _load(observed)),
            ("Acceptance", _acceptance(observed.acceptance)),
            ("State", _state(observed.state)),
            ("Not held", _not_held(observed.not_held)),
            ("Files", [table("Files that were read", observed.files, FILES)]),
        ),
        command=command,
        standing=_standing(observed),
    )


def runs_page(runs: Sequence[Observed], command: str = "") -> Page:
    """Return the page of several runs, a row for each."""
    rates = [run.load.output_tokens_per_s or 0.0 for run in runs]
    fastest = runs[rates.index(max(rates))]
    answer = f"{len(runs):,} runs; name the files of one alone for what holds it back."
    if max(rates):
        rate = number(max(rates), 3)
        answer = f"Most output tokens a second: {rate}, in {fastest.files[0].file}. {answer}"
    return Page(
        f"Observed: {len(runs):,} runs",
        answer=answer,
        opening=[table("Runs", runs, RUNS, sortable=True)],
        command=command,
        standing=Standing(more=[Remark("Runs", f"{'; '.join(map(_in_short, runs))}.", ALWAYS, 5)]),
    )


def _standing(observed: Observed) -> Standing:
    """Return how far times spread, load, acceptance and state in a line each, and what contradicts
    itself or is not known.
    """
    more = []
    load = ", ".join(_load_in_short(observed.load, observed.state.scrapes == 1))
    if load:
        more.append(Remark("Load", as_sentence(load), ALWAYS, 1))
    drafts = "; ".join(_drafts_in_short(observed.acceptance))
    if drafts:
        more.append(Remark("Drafts", as_sentence(drafts), ALWAYS, 1))
    state = state_sentence(observed.state)
    if state:
        more.append(Remark("State", state, FIRST))
    lacking = [f"not held: {part.what} ({part.remedy})" for part in observed.not_held]
    doubts = [*observed.contradictions, *lacking]
    return Standing(_times_in_short(observed), _verdict(observed.acceptance), doubts, more)


def _verdict(acceptance: ObservedAcceptance | None) -> str:
    """Return that drafts are of no use where none was kept; nothing where some were, or nothing is
    known of them.
    """
    if acceptance is None or acceptance.tokens_per_draft is None:
        return ""
    if acceptance.tokens_per_draft > 1.0:
        return ""
    return "No draft token was kept: speculation only takes time here."


def _times_in_short(observed: Observed) -> str:
    """Return means, each with its median and 99th percentile, as far as these are known; the first
    one says which is which.
    """
    times: list[str] = []
    low, high = "p50 ", "p99 "
    for time in _first_times(observed):
        unit = "" if times else " ms on average"
        words = f"{time.quantity.upper()} {_ms(time.mean_ms)}{unit}"
        if _spread(time):
            words += f" ({low}{_ms(time.p50_ms)}, {high}{_ms(time.p99_ms)})"
            low = high = ""
        times.append(words)
    return f"{', '.join(times)}." if times else ""


def _load_in_short(load: ObservedLoad, since_it_began: bool) -> Iterator[str]:
    """Yield how many requests there were, how many at a time, and how fast they were served."""
    yield from _requests(load, since_it_began)
    if load.in_flight_mean is not None:
        yield f"{load.in_flight_mean:,.3g} at a time"
    if load.output_tokens_per_s is not None:
        yield f"{load.output_tokens_per_s:,.0f} output tokens a second"


def _drafts_in_short(acceptance: ObservedAcceptance | None) -> Iterator[str]:
    """Yield tokens of a step that drafted, and of any step."""
    if acceptance is not None:
        if acceptance.tokens_per_draft is not None:
            yield f"{acceptance.tokens_per_draft:.2f} tokens a step that drafted"
        if acceptance.tokens_per_step is not None:
            yield f"{acceptance.tokens_per_step:.2f} over all decode steps"


def _first_times(observed: Observed) -> Iterator[MeasuredTime]:
    """Yield the times that the answer in brief has, whose mean is known: of clients first."""
    for quantity in OF_ANSWER:
        yield from observed.times_of(quantity)[:1]


def _mean_ms(observed: Observed, quantity: Quantity) -> float | None:
    """Return the mean of a time, of clients first."""
    return next((time.mean_ms for time in observed.times_of(quantity)), None)


def _tokens_per_draft(observed: Observed) -> float | None:
    """Return tokens of a step that drafted."""
    return None if observed.acceptance is None else observed.acceptance.tokens_per_draft


def _spread(time: MeasuredTime) -> bool:
    """Return whether the median and the 99th percentile of a time are known."""
    return time.p50_ms is not None and time.p99_ms is not None


def _highlights(observed: Observed) -> Iterator[Highlight]:
    """Yield the numbers that a service is judged by."""
    for time in _first_times(observed):
        yield Highlight(f"{_ms(time.mean_ms)} ms", CALLED[time.quantity])
    if observed.load.output_tokens_per_s is not None:
        yield Highlight(f"{observed.load.output_tokens_per_s:,.0f}", "output tokens a second")
    if _tokens_per_draft(observed) is not None:
        yield Highlight(f"{_tokens_per_draft(observed):.2f}", "tokens a step that drafted")
    if observed.state.hit_rate is not None:
        yield Highlight(f"{observed.state.hit_rate:.0%}", "of prompt tokens found in a cache")


def _load(observed: Observed) -> Iterator[Block]:
    """Yield what was asked of the service."""
    yield Paragraph(load_sentence(observed.load, observed.state.scrapes == 1))
    if observed.skipped:
        noun = plural(observed.skipped, "request")
        yield Paragraph(f"Left out of times and tokens a second as a warm-up: the first {noun}.")
    named = {"prompts": observed.load.prompts, "outputs": observed.load.outputs}
    rows = [(name, lengths) for name, lengths in named.items() if lengths is not None]
    if rows:
        yield table("Lengths of prompts and outputs", rows, LENGTHS)


def _acceptance(acceptance: ObservedAcceptance | None) -> Iterator[Block]:
    """Yield what became of drafts."""
    if acceptance is None:
        return
    yield Paragraph(acceptance_sentence(acceptance))
    if acceptance.kept_share_by_position:
        rows = list(enumerate(acceptance.kept_share_by_position, 1))
        yield table("Draft tokens kept, by position", rows, POSITIONS, bars=(1,))


def _state(state: ObservedState) -> Iterator[Block]:
    """Yield how full the service was."""
    words = state_sentence(state)
    if words:
        yield Paragraph(words)


def _not_held(parts: Sequence[NotHeld]) -> Iterator[Block]:
    """Yield what no file holds."""
    if parts:
        yield table("What no file holds", parts, NOT_HELD)


def load_sentence(load: ObservedLoad, since_it_began: bool) -> str:
    """Return what was asked of the service, perhaps since it began."""
    if load.requests is None and load.output_tokens is None:
        return "Unknown."
    parts = [*_requests(load, since_it_began), *_rates_and_lengths(load)]
    if load.sessions:
        parts.append(f"{load.sessions:,} sessions of up to {load.most_turns} turns")
    return as_sentence(", ".join(parts))


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
    return as_sentence("; ".join(parts) or "counted, but not by step")


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
    return as_sentence(", ".join(parts))


def _most_seen(state: ObservedState) -> Iterator[str]:
    """Yield how many requests were seen running and waiting at most, and how much memory used."""
    if state.running_most is not None:
        yield f"up to {plural(round(state.running_most), 'request')} seen running"
        if state.waiting_most is not None:
            yield f"{state.waiting_most:,.0f} waiting"
    if state.kv_used_share_most is not None:
        yield f"{state.kv_used_share_most:.0%} of the KV cache used"


def _in_short(observed: Observed) -> str:
    """Return one of several runs in a few words."""
    parts = [observed.files[0].file]
    if observed.load.output_tokens_per_s is not None:
        parts.append(f"{observed.load.output_tokens_per_s:,.0f} tokens/s")
    for time in _first_times(observed):
        if time.quantity != "e2e":
            parts.append(f"{time.quantity.upper()} {_ms(time.mean_ms)} ms")
    return " ".join(parts)
