"""Tiny worlds with round numbers and their complete timelines."""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simpy import Event

from simulator.world import Span, World


def play(world: World, *processes: Generator[Event, object, None]) -> list[Span]:
    for process in processes:
        world.environment.process(process)
    world.environment.run()
    return world.spans


def test_two_lanes_overlap_and_one_lane_serialises() -> None:
    world = World()

    def process() -> Generator[Event, object, None]:
        yield world.lane("a").start(3, "one")
        first, second = world.lane("a").start(5, "two"), world.lane("b").start(2, "three")
        third = world.lane("b").start(1, "four")
        yield first
        yield second
        yield third
        yield world.lane("b").start(1, "five")

    assert play(world, process()) == [
        Span("a", 0, 3, "one"),
        Span("b", 3, 5, "three"),
        Span("a", 3, 8, "two"),
        Span("b", 5, 6, "four"),
        Span("b", 8, 9, "five"),
    ]
    assert world.now == 9


def test_cancel_truncates_a_running_booking() -> None:
    world = World()

    def process() -> Generator[Event, object, None]:
        yield world.lane("a").start(2, "kept")
        world.lane("b").start(10, "flushed")
        yield world.lane("a").start(3, "kept")
        world.lane("b").cancel()
        yield world.lane("b").start(1, "next")

    spans = play(world, process())
    assert [span for span in spans if span.lane == "b"] == [Span("b", 2, 5, "flushed"), Span("b", 5, 6, "next")]


def test_what_is_booked_ahead_can_be_taken_back_before_it_begins() -> None:
    world = World()

    def process() -> Generator[Event, object, None]:
        lane = world.lane("a")
        for begin in (0, 4, 8):
            lane.book(begin, begin + 3, "ahead")
        yield world.lane("b").start(5, "other")
        lane.retract()
        yield lane.start(1, "behind what has begun")
        lane.retract()
        yield lane.start(1, "at once")

    spans = play(world, process())
    assert [span for span in spans if span.lane == "a"] == [
        *(Span("a", 0, 3, "ahead"), Span("a", 4, 7, "ahead")),
        *(Span("a", 7, 8, "behind what has begun"), Span("a", 8, 9, "at once")),
    ]


def test_cancel_removes_a_booking_that_has_not_begun_and_leaves_an_ended_one() -> None:
    world = World()

    def process() -> Generator[Event, object, None]:
        lane = world.lane("a")
        first = lane.start(4, "runs")
        lane.start(4, "never")
        lane.cancel()
        yield first
        lane.cancel()
        yield lane.start(1, "after")

    assert play(world, process()) == [Span("a", 0, 4, "runs"), Span("a", 4, 5, "after")]


def test_shared_memory_stretches_only_the_overlap() -> None:
    """Suffix 18 beside draft 12 at slowdown 1.5: the draft ends at 18, the suffix has 6 left."""
    world = World()
    world.share_memory(("target", "draft"), 1.5)

    def process() -> Generator[Event, object, None]:
        yield world.lane("target").start(10, "prefix")
        suffix, draft = world.lane("target").start(18, "suffix"), world.lane("draft").start(12, "draft")
        yield suffix
        yield draft

    assert play(world, process()) == [
        Span("target", 0, 10, "prefix"),
        Span("draft", 10, 28, "draft"),
        Span("target", 10, 34, "suffix"),
    ]


def test_shared_memory_serves_a_queue_and_can_be_cancelled() -> None:
    world = World()
    world.share_memory(("a", "b"), 2.0)

    def process() -> Generator[Event, object, None]:
        first, second = world.lane("a").start(2, "first"), world.lane("a").start(4, "second")
        yield first
        world.lane("b").occupy(100, "flushed")
        yield world.environment.timeout(4)
        world.lane("b").cancel()
        yield second

    assert play(world, process()) == [
        Span("a", 0, 2, "first"),
        Span("b", 2, 6, "flushed"),
        Span("a", 2, 8, "second"),
    ]
    assert world.now == 8


def test_lanes_on_one_memory_are_booked_in_order() -> None:
    world = World()
    world.share_memory(("a", "b"), 2.0)
    world.lane("a").occupy(2, "now")
    world.lane("a").occupy(2, "later")
    with pytest.raises(ValueError, match="'now too' on b begins before what a was booked for last"):
        world.lane("b").occupy(1, "now too")


def test_a_lane_waits_for_others_and_a_step_is_booked_at_once() -> None:
    """c needs a and b, and is behind what it does itself."""
    world = World()
    a, b, c = (world.lane(name) for name in "abc")

    def process() -> Generator[Event, object, None]:
        a.occupy(3, "one")
        b.occupy(5, "two", a)
        c.occupy(1, "three")
        yield c.start(2, "four", a, b)
        a.occupy(1, "five", b)

    assert play(world, process()) == [
        Span("c", 0, 1, "three"),
        Span("a", 0, 3, "one"),
        Span("b", 3, 8, "two"),
        Span("c", 8, 10, "four"),
        Span("a", 10, 11, "five"),
    ]


seconds = st.floats(min_value=0.0, max_value=1e3)


@given(st.floats(min_value=0.01, max_value=1e3), st.floats(min_value=0.01, max_value=1e3), st.floats(1.0, 3.0))
def test_overlap_under_contention_has_a_closed_form(a: float, b: float, slowdown: float) -> None:
    world = World()
    world.share_memory(("a", "b"), slowdown)

    def process() -> Generator[Event, object, None]:
        first, second = world.lane("a").start(a, "a"), world.lane("b").start(b, "b")
        yield first
        yield second

    play(world, process())
    assert world.now == pytest.approx(max(a, b) + (slowdown - 1.0) * min(a, b), rel=1e-12)


@given(st.lists(st.tuples(st.sampled_from("abc"), seconds), max_size=30))
def test_no_lane_is_ever_booked_twice(bookings: list[tuple[str, float]]) -> None:
    world = World()

    def process() -> Generator[Event, object, None]:
        for lane, duration in bookings:
            world.lane(lane).start(duration, lane)
        yield world.environment.timeout(0)

    spans = play(world, process())
    for lane in "abc":
        own = [span for span in spans if span.lane == lane]
        assert all(before.end_s <= after.start_s for before, after in pairwise(own))
        assert sum(d for name, d in bookings if name == lane) == pytest.approx(sum(s.end_s - s.start_s for s in own))


def test_two_worlds_do_not_know_each_other() -> None:
    one, other = World(), World()

    def process(world: World) -> Generator[Event, object, None]:
        yield world.lane("a").start(1, "x")

    play(one, process(one))
    assert (one.now, other.now, other.spans) == (1, 0, [])


def test_a_world_that_keeps_few_spans_still_knows_who_was_busy_and_can_cut_short() -> None:
    """Two spans of each lane are kept; what has not ended is kept until it has, so that a flush still finds it."""
    world = World(spans=2)
    lane = world.lane("a")

    def process() -> Generator[Event, object, None]:
        for turn in range(5):
            yield lane.start(1, f"turn {turn}")
        lane.start(10, "flushed")
        yield world.lane("b").start(2, "other")
        world.forget()
        lane.cancel()
        yield lane.start(1, "last")
        world.forget()

    assert play(world, process()) == [Span("a", 0, 1, "turn 0"), Span("a", 1, 2, "turn 1"), Span("b", 5, 7, "other")]
    assert lane.spans == [(0, 1, "turn 0"), (1, 2, "turn 1")]
    assert (lane.busy_s, world.lanes["b"].busy_s) == (5 + 2 + 1, 2)
