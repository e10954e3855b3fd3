"""Tiers of KV memory below a device: what a prefix cache evicts may stay in the host's memory, and
what makes way there in a remote store. A hit in a lower tier is loaded over a link instead of being
computed.

::

    device    |########|                       blocks 0 to 7: found, nothing to do
    host               |######|                8 to 13: loaded over the host's link
    remote                    |####|           14 to 17: loaded over the store's link
    prompt    ==============================>  18 to the end: computed

* *Writing* ``through``: a block is copied as it is filled on the device (vLLM's offloading
  connector, ``write_through`` of SGLang's HiCache). ``on_eviction``: it moves as the tier above
  evicts it (``write_back``). Copies go the other way of a link and nobody waits for them.
* *Eviction* from a tier: the block used longest ago, and of a request the last one first.
* *Loading* leaves the copy where it is. Transfers of a tier take its link one after the other.
* *Two hops*: with ``via_above`` what is loaded goes to the tier above first, and on from there once
  all of it has come, over that tier's link; a copy stays there (HiCache, LMCache: remote to host to
  device).
* *The law*: with ``s`` seconds of start-up, ``b`` bytes a token, a bandwidth ``B``, and ``c``
  seconds to compute a token, n* tokens are loaded as quickly as computed
  (:func:`crossover_tokens`)::

    s + n b / B = c n    <=>    n* = s / (c - b / B)

  as the pass that follows is there in any case: the last token of a prompt is always computed.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal, NamedTuple, TypeAlias

from pydantic import Field, model_validator

from simulator.core.cost.device import UNMEASURED_START_US, Link
from simulator.core.quantities import Frozen, Ranged
from simulator.core.serving.cache.memory import Blocks
from simulator.core.serving.cache.prefixes import PrefixCache
from simulator.core.serving.load.content import Hash
from simulator.core.serving.requests import Request
from simulator.core.world import Lane, World

BlockKey: TypeAlias = tuple[Hash, int]
"""A block: a name, and its place counted from the beginning of the prompt."""
HitRule = Literal["load", "recompute", "cheaper"]
FROM, LOAD = "from", "load"
"""How the lane of a tier's link begins, and what is on it."""
MOST_CONNECTIONS = 1_024
"""Links side by side; far beyond any server."""


def crossover_tokens(
    start_up_s: float, bandwidth_bytes_s: float, token_bytes: float, token_s: float
) -> float:
    """Return the tokens from which on a hit in a tier is loaded more quickly than it is computed;
    infinity where a token takes the link longer than the device.

    ``start_up_s`` is what a transfer takes whatever its size, ``token_s`` the seconds in which the
    device computes a token more.
    """
    saved_s = token_s - token_bytes / bandwidth_bytes_s
    if saved_s <= 0.0:
        return inf
    return start_up_s / saved_s


class MemoryTier(Frozen):
    """A memory below the device's that keeps blocks, and the link over which they are loaded.

    The room is that of a replica, in ``room_gb`` (1e9 bytes) or in ``room_tokens``; with neither
    there is no limit. What is written is by default what vLLM's native offloading does (0.32,
    ``OffloadingConnector``: blocks are stored as they are filled).
    """

    name: str = Field(min_length=1, max_length=40)
    """What reports call it."""
    room_gb: float | None = Field(default=None, ge=0, le=1e9)
    """Room in 1e9 bytes."""
    room_tokens: int | None = Field(default=None, ge=0, le=1_000_000_000_000)
    """Room in tokens."""
    link: Link
    """The link between it and the device; the time of a load is that of this link."""
    start_up_us: Ranged = UNMEASURED_START_US
    """What every load takes beyond the link's latency, in us: look-up, metadata."""
    connections: int = Field(default=1, gt=0, le=MOST_CONNECTIONS)
    """Links side by side that share out a load, as one for each device of the target."""
    write: Literal["through", "on_eviction"] = "through"
    """When blocks come here: as they are filled on the device, or as the tier above evicts them."""
    via_above: bool = False
    """Whether a load goes to the tier above over this link, and on over that tier's, where a copy
    stays; else straight to the device.
    """
    shared_by_replicas: bool = False
    """Whether all replicas find each other's blocks here; each has a link of its own. The room is
    then that of all together.
    """

    @model_validator(mode="after")
    def _one_room(self) -> "MemoryTier":
        if self.room_gb is not None and self.room_tokens is not None:
            raise ValueError("room_gb and room_tokens both state its room; leave one of them out")
        return self

    def seconds(self, size_bytes: float) -> float:
        """Return the seconds for which a load of so many bytes has the link."""
        share = size_bytes / self.connections
        return self.start_up_us.value * 1e-6 + self.link.transfer_seconds(share)

    def room_blocks(self, block_tokens: int, block_bytes: float) -> float:
        """Return how many blocks there is room for; infinity without a limit."""
        if self.room_tokens is not None:
            return self.room_tokens // block_tokens
        if self.room_gb is None:
            return inf
        return self.room_gb * 1e9 // block_bytes if block_bytes else inf


class BlockStore:
    """The blocks of a tier, of which the one used longest ago makes way (LRU)."""

    __slots__ = ("blocks", "evicted", "room")

    def __init__(self, room: float) -> None:
        self.room = room
        self.blocks = OrderedDict[BlockKey, None]()
        """What is here, the one to make way first at the front."""
        self.evicted = 0
        """Blocks that had to make way so far."""

    def put(self, keys: Iterable[BlockKey]) -> tuple[int, list[BlockKey]]:
        """Take up blocks, the last of a request first; return how many were not here, and what had
        to make way.
        """
        blocks = self.blocks
        written = 0
        for key in keys:
            if key in blocks:
                blocks.move_to_end(key)
            else:
                blocks[key] = None
                written += 1
        gone = []
        while len(blocks) > self.room:
            key, _ = blocks.popitem(last=False)
            gone.append(key)
        self.evicted += len(gone)
        return written, gone

    def touch(self, keys: Iterable[BlockKey]) -> None:
        """Note that those of these blocks that are here have been used."""
        for key in keys:
            if key in self.blocks:
                self.blocks.move_to_end(key)


class TierLink:
    """A tier as one replica sees it: the blocks there, its link, and the books of both."""

    __slots__ = (
        "busy_s",
        "free_s",
        "hit_tokens",
        "lane",
        "loaded_blocks",
        "loads",
        "store",
        "tier",
        "written_blocks",
    )

    def __init__(self, tier: MemoryTier, store: BlockStore) -> None:
        self.tier = tier
        self.store = store
        self.free_s = 0.0
        """When the link has carried all that it is to load."""
        self.busy_s = 0.0
        self.lane: Lane | None = None
        """The lane on which loads are drawn; None in a replay."""
        self.hit_tokens = self.loads = self.loaded_blocks = self.written_blocks = 0

    def book(self, now: float, blocks: int, block_bytes: float) -> float:
        """Load so many blocks as soon as the link is free; return when they are there."""
        seconds = self.tier.seconds(blocks * block_bytes)
        begin_s = max(now, self.free_s)
        self.free_s = begin_s + seconds
        self.busy_s += seconds
        if self.lane:
            self.lane.book(begin_s, self.free_s, LOAD)
        self.loads += 1
        self.loaded_blocks += blocks
        return self.free_s


class LowerHit(NamedTuple):
    """Blocks ``begin`` to ``end`` of a request, which lie in the tier at place ``depth``."""

    depth: int
    begin: int
    end: int


class Hop(NamedTuple):
    """Blocks that are at the tier at place ``depth`` at a time, and go on over its link."""

    at_s: float
    depth: int
    blocks: int


@dataclass(slots=True, eq=False)
class BlockLoad:
    """Blocks on their way to the device for a request that waits for them."""

    request: Request
    guest: Request
    """Who holds the blocks until they are there."""
    hits: list[LowerHit]
    begun_s: float
    end_s: float
    """When all of it has come that has a link, in seconds."""
    hops: list[Hop] = field(default_factory=list)
    """What has no link yet: it is still on the way to the tier from which it goes on."""

    @property
    def next_s(self) -> float:
        """Return when a part of it takes its next link, or all of it has come, in seconds."""
        return min((hop.at_s for hop in self.hops), default=self.end_s)

    @property
    def blocks(self) -> int:
        """Return how many leading blocks of the request are on the device afterwards."""
        return self.hits[-1].end


class TieredCache(PrefixCache):
    """A prefix cache with tiers below it."""

    __slots__ = (
        "barred",
        "block_bytes",
        "load_s",
        "loaded",
        "planning",
        "prefill_s",
        "rule",
        "tiers",
    )

    def __init__(
        self,
        block_tokens: int = 16,
        total: int | None = None,
        held: Callable[[int], float] | None = None,
        dropped: int = 0,
        tiers: Sequence[TierLink] = (),
        block_bytes: float = 0.0,
        rule: HitRule = "load",
    ) -> None:
        super().__init__(block_tokens, total, held, dropped)
        self.tiers = tiers
        self.block_bytes = block_bytes
        """Bytes of a block in all layers of target and draft."""
        self.loaded: dict[int, list[LowerHit]] = {}
        """What was loaded for requests that have not entered yet, by their index."""
        self.load_s = 0.0
        """Seconds for which requests waited for loads, summed over requests."""
        self.rule: HitRule = rule
        self.prefill_s: Callable[[Request, int], float] = lambda request, cached: 0.0
        """Seconds in which a request is read with so many tokens in the cache."""
        self.planning = self.barred = False
        """Whether a policy is planning, and whether it was refused a request that has blocks in a
        lower tier: they made way on the device just now.
        """

    def draw_on(self, world: World) -> None:
        """Draw loads on a lane of the world for each tier."""
        for link in self.tiers:
            link.lane = world.lane(f"{FROM} {link.tier.name}")

    def hold(self, request: Request, tokens: int, spare: int = 0) -> bool:
        """Give room as :meth:`PrefixCache.hold` does; not to a request that has to load blocks
        before it enters.
        """
        if self.planning and not request.blocks and self.wanted(request):
            self.barred = True
            return False
        return super().hold(request, tokens, spare)

    def forget(self) -> None:
        """Drop everything that no running request has, and what is in tiers of this replica alone;
        nothing is written to others.
        """
        tiers, self.tiers = self.tiers, ()
        super().forget()
        self.tiers = tiers
        for link in tiers:
            if not link.tier.shared_by_replicas:
                link.store.blocks.clear()

    @property
    def levels(self) -> tuple[int, ...]:
        """Return the blocks that running requests have, those of the device that are occupied, and
        those of each tier.
        """
        return *super().levels, *(len(link.store.blocks) for link in self.tiers)

    # ---- what goes down

    def _filled(self, name: Hash, begin: int, end: int) -> None:
        super()._filled(name, begin, end)
        for depth, link in enumerate(self.tiers):
            if link.tier.write == "through":
                self._write(depth, _last_first(name, begin, end))

    def _dropped(self, name: Hash, begin: int, end: int) -> None:
        super()._dropped(name, begin, end)
        self._pass_down(0, _last_first(name, begin, end))

    def _pass_down(self, depth: int, keys: Iterable[BlockKey]) -> None:
        """Let the tier at ``depth`` have what the one above evicts, if it takes that."""
        if depth < len(self.tiers) and self.tiers[depth].tier.write == "on_eviction":
            self._write(depth, keys)

    def _write(self, depth: int, keys: Iterable[BlockKey]) -> None:
        link = self.tiers[depth]
        written, gone = link.store.put(keys)
        link.written_blocks += written
        if gone:
            self._pass_down(depth + 1, gone)

    # ---- what comes up

    def lower_hits(self, request: Request) -> list[LowerHit]:
        """Return where the blocks lie with which a request could go on behind those on the device,
        in order.
        """
        needed_tokens = request.prompt_tokens + request.tokens
        hits: list[LowerHit] = []
        known = self.known(request)
        for name, block in self._keys(request, known, (needed_tokens - 1) // self.block_tokens):
            depth = self._depth_of((name, block))
            if depth is None:
                break
            if hits and hits[-1].depth == depth:
                hits[-1] = hits[-1]._replace(end=block + 1)
            else:
                hits.append(LowerHit(depth, block, block + 1))
        return hits

    def _depth_of(self, key: BlockKey) -> int | None:
        for depth, link in enumerate(self.tiers):
            if key in link.store.blocks:
                return depth
        return None

    def _keys(self, request: Request, begin: int, end: int) -> Iterator[BlockKey]:
        """Yield blocks ``begin`` to ``end`` of a request."""
        for name, first, last in self._stretches(request, end):
            for block in range(max(begin, first), last):
                yield name, block

    def wanted(self, request: Request) -> list[LowerHit]:
        """Return which blocks in lower tiers a request loads before it enters."""
        if self.rule == "recompute":
            return []
        hits = self.lower_hits(request)
        if not hits or self._tokens_with(request, hits) <= self.cached(request):
            return []
        if self.rule == "load":
            return hits
        return self._quickest(request, hits)

    def _tokens_with(self, request: Request, hits: Sequence[LowerHit]) -> int:
        """Return the tokens that a request need not compute once these blocks are there."""
        return self._hit(request, hits[-1].end, self.dropped)

    def _quickest(self, request: Request, hits: list[LowerHit]) -> list[LowerHit]:
        """Return as many of the leading ``hits`` as make loading and computing the rest quickest;
        none where that is no quicker than computing all.
        """
        best: list[LowerHit] = []
        best_s = self.prefill_s(request, self.cached(request))
        for count in range(1, len(hits) + 1):
            chosen = hits[:count]
            computed_s = self.prefill_s(request, self._tokens_with(request, chosen))
            seconds = self._link_s(chosen) + computed_s
            if seconds < best_s:
                best, best_s = chosen, seconds
        return best

    def _link_s(self, hits: Iterable[LowerHit]) -> float:
        """Return the seconds in which blocks are loaded over links that are free."""
        free_s = [0.0] * len(self.tiers)
        loaded_s = 0.0
        for depth, blocks in blocks_by_depth(hits).items():
            come_s = 0.0
            for place in self._way(depth):
                seconds = self.tiers[place].tier.seconds(blocks * self.block_bytes)
                come_s = free_s[place] = max(free_s[place], come_s) + seconds
            loaded_s = max(loaded_s, come_s)
        return loaded_s

    def _way(self, depth: int) -> Iterator[int]:
        """Yield the places of the tiers whose links a load takes, in turn."""
        yield depth
        while depth and self.tiers[depth].tier.via_above:
            depth -= 1
            yield depth

    def refresh(self, guest: Request) -> None:
        """Let the blocks that a request has on the device be the last ones to make way; ``guest``
        holds them for the moment.
        """
        known = self.known(guest)
        if self._enter(guest, known, known * self.block_tokens, 0):
            guest.cached = known * self.block_tokens
            self.keep(guest, 0)

    def begin_load(
        self, request: Request, guest: Request, hits: list[LowerHit], now: float, spare: int
    ) -> BlockLoad | None:
        """Hold room for blocks and book their way if ``spare`` blocks then stay free; None if there
        is no room.
        """
        tokens = hits[-1].end * self.block_tokens
        if not self._enter(guest, hits[0].begin, tokens, spare):
            return None
        Blocks.hold(self, guest, tokens, spare)
        self.make_way(self.used)
        by_depth = sorted(blocks_by_depth(hits).items())
        hops = [Hop(now, depth, blocks) for depth, blocks in by_depth]
        load = BlockLoad(request, guest, hits, now, now, hops)
        self.go_on([load], now)
        return load

    def go_on(self, loads: Iterable[BlockLoad], now: float) -> None:
        """Book the links of what goes on from a tier by ``now``, first come, first served."""
        while True:
            due = [(load.next_s, load) for load in loads if load.hops and load.next_s <= now]
            if not due:
                return
            at_s, load = min(due, key=lambda entry: entry[0])
            hop = next(hop for hop in load.hops if hop.at_s == at_s)
            load.hops.remove(hop)
            end_s = self.tiers[hop.depth].book(at_s, hop.blocks, self.block_bytes)
            if hop.depth and self.tiers[hop.depth].tier.via_above:
                load.hops.append(Hop(end_s, hop.depth - 1, hop.blocks))
            else:
                load.end_s = max(load.end_s, end_s)

    def end_load(self, load: BlockLoad) -> None:
        """Let blocks that have come wait for the request, as the last ones to make way."""
        guest = load.guest
        self.load_s += load.end_s - load.begun_s
        guest.cached = load.blocks * self.block_tokens
        self.keep(guest, 0)
        request = load.request
        for depth, begin, end in reversed(load.hits):
            keys = list(self._keys(request, begin, end))
            for place in [*self._way(depth)][1:]:
                self._write(place, reversed(keys))
        if request.preemptions:
            return
        before = self.loaded.get(request.index, [])
        first = load.hits[0].begin
        kept = [hit._replace(end=min(hit.end, first)) for hit in before if hit.begin < first]
        self.loaded[request.index] = kept + load.hits

    def give_up(self, load: BlockLoad) -> None:
        """Let nobody wait for blocks that are on their way."""
        load.guest.cached = load.hits[0].begin * self.block_tokens
        self.keep(load.guest, 0)

    def _enter(self, request: Request, known: int, tokens: int, spare: int) -> bool:
        if not super()._enter(request, known, tokens, spare):
            return False
        used = list(self._keys(request, 0, known))
        used.reverse()
        for link in self.tiers:
            link.store.touch(used)
        return True

    def _count(self, request: Request, known: int) -> None:
        super()._count(request, known)
        cached = request.cached // self.block_tokens
        for depth, begin, end in self.loaded.pop(request.index, ()):
            blocks = max(0, min(end, cached) - begin)
            self.tiers[depth].hit_tokens += blocks * self.block_tokens


def _last_first(name: Hash, begin: int, end: int) -> Iterator[BlockKey]:
    return ((name, block) for block in range(end - 1, begin - 1, -1))


def blocks_by_depth(hits: Iterable[LowerHit]) -> dict[int, int]:
    """Return how many blocks come from each tier, by its place."""
    blocks: dict[int, int] = {}
    for depth, begin, end in hits:
        blocks[depth] = blocks.get(depth, 0) + end - begin
    return blocks


def load_seconds(pools: Sequence[Blocks]) -> float:
    """Return the seconds for which requests waited for loads, summed over requests and pools; what
    overlaps with the queue counts as well.
    """
    return sum(pool.load_s for pool in pools if isinstance(pool, TieredCache))


def tier_books(pools: Sequence[Blocks]) -> dict[str, Mapping[str, float]]:
    """Return the books of the tiers of all replicas together, by name; nothing without tiers.

    Hits are tokens of prompts that entered for the first time, as in
    :func:`simulator.core.serving.cache.prefixes.cache_hits`; ``link_busy_s`` is how long links were
    loading, summed over links.
    """
    tiered = [pool for pool in pools if isinstance(pool, TieredCache)]
    books: dict[str, Mapping[str, float]] = {}
    for place in range(len(tiered[0].tiers) if tiered else 0):
        links = [pool.tiers[place] for pool in tiered]
        stores = {id(link.store): link.store for link in links}.values()
        unit = tiered[0].block_tokens
        moved_bytes = [0.0, 0.0]
        for pool in tiered:
            link = pool.tiers[place]
            moved_bytes[0] += link.loaded_blocks * pool.block_bytes
            moved_bytes[1] += link.written_blocks * pool.block_bytes
        loaded = sum(link.loaded_blocks for link in links)
        books[links[0].tier.name] = {
            "hit_tokens": sum(link.hit_tokens for link in links),
            "loads": sum(link.loads for link in links),
            "loaded_tokens": loaded * unit,
            "loaded_bytes": moved_bytes[0],
            "written_bytes": moved_bytes[1],
            "link_busy_s": sum(link.busy_s for link in links),
            "kept_tokens": sum(len(store.blocks) for store in stores) * unit,
            "evicted_tokens": sum(store.evicted for store in stores) * unit,
        }
    return books
