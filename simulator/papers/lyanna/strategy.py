"""Lyanna rolls a draft layer forward on hidden states; tokens enter late, and a rejection leaves
levels to sample again.

    draft     |==k x layer==|head|sample k levels|re-sample|                                       |
    target    |                                            |==verify tree and re-sampled trees====|
                                                                                one device, one lane

    T_step = k t_layer + t_head(k) + k t_sample + T_host + T_verify(B n_draft + R n_resampled)
                                                              (LYA-1, LYA-7)
    E[tokens] = 1 + a_1 + a_1 a_2 + ... + a_1 a_2 .. a_k   before any re-sampling      (LYA-8)

No sampled token enters the chain, so that one pass of the LM head serves all k levels (LYA-2). A
level's tree nodes are sampled from its logits and a row of a table for the parent token, the token
information (LYA-3, LYA-4); the most probable ``budget`` nodes are verified (LYA-5). A rejection at
level p leaves k - p levels; where that is more than ``threshold``, a tree is sampled from them
behind the corrected token, without the layer (LYA-6). It is verified beside the next drafted tree,
whose root it shares, and the better of the two counts. R of a batch's B requests have one; in the
long run that number is binomial.

``fusion: false`` verifies the re-sampled trees in a pass of their own, root included, before the
next draft (LYA-7):

    draft     |re-sample|                      |==k x layer==|head|sample k levels|
    target    |         |==re-sampled trees==|                                    |==verify trees==|

A request commits what it keeps of such a tree and the token behind it, and leaves nothing again;
the others wait. The program takes its T_host in either pass. ``chain: tokens`` is the drafter that
Lyanna is compared with: every level reads the tokens of the one before, with an LM head of its own,
k (t_layer + t_head + t_sample).

Assumed: the first layer fuses state and embedding as EAGLE does (2h to h), and reads all tokens
that a step may have committed, as a captured graph is padded; the re-sampled levels are sampled
after the drafted ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from simulator.core.acceptance.cursors import Chain, Cursor
from simulator.core.acceptance.sources import Acceptance, Rates, Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.cost.model import DraftHead, ModelSpec
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Phase, Rows, together
from simulator.core.cost.stated import StatedDurations
from simulator.core.numeric import Numbers, binomial, ordered_sum
from simulator.core.quantities import Fraction, NonNegative
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.capabilities import AddsMemory, ExtraMemory
from simulator.core.strategies.common.claim import EXACT, Claim, Example
from simulator.core.strategies.common.courses import Sums, TellsCourses
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import (
    ABSENT,
    Admission,
    Kind,
    Lanes,
    Progress,
    State,
    Step,
    Timeline,
)
from simulator.core.strategies.common.traits import Facts, Finding, Needs, Traits, too_many_children
from simulator.papers.lyanna.resampling import RatedTrees, RecordedTrees

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from simulator.studies.batches import BatchPoint

FUSING = DraftHead(layers=1, squares=2)
LAYER = DraftHead(layers=1)
HEAD = DraftHead()
"""A layer that reads a token beside the state (2h to h), one that reads the state alone, the
target's LM head.
"""
DENSE_UP_TO = 40_000
HOT_TOKENS = 32_000
"""Vocabularies above the first keep the second number of tokens in the table (sec. 6.1)."""


class LyannaDurations(NamedTuple):
    """These are the seconds of the parts of a step, for all its requests."""

    layers: float = 0.0
    """Seconds of the chain, k t_layer; 0, as those of head and sampling, in a pass of re-sampled
    trees alone.
    """
    head: float = 0.0
    """Seconds of the LM head on all levels, t_head(k)."""
    sample: float = 0.0
    """Seconds of sampling all levels, k t_sample."""
    verify: float = 0.0
    resample: float = 0.0
    host: float = 0.0


@dataclass(slots=True)
class Drafted(State):
    """A request remembers what its last rejection has left."""

    left: int = 0
    """Levels of its chain that are sampled again in the next step."""


class ResampledDetail(NamedTuple):
    """Steps differ by the requests that verify a re-sampled tree."""

    resampled: int

    @property
    def words(self) -> str:
        """Return the number of re-sampled trees in words."""
        return f"{self.resampled} with a re-sampled tree"

    @property
    def extra_work(self) -> int:
        """Return the requests with a re-sampled tree."""
        return self.resampled


class Lyanna(TellsCourses, Strategy[LyannaDurations, Drafted], AddsMemory):
    """A chain of ``depth`` hidden states (k, the paper's N) gives ``branching`` children a node;
    ``budget`` nodes are verified.

    ``level_us`` is what one level takes to sample beside the choice of a token that the engine
    counts with an LM head: look-up, softmax, top children, frontier. ``host_ms`` is the program's
    own time in a step.
    """

    name: Literal["lyanna"] = "lyanna"
    kinds_by: ClassVar[tuple[int, ...]] = (1,)
    traits: ClassVar[Traits] = Traits(
        LyannaDurations,
        "T_step = k t_layer + t_head(k) + k t_sample + T_host + T_verify (Lyanna; LYA-1, LYA-7)",
        drafted_in=("layers", "head", "sample", "resample"),
        separate_prompts=True,
    )

    depth: int = Field(default=3, ge=1, le=64)
    """Hidden states of the chain: levels of the tree."""
    branching: int = Field(default=4, ge=1, le=1_000_000)
    """Children of a node."""
    budget: int = Field(default=12, ge=1, le=100_000)
    """Nodes that are verified."""
    resampled_budget: int = Field(default=4, ge=1, le=100_000)
    """Nodes of a re-sampled tree."""
    threshold: int = Field(default=0, ge=0, le=1_000_000)
    """Re-sample where more levels than this are left."""
    chain: Literal["hidden_states", "tokens"] = "hidden_states"
    """Whether a level reads hidden states alone, or the tokens before."""
    token_info: bool = True
    """Whether a table tells a level about the parent token."""
    first_token: bool = True
    """Whether the first layer reads the last token together with the state."""
    resample: bool = True
    """Whether left levels are sampled again after a rejection."""
    fusion: bool = True
    """Whether re-sampled trees are verified in the same pass as the next tree."""
    resampled_ratio: Fraction = Fraction(
        value=0.93,
        source="assumed: with this share of its drafted rates a re-sampled tree of "
        "six_flavours_greedy keeps as many tokens as recorded; by level it is 0.83, 0.50 and, "
        "where one is left, 1.40. Lyanna sec. 6.2: decays more rapidly",
        confidence="assumed",
    )
    """Share of its stated rate that a level keeps when it is sampled again; a recording knows
    better.
    """
    level_us: NonNegative = NonNegative(
        value=50.0,
        source="assumed: ten small kernels of a captured graph; Figure 13a prints no value",
        confidence="assumed",
    )
    """Microseconds of sampling one level, besides the choice of a token."""
    host_ms: NonNegative = NonNegative(
        value=1.5,
        source="calibrated-on: Lyanna sec. 7.2, LLaMA-2-7B on H800 at B = 2 and 16 (442.12 and "
        "2498.64 tokens/s: +3.6 and -2.8 %), with the rates of its Table 1",
        confidence="calibrated",
    )
    """Milliseconds that the program itself takes in a step."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.budget > self.built:
            raise ValueError(
                f"budget {self.budget} is more than the {self.built} nodes of a tree "
                f"{self.depth} deep"
            )
        if self.chain == "tokens" and (self.resample or self.token_info):
            raise ValueError(
                "a chain that reads its tokens has no use for token_info and leaves nothing to "
                "re-sample; set strategy.token_info=false and strategy.resample=false"
            )
        return self

    @classmethod
    def example(cls) -> Example:
        """Return trees three levels deep, with an LM head and a pass of their own for re-sampled
        ones.
        """
        durations = StatedDurations(target_ms=20.0, draft_step_ms=0.6, draft_head_ms=0.4)
        return Example(cls(depth=3, fusion=False), durations)

    @property
    def window(self) -> int:
        """Return the draft tokens that a step may keep: a path of the tree."""
        return self.depth

    @property
    def built(self) -> int:
        """Return the nodes of the whole tree without its root: k children, then k for each of k
        parents a level (LYA-4).
        """
        return self.branching + (self.depth - 1) * self.branching**2

    @property
    def needs(self) -> Needs:
        """Return the needs of a chain of ``depth`` passes of the layer.

        The root and all nodes of the trees of a pass have their keys and values in the cache while
        they are verified.
        """
        fused = self.resampled_budget if self.resample and self.fusion else 0
        return Needs(
            draft_model=False,
            draft_steps=self.depth,
            cache_tokens=1 + self.budget + fused,
            dynamic_draft=True,
            single_rates=True,
        )

    def left(self, accepted: int) -> int:
        """Return the levels sampled again behind ``accepted`` tokens and the correction; 0: the
        root stays alone (LYA-6).
        """
        remaining = self.depth - accepted - 1
        if self.resample and remaining > self.threshold:
            return remaining
        return 0

    @property
    def least(self) -> int:
        """Return the levels that must be left for another sampling; more than there can be where
        nothing is sampled again.
        """
        if self.resample:
            return self.threshold + 1
        return self.depth

    def extra_memory(self, target: ModelSpec) -> ExtraMemory:
        """Return one layer with the matrices that fuse state and token, and the bytes of the
        token-information table.
        """
        return ExtraMemory(
            FUSING.weights(target),
            table_bytes(target.vocab_size) if self.token_info else 0,
            FUSING.layers,
        )

    def reads(self, verdicts: Acceptance) -> Acceptance:
        """Return a source of drafted and re-sampled trees, recorded or from stated rates; else
        ``verdicts`` as they are.
        """
        if isinstance(verdicts, Rates):
            return RatedTrees(
                verdicts, self.depth, self.least, self.resampled_ratio.value, self.fusion
            )
        if isinstance(verdicts, Replay) and self.chain == "hidden_states":
            return RecordedTrees(verdicts, self.least, self.fusion)
        return verdicts

    def _unrecorded(self, trace: Trace) -> Finding | None:
        """Return the field that asks for a tree which was not recorded; the ablations of Table 1
        are recorded nowhere.
        """
        if self.chain == "tokens":
            return super()._unrecorded(trace)
        for field, present in (("token_info", self.token_info), ("first_token", self.first_token)):
            if not present:
                return (
                    field,
                    (
                        "holds no trees without it; state the rates of Lyanna's Table 1 in "
                        "acceptance.per_position"
                    ),
                )
        tree = trace.header.get("trees", {}).get("lyanna_tree")
        if "lyanna_tree.run" not in trace.extra or tree is None:
            return (
                "name",
                (
                    "holds no trees of a hidden-state chain (lyanna_tree), or acceptance.drafter "
                    "asks for others"
                ),
            )
        asked = {
            "depth": ("levels", self.depth),
            "branching": ("branching", self.branching),
            "budget": ("budget", self.budget),
            "resampled_budget": ("resampled_budget", self.resampled_budget),
        }
        for field, (recorded, value) in asked.items():
            if value != tree.get(recorded):
                return field, f"holds trees of {field} {tree.get(recorded)}, got {value}"
        return None

    def _contradictions(self, facts: Facts) -> Iterator[Finding]:
        """Yield more children of a node than there are tokens."""
        yield from too_many_children(self.branching, facts.target)

    # ---- the batch

    def open(self, cursor: Cursor, context: int, drafted: bool = True) -> Drafted:
        """Return a request of which nothing has been rejected yet."""
        return Drafted(cursor, context)

    def compose(self, states: Sequence[Drafted], prompts: Rows = NO_ROWS) -> Step:
        """Return a step in which all requests verify a tree, and those that had a rejection also
        what it left.

        Without fusion what was left goes before: only requests that have left levels take part in
        the step.
        """
        left = [state for state in states if state.left]
        apart = bool(left) and not self.fusion
        for state in states:
            rest = state.left or None
            state.proposed = rest if apart else self.depth
        whole, again = (sum(state.context for state in some) for some in (states, left))
        kind = self.kind_of(len(states), len(left))._replace(prompts=prompts.sequences)
        return self._step(kind, whole, again)._replace(prompts=prompts)

    def kind_of(self, requests: int, resampled: int) -> Kind:
        """Return the kind of a batch in which ``resampled`` requests verify a re-sampled tree;
        unfused, the others wait.
        """
        if not resampled:
            return Kind("step", requests)
        waiting = 0 if self.fusion else requests - resampled
        return Kind(
            "resampled", requests - waiting, waiting=waiting, detail=ResampledDetail(resampled)
        )

    def step(self, kind: Kind, context: int) -> Step:
        """Return a step of this kind with all requests at ``context`` tokens."""
        return self._step(kind, kind.verifying * context, kind.extra_work * context)

    def _step(self, kind: Kind, context: int, resampled_context: int) -> Step:
        """Return the rows of the pass; contexts are cached tokens of all requests and of
        re-sampling ones.
        """
        count = kind.extra_work
        tree = 1 + self.budget
        left = self.resampled_budget
        if self._apart(kind):
            return Step(kind, Rows.decode(1 + left, resampled_context, count))
        alone = Rows.decode(tree, context - resampled_context, kind.verifying - count)
        return Step(kind, alone + Rows.decode(tree + left, resampled_context, count))

    def _apart(self, kind: Kind) -> bool:
        """Return whether a step of this kind verifies re-sampled trees alone."""
        return kind.detail is not None and not self.fusion

    def course_window(self, requests: int) -> int | None:
        """Return the levels of a tree where re-sampled trees are verified beside the next ones, so
        that nobody waits; else None for several requests.
        """
        nobody_waits = self.fusion or not self.resample or requests == 1
        return self.window if nobody_waits else None

    def step_of(self, requests: int, sums: Sums) -> Step:
        """Return the step of a batch: ``sums`` are its contexts, how many verify a re-sampled tree
        too, and the contexts of those.
        """
        context, resampled, resampled_context = sums
        return self._step(self.kind_of(requests, resampled), context, resampled_context)

    def along(self, state: Drafted) -> tuple[int, ...]:
        """Return the context of a request, whether it verifies a re-sampled tree too, and its
        context if so.
        """
        left = int(state.left > 0)
        return state.context, left, left * state.context

    def in_turn(
        self, durations: LyannaDurations, kind: Kind, one_lane: bool
    ) -> tuple[Numbers, ...]:
        """Return the parts as they are booked: sampling of both trees in one."""
        t = durations
        return t.layers, t.head, t.sample + t.resample, t.host, t.verify

    def settle(self, states: Sequence[Drafted]) -> list[Progress]:
        """Verify, note what is left of each chain, and return the progress of each request."""
        return [
            self._settle(state, state.proposed) if state.proposed else ABSENT for state in states
        ]

    def _settle(self, state: Drafted, levels: int) -> Progress:
        """Verify a tree of so many levels, and what is fused with it, of one request."""
        verdict = state.cursor.judge(Chain(levels))
        state.context += verdict.committed
        left = self.left(verdict.accepted) if levels == self.depth else 0
        state.left = left
        where = "beside it" if self.fusion else "before it"
        if left:
            levels_left = "1 level" if left == 1 else f"{left} levels"
            choice = f"one re-sampled from {levels_left} {where}"
        else:
            choice = "a drafted tree alone"
        return Progress(verdict.committed, verdict.committed, verdict.accepted, levels, choice)

    # ---- the time

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Return drafting, sampling and verification; prompts travel through the target and the
        layer.
        """
        kind = step.kind
        rows = step.rows
        level = self.level_us.value * 1e-6
        host = self.host_ms.value * 1e-3
        if kind.prompts:
            chunks = [cost.head(FUSING, step.prompts._replace(logit_rows=0))]
        else:
            chunks = []
        parts = {"host": Phase(host, {"target host": host})}
        if kind.detail:
            parts["resample"] = _sampling(level * (self.depth - 1))
        if self._apart(kind):
            parts["layers"] = together(*chunks)
        else:
            layers, head = self._chain(cost, kind.verifying, rows.kv_tokens - rows.tokens)
            parts |= {
                "layers": together(*chunks, layers),
                "head": head,
                "sample": _sampling(level * self.depth),
            }
        return parts | {"verify": cost.target(rows + step.prompts)}

    def _chain(self, cost: Cost, requests: int, context: int) -> tuple[Phase, Phase]:
        """Return the passes of the layer and of the LM head behind ``context`` cached tokens of all
        requests.
        """
        hidden = self.chain == "hidden_states"
        later = self.depth - 1
        branches = 1 if hidden else self.branching
        width = branches * requests
        first = Rows.decode(self.depth + 1, context, requests)._replace(logit_rows=0)
        rows = Rows(width, 0, requests, context + width, branches * context + width)
        passes = (
            cost.head(FUSING, first),
            together(cost.head(LAYER if hidden else FUSING, rows), times=later),
        )
        if hidden:
            logits = [self.depth * requests]
        else:
            logits = [requests, *[width] * later]
        return together(*passes), together(
            *(cost.head(HEAD, Rows(count, count)) for count in logits)
        )

    def admission(self, cost: Cost, prompts: Rows, ending: int = 0, context: int = 0) -> Admission:
        """Return the seconds of prompts through the target and then, on the same device, through
        the layer.
        """
        layer = cost.head(FUSING, prompts._replace(logit_rows=0))
        return Admission(cost.prefill("target", prompts).wall_s + layer.wall_s, 0.0, 0.0)

    def timeline(self, lanes: Lanes, durations: LyannaDurations, kind: Kind) -> Timeline:
        """Book the parts in series on one device; the levels of a token chain are booked
        together.
        """
        t = durations
        device = lanes.target
        for seconds, label in (
            (t.layers, "draft layers"),
            (t.head, "LM head"),
            (t.sample + t.resample, "sample trees"),
        ):
            if not self._apart(kind) or seconds:
                device.occupy(seconds, label)
        if t.host:
            lanes.rendezvous.occupy(t.host, "host", device)
        label = "verify re-sampled trees" if self._apart(kind) else "verify"
        return (device.start(t.verify, label, lanes.rendezvous),)

    # ---- the batch study

    @classmethod
    def batch_columns(cls) -> tuple[str, ...]:
        """Return the columns of what drafted and re-sampled trees take."""
        return ("drafted_trees_ms", "fused_trees_ms", "apart_trees_ms")

    def batch_extra(self, cost: Cost, requests: int, context: int) -> dict[str, float]:
        """Return the milliseconds of the target's passes where no request has a re-sampled tree,
        and where all have one, verified in the same pass or in a second one (LYA-7).

        Empty where nothing is sampled again.
        """
        if not self.resample:
            return {}
        drafted_s = self._verify_s(cost, requests, context, 0, fusion=True)
        fused_s = self._verify_s(cost, requests, context, requests, fusion=True)
        apart_s = self._verify_s(cost, requests, context, requests, fusion=False)
        return {
            "drafted_trees_ms": drafted_s * 1e3,
            "fused_trees_ms": fused_s * 1e3,
            "apart_trees_ms": (drafted_s + apart_s) * 1e3,
        }

    def _verify_s(
        self, cost: Cost, requests: int, context: int, resampled: int, *, fusion: bool
    ) -> float:
        """Return the seconds of the target's pass in a step with so many re-sampled trees."""
        strategy = self.model_copy(update={"fusion": fusion})
        step = strategy.step(strategy.kind_of(requests, resampled), context)
        return strategy.durations(cost, step).verify

    def draw_batches(self, axes: "Axes", points: "Sequence[BatchPoint]") -> None:
        """Draw the panel of these numbers."""
        from simulator.papers.lyanna.page import trees_panel  # pictures take long to load

        trees_panel(axes, points)

    # ---- the law

    def claim(
        self,
        cost: Cost,
        requests: int,
        context: int,
        shares: Mapping[Kind, Numbers],
        one_lane: bool,
    ) -> Claim:
        """Return that the law is exact: one part follows the other on one device."""
        return EXACT

    def step_seconds(self, durations: LyannaDurations, kind: Kind) -> Numbers:
        """Return the seconds of all parts in series."""
        t = durations
        return t.layers + t.head + t.sample + t.resample + t.host + t.verify

    def _renews(self, shares: Mapping[Kind, Numbers]) -> bool:
        """Return whether nothing is left to be sampled again, which takes a drafted tree before
        it.
        """
        return all(kind.detail is None for kind, share in shares.items() if share > 0.0)

    def kinds(self, odds: OddsOf, requests: int) -> Mapping[Kind, float]:
        """Return the share of each kind of step: binomial, as requests are rejected independently
        of each other.

        Without fusion all requests draft and verify together, and every n > 0 that left levels is a
        step of its own (LYA-7).
        """
        share = min(1.0, ordered_sum(self._leaving(odds).values()))
        again = {
            self.kind_of(requests, n): chance for n, chance in binomial(requests, share).items()
        }
        if self.fusion:
            return again
        again.pop(whole := self.kind_of(requests, 0), None)
        steps = 1.0 + ordered_sum(again.values())
        return {whole: 1.0 / steps} | {kind: chance / steps for kind, chance in again.items()}

    def _leaving(self, odds: OddsOf) -> dict[int, float]:
        """Return the chance that a drafted tree leaves so many levels, by levels."""
        accepted = odds(self.depth).accepted
        return {
            left: float(accepted[kept]) for kept in range(self.depth) if (left := self.left(kept))
        }

    def _committed(self, kind: Kind, odds: OddsOf) -> Numbers:
        """Return the tokens of a step; those of a tree sampled again are a mean over the levels
        that drafted trees leave.
        """
        if not self._apart(kind):
            return super()._committed(kind, odds)
        leaving = self._leaving(odds)
        mean = ordered_sum(chance * odds(left).committed() for left, chance in leaving.items())
        return kind.verifying * mean / ordered_sum(leaving.values())


def table_bytes(vocabulary: int) -> int:
    """Return the bytes of the token-information table: one FP8 value for each pair of tokens, or of
    hot tokens (LYA-3).
    """
    return (vocabulary if vocabulary <= DENSE_UP_TO else HOT_TOKENS) ** 2


def _sampling(seconds: float) -> Phase:
    """Return the phase of sampling for so long."""
    return Phase(seconds, {"draft head compute": seconds})
