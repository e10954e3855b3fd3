"""Anything done in any order: lanes against plain lists of bookings and exact fractions, the draft
tree against nodes.

Times are quarters, so that sums of them are exact and everything is compared with ``==``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from simpy import Event

from benchmarks.family.draft_tree import DraftTree
from simulator.core.world import Lane, Span, World

quarters = st.integers(0, 40).map(lambda number: number / 4)
names = st.sampled_from("abc")


# ---- lanes


@dataclass
class PlainLane:
    """All bookings that were not taken back, and since when nothing is in the way."""

    bookings: list[tuple[float, float, str]] = field(default_factory=list)
    free_at: float = 0.0

    def add(self, begin: float, end: float, label: str) -> None:
        self.bookings.append((begin, end, label))
        self.free_at = end


class Lanes(RuleBasedStateMachine):
    """A world that may forget, beside lists that do not."""

    @initialize(room=st.sampled_from([None, 0, 1, 3]))
    def begin(self, room: int | None) -> None:
        self.world, self.room = World(room), room
        self.plain = {name: PlainLane() for name in "abc"}
        self.expected: list[float] = []
        self.came: list[tuple[float, float]] = []

    @rule(name=names, seconds=quarters, told=st.booleans())
    def work(self, name: str, seconds: float, told: bool) -> None:
        lane, begin = self.plain[name], max(self.plain[name].free_at, self.world.now)
        lane.add(begin, begin + seconds, "work")
        if told:
            self.expected.append(begin + seconds)
            self.listen(self.world.lane(name).start(seconds, "work"), begin + seconds)
        else:
            self.world.lane(name).occupy(seconds, "work")

    def listen(self, event: Event, due: float) -> None:
        assert event.callbacks is not None
        event.callbacks.append(lambda _: self.came.append((due, self.world.now)))

    @rule(name=names, others=st.lists(names, min_size=1, max_size=2), seconds=quarters)
    def work_behind(self, name: str, others: list[str], seconds: float) -> None:
        begin = max(self.world.now, *(self.plain[one].free_at for one in (name, *others)))
        self.plain[name].add(begin, begin + seconds, "behind")
        end = self.world.lane(name).occupy(seconds, "behind", *map(self.world.lane, others))
        assert end == begin + seconds

    @rule(name=names, gap=quarters, seconds=quarters)
    def book(self, name: str, gap: float, seconds: float) -> None:
        begin = max(self.plain[name].free_at, self.world.now) + gap
        self.plain[name].add(begin, begin + seconds, "ahead")
        self.world.lane(name).book(begin, begin + seconds, "ahead")

    @rule(name=names)
    def retract(self, name: str) -> None:
        lane, now = self.plain[name], self.world.now
        lane.bookings = [booking for booking in lane.bookings if booking[0] < now]
        lane.free_at = max([now, *(end for _, end, _ in lane.bookings)])
        self.world.lane(name).retract()

    @rule(name=names)
    def cancel(self, name: str) -> None:
        lane, now = self.plain[name], self.world.now
        if lane.bookings and lane.bookings[-1][1] > now:
            begin, _, label = lane.bookings.pop()
            lane.free_at = max(begin, now)
            if begin < now:
                lane.add(begin, now, label)
        self.world.lane(name).cancel()

    @rule()
    def forget(self) -> None:
        self.world.forget()

    @rule(seconds=quarters.filter(bool))
    def wait(self, seconds: float) -> None:
        self.world.environment.run(until=self.world.now + seconds)

    @invariant()
    def as_plain(self) -> None:
        if not hasattr(self, "world"):
            return
        now = self.world.now
        kept = [
            Span(name, *booking)
            for name, lane in self.plain.items()
            for booking in lane.bookings[: self.room]
        ]
        assert sorted(self.world.spans) == sorted(kept)
        assert [span.start_s for span in self.world.spans] == sorted(span.start_s for span in kept)
        for name, lane in self.world.lanes.items():
            done = [
                (begin, min(end, now)) for begin, end, _ in self.plain[name].bookings if begin < now
            ]
            assert lane.busy_s == sum(end - begin for begin, end in done) <= now
            assert max(lane.free_at, now) == max(self.plain[name].free_at, now)
            assert all(before[1] <= after[0] for before, after in pairwise(lane.spans)), (
                "booked twice"
            )

    @invariant()
    def told_in_time(self) -> None:
        if hasattr(self, "world"):
            assert all(due == came for due, came in self.came)
            assert sorted(due for due, _ in self.came) == sorted(
                due for due in self.expected if due < self.world.now
            )


TestLanes = Lanes.TestCase
TestLanes.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


# ---- two lanes on one memory


@dataclass
class Job:
    work: Fraction
    begin: Fraction | None = None


class PlainMemory:
    """Queues of work that is done at full speed where one lane is busy, and at half where both are;
    exact fractions.
    """

    def __init__(self) -> None:
        self.now, self.queues = Fraction(0), {name: list[Job]() for name in "ab"}
        self.spans: list[tuple[str, Fraction, Fraction]] = []

    def start(self, name: str, work: float) -> None:
        self.queues[name].append(Job(Fraction(work)))
        self.open(name)

    def open(self, name: str) -> None:
        if self.queues[name] and self.queues[name][0].begin is None:
            self.queues[name][0].begin = self.now

    def wait(self, until: Fraction) -> None:
        """What ends at ``until`` itself has not ended yet."""
        while self.now < until:
            busy = {name: jobs[0] for name, jobs in self.queues.items() if jobs}
            slowdown = 2 if len(busy) > 1 else 1
            for name in [name for name, job in busy.items() if not job.work]:
                self.end(name)
            if any(not job.work for job in busy.values()):
                continue
            step = min([until - self.now, *(job.work * slowdown for job in busy.values())])
            self.now += step
            for job in busy.values():
                job.work -= step / slowdown

    def end(self, name: str) -> None:
        job = self.queues[name].pop(0)
        assert job.begin is not None
        self.spans.append((name, job.begin, self.now))
        self.open(name)


class Sharing(RuleBasedStateMachine):
    """Each booking is known at once, and stretched by what is booked beside it later."""

    def __init__(self) -> None:
        super().__init__()
        self.world, self.plain = World(), PlainMemory()
        self.came: list[float] = []
        self.told: list[tuple[Lane, int]] = []
        self.world.share_memory(("a", "b"), 2.0)

    @rule(name=st.sampled_from("ab"), seconds=quarters.filter(bool), told=st.booleans())
    def work(self, name: str, seconds: float, told: bool) -> None:
        lane, other = (self.world.lane(one) for one in (name, "b" if name == "a" else "a"))
        if other.spans and other.spans[-1][0] > max(lane.free_at, self.world.now):
            return  # lanes on one memory are booked in the order in which work begins
        self.plain.start(name, seconds)
        if told:
            self.told.append((lane, len(lane.spans)))
            event = lane.start(seconds, "work")
            assert event.callbacks is not None
            event.callbacks.append(lambda _: self.came.append(self.world.now))
        else:
            lane.occupy(seconds, "work")

    @rule(seconds=quarters.filter(bool))
    def wait(self, seconds: float) -> None:
        until = self.world.now + seconds
        self.plain.wait(Fraction(until))
        self.world.environment.run(until=until)

    @invariant()
    def as_plain(self) -> None:
        ended = [span for span in self.world.spans if span.end_s < self.world.now]
        assert sorted(
            (span.lane, Fraction(span.start_s), Fraction(span.end_s)) for span in ended
        ) == sorted(span for span in self.plain.spans if span[2] < self.plain.now)
        ends = [lane.spans[place][1] for lane, place in self.told]
        assert self.came == sorted(end for end in ends if end < self.world.now)


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


# ---- the tree


@dataclass(eq=False)
class Node:
    """A token and what hangs below it."""

    token: int
    chance: float
    parent: Node | None = None
    key: int = -1

    @property
    def line(self) -> list[Node]:
        """From the root to this node."""
        return [*(self.parent.line if self.parent else ()), self]


class Tree(RuleBasedStateMachine):
    """A tree of arrays that grows by levels and is cut, beside levels of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.tree, self.levels, self.keys = DraftTree.single(7, 0), [[Node(7, 0.0, key=0)]], 1

    @property
    def nodes(self) -> list[Node]:
        return [node for level in self.levels for node in level]

    @precondition(lambda self: len(self.levels) < 7)
    @rule(
        drawn=st.lists(
            st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(1, 8)), max_size=6
        )
    )
    def append(self, drawn: list[tuple[int, int, int]]) -> None:
        above = self.levels[-1]
        new = [
            Node(token, -eighths / 8, above[parent % len(above)])
            for token, parent, eighths in drawn
        ]
        first = len(self.nodes) - len(above)
        parents = [first + parent % len(above) for _, parent, _ in drawn]
        tokens, chance = [node.token for node in new], [node.chance for node in new]
        self.tree = self.tree.append(
            np.array(tokens, int), np.array(chance, float), np.array(parents, int)
        )
        if new:
            self.levels.append([node for parent in above for node in new if node.parent is parent])

    @rule(which=st.integers(0, 40))
    def prune(self, which: int) -> None:
        root = self.nodes[which % len(self.nodes)]
        self.tree = self.tree.prune(which % len(self.nodes))
        below = [[node for node in level if root in node.line] for level in self.levels]
        self.levels = [level for level in below if level]
        root.parent = None

    @rule(which=st.lists(st.integers(0, 40), min_size=1, max_size=4))
    def read(self, which: list[int]) -> None:
        chosen = sorted({one % len(self.nodes) for one in which})
        keys = range(self.keys, self.keys + len(chosen))
        self.keys += len(chosen)
        self.tree = self.tree.keyed(np.array(chosen), np.array(keys))
        for node, key in zip((self.nodes[one] for one in chosen), keys, strict=True):
            node.key = key

    @rule(token=st.integers(0, 9))
    def look(self, token: int) -> None:
        children = self.levels[1] if len(self.levels) > 1 else []
        found = next((node for node in children if node.token == token), None)
        assert self.tree.child(token) == (self.nodes.index(found) if found else None)

    @invariant()
    def as_nodes(self) -> None:
        tree, nodes = self.tree, self.nodes
        place = {node: number for number, node in enumerate(nodes)}
        assert tree.tokens.tolist() == [node.token for node in nodes]
        assert tree.key.tolist() == [node.key for node in nodes]
        assert tree.level.tolist() == [len(node.line) - 1 for node in nodes]
        assert [np.flatnonzero(row).tolist() for row in tree.mask] == [
            [place[symbol] for symbol in node.line] for node in nodes
        ]
        assert tree.bottom.tolist() == [place[node] for node in self.levels[-1]]
        below = np.arange(1, len(nodes))
        assert tree.parents(below).tolist() == [place[node.parent] for node in nodes if node.parent]
        reach = [sum(symbol.chance for symbol in node.line[1:]) for node in nodes]
        assert (tree.reach - tree.reach[0]).tolist() == reach

    @invariant()
    def cuts(self) -> None:
        for number, root in enumerate(self.nodes):
            stays = [other for other, node in enumerate(self.nodes) if root in node.line]
            path = [self.nodes.index(node) for node in root.line]
            assert self.tree.subtree(number).tolist() == stays
            assert self.tree.cached(number).tolist() == sorted({*path, *stays})


TestTree = Tree.TestCase
TestTree.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


@pytest.mark.full
@pytest.mark.parametrize("machine", [Lanes, Sharing, Tree], ids=lambda machine: machine.__name__)
def test_for_longer(machine: type[RuleBasedStateMachine]) -> None:
    case = machine.TestCase()
    case.settings = settings(max_examples=600, stateful_step_count=50, deadline=None)
    case.runTest()
