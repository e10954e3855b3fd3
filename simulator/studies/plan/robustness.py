"""Stress-test the answer of a plan: change one thing at a time, and run it again with everything
resampled.

*Sensitivity* changes one thing and runs the answer again; where it no longer meets the SLO, or its
speculation is no longer sure enough to be faster, the whole plan is searched again.

*Chance* runs the answer ``DRAWS`` times, each time resampled. Drawn together: arrivals and lengths
(with a new seed; those of a traffic file stay), the recordings that requests replay (with
replacement, as a bootstrap over what was recorded; stated rates are taken as certain), and every
device faster or slower as a whole, log-normal with the spread of its profile
(:mod:`simulator.scenario.uncertain`). Left out: links, hosts, and that recordings of other models
stand in. The interval is that of Clopper and Pearson for so many draws.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest

from simulator.core.acceptance.assignment import replay_behind
from simulator.core.acceptance.sources import Replay
from simulator.core.acceptance.spec import Rescale, each
from simulator.core.acceptance.window_replay import Walk
from simulator.core.cost.collectives import MeasuredAllReduce, RingAllReduce, TreeAllReduce
from simulator.core.cost.device import Link
from simulator.core.faults import BadInput
from simulator.core.parallel import counted, say
from simulator.core.quantities import replace_nested
from simulator.scenario import Loaded
from simulator.scenario.loading import FEW, written_by
from simulator.scenario.uncertain.devices import devices, with_slower
from simulator.scenario.uncertain.draws import SHARE, Interval
from simulator.studies.plan.file import Candidate, Change
from simulator.studies.plan.headroom import TooShort, lasting_s, with_more
from simulator.studies.plan.search import Finding, Search, examine, keeps, search

DRAWS = 20


@dataclass(frozen=True)
class Sensitivity:
    """Says what becomes of the answer where one thing is harder."""

    change: str
    answer: Finding | None
    """The cheapest fleet that meets the SLO then; None where none does."""
    holds: bool = False
    """Whether that is still the answer of the plan."""
    reason: str = ""
    """Why this change does not apply, or nothing is known of it; empty where neither is so."""
    unknown: bool = False
    """Whether it applies, and the log is too short to tell."""


class Chance(NamedTuple):
    """Counts how often the answer met the SLO in resampled runs."""

    kept: int
    draws: int
    interval: Interval

    @property
    def share(self) -> float:
        """Return the share of draws that met the SLO."""
        return self.kept / self.draws


def fewer_accepted(loaded: Loaded, times: float = 0.9) -> Loaded:
    """Return the scenario with ``times`` the mean accepted draft tokens of a window; a rate by that
    factor.

    A recording is re-scaled, its bursts where they are; raises :class:`BadInput` for one that
    cannot be.
    """
    scenario = loaded.scenario
    spec = loaded.scenario.acceptance
    window = scenario.schedule.window
    if not window:
        return loaded
    if loaded.trace is None:
        if spec.rate is None and spec.per_position is None and spec.lengths is None:
            raise BadInput.at(
                scenario.name, "a constant has no share that could be less", "acceptance"
            )
        fewer = tuple(rate * times for rate in spec.stated_rates)
        rates: dict[str, object] = (
            {"lengths": None, "per_position": fewer} if spec.rate is None else {"rate": fewer[0]}
        )
        return loaded.replace(acceptance=spec.model_copy(update=rates))
    if spec.rescale:
        tokens = each(spec.rescale.tokens_per_step, lambda mean: 1.0 + times * (mean - 1.0))
        return loaded.replace(
            acceptance=spec.model_copy(
                update={"rescale": spec.rescale.model_copy(update={"tokens_per_step": tokens})}
            )
        )
    acceptance = loaded.acceptance()
    if not isinstance(acceptance, Replay):
        raise BadInput.at(
            scenario.name, "this strategy reads more than one run of kept tokens", "acceptance"
        )
    written = written_by(scenario, acceptance) if scenario.requests.count <= FEW else ()
    mean = Walk(written=written).mean(acceptance, window)
    wanted = Rescale(tokens_per_step=1.0 + times * (mean - 1.0), window=window)
    return loaded.replace(acceptance=spec.model_copy(update={"rescale": wanted}))


def slower_links(loaded: Loaded, times: float = 2.0) -> Loaded:
    """Return the scenario with every latency of every link, and the constant of its collectives,
    ``times`` as long.
    """
    scenario = loaded.scenario
    longer = replace_nested(scenario, Link, lambda link: _longer(link, times))
    if longer is scenario:
        raise BadInput.at(scenario.name, "there is none", "link")
    return Loaded(longer, loaded.trace, loaded.document, loaded.verdicts)


def _longer(link: Link, times: float) -> Link:
    def scaled(model: object, name: str) -> dict[str, object]:
        number = getattr(model, name)
        return {name: number.model_copy(update={"value": number.value * times})}

    reduce = replace_nested(
        link.all_reduce,
        RingAllReduce,
        lambda ring: ring.model_copy(update=scaled(ring, "fixed_us")),
    )
    reduce = replace_nested(
        reduce, TreeAllReduce, lambda tree: tree.model_copy(update=scaled(tree, "alpha_us"))
    )
    reduce = replace_nested(reduce, MeasuredAllReduce, lambda table: _later(table, times))
    return link.model_copy(update={**scaled(link, "latency_us"), "all_reduce": reduce})


def _later(table: MeasuredAllReduce, times: float) -> MeasuredAllReduce:
    """Return a table whose constant, the time of its smallest message, is ``times`` as long."""
    added = {ranks: (times - 1.0) * column[0] for ranks, column in table.time_us.items()}
    longer = {
        ranks: tuple(us + added[ranks] for us in column) for ranks, column in table.time_us.items()
    }
    return table.model_copy(update={"time_us": longer})


CHANGES: dict[str, Change] = {
    "10 % fewer accepted tokens": fewer_accepted,
    "links of twice the latency": slower_links,
}


TWICE = "twice the traffic"
"""The change after which a fleet has twice the requests to serve."""


def sensitivity(searched: Search, chosen: Finding) -> list[Sensitivity]:
    """Return what becomes of the answer under each of ``CHANGES``, and of twice the traffic for all
    candidates alike.
    """
    least_s = lasting_s(chosen.candidate.loaded, 2.0, chosen.replicas)
    changes = CHANGES | {TWICE: partial(with_more, factor=2.0, least_s=least_s)}
    return [
        _under(searched, chosen, name, change)
        for name, change in counted(changes.items(), "changes")
    ]


def _under(searched: Search, chosen: Finding, name: str, change: Change) -> Sensitivity:
    """Run the answer under a change; where it misses the SLO, or is no longer sure enough to be
    recommended, search the plan under it.
    """
    say(f"{name}: the answer again")
    try:
        again = examine(chosen.candidate.changed(change), chosen.replicas)
    except BadInput as error:
        unknown = isinstance(error, TooShort)
        return Sensitivity(name, None, reason=error.faults[0].message, unknown=unknown)
    if searched.recommended(again):
        return Sensitivity(name, again, holds=True)

    def harder(candidate: Candidate) -> Candidate:
        try:
            return candidate.changed(change)
        except BadInput:  # a candidate without links, or with nothing to accept, is as it was
            return candidate

    return Sensitivity(name, search(searched.plan.changed(harder), first_only=True).best)


def chance(chosen: Finding, draws: int = DRAWS) -> Chance:
    """Return how often the answer meets the SLO in resampled runs."""
    kept = 0
    for number in counted(range(draws), "resampled runs"):
        resampled = chosen.candidate.changed(partial(_resampled, number=number))
        kept += keeps(resampled, chosen.replicas)
    ends = binomtest(kept, draws).proportion_ci(SHARE)
    return Chance(kept, draws, Interval(float(ends.low), float(ends.high)))


def resampled_runs(chosen: Finding, draws: int = DRAWS) -> Iterator[Finding]:
    """Yield resampled runs of a fleet, each to its end."""
    for number in counted(range(draws), "resampled runs"):
        resampled = chosen.candidate.changed(partial(_resampled, number=number))
        yield examine(resampled, chosen.replicas, "end")


def _resampled(loaded: Loaded, number: int) -> Loaded:
    """Return the scenario with arrivals, recordings and device speeds of draw ``number``."""
    scenario = loaded.scenario
    random = np.random.default_rng((scenario.seed, 3, number))
    spreads = {name: float(random.standard_normal()) for name in devices(scenario)}
    drawn = with_slower(spreads, loaded.replace(seed=scenario.seed + 1 + number))
    if replay := replay_behind(drawn.acceptance()):
        replay.order = [
            replay.order[place]
            for place in random.integers(0, len(replay.order), len(replay.order))
        ]
    return drawn
