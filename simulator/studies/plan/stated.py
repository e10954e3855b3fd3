"""Fleets that somebody states, side by side: whether each meets the SLO, what it costs, how many
good requests a second it serves, and what limits it.

    h100_sxm:4         -> what all 4 carry, by which method -> all 4 with that method
    l40s:8             -> ... less than is asked -> the nearest miss of all 8, how many would do
    h100_sxm:4+l40s:8  -> each with the share of the requests that it carries

All of a fleet's devices serve, as far as replicas of its method fill them: by the method that
carries most (:mod:`simulator.studies.plan.carried`), and where that misses the SLO at the planned
rate, or nothing is known of more requests, by the one that meets it on the fewest devices. Its runs
are resampled (:mod:`simulator.studies.plan.robustness`); an interval holds ``SHARE`` of the draws.

*Together.* Devices of several kinds are groups that serve beside each other: requests are dealt
among them by share, and none waits for another group. Where each group keeps the SLO for its share,
so do all requests together, as no percentile of them is above the largest of the groups'. Shares
are in proportion to what groups carry, by law where that is not known. A group that carries nothing
gets none, nor does one that misses the SLO where the others do without it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf

import numpy as np

from simulator.core.faults import BadInput, Infeasible
from simulator.core.parallel import counted, say
from simulator.core.plain import PlainData
from simulator.core.serving.load.busier import busier
from simulator.inputs.catalogue import Catalogue
from simulator.scenario.uncertain.draws import SHARE, Interval
from simulator.studies.plan.carried import DeviceCapacity, carried
from simulator.studies.plan.export import served_answer
from simulator.studies.plan.file import Candidate, Plan
from simulator.studies.plan.limits import limit_name
from simulator.studies.plan.line.words import CountedGroup
from simulator.studies.plan.question import (
    PlanQuestion,
    called,
    planned,
    refuse_prices_of_others,
)
from simulator.studies.plan.robustness import DRAWS, resampled_runs
from simulator.studies.plan.search import (
    NONE_OWNED,
    Finding,
    all_of,
    enough,
    examine,
    nearest_miss,
    search,
)
from simulator.studies.plan.split_or_not import goodput_per_s
from simulator.studies.plan.study import finding_data
from simulator.studies.plan.throughput import by_law, offered_per_s

CARRIES_NOTHING = "no method meets the SLO there, however few requests come"
"""Why a group is dealt nothing that carries nothing."""
FleetRun = tuple[Finding, ...]
"""Runs of the groups of a fleet at the same time."""


@dataclass(frozen=True)
class FleetGroup:
    """Says how the devices of one kind in a fleet do, with the method that suits them best."""

    group: CountedGroup
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
    carried: DeviceCapacity | None = None
    """What all of them carry, by which method; None where not one replica fits."""
    draws: tuple[Finding, ...] = ()
    """Resampled runs of all of them."""
    most: int = 0
    """The most devices that were looked at where these do not do."""
    share: float = 1.0
    """Share of the requests that they are dealt."""

    @property
    def does(self) -> bool:
        """Return whether these devices meet the SLO."""
        return self.fewest is not None

    @property
    def short(self) -> bool:
        """Return whether they are known to carry less than their share of the planned traffic."""
        times = self.carried.room.times if self.carried else None
        return times is not None and times < self.share

    def as_data(self) -> PlainData:
        """Return plain data."""
        return {
            "device": self.group.device,
            "count": self.group.count,
            "share": self.share,
            "does": self.does,
            "cost_usd_per_hour": self.usd_per_hour,
            "whole": self.whole and finding_data(self.whole),
            "fewest": self.fewest and finding_data(self.fewest),
            "would": self.would and finding_data(self.would),
            "refused": self.refused or None,
            "carried_per_s": self.carried and self.carried.per_s,
            "carried": self.carried and self.carried.as_data(),
        }


@dataclass(frozen=True)
class StatedFleet:
    """Says how one fleet does: the groups of devices that it has."""

    groups: tuple[FleetGroup, ...]

    @property
    def name(self) -> str:
        """Return how many of which devices it has."""
        return " + ".join(str(part.group) for part in self.groups)

    @property
    def serving(self) -> tuple[FleetGroup, ...]:
        """Return the groups that are dealt requests."""
        return tuple(part for part in self.groups if part.share)

    @property
    def does(self) -> bool:
        """Return whether these devices meet the SLO."""
        return bool(self.serving) and all(part.does for part in self.serving)

    @property
    def usd_per_hour(self) -> float | None:
        """Return the price of all devices; None where that of some is not known."""
        prices = [part.usd_per_hour for part in self.groups]
        known = [price for price in prices if price is not None]
        return sum(known) if len(known) == len(prices) else None

    @property
    def whole(self) -> FleetRun | None:
        """Return the run of all devices; None where a group that serves has none."""
        runs = [part.whole for part in self.serving if part.whole]
        return tuple(runs) if runs and len(runs) == len(self.serving) else None

    @property
    def draws(self) -> list[FleetRun]:
        """Return the resampled runs, all groups in each."""
        return list(zip(*(part.draws for part in self.serving), strict=True))

    @property
    def kept(self) -> int:
        """Return how many of the resampled runs met the SLO."""
        return sum(all(run.kept for run in draw) for draw in self.draws)

    @property
    def carrying(self) -> list[DeviceCapacity]:
        """Return what each of its groups carries on which a replica has room."""
        return [part.carried for part in self.groups if part.carried is not None]

    @property
    def capped(self) -> bool:
        """Return whether it may carry more than was tried."""
        return any(use.room.capped for use in self.carrying)

    @property
    def carried_per_s(self) -> float | None:
        """Return the requests a second that all devices carry within the SLO, each group as many as
        it can, whatever is planned; None if unknown.
        """
        carried = [use.per_s for use in self.carrying]
        known = [rate for rate in carried if rate is not None]
        return sum(known) if known and len(known) == len(carried) else None

    @property
    def burst(self) -> bool:
        """Return whether it meets the SLO for the planned requests alone: of more that come as fast
        it carries less than all.
        """
        return self.does and any(part.short for part in self.serving)

    @property
    def carried_between(self) -> Interval | None:
        """Return between what that lies, as few requests are known: the same few in each group;
        None where enough are.
        """
        low = high = 0.0
        unsure = False
        for use in self.carrying:
            unsure = unsure or use.between is not None
            between = use.between or Interval(use.per_s or 0.0, use.per_s or 0.0)
            low += between.low
            high += between.high
        return Interval(low, high) if unsure else None

    def interval(self, of: Callable[[FleetRun], float | None]) -> Interval | None:
        """Return between what ``SHARE`` of the resampled runs lie, widened to the run itself; None
        where nothing is known.
        """
        itself = of(self.whole) if self.whole else None
        values = [value for value in map(of, self.draws) if value is not None]
        if itself is None or not values:
            return None
        low, high = np.quantile(values, [(1.0 - SHARE) / 2.0, (1.0 + SHARE) / 2.0])
        return Interval(min(float(low), itself), max(float(high), itself))

    def as_data(self) -> PlainData:
        """Return plain data: of a fleet of one kind of device what its group says, too."""
        data: PlainData = self.groups[0].as_data() if len(self.groups) == 1 else {}
        intervals: PlainData = {}
        for name, of in {"goodput_requests_per_s": good_per_s, "tightest_ratio": strain}.items():
            between = self.interval(of)
            intervals[name] = between and between._asdict()
        tightest = self.whole and tightest_of(self.whole).tightest
        return data | {
            "fleet": self.name,
            "does": self.does,
            "kept_draws": self.kept,
            "cost_usd_per_hour": self.usd_per_hour,
            "goodput_requests_per_s": self.whole and good_per_s(self.whole),
            "carried_per_s": self.carried_per_s,
            "burst": self.burst,
            "limited_by": tightest and limit_name(tightest.limit),
            "tightest_ratio": tightest and tightest.strain,
            "intervals": intervals,
            "groups": [part.as_data() for part in self.groups],
        }


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
        fleets = [fleet.as_data() for fleet in self.fleets]
        slo = self.plans[0].file.slo.model_dump(exclude_none=True)
        assumed = list(self.assumed)
        return {"slo": slo, "draws": self.draws, "fleets": fleets, "assumed": assumed}


def good_per_s(run: FleetRun) -> float | None:
    """Return the requests a second within the SLO of all groups; None without a run to its end."""
    rates = [goodput_per_s(finding) for finding in run]
    known = [rate for rate in rates if rate is not None]
    return sum(known) if len(known) == len(rates) else None


def strain(run: FleetRun) -> float | None:
    """Return how much of the tightest limit a fleet takes, as a share; None without a run."""
    if not all(finding.measured for finding in run):
        return None
    return tightest_of(run).tightest.strain


def tightest_of(run: FleetRun) -> Finding:
    """Return the group that takes most of a limit."""
    return max(run, key=lambda finding: finding.tightest.strain)


def usd_per_million_tokens(run: FleetRun) -> float | None:
    """Return the price of a million output tokens of all groups (USD); None without a run."""
    usd = 0.0
    million_tokens = 0.0
    for finding in run:
        if finding.expenses is None:
            return None
        usd += finding.cost_usd_per_hour
        if finding.cost_usd_per_hour:
            million_tokens += finding.cost_usd_per_hour / finding.cost_usd_per_million_tokens
        elif finding.outcome:
            million_tokens += finding.outcome.tokens_per_s * 3600.0 / 1e6
    return usd / million_tokens


def stated_fleets(
    question: PlanQuestion,
    fleets: Sequence[Sequence[CountedGroup]],
    catalogue: Catalogue,
    overrides: tuple[str, ...] = (),
    seed: int | None = None,
    draws: int = DRAWS,
) -> StatedFleets:
    """Return how each of these fleets, of one group of devices or several, does what a question
    asks.

    Raises :class:`BadInput` for a fault of the question, and :class:`Infeasible` where the model
    has room on none of them.
    """
    refuse_prices_of_others(question)
    plans: dict[CountedGroup, Plan | Infeasible] = {}
    for group in dict.fromkeys(group for fleet in fleets for group in fleet):
        asked = replace(question, devices=(group.device,), owned={group.device: group.count})
        asked = replace(asked, prices=_prices_of(group.device, question.prices))
        try:
            plans[group], _ = planned(asked, catalogue, overrides, seed)
        except Infeasible as error:
            plans[group] = error
    with_room = [plan for plan in plans.values() if isinstance(plan, Plan)]
    if not with_room:
        raise next(error for error in plans.values() if isinstance(error, Infeasible))
    carry = {}
    for group, plan in plans.items():
        if isinstance(plan, Plan):
            carry[group] = carried(plan.candidates, plan.file.least_chance)
    stated = []
    for fleet in counted(fleets, "fleets"):
        stated.append(_fleet({group: plans[group] for group in fleet}, carry, draws))
    return StatedFleets(tuple(stated), tuple(with_room), draws)


def _prices_of(device: str, prices: Mapping[str, float]) -> dict[str, float]:
    """Return the price of a device, where one is stated by its name or that of its file."""
    return {name: price for name, price in prices.items() if name in (device, called(device))}


Carry = Mapping[CountedGroup, DeviceCapacity | None]
"""What groups of devices carry; None where not one replica fits."""


def _fleet(
    plans: Mapping[CountedGroup, Plan | Infeasible], carry: Carry, draws: int
) -> StatedFleet:
    """Return how groups of devices do side by side."""
    roomy = {group: plan for group, plan in plans.items() if isinstance(plan, Plan)}
    dealt = _without_those_that_miss(_dealt(roomy, carry, draws), roomy, carry, draws)
    groups = []
    for group, plan in plans.items():
        if isinstance(plan, Infeasible):
            alone = 1.0 if len(plans) == 1 else 0.0
            refused = plan.faults[0].message
            groups.append(FleetGroup(group, None, None, refused=refused, share=alone))
        else:
            groups.append(dealt[group])
    return StatedFleet(tuple(groups))


def _without_those_that_miss(
    dealt: dict[CountedGroup, FleetGroup],
    plans: Mapping[CountedGroup, Plan],
    carry: Carry,
    draws: int,
) -> dict[CountedGroup, FleetGroup]:
    """Return the groups with nothing dealt to those that miss the SLO, where the others do without
    them; else as they were dealt.
    """
    enough = {group: plans[group] for group, part in dealt.items() if part.does}
    misses = any(part.share and not part.does for part in dealt.values())
    if not (misses and enough):
        return dealt
    without = _dealt(enough, carry, draws)
    if not all(part.does for part in without.values() if part.share):
        return dealt
    rest = {group: replace(part, share=0.0) for group, part in dealt.items()}
    return rest | without


def _dealt(
    plans: Mapping[CountedGroup, Plan], carry: Carry, draws: int
) -> dict[CountedGroup, FleetGroup]:
    """Return how each group does with its share of the requests."""
    dealt = {}
    for group, share in _shares(plans, carry).items():
        plan = plans[group]
        if not share:
            usd = _usd_per_hour(plan, group)
            use = carry[group]
            dealt[group] = FleetGroup(
                group, usd, None, refused=CARRIES_NOTHING, carried=use, share=0.0
            )
            continue
        if share < 1.0:
            plan = plan.changed(partial(_with_share, share=share))
        dealt[group] = replace(_group(plan, group, carry[group], draws), share=share)
    return dealt


def _shares(plans: Mapping[CountedGroup, Plan], carry: Carry) -> dict[CountedGroup, float]:
    """Return the share of each group in what all of them carry; by law, each with the method that
    serves most, where that is not known of all. Raises :class:`BadInput` where requests come all at
    once.
    """
    if len(plans) <= 1:
        return dict.fromkeys(plans, 1.0)
    times = {}
    for group, plan in plans.items():
        served = [0.0]
        for candidate in plan.candidates:
            if offered_per_s(candidate.loaded) == inf:
                message = "requests that come one behind the other are not dealt among groups"
                raise BadInput.at(plan.file.name, f"{message}; compare each alone", "requests")
            served.extend(by_law(candidate.loaded, most) for most in candidate.sizes[-1:])
        times[group] = max(served)
    known = {}
    for group in plans:
        use = carry[group]
        if use is not None and use.room.times is not None:
            known[group] = use.room.times
    if len(known) == len(plans) and any(known.values()):
        times = known
    every = sum(times.values())
    if not every:  # a replica needs more devices than any group has
        return dict.fromkeys(plans, 1.0 / len(plans))
    return {group: served / every for group, served in times.items()}


def _with_share(candidate: Candidate, share: float) -> Candidate:
    """Return a candidate with a share of its requests in a second."""
    loaded = candidate.loaded
    dealt = busier(loaded.scenario.requests, share, loaded.scenario.seed)
    return candidate.changed(lambda whole: whole.replace(requests=dealt))


def _usd_per_hour(plan: Plan, group: CountedGroup) -> float | None:
    """Return the price of the devices of a plan, all of one name; None where none is known."""
    (offer,) = plan.file.devices.values()
    return offer.price_usd_per_hour.value * group.count if offer.priced else None


def _group(plan: Plan, group: CountedGroup, use: DeviceCapacity | None, draws: int) -> FleetGroup:
    """Return how the devices of a plan, all of one name, do, which carry so much."""
    say(str(group))
    part = FleetGroup(group, _usd_per_hour(plan, group), None, carried=use)
    searched = search(plan)
    fewest = searched.best or next(iter(searched.by_family.values()), None)
    if fewest is not None:
        whole = _all_at_work(plan, fewest, use)
        runs = tuple(resampled_runs(whole, draws))
        return replace(part, whole=whole, fewest=fewest, draws=runs)
    would = next(iter(enough(searched).values()), None)
    (offer,) = plan.file.devices.values()
    part = replace(part, would=would, most=offer.count)
    nearest = nearest_miss(plan)
    if nearest is None:
        return replace(part, refused=NONE_OWNED)
    return replace(part, whole=nearest, draws=tuple(resampled_runs(nearest, draws)))


def _all_at_work(plan: Plan, fewest: Finding, use: DeviceCapacity | None) -> Finding:
    """Return the run of all devices by the method that carries most; where that misses the SLO, or
    is not known, by the one that meets it on the fewest.
    """
    if use is not None and use.per_s:
        for candidate in plan.candidates:
            if candidate.name == use.candidate.name:
                whole = examine(candidate, use.replicas, "end")
                if whole.kept:
                    return whole
    return all_of(fewest)


def fleet_exports(compared: StatedFleets) -> dict[str, str]:
    """Return the files that serve the fleets that do, by their paths: each group's in a folder of
    its own, which is named for its devices, below that of a fleet of several.

    The first lines of a script say where it is run, for how many replicas, and of several groups
    which share of the requests goes to it.
    """
    heads: dict[str, str] = {}
    for plan in compared.plans:
        heads |= plan.file.heads
    files: dict[str, str] = {}
    for fleet in compared.fleets:
        if not fleet.does:
            continue
        for part in fleet.serving:
            files |= _group_files(fleet, part, heads, compared.plans[0].catalogue)
    return files


def _group_files(
    fleet: StatedFleet, part: FleetGroup, heads: Mapping[str, str], catalogue: Catalogue
) -> dict[str, str]:
    """Return the files that serve a group of a fleet, by their paths; ``heads``: checkpoints of
    draft heads, by strategy.
    """
    if part.whole is None:
        return {}
    say(f"how {part.group} are served")
    answer = served_answer(part.whole, heads.get(part.whole.candidate.strategy, ""), catalogue)
    if len(fleet.groups) == 1:
        return {f"{folder_name(part.group)}/{name}": text for name, text in answer.files.items()}
    folder = "+".join(folder_name(each.group) for each in fleet.groups)
    files = {}
    for name, text in answer.files.items():
        said = _with_share_said(name, text, fleet, part)
        files[f"{folder}/{folder_name(part.group)}/{name}"] = said
    return files


def folder_name(group: CountedGroup) -> str:
    """Return what the folder of a group's files is called."""
    return f"{group.count}_x_{called(group.device)}"


def _with_share_said(name: str, text: str, fleet: StatedFleet, part: FleetGroup) -> str:
    """Return a script with a second line that says which share of the requests goes to its
    replicas, and beside whom; other files as they are.
    """
    if not name.endswith(".sh"):
        return text
    first, rest = text.split("\n", 1)
    beside = [str(other.group) for other in fleet.serving if other is not part]
    share = f"# of all requests {100.0 * part.share:.0f} % go to these replicas"
    if beside:
        share += f", the others to {' and '.join(beside)}, whose scripts stand in folders beside"
    return f"{first}\n{share}\n{rest}"
