"""What a run came to: steps, tokens and times of a simulation or a replay, its requests and its batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from simulator.scenario import Scenario
from simulator.serving.metrics import Sketch, Tally
from simulator.serving.scheduler import Scheduler
from simulator.strategies.protocol import Kind


@dataclass(frozen=True)
class Serving:
    """Requests and batches of a run."""

    requests: int
    ttft: Sketch
    tbt: Sketch
    tpot: Sketch
    e2e: Sketch
    wait: Sketch
    """From arrival to first admission."""
    mean_batch: float
    """Requests that decode in a step, mean over steps."""
    mean_in_system: float
    """Requests in the system, mean over time: arrival rate times mean E2E (Little's law, checked)."""
    mean_waiting: float
    """Requests that wait to be admitted, mean over time."""
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


@dataclass(frozen=True)
class Replica:
    """What one of several replicas did."""

    requests: int
    tokens: int
    mean_batch: float
    """Requests that decode in a step, mean over its steps."""
    mean_in_system: float
    """Its requests in the system, mean over time."""
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
    serving: Serving
    """The batch, its memory and the times of its requests."""
    busy_s: Mapping[str, float]
    """Busy time of each lane, mean over replicas; empty for a replay."""
    replicas: tuple[Replica, ...] = ()
    """Each of them, where there are several; ``serving`` speaks of all together, but batch and KV cache are one replica's."""

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second of all requests together, prefill included."""
        return self.tokens / self.end_s

    @property
    def fallback_per_step(self) -> float:
        """Share of verified windows that left the next one off the tree."""
        return self.missed / self.windows if self.windows else 0.0


def outcome_of(scenario: Scenario, replicas: Sequence[Scheduler], end: float, busy: Sequence[Mapping[str, float]]) -> Outcome:
    """The books of a run that has ended at ``end`` seconds, checked; ``busy`` by lane, for each replica."""
    for one in replicas:
        one.check()
    tally = Tally.pooled([one.tally for one in replicas])
    tally.check()
    steps = sum(tally.steps.values())
    each = tuple(_replica(one, end, lanes) for one, lanes in zip(replicas, busy, strict=False))
    return Outcome(
        step_s=tally.step_seconds / steps,
        tokens_per_step=tally.committed / tally.request_steps,
        tpot_s=tally.tpot.mean,
        ttft_s=tally.ttft.mean,
        end_s=end,
        steps=steps,
        tokens=tally.tokens,
        kinds=dict(tally.steps),
        accepted=dict(sorted(tally.accepted.items())),
        missed=sum(tally.windows_missed.values()),
        windows=sum(tally.judged.values()),
        choices=dict(tally.choices),
        serving=_serving(scenario, replicas, tally, end),
        busy_s={lane: sum(one[lane] for one in busy) / len(busy) for lane in (busy[0] if busy else ())},
        replicas=each if len(each) > 1 else (),
    )


def _replica(replica: Scheduler, end: float, busy: Mapping[str, float]) -> Replica:
    tally = replica.tally
    return Replica(
        requests=tally.finished,
        tokens=tally.tokens,
        mean_batch=tally.mean_batch,
        mean_in_system=tally.area_s / end,
        mean_waiting=replica.queues.waited_s / end,
        preemptions=tally.preemptions,
        busy_s=busy,
    )


def _serving(scenario: Scenario, replicas: Sequence[Scheduler], tally: Tally, end: float) -> Serving:
    block = replicas[0].memory.block_tokens
    return Serving(
        requests=tally.finished,
        ttft=tally.ttft,
        tbt=tally.tbt,
        tpot=tally.tpot,
        e2e=tally.e2e,
        wait=tally.wait,
        mean_batch=tally.mean_batch,
        mean_in_system=tally.area_s / end,
        mean_waiting=sum(one.queues.waited_s for one in replicas) / end,
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
        **({"replicas": [asdict(one) for one in outcome.replicas]} if outcome.replicas else {}),
    }


def serving_data(serving: Serving) -> dict[str, Any]:
    """Requests and batches as plain data, times in milliseconds."""
    times = {f"{name}_ms": _spread(getattr(serving, name)) for name in ("wait", "ttft", "tbt", "tpot", "e2e")}
    rest = {one.name: getattr(serving, one.name) for one in fields(serving) if f"{one.name}_ms" not in times}
    return times | rest


def _spread(sketch: Sketch) -> dict[str, float]:
    quantiles = {f"p{share}": sketch.quantile(share / 100) * 1e3 for share in (50, 90, 99)}
    return {"mean": sketch.mean * 1e3, **quantiles, "most": max(sketch.most, 0.0) * 1e3}
