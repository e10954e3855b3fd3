"""SpecPipe keeps a pipeline full with the levels of a draft tree that is pruned as tokens leave it.

    draft     |== grow the next level (w nodes) ==|
    target    |                                   |
      stage 1 |prune, send|== level l + m - 1 ====|
      ...     |           |                       |
      stage m |prune, send|== level l ==|         |   the row of the last token: the next token

    T_step = max{T_exchange + max t_i, T_draft}                                           (SP-12)
    T_exchange = max{T_token + T_prune, max T_link}
    T_token = t(w) (1 + (1 - P) m) as printed                                  (Eq. 2; SP-1, SP-2)

One step is one pipeline step of all stages together; it moves every level one stage on. While the
next token is in the tree every step commits one. A token outside the tree enters alone and comes
out m steps later, while the stages ahead of it stand still; where pruning left a gap of k levels,
the next one comes k steps later. ``late`` notices a miss one step later, after a wasted step, as
Eq. (1) and (2) count it (K28).

Every level is pruned at every step, so that it has fewer rows at each stage it reaches, and one
when its token is due: a recording holds how many (``beam.rows``). Where hits are only stated,
levels keep the rows that they entered with.

Several requests share each step (SpecPipe-DB, SP-13): their levels are packed without padding, each
has a tree of its own, and a miss empties the pipeline of its own levels only. With ``width_rule:
shared`` they share the ``width`` rows of a level, else each has so many. ``packing_ratio``
multiplies what a stage takes longer than with one request's level::

    t_i = t_i(levels / B) + packing_ratio (t_i(levels) - t_i(levels / B))

Prompts of requests that enter while others decode travel like a level, a stage a step; all stages
wait for the slowest.

``relaxed`` verification takes what the target ranks highest among the tree's candidates (SP-14 a):
every token is in the tree. It is lossy.
"""

from collections.abc import Mapping, Sequence
from operator import add
from typing import ClassVar, Literal

import numpy as np

from simulator.core.acceptance.cursors import Cursor
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Phase, Rows
from simulator.core.numeric import Numbers, elementwise_max, ordered_sum
from simulator.core.strategies.common.claim import EXACT, Claim
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import Kind, Lanes, Step, Timeline
from simulator.core.strategies.common.traits import Traits
from simulator.core.world import Lane, at
from simulator.papers.specpipe.filled_pipeline import FilledPipeline
from simulator.papers.specpipe.levels import InPipeline, SpecPipeDurations, filled, passing


class SpecPipe(FilledPipeline[SpecPipeDurations, InPipeline]):
    """A tree of ``width`` nodes a level, ``branching`` children considered for each, lies over the
    stages of the target.
    """

    name: Literal["specpipe"] = "specpipe"
    traits: ClassVar[Traits] = Traits(
        SpecPipeDurations,
        "T_step (1 + (1 - P)(m - 1)) (SpecPipe Eq. 2 with immediate re-entry)",
        staged=True,
        separate_prompts=True,
    )

    def open(self, cursor: Cursor, context: int, drafted: bool = True) -> InPipeline:
        """Return a request of which the pipeline holds no level yet."""
        return InPipeline(passing(cursor), context)

    def compose(self, states: Sequence[InPipeline], prompts: Rows = NO_ROWS) -> Step:
        """Move every level one stage on and return the step; how the next token comes is known as
        soon as the last one is.
        """
        loads = [NO_ROWS] * self.stages
        due = begun = 0
        for state in states:
            self._move(state)
            due += state.due
            begun += state.begun
            state.proposed = sum(state.levels) - 1
            for stage, rows in enumerate(state.levels):
                if rows:
                    level = Rows.decode(rows, state.context)
                    others = loads[stage]
                    loads[stage] = level if others is NO_ROWS else others + level
        active = max((stage for stage, rows in enumerate(loads, start=1) if rows.tokens), default=0)
        kind = self.kind_of(due, len(states) - due, active, begun)._replace(
            prompts=prompts.sequences
        )
        return Step(kind, sum(loads, start=NO_ROWS), 0, prompts, tuple(loads))

    def _move(self, state: InPipeline) -> None:
        """Take one pipeline step of one request."""
        passage = state.passage
        state.begun = not state.left
        if passage is None or state.begun:
            state.stale = self.late and passage is not None and not (passage.hit or state.stale)
            if state.stale:
                state.levels = [state.levels[0], *state.levels[:-1]]
                return
            passage = state.passage = self.next_passage(state.cursor, empty=passage is None)
            state.left = passage.steps
        state.left -= 1
        state.levels = passage.at(passage.steps - 1 - state.left)

    # ---- the time

    def durations(self, cost: Cost, step: Step) -> SpecPipeDurations:
        """Return the seconds of each stage and link with work; the draft reads what enters, prompts
        first.
        """
        m = self.stages
        batch = step.kind.batch
        levels = step.loads[:m]
        prompts = step.loads[m:]
        loads: Sequence[Rows]
        if prompts:
            loads = [level + prompt for level, prompt in zip(levels, prompts, strict=True)]
        else:
            loads = levels
        stages = tuple(
            cost.stage(index, rows).wall_s if rows.tokens else 0.0
            for index, rows in enumerate(loads)
        )
        if batch > 1 and self.packing_ratio.value > 1.0:
            stages = tuple(
                map(
                    add,
                    stages,
                    (self._packing_s(cost, *level, batch) for level in enumerate(levels)),
                )
            )
        links = tuple(
            cost.carry(index, rows.tokens) if rows.tokens else 0.0
            for index, rows in enumerate(loads[1:])
        )
        if filled(step.kind).begun:
            verdict = cost.token() + self.prune_s
        else:
            verdict = 0.0
        if prompts and prompts[0].tokens:
            reading = cost.prefill("draft", prompts[0]).wall_s
        else:
            reading = 0.0
        draft = reading + (cost.draft(levels[0]).wall_s if levels[0].tokens else 0.0)
        return SpecPipeDurations(stages, links, verdict, draft, self.asynchronous)

    def _packing_s(self, cost: Cost, index: int, levels: Rows, batch: int) -> Numbers:
        """Return the seconds that packing adds to the ``levels`` of a ``batch`` of requests at one
        stage.
        """
        if not levels.tokens:
            return 0.0
        mean = Rows(*(-(-count // batch) for count in levels))
        longer = cost.stage(index, levels).wall_s - cost.stage(index, mean).wall_s
        return (self.packing_ratio.value - 1.0) * elementwise_max(0.0, longer)

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Return the slowest stage, the exchange before it, and a level of the draft at the same
        time as both.
        """
        t = self.durations(cost, step)
        return {
            "exchange": Phase(t.exchange, {}),
            "compute": Phase(max(t.stages), {"target compute": ordered_sum(t.stages)}),
            "draft_level": cost.draft(step.loads[0]) if step.loads[0].tokens else Phase(0.0, {}),
        }

    def timeline(self, lanes: Lanes, durations: SpecPipeDurations, kind: Kind) -> Timeline:
        """Book stages that prune and links that carry, then stages that compute; the draft grows a
        level meanwhile.
        """
        barrier = self._book_exchange(lanes, durations)
        last = lanes.draft
        if durations.draft:
            last.occupy(durations.draft, "draft level")
        if barrier is not None and barrier.free_at > last.free_at:
            last = barrier
        for stage, seconds in zip(lanes.stages, durations.stages, strict=True):
            if seconds and stage.occupy(seconds, "compute", barrier) > last.free_at:
                last = stage
        environment = lanes.draft.environment
        return (at(environment, max(last.free_at, environment.now)),)

    def _book_exchange(self, lanes: Lanes, durations: SpecPipeDurations) -> Lane | None:
        """Book stages that prune and links that carry; return the lane that is done last, behind
        which all stages compute, or None where nothing is exchanged.
        """
        last: Lane | None = None
        if durations.verdict:
            last = _prune(lanes, durations)
        behind_pruning = None if durations.asynchronous else last
        for link, seconds in zip(lanes.links, durations.links, strict=True):
            if seconds:
                link.occupy(seconds, "transmit", behind_pruning)
                if last is None or link.free_at > last.free_at:
                    last = link
        return last

    def step_seconds(self, durations: SpecPipeDurations, kind: Kind) -> Numbers:
        """Return ``max{T_exchange + max t_i, T_draft}`` in seconds."""
        return elementwise_max(
            durations.exchange + elementwise_max(*durations.stages), durations.draft
        )

    # ---- the law

    def kinds(self, odds: OddsOf, requests: int) -> Mapping[Kind, Numbers]:
        """Return the shares by renewal over tokens: one step after a hit, m steps with 1, 2, ..., m
        busy stages after a miss.

        Several requests are out of step with each other, so that some level is at every stage in
        nearly every step.
        """
        m = self.stages
        hit = 1.0 if self.relaxed else odds(1).accepted[1]
        if requests > 1:
            steps = hit + (1.0 - hit) * (m + self.late)
            due = self.kind_of(requests, 0, m, requests)
            return {
                due: 1.0 / steps,
                due._replace(name="refill", verifying=0, waiting=requests): 1.0 - 1.0 / steps,
            }
        weights = {self.kind_of(1, 0, m, 1): hit}
        if np.any(hit < 1.0):
            weights |= {
                self.kind_of(int(a == m), int(a < m), a, int(a == 1)): 1.0 - hit
                for a in range(1, m + 1)
            }
            if self.late:
                weights[self.kind_of(0, 1, m, 1)] = 1.0 - hit
        total = ordered_sum(weights.values())
        return {kind: weight / total for kind, weight in weights.items() if np.any(weight)}

    def step(self, kind: Kind, context: int) -> Step:
        """Return a step of equal requests: full levels behind a hit, levels of a growing tree in a
        refill.
        """
        requests, (active, begun) = kind.batch, filled(kind)
        full = begun and active == self.stages
        behind = [self.nodes] * active if full else self.grown(active)
        rows = [*reversed(behind[1:]), 1] + [0] * (self.stages - active)
        loads = tuple(Rows.decode(n, requests * context, requests) if n else NO_ROWS for n in rows)
        return Step(kind, sum(loads, start=NO_ROWS), 0, NO_ROWS, loads)

    def claim(
        self,
        cost: Cost,
        requests: int,
        context: int,
        shares: Mapping[Kind, Numbers],
        one_lane: bool,
    ) -> Claim:
        """Return that the law is exact for one request; for several it takes their levels to be
        full in every step.
        """
        if requests == 1:
            return EXACT
        full = self.step(self.kind_of(requests, 0, self.stages, requests), context).loads[0]
        seconds = [
            cost.stage(0, full._replace(tokens=tokens)).wall_s
            for tokens in range(1, full.tokens + 1)
        ]
        if max(seconds) > seconds[-1]:
            return Claim(
                "idealised",
                "full levels of all requests in every step, where some with fewer rows take longer",
            )
        return Claim(
            "upper_bound", "full levels of all requests in every step, also of those that refill"
        )


def _prune(lanes: Lanes, durations: SpecPipeDurations) -> Lane:
    """Book the verdict at the stages that have work, at the first where none has; return the last
    of them, which computes behind all others, so that its compute holds up none of them.
    """
    last: Lane | None = None
    for stage, seconds in zip(lanes.stages, durations.stages, strict=True):
        if seconds:
            stage.occupy(durations.verdict, "prune")
            last = stage
    if last is None:
        last = lanes.stages[0]
        last.occupy(durations.verdict, "prune")
    return last
