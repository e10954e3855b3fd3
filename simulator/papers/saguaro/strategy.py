"""In Saguaro the draft, on devices of its own, writes windows for the likeliest outcomes of a
verification while that is on its way; the one that comes true is at hand.

    target    |==verify==|
    draft     |==windows for F_0 + ... + F_gamma outcomes==|==back-up==|
    rendezvous|                                                        |rv|

    T_step = max{T_target, T_ahead} + T_rv      where the outcome was among them
    T_step = T_target + T_backup + T_rv         where it was not: what is written is cut short

An outcome is how many tokens of a window are kept, and the token that the target goes on with:
behind k kept ones the draft writes F_k windows (``fan_out``), in gamma passes over B (F_0 + ... +
F_gamma) rows. A token is not among F with the chance c F^-b, a power law (``miss_of_one``,
``miss_power``). Of several requests those that miss have a window written together, behind the
windows of the others. With hits of chance p, T_target = 1 and no exchange, a request alone is

    (p E_hit + (1 - p) E_miss) / (p max{1, T_ahead} + (1 - p) (1 + T_backup))

times as fast as plain decoding (arXiv 2603.03251, put together from a public summary; the text was
not read, so this is a law of ours). Here the back-up is the draft itself, so that E_hit is E_miss;
a quicker one that keeps less is not there.

Fan-outs that lose least for their rows, F_k ~ P(k)^(1 / (1 + b)) with the chance P(k) that k tokens
are kept, are a geometric series where every token is kept with one chance, with a larger last one;
``specsim law`` prints them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
from random import Random
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from simulator.core.acceptance.cursors import BARE, Chain, Cursor, Verdict
from simulator.core.acceptance.sources import Acceptance, Cycle, Exit, Odds
from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import NO_ROWS, Phase, Rows, together
from simulator.core.cost.stated import StatedDurations
from simulator.core.numeric import Numbers, binomial, occurs, ordered_sum
from simulator.core.quantities import Ranged
from simulator.core.strategies.common.base import LONGEST_WINDOW, Strategy
from simulator.core.strategies.common.beside import DraftsBeside, overlap_s
from simulator.core.strategies.common.capabilities import DerivesNumbers
from simulator.core.strategies.common.chain import cut_to_grants
from simulator.core.strategies.common.claim import Example
from simulator.core.strategies.common.drafters import AutoregressiveDrafter
from simulator.core.strategies.common.law import OddsOf
from simulator.core.strategies.common.step import (
    Admission,
    Kind,
    Lanes,
    Progress,
    State,
    Step,
    Timeline,
    intern_chain,
    intern_kind,
    intern_progress,
)
from simulator.core.strategies.common.traits import Needs, Traits
from simulator.core.strategies.vanilla_sd import TOKEN_BYTES


class SaguaroDurations(NamedTuple):
    """These are the seconds of the verification, of the windows that are written ahead, of those
    that had to be written anew, and of the exchange.
    """

    target: float
    draft: float
    backup: float
    rv: float
    contention: float = 1.0
    """Not a duration: how much slower target and draft are while both use one memory."""


@dataclass(frozen=True)
class CachedOutcomes:
    """Verdicts of a source, each with whether its outcome was not written ahead (``off_exit``):
    drawn for every step on its own, or as evenly as can be where verdicts are a cycle.
    """

    verdicts: Acceptance
    misses: tuple[float, ...]
    """Chance of a miss behind 0, 1, ... kept tokens."""

    def cursor(self, request: int, exit: Exit | None) -> "OutcomeCursor":
        """Return a cursor with random numbers of its own."""
        random = None if isinstance(self.verdicts, Cycle) else Random(f"outcomes/{request}")
        return OutcomeCursor(self.verdicts.cursor(request, exit), self.misses, random)

    def odds(self, gamma: int, exit: Exit | None) -> Odds:
        """Return the odds of the verdicts, with the chance of a miss behind each."""
        odds = self.verdicts.odds(gamma, exit)
        accepted = odds.accepted
        misses = np.array(self.misses[: gamma + 1])
        missed = accepted * misses.reshape(misses.shape + (1,) * (accepted.ndim - 1))
        return replace(odds, off_exit=missed)


class OutcomeCursor:
    """A cursor that says of each verdict whether its outcome was not written ahead."""

    def __init__(self, cursor: Cursor, misses: Sequence[float], random: Random | None) -> None:
        self.cursor = cursor
        self.misses = misses
        self.random = random
        self.owed = 0.0
        """Misses that are due, where none is drawn."""

    def judge(self, proposal: Chain) -> Verdict:
        """Verify a proposal and return the verdict."""
        judged = self.cursor.judge(proposal)
        chance = self.misses[judged.accepted]
        if self.random:
            missed = self.random.random() < chance
        else:
            self.owed += chance
            missed = self.owed >= 1.0
            self.owed -= missed
        return judged._replace(off_exit=missed)


class Saguaro(DraftsBeside, Strategy[SaguaroDurations], DerivesNumbers):
    """Windows of ``gamma`` tokens are written ahead for ``fan_out`` outcomes."""

    name: Literal["saguaro"] = "saguaro"
    traits: ClassVar[Traits] = Traits(
        SaguaroDurations,
        "max{T_target, T_ahead} on a hit, T_target + T_backup on a miss (Saguaro, as restated)",
        hidden_behind="target",
    )

    gamma: int = Field(default=7, ge=1, le=LONGEST_WINDOW)
    """Draft tokens of a window."""
    fan_out: tuple[Annotated[int, Field(ge=1, le=10_000)], ...] = Field(
        default=(3,), min_length=1, max_length=LONGEST_WINDOW + 1
    )
    """Windows written ahead behind 0, 1, ... kept tokens; the last one repeats."""
    miss_of_one: Ranged = Ranged(
        value=0.5, low=0.2, high=0.8, source="assumed: nobody measured it", confidence="assumed"
    )
    """Chance that the target goes on with another token than the likeliest of the draft's that
    were not refused (c).
    """
    miss_power: Ranged = Ranged(
        value=0.7, low=0.3, high=1.2, source="assumed: nobody measured it", confidence="assumed"
    )
    """Exponent by which that falls with the fan-out (b)."""
    bonus_on_full_accept: Literal[True] = True

    @classmethod
    def example(cls) -> Example:
        """Return windows of three tokens for four outcomes each, every other of which is missed."""
        strategy = cls(
            gamma=3,
            fan_out=(4,),
            miss_of_one=Ranged(value=1.0),
            miss_power=Ranged(value=0.5),
        )
        durations = StatedDurations(target_ms=18.0, draft_step_ms=7.0, rv_fv_ms=0.2)
        return Example(strategy, durations, contention=1.25)

    @property
    def window(self) -> int:
        """Return gamma."""
        return self.gamma

    @property
    def needs(self) -> Needs:
        """Return the needs of a draft model; its caches of windows that never come true are left
        out.
        """
        return Needs(draft_model=True, draft_steps=self.gamma, cache_tokens=self.gamma + 1)

    def fan_out_behind(self, kept: int) -> int:
        """Return the windows written ahead behind so many kept tokens."""
        return self.fan_out[min(kept, len(self.fan_out) - 1)]

    @property
    def fan_outs(self) -> tuple[int, ...]:
        """Return the windows written ahead behind 0, 1, ... gamma kept tokens."""
        return tuple(map(self.fan_out_behind, range(self.gamma + 1)))

    def miss_among(self, windows: int) -> float:
        """Return the chance that an outcome is not among so many windows written ahead for it."""
        return min(1.0, self.miss_of_one.value * float(windows**-self.miss_power.value))

    def reads(self, verdicts: Acceptance) -> Acceptance:
        """Return the verdicts, each with whether its outcome was written ahead."""
        return CachedOutcomes(verdicts, tuple(map(self.miss_among, self.fan_outs)))

    # ---- the batch

    def open(self, cursor: Cursor, context: int, drafted: bool = True) -> State:
        """Return a request; without a first window it has a single token verified first."""
        return State(cursor, context, ready=drafted)

    def compose(self, states: Sequence[State], prompts: Rows = NO_ROWS) -> Step:
        """Return a step in which all windows are verified; what follows says how the draft spends
        it, so their verdicts are foreseen.
        """
        missed = bare = missed_context = 0
        for state in states:
            state.proposed = self.gamma if state.ready else 0
        rows = cut_to_grants(states)
        for state in states:
            tokens = state.proposed or 0
            state.foreseen = state.cursor.judge(intern_chain(tokens, True) if tokens else BARE)
            bare += not tokens
            if state.foreseen.off_exit:
                missed += 1
                missed_context += state.context
        kind = intern_kind(
            "step", len(states) - bare, bare, redrafts=missed, prompts=prompts.sequences
        )
        return Step(kind, rows, missed_context, prompts)

    def settle(self, states: Sequence[State]) -> list[Progress]:
        """Take over what was foreseen; every request has a window by the end of the step."""
        settled = []
        for state in states:
            accepted, committed, missed, _ = state.foreseen
            state.context += committed
            state.ready = True
            progress = intern_progress(committed, committed, accepted, state.proposed or 0)
            settled.append(progress._replace(missed=missed))
        return settled

    # ---- the time

    def phases(self, cost: Cost, step: Step) -> dict[str, Phase]:
        """Return one pass of the target, the passes of the draft over a row for each outcome, and
        over one for each request that missed.
        """
        kind = step.kind
        ahead = []
        if step.prompts.sequences:
            ahead.append(cost.prefill("draft", step.prompts))
        if kind.batch:
            branches = kind.verifying * sum(self.fan_outs) + kind.bare * self.fan_out_behind(0)
            inner = AutoregressiveDrafter().step(cost, branches, kind.batch, step.rows.kv_tokens)
            ahead.append(together(inner, times=self.gamma))
        return {
            "target": cost.target(step.rows + step.prompts),
            "draft": together(*ahead),
            "backup": self._window(cost, kind.redrafts, step.redraft_kv_tokens),
            "rv": cost.rendezvous("fv", 0, kind.batch * self.gamma * TOKEN_BYTES)
            if kind.batch
            else Phase(0.0, {}),
        }

    def _window(self, cost: Cost, requests: int, kv_tokens: Numbers) -> Phase:
        """Return the passes of a window for each of so many requests."""
        if not requests:
            return Phase(0.0, {})
        inner = AutoregressiveDrafter().step(cost, requests, requests, kv_tokens)
        return together(inner, times=self.gamma)

    def admission(self, cost: Cost, prompts: Rows, ending: int = 0, context: int = 0) -> Admission:
        """Return the seconds of prompts through both models, and of a first window of those that
        end here.
        """
        admission = super().admission(cost, prompts, ending, context)
        window = self._window(cost, ending, context + ending).wall_s
        return admission._replace(window=window)

    def timeline(self, lanes: Lanes, durations: SaguaroDurations, kind: Kind) -> Timeline:
        """Book both sides, the back-up behind both, and the exchange."""
        t = durations
        target, draft = lanes.target, lanes.draft
        target.occupy(t.target, "verify")
        draft.occupy(_written(t, kind), "draft outcomes")
        if occurs(t.backup):
            draft.occupy(t.backup, "back-up", target)
        return (lanes.rendezvous.start(t.rv, "windows", target, draft),)

    def derived(self, cost: Cost, step: Step, odds: OddsOf) -> dict[str, float]:
        """Return the outcomes that are written ahead and the share that is missed, with the
        fan-outs of as many outcomes that would miss fewest.
        """
        chances = list(map(float, odds(self.gamma).accepted))
        best = best_fan_outs(chances, sum(self.fan_outs), self.miss_power.value)

        def missed(fan_outs: Sequence[int]) -> float:
            pairs = zip(chances, map(self.miss_among, fan_outs), strict=True)
            return ordered_sum(chance * miss for chance, miss in pairs)

        return {
            "outcomes": float(sum(self.fan_outs)),
            "missed_share": missed(self.fan_outs),
            "least_missed_share": missed(best),
            **{f"best_fan_out_behind_{kept}": float(count) for kept, count in enumerate(best)},
        }

    # ---- the law

    def step_seconds(self, durations: SaguaroDurations, kind: Kind) -> Numbers:
        """Return the seconds of the longer side, with the contention of one memory, of the back-up
        and of the exchange.
        """
        t = durations
        return overlap_s(t.target, _written(t, kind), t.contention) + t.backup + t.rv

    def kinds(self, odds: OddsOf, requests: int) -> Mapping[Kind, Numbers]:
        """Return the share of each number of requests that miss: binomial, as they do not heed each
        other.
        """
        missed = ordered_sum(odds(self.gamma).off_exit)
        return {
            intern_kind("step", requests, redrafts=count): chance
            for count, chance in binomial(requests, missed).items()
        }


def _written(durations: SaguaroDurations, kind: Kind) -> Numbers:
    """Return the seconds of what is written ahead; as long as the verification at most where every
    request misses, as it is cut short then.
    """
    if kind.redrafts == kind.batch and not kind.prompts:
        return np.minimum(durations.draft, durations.target)
    return durations.draft


def best_fan_outs(chances: Sequence[float], rows: int, power: float) -> tuple[int, ...]:
    """Return the fan-outs of so many ``rows`` that lose fewest windows.

    ``chances``: of 0, 1, ... kept tokens; a miss behind k of them is as likely as F_k^-power. Each
    has one row at least; raises ValueError for fewer rows than that.
    """
    if rows < len(chances):
        raise ValueError(f"expected a row for each of {len(chances)} outcomes, got {rows}")
    fan_outs = [1] * len(chances)

    def worth(place: int) -> tuple[float, int]:
        fan_out = fan_outs[place]
        return chances[place] * (float((fan_out + 1) ** -power) - float(fan_out**-power)), place

    places = list(map(worth, range(len(chances))))
    heapify(places)
    for _ in range(rows - len(chances)):
        _, place = places[0]
        fan_outs[place] += 1
        heapreplace(places, worth(place))
    return tuple(fan_outs)
