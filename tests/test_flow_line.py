"""A pipeline whose stages and links block on their own: tiny worlds with all spans, and any run
beside plain processes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from plain_line import PlainLine
from simpy import Environment, Event

from simulator.core.strategies.common.pipeline_laws import PipelineTimes
from simulator.core.strategies.common.stage_pipeline import Level as OnLine, StagePipeline
from simulator.core.world import World


class Level(NamedTuple):
    """What one level takes: a time for each stage, and one for each link between them."""

    compute: Sequence[float]
    carry: Sequence[float]


class Passage(NamedTuple):
    """How a token comes: pipeline steps since the one before it, and the levels that enter in
    them.
    """

    steps: int
    entering: Sequence[Level]


def played(
    times: PipelineTimes, passages: Sequence[Passage], keep: int | None = None
) -> tuple[list[float], World]:
    """When each token is known everywhere, on the event engine; of the spans, so many of each lane
    are kept.
    """
    world, known = World(keep), list[float]()
    stages = [world.lane(f"stage {i + 1}") for i in range(len(times.stages))]
    links = [world.lane(f"link {i + 1}") for i in range(len(times.links))]
    line = StagePipeline(
        stages, links, world.lane("draft"), times.prune, times.token, times.asynchronous
    )

    def request() -> Iterator[Event]:
        for steps, entering in passages:
            yield line.advance(steps - 1, [OnLine(*level, times.draft) for level in entering])
            known.append(world.now)
            if not len(known) % 256:
                world.forget()

    world.environment.process(request())
    world.environment.run()
    return known, world


def constant(times: PipelineTimes, steps: Sequence[int]) -> list[Passage]:
    level = Level(times.stages, times.links)
    return [
        Passage(min(count, len(times.stages)), [level] * min(count, len(times.stages)))
        for count in steps
    ]


def spans(world: World, lane: str) -> list[tuple[float, float, str]]:
    return [
        (round(s.start_s, 9), round(s.end_s, 9), s.label) for s in world.spans if s.lane == lane
    ]


def test_three_stages_with_a_miss_in_flight() -> None:
    """Stages 10, 20, 10, links 1, 2, pruning 3: L = 46, M = 23. The second token is a miss: what
    flies at 69 is cut.
    """
    times = PipelineTimes((10.0, 20.0, 10.0), links=(1.0, 2.0), prune=3.0)
    known, world = played(times, constant(times, [3, 1, 3, 1]))
    assert known == [46.0, 69.0, 115.0, 138.0]
    assert spans(world, "stage 1") == [
        *(
            (0, 3, "prune"),
            (3, 13, "compute"),
            (13, 16, "prune"),
            (16, 26, "compute"),
            (26, 29, "prune"),
        ),
        *(
            (29, 39, "compute"),
            (39, 42, "prune"),
            (46, 49, "prune"),
            (49, 59, "compute"),
            (59, 62, "prune"),
        ),
        *(
            (69, 72, "prune"),
            (72, 82, "compute"),
            (82, 85, "prune"),
            (85, 95, "compute"),
            (95, 98, "prune"),
        ),
        *(
            (98, 108, "compute"),
            (108, 111, "prune"),
            (115, 118, "prune"),
            (118, 128, "compute"),
            (128, 131, "prune"),
        ),
    ]
    assert spans(world, "stage 2")[:6] == [
        *((14, 34, "compute"), (34, 37, "prune"), (37, 57, "compute"), (57, 60, "prune")),
        *((60, 69, "compute"), (69, 72, "prune")),
    ]
    assert spans(world, "link 1")[:4] == [
        (13, 14, "transmit"),
        (26, 27, "transmit"),
        (39, 40, "transmit"),
        (59, 60, "transmit"),
    ]


def test_a_gap_drops_a_level_and_the_next_one_moves_up() -> None:
    """Three stages of 10: of levels 1, 2, 3 the second is dropped at 30, so that the third goes on
    to stage 3 alone.
    """
    times = PipelineTimes((10.0, 10.0, 10.0))
    known, world = played(times, constant(times, [3, 2, 1]))
    assert known == [30.0, 50.0, 60.0]
    assert spans(world, "stage 3") == [
        (20, 30, "compute"),
        (40, 50, "compute"),
        (50, 60, "compute"),
        (60, 70, "compute"),
        (70, 80, "compute"),
    ]


def test_a_slow_draft_sets_the_pace() -> None:
    times = PipelineTimes((10.0, 10.0), draft=25.0)
    known, world = played(times, constant(times, [2, 1, 1, 2, 1]))
    assert known == [20.0, 45.0, 70.0, 90.0, 115.0]
    assert spans(world, "draft")[:4] == [
        *(
            (0, 25, "draft level"),
            (25, 50, "draft level"),
            (50, 70, "draft level"),
            (70, 95, "draft level"),
        ),
    ]


def test_a_stage_that_sends_itself_waits_for_the_link() -> None:
    """Each of two stages 10, link 5, pruning 2: M = 17 where the first stage sends itself, 12 where
    a link does.
    """
    both = [
        PipelineTimes((10.0, 10.0), (5.0,), 2.0, asynchronous=asynchronous)
        for asynchronous in (False, True)
    ]
    assert [played(times, constant(times, [2, 1, 1]))[0] for times in both] == [
        [27, 44, 61],
        [27, 39, 54],
    ]


seconds = st.floats(0.5, 60.0)
small = st.one_of(st.just(0.0), st.floats(0.01, 30.0))


@st.composite
def pipelines(draw: st.DrawFn, most: int = 6) -> PipelineTimes:
    stages = draw(st.lists(seconds, min_size=2, max_size=most))
    links = draw(st.lists(small, min_size=len(stages) - 1, max_size=len(stages) - 1))
    return PipelineTimes(
        tuple(stages), tuple(links), draw(small), draw(small), draw(small), draw(st.booleans())
    )


@st.composite
def runs(draw: st.DrawFn) -> tuple[PipelineTimes, list[Passage]]:
    """A pipeline and passages of levels that take other times at every stage and on every link, as
    with jitter.
    """
    times = draw(pipelines())
    m = len(times.stages)
    level = st.builds(
        Level,
        st.lists(seconds, min_size=m, max_size=m),
        st.lists(small, min_size=m - 1, max_size=m - 1),
    )
    steps = [m, *draw(st.lists(st.integers(1, m), max_size=25))]
    return times, [
        Passage(count, draw(st.lists(level, min_size=count, max_size=count))) for count in steps
    ]


def bookings(world: World) -> list[tuple[int, float, float]]:
    """What the stages and links did, by part: stage 1, link 1, stage 2, ..."""
    lanes = [lane for lane in world.lanes.values() if lane.name != "draft"]
    place = {lane.name: 2 * int(lane.name.split()[1]) - (lane.name[0] == "s") - 1 for lane in lanes}
    return [
        (place[lane.name], begin, end)
        for lane in lanes
        for begin, end, label in lane.spans
        if label != "prune" and end > begin and begin < world.now
    ]


@settings(deadline=None)
@given(runs())
def test_booked_ahead_it_is_the_line_of_processes_and_resources(
    run: tuple[PipelineTimes, list[Passage]],
) -> None:
    """Any times, any gaps, with and without pruning, draft and overlap: every token, and every span
    of every part.
    """
    times, passages = run
    known, world = played(times, passages)
    plain = PlainLine(times)
    assert known == pytest.approx(plain.run(passages), rel=1e-12)
    found, expected = (
        sorted(bookings(world)),
        sorted(span for span in plain.spans if span[1] < world.now),
    )
    assert [part for part, _, _ in found] == [part for part, _, _ in expected]
    assert np.array(found) == pytest.approx(np.array(expected), rel=1e-9)
    for lane in world.lanes.values():
        assert all(before[1] <= after[0] for before, after in pairwise(lane.spans))


def test_a_prune_follows_every_level_that_began() -> None:
    """Stages 10, 20, pruning 3: the miss at 36 cuts stage 2 and finds stage 1 idle; both prune
    once.
    """
    times = PipelineTimes((10.0, 20.0), prune=3.0)
    _, world = played(times, constant(times, [2, 2]))
    assert spans(world, "stage 1")[3:6] == [
        (16, 26, "compute"),
        (26, 29, "prune"),
        (33, 36, "prune"),
    ]
    assert spans(world, "stage 2")[:2] == [(13, 33, "compute"), (33, 36, "prune")]


def test_a_level_through_eight_stages_costs_no_more_than_forty_timeouts() -> None:
    """Paired with bare timeouts of the event engine, so that a busy machine slows both; 13 on a
    quiet one.
    """
    times, count, ratios = PipelineTimes((10.0,) * 8, (1.0,) * 7, prune=2.0, draft=5.0), 2_000, []
    passages = constant(times, [8] + [1] * count)
    for _ in range(5):
        environment = Environment()

        def bare(environment: Environment) -> Iterator[Event]:
            for _ in range(count):
                yield environment.timeout(1.0)

        environment.process(bare(environment))
        begin = time.process_time()
        environment.run()
        timeouts = time.process_time() - begin
        begin = time.process_time()
        played(times, passages, keep=0)
        ratios.append((time.process_time() - begin) / timeouts)
    assert median(ratios) < 40
