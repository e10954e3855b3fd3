"""Numbers away from the device that they were fitted on are the less certain the further they
are.
"""

from __future__ import annotations

from typing import Any

import pytest

from simulator.core.cost.device import Device
from simulator.core.cost.engine import Engine, Home
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.schema import validate
from simulator.scenario import load
from simulator.scenario.uncertain.homes import away, distance
from tests.test_cost import DEVICE

HOME = Home(card="h100_94g_sxm", maker="NVIDIA", architecture="Hopper")


def shipped(kind: Any, folder: str, name: str) -> Any:
    catalogue = Catalogue()
    return validate(kind, catalogue.content(folder, catalogue.names(folder)[name])).model_copy(
        update={"name": name}
    )


@pytest.mark.parametrize(
    ("device", "factor"),
    [
        ("h100_94g_sxm", 1.0),
        ("h200_sxm", 1.5),
        ("a100_80g_sxm", 4.0),
        ("rtx_5090", 4.0),
        ("mi300x", 8.0),
        ("m2_ultra_gpu", 8.0),
    ],
)
def test_a_number_is_the_less_certain_the_further_it_is_from_where_it_was_fitted(
    device: str, factor: float
) -> None:
    assert distance(HOME, shipped(Device, "device", device)) == factor
    engine = shipped(Engine, "engine", "vllm")
    known = away(engine, shipped(Device, "device", device))
    if factor == 1.0:
        assert known == {}
        return
    lent = known[engine.schedule_us]
    assert (lent.value, lent.low, lent.high) == (
        985.0,
        min(503.0, 985.0 / factor),
        max(1470.0, 985.0 * factor),
    )
    assert lent.confidence == "borrowed"
    assert lent.source.startswith(
        f"calibrated on h100_94g_sxm; borrowed (within a factor of {factor:g}): calibrated-on: "
    )


def test_a_card_of_ones_own_is_another_one_until_it_says_its_architecture() -> None:
    own = Device.model_validate({**DEVICE, "name": "mine"})
    assert distance(HOME, own) == 4.0
    assert (
        distance(HOME, own.model_copy(update={"maker": "NVIDIA", "architecture": "Hopper"})) == 1.5
    )


def test_every_home_is_a_card_of_the_catalogue() -> None:
    catalogue = Catalogue()
    homes = [shipped(Engine, "engine", name).fitted_on for name in catalogue.names("engine")]
    homes += [
        load("methods_vicuna_7b_a100", [f"strategy={name}"]).scenario.method.fitted_on
        for name in ("medusa_1", "pld")
    ]
    assert len([home for home in homes if home]) >= 8
    for home in filter(None, homes):
        device = shipped(Device, "device", home.card)
        assert (home.maker, home.architecture) == (device.maker, device.architecture)
    assert all(shipped(Device, "device", name).architecture for name in catalogue.names("device"))
