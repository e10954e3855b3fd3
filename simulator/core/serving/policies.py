"""Policies of continuous batching decide at each boundary between two iterations who takes part in
the next.

What all of them share:

* *Boundary*: before the first iteration, and whenever one has ended. Requests that have arrived
  join the end of ``waiting`` in order of arrival; when nothing can be done, time passes to the next
  arrival.
* *Running order* is the order of admission, oldest first. Admission takes from the front of
  ``waiting`` and stops at the first request that may not enter: no request overtakes another.
* *Need*: the tokens a request puts through its prefill, ``prompt + shown``; ``shown`` is 0 unless
  it was preempted. The pass that completes them shows one token. With prefix caching: without those
  the cache has as it enters.
* *Room*: a decoding request with ``context`` tokens in the cache needs blocks for ``context +
  step_tokens``, where ``step_tokens`` is what one step of its strategy may add: its longest window
  and one more. After the step it keeps the blocks of its new context; those of rejected tokens are
  free again, but under ``unified_budget``.
* *Priority*: where requests have one, ``waiting`` is in order of it, lowest first, and of those
  that run the one with the highest makes way, of equals the one admitted last (vLLM's
  ``--scheduling-policy priority``). Nobody that runs makes way for one that waits.
* *Preemption* is by recompute and hits the request admitted last, be it the very one that needs
  room. It gives all blocks back and goes to the front of ``waiting``.
* *Padding*: none. Rows are ragged; what kernels round up to is in the cost of a pass.
* *Carried*: where a strategy carries prompts through its stages, "no request decodes" and "the
  others wait" below do not apply; a prompt on its way counts as one in a step under way, and its
  first token is shown at the end of the last stage.
* *In flight*: where a strategy runs m steps at once, a plan is made whenever fewer than m are under
  way, from requests in no step under way, with at most ceil(running / m) that decode. If the
  request admitted last is in a step under way, the one that needs room sits out, and nobody is
  admitted until it has got it.

A block count never exceeds the pool; ``watermark`` blocks are ``floor(watermark * pool)``.
"""

from abc import ABC, abstractmethod
from collections import deque
from math import inf
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from simulator.core.quantities import Frozen
from simulator.core.serving.cache.memory import Blocks, above_watermark
from simulator.core.serving.requests import MOST_TOGETHER, Prompts, Request
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.capabilities import CarriesPrompts
from simulator.core.strategies.common.step import UNLIMITED
from simulator.core.strategies.common.traits import Needs


class IterationPlan(NamedTuple):
    """The plan of an iteration: requests that decode, and prompts with the tokens of each that are
    prefilled.
    """

    decode: list[Request]
    prompts: Prompts


class Queues:
    """The requests that wait, those that run and their memory, with the moves that every policy is
    made of.
    """

    def __init__(self, memory: Blocks, strategy: Strategy) -> None:
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.reading: list[Request] = []
        """Those that run and whose prompts are not yet read whole, in running order."""
        self.held: list[Request] = []
        """Those that have come and wait until another replica has room for them."""
        self.landed: deque[Request] = deque()
        """Those that were handed over with their blocks and wait for a place among those that
        run.
        """
        self.loading: list[Request] = []
        """Those that wait for blocks on their way from a lower tier."""
        self.memory = memory
        self.strategy = strategy
        self.step_tokens = strategy.needs.cache_tokens
        self.in_flight = strategy.needs.in_flight
        self.rows = strategy.needs.rows
        self.lookahead = strategy.needs.lookahead
        self.draft_slots = strategy.needs.draft_slots
        self.next_rows: int | None = None
        """Rows of all that decode next, where those of each are known and differ."""
        self.carries = isinstance(strategy, CarriesPrompts)
        """Whether requests decode while prompts of others are on their way through the stages."""
        self.ranked = False
        """Whether requests have priorities that differ from 0."""
        self.preemptions = 0
        self.short = False
        """Whether a request needs room that a request in a step under way will have to give."""
        self.now = 0.0
        self.waited_s = 0.0
        """Seconds that requests have spent waiting to be admitted, summed over requests."""

    @property
    def length(self) -> int:
        """Return how many requests wait, for whatever."""
        return len(self.waiting) + len(self.held) + len(self.landed) + len(self.loading)

    def join(self, request: Request) -> None:
        """Let a request wait, behind all of its priority or a lower one."""
        if not self.ranked:
            self.ranked = request.priority != 0
        if not self.ranked:
            self.waiting.append(request)
            return
        place = len(self.waiting)
        while place and self.waiting[place - 1].priority > request.priority:
            place -= 1
        self.waiting.insert(place, request)

    def _victim(self) -> Request:
        """Return who makes way: the one admitted last, of those with the highest priority."""
        if not self.ranked:
            return self.running[-1]
        return max(reversed(self.running), key=lambda request: request.priority)

    def decoding(self) -> list[Request]:
        """Return the requests that can decode now, in running order."""
        ready = [
            request for request in self.running if request.state is not None and not request.flying
        ]
        if self.in_flight == 1:
            return ready
        return ready[: -(-len(self.running) // self.in_flight)]

    def beside(self, entering: list[tuple[Request, int]]) -> list[Request]:
        """Return who decodes while these prompts are prefilled: all who can where prompts are
        carried along, else nobody.
        """
        if not self.carries:
            return []
        for request, _ in entering:
            request.flying = True
        return self.with_room(self.decoding())

    def with_room(self, requests: list[Request]) -> list[Request]:
        """Give each request in order room for its step; return those that still run and have got
        it.
        """
        step_tokens = self.step_tokens
        all_fit = True
        before = self.preemptions
        self.short = False
        for request in requests:
            state = request.state
            if state is None or (
                state.context + step_tokens > request.slots
                and not self.make_room(request, state.context + step_tokens)
            ):
                all_fit = False
        if all_fit and self.preemptions == before:
            return requests
        return [
            request
            for request in requests
            if request.state is not None and request.state.context + step_tokens <= request.slots
        ]

    def make_room(self, request: Request, tokens: int) -> bool:
        """Preempt until ``request`` has room for ``tokens``; return False if it was preempted
        itself, or has to wait.
        """
        while not self.memory.hold(request, tokens):
            victim = self._victim()
            if victim.flying:
                self.short = True
                return False
            self.preempt(victim)
            if victim is request:
                return False
        return True

    def preempt(self, request: Request) -> None:
        """Take all memory from a request; what it has shown is recomputed when it is admitted
        again.
        """
        self.memory.keep(request, 0)
        self.running.remove(request)
        self.read(request)
        place = 0
        while place < len(self.waiting) and self.waiting[place].priority < request.priority:
            place += 1
        self.waiting.insert(place, request)
        request.state = None
        request.cached = 0
        request.queued_s = self.now
        request.preemptions += 1
        self.preemptions += 1

    def first(self) -> Request:
        """Return the front of ``waiting``, which need not prefill what the cache has of its prompt
        at this moment.
        """
        request = self.waiting[0]
        request.cached = self.memory.cached(request)
        return request

    def admit(self, tokens: int) -> tuple[Request, int]:
        """Move the front of ``waiting`` to the end of ``running`` and grant it its first
        ``tokens``.
        """
        request = self.waiting.popleft()
        self.waited_s += self.now - request.queued_s
        self.running.append(request)
        self.reading.append(request)
        return self.grant(request, tokens)

    def read(self, request: Request) -> None:
        """Note that a request has no prompt under way any more: it is read, or given up."""
        if request in self.reading:
            self.reading.remove(request)

    def going_on(self, tokens: int) -> list[tuple[Request, int]]:
        """Return the prompts under way that go on within so many ``tokens``, oldest first, for
        which there has been room since they entered.
        """
        going_on = list[tuple[Request, int]]()
        for request in self.reading:
            if tokens > 0 and not request.flying:
                going_on.append(self.grant(request, min(request.left, tokens)))
                tokens -= going_on[-1][1]
        return going_on

    def grant(self, request: Request, tokens: int) -> tuple[Request, int]:
        """Return a prompt with the tokens of it that are prefilled next; whoever is admitted from
        now on may share them.
        """
        self.memory.share(request, request.cached + tokens)
        return request, tokens

    def watermark_blocks(self, share: float) -> int:
        """Return the number of blocks that an admission must leave free."""
        if self.memory.total == inf:
            return 0
        return int(share * self.memory.total)


class Policy(Frozen, ABC):
    """The base of all policies."""

    name: str
    max_requests: int | None = Field(default=None, gt=0, le=MOST_TOGETHER)
    """At most so many run; by default as many as there are clients."""
    reserves: ClassVar[bool] = False
    """Whether a request gets memory for its whole life as it is admitted, and all that run decode
    as long as nobody comes or leaves.
    """
    decodes_beside: ClassVar[bool] = False
    """Whether requests decode in an iteration that reads prompts."""
    counts_drafts: ClassVar[bool] = False
    """Whether a request gets room for what was drafted for it, instead of for a whole window."""
    gives_back: ClassVar[bool] = True
    """Whether blocks for which rejected tokens were the reason are free again after a step."""

    @abstractmethod
    def plan(self, queues: Queues) -> IterationPlan:
        """Return the plan of the next iteration; empty if nothing can be done now."""

    def prompts(self, queues: Queues, decoding: int) -> Prompts | None:
        """Return the prompts of the next iteration where ``decoding`` requests decode, in whole
        windows, and all of them have room; None where a prompt under way has none.

        A policy that cannot say so without looking at each request leaves this as it is, and is
        asked for a :meth:`plan` before every iteration.
        """
        return None

    def takes_all(self, queues: Queues, decoding: int) -> bool:
        """Return whether ``decoding`` requests all decode in an iteration, in whole windows, as far
        as there is room.
        """
        return True

    def ahead(self, queues: Queues, decoding: int) -> int:
        """Return the tokens for which each of ``decoding`` requests gets room in a step beyond
        those in its cache.
        """
        return queues.step_tokens

    def step_slots(self, needs: Needs) -> int:
        """Return the tokens for which a request gets room in a step beyond those in its cache, at
        most, by what its strategy needs.
        """
        return needs.cache_tokens

    def entry_tokens(self, queues: Queues, request: Request) -> int:
        """Return the tokens for which a request gets room that is to be handed over with its
        prompt read: for its whole life, or for its first step.
        """
        if self.reserves:
            return request.prompt_tokens + request.output_tokens + queues.step_tokens - 2
        return request.prompt_tokens + queues.step_tokens

    def spare_blocks(self, queues: Queues) -> int:
        """Return the blocks that an admission leaves free; by default none."""
        return 0

    def blocks_in_service(
        self,
        memory: Blocks,
        prompts: NDArray[np.int64],
        outputs: NDArray[np.int64],
        step_tokens: int,
    ) -> NDArray[np.float64]:
        """Return the blocks that each of some requests has while it runs, (requests,), in the mean
        over its tokens: they grow with its context, or are all there from the beginning.

        ``prompts`` and ``outputs`` (requests,) are in tokens; ``step_tokens`` as in the module's
        *Room*.
        """
        if self.reserves:
            reserved = memory.needed_each(prompts + outputs + step_tokens - 2)
            return reserved.astype(np.float64)
        steps = np.maximum(outputs - 1, 1)
        contexts = np.arange(int((prompts + steps).max()))
        passed = np.concatenate([[0], np.cumsum(memory.needed_each(contexts + step_tokens))])
        means: NDArray[np.float64] = (passed[prompts + steps] - passed[prompts]) / steps
        return means

    def refusal(self, longest_tokens: int, step_tokens: int, memory: Blocks) -> str | None:
        """Return why a request of ``longest_tokens``, prompt and output, could never be served;
        None if it can.
        """
        tokens = longest_tokens + step_tokens - 2
        needed = memory.needed(tokens)
        if needed > memory.total:
            room = int(memory.total) * memory.block_tokens
            fits = max(0, room - step_tokens + 2)
            needs = (
                f"a request of {longest_tokens:,} tokens needs room for {tokens:,} in the KV "
                f"cache, which holds {room:,}"
            )
            return f"{needs}; requests of up to {fits:,} fit"
        return None


class FixedBatch(Policy):
    """Iteration-level batching with a fixed number of places: the closed loop of the papers.

    1. While ``waiting`` is not empty, fewer than ``max_requests`` run and the pool has the blocks
       of ``prompt + output + step_tokens - 2`` tokens: admit. The blocks are kept until the request
       ends, so no request is ever preempted.
    2. If a request was admitted, this iteration is the whole prompts of those, in one pass; the
       others wait.
    3. Else every running request decodes.

    Without ``max_requests`` the clients of a closed loop are the places; those for which the pool
    has no blocks wait.
    """

    name: Literal["fixed_batch"] = "fixed_batch"
    reserves: ClassVar[bool] = True
    max_requests: int | None = Field(default=None, gt=0, le=MOST_TOGETHER)
    """Places; by default as many as there are clients."""

    def plan(self, queues: Queues) -> IterationPlan:
        """Return the prompts of all requests that may enter, else a decode step of all that run."""
        entering = self.prompts(queues, 0)
        return IterationPlan(queues.beside(entering) if entering else queues.decoding(), entering)

    def prompts(self, queues: Queues, decoding: int) -> Prompts:
        """Return the prompts of all requests that may enter."""
        waiting = queues.waiting
        entering = []
        places = self.max_requests or UNLIMITED
        while waiting and len(queues.running) < places:
            first = queues.first()
            if not queues.memory.hold(
                first, first.prompt_tokens + first.output_tokens + queues.step_tokens - 2
            ):
                break
            entering.append(queues.admit(first.left))
        return entering


class PrefillFirst(Policy):
    """Prefill first (vLLM v0): new requests enter as soon as they fit, and decoding waits for their
    prompts.

    1. While ``waiting`` is not empty and fewer than ``max_requests`` run: the first one enters if
       its need fits what is left of ``batch_tokens`` in this iteration, and its blocks leave
       ``watermark`` blocks free. With ``splits_prompts`` (SGLang) a need that does not fit gets
       what is left of them, and prompts under way go on first.
    2. If a request entered or goes on, this iteration is what those get, in one pass; no request
       decodes.
    3. Else, in running order, each decoding request gets room, by preemption if there is none;
       those that still run decode.
    """

    name: Literal["prefill_first"] = "prefill_first"
    max_requests: int = Field(default=256, gt=0, le=MOST_TOGETHER)
    """At most so many run."""
    batch_tokens: int = Field(default=8_192, gt=0, le=1_000_000_000)
    """Prompt tokens of one pass, at most."""
    watermark: float = Field(default=0.01, ge=0, lt=1)
    """Share of the cache that an admission leaves free."""
    splits_prompts: bool = False
    """Whether a prompt that does not fit a pass goes on in the next ones; else it waits for a pass
    that it fits.
    """

    def plan(self, queues: Queues) -> IterationPlan:
        """Return prompts if any may enter or go on, else all requests that can decode."""
        entering = self.prompts(queues, 0)
        if entering:
            return IterationPlan(queues.beside(entering), entering)
        return IterationPlan(queues.with_room(queues.decoding()), [])

    def prompts(self, queues: Queues, decoding: int) -> Prompts:
        """Return the prompts that may enter or go on."""
        entering = queues.going_on(self.batch_tokens) if self.splits_prompts else []
        waiting = queues.waiting
        budget = self.batch_tokens - sum(tokens for _, tokens in entering)
        if waiting and len(queues.running) < self.max_requests and not queues.short:
            spare = self.spare_blocks(queues)
            while waiting and budget > 0 and len(queues.running) < self.max_requests:
                first = queues.first()
                need = first.left
                granted = min(need, budget) if self.splits_prompts else need
                if granted > budget or not queues.memory.hold(first, first.cached + need, spare):
                    break
                budget -= granted
                entering.append(queues.admit(granted))
        return entering

    def spare_blocks(self, queues: Queues) -> int:
        """Return the blocks of the watermark."""
        return queues.watermark_blocks(self.watermark)

    def refusal(self, longest_tokens: int, step_tokens: int, memory: Blocks) -> str | None:
        """Return a refusal also where a recompute of all but the last token does not fit a pass, or
        not above the watermark.
        """
        if longest_tokens - 1 > self.batch_tokens and not self.splits_prompts:
            one = (
                f"one prefill of batch_tokens = {self.batch_tokens:,}; set "
                f"serving.policy.batch_tokens={longest_tokens - 1}"
            )
            return f"a request of {longest_tokens:,} tokens does not fit {one}"
        return above_watermark(self.watermark, longest_tokens, memory) or super().refusal(
            longest_tokens, step_tokens, memory
        )


class ChunkedPrefill(Policy):
    """Chunked prefill with decode first (Sarathi-Serve): decoding never stalls, prompts fill what
    is left of a chunk.

    Every iteration has ``chunk_tokens``.

    1. In running order each decoding request gets room, by preemption if there is none; those that
       still run decode and take one token each of the chunk, whatever they speculate.
    2. In running order each prompt under way gets ``min(left, rest of the chunk)`` tokens, while
       there are any.
    3. If this boundary preempted nobody: while ``waiting`` is not empty, fewer than
       ``max_requests`` run and the chunk is not used up, the first one enters if the blocks of its
       whole need leave ``watermark`` blocks free; it gets ``min(need, rest of the chunk)``.
    """

    name: Literal["chunked_prefill"] = "chunked_prefill"
    decodes_beside: ClassVar[bool] = True
    max_requests: int = Field(default=256, gt=0, le=MOST_TOGETHER)
    """At most so many run."""
    chunk_tokens: int = Field(default=512, gt=0, le=1_000_000_000)
    """Tokens of one pass, decoding and prompts together."""
    watermark: float = Field(default=0.01, ge=0, lt=1)
    """Share of the cache that an admission leaves free."""

    def plan(self, queues: Queues) -> IterationPlan:
        """Return all decoding requests that have room, and as much prompt as the chunk has room
        for.
        """
        before = queues.preemptions
        decode = queues.with_room(queues.decoding())
        rest = self.chunk_tokens - len(decode)
        prompts = queues.going_on(rest)
        if queues.preemptions == before and not queues.short:
            prompts += self._entering(queues, rest - sum(tokens for _, tokens in prompts))
        return IterationPlan(decode, prompts)

    def prompts(self, queues: Queues, decoding: int) -> Prompts:
        """Return as much prompt as the chunk has room for beside a token of each request."""
        rest = self.chunk_tokens - decoding
        prompts = queues.going_on(rest)
        return prompts + self._entering(queues, rest - sum(tokens for _, tokens in prompts))

    def _entering(self, queues: Queues, rest: int) -> Prompts:
        """Return the prompts that enter, by rule 3, with ``rest`` tokens of the chunk."""
        prompts: Prompts = []
        waiting = queues.waiting
        spare = self.spare_blocks(queues)
        while waiting and rest > 0 and len(queues.running) < self.max_requests:
            first = queues.first()
            need = first.left
            if not queues.memory.hold(first, first.cached + need, spare):
                break
            prompts.append(queues.admit(min(need, rest)))
            rest -= prompts[-1][1]
        return prompts

    def spare_blocks(self, queues: Queues) -> int:
        """Return the blocks of the watermark."""
        return queues.watermark_blocks(self.watermark)

    def refusal(self, longest_tokens: int, step_tokens: int, memory: Blocks) -> str | None:
        """Return a refusal also where a recompute of all but the last token would not leave the
        watermark.
        """
        return above_watermark(self.watermark, longest_tokens, memory) or super().refusal(
            longest_tokens, step_tokens, memory
        )


class UnifiedBudget(Policy):
    """One token budget for everything (vLLM v1): prompts and decoding alike, speculative tokens
    counted.

    Every iteration has ``budget_tokens``. ``window`` is what was drafted for a request, else what
    the strategy drafts for as many as can decode at this boundary; a tree counts with all its rows.
    A draft with keys and values of its own writes ``lookahead`` tokens behind them, for which there
    is room as well, as far as the cache has so much; a draft model takes one more token of the
    budget for each request (``draft_slots``).

    1. In running order, while any budget is left, each request wants what is left of its need, or
       ``1 + window`` if it decodes, and is granted that or the rest of the budget. It gets room for
       what it has in the cache and what it is granted, by preemption if there is none (which ends
       this rule if it hits the request itself), and keeps it. A window is cut to the grant less
       one.
    2. If this boundary preempted nobody: while ``waiting`` is not empty, fewer than
       ``max_requests`` run and any budget is left, the first one is granted its need or the rest of
       the budget, and enters if there are blocks for that much, and for its whole need. Of one that
       has a single token to read beside others that decode, a whole window is counted, as its row
       is padded to theirs; if there is no budget for that, it waits.
    """

    name: Literal["unified_budget"] = "unified_budget"
    decodes_beside: ClassVar[bool] = True
    counts_drafts: ClassVar[bool] = True
    gives_back: ClassVar[bool] = False
    max_requests: int = Field(default=256, gt=0, le=MOST_TOGETHER)
    """At most so many run."""
    budget_tokens: int = Field(default=2_048, gt=0, le=1_000_000_000)
    """Tokens of one pass, whatever they are."""

    def plan(self, queues: Queues) -> IterationPlan:
        """Return what the budget is enough for, in running order."""
        before = queues.preemptions
        decode, prompts = self._under_way(queues)
        if queues.preemptions == before and not queues.short:
            rest = self._rest(queues, decode, prompts)
            prompts += self._entering(queues, rest, bool(decode), bool(prompts))
        return IterationPlan(decode, prompts)

    def prompts(self, queues: Queues, decoding: int) -> Prompts | None:
        """Return as much prompt as the budget has room for beside the windows of all; None where
        there is no room for a prompt under way.
        """
        slots = self._slots(queues)
        rows = queues.next_rows
        if rows is None:
            rows = decoding * self._rows(queues, decoding)
        rest = self.budget_tokens - rows - decoding * slots
        prompts: Prompts = []
        for request in queues.reading:
            granted = self._pass_tokens(queues, request, rest - slots)
            room = self._room(queues, request.cached + granted)
            if granted and not queues.memory.hold(request, room):
                return None
            if granted:
                prompts.append(queues.grant(request, granted))
                rest -= granted + slots
        return prompts + self._entering(queues, rest, decoding > 0, bool(prompts))

    def takes_all(self, queues: Queues, decoding: int) -> bool:
        """Return whether the budget is enough for the windows of all."""
        each = self._rows(queues, decoding) + self._slots(queues)
        return decoding * each <= self.budget_tokens

    def ahead(self, queues: Queues, decoding: int) -> int:
        """Return the rows of a window where so many requests decode, and what is drafted behind
        it.
        """
        return self._rows(queues, decoding) + queues.lookahead

    def step_slots(self, needs: Needs) -> int:
        """Return the tokens of a window, and those that are drafted behind it."""
        return needs.cache_tokens + needs.lookahead

    def _rows(self, queues: Queues, decoding: int) -> int:
        """Return the rows of a window where so many requests decode."""
        return queues.rows or 1 + queues.strategy.window_for(decoding)

    def _slots(self, queues: Queues) -> int:
        """Return the tokens that the draft takes of each request, which leave a token to read."""
        return min(queues.draft_slots, self.budget_tokens - 1)

    def _room(self, queues: Queues, tokens: int) -> int:
        """Return the tokens for which a request gets room that has ``tokens`` after a pass: with
        those that are drafted behind them, where the cache has room for a request of so many.
        """
        memory = queues.memory
        drafted = tokens + queues.lookahead
        if memory.total == inf or memory.needed(drafted) <= memory.total:
            return drafted
        return tokens

    def _rest(self, queues: Queues, decode: list[Request], prompts: Prompts) -> int:
        """Return what a plan leaves of the budget."""
        slots = self._slots(queues) * (len(decode) + len(prompts))
        rows = [request.state.most_rows for request in decode if request.state is not None]
        return self.budget_tokens - slots - sum(rows) - sum(tokens for _, tokens in prompts)

    def _entering(self, queues: Queues, rest: int, decoding: bool, reading: bool) -> Prompts:
        """Return the prompts that enter, by rule 2, with ``rest`` tokens of the budget, where
        others decode and are read.
        """
        prompts: Prompts = []
        memory = queues.memory
        rest -= self._slots(queues)
        most = self.budget_tokens - self._slots(queues)
        while queues.waiting and rest > 0 and len(queues.running) < self.max_requests:
            first = queues.first()
            granted = self._pass_tokens(queues, first, rest)
            padding = 0
            if first.left == 1 and not reading and (decoding or first.cached):
                padding = min(self._rows(queues, len(queues.running)), most) - 1
            if not granted or granted + padding > rest:
                break
            room = self._room(queues, first.cached + granted + padding)
            if not memory.fits(first, first.cached + first.left) or not memory.hold(first, room):
                break
            rest -= granted + padding + self._slots(queues)
            prompts.append(queues.admit(granted))
        return prompts

    def _pass_tokens(self, queues: Queues, request: Request, rest: int) -> int:
        """Return the tokens that a prompt is granted of the ``rest`` of the budget."""
        tokens = min(request.left, max(0, rest))
        return queues.memory.pass_tokens(request, tokens, self.budget_tokens)

    def _wanted(self, queues: Queues, request: Request, rows: int, rest: int) -> tuple[int, int]:
        """Return how many tokens of ``rest`` a request wants, ``rows`` at most if it decodes, and
        for how many it then needs room.
        """
        if request.state is None:
            granted = self._pass_tokens(queues, request, rest)
            return granted, self._room(queues, request.cached + granted)
        granted = min(queues.strategy.rows_at_hand(request.state, rows), rest)
        return granted, self._room(queues, request.state.context + granted)

    def _under_way(self, queues: Queues) -> tuple[list[Request], list[tuple[Request, int]]]:
        """Return what requests that run already are granted by rule 1: those that decode, and
        prompts with their tokens.
        """
        queues.short = False
        able = queues.decoding()
        slots = self._slots(queues)
        rest = self.budget_tokens - slots
        places = len(able)
        rows = self._rows(queues, places)
        decode: list[Request] = []
        prompts: list[tuple[Request, int]] = []
        before = preempted = queues.preemptions
        for request in [*queues.running]:
            if rest <= 0:
                break
            if queues.preemptions != before and request not in queues.running:
                continue
            state = request.state
            if request.flying or (state is not None and len(decode) == places):
                continue
            granted, needed = self._wanted(queues, request, rows, rest)
            if not granted:
                continue
            if needed > request.slots and not queues.make_room(request, needed):
                break
            if queues.ranked and queues.preemptions != preempted:
                preempted = queues.preemptions
                decode, prompts = _those_that_run(queues, decode, prompts)
                rest = self._rest(queues, decode, prompts) - slots
            rest -= granted + slots
            if state is None:
                prompts.append(queues.grant(request, granted))
            else:
                state.most_rows = granted
                decode.append(request)
        if queues.preemptions != before:
            decode, prompts = _those_that_run(queues, decode, prompts)
        return decode, prompts


def _those_that_run(
    queues: Queues, decode: list[Request], prompts: list[tuple[Request, int]]
) -> tuple[list[Request], list[tuple[Request, int]]]:
    """Return a plan without the requests that were preempted as others got room."""
    running = set(queues.running)
    going_on = [(request, tokens) for request, tokens in prompts if request in running]
    return [request for request in decode if request in running], going_on


class EngineDefault(Policy):
    """What the engine of the target does where nothing is stated: policy and limits of its profile,
    on its device.

    As a scenario is read it becomes one of the others (:mod:`simulator.scenario.as_served`).
    """

    name: Literal["engine"] = "engine"
    max_requests: int | None = Field(default=None, gt=0, le=MOST_TOGETHER)
    """At most so many run; by default what the engine takes."""

    def plan(self, queues: Queues) -> IterationPlan:
        """Raise :class:`ValueError`: only what it becomes can plan."""
        raise ValueError("the policy 'engine' becomes that of an engine as a scenario is read")
