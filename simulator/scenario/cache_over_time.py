"""How full the memories of a cache are over time: those of a replica, mean over the replicas of a
pool, as a run has noted them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from simulator.core.plain import PlainData
from simulator.core.serving.cache.occupancy import mean_most
from simulator.core.serving.cache.tiers import TieredCache
from simulator.core.serving.fleet.apart import ApartService
from simulator.core.serving.scheduler import Scheduler
from simulator.core.serving.service import ServiceRun

IN_USE, DEVICE = "in_use", "device"


@dataclass(frozen=True)
class Filled:
    """A level of a memory in each stretch of time."""

    name: str
    """``in_use``: what requests have that run; ``device``: that and what is kept; or a tier's."""
    tokens: Sequence[float]
    """The most tokens that it had room taken for in each stretch."""
    room_tokens: int | None
    """Tokens that there is room for; None without a limit."""


@dataclass(frozen=True)
class CacheOverTime:
    """The memories of a replica over time, mean over the replicas of a pool."""

    pool: str
    """Name of the pool; empty where there is one alone."""
    replicas: int
    stretch_s: float
    """Length of each stretch of time; the first one begins at 0."""
    token_bytes: float | None
    """Bytes of a token; None where nobody says, or tokens of one request take different room."""
    levels: Sequence[Filled]

    def data(self) -> PlainData:
        """Return it as plain data for JSON."""
        levels = []
        for level in self.levels:
            told = {"room_tokens": level.room_tokens, "most_tokens": list(level.tokens)}
            levels.append({"name": level.name, **told})
        return {
            "pool": self.pool,
            "replicas": self.replicas,
            "stretch_s": self.stretch_s,
            "token_bytes": self.token_bytes,
            "levels": levels,
        }


def caches_over_time(done: ServiceRun) -> Iterator[CacheOverTime]:
    """Yield the memories over time of each pool that keeps prompts; nothing where replicas come and
    go, as a mean over them would count places in which there is none.
    """
    if done.scaled:
        return
    service = done.service
    if not isinstance(service, ApartService):
        yield from _over_time("", done.replicas, service.block_bytes)
        return
    first = 0
    for pool in service.pools:
        last = first + pool.service.serving.replicas
        yield from _over_time(pool.name, done.replicas[first:last], pool.service.block_bytes)
        first = last


def _over_time(
    pool: str, replicas: Sequence[Scheduler], block_bytes: float
) -> Iterator[CacheOverTime]:
    """Yield the memories over time of these replicas, if they keep prompts."""
    series = [replica.ledger.occupancy for replica in replicas if replica.ledger.occupancy]
    if not series:
        return
    memory = replicas[0].memory
    rooms = [memory.total, memory.total]
    names = [IN_USE, DEVICE]
    if isinstance(memory, TieredCache):
        names += [link.tier.name for link in memory.tiers]
        rooms += [link.store.room for link in memory.tiers]
    each = memory.block_tokens
    stretch_s, most = mean_most(series)
    levels = []
    for name, blocks, room in zip(names, most, rooms, strict=True):
        room_tokens = None if room == inf else int(room) * each
        levels.append(Filled(name, (blocks * each).tolist(), room_tokens))
    token_bytes = None
    if block_bytes and memory.held is None:
        token_bytes = block_bytes / each
    yield CacheOverTime(pool, len(replicas), stretch_s, token_bytes, levels)
