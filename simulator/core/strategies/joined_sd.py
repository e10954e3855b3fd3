"""Retrieval joined with a drafter (SAM-Decoding): a step verifies a retrieved chain where the end
of the text has stood in it before for long enough. Otherwise it verifies the tree of a head or a
draft model.

    a step that retrieves              one that is drafted
    draft     |                        |=r_1=|=r_2=|..|=r_n=|
    rendezvous|look-up|                |     look-up and host|
    target    |       |=verify 1 + s=| |                     |=verify 1 + nodes=|

    T_step = T_look-up + T_target(1 + s)                                   (retrieved)
    T_step = sum_i T_pass(r_i) + T_look-up + T_host + T_target(1 + nodes)  (drafted)

with a chain of ``s`` tokens. In a batch some requests retrieve and others are drafted: one pass
verifies the ragged rows, and draft passes run over those that need them. The engine charges a step
that only retrieves as a look-up, any other as the drafter's own. The first draft pass behind
retrieved steps also reads what those committed; it is priced like any other, as reading the head's
weights decides.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from simulator.core.acceptance.cursors import BARE, Chain, Cursor, Matching, forked
from simulator.core.acceptance.retrieval import RecordedRetrieval, StatedRetrieval, mixed
from simulator.core.acceptance.sources import Acceptance, Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Phase, Rows, together
from simulator.core.cost.stated import StatedDurations
from simulator.core.numeric import Numbers, binomial
from simulator.core.quantities import Frozen, NonNegative, Ranged
from simulator.core.strategies.common.claim import Example
from simulator.core.strategies.common.courses import Counts, Course, Sums, TellsCourses
from simulator.core.strategies.common.drafters import DraftPass
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import Kind, Progress, Step, intern_progress
from simulator.core.strategies.common.token_tree import TokenTree
from simulator.core.strategies.common.traits import Finding, Needs, Traits
from simulator.core.strategies.tree_sd import NEGLIGIBLE, Proposing, TreeDurations, TreeSD


class Retrieval(Frozen):
    """Chains are copied from the text so far, where its end stood earlier in it."""

    tokens: int = Field(ge=1, le=1_000)
    """Draft tokens of a retrieved chain; shorter ones are padded to as many."""
    least_match_tokens: int = Field(default=1, ge=1, le=1_000)
    """Tokens at the end of the text that have to stand earlier in it, where a recording is
    replayed.
    """
    matched: Ranged
    """Share of steps that retrieve, where acceptance is stated."""
    kept: Ranged | None = None
    """Draft tokens kept of a retrieved chain in the mean, where acceptance is stated; by default
    what that keeps of a window as long.
    """
    host_ms: Ranged = Ranged(value=0.0)
    """Milliseconds of the host for every request in every step: what was committed is added to the
    index, and looked up.
    """

    @model_validator(mode="after")
    def _possible(self) -> Self:
        share = max(self.matched.value, self.matched.high or 0.0)
        if share > 1.0:
            raise ValueError(f"matched: expected a share of at most 1, got {share:g}")
        kept = max(self.kept.value, self.kept.high or 0.0) if self.kept else 0.0
        if kept > self.tokens:
            raise ValueError(
                f"kept: a chain of {self.tokens:,} tokens keeps no more of them, got {kept:g}"
            )
        return self


class DraftedRequests(NamedTuple):
    """Says how many requests of a step have a tree drafted; the others that verify retrieve."""

    drafted: int

    @property
    def words(self) -> str:
        """Return their number in words."""
        return f"{self.drafted:,} drafted"

    @property
    def extra_work(self) -> int:
        """Return 0: both kinds of draft are what the law is about."""
        return 0


class JoinedSD(TreeSD):
    """A step verifies a retrieved chain where there is a long match, else the tree of a drafter.

    Stated acceptance is that of the drafter; a stated mean is that of all steps, from which the
    drafter's follows.
    """

    name: Literal["joined_sd"] = "joined_sd"  # type: ignore[assignment]
    kinds_by: ClassVar[tuple[int, ...]] = (1,)
    traits: ClassVar[Traits] = Traits(
        TreeDurations,
        "T_step = T_look-up + T_target(1 + s) retrieved, sum T_pass + T_look-up + T_host + "
        "T_target(1 + nodes) drafted",
    )

    retrieval: Retrieval
    """Chains that are retrieved."""

    @model_validator(mode="after")
    def _joined(self) -> Self:
        if self.matched is not None:
            raise ValueError("matched: how often a step retrieves is stated as retrieval.matched")
        if self.covered is not None:
            raise ValueError("covered: state acceptance of the cut drafter itself instead")
        if not self.bonus_on_full_accept:
            raise ValueError("bonus_on_full_accept: expected true, as both drafts bring a bonus")
        return self

    @classmethod
    def example(cls) -> Example:
        """Return chains of two tokens in every other step, else a tree of two levels in two
        passes.
        """
        strategy = cls(
            retrieval=Retrieval(
                tokens=2,
                matched=Ranged(value=0.5),
                host_ms=Ranged(value=0.5),
            ),
            tree=TokenTree(branching=(2, 2)),
            passes=(DraftPass(rows=(1, 2)),),
            host_ms=Ranged(value=1.5),
            step_host_ms=NonNegative(value=0.25),
        )
        return Example(strategy, StatedDurations(target_ms=20.0, draft_step_ms=2.0))

    # ---- what it is

    @property
    def window(self) -> int:
        """Return the most draft tokens that a step can keep, of a chain or of the tree."""
        return max(self.tree.depth, self.retrieval.tokens)

    @cached_property
    def chain_rows(self) -> int:
        """Return the rows that verify a retrieved chain: the last token and the chain."""
        return 1 + self.retrieval.tokens

    @property
    def needs(self) -> Needs:
        """Return the needs of the larger of both."""
        rows = max(self.rows, self.chain_rows)
        return super().needs._replace(rows=rows, cache_tokens=rows)

    def reads(self, verdicts: Acceptance) -> Acceptance:
        """Return what chains keep of a recording where its text has a long match, and the tree
        elsewhere; or the stated verdicts of the tree, joined with what is stated of chains.
        """
        own = self.retrieval
        if not isinstance(verdicts, Replay):
            mean = own.kept.value if own.kept else None
            share = own.matched.value
            return StatedRetrieval(verdicts, share, mean, own.tokens, self.tree.depth)
        kept = self.tree.kept(verdicts.trace, self.drafter or "")
        return RecordedRetrieval(verdicts, kept, own.tokens, self.window, own.least_match_tokens)

    def _unrecorded(self, trace: Trace) -> Finding | None:
        """Return the tree that the recording does not hold, or that its text was left out."""
        if not len(trace.token):
            message = "holds no text to retrieve from; state rate, per_position or always instead"
            return "retrieval", message
        return super()._unrecorded(trace)

    # ---- the batch

    def open(self, cursor: Cursor, context: int, drafted: bool = True) -> Proposing:
        """Return a request, with what says whether its next step retrieves; raises TypeError for a
        cursor that does not.
        """
        if not isinstance(cursor, Matching):
            raise TypeError(f"{type(cursor).__name__} does not know what is retrieved")
        return Proposing(cursor, context, look_up=cursor)

    def compose(self, states: Sequence[Proposing], prompts: Rows = NO_ROWS) -> Step:
        """Return a step in which requests verify a chain or a tree, or a token where they are not
        granted its rows.
        """
        counts = [0, 0, 0]
        contexts = [0, 0, 0]
        for state in states:
            retrieves = _retrieves(state)
            place = int(not retrieves)
            rows = self.chain_rows if retrieves else self.rows
            if state.most_rows < rows or state.context < state.plain_below:
                place, rows = 2, 1
            state.proposed = rows - 1
            counts[place] += 1
            contexts[place] += state.context
        kind = self.joined_kind(*counts)._replace(prompts=prompts.sequences)
        return Step(kind, self._joined_rows(kind, *contexts), 0, prompts)

    def joined_kind(self, retrieved: int, drafted: int, bare: int = 0) -> Kind:
        """Return the kind of a batch in which so many requests verify a chain, a tree, and a single
        token.
        """
        name = "both"
        if not drafted:
            name = "retrieved" if retrieved else "bare"
        elif not retrieved:
            name = "drafted"
        return Kind(name, retrieved + drafted, bare, detail=DraftedRequests(drafted))

    def kinds(self, odds: OddsOf, requests: int) -> Mapping[Kind, Numbers]:
        """Return the share of each kind of step: binomial, as requests find a match
        independently.
        """
        (_, _), (drafted, _) = odds(self.window).drafted
        shares = binomial(requests, drafted)
        return {
            self.joined_kind(requests - k, k): share
            for k, share in shares.items()
            if np.any(share > NEGLIGIBLE)
        }

    def step(self, kind: Kind, context: int) -> Step:
        """Return a step of this kind with all requests at ``context`` tokens."""
        retrieved, drafted = _by_draft(kind)
        rows = self._joined_rows(kind, retrieved * context, drafted * context, kind.bare * context)
        return Step(kind, rows)

    def _joined_rows(
        self, kind: Kind, retrieved_context: Numbers, drafted_context: Numbers, bare: Numbers
    ) -> Rows:
        retrieved, drafted = _by_draft(kind)
        return (
            Rows.decode(self.chain_rows, retrieved_context, retrieved)
            + Rows.decode(self.rows, drafted_context, drafted)
            + Rows.decode(1, bare, kind.bare)
        )

    def course_window(self, requests: int) -> int | None:
        """Return the most draft tokens of a step, whatever the batch."""
        return self.window

    def step_of(self, requests: int, sums: Sums) -> Step:
        """Return the step of a batch: ``sums`` are its contexts, how many requests are drafted, and
        the contexts of those.
        """
        context, drafted, drafted_context = sums
        kind = self.joined_kind(requests - drafted, drafted)
        return Step(kind, self._joined_rows(kind, context - drafted_context, drafted_context, 0))

    def rows_at_hand(self, state: Proposing, rows: int) -> int:
        """Return the rows of the chain that was retrieved, else of the tree."""
        return min(rows, self.chain_rows if _retrieves(state) else self.rows)

    def rows_missing(self, course: Course) -> Counts:
        """Return the rows that the smaller of chain and tree is short of, where it is verified."""
        drafted = course.adds[1]
        most = max(self.chain_rows, self.rows)
        missing: Counts = most - np.where(drafted, self.rows, self.chain_rows)
        return missing

    def along(self, state: Proposing) -> tuple[int, ...]:
        """Return the context of a request, whether it is drafted, and its context if so."""
        drafted = not _retrieves(state)
        return state.context, int(drafted), drafted * state.context

    def fork(self, state: Proposing) -> Proposing:
        """Return a state that asks a second cursor what is retrieved."""
        return self.open(forked(state.cursor), state.context)

    def course(self, state: Proposing, window: int, tokens: int) -> Course:
        """Return the course, step by step: the drafter of each is known as it begins."""
        return TellsCourses.course(self, state, window, tokens)

    def settle(self, states: Sequence[Proposing]) -> list[Progress]:
        """Verify each chain or tree, or add a token."""
        chain = Chain(self.retrieval.tokens)
        path = Chain(self.tree.depth)
        settled = []
        for state in states:
            if not state.proposed:
                proposal, drafts = BARE, 0
            elif _retrieves(state):
                proposal, drafts = chain, chain.tokens
            else:
                proposal, drafts = path, self.tree.size
            accepted, committed, _, _ = state.cursor.judge(proposal)
            state.context += committed
            settled.append(intern_progress(committed, committed, accepted, drafts))
        return settled

    # ---- the time

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Return the draft passes over requests that are drafted, the host's part, and one pass of
        the target.
        """
        kind = step.kind
        retrieved, drafted = _by_draft(kind)
        requests = kind.verifying + kind.bare
        if not drafted:
            cost = cost.drafted_by("look_up")
        verified = retrieved * self.chain_rows + drafted * self.rows
        cached = (step.rows.kv_tokens - verified - kind.bare) * drafted // max(1, requests)
        passes = []
        if step.prompts.sequences and self.drafts_with_model:
            passes.append(cost.prefill("draft", step.prompts))
        for entry in self.passes:
            passes += entry.phases(cost, drafted, cached)
        host_ms = (
            self.retrieval.host_ms.value * requests
            + self.host_ms.value * drafted
            + self.step_host_ms.value
        )
        return {
            "draft": together(*passes),
            "host": Phase(host_ms * 1e-3 * cost.method_host_ratio, {}),
            "target": cost.target(step.rows + step.prompts),
        }

    # ---- the law

    def _committed(self, kind: Kind, odds: OddsOf) -> Numbers:
        """Return the expected tokens of a step: what each drafter's requests keep, and a token
        each.
        """
        of_drafts = odds(self.window).drafted
        if not of_drafts:  # as counted, over all steps
            return super()._committed(kind, odds)
        kept = kind.bare
        for (_, own), count in zip(of_drafts, _by_draft(kind), strict=True):
            kept = kept + count * own.committed()
        return kept

    def _chances(self, kind: Kind, odds: OddsOf) -> Mapping[int, Numbers]:
        """Return the chance of each number of tokens for a request that verifies, whoever
        drafted.
        """
        of_drafts = odds(self.window).drafted
        if not of_drafts:
            return super()._chances(kind, odds)
        shares = [count / kind.verifying for count in _by_draft(kind)]
        of_requests = mixed(
            tuple((share, own) for (_, own), share in zip(of_drafts, shares, strict=True))
        )
        return {place + 1: chance for place, chance in enumerate(of_requests.accepted)}


def _retrieves(state: Proposing) -> bool:
    """Return whether the next step of a request retrieves."""
    return state.look_up is not None and state.look_up.matched


def _by_draft(kind: Kind) -> tuple[int, int]:
    """Return how many requests of a step retrieve, and how many are drafted."""
    drafted = kind.detail.drafted if isinstance(kind.detail, DraftedRequests) else 0
    return kind.verifying - drafted, drafted
