"""Capabilities: questions that a study, a report or a run asks of some strategies, and that others
cannot answer.

A strategy has a capability by deriving from it; a protocol here is a single question, which a
strategy answers by having what it names. Whoever asks, asks for the capability and names no
strategy, so that a strategy of another package can answer as well.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

from simulator.core.acceptance.draft_tree import Beam
from simulator.core.acceptance.sources import Acceptance
from simulator.core.acceptance.trace import Trace
from simulator.core.cost.hull import Drafting
from simulator.core.cost.model import DraftHead, ModelSpec
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import Rows
from simulator.core.plain import PlainData
from simulator.core.quantities import Share
from simulator.core.strategies.common.adaptive import Adaptive
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.drafters import Drafter
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.stage_pipeline import StagePipeline
from simulator.core.strategies.common.step import Lanes, Step, Timeline


class ExtraMemory(NamedTuple):
    """What a method places on the target's devices beside the target."""

    weights: int = 0
    """Weights, in numbers of parameters (exit heads, adapters)."""
    table_bytes: int = 0
    """Bytes on each device that are no weights (look-up tables)."""
    kv_layers: int = 0
    """Layers with a cache of their own, as wide as the target's on average (EAGLE, MTP)."""


class AddsMemory(ABC):
    """A strategy with this capability places weights or tables on the target's device."""

    @abstractmethod
    def extra_memory(self, target: ModelSpec) -> ExtraMemory:
        """Return the parameters and the bytes that the method adds to the target's device."""


def extra_memory(strategy: Strategy, target: ModelSpec) -> ExtraMemory:
    """Return the parameters and the bytes that a strategy adds to the target's device; nothing by
    default.
    """
    if isinstance(strategy, AddsMemory):
        return strategy.extra_memory(target)
    return ExtraMemory()


class DraftsOtherwise(ABC):
    """A strategy with this capability drafts otherwise than in a chain of a draft model."""

    @property
    @abstractmethod
    def drafting(self) -> Drafting:
        """Return how its drafts come about, which decides what an engine's host adds to a step."""


def drafting_of(strategy: Strategy) -> Drafting | None:
    """Return how the drafts of a strategy come about; None where an engine knows nothing of it."""
    if isinstance(strategy, DraftsOtherwise):
        return strategy.drafting
    headed: Drafting | None = "head" if isinstance(strategy, DraftsChain) else None
    if strategy.needs.draft_model:
        return "draft_model"
    return headed


class Tunable(ABC):
    """A strategy with this capability works out some of its settings before a run."""

    @abstractmethod
    def tuned(self, cost: Cost, odds: OddsOf, requests: int, context: int) -> Self:
        """Return the strategy with all that depends on cost and acceptance worked out, for batches
        of up to ``requests``.
        """


class DerivesNumbers(ABC):
    """A strategy with this capability has numbers that its paper computes from the durations of a
    step, and from what is kept.
    """

    @abstractmethod
    def derived(self, cost: Cost, step: Step, odds: OddsOf) -> Mapping[str, float]:
        """Return what the paper computes from the durations of a step, by name with unit."""


class BlocksByStage(ABC):
    """A strategy with this capability feeds a pipeline whose stages and links block independently
    of each other.
    """

    @abstractmethod
    def line(self, cost: Cost, lanes: Lanes) -> StagePipeline:
        """Return the empty pipeline over the stages and links of ``lanes``."""


def line_of(strategy: Strategy, cost: Cost, lanes: Lanes) -> StagePipeline | None:
    """Return the empty pipeline that a strategy feeds; None where its steps book the lanes
    themselves.
    """
    if isinstance(strategy, BlocksByStage):
        return strategy.line(cost, lanes)
    return None


class DraftsFirst:
    """A strategy with this capability may draft a window before the target reads a prompt, whose
    pass verifies it.
    """

    drafts_first: bool


def drafts_first(strategy: Strategy) -> bool:
    """Return whether the pass over a prompt verifies a first window, which has been drafted
    before.
    """
    return isinstance(strategy, DraftsFirst) and strategy.drafts_first


class ReadsHiddenStates(ABC):
    """A strategy with this capability may draft with layers that read hidden states of the target
    (EAGLE, MTP, DFlash).

    These layers have a cache of their own, and nothing keeps the states that it is filled from: of
    a prompt whose beginning is cached one unit more is computed. Heads without layers (Medusa),
    look-ups and draft models need none.
    """

    @property
    @abstractmethod
    def reads_hidden_states(self) -> bool:
        """Return whether, with these settings, it does."""

    @property
    def heads(self) -> tuple[DraftHead, ...]:
        """Return the heads that draft beside the target, each set of weights once; by default
        none.
        """
        return ()


def dropped_units(strategy: Strategy) -> int:
    """Return the units of a cache, at the end of a cached beginning of a prompt, that are computed
    again.
    """
    return int(isinstance(strategy, ReadsHiddenStates) and strategy.reads_hidden_states)


def heads_of(strategy: Strategy) -> tuple[DraftHead, ...]:
    """Return the heads that read hidden states of the target; empty where a strategy has none."""
    if isinstance(strategy, ReadsHiddenStates):
        return tuple(head for head in strategy.heads if head.layers)
    return ()


class StepsPlainly:
    """A strategy with this capability gives a request a plain step, in which nothing is drafted for
    it, as long as its context is below ``plain_below``; the others of its batch speculate.
    """


class CarriesPrompts(ABC):
    """A strategy with this capability carries prompts through its stages beside the requests that
    decode, a stage a step.
    """

    @abstractmethod
    def carrying(self, step: Step, prompts: Sequence[Rows]) -> Step:
        """Return ``step`` with the rows of ``prompts`` at each stage, from the first on; no rows at
        stages behind them.
        """


class PrefillsOnStages(ABC):
    """A strategy with this capability sends prompts through the stages on which other batches
    decode meanwhile.
    """

    @abstractmethod
    def prefill(self, lanes: Lanes, cost: Cost, prompts: Rows, seconds: float) -> Timeline:
        """Book a pass over ``prompts`` of so many ``seconds`` in all; return the event of its
        end.
        """


class NamesRecording(ABC):
    """A strategy with this capability says which drafter of a recording it asks for."""

    @property
    @abstractmethod
    def recorded_drafter(self) -> str | None:
        """Return the drafter's name in a recording; None where no recording holds it."""

    @property
    @abstractmethod
    def borrows_recording(self) -> bool:
        """Return whether the recording is of another way of drafting and lends its bursts only."""


class Appendix(Protocol):
    """What a strategy finds in acceptance, beside the results that a run has of all strategies."""

    def as_data(self) -> PlainData:
        """Return it as plain data, whose keys stand among those of the run."""


@runtime_checkable
class AppendsToRuns(Protocol):
    """A strategy with this capability has findings of its own beside the results of a run."""

    def appendix(self, acceptance: Acceptance) -> Appendix | None:
        """Return what it finds in the acceptance of the run; None where that holds nothing."""


def appendix_of(strategy: Strategy, acceptance: Acceptance) -> Appendix | None:
    """Return what a strategy finds in the acceptance of a run; None for one that looks for
    nothing.
    """
    if isinstance(strategy, AppendsToRuns):
        return strategy.appendix(acceptance)
    return None


class DraftsChain(ABC):
    """A strategy with this capability drafts one chain of tokens, which could be verified serially
    as well.
    """

    @property
    @abstractmethod
    def chain_rule(self) -> Adaptive:
        """Return the rule by which the window follows the batch."""

    @property
    @abstractmethod
    def chain_drafter(self) -> Drafter:
        """Return how the draft writes a window."""

    @abstractmethod
    def with_rule(self, rule: Adaptive) -> Self:
        """Return the same strategy whose window follows the batch by another rule."""

    def recorded_in(self, trace: Trace) -> Self:
        """Return the same strategy whose drafter writes as fast as ``trace`` says, where it does
        and nothing is stated.
        """
        return self

    @property
    def serial(self) -> bool:
        """Return whether it already verifies what it drafted serially, as serving programs do."""
        return False

    @property
    def batch_settings(self) -> str:
        """Return the settings besides the window that may follow the batch size, in words."""
        return ""


@runtime_checkable
class LevelsOnStages(Protocol):
    """A strategy with this capability lays the levels of a draft tree over the stages of a
    pipeline.
    """

    @property
    def beam(self) -> Beam:
        """Return the tree: nodes of a level, children considered for each of them, stages."""


def beam_of(strategy: Strategy) -> Beam | None:
    """Return the draft tree whose levels lie over stages; None for another strategy."""
    if isinstance(strategy, LevelsOnStages):
        return strategy.beam
    return None


Accounting: TypeAlias = Literal["verified", "emitted"]
"""Tokens that count as output: verified ones, or those shown before they are checked."""


@runtime_checkable
class CutsVocabulary(Protocol):
    """A strategy with this capability may draft in a part of the target's vocabulary."""

    @property
    def covered(self) -> Share | None:
        """Return the share of the target's tokens that this part holds; None for all of it."""


def uncut(strategy: Strategy) -> Strategy:
    """Return a strategy that takes acceptance as that of its drafter as it is, whose vocabulary may
    be cut already.
    """
    if isinstance(strategy, CutsVocabulary) and strategy.covered is not None:
        return strategy.model_copy(update={"covered": None})
    return strategy


@runtime_checkable
class ShowsUnchecked(Protocol):
    """A strategy with this capability may show tokens before they are checked."""

    @property
    def accounting(self) -> Accounting:
        """Return which tokens count as output with these settings."""


def accounting_of(strategy: Strategy) -> Accounting:
    """Return which tokens of a strategy count as output."""
    if isinstance(strategy, ShowsUnchecked):
        return strategy.accounting
    return "verified"


@runtime_checkable
class SharesWindow(Protocol):
    """A strategy with this capability shares a window among several sequences."""

    @property
    def least_window(self) -> int:
        """Return the smallest window that the other settings allow, in draft tokens."""


def least_window(strategy: Strategy) -> int:
    """Return the smallest window, in draft tokens, that the other settings of a strategy allow."""
    if isinstance(strategy, SharesWindow):
        return strategy.least_window
    return 1


class ProvenSteps(ABC):
    """A strategy with this capability may have steps in which a request does the same whoever else
    is in the batch.

    The bounds of a plan are proven for such steps alone.
    """

    @property
    @abstractmethod
    def independent_steps(self) -> bool:
        """Return whether, with these settings, what a request does in its steps depends on no other
        request.
        """


class DraftsElsewhere(ABC):
    """A strategy with this capability drafts on devices that are not as many as the target's
    replicas.
    """

    @property
    @abstractmethod
    def caches_of_draft(self) -> float:
        """Return the caches of the draft that lie on one of its devices, over those of the requests
        that decode together at one target; 0 where a device keeps those of a single request.
        """

    @abstractmethod
    def draft_devices(self, requests: int) -> float:
        """Return how many times the draft's devices are there for ``requests`` at one target."""

    @property
    def sharing_targets(self) -> int:
        """Return the targets that share devices of the draft, which are a whole number of these; 1
        by default.
        """
        return 1


def caches_of_draft(strategy: Strategy) -> float:
    """Return how many caches of a request lie beside the draft's weights; 1 by default."""
    if isinstance(strategy, DraftsElsewhere):
        return strategy.caches_of_draft
    return 1.0


def draft_devices(strategy: Strategy, requests: int) -> float:
    """Return how many times the draft's devices are there for one target with ``requests``; 1 by
    default.
    """
    if isinstance(strategy, DraftsElsewhere):
        return strategy.draft_devices(requests)
    return 1.0


def sharing_targets(strategy: Strategy) -> int:
    """Return how many targets share devices of the draft, which are a whole number of these; 1 by
    default.
    """
    if isinstance(strategy, DraftsElsewhere):
        return strategy.sharing_targets
    return 1
