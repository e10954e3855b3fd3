"""Our prefix cache against a running vLLM: hits of sessions, token by token, with speculation, in
caches so small that blocks are evicted and requests preempted.

The records were made by ``benchmarks/live/vllm``, whose README says how, and what vLLM does.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
from vllm_blocks import VllmCache

from simulator.core.serving.cache.prefixes import PrefixCache
from simulator.core.serving.load.content import Prefix
from simulator.core.serving.requests import Request

DATA = Path(__file__).parent / "data/live_vllm_hits"
GRANTED, REFUSED, PREEMPTED, ENDED = range(1, 5)
Run = dict[str, Any]


def runs_of(name: str) -> list[Run]:
    lines = gzip.decompress((DATA / f"{name}.jsonl.gz").read_bytes()).splitlines()
    return [json.loads(line) for line in lines[1:]]


class Cache(Protocol):
    """What a record is played to."""

    def grant(self, request: int, before: int, now: int, known: int) -> int: ...

    def let_go(self, request: int, before: int, known: int) -> None: ...

    def leave(self, request: int, known: int) -> None: ...


def prefixes_of(requests: Sequence[Sequence[int]]) -> Iterator[tuple[Prefix, ...]]:
    """Name the beginning of each request after the first one that has it."""
    named: list[tuple[Prefix, ...]] = []
    for index, (_, _, _, earlier, tokens, _, _) in enumerate(requests):
        taken = []
        if tokens:
            taken = [
                Prefix(name, min(end, tokens))
                for (name, end), before in zip(
                    named[earlier], [0, *(end for _, end in named[earlier])], strict=False
                )
                if before < tokens
            ]
        named.append((*taken, Prefix(index, inf)))
        yield named[-1]


class Ours:
    """A prefix cache that is asked what vLLM's was asked."""

    def __init__(self, run: Run) -> None:
        self.lookahead: int = run["lookahead"]
        self.ahead = run.get("ahead", False)
        self.cache = PrefixCache(run["unit"], run["blocks"], dropped=run["dropped"])
        self.requests = [
            Request(index, 0, row[5], row[6], prefixes=prefixes)
            for index, (row, prefixes) in enumerate(
                zip(run["requests"], prefixes_of(run["requests"]), strict=True)
            )
        ]

    def grant(self, request: int, before: int, now: int, known: int) -> int:
        asked = self.requests[request]
        asked.tokens = known - asked.prompt_tokens
        if not asked.blocks:
            before = asked.cached = self.cache.cached(asked)
        assert self.cache.hold(asked, before + now + self.lookahead)
        asked.cached = min(before + now, known)
        self.cache.share(asked, asked.cached)
        return before

    def let_go(self, request: int, before: int, known: int) -> None:
        pass

    def leave(self, request: int, known: int) -> None:
        """What its last step accepted is kept by a scheduler that runs ahead alone."""
        left = self.requests[request]
        if self.ahead and left.cached >= left.prompt_tokens + left.tokens:
            left.cached = known - 1
        self.cache.keep(left, 0)


class Compared(NamedTuple):
    """Requests that entered (again, after a preemption), and what they found."""

    requests: int
    asked: int
    theirs: int
    ours: int
    other: int
    """Requests that found another number of tokens."""


def played(run: Run, cache: Cache) -> Compared:
    """Play a record to a cache."""
    inside: set[int] = set()
    found: list[tuple[int, int, int]] = []
    for kind, *rest in run["events"]:
        if kind == GRANTED:
            request, before, _, known = rest
            ours = cache.grant(*rest)
            if request not in inside:
                found.append((known, before, ours))
                inside.add(request)
        elif kind == REFUSED:
            cache.let_go(rest[0], rest[1], rest[3])
        elif kind in (PREEMPTED, ENDED):
            cache.leave(*rest)
            inside.remove(rest[0])
    asked, theirs, ours = (sum(column) for column in zip(*found, strict=True))
    other = sum(before != mine for _, before, mine in found)
    return Compared(len(found), asked, theirs, ours, other)


def name_of(run: Run) -> str:
    parts = [run["method"], run["unit"], "blocks", run["blocks"], f"seed {run['seed']}"]
    return " ".join(map(str, [*parts, *(["ahead"] if run.get("ahead") else [])]))


SCHEDULED = runs_of("scheduled")
PLAIN = [run for run in SCHEDULED if run["layers"] == "plain"]
HYBRID = [run for run in SCHEDULED if run["layers"] == "hybrid"]


@pytest.mark.parametrize("run", [*PLAIN, *HYBRID], ids=name_of)
def test_what_is_said_of_vllm_is_all_there_is(run: Run) -> None:
    """Blocks, copies and states as the README says them: the same hits, whatever is evicted."""
    compared = played(run, VllmCache(run))
    assert compared.ours == compared.theirs
    assert compared.other == 0


@pytest.mark.parametrize("run", PLAIN, ids=name_of)
def test_ours_hits_what_vllm_hits(run: Run) -> None:
    """In every request; only where a head has a block written twice, vLLM's cache has less room, as
    the older copy stays until it is evicted.
    """
    compared = played(run, Ours(run))
    if run["dropped"] and run["share"] < 3:
        assert compared.other <= 0.1 * compared.requests
        assert 0 <= compared.ours - compared.theirs <= 0.1 * compared.theirs
    else:
        assert compared.other == 0


def test_the_records_are_not_trivial() -> None:
    for run in PLAIN:
        preempted = sum(event[0] == PREEMPTED for event in run["events"])
        compared = played(run, VllmCache(run))
        assert 0.2 < compared.theirs / compared.asked < 0.9
        assert (preempted > 0) == (run["together"] == 8)
