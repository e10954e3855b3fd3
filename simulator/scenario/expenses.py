"""Expenses: what tokens cost in money and energy, where the devices of a scenario state a price and
a power.

Prices are ``price_usd_per_hour`` of a device, paid for the whole run, busy or not. Energy is
bounded from above: every device at the power of its datasheet for the whole run; and counted at
that power for busy time alone, which leaves idling out. A device that two roles share is counted
once.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from simulator.core.cost.device import Device
from simulator.core.numeric import ordered_sum, quotient
from simulator.core.strategies.common.capabilities import draft_devices
from simulator.scenario import Scenario
from simulator.scenario.outcome import Outcome
from simulator.scenario.pools import pool_names, pool_scenarios


class RentedDevices(NamedTuple):
    """Devices of one kind in one replica, or in all of a pool, and the lanes on which they work."""

    lanes: tuple[str, ...]
    """Names of the lanes that are busy while these devices work."""
    device: Device
    number: float
    """How many there are; a part of one where several replicas share it."""


class Expenses(NamedTuple):
    """What a run costs; None where a device does not state its price or power."""

    usd_per_hour: float | None
    """Price of all devices of all replicas."""
    usd_per_million_tokens: float | None
    """Price of a million output tokens, the prompts' work included: of the stretch that counts; of
    the whole run where the number of replicas follows the load.
    """
    busy_j_per_token: float | None
    """Energy of an output token, all devices at their datasheet's power while their lane is
    busy.
    """
    most_j_per_token: float | None
    """Energy of an output token, all devices at their datasheet's power for the whole run: an upper
    bound.
    """
    unpriced: tuple[str, ...]
    """Names of the devices that state no price."""
    usd: float | None = None
    """Price of all devices of all replicas over the run."""
    idle_usd: float | None = None
    """What of it is of replicas that serve and have no request; None where pools are on unlike
    devices.
    """


def rented_devices(scenario: Scenario) -> Iterator[RentedDevices]:
    """Yield the devices of one replica, those that a draft shares with its target once; of pools,
    those of all their replicas.
    """
    names = pool_names(scenario)
    for name, (pool, own) in zip(names, pool_scenarios(scenario), strict=True):
        for rented in rented_devices(own):
            lanes = tuple(f"{name} {lane}" for lane in rented.lanes)
            yield rented._replace(lanes=lanes, number=rented.number * pool.replicas)
    if names:
        return
    target = scenario.target
    draft = scenario.draft
    if target:
        staged = scenario.schedule.traits.staged
        for stage, place in enumerate(target.on_stages or (target,), start=1):
            # prompts pass all stages on the target's lane
            lanes = ("target", f"stage {stage}") if staged else ("target",)
            yield RentedDevices(lanes, place.device, target.tensor_parallel)
    if draft and scenario.schedule.needs.draft_model and not scenario.one_lane:
        number = draft.tensor_parallel * draft_devices(scenario.strategy, 1)
        yield RentedDevices(("draft",), draft.device, number)


def usd_per_hour(devices: Iterable[RentedDevices]) -> float | None:
    """Return the price of the devices together (USD per hour); None where there are none, or one
    states no price.
    """
    prices = [(rented.device.price_usd_per_hour, rented.number) for rented in devices]
    known = [price.value * number for price, number in prices if price]
    if prices and len(known) == len(prices):
        return ordered_sum(known)
    return None


class EnergyPerToken(NamedTuple):
    """Bounds the energy of an output token from below and above (J), with the datasheet's power."""

    busy_j: float
    """All devices while their lane is busy."""
    most_j: float
    """All devices for the whole run."""


def expenses(scenario: Scenario, outcome: Outcome) -> Expenses | None:
    """Return what a simulated run costs; None without devices."""
    devices = list(rented_devices(scenario))
    if not devices:
        return None
    replicas = 1.0 if scenario.serving.pools else outcome.mean_replicas
    hourly = usd_per_hour(devices)
    hourly = hourly and replicas * hourly
    usd = hourly and hourly * outcome.end_s / 3600.0
    idle = None
    if usd is not None and not scenario.serving.pools:
        idle = usd * outcome.idle_s / outcome.replica_s
    energy = _energy_per_token(devices, outcome, replicas)
    return Expenses(
        hourly,
        _usd_per_million_tokens(outcome, usd, hourly),
        energy and energy.busy_j,
        energy and energy.most_j,
        _unpriced(devices),
        usd,
        idle,
    )


def _usd_per_million_tokens(
    outcome: Outcome, usd: float | None, hourly: float | None
) -> float | None:
    """Return the price of a million output tokens: of the whole run where an hour costs more in one
    stretch than in another, else of the stretch that counts.
    """
    if outcome.scaling:
        return quotient(usd and usd * 1e6, outcome.tokens)
    return quotient(hourly and hourly * 1e6, outcome.tokens_per_s * 3600.0)


def _energy_per_token(
    devices: Iterable[RentedDevices], outcome: Outcome, replicas: float
) -> EnergyPerToken | None:
    """Return the energy of an output token; None where a device states no power."""
    watts = []
    busy_j = []
    for rented in devices:
        power = rented.device.power_w
        if power is None:
            return None
        lanes_s = ordered_sum(outcome.busy_s.get(lane, 0.0) for lane in rented.lanes)
        working_s = min(outcome.end_s, lanes_s)  # mean over replicas
        watts.append(power.value * rented.number)
        busy_j.append(watts[-1] * working_s)
    per_token = replicas / outcome.tokens
    return EnergyPerToken(
        busy_j=ordered_sum(busy_j) * per_token,
        most_j=ordered_sum(watts) * outcome.end_s * per_token,
    )


def _unpriced(devices: Iterable[RentedDevices]) -> tuple[str, ...]:
    """Return the names of the devices that state no price, each once."""
    names = {}
    for rented in devices:
        if rented.device.price_usd_per_hour is None:
            names[rented.device.name] = True
    return tuple(names)
