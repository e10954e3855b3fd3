"""A ledger of errors: tables of measured runs as people publish them, and what is said of them."""

from __future__ import annotations

import json
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.core.faults import BadInput
from simulator.evidence.ledger.names import (
    UnknownName,
    Windows,
    device_of,
    engine_of,
    format_of,
    strategy_of,
)
from simulator.evidence.ledger.rows import (
    PLAIN_STEP,
    RATE,
    SPEEDUP,
    STEP,
    TPOT,
    TTFT,
    LedgerRow,
    read_table,
)
from simulator.evidence.ledger.score import (
    BYTES,
    CONSTANT,
    EVERY,
    OURS,
    Guess,
    MeasuredSpeedup,
    judged,
    loop_scores,
    score,
    scores,
    step_scores,
)
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.models.named import find_model
from simulator.report.pages.ledger import consecutive
from simulator.scenario import load
from simulator.scenario.decision.verdict import verdict
from simulator.scenario.evaluate import baseline, law, simulate
from simulator.scenario.uncertain.draws import DRAWS, Drawn

HEAD = (
    "source,hardware,gpu_count,engine,target_model,target_format,method,draft_steps,top_k,"
    "verified_rows,concurrency,tokens_per_step,plain_tokens_per_s,speculative_tokens_per_s"
)
CHAIN = "somebody#1,H100 SXM,1,vLLM,Llama-3.1-8B,bf16,EAGLE-3 chain,3,1,4,2,2.5,300,480"


SAID = ("H100 (card of a blog)", "NVIDIA H100 80GB HBM3", "Apple M2 Ultra", "RTX 4060 Ti")
"""Names that leave open which device it is."""


def table(folder: Path, *lines: str) -> Path:
    path = folder / "rows.csv"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("H100 SXM", "h100_sxm"),
        ("H100 (card of a blog)", "h100_sxm"),
        ("1 x NVIDIA H100 94 GB", "h100_94g_sxm"),
        ("Apple M4 Max (128 GB)", "m4_max"),
        ("RTX 4090", "rtx_4090"),
        ("B200", "b200_sxm"),
        ("RTX 3090 24GB", "rtx_3090"),
        ("NVIDIA A100-SXM4-80GB", "a100_80g_sxm"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx_6000_ada"),
        ("8xH200", "h200_sxm"),
        ("MacBook Pro M3 Max 64GB", "m3_max"),
        ("GB10 (DGX Spark)", "gb10"),
        ("RTX PRO 6000 Max-Q", "rtx_pro_6000_max_q"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx_pro_6000"),
        ("M1 Ultra", "m1_ultra"),
        ("Ryzen AI Max 8060S", "ryzen_ai_max_395_8060s"),
        ("AMD Ryzen AI Max+ 395", "ryzen_ai_max_395_8060s"),
        ("NVIDIA H100 HGX 94 GB (card not printed)", "h100_94g_sxm"),
    ],
)
def test_a_device_is_found_by_what_people_call_it(text: str, device: str) -> None:
    found, assumed = device_of(text, Catalogue())
    assert found == device
    assert bool(assumed) == (text in SAID)


@pytest.mark.parametrize("text", SAID)
def test_a_device_that_is_meant_is_said(text: str) -> None:
    found, assumed = device_of(text, Catalogue())
    assert assumed == f"'{text}' is taken for {found}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("RTX 1080", "there is no device 'RTX 1080'"),
        ("RTX 3090 12GB", "there is no device 'RTX 3090 12GB'"),
        ("L40 48GB PCIe", "there is no device"),
        ("Apple M3", "there is no device 'Apple M3'"),
        ("RTX 6000", "could be rtx_6000_ada, rtx_pro_6000, rtx_pro_6000_max_q"),
        ("", "there is no device ''"),
    ],
)
def test_a_device_that_is_not_there_or_is_two_names_the_remedy(text: str, message: str) -> None:
    with pytest.raises(UnknownName, match=message) as error:
        device_of(text, Catalogue())
    assert "a column target.device" in str(error.value)


def test_engines_and_formats_are_found_by_what_people_call_them() -> None:
    catalogue = Catalogue()
    assert engine_of("SGLang of February 2025", "NVIDIA", catalogue) == "sglang"
    assert engine_of("llama.cpp", "Apple", catalogue) == "llama_cpp_metal"
    assert engine_of("llama.cpp", "NVIDIA", catalogue) == "llama_cpp_cuda"
    assert engine_of("", "Apple", catalogue) == "llama_cpp_metal"
    assert engine_of("llama-server b6000", "AMD", catalogue) == "llama_cpp_cuda"
    assert engine_of("mlx-lm 0.30", "Apple", catalogue) == "mlx"
    with pytest.raises(UnknownName, match="there is no engine 'exo' among"):
        engine_of("exo", "Apple", catalogue)
    llama = find_model("Llama-3.1-8B", catalogue, "").spec
    deepseek = find_model("DeepSeek-R1", catalogue, "").spec
    assert format_of("Q4_K_M", llama) == "q4_k_m"
    assert format_of("Q4_0 (15.0 GiB)", llama) == "mostly_q4_0"
    assert format_of("4 bit", llama, "mlx") == "mlx_4"
    assert format_of("AWQ int4", llama, "vllm") == "int4"
    assert format_of("fp8", llama) == "fp8"
    assert format_of("AWQ", llama) == "int4"
    assert format_of("fp8", deepseek) == "fp8_block"
    assert format_of("", llama) is None


def test_methods_draft_and_verify_what_the_row_says() -> None:
    catalogue = Catalogue()
    chain = strategy_of("EAGLE-3 chain", Windows(2, 1, 3), catalogue)
    assert chain["passes"][0]["rows"] == [3, 1]
    assert chain["tree"]["branching"] == [1, 1]
    tree = strategy_of("eagle3", Windows(3, 4, 8), catalogue)
    assert tree["passes"][0]["rows"] == [4, 4, 4]
    assert (tree["tree"]["budget"], tree["tree"]["levels"], tree["tree"]["choices"]) == (7, 3, 4)
    block = strategy_of("DFlash block 16", Windows(1, 1, 16), catalogue)
    assert [one["rows"] for one in block["passes"]] == [[16], [16]]
    assert len(block["tree"]["branching"]) == 15
    assert strategy_of("draft model 0.5B", Windows(4, 1, 5), catalogue)["gamma"] == 4
    for text in ("EAGLE-3", "eagle 3", "EAGLE3 chain"):
        head = strategy_of(text, Windows(3, 1, 4), catalogue)["passes"][0]["head"]
        assert head["squares"] == 4
    assert strategy_of("MTP-1", Windows(1, 1, 2), catalogue)["passes"][0]["head"]["mixture"]
    looked_up = strategy_of("n-gram", Windows(4, 1, 5), catalogue)
    assert "passes" not in looked_up
    assert looked_up["tree"]["branching"] == [1] * 4
    for text in ("draft-mtp", "NEXTN"):
        assert strategy_of(text, Windows(2, 1, 3), catalogue)["passes"][0]["rows"] == [3, 1]
    beams = strategy_of("ReDrafter", Windows(5, 3, 16), catalogue)
    assert beams["passes"][0]["rows"] == [3] * 5
    assert beams["tree"]["branching"] == [3, 1, 1, 1, 1]
    apart = strategy_of("PEARL", Windows(7, 1, 8), catalogue)
    assert (apart["name"], apart["gamma"]) == ("pearl", 7)
    with pytest.raises(UnknownName, match="there is no method 'EAGLE 4'"):
        strategy_of("EAGLE 4", Windows(3, 1, 4), catalogue)
    with pytest.raises(UnknownName, match="there is no method 'telepathy'"):
        strategy_of("telepathy", Windows(3, 1, 4), catalogue)


def test_a_method_without_a_window_is_taken_as_it_was_released(tmp_path: Path) -> None:
    catalogue = Catalogue()
    assert len(strategy_of("EAGLE", None, catalogue)["tree"]["paths"].split()) == 25
    assert strategy_of("SpS", None, catalogue)["adaptive"]["name"] == "moving"
    assert strategy_of("Medusa", Windows(2, 1, 3), catalogue) == strategy_of(
        "Medusa", None, catalogue
    )
    head = "hardware,engine,target_model,method,tokens_per_step,speedup"
    cells = "A100 GPU (80GB) with 96 CPU cores,'HF transformers',lmsys/vicuna-7b-v1.3,EAGLE2,4,2"
    ledger = read_table(table(tmp_path, head, cells.replace("'", "")), catalogue)
    (row,) = ledger.rows
    assert row.loaded.scenario.target
    assert row.loaded.scenario.target.engine.name == "hf_eager"
    assert row.loaded.scenario.target.device.name == "a100_80g_sxm"
    assert "windows of the method eagle_2" in row.assumed


def test_verified_rows_alone_say_how_long_a_chain_is(tmp_path: Path) -> None:
    head = "hardware,target_model,method,top_k,verified_rows,tokens_per_step,speedup"
    ledger = read_table(
        table(tmp_path, head, "H100 SXM,Qwen3-8B,MTP,,3,2,1.5", "H100 SXM,Qwen3-8B,MTP,4,8,2,1.5"),
        Catalogue(),
    )
    assert ledger.rows[0].loaded.scenario.schedule.window == 2
    assert ledger.left_out[0].fault.field == "draft_steps"


def test_a_run_with_its_prompt_leaves_its_steps(tmp_path: Path) -> None:
    """1,990 ms over 199 passes are 10 ms; 1,250 ms less a prompt of 50 are 100 steps of 12 ms. The
    plain run of the same temperature goes before one of another.
    """
    head = (
        "source,hardware,target_model,method,beam_width,beam_length,temperature,new_tokens,steps,"
        "tokens_per_step,prefill_ms,generation_ms,total_ms"
    )
    run = "a@0123456:drafted.csv,M1 Max,vicuna-7b-v1.3,ReDrafter,2,3,{},200,100,2,,,1250"
    ledger = read_table(
        table(
            tmp_path,
            head,
            "a@0123456:plain.csv,M1 Max,vicuna-7b-v1.3,autoregressive,,,0,200,200,1,50,1990,2040",
            run.format(0),
            run.format(1),
            run.format(0).replace("M1 Max", "M4 Max"),
        ),
        Catalogue(),
    )
    (alone,) = ledger.left_out
    assert (alone.fault.place[1], alone.fault.field) == (5, "prefill_ms")
    plain, drafted, warmer = (
        {one.quantity: one.measured for one in row.comparisons} for row in ledger.rows
    )
    assert plain == pytest.approx({PLAIN_STEP: 0.010})
    assert drafted == pytest.approx({SPEEDUP: 2 * 10 / 12, STEP: 0.012})
    assert warmer == drafted
    assert [row.source for row in ledger.rows] == ["a"] * 3
    words = "a plain run takes as long at another temperature"
    assert [words in row.assumed for row in ledger.rows] == [False, False, True]


def test_a_share_of_accepted_drafts_says_what_a_step_commits(tmp_path: Path) -> None:
    head = "hardware,target_model,method,draft_length,draft_p_min,acceptance_published,speedup"
    run = "RTX 4090 24GB,Qwen3-8B,MTP,2,"
    ledger = read_table(
        table(
            tmp_path,
            head,
            f"{run},0.75,1.5",
            f"{run},0.6-0.8,1.5",
            f"{run},0.4-0.8,1.5",
            f"{run}0.5,0.75,1.5",
        ),
        Catalogue(),
    )
    assert [row.tokens_per_step for row in ledger.rows] == pytest.approx([2.5, 2.4])
    assert "the middle of a range of accepted shares" in ledger.rows[1].assumed
    wide, early = ledger.left_out
    assert "too wide a range; state tokens_per_step" in wide.fault.message
    assert "drafting stops early" in early.fault.message


def test_a_draft_on_a_device_of_its_own_is_beside_the_target(tmp_path: Path) -> None:
    """Runs of 5 tokens until a draft is rejected are a rate of 0.8."""
    head = (
        "target,draft,hardware,method,draft_steps,mean_accepted_tokens,plain_tokens_per_s,"
        "pearl_tokens_per_s"
    )
    cells = "Qwen3-32B (tensor parallel 2),Qwen3-0.6B (a third card),H200,PEARL,5,5,80,200"
    (row,) = read_table(table(tmp_path, head, cells), Catalogue()).rows
    scenario = row.loaded.scenario
    assert scenario.target
    assert scenario.draft
    assert (scenario.target.tensor_parallel, scenario.draft.tensor_parallel) == (2, 1)
    assert scenario.target.machine != scenario.draft.machine
    assert row.comparisons[0].measured == pytest.approx(2.5)


def test_a_row_is_held_to_the_law_of_its_scenario(tmp_path: Path) -> None:
    """300 tokens a second of two requests are 6.667 ms a token; 2.5 tokens at 480 are 10.417."""
    ledger = read_table(table(tmp_path, HEAD, CHAIN), Catalogue())
    assert ledger.left_out == ()
    (row,) = ledger.rows
    assert row.source == "somebody#1"
    assert row.tokens_per_step == pytest.approx(2.5)
    measured = {one.quantity: one.measured for one in row.comparisons}
    assert measured == pytest.approx({SPEEDUP: 1.6, PLAIN_STEP: 2 / 300, STEP: 5 / 480})
    scenario = row.loaded.scenario
    assert (scenario.batch, scenario.schedule.window) == (2, 3)
    expected = law(scenario, row.loaded.acceptance())
    said = {one.quantity: one.predicted.value for one in row.comparisons}
    plain = baseline(scenario)
    assert said[STEP] == pytest.approx(expected.step_s)
    assert said[PLAIN_STEP] == pytest.approx(plain.step_s)
    assert said[SPEEDUP] == pytest.approx(plain.tpot_s / expected.tpot_s)
    assert row.assumed == ("prompts of 512 tokens", "outputs of 256 tokens")


def test_a_plain_run_may_stand_in_a_row_of_its_own(tmp_path: Path) -> None:
    head = (
        "source,target_model,hardware,method,draft_model,draft_length,concurrency,median_itl_ms,"
        "output_tokens_per_s,acceptance_length"
    )
    ledger = read_table(
        table(
            tmp_path,
            head,
            "a,Qwen/Qwen3-8B,H100 SXM,none,,0,8,10,800,",
            "a,Qwen/Qwen3-8B,H100 SXM,draft_model,Qwen/Qwen3-0.6B,3,8,16,1000,2.5",
            "b,Qwen/Qwen3-8B,H100 SXM,draft_model,Qwen/Qwen3-0.6B,3,8,16,1000,2.5",
        ),
        Catalogue(),
    )
    measured = []
    for row in ledger.rows:
        measured.append({one.quantity: one.measured for one in row.comparisons})
    of_plain, beside, alone = measured
    assert of_plain == pytest.approx({PLAIN_STEP: 0.010})
    assert beside == pytest.approx({SPEEDUP: 1.25, STEP: 0.016})
    assert alone == pytest.approx({STEP: 0.016})


def test_a_row_that_cannot_run_says_why_and_its_remedy_works(tmp_path: Path) -> None:
    other = CHAIN.replace("H100 SXM", "RTX 1080")
    ledger = read_table(table(tmp_path, HEAD, other), Catalogue())
    (left_out,) = ledger.left_out
    assert left_out.fault.place[1:] == (2, 1)
    assert "name its file in a column target.device" in left_out.fault.message
    mended = read_table(table(tmp_path, f"{HEAD},target.device", f"{other},h100_sxm"), Catalogue())
    assert mended.left_out == ()
    assert mended.rows[0].loaded.scenario.target
    assert mended.rows[0].loaded.scenario.target.device.name == "h100_sxm"


def test_an_engine_of_a_month_is_of_the_age_of_then(tmp_path: Path) -> None:
    then = CHAIN.replace("vLLM", "vLLM of July 2025")
    (row,) = read_table(table(tmp_path, HEAD, then), Catalogue()).rows
    assert row.loaded.scenario.target
    assert row.loaded.scenario.target.engine.name == "vllm@0.9"
    assert row.tokens_per_step == pytest.approx(2.5)


def test_cards_without_peer_access_sum_by_nccl_over_pcie(tmp_path: Path) -> None:
    said = '"2 x NVIDIA H100, custom all-reduce off (no peer-to-peer access), card inferred"'
    over_two = CHAIN.replace("H100 SXM,1", f"{said},2")
    (row,) = read_table(table(tmp_path, HEAD, over_two), Catalogue()).rows
    place = row.loaded.scenario.target
    assert place
    assert place.link
    assert (place.device.name, place.link.name, place.p2p) == ("h100_pcie", "pcie_5_x16", False)
    assert place.all_reduce_form() == place.link.all_reduce.measured["nccl"]
    assert any("is taken for h100_pcie" in words for words in row.assumed)


def test_a_data_set_says_how_long_its_prompts_and_outputs_are(tmp_path: Path) -> None:
    lines = f"{HEAD},task", f"{CHAIN},InstructCoder"
    (row,) = read_table(table(tmp_path, *lines), Catalogue()).rows
    assert row.loaded.scenario.lengths[:2] == (145, 200)
    assert row.assumed == ("prompts of 145 tokens", "outputs of 200 tokens")


def test_a_field_by_its_key_holds_in_place_of_the_words(tmp_path: Path) -> None:
    lines = f"{HEAD},requests.prompt_tokens,target.engine", f"{CHAIN},100,sglang"
    (row,) = read_table(table(tmp_path, *lines), Catalogue()).rows
    assert row.loaded.scenario.target
    assert row.loaded.scenario.target.engine.name == "sglang"
    assert row.loaded.scenario.lengths[0] == 100
    assert row.assumed == ("outputs of 256 tokens",)


def test_a_run_is_divided_by_the_plain_run_of_its_own_configuration(tmp_path: Path) -> None:
    """20 ms on one card in bf16, 10 ms on two in fp8: 2.5 tokens in 15 ms on two are 1.67."""
    head = (
        "source,target_model,hardware,gpu_count,target_format,method,draft_steps,concurrency,"
        "step_ms,tokens_per_step"
    )
    plain = (
        "a,Qwen/Qwen3-8B,H100 SXM,1,bf16,none,,1,20,",
        "a,Qwen/Qwen3-8B,H100 SXM,2,fp8,none,,1,10,",
    )
    drafted = "a,Qwen/Qwen3-8B,H100 SXM,2,fp8,eagle3,3,1,15,2.5"
    ledger = read_table(table(tmp_path, head, *plain, drafted), Catalogue())
    assert ledger.rows[-1].of(SPEEDUP)
    assert ledger.rows[-1].comparisons[0].measured == pytest.approx(2.5 * 10 / 15)
    either = "a,Qwen/Qwen3-8B,H100 SXM,,,eagle3,3,1,15,2.5"
    ledger = read_table(table(tmp_path, head, *plain, either), Catalogue())
    (left_out,) = ledger.left_out
    assert "lines 2, 3 could all be its plain run" in left_out.fault.message


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("concurrency", '"1,024"', "expected a number above 0, got '1,024'"),
        ("gpu_count", "0.5", "expected a whole number, got '0.5'"),
        ("tokens_per_step", "", "how many tokens a step commits"),
    ],
)
def test_a_cell_that_is_no_number_leaves_its_row_out(
    column: str, cell: str, message: str, tmp_path: Path
) -> None:
    cells = dict(zip(HEAD.split(","), CHAIN.split(","), strict=True)) | {column: cell}
    ledger = read_table(table(tmp_path, HEAD, ",".join(cells.values())), Catalogue())
    (left_out,) = ledger.left_out
    assert message in left_out.fault.message
    assert left_out.fault.field == column


def test_what_else_a_table_holds_is_for_its_reader(tmp_path: Path) -> None:
    """A column with a dot is no field of a scenario for that; blank lines count as lines."""
    path = table(tmp_path, f"{HEAD},p99.9_ms", "", f"{CHAIN},77")
    (row,) = read_table(path, Catalogue()).rows
    assert row.place[1] == 3


def test_a_draft_may_be_named_by_its_size(tmp_path: Path) -> None:
    head = "hardware,target_model,method,draft_steps,tokens_per_step,speedup"
    cells = "H100 SXM,Qwen3-32B,draft model {},2,2,1.5"
    sized, unsized = cells.format("0.6B"), cells.format("")
    ledger = read_table(table(tmp_path, head, sized, unsized), Catalogue())
    (row,) = ledger.rows
    assert row.loaded.scenario.draft
    assert row.loaded.scenario.draft.model.name == "qwen3_0_6b"
    assert "the draft is Qwen3-0.6B" in row.assumed
    assert ledger.left_out[0].fault.field == "draft_model"


def test_an_empty_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no rows"):
        read_table(table(tmp_path, HEAD), Catalogue())


def test_a_chance_has_a_word() -> None:
    assert [verdict(chance) for chance in (0.0, 0.19, 0.2, 0.79, 0.8, 1.0)] == [
        "hurts",
        "hurts",
        "may hurt",
        "may hurt",
        "helps",
        "helps",
    ]


def said(measured: float, value: float, spread: float, source: str, tokens: float) -> Any:
    """A measured speed-up of which a value is said, its draws evenly over log(value) +- spread."""
    loaded = load("vanilla_llama_2_7b_a100")
    row = LedgerRow(("rows.csv", 2, 1), source, "a run", loaded, tokens, (), ())
    return MeasuredSpeedup(row, measured, Drawn(value, np.linspace(-spread, spread, DRAWS)))


def test_a_source_counts_once() -> None:
    """Source a has a loss that is found and one that is not, b one of which it is said that it may
    be: half of each.
    """
    rows = [
        said(0.5, 0.5, 0.1, "a", 2.0),
        said(0.5, 2.0, 0.1, "a", 2.0),
        said(0.8, 1.0, 0.1, "b", 2.0),
        said(1.01, 2.0, 0.1, "b", 2.0),
        said(2.0, 2.0, 0.1, "c", 4.0),
    ]
    ours = score(OURS, EVERY, judged(rows)[OURS])
    assert ours.losses_found == (0.5, 3)
    assert ours.false_alarms == (0.0, 1)
    assert ours.sign == pytest.approx((2 / 3, 4))
    assert ours.undecided == pytest.approx((0.5 / 3, 5))
    # errors: a 0 and 3, b 0.25 and 0.98, c 0
    assert ours.median_error == pytest.approx((0.25 + 2 / 1.01 - 1) / 2)
    assert ours.held == pytest.approx((2 / 5, 5))
    assert ours.width == pytest.approx(0.16, rel=1e-3)


def test_an_interval_score_counts_ten_times_what_lies_outside() -> None:
    rows = [said(1.0, 2.0, 0.1, "a", 2.0)]
    found = score(OURS, EVERY, judged(rows)[OURS])
    assert found.interval_score == pytest.approx(0.16 + 10 * (log(2) - 0.08), rel=1e-3)


def test_tokens_times_a_constant_knows_the_other_sources_alone() -> None:
    """Half a speed-up for each token in b and c; a's own row is four times as fast and not seen."""
    rows = [
        said(4.0, 1.0, 0.1, "a", 2.0),
        said(1.0, 1.0, 0.1, "b", 2.0),
        said(2.0, 1.0, 0.1, "c", 4.0),
    ]
    assert judged(rows[:1])[CONSTANT][0].guess == Guess("helps")
    guesses = judged(rows)[CONSTANT]
    assert guesses[0].guess.speedup == pytest.approx(1.0)
    assert guesses[0].guess.interval == pytest.approx((1.0, 1.0))
    assert guesses[1].guess.speedup == pytest.approx(2.0)


def test_bytes_alone_reads_the_draft_for_every_token() -> None:
    loaded = load("vanilla_llama_2_7b_a100")
    scenario = loaded.scenario
    assert scenario.target
    assert scenario.draft
    (guess,) = judged([said(1.0, 1.0, 0.1, "a", 3.0)])[BYTES]
    plain = scenario.target.weights_gb()
    step = plain + scenario.draft.weights_gb() * scenario.schedule.needs.draft_steps
    assert guess.guess.speedup == pytest.approx(3.0 * plain / step)
    assert guess.guess.interval is None


def test_validate_prints_a_table_and_writes_its_page(tmp_path: Path) -> None:
    path = table(tmp_path, HEAD, CHAIN, CHAIN.replace("H100 SXM", "RTX 1080"))
    words = ["validate", "--table", str(path), "--out", str(tmp_path / "o")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    answered = done.output.splitlines()[1]
    assert answered.split(maxsplit=1)[1].startswith("1 row and 1 left out: no loss was measured")
    assert (tmp_path / "o" / "ledger.html").is_file()
    printed = CliRunner().invoke(main, ["validate", "--table", str(path), "--json"])
    data = json.loads(printed.output)
    assert [one["guesser"] for one in data["scores"] if one["group"] == "all"] == [
        OURS,
        "always helps",
        CONSTANT,
        BYTES,
    ]
    speedup = data["rows"][0]["comparisons"][0]
    assert speedup["quantity"] == SPEEDUP
    assert speedup["low"] < speedup["predicted"] < speedup["high"]
    assert speedup["verdict"] == "helps"


def test_rows_that_are_left_out_for_one_reason_stand_together(tmp_path: Path) -> None:
    other = CHAIN.replace("H100 SXM", "RTX 1080")
    path = table(tmp_path, HEAD, other, other, CHAIN, other, CHAIN.replace("2.5", "none"))
    answered = CliRunner().invoke(main, ["validate", "--table", str(path), "--out", str(tmp_path)])
    assert answered.exit_code == 0, answered.output
    page = (tmp_path / "ledger.md").read_text("utf-8")
    assert "rows.csv:2-3, 5 (3 rows): there is no device 'RTX 1080'" in page
    assert "rows.csv:6:1: tokens_per_step: expected a number above 0" in page
    assert consecutive([7, 9, 10, 11]) == "7, 9-11"


def test_groups_and_steps_are_of_the_rows_that_belong_to_them(tmp_path: Path) -> None:
    ledger = read_table(table(tmp_path, HEAD, CHAIN), Catalogue())
    groups = {one.group for one in scores(ledger.rows)}
    assert groups == {"all", "2 to 32 requests"}
    assert [(one.quantity, one.rows) for one in step_scores(ledger.rows)] == [
        (PLAIN_STEP, 1),
        (STEP, 1),
    ]


def test_a_plain_run_beside_several_others_is_one_step(tmp_path: Path) -> None:
    others = CHAIN.replace("480", "500"), CHAIN.replace("somebody#1", "another")
    ledger = read_table(table(tmp_path, HEAD, CHAIN, *others), Catalogue())
    assert [(one.quantity, one.rows) for one in step_scores(ledger.rows)] == [
        (PLAIN_STEP, 2),
        (STEP, 3),
    ]


LOOP_HEAD = (
    "source,hardware,engine,target_model,target_format,method,draft_steps,tokens_per_step,"
    "concurrency,requests,speculative_tokens_per_s,mean_tpot_ms,mean_ttft_ms,"
    "serving.memory.kv_tokens"
)
LOOPS = (
    "me,H100 SXM,vLLM,Llama-3.1-8B,bf16,EAGLE-3 chain,3,2.5,8,32,900,8,2000,1600",
    "me,H100 SXM,vLLM,Llama-3.1-8B,bf16,none,,,8,32,600,10,1500,1600",
)
LENGTHS = {"prompt_tokens": "300", "output_tokens": "100"}


def test_a_closed_loop_is_simulated_from_its_first_request_to_its_last(tmp_path: Path) -> None:
    """Eight clients in room for four of 400 tokens each, which are to grow from 300."""
    drafted, without = read_table(table(tmp_path, LOOP_HEAD, *LOOPS), Catalogue(), LENGTHS).rows
    scenario = drafted.loaded.scenario
    assert (scenario.requests.count, scenario.requests.concurrency) == (32, 8)
    assert scenario.lengths == (300, 100, 400)
    assert scenario.serving.policy.name == "unified_budget"
    assert scenario.batch < 8
    own, _ = simulate(scenario, drafted.loaded.acceptance())
    alone, _ = simulate(without.loaded.scenario, without.loaded.acceptance())
    said = {one.quantity: (one.measured, one.predicted.value) for one in drafted.comparisons}
    assert said == {
        SPEEDUP: (1.5, own.tokens_per_s / alone.tokens_per_s),
        RATE: (900.0, own.tokens_per_s),
        TPOT: (0.008, own.tpot_s),
        TTFT: (2.0, own.ttft_s),
    }
    assert own.serving.mean_waiting > 1.0
    assert [one.quantity for one in without.comparisons] == [RATE, TPOT, TTFT]
    assert [(one.quantity, one.rows) for one in loop_scores([drafted, without])] == [
        (RATE, 2),
        (TPOT, 2),
        (TTFT, 2),
    ]


def test_a_rate_without_its_requests_is_one_of_steps(tmp_path: Path) -> None:
    ledger = read_table(table(tmp_path, HEAD, CHAIN), Catalogue())
    assert not loop_scores(ledger.rows)
    assert ledger.rows[0].loaded.scenario.requests.count == 2
    stated = read_table(
        table(tmp_path, f"{LOOP_HEAD},serving.policy", f"{LOOPS[1]},{{name: prefill_first}}"),
        Catalogue(),
        LENGTHS,
    )
    assert stated.rows[0].loaded.scenario.serving.policy.name == "prefill_first"


def test_cells_of_every_row_are_stated_once(tmp_path: Path) -> None:
    path = str(table(tmp_path, LOOP_HEAD, *LOOPS))
    cells = ["--set", "prompt_tokens=300", "--set", "output_tokens=100"]
    told = CliRunner().invoke(main, ["validate", "--table", path, *cells, "--json"])
    found = json.loads(told.stdout)
    assert [score["quantity"] for score in found["closed_loops"]] == [RATE, TPOT, TTFT]
    assert not any("prompts of" in words for row in found["rows"] for words in row["assumed"])
    page = CliRunner().invoke(main, ["validate", "--table", path, *cells, "--long"]).stdout
    assert "Closed loops" in page
    assert "900, " in page
    wrong = CliRunner().invoke(main, ["validate", "--table", path, "--set", "prompt_tokens"])
    assert wrong.exit_code == 2
    assert "expected COLUMN=CELL" in wrong.stderr
    alone = CliRunner().invoke(main, ["validate", "--set", "prompt_tokens=1"])
    assert alone.exit_code == 2
    assert "--set is for the rows of a --table" in alone.stderr


def test_llama_cpp_keeps_no_share_of_a_memory_free(tmp_path: Path) -> None:
    """15.8 GB of weights on a card of 17.2 GB, of which vLLM takes 15.5."""
    head = "hardware,engine,target_model,target_format,method,draft_steps,tokens_per_step,speedup"
    run = "RTX 4060 Ti,{},Qwen3.5-27B,{},MTP,3,2.5,1.5"
    rows = run.format("llama.cpp", "Q4_K_M"), run.format("vLLM", "Q4_K_M")
    ledger = read_table(table(tmp_path, head, *rows), Catalogue())
    assert [row.place[1] for row in ledger.rows] == [2]
    assert "does not fit rtx_4060_ti_16g" in ledger.left_out[0].fault.message


def test_several_cards_share_every_layer_unless_the_row_says_otherwise(tmp_path: Path) -> None:
    head = f"{HEAD},target.tensor_parallel"
    cells = dict(zip(HEAD.split(","), CHAIN.split(","), strict=True))
    several = ",".join((cells | {"hardware": "4 x H100 SXM", "gpu_count": ""}).values())
    ledger = read_table(table(tmp_path, head, f"{several},", f"{several},2"), Catalogue())
    ranks = []
    for row in ledger.rows:
        assert row.loaded.scenario.target
        ranks.append(row.loaded.scenario.target.tensor_parallel)
    assert ranks == [4, 2]
    words = "4 cards share every layer"
    assert [words in row.assumed for row in ledger.rows] == [True, False]
