"""In tandem, SpecPipe's stages run as soon as their input is there, instead of stepping together.

    draft     |=a=|=b=|=c=|   one level ahead of the first stage
    target    |
      stage 1 |=a==|=b==|=c==|
      link 1       |a|  |b|
      stage 2        |===a===|===b===|
      stage 3                |a|     |b|    tokens of a and b: L after a miss, then M apart

    T_token = P M + (1 - P) L,   M = max{t_i + T_prune, T_link, T_draft}
    L = T_token + T_prune + sum t_i + sum T_link

With a miss noticed a step late this is Eq. (1) as printed. Every stage and every link blocks on its
own (:mod:`simulator.core.strategies.common.stage_pipeline`): a miss cuts short whatever is in
flight, a gap lets what is behind it move up. No more than m levels are in flight, so that each
enters knowing what it would know in step; where that is too few to cover all links, the law is a
lower bound. Rows at a stage are those that a level has there in step; the branch that a verified
token left for dead goes on with what it had until the level is dropped. One request at a time.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from simulator.core.acceptance.cursors import Cursor
from simulator.core.acceptance.draft_tree import Passage
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Phase, Rows
from simulator.core.numeric import Numbers, ordered_sum
from simulator.core.strategies.common.capabilities import BlocksByStage
from simulator.core.strategies.common.claim import Claim
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.pipeline_laws import PipelineTimes, hit_shares
from simulator.core.strategies.common.stage_pipeline import Level, StagePipeline
from simulator.core.strategies.common.step import Kind, Lanes, Step, Timeline
from simulator.core.strategies.common.traits import Traits
from simulator.papers.specpipe.filled_pipeline import FilledPipeline
from simulator.papers.specpipe.levels import InPipeline, filled, passing


class TandemDurations(NamedTuple):
    """These are seconds: M and L for the first level that enters before the next token, and the
    times of all that enter.
    """

    pace: float
    latency: float
    levels: tuple[PipelineTimes, ...]


@dataclass(slots=True)
class InTandem(InPipeline):
    """Levels of this request enter with the rows that they will have at each stage."""

    ahead: deque[Passage] = field(default_factory=deque)
    """Next passages of the request; the first of them is under way."""


class SpecPipeTandem(FilledPipeline[TandemDurations, InTandem], BlocksByStage):
    """The tree of ``specpipe`` lies over stages that do not wait for each other; one step is the
    way to the next token.
    """

    name: Literal["specpipe_tandem"] = "specpipe_tandem"
    traits: ClassVar[Traits] = Traits(
        TandemDurations,
        "P max{t_i} + (1 - P) sum t_i (SpecPipe Eq. 1 with immediate re-entry)",
        staged=True,
        alone=True,
        separate_prompts=True,
    )

    def line(self, cost: Cost, lanes: Lanes) -> StagePipeline:
        """Return the empty pipeline over the stages and links of ``lanes``."""
        return StagePipeline(
            lanes.stages,
            lanes.links,
            lanes.draft,
            self.prune_s,
            cost.token(),
            asynchronous=self.asynchronous,
        )

    def open(self, cursor: Cursor, context: int, drafted: bool = True) -> InTandem:
        """Return a request of which the pipeline holds no level yet."""
        return InTandem(passing(cursor), context)

    def compose(self, states: Sequence[InTandem], prompts: Rows = NO_ROWS) -> Step:
        """Return all levels that enter until the next token is out, in series in ``loads``: rows at
        each stage.
        """
        (state,) = states
        if self.late and state.passage and not state.passage.hit:
            vain = [self.level(self.width)]
        else:
            vain = []
        self._look_ahead(state)
        entering = [*vain, *self._entering(state)]
        state.passage = state.ahead.popleft()
        state.proposed = sum(level[0] for level in entering) - 1
        loads = tuple(Rows.decode(rows, state.context) for level in entering for rows in level)
        verified = sum(loads[:: self.stages], start=NO_ROWS)
        return Step(self.kind_of(1, 0, len(entering), 1), verified, 0, NO_ROWS, loads)

    def _look_ahead(self, state: InTandem) -> None:
        """Read passages until the levels that enter now have left."""
        if state.passage is None:
            state.ahead.append(self.next_passage(state.cursor, empty=True))
        steps = sum(passage.steps for passage in state.ahead)
        while not state.ahead or steps - state.ahead[0].steps < self.stages - 1:
            state.ahead.append(self.next_passage(state.cursor))
            steps += state.ahead[-1].steps

    def _entering(self, state: InTandem) -> Iterator[list[int]]:
        """Yield the rows by stage of each level that enters in the passage under way; one row at
        the last stage.
        """
        in_step = [passage.at(step) for passage in state.ahead for step in range(passage.steps)]
        for entry in range(state.ahead[0].steps):
            rows = [in_step[entry][0]]
            for stage in range(1, self.stages - 1):
                rows.append(in_step[entry + stage][stage] or rows[-1])
            yield [*rows, 1][-self.stages :]

    def durations(self, cost: Cost, step: Step) -> TandemDurations:
        """Return the seconds that each level takes at every stage and on every link."""
        m = cost.stages
        levels = tuple(
            self.times(cost, step.loads[first : first + m])
            for first in range(0, len(step.loads), m)
        )
        return TandemDurations(levels[0].pace, levels[0].latency, levels)

    def times(self, cost: Cost, level: Sequence[Rows]) -> PipelineTimes:
        """Return the pipeline as a level with these rows at each stage meets it; seconds."""
        return PipelineTimes(
            stages=tuple(cost.stage(index, rows).wall_s for index, rows in enumerate(level)),
            links=tuple(cost.carry(index, rows.tokens) for index, rows in enumerate(level[1:])),
            prune=self.prune_s,
            token=cost.token(),
            draft=cost.draft(level[0]).wall_s,
            asynchronous=self.asynchronous,
        )

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Return the phases of the first level that enters: what comes before, all stages, and the
        draft.
        """
        times = self.times(cost, step.loads[: self.stages])
        return {
            "exchange": Phase(times.token + times.prune, {}),
            "compute": Phase(max(times.stages), {"target compute": ordered_sum(times.stages)}),
            "draft_level": Phase(times.draft, {}),
        }

    def timeline(self, lanes: Lanes, durations: TandemDurations, kind: Kind) -> Timeline:
        """Let levels enter and wait until the next token is known."""
        line = lanes.line
        levels = [Level(times.stages, times.links, times.draft) for times in durations.levels]
        if line is None:
            raise TypeError("a pipeline in tandem needs a line")
        if filled(kind).active > self.stages:
            yield line.advance(0, levels[:1])
            del levels[0]
        yield line.advance(len(levels) - 1, levels)

    def step_seconds(self, durations: TandemDurations, kind: Kind) -> Numbers:
        """Return M after a hit, L after a miss, and M for each step of a partial refill; in
        seconds.
        """
        active = filled(kind).active
        if active > self.stages:
            return durations.levels[0].pace + durations.levels[1].latency
        return durations.levels[0].at_most(active)

    def kinds(self, odds: OddsOf, requests: int) -> Mapping[Kind, Numbers]:
        """Return the shares of hits and full refills; recorded gaps are not foreseen."""
        hit = 1.0 if self.relaxed else odds(1).accepted[1]
        shares = hit_shares(hit, self.stages, self.late)
        return {
            self.kind_of(1, 0, steps, 1): share for steps, share in shares.items() if np.any(share)
        }

    def step(self, kind: Kind, context: int) -> Step:
        """Return a full level after a hit, a tree that grows after a miss."""
        active = filled(kind).active
        late = active > self.stages
        if active >= self.stages:
            grown = self.grown(active - late)
        else:
            grown = [self.width] * active
        levels = [self.level(rows) for rows in [self.width] * late + grown]
        loads = tuple(Rows.decode(rows, context) for level in levels for rows in level)
        return Step(kind, sum(loads[:: self.stages], start=NO_ROWS), 0, NO_ROWS, loads)

    def claim(
        self,
        cost: Cost,
        requests: int,
        context: int,
        shares: Mapping[Kind, Numbers],
        one_lane: bool,
    ) -> Claim:
        """Return the claim of full levels, if all levels take as long."""
        full = self.times(cost, [Rows.decode(rows, context) for rows in self.level(self.width)])
        claim = full.claim(
            {min(filled(kind).active, self.stages): share for kind, share in shares.items()}
        )
        lone = self.times(cost, [Rows.decode(1, context)] * self.stages)
        if claim.exact and not all(map(np.array_equal, full.stages, lone.stages)):
            return Claim(
                "idealised",
                "levels of a growing tree are taken to be as long as full ones or as a single row",
            )
        return claim
