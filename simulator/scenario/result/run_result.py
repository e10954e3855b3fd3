"""The result of one scenario, and what follows from its law, its replay and its simulation."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from simulator.core.acceptance.sources import Odds
from simulator.core.cost.rows import Phase
from simulator.core.numeric import quotient
from simulator.core.plain import PlainData
from simulator.core.quantities import provenance
from simulator.core.strategies.common.capabilities import Appendix
from simulator.core.strategies.common.law import Law
from simulator.core.strategies.common.step import Kind
from simulator.core.world import Span
from simulator.scenario import Scenario
from simulator.scenario.agreement import Agreement, GapPart, agreement, explained_gap
from simulator.scenario.cache_cost import CacheCost
from simulator.scenario.decision.answer import Decision
from simulator.scenario.expenses import Expenses, expenses
from simulator.scenario.outcome import Mean, Outcome
from simulator.scenario.result.closed_loop import WaitingClients
from simulator.scenario.stated.means import StatedMean


def speedup_between(scenario: Scenario, outcome: Outcome, baseline: Outcome) -> float:
    """Return the speed-up of an outcome over that of autoregressive decoding.

    Where clients wait for room in the cache, a draft takes room from the batch, which no time per
    token shows: then it is that of tokens per second.
    """
    if scenario.waits:
        rates = quotient(outcome.tokens_per_s, baseline.tokens_per_s)
        if rates is not None:
            return rates
    return baseline.tpot_s / outcome.tpot_s


@dataclass(frozen=True)
class RunResult:
    """A scenario with its law, its replay, its simulation, and what they show."""

    scenario: Scenario
    command: str
    """The command line that makes this result again; empty for none."""
    law: Law
    """The law with marginal acceptance rates."""
    law_replayed: Law
    """The law with the acceptance and step kinds that the simulation counted, so no prediction of
    either.
    """
    replay: Outcome
    simulated: Outcome
    odds: Odds
    """Chances of each outcome of one verified window, from marginal rates."""
    baseline: Outcome
    """The simulation of autoregressive decoding: the same requests on the same target."""
    phases: Mapping[Kind, Mapping[str, Phase]]
    """Seconds of the named phases of a step, by step kind, at the mean context."""
    spans: list[Span]
    """The first ``SPANS`` busy intervals of each lane."""
    appendix: Appendix | None
    """What the strategy alone finds in the acceptance; None where it finds nothing."""
    caveats: tuple[str, ...]
    """Sentences on what the law leaves out and where acceptance comes from."""
    cautions: tuple[str, ...] = ()
    """Sentences that stand beside the headline (:func:`simulator.scenario.caveats.cautions`)."""
    stated: StatedMean | None = None
    """The mean that acceptance states beside that of the requests that ran; None where none is
    stated.
    """
    together: Outcome | None = None
    """The simulation of the same replicas where each reads and decodes; None without pools of
    prefill and decode on devices that are alike.
    """
    cache_cost: CacheCost | None = None
    """What speculation costs the prefix cache; None where nothing is kept or drafted."""
    closed_loop: WaitingClients | None = None
    """The closed loop by law, where clients wait for room in the cache; None where none do."""
    rests_on: str = ""
    """What in doubt the speed-up rests on
    (:func:`simulator.scenario.uncertain.footings.rests_on`); empty where that is little.
    """
    doubts: tuple[str, ...] = ()
    """The numbers in doubt of that sentence, each in words, that which moves the speed-up most
    first.
    """
    intervals: PlainData = field(default_factory=dict)
    """Intervals of step, time per token, rate and speed-up
    (:func:`simulator.scenario.uncertain.intervals.intervals_data`).
    """
    decision: Decision | None = None
    """Whether to switch speculation on; None where nothing is drafted."""
    replications: Mapping[str, Mean] = field(default_factory=dict)
    """Means of metrics over seeds (:mod:`simulator.scenario.replications`), where more than one was
    simulated.
    """
    seeds: int = 1
    """Number of seeds behind them."""
    explain_gap: bool = False
    """Reports measure what explains the gap between law and simulation."""

    @property
    def speedup(self) -> float:
        """Return the time per token of autoregressive decoding over that of this run, both
        simulated; where clients wait, tokens per second over those of autoregressive decoding.
        """
        return speedup_between(self.scenario, self.simulated, self.baseline)

    @property
    def speedup_with_prompts(self) -> float | None:
        """Return tokens per second, prompts included, over those of autoregressive decoding, both
        simulated.

        None where autoregressive decoding shows no token while requests count.
        """
        return quotient(self.simulated.tokens_per_s, self.baseline.tokens_per_s)

    @property
    def busy(self) -> dict[str, float]:
        """Return the busy share of each lane that was used, over the whole run."""
        busy_s = self.simulated.busy_s
        end_s = self.simulated.end_s
        return {lane: busy_s[lane] / end_s for lane in sorted(busy_s) if busy_s[lane]}

    @property
    def expenses(self) -> Expenses | None:
        """Return what the simulated tokens cost in USD and joules; None without devices."""
        return expenses(self.scenario, self.simulated)

    @property
    def agreement(self) -> Agreement:
        """Return what the law claims, and what this run shows of it."""
        return agreement(self.scenario, self.law, self.replay, self.simulated)

    @property
    def gap_parts(self) -> tuple[GapPart, ...]:
        """Return what the gap from the law with marginal rates to the simulation is made of; empty
        unless ``explain_gap``.
        """
        if not self.explain_gap:
            return ()
        return explained_gap(
            self.scenario, self.law, self.law_replayed, self.replay, self.simulated
        )

    def provenance(self) -> list[dict[str, object]]:
        """Return every number of the scenario that has a source, with it."""
        return list(provenance(self.scenario))
