"""Recorded schedules against ours: requests that come when they came, and of which is accepted what
was accepted, through the scheduler that simulations use.

A step takes a second, so that requests come at boundaries. The first difference in a step ends the
comparison of a run, as nothing behind it can be expected to be the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, Literal, NamedTuple

from simulator.core.acceptance.cursors import Chain, Verdict
from simulator.core.acceptance.sources import Exit, Odds
from simulator.core.cost.model import DraftHead
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.serving.cache.memory import Blocks
from simulator.core.serving.cache.prefixes import PrefixCache
from simulator.core.serving.load.content import Prefix
from simulator.core.serving.policies import UnifiedBudget
from simulator.core.serving.requests import Arrivals, Request
from simulator.core.serving.scheduler import Scheduler
from simulator.core.strategies import Strategy
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.adaptive import RequestWindow
from simulator.core.strategies.common.drafters import HeadDrafter
from simulator.core.strategies.common.step import State
from simulator.core.strategies.vanilla_sd import VanillaSD

Run = dict[str, Any]
FLAT = StatedCost(StatedDurations(target_ms=1000.0, prefill_ms=1000.0, draft_step_ms=0.0))
"""A second for each pass, whatever is in it."""


# ---- what was recorded, as a simulation asks for it


class Passes:
    """What was drafted for a request and yielded by its passes, one after the other, from the one
    behind its prompt on.
    """

    def __init__(self, passes: Sequence[tuple[int, int]]) -> None:
        self.passes = passes
        self.position = 0

    @property
    def drafted(self) -> int:
        """Return the draft tokens at hand for the next pass."""
        return self.passes[self.position][0] if self.position < len(self.passes) else 0

    def judge(self, proposal: Chain) -> Verdict:
        """Return what the next pass yielded, of as many tokens as are proposed."""
        yielded = 1
        if self.position < len(self.passes):
            yielded = self.passes[self.position][1]
        self.position += 1
        accepted = min(yielded - 1, proposal.tokens)
        return Verdict(accepted, accepted + 1, False, False)


class Recorded:
    """The passes of all requests."""

    def __init__(self, steps: Sequence[Any]) -> None:
        passes: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        read: set[int] = set()
        for step in steps:
            for request, _, drafted, yielded, *_ in step[1] if step else ():
                if yielded and request in read:
                    passes[request].append((drafted, yielded))
                elif yielded:
                    read.add(request)
        self.passes: Mapping[int, list[tuple[int, int]]] = passes

    def cursor(self, request: int, exit: Exit | None) -> Passes:
        """Return the passes of a request from the first on."""
        return Passes(self.passes[request])

    def odds(self, gamma: int, exit: Exit | None) -> Odds:
        """Raise :class:`NotImplementedError`: no law is asked for."""
        raise NotImplementedError


class RecordedWindow(RequestWindow):
    """A window is what was drafted, as look-up does not always find as much."""

    name: Literal["recorded"] = "recorded"

    def opened(self, gamma: int, state: State) -> int:
        """Return the draft tokens that were at hand."""
        if isinstance(state.cursor, Passes):
            return state.cursor.drafted
        raise TypeError(f"{type(state.cursor).__name__} does not know what was drafted")

    def shares(self, gamma: int, odds: Any) -> dict[int, Any]:
        """Raise :class:`NotImplementedError`: no law is asked for."""
        raise NotImplementedError


def strategy_of(run: Run) -> Strategy:
    """Return how the requests of a run decode."""
    if not run["drafts"]:
        return Autoregressive()
    if run["method"] == "draft_model":
        return VanillaSD(gamma=run["drafts"])
    if run["method"] == "ngram":
        head = HeadDrafter(name="head", head=DraftHead(layers=0))
        chain = VanillaSD(gamma=run["drafts"], drafter=head)
        return chain.model_copy(update={"adaptive": RecordedWindow()})
    return VanillaSD(
        gamma=run["drafts"], drafter=HeadDrafter(name="head", head=DraftHead(layers=1))
    )


def requests_of(run: Run) -> Iterator[Request]:
    """Yield the requests of a run as they come, each with the names of its beginnings: that of an
    earlier one as far as it begins alike, then its own.
    """
    came: list[float] = []
    for second, step in enumerate(run["steps"]):
        came += [float(second)] * (step[0] if step else 0)
    named: list[tuple[Prefix, ...]] = []
    for index, (earlier, common, prompt, output, priority) in enumerate(run["requests"]):
        taken = []
        begin = 0.0
        for name, end in named[earlier] if common else ():
            if begin < common:
                taken.append(Prefix(name, min(end, common)))
            begin = end
        named.append((*taken, Prefix(index, inf)))
        yield Request(index, came[index], prompt, output, prefixes=named[-1], priority=priority)


def cache_of(run: Run) -> Blocks:
    """Return our cache with the room of a run."""
    if run["caching"]:
        return PrefixCache(run["unit"], run["blocks"], dropped=run["dropped"])
    return Blocks(run["unit"], run["blocks"])


def scheduler_of(run: Run, memory: Blocks) -> Scheduler:
    """Return our scheduler with the limits of a run and an empty cache, before its first step."""
    policy = UnifiedBudget(max_requests=run["together"], budget_tokens=run["budget"])
    source = Arrivals(requests_of(run))
    acceptance = Recorded(run["steps"])
    return Scheduler(strategy_of(run), acceptance, None, source, FLAT, policy, memory)


# ---- step by step


class Planned(NamedTuple):
    """What is decided in a step."""

    tokens: Mapping[int, int]
    """Tokens of the pass, by request."""
    preempted: frozenset[int]
    hits: Mapping[int, int]
    """Tokens found in the cache, of requests that enter."""


NOTHING = Planned({}, frozenset(), {})


def theirs(step: Any) -> Planned:
    """Return what vLLM decided in a step; tokens that only pad a row to a window left out."""
    _, scheduled, preempted, hits = step
    tokens = {request: tokens - sum(padding) for request, tokens, _, _, *padding in scheduled}
    return Planned(tokens, frozenset(preempted), dict(hits))


def ours(scheduler: Scheduler) -> Iterator[tuple[float, Planned]]:
    """Yield when a step begins and what our scheduler decides in it, from step to step."""
    now = 0.0
    while not scheduler.over:
        before = set(scheduler.queues.running)
        batch = scheduler.next(now)
        if batch is None:
            now = scheduler.source.next_s
            continue
        tokens = {}
        for request in batch.decode:
            tokens[request.index] = 1 + ((request.state and request.state.proposed) or 0)
        tokens |= {request.index: granted for request, granted in batch.prompts}
        gone = before - set(scheduler.queues.running)
        entered = [request for request, _ in batch.prompts if request not in before]
        hits = {request.index: request.cached for request in entered}
        yield now, Planned(tokens, frozenset(request.index for request in gone), hits)
        now += 1.0
        if batch.step is None:
            scheduler._settle_prompts(batch, now)
        scheduler.settle(batch, now)


class Compared(NamedTuple):
    """A run, as far as it was compared."""

    steps: int
    """Steps in which vLLM did something."""
    alike: int
    """Steps from the first on in which ours did the same."""
    difference: str
    """In what the next one differs; empty where none does."""
    second: int
    """When that one begins; -1 where none differs."""
    preempted: tuple[int, int]
    """Preemptions of vLLM and of ours, in the steps that were compared."""
    hits: tuple[int, int]
    """Tokens found in the cache, likewise."""

    @property
    def compared(self) -> int:
        """Return the steps that were compared: those behind a difference were not."""
        return self.alike + bool(self.difference)


def compared(run: Run, memory: Blocks) -> Compared:
    """Play a run to our scheduler with an empty cache, up to its end or the first difference."""
    plans = ours(scheduler_of(run, memory))
    preempted, hits = [0, 0], [0, 0]
    steps = [(second, theirs(step)) for second, step in enumerate(run["steps"]) if step]
    alike = 0
    for second, plan in steps:
        now, mine = next(plans, (inf, NOTHING))
        difference = differing(plan, mine) or ("time" if now != second else "")
        for place, one in enumerate((plan, mine)):
            preempted[place] += len(one.preempted)
            hits[place] += sum(one.hits.values())
        if difference:
            break
        alike += 1
    else:
        difference, second = "", -1
    return Compared(
        len(steps),
        alike,
        difference,
        second,
        (preempted[0], preempted[1]),
        (hits[0], hits[1]),
    )


def differing(plan: Planned, mine: Planned) -> str:
    """Return in a word in what two plans differ; empty where they are the same."""
    if plan.preempted != mine.preempted:
        return "preempted"
    if plan.tokens.keys() != mine.tokens.keys():
        return "requests"
    if plan.hits != mine.hits:
        return "hits"
    return "" if plan.tokens == mine.tokens else "tokens"


def table(runs: Sequence[Run]) -> Iterator[str]:
    """Yield a row for each way of speculating."""
    yield (
        "| method | K | runs | steps | the same | differ | behind | preempted | ours | tokens hit "
        "| ours |"
    )
    yield "| --- " * 11 + "|"
    of_all: defaultdict[tuple[str, str], list[Compared]] = defaultdict(list)
    for run in runs:
        done = compared(run, cache_of(run))
        of_all[run["method"], str(run["drafts"] or "")].append(done)
        of_all["all", ""].append(done)
    of_all["all", ""] = of_all.pop(("all", ""))
    for (method, drafts), done_of in of_all.items():
        steps, alike, both = (
            sum(column)
            for column in zip(
                *((done.steps, done.alike, done.compared) for done in done_of), strict=True
            )
        )
        counts = [len(done_of), steps, alike, both - alike, steps - both]
        for each in zip(*(done.preempted for done in done_of), strict=True):
            counts.append(sum(each))
        for each in zip(*(done.hits for done in done_of), strict=True):
            counts.append(sum(each))
        yield f"| {method} | {drafts} | " + " | ".join(f"{count:,}" for count in counts) + " |"
