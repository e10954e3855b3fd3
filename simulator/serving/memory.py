"""KV memory in blocks: what a request holds grows with its tokens and shrinks when rejected ones are dropped.

A block has room for ``block_tokens`` tokens in every layer of the target and, where there is one, of the draft: both caches
hold the same tokens, so one table serves both. Branches that a draft tries out and drops within a step are not counted.
"""

from collections.abc import Callable
from math import ceil, inf

from pydantic import Field

from simulator.files.schema import Frozen
from simulator.serving.requests import Request


class Blocks:
    """Counts the KV blocks of a pool; which of them a request gets makes no difference to its time."""

    __slots__ = ("block_tokens", "held", "most_used", "total", "used")

    def __init__(self, block_tokens: int = 16, total: int | None = None, held: Callable[[int], float] | None = None) -> None:
        self.block_tokens = block_tokens
        self.total: float = inf if total is None else total
        self.used = self.most_used = 0
        self.held = held
        """How many tokens' room a request of so many tokens takes, where that is not their number (windows, states)."""

    def needed(self, tokens: int) -> int:
        """Return the number of blocks for so many tokens."""
        blocks = -(-tokens // self.block_tokens)
        return blocks if self.held is None or not tokens else ceil(self.held(blocks * self.block_tokens) / self.block_tokens)

    def hold(self, request: Request, tokens: int, spare: int = 0) -> bool:
        """Give ``request`` room for ``tokens`` in all if ``spare`` blocks then stay free; else change nothing, return False."""
        more = self.needed(tokens) - request.blocks
        if more > 0:
            used = self.used + more
            if used + spare > self.total:
                return False
            self.used = used
            self.most_used = max(self.most_used, used)
            request.blocks += more
        request.slots = max(request.slots, -(-tokens // self.block_tokens) * self.block_tokens)
        return True

    def keep(self, request: Request, tokens: int) -> None:
        """Take back every block of ``request`` beyond those for ``tokens``."""
        excess = request.blocks - self.needed(tokens)
        if excess > 0:
            self.used -= excess
            request.blocks -= excess
        request.slots = min(request.slots, -(-tokens // self.block_tokens) * self.block_tokens)


class KVMemory(Frozen):
    """How the memory that the weights leave is used.

    ``utilisation`` is the share of a device's memory for weights and cache together (the rest: activations,
    workspace); ``kv_tokens`` states the room outright, for all requests together. With stated durations
    there is no device, and no limit unless ``kv_tokens`` says one.
    """

    block_tokens: int = Field(default=16, gt=0)
    """Tokens of a block of the cache."""
    utilisation: float = Field(default=0.9, gt=0, le=1)
    """Share of a device's memory for weights and cache together."""
    kv_tokens: int | None = Field(default=None, gt=0)
    """Room of the cache, stated outright; by default what the weights leave."""

    def pool(self, room_tokens: int | None, held: Callable[[int], float] | None = None) -> Blocks:
        """Return an empty pool with room for so many tokens, in whole blocks; None: without a limit."""
        return Blocks(self.block_tokens, None if room_tokens is None else room_tokens // self.block_tokens, held)
