"""Loads under which schedules are recorded: limits of a server, and requests as they are sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp
from random import Random
from typing import Any

Tokens = list[int]
LONGEST = 192
"""Tokens of prompt and output together, at most."""
UNIT = 32
"""Tokens of a block; the attention of a CPU takes multiples of 32."""
SPECULATION: dict[str, dict[str, Any]] = {
    "ngram": {"method": "ngram", "prompt_lookup_max": 3},
    "draft_model": {"method": "draft_model", "model": "draft"},
    "eagle": {"method": "eagle", "model": "eagle"},
    "eagle3": {"method": "eagle3", "model": "eagle3"},
}


@dataclass(frozen=True)
class Setting:
    """What speculates, the limits of a server, and how requests come to it."""

    method: str
    """``none``, or one of :data:`SPECULATION`."""
    drafts: int
    """Draft tokens of a window, at most."""
    clients: int
    """Clients that send their next request as the last one ends; 0: an open loop."""
    rate: float
    """Requests that come before a step, in the mean, of an open loop."""
    together: int
    """``max_num_seqs``."""
    budget: int
    """``max_num_batched_tokens``."""
    blocks: int
    """Blocks of the cache, the one that vLLM keeps for itself left out."""
    caching: bool
    ranked: bool = False
    """Whether requests have priorities (``--scheduling-policy priority``)."""
    requests: int = 32


AMPLE = 400


def settings() -> Iterator[tuple[int, Setting]]:
    """Yield what is recorded of a living engine, each with the number by which its load is drawn:
    of plain decoding, n-grams and windows of three tokens most, then other windows.
    """
    number = 0
    for method, drafts in (("none", 0), ("ngram", 3), ("ngram", 5)):
        alone = Setting(method, drafts, 1, 0.0, 8, 512, AMPLE, caching=True, requests=8)
        for setting in (alone, *loads_of(method, drafts)[:4]):
            yield number, setting
            number += 1
    for method in ("draft_model", "eagle"):
        yield from enumerate(loads_of(method, 3), start=3)
    others = [(method, drafts) for method in ("draft_model", "eagle") for drafts in (1, 2, 4, 5)]
    for number, (method, drafts) in enumerate([*others, ("eagle3", 2)], start=100):
        for setting in loads_of(method, drafts)[1:3]:
            yield number, setting
    for number, (method, drafts) in enumerate((("none", 0), ("ngram", 3)), start=200):
        yield number, loads_of(method, drafts)[4]


def loads_of(method: str, drafts: int) -> list[Setting]:
    """Return the loads of a way of speculating: in an ample cache and a tiny one, with chunked
    prompts, and with priorities.
    """
    return [
        Setting(method, drafts, 4, 0.0, 8, 512, AMPLE, caching=False),
        Setting(method, drafts, 16, 0.0, 16, 64, AMPLE, caching=True, requests=48),
        Setting(method, drafts, 0, 0.35, 8, 64, 17, caching=False),
        Setting(method, drafts, 8, 0.0, 8, 128, 14, caching=True),
        Setting(method, drafts, 0, 0.35, 8, 128, 15, caching=False, ranked=True),
    ]


@dataclass(frozen=True)
class Asked:
    """A request as it is sent."""

    prompt: Tokens
    output: int
    priority: int


class Load:
    """Requests that are drawn as they are sent: some begin with a system prompt, some go on where
    another one has ended; all say something twice.
    """

    def __init__(self, setting: Setting, seed: int, words: int) -> None:
        self.setting = setting
        self.chance = Random(seed)
        self.words = words
        self.systems = [self._new(self.chance.randint(0, 3 * UNIT)) for _ in range(3)]
        self.sent = 0
        self.ended: list[Tokens] = []
        """Prompts with outputs of the requests that are over."""

    def due(self, inside: int) -> Iterator[Asked]:
        """Yield the requests that come now, while so many are in the system."""
        left = self.setting.requests - self.sent
        coming = self.setting.clients - inside if self.setting.clients else self._poisson()
        for _ in range(min(left, coming)):
            self.sent += 1
            yield self._request()

    def _poisson(self) -> int:
        """Draw how many requests come before a step."""
        limit = exp(-self.setting.rate)
        count, product = 0, self.chance.random()
        while product > limit:
            count, product = count + 1, product * self.chance.random()
        return count

    def _request(self) -> Asked:
        """Draw a request."""
        chance = self.chance
        output = chance.randint(1, 40)
        before = chance.choice(self.systems)
        if self.ended and chance.random() < 0.4:
            before = chance.choice(self.ended)
            before = before[: chance.choice([len(before), chance.randint(1, len(before))])]
        said = self._new(chance.randint(1, 24))
        fresh = said + self._new(chance.randint(0, 8)) + said[: chance.randint(0, len(said))]
        prompt = [*before, *fresh][: LONGEST - output]
        priority = chance.randint(0, 2) if self.setting.ranked else 0
        return Asked(prompt, output, priority)

    def _new(self, tokens: int) -> Tokens:
        """Draw tokens that nobody has said before."""
        return [self.chance.randrange(3, self.words) for _ in range(tokens)]


def rows(asked: Sequence[Asked], common: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return a row for each request, as the header of a record explains them."""
    return [
        [earlier, tokens, len(one.prompt), one.output, one.priority]
        for one, (earlier, tokens) in zip(asked, common, strict=True)
    ]
