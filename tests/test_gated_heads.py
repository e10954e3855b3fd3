"""Heads that stop drafting where they are not sure: a stated curve and recorded confidence, in law,
replay and events.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from test_laws import play
from test_tree_replay import trace_of

from simulator.core.acceptance.sources import Cycle, Rates, Replay, odds_of
from simulator.core.acceptance.trace import Trace
from simulator.core.cost.model import DraftHead
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.quantities import Fraction
from simulator.core.serving.requests import Requests
from simulator.core.strategies.common.adaptive import ConfidentWindow, GatedWindow
from simulator.core.strategies.common.drafters import HeadDrafter
from simulator.core.strategies.common.step import Kind
from simulator.core.strategies.common.traits import Facts
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.scenario import evaluate, load
from simulator.scenario.evaluate import law, simulate

HEAD = HeadDrafter(name="head", head=DraftHead(layers=1, squares=2))
COST = StatedCost(StatedDurations(target_ms=10.0, draft_step_ms=2.0), 1)
MTP = "mtp_qwen3_5_27b_h100"


def curve(*shares: float) -> GatedWindow:
    return GatedWindow(passed=tuple(Fraction(value=share) for share in shares))


def head(gamma: int, rule: GatedWindow | ConfidentWindow) -> VanillaSD:
    return VanillaSD(gamma=gamma, drafter=HEAD, adaptive=rule)


# ---- a stated curve


def test_a_curve_says_how_many_windows_end_at_each_length() -> None:
    """0.8 of first tokens pass, half of second ones, and of third and later ones a quarter."""
    rule = curve(0.8, 0.5, 0.25)
    shares = rule.shares(4, odds_of(Rates((0.5,)), None))
    assert shares == pytest.approx({0: 0.2, 1: 0.4, 2: 0.3, 3: 0.075, 4: 0.025})
    counts = [rule.after(4, None, False, turn) for turn in range(10_000)]
    for window, share in shares.items():
        assert counts.count(window) / 10_000 == pytest.approx(share, abs=2e-3)


@given(st.floats(0.01, 1.0), st.integers(1, 12))
def test_one_share_is_a_curve_that_repeats_itself(share: float, gamma: int) -> None:
    odds = odds_of(Rates((0.5,)), None)
    one = GatedWindow(passed=Fraction(value=share))
    assert curve(share, share).shares(gamma, odds) == pytest.approx(
        one.shares(gamma, odds), rel=1e-9, abs=1e-12
    )


def test_the_timeline_of_a_head_behind_a_gate() -> None:
    """A pass of 2 ms whose token does not pass, then a window of two, and none again; the head
    works on the target's device.
    """
    strategy = head(2, curve(0.7, 0.6))
    turns = [strategy.adaptive.after(2, None, False, turn) for turn in range(3)]
    assert turns == [0, 2, 0]
    loop, world = play(strategy, Cycle((2,)), COST, Requests(count=1, output_tokens=6))
    ms = [
        (span.lane, span.label, round(span.start_s * 1e3, 6), round(span.end_s * 1e3, 6))
        for span in world.spans
    ]
    assert ms[-6:] == [
        ("target", "draft prefill", 0.0, 2.0),
        ("target", "verify", 2.0, 12.0),
        ("target", "draft window", 12.0, 16.0),
        ("target", "verify", 16.0, 26.0),
        ("target", "draft prefill", 26.0, 28.0),
        ("target", "verify", 28.0, 38.0),
    ]
    bare = Kind("step", 0, 1, window=0)
    assert dict(loop.ledger.tally.steps) == {bare: 2, Kind("step", 1): 1}


def test_law_replay_and_events_agree_of_an_mtp_head_behind_a_gate() -> None:
    changes = [
        "strategy=llama_cpp_mtp",
        "strategy.adaptive.passed=[0.9, 0.7, 0.6]",
        "target.engine=llama_cpp_cuda",
        "target.device=rtx_3090",
        "target.weights=q4_k",
        "acceptance={always: 3}",
        "requests={count: 1, prompt_tokens: 64, output_tokens: 4000}",
    ]
    loaded = load(MTP, changes)
    verdicts = loaded.acceptance()
    simulated, _ = simulate(loaded.scenario, verdicts)
    replayed = evaluate.replay(loaded.scenario, verdicts)
    assert replayed.tpot_s == pytest.approx(simulated.tpot_s, rel=1e-9)
    by_law = law(loaded.scenario, verdicts)
    # 1 + 0.9 + 0.9 * 0.7 + 0.9 * 0.7 * 0.6, all of them kept
    assert by_law.verified_per_step == pytest.approx(2.908)
    assert simulated.verified_per_step == pytest.approx(2.908, rel=2e-3)
    assert simulated.step_s == pytest.approx(by_law.step_s, rel=2e-3)


# ---- recorded confidence


def recorded() -> Trace:
    """Six positions behind a prefill: a head keeps two tokens at the first and one at the fourth,
    and is sure of as many; at the last it is sure of none.
    """
    ranks = [[9, 0, 0, 9, 0, 9, 9], [9, 0, 9, 9, 9, 9, 9]]
    trace = trace_of([0] * 7, mtp_rank=ranks)
    sure = [[0, 0.9, 0.2, 0.2, 0.8, 0.2, 0.2], [0, 0.9, 0.2, 0.2, 0.3, 0.2, 0.2]]
    return replace(trace, extra={**trace.extra, "mtp.rollout.q": np.array(sure, np.float16)})


def test_a_heads_own_confidence_ends_its_windows() -> None:
    """Two passes are sure and kept; then one of two is, and at the end none."""
    strategy = head(2, ConfidentWindow(p_min=0.75))
    trace = recorded().drafted_by("mtp")
    assert list(strategy.findings(Facts(trace=trace))) == []
    acceptance = strategy.reads(Replay(trace))
    (state,) = states = [strategy.open(acceptance.cursor(0, None), 100)]
    walk = []
    for _ in range(3):
        step = strategy.compose(states)
        (progress,) = strategy.settle(states)
        walk.append((step.rows.tokens, progress.accepted, state.context))
    assert walk == [(3, 2, 103), (2, 1, 105), (1, 0, 106)]
    odds = acceptance.odds(2, None)
    assert odds.gated == {
        0: (pytest.approx(1 / 3), 0.0),
        1: (pytest.approx(1 / 3), 1.0),
        2: (pytest.approx(1 / 3), 2.0),
    }
    loop, _ = play(strategy, acceptance, COST, Requests(count=1, output_tokens=1 + 6 * 9))
    by_law = strategy.law(COST, odds_of(acceptance, None), 1, 100)
    tally = loop.ledger.tally
    steps = sum(tally.steps.values())
    assert steps == 27
    assert tally.step_seconds / steps == pytest.approx(by_law.step_s, rel=1e-9)
    assert tally.committed / tally.request_steps == pytest.approx(by_law.tokens_per_step, rel=1e-9)


def test_a_head_whose_confidence_was_not_recorded_is_refused() -> None:
    bare = trace_of([0] * 7, mtp_rank=[[0] * 7] * 2).drafted_by("mtp")
    ((field, message),) = head(2, ConfidentWindow()).findings(Facts(trace=bare))
    assert field == "adaptive"
    assert "confidence in 0 tokens ahead, got a window of 2" in message
