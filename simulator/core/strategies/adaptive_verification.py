"""Adaptive verification: the draft writes a whole block for every request, and in each step as many
of these tokens are verified, over all requests, as bring most tokens per second.

    draft     |=== whole block, all requests ===|
    target                                      |== verify B + requests rows ==|

    B* = argmax_B (N + S_1 + ... + S_B) / (T_draft(N) + T_target(N + B))

S are the chances that a token is kept with all before it, of all requests together, largest first;
N the requests. The costs are those of a table measured before the run at 8,192 cached tokens,
forced to rise with the rows, with the stairs of captured graphs where an engine has them (vLLM's
``enable_adaptive_verification``). Chances that are calibrated by position make requests alike: of B
tokens each gets as many, and the first ones one more. Of a recording each token has its own chance
(:mod:`simulator.core.acceptance.confidence`): the budget is chosen by those of the steps before,
which the host knows, and the likeliest B tokens of this step are verified.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, PrivateAttr

from simulator.core.acceptance.confidence import (
    Confident,
    Floats,
    RankedSlots,
    of_matches,
    of_rollouts,
)
from simulator.core.acceptance.cursors import Cursor
from simulator.core.acceptance.retrieval import recorded_matches
from simulator.core.acceptance.sources import Acceptance, Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.acceptance.tree_replay import SureRuns
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Rows
from simulator.core.cost.stated import StatedDurations
from simulator.core.numeric import Numbers
from simulator.core.quantities import Ranged
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.capabilities import Tunable
from simulator.core.strategies.common.chain import cut_to_grants
from simulator.core.strategies.common.claim import Claim, Example
from simulator.core.strategies.common.drafters import DraftPass
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import Kind, Progress, Step, intern_kind
from simulator.core.strategies.common.token_tree import TokenTree
from simulator.core.strategies.common.traits import Facts, Finding, Traits
from simulator.core.strategies.tree_sd import Proposing, TreeDurations, TreeSD

Count = Annotated[int, Field(ge=0, le=1_000_000_000)]
"""Draft tokens; far beyond any batch."""
Batch = Annotated[int, Field(ge=1, le=1_000_000_000)]
"""Requests that are verified together; far beyond any batch."""

LOOKS = 32
"""Budgets that are looked at between the whole windows on both sides of the best one."""
CAPTURED_ROWS = 512
"""Rows up to which every number is measured: vLLM captures no larger graphs by itself."""
PROMPT_ROWS = 16_384
"""Rows of prompts beside the drafts that the table reaches to; more cost as much."""


class BudgetDetail(NamedTuple):
    """Tells steps by the draft tokens that are verified in them."""

    budget: int

    @property
    def words(self) -> str:
        """Return their number in words."""
        return f"{self.budget:,} draft tokens verified"

    @property
    def extra_work(self) -> int:
        """Return 0: every request does the same."""
        return 0


@dataclass(frozen=True, eq=False)
class CostTable:
    """The seconds of drafting by requests, and those of a verification by its rows."""

    draft_s: Floats
    """(requests + 1,)"""
    verify_s: Floats
    """(rows + 1,), never falling."""

    def best(self, gains: Floats, requests: int, prompts: Rows = NO_ROWS) -> int:
        """Return how many slots bring most tokens per second, where the first k of them bring
        ``gains[k]`` beside a token for each request.
        """
        rows = np.arange(len(gains)) + requests + prompts.tokens
        seconds = self.draft_s[min(requests, len(self.draft_s) - 1)]
        seconds = seconds + self.verify_s[np.minimum(rows, len(self.verify_s) - 1)]
        return int(np.argmax((requests + prompts.logit_rows + gains) / seconds))


@dataclass(slots=True)
class Surveyed(Proposing):
    """A request of whose tokens each has a chance of its own."""

    confident: Confident | None = None
    """The cursor, which knows how sure the draft is of its next block; None where chances are
    those of positions.
    """
    before: Floats | None = None
    """(window,) chances of its blocks so far, the newest of most weight; 1 before the first."""


class AdaptiveVerification(TreeSD, Tunable):
    """A chain of the tree's depth is drafted for every request, and ``budget_tokens`` of these are
    verified, of all requests together.
    """

    name: Literal["adaptive_verification"] = "adaptive_verification"  # type: ignore[assignment]
    kinds_by = ()
    traits = Traits(
        TreeDurations, "T_step = sum T_pass + T_host + T_target(N + B*)", shared_budget=True
    )

    confidence: Literal["position", "rollouts", "match_length"] = "position"
    """What a token's chance is calibrated by: its position alone; the draft's own probability of
    it, as recorded roll-outs hold it; or, of a look-up in the recorded text, the length of the
    match.
    """
    ema_alpha: float = Field(default=0.8, gt=0, le=1)
    """Weight of the newest chances in the moving mean by which a budget is chosen; 1: those of the
    step before alone, as in vLLM 0.32.
    """
    measured_at_tokens: int = Field(default=8_192, ge=1, le=1_000_000_000)
    """Cached tokens at which the costs are measured before a run."""
    measured_of: Literal["batch", "request"] = "batch"
    """Whether these are cached of all requests together, or of each of as many requests as whole
    blocks fill the rows, as in the runs by which vLLM measures.
    """
    budget_tokens: dict[Batch, Count] = Field(default_factory=dict)
    """Draft tokens that are verified, of all requests together, by their number; worked out before
    a run, or in each step where tokens have chances of their own, unless stated. Above the largest
    number they grow with it.
    """
    _table: CostTable | None = PrivateAttr(default=None)

    @classmethod
    def example(cls) -> Example:
        """Return blocks of four tokens, drafted in a pass, of which two are verified of one request
        and twelve of eight.
        """
        strategy = cls(
            tree=TokenTree(branching=(1, 1, 1, 1)),
            passes=(DraftPass(rows=(4,)),),
            host_ms=Ranged(value=0.5),
            budget_tokens={1: 2, 8: 12},
        )
        return Example(strategy, StatedDurations(target_ms=20.0, draft_step_ms=2.0))

    def _contradictions(self, facts: Facts) -> Iterator[Finding]:
        """Yield a tree that is no chain, and a look-up, which has no block."""
        if self.tree.size > self.tree.depth:
            yield "tree", "adaptive verification takes a chain; set tree.branching to ones"
        if self.matched is not None:
            yield "matched", "adaptive verification takes a draft that always writes a block"
        if self.confidence != "position" and facts.stated:
            message = (
                f"{self.confidence} are read from a recording, and acceptance is stated; take "
                "position, or a trace"
            )
            yield "confidence", message
        if self.confidence == "match_length" and self.passes:
            yield "confidence", "what is looked up in the text is not drafted; leave passes out"
        yield from super()._contradictions(facts)

    def _unrecorded(self, trace: Trace) -> Finding | None:
        """Return what the recording lacks: roll-outs as long as a block, or its text."""
        if self.confidence == "match_length":
            if len(trace.token):
                return None
            return "confidence", "holds no text in which matches could be found"
        depths = len(trace.extra.get("rollout.q", ()))
        if self.confidence == "rollouts" and depths < self.window:
            message = (
                f"holds the draft's confidence in {depths} tokens ahead, got a block of "
                f"{self.window}"
            )
            return "confidence", message
        return super()._unrecorded(trace)

    def reads(self, verdicts: Acceptance) -> Acceptance:
        """Return what is kept of a block by start of the recording, with each token's chance where
        it has one of its own.
        """
        if self.confidence == "position" or not isinstance(verdicts, Replay):
            return super().reads(verdicts)
        trace = verdicts.trace
        if self.confidence == "match_length":
            length, right = recorded_matches(trace, self.window)
            calibrate = partial(of_matches, length, self.window)
            return SureRuns(verdicts, right, self.window, calibrate, as_decoded=True)
        written = trace.extra["rollout.q"][: self.window].astype(np.float64)
        run = self.tree.kept(trace, self.drafter or "")
        return SureRuns(verdicts, run, self.window, partial(of_rollouts, written))

    # ---- the budget

    def budget_for(self, requests: int) -> int:
        """Return the draft tokens that are verified of so many requests; the whole blocks where
        nothing is known.
        """
        known = max((size for size in self.budget_tokens if size <= requests), default=None)
        if known is None:
            return requests * self.window
        return min(requests * self.window, self.budget_tokens[known] * requests // known)

    def tuned(self, cost: Cost, odds: OddsOf, requests: int, context: int) -> Self:
        """Return the strategy with the budget of every number of requests up to ``requests``, or
        with the costs by which each step chooses its own.
        """
        if self.budget_tokens or self._table:
            return self
        if self.confidence != "position":
            own = self.model_copy()
            own._table = self._measured(cost, requests)
            return own
        window = self.window
        survival = 1.0 - np.cumsum(np.asarray(odds(window).accepted, dtype=np.float64))[:window]
        sizes = range(1, requests + 1)
        if self.measured_of == "request":
            table = self._measured(cost, requests)
            best = {size: table.best(_summed(survival, size), size) for size in sizes}
        else:
            best = {size: self._best(cost, survival, size) for size in sizes}
        return self.model_copy(update={"budget_tokens": best})

    def _measured(self, cost: Cost, requests: int) -> CostTable:
        """Return the costs of up to so many requests and their rows: of every number of rows as far
        as graphs are captured, then of half as many more and of each doubling, with lines between.
        """
        window = self.window
        last = requests * (window + 1) + PROMPT_ROWS
        measured = [*range(1, CAPTURED_ROWS + 1), CAPTURED_ROWS * 3 // 2]
        while measured[-1] < last:
            measured.append(CAPTURED_ROWS << (measured[-1] // CAPTURED_ROWS).bit_length())
        seconds = np.array([cost.target(self._dummy(rows)).wall_s for rows in measured])
        seconds = np.maximum.accumulate(seconds)
        rows = np.arange(last + 1)
        verify_s = np.interp(rows, measured, seconds)
        beyond = slice(CAPTURED_ROWS + 1, None)
        verify_s[beyond] = np.interp(
            rows[beyond], measured[CAPTURED_ROWS:], seconds[CAPTURED_ROWS:]
        )
        draft_s = np.zeros(requests + 1)
        for size in range(1, requests + 1):
            kind = self.kind_with(size, size * window)
            drafted = self.durations(cost, self.step(kind, self.measured_at_tokens // size))
            draft_s[size] = drafted.draft + drafted.host
        return CostTable(draft_s, verify_s)

    def _dummy(self, rows: int) -> Rows:
        """Return so many rows of as many requests as whole blocks fill them, behind the context at
        which costs are measured.
        """
        requests = -(-rows // (self.window + 1))
        each = self.measured_at_tokens
        if self.measured_of == "batch":
            each //= requests
        cached = requests * each
        pairs = rows * each + rows * (self.window + 2) // 2
        return Rows(rows, rows, requests, cached + rows, pairs)

    def _best(self, cost: Cost, survival: Floats, requests: int) -> int:
        """Return the budget of most tokens per second of so many requests: every window that is the
        same for all is looked at, and more budgets around the best of these.
        """
        most = requests * self.window
        alike = range(0, most + 1, requests)
        nearest = self._best_of(cost, survival, requests, alike)
        first = max(0, nearest - requests)
        last = min(most, nearest + requests)
        around = range(first, last + 1, max(1, (last - first) // LOOKS))
        return self._best_of(cost, survival, requests, sorted({*alike, *around}))

    def _best_of(self, cost: Cost, survival: Floats, requests: int, budgets: Sequence[int]) -> int:
        """Return the budget of most tokens per second by the table, of these, which rise."""
        context = self.measured_at_tokens // requests
        steps = [self.step(self.kind_with(requests, budget), context) for budget in budgets]
        drafted = self.durations(cost, steps[-1])
        verified_s = np.array([cost.target(step.rows).wall_s for step in steps])
        seconds = drafted.draft + drafted.host + np.maximum.accumulate(verified_s)
        kept = _summed(survival, requests)[list(budgets)]
        return budgets[int(np.argmax((requests + kept) / seconds))]

    # ---- the batch

    def kind_with(self, requests: int, budget: int, most: int | None = None) -> Kind:
        """Return the kind of a step in which so many draft tokens of the requests are verified,
        spread evenly over them all, or over ``most`` of them.
        """
        verifying = min(requests if most is None else most, budget)
        longest = -(-budget // verifying) if verifying else 0
        detail = BudgetDetail(budget)
        return intern_kind("step", verifying, requests - verifying, window=longest, detail=detail)

    def open(self, cursor: Cursor, context: int, drafted: bool = True) -> Proposing:
        """Return a request, of whose blocks nothing is known yet; raises TypeError for a cursor
        that does not know how sure the draft is, where it is asked.
        """
        if self.confidence == "position":
            return super().open(cursor, context, drafted)
        if not isinstance(cursor, Confident):
            raise TypeError(f"{type(cursor).__name__} does not know how sure the draft is")
        return Surveyed(cursor, context, confident=cursor, before=np.ones(self.window))

    def compose(self, states: Sequence[Proposing], prompts: Rows = NO_ROWS) -> Step:
        """Return a step in which the budget of this batch is spread over its requests, or over the
        likeliest tokens of all.
        """
        if self.confidence == "position":
            each, more = divmod(self.budget_for(len(states)), len(states))
            windows = [each + (place < more) for place in range(len(states))]
        else:
            windows = self._likeliest(states, prompts)
        for state, window in zip(states, windows, strict=True):
            state.proposed = 0 if state.context < state.plain_below else window
        rows = cut_to_grants(states)
        windows = [state.proposed or 0 for state in states]
        verifying = sum(window > 0 for window in windows)
        kind = intern_kind(
            "step",
            verifying,
            len(states) - verifying,
            window=max(windows),
            prompts=prompts.sequences,
            detail=BudgetDetail(sum(windows)),
        )
        return Step(kind, rows, 0, prompts)

    def _likeliest(self, states: Sequence[Proposing], prompts: Rows) -> list[int]:
        """Return how many tokens of each block are among the likeliest of this step; of equal ones
        those of the first requests.
        """
        window = self.window
        granted = np.array([_most_drafts(state, window) for state in states])
        free = np.arange(window) < granted[:, None]
        known = [state for state in states if isinstance(state, Surveyed)]
        if self._table is None:
            budget = min(int(free.sum()), self.budget_for(len(states)))
        else:
            before = np.cumprod([state.before for state in known], axis=1)[free]
            gains = np.concatenate(([0.0], np.cumsum(np.sort(before)[::-1])))
            budget = self._table.best(gains, len(states), prompts)
        now = [state.confident.confidences for state in known if state.confident]
        survival = np.where(free, np.cumprod(now, axis=1), -1.0)
        best = np.argsort(-survival, axis=None, kind="stable")[:budget]
        counts: list[int] = np.bincount(best // window, minlength=len(states)).tolist()
        return counts

    def settle(self, states: Sequence[Proposing]) -> list[Progress]:
        """Verify what was chosen of each request, whose chances then are known to the host."""
        newest = self.ema_alpha
        for state in states:
            if isinstance(state, Surveyed) and state.confident and state.before is not None:
                now = state.confident.confidences
                state.before = newest * now + (1.0 - newest) * state.before
        return Strategy.settle(self, states)

    def course_window(self, requests: int) -> int | None:
        """Return None: what a request has verified depends on those beside it."""
        return None

    # ---- the law

    def kinds(self, odds: OddsOf, requests: int) -> Mapping[Kind, float]:
        """Return a share of 1 for the step with the budget of this batch; where tokens have chances
        of their own, with that of the blocks that it meets in the mean.
        """
        slots = odds(self.window).slots
        if slots is None:
            return {self.kind_with(requests, self.budget_for(requests)): 1.0}
        budget = self.budget_for(requests)
        if self._table:
            taken = np.arange(requests * self.window + 1) / requests
            budget = self._table.best(requests * slots.expected(taken), requests)
        begun = round(requests * slots.begun(budget / requests))
        verifying = min(budget, max(begun, -(-budget // self.window)))
        return {self.kind_with(requests, budget, verifying): 1.0}

    def _renews(self, shares: Mapping[Kind, Numbers]) -> bool:
        """Return whether all requests are alike: none has a longer window than another."""
        return all(len(_spread(kind)) == 1 and not kind.bare for kind in shares)

    def step(self, kind: Kind, context: Numbers) -> Step:
        """Return a step of this kind with all requests at ``context`` tokens."""
        rows = Rows.decode(1, kind.bare * context, kind.bare)
        for window, requests in _spread(kind).items():
            rows += Rows.decode(window + 1, requests * context, requests)
        return Step(kind, rows)

    def _drafting(self, kind: Kind) -> int:
        """Return all requests: a block is written for each."""
        return kind.batch

    def _committed(self, kind: Kind, odds: OddsOf) -> Numbers:
        """Return the expected tokens of windows of two lengths and of single tokens, or of the
        likeliest slots.
        """
        if slots := self._slots(kind, odds):
            return kind.batch * (1.0 + slots.kept(_taken(kind)))
        committed: Numbers = kind.bare
        for window, requests in _spread(kind).items():
            committed = committed + requests * odds(window).committed(self.bonus_on_full_accept)
        return committed

    def _chances(self, kind: Kind, odds: OddsOf) -> Mapping[int, Numbers]:
        """Return the chance of each number of tokens, for a request with either length, or with
        slots among the likeliest.
        """
        if slots := self._slots(kind, odds):
            shares = slots.outcomes(_taken(kind)).tolist()
            return {kept + 1: share for kept, share in enumerate(shares)}
        chances: dict[int, Numbers] = {}
        for window, requests in _spread(kind).items():
            of_length = super()._chances(kind._replace(window=window), odds)
            for tokens, chance in of_length.items():
                part = chance * requests / kind.verifying
                chances[tokens] = chances.get(tokens, 0.0) + part
        return chances

    def _slots(self, kind: Kind, odds: OddsOf) -> RankedSlots | None:
        """Return the slots of all blocks in their order; None where all requests are alike."""
        return odds(self.window).slots if kind.verifying else None

    def claim(
        self,
        cost: Cost,
        requests: int,
        context: int,
        shares: Mapping[Kind, Numbers],
        one_lane: bool,
    ) -> Claim:
        """Return that the law is exact where requests are alike; else it takes each step to meet
        the blocks of the whole recording.
        """
        if self.confidence == "position":
            return super().claim(cost, requests, context, shares, one_lane)
        return Claim(
            "idealised",
            "each step is taken to meet all recorded blocks in their shares, and its budget to be "
            "chosen by them",
        )


def _summed(survival: Floats, requests: int) -> Floats:
    """Return (slots + 1,) the tokens that the first slots bring, where all requests are alike."""
    return np.concatenate(([0.0], np.cumsum(np.repeat(survival, requests))))


def _most_drafts(state: Proposing, window: int) -> int:
    """Return how many tokens of its block a request may have verified."""
    if state.context < state.plain_below:
        return 0
    return min(window, state.most_rows - 1)


def _taken(kind: Kind) -> float:
    """Return the draft tokens of a request that are verified in a step, in the mean."""
    return kind.detail.budget / kind.batch if isinstance(kind.detail, BudgetDetail) else 0.0


def _spread(kind: Kind) -> dict[int, int]:
    """Return how many requests of a step have windows of which length, where its budget is spread
    evenly over those that verify any.
    """
    detail = kind.detail
    if not kind.verifying or not isinstance(detail, BudgetDetail):
        return {}
    each, more = divmod(detail.budget, kind.verifying)
    spread = {each + 1: more, each: kind.verifying - more}
    return {window: requests for window, requests in spread.items() if requests}


def of_chain(strategy: Strategy) -> AdaptiveVerification | None:
    """Return the same drafts under adaptive verification; None where a strategy drafts no chain
    with heads, or follows a rule already.
    """
    if type(strategy) is not TreeSD:
        return None
    if strategy.tree.size > strategy.tree.depth or not strategy.heads:
        return None
    fields = {name: getattr(strategy, name) for name in TreeSD.model_fields if name != "name"}
    return AdaptiveVerification(**fields)
