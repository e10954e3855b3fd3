"""SpecInfer over a pipeline grows a draft tree level by level, then one pass takes all of it
through the stages.

    draft       |=1=|=2=|..|=d=|           |=1=|=2=|...
    target      |
      stage 1                  |=A=|                   the root and all nodes of a tree
      stage 2                      |=A=|
      stage 3                          |=A=|       what is kept is known at the draft after T_token

    T_step = max{T_draft + L, g M},   T_draft = sum of the levels' passes
    L = sum t_i + sum T_link + T_token
    M = the longest of T_draft, t_i and T_link,   g = batches in flight

One request leaves all devices but one idle, and the tree is drafted while all stages wait
(SpecPipe, sec. 4). Several are shared out as in ``pipeline``; then batches draft while others are
verified, and the draft is one more stage. Each pass of the draft reads the level before, the first
one the root. The tree is static: ``branching[l]`` children below every node of level l,
<1,1,3,1,1,1,1,1> with 20 nodes in the paper (SP-11).

What a tree keeps comes from recorded ranks of the draft; with stated rates, the rate at a position
is the chance that the token is among the children there.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from operator import mul
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field

from simulator.core.acceptance.sources import Acceptance, Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.acceptance.tree_replay import (
    RecordedRuns,
    ranks_ahead,
    static_tree_run,
    tree_of,
)
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Phase, Rows, together
from simulator.core.cost.stated import StatedDurations
from simulator.core.numeric import Numbers, elementwise_max, ordered_sum
from simulator.core.strategies.common.claim import Example
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import Kind, Lanes, State, Step, Timeline
from simulator.core.strategies.common.token_tree import Branching
from simulator.core.strategies.common.traits import Facts, Finding, Needs, Traits, too_many_children
from simulator.core.strategies.pipeline import OnStages


class PipelineTreeDurations(NamedTuple):
    """These are seconds, for the whole tree, by stage and by link, and for a token from the last
    stage back to the draft.
    """

    draft: float
    stages: tuple[float, ...]
    links: tuple[float, ...]
    token: float


class PipelineTree(OnStages[PipelineTreeDurations]):
    """A static tree is drafted for every pass through the stages."""

    name: Literal["pipeline_tree"] = "pipeline_tree"
    traits: ClassVar[Traits] = Traits(
        PipelineTreeDurations,
        "T_step = max{T_draft + L, g M} (serial draft, pipeline parallelism)",
        staged=True,
    )

    branching: Branching = Field(default=(1, 1, 3, 1, 1, 1, 1, 1), min_length=1)
    """Children of every node, level by level."""

    @classmethod
    def example(cls) -> Example:
        """Return a tree of three levels over four stages of unequal length."""
        durations = StatedDurations(
            stages_ms=(4.0, 5.0, 3.0, 4.5),
            links_ms=(1.0, 2.0, 0.5),
            token_ms=0.5,
            draft_step_ms=1.5,
        )
        return Example(cls(branching=(2, 1, 2)), durations)

    @property
    def levels(self) -> tuple[int, ...]:
        """Return the nodes of each level, the root not counted (SP-11)."""
        return tuple(accumulate(self.branching, mul))

    @property
    def window(self) -> int:
        """Return the levels: the most draft tokens that a step can keep."""
        return len(self.branching)

    @property
    def nodes(self) -> int:
        """Return the nodes of the tree, the root included."""
        return 1 + sum(self.levels)

    @property
    def needs(self) -> Needs:
        """Return the needs of a pass of the draft for each level; the cache takes all nodes before
        it is cut to the path.
        """
        return super().needs._replace(draft_steps=len(self.branching), cache_tokens=self.nodes)

    def reads(self, verdicts: Acceptance) -> Acceptance:
        """Return what the tree keeps from each start of a recording; stated rates as they are."""
        if not isinstance(verdicts, Replay):
            return verdicts
        ranks = ranks_ahead(verdicts.trace, "draft", self.window)
        return RecordedRuns(verdicts, static_tree_run(ranks, tree_of(self.branching)), self.window)

    def _unrecorded(self, trace: Trace) -> Finding | None:
        """Return the tree where a trace holds windows by start: only ranks say what any static tree
        keeps.
        """
        if trace.run is None:
            return None
        return ("branching", "holds no ranks of a draft, which a tree needs")

    def _contradictions(self, facts: Facts) -> Iterator[Finding]:
        """Yield stages that are stated, and more children of a node than there are tokens."""
        yield from super()._contradictions(facts)
        yield from too_many_children(max(self.branching), facts.target)

    # ---- the batch

    def compose(self, states: Sequence[State], prompts: Rows = NO_ROWS) -> Step:
        """Return a step in which every request of the batch has its tree verified."""
        for state in states:
            state.proposed = self.window
        context = sum(state.context for state in states)
        return self._step(Kind("step", len(states), prompts=prompts.sequences), context)._replace(
            prompts=prompts
        )

    def step(self, kind: Kind, context: int) -> Step:
        """Return a step of this kind with all requests at ``context`` tokens."""
        return self._step(kind, kind.verifying * context)

    def _step(self, kind: Kind, context: int) -> Step:
        """Return a step of this kind with ``context`` cached tokens of all requests together."""
        return Step(kind, Rows.decode(self.nodes, context, kind.verifying))

    # ---- the time

    def durations(self, cost: Cost, step: Step) -> PipelineTreeDurations:
        """Return the seconds of all levels in series, then of the same rows at every stage and on
        every link.
        """
        return PipelineTreeDurations(self._draft(cost, step).wall_s, *self.way(cost, step))

    def _draft(self, cost: Cost, step: Step) -> Phase:
        """Return prompts, then a pass over each level but the deepest, the root before it."""
        requests = step.kind.verifying
        cached = step.rows.kv_tokens - step.rows.tokens
        chunks = [cost.prefill("draft", step.prompts)] if step.prompts.sequences else []
        return together(
            *chunks,
            *(cost.draft(Rows.decode(rows, cached, requests)) for rows in (1, *self.levels[:-1])),
        )

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Return the draft, the work of all stages, and all that is carried."""
        return {"draft": self._draft(cost, step), **super().phases(cost, step)}

    def timeline(self, lanes: Lanes, durations: PipelineTreeDurations, kind: Kind) -> Timeline:
        """Book the draft, then the way stage by stage; the batch before may hold it up."""
        lanes.draft.occupy(durations.draft, "draft tree")
        return self._through(lanes, durations, lanes.draft)

    def step_seconds(self, durations: PipelineTreeDurations, kind: Kind) -> Numbers:
        """Return ``max{T_draft + L, g M}`` in seconds."""
        t = durations
        through = t.draft + ordered_sum(t.stages) + ordered_sum(t.links) + t.token
        return elementwise_max(
            through, self.in_flight * elementwise_max(t.draft, *t.stages, *t.links)
        )

    def _renews(self, shares: Mapping[Kind, Numbers]) -> bool:
        """Return True: a tree is drafted before every verification."""
        return True

    def kinds(self, odds: OddsOf, requests: int) -> dict[Kind, float]:
        """Return the only kind of step: batches of one size, the larger one where they cannot be
        equal.
        """
        return {Kind("step", -(-requests // self.in_flight)): 1.0}
