"""Vanilla speculative decoding drafts a window, then verifies it in one pass.

    draft     |=1=|=2=|...|=gamma=|                       |
    rendezvous|                   |rv|                    |
    target    |                      |==verify gamma+1 ==|

    T_SD = T_draft(gamma) + T_target(gamma)            (Mirror-SD, sec. 2, Eq. 5; MSD-1)

On two devices the window crosses a channel (``rv``); the paper's law has no such term, so without a
channel it is zero. On one device both roles book the same lane; nothing overlaps anyway.

The draft may be a head beside the target (``drafter: {name: head, ...}``). Further drafters run in
series before it (``beside``, ``beside_host_ms``) where the best of several is verified.

With ``drafts_first`` a request begins with a window too: the draft reads the prompt and goes on to
gamma tokens, then the target reads the prompt and verifies them in one pass. The first token is
shown by that verification.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

from simulator.core.acceptance.cut_vocabulary import NO_TEXT, cut
from simulator.core.acceptance.sources import Acceptance, Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.cost.model import DraftHead, ModelSpec
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Phase, Rows, together
from simulator.core.cost.stated import StatedDurations
from simulator.core.numeric import Numbers, occurs
from simulator.core.quantities import Ranged, Share
from simulator.core.strategies.common.adaptive import (
    ConfidentWindow,
    FixedWindow,
    OracleWindow,
    RequestWindow,
)
from simulator.core.strategies.common.capabilities import (
    AddsMemory,
    DraftsFirst,
    ExtraMemory,
    ProvenSteps,
    StepsPlainly,
)
from simulator.core.strategies.common.chain import ChainStrategy, cut_to_grants
from simulator.core.strategies.common.claim import EXACT, Claim, Example
from simulator.core.strategies.common.courses import Sums
from simulator.core.strategies.common.drafters import DraftPass, HeadDrafter
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import (
    Admission,
    Kind,
    Lanes,
    Progress,
    State,
    Step,
    Timeline,
    intern_kind,
)
from simulator.core.strategies.common.tiers import TierWindow
from simulator.core.strategies.common.traits import Facts, Finding, Needs, Traits, no_cut

TOKEN_BYTES = 6
"""Id and bf16 log-probability of one drafted token on the channel (MSD-12, id width assumed)."""


class VanillaDurations(NamedTuple):
    """These are the seconds of the whole window, of its transfer, and of the verification."""

    draft: float
    rv: float
    target: float


class VanillaSD(
    ChainStrategy[VanillaDurations], AddsMemory, DraftsFirst, ProvenSteps, StepsPlainly
):
    """A window of ``gamma`` is drafted and then verified."""

    name: Literal["vanilla_sd"] = "vanilla_sd"
    traits: ClassVar[Traits] = Traits(
        VanillaDurations, "T_SD = T_draft + T_target (Mirror-SD Eq. 5)"
    )
    drafts_first: bool = False
    """Whether the draft writes a window before the target reads the prompt, as programs without a
    prefill do.
    """
    covered: Share | None = None
    """Share of the target's tokens that a cut vocabulary of the draft holds (FR-Spec), where
    acceptance was stated or recorded with the whole one. ``vocabulary`` of a head, or
    ``draft.lm_head_rows``, says how wide its LM head then is.
    """
    beside: tuple[DraftPass, ...] = ()
    """Passes of further drafters in a step that drafts, in series with the draft's own
    (``acceptance.best_of``).
    """
    beside_host_ms: Ranged | None = None
    """Milliseconds of the host in which further drafters look up what they propose, for each
    request.
    """

    @property
    def needs(self) -> Needs:
        """Return the needs of a chain, as vLLM knows them of drafts with keys and values."""
        needs = super().needs
        if not self.serial or not (needs.draft_model or self.reads_hidden_states):
            return needs
        return needs._replace(lookahead=self.gamma, draft_slots=int(needs.draft_model))

    def rows_at_hand(self, state: State, rows: int) -> int:
        """Return the rows of a window that follows its request, where it is written before it is
        judged.
        """
        rule = self.adaptive
        if isinstance(rule, RequestWindow) and not isinstance(rule, OracleWindow):
            return min(rows, 1 + rule.opened(self.gamma, state))
        return rows

    def extra_memory(self, target: ModelSpec) -> ExtraMemory:
        """Return the weights of the heads, each set once."""
        return ExtraMemory(
            sum(head.weights(target) for head in self.heads),
            0,
            sum(head.layers for head in self.heads),
        )

    @property
    def heads(self) -> tuple[DraftHead, ...]:
        """Return the heads beside the drafter, and that which is the drafter."""
        beside = [entry.head for entry in self.beside if entry.head and not entry.reused]
        return (*beside, *super().heads)

    @property
    def reads_hidden_states(self) -> bool:
        """Return whether the drafter, or one beside it, is a head with layers."""
        beside = any(entry.head is not None and entry.head.layers > 0 for entry in self.beside)
        return beside or super().reads_hidden_states

    @property
    def serial(self) -> bool:
        """Return True for this schedule, and False for another that is built on it."""
        return self.name == "vanilla_sd"

    @property
    def independent_steps(self) -> bool:
        """Return whether windows are the same for every batch."""
        return isinstance(self.adaptive, FixedWindow)

    @classmethod
    def example(cls) -> Example:
        """Return windows of four tokens, 3 ms each, that cross a channel."""
        return Example(
            cls(gamma=4), StatedDurations(target_ms=36.0, draft_step_ms=3.0, rv_fv_ms=0.5)
        )

    def reads(self, verdicts: Acceptance) -> Acceptance:
        """Return the verdicts, in a cut vocabulary where the draft has one, and of a recording with
        the draft's confidence where the window follows it.
        """
        rule = self.adaptive
        if self.covered is not None:
            verdicts = cut(verdicts, self.covered.value)
        if isinstance(rule, ConfidentWindow) and isinstance(verdicts, Replay):
            return verdicts.behind_gate(rule.p_min)
        return verdicts

    def _contradictions(self, facts: Facts) -> Iterator[Finding]:
        """Yield a vocabulary that is not cut, and what any chain contradicts."""
        head = self.drafter.head if isinstance(self.drafter, HeadDrafter) else None
        yield from no_cut(self.covered is not None, head, facts.target)
        yield from super()._contradictions(facts)

    def _unrecorded(self, trace: Trace) -> Finding | None:
        """Return what the recording lacks; also its text, where the vocabulary of the draft is
        cut.
        """
        if self.covered is not None and not len(trace.token):
            return "covered", NO_TEXT
        return super()._unrecorded(trace)

    def compose(self, states: Sequence[State], prompts: Rows = NO_ROWS) -> Step:
        """Return a step in which all windows have one length, unless the scheduler grants a request
        fewer rows.
        """
        requests = len(states)
        if isinstance(self.adaptive, RequestWindow):
            return self._composed(states, self.adaptive, prompts)
        if isinstance(self.adaptive, TierWindow):
            gamma = self.adaptive.opened(self.gamma, states)
        else:
            gamma = self.window_for(requests)
        context = 0
        cut = False
        for state in states:
            state.proposed = gamma
            context += state.context
            if state.most_rows <= gamma or state.context < state.plain_below:
                cut = True
        verifying, bare = (requests, 0) if gamma else (0, requests)
        if cut and gamma:
            bare = _without_windows(states)
            verifying = requests - bare
        kind = intern_kind("step", verifying, bare, 0, self._noted(gamma), prompts.sequences)
        if cut:
            rows = cut_to_grants(states)
        else:
            rows = Rows.decode(gamma + 1, context, requests)
        return Step(kind, rows, 0, prompts)

    def course_window(self, requests: int) -> int | None:
        """Return the window of this batch; None where windows follow what was accepted."""
        if isinstance(self.adaptive, RequestWindow | TierWindow):
            return None
        return self.window_for(requests)

    def step_of(self, requests: int, sums: Sums) -> Step:
        """Return a step in which all verify the window of this batch."""
        gamma = self.window_for(requests)
        verifying, bare = (requests, 0) if gamma else (0, requests)
        kind = intern_kind("step", verifying, bare, 0, self._noted(gamma))
        return Step(kind, Rows.decode(gamma + 1, sums[0], requests))

    def _composed(self, states: Sequence[State], rule: RequestWindow, prompts: Rows) -> Step:
        """Return a step in which each request has a window of its own; the kind notes the
        longest.
        """
        for state in states:
            state.proposed = min(rule.opened(self.gamma, state), state.most_rows - 1)
        _without_windows(states)
        longest = max(state.proposed or 0 for state in states)
        verifying = sum(bool(state.proposed) for state in states)
        kind = intern_kind(
            "step", verifying, len(states) - verifying, 0, self._noted(longest), prompts.sequences
        )
        return Step(kind, cut_to_grants(states), 0, prompts)

    def settle(self, states: Sequence[State]) -> list[Progress]:
        """Verify what was proposed; a window that follows its request or its batch moves."""
        if isinstance(self.adaptive, OracleWindow):
            return [self.adaptive.settled(state) for state in states]
        settled = super().settle(states)
        if isinstance(self.adaptive, TierWindow):
            self.adaptive.settled(self.gamma, states, settled)
        if isinstance(self.adaptive, RequestWindow):
            for state, progress in zip(states, settled, strict=True):
                state.turn += 1
                kept_all = progress.accepted == progress.proposed
                state.window = self.adaptive.after(
                    self.gamma, progress.proposed, kept_all, state.turn
                )
        return settled

    def _renews(self, shares: Mapping[Kind, Numbers]) -> bool:
        """Return whether windows follow the batch alone, or are what will be kept."""
        follows = isinstance(self.adaptive, RequestWindow | TierWindow)
        return not follows or isinstance(self.adaptive, OracleWindow)

    def kinds(self, odds: OddsOf, requests: int) -> dict[Kind, float]:
        """Return a share of 1 for the only kind of step, with the window of this batch; or of each
        window of a request.
        """
        shares: Mapping[int, Numbers] = {self.window_for(requests): 1.0}
        if isinstance(self.adaptive, RequestWindow):
            shares = self.adaptive.shares(self.gamma, odds)
        if isinstance(self.adaptive, TierWindow):
            shares = self.adaptive.shares(self.gamma, requests, odds)
        kinds = {
            gamma: Kind("step", requests) if gamma else Kind("step", 0, requests)
            for gamma in shares
        }
        return {
            kinds[gamma]._replace(window=self._noted(gamma)): share
            for gamma, share in shares.items()
        }

    def _committed(self, kind: Kind, odds: OddsOf) -> Numbers:
        """Return the expected tokens of a step; a rule that looks ahead keeps more of a window than
        a blind one.
        """
        rule = self.adaptive
        window = self._window_of(kind)
        if isinstance(rule, RequestWindow):
            more = rule.kept(self.gamma, window, odds) - odds(window).mean_accepted
        else:
            more = 0.0
        return super()._committed(kind, odds) + kind.verifying * more

    def _chances(self, kind: Kind, odds: OddsOf) -> Mapping[int, Numbers]:
        """Return the chances of a window; one that an oracle chose is kept whole."""
        if isinstance(self.adaptive, OracleWindow):
            return {self._window_of(kind) + 1: 1.0}
        return super()._chances(kind, odds)

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Return prompts through the draft and J internal steps, the transfer, and a pass over
        gamma + 1 tokens per request.
        """
        requests = step.kind.verifying
        gamma = self._window_of(step.kind)
        headed = isinstance(self.drafter, HeadDrafter)
        if step.prompts.sequences and not headed:
            chunks = [cost.prefill("draft", step.prompts)]
        else:
            chunks = []
        window: list[Phase] = []
        if isinstance(self.adaptive, RequestWindow):
            beyond = self.adaptive.passes_beyond(self.gamma, gamma)
        else:
            beyond = 0
        if drafting := requests + step.kind.bare * beyond:
            window += [
                phase
                for entry in self.beside
                for phase in entry.phases(cost, drafting, step.rows.kv_tokens)
            ]
            if self.beside_host_ms:
                window.append(
                    Phase(self.beside_host_ms.value * 1e-3 * drafting * cost.method_host_ratio, {})
                )
            inner = self.drafter.step(cost, drafting, drafting, step.rows.kv_tokens)
            steps = self.drafter.steps(gamma) if requests else 0
            window.append(together(inner, times=steps + beyond))
        return {
            "draft": together(*chunks, *window),
            "rv": cost.rendezvous("fv", 0, requests * gamma * TOKEN_BYTES)
            if requests and not headed
            else Phase(0.0, {}),
            "target": cost.target(step.rows + step.prompts),
        }

    def admission(self, cost: Cost, prompts: Rows, ending: int = 0, context: int = 0) -> Admission:
        """Return the seconds of the prompts, or with ``drafts_first`` of drafting, its transfer,
        and what verifies it.

        The draft's pass over a prompt yields the first token of a window, so that J - 1 internal
        steps follow it.
        """
        gamma = self.window_for(ending)
        if not (self.drafts_first and ending and gamma):
            return super().admission(cost, prompts, ending, context)
        inner = self.drafter.step(cost, ending, ending, context + ending)
        window = together(inner, times=self.drafter.steps(gamma) - 1)
        sent = cost.rendezvous("fv", 0, ending * gamma * TOKEN_BYTES)
        behind = Rows.decode(gamma, context, ending)._replace(sequences=0, kv_tokens=ending * gamma)
        drafted = together(cost.prefill("draft", prompts), window, sent)
        return Admission(cost.prefill("target", prompts + behind).wall_s, drafted.wall_s, 0.0)

    def timeline(self, lanes: Lanes, durations: VanillaDurations, kind: Kind) -> Timeline:
        """Book the draft, the transfer behind it, and the verification behind both."""
        if kind.verifying or occurs(durations.draft):
            lane = lanes.target if isinstance(self.drafter, HeadDrafter) else lanes.draft
            lane.occupy(durations.draft, "draft window" if kind.verifying else "draft prefill")
        if occurs(durations.rv):
            lanes.rendezvous.occupy(durations.rv, "window", lanes.draft)
        return (lanes.target.start(durations.target, "verify", lanes.draft, lanes.rendezvous),)

    def claim(
        self,
        cost: Cost,
        requests: int,
        context: int,
        shares: Mapping[Kind, Numbers],
        one_lane: bool,
    ) -> Claim:
        """Return that the law is exact, on one device too: nothing overlaps; but windows of a batch
        are taken as equal.
        """
        if requests > 1 and isinstance(self.adaptive, RequestWindow):
            return Claim(
                "idealised", "windows follow each request, and those of a batch are taken as equal"
            )
        if isinstance(self.adaptive, TierWindow):
            return Claim(
                "idealised",
                "windows follow what a batch accepts, which is taken to be its mean in every step",
            )
        return EXACT

    def step_seconds(self, durations: VanillaDurations, kind: Kind) -> Numbers:
        """Return T_draft + T_rv + T_target in seconds."""
        return durations.draft + durations.rv + durations.target


def _without_windows(states: Sequence[State]) -> int:
    """Take the windows of requests whose draft has not read the prompt; return how many there
    are.
    """
    plain = 0
    for state in states:
        if state.context < state.plain_below:
            state.proposed = 0
            plain += 1
    return plain
