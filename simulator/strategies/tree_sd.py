"""Draft with whatever there is, verify a tree in one pass: serially, on one device.

    draft     |=r_1=|=r_2=|..|=r_n=|                                heads beside the target, a draft model, or nothing
    rendezvous|                    |host|                           look-up, building the tree
    target    |                         |==verify 1 + nodes + e==|

    T_step = sum_i T_pass(r_i) + T_host + T_target(1 + nodes + e)            (a step that proposes something)
    T_step = T_host + T_target(1)                                            (look-up that finds nothing: a miss)

EAGLE, Medusa, Hydra, SpecInfer, REST, prompt look-up, Lookahead and Token Recycling are this with other numbers
(``scenarios/methods``). The r_i are rows of one request; a batch multiplies them, and everything is one stretch
after another, so that a batch of hits and misses verifies ragged rows in one pass. ``e`` are rows that a method
computes beside the tree in the target's pass (Lookahead's window). What a tree keeps comes from a recording by start,
or from stated verdicts over its depth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from simulator.acceptance.sources import Acceptance, Chain, Replay
from simulator.acceptance.trace import Trace
from simulator.acceptance.tree_replay import DrawnMatches, RecordedRuns
from simulator.cost.cost import NO_ROWS, Cost, Phase, Rows, together
from simulator.cost.model import ModelSpec
from simulator.cost.stated import StatedDurations
from simulator.files.schema import Fraction, NonNegative
from simulator.numeric import binomial
from simulator.strategies.common.base import OddsOf, Strategy
from simulator.strategies.common.claim import EXACT, Claim, Example
from simulator.strategies.common.drafters import DraftPass
from simulator.strategies.common.step import BARE, Kind, Lanes, Progress, State, Step, Timeline, intern_progress
from simulator.strategies.common.token_tree import TokenTree

ID_BYTES = 8
"""A token id in a table on the device (int64, as PyTorch indexes)."""


NEGLIGIBLE = 1e-15
"""Share of a step kind that no law can feel."""


class TreeDurations(NamedTuple):
    """Seconds: all draft passes, the host's part, the target's pass."""

    draft: float
    host: float
    target: float


class TreeSD(Strategy):
    """Draft passes in series, then one pass of the target over the tree.

    ``drafter`` names what a recording is asked for; where that is another way of drafting, whose bursts are lent
    (``borrowed``), it has to be re-scaled to a mean of the method's own. ``matched`` is for look-up: the share of
    steps that propose anything where acceptance is stated; a recording knows it of every position.
    """

    name: Literal["tree_sd"] = "tree_sd"
    named: ClassVar[type[TreeDurations]] = TreeDurations
    equation: ClassVar[str] = "T_step = sum T_pass + T_host + T_target(1 + nodes + e)"

    tree: TokenTree
    """What is verified in one pass."""
    passes: tuple[DraftPass, ...] = ()
    """Passes that draft, one after another; none for look-up."""
    extra_rows: int = Field(default=0, ge=0)
    """Rows beside the tree in the target's pass."""
    ids_per_entry: int = Field(default=0, ge=0)
    """Token ids kept for each entry of the vocabulary (a table on the device)."""
    host_ms: NonNegative = NonNegative(value=0.0)
    """The host's part of a step: look-up, building the tree."""
    matched: Fraction | None = None
    """With stated acceptance: share of steps that find something to propose."""
    drafter: str | None = None
    """What a recording is asked for."""
    borrowed: bool = False
    """The recording lends the bursts of another way of drafting."""

    @classmethod
    def example(cls) -> Example:
        """Return a tree of two levels, drafted in two passes, with 1.5 ms of the host for each request."""
        tree, passes = TokenTree(branching=(2, 2)), (DraftPass(rows=(1, 2)),)
        durations = StatedDurations(target_ms=20.0, draft_step_ms=2.0)
        return Example(cls(tree=tree, passes=passes, host_ms=NonNegative(value=1.5)), durations)

    # ---- what it is

    @property
    def window(self) -> int:
        """Levels of the tree: the most that a step can keep."""
        return self.tree.depth

    @property
    def window_steps(self) -> int:
        """Draft passes of one step."""
        return sum(len(one.rows) for one in self.passes)

    @property
    def needs_draft(self) -> bool:
        """A pass without a head is one of the draft model."""
        return any(one.head is None for one in self.passes)

    @property
    def dynamic_draft(self) -> bool:
        """As the tree is."""
        return self.tree.dynamic

    @property
    def rows(self) -> int:
        """Rows that verify one request's tree: the last token, the tree, and what is computed beside it."""
        return 1 + self.tree.size + self.extra_rows

    @property
    def lookahead(self) -> int:
        """The cache takes every verified row before it is trimmed to the path."""
        return self.rows

    def rows_for(self, requests: int) -> int:
        """The same tree for every batch."""
        return self.rows

    def extra_weights(self, target: ModelSpec) -> int:
        """Heads, each set of weights once."""
        return sum(one.head.weights(target) for one in self.passes if one.head and not one.reused)

    def table_bytes(self, target: ModelSpec) -> int:
        """Token ids kept for every entry of the vocabulary."""
        return self.ids_per_entry * target.vocab_size * ID_BYTES

    def reads(self, verdicts: Acceptance) -> Acceptance:
        """By start from the recording; look-up with the steps that have nothing to propose."""
        if not isinstance(verdicts, Replay):
            return verdicts if self.matched is None else DrawnMatches(verdicts, self.matched.value)
        trace, drafter = verdicts.trace, self.drafter or ""
        proposed = trace.extra.get(f"{drafter}.proposed") if self.matched else None
        return RecordedRuns(verdicts, self.tree.kept(trace, drafter), self.window, proposed)

    def unrecorded(self, trace: Trace) -> tuple[str, str] | None:
        """A tree or a drafter that the recording does not hold."""
        if trace.run is None and self.drafter is None:
            message = "holds nothing that drafts like this; state rate, per_position, always or cycle instead"
            return "drafter", message
        missing = self.tree.unrecorded(trace, self.drafter or "", self.borrowed)
        return ("tree", missing) if missing else None

    # ---- the batch

    def compose(self, states: Sequence[State], prompts: Rows = NO_ROWS) -> Step:
        """Who has something to propose and is granted the rows for it verifies a tree; the others one token."""
        hits = hit_context = miss_context = 0
        for state in states:
            found = self.matched is None or state.cursor.matched  # type: ignore[attr-defined]  # what `reads` gives has it
            if found and state.most_rows >= self.rows:
                state.proposed = self.rows - 1
                hits += 1
                hit_context += state.context
            else:
                state.proposed = 0
                miss_context += state.context
        kind = self.kind_of(hits, len(states) - hits)._replace(prompts=prompts.sequences)
        return Step(kind, self._rows(kind, hit_context, miss_context), 0, prompts)

    def kind_of(self, hits: int, misses: int) -> Kind:
        """A batch in which so many verify a tree, and so many a single token."""
        return Kind("step" if not misses else "hit" if hits else "miss", hits, misses)

    def kinds(self, odds: OddsOf, requests: int) -> Mapping[Kind, float]:
        """Requests find something to propose independently: their number in a step is binomial."""
        shares = binomial(requests, odds(self.window).unmatched)
        return {self.kind_of(requests - k, k): share for k, share in shares.items() if np.any(share > NEGLIGIBLE)}

    def step(self, kind: Kind, context: int) -> Step:
        """A step of this kind with all requests at ``context``."""
        return Step(kind, self._rows(kind, kind.verifying * context, kind.bare * context))

    def _rows(self, kind: Kind, hit_context: int, miss_context: int) -> Rows:
        return Rows.decode(self.rows, hit_context, kind.verifying) + Rows.decode(1, miss_context, kind.bare)

    def settle(self, states: Sequence[State]) -> list[Progress]:
        """The longest path of the tree that agrees, and one token of the target's own."""
        proposal, size = Chain(self.window, self.bonus_on_full_accept), self.tree.size
        settled = []
        for state in states:
            accepted, committed, _, _ = state.cursor.judge(proposal if state.proposed else BARE)
            state.context += committed
            settled.append(intern_progress(committed, committed, accepted, size if state.proposed else 0))
        return settled

    # ---- the time

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Draft passes over the rows of those who propose, the host for everyone, one pass of the target."""
        kind = step.kind
        verified = kind.verifying * self.rows
        cached = (step.rows.kv_tokens - verified - kind.bare) * kind.verifying // max(1, kind.verifying + kind.bare)
        chunks = [cost.prefill("draft", step.prompts)] if step.prompts.sequences and self.needs_draft else []
        drafted = [phase for one in self.passes for phase in drafting(cost, one, kind.verifying, cached)]
        return {
            "draft": together(*chunks, *drafted),
            "host": Phase(self.host_ms.value * 1e-3 * (kind.verifying + kind.bare), {}),
            "target": cost.target(step.rows + step.prompts),
        }

    def timeline(self, lanes: Lanes, durations: TreeDurations, kind: Kind) -> Timeline:
        """Draft, host, verify."""
        if durations.draft:
            (lanes.draft if self.needs_draft else lanes.target).occupy(durations.draft, "draft")
        if durations.host:
            lanes.rendezvous.occupy(durations.host, "host", lanes.draft, lanes.target)
        label = "verify" if kind.verifying else "decode"
        return (lanes.target.start(durations.target, label, lanes.draft, lanes.rendezvous),)

    def claim(self, cost: Cost, requests: int, context: int, shares: Mapping[Kind, Any], one_lane: bool) -> Claim:
        """Return that the law is exact: draft, host and target follow each other."""
        return EXACT

    def step_seconds(self, durations: TreeDurations, kind: Kind) -> Any:
        """T_draft + T_host + T_target."""
        return durations.draft + durations.host + durations.target


def drafting(cost: Cost, one: DraftPass, requests: int, kv_tokens: int) -> list[Phase]:
    """Every pass of an entry over the rows of ``requests``."""
    if not requests:
        return []
    each = (one.batch(rows, requests, kv_tokens) for rows in one.rows)
    return [cost.draft(rows) if one.head is None else cost.head(one.head, rows) for rows in each]
