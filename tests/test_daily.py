"""Arrivals that follow the hours of a day."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from simulator.core.faults import BadInput
from simulator.core.serving.load.arrivals import Daily, Poisson
from simulator.scenario import evaluate, load

TENT = Daily(rate_per_s=1.0, weights={0: 0, 12: 5}, day_s=24.0)
"""An hour is a second; the rate rises to 2 a second at noon and falls to none: t^2 / 12 requests
are expected until t, 12 until noon, 24 in a day.
"""


@pytest.mark.parametrize(
    ("count", "until_s"), [(3, 6.0), (12, 12.0), (21, 18.0), (24, 24.0), (27, 30.0), (60, 60.0)]
)
def test_when_requests_are_expected(count: int, until_s: float) -> None:
    assert TENT.offered_per_s(count) == pytest.approx(count / until_s, rel=1e-12)


def test_a_run_that_begins_at_six() -> None:
    """Nine are expected until noon, and 18 until six in the evening."""
    at_six = TENT.model_copy(update={"begin_hour": 6.0})
    assert at_six.offered_per_s(9) == pytest.approx(9 / 6)
    assert at_six.offered_per_s(18) == pytest.approx(18 / 12)
    assert at_six.offered_per_s(24) == pytest.approx(1.0)


def test_hours_in_between_and_over_midnight_are_linear() -> None:
    """From 1 at six in the evening to 3 at six in the morning: 2 at midnight."""
    stated = Daily(rate_per_s=2.0, weights={6: 3, 18: 1}, day_s=24.0)
    more = Daily(rate_per_s=2.0, weights={0: 2, 6: 3, 12: 2, 18: 1}, day_s=24.0)
    assert list(stated.times(1, 100)) == pytest.approx(list(more.times(1, 100)), rel=1e-12)


@pytest.mark.parametrize("weights", [{0.0: 3.0}, {5.5: 1.0}, {0.0: 2.0, 7.0: 2.0}])
def test_a_day_that_is_always_alike_is_poisson(weights: dict[float, float]) -> None:
    daily = Daily(rate_per_s=4.0, weights=weights, begin_hour=7.0)
    times = list(Poisson(rate_per_s=4.0).times(3, 3000))
    assert list(daily.times(3, 3000)) == pytest.approx(times, rel=1e-9, abs=1e-6)


def test_nobody_comes_while_the_weight_is_zero() -> None:
    """Open from nine to five."""
    office = Daily(rate_per_s=1.0, weights={9: 0, 9.001: 1, 16.999: 1, 17: 0}, day_s=240.0)
    hours = np.array(list(office.times(0, 2000))) / 10.0 % 24.0
    assert hours.min() >= 9.0
    assert hours.max() <= 17.0


def test_three_quarters_come_in_the_busier_half_of_the_day() -> None:
    seconds = np.array(list(TENT.times(0, 24_000))) % 24.0
    share = ((seconds > 6.0) & (seconds < 18.0)).mean()
    assert share == pytest.approx(0.75, abs=0.01)


@settings(deadline=None, max_examples=60)
@given(
    weights=st.dictionaries(
        st.integers(0, 23).map(float), st.floats(0.0, 10.0), min_size=1, max_size=6
    ).filter(lambda weights: max(weights.values()) > 0.1),
    begin_hour=st.floats(0.0, 23.9),
    seed=st.integers(0, 5),
    count=st.integers(1, 60),
)
def test_times_ascend_and_are_those_of_the_seed(
    weights: dict[float, float], begin_hour: float, seed: int, count: int
) -> None:
    daily = Daily(rate_per_s=0.5, weights=weights, begin_hour=begin_hour, day_s=100.0)
    times = list(daily.times(seed, count))
    assert len(times) == count
    assert times[0] >= -1e-9
    assert all(before <= after + 1e-9 for before, after in pairwise(times))
    assert times == list(daily.times(seed, count + 5))[:count]


def test_a_run_over_a_day() -> None:
    """Eight a second at noon, 240 in all: the last 40 come in the square root of 300 seconds."""
    changes = [
        "strategy=autoregressive",
        "durations={target_ms: 10, prefill_ms: 20}",
        "serving={policy: {name: prefill_first, max_requests: 4}}",
        "requests={arrivals: {name: daily, rate_per_s: 4, weights: {0: 0, 12: 1}, day_s: 60}, "
        "count: 200, prompt_tokens: 64, output_tokens: 20}",
    ]
    loaded = load("durations_only", changes)
    outcome, _ = evaluate.simulate(loaded.scenario, loaded.acceptance())
    assert outcome.serving.requests == 200
    assert loaded.scenario.requests.offered_per_s(0) == pytest.approx(200 / (60 - 300**0.5))


@pytest.mark.parametrize("weights", ["{24: 1}", "{0: -1}", "{0: 0}", "{}"])
def test_hours_that_are_none(weights: str) -> None:
    arrivals = f"{{name: daily, rate_per_s: 4, weights: {weights}}}"
    with pytest.raises(BadInput, match=r"requests\.arrivals\.weights"):
        load(
            "durations_only",
            [f"requests={{arrivals: {arrivals}, prompt_tokens: 64, output_tokens: 20}}"],
        )
