"""A plan from one line: what it takes by default, what it says, and whom its errors blame."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from scipy.stats import fisher_exact

from simulator.cli.main import main
from simulator.core.acceptance.sources import Cycle, odds_of
from simulator.core.cost.model import ModelSpec
from simulator.core.faults import BadInput, Infeasible
from simulator.inputs import usual
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.models.named import find_model
from simulator.report.html import as_html
from simulator.report.pages.plan import page as plan_page
from simulator.scenario import load
from simulator.scenario.caveats import taken_over
from simulator.scenario.evaluate import baseline, law, plain, simulate
from simulator.scenario.expenses import expenses, rented_devices
from simulator.scenario.loading import variant
from simulator.studies.plan.commands.engines import ENGINES
from simulator.studies.plan.export import draft_lengths, exports
from simulator.studies.plan.file import load_plan
from simulator.studies.plan.headroom import headroom
from simulator.studies.plan.line.load import busiest
from simulator.studies.plan.question import (
    DEFAULTS,
    PlanQuestion,
    _same_cards,
    planned,
)
from simulator.studies.plan.robustness import _resampled, chance
from simulator.studies.plan.search import Finding, examine, search
from simulator.studies.plan.study import study

ROWS = [(0.0, 400, 30), (0.5, 300, 20), (0.75, 900, 40), (4.0, 200, 25), (9.0, 100, 60)]


def log(folder: Path, head: str = "ts,input_tokens,output_tokens") -> Path:
    path = folder / "my.csv"
    path.write_text(
        "\n".join([head, *(f"{at},{prompt},{output}" for at, prompt, output in ROWS)]) + "\n"
    )
    return path


def question(folder: Path, **changes: Any) -> PlanQuestion:
    requests, _ = busiest(str(log(folder)), {}, 4, None, None)
    asked = {"model": "lmsys/vicuna-7b-v1.3", "devices": ("a100_80g_sxm",), "requests": requests}
    return PlanQuestion(
        **(asked | {"slo": {"ttft_ms": {"p95": 1000.0}, "tpot_ms": {"p95": 60.0}}} | changes)
    )


def asked(folder: Path, *words: str, **options: str) -> Result:
    given = {
        "model": "lmsys/vicuna-7b-v1.3",
        "device": "a100_80g_sxm",
        "traffic": str(log(folder)),
        "ttft-p95": "1s",
    } | options
    return CliRunner().invoke(
        main,
        ["plan", *(word for name, value in given.items() for word in (f"--{name}", value)), *words],
    )


def test_one_card_by_two_profiles_is_said_to_be_one(tmp_path: Path) -> None:
    """An A800 starts from a profile of the A100 too, and is a card of its own."""
    names = ("a100_80g_sxm", "a100_80g_sxm_vidur", "a800_80g_sxm_vidur")
    said = list(_same_cards(question(tmp_path, devices=names), Catalogue()))
    assert [words.partition(" by another")[0] for words in said] == [
        "a100_80g_sxm_vidur: the same card as a100_80g_sxm"
    ]


def test_ids_of_hugging_face_name_one_model_of_the_catalogue() -> None:
    ids = [
        id_.lower()
        for path in Catalogue().names("model").values()
        for id_ in yaml.safe_load(path.read_text()).get("huggingface", ())
    ]
    assert len(ids) == len(set(ids)) > 40
    assert all(id_.count("/") == 1 for id_ in ids)
    llama = find_model("meta-llama/Llama-3.1-70B-Instruct", Catalogue(), "--model x")
    assert (llama.reference, llama.published_as) == (
        "llama_3_1_70b",
        "meta-llama/Llama-3.1-70B-Instruct",
    )
    assert (
        find_model("llama_3_1_70b", Catalogue(), "--model x").published_as
        == "meta-llama/Llama-3.1-70B-Instruct"
    )


BASE = "meta-llama/Llama-3.1-8B"
INSTRUCT = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.mark.parametrize(
    ("typed", "checkpoint"),
    [
        ("llama_3_1_8b", None),
        (INSTRUCT, None),  # the first of its model
        (BASE, BASE),
        ("Llama-3.1-8B", BASE),
        ("META-LLAMA/llama-3.1-8b", BASE),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "nvidia/Llama-3.1-8B-Instruct-FP8"),
        ("Qwen/Qwen2.5-72B-Instruct", "Qwen/Qwen2.5-72B-Instruct"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-R1"),
        ("bartowski/Llama-3.1-8B-Instruct-GGUF:Q4_K_M", None),
    ],
)
def test_a_typed_id_is_placed_as_the_checkpoint_to_serve(typed: str, checkpoint: str) -> None:
    placed = find_model(typed, Catalogue(), "--model x").placed()
    assert placed.get("checkpoint") == checkpoint
    assert placed["model"] in Catalogue().names("model")


@pytest.mark.parametrize("typed", [BASE, INSTRUCT, "nvidia/Llama-3.1-8B-Instruct-FP8"])
def test_a_plan_serves_the_checkpoint_that_was_typed(typed: str, tmp_path: Path) -> None:
    asked = question(tmp_path, model=typed, devices=("h100_sxm",))
    plan, _ = planned(asked, Catalogue())
    plain = next(one for one in plan.candidates if one.strategy == "plain")
    answer: Any = SimpleNamespace(candidate=plain, replicas=1)
    files = exports(answer, None, {})
    assert f"\nvllm serve {typed} " in files["vllm.sh"]
    stated = yaml.safe_load(files["scenario.yaml"])["target"]
    assert stated.get("checkpoint", INSTRUCT) == typed


def test_a_typed_draft_is_the_one_that_drafts(tmp_path: Path) -> None:
    draft = "meta-llama/Llama-3.2-1B"
    plan, _ = planned(
        question(tmp_path, model=BASE, devices=("h100_sxm",), draft=draft), Catalogue()
    )
    drafted = next(one for one in plan.candidates if one.strategy == "draft_model")
    answer: Any = SimpleNamespace(candidate=drafted, replicas=1)
    assert f'"model": "{draft}"' in exports(answer, None, {})["vllm.sh"]


def test_what_the_defaults_name_is_in_the_catalogue() -> None:
    catalogue = Catalogue()
    linked = [name for members in usual.LINKS.values() for name in members]
    assert len(linked) == len(set(linked))
    assert set(linked) <= set(catalogue.names("device"))
    assert set(usual.LINKS) <= set(catalogue.names("link"))
    assert set(usual.ENGINES.values()) <= set(catalogue.names("engine"))
    for model, drafts in DEFAULTS["drafts"].items():
        specs = [find_model(name, catalogue, "").spec for name in (model, *drafts)]
        assert len({spec.vocab_size for spec in specs}) == 1, model
        assert all(spec.weights < specs[0].weights / 2 for spec in specs[1:]), model
    for methods in DEFAULTS["methods"].values():
        assert {method["strategy"] for method in methods.values()} <= {
            *catalogue.names("method"),
            "vanilla_sd",
        }


def test_a_folder_with_a_config_is_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shapes = {
        "hidden_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "intermediate_size": 2048,
        "vocab_size": 32000,
    }
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(
        json.dumps(shapes | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]})
    )
    mine = find_model("mine", Catalogue(), "--model mine")
    assert isinstance(mine.spec, ModelSpec)
    assert mine.spec.num_hidden_layers == 4
    plan, document = planned(question(tmp_path, model="mine"), Catalogue())
    assert {candidate.strategy for candidate in plan.candidates} == {"plain", "ngram"}
    assert document.data["scenario"]["target"]["model"] == "./mine"
    assert any(
        "no smaller model with its tokenizer is known" in words for words in plan.file.assumed
    )


def test_a_question_offers_what_exists_and_says_what_it_took(tmp_path: Path) -> None:
    plan, _ = planned(question(tmp_path), Catalogue())
    assert {candidate.strategy for candidate in plan.candidates} == {
        "plain",
        "draft_model",
        "ngram",
    }
    said = "\n".join(plan.file.assumed)
    for words in (
        "batching: unified_budget, at most 256 requests together and 2,048 tokens a pass",
        "prefix caching: left out, though on in engine vllm",
        "engine vllm, joined by nvlink_a100, 1.6 USD an hour",
        "mtp: left out",
        "acceptance borrowed from",
    ):
        assert words in said
    drafted = next(
        candidate for candidate in plan.candidates if candidate.strategy == "draft_model"
    )
    assert drafted.loaded.scenario.one_lane
    assert (
        sum(group.number for group in rented_devices(drafted.loaded.scenario))
        == drafted.loaded.scenario.target.tensor_parallel
    )
    assert drafted.loaded.scenario.strategy.model_dump()["drafter"] == {"name": "autoregressive"}


def test_a_card_of_ones_own_may_be_a_file(tmp_path: Path) -> None:
    card = tmp_path / "my_card.yaml"
    card.write_text(
        "like: a100_80g_sxm\nmemory_gb: {value: 48.0, source: datasheet, confidence: datasheet}\n"
    )
    read, document = planned(
        question(tmp_path, devices=(str(card),), prices={str(card): 0.9}), Catalogue(), (), None
    )
    assert (
        {name for candidate in read.candidates for name in candidate.devices}
        == set(document.data["devices"])
        == {"my_card"}
    )


@pytest.mark.full
def test_heads_and_mtp_layers_are_offered_where_they_exist(tmp_path: Path) -> None:
    llama, _ = planned(
        question(tmp_path, model="meta-llama/Llama-3.1-70B-Instruct", devices=("h200_sxm",)),
        Catalogue(),
    )
    assert llama.file.heads == {"eagle_3": "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B"}
    assert any(
        "which was trained for meta-llama/Llama-3.3-70B-Instruct" in words
        for words in llama.file.assumed
    )
    qwen, _ = planned(
        question(tmp_path, model="Qwen/Qwen3-32B", devices=("h200_sxm",)), Catalogue()
    )
    assert qwen.file.heads == {"eagle_3": "RedHatAI/Qwen3-32B-speculator.eagle3"}
    drafted = next(
        candidate for candidate in qwen.candidates if candidate.strategy == "draft_model"
    ).loaded.scenario
    assert drafted.draft is not None
    assert drafted.draft.model.name == "qwen3_1_7b"
    deepseek, _ = planned(
        question(tmp_path, model="deepseek-ai/DeepSeek-V3", devices=("h200_sxm",)), Catalogue()
    )
    assert {"mtp", "mtp_3"} <= {candidate.strategy for candidate in deepseek.candidates}
    assert not any("eagle" in candidate.strategy for candidate in deepseek.candidates)


@pytest.mark.full
def test_the_saved_file_asks_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "plans"
    folder.mkdir()
    done = asked(
        tmp_path,
        "--tpot-p95",
        "60ms",
        "--save",
        str(folder / "mine.yaml"),
        "--json",
        "--draws",
        "1",
        "--requests",
        "4",
    )
    assert done.exit_code == 0, done.output
    again = CliRunner().invoke(main, ["plan", str(folder / "mine.yaml"), "--json", "--draws", "1"])
    assert again.exit_code == 0, again.output
    first, second = json.loads(done.stdout), json.loads(again.stdout)
    assert first["answer"] == second["answer"]
    assert first["laws"] == second["laws"]
    assert load_plan(str(folder / "mine.yaml")).file.assumed


def test_the_requests_that_come_closest_together_are_taken(tmp_path: Path) -> None:
    requests, said = busiest(str(log(tmp_path)), {}, 3, None, None)
    assert (requests["arrivals"].get("from_s", 0.0), requests["count"]) == (0.0, 3)
    assert any("5 requests read: arrival from 'ts'" in words for words in said)
    requests, said = busiest(str(log(tmp_path)), {}, 3, None, 900)
    assert requests["arrivals"]["drop_above_tokens"] == 900
    assert any("1 requests of more than 900 tokens left out" in words for words in said)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "foo/Bar-7B"}, "--model foo/Bar-7B: is neither"),
        (
            {"model": "foo/Bar-7B"},
            "hf download foo/Bar-7B config.json --local-dir Bar-7B, then --model ./Bar-7B",
        ),
        (
            {"device": "h100"},
            "--device h100: is the beginning of h100_94g_sxm, h100_nvl, h100_pcie, h100_sxm; name "
            "one of them, whole",
        ),
        ({"ttft-p95": "1"}, "--ttft-p95 1: expected a time with its unit, as in 1s or 40ms"),
        ({"engine": "vlm"}, "--engine vlm"),
        ({"weights": "fp7"}, "--weights fp7"),
        ({"draft": "qwen"}, "--draft qwen: is neither"),
        ({"traffic": "chat_poisso"}, "--traffic"),
        (
            {"columns": "when=ts"},
            (
                "--columns when=ts: expected "
                "arrival=...,prompt=...,output=...,task=...,hashes=..., got 'when=ts'"
            ),
        ),
        (
            {"columns": "arrival=when"},
            "there is no column 'when' for arrival; it has ts, input_tokens, output_tokens",
        ),
        ({"price": "a100_80g_sxm=-1"}, "--price a100_80g_sxm=-1: expected USD an hour, 0 for"),
    ],
)
def test_an_error_blames_what_was_typed(
    tmp_path: Path, options: dict[str, str], words: str
) -> None:
    done = asked(tmp_path, **options)
    assert done.exit_code == 2, done.output
    assert words in done.output


def test_a_mistake_is_said_before_what_lacks_memory(tmp_path: Path) -> None:
    """A 70B has no room on one card with any strategy; that of a mistake is the mistake."""
    asks = question(tmp_path, model="llama_3_1_70b", devices=("rtx_4060_ti_8g",))
    with pytest.raises(Infeasible):
        planned(asks, Catalogue())
    with pytest.raises(BadInput, match="did you mean 'autoregressive'") as error:
        planned(asks, Catalogue(), ("strategies.mine={strategy: autoregresive}",))
    assert not isinstance(error.value, Infeasible)


@pytest.mark.parametrize(
    ("workload", "option", "value", "remedy"),
    [
        ("chat_poisson", "rate", "3", "arrivals.rate_per_s=3"),
        ("azure_sample", "rate", "3", "arrivals.rate_scale=2"),
        ("azure_sample", "requests", "20", "count=20"),
        ("chat_poisson", "columns", "arrival=ts", ""),
    ],
)
def test_what_a_workload_states_is_set_there(
    tmp_path: Path, workload: str, option: str, value: str, remedy: str
) -> None:
    done = asked(tmp_path, **{"traffic": workload, option: value})
    assert done.exit_code == 2
    said = f"is for a file, and the workload '{workload}' states it itself; "
    assert said in done.output
    if not remedy:
        assert "leave it out" in done.output
        return
    assert f"write --set scenario.requests.{remedy}" in done.output
    asks = question(tmp_path, requests=workload)
    read, _ = planned(asks, Catalogue(), (f"scenario.requests.{remedy}",))
    field, _, number = remedy.rpartition("=")
    stated: Any = read.candidates[0].loaded.scenario.requests
    for part in field.split("."):
        stated = getattr(stated, part)
    assert stated == float(number)


@pytest.mark.full
def test_a_device_without_a_price_is_counted_or_left_out_beside_others_and_never_refused(
    tmp_path: Path,
) -> None:
    """Alone, an hour of one costs 1, so that USD count devices; beside one with a price it is left
    out until one is stated.
    """
    alone, _ = planned(question(tmp_path, devices=("m1_max",)), Catalogue())
    assert {candidate.price_usd_per_hour for candidate in alone.candidates} == {1.0}
    assert any(
        words.startswith("m1_max: engine") and "no price is known" in words
        for words in alone.file.assumed
    )
    both = ("m1_max", "a100_80g_sxm")
    beside, _ = planned(question(tmp_path, devices=both), Catalogue())
    assert set(beside.file.devices) == {"a100_80g_sxm"}
    assert (
        "m1_max: left out, as no price of it is known; state one, as in --price m1_max=2.50"
        in beside.file.assumed
    )
    stated, _ = planned(question(tmp_path, devices=both, prices={"m1_max": 0.5}), Catalogue())
    assert {name: offer.price_usd_per_hour.value for name, offer in stated.file.devices.items()}[
        "m1_max"
    ] == 0.5
    done = asked(
        tmp_path,
        "--tpot-p95",
        "900ms",
        "--ttft-p95",
        "60s",
        "--requests",
        "4",
        "--draws",
        "1",
        "--long",
        device="m1_max",
    )
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "No price is known for m1_max: its USD per hour counts devices;" in said
    assert "Headroom: unknown from 4 requests, too few to draw more from" in said


def test_a_price_of_another_device_is_refused_and_a_card_is_called_like_its_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "my_card.yaml").write_text("about: mine\nlike: h20\n")
    card = f"{tmp_path}/my_card.yaml"
    mine, _ = planned(question(tmp_path, devices=(card,), prices={"my_card": 2.5}), Catalogue())
    assert {candidate.price_usd_per_hour for candidate in mine.candidates} == {2.5}
    with pytest.raises(BadInput, match="--price l44: is none of the devices my_card"):
        planned(question(tmp_path, devices=(card,), prices={"l44": 2.5}), Catalogue())


def test_a_question_beside_a_plan_or_without_its_parts_is_refused(tmp_path: Path) -> None:
    beside = CliRunner().invoke(main, ["plan", "chat_qwen3_32b", "--model", "x"])
    assert (beside.exit_code, "--model x: asks in one line" in beside.output) == (
        2,
        True,
    )
    model = CliRunner().invoke(main, ["plan", "qwen3_32b", "--device", "h100_sxm"])
    assert model.exit_code == 2
    assert "qwen3_32b: is a model, and no plan; write --model qwen3_32b" in model.output
    alone = CliRunner().invoke(main, ["plan", "--device", "h100_sxm", "--tpot-p95", "40ms"])
    assert alone.exit_code == 2
    assert "it lacks --model, --traffic, a limit on the wait (--ttft-p95 1s)" in alone.output


def test_a_model_without_room_ends_with_code_3(tmp_path: Path) -> None:
    with pytest.raises(Infeasible, match="does not fit"):
        planned(question(tmp_path, model="deepseek-ai/DeepSeek-V3", devices=("l4",)), Catalogue())
    assert asked(tmp_path, device="l4", model="deepseek-ai/DeepSeek-V3").exit_code == 3


def test_a_draft_of_another_tokenizer_is_left_out_and_said(tmp_path: Path) -> None:
    plan, document = planned(question(tmp_path, draft="qwen3_0_6b"), Catalogue())
    assert "draft_model" not in document.data["strategies"]
    assert any(
        "draft_model: left out" in words and "tokenizer" in words for words in plan.file.assumed
    )
    with pytest.raises(BadInput, match="vlm"):
        planned(question(tmp_path, engine="vlm"), Catalogue())


COMMANDS = {
    ("vllm_chain", "vllm"): """
        vllm serve lmsys/vicuna-7b-v1.3 --tensor-parallel-size 1
        "method": "draft_model", "model": "Jiayi-Pan/Tiny-Vicuna-1B", \
"draft_tensor_parallel_size": 1""",
    ("autoregressive", "vllm"): """
        --max-num-seqs 8 --max-model-len 1024 --gpu-memory-utilization 0.9 --dtype bfloat16
        --no-enable-chunked-prefill --max-num-batched-tokens 1024""",
    ("vllm_ngram", "vllm"): '"method": "ngram", "num_speculative_tokens": 5',
    (
        "vllm_eagle_3",
        "vllm",
    ): '"method": "eagle3", "model": "some/head", "num_speculative_tokens": 3',
    ("sglang_chain", "sglang"): """
        --speculative-algorithm STANDALONE --speculative-draft-model-path Jiayi-Pan/Tiny-Vicuna-1B
        --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4""",
    ("sglang_eagle", "sglang"): """
        --speculative-algorithm EAGLE --speculative-draft-model-path some/head
        --speculative-num-steps 5 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8""",
    ("autoregressive", "llama_cpp_cuda"): "llama-server -m vicuna-7b-v1.3.gguf -np 8",
    ("sglang_chain", "llama_cpp_cuda"): """
        -md Tiny-Vicuna-1B.gguf
        --spec-type draft-simple --spec-draft-n-max 3 --spec-draft-n-min 0 --spec-draft-p-min 0""",
}
"""Lines, or parts of them, of the command for a strategy and an engine."""


@pytest.mark.parametrize(("strategy", "engine"), sorted(COMMANDS))
def test_commands_name_checkpoints_and_documented_options(strategy: str, engine: str) -> None:
    place = f"{{machine: server, device: a100_80g_sxm, engine: {engine}, weights: bf16, model: "
    settings = [
        f"strategy={strategy}",
        f"target={place}vicuna_7b}}",
        f"draft={place}tiny_vicuna_1b}}",
        "acceptance={rate: 0.7}",
        (
            "requests={arrivals: {name: poisson, rate_per_s: 1}, count: 8, prompt_tokens: 100, "
            "output_tokens: 20}"
        ),
        "serving={policy: {name: prefill_first, max_requests: 8}}",
    ]
    loaded = load("vanilla_llama_2_7b_a100", settings)
    chosen: Any = SimpleNamespace(candidate=SimpleNamespace(loaded=loaded), replicas=2)
    kind = next(entry for name, entry in ENGINES.items() if engine.startswith(name))
    command = exports(chosen, None, {}, "some/head" if "eagle" in strategy else "")[kind.file]
    first, second, *_ = command.splitlines()
    assert first == (
        f"# for each of 2 replicas, on 1 x a100_80g_sxm with {kind.version}: sh {kind.file}"
    )
    assert second == f"# option names: {kind.source}"
    for words in COMMANDS[strategy, engine].strip().splitlines():
        assert words.strip() in command
    assert not any(line.rstrip() != line for line in command.splitlines())


def test_draft_lengths_are_those_of_the_fastest_law() -> None:
    requests = (
        "requests={arrivals: {name: poisson, rate_per_s: 1}, count: 8, prompt_tokens: 100, "
        "output_tokens: 20}"
    )
    serving = "serving={policy: {name: prefill_first, max_requests: 16}}"
    for rate, gamma in ((0.8, 4), (0.02, 4)):
        loaded = load(
            "vanilla_llama_2_7b_a100",
            [requests, serving, f"acceptance={{rate: {rate}}}", f"strategy.gamma={gamma}"],
        )
        lengths = draft_lengths(loaded)
        assert list(lengths) == [110, 1024, 4096]
        for context, table in lengths.items():
            for batch, tokens in table.items():
                tpot = {}
                for most in range(gamma + 1):
                    drafted = loaded.change(gamma=most).scenario if most else plain(loaded.scenario)
                    odds = odds_of(loaded.acceptance() if most else Cycle((0,)), drafted.exit)
                    tpot[most] = drafted.law_at(odds, batch, context).tpot_s
                assert tpot[tokens] == pytest.approx(min(tpot.values()), rel=1e-12), (
                    context,
                    batch,
                )
        assert (0 in lengths[110].values()) is (rate < 0.5)


@pytest.mark.full
def test_the_exported_scenario_gives_the_figures_of_the_plan(tmp_path: Path) -> None:
    done = asked(
        tmp_path,
        "--tpot-p95",
        "60ms",
        "--out",
        str(tmp_path / "out"),
        "--json",
        "--draws",
        "1",
        "--requests",
        "4",
    )
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)["answer"]
    again = load(str(tmp_path / "out/scenario.yaml"))
    outcome, _ = simulate(again.scenario, again.acceptance())
    spent = expenses(again.scenario, outcome)
    assert spent is not None
    assert outcome.tpot_s * 1e3 == answer["tpot_ms"]
    assert (spent.usd_per_hour, spent.usd_per_million_tokens) == (
        answer["cost_usd_per_hour"],
        answer["cost_usd_per_million_tokens"],
    )
    measured = outcome.serving.counted.slo
    assert [verdict.found_ms for verdict in measured] == list(answer["measured_ms"].values())
    assert (tmp_path / "out/vllm.sh").is_file()
    page = (tmp_path / "out/plan.html").read_text("utf-8")
    assert "data-sliders" in page
    for words in ("The traffic is the 4 requests that were read, once", "Taken by default"):
        assert words in page
    for words in (
        "the queue is",
        "arrival_s,prompt_tokens",
        "method.strategy",
        "1.00 times the price",
    ):
        assert words not in page


QUESTIONS = {
    "70B at home": (
        "meta-llama/Llama-3.1-70B-Instruct",
        ("rtx_3090",),
        "15s",
        {"plain", "draft_model", "eagle_3", "ngram"},
    ),
    "H200 against B200": (
        "Qwen/Qwen3-32B",
        ("h200_sxm", "b200_sxm"),
        "1s",
        {"plain", "draft_model", "eagle_3", "ngram"},
    ),
    "a mixture with MTP": (
        "deepseek-ai/DeepSeek-V3",
        ("h200_sxm",),
        "4s",
        {"plain", "mtp", "mtp_3", "ngram"},
    ),
    "a mixture with windows": (
        "openai/gpt-oss-120b",
        ("h100_sxm",),
        "1s",
        {"plain", "eagle_3", "ngram"},
    ),
}
"""Model, devices, limit on TTFT, and the methods that there are for it."""


@pytest.mark.full
@pytest.mark.parametrize("words", sorted(QUESTIONS))
def test_questions_of_users_are_answered(tmp_path: Path, words: str) -> None:
    model, devices, ttft, methods = QUESTIONS[words]
    slo = {"ttft_ms": {"p95": float(ttft[:-1]) * 1e3}, "tpot_ms": {"p95": 200.0}}
    plan, _ = planned(question(tmp_path, model=model, devices=devices, slo=slo), Catalogue())
    assert {candidate.strategy for candidate in plan.candidates} == methods
    answered = study(plan, draws=1)
    found, page = answered.search, as_html(plan_page(answered))
    assert found.best is not None
    assert all(
        words in page
        for words in ("data-sliders", "Headroom:", "With twice the traffic:", "per million output")
    )
    assert {family[0] for family in found.by_family} == set(devices)
    heads = plan.file.heads.get(found.best.candidate.strategy, "")
    command = exports(found.best, None, {}, heads)["vllm.sh"]
    assert f"vllm serve {model} " in command
    fewer = (
        examine(found.best.candidate, found.best.replicas - 1) if found.best.replicas > 1 else None
    )
    assert fewer is None or not fewer.kept


def answered_as_page(folder: Path, *words: str) -> str:
    """What a command writes as a page."""
    done = CliRunner().invoke(main, [*words, "--out", str(folder / "page.html")])
    assert done.exit_code == 0, done.output
    return (folder / "page.html").read_text("utf-8")


@pytest.mark.full
def test_a_mixture_with_mtp_gains_from_one_request_and_from_128(tmp_path: Path) -> None:
    """The more requests, the less ranks that wait for each other weigh, and the more the rows."""
    name = "mtp_3_deepseek_v3_8xh200"
    few = ["requests.output_tokens=16", "requests.count=128"]
    loaded = load(name, few)
    one, many = (
        baseline(loaded.scenario, batch).tpot_s
        / law(loaded.scenario, loaded.acceptance(), batch).tpot_s
        for batch in (1, 128)
    )
    assert min(one, many) > 1.0
    overrides = [word for change in few for word in ("--set", change)]
    page = answered_as_page(
        tmp_path, "batches", name, *overrides, "--sizes", "1,128", "--simulate", "1,128"
    )
    assert f"{one:.2f}" in page
    assert f"{many:.2f}" in page


@pytest.mark.full
def test_a_draft_on_the_neural_engine_pays_once_it_works_beside_the_target(tmp_path: Path) -> None:
    few = ["requests.count=6", "requests.output_tokens=64"]
    names = (
        "mirror_qwen3_32b_m2_ultra",
        "vanilla_qwen3_32b_m2_ultra_gpu_draft",
        "vanilla_qwen3_32b_m2_ultra",
    )
    outcomes = [
        simulate(loaded.scenario, loaded.acceptance())[0].tpot_s
        for loaded in (load(name, few) for name in names)
    ]
    assert outcomes == sorted(outcomes)
    overrides = [word for change in few for word in ("--set", change)]
    page = answered_as_page(tmp_path, "compare", *names, *overrides)
    assert all(f"{seconds * 1e3:.1f}" in page for seconds in outcomes)


@pytest.mark.full
def test_ten_gbe_costs_specpipe_little(tmp_path: Path) -> None:
    few = ["requests.count=2", "requests.output_tokens=16", "requests.prompt_tokens=64"]
    names = ("specpipe_llama_3_1_70b_8x3090", "specpipe_llama_3_1_70b_two_servers")
    near, far = (
        simulate(loaded.scenario, loaded.acceptance())[0].tpot_s
        for loaded in (load(name, few) for name in names)
    )
    assert far == pytest.approx(near, rel=0.05)
    page = answered_as_page(
        tmp_path, "network", *names, *(word for change in few for word in ("--set", change))
    )
    assert "twice as long" in page


LONG: dict[str, Any] = {
    "model": "meta-llama/Llama-3.1-70B-Instruct",
    "devices": ("h200_sxm",),
    "draft": "llama_3_1_8b",
    "requests": {
        "arrivals": {"name": "poisson", "rate_per_s": 0.2},
        "count": 8,
        "prompt_tokens": 30_000,
        "output_tokens": 60,
    },
    "slo": {"ttft_ms": {"p95": 60_000.0}, "tpot_ms": {"p95": 200.0}},
}
"""Long chats with a draft whose own cache has to be read with every token that it writes."""


@pytest.mark.full
def test_speculation_stops_where_the_cache_of_the_draft_is_long(tmp_path: Path) -> None:
    changes = (
        "scenario.serving.policy={name: prefill_first, batch_tokens: 32768, max_requests: 64}",
        "hardware.h200_sxm.vary={target.tensor_parallel: [4]}",
        "strategies.draft_model.vary={strategy.gamma: [3]}",
        "least_chance=0",
    )
    plan, _ = planned(question(tmp_path, **LONG), Catalogue(), changes)
    drafted = replace(
        plan,
        candidates=tuple(
            candidate for candidate in plan.candidates if candidate.strategy == "draft_model"
        ),
    )
    answered = study(drafted, draws=1)
    switched_off = {
        context: list(by_batch.values()).count(0) for context, by_batch in answered.lengths.items()
    }
    assert answered.lengths[1024][8] > 0
    assert 0 < switched_off[1024] <= switched_off[4096]
    assert list(answered.lengths[131_072].values())[-1] == 0
    assert "recommends turning speculation off from" in as_html(plan_page(answered))
    assert ",0\n" in answered.exports["schedule.csv"]


@pytest.mark.full
def test_the_best_for_20_usd_an_hour_is_bought_with_no_more(tmp_path: Path) -> None:
    """Of all that the money rents, the fleet that carries most."""
    affordable = ("devices.h100_sxm.count=5", "devices.a100_80g_sxm.count=9")
    arriving = {
        "arrivals": {"name": "poisson", "rate_per_s": 2},
        "count": 20,
        "prompt_tokens": 300,
        "output_tokens": 40,
    }
    asked_for = question(
        tmp_path, model="Qwen/Qwen3-8B", devices=("h100_sxm", "a100_80g_sxm"), requests=arriving
    )
    plan, _ = planned(asked_for, Catalogue(), affordable)
    budget = {
        name: 20.0 / offer.price_usd_per_hour.value for name, offer in plan.file.devices.items()
    }
    assert all(offer.count <= budget[name] for name, offer in plan.file.devices.items())
    answered = study(plan, draws=1)
    assert max(finding.cost_usd_per_hour for finding in answered.search.findings) <= 20.0
    fleets = [
        Finding(found.candidate, int(20.0 // found.candidate.price_usd_per_hour))
        for found in answered.search.by_family.values()
    ]
    most = max(headroom(fleet).times or 0.0 for fleet in fleets)
    assert answered.capacity
    assert most >= answered.capacity
    assert "times the planned traffic" in as_html(plan_page(answered))


HELD = {
    "lmsys/vicuna-7b-v1.3": ("a100_80g_sxm", 40.0, 300.0, 25.0),
    "meta-llama/Llama-3.1-8B-Instruct": ("h100_sxm", 160.0, 300.0, 14.0),
    "Qwen/Qwen3-8B": ("a100_80g_sxm", 40.0, 300.0, 25.0),
    "Qwen/Qwen3-32B": ("h200_sxm", 30.0, 400.0, 40.0),
    "meta-llama/Llama-2-13b-hf": ("l40s", 20.0, 800.0, 60.0),
}
"""Device, requests a second, and limits on TTFT and TPOT (ms, p95) for which one replica is too
few.
"""


@pytest.mark.full
@pytest.mark.parametrize("model", sorted(HELD))
def test_an_answer_holds_and_one_replica_fewer_does_not(tmp_path: Path, model: str) -> None:
    """Twenty further draws meet the SLO as often as the twenty of the stated chance, by Fisher's
    exact test.
    """
    device, rate, ttft, tpot = HELD[model]
    arriving = {
        "arrivals": {"name": "poisson", "rate_per_s": rate},
        "count": 60,
        "prompt_tokens": 400,
        "output_tokens": 60,
    }
    slo = {"ttft_ms": {"p95": ttft}, "tpot_ms": {"p95": tpot}}
    asked_for = question(tmp_path, model=model, devices=(device,), requests=arriving, slo=slo)
    plan, _ = planned(
        asked_for, Catalogue(), (f"hardware.{device}.vary={{target.tensor_parallel: [1]}}",)
    )
    best = search(plan, first_only=True).best
    assert best is not None
    assert best.replicas > 1
    assert not examine(best.candidate, best.replicas - 1).kept
    stated = chance(best, 20)
    fresh = [
        examine(best.candidate.changed(partial(_resampled, number=100 + draw)), best.replicas).kept
        for draw in range(20)
    ]
    counts = [[drawn, 20 - drawn] for drawn in (stated.kept, sum(fresh))]
    assert fisher_exact(counts).pvalue > 0.05
    assert stated.kept >= 15


METHOD = (
    "acceptance: {trace: null, stand_in: false, tokens_per_step: 2.5, window: 3, source: mine}\n"
)
"""Acceptance of a method, whose own file is no scenario that something is taken over from."""


def test_what_is_taken_over_is_said_with_the_file_that_it_is_from(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "like: vanilla_llama_2_7b_a100\ntarget: {device: h100_sxm}\nstrategy: {name: "
        "vanilla_sd, gamma: 3}\n"
    )
    (said,) = taken_over(load(str(path)))
    assert said.startswith("taken over from vanilla_llama_2_7b_a100 (like): ")
    assert "draft.model tinyllama_1_1b" in said
    assert "target.device" not in said
    assert "strategy.gamma" not in said
    (plainly,) = taken_over(load(str(path), ["strategy=autoregressive"]))
    assert "draft." not in plainly
    assert "acceptance." not in plainly
    assert list(taken_over(load("durations_only"))) == []
    assert list(taken_over(load("mtp_qwen3_5_27b_h100"))) == [], (
        "it names a method and starts from no scenario"
    )
    (named,) = taken_over(load("mtp_deepseek_v3_8xh200_data_parallel"))
    assert named.startswith(
        "taken over from autoregressive_deepseek_v3_8xh200 (like): target.model deepseek_v3,"
    )
    assert "strategy" not in named
    explained = CliRunner().invoke(main, ["explain", str(path)])
    assert "taken over from vanilla_llama_2_7b_a100" in explained.output
    path.write_text(
        path.read_text().replace("{name: vanilla_sd, gamma: 3}", "vllm_eagle_3") + METHOD
    )
    assert "strategy" not in "".join(taken_over(load(str(path))))
    wrong = CliRunner().invoke(main, ["explain", str(path), "--set", "target=null"])
    assert (wrong.exit_code, "vanilla_llama_2_7b_a100.yaml" in wrong.output) == (2, False)


OTHER_TARGET = "target.model=llama_3_1_70b"
"""On ``vanilla_qwen3_32b_a100`` a target of another vocabulary than that of the draft."""


def test_a_draft_of_another_vocabulary_is_not_taken_over() -> None:
    plainly = load("vanilla_qwen3_32b_a100", [OTHER_TARGET, "strategy=autoregressive"])
    assert plainly.scenario.draft is None
    assert list(taken_over(plainly))[-1] == (
        "not taken over from mirror_qwen3_32b_m2_ultra (like): draft.model spd_qwen_0_6b, "
        "whose vocabulary is not that of the target"
    )
    fitting = load("vanilla_qwen3_32b_a100", [OTHER_TARGET, "draft.model=llama_3_2_1b"])
    assert fitting.scenario.draft is not None
    # where the draft would sit is taken over
    assert fitting.scenario.draft.device.name == "a100_80g_sxm"
    back = variant(plainly, {"target.model": "qwen3_32b", "strategy": {"name": "vanilla_sd"}})
    assert back.scenario.draft is not None
    assert back.scenario.draft.model.name == "spd_qwen_0_6b"
    with pytest.raises(
        BadInput, match="vanilla_sd needs a draft, and spd_qwen_0_6b has another vocabulary"
    ):
        load("vanilla_qwen3_32b_a100", [OTHER_TARGET])


def test_a_plan_over_several_targets_has_no_draft_that_does_not_fit(tmp_path: Path) -> None:
    """The draft that the plan starts with is that of one target; the other one decodes plainly, or
    with its own.
    """
    (tmp_path / "two.yaml").write_text(
        yaml.safe_dump(
            {
                "scenario": {
                    "like": "vanilla_qwen3_32b_a100",
                    "acceptance": {"trace": None, "stand_in": False, "rate": 0.7},
                    "requests": {"arrivals": {"name": "poisson", "rate_per_s": 1}, "count": 4},
                    "serving": {"policy": {"name": "prefill_first", "max_requests": 8}},
                },
                "slo": {"ttft_ms": {"p90": 5000}},
                "devices": {"a100_80g_sxm": {"price_usd_per_hour": 2, "count": 16}},
                "hardware": {
                    "qwen": {"target": {"model": "qwen3_32b"}},
                    "llama": {"target": {"model": "llama_3_1_70b"}},
                },
                "strategies": {
                    "plain": {"strategy": "autoregressive"},
                    "drafted": {"strategy": {"gamma": 3}},
                    "own": {"draft": {"model": "llama_3_2_1b"}},
                },
                "replicas": 1,
            }
        )
    )
    plan = load_plan(str(tmp_path / "two.yaml"))
    drafts = {
        candidate.family: candidate.loaded.scenario.draft
        and candidate.loaded.scenario.draft.model.name
        for candidate in plan.candidates
    }
    assert drafts == {
        ("qwen", "plain"): "spd_qwen_0_6b",
        ("qwen", "drafted"): "spd_qwen_0_6b",
        ("llama", "plain"): None,
        ("llama", "own"): "llama_3_2_1b",
    }
    reasons = {candidate.family: candidate.reason for candidate in plan.left_out}
    assert "needs a draft, and spd_qwen_0_6b has another vocabulary" in reasons["llama", "drafted"]
    assert (
        "the draft's vocabulary of 128,256 is not the target's of 151,936" in reasons["qwen", "own"]
    )


def test_what_a_head_keeps_is_rescaled_once_for_equal_settings(tmp_path: Path) -> None:
    """Runs of a plan differ in traffic, replicas and limits, which the kept tokens do not depend
    on.
    """
    path = tmp_path / "mine.yaml"
    path.write_text("like: vanilla_llama_2_7b_a100\nstrategy: vllm_eagle_3\n" + METHOD)
    loaded = load(str(path))
    again = loaded.replace(slo=None)
    assert again.acceptance() is loaded.acceptance()
    assert loaded.replace(seed=1).acceptance() is not loaded.acceptance()
