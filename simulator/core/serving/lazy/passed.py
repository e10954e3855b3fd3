"""Iterations of a lazy batch that have passed and are not in the books yet.

They are written many at a time, to the last bit as if each had been written as it ended: what adds
up is added in the order in which time passed.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.core.numeric import Numbers
from simulator.core.serving.cache.occupancy import Occupancy
from simulator.core.serving.lazy.to_come import StepsToCome
from simulator.core.serving.ledger import Ledger
from simulator.core.serving.metrics import BrokenRunError
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.capabilities import drafts_first
from simulator.core.strategies.common.courses import Places
from simulator.core.strategies.common.step import Admission, Kind, Lanes, Step
from simulator.core.world import Lane, RunLane

Seconds = NDArray[np.float64]
Counts = NDArray[np.int64]
MOST = 1 << 15
"""Iterations after which they are written, so that memory stays bounded: half a MiB, and a few more
as they are written.
"""


@dataclass(slots=True, eq=False)
class Prices:
    """Durations of the steps that so many requests may take, by entry."""

    steps: tuple[PricedSteps, ...]
    parts: Sequence[Numbers]
    """The seconds of each part of a step, in turn: an array over the entries, or a number."""
    first: int
    """What the first entry is for: a sum of contexts, or the number of a step."""
    entries: int
    by_step: bool = False
    """Whether entries are steps."""
    always: bool = False
    """Whether no context changes them: the one entry, 0, is for all steps."""

    def entries_of(self, to_come: StepsToCome, first: int, stop: int) -> Counts:
        """Return the entries of the steps from one to before another, as far as they are among
        them; contexts grow from step to step.
        """
        if self.always:
            return np.zeros(stop - first, dtype=np.int64)
        if self.by_step:
            return np.arange(first - self.first, min(stop - self.first, self.entries))
        entries = to_come.contexts(first, stop) - self.first
        if entries.item(-1) >= self.entries:
            return entries[: entries.searchsorted(self.entries)]
        return entries

    def ends(self, entries: Counts, begin_s: float) -> Seconds:
        """Return when steps with these entries end that follow one another from ``begin_s`` on,
        part after part.
        """
        parts = len(self.parts)
        times = np.empty(1 + parts * len(entries))
        times[0] = begin_s
        for place, seconds in enumerate(self.parts, start=1):
            each = seconds[entries] if isinstance(seconds, np.ndarray) else seconds
            times[place::parts] = each
        return np.add.accumulate(times)[parts::parts]


class PricedSteps(NamedTuple):
    """Steps of one kind and their durations."""

    places: Places
    """Which entries of the prices are theirs."""
    step: Step
    durations: Any
    """Named durations in seconds, each an array over these entries or a number."""


@dataclass(slots=True, eq=False)
class Alike:
    """Iterations priced one by one that are alike but for the seconds that each takes."""

    step: Step | None
    """One of them, if they are steps; None: prompts alone."""
    durations: list[Any] = field(default_factory=list)
    """Those of each, in their order."""


Segment = tuple[int, float, Prices | Alike, int, int]
"""Iterations in a row with the same requests, prices and prompts in the cache: the number of the
first one, when it began in seconds, prices, requests that decode, and KV blocks in use beside those
that have been added up.
"""
ShownLast = tuple[float, int]
"""When so many requests, in running order, were last shown a token, in seconds."""
Booked = tuple[Counts, Step | None, Any]
"""Iterations by their numbers, with their step, or None for prompts alone, and durations."""


class Passed:
    """What has passed since the books were last written."""

    def __init__(self) -> None:
        self.ends = array("d")
        """When each iteration ended, in seconds."""
        self.entries = array("q")
        """Which entry of the prices of its segment it took."""
        self.segments: list[Segment] = []
        self.shown_last: list[tuple[int, Sequence[ShownLast]]] = []
        """Iterations whose requests were not all shown their last token as it began."""
        self.alike: dict[Hashable, Alike] = {}
        self.kept: list[tuple[int, int]] = []
        """From which iteration on how many blocks are kept that nobody has; of those that begin
        with the same one the first was there before it began.
        """

    def one_more(self, key: Hashable, step: Step | None, durations: Any) -> Alike:
        """Return the iterations that are alike by ``key``, to which another one with its durations
        is added.
        """
        alike = self.alike.get(key)
        if alike is None:
            alike = self.alike[key] = Alike(step)
        alike.durations.append(durations)
        return alike

    def add(self, end_s: float) -> None:
        """Add an iteration that is priced by itself."""
        self.ends.append(end_s)
        self.entries.append(0)

    def add_each(self, ends: Seconds, entries: Counts) -> None:
        """Add iterations in a row, with the entries of their prices."""
        self.ends.frombytes(ends.tobytes())
        self.entries.frombytes(entries.tobytes())

    def keep(self, iterations: int) -> None:
        """Take all iterations back behind so many of them, which are steps without prompts."""
        del self.ends[iterations:], self.entries[iterations:]
        while self.segments[-1][0] >= iterations:
            *_, prices, _, _ = self.segments.pop()
            if isinstance(prices, Alike):
                prices.durations.pop()

    def write(self, ledger: Ledger, grown: Counts, strategy: Strategy, lanes: Lanes | None) -> None:
        """Write everything into the books and, unless they are None, on the lanes; forget it.

        ``grown`` (steps,): blocks that requests have got since they began to decode, in use during
        each of the steps.
        """
        if not self.ends:
            return
        firsts, begins_s, prices, requests, blocks = zip(*self.segments, strict=True)
        ends = np.array(self.ends)
        begins = np.empty_like(ends)
        begins[1:] = ends[:-1]
        begins[list(firsts)] = begins_s
        seconds = ends - begins
        lengths = np.diff([*firsts, len(ends)])
        decoding = np.repeat(requests, lengths)
        used = np.repeat(blocks, lengths)
        steps = decoding > 0
        used[steps] += grown
        ledger.hold_each(used, seconds, self.ends[-1])
        if ledger.occupancy:
            self._note_occupancy(ledger.occupancy, begins, ends, used)
        ledger.gaps.add_each(*self._gaps(seconds, decoding, steps))
        ledger.tally.request_steps += int(decoding.sum())
        booked = list(self._by_prices(prices, lengths))
        for step, places in _by_kind(booked):
            ledger.steps(step, seconds[places])
        if lanes:
            _book(booked, strategy, lanes, begins, ends)
        self.kept = [(0, kept) for first, kept in self.kept if first == len(ends)]
        del self.ends[:], self.entries[:]
        self.segments, self.shown_last, self.alike = [], [], {}

    def _note_occupancy(
        self, occupancy: Occupancy, begins: Seconds, ends: Seconds, used: Counts
    ) -> None:
        """Note what requests have, and what is kept beside it, during iterations and before those
        that did not begin as the one before ended.
        """
        firsts, kept = np.array(self.kept).T
        during = kept[np.searchsorted(firsts, np.arange(len(ends)), side="right") - 1]
        free = np.concatenate([[occupancy.since_s], ends[:-1]])
        late = np.flatnonzero(begins > free)
        before = kept[np.searchsorted(firsts, late)]
        occupancy.note_each(
            np.concatenate([free[late], begins]),
            np.concatenate([begins[late], ends]),
            np.array(
                [
                    np.concatenate([np.zeros_like(before), used]),
                    np.concatenate([before, used + during]),
                ]
            ),
        )

    def _gaps(
        self, seconds: Seconds, decoding: Counts, steps: NDArray[np.bool_]
    ) -> tuple[list[float], list[int]]:
        """Return the gaps between tokens in their order, equal ones of a step together, and how
        many requests have each.
        """
        gaps = list[float]()
        requests = list[int]()
        every_gap = seconds.tolist()
        every_count = decoding.tolist()
        groups_at = dict(self.shown_last)
        prompts_alone = np.flatnonzero(~steps).tolist()
        begin = 0
        for place in sorted({*groups_at, *prompts_alone, len(every_gap)}):
            gaps += every_gap[begin:place]
            requests += every_count[begin:place]
            if place in groups_at:
                for gap, count in _together(groups_at[place], self.ends[place]):
                    gaps.append(gap)
                    requests.append(count)
            begin = place + 1
        return gaps, requests

    def _by_prices(
        self, of_segments: Sequence[Prices | Alike], lengths: Counts
    ) -> Iterator[Booked]:
        """Yield the iterations that have the same prices, or are alike; each segment has prices and
        a length.
        """
        entries = np.array(self.entries)
        numbers: dict[Prices | Alike, int] = {}
        by_segment = [numbers.setdefault(prices, len(numbers)) for prices in of_segments]
        of_iterations = np.repeat(by_segment, lengths)
        by_prices = np.argsort(of_iterations, kind="stable")
        ends = np.cumsum(np.bincount(of_iterations, minlength=len(numbers))).tolist()
        begin = 0
        for prices, end in zip(numbers, ends, strict=True):
            places = by_prices[begin:end]
            begin = end
            if isinstance(prices, Alike):
                yield places, prices.step, _columns(prices.durations)
                continue
            for steps, mine, at in _within(prices.steps, entries[places]):
                yield places[mine], steps.step, _at(steps.durations, at)


def _columns(durations: Sequence[Any]) -> Any:
    """Return named durations, each an array over some iterations or, where it is the same in all, a
    number.
    """
    columns = []
    for column in zip(*durations, strict=True):
        alike = column.count(column[0]) == len(column)
        columns.append(column[0] if alike else np.array(column))
    return type(durations[0])._make(columns)


def _by_kind(booked: Sequence[Booked]) -> Iterator[tuple[Step, Counts]]:
    """Yield a step of each kind with the numbers of its iterations, in their order."""
    kinds: dict[Kind, tuple[Step, list[Counts]]] = {}
    for places, step, _ in booked:
        if step is not None:
            kinds.setdefault(step.kind, (step, []))[1].append(places)
    for step, runs in kinds.values():
        yield step, runs[0] if len(runs) == 1 else np.sort(np.concatenate(runs))


def _within(
    priced: Sequence[PricedSteps], entries: Counts
) -> Iterator[tuple[PricedSteps, Places, Counts]]:
    """Yield the steps of each kind that have some of the ``entries``, which of these, and where
    they stand among their durations.
    """
    for steps in priced:
        if isinstance(steps.places, slice):
            yield steps, slice(None), entries
            continue
        at = np.searchsorted(steps.places, entries)
        mine = np.append(steps.places, -1)[at] == entries
        if mine.any():
            yield steps, np.flatnonzero(mine), at[mine]


def _at(durations: Any, entries: Counts) -> Any:
    """Return named durations at some entries; what is one number stays it."""
    return type(durations)._make(
        [seconds[entries] if isinstance(seconds, np.ndarray) else seconds for seconds in durations]
    )


def _together(groups: Sequence[ShownLast], end_s: float) -> Iterator[tuple[float, int]]:
    """Yield the gaps before a step that ends at ``end_s``, equal ones of neighbours together."""
    gap = 0.0
    requests = 0
    for at_s, alike in groups:
        if requests and end_s - at_s != gap:
            yield gap, requests
            requests = 0
        gap = end_s - at_s
        requests += alike
    if requests:
        yield gap, requests


# ---- the lanes


def _book(
    booked: Sequence[Booked], strategy: Strategy, lanes: Lanes, begins: Seconds, ends: Seconds
) -> None:
    """Book all iterations on the lanes, as the strategy's timeline books one of each kind; raises
    :class:`BrokenRunError` where a timeline does not last what its durations say in turn.
    """
    by_lane: dict[Lane, list[tuple[Counts, RunLane]]] = {}
    roles = (lanes.target, lanes.draft, lanes.rendezvous)
    for places, step, durations in booked:
        starts = begins[places]
        copies = {lane: RunLane(starts) for lane in roles}
        on_copies = Lanes._make((*(copies[lane] for lane in roles), *lanes[len(roles) :]))
        if step is None:
            end = read_prompts(on_copies, durations, drafts_first(strategy))
        else:
            *_, end = strategy.timeline(on_copies, durations, step.kind)
        if not np.array_equal(end, ends[places]):
            name = step.kind.name if step else "prompts"
            raise BrokenRunError(f"{name}: the timeline does not last what its durations say")
        for lane, copy in copies.items():
            if copy.booked:
                by_lane.setdefault(lane, []).append((places, copy))
    for lane, copies_of in by_lane.items():
        lane.book_runs(len(ends), copies_of, ends[-1].item())


def read_prompts(lanes: Lanes, admission: Admission, drafted_first: bool) -> Any:
    """Book prompts that are alone in an iteration; return when it ends.

    Target and draft read side by side, or one after the other on one lane; a first window is
    written behind both, or ``drafted_first`` before the target reads.
    """
    target, draft, window = lanes.target, lanes.draft, admission.window
    end: Any
    if drafted_first:
        draft.start(admission.draft, "draft prefill, first window")
        end = target.start(admission.target, "prefill", draft)
    else:
        end = target.start(admission.target, "prefill")
        if np.any(admission.draft):
            drafted: Any = draft.start(admission.draft, "draft prefill")
            end = np.maximum(end, drafted)
    if np.any(window):
        end = draft.start(window, "first window", target)
    return end
