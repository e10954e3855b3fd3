"""Recorded windows replayed without events: a million tokens in 1,000 requests, all windows from 1
to 32.

Agreement comes in bursts, drawn once. The one pass counts stretches of agreement; then every window
is answered from them. Where runs are recorded by start (a tree), windows are walked, all requests
side by side.
"""

from __future__ import annotations

import numpy as np
from figures import Figure, at_least, in_loops, show, turns

from simulator.core.acceptance.window_replay import Ints, WindowReplay

TITLE = "Vectorised replay"
REQUESTS, TOKENS, LONGEST, ROUNDS = 1_000, 1_000, 32, 7


def runs() -> list[Ints]:
    """Run lengths by position of every request, going round at its end."""
    random, found = np.random.default_rng(0), []
    for _ in range(REQUESTS):
        easy = np.repeat(random.random(TOKENS // 20) < 0.6, 20)
        kept = random.random(TOKENS) < np.where(easy, 0.9, 0.5)
        stops, here = np.flatnonzero(~np.concatenate((kept, kept))), np.arange(TOKENS)
        found.append(stops[np.searchsorted(stops, here)] - here)
    return found


def windows(replayed: WindowReplay) -> list[Ints]:
    """Windows by tokens kept, of each length."""
    return [replayed.kept(gamma) for gamma in range(1, LONGEST + 1)]


def figures() -> list[Figure]:
    """Milliseconds of both over a million tokens, in numbers that numpy writes for a token; and
    tokens a second.
    """
    by_position = runs()
    by_start = [np.minimum(run + (np.arange(len(run)) % 2), 5) for run in by_position]
    replayed, walked = WindowReplay(by_position), WindowReplay(by_start)
    works = [lambda: WindowReplay(by_position), lambda: windows(replayed), lambda: walked.kept(5)]
    one_pass, all_windows, steps = (
        min(seconds) for seconds in zip(*turns(works, ROUNDS), strict=True)
    )
    tokens = REQUESTS * TOKENS
    return [
        in_loops(
            at_least("the one pass, ms", one_pass * 1e3, None), one_pass / tokens, 1_000, "fills"
        ),
        in_loops(
            at_least(f"all {LONGEST} windows, ms", all_windows * 1e3, None, "{:,.1f}"),
            all_windows / tokens,
            5,
            "fills",
        ),
        at_least(
            "tokens a CPU second, all windows and the pass",
            LONGEST * tokens / (one_pass + all_windows),
            None,
        ),
        at_least("tokens a CPU second by start, one window", tokens / steps, None),
    ]


if __name__ == "__main__":
    show(TITLE, figures())
