"""``specsim trace``: what it prints and writes, and the one line that every mistake gets."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from command_tree import choices

from simulator.cli.main import main
from simulator.core.faults import BadInput
from simulator.inputs.traces import converters, file as trace_file, summaries
from simulator.inputs.traces.file import read
from simulator.scenario import load
from simulator.scenario.decision.decide import acceptance_origin
from simulator.studies.window import window_sweep
from tests.test_acceptance import make_trace

STEPS = '{"accepted": [2, 0, 1], "flavour": "chat"}\n{"accepted": [1, 1]}\n'

FORMATS = choices("trace convert", "--from")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recorded trace with exits, a converted one and its source."""
    monkeypatch.chdir(tmp_path)
    ranks = np.random.default_rng(2).integers(0, 3, size=(4, 60)).tolist()
    probabilities = np.random.default_rng(3).random(240).astype(np.float16)
    trace_file.write(make_trace(ranks, ranks, q=probabilities), tmp_path / "own.npz")
    (tmp_path / "steps.jsonl").write_text(STEPS)
    assert call(
        "convert", "--from", "steps", "steps.jsonl", "--window", "3", "--out", "steps.npz"
    ).startswith("steps.npz: 2 req")
    return tmp_path


def call(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["trace", *arguments])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def test_info_says_it_in_tables_and_as_one_object(folder: Path) -> None:
    text = call("info", "own.npz", "--long")
    assert max(map(len, text.splitlines())) <= 100
    for part in (
        "any window",
        "exit at 0.5, at corrections",
        "By kind of text",
        "windows as long as the recording allows",
    ):
        assert part in text
    data = json.loads(call("info", "./steps.npz", "--flavour", "chat", "--json"))
    assert data["header"]["window"] == 3
    assert (data["requests"], data["tokens"], data["hits"], data["repetition"]) == (
        1,
        7,
        [],
        None,
    )
    assert [window["replayed"] for window in data["windows"]] == [0.5, 1.0, 1.0]
    assert data["runs"] == {"0": 1, "1": 1, "2": 1}


def test_compare_puts_traces_side_by_side(folder: Path) -> None:
    text = call("compare", "own.npz", "steps.npz", "--long")
    assert ["own", "steps"] in [line.split() for line in text.splitlines()]
    assert "γ = 3: replayed" in text
    data = json.loads(call("compare", "own.npz", "steps.npz", "--json"))
    assert [trace["trace"] for trace in data["traces"]] == ["own", "steps"]


def test_plot_draws_what_a_trace_can_tell_and_always_the_same(folder: Path) -> None:
    written = call("plot", "own.npz", "--out", "a").split()
    assert sorted(Path(name).stem for name in written) == [
        "acceptance_by_position",
        "exit_hits_at_corrections",
        "hits_by_width",
        "run_lengths",
        "windows",
    ]
    again = json.loads(call("plot", "own.npz", "--out", "b", "--json"))["written"]
    for one, other in zip(written, again, strict=True):
        assert Path(one).read_bytes() == Path(other).read_bytes()
        assert ET.fromstring(Path(one).read_text()).tag.endswith("svg")
    assert len(call("plot", "steps.npz", "--out", "c").split()) == 3


def test_convert_writes_a_trace_or_an_acceptance_block(folder: Path) -> None:
    assert set(FORMATS) == set(converters.TO_TRACE) | set(summaries.TO_RATES)
    assert read(folder / "steps.npz").run.tolist() == [0, 2, 1, 0, 0, 1, 0, 0, 1, 0, 1, 0]
    text = call(
        "convert", "--from", "mean_length", "2.75", "--window", "2", "--out", "deep/block.yaml"
    )
    assert "written: deep/block.yaml" in text
    assert (
        yaml.safe_load((folder / "deep/block.yaml").read_text())["acceptance"]["tokens_per_step"]
        == 2.75
    )
    data = json.loads(call("convert", "--from", "golden_lengths", "1.8, 2.2", "--json"))
    assert data == {"acceptance": {"per_position": pytest.approx([0.8, 0.5])}, "written": []}


def test_rescale_says_what_it_reached(folder: Path) -> None:
    text = call("rescale", "own.npz", "--mean", "3.1", "--window", "7", "--out", "easier.npz")
    assert "mean_length_asked_tokens: 3.1" in text
    data = json.loads(
        call("rescale", "own.npz", "--mean", "3.1", "--window", "7", "--out", "again.npz", "--json")
    )
    assert data["header"]["derived_from"]["trace"] == "own"
    assert data["header"]["derived_from"]["mean_length_tokens"] == pytest.approx(3.1, abs=0.1)
    assert (folder / "easier.npz").read_bytes() == (folder / "again.npz").read_bytes()
    assert json.loads(call("info", "easier.npz", "--json"))["windows"][6][
        "replayed"
    ] == pytest.approx(2.1, abs=0.1)


def test_a_converted_trace_runs_a_scenario(folder: Path) -> None:
    (folder / "x.yaml").write_text(
        "like: vanilla_qwen3_32b_a100\nstrategy: {gamma: 3}\nacceptance: {trace: ./steps.npz}\n"
    )
    result = CliRunner().invoke(main, ["run", "./x.yaml", "--json", "--set", "requests.count=4"])
    assert result.exit_code == 0, result.output
    assert any(
        "exact at the recorded window only" in note for note in json.loads(result.stdout)["notes"]
    )
    assert [point.gamma for point in window_sweep(load("./x.yaml"))] == [1, 2, 3]


LLAMA = ("--target", "meta-llama/Llama-2-7b-hf", "--draft", "tinyllama_1_1b")
CONVERT = ("convert", "--from", "steps", "steps.jsonl", "--window", "3", "--out")


def test_a_log_of_the_own_models_is_no_stand_in(folder: Path) -> None:
    """Which says so where it is converted; of other models it has to be borrowed."""
    own = "acceptance={trace: %s, stand_in: false}"
    call(*CONVERT, "mine.npz", *LLAMA)
    overrides = [own % "./mine.npz", "strategy.gamma=3"]
    loaded = load("vanilla_llama_2_7b_a100", overrides)
    assert loaded.trace
    assert loaded.trace.vocabulary == 32_000
    assert loaded.trace.header["models"] == {
        "target": {
            "name": "meta-llama/Llama-2-7b-hf",
            "shape": {"layers": 32, "vocabulary": 32_000},
        },
        "draft": {
            "name": "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
            "shape": {"layers": 22, "vocabulary": 32_000},
        },
    }
    assert acceptance_origin(loaded.scenario.acceptance).origin == "recorded"
    with pytest.raises(BadInput, match="says so where it is converted with --target"):
        load("vanilla_llama_2_7b_a100", [own % "./steps.npz", "strategy.gamma=3"])
    with pytest.raises(BadInput, match="recorded with a vocabulary of 32,000"):
        load("vanilla_qwen3_32b_a100", overrides)


def test_a_head_that_drafts_has_a_name_alone(folder: Path) -> None:
    call(*CONVERT, "mine.npz", *LLAMA[:2], "--draft", "someone/EAGLE3-mine")
    models = read(folder / "mine.npz").header["models"]
    assert models["draft"] == {"name": "someone/EAGLE3-mine", "shape": None}


MISTAKES = [
    (
        [*CONVERT, "x.npz", *LLAMA[:2], "--draft", "qwen3_0_6b"],
        "--draft Qwen/Qwen3-0.6B: has a vocabulary of 151,936, and meta-llama/Llama-2-7b-hf one",
    ),
    ([*CONVERT, "x.npz", *LLAMA[2:]], "--draft tinyllama_1_1b: is the draft of a target; add"),
    (
        ["convert", "--from", "mean_length", "2.5", "--window", "4", *LLAMA[:2]],
        "--target meta-llama/Llama-2-7b-hf: is said of a record of steps",
    ),
    (["info", "none.npz"], "none.npz: trace: cannot be read: No such file"),
    (["info", "./steps.jsonl"], "steps.jsonl: trace: is not a trace: it is no .npz archive"),
    (["info", "six"], "six: there is no trace of this name"),
    (["info", "bad.npz"], "bad.npz: trace: is not a trace"),
    (
        ["info", "own.npz", "--flavour", "onyl"],
        "--flavour: the trace has no flavour 'onyl'; did you mean 'only'?",
    ),
    (["compare", "own.npz", "none.npz"], "none.npz: trace: cannot be read"),
    (["plot", "own.npz", "--out", "steps.jsonl"], "cannot be made: "),
    (
        ["convert", "--from", "steps", "none.jsonl", "--out", "x.npz"],
        "none.jsonl: cannot be read: No such file",
    ),
    (
        ["convert", "--from", "steps", "own.npz", "--out", "x.npz"],
        "own.npz: cannot be read: not UTF-8 text",
    ),
    (
        ["convert", "--from", "rest", "steps.jsonl", "--out", "x.npz"],
        "steps.jsonl:1:1: expected an object with 'accept_lengths'",
    ),
    (["convert", "--from", "steps", "rates.txt", "--out", "x.npz"], "rates.txt:2:1: is not JSON"),
    (
        ["convert", "--from", "steps", "steps.jsonl", "--window", "1", "--out", "x.npz"],
        "steps.jsonl: --window 1: a window was kept up to 2",
    ),
    (
        ["convert", "--from", "steps", "steps.jsonl", "--out", "x"],
        "--out: expected a file that ends in .npz, got x",
    ),
    (
        ["convert", "--from", "steps", "steps.jsonl"],
        "--out: expected a file that ends in .npz, got none",
    ),
    (
        ["convert", "--from", "vllm_log", "steps.jsonl"],
        "steps.jsonl: no speculative-decoding counters in this file; is",
    ),
    (["convert", "--from", "mean_length", "3.1"], "expected one mean accepted length and --window"),
    (
        ["convert", "--from", "mean_length", "9", "--window", "7"],
        "at window 7 it lies between 1 and 8",
    ),
    (
        ["rescale", "steps.npz", "--mean", "3.5", "--window", "3", "--out", "x.npz"],
        "steps.npz: cannot be re-scaled to 3.5: the recorded lengths reach 1 to 3 tokens",
    ),
    (
        ["rescale", "steps.npz", "--mean", "2", "--window", "4", "--out", "x.npz"],
        "steps.npz: cannot be re-scaled at window 4: it knows windows of up to 3",
    ),
    (
        ["rescale", "own.npz", "--mean", "0.5", "--window", "3", "--out", "x.npz"],
        "own.npz: a mean accepted length of 0.5 cannot be",
    ),
]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    MISTAKES,
    ids=lambda value: value if isinstance(value, str) else value[0],
)
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_mistake_is_one_line_and_nothing_is_written(
    arguments: list[str], expected: str, more: list[str], folder: Path
) -> None:
    (folder / "bad.npz").write_bytes(b"PK\x03\x04rubbish")
    (folder / "rates.txt").write_text("3\n0.5, 0.2\n")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    result = CliRunner().invoke(main, ["trace", *arguments, *more])
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("error: ")
    assert expected in result.stderr
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_an_unknown_format_is_refused_with_the_known_ones(folder: Path) -> None:
    result = CliRunner().invoke(
        main, ["trace", "convert", "--from", "csv", "steps.jsonl", "--out", "x.npz"]
    )
    assert result.exit_code == 2
    assert all(name in result.stderr for name in FORMATS)
