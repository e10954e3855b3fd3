"""A cache of states in blocks of ten tokens: who goes on from where, and where passes end."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from hypothesis import given, strategies as st

from simulator.core.serving.cache.states import StateCache
from simulator.core.serving.load.content import Prefix
from simulator.core.serving.requests import Request
from simulator.core.strategies.common.step import State

SYSTEM = Prefix("system", 35)


def asked(index: int, prompt: int, *prefixes: Prefix, output: int = 1) -> Request:
    return Request(index, 0, prompt, output, prefixes=(*prefixes, Prefix(index, inf)))


def passes(cache: StateCache, request: Request, budget: int = 100) -> list[int]:
    """Read a prompt; return the tokens that it found, and where its passes ended."""
    request.cached = cache.cached(request)
    assert cache.hold(request, request.prompt_tokens)
    ends = [request.cached]
    while request.left:
        tokens = cache.pass_tokens(request, min(request.left, budget), budget)
        assert tokens > 0
        request.cached += tokens
        cache.share(request, request.cached)
        ends.append(request.cached)
    return ends


def left(cache: StateCache, request: Request, output: int) -> None:
    """Let a request end after so many tokens."""
    state: State[Any] = State(cursor=None, context=0)
    request.state = state
    request.tokens = output
    cache.keep(request, 0)


def test_the_third_prompt_with_a_beginning_goes_on_behind_it() -> None:
    cache = StateCache(10, 100)
    assert passes(cache, asked(0, 47, SYSTEM)) == [0, 40, 47]
    assert passes(cache, asked(1, 52, SYSTEM)) == [0, 30, 50, 52]
    assert passes(cache, asked(2, 61, SYSTEM)) == [30, 60, 61]


def test_a_draft_that_reads_hidden_states_goes_on_a_block_before() -> None:
    cache = StateCache(10, 100, dropped=1)
    assert passes(cache, asked(0, 47, SYSTEM)) == [0, 30, 47]
    assert passes(cache, asked(1, 52, SYSTEM)) == [0, 20, 40, 52]
    assert passes(cache, asked(2, 61, SYSTEM)) == [20, 50, 61]


@pytest.mark.parametrize(("dropped", "found"), [(0, 40), (1, 40)])
def test_a_prompt_of_whole_blocks_asked_again(dropped: int, found: int) -> None:
    """All but the last of five blocks, with a head and without."""
    cache = StateCache(10, 100, dropped=dropped)
    passes(cache, asked(0, 50))
    again = Request(1, 0, 50, 1, prefixes=(Prefix(0),))
    assert cache.cached(again) == found


def test_an_output_keeps_a_state_at_each_block_that_it_goes_past() -> None:
    """Prompt and output are 47 + 25 tokens, of which 71 are written."""
    cache = StateCache(10, 100)
    request = asked(0, 47, output=25)
    passes(cache, request)
    left(cache, request, 25)
    assert cache.states[0] == {4, 5, 6, 7}
    assert cache.cached(Request(1, 0, 72, 1, prefixes=(Prefix(0),))) == 70
    assert cache.cached(Request(2, 0, 39, 1, prefixes=(Prefix(0),))) == 0


def test_a_block_longer_than_a_pass_is_read_in_parts() -> None:
    assert passes(StateCache(100, 10), asked(0, 230), budget=60) == [
        *(0, 60, 100, 160, 200),
        230,
    ]


def test_a_state_goes_before_the_blocks_that_it_follows_from() -> None:
    """Room for eight blocks, of which a state takes one: four blocks and a state of the first
    request, of which the state and the last block make way for four blocks and a state of another.
    """
    cache = StateCache(10, 8)
    first, other = asked(0, 41), asked(1, 31)
    for request in (first, other):
        passes(cache, request)
        left(cache, request, 1)
    again = Request(2, 0, 60, 1, prefixes=(Prefix(0),))
    assert cache.known(again) == 3
    assert cache.cached(again) == 0
    assert cache.states == {0: set(), 1: {3}}
    assert cache.idle_blocks == 3 + 3 + 1


def test_a_state_that_is_gone_on_from_waits_anew() -> None:
    cache = StateCache(10, 100)
    passes(cache, asked(0, 41))
    passes(cache, asked(1, 31))
    assert [stretch.name for stretch in cache.idle.values()] == [0, 1]
    assert passes(cache, Request(2, 0, 42, 1, prefixes=(Prefix(0),)))[0] == 40
    assert [stretch.name for stretch in cache.idle.values()] == [1, 0]


@given(
    begin=st.integers(0, 500),
    prompt=st.integers(1, 500),
    budget=st.integers(1, 300),
    dropped=st.integers(0, 1),
)
def test_a_pass_never_takes_more_than_it_may(
    begin: int, prompt: int, budget: int, dropped: int
) -> None:
    cache = StateCache(16, None, dropped=dropped)
    request = asked(0, prompt)
    request.cached = min(begin, prompt - 1)
    tokens = cache.pass_tokens(request, min(request.left, budget), budget)
    assert 0 <= tokens <= min(request.left, budget)
    end = request.cached + tokens
    assert end == prompt or not tokens or end % 16 == 0 or budget < 16
