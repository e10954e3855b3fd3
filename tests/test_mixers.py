"""What mixers read and keep, worked by hand; ranks that hold the same cache; states that cannot be
rolled back.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from simulator.core.cost import hardware_cost
from simulator.core.cost.device import Device
from simulator.core.cost.hardware_cost import HardwareCost
from simulator.core.cost.kernels import attention_timer, layer_products
from simulator.core.cost.mixer import LayerKind, Mixer
from simulator.core.cost.model import DraftHead, ModelSpec
from simulator.core.cost.placement import Placement
from simulator.core.cost.rows import Rows
from simulator.core.quantities import Sourced
from simulator.core.serving import step_times
from simulator.core.serving.cache.memory import Blocks
from simulator.core.serving.requests import Request
from simulator.scenario import load
from simulator.scenario.evaluate import run, simulate
from tests.test_cost import LINK, MODEL, ONE, place
from tests.test_cost_by_hand import READS, nanoseconds

SIZES: dict[str, Any] = {
    "projections": 20_000,
    "along_cache": 8_000,
    "projected": 200,
    "value_width": 100,
    "output": 10_000,
}
SIZES |= {"cached": 30, "pair_flops": 1}
WINDOW, CHUNK = Mixer(kind="sliding", window=8, **SIZES), Mixer(kind="chunked", window=15, **SIZES)
TOP = Mixer(kind="sparse", top_k=8, index_width=128, index_heads=2, **SIZES)
COMPRESSED = Mixer(kind="sparse", window=8, entry_tokens=4, top_k=8, **SIZES)
LATENT = Mixer(kind="latent", **SIZES)
STATE = Mixer(
    kind="linear",
    projections=20_000,
    projected=200,
    value_width=100,
    output=10_000,
    state=500,
    tail=100,
)


def placed(mixer: Mixer, **changes: Any) -> Any:
    return place(
        **{
            "model": {**MODEL, "mixers": {"own": mixer}, "layers": [{"mixer": "own"}]},
            "device": READS,
            **changes,
        }
    )


# ---- what a query sees


@pytest.mark.parametrize(
    ("mixer", "rows", "entries", "pairs"),
    [
        (WINDOW, Rows.decode(1, 5), 6, 6),
        (WINDOW, Rows.decode(1, 99), 8, 8),
        (WINDOW, Rows.decode(3, 99), 10, 3 * 8),  # three rows need ten tokens between them
        (WINDOW, Rows.decode(3, 6), 9, 7 + 8 + 8),
        (WINDOW, Rows.decode(2, 2 * 99, 2), 18, 2 * (8 + 8)),
        (WINDOW, Rows.prefill(10), 10, 8 * 9 / 2 + 2 * 8),
        (WINDOW, Rows.prefill(10, 90), 17, 10 * 8),
        # of 20 rows 15 are of streams, which no cache holds
        (
            WINDOW,
            Rows(20, 0, 1, 5, 30),
            5,
            30,
        ),
        (CHUNK, Rows.decode(1, 99), 8, 8),  # half of fifteen on average
        (TOP, Rows.decode(1, 5), 6, 6),
        (TOP, Rows.decode(3, 99), 24, 24),  # each row its own eight
        (TOP, Rows.decode(3, 9), 12, 24),  # and no more than there are
        (COMPRESSED, Rows.decode(1, 99), 8 + 8, 8 + 8),
        (COMPRESSED, Rows.decode(1, 15), 4 + 8, 4 + 8),
        (LATENT, Rows.decode(3, 99), 102, 3 * 99 + 6),
    ],
)
def test_what_is_read_by_hand(mixer: Mixer, rows: Rows, entries: float, pairs: float) -> None:
    seen = mixer.seen(rows)
    assert (seen.kv_tokens, seen.attention_pairs) == pytest.approx((entries, pairs), rel=1e-12)
    assert (seen.tokens, seen.sequences) == (rows.tokens, rows.sequences)


@given(
    st.integers(1, 9),
    st.integers(0, 300),
    st.integers(1, 4),
    st.sampled_from([WINDOW, CHUNK, TOP, COMPRESSED, LATENT]),
)
def test_more_context_is_never_less_to_read_nor_more_than_all(
    tokens: int, context: int, sequences: int, mixer: Mixer
) -> None:
    rows, more = (
        Rows.decode(tokens, sequences * length, sequences) for length in (context, context + 1)
    )
    seen, longer = mixer.seen(rows), mixer.seen(more)
    assert seen.kv_tokens <= longer.kv_tokens + 1e-9
    assert seen.attention_pairs <= longer.attention_pairs + 1e-9
    if mixer is not COMPRESSED:
        assert seen.kv_tokens <= rows.kv_tokens + 1e-9
        assert seen.attention_pairs <= rows.attention_pairs + 1e-9


def test_contexts_in_an_array_are_priced_as_one_by_one() -> None:
    contexts = np.arange(0, 200, 7)
    for mixer in (WINDOW, CHUNK, TOP, COMPRESSED, LATENT, STATE):
        timer = attention_timer(placed(mixer), mixer)
        together = timer(Rows.decode(3, contexts))
        assert np.broadcast_to(together, contexts.shape) == pytest.approx(
            [timer(Rows.decode(3, int(context))) for context in contexts]
        )


def test_a_mixed_pass_is_seen_part_by_part() -> None:
    prompt, decodes = Rows.prefill(10, 90), Rows.decode(2, 2 * 99, 2)
    seen = WINDOW.seen(prompt + decodes)
    assert (seen.kv_tokens, seen.prompt_kv_tokens) == (17 + 18, 17)
    assert (seen.attention_pairs, seen.prompt_pairs) == (80 + 32, 80)


# ---- what it takes


def test_an_indexer_reads_its_keys_of_the_whole_context() -> None:
    timer = attention_timer(placed(TOP), TOP)
    assert timer(Rows.decode(1, 99)) == nanoseconds(8 * 30 * 2 + 100 * 132)


def test_a_state_is_read_once_and_written_after_every_row() -> None:
    """2,200 bytes of state, and 400 of inputs and outputs a row, at 1e9 bytes a second."""
    timer = attention_timer(placed(STATE), STATE)
    for rows, states in ((1, 2), (2, 3), (8, 9)):
        assert timer(Rows.decode(rows, 99)) == nanoseconds(states * 2_200 + rows * 400)
        assert timer(Rows.decode(rows, 5_000)) == timer(Rows.decode(rows, 99))
    assert timer(Rows.decode(2, 9, 3)) == nanoseconds((3 + 6) * 2_200 + 6 * 400)
    assert timer(Rows.prefill(50)) == nanoseconds(2 * 2_200 + 50 * 400)


def test_products_in_a_row_take_their_constant_each() -> None:
    fixed = {**READS, "matmul": {"default": {**READS["matmul"]["default"], "fixed_us": 7}}}
    one, four = (
        layer_products(
            placed(LATENT.model_copy(update={"products": n}), device=fixed),
            3,
            LayerKind(mixer, 0, experts=False),
        )
        for n, mixer in ((1, LATENT), (4, LATENT.model_copy(update={"products": 4})))
    )
    assert four.qkv - one.qkv == pytest.approx(3 * 7e-6)


def test_a_mixer_needs_what_its_kind_says() -> None:
    with pytest.raises(ValidationError, match="needs entries to look at: cached above 0"):
        Mixer(projections=1, projected=1, value_width=1, output=1)
    with pytest.raises(ValidationError, match="needs its window"):
        Mixer(kind="sliding", **SIZES)
    with pytest.raises(ValidationError, match="kind sparse needs top_k"):
        Mixer(kind="sparse", **SIZES)
    with pytest.raises(ValidationError, match="only where entry_tokens is above 1"):
        Mixer(kind="sparse", window=128, top_k=16, **SIZES)
    beside = Mixer(kind="sparse", window=128, top_k=16, entry_tokens=4, **SIZES)
    assert not beside.sees_all
    with pytest.raises(ValidationError, match="linear has a state"):
        Mixer(kind="full", state=5, **SIZES)
    with pytest.raises(ValidationError, match="there is no mixer 'other'"):
        place(model={**MODEL, "layers": [{"mixer": "other"}]})
    with pytest.raises(ValidationError, match="the model has none"):
        place(model={**MODEL, "layers": [{"mlp": "experts"}]})


# ---- ranks


def test_ranks_hold_a_latent_each() -> None:
    """10 heads over 2 and 10 ranks: 30 values a token of one latent on every rank, 8,000 weights
    onto it.
    """
    rows = Rows.decode(1, 99)
    alone = attention_timer(placed(LATENT), LATENT)(rows)
    for ranks in (2, 10):
        on = placed(LATENT, tensor_parallel=ranks, link=LINK)
        assert attention_timer(on, LATENT)(rows) == pytest.approx(alone, rel=1e-12)
        assert on.kv_gb(50) == pytest.approx(placed(LATENT).kv_gb(50), rel=1e-12)
        assert LATENT.weights_before(ranks) / ranks == pytest.approx(12_000 / ranks + 8_000)
        spared = 4 * 8_000 * (ranks - 1) / ranks * 2  # four layers, two bytes
        assert on.weights_gb() * 1e9 == pytest.approx(
            placed(LATENT).weights_gb() * 1e9 / ranks + spared
        )


def test_heads_fewer_than_ranks_are_replicated() -> None:
    """5 heads of keys and values: 2 ranks share them out, 10 hold one each."""
    whole = place(device=READS)
    for ranks, share in ((1, 1.0), (2, 0.5), (10, 0.2)):
        on = place(device=READS, tensor_parallel=ranks, link=LINK)
        assert attention_timer(on)(ONE) == pytest.approx(
            attention_timer(whole)(ONE) * share, rel=1e-12
        )
        assert on.kv_gb(50) == pytest.approx(whole.kv_gb(50) * share, rel=1e-12)


def test_data_parallel_attention_shares_requests_out() -> None:
    """Of 5 requests on 2 ranks one has 3; each holds all attention weights, and all-reduces are
    half as many.
    """
    ranks = {"tensor_parallel": 2, "link": LINK}
    shared, split = placed(LATENT, **ranks), placed(LATENT, **ranks, attention="data_parallel")
    assert [split.busiest_share(n) for n in (1, 2, 5)] == [1.0, 0.5, 0.6]
    assert [shared.busiest_share(n) for n in (1, 2, 5)] == [1.0, 1.0, 1.0]
    assert split.kv_gb(50) == pytest.approx(shared.kv_gb(50) / 2)
    assert split.weights_gb() - placed(LATENT).weights_gb() / 2 == pytest.approx(
        4 * 30_000 * 2 / 2 / 1e9
    )
    rows = Rows.decode(1, 5 * 99, 5)
    costs = HardwareCost(shared), HardwareCost(split)
    together, apart = (cost.target(rows).busy for cost in costs)
    assert apart["target collectives"] == pytest.approx(together["target collectives"] / 2)
    assert attention_timer(split, LATENT)(rows.on_rank(0.6)) == pytest.approx(
        0.6 * attention_timer(shared, LATENT)(rows)
    )


def test_what_replication_makes_of_a_latent_on_8_ranks() -> None:
    """DeepSeek-V3 on 8 H200: at 8,192 tokens the caches are read in 1/8 of the time, and 6.5 times
    as many find room.
    """
    kinds = ("tensor_parallel", "data_parallel")
    shared, split = (
        load("autoregressive_deepseek_v3_8xh200", [f"target.attention={kind}"]).scenario
        for kind in kinds
    )
    assert shared.kv_tokens
    assert split.kv_tokens
    assert 6.0 < split.kv_tokens / shared.kv_tokens < 8.0
    few, many = (Rows.decode(1, requests * 8_192, requests) for requests in (1, 256))
    # one rank has all the projections
    assert split.cost.target(few).wall_s > shared.cost.target(few).wall_s
    assert split.cost.target(many).wall_s < 0.7 * shared.cost.target(many).wall_s


# ---- memory


def test_layers_without_a_cache_hold_as_many_requests_as_come() -> None:
    layers = "target.model.layers=[{count: 40, mixer: null}]"
    scenario = load("autoregressive_mistral_24b_m2_ultra", [layers]).scenario
    assert scenario.kv_tokens is None
    assert scenario.held_tokens is None
    assert all(group.room_tokens is None for group in scenario.device_groups)


def test_what_a_request_holds_of_windows_and_states() -> None:
    """Half of the layers see 8 tokens; blocks of 4 tokens in all layers."""
    blocks, request = (
        Blocks(4, 10, lambda tokens: tokens / 2 + min(tokens, 8) / 2 + 3),
        Request(0, 0.0, 9, 1),
    )
    assert [blocks.needed(tokens) for tokens in (0, 1, 8, 16, 40)] == [0, 2, 3, 4, 7]
    assert blocks.hold(request, 16)
    assert (request.blocks, request.slots) == (4, 16)
    assert blocks.hold(request, 17)
    assert (request.blocks, request.slots) == (5, 20)
    assert not blocks.hold(request, 80)
    blocks.keep(request, 9)
    assert (request.blocks, request.slots, blocks.used) == (4, 12, 4)
    blocks.keep(request, 0)
    assert (request.blocks, request.slots, blocks.used) == (0, 0, 0)


def test_a_verification_keeps_a_state_for_each_of_its_rows() -> None:
    """Qwen3.5-27B: 154 MB of state a request; four rows of a verification keep four of them."""
    mtp = load("mtp_qwen3_5_27b_h100").scenario
    plain = load(
        "mtp_qwen3_5_27b_h100", ["strategy=autoregressive", "acceptance={always: 0}"]
    ).scenario
    state, token = 153_944_064, 65_536
    assert plain.held_tokens
    assert mtp.held_tokens
    rows = plain.schedule.needs.cache_tokens, mtp.schedule.needs.cache_tokens
    assert rows[1] == 4
    assert plain.held_tokens(1_000) == pytest.approx(1_000 + rows[0] * state / token)
    head = token / 64  # a layer of its own, as wide as the others on average
    assert mtp.held_tokens(1_000) == pytest.approx(1_000 + 4 * state / (token + head))
    assert mtp.kv_tokens < plain.kv_tokens


# ---- law, replay and events


@pytest.mark.parametrize(
    "target",
    ["qwen3_5_27b", "gpt_oss_120b", "nemotron_3_nano_30b_a3b", "mimo_v2_flash", "deepseek_v3_2"],
)
def test_law_replay_and_events_agree(target: str) -> None:
    sets = [
        f"target.model={target}",
        "target.device=h200_sxm",
        "target.weights=fp8",
        "target.link=nvlink_h100",
    ]
    sets += ["requests.count=12", "requests.concurrency=4", "requests.output_tokens=40"]
    for strategy in ("mtp_deepseek_v3_8xh200_data_parallel", "autoregressive_deepseek_v3_8xh200"):
        result = run(load(strategy, sets))
        assert result.agreement.data()["disagreement"] is False
        assert result.replay.tpot_s == pytest.approx(result.simulated.tpot_s, rel=1e-9)
        assert any("timed by other kernels" in caveat for caveat in result.caveats)


def test_a_prediction_layer_has_the_mixer_and_experts_of_its_model() -> None:
    """DeepSeek-V3's MTP layer: 11.5 billion weights of its own (its report, sec. 2.2: 14 with
    embedding and head).
    """
    model = load("mtp_deepseek_v3_8xh200_data_parallel").scenario.target.model
    head = DraftHead(layers=1, squares=2, mixture=True)
    assert head.weights(model) / 1e9 == pytest.approx(11.6, abs=0.1)
    assert head.layer(model).mixer == model.mixers["latent"]
    assert DraftHead(layers=1).layer(model).intermediate_size == model.intermediate_size


def test_stages_of_a_pipeline_have_the_layers_between_their_bounds() -> None:
    """Two layers with a window, one without, over and over: stages of four and of two layers."""
    model = {
        **MODEL,
        "num_hidden_layers": 6,
        "mixers": {"own": WINDOW},
        "layers": [{"mixer": "own", "count": 2}, {}],
    }
    stages = {"stages": [{"layers": 4}, {"layers": 2}], "within": LINK}
    whole = place(model=model, device=READS, pipeline=stages)
    first, second = whole.parts
    assert [(run.mixer, run.count) for run in first.model.runs()] == [
        ("own", 2),
        ("attention", 1),
        ("own", 1),
    ]
    assert [(run.mixer, run.count) for run in second.model.runs()] == [("own", 1), ("attention", 1)]
    assert first.kv_gb(50) * 1e9 == pytest.approx((3 * 8 * 30 + 50 * 100) * 2)
    assert first.kv_gb(50) + second.kv_gb(50) == pytest.approx(whole.kv_gb(50))
    alone = HardwareCost(place(model=model, device=READS)).target(ONE).wall_s
    # a hidden state over the wire
    assert HardwareCost(whole).target(ONE).wall_s == pytest.approx(alone + 5.2e-6)


# ---- beside measured kernels

OPS = Path(__file__).parents[2] / "shared" / "data" / "ops"


@pytest.mark.full
@pytest.mark.skipif(not OPS.is_dir(), reason="the tables of kernels lie outside the repository")
@pytest.mark.parametrize(
    ("folder", "most"), [("h100_sxm", 3.0), ("l40s", 9.0), ("rtx_pro_6000_server", 5.0)]
)
def test_steps_of_a_recurrence_are_as_far_from_measured_kernels_as_is_stated(
    folder: str, most: float
) -> None:
    """States of 4 bytes that no cache holds; a scan of a prompt is too short, which is stated,
    too.
    """
    pytest.importorskip("pyarrow")
    mixers = pytest.importorskip("benchmarks.mixers", reason="no checkout")
    device = mixers.entry("device", mixers.CARDS[folder], Device)
    timed = {
        what: table
        for what, stack, table in mixers.recurrences(OPS / folder, device)
        if stack == "vllm"
    }
    error = {
        what: 100.0 * float(abs(table.price / table.s - 1.0).mean())
        for what, table in timed.items()
    }
    assert error["gdn, step"] < most
    assert timed["gdn, scan"].bare.median() < timed["gdn, scan"].s.median()
    assert 50.0 < error["gdn, scan"] < 100.0


@pytest.mark.parametrize(
    "name",
    ["mtp_qwen3_5_27b_h100", "eagle3_gpt_oss_120b_h100", "autoregressive_deepseek_v3_8xh200"],
)
@pytest.mark.parametrize("policy", ["unified_budget", "prefill_first"])
def test_the_layers_of_a_model_are_counted_once_and_not_for_every_block(
    name: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times as many requests hold four times as many blocks, and ask no more often what kinds
    of layers there are.
    """
    asked = Counter[str]()
    for counted in ("kinds", "runs"):
        answer = getattr(ModelSpec, counted)

        def ask(
            model: ModelSpec, *layers: int, counted: str = counted, answer: Any = answer
        ) -> Any:
            asked[counted] += 1
            return answer(model, *layers)

        monkeypatch.setattr(ModelSpec, counted, ask)

    def times_asked(requests: int) -> Counter[str]:
        hardware_cost.priced_layers.cache_clear()
        step_times._kept_times.cache_clear()
        asked.clear()
        sizes = (
            f"requests={{count: {requests}, concurrency: 4, prompt_tokens: 64, output_tokens: 24}}"
        )
        loaded = load(name, [sizes, f"serving.policy={{name: {policy}}}"])
        simulate(loaded.scenario, loaded.acceptance())
        return Counter(asked)

    times_asked(8)  # what equal hardware keeps is kept from here on
    assert times_asked(32) == times_asked(8)


def test_what_is_worked_out_of_a_file_is_worked_out_anew_for_a_changed_copy() -> None:
    place = load("mtp_qwen3_5_27b_h100").scenario.target
    assert place is not None
    model = place.model
    sizes = model.weights, model.state_bytes, [count for _, count in model.mixer_layers]
    dense = model.model_copy(update={"layers": (), "parameters": None})
    assert dense.state_bytes == 0
    assert [count for _, count in dense.mixer_layers] == [model.num_hidden_layers]
    assert dense == ModelSpec(**{field: getattr(dense, field) for field in ModelSpec.model_fields})
    assert sizes == (model.weights, model.state_bytes, [count for _, count in model.mixer_layers])
    large = place.device.model_copy(update={"cache_mb": Sourced(value=1e9)})
    assert not place.in_cache
    assert place.model_copy(update={"device": large}).in_cache, (
        "a cache of that size holds all weights"
    )
    assert Placement(
        **{field: getattr(place, field) for field in Placement.model_fields} | {"device": large}
    ).in_cache
