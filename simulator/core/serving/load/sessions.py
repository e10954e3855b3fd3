"""Sessions as a load: conversations and agents, whose prompts grow from turn to turn.

A client sends a first prompt, thinks when the answer has ended, and sends the next turn: all that
was said, and new text. The i-th session of a seed has always the same turns, whatever happens to
them: each of its numbers is drawn with random numbers of its own, so that another think time leaves
all lengths as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from math import log, log1p
from typing import Annotated, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Discriminator, Field, Tag, model_validator

from simulator.core.faults import BadInput
from simulator.core.quantities import Frozen, otherwise_named
from simulator.core.serving.load.arrivals import DRAWN_AT_ONCE
from simulator.core.serving.load.lengths import Lengths, PromptTokens, draw_lengths
from simulator.core.serving.load.traffic import LATEST_S, MOST_TOKENS
from simulator.core.serving.load.turns import Said, Session

MOST_TURNS = 10_000
"""Turns of a session, at most: a hundred times those of a long one."""
(
    TURNS,
    FIRST_PROMPTS,
    SYSTEM_PROMPTS,
    SYSTEM_TOKENS,
    NEW_TEXT,
    OUTPUTS,
    WAITS,
    TOOLS,
    TOOL_WAITS,
    RESULTS,
    BRANCHES,
    PARENTS,
) = range(10, 22)
"""Streams of random numbers; requests without sessions have those before them."""


class UniformTurns(Frozen):
    """Numbers of turns of which each from ``least_turns`` to ``most_turns`` is equally likely."""

    name: Literal["uniform"] = "uniform"
    least_turns: int = Field(default=1, gt=0, le=MOST_TURNS)
    """No session has fewer."""
    most_turns: int = Field(gt=0, le=MOST_TURNS)
    """No session has more."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.least_turns > self.most_turns:
            raise ValueError(
                f"least_turns {self.least_turns} is more than most_turns {self.most_turns}"
            )
        return self

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Return ``count`` numbers of turns."""
        return random.integers(self.least_turns, self.most_turns, size=count, endpoint=True)


class GeometricTurns(Frozen):
    """Numbers of turns of sessions that end behind each turn with the same chance: geometric, and
    cut at ``most_turns``.
    """

    name: Literal["geometric"] = "geometric"
    mean_turns: float = Field(ge=1, le=MOST_TURNS)
    """Before the cut."""
    most_turns: int = Field(gt=0, le=MOST_TURNS)
    """No session has more."""

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Return ``count`` numbers of turns."""
        drawn: NDArray[np.int64] = random.geometric(1.0 / self.mean_turns, size=count)
        return np.minimum(drawn, self.most_turns)


class ExponentialSeconds(Frozen):
    """Times without memory: exponential."""

    name: Literal["exponential"] = "exponential"
    mean_s: float = Field(gt=0, le=LATEST_S)
    """Mean of all times."""

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Return ``count`` times, in seconds."""
        return random.exponential(self.mean_s, size=count)


class LogNormalSeconds(Frozen):
    """Many short times and a few long ones: log-normal."""

    name: Literal["lognormal"] = "lognormal"
    mean_s: float = Field(gt=0, le=LATEST_S)
    """Mean of all times."""
    spread: float = Field(ge=0, le=1_000)
    """Standard deviation over mean."""

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Return ``count`` times, in seconds."""
        variance = log1p(self.spread**2)
        return random.lognormal(log(self.mean_s) - variance / 2, variance**0.5, size=count)


def _which(value: object) -> object:
    """Return the tag of a field: the name of its distribution, or ``number``."""
    if isinstance(value, dict):
        return value.get("name")
    return getattr(value, "name", "number")


Turns = Annotated[
    Annotated[int, Field(gt=0, le=MOST_TURNS), Tag("number")]
    | Annotated[UniformTurns, Tag("uniform")]
    | Annotated[GeometricTurns, Tag("geometric")],
    Discriminator(_which),
]
Seconds = Annotated[
    Annotated[float, Field(ge=0, le=LATEST_S), Tag("number")]
    | Annotated[ExponentialSeconds, Tag("exponential")]
    | Annotated[LogNormalSeconds, Tag("lognormal")],
    Discriminator(_which),
]
DrawnSeconds: TypeAlias = float | ExponentialSeconds | LogNormalSeconds


def draw_seconds(stated: DrawnSeconds, seed: tuple[int, ...], count: int) -> NDArray[np.float64]:
    """Return ``count`` times in seconds: those of a distribution, or the same one over and over."""
    if isinstance(stated, int | float):
        return np.full(count, float(stated))
    return stated.draw(np.random.default_rng(seed), count)


class SystemPrompts(Frozen):
    """Beginnings of prompts that sessions share: each session has one of ``count``."""

    count: int = Field(default=1, gt=0, le=1_000_000)
    """How many there are."""
    tokens: PromptTokens
    """Length of each: a number, or a distribution."""
    zipf: float = Field(default=0.0, ge=0, le=10)
    """How unequal they are: the k-th is drawn with a weight of 1 / k^zipf; 0 is all alike."""

    def lengths(self, seed: int) -> NDArray[np.int64]:
        """Return (count,) the tokens of each."""
        return draw_lengths(self.tokens, (seed, SYSTEM_TOKENS, 0), self.count)

    def draw(self, random: np.random.Generator, sessions: int) -> NDArray[np.int64]:
        """Return (sessions,) which one each session has, from 0."""
        weights = np.arange(1, self.count + 1, dtype=float) ** -self.zipf
        ends = np.cumsum(weights / weights.sum())
        ends[-1] = 1.0
        return np.searchsorted(ends, random.random(sessions), side="right")


class Tools(Frozen):
    """Turns of an agent that calls a tool: the next turn comes when the tool has answered."""

    share: float = Field(ge=0, le=1)
    """Share of the later turns of a session that carry the result of a tool."""
    tool_s: Seconds
    """How long a tool takes: a number, or a distribution."""
    result_tokens: PromptTokens | None = None
    """Length of its result, which is the new text of the turn; by default ``turn_tokens``."""


class DrawnSessions(Frozen):
    """Sessions that are drawn.

    The first prompt has ``requests.prompt_tokens`` behind the system prompt, every turn an output
    of ``requests.output_tokens``. ``requests.arrivals`` says when sessions begin; without them
    ``requests.concurrency`` clients each go through one session after another, as in the multi-turn
    benchmark of vLLM (``benchmarks/multi_turn``) and in AIPerf. ``requests.count`` counts turns;
    the last session ends with the last of them.
    """

    name: Literal["drawn"] = "drawn"
    turns: Turns
    """Turns of a session: a number, or a distribution."""
    turn_tokens: PromptTokens
    """New text of later turns: a number, or a distribution."""
    think_s: Seconds = 0.0
    """From the end of an answer to the next turn: a number, or a distribution; by default none, as
    the multi-turn benchmark of vLLM has it.
    """
    tools: Tools | None = None
    """Turns that carry the result of a tool, behind a time of their own."""
    system_prompts: SystemPrompts | None = None
    """Beginnings of prompts that sessions share."""
    branch_share: float = Field(default=0.0, ge=0, le=1)
    """Share of the turns from the third on that go back: all behind an earlier turn is left out."""
    context_tokens: int | None = Field(default=None, gt=0, le=MOST_TOKENS)
    """A session ends before a turn that has more, prompt and output together."""

    def most_at_first(self, prompt: int | Lengths, output: int | Lengths) -> int:
        """Return the most tokens that a first turn may have, prompt and output together."""
        most = _most(prompt) + _most(output)
        if self.system_prompts:
            most += _most(self.system_prompts.tokens)
        return most

    def sessions(
        self, seed: int, prompt: int | Lengths, output: int | Lengths
    ) -> Iterator[Session]:
        """Yield the sessions of a seed, without end, for ``prompt`` tokens of a first turn and
        ``output`` tokens of all.
        """
        for first in count(0, DRAWN_AT_ONCE):
            block = DRAWN_AT_ONCE
            turns = _whole(self.turns, (seed, TURNS, first), block)
            prompts = draw_lengths(prompt, (seed, FIRST_PROMPTS, first), block)
            systems, lengths = self._systems(seed, first)
            for place in range(block):
                number = first + place
                said = self._said(seed, number, int(turns[place]), int(prompts[place]), output)
                tokens = int(lengths[place])
                name = f"system {systems[place]}" if tokens else ""
                yield Session(within(self.context_tokens, tokens, said), name, tokens)

    def _systems(self, seed: int, first: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (sessions,) which system prompt each of a block of sessions has, and its
        tokens.
        """
        if self.system_prompts is None:
            nothing = np.zeros(DRAWN_AT_ONCE, dtype=np.int64)
            return nothing, nothing
        random = np.random.default_rng((seed, SYSTEM_PROMPTS, first))
        which = self.system_prompts.draw(random, DRAWN_AT_ONCE)
        return which, self.system_prompts.lengths(seed)[which]

    def _said(
        self, seed: int, number: int, turns: int, prompt: int, output: int | Lengths
    ) -> list[Said]:
        """Return the turns of a session, however long they are."""
        new = draw_lengths(self.turn_tokens, (seed, NEW_TEXT, number), turns)
        outputs = draw_lengths(output, (seed, OUTPUTS, number), turns)
        waits = draw_seconds(self.think_s, (seed, WAITS, number), turns)
        if self.tools:
            chances = np.random.default_rng((seed, TOOLS, number)).random(turns)
            called = chances < self.tools.share
            tool_s = draw_seconds(self.tools.tool_s, (seed, TOOL_WAITS, number), turns)
            waits = np.where(called, tool_s, waits)
            if self.tools.result_tokens is not None:
                results = draw_lengths(self.tools.result_tokens, (seed, RESULTS, number), turns)
                new = np.where(called, results, new)
        new[0] = prompt
        waits[0] = 0.0
        parents = self._parents(seed, number, turns)
        return [
            Said(text, tokens, wait_s, parent=parent)
            for text, tokens, wait_s, parent in zip(
                new.tolist(), outputs.tolist(), waits.tolist(), parents, strict=True
            )
        ]

    def _parents(self, seed: int, number: int, turns: int) -> list[int | None]:
        """Return which turn each one goes on from; None: the one before it."""
        parents: list[int | None] = [None] * turns
        if not self.branch_share:
            return parents
        chances = np.random.default_rng((seed, BRANCHES, number)).random(turns)
        places = np.random.default_rng((seed, PARENTS, number)).random(turns)
        for turn in range(2, turns):
            if chances[turn] < self.branch_share:
                parents[turn] = int(places[turn] * (turn - 1))
        return parents


def within(most_tokens: int | None, system_tokens: int, said: Sequence[Said]) -> Sequence[Said]:
    """Return the turns of a session before the first one that has more than ``most_tokens``, prompt
    and output together; None: all of them.
    """
    if most_tokens is None:
        return said
    ends: list[int] = []
    for place, turn in enumerate(said):
        if not place:
            before = system_tokens
        elif turn.shared_tokens is not None:
            before = turn.shared_tokens
        else:
            before = ends[place - 1 if turn.parent is None else turn.parent]
        ends.append(before + turn.new_tokens + turn.output_tokens)
        if ends[-1] > most_tokens:
            return said[:place]
    return said


def _most(stated: int | Lengths) -> int:
    """Return the longest of lengths."""
    if isinstance(stated, int):
        return stated
    return stated.most_tokens


def _whole(
    stated: int | UniformTurns | GeometricTurns, seed: tuple[int, ...], count: int
) -> NDArray[np.int64]:
    """Return ``count`` numbers of turns."""
    if isinstance(stated, int):
        return np.full(count, stated, dtype=np.int64)
    return stated.draw(np.random.default_rng(seed), count)


class SessionFile(Frozen):
    """Sessions as recorded, each of them once.

    The file is recognised by what it holds: a line for every turn, with a column ``session``;
    ``profile_export.jsonl`` of AIPerf; or conversations (ShareGPT, WildChat), whose tokens are
    counted by their characters. Raises :class:`BadInput` with file, line and column.
    """

    name: Literal["file"] = "file"
    file: str
    """Path, beside the file that names it."""
    think_s: Seconds | None = None
    """From the end of an answer to the next turn: a number, or a distribution, in the place of what
    was recorded; by default as recorded, and 0 where the file does not say.
    """
    context_tokens: int | None = Field(default=None, gt=0, le=MOST_TOKENS)
    """A session ends before a turn that has more, prompt and output together."""
    between_s: float = Field(default=0.0, ge=0, le=LATEST_S)
    """From the end of a session to the next one of its client, in a closed loop."""

    def recorded(self) -> Sequence[Session]:
        """Return the sessions of the file, the earliest first."""
        read = READERS.get("sessions")
        if read is None:
            raise self.fault(0, "nothing here reads files of sessions")
        return read(self)

    def sessions(self, seed: int) -> Iterator[Session]:
        """Yield the sessions of the file that have a turn within the context."""
        for number, session in enumerate(self.recorded()):
            turns = within(self.context_tokens, session.system_tokens, session.turns)
            if self.think_s is not None:
                waits = draw_seconds(self.think_s, (seed, WAITS, number), len(turns)).tolist()
                turns = [
                    turn._replace(wait_s=wait_s, earliest_s=0.0)
                    for turn, wait_s in zip(turns, waits, strict=True)
                ]
            if turns:
                yield session._replace(turns=turns)

    def fault(self, number: int, message: str, column: int = 1, field: str = "") -> BadInput:
        """Return an error about a line of the file."""
        return BadInput.at((self.file, number, column), message, field)


READERS: dict[str, Callable[[SessionFile], Sequence[Session]]] = {}
"""What reads files of sessions; who reads files enters it."""

AnySessions = Annotated[
    Annotated[DrawnSessions | SessionFile, Field(discriminator="name")], otherwise_named("drawn")
]
