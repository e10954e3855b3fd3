"""Recordings that are interrupted and taken up, and mistakes: one line, exit code 2, nothing left
behind.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_pair import (
    VOCABULARY,
    WORDS,
    make_pair,
    record,
    recorded,
    save_model,
)

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(autouse=True)
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


# ---- interrupted and resumed


def interrupt_after(batches: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Interrupt the batch behind ``batches`` finished ones, as Ctrl-C would; the list counts
    batches begun.
    """
    from simulator.record import pair_recorder

    record_batch, begun = pair_recorder.record_batch, []

    def interrupted(pair: Any, prompts: Any, uniforms: Any, tick: Any) -> Any:
        begun.append(len(prompts))
        if len(begun) > batches:
            raise KeyboardInterrupt
        return record_batch(pair, prompts, uniforms, tick)

    monkeypatch.setattr(pair_recorder, "record_batch", interrupted)
    return begun


def test_an_interrupted_recording_goes_on_and_ends_in_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = ("--temperature", "1", "--batch", "2", "--output-tokens", "12")
    (tmp_path / "whole").mkdir()
    recorded(tmp_path / "whole" / "t.npz", *how)
    out = tmp_path / "t.npz"
    with monkeypatch.context() as patch:
        interrupt_after(2, patch)
        result = record(out, *how)
        assert result.exit_code == 130
        assert "the same command goes on" in result.stderr
        assert not out.exists()
    kept = tmp_path / "t.npz.part"
    assert len(list(kept.glob("batch-*.npz"))) == 2

    changed = record(out, *how, "--seed", "9", "--top-k", "3")
    assert (changed.exit_code, len(changed.stderr.splitlines())) == (2, 1)
    assert (
        "t.npz.part: was begun with sampling.top_k 0 (now 3), seed 0 (now 9); go on with what "
        "it was"
    ) in changed.stderr
    assert "delete this folder to start over" in changed.stderr

    begun = interrupt_after(99, monkeypatch)
    recorded(out, *how)
    assert begun == [2, 1]
    assert out.read_bytes() == (tmp_path / "whole" / "t.npz").read_bytes()


def test_killed_between_the_trace_and_the_tidying_is_still_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "t.npz"
    with monkeypatch.context() as patch:
        patch.setattr("simulator.record.parts.shutil", SimpleNamespace(rmtree=lambda folder: None))
        assert record(out, "--limit", "2").exit_code == 0
    before = out.read_bytes()
    begun = interrupt_after(0, monkeypatch)
    recorded(out, "--limit", "2")
    assert (begun, out.read_bytes()) == ([], before)


def test_batches_that_nothing_vouches_for_are_recorded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a kill in the middle of the tidying may leave them."""
    how = ("--limit", "2", "--batch", "1")
    with monkeypatch.context() as patch:
        interrupt_after(1, patch)
        assert record(tmp_path / "t.npz", *how, "--temperature", "1").exit_code == 130
    (tmp_path / "t.npz.part" / "manifest.json").unlink()
    begun = interrupt_after(99, monkeypatch)
    assert recorded(tmp_path / "t.npz", *how).temperature == 0
    assert begun == [1, 1]


def test_two_recordings_do_not_share_a_folder(tmp_path: Path) -> None:
    from simulator.record.parts import Parts

    with Parts(tmp_path / "t.npz", {}).opened():
        result = record(tmp_path / "t.npz")
    assert result.exit_code == 2
    assert "another process is recording here" in result.stderr


# ---- mistakes: one line, exit code 2, nothing left behind


def refused(tmp_path: Path, *arguments: str) -> str:
    before = {path: path.stat().st_size for path in tmp_path.rglob("*")}
    result = record(tmp_path / "t.npz", *arguments)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1), (
        result.output
    )
    assert {path: path.stat().st_size for path in tmp_path.rglob("*")} == before
    return result.stderr


def test_a_draft_of_another_size(tmp_path: Path) -> None:
    save_model(tmp_path / "other", 0.0, VOCABULARY + 8)
    assert (
        "target and draft must share one vocabulary; the models have target 200, draft 208 tokens"
        in refused(tmp_path, "--draft", str(tmp_path / "other"))
    )


def test_a_draft_with_other_words(tmp_path: Path) -> None:
    save_model(tmp_path / "other", 0.0, words=[*WORDS[:7], "new", *WORDS[8:]])
    message = refused(tmp_path, "--draft", str(tmp_path / "other"))
    assert "(target 200, draft 200 tokens); 'new' is none in one, 8 in the other" in message


def test_a_model_that_lacks_weights_is_not_made_up(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder / "draft", tmp_path / "other")
    weights = load_file(tmp_path / "other" / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "other" / "model.safetensors", {"format": "pt"})
    assert "draft: the weights lack model.norm.weight" in refused(
        tmp_path, "--draft", str(tmp_path / "other")
    )
    (tmp_path / "other" / "model.safetensors").write_bytes(b"rubbish")
    refused(tmp_path, "--draft", str(tmp_path / "other"))
    (tmp_path / "other" / "model.safetensors").unlink()
    assert "there is no model.safetensors here" in refused(
        tmp_path, "--draft", str(tmp_path / "other")
    )


def test_folders_that_are_no_models(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "draft", tmp_path / "other")
    config = tmp_path / "other" / "config.json"
    text = config.read_text()
    unknown = text.replace('"llama"', '"nonesuch"')
    for broken, expected in (
        (unknown, "nonesuch"),
        ("{", "not a valid JSON"),
        ("[]", "config.json"),
    ):
        config.write_text(broken)
        assert expected in refused(tmp_path, "--draft", str(tmp_path / "other"))
    config.write_text(text)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "other" / name).unlink()
    assert "draft: there is no tokenizer here" in refused(
        tmp_path, "--draft", str(tmp_path / "other")
    )


def test_a_model_that_answers_with_no_numbers(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder / "draft", tmp_path / "other")
    weights = load_file(tmp_path / "other" / "model.safetensors")
    weights["model.norm.weight"][0] = float("inf")
    save_file(weights, tmp_path / "other" / "model.safetensors", {"format": "pt"})
    for role in ("--draft", "--target"):
        expected = "a model answered with probabilities that are no numbers; try --dtype float32"
        assert expected in refused(tmp_path, role, str(tmp_path / "other"))


def test_a_batch_that_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr("simulator.record.pair_recorder.record_batch", full)
    assert "cpu has no memory for --batch 8; a smaller one needs less" in refused(tmp_path)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "p.jsonl: holds no prompts"),
        ("\n\n", "p.jsonl: holds no prompts"),
        ('{"prompt": "w1"}\n{"prompt": }', "p.jsonl:2:12: not valid JSON"),
        ('{"prompt": " "}', "p.jsonl:1:1: expected an object with a text under 'prompt'"),
        ('{"turns": []}', "p.jsonl:1:1: expected an object with a text under 'prompt'"),
        ("[1]", "p.jsonl:1:1: expected an object with a text under 'prompt'"),
        (
            '{"prompt": "w1", "flavour": 3}',
            "p.jsonl:1:1: expected a name as flavour or category, got 3",
        ),
        (
            json.dumps({"prompt": "w1 " * 100}),
            "p.jsonl:1:1: 100 prompt and 40 output tokens are more than the 128 positions",
        ),
    ],
)
def test_prompts_that_are_none(content: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text(content)
    assert expected in refused(tmp_path, "--prompts", str(tmp_path / "p.jsonl"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--target", "none"), "none: target: there is no such folder"),
        (("--draft", "."), ".: draft: there is no config.json here"),
        (("--prompts", "none.jsonl"), "none.jsonl: cannot be read: No such file"),
        (("--out", "new.jsonl"), "new.jsonl: expected a file name that ends in .npz"),
        (
            ("--out", "none/t.npz"),
            "none/t.npz: expected a file name that ends in .npz, in a folder that exists",
        ),
        (("--exits", "0.5,x"), "--exits 0.5,x: expected shares between 0 and 1"),
        (("--exits", "0.5,0.6"), "--exits: expected rising shares of the target's 2 layers"),
        (
            ("--top-k", "3"),
            "--top-k, --top-p: cut a distribution to sample from; give a --temperature",
        ),
        (("--chat",), "--chat: the tokenizer's template refuses"),
    ],
)
def test_options_that_cannot_be_met(
    arguments: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    assert expected in refused(tmp_path, *arguments)


def test_a_trace_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "t.npz").write_bytes(b"mine")
    assert "t.npz: is there already; delete it to record it anew" in refused(tmp_path)


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("simulator.record.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert (
        "trace record: needs torch; install it with pip install 'specdecode-sim[record]'"
        in refused(tmp_path)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--top-p", "0.9"), "and all three the name of a --trace"),
        (("--trace", "mine", "--top-k", "80"), "--top-k and --top-p need a --temperature"),
        (("--trace", "mine", "--temperature", "1", "--top-p", "0"), "'--top-p'"),
    ],
)
def test_the_family_refuses_a_sampling_that_says_nothing(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.family",
        "--work",
        tmp_path / "work",
        "--out",
        tmp_path,
    ]
    said = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout, list(tmp_path.iterdir())) == (2, "", [])
    assert message in " ".join(said.stderr.split())
