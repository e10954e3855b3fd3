"""Requests and batches of a run: times, replicas, queue, memory in use, waste, cost."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from simulator.core.serving.metrics import Sketch, level_quantile
from simulator.core.serving.slo import METRICS
from simulator.inputs.descriptions import summary
from simulator.report.blocks import Block, Bullets, Paragraph, Section, Table
from simulator.report.columns import Column, table
from simulator.report.wording import number, share, whole_share
from simulator.scenario.cache_cost import CacheCost
from simulator.scenario.expenses import Expenses
from simulator.scenario.outcome import (
    CONFIDENCE,
    QUANTILES,
    ClassOutcome,
    Counted,
    HandoverOutcome,
    LimitOutcome,
    Outcome,
    PoolOutcome,
    Replica,
    ServingOutcome,
)
from simulator.scenario.result.run_result import RunResult

TITLE = "Requests and batches"


class TimesOf(NamedTuple):
    """Times of one sort, over requests or tokens."""

    name: str
    sketch: Sketch


class NumberedReplica(NamedTuple):
    """A replica, with its number and the busy share of its busiest lane."""

    number: int
    replica: Replica
    busy: float


def section(result: RunResult) -> Section:
    """Return the tables and sentences about requests and batches."""
    serving = result.simulated.serving
    blocks: list[Block] = []
    if serving.counted.slo:
        blocks.append(_limits(serving.counted))
    blocks.append(_times(serving))
    if serving.classes:
        blocks.append(_classes(serving.classes))
    if any(entry.slo for entry in serving.classes):
        blocks.append(_limits_of_classes(serving.classes))
    if result.replications:
        blocks += [_replications(result), Paragraph(seeds(result))]
    if result.simulated.pools:
        blocks.append(_pools(result.simulated))
    if result.simulated.handover and result.simulated.handover.transfers:
        blocks.append(_to_first_step(result.simulated.handover))
    if result.simulated.replicas:
        blocks.append(_replicas(result.simulated))
    blocks.append(Bullets(list(sentences(result))))
    rule = summary(type(result.scenario.serving.policy).__doc__)
    blocks.append(Paragraph(f"Origin: simulation; quantiles within 0.5 %. Batching: {rule}."))
    return Section(TITLE, blocks, brief=bool(result.replications))


def _limits(counted: Counted) -> Table:
    """Return the table of what the SLO limits."""
    columns: list[Column[LimitOutcome]] = [
        Column("SLO", lambda limit: f"{limit.metric.upper()} {limit.percentile}"),
        Column("limit (ms)", lambda limit: number(limit.limit_ms)),
        Column("simulated (ms)", lambda limit: number(limit.found_ms)),
        Column("within the limit", lambda limit: share(limit.attainment)),
        Column("", _verdict),
    ]
    return table("Limits of the SLO, and simulated times", counted.slo, columns)


def _classes(classes: Sequence[ClassOutcome]) -> Table:
    """Return the table of the classes of service."""
    columns: list[Column[ClassOutcome]] = [
        Column("class", lambda entry: entry.name),
        Column("priority", lambda entry: str(entry.priority)),
        Column("arrived", lambda entry: f"{entry.arrived:,}"),
        Column("finished", lambda entry: f"{entry.finished:,}"),
        Column("refused", lambda entry: f"{entry.refused:,}"),
        Column("TTFT p50 (ms)", lambda entry: number(entry.ttft.quantile_ms(0.5))),
        Column("TTFT p99 (ms)", lambda entry: number(entry.ttft.quantile_ms(0.99))),
        Column("TPOT p99 (ms)", lambda entry: number(entry.tpot.quantile_ms(0.99))),
        Column("good", lambda entry: share(entry.good / max(1, entry.arrived))),
        Column("goodput (requests/s)", lambda entry: number(entry.goodput_requests_per_s, 3)),
    ]
    return table(
        "Classes of service; good: of those that arrived, within all limits", classes, columns
    )


class ClassLimit(NamedTuple):
    """A limit of a class of service."""

    name: str
    limit: LimitOutcome


def _limits_of_classes(classes: Sequence[ClassOutcome]) -> Table:
    """Return the table of what the SLO of each class limits."""
    rows = [ClassLimit(entry.name, limit) for entry in classes for limit in entry.slo]
    columns: list[Column[ClassLimit]] = [
        Column("class", lambda row: row.name),
        Column("SLO", lambda row: f"{row.limit.metric.upper()} {row.limit.percentile}"),
        Column("limit (ms)", lambda row: number(row.limit.limit_ms)),
        Column("simulated (ms)", lambda row: number(row.limit.found_ms)),
        Column("within the limit", lambda row: share(row.limit.attainment)),
        Column("", lambda row: _verdict(row.limit)),
    ]
    return table("Limits of the classes, and simulated times", rows, columns)


def _verdict(limit: LimitOutcome) -> str:
    if limit.met:
        return "met"
    return "MISSED"


def _times(serving: ServingOutcome) -> Table:
    """Return the table of times in milliseconds; quantiles are within half a per cent."""
    rows = [
        TimesOf("from arrival to admission", serving.wait),
        TimesOf("TTFT", serving.ttft),
        TimesOf("TBT", serving.tbt),
        TimesOf("TPOT", serving.tpot),
        TimesOf("E2E", serving.e2e),
    ]
    columns: list[Column[TimesOf]] = [
        Column("ms", lambda times: times.name),
        Column("mean", lambda times: number(times.sketch.mean_ms) or "not measured"),
        *map(_quantile, QUANTILES),
        Column("most", lambda times: number(times.sketch.most_ms)),
    ]
    return table("Times of requests and tokens", rows, columns)


def _quantile(percentile: int) -> Column[TimesOf]:
    quantile = percentile / 100
    return Column(f"p{percentile}", lambda times: number(times.sketch.quantile_ms(quantile)))


def _replications(result: RunResult) -> Table:
    """Return the table of means over seeds, each with half of its interval."""
    means = result.replications

    def cell(name: str) -> str:
        mean = means[name]
        return f"{number(mean.value, 3)} ± {number(mean.half_width, 2)}"

    columns = ["mean", *(f"p{percentile}" for percentile in QUANTILES)]
    rows = []
    for metric in METRICS:
        cells = [cell(f"{metric}_{column}_ms") for column in columns]
        rows.append((f"{metric.upper()} (ms)", *cells))
    rates = {"tokens_per_s": "tokens per s", "goodput_requests_per_s": "goodput per s"}
    no_quantiles = ("",) * len(QUANTILES)
    for name, words in rates.items():
        if name in means:
            rows.append((words, cell(name), *no_quantiles))
    return Table([f"over seeds, {whole_share(CONFIDENCE)}", *columns], rows, "Over several seeds")


def seeds(result: RunResult) -> str:
    """Return what the intervals over seeds are."""
    return (
        f"± is half of a {whole_share(CONFIDENCE)} interval over {result.seeds} seeds "
        "(Student's t), of which this run's is the first."
    )


def _replicas(outcome: Outcome) -> Table:
    """Return the table of replicas."""
    rows = []
    for place, replica in enumerate(outcome.replicas, start=1):
        busy = max(replica.busy_s.values(), default=0.0) / outcome.end_s
        rows.append(NumberedReplica(place, replica, busy))
    columns: list[Column[NumberedReplica]] = [
        Column("replica", lambda row: row.number),
        *_served(outcome),
        Column("tokens", lambda row: f"{row.replica.tokens:,}"),
        Column("busy", lambda row: share(row.busy)),
        Column("batch", lambda row: number(row.replica.mean_batch, 3)),
        Column("queue", lambda row: number(row.replica.mean_waiting, 3)),
        Column("preempted", lambda row: f"{row.replica.preemptions:,}"),
        Column("TTFT p99 (ms)", lambda row: number(row.replica.ttft.quantile_ms(0.99))),
    ]
    return table("Replica by replica", rows, columns)


def _served(outcome: Outcome) -> Iterator[Column[NumberedReplica]]:
    """Yield columns on the requests of a replica: in pools, of which each is, read and ended."""
    if outcome.pools:
        yield Column("pool", lambda row: row.replica.role)
        yield Column("read", lambda row: f"{row.replica.read:,}")
        yield Column("ended", lambda row: f"{row.replica.requests:,}")
        return
    if any(replica.role for replica in outcome.replicas):
        yield Column("role", lambda row: row.replica.role)
    yield Column("requests", lambda row: f"{row.replica.requests:,}")


def _pools(outcome: Outcome) -> Table:
    """Return the table of pools."""
    columns: list[Column[PoolOutcome]] = [
        Column("pool", lambda pool: pool.name),
        Column("replicas", lambda pool: f"{pool.replicas:,}"),
        Column("read", lambda pool: f"{pool.read:,}"),
        Column("ended", lambda pool: f"{pool.finished:,}"),
        Column("busy", lambda pool: share(max(pool.busy.values(), default=0.0))),
        Column("batch", lambda pool: number(pool.mean_batch, 3)),
        Column("waiting", lambda pool: number(pool.mean_waiting, 3)),
        Column("most KV", _most_kv),
        Column("preempted", lambda pool: f"{pool.preemptions:,}"),
    ]
    return table("Pool by pool", outcome.pools, columns)


def _most_kv(pool: PoolOutcome) -> str:
    """Return the share of a replica's cache that was in use at most; its tokens without a limit."""
    if pool.kv_tokens:
        return share(pool.most_kv_tokens / pool.kv_tokens)
    return f"{pool.most_kv_tokens:,}"


FIRST_STEP = {
    "waiting": "waiting for the prefill",
    "prefill": "prefill",
    "room": "waiting for blocks to decode in",
    "link": "waiting for the link",
    "transfer": "transfer, as far as it is seen",
    "redraft": "draft reads the prompt again",
    "place": "waiting for a step",
}
"""What a request waits for until its first step, in words."""


def _to_first_step(handover: HandoverOutcome) -> Table:
    """Return the table of what the time from arrival to the first step is made of."""
    rows = [TimesOf(FIRST_STEP[name], sketch) for name, sketch in handover.parts.items()]
    columns: list[Column[TimesOf]] = [
        Column("ms", lambda times: times.name),
        Column("mean", lambda times: number(times.sketch.mean_ms) or "not measured"),
        *map(_quantile, QUANTILES),
        Column("most", lambda times: number(times.sketch.most_ms)),
    ]
    return table("From arrival to the first step", rows, columns)


def _handed_over(result: RunResult, handover: HandoverOutcome) -> str:
    """Return what went over between the pools, in a sentence."""
    end_s = result.simulated.end_s
    each = handover.size_bytes / max(1, handover.transfers)
    setup = result.scenario.serving.handover
    link = setup.link.name if setup else ""
    seen = number(handover.transfer.mean_ms) or "0"
    return (
        f"Handover: {handover.transfers:,} requests and {number(handover.size_bytes / 1e9, 3)} GB "
        f"went from prefill to decode, {number(each / 1e6, 3)} MB each, over {link or 'the link'}, "
        f"which was busy for {number(handover.link_s, 3)} s ({share(handover.link_s / end_s)} of "
        f"one link's time); of a transfer {seen} ms are seen on average."
    )


def sentences(result: RunResult) -> Iterator[str]:
    """Yield a sentence each on what is counted, goodput, batch, queue, Little's law, memory, waste
    and cost.
    """
    serving = result.simulated.serving
    if serving.counted.requests != serving.requests:
        yield _what_counts(serving.counted)
    if serving.counted.slo:
        yield goodput(serving.counted)
    yield _batch(result)
    yield _queue(result)
    if serving.refused is not None:
        yield _refused(result, serving.refused)
    yield _littles_law(serving)
    if result.simulated.handover and result.simulated.handover.transfers:
        yield _handed_over(result, result.simulated.handover)
    yield _kv_cache(result)
    if serving.prefix_cache:
        yield _prefix_cache(result)
    if serving.drafted:
        yield _waste(serving)
    if result.expenses:
        yield from _costs(result.expenses)


def _what_counts(counted: Counted) -> str:
    no_length = ""
    if not counted.seconds:
        no_length = (
            ", in which no rate and no time between tokens is measured: tokens per second are of "
            "the whole run"
        )
    return (
        f"Counted: {counted.rule}, {number(counted.seconds, 3)} s{no_length}; "
        "all else is of the whole run."
    )


def goodput(counted: Counted) -> str:
    """Return the rate of requests that meet every limit, and their share, in a sentence."""
    if counted.goodput_requests_per_s is None:
        rate = "not measured"
    else:
        requests = number(counted.goodput_requests_per_s, 3)
        tokens = number(counted.goodput_tokens_per_s)
        rate = f"{requests} requests and {tokens} tokens per second"
    good = share(counted.good / counted.requests)
    return f"Goodput: {rate}, of the {good} of requests that meet every limit themselves."


def _batch(result: RunResult) -> str:
    serving = result.simulated.serving
    setup = result.scenario.serving
    behind = ""
    if setup.pools:
        behind = f"; {_sizes_of(result.simulated.pools)}"
    elif setup.copies > 1:
        router = setup.router.name.replace("_", " ")
        behind = f"; {_copies(result.simulated, setup.copies)} replicas behind {router}"
    mean = number(serving.mean_batch, 3)
    up_to = _usual_and_most(serving.batch_s)
    return f"Batch: {mean} requests decode in a step on average, up to {up_to}{behind}."


def _copies(outcome: Outcome, stated: int) -> str:
    """Return how many replicas there were; the fewest and the most where they came and went."""
    scaling = outcome.scaling
    if scaling is None:
        return str(stated)
    if scaling.least_replicas == scaling.most_replicas:
        return str(scaling.most_replicas)
    return f"{scaling.least_replicas} to {scaling.most_replicas}"


def _sizes_of(pools: Sequence[PoolOutcome]) -> str:
    """Return how many replicas each pool has, in words."""
    words = []
    for pool in pools:
        replicas = "1 replica" if pool.replicas == 1 else f"{pool.replicas:,} replicas"
        words.append(f"{replicas} in pool {pool.name}")
    return ", ".join(words)


def _queue(result: RunResult) -> str:
    serving = result.simulated.serving
    before = ""
    if result.simulated.pools:
        before = " in all pools"
    elif result.scenario.serving.copies > 1:
        before = " before a replica"
    mean = number(serving.mean_waiting, 3)
    return (
        f"Queue: {mean} requests wait on average, up to {_usual_and_most(serving.queue_s)}{before}."
    )


def _refused(result: RunResult, refused: int) -> str:
    """Return how many requests were turned away, in a sentence."""
    admission = result.scenario.serving.admission
    most = admission.max_waiting if admission else 0
    came = refused + result.simulated.serving.requests
    return (
        f"Refused: {refused:,} of {came:,} requests, which came while {most:,} waited "
        "(serving.admission); they are in none of the times above."
    )


def _usual_and_most(levels_s: Mapping[int, float]) -> str:
    """Return a level that is exceeded for 5 % of the time, and the highest one, in words."""
    usual = level_quantile(levels_s, 0.95)
    most = max(levels_s, default=0)
    return f"{usual:,} for 95 % of the time, {most:,} at most"


def _littles_law(serving: ServingOutcome) -> str:
    law = serving.littles_law
    inside = number(law.mean_in_system)
    product = f"{number(law.arrivals_per_s)} per second x {number(law.mean_time_s)} s"
    gap = f"{abs(law.gap):.0e}"
    return f"Little's law holds: {inside} in the system = {product}, to within {gap}."


def _kv_cache(result: RunResult) -> str:
    serving = result.simulated.serving
    whose = ""
    if result.simulated.handover:
        whose = " of a replica that decodes"
    elif result.scenario.serving.copies > 1:
        whose = " of a replica"
    if serving.kv_tokens:
        most = share(serving.most_kv_tokens / serving.kv_tokens)
        room = f"room for {serving.kv_tokens:,}, at most {most} in use"
    else:
        room = "no limit stated"
    mean = number(serving.mean_kv_tokens, 3)
    return (
        f"KV cache{whose}: {mean} tokens held on average, "
        f"{serving.most_kv_tokens:,} at most, {room}; {serving.preemptions:,} preemptions, "
        f"{serving.recomputed_rows:,} of {serving.prompt_rows:,} prefilled tokens recomputed."
    )


def _prefix_cache(result: RunResult) -> str:
    cache = result.simulated.serving.prefix_cache
    whose = ""
    if result.simulated.handover:
        whose = "s where prompts are read"
    elif result.scenario.serving.copies > 1:
        whose = "s of all replicas"
    hits = share(cache["hit_rate"])
    return (
        f"Prefix cache{whose}: {hits} of {cache['prompt_tokens']:,} prompt "
        f"tokens were there already and not computed; {cache['evicted_tokens']:,} tokens of blocks "
        "evicted."
    )


def tiers_words(serving: ServingOutcome) -> str:
    """Return what lower tiers of memory came to, in a sentence; empty without them."""
    if not serving.tiers:
        return ""
    asked = serving.prefix_cache["prompt_tokens"]
    parts = []
    for name, tier in serving.tiers.items():
        hits = share(tier["hit_tokens"] / max(1, asked))
        loaded = number(tier["loaded_bytes"] / 1e9, 3)
        written = number(tier["written_bytes"] / 1e9, 3)
        parts.append(f"{name} {hits} of prompt tokens ({loaded} GB loaded, {written} GB written)")
    loads = sum(tier["loads"] for tier in serving.tiers.values())
    mean_ms = serving.load_wait_s * 1e3 / max(1, loads)
    return f"{'; '.join(parts)}; {loads:,} loads of {number(mean_ms, 3)} ms."


def split(result: RunResult) -> str:
    """Return what prefill apart from decode comes to beside the same replicas together, in a
    sentence; empty without such pools.
    """
    if result.together is None:
        return ""
    apart = result.simulated.serving
    both = result.together.serving
    times = []
    for name, of_apart, of_both, share_of in (
        ("TTFT p50", apart.ttft, both.ttft, 0.5),
        ("TTFT p99", apart.ttft, both.ttft, 0.99),
        ("TBT p99", apart.tbt, both.tbt, 0.99),
        ("TPOT p50", apart.tpot, both.tpot, 0.5),
    ):
        ms = number(of_apart.quantile_ms(share_of), 3)
        times.append(f"{name} {ms} ms ({number(of_both.quantile_ms(share_of), 3)} together)")
    counted = apart.counted
    if counted.slo:
        good = number(counted.goodput_requests_per_s, 3)
        times.append(
            f"{good} good requests a second "
            f"({number(both.counted.goodput_requests_per_s, 3)} together)"
        )
    return f"Prefill apart from decode, beside the same replicas together: {', '.join(times)}."


def cache_cost(cost: CacheCost | None) -> str:
    """Return what speculation costs the prefix cache, in a sentence; empty where that is nothing or
    nothing is kept.
    """
    if cost is None or not cost.drops:
        return ""
    rates = f"{share(cost.hit_rate)} of prompt tokens are found"
    if cost.lost_rate > 0.0:
        points = number(cost.lost_rate * 100, 2)
        rates += f", {points} points fewer than without it"
    else:
        rates += f", {share(cost.plain_hit_rate)} without it, whose requests come at other times"
    work = "less than 0.1 %" if cost.work_share < 0.001 else share(cost.work_share)
    whose = "replica that reads" if cost.apart else "replica"
    again = (
        f"{number(cost.again_tokens, 3)} tokens of a prompt are computed again, {work} of the work "
        f"of a full {whose}"
    )
    if cost.apart:
        worth = "drafts save nothing there, as outputs are written in another pool"
    elif cost.worth_tokens is None:
        worth = "where replicas are full, drafts save no work for it"
    elif cost.worth_tokens < 1.0:
        worth = "any output is worth it"
    else:
        worth = f"worth it there above {number(cost.worth_tokens, 2)} tokens of output"
    return f"What speculation costs the prefix cache: {rates}; {again}; {worth}."


def _waste(serving: ServingOutcome) -> str:
    drafts = share(serving.wasted_drafts / serving.drafted)
    rows = share(serving.wasted_rows / serving.verified_rows)
    return (
        f"Wasted work: {drafts} of {serving.drafted:,} verified draft tokens were rejected, and "
        f"{rows} of {serving.verified_rows:,} rows that the target verified brought no token."
    )


def _costs(costs: Expenses) -> Iterator[str]:
    """Yield price and energy of tokens, as far as they are known."""
    if costs.usd_per_hour and costs.usd_per_million_tokens:
        per_million = number(costs.usd_per_million_tokens)
        per_hour = number(costs.usd_per_hour)
        yield f"Cost: {per_million} USD per million tokens, at {per_hour} USD per hour."
    if costs.most_j_per_token and costs.busy_j_per_token:
        most = number(costs.most_j_per_token)
        busy = number(costs.busy_j_per_token)
        yield (
            f"Energy: at most {most} J per token, with all devices at their datasheet's power; "
            f"{busy} J while they are busy."
        )
