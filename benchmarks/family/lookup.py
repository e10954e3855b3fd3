"""Prompt look-up: proposals copied from behind the last earlier occurrence of the newest tokens.

No model and no training: the longest suffix of the text so far (at most ``LONGEST`` tokens) that
stands earlier in it proposes what followed there, up to ``PROPOSED`` tokens. As prompt-lookup
decoding does, the earliest match of the longest n-gram wins.
"""

from collections.abc import Sequence

from benchmarks.verification import accepted_prefix

LONGEST, PROPOSED = 3, 10


def propose(text: Sequence[int]) -> list[int]:
    """Return the tokens proposed behind ``text``; none where its end is new."""
    for size in range(LONGEST, 0, -1):
        if len(text) <= size:
            continue
        suffix = tuple(text[-size:])
        for start in range(len(text) - size):
            if tuple(text[start : start + size]) == suffix:
                return list(text[start + size : start + size + PROPOSED])
    return []


def replay(prompt: Sequence[int], written: Sequence[int]) -> list[tuple[int, int]]:
    """Return (proposed, accepted) tokens of a window that starts at each position of
    ``written``.
    """
    found = []
    text = list(prompt)
    for position, token in enumerate(written):
        proposal = propose(text)
        accepted = accepted_prefix(proposal, written[position:])
        found.append((len(proposal), accepted))
        text.append(token)
    return found
