"""How the memory that the weights leave is used, as a scenario states it."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

from pydantic import Field, model_validator

from simulator.core.quantities import Frozen
from simulator.core.serving.cache.memory import Blocks
from simulator.core.serving.cache.prefixes import PrefixCache
from simulator.core.serving.cache.states import StateCache
from simulator.core.serving.cache.tiers import (
    BlockStore,
    HitRule,
    MemoryTier,
    TieredCache,
    TierLink,
)

NO_STORES: Mapping[str, BlockStore] = MappingProxyType({})


class KVMemory(Frozen):
    """How the memory that the weights leave is used.

    ``utilisation`` is the share of a device's memory for weights and cache together (the rest:
    activations, workspace); ``kv_tokens`` states the room outright, for all requests together. With
    stated durations there is no device, and no limit unless ``kv_tokens`` says one.
    """

    block_tokens: int = Field(default=16, gt=0, le=1_000_000)
    """Tokens of a block of the cache; with prefix caching by default those of the engine and
    model."""
    utilisation: float = Field(default=0.9, gt=0, le=1)
    """Share of a device's memory for weights and cache together."""
    kv_tokens: int | None = Field(default=None, gt=0, le=1_000_000_000_000)
    """Room of the cache, stated outright; by default what the weights leave."""
    prefix_caching: bool | None = None
    """Whether blocks stay for requests that begin alike, as long as there is room; by default as
    the engine does it, where prefixes have names: those of sessions, and of traffic with
    ``hash_ids``."""
    drops_last_block: bool = True
    """Whether a draft that reads hidden states of the target has the last block of what is found
    computed again, as in vLLM and SGLang; false where blocks are hashed with their successors
    (vllm#50897), or with ``disable_eagle_block_drop``."""
    state_blocks: int = Field(default=0, ge=0, le=1_000_000)
    """Blocks that a state takes in all layers that have one, where a prompt goes on only from
    states that were kept as a pass ended at a whole block, and passes end there for them; by
    default so in vLLM (with the policy ``unified_budget``). 0: wherever blocks are found."""

    tiers: tuple[MemoryTier, ...] = Field(default=(), max_length=8)
    """Memories below the device's that keep blocks of prompts, the nearest one first."""
    hit: HitRule = "load"
    """What is done with blocks in a lower tier: loaded, as in vLLM, computed again, or whichever is
    quicker over a link that is free.
    """
    prefetch: Literal["none", "queued"] = "none"
    """When a load begins: as a request could be admitted, as in vLLM, or as it is queued."""
    token_bytes: float | None = Field(default=None, gt=0, le=1e15)
    """Bytes of a token in the tiers, stated outright; by default as target and draft have it."""

    @model_validator(mode="after")
    def _names_of_tiers(self) -> "KVMemory":
        if self.tiers and self.tiers[0].via_above:
            raise ValueError("tiers: there is none above the first; leave its via_above out")
        names = [tier.name for tier in self.tiers]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"tiers: two are called '{name}'; reports tell them by their names"
                )
        return self

    def stores(self, block_bytes: float, shared: bool | None = None) -> dict[str, BlockStore]:
        """Return empty tiers by name, all or those that replicas share; one without any room is
        left out.
        """
        stores = {}
        for tier in self.tiers:
            room = tier.room_blocks(self.block_tokens, block_bytes)
            if room and shared in (None, tier.shared_by_replicas):
                stores[tier.name] = BlockStore(room)
        return stores

    def pool(
        self,
        room_tokens: int | None,
        held: Callable[[int], float] | None = None,
        dropped: int = 0,
        block_bytes: float = 0.0,
        shared: Mapping[str, BlockStore] = NO_STORES,
    ) -> Blocks:
        """Return an empty pool with room for so many tokens, in whole blocks; None: without a
        limit.

        ``dropped`` blocks at the end of a cached prompt are computed again, if any are. A block has
        ``block_bytes`` in the tiers below; ``shared`` are those that other pools have as well, by
        name.
        """
        total = None if room_tokens is None else room_tokens // self.block_tokens
        if self.prefix_caching:
            dropped = dropped if self.drops_last_block else 0
            if self.state_blocks:
                return StateCache(self.block_tokens, total, held, dropped, self.state_blocks)
            stores = {**self.stores(block_bytes), **shared}
            links = [
                TierLink(tier, stores[tier.name]) for tier in self.tiers if tier.name in stores
            ]
            if links:
                return TieredCache(
                    self.block_tokens, total, held, dropped, links, block_bytes, self.hit
                )
            return PrefixCache(self.block_tokens, total, held, dropped)
        return Blocks(self.block_tokens, total, held)
