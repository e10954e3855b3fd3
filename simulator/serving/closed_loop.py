"""A closed loop: ``concurrency`` slots, each taking the next request as soon as its last one ends.

The loop decides who is in the batch; the strategy says what a step of this batch is. Requests that
enter together are prefilled together, before the next step, while the others wait.

The same loop runs on two clocks. On the event engine a step takes what its timeline takes; in a replay
it takes what the law says of its kind.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field, model_validator

from simulator.acceptance import Acceptance, Exit
from simulator.cost import Cost, Rows
from simulator.schema import Frozen
from simulator.strategies.protocol import Admission, Kind, Lanes, State, Strategy, Timeline
from simulator.world import World


class Requests(Frozen):
    """A closed-loop workload: every request has the same prompt and output length."""

    concurrency: int = Field(default=1, gt=0)
    count: int = Field(default=200, gt=0)
    prompt_tokens: int = Field(default=512, gt=0)
    output_tokens: int = Field(default=128, gt=1)

    @model_validator(mode="after")
    def _enough(self) -> Requests:
        if self.concurrency > self.count:
            raise ValueError(f"concurrency {self.concurrency} needs at least as many requests, and count is {self.count}")
        return self


@dataclass(slots=True)
class Active:
    """One request in the batch, and later its record."""

    index: int
    state: State
    admitted_s: float
    first_token_s: float = 0.0
    finished_s: float = 0.0
    tokens: int = 0


@dataclass
class Tally:
    """What happened, counted as it happens."""

    steps: Counter[Kind] = field(default_factory=Counter)
    seconds: defaultdict[Kind, float] = field(default_factory=lambda: defaultdict(float))
    """Time spent in steps, by kind."""
    request_steps: int = 0
    committed: int = 0
    """Verified tokens, those past the end of an output included."""
    accepted: Counter[int] = field(default_factory=Counter)
    judged: Counter[int] = field(default_factory=Counter)
    """Verified windows by length."""
    windows_missed: Counter[int] = field(default_factory=Counter)
    """Verified windows whose successor was off the tree, by length."""
    choices: Counter[str] = field(default_factory=Counter)
    finished: list[Active] = field(default_factory=list)

    @property
    def step_seconds(self) -> float:
        """Time spent in steps of all kinds."""
        return sum(self.seconds.values())


class ClosedLoop:
    """The batch and its bookkeeping; ``run`` and ``replay`` let time pass."""

    def __init__(self, strategy: Strategy, acceptance: Acceptance, exit: Exit | None, requests: Requests, cost: Cost) -> None:
        self.strategy, self.acceptance, self.exit = strategy, acceptance, exit
        self.requests, self.cost = requests, cost
        self.batch: list[Active] = []
        self.next_index = 0
        self.tally = Tally()
        self._prices: dict[tuple[Kind, Rows], Any] = {}

    def price(self, kind: Kind, rows: Rows) -> Any:
        """Durations of a step; equal steps are priced once."""
        key = (kind, rows)
        durations = self._prices.get(key)
        if durations is None:
            durations = self._prices[key] = self.strategy.durations(self.cost, kind, rows)
        return durations

    # ---- who is in the batch

    def admit(self, now: float) -> list[Active]:
        """Fill the free slots; the requests that entered."""
        free = self.requests.concurrency - len(self.batch)
        entering = []
        for index in range(self.next_index, min(self.next_index + free, self.requests.count)):
            cursor = self.acceptance.cursor(index, self.exit)
            entering.append(Active(index, self.strategy.open(cursor, self.requests.prompt_tokens), now))
        self.next_index += len(entering)
        self.batch.extend(entering)
        return entering

    def admission(self, entering: list[Active]) -> Admission:
        """Durations of prefill and first windows."""
        rows = Rows()
        for _ in entering:
            rows += Rows.prefill(self.requests.prompt_tokens)
        return self.strategy.admission(self.cost, rows, len(entering))

    def first_tokens(self, entering: list[Active], now: float) -> None:
        """The prefill has yielded one token of each."""
        for active in entering:
            active.first_token_s, active.tokens = now, 1

    def settle(self, kind: Kind, seconds: float, now: float) -> None:
        """Count a step that has ended and let finished requests go."""
        tally, limit = self.tally, self.requests.output_tokens
        tally.steps[kind] += 1
        tally.seconds[kind] += seconds
        tally.request_steps += len(self.batch)
        ended = False
        for active, progress in zip(self.batch, self.strategy.settle([a.state for a in self.batch]), strict=True):
            active.tokens = min(limit, active.tokens + progress.shown)
            tally.committed += progress.verified
            if progress.choice:
                tally.choices[progress.choice] += 1
            if progress.proposed:
                tally.accepted[progress.accepted] += 1
            if progress.shown:
                tally.judged[progress.proposed] += 1
                tally.windows_missed[progress.proposed] += not active.state.ready
            if active.tokens >= limit:
                active.finished_s, ended = now, True
                tally.finished.append(active)
        if ended:
            self.batch = [active for active in self.batch if active.tokens < limit]

    # ---- two clocks

    def run(self, world: World, lanes: Lanes) -> Timeline:
        """The SimPy process: steps take what their timeline takes."""
        environment, strategy = world.environment, self.strategy
        while True:
            if entering := self.admit(environment.now):
                yield from self._prefill(entering, world, lanes)
            if not self.batch:
                return
            kind, rows = strategy.compose([active.state for active in self.batch])
            begin = environment.now
            yield from strategy.timeline(lanes, self.price(kind, rows), kind)
            self.settle(kind, environment.now - begin, environment.now)

    def _prefill(self, entering: list[Active], world: World, lanes: Lanes) -> Timeline:
        admission = self.admission(entering)
        target = lanes.target.start(admission.target, "prefill")
        if admission.draft:
            yield lanes.draft.start(admission.draft, "draft prefill")
        yield target
        self.first_tokens(entering, world.now)
        if admission.window:
            yield lanes.draft.start(admission.window, "first window")

    def replay(self) -> float:
        """No events: steps take what the law says of their kind; returns the end time in seconds."""
        now, strategy = 0.0, self.strategy
        while True:
            if entering := self.admit(now):
                admission = self.admission(entering)
                sides = admission.target, admission.draft
                now += max(sides) + (self.cost.contention - 1.0) * min(sides)
                self.first_tokens(entering, now)
                now += admission.window
            if not self.batch:
                return now
            kind, rows = strategy.compose([active.state for active in self.batch])
            seconds = float(strategy.step_seconds(self.price(kind, rows), kind))
            now += seconds
            self.settle(kind, seconds, now)
