"""One service twice, step by step and by the lazy batch of ``Service.lazy``: whatever a run
counted, timed and kept has to be the same, to the last bit. For the property test and the soak.

``service`` composes a service by any source of choices: Hypothesis, or random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from math import isclose
from typing import Any
from unittest.mock import patch

from simulator.core.acceptance.sources import Acceptance, Cycle, Rates
from simulator.core.cost.protocol import Cost
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.serving.cache.fields import KVMemory
from simulator.core.serving.cache.prefixes import PrefixCache
from simulator.core.serving.fields import Serving
from simulator.core.serving.lazy import batch as lazy, to_come
from simulator.core.serving.load.traffic import Line, TrafficFile
from simulator.core.serving.policies import (
    ChunkedPrefill,
    FixedBatch,
    Policy,
    PrefillFirst,
    UnifiedBudget,
)
from simulator.core.serving.requests import HASHED_TOKENS, Request, Requests
from simulator.core.serving.service import Service, ServiceRun
from simulator.core.serving.slo import Slo
from simulator.core.strategies import strategies
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.base import Strategy, early_exit
from simulator.core.strategies.common.capabilities import dropped_units
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.papers.mirror_sd import MirrorSD
from simulator.scenario import Scenario, load

Pick = Callable[[Sequence[Any]], Any]
"""Returns one of the options."""
BLOCKED_TOKENS = (1, 16)
STATED: tuple[Acceptance, ...] = (
    Rates((0.8,), 0.9),
    Rates((0.9, 0.6, 0.3), 0.5),
    Cycle((1, 0, 4), (True, False)),
    Cycle((2,)),
)
ON_ONE_LANE = ("autoregressive", "vanilla_sd", "tree_sd")
ALONE = 1
"""Places of a strategy that serves one request at a time."""


@contextmanager
def eager(most: int = 7) -> Iterator[None]:
    """Take a batch up again at once, write ``most`` iterations at a time, and price runs of any
    length.
    """
    rests = patch.multiple(lazy, RESTS=1, MOST_RESTS=2, MOST=most)
    runs = patch.multiple(lazy, RUN=2, LONGEST_RUN=5, TOGETHER=3)
    kept = patch.multiple(lazy, MOST_BLOCKS=2, MOST_WITH_PROMPTS=most)
    with rests, runs, kept, patch.object(to_come, "AT_FIRST", 8):
        yield


@contextmanager
def step_by_step() -> Iterator[None]:
    """Let every scenario be simulated step by step."""
    service_of = Scenario.service

    def stepping(*args: Any, **fields: Any) -> Service:
        return replace(service_of(*args, **fields), lazy=False)

    with patch.object(Scenario, "service", stepping):
        yield


# ---- what is the same


def differences(
    service: Service, spans: int = 0, replayed: bool = True
) -> dict[str, tuple[Any, Any]]:
    """Return what a service tells otherwise than the same step by step, by name: (lazy,
    stepped). With ``replayed`` also of the replay, where there is one.

    Which of several replicas ends first where two end at once is left open, and with it the last
    bits of what is added up over all of them.
    """
    stepped = replace(service, lazy=False)
    found = _differing(_simulated(service, spans), _simulated(stepped, spans))
    if service.serving.copies > 1:
        found = {name: pair for name, pair in found.items() if _by_request(pair[0], pair[1])}
    if replayed and service.strategy.needs.in_flight == 1 and service.serving.replicas == 1:
        both = _differing(told(service.replay()), told(stepped.replay()))
        found |= {f"replayed: {name}": pair for name, pair in both.items()}
    return found


def _differing(one: dict[str, Any], other: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = [*one, *(name for name in other if name not in one)]
    missing = object()
    pairs = {name: (one.get(name, missing), other.get(name, missing)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _by_request(one: Any, other: Any) -> bool:
    """Return whether two things differ in more than the order of what happens at once."""
    if isinstance(one, list) and isinstance(other, list):
        return sorted(one, key=repr) != sorted(other, key=repr)
    if isinstance(one, tuple) and len(one) > 1 and isinstance(one[1], float):
        together = isclose(one[1], other[1], rel_tol=1e-12)
        return not together or one[:1] + one[2:] != other[:1] + other[2:]
    return bool(one != other)


def _simulated(service: Service, spans: int) -> dict[str, Any]:
    ended: list[Request] = []
    done = service.run(spans, on_finished=ended.append)
    return {**told(done), "requests in order of ending": [_end(request) for request in ended]}


def told(run: ServiceRun) -> dict[str, Any]:
    """Return everything that a run counted, timed and kept."""
    collector = run.collector
    tally = {f"tally.{name}": _plain(value) for name, value in vars(run.tally).items()}
    sketches = {**collector.times, "wait": collector.wait}
    collected = {f"collector.{name}": _plain(sketch) for name, sketch in sketches.items()}
    counted = {
        f"collector.{name}": getattr(collector, name)
        for name in ("good", "good_tokens", "tokens", "begin_s", "end_s")
    }
    memories = [_pool(replica.memory) for replica in run.replicas]
    ends = {"end_s": run.end_s, "memory": memories, "busy_s": run.busy_s, "spans": run.spans}
    filled = {"occupancy": [_filled(replica.ledger.occupancy) for replica in run.replicas]}
    return {**tally, **collected, **counted, **ends, **filled}


def _filled(occupancy: Any) -> Any:
    """How full a memory was in each stretch of time; None where nothing is kept in it."""
    if occupancy is None:
        return None
    return occupancy.stretch_s, occupancy.most(occupancy.stretch_s).tolist()


def _pool(memory: Any) -> tuple[Any, ...]:
    """What a pool of KV blocks counted, and what is left in it."""
    if isinstance(memory, PrefixCache):
        kept = (memory.asked_tokens, memory.hit_tokens, memory.evicted, list(memory.idle.items()))
    else:
        kept = ()
    return memory.most_used, memory.used, kept


def _plain(value: Any) -> Any:
    """A sketch, a counter or a number as something that can be compared."""
    if hasattr(value, "buckets"):
        buckets = dict(value.buckets)
        return value.count, value.total, value.least, value.most, buckets, [*value.within]
    if isinstance(value, dict):
        return {
            key: (spent.steps, spent.seconds) if hasattr(spent, "steps") else spent
            for key, spent in value.items()
        }
    return value


def _end(request: Request) -> tuple[Any, ...]:
    """When things happened to a request that has ended, and what became of it."""
    return (
        request.index,
        request.arrival_s,
        request.admitted_s,
        request.first_token_s,
        request.last_token_s,
        request.finished_s,
        request.tokens,
        request.preemptions,
        request.late,
        request.cached,
    )


# ---- any service


class Bursts(TrafficFile):
    """Traffic that stands in no file: bursts, prompts that begin alike, outputs of one token."""

    drawn: tuple[tuple[float, int, int, int], ...] = ()
    """Arrival in seconds, prompt and output tokens, and which of some prefixes it has."""

    def _recorded(self) -> Iterator[Line]:
        for number, (at, prompt, output, prefix) in enumerate(self.drawn, 1):
            pieces = range(-(-prompt // HASHED_TOKENS))
            # a rest has a name of its own, as it ends with other tokens
            whole = prompt // HASHED_TOKENS
            hashes = [
                f"{prefix}:{piece}" if piece < whole else f"{prefix}:{piece} of {prompt}"
                for piece in pieces
            ]
            yield Line(number, at, prompt, output, "", tuple(hashes))


LINEAR = {"base_ms": 7.3, "row_ms": 0.31, "cached_token_ms": 0.0007, "sequence_ms": 0.09}
GRID = {
    "columns": ["rows", "cached_tokens", "ms"],
    "points": [[1, 0, 9.1], [1, 200, 9.7], [8, 0, 10.3], [8, 200, 11.9]],
}
DURATIONS = (
    StatedDurations(
        prefix_ms=8.1,
        suffix_ms=7.3,
        draft_ms=6.7,
        redraft_ms=5.9,
        rv_ee_ms=0.13,
        rv_fv_ms=0.17,
        prefill_ms=20,
    ),
    StatedDurations(
        target_ms=LINEAR,
        draft_step_ms={"base_ms": 0.9, "row_ms": 0.07},
        rv_fv_ms=0.1,
        prefill_ms=11,
    ),
    StatedDurations(target_ms=0.0, draft_step_ms=0.0, prefill_ms=1),
    StatedDurations(target_ms=GRID, draft_step_ms=0.7, prefill_ms=3),
)
ON_HARDWARE = {
    "mirror_sd": ("mirror_qwen3_32b_a100",),
    "vanilla_sd": ("vanilla_llama_2_7b_a100", "mirror_qwen3_32b_a100"),
    "autoregressive": ("autoregressive_qwen3_32b_a100", "vanilla_llama_2_7b_a100"),
}
"""Scenarios whose hardware strategies of a name can take place on."""
HEADED = ("mtp_qwen3_5_27b_h100", "eagle3_mixtral_8x7b_2xa100", "eagle3_gpt_oss_120b_h100")
"""Scenarios whose strategy drafts with a head, on their own hardware or on stated durations."""


@cache
def _loaded(scenario: str, *changes: str) -> Any:
    return load(scenario, changes)


def _recorded_tree() -> Any:
    """EAGLE-3 in a chain of three with the bursts of a recording."""
    return _loaded(
        "traffic_vanilla_llama_3_1_8b_4xa100",
        "serving.replicas=1",
        "draft=null",
        "strategy=vllm_eagle_3",
        "acceptance.rescale.tokens_per_step=2.5",
    )


@cache
def _recorded() -> Acceptance:
    recorded: Acceptance = _loaded("vanilla_qwen3_32b_a100").acceptance()
    return recorded


@cache
def _elsewhere() -> dict[str, Any]:
    """Examples of strategies whose cursors any acceptance has, by name; the three that have more
    settings are left out.
    """
    examples = {name: found.example() for name, found in strategies().items()}
    return {
        name: example
        for name, example in examples.items()
        if name not in ("autoregressive", "vanilla_sd", "mirror_sd", "specpipe", "specpipe_tandem")
    }


def service(pick: Pick) -> Service:
    """Return a service of which everything is picked."""
    strategy, cost, recorded = _strategy_and_cost(pick)
    stated = [strategy.reads(verdicts) for verdicts in STATED]
    acceptance = pick((*stated, *recorded))
    block_tokens = pick(BLOCKED_TOKENS)
    places = ALONE if strategy.traits.alone else pick((1, 2, 3, 5, 20))
    requests, longest, hashed = _requests(pick, places)
    policy = _policy(pick, places, longest)
    prefix_caching = hashed and not policy.reserves and pick((True, True, False))
    held = None if prefix_caching else pick((None, None, _window_and_state, _hybrid()))
    memory = KVMemory(block_tokens=block_tokens, prefix_caching=prefix_caching)
    dropped = dropped_units(strategy)
    step_tokens = strategy.needs.cache_tokens
    kv_tokens = None
    # a prompt that takes no time is tried again and again while another step keeps the room
    if strategy.needs.in_flight == 1 and pick((True, True, False)):
        least = block_tokens
        while policy.refusal(longest, step_tokens, memory.pool(least, held, dropped)):
            least += max(block_tokens, least // 16)
        kv_tokens = int(least * pick((1, 1, 1.3, 2, 8)))
    staged = cost.stages if strategy.traits.staged else 0
    # whoever ends first of two that end at once may send the next request somewhere else
    open_loop = requests.arrivals is not None and requests.sessions is None
    replicas = pick((1, 1, 2, 3)) if open_loop and not staged else 1
    return Service(
        strategy,
        acceptance,
        cost,
        requests,
        Serving(policy=policy, memory=memory, replicas=replicas),
        slo=pick((None, *map(Slo.model_validate, LIMITS))),
        exit=early_exit(strategy, 64),
        kv_tokens=kv_tokens,
        held_tokens=held,
        one_lane=strategy.name in ON_ONE_LANE and pick((True, False)),
        stages=staged,
        seed=pick(range(100)),
    )


LIMITS: tuple[dict[str, Any], ...] = (
    {"tbt_ms": {"p50": 15.0}, "e2e_ms": {"p90": 900.0}},
    {"tbt_ms": {"p99": 30.0, "p50": 8.0}},
    {"ttft_ms": {"p90": 200.0}, "tpot_ms": {"p50": 12.0}},
)


def _window_and_state(tokens: int) -> float:
    """The room of a hybrid: a fifth of the cache keeps all, a half a window, and there is a
    state.
    """
    return 0.2 * tokens + 0.5 * min(tokens, 48) + 7.5


def _hybrid() -> Any:
    """The room of a request of Qwen3.5-27B with its MTP layer."""
    return _loaded(HEADED[0]).scenario.held_tokens


def _strategy_and_cost(pick: Pick) -> tuple[Strategy, Cost, list[Acceptance]]:
    """Return a strategy, costs that it has a time for, and recorded acceptance that it can read."""
    kind = pick(("plain", "plain", "serial", "serial", "headed", "mirror", "other"))
    if kind == "headed":
        loaded = pick((*map(_loaded, HEADED), _recorded_tree()))
        strategy = loaded.scenario.schedule
        stated = [StatedCost(durations, strategy.needs.draft_steps) for durations in DURATIONS[1:]]
        return strategy, pick((loaded.scenario.cost, *stated)), [loaded.acceptance()]
    if kind == "other":
        examples = _elsewhere()
        example = examples[pick(sorted(examples))]
        strategy = example.strategy_for(ALONE if example.strategy.traits.alone else 4)
        costs = [example.cost_of(strategy)]
    else:
        strategy = {"plain": _plain_decoding, "serial": _serial, "mirror": _mirror}[kind](pick)
        steps = strategy.needs.draft_steps
        costs = [StatedCost(durations, steps) for durations in DURATIONS]
        if kind != "mirror":
            costs = costs[1:] + costs[:1] * (not strategy.traits.splits_passes)
        costs.append(StatedCost(DURATIONS[1], steps, contention=1.3))
    hardware = [
        _loaded(name).scenario.cost
        for name in ON_HARDWARE.get(strategy.name, ())
        if kind != "other" and not _headed(strategy)
    ]
    return strategy, pick((*costs, *hardware)), [_recorded()] if kind != "other" else []


def _headed(strategy: Strategy) -> bool:
    drafter = getattr(strategy, "drafter", None)
    return getattr(drafter, "name", "") == "head"


def _plain_decoding(pick: Pick) -> Strategy:
    return Autoregressive()


HEAD = {"name": "head", "head": {"layers": 1, "squares": 4, "vocabulary": 32_000}}
WINDOWS: tuple[dict[str, Any], ...] = (
    {"name": "table", "windows": {1: 5, 2: 2, 4: 0}},
    {"name": "off_above", "requests": 2},
    {"name": "ranges", "ranges": ((1, 1, 1), (2, 3, 0))},
    {"name": "tiers", "tiers": {1: {"candidates": (0, 1)}, 3: {"candidates": (0,)}}},
)


def _serial(pick: Pick) -> Strategy:
    fields: dict[str, Any] = {
        "gamma": pick((1, 2, 3, 4, 6)),
        "bonus_on_full_accept": pick((True, True, False)),
    }
    more: dict[str, Any] = pick(
        ({}, {}, {"drafter": HEAD}, *({"adaptive": one} for one in WINDOWS))
    )
    return VanillaSD.model_validate(fields | more)


def _mirror(pick: Pick) -> Strategy:
    fallback, others = pick(
        (("redraft", "wait"), ("redraft", "wait"), ("redraft", "proceed"), ("undrafted", "wait"))
    )
    return MirrorSD(
        gamma=pick((1, 2, 4, 6)),
        message=pick(("per_position", "first_position")),
        fallback=fallback,
        others=others,
        bonus_on_full_accept=pick((True, False)),
    )


def _policy(pick: Pick, places: int, longest: int) -> Policy:
    """Return a policy with budgets below and above a prompt."""
    budget = pick((9, 64, 512, 8_192))
    watermark = pick((0.0, 0.0, 0.1))
    kind = pick((FixedBatch, PrefillFirst, ChunkedPrefill, UnifiedBudget, UnifiedBudget))
    if kind is FixedBatch:
        return FixedBatch(max_requests=places)
    if kind is ChunkedPrefill:
        return ChunkedPrefill(max_requests=places, chunk_tokens=budget, watermark=watermark)
    if kind is UnifiedBudget:
        return UnifiedBudget(max_requests=places, budget_tokens=budget)
    splits = pick((True, False))
    fields = {"max_requests": places, "watermark": watermark, "splits_prompts": splits}
    return PrefillFirst(batch_tokens=budget if splits else max(budget, longest), **fields)


def _requests(pick: Pick, places: int) -> tuple[Requests, int, bool]:
    """Return requests, the tokens of the longest, and whether prefixes of prompts have names."""
    count = pick((3, 8, 8, 30))
    edges = pick(((0, 0), (0, 0), (2, 0), (0, 1), (1, 1)))
    fields: dict[str, Any] = {
        "count": count,
        "warm_up": edges[0],
        "cool_down": edges[1],
        "past_end": pick(("cut", "cut", "counted")),
    }
    if count == 3:
        fields |= {"warm_up": 0, "cool_down": edges[1]}
    kind = pick(("closed", "poisson", "gamma", "even", "bursts"))
    if kind == "bursts":
        lines = tuple(_lines(pick, count))
        traffic = Bursts(format="csv", file="bursts", drawn=lines)
        longest = max(prompt + output for _, prompt, output, _ in lines)
        return Requests(arrivals=traffic, **fields), longest, True
    output = pick(
        (
            2,
            40,
            130,
            {"name": "uniform", "least_tokens": 2, "most_tokens": 70},
            {"name": "exponential", "mean_tokens": 30, "most_tokens": 300},
        )
    )
    prompt = pick((1, 33, 700, {"name": "uniform", "least_tokens": 2, "most_tokens": 70}))
    lengths = {"prompt_tokens": prompt, "output_tokens": output}
    rate = pick((0.3, 2.0, 10.0, 200.0))
    arrivals: dict[str, dict[str, Any]] = {
        "closed": {"concurrency": min(count, pick((1, 2, 4, 20)))},
        "poisson": {"arrivals": {"name": "poisson", "rate_per_s": rate}},
        "gamma": {"arrivals": {"name": "gamma", "rate_per_s": rate, "burstiness": 4.0}},
        "even": {"arrivals": {"name": "deterministic", "rate_per_s": rate}},
    }
    sessions = pick((None, None, None, None, *SESSIONS))
    asked = Requests.model_validate({**fields, **lengths, **arrivals[kind], "sessions": sessions})
    if sessions:
        # the turns of a session add up
        longest = MOST_TURNS * (_most(prompt) + _most(output) + TURN_TOKENS)
        return asked, longest, True
    return asked, asked.totals(0)[2] if _fixed(asked) else _most(prompt) + _most(output), False


MOST_TURNS = 4
TURN_TOKENS = 30
SESSIONS: tuple[dict[str, Any], ...] = (
    {"turns": 3, "turn_tokens": TURN_TOKENS},
    {
        "turns": {"name": "uniform", "most_turns": MOST_TURNS},
        "turn_tokens": 7,
        "think_s": {"name": "exponential", "mean_s": 0.3},
        "tools": {"share": 0.5, "tool_s": 0.01},
        "branch_share": 0.5,
    },
)


def _fixed(asked: Requests) -> bool:
    return isinstance(asked.prompt_tokens, int) and isinstance(asked.output_tokens, int)


def _most(lengths: Any) -> int:
    most: int = lengths if isinstance(lengths, int) else lengths["most_tokens"]
    return most


def _lines(pick: Pick, count: int) -> Iterator[tuple[float, int, int, int]]:
    """Yield requests of which several may come at the same moment, some with outputs of a token."""
    at = 0.0
    for number in range(count):
        at += pick((0.0, 0.0, 0.001, 0.2, 3.0))
        output = 40 if not number else pick((1, 1, 2, 9, 60))
        yield at, pick((5, 300, 512, 1_024, 1_100)), output, pick((0, 1))
