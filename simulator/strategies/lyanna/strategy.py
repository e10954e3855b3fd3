"""Lyanna: a draft layer rolled forward on hidden states; tokens enter late, and a rejection leaves levels to sample again.

    draft     |==k x layer==|head|sample k levels|re-sample|                                       |
    target    |                                            |==verify tree and re-sampled trees====|
                                                                                one device, one lane

    T_step = k t_layer + t_head(k) + k t_sample + T_host + T_verify(B n_draft + R n_resampled)     (LYA-1, LYA-7)
    E[tokens] = 1 + a_1 + a_1 a_2 + ... + a_1 a_2 .. a_k      before any re-sampling                (LYA-8)

No sampled token enters the chain, so that one pass of the LM head serves all k levels (LYA-2). A level's tree nodes
are sampled from its logits and a row of a table for the parent token, the token information (LYA-3, LYA-4);
the most probable ``budget`` nodes are verified (LYA-5). A rejection at level p leaves k - p levels; where that is
more than ``threshold``, a tree is sampled from them behind the corrected token, without the layer (LYA-6). It is
verified beside the next drafted tree, whose root it shares, and the better of the two counts. R of a batch's B
requests have one; in the long run that number is binomial.

``fusion: false`` verifies the re-sampled trees in a pass of their own, root included (LYA-7). What is kept is the
same; a program that drafted only after such a pass would lose less. ``chain: tokens`` is the drafter that Lyanna is
compared with: every level reads the tokens of the one before, with an LM head of its own, k (t_layer + t_head + t_sample).

Assumed: the first layer fuses state and embedding as EAGLE does (2h to h), and reads all tokens that a step may
have committed, as a captured graph is padded; the re-sampled levels are sampled after the drafted ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from simulator.acceptance.sources import Acceptance, Chain, Cursor, Rates, Replay
from simulator.acceptance.trace import Trace
from simulator.cost.cost import NO_ROWS, Cost, Phase, Rows, together
from simulator.cost.model import DraftHead, ModelSpec
from simulator.cost.stated import StatedDurations
from simulator.files.schema import NonNegative
from simulator.numeric import binomial, ordered_sum
from simulator.strategies.common.base import OddsOf, Strategy
from simulator.strategies.common.claim import EXACT, Claim, Example
from simulator.strategies.common.step import Admission, Kind, Lanes, Progress, State, Step, Timeline
from simulator.strategies.lyanna.resampling import RatedTrees, RecordedTrees

FUSING, LAYER, HEAD = DraftHead(layers=1, squares=2), DraftHead(layers=1), DraftHead()
"""A layer that reads a token beside the state (2h to h), one that reads the state alone, the target's LM head."""
DENSE_UP_TO, HOT_TOKENS = 40_000, 32_000
"""Vocabularies above the first keep the second number of tokens in the table (sec. 6.1)."""


class LyannaDurations(NamedTuple):
    """Seconds."""

    layers: float
    """k t_layer."""
    head: float
    """t_head(k)."""
    sample: float
    """k t_sample."""
    verify: float
    resample: float = 0.0
    verify_resampled: float = 0.0
    """A pass of their own for re-sampled trees; 0 where they are fused into ``verify``."""
    host: float = 0.0


@dataclass(slots=True)
class Drafted(State):
    """A request and what its last rejection has left."""

    left: int = 0
    """Levels of its chain that are sampled again in this step."""


class Lyanna(Strategy):
    """A chain of ``depth`` hidden states (k, the paper's N), ``branching`` children a node, ``budget`` nodes verified.

    ``level_us`` is what one level takes to sample beside the choice of a token that the engine counts with an LM
    head: look-up, softmax, top children, frontier. ``host_ms`` is the program's own time in a step.
    """

    name: Literal["lyanna"] = "lyanna"
    named: ClassVar[type[LyannaDurations]] = LyannaDurations
    equation: ClassVar[str] = "T_step = k t_layer + t_head(k) + k t_sample + T_host + T_verify (Lyanna; LYA-1, LYA-7)"
    single_model: ClassVar[bool] = True
    prompts_apart: ClassVar[bool] = True
    takes_rates: ClassVar[bool] = False
    draft_parts: ClassVar[tuple[str, ...]] = ("layers", "head", "sample", "resample")

    depth: int = Field(default=3, ge=1, le=64)
    """Hidden states of the chain: levels of the tree."""
    branching: int = Field(default=4, ge=1)
    """Children of a node."""
    budget: int = Field(default=12, ge=1)
    """Nodes that are verified."""
    resampled_budget: int = Field(default=4, ge=1)
    """Nodes of a re-sampled tree."""
    threshold: int = Field(default=0, ge=0)
    """Re-sample where more levels than this are left."""
    chain: Literal["hidden_states", "tokens"] = "hidden_states"
    """Whether a level reads hidden states alone, or the tokens before."""
    token_info: bool = True
    """A table tells a level about the parent token."""
    first_token: bool = True
    """The first layer reads the last token beside the state."""
    resample: bool = True
    """Sample left levels again after a rejection."""
    fusion: bool = True
    """Verify re-sampled trees in the same pass as the next tree."""
    level_us: NonNegative = NonNegative(
        value=50.0, source="assumed: ten small kernels of a captured graph; Figure 13a prints no value", confidence="assumed"
    )
    """Sampling one level, beside the choice of a token."""
    host_ms: NonNegative = NonNegative(
        value=1.5,
        source="calibrated-on: Lyanna sec. 7.2, LLaMA-2-7B on H800 at B = 2 and 16 (442.12 and 2498.64 tokens/s: +3.6 and "
        "-2.8 %), with the rates of its Table 1",
        confidence="calibrated",
    )
    """The program's own time in a step."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.budget > self.built:
            raise ValueError(f"budget {self.budget} is more than the {self.built} nodes of a tree {self.depth} deep")
        if self.chain == "tokens" and (self.resample or self.token_info):
            raise ValueError(
                "a chain that reads its tokens has no use for token_info and leaves nothing to re-sample; "
                "set strategy.token_info=false and strategy.resample=false"
            )
        return self

    @classmethod
    def example(cls) -> Example:
        """Return trees three levels deep, with an LM head and a pass of their own for re-sampled ones."""
        durations = StatedDurations(target_ms=20.0, draft_step_ms=0.6, draft_head_ms=0.4)
        return Example(cls(depth=3, fusion=False), durations)

    @property
    def dynamic_draft(self) -> bool:
        """The nodes verified are the likeliest of the tree."""
        return True

    @property
    def window(self) -> int:
        """Tokens that a step may keep: a path of the tree."""
        return self.depth

    @property
    def window_steps(self) -> int:
        """Passes of the layer."""
        return self.depth

    @property
    def built(self) -> int:
        """Nodes of the whole tree without its root: k children, then k for each of k parents a level (LYA-4)."""
        return self.branching + (self.depth - 1) * self.branching**2

    @property
    def lookahead(self) -> int:
        """The root and all nodes of both trees have their keys and values in the cache while they are verified."""
        return 1 + self.budget + self.resampled_budget * self.resample

    def left(self, accepted: int) -> int:
        """Levels sampled again behind ``accepted`` tokens and the corrected one; 0 where the root stays alone (LYA-6)."""
        remaining = self.depth - accepted - 1
        return remaining if self.resample and remaining > self.threshold else 0

    @property
    def least(self) -> int:
        """Levels that must be left for another sampling; more than there can be where nothing is sampled again."""
        return self.threshold + 1 if self.resample else self.depth

    def extra_weights(self, target: ModelSpec) -> int:
        """One layer and the matrices that fuse state and token."""
        return FUSING.weights(target)

    def table_bytes(self, target: ModelSpec) -> int:
        """The token-information table, FP8."""
        return table_bytes(target.vocab_size) if self.token_info else 0

    def reads(self, verdicts: Acceptance) -> Acceptance:
        """Drafted and re-sampled trees: recorded, or from stated rates by level; else what is stated outright."""
        if isinstance(verdicts, Rates):
            return RatedTrees(verdicts, self.depth, self.least)
        if isinstance(verdicts, Replay) and self.chain == "hidden_states":
            return RecordedTrees(verdicts, self.least)
        return verdicts

    def unrecorded(self, trace: Trace) -> tuple[str, str] | None:
        """The ablations of Table 1 are recorded nowhere; every other tree must be the one that was."""
        if self.chain == "tokens":
            return super().unrecorded(trace)
        for field in ("token_info", "first_token"):
            if not getattr(self, field):
                return field, "holds no trees without it; state the rates of Lyanna's Table 1 in acceptance.per_position"
        if "lyanna_tree.run" not in trace.extra:
            return "name", "holds no trees of a hidden-state chain (lyanna_tree), or acceptance.drafter asks for others"
        tree = trace.header["trees"]["lyanna_tree"]
        held = {"depth": "levels", "branching": "branching", "budget": "budget", "resampled_budget": "resampled_budget"}
        for field, recorded in held.items():
            if getattr(self, field) != tree[recorded]:
                return field, f"holds trees of {field} {tree[recorded]}, got {getattr(self, field)}"
        return None

    def impossible(self, target: ModelSpec) -> tuple[str, str] | None:
        """A node has no more children than there are tokens."""
        if self.branching <= target.vocab_size:
            return None
        return "branching", f"a node has {target.vocab_size:,} children at most, one for each token; got {self.branching:,}"

    # ---- the batch

    def open(self, cursor: Cursor, context: int, drafted: bool = True) -> State:
        """Nothing has been rejected yet."""
        return Drafted(cursor, context)

    def compose(self, states: Sequence[State], prompts: Rows = NO_ROWS) -> Step:
        """Every request drafts and verifies a tree; those that had a rejection verify what it left as well."""
        whole = again = count = 0
        for state in states:
            state.proposed = self.depth
            whole += state.context
            if state.left:  # type: ignore[attr-defined]  # opened here
                again += state.context
                count += 1
        kind = self.kind_of(len(states), count)._replace(prompts=prompts.sequences)
        return self._step(kind, whole, again)._replace(prompts=prompts)

    def kind_of(self, requests: int, resampled: int) -> Kind:
        """The step of a batch in which so many requests verify a re-sampled tree."""
        return Kind("resampled" if resampled else "step", requests, resampled=resampled)

    def step(self, kind: Kind, context: int) -> Step:
        """A step of this kind with all requests at ``context``."""
        return self._step(kind, kind.verifying * context, kind.resampled * context)

    def _step(self, kind: Kind, context: int, resampled_context: int) -> Step:
        """Rows of the pass, or of the two passes, behind so many cached tokens of all requests and of those."""
        count, tree, left = kind.resampled, 1 + self.budget, self.resampled_budget
        passes: tuple[Rows, ...]
        if self.fusion:
            alone = Rows.decode(tree, context - resampled_context, kind.verifying - count)
            passes = (alone + Rows.decode(tree + left, resampled_context, count),)
        else:
            passes = Rows.decode(tree, context, kind.verifying), Rows.decode(1 + left, resampled_context, count)
        return Step(kind, sum(passes, start=NO_ROWS), loads=passes)

    def settle(self, states: Sequence[State]) -> list[Progress]:
        """Verify, and see what is left of each chain."""
        return [self._settle(state) for state in states]

    def _settle(self, state: State) -> Progress:
        verdict = state.cursor.judge(Chain(self.depth))
        state.context += verdict.committed
        left = self.left(verdict.accepted)
        state.left = left  # type: ignore[attr-defined]  # opened here
        choice = f"one re-sampled from {left} level{'s' * (left > 1)} beside it" if left else "a drafted tree alone"
        return Progress(verdict.committed, verdict.committed, verdict.accepted, self.depth, choice)

    # ---- the time

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Draft, sample, verify; prompts travel through the target and the layer."""
        kind, drafted = step.kind, step.loads[0]
        level = self.level_us.value * 1e-6
        layers, head = self._chain(cost, kind.verifying, drafted.kv_tokens - drafted.tokens)
        chunks = [cost.head(FUSING, step.prompts._replace(logit_rows=0))] if kind.prompts else []
        host = self.host_ms.value * 1e-3
        phases = {
            "layers": together(*chunks, layers),
            "head": head,
            "sample": _sampling(level * self.depth),
            "host": Phase(host, {"target host": host}),
            "verify": cost.target(drafted + step.prompts),
        }
        if kind.resampled:
            phases["resample"] = _sampling(level * (self.depth - 1))
            if not self.fusion:
                phases["verify_resampled"] = cost.target(step.loads[1])
        return phases

    def _chain(self, cost: Cost, requests: int, context: int) -> tuple[Phase, Phase]:
        """Passes of the layer and of the LM head behind ``context`` cached tokens of all requests."""
        hidden, later = self.chain == "hidden_states", self.depth - 1
        each = 1 if hidden else self.branching
        width = each * requests
        first = Rows.decode(self.depth + 1, context, requests)._replace(logit_rows=0)
        rows = Rows(width, 0, requests, context + width, each * context + width)
        passes = cost.head(FUSING, first), together(cost.head(LAYER if hidden else FUSING, rows), times=later)
        logits = [self.depth * requests] if hidden else [requests, *[width] * later]
        return together(*passes), together(*(cost.head(HEAD, Rows(count, count)) for count in logits))

    def admission(self, cost: Cost, prompts: Rows, ending: int = 0, context: int = 0) -> Admission:
        """Prompts through the target and then, on the same device, through the layer."""
        layer = cost.head(FUSING, prompts._replace(logit_rows=0))
        return Admission(cost.prefill("target", prompts).wall_s + layer.wall_s, 0.0, 0.0)

    def timeline(self, lanes: Lanes, durations: LyannaDurations, kind: Kind) -> Timeline:
        """One after the other on one device; the levels of a token chain stand together."""
        t, device = durations, lanes.target
        device.occupy(t.layers, "draft layers")
        device.occupy(t.head, "LM head")
        device.occupy(t.sample + t.resample, "sample trees")
        if t.host:
            lanes.rendezvous.occupy(t.host, "host", device)
        if not t.verify_resampled:
            return (device.start(t.verify, "verify", lanes.rendezvous),)
        device.occupy(t.verify, "verify", lanes.rendezvous)
        return (device.start(t.verify_resampled, "verify re-sampled trees"),)

    # ---- the law

    def claim(self, cost: Cost, requests: int, context: int, shares: Mapping[Kind, Any], one_lane: bool) -> Claim:
        """Return that the law is exact: one part follows the other on one device."""
        return EXACT

    def step_seconds(self, durations: LyannaDurations, kind: Kind) -> Any:
        """Everything in a row."""
        t = durations
        return t.layers + t.head + t.sample + t.resample + t.host + t.verify + t.verify_resampled

    def kinds(self, odds: OddsOf, requests: int) -> Mapping[Kind, float]:
        """Requests are rejected independently: how many have levels left is binomial."""
        accepted = odds(self.depth).accepted
        share = min(1.0, ordered_sum(float(accepted[kept]) for kept in range(self.depth) if self.left(kept)))
        return {self.kind_of(requests, n): chance for n, chance in binomial(requests, share).items()}


def table_bytes(vocabulary: int) -> int:
    """Bytes of the token-information table: one FP8 value for each pair of tokens, or of hot tokens (LYA-3)."""
    return (vocabulary if vocabulary <= DENSE_UP_TO else HOT_TOKENS) ** 2


def _sampling(seconds: float) -> Phase:
    return Phase(seconds, {"draft head compute": seconds})
