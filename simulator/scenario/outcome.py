"""What a run came to: steps, tokens and times of a simulation or a replay, its requests and its batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from simulator.numeric import ordered_sum
from simulator.scenario import Scenario
from simulator.serving.collector import MetricsCollector
from simulator.serving.metrics import Sketch, Tally, level_quantile
from simulator.serving.scheduler import Scheduler
from simulator.strategies.common.step import Kind


@dataclass(frozen=True)
class ServingOutcome:
    """Requests and batches of a run."""

    requests: int
    counted: Counted
    littles_law: Littles
    ttft: Sketch
    tbt: Sketch
    tpot: Sketch
    e2e: Sketch
    wait: Sketch
    """From arrival to first admission."""
    mean_batch: float
    """Requests that decode in a step, mean over steps."""
    batch_s: Mapping[int, float]
    """Seconds of steps by requests that decode in them."""
    mean_in_system: float
    """Requests in the system, mean over time: arrival rate times mean E2E (Little's law, checked)."""
    mean_waiting: float
    """Requests that wait to be admitted, mean over time."""
    queue_s: Mapping[int, float]
    """Seconds by requests that wait to be admitted; of several replicas, each by its own."""
    mean_kv_tokens: float
    """Room that requests hold in the KV cache, mean over time."""
    most_kv_tokens: int
    kv_tokens: int | None
    """Room that there is; None without a limit."""
    preemptions: int
    prompt_rows: int
    """Tokens that went through a prefill."""
    recomputed_rows: int
    """Those of them that were in the cache once before."""
    verified_rows: int
    """Rows that the target computed in steps."""
    wasted_rows: int
    """Those of them that brought no token that anybody saw."""
    drafted: int
    """Draft tokens that were judged."""
    wasted_drafts: int
    """Those of them that were rejected."""


QUANTILES = (50, 90, 95, 99)
"""Percentiles that every report has."""

CONFIDENCE = 0.95
"""Of an interval over replications."""


class Mean(NamedTuple):
    """Mean over replications, and how far from it the true one may be."""

    value: float
    half_width: float


class LimitOutcome(NamedTuple):
    """A limit of the SLO and what a run made of it."""

    metric: str
    percentile: str
    limit_ms: float
    found_ms: float
    """The percentile, within 0.5 %."""
    attainment: float
    """Share of all values within the limit, counted."""
    met: bool


@dataclass(frozen=True)
class Counted:
    """The requests that count and the stretch of time in which they arrive (:mod:`simulator.serving.collector`)."""

    rule: str
    requests: int
    begin_s: float
    seconds: float
    """Length of the stretch."""
    tokens: int
    """Tokens shown in it."""
    slo: tuple[LimitOutcome, ...]
    good: int
    """Counted requests that meet every limit themselves; all of them without an SLO."""
    good_tokens: int

    @property
    def slo_met(self) -> bool:
        """Every percentile is within its limit."""
        return all(one.met for one in self.slo)

    @property
    def goodput_requests_per_s(self) -> float:
        """Good requests per second of the stretch."""
        return self.good / self.seconds

    @property
    def goodput_tokens_per_s(self) -> float:
        """Output tokens of good requests per second of the stretch."""
        return self.good_tokens / self.seconds


class Littles(NamedTuple):
    """Little's law, L = lambda W, of one run or one replica from the first arrival to the last departure; checked to 1e-9."""

    mean_in_system: float
    """L: the number in the system, summed over time as it changes."""
    arrivals_per_s: float
    """lambda: requests over the time of the run."""
    mean_time_s: float
    """W: the times of requests in the system, summed as they leave."""

    @property
    def gap(self) -> float:
        """L over lambda W, less one."""
        product = self.arrivals_per_s * self.mean_time_s
        return self.mean_in_system / product - 1.0 if product else 0.0


@dataclass(frozen=True)
class Replica:
    """What one of several replicas did."""

    requests: int
    tokens: int
    littles_law: Littles
    ttft: Sketch
    """Of all its requests."""
    mean_batch: float
    """Requests that decode in a step, mean over its steps."""
    mean_waiting: float
    preemptions: int
    busy_s: Mapping[str, float]
    """Busy time of each of its lanes."""


@dataclass(frozen=True)
class Outcome:
    """What a simulation or a replay came to; times in seconds."""

    step_s: float
    """Mean duration of a step."""
    tokens_per_step: float
    """Verified tokens per step and request, those past the end of an output included."""
    tpot_s: float
    """Mean over requests of (E2E - TTFT) / (tokens - 1)."""
    ttft_s: float
    end_s: float
    steps: int
    tokens: int
    kinds: Mapping[Kind, int]
    accepted: Mapping[int, int]
    """Verified windows by accepted draft tokens."""
    missed: int
    """Verified windows whose successor had to be drafted anew."""
    windows: int
    choices: Mapping[str, int]
    """What the strategy decided about its next step, counted; empty where it has no choice."""
    serving: ServingOutcome
    """The batch, its memory and the times of its requests."""
    busy_s: Mapping[str, float]
    """Busy time of each lane, mean over replicas; empty for a replay."""
    replicas: tuple[Replica, ...] = ()
    """Each of them, where there are several; ``serving`` speaks of all together, but batch and KV cache are one replica's."""

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second of all requests together, prefill included; of the stretch that counts, if it is not all."""
        counted = self.serving.counted
        return self.tokens / self.end_s if counted.seconds == self.end_s else counted.tokens / counted.seconds

    @property
    def fallback_per_step(self) -> float:
        """Share of verified windows that left the next one off the tree."""
        return self.missed / self.windows if self.windows else 0.0


def outcome_of(
    scenario: Scenario,
    replicas: Sequence[Scheduler],
    account: MetricsCollector,
    end: float,
    busy: Sequence[Mapping[str, float]],
) -> Outcome:
    """The books of a run that has ended at ``end`` seconds, checked; ``busy`` by lane, for each replica."""
    for one in replicas:
        one.check()
        one.tally.queue(0, end)
    account.end(end)
    tally = Tally.pooled([one.tally for one in replicas])
    tally.check()
    steps = sum(tally.steps.values())
    each = tuple(_replica(one, end, lanes) for one, lanes in zip(replicas, busy, strict=False))
    return Outcome(
        step_s=tally.step_seconds / steps,
        tokens_per_step=tally.committed / tally.request_steps,
        tpot_s=account.times["tpot"].mean,
        ttft_s=account.times["ttft"].mean,
        end_s=end,
        steps=steps,
        tokens=tally.tokens,
        kinds=dict(tally.steps),
        accepted=dict(sorted(tally.accepted.items())),
        missed=sum(tally.windows_missed.values()),
        windows=sum(tally.judged.values()),
        choices=dict(tally.choices),
        serving=_serving(scenario, replicas, tally, account, end),
        busy_s={lane: ordered_sum(one[lane] for one in busy) / len(busy) for lane in (busy[0] if busy else ())},
        replicas=each if len(each) > 1 else (),
    )


def _littles(tally: Tally, end: float) -> Littles:
    return Littles(tally.area_s / end, tally.arrived / end, tally.system_s / max(1, tally.arrived))


def _replica(replica: Scheduler, end: float, busy: Mapping[str, float]) -> Replica:
    tally = replica.tally
    return Replica(
        requests=tally.finished,
        tokens=tally.tokens,
        littles_law=_littles(tally, end),
        ttft=tally.ttft,
        mean_batch=tally.mean_batch,
        mean_waiting=replica.queues.waited_s / end,
        preemptions=tally.preemptions,
        busy_s=busy,
    )


def _counted(account: MetricsCollector) -> Counted:
    verdicts = []
    for metric, sketch in account.times.items():
        for limit, within in zip(sketch.limits, sketch.within, strict=True):
            share, found = within / max(1, sketch.count), sketch.quantile(limit.share)
            met = within >= limit.share * sketch.count
            verdicts.append(LimitOutcome(metric, limit.percentile, limit.seconds * 1e3, found * 1e3, share, met))
    return Counted(
        rule=account.rule,
        requests=account.times["e2e"].count,
        begin_s=account.begin_s,
        seconds=account.seconds,
        tokens=account.tokens,
        slo=tuple(verdicts),
        good=account.good,
        good_tokens=account.good_tokens,
    )


def _serving(
    scenario: Scenario, replicas: Sequence[Scheduler], tally: Tally, account: MetricsCollector, end: float
) -> ServingOutcome:
    block = replicas[0].memory.block_tokens
    batches = defaultdict[int, float](float)
    for kind, seconds in tally.seconds.items():
        batches[kind.batch] += seconds
    return ServingOutcome(
        requests=tally.finished,
        counted=_counted(account),
        littles_law=_littles(tally, end),
        ttft=account.times["ttft"],
        tbt=account.times["tbt"],
        tpot=account.times["tpot"],
        e2e=account.times["e2e"],
        wait=account.wait,
        mean_batch=tally.mean_batch,
        batch_s=dict(sorted(batches.items())),
        mean_in_system=tally.area_s / end,
        mean_waiting=ordered_sum(one.queues.waited_s for one in replicas) / end,
        queue_s=dict(sorted(tally.queue_s.items())),
        mean_kv_tokens=tally.block_area_s / end * block / len(replicas),
        most_kv_tokens=max(one.memory.most_used for one in replicas) * block,
        kv_tokens=scenario.kv_tokens,
        preemptions=tally.preemptions,
        prompt_rows=tally.prompt_rows,
        recomputed_rows=tally.recomputed_rows,
        verified_rows=tally.verified_rows,
        wasted_rows=tally.verified_rows - tally.shown,
        drafted=tally.drafted,
        wasted_drafts=tally.drafted - tally.kept,
    )


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """An outcome as plain data."""
    return {
        "step_ms": outcome.step_s * 1e3,
        "tokens_per_step": outcome.tokens_per_step,
        "tpot_ms": outcome.tpot_s * 1e3,
        "tokens_per_s": outcome.tokens_per_s,
        "ttft_ms": outcome.ttft_s * 1e3,
        "steps": outcome.steps,
        "tokens": outcome.tokens,
        "fallback_per_step": outcome.fallback_per_step,
        "choices": dict(outcome.choices),
        "serving": serving_data(outcome.serving),
        **({"replicas": [_replica_data(one) for one in outcome.replicas]} if outcome.replicas else {}),
    }


def serving_data(serving: ServingOutcome) -> dict[str, Any]:
    """Requests and batches as plain data, times in milliseconds."""
    times = {f"{name}_ms": _spread(getattr(serving, name)) for name in ("wait", "ttft", "tbt", "tpot", "e2e")}
    levels = {"batch": _level(serving.batch_s), "queue": _level(serving.queue_s)}
    counted, littles = serving.counted, serving.littles_law
    goodput = {"goodput_requests_per_s": counted.goodput_requests_per_s, "goodput_tokens_per_s": counted.goodput_tokens_per_s}
    held = asdict(counted) | {"slo": [one._asdict() for one in counted.slo]} | (goodput if counted.slo else {})
    parts = {"counted": held, "littles_law": littles._asdict() | {"gap": littles.gap}}
    left_out = {"batch_s", "queue_s", *parts, *(name.removesuffix("_ms") for name in times)}
    rest = {one.name: getattr(serving, one.name) for one in fields(serving) if one.name not in left_out}
    return times | levels | parts | rest


def _replica_data(replica: Replica) -> dict[str, Any]:
    littles = replica.littles_law._asdict() | {"gap": replica.littles_law.gap}
    held = {one.name: getattr(replica, one.name) for one in fields(replica) if one.name != "ttft"}
    return held | {"littles_law": littles, "ttft_ms": _spread(replica.ttft)}


def _level(seconds: Mapping[int, float]) -> dict[str, float]:
    """A number that changes with time: over time."""
    whole = ordered_sum(seconds.values())
    mean = ordered_sum(level * held for level, held in seconds.items()) / whole if whole else 0.0
    return {"mean": mean, "p95": level_quantile(seconds, 0.95), "most": max(seconds, default=0)}


def _spread(sketch: Sketch) -> dict[str, float]:
    quantiles = {f"p{share}": sketch.quantile(share / 100) * 1e3 for share in QUANTILES}
    return {"mean": sketch.mean * 1e3, **quantiles, "most": max(sketch.most, 0.0) * 1e3}
