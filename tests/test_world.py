"""Tiny worlds with round numbers and their complete timelines."""

from __future__ import annotations

import random
import re
from collections.abc import Generator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from simpy import Event

import simulator.core.world
from simulator.core.world import Span, World


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
    assert [span for span in spans if span.lane == "b"] == [
        Span("b", 2, 5, "flushed"),
        Span("b", 5, 6, "next"),
    ]


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
        suffix, draft = (
            world.lane("target").start(18, "suffix"),
            world.lane("draft").start(12, "draft"),
        )
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


@given(
    st.floats(min_value=0.01, max_value=1e3),
    st.floats(min_value=0.01, max_value=1e3),
    st.floats(1.0, 3.0),
)
def test_overlap_under_contention_has_a_closed_form(a: float, b: float, slowdown: float) -> None:
    world = World()
    world.share_memory(("a", "b"), slowdown)

    def process() -> Generator[Event, object, None]:
        first, second = world.lane("a").start(a, "a"), world.lane("b").start(b, "b")
        yield first
        yield second

    play(world, process())
    assert world.now == pytest.approx(max(a, b) + (slowdown - 1.0) * min(a, b), rel=1e-12)


def fluid(
    works: tuple[list[float], list[float]], slowdown: float
) -> tuple[list[float], list[float]]:
    """When each piece of work ends on either lane, one after the other, by stepping from one end to
    the next.
    """
    now, left = 0.0, [list(work) for work in works]
    ends: tuple[list[float], list[float]] = ([], [])
    while busy := [lane for lane in (0, 1) if left[lane]]:
        pace = slowdown if len(busy) > 1 else 1.0
        elapsed = min(left[lane][0] for lane in busy)
        now += elapsed * pace
        for lane in busy:
            left[lane][0] -= elapsed
            if left[lane][0] <= 1e-12:
                left[lane].pop(0)
                ends[lane].append(now)
    return ends


pieces = st.lists(st.floats(min_value=0.01, max_value=10.0), max_size=8)


@given(st.tuples(pieces, pieces), st.floats(1.0, 3.0))
def test_one_memory_is_a_fluid(works: tuple[list[float], list[float]], slowdown: float) -> None:
    """Whoever waits for a booking wakes at its end, however often the other lane has put that
    off.
    """
    world = World()
    world.share_memory(("a", "b"), slowdown)
    woken: tuple[list[float], list[float]] = ([], [])

    def process(number: int) -> Generator[Event, object, None]:
        for work in works[number]:
            yield world.lane("ab"[number]).start(work, "work")
            woken[number].append(world.now)

    play(world, process(0), process(1))
    for number, expected in enumerate(fluid(works, slowdown)):
        assert woken[number] == pytest.approx(expected, rel=1e-9)
        assert [end for _, end, _ in world.lane("ab"[number]).spans] == pytest.approx(
            expected, rel=1e-9
        )


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
        assert sum(d for name, d in bookings if name == lane) == pytest.approx(
            sum(s.end_s - s.start_s for s in own)
        )


def test_two_worlds_do_not_know_each_other() -> None:
    one, other = World(), World()

    def process(world: World) -> Generator[Event, object, None]:
        yield world.lane("a").start(1, "x")

    play(one, process(one))
    assert (one.now, other.now, other.spans) == (1, 0, [])


def test_a_world_that_keeps_few_spans_still_knows_who_was_busy_and_can_cut_short() -> None:
    """Two spans of each lane are kept; what has not ended is kept until it has, so that a flush
    still finds it.
    """
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

    assert play(world, process()) == [
        Span("a", 0, 1, "turn 0"),
        Span("a", 1, 2, "turn 1"),
        Span("b", 5, 7, "other"),
    ]
    assert lane.spans == [(0, 1, "turn 0"), (1, 2, "turn 1")]
    assert (lane.busy_s, world.lanes["b"].busy_s) == (5 + 2 + 1, 2)


@pytest.mark.parametrize("book", ["occupy", "start"])
def test_a_booking_begins_when_its_lane_and_those_it_waits_for_are_free(book: str) -> None:
    """Lane a is free at 3, b at 5, c at 7; now is 2, then 9."""
    world = World()
    a, b, c = (world.lane(name) for name in "abc")
    found = []

    def process() -> Generator[Event, object, None]:
        yield world.lane("d").start(2, "before")
        for lane, free in ((a, 3), (b, 5), (c, 7)):
            lane.book(0, free, "busy")
        for others in ((), (b,), (b, c), (c, b), (None, c)):
            a.free_at = 3
            found.append(getattr(a, book)(1, "x", *others))
        yield world.lane("d").start(7, "wait")
        found.append(getattr(a, book)(1, "y", b, c))

    play(world, process())
    assert a.spans[1:] == [
        (3, 4, "x"),
        (5, 6, "x"),
        (7, 8, "x"),
        (7, 8, "x"),
        (7, 8, "x"),
        (9, 10, "y"),
    ]
    assert (a.free_at, b.free_at) == (10, 5)
    assert book == "start" or found == [4, 6, 8, 8, 8, 10]


def test_the_event_of_a_booking_comes_at_its_end() -> None:
    world = World()
    ends = []

    def process() -> Generator[Event, object, None]:
        for lane, others in (("a", ()), ("b", ("a",)), ("c", ("a", "b"))):
            event = world.lane(lane).start(2, lane, *(world.lane(name) for name in others))
            event.callbacks.append(lambda event: ends.append(world.now))
        yield event

    play(world, process())
    assert ends == [2, 4, 6]


def test_a_lane_of_a_shared_memory_can_be_occupied() -> None:
    world = World()
    world.share_memory(("a", "b"), 2.0)

    def process() -> Generator[Event, object, None]:
        world.lane("a").occupy(3, "alone")
        yield world.lane("a").start(1, "behind it")

    assert play(world, process()) == [Span("a", 0, 3, "alone"), Span("a", 3, 4, "behind it")]


def test_ends_of_bookings_can_be_awaited_together() -> None:
    world = World()

    def process() -> Generator[Event, object, None]:
        yield world.lane("a").start(3, "long") & world.lane("b").start(1, "short")
        yield world.lane("a").start(1, "then")

    assert play(world, process())[-1] == Span("a", 3, 4, "then")


def test_spans_of_one_time_come_in_the_order_of_their_lanes() -> None:
    world = World()

    def process() -> Generator[Event, object, None]:
        world.lane("b").start(1, "z")
        yield world.lane("a").start(1, "y")

    assert play(world, process()) == [Span("b", 0, 1, "z"), Span("a", 0, 1, "y")]


def test_a_booking_ahead_stands_in_the_way_until_it_is_taken_back() -> None:
    world = World()
    lane = world.lane("a")

    def process() -> Generator[Event, object, None]:
        lane.book(0, 2, "first")
        lane.book(4, 6, "second")
        yield lane.start(1, "behind both")
        lane.book(7, 9, "begins now")
        lane.book(10, 12, "later")
        lane.retract()
        yield lane.start(1, "in their place")

    play(world, process())
    assert lane.spans == [
        (0, 2, "first"),
        (4, 6, "second"),
        (6, 7, "behind both"),
        (7, 8, "in their place"),
    ]


def test_a_lane_whose_every_booking_is_taken_back_is_free_now() -> None:
    world = World()
    lane = world.lane("a")

    def process() -> Generator[Event, object, None]:
        lane.book(5, 9, "first")
        lane.book(9, 12, "second")
        yield world.lane("b").start(3, "other")
        lane.retract()
        yield lane.start(1, "now")

    assert play(world, process()) == [Span("b", 0, 3, "other"), Span("a", 3, 4, "now")]


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_cut_short_as_it_begins_leaves_nothing(shared: bool) -> None:
    world = World()
    if shared:
        world.share_memory(("a", "b"), 2.0)

    def process() -> Generator[Event, object, None]:
        yield world.lane("a").start(2, "before")
        world.lane("a").start(5, "never")
        world.lane("a").cancel()
        yield world.lane("a").start(1, "after")

    assert play(world, process()) == [Span("a", 0, 2, "before"), Span("a", 2, 3, "after")]


def test_what_took_no_time_has_ended_and_is_not_cut_short() -> None:
    world = World()

    def process() -> Generator[Event, object, None]:
        yield world.lane("a").start(2, "before")
        world.lane("a").start(0, "no time")
        world.lane("a").cancel()
        yield world.lane("a").start(1, "after")

    assert play(world, process()) == [
        Span("a", 0, 2, "before"),
        Span("a", 2, 2, "no time"),
        Span("a", 2, 3, "after"),
    ]


def test_only_what_has_ended_is_forgotten() -> None:
    """One span is kept for good; of what follows, the ended ones go and the three that may yet be
    cut short stay.
    """
    world = World(spans=1)
    lane = world.lane("a")

    def process() -> Generator[Event, object, None]:
        lane.start(1, "kept")
        lane.start(9, "pending")
        yield world.environment.timeout(1)
        world.forget()
        assert lane.spans == [(0, 1, "kept"), (1, 10, "pending")]
        for turn in range(3):
            lane.start(2, f"turn {turn}")
        yield world.environment.timeout(10)
        world.forget()
        assert lane.spans == [
            (0, 1, "kept"),
            (10, 12, "turn 0"),
            (12, 14, "turn 1"),
            (14, 16, "turn 2"),
        ]
        assert lane.busy_s == 11

    assert play(world, process()) == [Span("a", 0, 1, "kept")]
    assert lane.busy_s == 16


def test_lanes_of_a_shared_memory_keep_few_spans_as_well() -> None:
    world = World(spans=1)
    world.share_memory(("a", "b"), 2.0)

    def process() -> Generator[Event, object, None]:
        for turn in range(3):
            yield world.lane("a").start(1, f"turn {turn}")
        world.forget()

    assert play(world, process()) == [Span("a", 0, 1, "turn 0")]
    assert (world.lane("a").spans, world.lane("a").busy_s) == ([(0, 1, "turn 0")], 3)


def test_a_lane_is_free_behind_what_runs_when_the_rest_is_taken_back() -> None:
    world = World()
    lane = world.lane("a")

    def process() -> Generator[Event, object, None]:
        for begin, end in ((0, 2), (2, 3), (3, 10), (10, 12)):
            lane.book(begin, end, "ahead")
        yield world.lane("b").start(5, "other")
        lane.retract()
        yield lane.start(1, "next")

    play(world, process())
    assert lane.spans[2:] == [(3, 10, "ahead"), (10, 11, "next")]


def test_a_world_without_a_bound_forgets_nothing() -> None:
    world = World()

    def process() -> Generator[Event, object, None]:
        for _ in range(3):
            yield world.lane("a").start(1, "x")
        world.forget()

    assert len(play(world, process())) == 3


def test_lanes_of_one_memory_wait_for_others_and_tell_their_end() -> None:
    """Alone until 4; then b stretches a by what they share: 2 s at twice the time."""
    world = World()
    world.share_memory(("a", "b"), 2.0)
    one, other, third = (world.lane(name) for name in "abc")
    found = []

    def process() -> Generator[Event, object, None]:
        third.occupy(4, "before")
        found.append(one.occupy(6, "x"))
        found.append(other.occupy(2, "y", third))
        found.append(one.free_at)
        yield one.start(1, "z", other, third)
        found.append(world.now)

    spans = play(world, process())
    assert found == [6, 8, 8, 9]
    assert spans == [
        Span("c", 0, 4, "before"),
        Span("a", 0, 8, "x"),
        Span("b", 4, 8, "y"),
        Span("a", 8, 9, "z"),
    ]


def test_a_stretched_booking_is_awaited_to_its_new_end() -> None:
    world = World()
    world.share_memory(("a", "b"), 1.5)
    ends = {}

    def process() -> Generator[Event, object, None]:
        for lane, seconds in (("a", 4), ("b", 2)):
            event = world.lane(lane).start(seconds, lane)
            event.callbacks.append(lambda _, lane=lane: ends.update({lane: world.now}))
        yield world.environment.timeout(20)

    play(world, process())
    assert ends == {"a": 5, "b": 3}


def test_what_runs_beside_a_cancelled_booking_ends_the_sooner() -> None:
    """Both at half pace until 2; then a has 3 s left that it works off alone."""
    world = World()
    world.share_memory(("a", "b"), 2.0)
    ends = []

    def process() -> Generator[Event, object, None]:
        end = world.lane("a").start(4, "goes on")
        end.callbacks.append(lambda _: ends.append(world.now))
        world.lane("b").start(3, "cut short")
        yield world.environment.timeout(2)
        world.lane("b").cancel()
        yield world.environment.timeout(9)

    assert play(world, process()) == [Span("b", 0, 2, "cut short"), Span("a", 0, 5, "goes on")]
    assert ends == [5]


@pytest.mark.parametrize("book", ["occupy", "start"])
def test_a_lane_of_one_memory_begins_behind_each_of_two_others(book: str) -> None:
    world = World()
    third, fourth = world.lane("c"), world.lane("d")
    third.occupy(3, "before")
    world.share_memory(("a", "b"), 2.0)
    lane = world.lane("a")
    getattr(lane, book)(1, "x", third)
    fourth.occupy(9, "before")
    getattr(lane, book)(1, "y", None, fourth)
    assert lane.spans == [(3, 4, "x"), (9, 10, "y")]
    assert world.lanes["c"] is third


def test_what_slowed_several_bookings_is_not_cut_short() -> None:
    """All of them would end the sooner, and only the newest can be changed."""
    world = World()
    world.share_memory(("a", "b"), 2.0)
    world.lane("a").occupy(9, "long")
    world.lane("b").occupy(1, "first")
    world.lane("b").occupy(1, "second")
    with pytest.raises(ValueError, match="a cannot be cut short: b has more booked"):
        world.lane("a").cancel()


def test_a_moment_alone_is_given_back_too() -> None:
    world = World()
    world.share_memory(("a", "b"), 2.0)
    world.lane("a").occupy(0.5, "goes on")
    world.lane("b").occupy(0.5, "never")
    world.lane("b").cancel()
    assert world.lane("a").spans == [(0, 0.5, "goes on")]


def test_a_lane_that_did_nothing_was_never_busy() -> None:
    world = World()
    world.lane("a").occupy(3, "begins now")
    assert (world.lane("a").busy_s, world.lane("b").busy_s) == (0.0, 0.0)


def test_the_private_parts_of_simpy_stay_in_one_module() -> None:
    package = Path(simulator.core.world.__file__).parent
    private = re.compile(r"\._(now|queue|eid)\b")
    assert [path.name for path in package.rglob("*.py") if private.search(path.read_text())] == [
        "world.py"
    ]


def test_busy_seconds_are_the_same_to_the_last_bit_whatever_is_kept() -> None:
    chance = random.Random(1)
    seconds = [chance.uniform(1e-9, 1.0) for _ in range(400)]
    busy = set()
    for room in (0, 3, 50, 399, 1000):
        world = World(room)
        lane = world.lane("a")
        for number, duration in enumerate(seconds):
            lane.occupy(duration, "x")
            if number % 7 == 0:
                world.environment.run(max(lane.free_at, 1e-9))
                world.forget()
        world.environment.run(lane.free_at + 1.0)
        busy.add(lane.busy_s)
    assert len(busy) == 1
