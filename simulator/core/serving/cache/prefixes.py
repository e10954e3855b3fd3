"""Prefix caching: blocks stay for requests that begin alike, target's and draft's together.

What is kept of a name (:mod:`simulator.core.serving.load.content`) is a *run* of blocks without a
gap, from where the name begins. Who enters finds the leading runs of its prompt, and computes the
rest of it::

    system prompt 3   |####################|
    conversation 17                        |##########......|     # kept, . evicted
    prompt of turn 4  |================================>------------|
                      0                    found        to compute  L

* *Hits* come in whole blocks; the last token is computed in any case, as a pass has to yield a
  token. A draft that reads hidden states of the target, which no cache keeps, has one block more
  computed (:func:`hit_tokens`).
* *Shared* is what a request is granted, from that moment on and in the same pass, where every layer
  writes keys and values before it reads them (vLLM hashes blocks as it schedules them). A copy of
  what another computed meanwhile is dropped.
* *Outputs* stay as well, where somebody knows their names: the next turn of a conversation begins
  with them. Blocks of other outputs wait to be evicted like all others, and are never found.
* *Eviction*: blocks that a running request has stay. The others make way for running requests: the
  one let go longest ago first, and of a request the last, so that none is there without the one
  before it (as in vLLM's queue and SGLang's tree).

Where layers have windows or states, blocks of running requests are no sum over tokens and are not
counted as shared; each is counted in full, and what nobody has with all its tokens.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from math import inf
from typing import ClassVar, NamedTuple, TypeAlias

from simulator.core.serving.cache.memory import Blocks, Report
from simulator.core.serving.load.content import Hash
from simulator.core.serving.requests import Request


def hit_tokens(
    known_tokens: int, needed_tokens: int, unit_tokens: int, dropped_units: int = 0
) -> int:
    """Return the tokens of a prompt that need not be computed, in whole units of a cache, of
    ``known_tokens`` that are there.

    ``needed_tokens`` are all that have to go through the prefill; the last one is computed in any
    case. A draft that reads the target's hidden states needs those of the unit before, so that one
    unit more is dropped (vLLM, ``use_eagle_block_drop``; SGLang matches pairs of tokens, which
    drops one of its pages of one token).
    """
    units = min(known_tokens, needed_tokens - 1) // unit_tokens
    return max(0, units - dropped_units) * unit_tokens


class KeptBlocks:
    """The blocks that are kept of one name, counted from the beginning of the prompt."""

    __slots__ = ("begin", "end", "holders", "waiting")

    def __init__(self, begin: int) -> None:
        self.begin = self.end = begin
        self.holders: dict[int, int] = {}
        """How many running requests have its blocks up to which one."""
        self.waiting: list[int] = []
        """Numbers of its stretches that wait to be evicted, the last blocks first."""

    @property
    def held(self) -> int:
        """Return up to which block some running request has it."""
        return max(self.holders, default=self.begin)


Stretch: TypeAlias = tuple[Hash, int, int]
"""A name, and from and to which block of a request it names."""


class BlockRange(NamedTuple):
    """Blocks ``begin`` to ``end`` of a name, which wait to be evicted together, the last first."""

    name: Hash
    begin: int
    end: int


class PrefixCache(Blocks):
    """A pool that keeps blocks when their requests have left, least recently used ones making way
    (LRU).
    """

    __slots__ = (
        "_number",
        "asked_tokens",
        "dropped",
        "dropped_tokens",
        "evicted",
        "hit_tokens",
        "idle",
        "idle_blocks",
        "report",
        "runs",
    )

    def __init__(
        self,
        block_tokens: int = 16,
        total: int | None = None,
        held: Callable[[int], float] | None = None,
        dropped: int = 0,
    ) -> None:
        super().__init__(block_tokens, total, held)
        self.dropped = dropped
        """Blocks at the end of what was found that are computed again."""
        self.runs: dict[Hash, KeptBlocks] = {}
        self.idle = OrderedDict[int, BlockRange]()
        """Stretches that nobody has, by number, in the order in which they make way."""
        self._number = 0
        self.idle_blocks = self.evicted = 0
        """Blocks in ``idle``, and those that had to make way so far; ``used`` counts only what
        running requests have.
        """
        self.asked_tokens = self.hit_tokens = self.dropped_tokens = 0
        """Tokens of prompts that entered for the first time, those of them that need not be
        computed, and those that are computed again though they are there.
        """
        self.report: Report | None = None
        """Takes reports of what is there; None where nobody wants them."""

    evicts: ClassVar[bool] = True

    @property
    def kept_blocks(self) -> int:
        """Return how many blocks wait to be evicted."""
        return self.idle_blocks

    # ---- what a request is made of

    def _stretches(self, request: Request, blocks: int) -> list[Stretch]:
        """Return the names of the first ``blocks`` of a request, and which of them each names."""
        stretches = list[Stretch]()
        begin = 0
        most_tokens = blocks * self.block_tokens
        for name, tokens in request.prefixes:
            end = blocks if tokens >= most_tokens else int(tokens) // self.block_tokens
            if end > begin:
                stretches.append((name, begin, end))
                begin = end
        if begin < blocks and self.total < inf:
            stretches.append((f"output of request {request.index}", begin, blocks))
        return stretches

    def known(self, request: Request) -> int:
        """Return how many leading blocks of what a request has to read are in the cache."""
        known = 0
        needed = (request.prompt_tokens + request.tokens) // self.block_tokens
        for name, _, end in self._stretches(request, needed):
            run = self.runs.get(name)
            if run is None:
                break
            known = max(known, min(run.end, end))
            if run.end < end:
                break
        return known

    def cached(self, request: Request) -> int:
        """Return the tokens that a request which enters now need not compute."""
        return self._hit(request, self.known(request), self.dropped)

    def _hit(self, request: Request, known: int, dropped: int) -> int:
        """Return the tokens that need not be computed where so many blocks are known."""
        needed_tokens = request.prompt_tokens + request.tokens
        return hit_tokens(known * self.block_tokens, needed_tokens, self.block_tokens, dropped)

    # ---- a request enters, grows and leaves

    def fits(self, request: Request, tokens: int) -> bool:
        """Return whether there is room for ``tokens`` of a request, which enters with the blocks
        that are there.
        """
        if request.blocks:
            return super().fits(request, tokens)
        known = self.known(request)
        return self._used_with(self._stretches(request, known), known, tokens) <= self.total

    def hold(self, request: Request, tokens: int, spare: int = 0) -> bool:
        """Give room as :meth:`Blocks.hold` does, to a request that enters with the blocks that are
        there; others make way.
        """
        if not request.blocks:
            known = self.known(request)
            if not self._enter(request, known, tokens, spare):
                return False
            if not request.preemptions:
                self._count(request, known)
        held = super().hold(request, tokens, spare)
        self.most_used = max(self.most_used, self.used)
        self.make_way(self.used)
        return held

    def _enter(self, request: Request, known: int, tokens: int, spare: int) -> bool:
        """Let a request have its ``known`` blocks if there is room for ``tokens`` and ``spare``
        blocks beside; else return False.
        """
        stretches = self._stretches(request, known)
        if self._used_with(stretches, known, tokens) + spare > self.total:
            return False
        self._extend(request, known, stretches)
        if self.held is None:
            request.blocks = known
        return True

    def _count(self, request: Request, known: int) -> None:
        """Write down what a request finds that enters for the first time."""
        request.hit_tokens = request.cached
        self.asked_tokens += request.prompt_tokens
        self.hit_tokens += request.cached
        self.dropped_tokens += self._hit(request, known, 0) - request.cached

    def _used_with(self, stretches: Sequence[Stretch], known: int, tokens: int) -> int:
        """Return the blocks in use once a request has entered with its ``known`` ones, which are
        these stretches, and room for ``tokens``.
        """
        if self.held is not None:
            return self.used + self.needed(tokens)
        shared = 0
        for name, begin, end in stretches:
            shared += max(0, min(self.runs[name].held, end) - begin)
        return self.used + max(self.needed(tokens), known) - shared

    def share(self, request: Request, tokens: int) -> None:
        """Keep the first ``tokens`` of a request for others; a copy of what is there already is
        dropped.
        """
        blocks = tokens // self.block_tokens
        if blocks > request.shared:
            stretches = self._stretches(request, blocks)
            copies = self._extend(request, blocks, stretches)  # which counts in used, too
            self.used -= copies

    def _extend(self, request: Request, blocks: int, stretches: Sequence[Stretch]) -> int:
        """Let a request have its first ``blocks``, which are these stretches; return how many of
        those that it did not have are there already, counted as in use from now on.
        """
        copies = 0
        for name, begin, end in stretches:
            if end <= request.shared:
                continue
            run = self.runs.get(name)
            if run is None:
                run = self.runs[name] = KeptBlocks(begin)
            first = max(begin, request.shared)
            there = min(run.end, end)
            idle = max(0, there - max(first, run.held))
            if run.waiting:
                self._wake(run, there)
            self.idle_blocks -= idle
            if self.held is None:
                self.used += idle
                copies += max(0, there - first)
            if first > begin:
                self._let_go(run, first)
            run.holders[end] = run.holders.get(end, 0) + 1
            if end > run.end:
                before, run.end = run.end, end
                self._filled(name, before, end)
        request.shared = blocks
        return copies

    def _wake(self, run: KeptBlocks, end: int) -> None:
        """Take the blocks of a run before ``end`` from those that wait to be evicted."""
        while run.waiting:
            number = run.waiting[-1]
            stretch = self.idle[number]
            if stretch.begin >= end:
                return
            if stretch.end > end:
                self.idle[number] = stretch._replace(begin=end)
                return
            run.waiting.pop()
            del self.idle[number]

    def report_to(self, report: Report) -> None:
        """Report from now on up to which token a name is there, whenever that changes."""
        self.report = report

    def _changed(self, name: Hash, blocks: int) -> None:
        """Report up to which block a name is there."""
        if self.report:
            self.report(name, blocks * self.block_tokens)

    def _filled(self, name: Hash, begin: int, end: int) -> None:
        """Note that blocks ``begin`` to ``end`` of a name are there from now on."""
        self._changed(name, end)

    def _dropped(self, name: Hash, begin: int, end: int) -> None:
        """Note that blocks ``begin`` to ``end`` of a name have made way."""
        first = self.runs[name].begin
        self._changed(name, begin if begin > first else 0)

    def _let_go(self, run: KeptBlocks, end: int) -> None:
        """Let one request less have the blocks of a run up to ``end``."""
        left = run.holders.pop(end) - 1
        if left:
            run.holders[end] = left

    def keep(self, request: Request, tokens: int) -> None:
        """Take back every block of ``request`` beyond those for ``tokens``; if it leaves, what it
        has written stays.
        """
        if tokens:
            super().keep(request, tokens)
            return
        self.share(request, request.written_tokens)
        stretches = self._stretches(request, request.shared)
        super().keep(request, 0)
        for name, begin, end in reversed(stretches):
            run = self.runs[name]
            self._let_go(run, end)
            left = min(run.held, end)
            if self.held is None:
                self.used += left - begin
            if left < end:
                self._wait(name, run, left, end)
        request.shared = 0
        self.make_way(self.used)

    def _wait(self, name: Hash, run: KeptBlocks, begin: int, end: int) -> None:
        """Let blocks ``begin`` to ``end`` of a run wait to be evicted."""
        self._number += 1
        self.idle[self._number] = BlockRange(name, begin, end)
        run.waiting.append(self._number)
        self.idle_blocks += end - begin

    def make_way(self, used: int) -> None:
        """Evict blocks that nobody has until there are ``used`` blocks for running requests."""
        while self.idle and used + self.idle_blocks > self.total:
            self._evict(next(iter(self.idle)), int(used + self.idle_blocks - self.total))

    def forget(self) -> None:
        """Drop everything that no running request has; it makes way for nobody, and does not count
        as evicted.
        """
        evicted = self.evicted
        while self.idle:
            self._evict(next(iter(self.idle)), self.idle_blocks)
        self.evicted = evicted

    def _evict(self, number: int, most: int) -> None:
        """Evict the last blocks of a stretch, not more than ``most``."""
        name, begin, end = self.idle[number]
        run = self.runs[name]
        blocks = min(end - begin, most)
        self.idle_blocks -= blocks
        self.evicted += blocks
        run.end = end - blocks
        self._dropped(name, run.end, end)
        if run.end > begin:
            self.idle[number] = BlockRange(name, begin, run.end)
            return
        del self.idle[number]
        run.waiting.remove(number)
        if run.end == run.begin and not run.holders:
            del self.runs[name]


def cache_hits(pools: Sequence[Blocks]) -> dict[str, float]:
    """Return prompt tokens (once each), those that were cached, their share, those computed again,
    and tokens evicted; nothing without caching.
    """
    kept = [pool for pool in pools if isinstance(pool, PrefixCache)]
    if not kept:
        return {}
    asked = sum(pool.asked_tokens for pool in kept)
    hit = sum(pool.hit_tokens for pool in kept)
    dropped = sum(pool.dropped_tokens for pool in kept)
    evicted = sum(pool.evicted * pool.block_tokens for pool in kept)
    return {
        "prompt_tokens": asked,
        "hit_tokens": hit,
        "hit_rate": hit / max(1, asked),
        "dropped_tokens": dropped,
        "evicted_tokens": evicted,
    }
