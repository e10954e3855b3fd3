"""N-gram drafting: a trie of the text so far proposes the most frequent continuation, token by
token.

No model and no training. Unlike look-up, which copies a whole passage from one place, every
proposed token is the most frequent one behind the longest known suffix (at most ``LONGEST`` tokens)
of the text and what is already proposed; among equals the one seen last wins.
"""

from collections import defaultdict
from collections.abc import Sequence

from benchmarks.verification import accepted_prefix

LONGEST, PROPOSED = 3, 10
Seen = tuple[int, int]
"""How often a token stood behind a suffix, and where last."""


class Trie:
    """The continuations of every suffix of the text read so far."""

    def __init__(self, text: Sequence[int] = ()) -> None:
        self.text: list[int] = []
        self.behind: defaultdict[tuple[int, ...], dict[int, Seen]] = defaultdict(dict)
        for token in text:
            self.read(token)

    def read(self, token: int) -> None:
        """Read one more token of the text."""
        for size in range(1, min(LONGEST, len(self.text)) + 1):
            known = self.behind[tuple(self.text[-size:])]
            known[token] = (known.get(token, (0, 0))[0] + 1, len(self.text))
        self.text.append(token)

    def propose(self) -> list[int]:
        """Return the tokens proposed behind the text; none where its last token is new."""
        proposal: list[int] = []
        recent = self.text[-LONGEST:]
        while len(proposal) < PROPOSED:
            known = next((self.behind[key] for key in suffixes(recent) if key in self.behind), None)
            if known is None:
                break
            proposal.append(max(known, key=lambda token: known[token]))
            recent = [*recent, proposal[-1]][-LONGEST:]
        return proposal


def suffixes(tokens: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the suffixes of the text, the longest first."""
    return [tuple(tokens[-size:]) for size in range(len(tokens), 0, -1)]


def replay(prompt: Sequence[int], written: Sequence[int]) -> list[tuple[int, int]]:
    """Return (proposed, accepted) tokens of a window that starts at each position of
    ``written``.
    """
    trie, found = Trie(prompt), []
    for position, token in enumerate(written):
        proposal = trie.propose()
        found.append((len(proposal), accepted_prefix(proposal, written[position:])))
        trie.read(token)
    return found
