"""What a plan of one line says that it took, and why it refuses, in full words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simulator.core.faults import BadInput
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.models.named import NamedModel, find_model
from simulator.scenario.bank import LentMean, Loan
from simulator.studies.plan import question as asking
from simulator.studies.plan.line.load import busiest
from simulator.studies.plan.question import PlanQuestion, written

REQUESTS: dict[str, Any] = {
    "arrivals": {"name": "poisson", "rate_per_s": 1},
    "count": 8,
    "prompt_tokens": 100,
    "output_tokens": 20,
}
SLO = {"ttft_ms": {"p95": 1000.0}, "tpot_ms": {"p95": 40.0}}
RANKS = (
    "ranks: 1, 2, 4, 8 (those that one server has; one with which the model does not fit, or does "
    "not start, is left out)"
)
REPLICAS = "replicas: 16 (at most, of every candidate)"
NO_MTP = "left out, as the model has no layer that predicts further tokens"
NO_HEAD = "left out, as no such head is published for a model of these shapes"
NGRAM = (
    "ngram: acceptance borrowed from llama_3_1_8b: 1.547 tokens a step, as the method's file says"
)


def assumed(model: str, *devices: str, **more: Any) -> list[str]:
    """What a question took by default, in words."""
    question = PlanQuestion(model, devices, **({"requests": REQUESTS, "slo": SLO} | more))
    return list(written(question, Catalogue()).data["assumed"])


def test_devices_formats_and_methods_are_said() -> None:
    ranks, replicas, weights, price, h100, draft, *methods = assumed(
        "lmsys/vicuna-7b-v1.3", "m1_max", "h100_sxm", prices={"h100_sxm": 2.5}
    )
    assert [ranks, replicas] == [RANKS, REPLICAS]
    assert weights == (
        "weights: bf16 (the format of the checkpoint, where its config.json states no other)"
    )
    assert price == (
        "m1_max: left out, as no price of it is known; state one, as in --price m1_max=2.50"
    )
    assert h100 == (
        "h100_sxm: engine vllm, joined by nvlink_h100, 2.5 USD an hour (stated with --price)"
    )
    assert draft.startswith(
        "draft_model: draft Jiayi-Pan/Tiny-Vicuna-1B on the GPUs of its target, one token a pass; "
        "acceptance borrowed from Qwen/Qwen3-32B with Qwen/Qwen3-1.7B: 2.57 tokens a step in a "
        "chain of 3 on "
    )
    assert methods == [
        f"eagle_3: {NO_HEAD}",
        f"mtp: {NO_MTP}",
        f"mtp_3: {NO_MTP}",
        NGRAM,
    ]


def test_what_is_published_of_a_model_is_said() -> None:
    said = assumed("deepseek_v3", "h200_sxm", prices={"h200_sxm": 4.0}, said=("first: said",))
    assert said[:5] == [
        "first: said",
        RANKS,
        REPLICAS,
        "weights: fp8_block (as published)",
        "h200_sxm: engine vllm, joined by nvlink_h100, 4 USD an hour (stated with --price)",
    ]
    assert (
        "draft_model: left out, as no smaller model with its tokenizer is known; name one with "
        "--draft"
    ) in said
    alone = assumed("lmsys/vicuna-7b-v1.3", "m1_max", weights="fp16")
    assert alone[2] == (
        "m1_max: engine llama_cpp_metal, one device a replica, 1 USD an hour (no price is known, "
        "so that the cheapest fleet is that of the fewest devices; --price states one)"
    )


def test_prompts_alone_have_nothing_to_draft(tmp_path: Path) -> None:
    log = tmp_path / "own.csv"
    log.write_text("arrival_s,prompt_tokens,output_tokens\n" + "1,900,1\n" * 3)
    alone = {"arrivals": {"name": "file", "format": "csv", "file": str(log)}}
    assert assumed("lmsys/vicuna-7b-v1.3", "m1_max", requests=alone)[-1] == (
        "draft_model: left out, as no output has a second token that could be drafted"
    )


def test_own_shapes_and_cache_formats_are_said() -> None:
    target = find_model("lmsys/vicuna-7b-v1.3", Catalogue(), "--model x")
    spec = target.spec.model_copy(
        update={
            "about": "a llama of 4 layers",
            "source": "mine/config.json (HF config.json)",
            "cache_format": "fp8",
        }
    )
    question = PlanQuestion("mine", ("h100_sxm",), REQUESTS, SLO, weights="bf16")
    own = NamedModel("./mine", spec, "")
    assert list(asking._said(question, own)) == [
        RANKS,
        REPLICAS,
        "kv_cache: fp8 (as published, with its scales)",
        "model: a llama of 4 layers",
    ]


MEAN = LentMean(
    method="eagle_3",
    draft="some/head",
    window=3,
    task="chats",
    tokens_per_step=2.5,
    published="2.5",
    source="a table",
    evidence="primary",
)


def test_loans_and_heads_are_said() -> None:
    loan = Loan("some/target", MEAN, (), {})
    words = "acceptance borrowed from some/target with some/head: 2.5 tokens a step in a chain of 3"
    assert asking.borrowed(loan, [2.5, 2.5]) == f"{words} on chats"
    assert asking.borrowed(loan, [2.5, 1.75, 3.0]) == (
        f"{words} on chats; 1.75 to 3 are published for it"
    )
    assert asking.head_words("some/head", "a/b", "a/b") == "head some/head;"
    assert asking.head_words("some/head", "a/b", "a/c") == (
        "head some/head, which was trained for a/b;"
    )


KINDS = (
    "a model is a name of the catalogue, an id of Hugging Face that it knows, a folder with a "
    "config.json, or a .gguf file"
)


def test_a_model_that_is_none_is_refused(tmp_path: Path) -> None:
    def fault(name: str) -> str:
        with pytest.raises(BadInput) as error:
            find_model(name, Catalogue(), f"--model {name}")
        return error.value.faults[0].message

    assert fault("./nowhere") == f"there is no file ./nowhere; {KINDS}"
    assert fault(str(tmp_path)) == (
        f"is neither a folder with a config.json nor a .json or .gguf file; {KINDS}"
    )
    assert fault("Qwen/Qwen3-8b-x") == (
        "is neither a model of the catalogue, nor an id that it knows, nor a folder with a "
        "config.json; did you mean 'Qwen/Qwen3-8B'?; get its config.json: hf download "
        "Qwen/Qwen3-8b-x config.json --local-dir Qwen3-8b-x, then --model ./Qwen3-8b-x"
    )


def test_prices_of_other_devices_are_refused() -> None:
    with pytest.raises(BadInput) as error:
        assumed("lmsys/vicuna-7b-v1.3", "h100_sxm", "l40s", prices={"h200": 1.0, "a": 2.0})
    assert [(fault.place[0], fault.message) for fault in error.value.faults] == [
        ("--price a", "is none of the devices h100_sxm, l40s"),
        ("--price h200", "is none of the devices h100_sxm, l40s"),
    ]


def test_what_of_a_log_is_planned_for_is_said(tmp_path: Path) -> None:
    """A request a second, of 1,000 tokens each; five at 60 s; then two of 9,000."""
    times = [*range(30), *[60.0] * 5, 90, 91]
    lengths = [900] * 35 + [8900] * 2
    rows = [f"{at},{prompt},100" for at, prompt in zip(times, lengths, strict=True)]
    log = tmp_path / "own.csv"
    log.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows, ""]))
    _, said = busiest(str(log), {}, 5, None, 4096)
    assert said[-2:] == [
        ("2 requests of more than 4,096 tokens left out: the context of the model is no longer"),
        "planned for the busiest 5 requests in a row, from 60 s on, within 0 s",
    ]
    untimed = tmp_path / "untimed.csv"
    untimed.write_text("prompt_tokens,output_tokens\n" + "900,100\n" * 3)
    _, said = busiest(str(untimed), {}, 5, 2.5, None)
    assert said[-1] == "untimed.csv has no times: Poisson arrivals at 2.5 a second, as stated"
    _, said = busiest(str(log), {}, 50, 2.5, None)
    assert said[-1] == "own.csv: its times are stretched to 2.5 a second in the mean, as stated"
