"""KV memory in blocks: what a request holds grows with its tokens and shrinks when rejected ones
are dropped.

A block has room for ``block_tokens`` tokens in every layer of the target and, where there is one,
of the draft: both caches hold the same tokens, so one table serves both. Branches that a draft
tries out and drops within a step are not counted.
"""

from collections.abc import Callable
from math import ceil, inf
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from simulator.core.serving.load.content import Hash
from simulator.core.serving.requests import Request

Report = Callable[[Hash, int], object]
"""Takes the report that a name is in a cache up to a token; 0: nothing of it any more."""


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

    @property
    def kept_blocks(self) -> int:
        """Return how many blocks are kept that no running request has; here none are."""
        return 0

    @property
    def levels(self) -> tuple[int, ...]:
        """Return the blocks that running requests have, those of the device that are occupied, and
        those of each tier below.
        """
        return self.used, self.used + self.kept_blocks

    evicts: ClassVar[bool] = False
    """Whether something may make way for running requests, so that who waits has more to read."""

    def make_way(self, used: int) -> None:
        """Let make way what has to, as running requests get ``used`` blocks in all; here
        nothing.
        """

    def room_of(self, tokens: int) -> int:
        """Return the tokens that fit the blocks of so many."""
        return -(-tokens // self.block_tokens) * self.block_tokens

    def fits(self, request: Request, tokens: int) -> bool:
        """Return whether there is room for ``tokens`` of ``request`` in all."""
        return self.used + self.needed(tokens) - request.blocks <= self.total

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

    def forget(self) -> None:
        """Drop everything that no running request has; here nothing is kept."""

    def report_to(self, report: Report) -> None:
        """Report from now on up to which token a name is there; here nothing is kept."""

    def pass_tokens(self, request: Request, tokens: int, most_tokens: int) -> int:
        """Return how many of ``tokens`` that could be prefilled next are, of ``most_tokens`` that a
        pass takes; here all.
        """
        return tokens

    def keep(self, request: Request, tokens: int) -> None:
        """Take back every block of ``request`` beyond those for ``tokens``."""
        excess = request.blocks - self.needed(tokens)
        if excess > 0:
            self.used -= excess
            request.blocks -= excess
        request.slots = min(request.slots, self.room_of(tokens))


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
