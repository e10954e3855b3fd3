"""Exported commands and what engines say of them, from the record that is kept: ``python3 dev.py
exports`` makes it anew, with the engines.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.exports.__main__ import RECORD, REPORT
from benchmarks.exports.asked import FLEETS, AskedCommand, commands, to_serve
from benchmarks.exports.folders import FACTS, config, head_of, spec, write_folders
from benchmarks.exports.page import page
from benchmarks.exports.record import (
    ACCEPTED,
    APART,
    DOCUMENTED,
    REFUSED,
    ExportRecord,
    JudgedCommand,
    changed,
    held_to_documents,
    misfits,
    read_record,
    record_text,
    undocumented,
)
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.models.named import find_model
from simulator.report.markdown import as_markdown
from simulator.studies.plan.commands.apart import DYNAMO, scripts_apart
from simulator.studies.plan.commands.checkpoints import repositories

CONFIGS = Path(__file__).parents[2] / "shared/data/model_configs"


@lru_cache
def asked() -> tuple[AskedCommand, ...]:
    return tuple(commands())


@lru_cache
def record() -> ExportRecord:
    return read_record(RECORD)


@lru_cache
def facts() -> Any:
    return yaml.safe_load(FACTS.read_text("utf-8"))


def test_the_record_is_of_todays_exports() -> None:
    """Who changes an export runs ``python3 dev.py exports``."""
    assert changed(record(), asked()) == []
    for name, command in to_serve().items():
        assert record().served[name]["command"] == command.words


def test_no_command_of_the_record_is_refused() -> None:
    refused = [one for one in record().judged if one.verdict == REFUSED]
    assert refused == []
    assert record().came_to("vllm", ACCEPTED) >= 40
    assert record().came_to("sglang", ACCEPTED) >= 40
    apart = [one for one in record().judged if one.verdict == APART]
    assert len(apart) <= 15
    assert all(one.said for one in apart)


def test_three_commands_were_served_word_for_word() -> None:
    assert sorted(record().served) == ["draft_model", "ngram", "plain"]
    for served in record().served.values():
        assert served["output_tokens"] == 16
    texts = {served["text"] for served in record().served.values()}
    assert len(texts) == 1, "speculation changes no greedy answer"


def test_the_page_is_that_of_the_record() -> None:
    assert as_markdown(page(record())) == (REPORT / "README.md").read_text("utf-8")


def test_commands_are_of_many_kinds() -> None:
    assert len({fleet.model for fleet in FLEETS}) >= 20
    assert len({fleet.device for fleet in FLEETS}) >= 11
    assert len({fleet.method for fleet in FLEETS}) >= 10
    assert len({fleet.weights for fleet in FLEETS}) >= 7
    methods = set()
    for command in asked():
        if "--speculative-config" in command.words:
            stated = command.words[command.words.index("--speculative-config") + 1]
            methods.add(json.loads(stated)["method"])
    assert methods == {
        *("draft_model", "ngram", "eagle", "eagle3", "mtp", "dflash", "dspark", "suffix"),
    }


def test_every_command_says_which_checkpoint_it_serves() -> None:
    for command in asked():
        (said,) = [line for line in command.script.splitlines() if line.startswith("# checkpoint")]
        if command.engine == "llama_cpp":
            served = command.words[command.words.index("-m") + 1]
        else:
            served = command.words[4 if command.engine == "sglang" else 2]
        assert served in said, command.name
        if "--quantization" in command.words:
            assert "as it is loaded (--quantization" in said


def test_options_of_llama_cpp_are_documented() -> None:
    for command in asked():
        if command.engine == "llama_cpp":
            assert undocumented("llama_cpp", command.words[1:]) == "", command.name
    assert undocumented("llama_cpp", ["-m", "x", "--draft-max", "3"]) == (
        "unknown option --draft-max"
    )
    assert undocumented("llama_cpp", ["--spec-type", "draft"]) == "--spec-type has no value draft"
    assert undocumented("llama_cpp", ["--spec-draft-n-min", "-1"]) == ""


def test_files_of_tensorrt_llm_have_documented_fields() -> None:
    """Of the types and values that are listed, with what each way to draft needs."""
    ours = [command for command in asked() if command.engine == "tensorrt_llm"]
    assert len(ours) >= 50
    for command in ours:
        assert held_to_documents(command) == "", command.name
    drafting = [command.fields.get("speculative_config", {}) for command in ours]
    assert {one.get("decoding_type") for one in drafting} == {
        None,
        "Draft_Target",
        "Eagle3",
        "MTP",
        "NGram",
        "DFlash",
        "DSpark",
    }


def test_fields_that_are_not_documented_are_told() -> None:
    listed = {
        "size": "int",
        "share": "number",
        "on": "bool",
        "form": ["fp8"],
        "inner": {"name": "text"},
        "draft": {
            "kind": "type",
            "all": {"length": "int", "by_size": "int by int"},
            "kinds": {"A": {"needs": ["length"], "fields": {"tree": "bool"}}, "B": {"needs": []}},
        },
    }
    right = {"size": 1, "share": 0.5, "on": True, "form": "fp8", "inner": {"name": "x"}}
    chain = {"type": "A", "length": 3, "tree": False, "by_size": {8: 3, 64: 1}}
    assert misfits({**right, "draft": chain}, listed) == []
    wrong = {"size": True, "share": "0.5", "form": "int4", "inner": {"name": 1}, "extra": 1}
    assert misfits(wrong, listed) == [
        "size is True, not of type int",
        "share is 0.5, not of type number",
        "form has no value int4",
        "inner.name is 1, not of type text",
        "extra is not documented",
    ]
    assert misfits({"draft": {"type": "A", "by_size": {"8": 3}}}, listed) == [
        "draft.length is missing for A",
        "draft.by_size is {'8': 3}, not of type int by int",
    ]
    assert misfits({"draft": {"type": "B", "tree": True}}, listed) == [
        "draft.tree is not documented"
    ]
    assert misfits({"draft": {"type": "C"}}, listed) == ["draft.type has no value C"]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_routers_and_graphs_have_documented_fields(engine: str) -> None:
    documented = yaml.safe_load(DOCUMENTED.read_text("utf-8"))["dynamo"]
    apart = [fleet for fleet in FLEETS if fleet.name.endswith("apart")]
    assert len(apart) == 3
    for fleet in apart:
        written = scripts_apart(engine, fleet.scenario(engine), None, fleet.head)
        router = AskedCommand(engine, fleet.name, written[f"{engine}_router.sh"]).words
        assert undocumented(f"{engine}_router", router[2 if engine == "vllm" else 3 :]) == ""
        graph = yaml.safe_load(written[DYNAMO])
        assert set(graph) == {"apiVersion", "kind", "metadata", "spec"}
        assert graph["apiVersion"] == documented["version"].partition(" ")[0]
        assert set(graph["spec"]) <= set(documented["graph"])
        for component in graph["spec"]["components"]:
            assert set(component) <= set(documented["component"])
            assert component["type"] in documented["type"]
            (container,) = component["podTemplate"]["spec"]["containers"]
            assert set(container) <= set(documented["container"])
            own = AskedCommand(
                engine, fleet.name, written.get(f"{engine}_{component['type']}.sh", "")
            )
            options = {word for word in container.get("args", ()) if word.startswith("--")}
            assert options <= {*own.words, *documented["worker"]}


def test_a_record_tells_what_is_exported_otherwise() -> None:
    command = AskedCommand("vllm", "one", "# checkpoint: x\nvllm serve x --port 1\n")
    assert command.words == ["vllm", "serve", "x", "--port", "1"]
    same = JudgedCommand("vllm", "one", command.words, "")
    other = same._replace(command=["vllm", "serve", "x"], said="no port")
    gone = same._replace(fleet="two")
    kept = ExportRecord("2026-11-27", {"vllm": "0.32"}, [same], {})
    assert changed(kept, [command]) == []
    assert changed(kept._replace(judged=[other]), [command]) == [
        "vllm: one is exported otherwise today"
    ]
    assert changed(kept._replace(judged=[gone]), [command]) == [
        "vllm: one was never asked",
        "vllm: two is exported no more",
    ]
    assert [one.verdict for one in (same, other)] == [ACCEPTED, REFUSED]
    read = command._replace(configuration="size: 1\nby_size: {8: 3}\n")
    with_file = same._replace(fields={"size": 1, "by_size": {"8": 3}})
    assert changed(kept._replace(judged=[with_file]), [read]) == []
    assert changed(kept, [read]) == ["vllm: one is exported otherwise today"]
    lacks = same._replace(said="ValueError: Adaptive verification requires full CUDA graphs. Use")
    assert lacks.verdict == APART


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    judged = [
        JudgedCommand("vllm", "one", ["vllm", "serve"], "why"),
        JudgedCommand("sglang", "two", [], ""),
        JudgedCommand("tensorrt_llm", "two", ["trtllm-serve"], "", {"max_batch_size": 8}),
    ]
    written = ExportRecord("2026-11-27", {"vllm": "0.32"}, judged, {"plain": {"text": "t1"}})
    (tmp_path / "record.json").write_text(record_text(written))
    assert read_record(tmp_path / "record.json") == written


def test_every_checkpoint_of_vllm_has_a_folder(tmp_path: Path) -> None:
    write_folders(tmp_path, list(asked()))
    for command in asked():
        if command.engine == "vllm":
            assert (tmp_path / command.words[2] / "config.json").exists(), command.name
            head, _ = head_of(command.words)
            if head:
                assert (tmp_path / head / "config.json").exists(), command.name


def test_a_listed_repository_is_read_as_the_model_and_format_it_is_listed_for() -> None:
    """``--model`` takes its id, and a plan of that serves it again."""
    listed = [(base, *pair) for base, held in repositories().items() for pair in held.items()]
    assert len(listed) >= 15
    for base, weights, repository in listed:
        named = find_model(repository, Catalogue(), repository)
        assert (named.weights, named.checkpoint) == (weights, repository)
        assert base in named.spec.huggingface, repository


@pytest.mark.skipif(not CONFIGS.exists(), reason="configurations of served models are not here")
def test_folders_say_what_the_published_files_say() -> None:
    compared = 0
    for name in facts()["models"]:
        shape = spec(name)
        for checkpoint in shape.huggingface[:1]:
            file = CONFIGS / f"{checkpoint.replace('/', '--')}_config.json"
            if file.exists():
                published = json.loads(file.read_text())
                assert differing(config(facts(), name, shape), published) == {}, name
                compared += 1
    assert compared >= 8


NOT_SAID = {"bos_token_id", "eos_token_id", "torch_dtype", "head_dim"}
"""Fields that a published file may leave to its class, or state without an effect here."""


def differing(made: dict[str, Any], published: dict[str, Any]) -> dict[str, Any]:
    """The fields of a configuration that a published one states otherwise."""
    wrong = {}
    for field, value in made.items():
        stated = published.get(field, value)
        if isinstance(value, dict) and isinstance(stated, dict):
            if inner := differing(value, stated):
                wrong[field] = inner
        elif field not in NOT_SAID and stated != value:
            wrong[field] = (value, stated)
    return wrong
