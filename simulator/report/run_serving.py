"""What a report says about requests and batches: times with their spread, memory, work done in vain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from simulator.report.run_summary import number, share
from simulator.scenario.outcome import CONFIDENCE, QUANTILES, Outcome, ServingOutcome
from simulator.scenario.run import Result
from simulator.serving.metrics import level_quantile
from simulator.serving.slo import METRICS

HEAD = ("ms", "mean", *(f"p{share}" for share in QUANTILES), "most")
REPLICATION_HEAD = (f"over seeds, {CONFIDENCE:.0%}", *HEAD[1:-1])
SLO_HEAD = ("asked", "limit (ms)", "found (ms)", "within the limit", "")
REPLICA_HEAD = ("replica", "requests", "tokens", "busy", "batch", "queue", "preempted", "TTFT p99 (ms)")


def times(serving: ServingOutcome) -> Iterator[tuple[str, ...]]:
    """Rows under ``HEAD``, in milliseconds; quantiles are within half a per cent."""
    held = (
        ("from arrival to admission", serving.wait),
        ("TTFT", serving.ttft),
        ("TBT", serving.tbt),
        ("TPOT", serving.tpot),
        ("E2E", serving.e2e),
    )
    for name, sketch in held:
        values = (sketch.mean, *(sketch.quantile(part / 100) for part in QUANTILES), max(sketch.most, 0.0))
        yield (name, *(number(seconds * 1e3) for seconds in values))


def verdicts(serving: ServingOutcome) -> Iterator[tuple[str, ...]]:
    """Rows under ``SLO_HEAD``; none without an SLO."""
    for one in serving.counted.slo:
        asked = f"{one.metric.upper()} {one.percentile}"
        yield asked, number(one.limit_ms), number(one.found_ms), share(one.attainment), "met" if one.met else "MISSED"


def replicas(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    """Rows under ``REPLICA_HEAD``; none where there is one."""
    for index, one in enumerate(outcome.replicas, start=1):
        busiest = max(one.busy_s.values(), default=0.0) / outcome.end_s
        counts = f"{one.requests:,}", f"{one.tokens:,}", share(busiest), number(one.mean_batch, 3), number(one.mean_waiting, 3)
        yield str(index), *counts, f"{one.preemptions:,}", number(one.ttft.quantile(0.99) * 1e3)


def replications(result: Result) -> Iterator[tuple[str, ...]]:
    """Rows under ``REPLICATION_HEAD``, mean and half of the interval; none without replications."""
    found = result.replications

    def row(text: str, names: Iterable[str]) -> tuple[str, ...]:
        return text, *(f"{number(found[one].value, 3)} ± {number(found[one].half_width, 2)}" if one else "" for one in names)

    for metric in METRICS if found else ():
        yield row(f"{metric.upper()} (ms)", [f"{metric}_{one}_ms" for one in ("mean", *(f"p{share}" for share in QUANTILES))])
    for name, text in (("tokens_per_s", "tokens per s"), ("goodput_requests_per_s", "goodput per s")):
        if name in found:
            yield row(text, [name, *("" for _ in QUANTILES)])


def sentences(result: Result) -> Iterator[str]:
    """What counts, batch, queue, memory, waste and cost of the simulation, one sentence each."""
    scenario, one = result.scenario, result.simulated.serving
    counted, littles = one.counted, one.littles_law
    if counted.requests != one.requests:
        yield f"Counted: {counted.rule}, {number(counted.seconds, 3)} s; all else is of the whole run"
    if counted.slo:
        yield (
            f"Goodput: {number(counted.goodput_requests_per_s, 3)} requests and {number(counted.goodput_tokens_per_s)} tokens "
            f"per second, of the {share(counted.good / counted.requests)} of requests that meet every limit themselves"
        )
    several = scenario.serving.replicas > 1
    sent = f"; {scenario.serving.replicas} replicas behind {scenario.serving.router.replace('_', ' ')}" if several else ""
    batch, queue = (
        f"{level_quantile(held, 0.95):,} for 95 % of the time, {max(held, default=0):,} at most"
        for held in (one.batch_s, one.queue_s)
    )
    yield f"Batch: {number(one.mean_batch, 3)} requests decode in a step on average, up to {batch}{sent}"
    before = " before a replica" if several else ""
    yield f"Queue: {number(one.mean_waiting, 3)} requests wait on average, up to {queue}{before}"
    yield (
        f"Little's law holds: {number(littles.mean_in_system)} in the system = {number(littles.arrivals_per_s)} per second x "
        f"{number(littles.mean_time_s)} s, apart by {abs(littles.gap):.0e}"
    )
    room = f"room for {one.kv_tokens:,}, at most {share(one.most_kv_tokens / one.kv_tokens)} in use" if one.kv_tokens else ""
    yield (
        f"KV cache{' of a replica' if several else ''}: {number(one.mean_kv_tokens, 3)} tokens held on average, "
        f"{one.most_kv_tokens:,} at most, {room or 'no limit stated'}; {one.preemptions:,} preemptions, "
        f"{one.recomputed_rows:,} of {one.prompt_rows:,} prefilled tokens recomputed"
    )
    if one.drafted:
        yield (
            f"In vain: {share(one.wasted_drafts / one.drafted)} of {one.drafted:,} judged draft tokens were rejected, "
            f"and {share(one.wasted_rows / one.verified_rows)} of {one.verified_rows:,} rows that the target verified "
            "brought no token"
        )
    yield from costs(result)


def costs(result: Result) -> Iterator[str]:
    """Money and energy, as far as the devices say."""
    found = result.expenses
    if found and found.usd_per_hour and found.usd_per_million_tokens:
        hourly, each = number(found.usd_per_hour), number(found.usd_per_million_tokens)
        yield f"Cost: {each} USD per million tokens, at {hourly} USD per hour"
    if found and found.most_j_per_token and found.busy_j_per_token:
        most, busy = number(found.most_j_per_token), number(found.busy_j_per_token)
        yield f"Energy: at most {most} J per token, with all devices at their datasheet's power; {busy} J while they are busy"


def crossed(first: int | None, for_good: int | None, name: str) -> str:
    """Where autoregressive decoding overtakes a strategy, in words."""
    if first is None:
        return f"{name} is ahead at every size"
    if first == for_good:
        return f"{name} is slower from B = {first} on"
    if for_good is None:
        return f"{name} is slower first at B = {first}, and ahead again at the largest"
    return f"{name} is slower first at B = {first}, and for good from B = {for_good} on"
