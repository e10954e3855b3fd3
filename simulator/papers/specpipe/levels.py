"""What a step of SpecPipe is made of: seconds by stage and link, levels of a request on their way,
how full the pipeline is.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from simulator.core.acceptance.cursors import Cursor
from simulator.core.acceptance.draft_tree import Passage
from simulator.core.numeric import Numbers, elementwise_max
from simulator.core.strategies.common.step import Kind, State


class SpecPipeDurations(NamedTuple):
    """These are seconds, by stage, and by link from the first on, of those that have work."""

    stages: tuple[float, ...]
    links: tuple[float, ...]
    verdict: float
    """Seconds of the verified token on its way, and of pruning; 0 where none was verified."""
    draft: float
    asynchronous: bool = True
    """Not a duration: links carry while stages prune."""

    @property
    def exchange(self) -> Numbers:
        """Return the seconds from the verdict to the next compute."""
        carried = elementwise_max(0.0, *self.links)
        if self.asynchronous:
            return elementwise_max(self.verdict, carried)
        return self.verdict + carried


@runtime_checkable
class Passing(Cursor, Protocol):
    """A cursor that knows how each token of its request comes through the pipeline."""

    def passage(self) -> Passage:
        """Return how the next token comes, and move behind it."""


def passing(cursor: Cursor) -> Passing:
    """Return a cursor as one that knows passages; raises TypeError for one that does not."""
    if isinstance(cursor, Passing):
        return cursor
    raise TypeError(f"{type(cursor).__name__} knows no passages through a pipeline")


@dataclass(slots=True)
class InPipeline(State[Passing]):
    """A request remembers its levels that are on their way."""

    passage: Passage | None = None
    """How the next token comes, or the last one came; None while the pipeline holds no level of the
    request.
    """
    left: int = 0
    """Steps until the token is out, this step not counted."""
    levels: list[int] = field(default_factory=list)
    """Rows at each stage in this step, 0 at an empty stage."""
    begun: bool = False
    """Whether this step is the first since a token was verified."""
    stale: bool = False
    """Whether this step is wasted, as the miss before it has not been noticed."""

    @property
    def due(self) -> bool:
        """Return whether a token leaves the last stage in this step."""
        return not (self.left or self.stale)


class FillDetail(NamedTuple):
    """Pipeline steps differ by how full the pipeline is."""

    active: int = 0
    """Stages that have work; in tandem, levels that enter."""
    begun: int = 0
    """Requests for which a token was verified just before."""

    @property
    def words(self) -> str:
        """Return nothing: a report shows the stages themselves."""
        return ""

    @property
    def extra_work(self) -> int:
        """Return 0: the equation is about all of these steps."""
        return 0


def filled(kind: Kind) -> FillDetail:
    """Return how full the pipeline is in a step of this kind."""
    if isinstance(kind.detail, FillDetail):
        return kind.detail
    return FillDetail()
