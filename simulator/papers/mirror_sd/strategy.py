"""In Mirror speculative decoding the draft works on the next window while the target ends this one.

    target    |==layers 1..l_e==|  |==layers l_e+1..N (Delta)==|  |
    rendezvous|                 |ee|                           |fv|
    draft     |                    |==J internal steps (T_d)==|   |

    T_mirror = T_prefix + T_rv_ee + max{Delta, T_d} + T_rv_fv        (Eq. 10 = Eq. 14; MSD-3)

At the early exit the target sends the top kappa tokens of each verified position; the draft grows a
continuation behind every one of them (branch-complete). The window that follows is the branch of
what the target then commits, if that is on the tree (MSD-7: *reuse*); otherwise it has to be
written anew (*fallback*), for which the paper states no cost (K09):

* ``fallback: redraft``: a serial window T_redraft before the next verification. With
  ``others: wait`` the whole batch waits for it; with ``others: proceed`` the others step on and the
  request joins again one step later.
* ``fallback: undrafted``: the request takes part with a single token and no window; nobody waits,
  so ``others`` has nothing to say.

A rendezvous is sampling and transfer. At the early exit that is the exit head, the target's LM head
on it, and the message; the final LM head and its sampling are taken as part of the last layer, so
T_rv_fv is the transfer alone and Delta is that much longer than MSD-3 reads.

A request's first window is drafted serially after its prefill; its time lies outside the steps.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, field_validator

from simulator.core.acceptance.cursors import Cursor, Retraceable, Verdict
from simulator.core.acceptance.sources import Acceptance, Odds, Replay
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.protocol import Cost, Depth
from simulator.core.cost.rows import NO_ROWS, Phase, Rows, together
from simulator.core.cost.stated import StatedDurations
from simulator.core.numeric import Numbers, binomial
from simulator.core.strategies.common.adaptive import FixedWindow
from simulator.core.strategies.common.base import LONGEST_WINDOW
from simulator.core.strategies.common.beside import DraftsBeside
from simulator.core.strategies.common.capabilities import (
    AddsMemory,
    DerivesNumbers,
    ExtraMemory,
    ProvenSteps,
)
from simulator.core.strategies.common.chain import ChainStrategy, cut_to_grants
from simulator.core.strategies.common.claim import Claim, Example
from simulator.core.strategies.common.courses import Course, Sums
from simulator.core.strategies.common.drafters import StreamingDrafter
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
    intern_kind,
)
from simulator.core.strategies.common.traits import EarlyExit, Facts, Finding, Needs, Traits
from simulator.papers.mirror_sd.fallback import (
    Fallback,
    fallback_rates,
    miss,
)
from simulator.papers.mirror_sd.laws import (
    MirrorDurations,
    batching_rule,
    eq_10,
    exposed_draft,
    in_turn,
    relative_overhead,
)

if TYPE_CHECKING:
    from simulator.report.blocks import Section
    from simulator.scenario.result.run_result import RunResult

NOTHING = Phase(0.0, {})


class MirrorSD(
    DraftsBeside, ChainStrategy[MirrorDurations], AddsMemory, DerivesNumbers, ProvenSteps
):
    """An early exit at ``exit_layer`` (a layer number, or a share of the depth) sends the top
    ``kappa`` tokens.

    ``message`` is K07: candidates for each of the gamma + 1 positions, or for the first only (Eq. 7
    as printed). ``batching_rule`` takes kappa and streams from the size of the batch (App. D.1).
    """

    name: Literal["mirror_sd"] = "mirror_sd"
    kinds_by: ClassVar[tuple[int, ...]] = (1,)
    traits: ClassVar[Traits] = Traits(
        MirrorDurations,
        "T_prefix + T_rv_ee + max{Delta, T_draft} + T_rv_fv (Mirror-SD Eq. 10)",
        hidden_behind="suffix",
    )

    gamma: int = Field(default=7, ge=1, le=LONGEST_WINDOW)
    """Draft tokens of a window, at most."""
    kappa: int = Field(default=8, ge=1, le=10_000)
    """Candidates behind each position of the early exit."""
    exit_layer: int | float = 0.5
    """Layer number of the early exit, or its share of the depth."""
    message: Literal["per_position", "first_position"] = "per_position"
    """Candidates for every position of a window, or for the first alone."""
    fallback: Literal["redraft", "undrafted"] = "redraft"
    """What follows a miss: a serial window, or a step without one."""
    others: Literal["wait", "proceed"] = "wait"
    """Whether the rest of the batch waits for that window."""
    batching_rule: bool = False
    """Take kappa and streams from the batch size (App. D.1)."""
    id_bytes: int = Field(default=4, gt=0, le=1_000_000_000)
    """Bytes of a token id in a message."""
    logprob_bytes: int = Field(default=2, gt=0, le=1_000_000_000)
    """Bytes of a log-probability in a message."""

    @field_validator("exit_layer")
    @classmethod
    def _inside(cls, depth: Depth) -> Depth:
        if depth <= 0 or (isinstance(depth, float) and depth >= 1.0):
            raise ValueError(
                "expected a layer number from 1 or a share of the depth between 0 and 1, got "
                f"{depth}"
            )
        return depth

    @classmethod
    def example(cls) -> Example:
        """Return windows of three tokens that outlast the suffix, on lanes that share a memory."""
        durations = StatedDurations(
            prefix_ms=18.0,
            suffix_ms=14.0,
            draft_ms=16.0,
            redraft_ms=11.0,
            rv_ee_ms=0.3,
            rv_fv_ms=0.2,
        )
        return Example(cls(gamma=3), durations, contention=1.25)

    def positions(self, window: int) -> int:
        """Return the positions of a verified window for which the early exit sends candidates."""
        if self.message == "per_position":
            return window + 1
        return 1

    def extra_memory(self, target: ModelSpec) -> ExtraMemory:
        """Return the weights of the exit adapter H -> H/2 -> H; it shares the target's LM head."""
        return ExtraMemory(weights=target.hidden_size**2)

    @property
    def needs(self) -> Needs:
        """Return the needs of a chain and the early exit."""
        return super().needs._replace(exit=EarlyExit(self.exit_layer, self.kappa))

    @property
    def batch_settings(self) -> str:
        """Return kappa, and the number of streams where there are any, in words."""
        kappa = f"kappa {self.kappa}"
        streams = super().batch_settings
        return f"{kappa}, {streams}" if streams else kappa

    @property
    def _all_wait(self) -> bool:
        """Return whether all requests wait for a window that is written again."""
        return self.fallback == "redraft" and self.others == "wait"

    @property
    def independent_steps(self) -> bool:
        """Return whether nothing follows the batch, and one request's fallback leaves the windows
        of the others alone.
        """
        follows_batch = self.batching_rule or not isinstance(self.adaptive, FixedWindow)
        return not follows_batch and self._all_wait

    def appendix(self, acceptance: Acceptance) -> Fallback | None:
        """Return how often a window is lost on a recording, for every recorded exit and several
        widths; None without a recorded exit.
        """
        if not isinstance(acceptance, Replay):
            return None
        rates = fallback_rates(acceptance, self)
        return Fallback(rates) if rates else None

    def run_section(self, result: "RunResult") -> "Section":
        """Return the section of a run's page on windows that were drafted again."""
        from simulator.papers.mirror_sd.page import fallback_section  # pictures take long to load

        return fallback_section(result)

    def left_out_by_law(self) -> str:
        """Return in words what happens in a simulation beside the steps of the law."""
        return "the first window of a request is drafted outside the steps"

    def _contradictions(self, facts: Facts) -> Iterator[Finding]:
        """Yield an early exit that stands at no layer of the target."""
        depth = self.exit_layer
        layers = facts.layers
        if isinstance(depth, int):
            if layers is None:
                yield (
                    "exit_layer",
                    "expected a share of the depth, as the number of layers is not known",
                )
            elif depth > layers:
                yield "exit_layer", f"the target has {layers} layers, got {depth}"
        elif layers and round(depth * layers) < 1:
            yield "exit_layer", f"{depth:g} of {layers} layers is less than one layer"
        yield from super()._contradictions(facts)

    def fitted_to(self, requests: int | None = None, stages: int | None = None) -> Self:
        """Return the strategy with the kappa and the streams of App. D.1, if it is asked for."""
        if not self.batching_rule or requests is None:
            return self
        kappa, streams = batching_rule(requests)
        drafter = self.drafter
        if isinstance(drafter, StreamingDrafter):
            drafter = drafter.model_copy(update={"streams": streams})
        return self.model_copy(update={"kappa": kappa, "drafter": drafter})

    def branches(self, kind: Kind) -> int:
        """Return the branches that one internal draft step extends: kappa behind every position."""
        return self.kappa * self._candidates(kind)

    def payload_bytes(self, kind: Kind) -> int:
        """Return the bytes of one early-exit message: token ids and log-probabilities (MSD-12)."""
        return self.kappa * self._candidates(kind) * (self.id_bytes + self.logprob_bytes)

    def _candidates(self, kind: Kind) -> int:
        """Return the positions for which the early exit sends candidates, over all requests."""
        return kind.verifying * self.positions(self._window_of(kind)) + kind.bare

    # ---- the batch

    def open(self, cursor: Cursor, context: int, drafted: bool = True) -> State:
        """Return a request; without a first window it begins as if it had lost its window."""
        return State(cursor, context, ready=drafted)

    def compose(self, states: Sequence[State], prompts: Rows = NO_ROWS) -> Step:
        """Return a step in which ready requests verify a window; ``fallback`` and ``others`` say
        what the others do.

        All windows of a step have one length: that of this batch, or less where the draft wrote
        shorter ones. Where the window of this batch is 0, every request takes a bare token and
        loses the window it had.
        """
        drafting = self.window_for(len(states))
        window = _shortest_window(states, drafting)
        redraft = self.fallback == "redraft" and drafting > 0
        without_window = self._proposed_without_window(window, drafting)
        ready = 0
        redraft_context = 0
        any_cut = False
        for state in states:
            state.pending = drafting
            if state.ready and window:
                ready += 1
                state.proposed = window
            else:
                state.proposed = without_window
                if redraft:
                    redraft_context += state.context
            if state.most_rows <= window:
                any_cut = True
        missing = len(states) - ready
        kind = self._kind_with(window, self.kind_of(ready, missing, drafting))
        if prompts.sequences:
            kind = kind._replace(prompts=prompts.sequences)
        if any_cut or missing:
            rows = cut_to_grants(states)
        else:
            context = sum([state.context for state in states])
            rows = Rows.decode(window + 1, context, ready)
        return Step(kind, rows, redraft_context, prompts)

    def _proposed_without_window(self, window: int, drafting: int) -> int | None:
        """Return the draft tokens that a request verifies whose window is missing: those that it
        writes first, none, or None where it takes no part in the step.
        """
        if self.fallback == "undrafted" or not drafting:
            return 0
        if self.others == "proceed":
            return None
        return window or drafting

    def _kind_with(self, window: int, kind: Kind) -> Kind:
        """Return the kind with the length of its windows noted where that is not gamma."""
        if kind.verifying and window != self.gamma:
            return kind._replace(window=window)
        return kind

    def kind_of(self, ready: int, missing: int, drafting: int = 1) -> Kind:
        """Return the kind of a batch with ``ready`` windows at hand, ``missing`` ones, and a window
        of ``drafting`` tokens.
        """
        if not drafting:
            return Kind("bare", 0, bare=ready + missing, window=0)
        name = "fallback" if missing else "reuse"
        if self.fallback == "undrafted":
            return intern_kind(name, ready, bare=missing)
        if self.others == "proceed":
            return intern_kind(name, ready, redrafts=missing, waiting=missing)
        return intern_kind(name, ready + missing, redrafts=missing)

    def settle(self, states: Sequence[State]) -> list[Progress]:
        """Verify, and note which requests have lost their window and which have written a new
        one.
        """
        settled = []
        for state in states:
            proposed = state.proposed
            if proposed is None:
                state.ready = True
                settled.append(ABSENT)
                continue
            verdict = state.cursor.judge(self._proposal(proposed))
            state.context += verdict.committed
            state.ready, progress = self._settled(verdict, proposed, state.pending)
            settled.append(progress)
        return settled

    def _settled(self, verdict: Verdict, proposed: int, pending: int) -> tuple[bool, Progress]:
        """Return whether the next window is at hand, and the progress of a request that has
        ``pending`` draft tokens.
        """
        ready = pending > 0 and self.reuses(verdict, proposed)
        choice = self.choice(ready, verdict) if pending else ""
        missed = proposed > 0 and not ready
        return ready, self._progress(verdict, proposed, choice, missed)

    def course_window(self, requests: int) -> int | None:
        """Return the window of this batch where every request always verifies one, written again
        while all wait if it was lost; else None.
        """
        window = self.window_for(requests)
        return window if window and self._all_wait else None

    def step_of(self, requests: int, sums: Sums) -> Step:
        """Return the step of a batch: ``sums`` are its contexts, how many have lost their window,
        and the contexts of those.
        """
        context, lost, lost_context = sums
        window = self.window_for(requests)
        kind = self._kind_with(window, self.kind_of(requests - lost, lost, window))
        return Step(kind, Rows.decode(window + 1, context, requests), lost_context)

    def alone(self, state: State, window: int) -> tuple[tuple[int, ...], Progress]:
        """Let a request verify a window, written again if it was lost."""
        lost = not state.ready
        context = state.context
        judged = state.cursor.judge(self._proposal(window))
        state.context += judged.committed
        state.pending = window
        state.ready, progress = self._settled(judged, window, window)
        return (context, int(lost), lost * context), progress

    def course(self, state: State, window: int, tokens: int) -> Course:
        """Return the course of a request: ``adds`` are (3, steps) tokens, whether its window was
        lost, and its context if so.
        """
        cursor = state.cursor
        if not isinstance(cursor, Retraceable):
            return super().course(state, window, tokens)
        verdicts, shown = cursor.ahead(self._proposal(window), tokens)
        reused = {judged: self.reuses(judged, window) for judged in set(verdicts)}
        lost = np.array([not state.ready, *(not reused[judged] for judged in verdicts[:-1])])
        tokens_before = np.array([0, *shown[:-1]])
        lost_context = (state.context + tokens_before) * lost
        return Course(np.stack([tokens_before, lost, lost_context]), shown, Counter(verdicts))

    def made_of(self, judged: Verdict, window: int) -> Progress:
        """Return the progress of a request whose window was judged so, and what it makes of its
        next one.
        """
        return self._settled(judged, window, window)[1]

    def in_turn(
        self, durations: MirrorDurations, kind: Kind, one_lane: bool
    ) -> tuple[Numbers, ...]:
        """Return the parts of Eq. 10 behind a redraft."""
        return in_turn(durations, one_lane)

    def reuses(self, verdict: Verdict, proposed: int) -> bool:
        """Return whether what was committed is a path of the tree (MSD-7)."""
        full = verdict.accepted == proposed
        if full and proposed and not self.bonus_on_full_accept:
            return True
        if self.message == "per_position" or verdict.accepted == 0:
            return not verdict.off_exit
        return full and not verdict.off_path

    def choice(self, reuse: bool, verdict: Verdict) -> str:
        """Return the three-way selection of the next window in words (MSD-7)."""
        if not reuse:
            return "fresh rollout"
        if verdict.accepted:
            return "stored continuation"
        return "branch rooted at the correction"

    # ---- the time

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Return the parts of Eq. 10; the draft grows kappa branches per position and request, a
        redraft one per request.
        """
        kind = step.kind
        rows = step.rows
        phases = {}
        requests = kind.verifying + kind.bare
        drafting = self.window_for(kind.batch)
        if kind.redrafts:
            if kind.verifying and self.others == "wait":
                window = self._window_of(kind)
            else:
                window = drafting
            phases["redraft"] = self._chain(
                cost, kind.redrafts, step.redraft_kv_tokens // kind.redrafts, window
            )
        if requests or kind.prompts:
            passed = rows + step.prompts
            chunks = [cost.prefill("draft", step.prompts)] if kind.prompts else []
            growth = []
            if requests and drafting:
                inner = self.drafter.step(cost, self.branches(kind), requests, rows.kv_tokens)
                growth = [together(inner, times=self.drafter.steps(drafting))]
            phases |= {
                "prefix": cost.target(passed, 0.0, self.exit_layer),
                "rv_ee": cost.rendezvous("ee", self._candidates(kind), self.payload_bytes(kind))
                if growth
                else NOTHING,
                "suffix": cost.target(passed, self.exit_layer, 1.0),
                "draft": together(*chunks, *growth),
                "rv_fv": cost.rendezvous("fv", rows.logit_rows, requests * 2 * self.id_bytes)
                if growth
                else NOTHING,
            }
        return phases

    def derived(self, cost: Cost, step: Step, odds: OddsOf) -> dict[str, float]:
        """Return exposed draft time (MSD-13), relative draft overhead (MSD-11), branches and
        payload (MSD-12).
        """
        kind = step.kind
        requests = step.kind.verifying + step.kind.bare
        if not requests or not self.window_for(kind.batch):
            return {}
        t = self.durations(cost, step)
        serial = self._chain(
            cost, kind.verifying or 1, step.rows.kv_tokens // requests, self._window_of(kind) or 1
        ).wall_s
        return {
            "exposed_draft_ms": float(exposed_draft(t)) * 1e3,
            "relative_draft_overhead": float(relative_overhead(t, serial)) if serial else 0.0,
            "branches": float(self.branches(kind)),
            "early_exit_payload_bytes": float(self.payload_bytes(kind)),
        }

    def _chain(self, cost: Cost, requests: int, context: int, window: int) -> Phase:
        """Return the internal steps of a serial window with one branch per request, at ``context``
        cached tokens each.
        """
        inner = self.drafter.step(cost, requests, requests, requests * context, "redraft")
        return together(inner, times=self.drafter.steps(window))

    def admission(self, cost: Cost, prompts: Rows, ending: int = 0, context: int = 0) -> Admission:
        """Return prompts through both models, then the first window of those that end here; in
        seconds.
        """
        admission = super().admission(cost, prompts, ending, context)
        if ending:
            window = self._chain(cost, ending, context // ending, self.gamma).wall_s
        else:
            window = 0.0
        return admission._replace(window=window)

    def timeline(self, lanes: Lanes, durations: MirrorDurations, kind: Kind) -> Timeline:
        """Book two lanes behind the early exit, and the verification behind both; the overlap
        follows from the lanes.
        """
        t = durations
        awaited = None
        if kind.redrafts:
            if not (kind.verifying or kind.prompts):
                return (lanes.draft.start(t.redraft, "redraft"),)
            lanes.draft.occupy(t.redraft, "redraft")
            awaited = lanes.draft if self.others == "wait" else None
        lanes.target.occupy(t.prefix, "layers 1..l_e", awaited)
        lanes.rendezvous.occupy(t.rv_ee, "early exit", lanes.target)
        lanes.target.occupy(t.suffix, "layers l_e+1..N", lanes.rendezvous)
        lanes.draft.occupy(t.draft, "draft next window", lanes.rendezvous)
        return (lanes.rendezvous.start(t.rv_fv, "verification", lanes.target, lanes.draft),)

    # ---- the law

    def claim(
        self,
        cost: Cost,
        requests: int,
        context: int,
        shares: Mapping[Kind, Numbers],
        one_lane: bool,
    ) -> Claim:
        """Return that the law is exact where target and draft are two machines, as Eq. 10 takes
        them to be.
        """
        if not one_lane and cost.contention > 1.0 and self.others == "proceed":
            return Claim("idealised", "the contention of a redraft beside the prefix is left out")
        return super().claim(cost, requests, context, shares, one_lane)

    def step_seconds(self, durations: MirrorDurations, kind: Kind) -> Numbers:
        """Return the seconds of Eq. 10 with the fallback it leaves out and the contention of one
        memory.
        """
        if not (kind.verifying or kind.bare or kind.prompts):
            return durations.redraft
        return eq_10(durations, waits=self.others == "wait")

    def _renews(self, shares: Mapping[Kind, Numbers]) -> bool:
        """Return whether no window is lost, as a request's first one is at hand."""
        return all(kind.name != "fallback" for kind, share in shares.items() if np.any(share > 0.0))

    def kinds(self, odds: OddsOf, requests: int) -> Mapping[Kind, Numbers]:
        """Return the share of each kind of step: binomial, as requests fall back independently of
        each other.
        """
        gamma = self.window_for(requests)
        if not gamma:
            return {self.kind_of(requests, 0, gamma): 1.0}
        share = self.fallback_share(odds, gamma)
        kinds = {
            self.kind_of(requests - k, k): chance for k, chance in binomial(requests, share).items()
        }
        window = self._noted(gamma)
        return {
            kind._replace(window=window if kind.verifying else None): chance
            for kind, chance in kinds.items()
        }

    def fallback_share(self, odds: OddsOf, gamma: int) -> Numbers:
        """Return the long-run share of steps that a request begins without a window of
        ``gamma``.
        """
        missed = self.miss(odds(gamma))
        if self.fallback == "undrafted":
            return missed / np.where(missed > 0.0, 1.0 + missed - odds(0).off_exit[0], 1.0)
        if self.others == "proceed":
            return missed / (1.0 + missed)
        return missed

    def miss(self, odds: Odds) -> Numbers:
        """Return the chance that the draft tree does not cover what follows a verified window
        (MSD-8).
        """
        return miss(odds, self.bonus_on_full_accept, self.message == "per_position")


def _shortest_window(states: Sequence[State], window: int) -> int:
    """Return the length of the shortest window at hand, ``window`` at most."""
    for state in states:
        if state.pending < window and state.ready:
            window = state.pending
    return window
