"""Degrees of tensor parallelism that start, by hand and as users ask for them; beyond a server, a
network is priced.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from simulator.cli.main import main
from simulator.core.cost.hardware_cost import HardwareCost
from simulator.core.cost.kernels import all_reduce_time
from simulator.core.cost.rows import Rows
from simulator.core.faults import BadInput
from simulator.scenario import load
from simulator.scenario.evaluate import run
from simulator.scenario.uncertain.intervals import run_with_interval
from tests.test_cost import ENGINE, LINK, MODEL, place


def specsim(*words: str) -> Result:
    return CliRunner().invoke(main, words)


STARTS_WITH = {
    "whole_heads": True,
    "whole_blocks": ["fp8_block", "int4"],
    "expert_groups": {"int4": 32},
    "vocabulary_multiple": 64,
}
STRICT: dict[str, Any] = {**ENGINE, "name": "strict", "slicing": STARTS_WITH}
EVEN: dict[str, Any] = {
    **MODEL,
    "hidden_size": 1024,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 1024,
    "vocab_size": 1000,
}
"""1,024 everywhere: eight ranks have 128 columns each; the vocabulary is padded to 1,024."""
SLICED = {"routed": 16, "per_token": 2, "intermediate_size": 768}
MIXTURE = {**EVEN, "experts": SLICED}
"""Experts of 768 columns: 384, 192 and 96 on two, four and eight ranks."""


def strict(ranks: int, **changes: Any) -> Any:
    return place(
        **{"model": EVEN, "engine": STRICT, "tensor_parallel": ranks, "link": LINK, **changes}
    )


def why(ranks: int, **changes: Any) -> str:
    """Return why a placement cannot start; empty where it can."""
    try:
        strict(ranks, **changes)
    except ValueError as error:
        return str(error).partition("Value error, ")[2].partition(" [type=")[0]
    return ""


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_whole_blocks_start(ranks: int) -> None:
    assert why(ranks, weights="fp8_block") == ""
    assert why(ranks, weights="int4") == ""


@pytest.mark.parametrize(
    ("weights", "works"), [("fp8_block", {1, 2}), ("int4", {1, 2, 4, 8}), ("bf16", {1, 2, 4, 8})]
)
def test_experts_are_cut_between_blocks_alone(weights: str, works: set[int]) -> None:
    """Groups of int4 may be halved down to 32 inputs for experts: 96 and 192 are multiples of
    that.
    """
    assert {
        ranks for ranks in (1, 2, 4, 8) if not why(ranks, model=MIXTURE, weights=weights)
    } == works
    assert all(
        not why(ranks, model=MIXTURE, weights=weights, experts="whole") for ranks in (1, 2, 4, 8)
    )
    assert {
        ranks for ranks in (1, 2, 4, 8) if not why(ranks, model=MIXTURE, expert_weights=weights)
    } == works


def test_a_refusal_says_the_cut_and_every_degree_that_works() -> None:
    assert why(4, model=MIXTURE, weights="fp8_block") == (
        "tensor_parallel 4 cuts the 768 columns of an expert into 192, no multiple of the 128 "
        "that share a scale in fp8_block, and strict does not start; tensor_parallel 1 or 2 "
        "works, and with experts: whole (expert parallel) 4 or 8 too"
    )
    narrow = {**EVEN, "intermediate_size": 512}
    assert why(8, model=narrow, weights="int4") == (
        "tensor_parallel 8 cuts the 512 columns of the MLP into 64, no multiple of the 128 that "
        "share a scale in int4, and strict does not start; tensor_parallel 1, 2 or 4 works"
    )
    flat = {**EVEN, "head_dim": 64, "hidden_size": 512}
    assert why(4, model=flat, weights="fp8_block").startswith(
        "tensor_parallel 4 cuts the 256 columns of the keys into 64, "
    )
    assert why(8, model=flat, weights="int4").startswith(
        "tensor_parallel 8 cuts the 512 values that attention yields into 64, "
    )


def test_heads_experts_and_vocabulary_are_whole_too() -> None:
    twelve = {**EVEN, "num_attention_heads": 12, "intermediate_size": 1536, "vocab_size": 3072}
    assert why(3, model=twelve) == (
        "tensor_parallel 3 neither divides the 4 heads of keys and values of tiny nor is a "
        "multiple of them; tensor_parallel 1, 2, 4 or 12 works"
    )
    three = {**EVEN, "num_attention_heads": 12, "num_key_value_heads": 6, "intermediate_size": 1536}
    assert why(3, model=three).startswith(
        "tensor_parallel 3 does not divide the 1,024 rows to which strict pads the vocabulary"
    )
    assert why(3, model={**three, "vocab_size": 3060}) == "", (
        "3,072 are padded to, which three ranks share"
    )
    whole = {"model": {**MIXTURE, "experts": {**SLICED, "routed": 4}}, "experts": "whole"}
    assert why(8, **whole).startswith(
        "tensor_parallel 8 is more than the 4 experts of tiny, which stay whole; "
    )
    assert why(8, model={**EVEN, "intermediate_size": 1020}).startswith(
        "tensor_parallel 8 does not divide the 1,020 columns"
    )


def test_with_attention_of_its_own_a_rank_has_all_heads() -> None:
    three = {
        "model": {**EVEN, "intermediate_size": 1536, "vocab_size": 3072},
        "attention": "data_parallel",
    }
    assert why(3, **three) == ""
    assert why(3, **{**three, "attention": "tensor_parallel"}).startswith(
        "tensor_parallel 3 does not divide the 8 attention heads"
    )


def test_an_engine_that_cuts_anywhere_is_not_refused_and_one_that_nobody_read_is_doubted() -> None:
    loose = {"model": MIXTURE, "weights": "fp8_block"}
    assert why(8, **loose, engine={**ENGINE, "slicing": {"even": False}}) == ""
    assert why(8, **loose, engine=ENGINE) == ""
    target = [
        "target.weights=int8",
        "target.expert_weights=fp8_block",
        "target.link=nvlink_h100",
        "target.tensor_parallel=4",
    ]
    scenario, quick = "eagle3_qwen3_30b_a3b_h200", "requests.count=2"
    doubted = (
        "nobody said whether tensorrt_llm starts the target: tensor_parallel 4 cuts the 768 columns"
    )
    said = run(load(scenario, [*target, "target.engine=tensorrt_llm", quick])).cautions
    assert sum(caution.startswith(doubted) for caution in said) == 1
    others = run(load(scenario, [*target, "target.engine=llama_cpp_cuda", quick])).cautions
    assert not any("nobody said" in caution for caution in others)


QWEN = ["target.weights=fp8_block", "target.link=nvlink_h100"]


@pytest.mark.full  # a plan over a long log, in the end
@pytest.mark.parametrize("ranks", [4, 8])
def test_no_command_serves_a_model_whose_blocks_are_cut(ranks: int, tmp_path: Path) -> None:
    words = f"tensor_parallel {ranks} cuts the 768 columns of an expert into {768 // ranks}"
    sets = [
        part
        for setting in (*QWEN, f"target.tensor_parallel={ranks}")
        for part in ("--set", setting)
    ]
    for command in ("run", "law"):
        shown = specsim(command, "eagle3_qwen3_30b_a3b_h200", *sets)
        assert shown.exit_code == 2
        assert words in shown.output
        assert "tensor_parallel 1 or 2 works" in shown.output
    log = tmp_path / "log.csv"
    log.write_text(
        "arrived_at,num_prefill_tokens,num_decode_tokens\n"
        + "".join(f"{i / 4},1000,200\n" for i in range(20))
    )
    asked = [
        "--model",
        "qwen3_30b_a3b",
        "--device",
        "h200_sxm",
        "--weights",
        "fp8_block",
        "--traffic",
        str(log),
    ]
    limits = ["--ttft-p95", "2s", "--tpot-p95", "4.8ms", "--requests", "20", "--draws", "2"]
    answer = json.loads(specsim("plan", *asked, *limits, "--json").stdout)
    fleets = [
        answer["answer"],
        *answer["searched"],
        *[family["cheapest"] for family in answer["families"] if family["cheapest"]],
    ]
    tried = {
        (fleet["settings"]["target.tensor_parallel"], fleet["settings"]["target.experts"])
        for fleet in fleets
    }
    assert tried == {
        (1, "sliced"),
        (2, "sliced"),
        (1, "whole"),
        (2, "whole"),
        (4, "whole"),
        (8, "whole"),
    }
    assert any(words in left["reason"] for left in answer["left_out"])


def test_a_draft_is_asked_as_its_target_is() -> None:
    """3,072 columns in four parts are six blocks of 128 each; in eight they are three."""
    on = [
        "draft.model=qwen3_0_6b",
        "draft.engine=vllm",
        "draft.link=nvlink_a100",
        "draft.weights=int4",
    ]
    load("vanilla_qwen3_32b_a100", [*on, "draft.tensor_parallel=4"])
    with pytest.raises(
        BadInput, match="draft: tensor_parallel 16 is more than the 8 devices of one server"
    ):
        load("vanilla_qwen3_32b_a100", [*on, "draft.tensor_parallel=16"])
    with pytest.raises(
        BadInput, match="draft: tensor_parallel 8 cuts the 2,560 columns of the MLP into 320"
    ):
        load(
            "vanilla_qwen3_32b_a100",
            [*on, "draft.tensor_parallel=8", "draft.model.intermediate_size=2560"],
        )


def test_the_shipped_mixture_on_eight_cards_keeps_its_experts_whole() -> None:
    shipped = "eagle3_qwen3_235b_a22b_8xh200"
    assert load(shipped).scenario.target.experts == "whole"
    with pytest.raises(BadInput, match="1,536 columns of an expert into 192"):
        load(shipped, ["target.experts=sliced"])


# ---- beyond a server


FOUR = {**LINK, "name": "board", "server_devices": 4}
NETWORK = {**LINK, "name": "net", "all_reduce": {"ring": {"fixed_us": 300, "bandwidth_gb_s": 0.5}}}


def test_more_ranks_than_a_server_has_are_refused_or_their_network_is_priced() -> None:
    """Eight ranks on two servers: a ring of four, 100 us and 1.5 sizes at 1 GB/s, then two with a
    quarter each at 0.5 GB/s.
    """
    assert why(4, link=FOUR) == ""
    assert why(8, link=FOUR) == (
        "tensor_parallel 8 is more than the 4 devices of one server that board joins; state "
        "network, the link between servers "
        "(as in network: infiniband_ndr), to have it priced; tensor_parallel 1, 2 or 4 works"
    )
    spread = strict(8, link=FOUR, network=NETWORK)
    assert (spread.servers, spread.ranks_inside) == (2, 4)
    size = 3 * 1024 * 2
    inside, between = 100e-6 + 1.5 * size / 1e9, 300e-6 + size / 4 / 0.5e9
    assert all_reduce_time(spread, 3) == pytest.approx(inside + between, rel=1e-12)
    assert all_reduce_time(strict(4, link=FOUR, network=NETWORK), 3) == all_reduce_time(
        strict(4, link=FOUR), 3
    )
    twelve = {
        **EVEN,
        "num_attention_heads": 24,
        "num_key_value_heads": 24,
        "intermediate_size": 1536,
        "vocab_size": 1536,
    }
    assert why(6, model=twelve, link=FOUR, network=NETWORK).startswith(
        "tensor_parallel 6 does not fill servers of 4 devices"
    )
    found = HardwareCost(spread).target(Rows.decode(3, 99)).busy["target collectives"]
    assert found == pytest.approx(2 * 4 * (inside + between), rel=1e-12), (
        "two in each of four layers"
    )


@pytest.mark.parametrize("ranks", [16, 32, 64])
def test_no_shipped_link_joins_more_cards_than_were_measured(ranks: int, tmp_path: Path) -> None:
    for link in (
        "nvlink_a100",
        "nvlink_h100",
        "nvlink_b200",
        "pcie_4_x16",
        "pcie_5_x16",
        "pcie_4_l40s",
        "nvlink_a800",
    ):
        with pytest.raises(
            BadInput,
            match=rf"more than the 8 devices of one server that {link} joins.*1, 2, 4 or 8 works",
        ):
            load(
                "mirror_qwen3_32b_a100", [f"target.tensor_parallel={ranks}", f"target.link={link}"]
            )
    axis, store = (
        ("--axis", f"target.tensor_parallel={ranks}"),
        ("--store", str(tmp_path / "points.sqlite")),
    )
    shown = specsim("sweep", "mirror_qwen3_32b_a100", *axis, "--evaluate", "law", *store)
    assert shown.exit_code == 2
    assert "more than the 8 devices of one server" in shown.output
    over = load(
        "mirror_qwen3_32b_a100",
        [f"target.tensor_parallel={ranks}", "target.network=infiniband_hdr", "requests.count=2"],
    )
    (caution,) = [words for words in run(over).cautions if "infiniband_hdr" in words]
    words = (
        f"the target's {ranks} ranks are on {ranks // 8} servers of 8: every all-reduce also "
        "goes over infiniband_hdr (assumed"
    )
    assert caution.startswith(words)


def test_sixteen_ranks_over_two_servers_come_out_as_measured() -> None:
    """All-reduces of 16 A100 on two DGX (microsoft/vidur 7d47513, MIT): 71 us at 20 KB, 97 at 68; a
    third either way.

    The part between servers is assumed to lie between 20 and 80 us.
    """
    sets = [
        "target.tensor_parallel=16",
        "target.network=infiniband_hdr",
        "target.engine.all_reduce=[nccl, ring]",
    ]
    on = load("mirror_qwen3_32b_a100", sets).scenario.target
    assert on is not None
    ends = on.network.all_reduce.ring.fixed_us
    for tokens, us in ((2, 71), (7, 97)):
        found = all_reduce_time(on, tokens) * 1e6
        assert found + ends.low - ends.value <= us <= found + ends.high - ends.value
        assert found == pytest.approx(us, rel=1 / 3)


def test_a_formula_beyond_what_it_was_fitted_to_is_said_with_its_range() -> None:
    """Thunderbolt's ring was fitted to eight machines: over sixteen its constant may be twice as
    long.
    """
    sets = ["target.tensor_parallel=16", "requests.count=6"]
    result, _ = run_with_interval(
        load("autoregressive_opt_66b_m2_ultra", ["target.tensor_parallel=8", "requests.count=6"])
    )
    assert not result.cautions
    doubted = [
        "target.model.num_attention_heads=64",
        "target.model.num_key_value_heads=64",
        "target.model.head_dim=144",
    ]
    result, _ = run_with_interval(load("autoregressive_opt_66b_m2_ultra", [*sets, *doubted]))
    words = "all-reduce of 16 ranks over thunderbolt_5 (ring, fitted to 8 at most)"
    assert [f"the formula for an {words} is continued: it may take 2 times as long"] == list(
        result.cautions
    )
    assert words in result.rests_on
