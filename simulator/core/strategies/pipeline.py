"""In pipeline parallelism every token passes all stages, one request at a time or several in
flight.

    target      |
      stage 1   |=A=|=B=|=C=|...|=A=|
      stage 2       |=A=|=B=|=C=|...
      stage 3           |=A=|=B=|=C=|    token A known at stage 1 after T_token

    T_step = max{L, g M},   L = sum t_i + sum T_link + T_token
    M = the longest of them,   g = batches in flight

With one request L is the time of a token and all stages but one stand still (SpecPipe, sec. 2).
Requests are shared out over as many batches as there are stages; once g M exceeds L, the slowest
stage works all the time.

Prompts of an admission take a pass of their own through the same stages, behind what has entered
before them. The law is about decoding between admissions.
"""

from abc import ABC
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, NamedTuple, Protocol

from pydantic import Field

from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Phase, Rows
from simulator.core.cost.stated import StatedDurations
from simulator.core.numeric import Numbers, elementwise_max, ordered_sum
from simulator.core.strategies.autoregressive import TargetOnly
from simulator.core.strategies.common.base import D, Strategy
from simulator.core.strategies.common.capabilities import PrefillsOnStages, ProvenSteps
from simulator.core.strategies.common.claim import EXACT, Claim, Example
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import Kind, Lanes, Step, Timeline
from simulator.core.strategies.common.traits import Facts, Finding, Needs, Traits, stated_stages
from simulator.core.world import Lane, at


class PipelineDurations(NamedTuple):
    """These are seconds, by stage and by link, and for a token from the last stage back to the
    first.
    """

    stages: tuple[float, ...]
    links: tuple[float, ...]
    token: float


class Way(Protocol):
    """Durations of a strategy that hold those of the way through a pipeline, as
    :class:`PipelineDurations` does.
    """

    @property
    def stages(self) -> tuple[float, ...]:
        """Return the seconds of each stage."""

    @property
    def links(self) -> tuple[float, ...]:
        """Return the seconds of each link."""

    @property
    def token(self) -> float:
        """Return the seconds of a token from the last stage back to the first."""


class OnStages(Strategy[D], PrefillsOnStages, ProvenSteps, ABC):
    """Passes of the target go through the stages of a pipeline, with a batch at every stage where
    there are enough requests.
    """

    stages: int = Field(default=0, ge=0, le=10_000)
    """Stages of the pipeline; filled in from the placement."""
    requests: int = Field(default=1, ge=1, le=1_000_000)
    """Requests that decode together; filled in."""

    @property
    def independent_steps(self) -> bool:
        """Return True: a pass brings every request what its own tokens and drafts are."""
        return True

    @property
    def needs(self) -> Needs:
        """Return the needs of batches in flight."""
        return super().needs._replace(in_flight=self.in_flight)

    def _contradictions(self, facts: Facts) -> Iterator[Finding]:
        """Yield stages that are stated."""
        yield from stated_stages(self.stages, facts)

    @property
    def in_flight(self) -> int:
        """Return the batches of the least size that shares all requests out over the stages."""
        size = -(-self.requests // max(1, min(self.stages, self.requests)))
        return -(-self.requests // size)

    def way(self, cost: Cost, step: Step) -> PipelineDurations:
        """Return the seconds of the same rows at every stage and on every link."""
        rows = step.rows + step.prompts
        stages = tuple(cost.stage(index, rows).wall_s for index in range(cost.stages))
        return PipelineDurations(
            stages,
            tuple(cost.carry(index, rows.tokens) for index in range(cost.stages - 1)),
            cost.token(),
        )

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Return the work of all stages, and all that is carried."""
        t = self.way(cost, step)
        return {
            "compute": Phase(ordered_sum(t.stages), {"target compute": ordered_sum(t.stages)}),
            "carry": Phase(ordered_sum(t.links) + t.token, {}),
        }

    def prefill(self, lanes: Lanes, cost: Cost, prompts: Rows, seconds: float) -> Timeline:
        """Book prompts like a batch; each stage and link takes its share of the ``seconds``."""
        t = self.way(cost, Step(Kind("prefill", 0), NO_ROWS, 0, prompts))
        if not seconds:
            return (at(lanes.target.environment, lanes.target.environment.now),)
        whole = ordered_sum(t.stages) + ordered_sum(t.links)
        stages, links = (
            tuple(part * seconds / whole for part in parts) for parts in (t.stages, t.links)
        )
        return self._through(lanes, PipelineDurations(stages, links, 0.0), label="prefill")

    def _through(
        self, lanes: Lanes, t: Way, after: Lane | None = None, label: str = "compute"
    ) -> Timeline:
        """Book the way through all stages behind the lane ``after``."""
        stage, *others = lanes.stages
        stage.occupy(t.stages[0], label, after)
        for link, carried, following, computed in zip(
            lanes.links, t.links, others, t.stages[1:], strict=True
        ):
            if carried:
                link.occupy(carried, "transmit", stage)
            following.occupy(computed, label, stage, link)
            stage = following
        return (at(stage.environment, stage.free_at + t.token),)

    def claim(
        self,
        cost: Cost,
        requests: int,
        context: int,
        shares: Mapping[Kind, Numbers],
        one_lane: bool,
    ) -> Claim:
        """Return that the law is exact where all batches are of one size."""
        if requests % self.in_flight:
            return Claim("idealised", "batches of unequal size")
        return EXACT


class Pipelined(OnStages[PipelineDurations], TargetOnly[PipelineDurations]):
    """Target-only decoding runs on the stages of a pipeline, with a batch at every stage where
    there are enough requests.
    """

    name: Literal["pipeline"] = "pipeline"
    traits: ClassVar[Traits] = Traits(
        PipelineDurations, "T_step = max{L, g M} (pipeline parallelism)", staged=True
    )

    @classmethod
    def example(cls) -> Example:
        """Return four stages of unequal length with links between them."""
        durations = StatedDurations(
            stages_ms=(4.0, 5.0, 3.0, 4.5), links_ms=(1.0, 2.0, 0.5), token_ms=0.5
        )
        return Example(cls(), durations)

    def durations(self, cost: Cost, step: Step) -> PipelineDurations:
        """Return the seconds of the same rows at every stage and on every link."""
        return self.way(cost, step)

    def timeline(self, lanes: Lanes, durations: PipelineDurations, kind: Kind) -> Timeline:
        """Book the whole way stage by stage; no batch overtakes another, so that it is known at
        once.
        """
        return self._through(lanes, durations)

    def step_seconds(self, durations: PipelineDurations, kind: Kind) -> Numbers:
        """Return ``max{L, g M}`` in seconds."""
        through = ordered_sum(durations.stages) + ordered_sum(durations.links) + durations.token
        return elementwise_max(
            through, self.in_flight * elementwise_max(*durations.stages, *durations.links)
        )

    def kinds(self, odds: OddsOf, requests: int) -> dict[Kind, float]:
        """Return the only kind of step: batches of one size, the larger one where they cannot be
        equal.
        """
        return {Kind("step", 0, bare=-(-requests // self.in_flight)): 1.0}
