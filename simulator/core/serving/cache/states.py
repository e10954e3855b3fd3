"""Prefix caching of models whose layers keep a state instead of all tokens.

A state follows from all tokens before it and cannot be cut, so that a prompt goes on only where
one was kept. vLLM keeps them at whole blocks, where a pass ends or an output goes past one
(``mamba_cache_mode="align"``), and ends the passes of a prompt there::

    blocks        |-----|-----|-----|-----|-----|-----|--
    prompt        =================================>        two passes: the last whole block is
    passes        ------------------------------|---        the end of the first one
    states kept                                 o     o     the second o: the output went past

* *Hits* are the longest beginning whose blocks are there and that ends with a state. With a draft
  that reads hidden states blocks count up to the end of the prompt before one is dropped.
* *Room*: a state takes ``state_blocks`` blocks. It waits to be evicted from the moment it is kept,
  so it often goes before the blocks that it follows from.
* *The junction*: who finds more blocks than states ends a pass where the blocks found end, so that
  the third of those that begin alike goes on from there.

Source: vLLM 0.32.0, ``Scheduler._mamba_block_aligned_split`` and ``MambaManager``; recorded by
``benchmarks/live/vllm``. There a state that another request writes in the same pass is not found.
"""

from collections.abc import Callable

from simulator.core.serving.cache.prefixes import BlockRange, PrefixCache
from simulator.core.serving.load.content import Hash
from simulator.core.serving.requests import Request


class StateCache(PrefixCache):
    """A prefix cache in which a prompt goes on only from a state that was kept."""

    __slots__ = ("_places", "junctions", "state_blocks", "states")

    def __init__(
        self,
        block_tokens: int = 16,
        total: int | None = None,
        held: Callable[[int], float] | None = None,
        dropped: int = 0,
        state_blocks: int = 1,
    ) -> None:
        super().__init__(block_tokens, total, held, dropped)
        self.state_blocks = state_blocks
        """Blocks that a state takes, in all layers that have one."""
        self._places: dict[tuple[Hash, int], int] = {}
        """The number of each state among what waits to be evicted, where it is a range without
        blocks.
        """
        self.states: dict[Hash, set[int]] = {}
        """After which blocks of a name there is a state."""
        self.junctions: dict[int, int] = {}
        """Where the blocks end that requests found beyond their states, in tokens."""

    def _hit(self, request: Request, known: int, dropped: int) -> int:
        """Return the tokens that need not be computed where so many blocks are known, by the states
        that are kept; with as many ``dropped`` as here it is noted where states are missing.
        """
        needed = request.prompt_tokens + request.tokens
        most = (needed if dropped else needed - 1) // self.block_tokens
        reached = max(0, min(known, most) - dropped)
        with_state = 0
        for name, begin, end in self._stretches(request, reached):
            ends = [block for block in self.states.get(name, ()) if begin < block <= end]
            with_state = max(ends, default=with_state)
        if dropped == self.dropped:
            self._note_junction(request, with_state, reached)
        return with_state * self.block_tokens

    def _note_junction(self, request: Request, with_state: int, reached: int) -> None:
        """Note whether a request found more blocks than states."""
        if with_state < reached:
            self.junctions[request.index] = reached * self.block_tokens
        else:
            self.junctions.pop(request.index, None)

    def hold(self, request: Request, tokens: int, spare: int = 0) -> bool:
        """Give room as :meth:`PrefixCache.hold` does; a state that somebody goes on from waits
        anew.
        """
        enters = not request.blocks
        held = super().hold(request, tokens, spare)
        blocks = request.cached // self.block_tokens
        if enters and held and blocks:
            *_, (name, _, end) = self._stretches(request, blocks)
            self._keep_state(name, end)
        return held

    def share(self, request: Request, tokens: int) -> None:
        """Keep the first ``tokens`` of a request for others, and the states that belong to it: that
        at the end of a pass of its prompt, and those that its output goes past.
        """
        blocks = tokens // self.block_tokens
        for name, *_ in self._stretches(request, blocks):
            run = self.runs.get(name)
            there = run.end if run else 0
            for end in [end for end in self.states.get(name, ()) if end > there]:
                self._drop_state(name, end)
        first = blocks
        if request.state is not None:
            first = request.shared + 1
        elif tokens % self.block_tokens:
            first = blocks + 1
        super().share(request, tokens)
        for name, begin, end in self._stretches(request, blocks):
            for place in range(max(begin + 1, first), end + 1):
                self._keep_state(name, place)
        self.make_way(self.used)

    def _keep_state(self, name: Hash, end: int) -> None:
        """Let a state wait to be evicted, behind all others."""
        if (name, end) in self._places:
            self._drop_state(name, end)
        self._number += 1
        self.idle[self._number] = BlockRange(name, end, end)
        self._places[name, end] = self._number
        self.idle_blocks += self.state_blocks
        self.states.setdefault(name, set()).add(end)

    def _drop_state(self, name: Hash, end: int) -> None:
        """Give up a state."""
        del self.idle[self._places.pop((name, end))]
        self.idle_blocks -= self.state_blocks
        self.states[name].remove(end)

    def _evict(self, number: int, most: int) -> None:
        """Evict a state, or the last blocks of a stretch, not more than ``most``."""
        name, begin, end = self.idle[number]
        if begin == end:
            self._drop_state(name, end)
        else:
            super()._evict(number, most)

    def keep(self, request: Request, tokens: int) -> None:
        """Take back every block of ``request`` beyond those for ``tokens``."""
        super().keep(request, tokens)
        if not tokens:
            self.junctions.pop(request.index, None)

    def pass_tokens(self, request: Request, tokens: int, most_tokens: int) -> int:
        """Return how many of ``tokens`` that could be prefilled next are, so that the pass ends
        where a state is kept; ``most_tokens`` is what a pass takes.
        """
        unit = self.block_tokens
        begin = request.cached
        end = begin + tokens
        needed = request.prompt_tokens + request.tokens
        prefill_end = max(request.prompt_tokens, needed - 1)
        if begin >= prefill_end:
            return tokens
        whole = end // unit * unit
        if end < prefill_end and (whole > begin or unit <= most_tokens):
            end = whole
        last = needed // unit * unit - unit if self.dropped else (needed - 1) // unit * unit
        stops = [(begin // unit + 1) * unit if begin % unit else 0, last]
        junction = self.junctions.get(request.index, 0)
        if begin < junction < end:
            stops.append(begin + (junction - begin) // unit * unit)
        end = min((stop for stop in stops if begin < stop < end), default=end)
        return max(0, end - begin)
