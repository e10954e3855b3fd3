"""Windows and drafters that look ahead: the oracle's law by hand, its replay, the best of several
drafters.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from simulator.core.acceptance.sources import Cycle, Replay, best_of
from simulator.core.acceptance.statistics import independent
from simulator.core.faults import BadInput
from simulator.core.strategies.common.adaptive import ConfidentWindow
from simulator.core.strategies.common.step import State
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.traces.file import read_once
from simulator.scenario import load
from simulator.scenario.evaluate import law, run

ORACLE = "strategy={name: vanilla_sd, gamma: oracle}"
TIMES = "durations={target_ms: 10, draft_step_ms: 1}"
HEAD = "{layers: 1, squares: 2}"
TRACE = "trace: six_flavours_greedy, stand_in: true"


@settings(max_examples=20, deadline=None)
@given(st.floats(0.0, 0.9))
def test_the_oracles_law_for_independent_positions(rate: float) -> None:
    """A window of n with chance a^n (1 - a): n ms of the draft and 10 of the target for n + 1
    tokens, n up to 64.
    """
    loaded = load("durations_only", overrides=[ORACLE, TIMES, f"acceptance={{rate: {rate}}}"])
    found = law(loaded.scenario, loaded.acceptance())
    kept = independent(rate, 64)
    assert found.verified_per_step == pytest.approx(1.0 + kept, rel=1e-9)
    assert found.step_s == pytest.approx((10.0 + kept) * 1e-3, rel=1e-9)


def test_every_window_of_the_oracle_is_kept_whole() -> None:
    """2, 0 and 5 kept tokens of at most 4: windows of 2, 0 and 4, 12 + 10 + 14 ms for 3 + 1 + 5
    tokens.
    """
    strategy = "strategy={name: vanilla_sd, gamma: 4, adaptive: oracle}"
    stated = ["acceptance={cycle: {accepted: [2, 0, 5]}}", "requests={count: 1, output_tokens: 19}"]
    result = run(load("durations_only", overrides=[strategy, TIMES, *stated]))
    for outcome in (result.replay, result.simulated):
        assert outcome.steps == 6
        assert outcome.end_s == pytest.approx(2 * 36e-3)
        assert outcome.tokens_per_step == pytest.approx(3.0)
    assert result.law.step_s / result.law.verified_per_step == pytest.approx(36e-3 / 9)
    assert {
        kind.verifying and (4 if kind.window is None else kind.window)
        for kind in result.simulated.kinds
    } == {2, 0, 4}


@pytest.mark.few(1)
@pytest.mark.parametrize("window", [1, 2, 4, 8])
def test_no_fixed_window_beats_the_oracle(window: int) -> None:
    fixed, oracle = (
        run(
            load(
                "durations_only",
                overrides=[
                    f"strategy={{name: vanilla_sd, {rule}}}",
                    TIMES,
                    f"acceptance={{{TRACE}}}",
                ],
            )
        )
        for rule in (f"gamma: {window}", "gamma: 64, adaptive: oracle")
    )
    assert oracle.simulated.tpot_s < fixed.simulated.tpot_s
    assert oracle.replay.tpot_s == pytest.approx(oracle.simulated.tpot_s, rel=1e-9)


@pytest.mark.parametrize(
    "policy",
    [
        "{name: prefill_first}",
        "{name: prefill_first, max_requests: 3}",
        "{name: unified_budget, budget_tokens: 24}",
    ],
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


def test_confidence_is_asked_of_a_recording_alone() -> None:
    state = State(Cycle((2,)).cursor(0, None), 10)
    with pytest.raises(TypeError, match="_CycleCursor does not know how sure the draft is"):
        ConfidentWindow().opened(8, state)


@pytest.mark.few(1)
@pytest.mark.parametrize("p_min", [0.0, 0.3, 0.6, 1.0])
def test_a_window_by_recorded_confidence_is_a_walk(p_min: float) -> None:
    """A window as long as the draft is sure, up to 8; law, replay and a walk by hand over the
    visited positions agree.
    """
    rule = (
        f"strategy={{name: vanilla_sd, gamma: 8, adaptive: {{name: confidence, p_min: {p_min}}}}}"
    )
    loaded = load(
        "durations_only",
        overrides=[
            rule,
            TIMES,
            f"acceptance={{{TRACE}}}",
            "requests={count: 120, output_tokens: 192}",
        ],
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
    assert found.verified_per_step == pytest.approx(tokens / steps, rel=1e-9)
    assert found.step_s == pytest.approx((10.0 + drafted / steps) * 1e-3, rel=1e-9)
    assert result.replay.tpot_s == pytest.approx(result.simulated.tpot_s, rel=1e-9)
    assert result.simulated.verified_per_step == pytest.approx(tokens / steps, rel=0.01)


def test_the_best_of_two_drafters_keeps_the_longer_run_at_every_position() -> None:
    trace = read_once(Catalogue().names("trace")["six_flavours_greedy"])
    best, eagle, ngram = (
        Replay(drafted)
        for drafted in (
            best_of(trace, ["eagle", "ngram"]),
            trace.drafted_by("eagle"),
            trace.drafted_by("ngram"),
        )
    )
    for recording in range(0, len(trace.flavour), 7):
        longer = np.minimum(
            np.maximum(eagle.runs(recording), ngram.runs(recording)), best.trace.window
        )
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
    (
        "acceptance={" + TRACE + ", drafter: best_of}",
        "best_of: [...], several drafters of a trace, are stated together",
    ),
    (
        "acceptance={" + TRACE + ", drafter: best_of, best_of: [eagle, ngran]}",
        "no drafter 'ngran'; did you mean 'ngram'",
    ),
    (
        "acceptance={" + TRACE + ", drafter: eagle}",
        "set strategy.gamma=8 and strategy.adaptive=oracle",
    ),
    (
        "strategy.adaptive=confidence",
        "confidence is read from a recording, and acceptance is stated",
    ),
    (
        f"{CONFIDENT} & acceptance={{{TRACE}, drafter: ngram}}",
        "holds the draft's confidence in 0 tokens ahead",
    ),
    ("strategy.bonus_on_full_accept=false", "the oracle's windows are kept whole"),
    (
        f"strategy={{name: mirror_sd, drafter: {{name: head, head: {HEAD}}}}}",
        "for vanilla_sd alone, without drafts_first",
    ),
    (
        (
            f"strategy={{name: vanilla_sd, gamma: 4, drafts_first: true, drafter: {{name: head, "
            f"head: {HEAD}}}}}"
        ),
        "for vanilla_sd alone, without drafts_first",
    ),
    (
        (
            f"{CONFIDENT} & strategy.drafter={{name: head, head: {HEAD}}} & acceptance={{{TRACE}, "
            f"drafter: eagle}}"
        ),
        "0 tokens ahead",
    ),
    (
        "strategy={name: mirror_sd, gamma: oracle}",
        "a window that follows its request (oracle) is drafted by vanilla_sd alone",
    ),
]


@pytest.mark.parametrize(("override", "expected"), MISTAKES, ids=[text for _, text in MISTAKES])
def test_what_cannot_be_looked_ahead(override: str, expected: str) -> None:
    with pytest.raises(BadInput) as error:
        load(
            "durations_only",
            overrides=[ORACLE, TIMES, "acceptance={rate: 0.7}", *override.split(" & ")],
        )
    assert expected in str(error.value)


# ---- several drafters run in one step; a head behind a gate


def test_further_drafters_run_in_series_with_the_draft() -> None:
    """Windows of 3 ms of a draft of 1 ms a token, a head of two passes of 1 ms and 0.5 ms of
    look-up: 5.5 ms beside 10.
    """
    beside = (
        f"beside: [{{head: {HEAD}, rows: [4, 1]}}], beside_host_ms: {{value: 0.5, source: a "
        f"profile}}"
    )
    stated = f"acceptance={{{TRACE}, drafter: best_of, best_of: [draft, eagle, ngram]}}"
    results = {
        rule: run(
            load(
                "durations_only",
                overrides=[f"strategy={{{rule}}}", TIMES, stated, "requests.count=20"],
            )
        )
        for rule in ("name: vanilla_sd, gamma: 3", f"name: vanilla_sd, gamma: 3, {beside}")
    }
    alone, all_of_them = results.values()
    assert alone.law.step_s == pytest.approx(13e-3)
    assert [all_of_them.law.step_s, all_of_them.simulated.step_s] == pytest.approx([15.5e-3] * 2)
    assert all_of_them.replay.tpot_s == pytest.approx(all_of_them.simulated.tpot_s, rel=1e-9)
    assert all_of_them.simulated.tokens_per_step == alone.simulated.tokens_per_step
    assert any(
        "in series with what the strategy states beside it" in text for text in all_of_them.caveats
    )


def test_a_drafter_beside_the_draft_runs_whether_or_not_a_token_passes_the_gate() -> None:
    """No token passes: each step is a pass of the draft, one of the head beside it and a plain
    token of the target.
    """
    gate = "adaptive: {name: gated, passed: {value: 1.0e-12}}"
    rule = f"strategy={{name: vanilla_sd, gamma: 3, {gate}, beside: [{{head: {HEAD}, rows: [1]}}]}}"
    result = run(
        load(
            "durations_only",
            overrides=[
                rule,
                TIMES,
                "acceptance={rate: 0.7}",
                "requests={count: 1, output_tokens: 9}",
            ],
        )
    )
    assert [result.law.step_s, result.simulated.step_s] == pytest.approx([12e-3] * 2)


@pytest.mark.parametrize(
    "rule", ["{name: gated, passed: {value: 0.8}}", "{name: moving}", "oracle", "fixed"]
)
def test_a_head_takes_every_rule_for_its_window(rule: str) -> None:
    strategy = (
        f"strategy={{name: vanilla_sd, gamma: 5, drafter: {{name: head, head: {HEAD}}}, "
        f"adaptive: {rule}}}"
    )
    loaded = load(
        "methods_vicuna_7b_a100",
        [strategy, f"acceptance={{{TRACE}, drafter: eagle}}", "requests.count=20"],
    )
    result = run(loaded)
    assert not loaded.scenario.schedule.needs.draft_model
    assert result.replay.tpot_s == pytest.approx(result.simulated.tpot_s, rel=1e-9)
    assert {span.lane for span in result.spans if span.label.startswith("draft")} == {"target"}
    assert result.simulated.tokens_per_step > 1.5


def test_a_head_costs_and_weighs_what_it_does_as_a_method() -> None:
    """A chain of three of an EAGLE-3 head, by both strategies: the first pass over kept rows is
    0.01 % of a step.
    """
    head = "{layers: 1, squares: 4, vocabulary: 32000}"
    rule = f"strategy={{name: vanilla_sd, gamma: 3, drafter: {{name: head, head: {head}}}}}"
    place = [
        "target.device=h100_94g_sxm",
        "target.tensor_parallel=1",
        "target.engine=vllm",
        "acceptance={rate: 0.6}",
    ]
    both = [
        load("vanilla_qwen3_32b_a100", [one, *place]) for one in (rule, "strategy=vllm_eagle_3")
    ]
    mine, theirs = (law(loaded.scenario, loaded.acceptance()) for loaded in both)
    assert mine.step_s == pytest.approx(theirs.step_s, rel=1e-3)
    assert mine.tokens_per_step == pytest.approx(theirs.tokens_per_step, rel=1e-9)
    weights = [
        loaded.scenario.strategy.extra_memory(loaded.scenario.target.model) for loaded in both
    ]
    assert weights[0] == weights[1]
