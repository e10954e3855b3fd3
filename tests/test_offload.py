"""Layers and experts on other devices: passes by hand, memories, what cannot be, and a shipped
scenario.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from simulator.core.cost.hardware_cost import HardwareCost
from simulator.core.cost.placement import Placement
from simulator.core.cost.rows import Rows
from simulator.core.faults import BadInput, Infeasible
from simulator.scenario import evaluate, load
from simulator.scenario.evaluate import law_from, simulate
from tests.test_cost import DEVICE, ENGINE, LINK, MODEL, place

SLOW = {**DEVICE, "name": "slow", "kind": "cpu", "memory_bandwidth_gb_s": 0.1}
"""A tenth of the bandwidth."""
MIXTURE = {
    **MODEL,
    "experts": {
        "routed": 4,
        "per_token": 2,
        "intermediate_size": 50,
        "popularity": {"value": 0.0},
    },
}
"""Four layers; of four experts, 30 kB each, two serve a row."""
ONE = Rows.decode(1, 99)
SCENARIO = "offload_qwen3_30b_a3b_rtx_4060_ti_8g"
LARGER = ("target.device=rtx_3090", "draft.device=rtx_3090")
"""A card that holds all of it."""


def on(*parts: dict[str, Any], **changes: Any) -> Placement:
    stated = {
        f"n{number}": {"device": SLOW, "link": LINK, **part} for number, part in enumerate(parts)
    }
    return place(**{"model": MIXTURE, "offload": stated or None, **changes})


def us(where: Placement, rows: Rows = ONE, *depths: float) -> float:
    return float(HardwareCost(where).target(rows, *depths).wall_s) * 1e6


def test_places_that_were_asked_for_their_segments_are_compared() -> None:
    first, second = on({"experts": 1}), on({"experts": 1})
    assert first.segments == second.segments
    assert first == second


# ---- passes by hand


@pytest.mark.parametrize(("stated", "layers"), [("all", 4), (3, 3), (1, 1)])
def test_experts_cross_the_link_there_and_back_in_every_layer(stated: Any, layers: int) -> None:
    """A layer's two experts are 60.5 us here and ten times as long there; 200 bytes take 5.2 us
    each way, and the router, 1,008 bytes, stays.
    """
    away = on({"experts": stated})
    assert us(away) - us(on()) == pytest.approx(layers * (605 - 60.5 + 2 * 5.2 + 1.008))
    busy = HardwareCost(away).target(ONE).busy
    assert busy["target elsewhere"] == pytest.approx(layers * 605e-6)
    assert busy["target links"] == pytest.approx(layers * 10.4e-6)


def test_more_rows_read_more_experts_over_the_slow_memory() -> None:
    """Two rows of two requests read three of four experts, each with one row and a third."""
    rows = Rows.decode(1, 198, 2)
    elsewhere = HardwareCost(on({"experts": "all"})).target(rows).busy["target elsewhere"]
    assert elsewhere == pytest.approx(4 * (3 * 30_000 + 250 * 2 * 4 / 3) / 0.1 * 1e-9)


def test_enough_rows_have_the_weights_copied_instead() -> None:
    """From two rows on three experts of 30 kB cross the link, 95 us, and are multiplied here."""
    rows = Rows.decode(1, 198, 2)
    never, copied = on({"experts": "all"}), on({"experts": "all", "copied_from_rows": 2})
    assert us(copied) == us(never)
    busy = HardwareCost(copied).target(rows).busy
    assert busy["target links"] == pytest.approx(4 * 95e-6)
    assert busy["target elsewhere"] == 0
    # as without an offload, but for the copies and the router
    assert us(copied, rows) - us(on(), rows) == pytest.approx(4 * (95 + 1.216))


def test_the_first_layers_lie_elsewhere_and_a_pass_crosses_once() -> None:
    """Two cards: one layer on a card of a tenth of the bandwidth, then 5.2 us, then three here."""
    split = on({"layers": 1}, model=MODEL)
    there, here = place(device=SLOW), place()
    assert us(split) == pytest.approx(us(there, ONE, 0, 1) + 5.2 + us(here, ONE, 1, 1.0))
    assert us(split, ONE, 0, 1) == pytest.approx(us(there, ONE, 0, 1))
    assert us(split, ONE, 2, 1.0) == us(here, ONE, 2, 1.0)
    over_three = on({"layers": [2, 3]}, {"layers": 1}, model=MODEL)
    both = us(there, ONE, 0, 3) + us(here, ONE, 3, 1.0)
    assert us(over_three) == pytest.approx(both + 2 * 5.2)
    inside = on({"layers": [2, 3]}, model=MODEL)
    around = us(here, ONE, 0, 1) + us(there, ONE, 1, 3) + us(here, ONE, 3, 1.0)
    assert us(inside) == pytest.approx(around + 2 * 5.2)


def test_layers_and_experts_of_those_that_stay() -> None:
    """A layer lies elsewhere as a whole, and of the next one the experts."""
    mixed = on({"layers": 1}, {"experts": 2})
    layers = on({"layers": 1})
    assert us(mixed) - us(layers) == pytest.approx(605 - 60.5 + 10.4 + 1.008)


def test_the_other_device_has_an_engine_of_its_own() -> None:
    """Half a millisecond of its host for every layer."""
    engine = {**place().engine.model_dump(), "host_us_per_layer": 500, "launch": "synchronous"}
    plain, own = on({"layers": 2}, model=MODEL), on({"layers": 2, "engine": engine}, model=MODEL)
    assert us(own) - us(plain) == pytest.approx(1_000)


@pytest.mark.parametrize("layers", [None, [2, 2], 1])
def test_a_pass_is_scheduled_once_by_the_targets_engine(layers: Any) -> None:
    """A millisecond, wherever the first layer lies."""
    parts = [{"layers": layers, "engine": ENGINE}] if layers else []
    engine = {**ENGINE, "host_us_per_pass": 1_000}
    busy = HardwareCost(on(*parts, model=MODEL, engine=engine)).target(ONE).busy
    assert busy["target host"] == pytest.approx(1e-3)


def test_of_copied_layers_only_the_experts_that_are_read_cross() -> None:
    """Two requests read three of four experts: a layer's copy is 30 kB less."""
    rows = Rows.decode(1, 198, 2)
    copied = on({"layers": 1, "copied_from_rows": 2})
    layer = copied.layer_bytes(0, 1) - 30_000
    busy = HardwareCost(copied).target(rows).busy
    wire = HardwareCost(copied).target_place.offload["n0"].link
    assert busy["target links"] == pytest.approx(wire.transfer_seconds(layer))


# ---- memories


def test_weights_and_caches_lie_where_their_layers_do() -> None:
    whole = on()
    away = on({"layers": 1}, {"experts": [2, 2]})
    layer, experts = away.offloaded
    assert experts.weights_gb == pytest.approx(4 * 15_000 * 2e-9)
    assert away.weights_gb() + layer.weights_gb + experts.weights_gb == pytest.approx(
        whole.weights_gb()
    )
    assert layer.weights_gb > experts.weights_gb
    assert away.kv_gb(1_000) == pytest.approx(whole.kv_gb(1_000) * 3 / 4)
    assert layer.place.kv_gb(1_000) == pytest.approx(whole.kv_gb(1_000) / 4)
    assert away.devices == (
        "1 x round + slow with layer 1 + slow with the routed experts of layer 2"
    )


def test_what_is_offloaded_makes_room_and_has_to_fit() -> None:
    loaded = load(SCENARIO)
    card, host = loaded.scenario.device_groups
    assert card.weights_gb < 2.0
    assert host.weights_gb > 15.0
    assert host.room_tokens is None, "experts have no caches"
    assert loaded.scenario.kv_tokens == card.room_tokens
    with pytest.raises(Infeasible, match=r"17.0 GB .* does not fit"):
        load(SCENARIO, ["target.offload=null"])
    with pytest.raises(Infeasible, match="offload more layers, or the experts of more layers"):
        load(SCENARIO, ["target.offload.cpu.experts=10"])
    with pytest.raises(Infeasible, match="offload fewer layers to it, or choose another device"):
        load(SCENARIO, ["target.offload.cpu.device.memory_gb=8"])


def test_what_lies_on_a_cpu_lies_in_one_memory() -> None:
    """Two parts of the target and the draft, none of them with a machine, in the RAM of the host;
    cards without one are two.
    """
    nowhere = ["target.machine=''", "draft.machine=''"]
    cpu = "device: xeon_16_cores, engine: llama_cpp_cpu, link: pcie_4_x16"
    experts = f"cpu: {{{cpu}, experts: [9, 48]}}"
    sets = [*nowhere, "draft.device=xeon_16_cores", "draft.engine=llama_cpp_cpu"]
    both = load(SCENARIO, [*sets, f"target.offload={{{experts}, first: {{{cpu}, layers: 8}}}}"])
    card, host = both.scenario.device_groups
    assert [part.role for part in card.roles] == ["target"]
    assert [part.role for part in host.roles] == ["offload cpu", "offload first", "draft"]
    second, third = (
        f"{{device: rtx_3060_12g, link: pcie_4_x16, layers: {layers}}}"
        for layers in ("16", "[17, 32]")
    )
    cards = f"target.offload={{second: {second}, third: {third}}}"
    apart = load(SCENARIO, [*nowhere, cards, "target.weights=q4_k_m"]).scenario.device_groups
    assert len(apart) == 4


# ---- what cannot be


@pytest.mark.parametrize(
    ("parts", "changes", "message"),
    [
        ([{}], {}, "expected one of layers and experts"),
        ([{"layers": 1, "experts": "all"}], {}, "expected one of layers and experts"),
        ([{"experts": [3, 2]}], {}, "expected the first layer before the last"),
        ([{"experts": 5}], {}, "tiny has 4 layers, got 5"),
        ([{"layers": 4}], {}, "its LM head stay on round; offload 3 layers at most"),
        ([{"experts": "all"}], {"model": MODEL}, "tiny has no routed experts; offload layers"),
        ([{"experts": "all"}, {"experts": 1}], {}, "n1: layer 1 lies on n0 already"),
        ([{"layers": 2}, {"layers": [2, 3]}], {}, "n1: layer 2 lies on n0 already"),
        (
            [{"layers": 1}],
            {"tensor_parallel": 2, "link": LINK},
            "offload and tensor_parallel cannot be stated together",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    parts: list[dict[str, Any]], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValidationError, BadInput), match=message):
        on(*parts, **changes)


# ---- a shipped scenario


@pytest.mark.parametrize("offload", ["", "target.offload.cpu.experts=40"])
def test_law_replay_and_simulation_agree(offload: str) -> None:
    changes = ["requests.count=3", *LARGER, *filter(None, [offload])]
    loaded = load(SCENARIO, changes)
    acceptance = loaded.acceptance()
    simulated, _ = simulate(loaded.scenario, acceptance)
    replayed = evaluate.replay(loaded.scenario, acceptance)
    assert replayed.tpot_s == pytest.approx(simulated.tpot_s, rel=1e-9)
    by_law = law_from(loaded.scenario, simulated)
    assert by_law.tokens_per_step == pytest.approx(simulated.tokens_per_step, rel=1e-9)
    assert by_law.step_s == pytest.approx(simulated.step_s, rel=0.01), "the mean context"


def test_verified_rows_read_more_experts_so_that_speculation_loses_there() -> None:
    """On a card that holds all of it four rows cost 1.8 times one row; over a CPU's memory 2.6
    times.
    """
    ratios = []
    for changes in (["target.offload=null"], []):
        scenario = load(SCENARIO, [*LARGER, *changes]).scenario
        one, four = (scenario.cost.target(Rows.decode(n, 300)).wall_s for n in (1, 4))
        ratios.append(four / one)
    assert ratios == pytest.approx([1.8, 2.6], abs=0.1)


def test_a_draft_lies_on_one_device() -> None:
    cpu = "{device: xeon_16_cores, engine: llama_cpp_cpu, link: pcie_4_x16, layers: 15}"
    with pytest.raises(BadInput, match="a draft lies on one device"):
        load("vanilla_qwen3_32b_a100", [f"draft.offload={{cpu: {cpu}}}"])


def test_a_draft_beside_offloaded_experts_takes_turns_with_them() -> None:
    sets = ["draft.device=xeon_16_cores", "draft.engine=llama_cpp_cpu", "strategy=pearl"]
    beside = load("offload_qwen3_30b_a3b_rtx_4060_ti_8g", sets).scenario
    assert beside.target is not None
    assert beside.one_lane == bool(beside.target.machine)
    apart = load("offload_qwen3_30b_a3b_rtx_4060_ti_8g", [*sets, "draft.device=rtx_3090"]).scenario
    assert not apart.one_lane


def test_only_the_first_stage_leaves_its_embedding_to_the_host() -> None:
    sets = ["target.engine=llama_cpp_cuda"]
    llama_cpp = load("pipeline_llama_3_1_70b_8x3090", sets).scenario.target
    others = load("pipeline_llama_3_1_70b_8x3090").scenario.target
    assert llama_cpp is not None
    assert others is not None
    saved = []
    for here, there in zip(llama_cpp.parts, others.parts, strict=True):
        saved.append(there.weights_gb() - here.weights_gb())
    table = others.model.head_weights * 2 / 1e9
    assert saved == pytest.approx([table, *[0.0] * 7])
