"""What a strategy is: who works when in one step of a batch, as a law and as a timeline.

A strategy is a frozen set of parameters. It composes a step from the state of each request, says how
long the parts of the step take, lets the time pass on the lanes, and settles what was verified. Its law
is the closed form over the same named durations. It knows no YAML, no tables and no plots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import count, takewhile
from operator import add
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from pydantic import Field

from simulator.acceptance.sources import Acceptance, Cursor, Exit, Odds
from simulator.acceptance.trace import Trace
from simulator.cost.cost import NO_ROWS, Cost, Phase, Rows
from simulator.cost.model import ModelSpec
from simulator.files.schema import Frozen
from simulator.strategies.common.adaptive import Adaptive, FixedWindow, GoodputWindow, WindowTable
from simulator.strategies.common.claim import Claim, Example
from simulator.strategies.common.drafters import AutoregressiveDrafter, Drafter
from simulator.strategies.common.stage_pipeline import StagePipeline
from simulator.strategies.common.step import (
    ABSENT,
    BARE,
    Admission,
    Kind,
    Lanes,
    Progress,
    State,
    Step,
    Timeline,
    intern_chain,
    intern_progress,
)

LONGEST_WINDOW = 1_024
"""Draft tokens; far beyond any use, short enough for every formula."""
OddsOf = Callable[[int], Odds]
"""Odds of a verification by window length."""


@dataclass(frozen=True)
class Law:
    """A closed form evaluated: mean step, tokens per step and request, and its share of step kinds.

    Numbers, or arrays over a grid (:mod:`simulator.studies.sweep.grid`).
    """

    step_s: Any
    tokens_per_step: Any
    claim: Claim
    source: str
    kinds: Mapping[Kind, float] = field(default_factory=dict)
    request_step_s: Any = None
    """Mean step as a request meets it, large batches counting more; None: the mean step."""

    @property
    def relation(self) -> str:
        """The claim in words: how the law relates to the process."""
        return str(self.claim)

    @property
    def tpot_s(self) -> Any:
        """Seconds per output token of one request (X-1)."""
        return (self.step_s if self.request_step_s is None else self.request_step_s) / self.tokens_per_step


class Strategy(Frozen, ABC):
    """Base of all strategies; a subclass in its own file is found by its ``name``."""

    name: str
    named: ClassVar[type[Any]]
    """A named tuple of seconds, in the paper's symbols."""
    equation: ClassVar[str]
    """Paper and equation of the law."""
    alone: ClassVar[bool] = False
    """Takes one request at a time."""
    staged: ClassVar[bool] = False
    """Runs on the stages of a pipeline and nowhere else."""
    draft_parts: ClassVar[tuple[str, ...]] = ("draft",)
    """Names of the durations in which a window is drafted."""
    single_model: ClassVar[bool] = False
    """What drafts sits beside the target on its device; there is no draft model to place."""
    hidden_behind: ClassVar[str | None] = None
    """The duration that drafting hides behind; None where nothing overlaps."""
    splits_passes: ClassVar[bool] = False
    """Stops within every pass of the target, behind a layer counted from its ends."""
    prompts_apart: ClassVar[bool] = False
    """Prompts take passes of their own; a step carries none."""
    takes_rates: ClassVar[bool] = True
    """The law takes arrays of acceptance rates; False where it solves equations for each."""
    bonus_on_full_accept: bool = True
    """A window that is kept whole brings one more token, from the same pass."""

    @property
    def window(self) -> int:
        """Draft tokens proposed for one verification, at most; 0 without speculation."""
        return 0

    @property
    def needs_draft(self) -> bool:
        """Windows are written by a draft model of the scenario's."""
        return self.window > 0 and not self.single_model

    @property
    def dynamic_draft(self) -> bool:
        """What the draft says decides how many tokens, or which tree of them, it proposes."""
        return False

    @property
    def least_window(self) -> int:
        """The shortest window that these settings allow."""
        return 1

    @property
    def window_steps(self) -> int:
        """Internal draft steps of one window; at least 1, or 0 where nothing computes it."""
        return 1

    def rows_for(self, requests: int) -> int:
        """Rows of the target's pass that each of ``requests`` decoding together takes."""
        return 1 + self.window_for(requests)

    @property
    def lookahead(self) -> int:
        """Tokens that one step may put into a request's cache: the longest window and one more."""
        return self.window + 1

    @property
    def in_flight(self) -> int:
        """Steps that run at once over disjoint requests: the stages of a pipeline, else 1."""
        return 1

    def extra_weights(self, target: ModelSpec) -> int:
        """Weights that the method adds to the target's device (exit heads, adapters)."""
        return 0

    def table_bytes(self, target: ModelSpec) -> int:
        """Bytes on each of the target's devices that are no weights (look-up tables)."""
        return 0

    def window_for(self, requests: int) -> int:
        """Draft tokens that each of ``requests`` decoding together gets."""
        return self.window

    def window_of(self, kind: Kind) -> int:
        """Length of the windows that a step of this kind verifies."""
        return self.window if kind.window is None else kind.window

    def tuned(self, cost: Cost, odds: OddsOf, requests: int, context: int) -> Self:
        """With everything worked out that depends on cost and acceptance, for batches of up to ``requests``."""
        return self

    def exit(self, layers: int | None) -> Exit | None:
        """The early exit that acceptance must know about, for a target of ``layers``."""
        return None

    def reads(self, verdicts: Acceptance) -> Acceptance:
        """The source whose cursors this strategy asks: ``verdicts`` of chains, or what it reads from the same recording."""
        return verdicts

    def unrecorded(self, trace: Trace) -> tuple[str, str] | None:
        """A field of the strategy and what it asks for that the trace cannot answer."""
        if trace.window is None or self.window <= trace.window:
            return None
        message = f"knows windows of up to {trace.window} draft tokens, got {self.window}; set strategy.gamma={trace.window}"
        return "gamma", message

    @property
    def unstated(self) -> tuple[str, str] | None:
        """A field of the strategy and what it asks for that stated acceptance cannot answer."""
        return None

    def impossible(self, target: ModelSpec) -> tuple[str, str] | None:
        """A field of the strategy and why no such target can do what it says."""
        return None

    def line(self, cost: Cost, lanes: Lanes) -> StagePipeline | None:
        """The line of stages and links that block on their own; None where a step books its lanes itself."""
        return None

    def on_stages(self, stages: int) -> Strategy:
        """The strategy for a pipeline of so many stages; 0: there is none."""
        return self

    def for_batch(self, requests: int) -> Strategy:
        """The strategy as it is set for a batch of ``requests``."""
        return self

    def open(self, cursor: Cursor, context: int, drafted: bool = True) -> State:
        """A request whose prompt is in the cache; ``drafted``: its first window has been written too."""
        return State(cursor, context)

    @abstractmethod
    def compose(self, states: Sequence[State], prompts: Rows = NO_ROWS) -> Step:
        """What the next step of this batch is, with chunks of other requests' prompts in the same pass."""

    @abstractmethod
    def phases(self, cost: Cost, step: Step) -> Mapping[str, Phase]:
        """The parts of a step, by the names of the durations; parts that do not occur may be left out."""

    def durations(self, cost: Cost, step: Step) -> Any:
        """Named durations of a step, in seconds."""
        return self.named(**{name: phase.wall_s for name, phase in self.phases(cost, step).items()})

    def derived(self, cost: Cost, step: Step) -> Mapping[str, float]:
        """What the paper computes from the durations of a step, by name with unit; nothing by default."""
        return {}

    @abstractmethod
    def timeline(self, lanes: Lanes, durations: Any, kind: Kind) -> Timeline:
        """Book the step; when the last of what it gives has come, the step is over."""

    @abstractmethod
    def step_seconds(self, durations: Any, kind: Kind) -> Any:
        """The law of one step; durations may be arrays."""

    @classmethod
    @abstractmethod
    def example(cls) -> Example:
        """Return small settings and stated durations under which the law is held to the timeline."""

    @abstractmethod
    def claim(self, cost: Cost, requests: int, context: int, shares: Mapping[Kind, Any], one_lane: bool) -> Claim:
        """Return how the law of ``requests`` at ``context`` cached tokens relates to the process.

        ``shares`` of the kinds of steps may be empty where they are not known; ``one_lane``: target and draft are one device.
        """

    def kinds(self, odds: OddsOf, requests: int) -> Mapping[Kind, Any]:
        """Long-run share of each kind of step for a batch of independent requests."""
        return {Kind("step", requests): 1.0}

    def batch(self, kind: Kind) -> int:
        """Requests in the batch of a step of this kind."""
        return kind.verifying + kind.bare

    def committed(self, kind: Kind, odds: OddsOf) -> Any:
        """Expected tokens that a step of this kind commits, over all its requests."""
        return kind.verifying * odds(self.window_of(kind)).committed(self.bonus_on_full_accept) + kind.bare

    def step(self, kind: Kind, context: Any) -> Step:
        """A step of this kind with all requests at ``context``, or at each of many; prompts beside it are left out."""
        rows = Rows.decode(self.window_of(kind) + 1, kind.verifying * context, kind.verifying)
        return Step(kind, rows + Rows.decode(1, kind.bare * context, kind.bare), kind.redrafts * context)

    def settle(self, states: Sequence[State]) -> list[Progress]:
        """Verify what was proposed; the order is that of ``states``."""
        bonus, proposal, judged, settled = self.bonus_on_full_accept, BARE, 0, []
        for state in states:
            tokens = state.proposed
            if tokens is None:
                settled.append(ABSENT)
                continue
            if tokens != judged:
                proposal, judged = intern_chain(tokens, bonus) if tokens else BARE, tokens
            accepted, committed, _, _ = state.cursor.judge(proposal)
            state.context += committed
            settled.append(intern_progress(committed, committed, accepted, tokens))
        return settled

    def admission(self, cost: Cost, prompts: Rows, ending: int = 0, context: int = 0) -> Admission:
        """A pass over nothing but prompts, through target and draft.

        ``ending`` of the prompts are complete with it, with ``context`` tokens in their caches together.
        """
        target, draft = cost.prefill("target", prompts), cost.prefill("draft", prompts) if self.needs_draft else Phase(0.0, {})
        return Admission(target.wall_s, draft.wall_s, 0.0)

    def law(
        self,
        cost: Cost,
        odds: OddsOf,
        requests: int,
        context: int,
        kinds: Mapping[Kind, float] | None = None,
        one_lane: bool = False,
    ) -> Law:
        """Renewal-reward over step kinds: a request's time per token is ``sum pi_k B_k T_k / sum pi_k n_k``.

        B_k requests are in the batch of kind k, and its step commits n_k tokens. ``kinds`` replaces the
        shares of independent requests where the real ones are known.
        """
        parts = self.parts(cost, odds, requests, context, kinds)
        step_s, tokens_per_step, request_step_s = means(parts)
        source = f"{self.equation}; {odds(self.window_for(requests)).source}"
        shares = {part.kind: part.share for part in parts}
        claim = self.claim(cost, requests, context, shares, one_lane)
        return Law(_plain(step_s), _plain(tokens_per_step), claim, source, shares, _plain(request_step_s))

    def parts(
        self, cost: Cost, odds: OddsOf, requests: int, context: int, kinds: Mapping[Kind, Any] | None = None
    ) -> list[Part]:
        """What a law is made of, for each kind of step, where nothing has met yet but what belongs together."""
        return [
            Part(
                kind,
                share,
                partial(self.step_seconds, kind=kind),
                self.durations(cost, self.step(kind, context)),
                self.committed(kind, odds),
                self.batch(kind),
            )
            for kind, share in (kinds or self.kinds(odds, requests)).items()
        ]


class Part(NamedTuple):
    """One kind of step in a law; share, durations and tokens may be arrays that fit each other."""

    kind: Kind
    share: Any
    seconds: Callable[[Any], Any]
    """Of a step, from its durations."""
    durations: Any
    committed: Any
    """Tokens, over all requests."""
    batch: int


def means(parts: Sequence[Part]) -> tuple[Any, Any, Any]:
    """Mean step, tokens per step and request, and mean step as a request meets it: in seconds, weighted by share."""
    seconds = [part.seconds(part.durations) for part in parts]
    step_s = _mean([(part.share, each) for part, each in zip(parts, seconds, strict=True)])
    tokens = _mean([(part.share, part.committed) for part in parts])
    if len({part.batch for part in parts}) == 1:
        return step_s, tokens / parts[0].batch, step_s
    present = _mean([(part.share, part.batch) for part in parts])
    met = _mean([(part.share, part.batch * each) for part, each in zip(parts, seconds, strict=True)])
    return step_s, tokens / present, met / present


def _mean(weighted: Sequence[tuple[Any, Any]]) -> Any:
    """Of values by their shares, which add up to 1; of one value, itself."""
    if len(weighted) == 1:
        return weighted[0][1]
    return reduce(add, (share * value for share, value in weighted))


def _plain(value: Any) -> Any:
    """A number as Python's own; an array as it is."""
    return value if np.ndim(value) else float(value)


class ChainStrategy(Strategy, ABC):
    """Base of strategies whose draft proposes one chain: ``gamma`` tokens at most, fewer where ``adaptive`` says so.

    What the draft has not seen while its window was off goes into its cache at no cost.
    """

    gamma: int = Field(default=4, ge=1, le=LONGEST_WINDOW)
    """Draft tokens of a window, at most."""
    drafter: Drafter = AutoregressiveDrafter()
    """How the draft writes a window."""
    adaptive: Adaptive = FixedWindow()
    """How the window follows the batch."""

    @property
    def window(self) -> int:
        """Gamma."""
        return self.gamma

    @property
    def window_steps(self) -> int:
        """Internal draft steps J of one window (MSD-4)."""
        return self.drafter.steps(self.gamma)

    def window_for(self, requests: int) -> int:
        """Gamma, or what ``adaptive`` makes of it."""
        return self.adaptive.window(self.gamma, requests)

    def kind_window(self, window: int) -> int | None:
        """``window`` as a kind notes it: only where it is not gamma."""
        return None if window == self.gamma else window

    def tuned(self, cost: Cost, odds: OddsOf, requests: int, context: int) -> Self:
        """With the windows of most goodput by law filled in, for batches of up to ``requests``.

        Every size up to 16 is looked at, then four sizes a doubling.
        """
        if not isinstance(self.adaptive, GoodputWindow) or self.adaptive.windows:
            return self
        windows: dict[int, int] = {}
        for size in takewhile(lambda size: size <= requests, _sizes()):
            best = min(range(self.gamma + 1), key=lambda window: self._with(window).law(cost, odds, size, context).tpot_s)
            if best != windows.get(max(windows, default=0)):
                windows[size] = best
        return self.model_copy(update={"adaptive": self.adaptive.model_copy(update={"windows": windows})})

    def _with(self, window: int) -> Self:
        """The same with one window for every batch."""
        return self.model_copy(update={"adaptive": WindowTable(name="table", windows={1: window})})


def _sizes() -> Iterator[int]:
    """1 to 16, then four for each doubling."""
    yield from range(1, 17)
    yield from (round(16 * 2 ** (quarter / 4)) for quarter in count(1))


def cut_to_grants(states: Sequence[State]) -> Rows:
    """Rows where a window is longer than what its request is granted; what is cut off was drafted in vain."""
    contexts: dict[int, list[int]] = {}
    for state in states:
        if state.proposed is not None:
            state.proposed = min(state.proposed, state.most_rows - 1)
            contexts.setdefault(state.proposed, []).append(state.context)
    return reduce(add, (Rows.decode(window + 1, sum(held), len(held)) for window, held in contexts.items()), NO_ROWS)
