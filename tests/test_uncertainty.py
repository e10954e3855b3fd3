"""Intervals of a run: drawn from its requests, or from groups of them where there are too many to
keep.
"""

from __future__ import annotations

import gc
import tracemalloc
from copy import deepcopy
from math import exp, log

import numpy as np
import pytest

from simulator.core.faults import BadInput
from simulator.core.serving.request_times import GROUPS, Times
from simulator.core.serving.requests import Request
from simulator.scenario import load
from simulator.scenario.evaluate import run
from simulator.scenario.uncertain import footings as footings_module
from simulator.scenario.uncertain.draws import (
    DRAWS,
    SHARE,
    Deviates,
    Doubt,
    Drawn,
    Floor,
    drawn,
    interval,
    stream,
)
from simulator.scenario.uncertain.footings import Footing, rests_on
from simulator.scenario.uncertain.intervals import (
    doubt_of,
    doubts_of,
    laws_of,
    plain_step_by_law,
    rate_by_law,
    speedup_by_law,
    step_by_law,
    tpot_by_law,
)


def finished(count: int, seed: int = 1) -> list[Request]:
    """Requests that have ended, of outputs between 10 and 50 tokens and some 20 ms a token."""
    random, requests = np.random.default_rng(seed), []
    for index in range(count):
        tokens = int(random.integers(10, 51))
        request = Request(index, 0.0, 8, tokens, tokens=tokens, admitted_s=1.0 * index)
        request.finished_s = request.admitted_s + tokens * random.uniform(0.01, 0.03)
        requests.append(request)
    return requests


def noted(requests: list[Request]) -> Times:
    times = Times()
    for request in requests:
        times.note(request)
    return times


def naive(requests: list[Request]) -> tuple[float, float]:
    """Low and high factor of a bootstrap in one piece, every request drawn by itself."""
    seconds = np.array([request.finished_s - request.admitted_s for request in requests])
    tokens = np.array([request.tokens for request in requests], dtype=float)
    drawn = stream("requests", 0).integers(0, len(requests), (DRAWS, len(requests)))
    factors = -np.log(
        seconds[drawn].sum(axis=1) / tokens[drawn].sum(axis=1) / (seconds.sum() / tokens.sum())
    )
    tail = (1.0 - SHARE) / 2.0
    low, high = np.exp(np.quantile(factors, (tail, 1.0 - tail)))
    return float(low), float(high)


@pytest.mark.parametrize("count", [2, 3, 201, 1_001])
def test_few_requests_are_drawn_one_by_one(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last digit, however many are drawn at once."""
    requests = finished(count)
    doubt = Doubt(tuple(noted(requests).requests), {})
    assert interval(1.0, doubt) == pytest.approx(naive(requests), rel=1e-14)
    before = interval(1.0, doubt)
    monkeypatch.setattr("simulator.scenario.uncertain.draws.DRAWN_AT_ONCE", 7 * count)
    assert interval(1.0, doubt) == before


def test_no_draw_has_a_step_that_is_shorter_than_a_plain_one() -> None:
    """A step a tenth longer than a plain one and twice as fast has 2.2 tokens: that is the most,
    and the low end stays. A time per token is lifted by as much.
    """
    floor = Floor(log(1.1), {"a device": -1.0})
    free = interval(2.0, Doubt((), {"a device": 1.0}))
    bounded = interval(2.0, Doubt((), {"a device": 1.0}, floor=floor))
    assert bounded.high == pytest.approx(2.2)
    assert bounded.low == free.low
    assert free.high > 5.0
    lifted = floor._replace(power=1.0)
    assert interval(11.0, Doubt((), {"a device": -1.0}, floor=lifted)).low == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("name", "bounded"),
    [("mtp_qwen3_5_27b_h100", True), ("specpipe_llama_3_1_70b_8x3090", False)],
)
def test_a_speedup_is_at_most_the_tokens_of_a_step(name: str, bounded: bool) -> None:
    """Unless a step is less than a pass, as a beat of a pipeline is."""
    loaded = load(name)
    laws = laws_of(loaded.scenario, loaded.acceptance())
    doubt = doubt_of(loaded, ())
    assert (doubt.floor is not None) is bounded
    draws = drawn(speedup_by_law(laws), doubt)
    if bounded:
        _, most_tokens = doubt.possible
        most = float(laws.own.verified_per_step) * exp(most_tokens)
        assert draws.value * exp(draws.changes.max()) <= most * (1.0 + 1e-9)


def test_a_floor_turns_no_loss_into_a_gain() -> None:
    """Far from a fit many draws reach the floor; each is on the side of 1 on which it was."""
    loaded = load("duodecoding_llama_2_7b_a800")
    doubt = doubt_of(loaded, ())
    value = speedup_by_law(laws_of(loaded.scenario, loaded.acceptance()))
    bounded = drawn(value, doubt)
    free = drawn(value, doubt._replace(floor=None))
    assert (bounded.changes != free.changes).mean() > 0.2
    assert bounded.chance_above(1.0) == free.chance_above(1.0)


def test_doubts_go_to_another_process_and_back() -> None:
    doubt = Doubt(((1.0, 2),), {"a device": 0.1})
    assert deepcopy(doubt) == doubt, "copied as it is for a process"


def test_one_request_says_nothing_of_others() -> None:
    assert interval(3.0, Doubt(tuple(noted(finished(1)).requests), {})) == (3.0, 3.0)


@pytest.mark.parametrize("count", [GROUPS, GROUPS + 1, 2 * GROUPS, 2 * GROUPS + 3, 5 * GROUPS - 1])
def test_groups_hold_every_request_once(count: int) -> None:
    requests = finished(count)
    times = noted(requests)
    assert GROUPS // 2 <= len(times.requests) <= GROUPS + 1
    seconds, tokens = zip(*times.requests, strict=True)
    assert sum(tokens) == sum(request.tokens for request in requests)
    assert sum(seconds) == pytest.approx(
        sum(request.finished_s - request.admitted_s for request in requests)
    )
    size = 1
    while -(-count // size) > GROUPS:
        size *= 2
    in_groups = [
        sum(request.tokens for request in requests[first : first + size])
        for first in range(0, count, size)
    ]
    assert list(tokens) == in_groups


def test_groups_give_the_interval_of_single_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Independent requests: half-widths differ by the noise of some 600 groups and 4,000 draws."""
    requests = finished(5_000)
    exact = interval(1.0, Doubt(tuple(noted(requests).requests), {}))
    monkeypatch.setattr("simulator.core.serving.request_times.GROUPS", 1_000)
    times = noted(requests)
    assert len(times.requests) == 625
    grouped = interval(1.0, Doubt(tuple(times.requests), {}))
    assert grouped.high - grouped.low == pytest.approx(exact.high - exact.low, rel=0.12)


def test_each_request_is_handed_on() -> None:
    seen: list[int] = []
    times = Times(lambda request: seen.append(request.index))
    for request in finished(3):
        times.note(request)
    assert seen == [0, 1, 2]


@pytest.mark.full
def test_memory_of_a_run_does_not_grow_with_its_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law, replay, simulation and interval: at most 16 bytes for each further request; the draws
    alone once took 64,000.
    """
    monkeypatch.setattr("simulator.core.serving.request_times.GROUPS", 256)
    monkeypatch.setattr("simulator.scenario.uncertain.draws.DRAWN_AT_ONCE", 4_096)
    monkeypatch.setattr("simulator.scenario.evaluate.SPANS", 100)
    monkeypatch.setattr("simulator.core.serving.lazy.batch.MOST", 128)
    for room in ("metrics", "collector", "ledger"):
        monkeypatch.setattr(f"simulator.core.serving.{room}.PENDING", 128)
    monkeypatch.setattr("simulator.core.serving.lazy.to_come.AT_FIRST", 128)

    def peak_bytes(count: int) -> int:
        gc.collect()  # else it is chance when garbage in circles, of other tests too, is found
        workload = f"requests={{count: {count}, prompt_tokens: 16, output_tokens: 4}}"
        tracemalloc.start()
        try:
            loaded, times = load("durations_only", [workload]), Times()
            speedup = run(loaded, finished=times.note).speedup
            interval(speedup, doubt_of(loaded, times.requests))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak_bytes(6_000)  # whatever is made once and kept, tuples for the next use among it
    assert (peak_bytes(6_000) - peak_bytes(3_000)) / 3_000 < 16


# ---- acceptance between two means


def test_an_interval_reaches_to_both_ends_of_the_range_of_acceptance() -> None:
    low, high = interval(2.0, Doubt((), {}, (-0.5, 0.1)))
    assert (low, high) == (
        pytest.approx(2.0 * np.exp(-0.5), rel=0.03),
        pytest.approx(2.0 * np.exp(0.1), rel=0.01),
    )
    assert interval(2.0, Doubt((), {"a": 0.3}, (-0.5, 0.1))).low < low


def test_a_stated_range_of_acceptance_is_in_the_interval_and_named_beside_the_answer() -> None:
    """A chain of two kept with 0.5 each makes 1.75 tokens a step; the law is as many times faster
    or slower at both ends.
    """
    plain = ["strategy={name: vanilla_sd, gamma: 2}", "acceptance={rate: 0.5}"]
    known = load("vanilla_llama_2_7b_a100", plain)
    ranged = load(
        "vanilla_llama_2_7b_a100", [*plain, "acceptance.tokens_per_step_between=[1.4, 2.1]"]
    )
    without, with_it = doubt_of(known, ()), doubt_of(ranged, ())
    assert with_it.acceptance == pytest.approx((np.log(1.4 / 1.75), np.log(2.1 / 1.75)))
    assert with_it == without._replace(acceptance=with_it.acceptance)
    words = (
        "largest uncertainty: acceptance, tokens per step (assumed); if it is off by one standard "
        "deviation, the speed-up changes by -12.7 %; then "
    )
    assert rests_on(ranged).startswith(words)
    assert "acceptance" not in rests_on(known)
    with pytest.raises(BadInput, match="expected the lower mean first"):
        load("vanilla_llama_2_7b_a100", [*plain, "acceptance.tokens_per_step_between=[2.1, 1.4]"])


SLOW = Footing("link.us", 1.0, "assumed", "a guess", -0.0961)
LENT = Footing("host.us", 2.0, "borrowed", "calibrated on b; borrowed (x)", -0.07, (-0.076, 0.021))
SMALL = Footing("draft.us", 3.0, "assumed", "a guess", 0.001)


@pytest.mark.parametrize(
    ("named", "strategy", "words"),
    [
        ([SMALL], "vanilla_sd", ""),
        (
            [SLOW, SMALL],
            "vanilla_sd",
            "largest uncertainty: link.us (assumed); if it is off by one standard deviation, the "
            "speed-up changes by -9.6 %",
        ),
        (
            [LENT, SLOW],
            "autoregressive",
            "largest uncertainty: host.us (calibrated on b; borrowed); over its range, the speed "
            "changes by -7.6 to +2.1 %; then link.us (assumed, -9.6 %)",
        ),
        (
            [SLOW, LENT],
            "vanilla_sd",
            "largest uncertainty: link.us (assumed); if it is off by one standard deviation, the "
            "speed-up changes by -9.6 %; then host.us (calibrated on b; borrowed, -7.6 to +2.1 %)",
        ),
    ],
)
def test_the_largest_uncertainty_comes_first(
    named: list[Footing], strategy: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load("vanilla_llama_2_7b_a100", [f"strategy={{name: {strategy}}}"])
    monkeypatch.setattr(footings_module, "footings", lambda loaded, every: named)
    assert rests_on(loaded) == words


def test_runs_that_came_out_too_high_put_the_interval_below_the_number() -> None:
    """All 10 % above what was published: the number is some 9 % lower."""
    found = interval(2.0, Doubt((), {}), [log(1.1)] * 3)
    assert found.low == pytest.approx(2.0 / 1.1)
    assert found.high == pytest.approx(2.0 / 1.1)


def test_draws_give_an_interval_and_the_chance_above_a_limit() -> None:
    """Log changes from -1 to 1, evenly: half of them within 0.5, and a quarter above."""
    number = Drawn(2.0, np.linspace(-1.0, 1.0, DRAWS))
    assert number.interval(0.5) == pytest.approx((2.0 * exp(-0.5), 2.0 * exp(0.5)))
    assert number.chance_above(2.0 * exp(0.5)) == pytest.approx(0.25)
    assert number.chance_above(2.0) == pytest.approx(0.5)


ELSEWHERE = ["target.engine=vllm", "draft.engine=vllm"]
"""An engine whose host was fitted on another card: its times are borrowed within a factor."""


def test_the_time_of_a_step_does_not_follow_acceptance() -> None:
    between = "{tokens_per_step: 2.5, tokens_per_step_between: [2.0, 3.0]}"
    loaded = load("vanilla_llama_2_7b_a100", [f"acceptance={between}"])
    step, tpot, speedup = doubts_of(loaded, (), [step_by_law, tpot_by_law, speedup_by_law])
    assert any(step.acceptance)
    assert (step.tokens, tpot.tokens, speedup.tokens) == pytest.approx((0.0, -1.0, 1.0))
    assert step.changes == pytest.approx(tpot.changes)


def test_every_draw_of_a_speedup_is_the_ratio_of_two_times() -> None:
    """Acceptance, devices, hosts and their uneven ranges move all of them in the same draws."""
    between = "{tokens_per_step: 2.5, tokens_per_step_between: [2.0, 3.0]}"
    loaded = load(
        "vanilla_llama_2_7b_a100", [f"acceptance={between}", "requests.concurrency=4", *ELSEWHERE]
    )
    quantities = [step_by_law, plain_step_by_law, tpot_by_law, rate_by_law, speedup_by_law]
    doubts = doubts_of(loaded, (), quantities)
    assert any(map(any, doubts[0].ends.values()))
    deviates = Deviates()
    step, plain, tpot, rate, speedup = (deviates.drawn(1.0, one).changes for one in doubts)
    assert np.std(step) > 0.01
    assert speedup == pytest.approx(plain - tpot, abs=1e-9)
    assert rate == pytest.approx(-tpot, abs=1e-9)
    assert np.std(tpot) > np.std(step)
