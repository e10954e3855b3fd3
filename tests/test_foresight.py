"""Windows and drafters that look ahead: the oracle's law by hand, its replay, the best of several drafters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.acceptance.best_of import best_of
from simulator.acceptance.sources import Replay
from simulator.acceptance.statistics import independent
from simulator.acceptance.trace import read_once
from simulator.files.schema import BadInput
from simulator.names import Catalogue
from simulator.scenario import load
from simulator.scenario.run import law, run

ORACLE = "strategy={name: vanilla_sd, gamma: oracle}"
TIMES = "durations={target_ms: 10, draft_step_ms: 1}"
TRACE = "trace: six_flavours_greedy, stand_in: true"


@settings(max_examples=20, deadline=None)
@given(st.floats(0.0, 0.9))
def test_the_oracles_law_for_independent_positions(rate: float) -> None:
    """A window of n with chance a^n (1 - a): n ms of the draft and 10 of the target for n + 1 tokens, n up to 64."""
    loaded = load("durations_only", overrides=[ORACLE, TIMES, f"acceptance={{rate: {rate}}}"])
    found = law(loaded.scenario, loaded.acceptance())
    kept = independent(rate, 64)
    assert found.tokens_per_step == pytest.approx(1.0 + kept, rel=1e-9)
    assert found.tpot_s == pytest.approx((10.0 + kept) / (1.0 + kept) * 1e-3, rel=1e-9)


def test_every_window_of_the_oracle_is_kept_whole() -> None:
    """2, 0 and 5 kept tokens of at most 4: windows of 2, 0 and 4, 12 + 10 + 14 ms for 3 + 1 + 5 tokens."""
    strategy = "strategy={name: vanilla_sd, gamma: 4, adaptive: oracle}"
    stated = ["acceptance={cycle: {accepted: [2, 0, 5]}}", "requests={count: 1, output_tokens: 19}"]
    result = run(load("durations_only", overrides=[strategy, TIMES, *stated]))
    for outcome in (result.replay, result.simulated):
        assert outcome.steps == 6
        assert outcome.end_s == pytest.approx(2 * 36e-3)
        assert outcome.tokens_per_step == pytest.approx(3.0)
    assert result.law.tpot_s == pytest.approx(36e-3 / 9)
    assert {kind.verifying and (4 if kind.window is None else kind.window) for kind in result.simulated.kinds} == {2, 0, 4}


@pytest.mark.parametrize("window", [1, 2, 4, 8])
def test_no_fixed_window_beats_the_oracle(window: int) -> None:
    fixed, oracle = (
        run(load("durations_only", overrides=[f"strategy={{name: vanilla_sd, {rule}}}", TIMES, f"acceptance={{{TRACE}}}"]))
        for rule in (f"gamma: {window}", "gamma: 64, adaptive: oracle")
    )
    assert oracle.simulated.tpot_s < fixed.simulated.tpot_s
    assert oracle.replay.tpot_s == pytest.approx(oracle.simulated.tpot_s, rel=1e-9)


@pytest.mark.parametrize(
    "policy", ["{name: prefill_first}", "{name: prefill_first, max_requests: 3}", "{name: unified_budget, budget_tokens: 24}"]
)
def test_a_batch_of_oracles_replays_as_it_runs(policy: str) -> None:
    more = [
        f"acceptance={{{TRACE}}}",
        "requests={count: 40, concurrency: 8, output_tokens: 60}",
        f"serving={{policy: {policy}}}",
    ]
    result = run(load("durations_only", overrides=[ORACLE, TIMES, *more]))
    assert result.replay.tpot_s == pytest.approx(result.simulated.tpot_s, rel=1e-9)
    assert "taken as equal" in result.law.relation


@pytest.mark.parametrize("p_min", [0.0, 0.3, 0.6, 1.0])
def test_a_window_by_recorded_confidence_is_a_walk(p_min: float) -> None:
    """A window as long as the draft is sure, up to 8; law, replay and a walk by hand over the visited positions agree."""
    rule = f"strategy={{name: vanilla_sd, gamma: 8, adaptive: {{name: confidence, p_min: {p_min}}}}}"
    loaded = load(
        "durations_only", overrides=[rule, TIMES, f"acceptance={{{TRACE}}}", "requests={count: 120, output_tokens: 192}"]
    )
    trace = read_once(Catalogue().names("trace")["six_flavours_greedy"])
    replay, steps, drafted, tokens = Replay(trace), 0, 0, 0
    for recording in replay.order:
        start, runs, position = int(trace.offsets[recording]) + 1, replay.runs(recording), 0
        while position < len(runs):
            sure = trace.extra["rollout.q"][:8, start + position] >= p_min
            window = int(np.argmin(sure)) if not sure.all() else 8
            kept = int(min(runs[position], window))
            steps, drafted, tokens = steps + 1, drafted + window + (window < 8), tokens + kept + 1
            position += kept + 1
    found, result = law(loaded.scenario, loaded.acceptance()), run(loaded)
    assert found.tokens_per_step == pytest.approx(tokens / steps, rel=1e-9)
    assert found.step_s == pytest.approx((10.0 + drafted / steps) * 1e-3, rel=1e-9)
    assert result.replay.tpot_s == pytest.approx(result.simulated.tpot_s, rel=1e-9)
    assert result.simulated.tokens_per_step == pytest.approx(tokens / steps, rel=0.01)


def test_the_best_of_two_drafters_keeps_the_longer_run_at_every_position() -> None:
    trace = read_once(Catalogue().names("trace")["six_flavours_greedy"])
    best, eagle, ngram = (
        Replay(drafted)
        for drafted in (best_of(trace, ["eagle", "ngram"]), trace.drafted_by("eagle"), trace.drafted_by("ngram"))
    )
    for recording in range(0, len(trace.flavour), 7):
        longer = np.minimum(np.maximum(eagle.runs(recording), ngram.runs(recording)), best.trace.window)
        assert best.runs(recording).tolist() == longer.tolist()
    assert best.trace.window == min(eagle.trace.window or 99, ngram.trace.window or 99)
    alone = best_of(trace, ["draft"])
    assert alone.window is None
    assert Replay(alone).runs(3).tolist() == Replay(trace).runs(3).tolist()


def test_the_best_of_several_runs_and_says_so() -> None:
    fast = {}
    for drafter in ("eagle", "ngram", "best_of, best_of: [eagle, ngram]"):
        stated = f"acceptance={{{TRACE}, drafter: {drafter}}}"
        rule = "strategy={name: vanilla_sd, gamma: 8, adaptive: oracle}"
        result = run(load("durations_only", overrides=[rule, TIMES, stated, "requests.count=60"]))
        assert result.replay.tpot_s == pytest.approx(result.simulated.tpot_s, rel=1e-9)
        fast[drafter[:7]] = result.simulated.tpot_s
    assert fast["best_of"] < min(fast["eagle"], fast["ngram"])
    assert any("the best of eagle, ngram" in text for text in result.caveats)


CONFIDENT = "strategy={name: vanilla_sd, gamma: 8, adaptive: confidence}"
MISTAKES = [
    ("acceptance={" + TRACE + ", drafter: best_of}", "best_of: [...], several drafters of a trace, are stated together"),
    ("acceptance={" + TRACE + ", drafter: best_of, best_of: [eagle, ngran]}", "no drafter 'ngran'; did you mean 'ngram'"),
    ("acceptance={" + TRACE + ", drafter: eagle}", "set strategy.gamma=8 and strategy.adaptive=oracle"),
    ("strategy.adaptive=confidence", "confidence is read from a recording, and acceptance is stated"),
    (f"{CONFIDENT} & acceptance={{{TRACE}, drafter: ngram}}", "holds the draft's confidence in 0 tokens ahead"),
    ("strategy.bonus_on_full_accept=false", "the oracle's windows are kept whole"),
    ("strategy={name: mirror_sd, gamma: oracle}", "a window that follows its request (oracle) is drafted by vanilla_sd alone"),
]


@pytest.mark.parametrize(("override", "expected"), MISTAKES, ids=[text for _, text in MISTAKES])
def test_what_cannot_be_looked_ahead(override: str, expected: str) -> None:
    with pytest.raises(BadInput) as error:
        load("durations_only", overrides=[ORACLE, TIMES, "acceptance={rate: 0.7}", *override.split(" & ")])
    assert expected in str(error.value)
