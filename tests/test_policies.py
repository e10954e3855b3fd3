"""Every policy against a second, naive reading of its rules: a plain loop, no SimPy, no shared
code.

The loop knows requests as dictionaries and takes times from a table of whole seconds, so that sums
are exact and the two iteration logs must be the same, number by number.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import ceil, inf
from typing import Any

import pytest

from simulator.core.acceptance.cursors import Chain, Verdict
from simulator.core.acceptance.sources import Exit, Odds
from simulator.core.cost.model import DraftHead
from simulator.core.cost.rows import Phase, Rows
from simulator.core.serving.cache.memory import Blocks
from simulator.core.serving.iteration import Iteration
from simulator.core.serving.load.lengths import Uniform
from simulator.core.serving.policies import (
    ChunkedPrefill,
    FixedBatch,
    Policy,
    PrefillFirst,
    UnifiedBudget,
)
from simulator.core.serving.requests import Arrivals, ClosedLoop, Request, Requests
from simulator.core.serving.scheduler import Scheduler
from simulator.core.strategies import Strategy
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.adaptive import OffAbove, WindowTable
from simulator.core.strategies.common.drafters import HeadDrafter
from simulator.core.strategies.common.step import Lanes
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.core.world import World


class TableCost:
    """Whole seconds by the rows of a pass, looked up in two tables."""

    contention = 1.0
    method_host_ratio = 1.0
    outside_s = 0.0
    jitters = False
    reads_context = False
    stages = 0

    def __init__(self, target: list[int], draft: list[int]) -> None:
        self.tables = {"target": target, "draft": draft}

    def seconds(self, role: str, rows: int) -> int:
        table = self.tables[role]
        return table[rows % len(table)] + rows // len(table)

    def target(self, rows: Rows, start: float = 0.0, stop: float = 1.0) -> Phase:
        return Phase(self.seconds("target", rows.tokens), {})

    def draft(self, rows: Rows, purpose: str = "window") -> Phase:
        return Phase(self.seconds("draft", rows.tokens), {})

    def head(self, head: DraftHead, rows: Rows) -> Phase:
        return self.draft(rows)

    def prefill(self, role: str, rows: Rows) -> Phase:
        return Phase(self.seconds(role, rows.tokens), {})

    def rendezvous(self, at: str, logit_rows: int, payload_bytes: float) -> Phase:
        return Phase(0.0, {})


class Scripted:
    """What each request keeps of its first, second, ... verification, over and over."""

    def __init__(self, kept: list[list[int]]) -> None:
        self.kept = kept

    def cursor(self, request: int, exit: Exit | None) -> ScriptedCursor:
        return ScriptedCursor(self.kept[request % len(self.kept)])

    def odds(self, gamma: int, exit: Exit | None) -> Odds:
        raise NotImplementedError


class ScriptedCursor:
    def __init__(self, kept: list[int]) -> None:
        self.kept, self.turn = kept, 0

    def judge(self, proposal: Chain) -> Verdict:
        accepted = min(self.kept[self.turn % len(self.kept)], proposal.tokens)
        self.turn += 1
        return Verdict(accepted, accepted + 1, False, False)


# ---- the naive reading


class Naive:
    """One list of dictionaries for who waits, one for who runs."""

    def __init__(self, setting: dict[str, Any]) -> None:
        self.s = setting
        self.waiting: list[dict[str, Any]] = []
        self.running: list[dict[str, Any]] = []
        self.held = 0
        self.log: list[tuple[Any, ...]] = []

    def gamma(self, requests: int) -> int:
        table = self.s["windows"]
        fitting = [size for size in table if size <= requests]
        return table[max(fitting)] if fitting else self.s["gamma"]

    def blocks(self, tokens: int) -> int:
        return ceil(tokens / self.s["block"])

    def fits(self, request: dict[str, Any], tokens: int, spare: int = 0) -> bool:
        more = max(0, self.blocks(tokens) - request["blocks"])
        if more and self.s["total"] is not None and self.held + more + spare > self.s["total"]:
            return False
        self.held += more
        request["blocks"] += more
        return True

    def shrink(self, request: dict[str, Any], tokens: int) -> None:
        if request["blocks"] > self.blocks(tokens):
            self.held -= request["blocks"] - self.blocks(tokens)
            request["blocks"] = self.blocks(tokens)

    def push_out(self) -> dict[str, Any]:
        victim = self.running.pop()
        self.held -= victim["blocks"]
        victim.update(blocks=0, cached=0, decoding=False)
        self.waiting.insert(0, victim)
        return victim

    def need(self, request: dict[str, Any]) -> int:
        return request["prompt"] + request["shown"]

    def play(self) -> list[tuple[Any, ...]]:
        now, rule = 0, getattr(self, self.s["policy"])
        sent = ended = 0
        requests = self.s["requests"]
        while ended < len(requests):
            while sent < len(requests):
                clients = self.s["clients"]
                if (clients is not None and sent - ended >= clients) or (
                    clients is None and requests[sent]["arrival"] > now
                ):
                    break
                self.waiting.append(requests[sent])
                sent += 1
            decode, prompts = rule()
            if not decode and not prompts:
                now = requests[sent]["arrival"]
                continue
            held = len(self.waiting), self.held * self.s["block"]
            names = [request["name"] for request in decode] + [
                request["name"] for request, _ in prompts
            ]
            seconds, rows, tokens = self.step(decode, prompts)
            kind = "+".join((["step"] if decode else []) + (["prefill"] if prompts else []))
            self.log.append((now, seconds, kind, tuple(names), tuple(rows), tuple(tokens), *held))
            now += seconds
            gone = [request for request in self.running if request["shown"] >= request["output"]]
            for request in gone:
                self.held -= request["blocks"]
                self.running.remove(request)
            ended += len(gone)
        assert self.held == 0
        return self.log

    def step(
        self, decode: list[dict[str, Any]], prompts: list[tuple[dict[str, Any], int]]
    ) -> tuple[int, list[int], list[int]]:
        seconds_of = self.s["cost"].seconds
        chunk = sum(tokens for _, tokens in prompts)
        gamma = self.gamma(len(decode)) if self.s["gamma"] else 0
        rows = [min(gamma + 1, request.get("granted", gamma + 1)) for request in decode]
        drafts = self.s["gamma"] > 0
        if decode:
            seconds = seconds_of("target", sum(rows) + chunk)
            if drafts and prompts:
                seconds += seconds_of("draft", chunk)
            if gamma:
                seconds += gamma * seconds_of("draft", len(decode))
        else:
            seconds = seconds_of("target", chunk)
            if drafts:
                seconds = max(seconds, seconds_of("draft", chunk))
        tokens = []
        for request, count in zip(decode, rows, strict=True):
            kept = 0
            if drafts:
                kept = min(request["kept"][request["turn"] % len(request["kept"])], count - 1)
                request["turn"] += 1
            tokens.append(kept + 1)
            request["context"] += kept + 1
            request["shown"] += kept + 1
            if drafts and self.s["policy"] not in ("fixed_batch", "unified_budget"):
                self.shrink(request, request["context"])
        for request, count in prompts:
            done = request["cached"] + count == self.need(request)
            request["cached"] += count
            tokens.append(1 if done else 0)
            if done:
                request.update(context=request["cached"], decoding=True)
                if request["shown"]:
                    request["turn"] += 1
                request["shown"] += 1
        return seconds, rows + [count for _, count in prompts], tokens

    def fixed_batch(self) -> Any:
        entering = []
        while self.waiting and len(self.running) < self.s["places"]:
            first = self.waiting[0]
            if not self.fits(first, first["prompt"] + first["output"] + self.s["gamma"] - 1):
                break
            entering.append((first, self.need(first)))
            self.running.append(self.waiting.pop(0))
        return ([], entering) if entering else (list(self.running), [])

    def give_room(self) -> list[dict[str, Any]]:
        decode = []
        for request in [one for one in self.running if one["decoding"]]:
            if request not in self.running:
                continue
            lost = False
            while not self.fits(request, request["context"] + self.s["gamma"] + 1):
                lost = self.push_out() is request
                if lost:
                    break
            if not lost:
                decode.append(request)
        return decode

    def prefill_first(self) -> Any:
        entering, left = [], self.s["budget"]
        spare = int(self.s["watermark"] * self.s["total"]) if self.s["total"] is not None else 0
        while self.waiting and len(self.running) < self.s["places"]:
            first = self.waiting[0]
            if self.need(first) > left or not self.fits(first, self.need(first), spare):
                break
            left -= self.need(first)
            entering.append((first, self.need(first)))
            self.running.append(self.waiting.pop(0))
        return ([], entering) if entering else (self.give_room(), [])

    def chunked_prefill(self) -> Any:
        crowd = len(self.waiting)
        decode = self.give_room()
        anyone_out = len(self.waiting) > crowd
        left, prompts = self.s["budget"] - len(decode), []
        for request in self.running:
            if not request["decoding"] and left > 0:
                tokens = min(self.need(request) - request["cached"], left)
                prompts.append((request, tokens))
                left -= tokens
        spare = int(self.s["watermark"] * self.s["total"]) if self.s["total"] is not None else 0
        while not anyone_out and self.waiting and left > 0 and len(self.running) < self.s["places"]:
            first = self.waiting[0]
            if not self.fits(first, self.need(first), spare):
                break
            tokens = min(self.need(first), left)
            prompts.append((first, tokens))
            left -= tokens
            self.running.append(self.waiting.pop(0))
        return decode, prompts

    def unified_budget(self) -> Any:
        crowd, drafts = len(self.waiting), self.s["gamma"]
        slot = min(1 if drafts else 0, self.s["budget"] - 1)
        left = self.s["budget"] - slot
        able = sum(one["decoding"] for one in self.running)
        wish = 1 + (self.gamma(able) if drafts else 0)
        decode, prompts = [], []
        for request in list(self.running):
            if left <= 0 or request not in self.running:
                break
            tokens = min(
                wish if request["decoding"] else self.need(request) - request["cached"], left
            )
            held = request["context"] if request["decoding"] else request["cached"]
            lost = False
            while not lost and not self.fits(request, self.with_drafts(held + tokens)):
                lost = self.push_out() is request
            if lost:
                break
            left -= tokens + slot
            if request["decoding"]:
                request["granted"] = tokens
                decode.append(request)
            else:
                prompts.append((request, tokens))
        reading = bool(prompts)
        while (
            len(self.waiting) == crowd
            and self.waiting
            and left > 0
            and len(self.running) < self.s["places"]
        ):
            first = self.waiting[0]
            whole = self.need(first)
            tokens = min(whole, left)
            padding = 0
            if whole == 1 and decode and not reading:
                padding = self.gamma(len(self.running)) if drafts else 0
            if tokens + padding > left:
                break
            free = inf if self.s["total"] is None else self.s["total"] - self.held
            if self.blocks(whole) > free:
                break
            if not self.fits(first, self.with_drafts(tokens + padding)):
                break
            left -= tokens + padding + slot
            prompts.append((first, tokens))
            self.running.append(self.waiting.pop(0))
            crowd -= 1
        return decode, prompts

    def with_drafts(self, tokens: int) -> int:
        """With the draft's own tokens behind them, if the cache has room for so many."""
        more = tokens + self.s["gamma"]
        return more if self.s["total"] is None or self.blocks(more) <= self.s["total"] else tokens


# ---- random workloads

POLICIES: dict[str, Callable[[dict[str, Any]], Policy]] = {
    "fixed_batch": lambda s: FixedBatch(max_requests=s["places"]),
    "prefill_first": lambda s: PrefillFirst(
        name="prefill_first",
        max_requests=s["places"],
        batch_tokens=s["budget"],
        watermark=s["watermark"],
    ),
    "chunked_prefill": lambda s: ChunkedPrefill(
        name="chunked_prefill",
        max_requests=s["places"],
        chunk_tokens=s["budget"],
        watermark=s["watermark"],
    ),
    "unified_budget": lambda s: UnifiedBudget(
        name="unified_budget", max_requests=s["places"], budget_tokens=s["budget"]
    ),
}


def workload(policy: str, seed: int) -> tuple[dict[str, Any], Strategy, Policy, Requests | None]:
    """A random setting in which every request can be served, for both readings."""
    draw = random.Random(f"{policy}/{seed}")
    count, gamma = draw.randint(1, 9), draw.choice([0, 0, 1, 2, 4])
    closed = None
    if draw.random() < 0.3:
        lengths = [
            Uniform(name="uniform", least_tokens=2, most_tokens=draw.randint(2, top))
            for top in (30, 12)
        ]
        closed = Requests(
            concurrency=draw.randint(1, count),
            count=count,
            prompt_tokens=lengths[0],
            output_tokens=lengths[1],
        )
        pairs = list(closed.lengths(seed))
    else:
        pairs = [(draw.randint(1, 30), draw.randint(2, 12)) for _ in range(count)]
    arrivals = sorted(draw.randint(0, draw.choice([0, 40, 400])) for _ in range(count))
    longest = max(prompt + output for prompt, output in pairs)
    block = draw.choice([1, 2, 4, 16])
    windows = (
        {draw.randint(1, 4): draw.randint(0, gamma) for _ in range(draw.choice([0, 1, 2, 3]))}
        if gamma
        else {}
    )
    setting = {
        "policy": policy,
        "gamma": gamma,
        "windows": windows,
        "block": block,
        "places": draw.randint(1, 7),
        "watermark": draw.choice([0.0, 0.01, 0.1, 0.25]),
        "budget": draw.randint(longest, 3 * longest)
        if policy == "prefill_first"
        else draw.randint(1, 40),
        "clients": closed.concurrency if closed else None,
        "cost": TableCost(
            [draw.randint(1, 9) for _ in range(13)], [draw.randint(0, 3) for _ in range(7)]
        ),
        "requests": [
            {
                "name": name,
                "arrival": arrivals[name],
                "prompt": prompt,
                "output": output,
                "kept": [],
                "turn": 0,
            }
            | {"shown": 0, "cached": 0, "context": 0, "decoding": False, "blocks": 0}
            for name, (prompt, output) in enumerate(pairs)
        ],
    }
    for request in setting["requests"]:
        request["kept"] = [draw.randint(0, 5) for _ in range(draw.randint(1, 6))]
    rules = POLICIES[policy](setting)
    setting["total"] = None
    if draw.random() < 0.85:
        total = 1
        while rules.refusal(longest, gamma + 1, Blocks(block, total)):
            total += 1
        setting["total"] = total + draw.choice([0, 1, draw.randint(0, 60)])
    strategy: Strategy = Autoregressive()
    if gamma:
        strategy = VanillaSD(gamma=gamma)
        if windows:
            strategy = VanillaSD(gamma=gamma, adaptive=WindowTable(name="table", windows=windows))
    return setting, strategy, rules, closed


def simulated(
    setting: dict[str, Any], strategy: Strategy, policy: Policy, closed: Requests | None, seed: int
) -> Scheduler:
    """The same setting on the event engine; its log in ``scheduler.iterations``."""
    source: Any = Arrivals(
        Request(request["name"], request["arrival"], request["prompt"], request["output"])
        for request in setting["requests"]
    )
    if closed:
        source = ClosedLoop(closed, seed)
    world, iterations = World(), []
    lanes = Lanes(world.lane("target"), world.lane("draft"), world.lane("rendezvous"))
    acceptance = Scripted([request["kept"] for request in setting["requests"]])
    memory = Blocks(setting["block"], setting["total"])
    scheduler = Scheduler(
        strategy, acceptance, None, source, setting["cost"], policy, memory, log=iterations.append
    )
    world.environment.process(scheduler.run(world, lanes))
    world.environment.run()
    scheduler.check()
    setting["iterations"] = iterations
    return scheduler


@pytest.mark.few(2)
@pytest.mark.parametrize("policy", list(POLICIES))
def test_two_readings_of_the_rules_give_the_same_log_on_1000_workloads(policy: str) -> None:
    preemptions = chunks = cut = 0
    for seed in range(1_000):
        setting, strategy, rules, closed = workload(policy, seed)
        scheduler = simulated(setting, strategy, rules, closed, seed)
        assert [tuple(iteration)[:-1] for iteration in setting["iterations"]] == Naive(
            setting
        ).play(), f"{policy}, workload {seed}"
        preemptions += scheduler.ledger.tally.preemptions
        chunks += sum("+" in iteration.kind for iteration in setting["iterations"])
        cut += len(set(scheduler.ledger.tally.judged)) > 1
    if policy != "fixed_batch":
        assert preemptions > 100, "the workloads must be tight enough to preempt"
    if policy in ("chunked_prefill", "unified_budget"):
        assert chunks > 1_000
    assert cut > 20, "windows must follow the batch in some of them"


# ---- small timelines, complete

FLAT = TableCost([10], [1])


def timeline(
    policy: Policy,
    requests: list[Request],
    strategy: Strategy | None = None,
    blocks: Blocks | None = None,
) -> list[Any]:
    world, log = World(), []
    lanes = Lanes(world.lane("target"), world.lane("draft"), world.lane("rendezvous"))
    one = Scheduler(
        strategy or Autoregressive(),
        Scripted([[2]]),
        None,
        Arrivals(requests),
        FLAT,
        policy,
        blocks,
        log=log.append,
    )
    world.environment.process(one.run(world, lanes))
    world.environment.run()
    one.check()
    return [(entry.kind, entry.requests, entry.rows, entry.tokens) for entry in log]


def two() -> list[Request]:
    return [Request(0, 0, 6, 4), Request(1, 1, 5, 3)]


def test_prefill_first_makes_decoding_wait() -> None:
    assert timeline(PrefillFirst(name="prefill_first"), two()) == [
        ("prefill", (0,), (6,), (1,)),
        ("prefill", (1,), (5,), (1,)),
        ("step", (0, 1), (1, 1), (1, 1)),
        ("step", (0, 1), (1, 1), (1, 1)),
        ("step", (0,), (1,), (1,)),
    ]


def test_chunked_prefill_lets_decoding_go_first() -> None:
    assert timeline(ChunkedPrefill(name="chunked_prefill", chunk_tokens=4), two()) == [
        ("prefill", (0,), (4,), (0,)),
        ("prefill", (0, 1), (2, 2), (1, 0)),
        ("step+prefill", (0, 1), (1, 3), (1, 1)),
        ("step", (0, 1), (1, 1), (1, 1)),
        ("step", (0, 1), (1, 1), (1, 1)),
    ]


def test_unified_budget_counts_speculative_tokens_and_cuts_the_last_window() -> None:
    """Eight tokens: the first window takes four of them and its draft one, the second request gets
    two and its draft one.
    """
    rules = UnifiedBudget(name="unified_budget", budget_tokens=8)
    assert timeline(rules, two(), VanillaSD(gamma=3)) == [
        ("prefill", (0,), (6,), (1,)),
        ("step+prefill", (0, 1), (4, 2), (3, 0)),
        ("prefill", (1,), (3,), (1,)),
        ("step", (1,), (4,), (3,)),
    ]
    crowded = [Request(index, 0, 1, 9) for index in range(2)]
    assert timeline(rules, crowded, VanillaSD(gamma=3))[1:3] == [
        ("step", (0, 1), (4, 2), (3, 2)),
        ("step", (0, 1), (4, 2), (3, 2)),
    ]


def test_unified_budget_lets_nobody_in_whose_whole_prompt_has_no_room() -> None:
    """Ten places, one token a block: after four of six tokens, the second request still waits for
    room for all of its own five, and there are four.
    """
    log = timeline(
        UnifiedBudget(name="unified_budget", budget_tokens=4),
        [Request(0, 0, 6, 2), Request(1, 0, 5, 2)],
        blocks=Blocks(1, 10),
    )
    assert log == [
        ("prefill", (0,), (4,), (0,)),
        ("prefill", (0,), (2,), (1,)),
        ("step", (0,), (1,), (1,)),
        ("prefill", (1,), (4,), (0,)),
        ("prefill", (1,), (1,), (1,)),
        ("step", (1,), (1,), (1,)),
    ]


@pytest.mark.parametrize(("head_layers", "preempted"), [(0, 0), (1, 1)])
def test_unified_budget_gives_room_for_what_a_draft_with_keys_writes(
    head_layers: int, preempted: int
) -> None:
    """Two requests of four tokens in twelve blocks of one: windows of three tokens fill them, and
    what a head with attention writes behind them has no room.
    """
    head = HeadDrafter(name="head", head=DraftHead(layers=head_layers))
    requests = [Request(index, 0, 2, 4) for index in range(2)]
    timeline(
        UnifiedBudget(name="unified_budget"),
        requests,
        VanillaSD(gamma=3, drafter=head),
        Blocks(1, 12),
    )
    assert [request.preemptions for request in requests] == [0, preempted]


def test_unified_budget_pads_a_single_token_to_a_window() -> None:
    """Nine tokens: a window of four and a draft's token leave three beside one, and the window
    that a prompt of one token is padded to is four.
    """
    requests = [Request(0, 0, 2, 7), Request(1, 1, 1, 2)]
    log = timeline(
        UnifiedBudget(name="unified_budget", budget_tokens=9), requests, VanillaSD(gamma=3)
    )
    assert log == [
        ("prefill", (0,), (2,), (1,)),
        ("step", (0,), (4,), (3,)),
        ("step", (0,), (4,), (3,)),
        ("prefill", (1,), (1,), (1,)),
        ("step", (1,), (4,), (3,)),
    ]


def test_preemption_hits_the_last_one_in_and_recomputes_what_it_had_shown() -> None:
    """Ten places, one token a block: both start, request 1 loses its cache and puts 2 + 3 tokens
    through a prefill.
    """
    requests = [Request(0, 0, 3, 6), Request(1, 0, 2, 6)]
    log = timeline(
        PrefillFirst(name="prefill_first", watermark=0.0), requests, blocks=Blocks(1, 10)
    )
    assert log == [
        ("prefill", (0, 1), (3, 2), (1, 1)),
        ("step", (0, 1), (1, 1), (1, 1)),
        ("step", (0, 1), (1, 1), (1, 1)),
        ("step", (0,), (1,), (1,)),
        ("step", (0,), (1,), (1,)),
        ("step", (0,), (1,), (1,)),
        ("prefill", (1,), (5,), (1,)),
        ("step", (1,), (1,), (1,)),
        ("step", (1,), (1,), (1,)),
    ]


def test_speculation_is_off_above_a_batch_size() -> None:
    strategy = VanillaSD(gamma=3, adaptive=OffAbove(name="off_above", requests=1))
    log = timeline(FixedBatch(), [Request(0, 0, 2, 4), Request(1, 0, 2, 7)], strategy)
    assert log == [
        ("prefill", (0, 1), (2, 2), (1, 1)),
        ("step", (0, 1), (1, 1), (1, 1)),
        ("step", (0, 1), (1, 1), (1, 1)),
        ("step", (0, 1), (1, 1), (1, 1)),
        ("step", (1,), (4,), (3,)),
    ]


def test_the_iteration_log_holds_times() -> None:
    world, log = World(), []
    lanes = Lanes(world.lane("target"), world.lane("draft"), world.lane("rendezvous"))
    strategy = VanillaSD(gamma=3)
    one = Scheduler(
        strategy, Scripted([[2]]), None, Arrivals(two()[:1]), FLAT, FixedBatch(), log=log.append
    )
    world.environment.process(one.run(world, lanes))
    world.environment.run()
    assert log == [
        Iteration(0, 16, "prefill", (0,), (6,), (1,), 0, 16),
        Iteration(16, 20, "step", (0,), (4,), (3,), 0, 16),
    ]
