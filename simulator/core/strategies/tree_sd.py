"""Tree decoding drafts with whatever there is and verifies a tree in one pass: serially, on one
device.

    draft     |=r_1=|=r_2=|..|=r_n=|              heads beside the target, a draft model, or nothing
    rendezvous|                    |host|                           look-up, building the tree
    target    |                         |==verify 1 + nodes + e==|

    T_step = sum_i T_pass(r_i) + T_host + T_target(1 + nodes + e)   (a step that proposes something)
    T_step = T_host + T_target(1)                            (look-up that finds nothing: a miss)

EAGLE, Medusa, Hydra, SpecInfer, REST, prompt look-up, Lookahead and Token Recycling are this with
other numbers (``scenarios/methods``). The r_i are rows of one request; a batch multiplies them, and
everything is one stretch after another, so that a batch of hits and misses verifies ragged rows in
one pass. ``e`` are rows that a method computes beside the tree in the target's pass (Lookahead's
window). What a tree keeps comes from a recording by start, or from stated verdicts over its depth.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from simulator.core.acceptance.cursors import (
    BARE,
    Chain,
    Cursor,
    Matching,
    Retraceable,
    Verdict,
    forked,
)
from simulator.core.acceptance.cut_vocabulary import NO_TEXT, cut, cut_runs
from simulator.core.acceptance.lossy.scores import under
from simulator.core.acceptance.sources import Acceptance, Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.acceptance.tree_replay import DrawnMatches, RecordedRuns
from simulator.core.cost.hull import Drafting
from simulator.core.cost.model import DraftHead, ModelSpec
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Phase, Rows, together
from simulator.core.cost.stated import StatedDurations
from simulator.core.numeric import Numbers, binomial, occurs
from simulator.core.quantities import NonNegative, Ranged, Share
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.capabilities import (
    AddsMemory,
    DraftsOtherwise,
    ExtraMemory,
    NamesRecording,
    ReadsHiddenStates,
    StepsPlainly,
)
from simulator.core.strategies.common.claim import EXACT, Claim, Example
from simulator.core.strategies.common.courses import Counts, Course, Sums, TellsCourses
from simulator.core.strategies.common.drafters import DraftPass
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import (
    Kind,
    Lanes,
    Progress,
    State,
    Step,
    Timeline,
    intern_progress,
)
from simulator.core.strategies.common.token_tree import TokenTree
from simulator.core.strategies.common.traits import Facts, Finding, Needs, Traits, no_cut

ID_BYTES = 8
"""A token id in a table on the device (int64, as PyTorch indexes)."""


NEGLIGIBLE = 1e-15
"""Share of a step kind that changes no digit of a law."""


class TreeDurations(NamedTuple):
    """These are the seconds of all draft passes, of the host's part, and of the target's pass."""

    draft: float
    host: float
    target: float


@dataclass(slots=True)
class Proposing(State):
    """A request whose next proposal may be looked up."""

    look_up: Matching | None = None
    """The cursor, which knows whether look-up finds anything; None where every step proposes."""


class TreeSD(
    TellsCourses,
    Strategy[TreeDurations, Proposing],
    AddsMemory,
    DraftsOtherwise,
    NamesRecording,
    ReadsHiddenStates,
    StepsPlainly,
):
    """Draft passes run in series, then one pass of the target over the tree.

    ``drafter`` names what a recording is asked for; where that is another way of drafting, whose
    bursts are lent (``borrowed``), it has to be re-scaled to a mean of the method's own.
    ``matched`` is for look-up: the share of steps that propose anything where acceptance is stated;
    a recording knows it of every position.
    """

    name: Literal["tree_sd"] = "tree_sd"
    kinds_by: ClassVar[tuple[int, ...]] = (1,)
    traits: ClassVar[Traits] = Traits(
        TreeDurations, "T_step = sum T_pass + T_host + T_target(1 + nodes + e)"
    )

    tree: TokenTree
    """Tree that is verified in one pass."""
    passes: tuple[DraftPass, ...] = ()
    """Passes that draft, in series; none for look-up."""
    extra_rows: int = Field(default=0, ge=0, le=1_000_000)
    """Rows of the target's pass besides those of the tree."""
    larger_rows: Ranged | None = None
    """Further rows, in the mean over steps, of a method some of whose steps verify a larger tree
    than ``tree``.
    """
    ids_per_entry: int = Field(default=0, ge=0, le=1_000_000)
    """Token ids kept for each entry of the vocabulary (a table on the device)."""
    host_ms: Ranged = Ranged(value=0.0)
    """Milliseconds of the host in a step for every request, for look-up and for building its
    tree.
    """
    step_host_ms: NonNegative = NonNegative(value=0.0)
    """Milliseconds of the host in a step whatever the batch: the program that schedules it."""
    matched: Share | None = None
    """Share of steps that find something to propose, where acceptance is stated; 0: it only ever
    looks.
    """
    covered: Share | None = None
    """Share of the target's tokens that a cut vocabulary of the draft holds (FR-Spec), where
    acceptance was stated or recorded with the whole one. ``vocabulary`` of the head, or
    ``draft.lm_head_rows``, says how wide its LM head then is.
    """
    drafter: str | None = None
    """Drafter that a recording is asked for."""
    borrowed: bool = False
    """Whether the recording lends the bursts of another way of drafting."""

    @classmethod
    def example(cls) -> Example:
        """Return a tree of two levels, drafted in two passes, with 1.5 ms of the host for each
        request and 0.5 for all.
        """
        tree = TokenTree(branching=(2, 2))
        passes = (DraftPass(rows=(1, 2)),)
        durations = StatedDurations(target_ms=20.0, draft_step_ms=2.0)
        return Example(
            cls(
                tree=tree,
                passes=passes,
                host_ms=Ranged(value=1.5),
                step_host_ms=NonNegative(value=0.5),
            ),
            durations,
        )

    # ---- what it is

    @property
    def window(self) -> int:
        """Return the levels of the tree: the most draft tokens that a step can keep."""
        return self.tree.depth

    @cached_property
    def drafts_with_model(self) -> bool:
        """Return whether a pass is one of the draft model, which is one without a head."""
        return any(draft_pass.head is None for draft_pass in self.passes)

    @cached_property
    def rows(self) -> int:
        """Return the rows that verify one request's tree: the last token, the tree, and the extra
        rows.
        """
        return (
            1
            + self.tree.size
            + self.extra_rows
            + (round(self.larger_rows.value) if self.larger_rows else 0)
        )

    @property
    def needs(self) -> Needs:
        """Return the needs of a tree; the cache takes every verified row before it is trimmed to
        the path.
        """
        return Needs(
            draft_model=self.drafts_with_model,
            draft_steps=sum(len(draft_pass.rows) for draft_pass in self.passes),
            rows=self.rows,
            cache_tokens=self.rows,
            lookahead=self.tree.size if self.drafts_with_model or self.reads_hidden_states else 0,
            draft_slots=int(self.drafts_with_model),
            dynamic_draft=self.tree.dynamic,
        )

    def rows_at_hand(self, state: Proposing, rows: int) -> int:
        """Return a single row where look-up found nothing."""
        if state.look_up is None or state.look_up.matched:
            return rows
        return 1

    @property
    def reads_hidden_states(self) -> bool:
        """Return whether a pass is one of a head with layers."""
        return any(
            draft_pass.head is not None and draft_pass.head.layers > 0 for draft_pass in self.passes
        )

    @property
    def drafting(self) -> Drafting:
        """Return how the drafts of a step come about: a chain needs no mask, and a look-up no
        pass.
        """
        if self.tree.size > self.tree.depth:
            return "tree"
        if not self.passes:
            return "look_up"
        if self.drafts_with_model:
            return "draft_model"
        return "head"

    def extra_memory(self, target: ModelSpec) -> ExtraMemory:
        """Return the weights of the heads, each set once, and the token ids kept for every entry of
        the vocabulary.
        """
        tables = self.ids_per_entry * target.vocab_size * ID_BYTES
        return ExtraMemory(
            sum(head.weights(target) for head in self.heads),
            tables,
            sum(head.layers for head in self.heads),
        )

    @property
    def heads(self) -> tuple[DraftHead, ...]:
        """Return the heads of the passes, each set of weights once."""
        return tuple(entry.head for entry in self.passes if entry.head and not entry.reused)

    @property
    def recorded_drafter(self) -> str | None:
        """Return the drafter that a recording is asked for."""
        return self.drafter

    @property
    def borrows_recording(self) -> bool:
        """Return whether the recording lends the bursts of another way of drafting."""
        return self.borrowed

    def reads(self, verdicts: Acceptance) -> Acceptance:
        """Return what the tree keeps by start of the recording; for look-up also where there is
        nothing to propose.
        """
        if not isinstance(verdicts, Replay):
            if self.covered is not None:
                verdicts = cut(verdicts, self.covered.value)
            if self.matched is None:
                return verdicts
            return DrawnMatches(verdicts, self.matched.value)
        trace = verdicts.trace
        drafter = self.drafter or ""
        proposed = trace.extra.get(f"{drafter}.proposed") if self.matched else None
        if trace.rule is not None:
            ruled = self.tree.kept_under(trace.rule, trace, drafter, verdicts.seed)
            verdicts = verdicts.over(under(trace, ruled), verdicts.seed)
            kept = ruled.tokens
        else:
            kept = self.tree.kept(trace, drafter)
        if self.covered is not None:
            kept = cut_runs(trace, kept, self.covered.value)
        return RecordedRuns(verdicts, kept, self.window, proposed)

    def _contradictions(self, facts: Facts) -> Iterator[Finding]:
        """Yield a vocabulary that is not cut."""
        for entry in self.passes[:1]:
            yield from no_cut(self.covered is not None, entry.head, facts.target)
        yield from super()._contradictions(facts)

    def _unrecorded(self, trace: Trace) -> Finding | None:
        """Return the tree or the drafter that the recording does not hold."""
        if trace.run is None and self.drafter is None:
            message = (
                "holds nothing that drafts like this; state rate, per_position, always or cycle "
                "instead"
            )
            return "drafter", message
        if self.covered is not None and not len(trace.token):
            return "covered", NO_TEXT
        missing = self.tree.unrecorded(trace, self.drafter or "", self.borrowed)
        if missing:
            return ("tree", missing)
        return None

    # ---- the batch

    def open(self, cursor: Cursor, context: int, drafted: bool = True) -> Proposing:
        """Return a request, with what says whether look-up finds anything; raises TypeError for a
        cursor that does not, where it is asked.
        """
        if self.matched is None:
            return Proposing(cursor, context)
        if not isinstance(cursor, Matching):
            raise TypeError(f"{type(cursor).__name__} does not know what look-up finds")
        return Proposing(cursor, context, look_up=cursor)

    def compose(self, states: Sequence[Proposing], prompts: Rows = NO_ROWS) -> Step:
        """Return a step in which requests that propose something, and are granted the rows, verify
        a tree, others a token.
        """
        rows = self.rows
        hits = hit_context = miss_context = 0
        for state in states:
            matched = state.look_up is None or state.look_up.matched
            if state.context < state.plain_below:
                matched = False
            if matched and state.most_rows >= rows:
                state.proposed = rows - 1
                hits += 1
                hit_context += state.context
            else:
                state.proposed = 0
                miss_context += state.context
        kind = self.kind_of(hits, len(states) - hits)._replace(prompts=prompts.sequences)
        return Step(kind, self._rows(kind, hit_context, miss_context), 0, prompts)

    def kind_of(self, hits: int, misses: int) -> Kind:
        """Return the kind of a batch in which ``hits`` requests verify a tree and ``misses`` a
        single token.
        """
        name = "step"
        if misses:
            name = "hit" if hits else "miss"
        return Kind(name, hits, misses)

    def _renews(self, shares: Mapping[Kind, Numbers]) -> bool:
        """Return True: requests find something to propose independently."""
        return True

    def kinds(self, odds: OddsOf, requests: int) -> Mapping[Kind, float]:
        """Return the share of each kind of step: binomial, as requests find something to propose
        independently.
        """
        shares = binomial(requests, odds(self.window).unmatched)
        return {
            self.kind_of(requests - k, k): share
            for k, share in shares.items()
            if np.any(share > NEGLIGIBLE)
        }

    def step(self, kind: Kind, context: int) -> Step:
        """Return a step of this kind with all requests at ``context`` tokens."""
        return Step(kind, self._rows(kind, kind.verifying * context, kind.bare * context))

    def _rows(self, kind: Kind, hit_context: int, miss_context: int) -> Rows:
        return Rows.decode(self.rows, hit_context, kind.verifying) + Rows.decode(
            1, miss_context, kind.bare
        )

    def course_window(self, requests: int) -> int | None:
        """Return the levels of the tree, whatever the batch."""
        return self.window

    def step_of(self, requests: int, sums: Sums) -> Step:
        """Return the step of a batch: ``sums`` are its contexts and, of look-up, how many find
        nothing to propose, and the contexts of those.
        """
        context, misses, miss_context = (sums[0], 0, 0) if self.matched is None else sums
        kind = self.kind_of(requests - misses, misses)
        return Step(kind, self._rows(kind, context - miss_context, miss_context))

    def along(self, state: Proposing) -> tuple[int, ...]:
        """Return the context of a request and, of look-up, whether it finds nothing, and its
        context if so.
        """
        missed = not state.proposed
        if self.matched is None:
            return (state.context,)
        return state.context, int(missed), missed * state.context

    def rows_missing(self, course: Course) -> Counts | None:
        """Return the rows of a tree, but for one, in each step in which look-up finds nothing."""
        if self.matched is None:
            return None
        missing: Counts = course.adds[1] * (self.rows - 1)
        return missing

    def fork(self, state: Proposing) -> Proposing:
        """Return a state that asks a second cursor whether look-up finds anything."""
        return self.open(forked(state.cursor), state.context)

    def course(self, state: Proposing, window: int, tokens: int) -> Course:
        """Return the course of trees, as the cursor tells it ahead where every step proposes
        one.
        """
        cursor = state.cursor
        if state.look_up is not None or not isinstance(cursor, Retraceable) or self.rows == 1:
            return super().course(state, window, tokens)
        proposal = Chain(self.window, self.bonus_on_full_accept)
        before, counts = cursor.counted(proposal, tokens)
        return Course(before[None, :-1], before[1:], counts)

    def made_of(self, judged: Verdict, window: int) -> Progress:
        """Return the progress of a request whose tree was judged so."""
        committed = judged.committed
        return intern_progress(committed, committed, judged.accepted, self.tree.size)

    def settle(self, states: Sequence[Proposing]) -> list[Progress]:
        """Verify each tree: the longest path that agrees is kept, and the target adds a token."""
        proposal = Chain(self.window, self.bonus_on_full_accept)
        size = self.tree.size
        settled = []
        for state in states:
            accepted, committed, _, _ = state.cursor.judge(proposal if state.proposed else BARE)
            state.context += committed
            settled.append(
                intern_progress(committed, committed, accepted, size if state.proposed else 0)
            )
        return settled

    # ---- the time

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Return the draft passes over requests that propose, the host's part for all, and one pass
        of the target.
        """
        kind = step.kind
        drafting = self._drafting(kind)
        cached = (step.rows.kv_tokens - step.rows.tokens) * drafting // max(1, kind.batch)
        drafted = []
        if step.prompts.sequences and self.drafts_with_model:
            drafted.append(cost.prefill("draft", step.prompts))
        for entry in self.passes:
            drafted += entry.phases(cost, drafting, cached)
        host_s = (
            self.host_ms.value * (kind.verifying + kind.bare) + self.step_host_ms.value
        ) * 1e-3
        return {
            "draft": together(*drafted),
            "host": Phase(host_s * cost.method_host_ratio, {}),
            "target": cost.target(step.rows + step.prompts),
        }

    def _drafting(self, kind: Kind) -> int:
        """Return the requests for which something is drafted in a step: those that verify it."""
        return kind.verifying

    def timeline(self, lanes: Lanes, durations: TreeDurations, kind: Kind) -> Timeline:
        """Book the draft, the host, and the verification in series."""
        if occurs(durations.draft):
            (lanes.draft if self.drafts_with_model else lanes.target).occupy(
                durations.draft, "draft"
            )
        if durations.host:
            lanes.rendezvous.occupy(durations.host, "host", lanes.draft, lanes.target)
        label = "verify" if kind.verifying else "decode"
        return (lanes.target.start(durations.target, label, lanes.draft, lanes.rendezvous),)

    def claim(
        self,
        cost: Cost,
        requests: int,
        context: int,
        shares: Mapping[Kind, Numbers],
        one_lane: bool,
    ) -> Claim:
        """Return that the law is exact: draft, host and target follow each other."""
        return EXACT

    def step_seconds(self, durations: TreeDurations, kind: Kind) -> Numbers:
        """Return T_draft + T_host + T_target in seconds."""
        return durations.draft + durations.host + durations.target
