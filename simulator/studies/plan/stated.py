"""Fleets that somebody states, side by side: whether each meets the SLO, what it costs, how many
good requests a second it serves, and what limits it.

    h100_sxm:4   -> every method within 4   -> the cheapest that does  -> all 4 with that method
    l40s:8       -> ... none of them does   -> the nearest miss of all 8, and how many would do

All of a fleet's devices serve, as far as replicas of its method fill them. Its runs are resampled
(:mod:`simulator.studies.plan.robustness`); an interval holds ``SHARE`` of the draws.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simulator.core.faults import Infeasible
from simulator.core.parallel import counted, say
from simulator.core.plain import PlainData
from simulator.inputs.catalogue import Catalogue
from simulator.scenario.uncertain.draws import SHARE, Interval
from simulator.studies.plan.file import Plan
from simulator.studies.plan.headroom import Headroom, headroom
from simulator.studies.plan.limits import limit_name
from simulator.studies.plan.question import (
    DEFAULTS,
    PlanQuestion,
    called,
    planned,
    refuse_prices_of_others,
)
from simulator.studies.plan.robustness import DRAWS, resampled_runs
from simulator.studies.plan.search import (
    NONE_OWNED,
    Finding,
    enough,
    examine,
    nearest_miss,
    search,
)
from simulator.studies.plan.split_or_not import goodput_per_s
from simulator.studies.plan.study import finding_data
from simulator.studies.plan.throughput import offered_per_s


@dataclass(frozen=True)
class StatedFleet:
    """Says how one fleet does: so many devices of a name, with the method that suits it best."""

    device: str
    count: int
    usd_per_hour: float | None
    """Price of all of them; None where none is known."""
    whole: Finding | None
    """All of them at work, run to its end; None where not one replica fits."""
    fewest: Finding | None = None
    """The cheapest part of them that meets the SLO; None where none does."""
    would: Finding | None = None
    """The cheapest fleet of more of them that would; None where these do, or no number does."""
    refused: str = ""
    """Why nothing was run; empty where something was."""
    headroom: Headroom | None = None
    """How many times the traffic of the plan all of them carry; None where they do not do."""
    draws: tuple[Finding, ...] = ()
    """Resampled runs of all of them."""
    most: int = 0
    """The most devices that were looked at where these do not do."""

    @property
    def does(self) -> bool:
        """Return whether these devices meet the SLO."""
        return self.fewest is not None

    @property
    def kept(self) -> int:
        """Return how many of the resampled runs met the SLO."""
        return sum(draw.kept for draw in self.draws)

    @property
    def carried_per_s(self) -> float | None:
        """Return the requests a second that all of them carry within the SLO; None if unknown."""
        if self.whole is None or self.headroom is None or self.headroom.times is None:
            return None
        return self.headroom.times * offered_per_s(self.whole.candidate.loaded)

    def interval(self, of: Callable[[Finding], float | None]) -> Interval | None:
        """Return between what ``SHARE`` of the resampled runs lie, widened to the run itself; None
        where nothing is known.
        """
        itself = of(self.whole) if self.whole else None
        values = [value for value in map(of, self.draws) if value is not None]
        if itself is None or not values:
            return None
        low, high = np.quantile(values, [(1.0 - SHARE) / 2.0, (1.0 + SHARE) / 2.0])
        return Interval(min(float(low), itself), max(float(high), itself))


@dataclass(frozen=True)
class StatedFleets:
    """Holds the fleets in the order in which they were stated, and how many runs each interval is
    from.
    """

    fleets: tuple[StatedFleet, ...]
    plans: tuple[Plan, ...]
    """Those of the fleets on which the model has room, at least one: model, traffic and SLO are
    those of all.
    """
    draws: int

    @property
    def assumed(self) -> tuple[str, ...]:
        """Return what was taken by default for any of them, each once."""
        return tuple(dict.fromkeys(words for plan in self.plans for words in plan.file.assumed))

    def as_data(self) -> PlainData:
        """Return plain data."""
        fleets = []
        for fleet in self.fleets:
            fleets.append(_fleet_data(fleet))
        slo = self.plans[0].file.slo.model_dump(exclude_none=True)
        assumed = list(self.assumed)
        return {"slo": slo, "draws": self.draws, "fleets": fleets, "assumed": assumed}


def stated_fleets(
    question: PlanQuestion,
    fleets: Sequence[tuple[str, int]],
    catalogue: Catalogue,
    overrides: tuple[str, ...] = (),
    seed: int | None = None,
    draws: int = DRAWS,
) -> StatedFleets:
    """Return how each of these fleets, a device and how many of it, does what a question asks.

    Raises :class:`BadInput` for a fault of the question, and :class:`Infeasible` where the model
    has room on none of them.
    """
    stated: list[StatedFleet] = []
    plans: list[Plan] = []
    refusals: list[Infeasible] = []
    refuse_prices_of_others(question)
    for device, count in counted(fleets, "fleets"):
        asked = replace(question, devices=(device,), owned={device: count})
        asked = replace(asked, prices=_prices_of(device, question.prices))
        try:
            plan, _ = planned(asked, catalogue, overrides, seed)
        except Infeasible as error:
            refusals.append(error)
            stated.append(StatedFleet(device, count, None, None, refused=error.faults[0].message))
            continue
        plans.append(plan)
        stated.append(_fleet(plan, device, count, draws))
    if not plans:
        raise refusals[0]
    return StatedFleets(tuple(stated), tuple(plans), draws)


def _prices_of(device: str, prices: Mapping[str, float]) -> dict[str, float]:
    """Return the price of a device, where one is stated by its name or that of its file."""
    return {name: price for name, price in prices.items() if name in (device, called(device))}


def _fleet(plan: Plan, device: str, count: int, draws: int) -> StatedFleet:
    """Return how the devices of a plan, all of one name, do."""
    say(f"{count} x {device}")
    (offer,) = plan.file.devices.values()
    price = offer.price_usd_per_hour
    usd_per_hour = None if price.source == DEFAULTS["price"]["source"] else price.value * count
    searched = search(plan)
    fewest = searched.best or next(iter(searched.by_family.values()), None)
    if fewest is None:
        would = next(iter(enough(searched).values()), None)
        whole = nearest_miss(plan)
        if whole is None:
            return StatedFleet(
                device, count, usd_per_hour, None, None, would, NONE_OWNED, most=offer.count
            )
        runs = tuple(resampled_runs(whole, draws))
        return StatedFleet(
            device, count, usd_per_hour, whole, None, would, draws=runs, most=offer.count
        )
    whole = _all_of(fewest)
    runs = tuple(resampled_runs(whole, draws))
    return StatedFleet(
        device, count, usd_per_hour, whole, fewest, headroom=headroom(whole), draws=runs
    )


def _all_of(fewest: Finding) -> Finding:
    """Return the run of as many replicas as there are devices for; the fewest that do where more
    of them would not.
    """
    candidate = fewest.candidate
    most = candidate.sizes[-1]
    if most == fewest.replicas:
        return fewest
    whole = examine(candidate, most, "end")
    return whole if whole.kept else fewest


def strain(finding: Finding) -> float | None:
    """Return how much of its tightest limit a run takes, as a share; None without a run."""
    return finding.tightest.strain if finding.measured else None


def _fleet_data(fleet: StatedFleet) -> PlainData:
    """Return a fleet as plain data."""
    whole = fleet.whole
    intervals: PlainData = {}
    for name, of in {"goodput_requests_per_s": goodput_per_s, "tightest_ratio": strain}.items():
        between = fleet.interval(of)
        intervals[name] = between and between._asdict()
    tightest = whole.tightest if whole else None
    return {
        "device": fleet.device,
        "count": fleet.count,
        "does": fleet.does,
        "kept_draws": fleet.kept,
        "cost_usd_per_hour": fleet.usd_per_hour,
        "whole": whole and finding_data(whole),
        "fewest": fleet.fewest and finding_data(fleet.fewest),
        "would": fleet.would and finding_data(fleet.would),
        "refused": fleet.refused or None,
        "goodput_requests_per_s": whole and goodput_per_s(whole),
        "carried_per_s": fleet.carried_per_s,
        "headroom": fleet.headroom and fleet.headroom.as_data(),
        "limited_by": tightest and limit_name(tightest.limit),
        "tightest_ratio": tightest and tightest.strain,
        "intervals": intervals,
    }
