"""Conversations drawn by chance, as lengths and as what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

Tokens = list[int]


@dataclass(frozen=True)
class Turn:
    """A request: what its prompt takes over, what is new in it, and how much is asked for."""

    session: int
    turn: int
    parent: int | None
    """The request whose prompt and output this prompt begins with; None: a system prompt."""
    system: int
    """Which system prompt the session begins with."""
    taken: int
    """Tokens of the parent's prompt and output, or of the system prompt, that are taken over."""
    fresh: int
    """New tokens behind them."""
    output: int
    after: int
    """Steps of the engine between the parent's end, or the start of the run, and this one."""

    @property
    def prompt(self) -> int:
        """Return the tokens of the prompt."""
        return self.taken + self.fresh

    @property
    def total(self) -> int:
        """Return the tokens of prompt and output."""
        return self.prompt + self.output


def draw(seed: int, unit: int, sessions: int, longest_output: int) -> list[Turn]:
    """Draw sessions of three to six turns over three system prompts, for a cache with such units.

    A prompt is mostly the one before with its output and something new; sometimes it branches from
    an earlier turn, asks again for the answer to one, or is a part of one.
    """
    chance = Random(seed)
    systems = [chance.randint(0, 4 * unit) for _ in range(3)]
    turns: list[Turn] = []
    for session in range(sessions):
        own: list[int] = []
        system = chance.randrange(3)
        for number in range(chance.randint(3, 6)):
            parent = None
            taken, fresh = systems[system], chance.randint(1, 2 * unit)
            if own:
                parent = own[-1] if chance.random() < 0.75 else chance.choice(own)
                taken, fresh = _continued(chance, turns[parent], unit)
            output = chance.randint(1, longest_output)
            after = chance.randint(0, 40)
            own.append(len(turns))
            turns.append(Turn(session, number, parent, system, taken, fresh, output, after))
    return turns


def _continued(chance: Random, parent: Turn, unit: int) -> tuple[int, int]:
    """Draw how many tokens a prompt takes over from a request, and how many are new."""
    kind = chance.random()
    if kind < 0.7:
        return parent.total, chance.choice(
            [1, chance.randint(1, unit), chance.randint(1, 2 * unit)]
        )
    if kind < 0.8:
        return parent.prompt, 0
    if kind < 0.9:
        return max(1, chance.randint(1, parent.total) // unit * unit), chance.randint(0, 1)
    return chance.randint(1, parent.total), chance.randint(0, unit)


def prompt_of(
    turn: Turn, systems: Sequence[Tokens], said: Sequence[Tokens], new: Random, words: int
) -> Tokens:
    """Return the tokens of a prompt, where ``said`` holds prompt and output of the requests that
    are over.
    """
    before = systems[turn.system] if turn.parent is None else said[turn.parent]
    return [*before[: turn.taken], *(new.randrange(3, words) for _ in range(turn.fresh))]


def in_common(sequences: Sequence[Tokens]) -> list[tuple[int, int]]:
    """Return for each sequence an earlier one with which it begins alike for longest, and for how
    many tokens; -1 and 0 where there is none.
    """
    found = []
    for index, sequence in enumerate(sequences):
        best = (-1, 0)
        for earlier in range(index):
            tokens = _alike(sequences[earlier], sequence)
            if tokens > best[1]:
                best = (earlier, tokens)
        found.append(best)
    return found


def _alike(one: Tokens, other: Tokens) -> int:
    """Return how many tokens two sequences have in common at their beginning."""
    for index, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return index
    return min(len(one), len(other))
