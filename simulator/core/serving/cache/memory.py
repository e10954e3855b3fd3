"""KV memory in blocks: what a request holds grows with its tokens and shrinks when rejected ones
are dropped.

A block has room for ``block_tokens`` tokens in every layer of the target and, where there is one,
of the draft: both caches hold the same tokens, so one table serves both. Branches that a draft
tries out and drops within a step are not counted.

*Prefix caching* keeps the blocks of prompts for requests that begin alike, target's and draft's
together:

* A *piece* is what ends with a hash: the whole blocks of ``HASHED_TOKENS`` tokens, or of the rest
  of a prompt. It is kept or evicted as one. Nobody knows the hashes of outputs; their blocks are
  free when a request leaves.
* Who enters has the leading pieces of its prompt that are there, but computes the last block in any
  case, as the pass has to yield a token, and one block more where the draft reads hidden states,
  which no cache keeps (:func:`hit_tokens`). What it is granted is there for whoever enters next, in
  the same pass too, where every layer writes keys and values before it reads them (vLLM hashes
  blocks as it schedules them). A copy of what another computed meanwhile is dropped.
* Pieces that a running request has are never evicted. The others make way for running requests, the
  one let go longest ago first, and of a prompt the last, so that none is there without the one
  before it (as in vLLM's queue, SGLang's tree).
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, takewhile
from math import ceil, inf
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from simulator.core.quantities import Frozen
from simulator.core.serving.requests import HASHED_TOKENS, Hash, Request


class Blocks:
    """Counts the KV blocks of a pool; which of them a request gets makes no difference to its
    time.
    """

    __slots__ = ("_taken", "block_tokens", "held", "most_used", "total", "used")

    def __init__(
        self,
        block_tokens: int = 16,
        total: int | None = None,
        held: Callable[[int], float] | None = None,
    ) -> None:
        self.block_tokens = block_tokens
        self.total: float = inf if total is None else total
        self.used = self.most_used = 0
        self._taken: dict[int, int] = {}
        self.held = held
        """How many tokens' room a request of so many tokens takes, where that is not their number
        (windows, states).
        """

    def needed(self, tokens: int) -> int:
        """Return the number of blocks for so many tokens."""
        blocks = -(-tokens // self.block_tokens)
        if self.held is None or not tokens:
            return blocks
        return ceil(self.held(blocks * self.block_tokens) / self.block_tokens)

    def needed_each(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of blocks for each of so many tokens."""
        blocks: NDArray[np.int64] = -(-tokens // self.block_tokens)
        if self.held is None:
            return blocks
        return np.array([self._needed_of(count) for count in blocks.tolist()], dtype=np.int64)

    def _needed_of(self, blocks: int) -> int:
        """Return the number of blocks that take the place of so many, remembered."""
        if blocks not in self._taken:
            self._taken[blocks] = self.needed(blocks * self.block_tokens)
        return self._taken[blocks]

    evicts: ClassVar[bool] = False
    """Whether something may make way for running requests, so that who waits has more to read."""

    @property
    def limit(self) -> float:
        """Return the most blocks that running requests can have without anything making way."""
        return self.total

    def make_way(self, used: int) -> None:
        """Let make way what has to, as running requests get ``used`` blocks in all; here
        nothing.
        """

    def room_of(self, tokens: int) -> int:
        """Return the tokens that fit the blocks of so many."""
        return -(-tokens // self.block_tokens) * self.block_tokens

    def hold(self, request: Request, tokens: int, spare: int = 0) -> bool:
        """Give ``request`` room for ``tokens`` in all if ``spare`` blocks then stay free; else
        change nothing, return False.
        """
        more = self.needed(tokens) - request.blocks
        if more > 0:
            used = self.used + more
            if used + spare > self.total:
                return False
            self.used = used
            self.most_used = max(self.most_used, used)
            request.blocks += more
        request.slots = max(request.slots, self.room_of(tokens))
        return True

    def cached(self, request: Request) -> int:
        """Return the tokens that a request which enters now need not compute: none, where nothing
        is kept.
        """
        return 0

    def share(self, request: Request, tokens: int) -> None:
        """Keep the first ``tokens`` of a prompt for others; here nobody shares."""

    def keep(self, request: Request, tokens: int) -> None:
        """Take back every block of ``request`` beyond those for ``tokens``."""
        excess = request.blocks - self.needed(tokens)
        if excess > 0:
            self.used -= excess
            request.blocks -= excess
        request.slots = min(request.slots, self.room_of(tokens))


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


class PrefixBlocks(Blocks):
    """A pool that keeps pieces of prompts when their requests have left, least recently used ones
    making way (LRU).
    """

    __slots__ = ("asked_tokens", "dropped", "evicted", "hit_tokens", "idle", "idle_blocks", "users")

    def __init__(self, block_tokens: int = 16, total: int | None = None, dropped: int = 0) -> None:
        super().__init__(block_tokens, total)
        self.dropped = dropped
        """Blocks at the end of what was found that are computed again."""
        self.users: dict[Hash, int] = {}
        """How many running requests have each piece that is in the cache."""
        self.idle: dict[Hash, int] = {}
        """Blocks of the pieces that nobody has, in the order in which they make way."""
        self.idle_blocks = self.evicted = 0
        """Blocks in ``idle``, and those that had to make way so far; ``used`` counts only what
        running requests have.
        """
        self.asked_tokens = self.hit_tokens = 0
        """Tokens of prompts that entered for the first time, and those of them that were in the
        cache.
        """

    def pieces(self, request: Request, tokens: int) -> Iterator[tuple[Hash, int]]:
        """Yield hash and blocks of the pieces that lie whole within the first ``tokens`` of a
        prompt.
        """
        for place, piece in enumerate(request.hashes):
            begin = place * HASHED_TOKENS
            blocks = min(HASHED_TOKENS, request.prompt_tokens - begin) // self.block_tokens
            if not blocks or begin + blocks * self.block_tokens > tokens:
                return
            yield piece, blocks

    def _found(self, request: Request) -> list[tuple[Hash, int]]:
        """Return the leading pieces of a prompt that are in the cache."""
        return list(
            takewhile(
                lambda piece: piece[0] in self.users, self.pieces(request, request.prompt_tokens)
            )
        )

    def cached(self, request: Request) -> int:
        """Return the tokens that a request which enters now need not compute."""
        known = sum(blocks for _, blocks in self._found(request)) * self.block_tokens
        return hit_tokens(
            known, request.prompt_tokens + request.tokens, self.block_tokens, self.dropped
        )

    def hold(self, request: Request, tokens: int, spare: int = 0) -> bool:
        """Give room as :meth:`Blocks.hold` does, to a request that enters with the pieces that are
        there; others make way.
        """
        if not request.blocks:
            found = self._found(request)
            woken = sum(self.idle.get(piece, 0) for piece, _ in found)
            shared = sum(blocks for _, blocks in found)
            if self.used + woken + self.needed(tokens) - shared + spare > self.total:
                return False
            for piece, _ in found:
                self._take(piece)
            request.blocks = shared
            request.shared = len(found)
            if not request.preemptions:
                self.asked_tokens += request.prompt_tokens
                self.hit_tokens += request.cached
        held = super().hold(request, tokens, spare)
        self.most_used = max(self.most_used, self.used)
        self.make_way(self.used)
        return held

    evicts: ClassVar[bool] = True

    @property
    def limit(self) -> float:
        """Return the most blocks that running requests can have before pieces make way."""
        return self.total - self.idle_blocks

    def make_way(self, used: int) -> None:
        """Evict pieces that nobody has until there are ``used`` blocks for running requests."""
        while self.idle and used + self.idle_blocks > self.total:
            piece = next(iter(self.idle))
            blocks = self.idle.pop(piece)
            del self.users[piece]
            self.idle_blocks -= blocks
            self.evicted += blocks

    def _take(self, piece: Hash) -> None:
        """Let one request more have a piece; what nobody had is in use again."""
        self.users[piece] += 1
        blocks = self.idle.pop(piece, 0)
        self.idle_blocks -= blocks
        self.used += blocks

    def share(self, request: Request, tokens: int) -> None:
        """Put the pieces within the first ``tokens`` of a prompt into the cache; a copy of what is
        there already is dropped.
        """
        for piece, blocks in islice(self.pieces(request, tokens), request.shared, None):
            if piece in self.users:
                self.used -= blocks
                self._take(piece)
            else:
                self.users[piece] = 1
            request.shared += 1

    def keep(self, request: Request, tokens: int) -> None:
        """Take back every block of ``request`` beyond those for ``tokens``; if it leaves, its
        pieces stay.
        """
        super().keep(request, tokens)
        if tokens:
            return
        for piece, blocks in reversed(
            list(islice(self.pieces(request, request.prompt_tokens), request.shared))
        ):
            self.users[piece] -= 1
            if self.users[piece]:
                self.used += blocks
            else:
                self.idle[piece] = blocks
                self.idle_blocks += blocks
        request.shared = 0


def cache_hits(pools: Sequence[Blocks]) -> dict[str, float]:
    """Return prompt tokens (once each), those that were cached, their share, and tokens evicted;
    nothing without caching.
    """
    kept = [pool for pool in pools if isinstance(pool, PrefixBlocks)]
    asked = sum(pool.asked_tokens for pool in kept)
    hit = sum(pool.hit_tokens for pool in kept)
    evicted = sum(pool.evicted * pool.block_tokens for pool in kept)
    counts = {
        "prompt_tokens": asked,
        "hit_tokens": hit,
        "hit_rate": hit / max(1, asked),
        "evicted_tokens": evicted,
    }
    if kept:
        return counts
    return {}


def above_watermark(share: float, longest_tokens: int, memory: Blocks) -> str | None:
    """Return why a request could not enter without touching the watermark; None if it can."""
    needed = memory.needed(longest_tokens - 1)
    if memory.total == inf or needed + int(share * memory.total) <= memory.total:
        return None
    room = int(memory.total) * memory.block_tokens
    enters = int(memory.total - int(share * memory.total)) * memory.block_tokens + 1
    return (
        f"a request of {longest_tokens:,} tokens could not enter: it leaves less than the "
        f"watermark of {share:g} "
        f"of a KV cache of {room:,} tokens; requests of up to {enters:,} can"
    )


class KVMemory(Frozen):
    """How the memory that the weights leave is used.

    ``utilisation`` is the share of a device's memory for weights and cache together (the rest:
    activations, workspace); ``kv_tokens`` states the room outright, for all requests together. With
    stated durations there is no device, and no limit unless ``kv_tokens`` says one.
    """

    block_tokens: int = Field(default=16, gt=0, le=1_000_000)
    """Tokens of a block of the cache."""
    utilisation: float = Field(default=0.9, gt=0, le=1)
    """Share of a device's memory for weights and cache together."""
    kv_tokens: int | None = Field(default=None, gt=0, le=1_000_000_000_000)
    """Room of the cache, stated outright; by default what the weights leave."""
    prefix_caching: bool | None = None
    """Whether blocks of prompts stay for requests that begin alike, as long as there is room; by
    default as the engine does it, where the traffic names prefixes (``hash_ids``) and every layer
    keeps all tokens."""

    def pool(
        self, room_tokens: int | None, held: Callable[[int], float] | None = None, dropped: int = 0
    ) -> Blocks:
        """Return an empty pool with room for so many tokens, in whole blocks; None: without a
        limit.

        ``dropped`` blocks at the end of a cached prompt are computed again.
        """
        total = None if room_tokens is None else room_tokens // self.block_tokens
        if self.prefix_caching:
            return PrefixBlocks(self.block_tokens, total, dropped)
        return Blocks(self.block_tokens, total, held)
