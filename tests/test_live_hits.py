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
from simulator.core.serving.cache.states import StateCache
from simulator.core.serving.load.content import Prefix
from simulator.core.serving.requests import Request
from simulator.core.strategies.common.step import State

DATA = Path(__file__).parent / "data/live_vllm_hits"
SMALL = 100
"""Caches of fewer blocks evict; those of more have room for all that was said."""
STEP, GRANTED, REFUSED, PREEMPTED, ENDED = range(5)
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
        self.ahead = run.get("ahead", False)
        self.beside = run["lookahead"]
        """Tokens whose room a request has beside those that it computes."""
        self.cache = PrefixCache(run["unit"], run["blocks"], dropped=run["dropped"])
        if run.get("layers") == "hybrid":
            self.cache = StateCache(
                run["unit"], run["blocks"], dropped=run["dropped"], state_blocks=3
            )
            self.beside += 3 * (1 + run["drafts"]) * run["unit"]
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
            asked.state = None
        assert self.cache.hold(asked, before + now + self.beside)
        asked.cached = min(before + now, known)
        self.cache.share(asked, asked.cached)
        if asked.cached == known:
            asked.state = State(cursor=None, context=known)
        return before

    def let_go(self, request: int, before: int, known: int) -> None:
        pass

    def leave(self, request: int, known: int) -> None:
        """What its last step accepted is kept by a scheduler that runs ahead alone."""
        left = self.requests[request]
        if left.state is not None:
            left.tokens = known - left.prompt_tokens if self.ahead else left.tokens + 1
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


def passes_of(run: Run) -> Iterator[tuple[StateCache, Request, int, int, int]]:
    """Yield what is granted of prompts: the cache as it is then, the request, its tokens in this
    pass, those that it still has to read, and those that the pass has left.
    """
    ours = Ours(run)
    rest = 0
    for kind, *asked in run["events"]:
        if kind == STEP:
            rest = run["budget"]
        elif kind == GRANTED:
            request, before, now, known = asked
            reading = ours.requests[request]
            if not reading.blocks:
                reading.tokens = known - reading.prompt_tokens
                reading.cached = ours.cache.cached(reading)
                reading.state = None
            if reading.state is None:
                assert isinstance(ours.cache, StateCache)
                left = known - before
                yield ours.cache, reading, min(now, left), left, rest
            rest -= now
            ours.grant(*asked)
        elif kind in (PREEMPTED, ENDED):
            ours.leave(*asked)


def name_of(run: Run) -> str:
    parts = [run["method"], run["unit"], "blocks", run["blocks"], f"seed {run['seed']}"]
    return " ".join(map(str, [*parts, *(["ahead"] if run.get("ahead") else [])]))


SCHEDULED = runs_of("scheduled")
PLAIN = [run for run in SCHEDULED if run["layers"] == "plain"]
HYBRID = [run for run in SCHEDULED if run["layers"] == "hybrid"]
LIVING = runs_of("living")
"""A whole engine with each kind of speculation."""
AMPLE = [run for run in HYBRID if run["share"] > 20]
EXACT = [run for run in AMPLE if run["ahead"] or not run["dropped"]]
HIDDEN = 4 * 8
"""Tokens of a pass that steps of others may take of which the record says nothing."""


@pytest.mark.parametrize("run", [*LIVING, *PLAIN, *HYBRID], ids=name_of)
def test_what_is_said_of_vllm_is_all_there_is(run: Run) -> None:
    """Blocks, copies and states as the README says them: the same hits, whatever is evicted."""
    compared = played(run, VllmCache(run))
    assert compared.ours == compared.theirs
    assert compared.other == 0


@pytest.mark.parametrize("run", [*LIVING, *PLAIN], ids=name_of)
def test_ours_hits_what_vllm_hits(run: Run) -> None:
    """In every request where nothing is evicted. Else vLLM has a little less room, as it writes
    some blocks a second time and keeps the older copy until it is evicted: that which a head costs,
    and the last one of a prompt that is asked again.
    """
    compared = played(run, Ours(run))
    if run["blocks"] >= SMALL:
        assert compared.other == 0
    else:
        assert compared.other <= 0.1 * compared.requests
        assert 0 <= compared.ours - compared.theirs <= 0.1 * compared.theirs


@pytest.mark.parametrize("run", HYBRID, ids=name_of)
def test_ours_goes_on_from_the_states_that_vllm_keeps(run: Run) -> None:
    """In every request where nothing is evicted; else vLLM has less room for the copies that it
    writes of blocks and states which it has, with a head most of all. A scheduler that does not
    run ahead loses a state where several tokens are accepted around the end of a block.
    """
    compared = played(run, Ours(run))
    if run in EXACT:
        assert compared.other == 0
        return
    assert compared.ours >= compared.theirs
    if not run["dropped"]:
        assert compared.ours <= 1.25 * compared.theirs
    elif run in AMPLE:
        assert compared.other <= 2


@pytest.mark.parametrize("run", [run for run in EXACT if run["budget"] >= run["unit"]], ids=name_of)
def test_passes_of_a_prompt_end_where_vllm_ends_them(run: Run) -> None:
    for cache, request, now, left, rest in passes_of(run):
        ends = {
            cache.pass_tokens(request, min(left, tokens), run["budget"])
            for tokens in range(rest - HIDDEN, rest + 1)
        }
        assert now in ends
        assert len(ends) <= 2


def test_the_records_are_not_trivial() -> None:
    methods = {run["method"] for run in LIVING}
    assert methods == {"none", "ngram", "draft_model", "eagle", "eagle3"}
    for run in (*LIVING, *PLAIN):
        compared = played(run, VllmCache(run))
        assert 0.05 < compared.theirs / compared.asked < 0.9
        preempted = sum(event[0] == PREEMPTED for event in run["events"])
        assert bool(preempted) == (run["together"] == 8)
    accepted = {run["method"] for run in LIVING if run["accepted"] > 200}
    assert accepted == {"ngram", "draft_model", "eagle"}
