"""Indexes of prefixes: what should be in a cache, by what was sent there and by its reports.

An index knows names (:mod:`simulator.core.serving.load.content`), each up to which token of a
prompt it stands for.
"""

from collections import deque
from collections.abc import Callable
from math import inf

from simulator.core.serving.load.content import Hash
from simulator.core.serving.requests import Request


def matched_tokens(request: Request, known: Callable[[Hash], float]) -> int:
    """Return how many leading tokens of a prompt are known; ``known`` says up to which token those
    of a name are, 0 where none are. As a name stands for everything before it, one is enough.
    """
    ends = [min(known(name), end, request.prompt_tokens) for name, end in request.prefixes]
    return int(max(ends, default=0))


class SentPrefixes:
    """The prompts that a replica was sent, as a tree of which nothing is evicted."""

    def __init__(self) -> None:
        self._ends: dict[Hash, int] = {}
        self.tokens = 0
        """Tokens of all prompts, those that they have in common counted once."""

    def matched(self, request: Request) -> int:
        """Return how many leading tokens of a prompt were sent before."""
        return matched_tokens(request, lambda name: self._ends.get(name, 0))

    def send(self, request: Request) -> None:
        """Note that a prompt was sent."""
        begin = 0
        for name, end in request.prefixes:
            tokens = int(min(end, request.prompt_tokens))
            before = self._ends.get(name, begin)
            if tokens > before:
                self._ends[name] = tokens
                self.tokens += tokens - before
            begin = tokens


class Predicted:
    """What was sent, each name for ``ttl_s`` seconds since the last time."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._entries: dict[Hash, tuple[int, float]] = {}
        """By name: up to which token, and until when."""

    def known(self, name: Hash, now: float) -> float:
        """Return up to which token a name is known, 0 where it is not or no more."""
        tokens, until_s = self._entries.get(name, (0, -inf))
        return tokens if now < until_s else 0

    def send(self, request: Request, now: float) -> None:
        """Note that a prompt was sent."""
        for name, end in request.prefixes:
            tokens = int(min(end, request.prompt_tokens))
            known = int(self.known(name, now))
            self._entries[name] = max(tokens, known), now + self._ttl_s


class Reported:
    """What a cache reports of itself, known ``stale_s`` seconds later."""

    def __init__(self, stale_s: float, clock: Callable[[], float]) -> None:
        self._stale_s = stale_s
        self._clock = clock
        self._coming: deque[tuple[float, Hash, int]] = deque()
        """Reports on their way: when they come, the name, up to which token it is there."""
        self._ends: dict[Hash, int] = {}

    def report(self, name: Hash, tokens: int) -> None:
        """Take a report that a name is there up to a token; 0: nothing of it any more."""
        self._coming.append((self._clock() + self._stale_s, name, tokens))

    def known(self, name: Hash, now: float) -> float:
        """Return up to which token a name is known, 0 where it is not."""
        while self._coming and self._coming[0][0] <= now:
            _, reported, tokens = self._coming.popleft()
            if tokens:
                self._ends[reported] = tokens
            else:
                self._ends.pop(reported, None)
        return self._ends.get(name, 0)
