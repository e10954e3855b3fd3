"""``--seed`` and ``seed:`` are one thing: the same bytes, and the option wins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import simulator
from simulator.cli.main import main

STATED = {
    "name": "drawn",
    "strategy": {"name": "vanilla_sd", "gamma": 3},
    "durations": {"target_ms": 30, "draft_ms": 5},
    "acceptance": {"rate": 0.7},
    "requests": {"count": 4, "output_tokens": 30},
}
SWEEP = {
    "scenario": "./drawn.yaml",
    "axes": {"acceptance.rate": "0.2:0.9:3", "durations.draft_ms": "2:12:3"},
    "combine": "latin_hypercube",
    "samples": 4,
}


def answer(*words: str) -> Result:
    done = CliRunner().invoke(main, [*words, "--json"])
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    return done


@pytest.mark.parametrize(
    "command", ["run", "law", "explain", "batches --sizes 1,2 --simulate 1", "load --sizes 1,2"]
)
def test_a_seed_is_stated_by_option_or_field(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verb, *options = command.split()
    texts = []
    for seed, more in (
        (3, []),
        (None, ["--seed", "3"]),
        (None, ["--set", "seed=3"]),
        (7, ["--seed", "3"]),
    ):
        Path("drawn.yaml").write_text(json.dumps(STATED | ({} if seed is None else {"seed": seed})))
        done = answer(verb, "./drawn.yaml", *options, *more)
        assert done.exit_code == 0, done.output
        texts.append(done.stdout)
    assert len(set(texts)) == 1


def test_a_seed_of_a_sweep_is_that_of_its_draws_and_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("drawn.yaml").write_text(json.dumps(STATED))
    points = []
    for seed, more in ((3, None), (None, 3), (7, 3), (None, None)):
        Path("spread.yaml").write_text(json.dumps(SWEEP | ({} if seed is None else {"seed": seed})))
        points.append(simulator.sweep("./spread.yaml", seed=more).to_frame().to_csv())
    assert points[0] == points[1] == points[2] != points[3]


@pytest.mark.parametrize("seed", ["-1", "1.5", "1" + "0" * 30])
@pytest.mark.parametrize(
    "command",
    ["run durations_only", "trace info six_flavours_sampled", "trace iid six_flavours_sampled"],
)
def test_what_is_no_seed_is_refused(command: str, seed: str) -> None:
    assert answer(*command.split(), "--seed", seed).exit_code == 2


def test_an_empty_folder_is_taken_for_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("drawn.yaml").write_text(json.dumps(STATED))
    for words in (("run",), ("compare", "./drawn.yaml")):
        folder = tmp_path / words[0]
        folder.mkdir()
        done = CliRunner().invoke(
            main, [words[0], "./drawn.yaml", *words[1:], "--out", str(folder)]
        )
        assert done.exit_code == 0, done.output
        assert [path for path in folder.iterdir() if path.suffix in (".md", ".html")]
