"""What a run shows of its law's claim, and what the gap between law and simulation is made of."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.evidence.law_check import LawGap
from simulator.scenario import load
from simulator.scenario.agreement import UNEXPLAINED, agreement, explained_gap, mean_step_s
from simulator.scenario.evaluate import run
from simulator.scenario.result.run_result import RunResult

EXACT = ["strategy={name: vanilla_sd, gamma: 4}", "durations={target_ms: 30, draft_step_ms: 5}"]


def scaled_replay(result: RunResult, factor: float) -> Any:
    """The agreement of a run whose law had said ``factor`` times as much of every step."""
    law = replace(result.replay, step_s=result.replay.step_s * factor)
    return agreement(result.scenario, result.law, law, result.simulated)


@pytest.fixture(scope="module")
def exact() -> RunResult:
    return run(load("durations_only", [*EXACT, "requests.count=4"]))


@pytest.fixture(scope="module")
def pipelined() -> RunResult:
    """Several batches in flight, so that no replay follows them."""
    return run(load("pipeline_llama_3_1_70b_8x3090", ["requests.count=16"]))


def test_an_exact_law_agrees_to_1e_9_or_not_at_all(exact: RunResult) -> None:
    assert exact.agreement.data()["disagreement"] is False
    assert exact.agreement.gap == pytest.approx(0.0, abs=1e-9)
    for factor in (1 + 1e-8, 1 - 1e-8, 1.9):
        shown = scaled_replay(exact, factor)
        assert shown.disagreement
        assert shown.gap == pytest.approx(factor - 1, rel=1e-6)
        assert shown.shown.startswith("DISAGREEMENT: the law claims to be exact")


def test_a_mean_step_that_its_own_kinds_do_not_add_up_to_is_a_disagreement(
    exact: RunResult,
) -> None:
    """A strategy may put a ``law`` of its own in the place of the common one; its steps are then no
    witness of its mean.
    """
    law = replace(exact.law, step_s=exact.law.step_s / 2)
    shown = agreement(exact.scenario, law, exact.replay, exact.simulated)
    assert shown.disagreement
    assert (
        shown.shown
        == "DISAGREEMENT: the law's mean step is 50 % shorter than its own kinds of step add up to"
    )


def test_a_bound_is_broken_on_one_side_only() -> None:
    """Target and draft on one device: the law of Mirror-SD is a lower bound, and a step takes
    longer.
    """
    changes = [
        "draft.machine=a100",
        "draft.device=a100_80g_sxm",
        "channel=null",
        "requests.count=3",
    ]
    result = run(load("mirror_qwen3_32b_a100", changes))
    assert result.agreement.claim.relation == "lower_bound"
    assert not result.agreement.disagreement
    assert result.agreement.gap is not None
    assert result.agreement.gap < -0.05
    assert not scaled_replay(result, 0.5).disagreement
    broken = scaled_replay(result, 2.0)
    assert broken.disagreement
    assert "claims to be a lower bound" in broken.shown


def test_without_a_replay_the_growth_of_the_context_bounds_the_gap(pipelined: RunResult) -> None:
    shown = pipelined.agreement
    assert pipelined.replay is pipelined.simulated
    assert not shown.disagreement
    assert shown.gap is not None
    assert abs(shown.gap) > 1e-6
    assert "contexts of 512 to" in shown.shown
    for factor in (0.5, 2.0):
        simulated = replace(pipelined.simulated, step_s=pipelined.simulated.step_s * factor)
        assert agreement(pipelined.scenario, pipelined.law, simulated, simulated).disagreement


def test_a_mean_over_kinds_counts_their_steps(exact: RunResult) -> None:
    """30 ms of target and four times 5 ms of draft."""
    assert mean_step_s(exact.scenario, exact.simulated.kinds, 100) == pytest.approx(0.050)


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("durations_only", []),
        ("mirror_qwen3_32b_a100", ["requests.count=6"]),
        ("vanilla_qwen3_32b_a100", ["requests.count=8", "requests.concurrency=4"]),
        ("duodecoding_llama_2_7b_a800", ["requests.count=4"]),
        ("specpipe_llama_3_1_70b_8xl40", ["requests.count=2"]),
    ],
)
def test_parts_lead_from_the_law_to_the_simulation_and_leave_nothing(
    name: str, overrides: list[str]
) -> None:
    result = run(load(name, overrides))
    parts = explained_gap(
        result.scenario, result.law, result.law_replayed, result.replay, result.simulated
    )
    assert parts[-1].tpot_s == pytest.approx(result.simulated.tpot_s)
    assert sum(part.share for part in parts) == pytest.approx(1.0)
    unexplained = [part.share for part in parts if part.reason == UNEXPLAINED]
    assert unexplained == pytest.approx([0.0], abs=1e-6), (
        "an exact law leaves nothing between replay and simulation"
    )


def test_no_gap_has_no_parts(exact: RunResult) -> None:
    same = replace(exact.simulated, tpot_s=exact.law.tpot_s)
    assert explained_gap(exact.scenario, exact.law, exact.law_replayed, exact.replay, same) == ()


def test_parts_are_measured_on_demand_only(exact: RunResult) -> None:
    assert exact.gap_parts == ()
    assert replace(exact, explain_gap=True).gap_parts


def test_laws_are_validated_by_name_and_a_name_that_is_none_is_a_fault() -> None:
    done = CliRunner().invoke(
        main, ["validate", "--law", "vanilla_sd", "--law", "autoregressive", "--json"]
    )
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert [law["strategy"] for law in data["examples"]] == ["vanilla_sd", "autoregressive"]
    assert data["disagreement"] is False
    assert all(law["compared"] > 40 and abs(law["gap"]) < 1e-9 for law in data["examples"])
    wrong = CliRunner().invoke(main, ["validate", "--law", "vanila_sd"])
    assert wrong.exit_code == 2
    assert "there is no strategy of this name; did you mean 'vanilla_sd'?" in wrong.stderr


def test_validation_ends_with_3_where_a_law_disagrees(monkeypatch: pytest.MonkeyPatch) -> None:
    gap = LawGap("mine", "exact", 52.0, 100.0, 15.0, 29.0, "DISAGREEMENT: twice as long", True)
    monkeypatch.setattr("simulator.evidence.law_check.law_gaps", lambda everywhere: [gap])
    monkeypatch.setattr(
        "simulator.evidence.law_check.strategies", lambda: {"vanilla_sd": VanillaSD}
    )
    monkeypatch.setattr("simulator.core.strategies.strategies", lambda: {"vanilla_sd": VanillaSD})
    monkeypatch.setattr("simulator.evidence.fits.papers", lambda catalogue, names: [])
    done = CliRunner().invoke(main, ["validate", "--processes", "1", "--json"])
    assert done.exit_code == 3, done.output
    assert done.stderr.strip().endswith("mine: FAIL: twice as long")
    assert json.loads(done.stdout)["laws"][0]["disagreement"] is True
