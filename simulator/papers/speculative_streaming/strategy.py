"""In Speculative Streaming one model verifies the last draft and writes the next one in the same
pass.

    target |==1..N-N_s: whole tree==|=prune=|==N-N_s+1..N: kept nodes and their streams==|=head=|

    T_step = T_lower + T_prune + T_upper + T_head              (specstream, sec. 2 and Figure 3)
    rows     1 + sum k^g      exit    kept (1 + gamma)                   (SS-1, SS-2)

Every node carries ``gamma`` streams through the top N_s layers; stream g says what comes g tokens
behind the node. The k best tokens of each stream of the last accepted node make the next tree,
below the correction. Before the streams begin an early exit (a low-rank transform and the LM head)
rates every child by its parent, and the ``kept`` likeliest nodes go on, the root among them; where
a tree has no more nodes than that, or ``kept`` is null, nothing is pruned.

A stream attends to the ``attended_tokens`` context tokens that its node weights most (SS-6) and
passes an adapter of ``rank`` instead of the MLP (SS-7), or the whole context and the MLP where
these are null; it leaves no keys or values. The LM head reads every row of the top layers, so that
the next tree is at hand when the longest path is known.

With ``branching: 1`` the tree is the best path alone and nothing is pruned: how the paper decodes
batches (app. L). Where a scheduler grants fewer rows than the tree has, its deepest levels are cut.

A recording says by ranks what a full tree keeps, and by its own runs what a pruned one does. Tokens
are matched exactly (app. N.1), at any temperature; rejection sampling over paths (SS-4) is not
recorded. ``shared`` streams, fine-tuned together with the model, keep other tokens in the same
schedule: state their rates. Left out: the streams beside the last token of a prompt, and the host's
work on the next tree and its mask, which the paper does not state.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from simulator.core.acceptance.cursors import Chain
from simulator.core.acceptance.draft_tree import PrunedTree
from simulator.core.acceptance.sources import Acceptance, Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.acceptance.tree_replay import (
    LARGEST_TREE,
    Ints,
    pruned_trees,
    ranks_ahead,
    static_tree_run,
    tree_of,
)
from simulator.core.cost.hull import Drafting
from simulator.core.cost.model import DraftHead, ModelSpec
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Phase, Rows
from simulator.core.cost.stated import StatedDurations
from simulator.core.numeric import Numbers
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.capabilities import (
    AddsMemory,
    DerivesNumbers,
    DraftsOtherwise,
    ExtraMemory,
)
from simulator.core.strategies.common.claim import EXACT, Claim, Example
from simulator.core.strategies.common.courses import Sums, TellsCourses
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
from simulator.core.strategies.common.traits import Facts, Finding, Needs, Traits
from simulator.papers.speculative_streaming.laws import query_products, tree_nodes


class StreamingDurations(NamedTuple):
    """These are the seconds of layers below the streams, the exit that prunes (0 without), layers
    with streams, LM head.
    """

    lower: float
    prune: float
    upper: float
    head: float


class SpeculativeStreaming(
    TellsCourses, Strategy[StreamingDurations], AddsMemory, DerivesNumbers, DraftsOtherwise
):
    """``streams`` (gamma) of ``branching`` (k) tokens run in the top ``stream_layers`` (N_s)
    layers.
    """

    name: Literal["speculative_streaming"] = "speculative_streaming"
    traits: ClassVar[Traits] = Traits(
        StreamingDurations,
        "T_lower + T_prune + T_upper + T_head (Speculative Streaming, sec. 2)",
        splits_passes=True,
    )

    streams: int = Field(default=4, ge=1, le=16)
    """Number of streams, which is the number of tokens ahead (gamma)."""
    branching: int = Field(default=3, ge=1, le=10_000)
    """Tokens of each stream (k)."""
    stream_layers: int = Field(default=4, ge=1, le=10_000)
    """Layers at the top that carry streams."""
    kept: int | None = Field(default=32, ge=1, le=1_000_000)
    """Nodes left by pruning, the root among them; null prunes nothing."""
    attended_tokens: int | None = Field(default=64, ge=1, le=1_000_000)
    """Context tokens that a stream attends to; null: all of them."""
    rank: int | None = Field(default=8, ge=1, le=10_000_000)
    """Rank of the adapter that a stream passes instead of the MLP; null: the MLP."""
    pruning_rank: int = Field(default=8, ge=1, le=10_000_000)
    """Rank of the transform before the exit that prunes."""
    mode: Literal["lossless", "shared"] = "lossless"
    """Whether streams leave the model as it is, or are trained with it."""

    @model_validator(mode="after")
    def _not_endless(self) -> Self:
        if self.nodes > LARGEST_TREE:
            raise ValueError(
                f"a tree of {self.nodes:,} nodes; expected streams and branching with "
                f"{LARGEST_TREE:,} or fewer"
            )
        return self

    @classmethod
    def example(cls) -> Example:
        """Return a tree of three levels whose top layers take 8 of 28 ms, pruned behind an LM
        head.
        """
        durations = StatedDurations(prefix_ms=20.0, suffix_ms=8.0, draft_ms=0.7, draft_head_ms=1.2)
        return Example(cls(streams=3, branching=2, kept=6), durations)

    @property
    def window(self) -> int:
        """Return gamma: the draft tokens of the longest path below the root."""
        return self.streams

    @property
    def needs(self) -> Needs:
        """Return the needs of a tree that takes no steps of drafting and lies whole in the cache
        until the step is over.

        Where it is pruned, the scores of an early exit decide what is left of it.
        """
        return Needs(
            draft_model=False,
            draft_steps=0,
            rows=self.nodes,
            cache_tokens=self.nodes,
            dynamic_draft=self.prunes,
        )

    @property
    def drafting(self) -> Drafting:
        """Return that drafts make a tree, by streams in the target's own pass."""
        return "tree"

    @property
    def nodes(self) -> int:
        """Return the nodes of the whole tree, root included (SS-1)."""
        return tree_nodes(self.streams, self.branching)

    @property
    def prunes(self) -> bool:
        """Return whether the tree has nodes to cut."""
        return self.kept is not None and self.kept < self.nodes

    def extra_memory(self, target: ModelSpec) -> ExtraMemory:
        """Return the weights of stream embeddings and pruning transform, as printed (8.2E4 at h =
        4096; SS-10).

        In lossless mode there are adapters too.

        Shared adapters are those that the model was fine-tuned with.
        """
        printed = self.streams * target.hidden_size + DraftHead(rank=self.pruning_rank).weights(
            target
        )
        adapters = self.stream_layers * DraftHead(rank=self.rank or 0).weights(target)
        return ExtraMemory(printed + (adapters if self.mode == "lossless" else 0))

    def _contradictions(self, facts: Facts) -> Iterator[Finding]:
        """Yield more layers with streams, or more children of a node, than the target can have."""
        target = facts.target
        if target is None:
            return
        if self.stream_layers >= target.num_hidden_layers:
            layers = target.num_hidden_layers
            yield (
                "stream_layers",
                (
                    f"{target.name} has {layers} layers, and one at least lies below; got "
                    f"{self.stream_layers}"
                ),
            )
        elif self.branching > target.vocab_size:
            yield (
                "branching",
                f"a node has {target.vocab_size:,} children at most; got {self.branching:,}",
            )

    # ---- acceptance

    def reads(self, verdicts: Acceptance) -> Acceptance:
        """Return a source that says how many levels of the recorded tree are kept; stated rates are
        taken by level.
        """
        if not isinstance(verdicts, Replay):
            return verdicts
        run = self.runs(verdicts.trace).astype("uint16")
        return verdicts.over(replace(verdicts.trace.drafted_by("streams"), run=run))

    def runs(self, trace: Trace) -> Ints:
        """Return the tokens kept of the tree from each position (positions,): exact from ranks, as
        recorded if pruned.
        """
        if self.prunes:
            run: Ints = trace.extra["streams_pruned.run"][
                pruned_trees(trace).index(self.pruned_tree)
            ]
            return run
        return static_tree_run(
            ranks_ahead(trace, "streams", self.streams), tree_of((self.branching,) * self.streams)
        )

    @property
    def pruned_tree(self) -> PrunedTree:
        """Return the tree as recordings name it, the root not counted."""
        return PrunedTree(self.streams, self.branching, (self.kept or self.nodes) - 1)

    def _unrecorded(self, trace: Trace) -> Finding | None:
        """Return what the trace does not hold: streams, their number, their mode, or a pruned
        tree.
        """
        if "streams.rank" not in trace.extra:
            return (
                "name",
                (
                    "holds no look-ahead streams; choose a trace that does, without "
                    "acceptance.drafter, or state rates"
                ),
            )
        most = len(trace.extra["streams.rank"])
        if self.streams > most:
            return (
                "streams",
                f"holds {most} streams, got {self.streams}; set strategy.streams={most}",
            )
        if self.mode == "shared":
            return (
                "mode",
                (
                    "was recorded from lossless streams, and shared ones keep other tokens; state "
                    "rates instead"
                ),
            )
        recorded = pruned_trees(trace)
        if not self.prunes or self.pruned_tree in recorded:
            return None
        shapes = (
            "; ".join(
                f"{tree.levels} x {tree.branching} to {tree.budget + 1} nodes" for tree in recorded
            )
            or "none"
        )
        wanted = f"{self.streams} streams of {self.branching} tokens pruned to {self.kept} nodes"
        return (
            "kept",
            (
                f"does not say what is left of {wanted}; it says so of {shapes}; set "
                "strategy.kept=null for the whole tree"
            ),
        )

    # ---- the batch

    def levels_within(self, rows: int) -> int:
        """Return the levels of the tree that ``rows`` hold, the root's not counted."""
        return max(
            levels
            for levels in range(self.streams + 1)
            if tree_nodes(levels, self.branching) <= max(1, rows)
        )

    def compose(self, states: Sequence[State], prompts: Rows = NO_ROWS) -> Step:
        """Return a step that verifies each request's tree, or as many of its levels as the
        scheduler grants rows for.
        """
        for state in states:
            granted = self.nodes
            if state.most_rows < granted:
                granted = tree_nodes(self.levels_within(state.most_rows), self.branching)
            state.proposed = granted - 1
        bare = sum(not state.proposed for state in states)
        kind = Kind("step", len(states) - bare, bare, prompts=prompts.sequences)
        return self._step(
            kind, ((1 + (state.proposed or 0), state.context) for state in states), prompts
        )

    def step(self, kind: Kind, context: int) -> Step:
        """Return a step of this kind with all requests at ``context`` tokens."""
        trees = [(self.nodes, context)] * kind.verifying + [(1, context)] * kind.bare
        return self._step(kind, trees, NO_ROWS)

    def _step(self, kind: Kind, trees: Iterable[tuple[int, int]], prompts: Rows) -> Step:
        """Return the step over ``trees``, which are nodes and context of each request."""
        lower = upper = NO_ROWS
        for nodes, context in trees:
            lower += Rows.decode(nodes, context)._replace(logit_rows=0)
            upper += self._with_streams(self._kept_of(nodes), context)
        return Step(kind, lower, 0, prompts, (upper,))

    def _kept_of(self, nodes: int) -> int:
        """Return the nodes that pass the top layers, of so many."""
        return nodes if self.kept is None else min(nodes, self.kept)

    def _with_streams(self, kept: int, context: int) -> Rows:
        """Return the rows of the top layers: nodes see the context and each other, streams a part
        of the context.
        """
        streams = kept * self.streams
        seen = context if self.attended_tokens is None else self.attended_tokens
        products = int(query_products(kept, self.streams, context, seen)) + kept * (kept + 1) // 2
        return Rows(
            kept + streams, 0, 1, context + kept, products, adapted=streams if self.rank else 0
        )

    def course_window(self, requests: int) -> int | None:
        """Return the levels of the tree, whatever the batch."""
        return self.window

    def step_of(self, requests: int, sums: Sums) -> Step:
        """Return the step of whole trees: ``sums`` are the contexts and the query-key pairs of the
        streams.
        """
        context, pairs = sums
        bare = requests if self.nodes == 1 else 0
        kind = Kind("step", requests - bare, bare)
        lower = Rows.decode(self.nodes, context, requests)._replace(logit_rows=0)
        each = self._with_streams(self._kept_of(self.nodes), 0)
        upper = Rows(
            each.tokens * requests,
            0,
            requests,
            context + each.kv_tokens * requests,
            pairs,
            adapted=each.adapted * requests,
        )
        return Step(kind, lower, 0, NO_ROWS, (upper,))

    def along(self, state: State) -> tuple[int, ...]:
        """Return the context of a request, and the query-key pairs of its streams."""
        streams = self._with_streams(self._kept_of(self.nodes), state.context)
        return state.context, int(streams.attention_pairs)

    def settle(self, states: Sequence[State]) -> list[Progress]:
        """Verify each tree: the longest path is kept, and the correction below it."""
        return [self._settle(state) for state in states]

    def _settle(self, state: State) -> Progress:
        """Verify the tree of one request."""
        drafted = state.proposed or 0
        verdict = state.cursor.judge(Chain(self.levels_within(drafted + 1)))
        state.context += verdict.committed
        return intern_progress(verdict.committed, verdict.committed, verdict.accepted, drafted)

    # ---- the time

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Return two parts of one pass, with an LM head behind each; prompts travel along and are
        not pruned.
        """
        prompts, (upper,) = step.prompts._replace(logit_rows=0), step.loads
        read = upper.tokens + step.prompts.logit_rows
        rated = step.rows.tokens
        if self.prunes:
            pruning = cost.head(DraftHead(rank=self.pruning_rank), Rows(rated, rated))
        else:
            pruning = Phase(0.0, {})
        return {
            "lower": cost.target(step.rows + prompts, 0.0, -self.stream_layers),
            "prune": pruning,
            "upper": cost.target(upper + prompts, -self.stream_layers, 1.0),
            "head": cost.head(DraftHead(), Rows(read, read)),
        }

    def derived(self, cost: Cost, step: Step, odds: OddsOf) -> dict[str, float]:
        """Return the rows below and above (SS-1) and the query-key pairs of a top layer (SS-6)."""
        (upper,) = step.loads
        return {
            "tree_rows": float(step.rows.tokens),
            "stream_layer_rows": float(upper.tokens),
            "stream_layer_pairs": float(upper.attention_pairs),
        }

    def timeline(self, lanes: Lanes, durations: StreamingDurations, kind: Kind) -> Timeline:
        """Book the parts in series on the lane of the only model."""
        t = durations
        lanes.target.occupy(t.lower, "layers 1..N-N_s, whole tree")
        if t.prune:
            lanes.target.occupy(t.prune, "prune")
        lanes.target.occupy(t.upper, "layers N-N_s+1..N, streams")
        return (lanes.target.start(t.head, "LM head, next tree"),)

    def _renews(self, shares: Mapping[Kind, Numbers]) -> bool:
        """Return True: the pass over a prompt drafts the first tree, as every pass does."""
        return True

    def claim(
        self,
        cost: Cost,
        requests: int,
        context: int,
        shares: Mapping[Kind, Numbers],
        one_lane: bool,
    ) -> Claim:
        """Return that the law is exact: there is one model and one lane."""
        return EXACT

    def step_seconds(self, durations: StreamingDurations, kind: Kind) -> Numbers:
        """Return T_lower + T_prune + T_upper + T_head in seconds."""
        return durations.lower + durations.prune + durations.upper + durations.head
