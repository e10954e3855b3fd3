"""Outcomes: what a simulation or a replay came to in steps, tokens and seconds, its requests,
batches and memory.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import NamedTuple, TypeAlias

from simulator.core.cost.partition import StageMemory, stage_memory
from simulator.core.numeric import ordered_sum, quotient
from simulator.core.plain import PlainData
from simulator.core.serving.cache.prefixes import cache_hits
from simulator.core.serving.cache.tiers import load_seconds, tier_books
from simulator.core.serving.collector import ClassCount, MetricsCollector
from simulator.core.serving.fleet.apart import ApartService, ServicePool
from simulator.core.serving.fleet.scaled import ScalingChange
from simulator.core.serving.metrics import Sketch, Tally, level_quantile
from simulator.core.serving.scheduler import Scheduler
from simulator.core.serving.service import ServiceRun
from simulator.core.serving.slo import Metric
from simulator.core.strategies.common.capabilities import beam_of
from simulator.core.strategies.common.step import Kind
from simulator.scenario import Scenario
from simulator.scenario.cache_over_time import CacheOverTime, caches_over_time


class LimitOutcome(NamedTuple):
    """A limit of the SLO, and how far a run met it."""

    metric: str
    percentile: str
    limit_ms: float
    found_ms: float
    """The percentile of the run, within 0.5 %."""
    attainment: float
    """Share of all values within the limit, counted one by one."""
    met: bool


@dataclass(frozen=True)
class Counted:
    """The requests that count and the stretch of time in which they arrive
    (:mod:`simulator.core.serving.collector`).
    """

    rule: str
    """Which requests count, in words."""
    requests: int
    """Number of requests that count."""
    begin_s: float
    seconds: float
    """Length of the stretch."""
    tokens: int
    """Tokens shown during the stretch."""
    slo: tuple[LimitOutcome, ...]
    good: int
    """Counted requests that meet every limit themselves; all of them without an SLO."""
    good_tokens: int
    """Output tokens of the good requests."""

    @property
    def slo_met(self) -> bool:
        """Return whether every percentile is within its limit."""
        return all(limit.met for limit in self.slo)

    @property
    def goodput_requests_per_s(self) -> float | None:
        """Return good requests per second of the stretch; None where it has no length, so that no
        rate is measured.
        """
        return quotient(self.good, self.seconds)

    @property
    def goodput_tokens_per_s(self) -> float | None:
        """Return output tokens of good requests per second of the stretch; None likewise."""
        return quotient(self.good_tokens, self.seconds)


@dataclass(frozen=True)
class ClassOutcome:
    """What became of the requests of a class of service that count; sketches are of seconds."""

    name: str
    priority: int
    arrived: int
    finished: int
    refused: int
    """Those that were turned away."""
    cancelled: int
    ttft: Sketch
    tpot: Sketch
    e2e: Sketch
    slo: tuple[LimitOutcome, ...]
    """The limits of the class."""
    good: int
    """Those that finished and meet every limit of the class themselves."""
    goodput_requests_per_s: float | None
    """Good requests per second of the stretch that counts; None where it has no length."""
    goodput_tokens_per_s: float | None


class Littles(NamedTuple):
    """Little's law, L = lambda W, of one run or one replica from the first arrival to the last
    departure; checked to 1e-9.
    """

    mean_in_system: float
    """L: the number in the system, summed over time as it changes."""
    arrivals_per_s: float
    """lambda: requests over the time of the run."""
    mean_time_s: float
    """W: the times of requests in the system, summed as they leave."""

    @property
    def gap(self) -> float:
        """Return L over lambda W, less 1: the relative error of the books."""
        product = self.arrivals_per_s * self.mean_time_s
        if product:
            return self.mean_in_system / product - 1.0
        return 0.0


@dataclass(frozen=True)
class ServingOutcome:
    """What happened to the requests of a run, its batches and its KV cache; sketches are of
    seconds.
    """

    requests: int
    """Number of requests that were served."""
    counted: Counted
    littles_law: Littles
    ttft: Sketch
    tbt: Sketch
    tpot: Sketch
    e2e: Sketch
    wait: Sketch
    """Seconds from arrival to first admission."""
    mean_batch: float
    """Requests that decode in a step, mean over steps."""
    batch_s: Mapping[int, float]
    """Seconds of steps by requests that decode in them."""
    mean_in_system: float
    """Requests in the system, mean over time: arrival rate times mean E2E (Little's law,
    checked).
    """
    mean_waiting: float
    """Requests that wait to be admitted, mean over time."""
    queue_s: Mapping[int, float]
    """Seconds by number of requests that wait to be admitted; each of several replicas counts its
    own.
    """
    mean_kv_tokens: float
    """Tokens that the blocks in use have room for, mean over time and replicas."""
    most_kv_tokens: int
    """The same at its most, over replicas too."""
    kv_tokens: int | None
    """Tokens that the cache of one replica has room for; None without a limit."""
    preemptions: int
    """How often a request lost its memory and had to be recomputed."""
    prompt_rows: int
    """Tokens that went through a prefill."""
    recomputed_rows: int
    """The prefilled tokens that were in the cache once before."""
    verified_rows: int
    """Rows that the target computed in steps."""
    wasted_rows: int
    """The verified rows that brought no token of an output."""
    drafted: int
    """Draft tokens that were verified."""
    wasted_drafts: int
    """The verified draft tokens that were rejected."""
    prefix_cache: Mapping[str, float]
    """What prefix caching came to (:func:`simulator.core.serving.cache.prefixes.cache_hits`);
    empty without it.
    """
    tiers: Mapping[str, Mapping[str, float]]
    """The tiers below the prefix cache, by name
    (:func:`simulator.core.serving.cache.tiers.tier_books`); empty without them.
    """
    load_wait_s: float
    """Seconds for which requests waited for blocks from tiers, summed over requests."""
    refused: int | None = None
    """Requests that were turned away; None where none ever is."""
    classes: tuple[ClassOutcome, ...] = ()
    """The requests by class of service; empty where there are none."""


TALLIED = (
    "mean_batch",
    "preemptions",
    "prompt_rows",
    "recomputed_rows",
    "verified_rows",
    "drafted",
)
"""What is taken from the books as it stands there."""
QUANTILES = (50, 90, 95, 99)
"""Percentiles of times that every report has."""

CONFIDENCE = 0.95
"""Share of intervals over replications that hold the true value."""


class Mean(NamedTuple):
    """A mean over replications, and how far from it the true mean may be."""

    value: float
    half_width: float


@dataclass(frozen=True)
class Replica:
    """What one of several replicas did."""

    requests: int
    """Number of requests that it served."""
    tokens: int
    littles_law: Littles
    ttft: Sketch
    """Seconds to the first token, of all its requests."""
    mean_batch: float
    """Requests that decode in a step, mean over its steps."""
    mean_waiting: float
    """Requests that wait to be admitted to it, mean over time."""
    preemptions: int
    busy_s: Mapping[str, float]
    """Busy seconds of each of its lanes."""
    role: str = ""
    """What its router calls its pool; empty where all replicas are in one."""
    read: int = 0
    """Number of requests whose prompts it read."""


@dataclass(frozen=True)
class ScalingOutcome:
    """How the number of replicas followed the load; a replica is held from its start to its end."""

    by: str
    """What was compared with the target."""
    target: float
    least_replicas: int
    most_replicas: int
    start_s: float
    """Seconds in which a replica starts."""
    starts: int
    """Replicas that started, beside those of the beginning."""
    waiting_starts: int
    """Starts that had to wait until another replica had drained."""
    starting_s: float
    """Seconds of replicas that started and served nobody yet, summed over them."""
    draining_s: float
    """Seconds of replicas that ended what they had, summed over them."""
    changes: tuple[ScalingChange, ...]
    """When more or fewer were wanted, in order."""

    def why(self, change: ScalingChange) -> str:
        """Return why more or fewer were wanted, in words."""
        metric = f"{change.metric:.4g}"
        if self.by == "slo":
            return f"{metric} of recent requests met the SLO, target {self.target:g}"
        if self.by == "kv_use":
            return f"{metric} of the KV cache in use, target {self.target:g}"
        return f"{metric} requests a replica, target {self.target:g}"

    @property
    def table(self) -> list[dict[str, float | int | str]]:
        """Return a line of each change: when, from and to how many replicas, why."""
        return [
            {
                "at_s": change.at_s,
                "from": change.before,
                "to": change.after,
                "metric": change.metric,
                "why": self.why(change),
            }
            for change in self.changes
        ]


@dataclass(frozen=True)
class PoolOutcome:
    """What a pool of replicas did, where prefill and decode are apart."""

    name: str
    role: str
    replicas: int
    read: int
    """Requests whose prompts were read here."""
    finished: int
    """Requests that got their last token here."""
    busy: Mapping[str, float]
    """Share of the time for which each lane was busy, mean over replicas."""
    mean_batch: float
    """Requests that decode in a step, mean over its steps; 0 without steps."""
    mean_waiting: float
    """Requests that wait, for whatever, mean over time, of all its replicas."""
    preemptions: int
    mean_kv_tokens: float
    """Tokens that the blocks in use have room for, mean over time and replicas."""
    most_kv_tokens: int
    """The same at its most, over replicas too."""
    kv_tokens: int | None
    """Tokens that the cache of one replica has room for; None without a limit."""


@dataclass(frozen=True)
class HandoverOutcome:
    """What went from prefill to decode, and what requests waited for on the way; sketches are of
    seconds.

    Of a request that is handed over, the time from its arrival to its first step is the sum of
    these, and so is TTFT where the replica that decodes shows the first token.
    """

    transfers: int
    """Requests that were handed over."""
    size_bytes: float
    """Bytes that went over, of all of them."""
    link_s: float
    """Seconds for which links were busy, summed over links."""
    waiting: Sketch
    """From arrival, or from when there is room to decode in if that is looked for first, to the
    beginning of the prefill, of all requests.
    """
    prefill: Sketch
    room: Sketch
    """Waiting for blocks where it decodes, before its prefill or with its prompt read."""
    link: Sketch
    """Waiting for the link behind other transfers."""
    transfer: Sketch
    """The transfer, as far as the prefill does not hide it."""
    redraft: Sketch
    """The draft reads the prompt again."""
    place: Sketch
    """Waiting for a place among those that decode."""

    @property
    def parts(self) -> dict[str, Sketch]:
        """Return the parts of the time to the first step, in their order."""
        names = ("waiting", "prefill", "room", "link", "transfer", "redraft", "place")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Outcome:
    """What a simulation or a replay came to; times in seconds."""

    step_s: float
    """Mean duration of a step; 0 without steps."""
    tokens_per_step: float
    """Tokens of an output per step and request: what steps verify behind its end is no output."""
    verified_per_step: float
    """Verified tokens per step and request, those behind the end of an output included."""
    tpot_s: float
    """Mean over requests of (E2E - TTFT) / (tokens - 1)."""
    ttft_s: float
    """Mean time to the first token."""
    end_s: float
    """When the last request left."""
    steps: int
    tokens: int
    """Output tokens of all requests."""
    kinds: Mapping[Kind, int]
    """Number of steps by kind."""
    accepted: Mapping[int, int]
    """Number of verified windows by accepted draft tokens."""
    missed: int
    """Verified windows whose successor had to be drafted anew."""
    windows: int
    """All verified windows."""
    choices: Mapping[str, int]
    """How often the strategy decided what about its next step; empty where it has no choice."""
    serving: ServingOutcome
    """Batches, memory and the times of requests."""
    busy_s: Mapping[str, float]
    """Busy seconds of each lane, mean over replicas; empty for a replay."""
    replicas: tuple[Replica, ...] = ()
    """The replicas where there are several; ``serving`` is about all together, but batch and KV
    cache are one replica's.
    """
    pools: tuple[PoolOutcome, ...] = ()
    """The pools where prefill and decode are apart; then batch and KV cache are of a replica that
    decodes.
    """
    handover: HandoverOutcome | None = None
    """What went from prefill to decode, where they are apart."""
    cache: tuple[CacheOverTime, ...] = ()
    """How full the memories are over time, by pool, where prompts are kept; empty where the number
    of replicas follows the load.
    """
    replica_s: float = 0.0
    """Seconds of all replicas, from their starts to their ends, summed over them."""
    mean_replicas: float = 1.0
    """How many replicas there were, mean over time."""
    idle_s: float = 0.0
    """Those of replicas that serve and have no request."""
    scaling: ScalingOutcome | None = None
    """How the number of replicas followed the load; None where it stayed."""

    @property
    def tokens_per_s(self) -> float:
        """Return output tokens per second of all requests together, prefill included, in the
        stretch that counts.

        Where all that counts arrived together the stretch has no length, and they are those of the
        whole run.
        """
        counted = self.serving.counted
        if counted.seconds in (0.0, self.end_s):
            return self.tokens / self.end_s
        return counted.tokens / counted.seconds

    @property
    def share_emitted(self) -> float:
        """Return the share of verified tokens that are output."""
        return self.tokens_per_step / self.verified_per_step

    @property
    def fallback_per_step(self) -> float:
        """Return the share of verified windows whose successor was not in the draft tree."""
        if self.windows:
            return self.missed / self.windows
        return 0.0


def outcome_of(done: ServiceRun) -> Outcome:
    """Return what the books of a service come to that has served all its requests."""
    tally = done.tally
    times = done.collector.times
    end = done.end_s
    steps = sum(tally.steps.values())
    serving = done.service.serving
    pools = _pools_of(done)
    if pools:
        roles = [pool.name for pool, members in pools for _ in members]
    else:
        roles = serving.router.roles(len(done.replicas))
    replicas = tuple(
        _replica(replica, end, busy_s, role)
        for replica, busy_s, role in zip(done.replicas, done.busy_s, roles, strict=False)
    )
    pool_outcomes = tuple(_pool(done, pool, members) for pool, members in pools)
    busy_s = {}
    if pools:
        for pool_outcome in pool_outcomes:
            for lane, share in pool_outcome.busy.items():
                busy_s[f"{pool_outcome.name} {lane}"] = share * end
    else:
        for lane in done.busy_s[0] if done.busy_s else ():
            seconds = ordered_sum(busy[lane] for busy in done.busy_s)
            busy_s[lane] = seconds / done.mean_replicas
    return Outcome(
        step_s=tally.step_seconds / max(1, steps),
        tokens_per_step=tally.shown / max(1, tally.request_steps),
        verified_per_step=tally.committed / max(1, tally.request_steps),
        tpot_s=times["tpot"].mean,
        ttft_s=times["ttft"].mean,
        end_s=end,
        steps=steps,
        tokens=tally.tokens,
        kinds=dict(tally.steps),
        accepted=dict(sorted(tally.accepted.items())),
        missed=sum(tally.windows_missed.values()),
        windows=sum(tally.judged.values()),
        choices=dict(sorted(tally.choices.items())),
        serving=_serving(done),
        busy_s=busy_s,
        replicas=replicas if len(replicas) > 1 else (),
        pools=pool_outcomes,
        handover=_handed_over(done),
        cache=tuple(caches_over_time(done)),
        replica_s=done.replica_s,
        mean_replicas=done.mean_replicas,
        idle_s=done.idle_s,
        scaling=_scaled(done),
    )


def _scaled(done: ServiceRun) -> ScalingOutcome | None:
    fleet = done.scaled
    if fleet is None:
        return None
    levels_s = fleet.levels_s
    return ScalingOutcome(
        by=fleet.scaling.by,
        target=fleet.scaling.target,
        least_replicas=min(levels_s, default=0),
        most_replicas=max(levels_s, default=0),
        start_s=fleet.start_s,
        starts=len(fleet.lives) - done.service.serving.replicas,
        waiting_starts=fleet.waiting_starts,
        starting_s=fleet.starting_s,
        draining_s=fleet.draining_s,
        changes=tuple(fleet.changes),
    )


Members: TypeAlias = Sequence[int]
"""Places of the replicas of a pool among all."""


def _pools_of(done: ServiceRun) -> list[tuple[ServicePool, Members]]:
    """Return each pool with its replicas; nothing where there are none."""
    service = done.service
    if not isinstance(service, ApartService):
        return []
    pools: list[tuple[ServicePool, Members]] = []
    first = 0
    for pool in service.pools:
        last = first + pool.service.serving.replicas
        pools.append((pool, range(first, last)))
        first = last
    return pools


def _pool(done: ServiceRun, pool: ServicePool, members: Members) -> PoolOutcome:
    replicas = [done.replicas[place] for place in members]
    tally = Tally.pooled([replica.ledger.tally for replica in replicas])
    busy_s = [done.busy_s[place] for place in members]
    end = done.end_s
    block_tokens = replicas[0].memory.block_tokens
    return PoolOutcome(
        name=pool.name,
        role=pool.role,
        replicas=len(replicas),
        read=tally.wait.count,
        finished=tally.finished,
        busy={
            lane: ordered_sum(busy[lane] for busy in busy_s) / len(replicas) / end
            for lane in busy_s[0]
        },
        mean_batch=tally.mean_batch,
        mean_waiting=ordered_sum(replica.queues.waited_s for replica in replicas) / end,
        preemptions=sum(replica.queues.preemptions for replica in replicas),
        mean_kv_tokens=tally.block_area_s / end * block_tokens / len(replicas),
        most_kv_tokens=max(replica.memory.most_used for replica in replicas) * block_tokens,
        kv_tokens=pool.service.kv_tokens,
    )


def _handed_over(done: ServiceRun) -> HandoverOutcome | None:
    between = done.between
    if between is None:
        return None
    tally = done.tally
    return HandoverOutcome(
        transfers=between.transfers,
        size_bytes=between.size_bytes,
        link_s=between.link_s,
        waiting=tally.wait,
        prefill=tally.reading,
        room=between.room_wait,
        link=between.link_wait,
        transfer=between.transfer,
        redraft=between.redraft,
        place=tally.joining,
    )


def _littles(tally: Tally, end: float) -> Littles:
    return Littles(tally.area_s / end, tally.arrived / end, tally.system_s / max(1, tally.arrived))


def _replica(replica: Scheduler, end: float, busy_s: Mapping[str, float], role: str) -> Replica:
    tally = replica.ledger.tally
    return Replica(
        requests=tally.finished,
        tokens=tally.tokens,
        littles_law=_littles(tally, end),
        ttft=tally.ttft,
        mean_batch=tally.mean_batch,
        mean_waiting=replica.queues.waited_s / end,
        preemptions=tally.preemptions,
        busy_s=busy_s,
        role=role,
        read=tally.wait.count,
    )


def _limits_of(times: Mapping[Metric, Sketch]) -> tuple[LimitOutcome, ...]:
    """Return what became of the limits on these times."""
    limits = []
    for metric, sketch in times.items():
        for limit, within in zip(sketch.limits, sketch.within, strict=True):
            attainment = within / max(1, sketch.count)
            percentile_s = sketch.quantile(limit.share)
            met = within >= limit.share * sketch.count
            limits.append(
                LimitOutcome(
                    metric,
                    limit.percentile,
                    limit.seconds * 1e3,
                    percentile_s * 1e3,
                    attainment,
                    met,
                )
            )
    return tuple(limits)


def _class(name: str, count: ClassCount, seconds: float) -> ClassOutcome:
    """Return a class of service, over a stretch of so many seconds."""
    return ClassOutcome(
        name,
        count.priority,
        count.arrived,
        count.finished,
        count.refused,
        count.cancelled,
        count.times["ttft"],
        count.times["tpot"],
        count.times["e2e"],
        _limits_of(count.times),
        count.good,
        quotient(count.good, seconds),
        quotient(count.good_tokens, seconds),
    )


def _counted(collector: MetricsCollector) -> Counted:
    return Counted(
        rule=collector.rule,
        requests=collector.times["e2e"].count,
        begin_s=collector.begin_s,
        seconds=collector.seconds,
        tokens=collector.tokens,
        slo=_limits_of(collector.times),
        good=collector.good,
        good_tokens=collector.good_tokens,
    )


def _serving(done: ServiceRun) -> ServingOutcome:
    replicas = done.replicas
    tally = done.tally
    end = done.end_s
    decoding = list(replicas)
    if pools := _pools_of(done):
        decoding = []
        for pool, members in pools:
            if pool.role != "prefill":
                decoding += [replicas[place] for place in members]
    held = done.mean_replicas if done.scaled else len(decoding)
    blocks = [replica.ledger.tally.block_area_s for replica in decoding]
    block_tokens = replicas[0].memory.block_tokens
    batches = defaultdict[int, float](float)
    for kind, seconds in tally.seconds.items():
        batches[kind.batch] += seconds
    memories = [replica.memory for replica in replicas]
    taken: PlainData = {name: getattr(tally, name) for name in TALLIED}
    taken |= {str(metric): times for metric, times in done.collector.times.items()}
    return ServingOutcome(
        **taken,
        requests=tally.finished,
        counted=_counted(done.collector),
        littles_law=_littles(tally, end),
        wait=done.collector.wait,
        batch_s=dict(sorted(batches.items())),
        mean_in_system=tally.area_s / end,
        mean_waiting=ordered_sum(replica.queues.waited_s for replica in replicas) / end,
        queue_s=_queue_s(done),
        mean_kv_tokens=ordered_sum(blocks) / end * block_tokens / held,
        most_kv_tokens=max(replica.memory.most_used for replica in decoding) * block_tokens,
        kv_tokens=done.service.kv_tokens,
        wasted_rows=tally.verified_rows - tally.shown,
        wasted_drafts=tally.drafted - tally.kept,
        prefix_cache=cache_hits(memories),
        tiers=tier_books(memories),
        load_wait_s=load_seconds(memories),
        refused=tally.refused if done.service.serving.admission else None,
        classes=tuple(
            _class(name, count, done.collector.seconds)
            for name, count in done.collector.classes.items()
        ),
    )


def _queue_s(done: ServiceRun) -> dict[int, float]:
    """Return seconds by number of requests that wait, those left out in which a place was empty or
    its replica started.
    """
    seconds = dict(sorted(done.tally.queue_s.items()))
    if done.scaled:
        served_s = done.replica_s - done.scaled.starting_s
        empty_s = len(done.replicas) * done.end_s - served_s
        seconds[0] = max(0.0, seconds.get(0, 0.0) - empty_s)
    return seconds


def outcome_data(outcome: Outcome) -> PlainData:
    """Return an outcome as plain data for JSON, times in milliseconds."""
    replicas = [_replica_data(replica) for replica in outcome.replicas]
    data = {
        "step_ms": outcome.step_s * 1e3,
        "tokens_per_step": outcome.tokens_per_step,
        "verified_per_step": outcome.verified_per_step,
        "tpot_ms": outcome.tpot_s * 1e3,
        "tokens_per_s": outcome.tokens_per_s,
        "ttft_ms": outcome.ttft_s * 1e3,
        "steps": outcome.steps,
        "tokens": outcome.tokens,
        "replica_s": outcome.replica_s,
        "mean_replicas": outcome.mean_replicas,
        "idle_s": outcome.idle_s,
        "fallback_per_step": outcome.fallback_per_step,
        "choices": dict(outcome.choices),
        "serving": serving_data(outcome.serving),
    }
    if replicas:
        data["replicas"] = replicas
    if outcome.pools:
        for entry, replica in zip(replicas, outcome.replicas, strict=True):
            entry["read"] = replica.read
        data["pools"] = [asdict(pool) for pool in outcome.pools]
    if outcome.handover:
        data["handover"] = _handover_data(outcome.handover)
    if outcome.scaling:
        data["scaling"] = asdict(outcome.scaling) | {"changes": outcome.scaling.table}
    return data


def _handover_data(handover: HandoverOutcome) -> PlainData:
    """Return a handover as plain data for JSON, times in milliseconds."""
    parts = {f"{name}_ms": _spread(sketch) for name, sketch in handover.parts.items()}
    return {
        "transfers": handover.transfers,
        "size_bytes": handover.size_bytes,
        "link_s": handover.link_s,
        "ttft": parts,
    }


def serving_data(serving: ServingOutcome) -> PlainData:
    """Return requests and batches as plain data for JSON, times in milliseconds."""
    times = {
        f"{name}_ms": _spread(getattr(serving, name))
        for name in ("wait", "ttft", "tbt", "tpot", "e2e")
    }
    levels = {"batch": _level(serving.batch_s), "queue": _level(serving.queue_s)}
    counted = serving.counted
    littles = serving.littles_law
    goodput = {
        "goodput_requests_per_s": counted.goodput_requests_per_s,
        "goodput_tokens_per_s": counted.goodput_tokens_per_s,
    }
    counted_data = (
        asdict(counted)
        | {"slo": [limit._asdict() for limit in counted.slo]}
        | (goodput if counted.slo else {})
    )
    parts: PlainData = {
        "counted": counted_data,
        "littles_law": littles._asdict() | {"gap": littles.gap},
    }
    cache: PlainData = dict(serving.prefix_cache)
    if serving.tiers:
        cache |= {"tiers": serving.tiers, "load_wait_s": serving.load_wait_s}
    if cache:
        parts["prefix_cache"] = cache
    if serving.refused is not None:
        parts["refused"] = serving.refused
    if serving.classes:
        parts["classes"] = {entry.name: _class_data(entry) for entry in serving.classes}
    left_out = {
        "refused",
        "classes",
        "batch_s",
        "queue_s",
        "prefix_cache",
        "tiers",
        "load_wait_s",
        *parts,
        *(name.removesuffix("_ms") for name in times),
    }
    rest = {}
    for entry in fields(serving):
        if entry.name not in left_out:
            rest[entry.name] = getattr(serving, entry.name)
    return times | levels | parts | rest


def _class_data(entry: ClassOutcome) -> PlainData:
    """Return a class of service as plain data for JSON, times in milliseconds."""
    return {
        "priority": entry.priority,
        "arrived": entry.arrived,
        "finished": entry.finished,
        "refused": entry.refused,
        "cancelled": entry.cancelled,
        "ttft_ms": _spread(entry.ttft),
        "tpot_ms": _spread(entry.tpot),
        "e2e_ms": _spread(entry.e2e),
        "slo": [limit._asdict() for limit in entry.slo],
        "good": entry.good,
        "goodput_requests_per_s": entry.goodput_requests_per_s,
        "goodput_tokens_per_s": entry.goodput_tokens_per_s,
    }


def _replica_data(replica: Replica) -> PlainData:
    littles = replica.littles_law._asdict() | {"gap": replica.littles_law.gap}
    data = {}
    for entry in fields(replica):
        if entry.name not in ("ttft", "role", "read"):
            data[entry.name] = getattr(replica, entry.name)
    if replica.role:
        data["role"] = replica.role
    return data | {"littles_law": littles, "ttft_ms": _spread(replica.ttft)}


def _level(seconds: Mapping[int, float]) -> dict[str, float]:
    """Return mean, 95th percentile and maximum over time of a number, from its seconds by level."""
    whole = ordered_sum(seconds.values())
    if whole:
        mean = ordered_sum(level * duration for level, duration in seconds.items()) / whole
    else:
        mean = 0.0
    return {"mean": mean, "p95": level_quantile(seconds, 0.95), "most": max(seconds, default=0)}


def _spread(sketch: Sketch) -> dict[str, float | None]:
    """Return mean, percentiles and maximum of a distribution of seconds, in milliseconds; None
    where nothing was measured.
    """
    quantiles = {f"p{share}": sketch.quantile_ms(share / 100) for share in QUANTILES}
    return {"mean": sketch.mean_ms, **quantiles, "most": sketch.most_ms}


def stage_memories(scenario: Scenario) -> Iterator[tuple[int, StageMemory, StageMemory]]:
    """Yield for each stage of a pipeline its layers and its memory, as it is and by the formula
    that SpecPipe prints (SP-10).

    Yields nothing without a pipeline of a dense model with one device per stage.
    """
    target = scenario.target
    if (
        target is None
        or target.pipeline is None
        or target.model.experts
        or target.model.layers
        or target.tensor_parallel > 1
    ):
        return
    model = target.model
    pipeline = target.pipeline
    beam = beam_of(scenario.schedule)
    for first, last in pipeline.bounds:
        true, printed = (
            stage_memory(
                model,
                last - first,
                scenario.kv_tokens or 0,
                ends=(first == 0) + (last == model.num_hidden_layers),
                formula=formula,
                weights=target.weights,
                width=beam.width if beam else 0,
                stages=scenario.stages,
                runtime_bytes=pipeline.runtime_gb.value * 1e9,
            )
            for formula in ("grouped", "printed")
        )
        yield last - first, true, printed
