"""More traffic drawn from a log: what is kept of its rate, its bursts and its lengths; and what no
traffic exceeds.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from simulator.core.serving.load.arrivals import Gamma
from simulator.core.serving.load.busier import (
    Stretch,
    busier,
    is_steady,
    rate_per_s,
    redrawn,
    stretches,
)
from simulator.core.serving.load.traffic import Line, TrafficFile
from simulator.core.serving.requests import Requests
from simulator.core.serving.slo import Limit
from simulator.scenario import load
from simulator.scenario.evaluate import simulate
from simulator.studies.capacity import at_once, trial
from simulator.studies.plan.arithmetic import least_seconds, most_times

CASES = Path(__file__).parent.parent.parent / "shared/cases"


def lines(times: list[float]) -> tuple[Line, ...]:
    return tuple(
        Line(2 + place, float(at), 100 + place, 10 + place, "") for place, at in enumerate(times)
    )


def lengths(some: tuple[Line, ...]) -> Counter[tuple[int, int]]:
    return Counter((line.prompt_tokens, line.output_tokens) for line in some)


def at(some: tuple[Line, ...]) -> list[float]:
    return [line.arrival_s for line in some]


gaps = st.lists(
    st.sampled_from([0.0, 0.0, 1e-4, 0.02, 0.5, 0.5, 3.0, 60.0]), min_size=2, max_size=60
)


@given(gaps, st.integers(2, 5), st.integers(0, 9))
def test_a_whole_factor_keeps_lengths_and_the_rate_over_time(
    between: list[float], factor: int, seed: int
) -> None:
    log = lines(np.cumsum([0.0, *between]).tolist())
    drawn = redrawn(log, float(factor), seed)
    parts = stretches(tuple(at(log)))
    assert at(drawn) == sorted(at(drawn))
    if len(parts) == 1 and between != [0.0] * len(between):
        assert len(drawn) == len(log)
        assert rate(drawn) == pytest.approx(factor * rate(log), rel=1e-9)
        assert lengths(drawn) == lengths(log)
        return
    assert len(drawn) == factor * len(log)
    assert lengths(drawn) == Counter({one: factor * count for one, count in lengths(log).items()})
    for part in parts:  # as many by the end of each stretch, which ends when it did
        assert drawn[part.begin * factor].arrival_s == pytest.approx(
            log[part.begin].arrival_s, abs=1e-9
        )


def rate(some: tuple[Line, ...]) -> float:
    return (len(some) - 1) / (some[-1].arrival_s - some[0].arrival_s)


@given(gaps, st.floats(0.05, 20.0), st.floats(0.0, 50.0))
@example([0.0] * 199, 2.0, 0.0)
@settings(deadline=None)
def test_any_factor_keeps_order_and_the_number_of_requests(
    between: list[float], factor: float, least_s: float
) -> None:
    log = lines(np.cumsum([0.0, *between]).tolist())
    drawn = redrawn(log, factor, 0, least_s)
    assert at(drawn) == sorted(at(drawn))
    assert set(lengths(drawn)) <= set(lengths(log))
    if len(stretches(tuple(at(log)))) > 1 or not sum(between):
        assert len(drawn) == max(1, int(np.floor(factor * len(log) + 0.5)))
    elif factor != 1.0:
        assert len(drawn) >= len(log)
        lasted = at(drawn)[-1] * len(drawn) / max(1, len(drawn) - 1)
        assert lasted >= 0.9 * least_s - max(between) / factor


def test_a_burst_at_one_instant_grows_at_that_instant() -> None:
    drawn = redrawn(lines([0.0] * 200), 2.0)
    assert at(drawn) == [0.0] * 400
    assert at(redrawn(lines([0.0] * 200), 1.5)) == [0.0] * 300


def test_a_burst_before_a_quiet_time_grows_too() -> None:
    drawn = redrawn(lines([0.0] * 200 + [10.0]), 2.0)
    assert len(drawn) == 402
    assert sum(when == 0.0 for when in at(drawn)) >= 399


def test_a_steady_stream_stays_steady_and_goes_on() -> None:
    drawn = redrawn(lines([place / 2 for place in range(20)]), 8.0, 0, 30.0)
    assert np.diff(at(drawn)) == pytest.approx(np.full(len(drawn) - 1, 1 / 16))
    assert len(drawn) == 480


def test_a_stream_of_one_rate_is_one_stretch_and_its_bursts_do_not_grow() -> None:
    """Of Poisson arrivals the gaps keep their coefficient of variation, and what comes in ten
    seconds its dispersion.
    """
    times = np.cumsum(np.random.default_rng(5).exponential(0.5, 400)).tolist()
    assert stretches(tuple(times)) == (Stretch(0, 400),)
    drawn = at(redrawn(lines(times), 8.0, 0, 200.0))
    between = np.diff(drawn)
    assert between.std() / between.mean() == pytest.approx(
        np.diff(times).std() / np.diff(times).mean(), rel=0.05
    )
    counts = np.histogram(drawn, np.arange(0.0, drawn[-1], 1.0))[0]
    assert counts.var() / counts.mean() < 1.6


def test_few_streams_of_one_rate_are_cut() -> None:
    random = np.random.default_rng(2)
    cut = [
        len(stretches(tuple(np.cumsum(random.exponential(2.0, size)).tolist()))) > 1
        for size in [20, 60, 300] * 40
    ]
    assert sum(cut) <= 6


def test_rates_that_differ_are_told_apart() -> None:
    times = [
        *np.arange(0, 50, 0.5).tolist(),
        *np.arange(50, 60, 0.05).tolist(),
        *np.arange(60, 110, 0.5).tolist(),
    ]
    first, second, third = stretches(tuple(times))
    assert abs(first.end - 100) <= 1
    assert abs(second.end - 300) <= 2
    assert third.end == 400


def test_a_long_log_is_cut_in_little_time_and_as_well() -> None:
    times = [*np.arange(0, 5_000, 0.5).tolist(), *np.arange(5_000, 5_500, 0.05).tolist()]
    first, second = stretches(tuple(times))
    assert abs(first.end - 10_000) < 20
    assert second.end == len(times)


def test_prefixes_are_shared_within_a_passage_alone() -> None:
    log = tuple(line._replace(hashes=(1, 2)) for line in lines([0.0] * 12))
    drawn = redrawn(log, 3.0)
    assert Counter(line.hashes for line in drawn) == {
        (1, 2): 12,
        ("1:1", "1:2"): 12,
        ("2:1", "2:2"): 12,
    }


def test_a_factor_of_one_is_the_log_itself(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("arrival,prompt,output\n" + "".join(f"{place},10,5\n" for place in range(30)))
    requests = Requests(arrivals=TrafficFile(format="log", file=str(path))).counted()
    assert busier(requests, 1.0, 0, 20.0) is requests
    assert is_steady(requests)
    assert rate_per_s(requests) == 1.0
    longer = busier(requests, 1.0, 0, 60.0)
    assert [line.arrival_s for line in longer.lines()] == [float(place) for place in range(60)]
    assert longer.count == 60
    assert len(list(longer.source_of(0).due(np.inf))) == 60


def test_of_drawn_arrivals_more_are_drawn() -> None:
    requests = Requests(arrivals=Gamma(rate_per_s=4, burstiness=3), count=50)
    more = busier(requests, 5.0, 0, 30.0)
    assert more.arrivals == Gamma(rate_per_s=20, burstiness=3)
    assert more.count == 600
    assert busier(Requests(), 5.0) == Requests()


def test_all_at_once_is_as_many_as_are_asked_for() -> None:
    arriving = (
        "requests={arrivals: {name: poisson, rate_per_s: 2}, count: 20, prompt_tokens: 8, "
        "output_tokens: 5}"
    )
    loaded = at_once(
        load(
            "durations_only",
            [arriving, "strategy=autoregressive", "serving.policy={name: prefill_first}"],
        ),
        64,
    )
    found = trial(loaded)
    assert found.requests == 64
    assert found.requests_per_s > 1e5


WORLDS = [
    "vanilla_llama_2_7b_a100",
    "mirror_qwen3_32b_a100",
    "pipeline_llama_3_1_70b_8x3090",
    "vanilla_qwen3_32b_m2_ultra",
    "eagle3_qwen3_235b_a22b_8xh200",
]


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize(("prompt", "output"), [(900, 4), (64, 60)])
def test_no_simulation_is_quicker_than_arithmetic(name: str, prompt: int, output: int) -> None:
    load_ = (
        f"{{arrivals: {{name: poisson, rate_per_s: 1000}}, count: 60, prompt_tokens: {prompt}, "
        f"output_tokens: {output}}}"
    )
    policy = "fixed_batch" if "pipeline" in name else "prefill_first"
    loaded = load(
        name, [f"requests={load_}", f"serving.policy={{name: {policy}, max_requests: 16}}"]
    )
    outcome, _ = simulate(loaded.scenario, loaded.acceptance())
    shape = np.full(60, float(prompt)), np.full(60, float(output))
    by_flops, by_bytes = (float(part.sum()) for part in least_seconds(loaded.scenario, *shape))
    assert 0.0 < by_flops < outcome.end_s
    assert by_bytes < outcome.end_s
    most = most_times(loaded.scenario, 1, (), True, 1000.0)
    assert most == pytest.approx(60 / max(by_flops, by_bytes) / 1000.0)
    assert most > 60 / outcome.end_s / 1000.0


def test_a_percentile_of_a_burst_lets_all_others_go() -> None:
    """Of 100 alike the 55th percentile asks for 55 prompts within 1 s."""
    alike = (
        "requests={arrivals: {name: poisson, rate_per_s: 1}, count: 100, prompt_tokens: 900, "
        "output_tokens: 4}"
    )
    scenario = load(
        "vanilla_llama_2_7b_a100", [alike, "serving.policy={name: prefill_first, max_requests: 16}"]
    ).scenario
    prompt = max(
        float(part[0]) for part in least_seconds(scenario, np.array([900.0]), np.array([1.0]))
    )
    assert most_times(scenario, 1, (Limit("ttft", 0.55, 1.0),), False, 1.0) == pytest.approx(
        1.0 / (55 * prompt)
    )


@pytest.mark.skipif(not CASES.is_dir(), reason="the logs of users lie outside the repository")
def test_logs_of_users_are_steady_or_one_burst() -> None:
    def of(name: str) -> Requests:
        return Requests(arrivals=TrafficFile(format="log", file=str(CASES / name))).counted()

    for name in ("u20", "u40", "u80", "u160", "base400"):
        assert is_steady(of(f"22_small_log_headroom/{name}.csv"))
        assert rate_per_s(of(f"22_small_log_headroom/{name}.csv")) == pytest.approx(2.0)
    burst = of("06_burst_scaling/burst65.csv")
    assert not is_steady(burst)
    assert [line.arrival_s for line in busier(burst, 2.0).lines()] == [0.0] * 400
