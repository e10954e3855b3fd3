"""Adaptive verification: the draft writes a whole block for every request, and in each step as many
of these tokens are verified, over all requests, as bring most tokens per second.

    draft     |=== whole block, all requests ===|
    target                                      |== verify B + requests rows ==|

    B* = argmax_B (N + S_1 + ... + S_B) / (T_draft(N) + T_target(N + B))

S are the chances that a token is kept with all before it, of all requests together, largest first;
N the requests. The costs are those of a table measured before the run at 8,192 cached tokens,
forced to rise with the rows, with the stairs of captured graphs where an engine has them (vLLM's
``enable_adaptive_verification``, as restated). Chances are calibrated by position, so that requests
are alike: of B tokens each gets as many, and the first ones one more.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Rows
from simulator.core.cost.stated import StatedDurations
from simulator.core.numeric import Numbers
from simulator.core.quantities import Ranged
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.capabilities import Tunable
from simulator.core.strategies.common.chain import cut_to_grants
from simulator.core.strategies.common.claim import Example
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


class AdaptiveVerification(TreeSD, Tunable):
    """A chain of the tree's depth is drafted for every request, and ``budget_tokens`` of these are
    verified, of all requests together.
    """

    name: Literal["adaptive_verification"] = "adaptive_verification"  # type: ignore[assignment]
    kinds_by = ()
    traits = Traits(TreeDurations, "T_step = sum T_pass + T_host + T_target(N + B*)")

    measured_at_tokens: int = Field(default=8_192, ge=1, le=1_000_000_000)
    """Cached tokens at which the costs are measured before a run."""
    budget_tokens: dict[Batch, Count] = Field(default_factory=dict)
    """Draft tokens that are verified, of all requests together, by their number; worked out before
    a run, unless stated. Above the largest number they grow with it.
    """

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
        yield from super()._contradictions(facts)

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
        """Return the strategy with the budget of every number of requests up to ``requests``."""
        if self.budget_tokens:
            return self
        window = self.window
        survival = 1.0 - np.cumsum(np.asarray(odds(window).accepted, dtype=np.float64))[:window]
        best = {size: self._best(cost, survival, size) for size in range(1, requests + 1)}
        return self.model_copy(update={"budget_tokens": best})

    def _best(self, cost: Cost, survival: NDArray[np.float64], requests: int) -> int:
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

    def _best_of(
        self, cost: Cost, survival: NDArray[np.float64], requests: int, budgets: Sequence[int]
    ) -> int:
        """Return the budget of most tokens per second by the table, of these, which rise."""
        context = self.measured_at_tokens // requests
        steps = [self.step(self.kind_with(requests, budget), context) for budget in budgets]
        drafted = self.durations(cost, steps[-1])
        verified_s = np.array([cost.target(step.rows).wall_s for step in steps])
        seconds = drafted.draft + drafted.host + np.maximum.accumulate(verified_s)
        kept = np.concatenate(([0.0], np.cumsum(np.repeat(survival, requests))))[list(budgets)]
        return budgets[int(np.argmax((requests + kept) / seconds))]

    # ---- the batch

    def kind_with(self, requests: int, budget: int) -> Kind:
        """Return the kind of a step in which so many draft tokens of the requests are verified,
        spread evenly.
        """
        verifying = min(requests, budget)
        longest = -(-budget // verifying) if verifying else 0
        detail = BudgetDetail(budget)
        return intern_kind("step", verifying, requests - verifying, window=longest, detail=detail)

    def compose(self, states: Sequence[Proposing], prompts: Rows = NO_ROWS) -> Step:
        """Return a step in which the budget of this batch is spread over its requests, the first
        ones first.
        """
        each, more = divmod(self.budget_for(len(states)), len(states))
        for place, state in enumerate(states):
            state.proposed = each + (place < more)
            if state.context < state.plain_below:
                state.proposed = 0
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

    def settle(self, states: Sequence[Proposing]) -> list[Progress]:
        """Verify what was chosen of each request."""
        return Strategy.settle(self, states)

    def course_window(self, requests: int) -> int | None:
        """Return None: what a request has verified depends on those beside it."""
        return None

    # ---- the law

    def kinds(self, odds: OddsOf, requests: int) -> Mapping[Kind, float]:
        """Return a share of 1 for the step with the budget of this batch."""
        return {self.kind_with(requests, self.budget_for(requests)): 1.0}

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
        """Return the expected tokens of windows of two lengths, and of single tokens."""
        committed: Numbers = kind.bare
        for window, requests in _spread(kind).items():
            committed = committed + requests * odds(window).committed(self.bonus_on_full_accept)
        return committed

    def _chances(self, kind: Kind, odds: OddsOf) -> Mapping[int, Numbers]:
        """Return the chance of each number of tokens, for a request with either length."""
        chances: dict[int, Numbers] = {}
        for window, requests in _spread(kind).items():
            of_length = super()._chances(kind._replace(window=window), odds)
            for tokens, chance in of_length.items():
                part = chance * requests / kind.verifying
                chances[tokens] = chances.get(tokens, 0.0) + part
        return chances


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
