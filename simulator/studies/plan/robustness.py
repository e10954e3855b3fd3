"""How sure a plan is: what if the world is harder than it says, and the chance that the SLO is kept in a world drawn anew.

*Sensitivity* changes one thing and runs the answer again; where it no longer keeps the SLO, the whole plan is searched anew.

*Chance* draws the world ``DRAWS`` times and runs the answer in each. Drawn together: arrivals and lengths (another seed; those
of a traffic file stay), the recordings that requests replay (with replacement, as a bootstrap over what was recorded; stated
rates are taken as certain), and every device faster or slower as a whole, log-normal with the spread of its profile
(:mod:`simulator.scenario.uncertainty`). Left out: links, hosts, and that recordings of other models stand in. The interval
is that of Clopper and Pearson for so many draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest

from simulator.acceptance.assignment import replay_behind
from simulator.acceptance.sources import Replay
from simulator.acceptance.spec import Rescale
from simulator.acceptance.window_replay import WindowReplay
from simulator.cost.device import Link, RingAllReduce, TreeAllReduce
from simulator.files.schema import BadInput, Fault, replace_nested
from simulator.scenario import Loaded
from simulator.scenario.uncertainty import SHARE, Interval, devices, with_slower
from simulator.studies.capacity import faster
from simulator.studies.plan.file import Candidate, Plan
from simulator.studies.plan.search import Finding, Search, Tell, examine, search, with_loaded

DRAWS = 20
Change = Callable[[Loaded], Loaded]


@dataclass(frozen=True)
class Sensitivity:
    """The answer where one thing is harder."""

    change: str
    answer: Finding | None
    """What keeps the SLO then; None where nothing does."""
    holds: bool = False
    """It is the answer of the plan."""
    reason: str = ""
    """Why this cannot be asked."""


class Chance(NamedTuple):
    """How often the SLO was kept."""

    kept: int
    draws: int
    interval: Interval

    @property
    def share(self) -> float:
        """Of all draws."""
        return self.kept / self.draws


def fewer_accepted(loaded: Loaded, times: float = 0.9) -> Loaded:
    """Mean accepted draft tokens of a window ``times`` what they are; a rate by that factor.

    A recording is re-scaled, its bursts where they are; raises :class:`BadInput` for one that cannot be.
    """
    scenario, spec = loaded.scenario, loaded.scenario.acceptance
    window = scenario.schedule.window
    if not window:
        return loaded
    if loaded.trace is None:
        if spec.rate is None and spec.per_position is None:
            raise BadInput([Fault((scenario.name, 0, 0), "acceptance", "a constant has no share that could be less")])
        one, several = spec.rate, spec.per_position
        rates = {"rate": one and one * times, "per_position": several and tuple(each * times for each in several)}
        return loaded.replace(acceptance=spec.model_copy(update=rates))
    if spec.rescale:
        tokens = 1.0 + times * (spec.rescale.tokens_per_step - 1.0)
        return loaded.replace(
            acceptance=spec.model_copy(update={"rescale": spec.rescale.model_copy(update={"tokens_per_step": tokens})})
        )
    acceptance = loaded.acceptance()
    if not isinstance(acceptance, Replay):
        raise BadInput([Fault((scenario.name, 0, 0), "acceptance", "this strategy reads more than one run of kept tokens")])
    wanted = Rescale(tokens_per_step=1.0 + times * WindowReplay.of(acceptance).mean(window), window=window)
    return loaded.replace(acceptance=spec.model_copy(update={"rescale": wanted}))


def slower_links(loaded: Loaded, times: float = 2.0) -> Loaded:
    """Every latency of every link, and the constant of its collectives, ``times`` as long."""
    scenario = loaded.scenario
    longer = replace_nested(scenario, Link, lambda link: _longer(link, times))
    if longer is scenario:
        raise BadInput([Fault((scenario.name, 0, 0), "link", "there is none")])
    return Loaded(longer, loaded.trace, loaded.document)


def _longer(link: Link, times: float) -> Link:
    def scaled(one: object, name: str) -> dict[str, object]:
        number = getattr(one, name)
        return {name: number.model_copy(update={"value": number.value * times})}

    reduce = replace_nested(link.all_reduce, RingAllReduce, lambda ring: ring.model_copy(update=scaled(ring, "fixed_us")))
    reduce = replace_nested(reduce, TreeAllReduce, lambda tree: tree.model_copy(update=scaled(tree, "alpha_us")))
    return link.model_copy(update={**scaled(link, "latency_us"), "all_reduce": reduce})


CHANGES: dict[str, Change] = {
    "10 % fewer accepted tokens": fewer_accepted,
    "links of twice the latency": slower_links,
    "twice the traffic": lambda loaded: faster(loaded, 2.0),
}


def sensitivity(found: Search, chosen: Finding, tell: Tell = lambda text: None) -> list[Sensitivity]:
    """The answer under each of ``CHANGES``."""
    return [_under(found, chosen, name, change, tell) for name, change in CHANGES.items()]


def _under(found: Search, chosen: Finding, name: str, change: Change, tell: Tell) -> Sensitivity:
    tell(f"{name}: the answer again")
    try:
        again = examine(_changed(chosen.candidate, change), chosen.replicas)
    except BadInput as error:
        return Sensitivity(name, None, reason=error.faults[0].message)
    if again.kept:
        return Sensitivity(name, again, holds=True)
    harder = []
    for one in found.plan.candidates:
        try:
            harder.append(_changed(one, change))
        except BadInput:  # a candidate without links, or with nothing to accept, is as it was
            harder.append(one)
    plan = Plan(found.plan.file, tuple(harder), found.plan.left_out)
    return Sensitivity(name, search(plan, first_only=True, tell=lambda text: tell(f"{name}: {text}")).best)


def _changed(candidate: Candidate, change: Change) -> Candidate:
    return with_loaded(candidate, change(candidate.loaded))


def chance(chosen: Finding, draws: int = DRAWS, tell: Tell = lambda text: None) -> Chance:
    """How often the answer keeps the SLO in worlds drawn anew."""
    kept = 0
    for number in range(draws):
        tell(f"world {number + 1} of {draws}")
        drawn = _drawn(chosen.candidate.loaded, number)
        kept += examine(with_loaded(chosen.candidate, drawn), chosen.replicas).kept
    ends = binomtest(kept, draws).proportion_ci(SHARE)
    return Chance(kept, draws, Interval(float(ends.low), float(ends.high)))


def _drawn(loaded: Loaded, number: int) -> Loaded:
    """World ``number``."""
    scenario = loaded.scenario
    random = np.random.default_rng((scenario.seed, 3, number))
    spreads = {name: float(random.standard_normal()) for name in devices(scenario)}
    drawn = with_slower(spreads, loaded.replace(seed=scenario.seed + 1 + number))
    if replay := replay_behind(drawn.acceptance()):
        replay.order = [replay.order[place] for place in random.integers(0, len(replay.order), len(replay.order))]
    return drawn
