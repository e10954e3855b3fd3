"""Live decoding with a small pair: what a replay must reproduce, step for step.

Each decoder really drafts and really verifies, with caches that are rolled back after a rejection.
It returns what it wrote and, per step, how many draft tokens were kept.
"""

from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

from benchmarks.family.network import Network, Reader
from benchmarks.verification import accepted_prefix


class Decoded(NamedTuple):
    """Output tokens and accepted draft tokens per step; the first token is the prefill's."""

    tokens: list[int]
    accepted: list[int]
    seconds: float = 0.0
    """From the first token to the last."""


Drafter = Callable[[list[int], int], list[int]]
"""(text so far, tokens wanted) -> proposal."""


def autoregressive_drafter(draft: Network) -> Drafter:
    """Return a drafter of the draft's own first choices; it rereads only what is new."""
    reader, seen = Reader(draft), list[int]()

    def write(text: list[int], count: int) -> list[int]:
        common = accepted_prefix(seen, text[:-1])
        reader.keep(common)
        proposal: list[int] = []
        unread = text[common:]
        for _ in range(count):
            proposal.append(int(reader.extend(unread)[-1].argmax()))
            unread = proposal[-1:]
        seen[:] = text + proposal[:-1]
        return proposal

    return write


def alone(
    target: Network, prompt: list[int], tokens: int, clock: Callable[[], float] = perf_counter
) -> Decoded:
    """Decode greedily without a draft; every step accepts nothing and yields one token."""
    reader = Reader(target)
    text = [*prompt, int(reader.extend(prompt)[-1].argmax())]
    begin = clock()
    while len(text) - len(prompt) < tokens:
        text.append(int(reader.extend(text[-1:])[-1].argmax()))
    return Decoded(text[len(prompt) :], [0] * (tokens - 1), clock() - begin)


def speculate(
    target: Network,
    drafter: Drafter,
    prompt: list[int],
    gamma: int,
    tokens: int,
    clock: Callable[[], float] = perf_counter,
) -> Decoded:
    """Decode greedily with windows of up to ``gamma``; a full window also yields its bonus
    token.
    """
    reader = Reader(target)
    text = [*prompt, int(reader.extend(prompt)[-1].argmax())]
    accepted, begin = [], clock()
    while len(text) - len(prompt) < tokens:
        proposal = drafter(text, gamma)
        choices = reader.extend([text[-1], *proposal]).argmax(-1).tolist()
        kept = accepted_prefix(proposal, choices)
        accepted.append(kept)
        text += choices[: kept + 1]
        reader.keep(len(text) - 1)
    return Decoded(text[len(prompt) :], accepted, clock() - begin)
