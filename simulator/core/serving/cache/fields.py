"""How the memory that the weights leave is used, as a scenario states it."""

from collections.abc import Callable

from pydantic import Field

from simulator.core.quantities import Frozen
from simulator.core.serving.cache.memory import Blocks
from simulator.core.serving.cache.prefixes import PrefixCache
from simulator.core.serving.cache.states import StateCache


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

    def pool(
        self, room_tokens: int | None, held: Callable[[int], float] | None = None, dropped: int = 0
    ) -> Blocks:
        """Return an empty pool with room for so many tokens, in whole blocks; None: without a
        limit.

        ``dropped`` blocks at the end of a cached prompt are computed again, if any are.
        """
        total = None if room_tokens is None else room_tokens // self.block_tokens
        if self.prefix_caching:
            dropped = dropped if self.drops_last_block else 0
            if self.state_blocks:
                return StateCache(self.block_tokens, total, held, dropped, self.state_blocks)
            return PrefixCache(self.block_tokens, total, held, dropped)
        return Blocks(self.block_tokens, total, held)
