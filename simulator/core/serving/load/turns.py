"""Turns of sessions: what their prompts hold, and when they come.

A turn goes on from one before it. Its prompt is all that was said up to the end of that turn, and
new text behind it. Two turns that go on from the same one part ways, and the later one, a *branch*
(an edit, an answer asked for anew), has a name of its own from where it left::

    turn 0    system 2 .... session 7 ............ output
    turn 1    system 2 .... session 7 ............ output  new text .... output
    turn 2    system 2 .... session 7 ............ output  session 7, turn 2 ....... output

Names are those of :mod:`simulator.core.serving.load.content`; the last one goes on through the
output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from simulator.core.serving.load.content import Prefix


class Said(NamedTuple):
    """A turn as it was drawn or recorded."""

    new_tokens: int
    """Text of the prompt behind what it has in common with the turn that it goes on from."""
    output_tokens: int
    wait_s: float = 0.0
    """Seconds from the end of the turn before it; without meaning in a first turn."""
    earliest_s: float = 0.0
    """Seconds from the beginning of the session before which it does not come."""
    parent: int | None = None
    """Which turn of the session, from 0, it goes on from; None: the one before it."""
    shared_tokens: int | None = None
    """How much it has in common with prompt and output of that turn; None: all of it."""
    line: int = 0
    """Line of the file that it was read from."""


class Session(NamedTuple):
    """What a client says from a first turn to a last one."""

    turns: Sequence[Said]
    system: str = ""
    """Name of the system prompt that it begins with; sessions with the same one share it."""
    system_tokens: int = 0
    begin_s: float | None = None
    """When it begins, in seconds; None where nobody says so."""
    by_characters: bool = False
    """Whether tokens are not known, and counted by the characters of texts."""


class SessionTurn(NamedTuple):
    """A turn of a session, ready to be sent."""

    number: int
    """Its number, counted session by session."""
    prompt_tokens: int
    output_tokens: int
    prefixes: tuple[Prefix, ...]
    """Names of what stands in its prompt; the last one goes on through the output."""
    wait_s: float = 0.0
    """Seconds from the end of the turn before it."""
    earliest_s: float = 0.0
    """Seconds from the beginning of the session before which it does not come."""
    line: int = 0
    """Line of the file that it was read from."""
    dealt: int = 0
    """The number under which it asks for acceptance."""
    session: int = 0
    """The number of its session."""

    @property
    def tokens(self) -> int:
        """Return the tokens of prompt and output together."""
        return self.prompt_tokens + self.output_tokens


def turns_of(session: Session, number: int, first: int) -> list[SessionTurn]:
    """Return the turns of session ``number``; ``first`` is the number of its first turn."""
    turns: list[SessionTurn] = []
    continued = set[int]()
    own = f"session {number}"
    for count, said in enumerate(session.turns):
        if not count:
            tokens = session.system_tokens + said.new_tokens
            prefixes: tuple[Prefix, ...] = (Prefix(own),)
            if session.system_tokens:
                prefixes = (Prefix(session.system, session.system_tokens), *prefixes)
        else:
            parent = count - 1 if said.parent is None else said.parent
            content = turns[parent].tokens
            shared = content if said.shared_tokens is None else said.shared_tokens
            tokens = shared + said.new_tokens
            prefixes = turns[parent].prefixes
            if shared == content and parent not in continued:
                continued.add(parent)
            else:
                prefixes = (*_up_to(prefixes, shared), Prefix(f"{own}, turn {count}"))
        turns.append(
            SessionTurn(
                first + count,
                tokens,
                said.output_tokens,
                prefixes,
                said.wait_s,
                said.earliest_s,
                said.line,
                session=number,
            )
        )
    return turns


def _up_to(prefixes: Sequence[Prefix], tokens: int) -> Iterator[Prefix]:
    """Yield the names of the first ``tokens`` of what a turn reads and writes."""
    begin = 0.0
    for name, end in prefixes:
        if begin < tokens:
            yield Prefix(name, min(end, tokens))
        begin = end


class Clients:
    """When the turns of sessions come: a turn its ``wait_s`` after the one before it has ended.

    ``begins``: when each session begins, in seconds, in ascending order. None: ``clients`` of a
    closed loop, each of which begins its first session at 0 and the next one ``between_s`` after
    its last turn has ended.
    """

    def __init__(
        self,
        sessions: Iterable[Sequence[SessionTurn]],
        begins: Iterable[float] | None = None,
        clients: int = 0,
        between_s: float = 0.0,
    ) -> None:
        self._between_s = between_s
        self._sessions = iter(sessions)
        self._begins = None if begins is None else iter(begins)
        self._coming: list[tuple[float, int, _Place]] = []
        """A heap of turns that will come: when, the number of the turn, where it stands."""
        self._under_way: dict[int, _Place] = {}
        """Where the turns stand that have come and have not ended, by their numbers."""
        self._next: Sequence[SessionTurn] | None = None
        """The session that begins next; None behind the last one."""
        self._begins_s = inf
        """When it begins, where that is known."""
        self._draw()
        for _ in range(clients if begins is None else 0):
            self._begin(0.0)

    def _draw(self) -> None:
        """Take the next session."""
        self._next = next(self._sessions, None)
        self._begins_s = inf
        if self._begins is not None and self._next is not None:
            self._begins_s = next(self._begins)

    def _begin(self, at_s: float) -> None:
        """Let the next session, if there is one, begin at a time."""
        if self._next is not None:
            self._send(_Place(self._next, 0, at_s), at_s)
            self._draw()

    def _send(self, place: _Place, at_s: float) -> None:
        """Let a turn come at a time."""
        heappush(self._coming, (at_s, place.turn.number, place))

    @property
    def next_s(self) -> float:
        """Return when the next turn comes, in seconds, if none ends before; infinity if that is not
        known.
        """
        if not self._coming:
            return self._begins_s
        return min(self._coming[0][0], self._begins_s)

    @property
    def exhausted(self) -> bool:
        """Return whether all turns have come."""
        if self._coming or self._next is not None:
            return False
        return all(place.last for place in self._under_way.values())

    def due(self, now: float) -> Iterator[tuple[float, SessionTurn]]:
        """Yield the turns that have come by ``now``, with when they came, in that order."""
        while self._begins_s <= now and self._begins_s < inf:
            self._begin(self._begins_s)
        while self._coming and self._coming[0][0] <= now:
            at_s, number, place = heappop(self._coming)
            self._under_way[number] = place
            yield at_s, place.turn

    def ended(self, number: int, now: float) -> None:
        """Take note that a turn has ended, so that the next one of its session comes, or the next
        session of its client.
        """
        place = self._under_way.pop(number)
        if not place.last:
            following = place.following
            wait_s, earliest_s = following.turn.wait_s, following.turn.earliest_s
            self._send(following, max(now + wait_s, place.begin_s + earliest_s))
        elif self._begins is None:
            self._begin(now + self._between_s)

    def close(self) -> None:
        """Let no more turns come."""
        self._coming.clear()
        self._next = None
        self._begins_s = inf
        for number, place in self._under_way.items():
            self._under_way[number] = place._replace(session=place.session[: place.at + 1])


class _Place(NamedTuple):
    """Where a turn stands."""

    session: Sequence[SessionTurn]
    at: int
    """Which turn of the session it is."""
    begin_s: float
    """When the session began."""

    @property
    def turn(self) -> SessionTurn:
        """Return the turn."""
        return self.session[self.at]

    @property
    def last(self) -> bool:
        """Return whether no turn comes behind it."""
        return self.at + 1 == len(self.session)

    @property
    def following(self) -> _Place:
        """Return where the turn behind it stands."""
        return _Place(self.session, self.at + 1, self.begin_s)
