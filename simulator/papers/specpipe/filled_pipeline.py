"""What SpecPipe's two strategies share: the tree that fills a pipeline, and what of it is kept."""

from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Self, TypeVar

from pydantic import Field

from simulator.core.acceptance.draft_tree import Beam, Passage
from simulator.core.acceptance.sources import Acceptance, Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.acceptance.tree_replay import DrawnPassages, RecordedPassages, recorded_beams
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Rows
from simulator.core.cost.stated import StatedDurations
from simulator.core.numeric import Numbers
from simulator.core.quantities import NonNegative, OneOrMore
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.capabilities import CarriesPrompts
from simulator.core.strategies.common.claim import Example
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import ABSENT, Kind, Progress, Step
from simulator.core.strategies.common.traits import (
    Facts,
    Finding,
    Needs,
    stated_stages,
    too_many_children,
)
from simulator.papers.specpipe.levels import FillDetail, InPipeline, Passing

R = TypeVar("R", bound=InPipeline)
T = TypeVar("T")


class FilledPipeline(Strategy[T, R], CarriesPrompts, ABC):
    """A pipeline is kept full with the levels of a tree: ``width`` nodes a level, ``branching``
    children considered for each, over the stages of the target.

    It has durations ``T``, and a state ``R`` of each request.
    """

    width: int = Field(default=64, ge=1, le=10_000)
    """Nodes of a level."""
    branching: int = Field(default=16, ge=1, le=1_000_000)
    """Children considered for each node."""
    late: bool = False
    """Whether a miss is noticed one step later."""
    relaxed: bool = False
    """Whether the candidate that the target ranks highest is taken; lossy."""
    asynchronous: bool = True
    """Whether links carry while stages prune."""
    prune_ms: NonNegative = NonNegative(
        value=5.0, source="SpecPipe sec. 4.2: about 5 ms", confidence="published"
    )
    """Milliseconds of pruning all levels of a step."""
    packing_ratio: OneOrMore = OneOrMore(
        value=2.0,
        source="assumed: of what a step takes longer than one request's, inference and batching "
        "are about the same (SpecPipe sec. 4.4); 1: packing is free",
        confidence="assumed",
    )
    """What a stage takes longer with the levels of several requests than with one's, in multiples
    of the computation.
    """
    width_rule: Literal["each", "shared"] = "each"
    """Whether a level of each request has ``width`` nodes, as SpecPipe prints it (sec. 4.1), or all
    requests that decode together share them, which is assumed."""
    stages: int = Field(default=0, ge=0, le=10_000)
    """Filled in from the placement."""
    requests: int = Field(default=1, ge=1, le=1_000_000)
    """Requests that decode together; filled in."""

    @classmethod
    def example(cls) -> Example:
        """Return levels of four nodes over four stages of unequal length, with a draft that may
        outlast them.
        """
        durations = StatedDurations(
            stages_ms=(4.0, 5.0, 3.0, 4.5),
            links_ms=(1.0, 2.0, 0.5),
            token_ms=0.5,
            draft_step_ms=6.0,
        )
        prune = NonNegative(value=1.0, source="an example")
        tree = {"width": 4, "branching": 2, "prune_ms": prune}
        return Example(cls.model_validate(tree), durations)

    @property
    def window(self) -> int:
        """Return 1: one token is judged at a time, by whether it is in the tree."""
        return 1

    @property
    def needs(self) -> Needs:
        """Return the needs of a tree of the likeliest nodes: the cache takes a full level in every
        stage, and the token.
        """
        return Needs(
            draft_model=True, cache_tokens=self.nodes * self.stages + 1, dynamic_draft=True
        )

    # ---- the tree

    @property
    def beam(self) -> Beam:
        """Return the tree whose passages acceptance must know."""
        return Beam(self.nodes, self.branching, self.stages)

    @property
    def nodes(self) -> int:
        """Return the nodes of a level of one request."""
        if self.width_rule == "shared":
            return max(1, self.width // self.requests)
        return self.width

    @property
    def prune_s(self) -> float:
        """Return the seconds in which all levels of a step are pruned."""
        return self.prune_ms.value * 1e-3

    def with_tree(self, width: int, branching: int) -> Self:
        """Return the strategy with a tree of ``width`` nodes a level and ``branching`` children
        considered for each.
        """
        rows = width * (self.requests if self.width_rule == "shared" else 1)
        return self.model_copy(update={"width": rows, "branching": branching})

    def full_step_s(self, cost: Cost, context: int) -> float:
        """Return the seconds of a step with full levels of one request, at ``context`` cached
        tokens.
        """
        kind = self.kind_of(1, 0, self.stages, 1)
        return float(self.step_seconds(self.durations(cost, self.step(kind, context)), kind))

    def reads(self, verdicts: Acceptance) -> Acceptance:
        """Return passages through the pipeline: recorded, or drawn from stated verdicts."""
        if isinstance(verdicts, Replay):
            return RecordedPassages(verdicts, self.beam)
        return DrawnPassages(verdicts, self.beam)

    def _unrecorded(self, trace: Trace) -> Finding | None:
        """Return the width of a tree that the trace does not hold."""
        recorded = recorded_beams(trace)
        if self.beam in recorded:
            return None
        if not recorded:
            return "width", "holds no tree of a pipeline; state a rate, or choose a trace that does"
        here = [
            f"{beam.width} x {beam.branching}" for beam in recorded if beam.stages == self.stages
        ]
        if not here:
            depths = ", ".join(map(str, sorted({beam.stages for beam in recorded})))
            return (
                "width",
                (
                    f"holds no tree over {self.stages} stages, only over {depths}; cut the target "
                    "so, or state a rate"
                ),
            )
        if self.nodes != self.width:
            shared = f" ({self.width} shared by {self.requests} requests)"
        else:
            shared = ""
        wanted = (
            f"width {self.nodes}{shared} and branching {self.branching} over {self.stages} stages"
        )
        return "width", f"holds no tree of {wanted}; it holds: {', '.join(here)}"

    def _contradictions(self, facts: Facts) -> Iterator[Finding]:
        """Yield stages that are stated, and more children of a node than there are tokens."""
        yield from stated_stages(self.stages, facts)
        yield from too_many_children(self.branching, facts.target)

    # ---- the batch

    def level(self, rows: int) -> list[int]:
        """Return the rows at each stage where nothing is pruned but the level whose token is
        due.
        """
        return [rows] * (self.stages - 1) + [1]

    def grown(self, levels: int) -> list[int]:
        """Return the rows of ``levels`` that follow each other into an empty pipeline: a tree grown
        from one row.
        """
        return [min(self.nodes, self.branching**depth) for depth in range(levels)]

    def carrying(self, step: Step, prompts: Sequence[Rows]) -> Step:
        """Return ``step`` with prompts beside its levels: in ``loads``, levels by stage come first,
        then prompts by stage.
        """
        carried = (*prompts, *[NO_ROWS] * (self.stages - len(prompts)))
        whole = sum(carried, start=NO_ROWS)
        return step._replace(
            kind=step.kind._replace(prompts=whole.sequences),
            prompts=whole,
            loads=(*step.loads, *carried),
        )

    def kind_of(self, due: int, others: int, active: int, begun: int) -> Kind:
        """Return the kind of a step in which ``due`` requests get a token, ``others`` wait, and
        ``active`` stages have work.
        """
        return Kind(
            "token" if due else "refill", due, waiting=others, detail=FillDetail(active, begun)
        )

    def next_passage(self, cursor: Passing, empty: bool = False) -> Passage:
        """Return how the next token comes; through an empty pipeline, after as many steps as there
        are stages.
        """
        if self.relaxed:
            passage = Passage(1, self.level(self.nodes), True)
        else:
            passage = cursor.passage()
        if empty and passage.steps < self.stages:
            return Passage(self.stages, [*reversed(self.grown(self.stages))], passage.hit)
        return passage

    def settle(self, states: Sequence[R]) -> list[Progress]:
        """Return a token for each request whose row has left the last stage."""
        return [self._settle(state) for state in states]

    def _settle(self, state: InPipeline) -> Progress:
        """Return the progress of one request."""
        if not state.due:
            return ABSENT
        state.context += 1
        hit = state.passage is not None and state.passage.hit
        return Progress(1, 1, int(hit), 1, missed=not hit)

    # ---- the law

    def _committed(self, kind: Kind, odds: OddsOf) -> float:
        """Return one token for each request that is due."""
        return kind.verifying

    def _chances(self, kind: Kind, odds: OddsOf) -> Mapping[int, Numbers]:
        """Return that a request that is due gets one token, never more."""
        return {1: 1.0}
