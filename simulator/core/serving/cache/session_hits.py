"""Law of prefix caching for sessions: what the turns find in a cache from which nothing is evicted.

A turn that goes on from one of P prompt and O output tokens finds the keys and values of all P + O
but the last, which nobody has read yet; a first turn finds its system prompt, once another session
has read it. Of K tokens that are there, a prompt of L tokens has

    hit = max(0, floor(min(K, L - 1) / u) - d) u

in units of u tokens, of which d are computed again (:func:`hit_tokens`). Nothing of it depends on
when turns come: a session is read in order, so that only first turns may find less in a run, where
several are read before a system prompt is there. With eviction every turn finds as much at most.
:func:`most_found` holds in whatever order sessions are served.

Of models with states this is the most, too: a prompt goes on only from a state that was kept, where
a pass has ended at a whole unit (:mod:`simulator.core.serving.cache.states`).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from simulator.core.serving.cache.prefixes import hit_tokens
from simulator.core.serving.load.content import Hash, Prefix
from simulator.core.serving.load.turns import SessionTurn


def session_hits(
    turns: Iterable[SessionTurn], unit_tokens: int, dropped_units: int = 0, written: bool = True
) -> Iterator[int]:
    """Yield the tokens of each turn's prompt that need not be computed, where turns are served one
    after the other, in this order; ``written``: their outputs are kept, too, and not elsewhere.
    """
    there: dict[Hash, float] = {}
    """Up to which token from the beginning of a prompt what a name stands for is kept."""
    for turn in turns:
        known = 0.0
        for name, end in turn.prefixes:
            reach = min(there.get(name, 0.0), end)
            known = max(known, reach)
            if reach < end:
                break
        yield hit_tokens(int(known), turn.prompt_tokens, unit_tokens, dropped_units)
        # keys and values of the last token of an output are never computed
        kept = turn.tokens - 1 if written else turn.prompt_tokens
        for name, end in turn.prefixes:
            there[name] = max(there.get(name, 0.0), min(end, kept))


def most_found(
    sessions: Iterable[Sequence[SessionTurn]], unit_tokens: int, dropped_units: int = 0
) -> Iterator[int]:
    """Yield the most that each turn can find, session by session, in whatever order sessions are
    served: that of the law, with every system prompt there from the beginning.
    """
    for turns in sessions:
        first = turns[0]
        read = []
        for name, end in first.prefixes[:-1]:
            read.append(
                first._replace(
                    prompt_tokens=int(end), output_tokens=1, prefixes=(Prefix(name, end),)
                )
            )
        hits = session_hits([*read, *turns], unit_tokens, dropped_units)
        yield from islice(hits, len(read), None)
