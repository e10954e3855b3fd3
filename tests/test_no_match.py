"""Look-up that never finds anything is plain decoding with the price of looking; so are drafts of
which nothing is kept.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import simulator
from simulator.cli.main import main
from simulator.core.strategies import strategies

NGRAMS = {
    "strategy": {"name": "tree_sd", "tree": {"branching": [1, 1, 1]}, "matched": 0, "host_ms": 0.5},
    "durations": {"target_ms": 20},
    "acceptance": {"rate": 0.8, "tokens_per_step_between": [1.2, 3.0]},
    "requests": {"count": 4, "output_tokens": 41, "prompt_tokens": 10},
}


def answer(*words: object) -> Any:
    done = CliRunner().invoke(main, [*map(str, words), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout, parse_constant=pytest.fail)


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ngrams.yaml").write_text(json.dumps(NGRAMS))
    return tmp_path / "ngrams.yaml"


def test_ngrams_that_never_match_are_plain_decoding_and_the_price_of_looking(
    scenario: Path,
) -> None:
    ran = answer("run", scenario)
    for evaluator in ("law", "simulated"):
        assert ran[evaluator]["tokens_per_step"] == pytest.approx(1.0)
        assert ran[evaluator]["tpot_ms"] == pytest.approx(20.5)
    assert ran["speedup"] == pytest.approx(20 / 20.5)
    low, high = (ran["speedup_interval"][end] for end in ("low", "high"))
    assert low <= 20 / 20.5 <= high < 1.05, (
        "a range of acceptance changes nothing where nothing is proposed"
    )
    assert answer("law", scenario)["law"]["step_ms"] == pytest.approx(20.5)


def test_a_batch_of_such_requests_has_no_break_even(scenario: Path) -> None:
    text = (
        CliRunner()
        .invoke(main, ["batches", str(scenario), "--sizes", "1-4", "--simulate", "1,2", "--long"])
        .stdout
    )
    assert "slower from B = 1 on" in text
    rows = answer("batches", scenario, "--sizes", "1-4", "--simulate", "1,2")["batches"]
    assert [row["speedup"] for row in rows] == pytest.approx(
        [20 / (20 + 0.5 * size) for size in range(1, 5)]
    )
    assert {row["break_even"] for row in rows} == {None}


def test_clients_share_the_price_of_looking(scenario: Path) -> None:
    rows = answer("load", scenario, "--sizes", "1,2")["ngrams"]
    assert [row["tpot_ms"] for row in rows] == pytest.approx([20.5, 21.0])
    assert [row["tokens_per_s"] for row in rows] == pytest.approx([50.0, 41 * 2 / 0.84])


def test_they_are_explained_as_any_other_scenario(scenario: Path) -> None:
    assert answer("explain", scenario)["topics"]["acceptance"] == "stated rates, every window drawn"


def test_shares_of_matches_are_swept_down_to_none(scenario: Path) -> None:
    table = simulator.sweep(
        str(scenario), {"strategy.matched": [0, 0.5, 1]}, evaluate="law"
    ).to_frame()
    found = table.filter(like="speedup").iloc[:, 0].tolist()
    assert found == sorted(found)
    assert found[0] == pytest.approx(20 / 20.5)


STAGES = 4
"""Of the pipelines of the examples: a step is a beat of one stage."""
NONE_KEPT = {
    "specpipe": (1 / STAGES, 1 / STAGES),
    "edge_sd": (1 / 2, 60 / 119),
    "specactor": (1 / 2, 60 / 119),
}
"""Tokens a step, by law and by simulation, where that is not 1: a token that was not foreseen goes
through all stages alone; a request whose window is lost sits a step out, but not behind its last.
"""
ALL_KEPT = {
    # a window of 4 and no token beside it; the first step only drafts
    "duodecoding": (
        4,
        60 / (15 + 1),
    ),
    "duodecoding_batch": (4, 60 / (15 + 1)),  # likewise
    "pearl": (4, 60 / (15 + 1)),  # likewise
    "edge_sd": (5, 5),  # a window of 4 and the guess behind it
    "specactor": (4, 4),  # likewise, of 3
    "adaptive_verification": (3, 3),  # two of four are verified
    "specpipe": (1, 60 / (60 + STAGES - 1)),  # a token a beat, once the pipeline is full
    "specpipe_tandem": (1, 1),  # so does this one, whose drafts fill it
}
"""Tokens a step, by law and by simulation, where they are not the window and one token beside
it.
"""


@pytest.mark.few(30)
@pytest.mark.parametrize(
    "acceptance",
    [{"rate": 0}, {"rate": 1}, {"always": 0}, {"per_position": [0]}, {"cycle": {"accepted": [0]}}],
)
@pytest.mark.parametrize("name", strategies())
def test_nothing_kept_and_all_kept_are_answered_by_every_strategy(
    name: str, acceptance: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    example = strategies()[name].example()
    stated = {"strategy": example.strategy.model_dump(mode="json"), "acceptance": acceptance}
    stated["durations"] = example.durations.model_dump(mode="json", exclude_none=True)
    # no step is cut short: 60 tokens are whole steps of 1, 2, 3, 4 or 5
    stated["requests"] = {"count": 3, "output_tokens": 1 + 60, "prompt_tokens": 5}
    (tmp_path / "x.yaml").write_text(json.dumps(stated))
    if acceptance == {"rate": 1}:
        whole = example.strategy.window + 1
        by_law, simulated = ALL_KEPT.get(name, (whole, whole))
    else:
        by_law, simulated = NONE_KEPT.get(name, (1, 1))
    ran = answer("run", tmp_path / "x.yaml")
    assert answer("law", tmp_path / "x.yaml")["law"]["tokens_per_step"] == pytest.approx(by_law)
    assert ran["law"]["tokens_per_step"] == pytest.approx(by_law)
    assert ran["simulated"]["tokens_per_step"] == pytest.approx(simulated)
    if "gamma" in stated["strategy"]:
        done = CliRunner().invoke(
            main, ["run", str(tmp_path / "x.yaml"), "--set", "strategy.gamma=0"]
        )
        assert done.exit_code == 2
        assert "strategy.gamma: expected 1 or more, got 0" in done.stderr


# ---- what need not be stated


def test_plain_decoding_needs_no_acceptance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stated: dict[str, Any] = {"strategy": "autoregressive", "durations": {"target_ms": 30}}
    found = []
    for block in ({}, {"acceptance": {"always": 0}}):
        (tmp_path / "plain.yaml").write_text(json.dumps(stated | block))
        found.append([answer(command, "plain.yaml") for command in ("run", "law", "batches")])
    assert found[0] == found[1]
    assert found[0][1]["law"]["tpot_ms"] == 30.0
    (tmp_path / "plain.yaml").write_text(json.dumps(stated))
    answer("explain", "plain.yaml")
    done = CliRunner().invoke(
        main, ["law", "plain.yaml", "--set", "strategy={name: vanilla_sd, gamma: 2}"]
    )
    assert done.exit_code == 2
    assert "acceptance: is required and missing" in done.stderr
