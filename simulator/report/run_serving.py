"""Tables and sentences of a run's report about requests and batches, and about the memory of the stages of a pipeline."""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from simulator.cost.partition import GIB
from simulator.report.run_summary import number, share
from simulator.scenario import Scenario
from simulator.scenario.outcome import CONFIDENCE, QUANTILES, Outcome, ServingOutcome, stage_memories
from simulator.scenario.run import RunResult
from simulator.serving.metrics import level_quantile
from simulator.serving.slo import METRICS

STAGE_HEAD = ("stages", "weights", "table", "KV", "tree", "runtime", "GiB", "printed")
HEAD = ("ms", "mean", *(f"p{share}" for share in QUANTILES), "most")
REPLICATION_HEAD = (f"over seeds, {CONFIDENCE:.0%}", *HEAD[1:-1])
SLO_HEAD = ("SLO", "limit (ms)", "simulated (ms)", "within the limit", "")
REPLICA_HEAD = ("replica", "requests", "tokens", "busy", "batch", "queue", "preempted", "TTFT p99 (ms)")


def times(serving: ServingOutcome) -> Iterator[tuple[str, ...]]:
    """Yield rows under ``HEAD`` in milliseconds; quantiles are within half a per cent."""
    sketches = (
        ("from arrival to admission", serving.wait),
        ("TTFT", serving.ttft),
        ("TBT", serving.tbt),
        ("TPOT", serving.tpot),
        ("E2E", serving.e2e),
    )
    for name, sketch in sketches:
        values = (sketch.mean, *(sketch.quantile(part / 100) for part in QUANTILES), max(sketch.most, 0.0))
        yield (name, *(number(seconds * 1e3) for seconds in values))


def verdicts(serving: ServingOutcome) -> Iterator[tuple[str, ...]]:
    """Yield rows under ``SLO_HEAD``; none without an SLO."""
    for limit in serving.counted.slo:
        name, times = f"{limit.metric.upper()} {limit.percentile}", (number(limit.limit_ms), number(limit.found_ms))
        yield name, *times, share(limit.attainment), "met" if limit.met else "MISSED"


def replicas(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    """Yield rows under ``REPLICA_HEAD``; none where there is a single replica."""
    for index, replica in enumerate(outcome.replicas, start=1):
        busiest = max(replica.busy_s.values(), default=0.0) / outcome.end_s
        means = number(replica.mean_batch, 3), number(replica.mean_waiting, 3)
        counts = f"{replica.requests:,}", f"{replica.tokens:,}", share(busiest), *means, f"{replica.preemptions:,}"
        yield str(index), *counts, number(replica.ttft.quantile(0.99) * 1e3)


def replications(result: RunResult) -> Iterator[tuple[str, ...]]:
    """Yield rows under ``REPLICATION_HEAD``, mean and half of the interval; none without replications."""
    means = result.replications

    def cell(name: str) -> str:
        return f"{number(means[name].value, 3)} ± {number(means[name].half_width, 2)}"

    columns = ("mean", *(f"p{quantile}" for quantile in QUANTILES))
    for metric in METRICS if means else ():
        yield f"{metric.upper()} (ms)", *(cell(f"{metric}_{column}_ms") for column in columns)
    for name, text in (("tokens_per_s", "tokens per s"), ("goodput_requests_per_s", "goodput per s")):
        if name in means:
            yield text, cell(name), *("" for _ in QUANTILES)


def sentences(result: RunResult) -> Iterator[str]:
    """Yield a sentence each on what is counted, goodput, batch, queue, Little's law, memory, waste and cost."""
    serving = result.simulated.serving
    counted, littles = serving.counted, serving.littles_law
    if counted.requests != serving.requests:
        yield f"Counted: {counted.rule}, {number(counted.seconds, 3)} s; all else is of the whole run"
    if counted.slo:
        yield (
            f"Goodput: {number(counted.goodput_requests_per_s, 3)} requests and {number(counted.goodput_tokens_per_s)} tokens "
            f"per second, of the {share(counted.good / counted.requests)} of requests that meet every limit themselves"
        )
    yield from _batch_and_queue(result)
    yield (
        f"Little's law holds: {number(littles.mean_in_system)} in the system = {number(littles.arrivals_per_s)} per second x "
        f"{number(littles.mean_time_s)} s, to within {abs(littles.gap):.0e}"
    )
    yield _kv_cache(result)
    if serving.drafted:
        yield (
            f"Wasted work: {share(serving.wasted_drafts / serving.drafted)} of {serving.drafted:,} verified draft tokens were "
            f"rejected, and {share(serving.wasted_rows / serving.verified_rows)} of {serving.verified_rows:,} rows that the "
            "target verified brought no token"
        )
    yield from costs(result)


def _batch_and_queue(result: RunResult) -> Iterator[str]:
    """Yield how many requests decode in a step, and how many wait."""
    setup, serving = result.scenario.serving, result.simulated.serving
    batch, queue = (
        f"{level_quantile(levels, 0.95):,} for 95 % of the time, {max(levels, default=0):,} at most"
        for levels in (serving.batch_s, serving.queue_s)
    )
    routed, before = "", ""
    if setup.replicas > 1:
        routed = f"; {setup.replicas} replicas behind {setup.router.replace('_', ' ')}"
        before = " before a replica"
    yield f"Batch: {number(serving.mean_batch, 3)} requests decode in a step on average, up to {batch}{routed}"
    yield f"Queue: {number(serving.mean_waiting, 3)} requests wait on average, up to {queue}{before}"


def _kv_cache(result: RunResult) -> str:
    """Return how full the KV cache is, and what preemptions cost."""
    serving = result.simulated.serving
    owner = " of a replica" if result.scenario.serving.replicas > 1 else ""
    room = "no limit stated"
    if serving.kv_tokens:
        room = f"room for {serving.kv_tokens:,}, at most {share(serving.most_kv_tokens / serving.kv_tokens)} in use"
    return (
        f"KV cache{owner}: {number(serving.mean_kv_tokens, 3)} tokens held on average, {serving.most_kv_tokens:,} at most, "
        f"{room}; {serving.preemptions:,} preemptions, {serving.recomputed_rows:,} of {serving.prompt_rows:,} prefilled "
        "tokens recomputed"
    )


def costs(result: RunResult) -> Iterator[str]:
    """Yield a sentence on money and one on energy, as far as the devices state prices and powers."""
    expenses = result.expenses
    if expenses and expenses.usd_per_hour and expenses.usd_per_million_tokens:
        hourly, per_million = number(expenses.usd_per_hour), number(expenses.usd_per_million_tokens)
        yield f"Cost: {per_million} USD per million tokens, at {hourly} USD per hour"
    if expenses and expenses.most_j_per_token and expenses.busy_j_per_token:
        most, busy = number(expenses.most_j_per_token), number(expenses.busy_j_per_token)
        yield f"Energy: at most {most} J per token, with all devices at their datasheet's power; {busy} J while they are busy"


def crossed(first: int | None, for_good: int | None, name: str) -> str:
    """Return in words at which batch autoregressive decoding overtakes a strategy."""
    if first is None:
        return f"{name} is ahead at every size"
    if first == for_good:
        return f"{name} is slower from B = {first} on"
    if for_good is None:
        return f"{name} is slower first at B = {first}, and ahead again at the largest"
    return f"{name} is slower first at B = {first}, and for good from B = {for_good} on"


def stage_rows(scenario: Scenario) -> Iterator[tuple[str, ...]]:
    """Yield rows under ``STAGE_HEAD`` in GiB, a row for each run of equal stages; none without a pipeline of a dense model.

    ``printed`` is the total with ``4 d^2 + 3 d f`` weights a layer, as if there were no grouped heads.
    """
    numbered = enumerate(stage_memories(scenario), start=1)
    for (layers, true, printed), run in groupby(numbered, key=itemgetter(1)):
        places = [place for place, _ in run]
        name = str(places[0]) if len(places) == 1 else f"{places[0]}-{places[-1]}"
        parts = (number(size / GIB, 3) for size in true)
        yield (f"{name} ({layers} layers)", *parts, number(true.gib), number(printed.gib))


def stage_caption(scenario: Scenario) -> str:
    """Return what the columns of the table mean."""
    stated = scenario.serving.memory.kv_tokens is not None
    room = f"{scenario.kv_tokens or 0:,} tokens ({'stated' if stated else 'what the weights leave on the fullest device'})"
    return (
        f"Memory of each stage in GiB. Table: embedding or LM head. KV: room for {room}. Printed: in total with 4 d² + 3 d f "
        "weights a layer, as SpecPipe counts them (SP-10)."
    )
