"""A stated mean is the mean that runs: under the window that is used, and over the requests that
run.
"""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.core.faults import BadInput
from simulator.scenario import load
from simulator.scenario.evaluate import run
from simulator.scenario.loading import variant
from simulator.scenario.result.data import result_data
from simulator.scenario.result.run_result import RunResult

CHAIN = "vanilla_llama_2_7b_a100"
OF_FIVE = "acceptance={tokens_per_step: 3.5, window: 5}"


def ran(*overrides: str, scenario: str = CHAIN) -> RunResult:
    """A run of a scenario."""
    return run(load(scenario, list(overrides)))


def verified(result: RunResult) -> float:
    """Tokens of a step of a run, the step in which an output ends in full."""
    simulated = result.simulated
    return float(getattr(simulated, "verified_per_step", simulated.tokens_per_step))


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_six_requests_run_the_mean_that_is_stated(seed: int) -> None:
    result = ran("strategy.gamma=5", OF_FIVE, "requests.count=6", f"seed={seed}")
    assert verified(result) == pytest.approx(3.5, rel=0.005)
    assert not any("states" in text for text in result.cautions)


@pytest.mark.parametrize(
    "overrides",
    [
        ("requests.count=60",),
        ("requests={count: 12, output_tokens: 40}",),
        (
            (
                "requests={count: 12, output_tokens: {name: exponential, mean_tokens: 90, "
                "most_tokens: 400}}"
            ),
        ),
        ("requests={count: 12, concurrency: 4}",),
    ],
    ids=["sixty", "short outputs", "outputs of many lengths", "batches"],
)
def test_the_mean_runs_whatever_the_requests(overrides: tuple[str, ...]) -> None:
    assert verified(ran("strategy.gamma=5", OF_FIVE, *overrides)) == pytest.approx(3.5, rel=0.01)


@pytest.mark.parametrize(
    ("strategy", "mean"),
    [
        ("hf_assisted", 2.28),
        ("{name: vanilla_sd, gamma: 8, adaptive: {name: moving, start: 2, up: 1, down: 1}}", 2.28),
        (
            (
                "{name: vanilla_sd, gamma: 8, adaptive: {name: gated, passed: {value: 0.8, source: "
                "nobody, confidence: assumed}}}"
            ),
            2.28,
        ),
        ("{name: vanilla_sd, gamma: 8, adaptive: {name: confidence, p_min: 0.4}}", 1.4),
        ("{name: vanilla_sd, gamma: 8, adaptive: oracle}", 2.28),
    ],
    ids=["hf_assisted", "moving", "gated", "confidence", "oracle"],
)
def test_a_mean_is_solved_for_under_the_window_that_is_used(strategy: str, mean: float) -> None:
    result = ran(
        f"strategy={strategy}", f"acceptance={{tokens_per_step: {mean}}}", "requests.count=40"
    )
    assert verified(result) == pytest.approx(mean, rel=0.01)


def test_a_mean_that_a_gate_does_not_let_through_is_refused() -> None:
    gated = "strategy={name: vanilla_sd, gamma: 8, adaptive: {name: confidence, p_min: 0.4}}"
    with pytest.raises(
        BadInput,
        match=r"cannot be re-scaled to 2.28: with these windows the mean reaches 1 to 1\.\d+ "
        r"tokens",
    ):
        load(CHAIN, [gated, "acceptance={tokens_per_step: 2.28}"])


@pytest.mark.parametrize("scenario", ["tree", "look-up"])
def test_runs_by_start_have_the_mean_that_is_stated(scenario: str) -> None:
    strategy = {"tree": "eagle_1", "look-up": "pld"}[scenario]
    result = ran(f"strategy={strategy}", "acceptance={tokens_per_step: 1.9}", "requests.count=8")
    assert verified(result) == pytest.approx(1.9, rel=0.02)


def test_a_mean_of_each_kind_of_text_is_run() -> None:
    means = "acceptance={tokens_per_step: {code: 3.4, dialogue: 2.1}, window: 5}"
    deal = "requests={count: 10, recordings: {code: 7, dialogue: 3}}"
    result = ran("strategy.gamma=5", means, deal)
    assert verified(result) == pytest.approx(10 / (7 / 3.4 + 3 / 2.1), rel=0.02)


def test_a_mean_that_these_requests_cannot_reach_is_said_beside_what_they_ran() -> None:
    """Three tokens are written in a step or two, whose mean is 1.5 or 3."""
    result = ran(
        "strategy.gamma=5",
        "acceptance={tokens_per_step: 5.7, window: 5}",
        "requests={count: 1, output_tokens: 30}",
    )
    assert verified(result) != pytest.approx(5.7, rel=0.01)
    said = [
        text
        for text in result.cautions
        if text.startswith("acceptance states 5.7 tokens a step, this request ran ")
    ]
    assert len(said) == 1
    assert result_data(result)["stated_mean"]["stated"] == 5.7


def test_a_mean_of_another_window_is_said_with_what_runs() -> None:
    done = CliRunner().invoke(
        main,
        [
            "run",
            CHAIN,
            "--set",
            "strategy.gamma=3",
            "--set",
            OF_FIVE,
            "--set",
            "requests.count=8",
            "--json",
        ],
    )
    data = json.loads(done.stdout)
    stated = data["stated_mean"]
    assert (stated["stated"], stated["window"], stated["run_window"], stated["requests"]) == (
        3.5,
        5,
        3,
        8,
    )
    assert stated["run"] == data["simulated"]["verified_per_step"]
    assert any(
        "3.5 tokens a step are stated for a window of 5; with 3 here" in text
        for text in data["notes"]
    )


def test_a_sweep_of_the_window_leaves_what_was_measured() -> None:
    """The rule is written down with the mean: a fixed window runs another mean of the same
    recording.
    """
    base = load(
        CHAIN, ["strategy=hf_assisted", "acceptance={tokens_per_step: 2.28}", "requests.count=40"]
    )
    assert base.scenario.acceptance.rescale is not None
    assert base.scenario.acceptance.rescale.adaptive == {
        "name": "moving",
        "start": 5,
        "up": 2,
        "down": 1,
    }
    fixed = run(variant(base, {"strategy": {"name": "vanilla_sd", "gamma": 20}}))
    assert verified(fixed) > 2.4


def test_a_rule_that_follows_no_request_is_refused() -> None:
    with pytest.raises(BadInput, match="expected a rule that follows each request, got off_above"):
        load(
            CHAIN, ["acceptance={tokens_per_step: 2.28, adaptive: {name: off_above, requests: 3}}"]
        )
