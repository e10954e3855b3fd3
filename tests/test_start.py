"""A scenario of one's own: begun as a copy of a shipped one, explained with every default, before
anything runs.
"""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner
from command_tree import children
from rich.console import Console

from simulator.cli.main import SECTIONS, main
from simulator.inputs.catalogue import Catalogue
from simulator.report.pages import explain as explain_page
from simulator.report.terminal import print_page
from simulator.scenario import load, resolved
from simulator.scenario.evaluate import run
from simulator.scenario.explain import explain
from tests.apart import kept

EXPLAINED = [
    "durations_only",
    "specpipe_llama_3_1_70b_two_servers",
    "methods_vicuna_7b_a100",
    "lyanna_llama_2_7b_h800",
]


def test_help_tells_of_every_command_in_a_line_that_fits_a_terminal() -> None:
    told = [name for lines in SECTIONS.values() for name in lines]
    assert len(told) == len(set(told))
    assert told == list(children(main))
    lines = CliRunner().invoke(main, ["--help"], terminal_width=80).stdout.splitlines()
    for name in told:
        assert sum(line.split()[:1] == [name] for line in lines) == 1
    assert all(
        sum(entry.line in line for line in lines) == 1
        for section in SECTIONS.values()
        for entry in section.values()
    )


@pytest.mark.few(6)
@pytest.mark.parametrize("name", sorted(Catalogue().names("scenario")))
def test_every_shipped_scenario_can_be_begun_with(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["new", "mine", "--from", name])
    assert done.exit_code == 0, done.output
    assert "specsim run ./mine.yaml" in done.stdout
    assert resolved(load("./mine.yaml").scenario) == resolved(load(name).scenario) | {
        "name": "mine"
    }


def test_nothing_is_overwritten_and_a_copy_runs(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    assert CliRunner().invoke(main, ["new", str(path)]).exit_code == 0
    assert path.read_text("utf-8").startswith("# Copied from durations_only.\n")
    assert run(load(str(path), ["requests.count=2"])).speedup > 1
    path.write_text("mine alone")
    again = CliRunner().invoke(main, ["new", str(path)])
    assert again.exit_code == 2
    assert f"{path}: is there already; choose another name" in again.stderr
    assert path.read_text("utf-8") == "mine alone"
    nowhere = CliRunner().invoke(main, ["new", str(tmp_path / "no/mine")])
    assert nowhere.exit_code == 2
    assert "No such file or directory" in nowhere.stderr
    unknown = CliRunner().invoke(main, ["new", str(tmp_path / "other"), "--from", "durations_onyl"])
    assert unknown.exit_code == 2
    assert "did you mean 'durations_only'" in unknown.stderr
    assert [candidate.name for candidate in tmp_path.iterdir()] == ["mine.yaml"]


def test_every_default_of_a_small_scenario() -> None:
    found = explain(
        load(
            "durations_only", ["requests.past_end=cut", "strategy.kappa=8", "durations.token_ms=0"]
        )
    )
    held = {default.field: default.value for default in found.defaults}
    assert {
        name: value
        for name, value in held.items()
        if name.startswith(("strategy", "durations", "acceptance"))
    } == {
        "strategy.bonus_on_full_accept": "true",
        "strategy.drafter.name": "autoregressive",
        "strategy.adaptive.name": "fixed",
        "strategy.exit_layer": "0.5",
        "strategy.message": "per_position",
        "strategy.fallback": "redraft",
        "strategy.others": "wait",
        "strategy.batching_rule": "false",
        "strategy.id_bytes": "4",
        "strategy.logprob_bytes": "2",
        "durations.draft_head_ms": "0",
        "durations.host_ms": "0",
        "durations.prefill_ms": "0",
        "durations.draft_prefill_ms": "0",
        "acceptance.stand_in": "false",
        "acceptance.drafter": "draft",
    }
    assert (
        held.items()
        >= {"requests.concurrency": "1", "requests.prompt_tokens": "512", "seed": "0"}.items()
    )
    assert (
        held.items()
        >= {"serving.policy.name": "fixed_batch", "serving.memory.block_tokens": "16"}.items()
    )
    assert not held.keys() & {"requests.past_end", "requests.count", "requests.output_tokens"}
    assert found.topics["requests"].startswith(
        "200 in the simulation, 1 at a time; 512 prompt and 256 output tokens"
    )
    assert (found.confidences, found.notes) == ({}, [])


@pytest.mark.parametrize("name", kept(EXPLAINED))
def test_a_default_written_down_changes_nothing(name: str) -> None:
    loaded = load(name)
    found = explain(loaded)
    sets = [
        f"{default.field}={default.value}"
        for default in found.defaults
        if "*" not in default.field and not default.source
    ]
    assert len(sets) > 15
    again = load(name, sets)
    assert again.scenario == loaded.scenario
    assert {default.field for default in explain(again).defaults} == {
        default.field for default in found.defaults if "*" in default.field or default.source
    }


def test_sourced_defaults_tell_their_source() -> None:
    found = {
        default.field: default
        for default in explain(load("specpipe_llama_3_1_70b_two_servers")).defaults
    }
    assert found["strategy.prune_ms"].source == "SpecPipe sec. 4.2: about 5 ms (published)"
    assert found["target.pipeline.stages.*.device.small_operations.tile_tokens"].value == "[1]"


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("name", kept(EXPLAINED))
def test_an_explanation_fits_a_terminal(name: str, width: int) -> None:
    page, found = StringIO(), explain(load(name))
    print_page(explain_page.page(name, found), Console(file=page, width=width))
    assert max(map(len, page.getvalue().splitlines())) <= min(width, 100)
    words = " ".join(page.getvalue().split())
    assert all(f"{default.field} = {default.value}" in words for default in found.defaults)
    assert all(" ".join(note.split()) in words for note in found.notes)


def test_json_holds_all_of_it() -> None:
    done = CliRunner().invoke(main, ["explain", "mirror_qwen3_32b_a100", "--seed", "3", "--json"])
    data = json.loads(done.stdout)
    assert set(data) == {"scenario", "topics", "defaults", "confidences", "notes", "rests_on"}
    assert data["topics"]["seed"] == "3"
    assert "seed" not in {default["field"] for default in data["defaults"]}
    assert sum(data["confidences"].values()) > 50
