"""What prompts have in common: names for their beginnings, so that a cache knows what it has.

A *prefix* is a named beginning of what a request reads and writes. Prefixes stand in order of their
ends; whatever lies between two ends is called by the name of the later one and its place, as a name
stands for everything from the first token on::

    system prompt 3        conversation 17                      conversation 17, second attempt
    |----------------|-----------------------|----------------------------------------->
    0              1,000                   3,200                                   without end

A prefix without an end names the output, too: the next turn of a conversation begins with it.
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

Hash = int | str
HASHED_TOKENS = 512
"""Tokens of a prompt between two hashes of a traffic file, as in the Mooncake traces."""


class Prefix(NamedTuple):
    """A named beginning of a prompt."""

    name: Hash
    tokens: float = inf
    """Where it ends, in tokens from the beginning; infinite where it names all that follows."""


def hashed_prefixes(hashes: Sequence[Hash], prompt_tokens: int) -> tuple[Prefix, ...]:
    """Return the prefixes that hashes of a traffic file name: one for every ``HASHED_TOKENS`` of a
    prompt, and one for the rest.
    """
    ends = range(HASHED_TOKENS, HASHED_TOKENS * len(hashes) + 1, HASHED_TOKENS)
    return tuple(
        Prefix(name, min(end, prompt_tokens)) for name, end in zip(hashes, ends, strict=True)
    )
