"""What tokens cost in money and energy, where the devices of a scenario state a price and a power.

Prices are ``price_usd_per_hour`` of a device, paid for the whole run, busy or not. Energy is bounded from above: every device
at the power of its datasheet for the whole run; and counted at that power for busy time alone, which leaves idling out. A
device that two roles share counts once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from simulator.cost.device import Device
from simulator.numeric import ordered_sum
from simulator.scenario import Scenario
from simulator.scenario.outcome import Outcome


class RentedDevices(NamedTuple):
    """Devices of one kind in one replica, and the lanes on which they work."""

    lanes: tuple[str, ...]
    device: Device
    number: int


class Expenses(NamedTuple):
    """What a run costs; None where a device does not say."""

    usd_per_hour: float | None
    """Of all devices of all replicas."""
    usd_per_million_tokens: float | None
    """Output tokens, the prompts' work included."""
    busy_j_per_token: float | None
    """All devices at their datasheet's power while their lane is busy."""
    most_j_per_token: float | None
    """All devices at their datasheet's power for the whole run: an upper bound."""
    unpriced: tuple[str, ...]
    """Devices that state no price."""


def held(scenario: Scenario) -> Iterator[RentedDevices]:
    """Devices of one replica."""
    target, draft = scenario.target, scenario.draft
    if target:
        staged = scenario.schedule.traits.staged
        for number, place in enumerate(target.on_stages or (target,), start=1):
            lanes = ("target", f"stage {number}") if staged else ("target",)  # prompts pass all stages on the target's lane
            yield RentedDevices(lanes, place.device, target.tensor_parallel)
    if draft and scenario.schedule.needs.draft_model and not scenario.one_lane:
        yield RentedDevices(("draft",), draft.device, draft.tensor_parallel)


def expenses(scenario: Scenario, outcome: Outcome) -> Expenses | None:
    """Of a simulated run; None without devices."""
    devices, replicas = list(held(scenario)), scenario.serving.replicas
    if not devices:
        return None
    prices = [one.device.price_usd_per_hour for one in devices]
    powers = [one.device.power_w for one in devices]
    hourly = busy = most = None
    if all(prices):
        hourly = replicas * ordered_sum(price.value * one.number for price, one in zip(prices, devices, strict=True) if price)
    if all(powers):
        watts = [power.value * one.number for power, one in zip(powers, devices, strict=True) if power]
        per_token = replicas / outcome.tokens
        most = ordered_sum(watts) * outcome.end_s * per_token
        working = (min(outcome.end_s, ordered_sum(outcome.busy_s.get(lane, 0.0) for lane in one.lanes)) for one in devices)
        busy = ordered_sum(each * seconds for each, seconds in zip(watts, working, strict=True)) * per_token
    tokens_per_hour = outcome.tokens_per_s * 3600.0
    unpriced = tuple(dict.fromkeys(one.device.name for one in devices if one.device.price_usd_per_hour is None))
    return Expenses(hourly, None if hourly is None else hourly / tokens_per_hour * 1e6, busy, most, unpriced)
