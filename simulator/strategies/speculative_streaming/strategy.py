"""Speculative Streaming: one model verifies the last draft and writes the next one in the same pass.

    target |==1..N-N_s: whole tree==|=prune=|==N-N_s+1..N: kept nodes and their streams==|=head=|

    T_step = T_lower + T_prune + T_upper + T_head                        (specstream, sec. 2 and Figure 3)
    rows     1 + sum k^g      exit    kept (1 + gamma)                   (SS-1, SS-2)

Every node carries ``gamma`` streams through the top N_s layers; stream g says what comes g tokens behind the node. The k
best tokens of each stream of the last accepted node make the next tree, below the correction. Before the streams begin an
early exit (a low-rank transform and the LM head) rates every child by its parent, and the ``kept`` likeliest nodes go on,
the root among them; where a tree has no more nodes than that, or ``kept`` is null, nothing is pruned.

A stream attends to the ``attended_tokens`` context tokens that its node weights most (SS-6) and passes an adapter of
``rank`` instead of the MLP (SS-7), or the whole context and the MLP where these are null; it leaves no keys or values. The
LM head reads every row of the top layers, so that the next tree is at hand when the longest path is known.

With ``branching: 1`` the tree is the best path alone and nothing is pruned: how the paper decodes batches (app. L). Where
a scheduler grants fewer rows than the tree has, its deepest levels are cut.

A recording says by ranks what a full tree keeps, and by its own runs what a pruned one does. Tokens are matched exactly
(app. N.1), at any temperature; rejection sampling over paths (SS-4) is not recorded. ``shared`` streams, fine-tuned
together with the model, keep other tokens in the same schedule: state their rates. Left out: the streams beside the last
token of a prompt, and the host's work on the next tree and its mask, which the paper does not state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from simulator.acceptance.draft_tree import PrunedTree
from simulator.acceptance.sources import Acceptance, Chain, Replay
from simulator.acceptance.trace import Trace
from simulator.acceptance.tree_replay import LARGEST_TREE, Ints, pruned_trees, ranks_ahead, static_tree_run, tree_of
from simulator.cost.cost import NO_ROWS, Cost, Phase, Rows
from simulator.cost.model import DraftHead, ModelSpec
from simulator.cost.stated import StatedDurations
from simulator.strategies.common.base import Strategy
from simulator.strategies.common.claim import EXACT, Claim, Example
from simulator.strategies.common.step import Kind, Lanes, Progress, State, Step, Timeline, intern_progress
from simulator.strategies.speculative_streaming.laws import query_products, tree_nodes


class StreamingDurations(NamedTuple):
    """Seconds: layers below the streams, the exit that prunes (0 without), layers with streams, LM head."""

    lower: float
    prune: float
    upper: float
    head: float


class SpeculativeStreaming(Strategy):
    """``streams`` (gamma) of ``branching`` (k) tokens each, in the top ``stream_layers`` (N_s) layers."""

    name: Literal["speculative_streaming"] = "speculative_streaming"
    named: ClassVar[type[StreamingDurations]] = StreamingDurations
    equation: ClassVar[str] = "T_lower + T_prune + T_upper + T_head (Speculative Streaming, sec. 2)"
    single_model: ClassVar[bool] = True
    splits_passes: ClassVar[bool] = True

    streams: int = Field(default=4, ge=1, le=16)
    """Tokens ahead (gamma)."""
    branching: int = Field(default=3, ge=1)
    """Tokens of each stream (k)."""
    stream_layers: int = Field(default=4, ge=1)
    """Layers at the top that carry streams."""
    kept: int | None = Field(default=32, ge=1)
    """Nodes left by pruning, the root among them; null prunes nothing."""
    attended_tokens: int | None = Field(default=64, ge=1)
    """Context tokens that a stream attends to; null: all."""
    rank: int | None = Field(default=8, ge=1)
    """Of the adapter that a stream passes instead of the MLP; null: the MLP."""
    pruning_rank: int = Field(default=8, ge=1)
    """Of the transform before the exit that prunes."""
    mode: Literal["lossless", "shared"] = "lossless"
    """Whether streams leave the model as it is, or are trained with it."""

    @model_validator(mode="after")
    def _not_endless(self) -> Self:
        if self.nodes > LARGEST_TREE:
            raise ValueError(f"a tree of {self.nodes:,} nodes; expected streams and branching with {LARGEST_TREE:,} or fewer")
        return self

    @classmethod
    def example(cls) -> Example:
        """Return a tree of three levels whose top layers take 8 of 28 ms, pruned behind an LM head."""
        durations = StatedDurations(prefix_ms=20.0, suffix_ms=8.0, draft_ms=0.7, draft_head_ms=1.2)
        return Example(cls(streams=3, branching=2, kept=6), durations)

    @property
    def window(self) -> int:
        """Gamma: the longest path below the root."""
        return self.streams

    @property
    def window_steps(self) -> int:
        """Drafting takes no step of its own."""
        return 0

    @property
    def nodes(self) -> int:
        """Nodes of the whole tree, root included (SS-1)."""
        return tree_nodes(self.streams, self.branching)

    @property
    def prunes(self) -> bool:
        """Whether the tree has nodes to cut."""
        return self.kept is not None and self.kept < self.nodes

    def rows_for(self, requests: int) -> int:
        """The whole tree."""
        return self.nodes

    @property
    def lookahead(self) -> int:
        """The whole tree lies in the cache of the lower layers until the step is over."""
        return self.nodes

    def extra_weights(self, target: ModelSpec) -> int:
        """Stream embeddings and the pruning transform, as printed (8.2E4 at h = 4096; SS-10); in lossless mode adapters too.

        Shared adapters are those that the model was fine-tuned with.
        """
        printed = self.streams * target.hidden_size + DraftHead(rank=self.pruning_rank).weights(target)
        adapters = self.stream_layers * DraftHead(rank=self.rank or 0).weights(target)
        return printed + (adapters if self.mode == "lossless" else 0)

    def impossible(self, target: ModelSpec) -> tuple[str, str] | None:
        """Streams run in layers that there are, over tokens that there are."""
        if self.stream_layers >= target.num_hidden_layers:
            layers = target.num_hidden_layers
            return "stream_layers", f"{target.name} has {layers} layers, and one at least lies below; got {self.stream_layers}"
        if self.branching > target.vocab_size:
            return "branching", f"a node has {target.vocab_size:,} children at most; got {self.branching:,}"
        return None

    # ---- acceptance

    @property
    def dynamic_draft(self) -> bool:
        """Where it is pruned, the scores of an early exit decide what is left of the tree."""
        return self.prunes

    def reads(self, verdicts: Acceptance) -> Acceptance:
        """What the recorded tree keeps; stated rates are taken by level."""
        if not isinstance(verdicts, Replay):
            return verdicts
        run = self.runs(verdicts.trace).astype("uint16")
        return verdicts.over(replace(verdicts.trace.drafted_by("streams"), run=run))

    def runs(self, trace: Trace) -> Ints:
        """(positions,) tokens kept of the tree that starts at each position: exact from ranks, as recorded if pruned."""
        if self.prunes:
            run: Ints = trace.extra["streams_pruned.run"][pruned_trees(trace).index(self.pruned_tree)]
            return run
        return static_tree_run(ranks_ahead(trace, "streams", self.streams), tree_of((self.branching,) * self.streams))

    @property
    def pruned_tree(self) -> PrunedTree:
        """The tree as recordings name it, the root not counted."""
        return PrunedTree(self.streams, self.branching, (self.kept or self.nodes) - 1)

    def unrecorded(self, trace: Trace) -> tuple[str, str] | None:
        """Streams, their number, their mode, a pruned tree: whatever the trace does not hold."""
        if "streams.rank" not in trace.extra:
            return "name", "holds no look-ahead streams; choose a trace that does, without acceptance.drafter, or state rates"
        held = len(trace.extra["streams.rank"])
        if self.streams > held:
            return "streams", f"holds {held} streams, got {self.streams}; set strategy.streams={held}"
        if self.mode == "shared":
            return "mode", "was recorded from lossless streams, and shared ones keep other tokens; state rates instead"
        recorded = pruned_trees(trace)
        if not self.prunes or self.pruned_tree in recorded:
            return None
        known = "; ".join(f"{one.levels} x {one.branching} to {one.budget + 1} nodes" for one in recorded) or "none"
        wanted = f"{self.streams} streams of {self.branching} tokens pruned to {self.kept} nodes"
        return (
            "kept",
            f"does not say what is left of {wanted}; it says so of {known}; set strategy.kept=null for the whole tree",
        )

    # ---- the batch

    def levels_within(self, rows: int) -> int:
        """Levels of the tree that so many rows hold, the root's not counted."""
        return max(levels for levels in range(self.streams + 1) if tree_nodes(levels, self.branching) <= max(1, rows))

    def compose(self, states: Sequence[State], prompts: Rows = NO_ROWS) -> Step:
        """Every request has its tree verified, or as many levels of it as the scheduler grants rows for."""
        for state in states:
            granted = self.nodes
            if state.most_rows < granted:
                granted = tree_nodes(self.levels_within(state.most_rows), self.branching)
            state.proposed = granted - 1
        bare = sum(not state.proposed for state in states)
        kind = Kind("step", len(states) - bare, bare, prompts=prompts.sequences)
        return self._step(kind, ((1 + (state.proposed or 0), state.context) for state in states), prompts)

    def step(self, kind: Kind, context: int) -> Step:
        """A step of this kind with all requests at ``context``."""
        trees = [(self.nodes, context)] * kind.verifying + [(1, context)] * kind.bare
        return self._step(kind, trees, NO_ROWS)

    def _step(self, kind: Kind, trees: Iterable[tuple[int, int]], prompts: Rows) -> Step:
        """``trees``: nodes and context of each request."""
        lower = upper = NO_ROWS
        for nodes, context in trees:
            kept = nodes if self.kept is None else min(nodes, self.kept)
            lower += Rows.decode(nodes, context)._replace(logit_rows=0)
            upper += self._with_streams(kept, context)
        return Step(kind, lower, 0, prompts, (upper,))

    def _with_streams(self, kept: int, context: int) -> Rows:
        """Rows of the top layers: nodes see the context and each other, streams a part of the context."""
        streams, seen = kept * self.streams, context if self.attended_tokens is None else self.attended_tokens
        products = int(query_products(kept, self.streams, context, seen)) + kept * (kept + 1) // 2
        return Rows(kept + streams, 0, 1, context + kept, products, adapted=streams if self.rank else 0)

    def settle(self, states: Sequence[State]) -> list[Progress]:
        """The longest path that is kept, and the correction below it."""
        return [self._settle(state) for state in states]

    def _settle(self, state: State) -> Progress:
        drafted = state.proposed or 0
        verdict = state.cursor.judge(Chain(self.levels_within(drafted + 1)))
        state.context += verdict.committed
        return intern_progress(verdict.committed, verdict.committed, verdict.accepted, drafted)

    # ---- the time

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Two parts of one pass, with an LM head behind each; prompts travel along and are not pruned."""
        prompts, (upper,) = step.prompts._replace(logit_rows=0), step.loads
        read, rated = upper.tokens + step.prompts.logit_rows, step.rows.tokens
        pruning = cost.head(DraftHead(rank=self.pruning_rank), Rows(rated, rated)) if self.prunes else Phase(0.0, {})
        return {
            "lower": cost.target(step.rows + prompts, 0.0, -self.stream_layers),
            "prune": pruning,
            "upper": cost.target(upper + prompts, -self.stream_layers, 1.0),
            "head": cost.head(DraftHead(), Rows(read, read)),
        }

    def derived(self, cost: Cost, step: Step) -> dict[str, float]:
        """Rows below and above (SS-1) and query-key pairs of a top layer (SS-6)."""
        (upper,) = step.loads
        return {
            "tree_rows": float(step.rows.tokens),
            "stream_layer_rows": float(upper.tokens),
            "stream_layer_pairs": float(upper.attention_pairs),
        }

    def timeline(self, lanes: Lanes, durations: StreamingDurations, kind: Kind) -> Timeline:
        """One model, one lane, one part after the other."""
        t = durations
        lanes.target.occupy(t.lower, "layers 1..N-N_s, whole tree")
        if t.prune:
            lanes.target.occupy(t.prune, "prune")
        lanes.target.occupy(t.upper, "layers N-N_s+1..N, streams")
        return (lanes.target.start(t.head, "LM head, next tree"),)

    def claim(self, cost: Cost, requests: int, context: int, shares: Mapping[Kind, Any], one_lane: bool) -> Claim:
        """Return that the law is exact: there is one model and one lane."""
        return EXACT

    def step_seconds(self, durations: StreamingDurations, kind: Kind) -> Any:
        """T_lower + T_prune + T_upper + T_head."""
        return durations.lower + durations.prune + durations.upper + durations.head
