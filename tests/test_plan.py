"""Plans: bounds that no simulation beats, the answer of an exhaustive search, exit codes, exports
and bad input.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, assume, example, given, settings, strategies as st

from simulator.cli.main import main
from simulator.core.acceptance.sources import odds_of
from simulator.core.cost.device import Device
from simulator.core.cost.roofline import Roofline
from simulator.core.faults import BadInput, Infeasible
from simulator.core.quantities import Positive, replace_nested
from simulator.core.serving.slo import Limit, Metric, Slo
from simulator.core.strategies.adaptive_verification import AdaptiveVerification
from simulator.core.strategies.common.capabilities import heads_of
from simulator.inputs.catalogue import Catalogue
from simulator.report.pages.plan import adapted, fleet
from simulator.scenario import Loaded, evaluate, load, resolved
from simulator.scenario.decision.by_law import drawn_speedup
from simulator.scenario.evaluate import tuned
from simulator.scenario.uncertain.draws import Drawn
from simulator.studies.capacity import busier_by
from simulator.studies.plan.bounds import FleetBounds, _least_replicas, _least_widths
from simulator.studies.plan.break_even import break_even, speedup
from simulator.studies.plan.export import (
    WindowSchedule,
    adaptive,
    exports,
    is_better,
    schedule,
)
from simulator.studies.plan.file import Candidate, Plan, devices_of, load_plan
from simulator.studies.plan.headroom import headroom, lasting_s, with_more
from simulator.studies.plan.robustness import fewer_accepted, slower_links
from simulator.studies.plan.search import (
    Finding,
    MeasuredLimit,
    Search,
    Until,
    _pairs,
    examine,
    keeps,
    nearest_miss,
    replicated,
    search,
)
from simulator.studies.plan.study import study

SMALL: dict[str, Any] = {
    "about": "a 7B on one A100 or two",
    "scenario": {
        "like": "vanilla_llama_2_7b_a100",
        "requests": {
            "arrivals": {"name": "poisson", "rate_per_s": 4},
            "count": 40,
            "prompt_tokens": 300,
            "output_tokens": 40,
        },
        "serving": {"policy": {"name": "prefill_first", "max_requests": 8}},
    },
    "slo": {"ttft_ms": {"p90": 300}, "tpot_ms": {"p90": 20}},
    "devices": {"a100_80g_sxm": {"price_usd_per_hour": 2, "count": 4}},
    "hardware": {
        "a100": {"target": {"link": "nvlink_a100"}, "vary": {"target.tensor_parallel": [1, 2]}}
    },
    "strategies": {
        "plain": {"strategy": "autoregressive"},
        "drafted": {"strategy": {"name": "vanilla_sd"}, "vary": {"strategy.gamma": [2, 5]}},
    },
    "replicas": 3,
}


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL | changes, sort_keys=False))
    return path


def small(folder: Path, *overrides: str, **changes: Any) -> Plan:
    return load_plan(str(written(folder, **changes)), overrides)


# ---- reading


@pytest.mark.parametrize("name", sorted(Catalogue().names("plan")))
def test_every_shipped_plan_loads_and_says_where_its_prices_are_from(name: str) -> None:
    plan = load_plan(name)
    assert plan.file.about
    assert plan.candidates
    for offer in plan.file.devices.values():
        assert offer.price_usd_per_hour.source != "not stated"


def test_candidates_are_all_combinations_with_what_they_rent(tmp_path: Path) -> None:
    found = {
        candidate.name: (
            dict(candidate.devices),
            candidate.price_usd_per_hour,
            candidate.most_replicas,
        )
        for candidate in small(tmp_path).candidates
    }
    assert found == {
        "plain on a100, tensor_parallel 1": ({"a100_80g_sxm": 1}, 2.0, 3),
        "plain on a100, tensor_parallel 2": ({"a100_80g_sxm": 2}, 4.0, 2),
        "drafted on a100, tensor_parallel 1, gamma 2": ({"a100_80g_sxm": 1}, 2.0, 3),
        "drafted on a100, tensor_parallel 1, gamma 5": ({"a100_80g_sxm": 1}, 2.0, 3),
        "drafted on a100, tensor_parallel 2, gamma 2": ({"a100_80g_sxm": 2}, 4.0, 2),
        "drafted on a100, tensor_parallel 2, gamma 5": ({"a100_80g_sxm": 2}, 4.0, 2),
    }


def test_devices_of_stages_and_of_drafts_elsewhere_are_counted() -> None:
    assert devices_of(load("specpipe_llama_3_1_70b_two_servers").scenario) == {
        "rtx_3090": 4,
        "rtx_4090": 4,
        "l40": 1,
    }
    assert devices_of(load("pipeline_llama_3_1_70b_8x3090").scenario) == {"rtx_3090": 8}
    assert devices_of(load("mirror_qwen3_32b_m2_ultra").scenario) == {
        "m2_ultra_gpu": 8,
        "m2_ultra_npu": 8,
    }
    assert devices_of(load("vanilla_llama_2_7b_a100").scenario) == {"a100_80g_sxm": 1}


def test_a_whole_entry_may_be_set_on_the_command_line(tmp_path: Path) -> None:
    whole = "strategies={mine: {strategy: autoregressive}}"
    wide = "hardware.a100={target: {link: nvlink_a100, tensor_parallel: 2}}"
    plan = small(tmp_path, whole, wide)
    (one,) = plan.candidates
    assert one.family == ("a100", "mine")
    assert one.devices == {"a100_80g_sxm": 2}
    with pytest.raises(BadInput, match="did you mean 'autoregressive'") as error:
        small(tmp_path, "strategies={mine: {strategy: autoregresive}}")
    assert error.value.faults[0].place[0].startswith("--set strategies=")


MISTAKES = [
    ({"slo": {"tpot_ms": {"p90": 20}}}, ":", "needs a limit on ttft_ms or e2e_ms"),
    ({"slo": {"ttft_ms": 300}}, "slo.ttft_ms", "percentile"),
    (
        {"devices": {"l40": {"price_usd_per_hour": 1, "count": 4}}},
        "hardware.a100",
        "uses a100_80g_sxm, which is not among devices",
    ),
    (
        {"devices": {"a100_80g_sxm": {"price_usd_per_hour": -1, "count": 4}}},
        "price_usd_per_hour",
        "expected 0 or more, got -1",
    ),
    (
        {"strategies": {"plain": {"strategy": "autoregresive"}}},
        "strategy",
        "did you mean 'autoregressive'?",
    ),
    (
        {"strategies": {"plain": {"strategy": "autoregressive", "seving": {}}}},
        "seving",
        "unknown field; did you mean 'serving'?",
    ),
    (
        {"strategies": {"plain": {"strategy": "autoregressive", "vary": {"seed": 3}}}},
        "vary.seed",
        "expected a list of values",
    ),
    (
        {"scenario": {"like": "vanilla_llama_2_7b_a100"}},
        "scenario.requests",
        "a plan is about traffic: requests needs arrivals",
    ),
    ({"scenario": {"requests": {"count": 3}}}, "scenario", "needs like"),
    ({"replica": 3}, "replica", "unknown field; did you mean 'replicas'?"),
]


@pytest.mark.parametrize(("change", "field", "message"), MISTAKES)
def test_a_mistake_is_answered_with_its_place(
    tmp_path: Path, change: dict[str, Any], field: str, message: str
) -> None:
    done = CliRunner().invoke(main, ["plan", str(written(tmp_path, **change))])
    assert done.exit_code == 2, done.output
    assert "small.yaml:" in done.stderr
    assert field in done.stderr
    assert message in done.stderr


def test_what_fits_one_hardware_only_is_left_out_of_the_other(tmp_path: Path) -> None:
    crowd = {"policy": {"name": "fixed_batch", "max_requests": 8}, "memory": {"kv_tokens": 100}}
    plan = small(
        tmp_path, hardware={"a100": {"target": {"weights": "fp16"}}, "tiny": {"serving": crowd}}
    )
    assert {candidate.hardware for candidate in plan.candidates} == {"a100"}
    assert all(candidate.no_room and "KV cache" in candidate.reason for candidate in plan.left_out)
    with pytest.raises(Infeasible):
        small(tmp_path, hardware={"tiny": {"serving": crowd}})


# ---- bounds


ONE_BY_ONE = ["requests=steady", "serving.policy.name=fixed_batch", "serving.policy.max_requests=1"]

WORLDS = {
    "plain": load("vanilla_llama_2_7b_a100", ["strategy=autoregressive"]),
    "drafted": load("vanilla_llama_2_7b_a100"),
    "rated": load("vanilla_llama_2_7b_a100", ["acceptance={rate: 0.7}"]),
    "mirror": load(
        "mirror_qwen3_32b_a100", ["strategy.message=first_position", "target.tensor_parallel=4"]
    ),
    "pipeline": load("pipeline_llama_3_1_70b_8x3090"),
}


def loaded(
    world: str, rate: float, policy: str, places: int, kv_tokens: int | None, seed: int
) -> Loaded:
    base = WORLDS[world]
    requests = {
        "arrivals": {"name": "gamma", "rate_per_s": rate, "burstiness": 2.0},
        "count": 25,
        "prompt_tokens": {
            "name": "lognormal",
            "mean_tokens": 150,
            "spread": 1.5,
            "most_tokens": 900,
        },
        "output_tokens": {"name": "lognormal", "mean_tokens": 20, "spread": 1.0, "most_tokens": 60},
    }
    old = base.scenario
    serving = {
        "policy": {"name": policy, "max_requests": places},
        "memory": {"kv_tokens": kv_tokens},
    }
    return base.replace(
        seed=seed,
        requests=type(old.requests).model_validate(requests),
        serving=type(old.serving).model_validate(serving),
    )


@given(
    world=st.sampled_from(sorted(WORLDS)),
    rate=st.sampled_from([0.2, 2.0, 20.0, 200.0]),
    policy=st.sampled_from(["fixed_batch", "prefill_first"]),
    places=st.integers(1, 12),
    kv_tokens=st.sampled_from([None, 1_100, 2_500]),
    replicas=st.integers(1, 3),
    share=st.sampled_from([0.5, 0.9, 0.99]),
    seed=st.integers(0, 99),
)
@example(
    world="pipeline",
    rate=20.0,
    policy="fixed_batch",
    places=11,
    kv_tokens=None,
    replicas=2,
    share=0.99,
    seed=0,
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_simulation_beats_a_bound(
    world: str,
    rate: float,
    policy: str,
    places: int,
    kv_tokens: int | None,
    replicas: int,
    share: float,
    seed: int,
) -> None:
    """Limits just long enough for the simulation to keep them: a bound that called one broken would
    be no bound.
    """
    one = loaded(world, rate, policy, places, kv_tokens, seed)
    outcome, _ = evaluate.simulate(replicated(one, replicas).scenario, one.acceptance())
    limits = tuple(
        Limit(metric, share, 1.01 * getattr(outcome.serving, metric).quantile(share))
        for metric in ("ttft", "tpot", "e2e", "tbt")
    )
    assert FleetBounds(one, limits).holds or (policy == "prefill_first" and kv_tokens)
    assert FleetBounds(one, limits).broken_by(replicas) is None
    assert FleetBounds(one, limits[:2]).broken_by(replicas) is None


def test_demand_is_bounded_where_layers_see_a_window() -> None:
    """No pass has fewer cached tokens than rows; of gpt-oss every other layer sees 128 tokens."""
    requests = (
        "requests={arrivals: {name: poisson, rate_per_s: 50}, count: 20, prompt_tokens: 900, "
        "output_tokens: 20}"
    )
    policy = "serving={policy: {name: prefill_first, max_requests: 4}}"
    one = load(
        "eagle3_gpt_oss_120b_h100",
        [requests, policy, "strategy=autoregressive", "acceptance={always: 0}"],
    )
    assert FleetBounds(one, (Limit("e2e", 0.99, 0.05),)).broken_by(1)
    assert FleetBounds(one, (Limit("e2e", 0.99, 1000.0),)).broken_by(1) is None


def test_bounds_bite() -> None:
    one = loaded("drafted", 50.0, "fixed_batch", 4, None, 0)
    for metric in ("ttft", "tpot", "e2e", "tbt"):
        assert FleetBounds(one, (Limit(metric, 0.9, 1e-3),)).broken_alone
    flood = busier_by(one, 1e3)
    limits = (Limit("ttft", 0.9, 0.5),)
    assert FleetBounds(flood, limits).broken_alone is None
    assert FleetBounds(flood, limits).broken_by(1) is None or FleetBounds(flood, limits).broken_by(
        1
    ) == ("demand", limits[0])
    assert FleetBounds(flood, (Limit("e2e", 0.99, 0.5),)).overdue(1) == Limit("e2e", 0.99, 0.5)
    assert FleetBounds(flood, (Limit("e2e", 0.99, 0.5),)).overdue(100) is None


def test_bounds_keep_out_of_what_they_are_not_proven_for() -> None:
    one = loaded("drafted", 2.0, "prefill_first", 4, None, 0)
    broken = (Limit("ttft", 0.9, 1e-6),)
    assert FleetBounds(one, broken).broken_by(1)
    chunked = one.replace(
        serving=type(one.scenario.serving).model_validate(
            {"policy": {"name": "chunked_prefill", "max_requests": 4}}
        )
    )
    adaptive = one.change(adaptive={"name": "table", "windows": {2: 1}})
    for other in (
        chunked,
        adaptive,
        load("specpipe_llama_3_1_70b_8x3090", ONE_BY_ONE),
    ):
        assert FleetBounds(other, broken).broken_by(1) is None


def test_demand_by_hand() -> None:
    """Three seconds of work within one take three replicas, two where one may be late; nothing is
    due that never has to end.
    """
    at, due, work = np.zeros(3), np.ones(3), np.ones(3)
    assert _least_replicas(at, due, work, 0) == pytest.approx(3.0)
    assert _least_replicas(at, due, work, 1) == pytest.approx(2.0)
    later = np.array([0.0, 10.0, 10.0])
    assert _least_replicas(later, later + 1.0, work, 0) == pytest.approx(2.0)
    assert _least_replicas(at, np.full(3, np.inf), work, 0) < 0.0


@given(
    world=st.sampled_from(sorted(WORLDS)),
    rate=st.sampled_from([2.0, 20.0, 200.0]),
    policy=st.sampled_from(["fixed_batch", "prefill_first"]),
    places=st.integers(1, 12),
    kv_tokens=st.sampled_from([None, 1_100]),
    replicas=st.integers(1, 3),
    metrics=st.sets(st.sampled_from(["ttft", "tpot", "e2e", "tbt"]), min_size=1),
    share=st.sampled_from([0.5, 0.9, 0.99]),
    tightness=st.sampled_from([0.7, 0.99, 1.01, 1.5]),
    edges=st.sampled_from([(0, 0), (5, 5)]),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_run_that_ends_early_has_the_verdict_of_the_whole(
    world: str,
    rate: float,
    policy: str,
    places: int,
    kv_tokens: int | None,
    replicas: int,
    metrics: set[Metric],
    share: float,
    tightness: float,
    edges: tuple[int, int],
    seed: int,
) -> None:
    """Limits about what the simulation measures; a limit that ends a run is one that the whole run
    misses.
    """
    one = loaded(world, rate, policy, places, kv_tokens, seed)
    requests = one.scenario.requests.model_copy(update={"warm_up": edges[0], "cool_down": edges[1]})
    one = one.replace(requests=requests)
    outcome, _ = evaluate.simulate(replicated(one, replicas).scenario, one.acceptance())
    slo = {}
    for metric in metrics:
        measured_s = getattr(outcome.serving, metric).quantile(share)
        assume(
            measured_s
        )  # no gap between tokens may lie between the first and the last that count
        slo[f"{metric}_ms"] = {f"p{share * 100:g}": 1e3 * tightness * measured_s}
    limited = Candidate(
        "gpu", "method", (), one.replace(slo=Slo(**slo)), {}, 1.0, replicas, replicas
    )
    whole = examine(limited, replicas, "end")
    missed = {measured.limit for measured in whole.measured if not measured.kept}
    assert keeps(limited, replicas) is whole.kept
    ways: tuple[Until, ...] = ("exceeded", "known")
    for until in ways:
        early = examine(limited, replicas, until)
        assert early.kept is whole.kept
        assert early.broken is None or early.broken in missed


# ---- the search


@pytest.mark.parametrize(
    ("rate", "slo"),
    [
        (4, {"ttft_ms": {"p90": 300}, "tpot_ms": {"p90": 20}}),
        (20, {"ttft_ms": {"p90": 400}, "tpot_ms": {"p50": 12}}),
        (12, {"ttft_ms": {"p99": 900}, "tbt_ms": {"p90": 60}}),
        (30, {"e2e_ms": {"p90": 700}}),
        (8, {"ttft_ms": {"p50": 60}, "tpot_ms": {"p99": 8}}),
        (30, {"e2e_ms": {"p90": 80}}),
    ],
)
def test_the_answer_is_that_of_simulating_everything(
    tmp_path: Path, rate: float, slo: dict[str, Any]
) -> None:
    plan = small(
        tmp_path, f"scenario.requests.arrivals.rate_per_s={rate}", f"scenario.seed={rate}", slo=slo
    )
    quick = search(plan)
    everything = Search(
        plan,
        tuple(examine(candidate, replicas, "end") for candidate, replicas in _pairs(plan)),
    )
    assert len(everything.findings) == sum(candidate.most_replicas for candidate in plan.candidates)
    assert quick.simulated <= everything.simulated
    if everything.best is None:
        assert quick.best is None
        return
    assert quick.best is not None
    assert (quick.best.candidate, quick.best.replicas) == (
        everything.best.candidate,
        everything.best.replicas,
    )
    assert quick.best.measured == everything.best.measured
    ours, theirs = quick.by_family, everything.by_family
    assert {family: (one.candidate.name, one.replicas) for family, one in ours.items()} == {
        family: (one.candidate.name, one.replicas) for family, one in theirs.items()
    }


def test_capacity_is_where_the_slo_begins_to_be_missed(tmp_path: Path) -> None:
    plan = small(tmp_path)
    best = search(plan).best
    assert best
    most = headroom(best)
    assert most.times
    assert 1.0 < most.times < most.by_arithmetic
    for times, kept in ((most.times, True), (most.times * 1.2, False)):
        least_s = lasting_s(best.candidate.loaded, times, best.replicas)
        busier = best.candidate.changed(partial(with_more, factor=times, least_s=least_s))
        assert examine(busier, best.replicas).kept is kept


def test_an_impossible_slo_ends_with_code_3_and_the_nearest_miss(tmp_path: Path) -> None:
    path = written(tmp_path, slo={"ttft_ms": {"p90": 300}, "tpot_ms": {"p90": 0.1}})
    done = CliRunner().invoke(main, ["plan", str(path)])
    assert done.exit_code == 3
    nearest = nearest_miss(load_plan(str(path)))
    assert f"nearest: {nearest.replicas} x {nearest.candidate.name}: TPOT p90" in done.stderr
    assert len(done.stderr.splitlines()) == 1


# ---- how sure speculation has to be


def fleet_of(candidate: Candidate, replicas: int, *changes: float) -> Finding:
    """A fleet that meets its limit; with ``changes``, the draws of a speed-up of 1, where it
    speculates.
    """
    met = (MeasuredLimit(Limit("ttft", 0.9, 0.3), 0.1, True),)
    finding = Finding(candidate, replicas, met)
    vars(finding)["speedup"] = Drawn(1.0, np.array(changes)) if changes else None
    return finding


@pytest.mark.parametrize(
    ("least", "chosen"), [(0.8, "plain"), (0.5, "unsure"), (0.0, "unsure"), (1.0, "plain")]
)
def test_no_fleet_is_recommended_whose_speculation_is_not_sure_enough(
    least: float, chosen: str, tmp_path: Path
) -> None:
    """The cheapest speculates, with a chance of one half; plain decoding costs three times as much,
    and a fleet that is surely faster four times.
    """
    plan = small(tmp_path, f"least_chance={least}")
    plain, _, drafted, *_ = plan.candidates
    fleets = {
        "unsure": fleet_of(drafted, 1, -0.1, 0.1),
        "plain": fleet_of(plain, 3),
        "sure": fleet_of(drafted, 4, 0.1, 0.1),
    }
    searched = Search(plan, tuple(fleets.values()))
    assert searched.best is fleets[chosen]
    assert next(iter(searched.by_family.values())) is fleets[chosen]
    assert searched.recommended(fleets["sure"])
    without_plain = Search(plan, (fleets["unsure"], fleets["sure"]))
    assert without_plain.best is fleets["unsure" if least <= 0.5 else "sure"]


def test_the_chance_is_that_of_the_law_at_the_mean_batch(tmp_path: Path) -> None:
    plan = small(tmp_path)
    plain, _, drafted, *_ = plan.candidates
    assert examine(plain, 1, "end").chance is None
    found = examine(drafted, 1, "end")
    law = drawn_speedup(tuned(drafted.loaded), found.mean_batch)
    assert found.chance == law.chance_above(1.0)


def test_a_plan_whose_speculation_is_not_sure_enough_says_so(tmp_path: Path) -> None:
    """Its only strategy meets the SLO with a chance of being faster between the two bars."""
    only = {"strategies": {"drafted": {"strategy": {"name": "vanilla_sd", "gamma": 2}}}}
    path = written(tmp_path, **only)
    refused = CliRunner().invoke(main, ["plan", str(path), "--draws", "1"])
    assert refused.exit_code == 3
    assert "no fleet is recommended: of those that meet the SLO the surest is" in refused.stderr
    assert "x drafted on a100, tensor_parallel " in refused.stderr
    assert "below 80 %" in refused.stderr
    lower = CliRunner().invoke(
        main, ["plan", str(path), "--draws", "1", "--least-chance", "0.3", "--json"]
    )
    assert lower.exit_code == 0, lower.output
    data = json.loads(lower.stdout)
    assert data["least_chance"] == 0.3
    assert data["cautions"] == []
    assert data["answer"]["strategy"] == "drafted"
    assert data["decision"]["candidate"] == data["answer"]["candidate"]
    assert 0.3 <= data["decision"]["chance"] < 0.8
    (family,) = data["families"]
    assert (family["chance"], family["recommended"]) == (data["decision"]["chance"], True)


# ---- what is said about the answer


def test_harder_worlds_change_what_they_say_and_nothing_else() -> None:
    one = loaded("drafted", 2.0, "prefill_first", 4, None, 0)
    fewer = fewer_accepted(one)
    kept = [evaluate.simulate(each.scenario, each.acceptance())[0] for each in (one, fewer)]
    mean = [sum(a * n for a, n in each.accepted.items()) / each.windows for each in kept]
    assert 0.8 < mean[1] / mean[0] < 1.0
    stated = load("durations_only", ["acceptance.rate=0.5", "acceptance.overlap=0.6"])
    assert fewer_accepted(stated).scenario.acceptance.rate == pytest.approx(0.45)
    with pytest.raises(BadInput, match="there is none"):
        slower_links(load("durations_only"))
    two = load("vanilla_qwen3_32b_a100")
    link = two.scenario.target and two.scenario.target.link
    longer = slower_links(two, 3.0).scenario.target
    assert link
    assert longer
    assert longer.link
    assert longer.link.latency_us.value == pytest.approx(3.0 * link.latency_us.value)
    assert longer.link.bandwidth_gb_s == link.bandwidth_gb_s


def test_break_even_is_a_root_of_the_laws(tmp_path: Path) -> None:
    plan = small(tmp_path)
    drafted = next(
        candidate
        for candidate in plan.candidates
        if candidate.name == "drafted on a100, tensor_parallel 2, gamma 5"
    )
    found = break_even(examine(drafted, 1, "end"))
    assert found
    assert found.rate
    at_root = drafted.loaded.replace(
        acceptance=type(drafted.loaded.scenario.acceptance)(
            rate=found.rate, source="x", confidence="assumed"
        )
    )
    bare = Loaded(at_root.scenario, None, at_root.document)
    odds = odds_of(bare.acceptance(), bare.scenario.exit)
    assert speedup(bare, odds, found.batch) == pytest.approx(1.0, abs=1e-3)
    asked = tuned(drafted.loaded)
    own = odds_of(asked.acceptance(), asked.scenario.exit)
    slower = [size for size in range(1, found.places + 1) if speedup(asked, own, size) < 1.0]
    assert found.first_batch == min(slower, default=None)
    plain = next(candidate for candidate in plan.candidates if candidate.strategy == "plain")
    assert break_even(examine(plain, 1, "end")) is None


@pytest.mark.parametrize(
    ("strategy", "replicas", "words"),
    [
        ("plain", 1, "1 replica, plain decoding on A100, tensor_parallel 1 (1 x a100_80g_sxm)"),
        (
            "drafted",
            3,
            "3 replicas, drafted on A100, tensor_parallel 1, gamma 2 (3 x a100_80g_sxm)",
        ),
    ],
)
def test_a_fleet_is_named_in_plain_words(
    tmp_path: Path, strategy: str, replicas: int, words: str
) -> None:
    candidate = next(
        candidate for candidate in small(tmp_path).candidates if candidate.strategy == strategy
    )
    assert fleet(Finding(candidate, replicas)) == words


def test_a_single_replica_is_served_as_one(tmp_path: Path) -> None:
    drafted = next(
        candidate for candidate in small(tmp_path).candidates if candidate.strategy == "drafted"
    )
    assert exports(Finding(drafted, 1), None, {})["vllm.sh"].startswith(
        "# for 1 replica, on 1 x a100_80g_sxm with vLLM 0.32: sh vllm.sh"
    )


def test_a_schedule_covers_every_batch_once(tmp_path: Path) -> None:
    plan = small(tmp_path)
    drafted = next(candidate for candidate in plan.candidates if candidate.strategy == "drafted")
    found = schedule(examine(drafted, 1, "end"))
    assert found
    assert set(found.windows.values()) == {2}
    again = examine(found.finding.candidate, 1, "end")
    assert found.finding.measured == again.measured
    ranges = found.ranges(8)
    assert [size for first, last, _ in ranges for size in range(first, last + 1)] == list(
        range(1, 9)
    )
    assert all(0 <= tokens <= 2 for _, _, tokens in ranges)
    command = exports(examine(drafted, 2, "end"), found, {})["vllm.sh"]
    assert command.startswith("# for each of 2 replicas")
    config = json.loads(command.split("--speculative-config '")[1].split("'")[0])
    assert config.get("num_speculative_tokens_per_batch_size") == (
        ranges if found.finding.kept else None
    )
    assert WindowSchedule({1: 4, 6: 2}, found.finding).ranges(8) == [[1, 5, 4], [6, 8, 2]]


EAGLE = {
    "strategy": "vllm_eagle_3",
    "draft": None,
    "acceptance": {"drafter": "eagle2", "rescale": {"tokens_per_step": 2.2, "window": 3}},
}


def test_adaptive_verification_is_offered_where_engine_and_drafts_have_it(tmp_path: Path) -> None:
    """Of a head on vLLM; not of a draft model, of plain decoding, or on an engine without it."""
    entries = {"eagle": EAGLE, **SMALL["strategies"]}
    plan = small(tmp_path, strategies=entries)
    first = {candidate.strategy: candidate for candidate in plan.candidates[::-1]}
    for name in ("plain", "drafted"):
        assert adaptive(examine(first[name], 1, "end")) is None
    answer = examine(first["eagle"], 2, "end")
    found = adaptive(answer)
    assert found is not None
    strategy = found.candidate.loaded.scenario.strategy
    assert isinstance(strategy, AdaptiveVerification)
    assert strategy.heads == heads_of(first["eagle"].loaded.scenario.strategy)
    command = exports(found, None, {}, "some/head")["vllm.sh"]
    config = json.loads(command.split("--speculative-config '")[1].split("'")[0])
    assert config == {
        "method": "eagle3",
        "model": "some/head",
        "num_speculative_tokens": 3,
        "enable_adaptive_verification": True,
    }
    assert "# adaptive verification as of vLLM: docs/features" in command
    without = exports(answer, None, {}, "some/head")["vllm.sh"]
    assert "adaptive" not in without
    worse = "the exported command has it" if is_better(found, answer) else "it is left off"
    assert worse in adapted(found, answer)
    elsewhere = small(tmp_path, strategies=entries, **_on("tensorrt_llm"))
    other = next(one for one in elsewhere.candidates if one.strategy == "eagle")
    assert adaptive(examine(other, 1, "end")) is None


def _on(engine: str) -> dict[str, Any]:
    """The hardware of the small plan with another engine."""
    a100 = SMALL["hardware"]["a100"]
    return {"hardware": {"a100": {**a100, "target": {**a100["target"], "engine": engine}}}}


@pytest.mark.parametrize(
    ("name", "file", "words"),
    [
        (
            "vanilla_qwen3_32b_m2_ultra",
            "llama_cpp.sh",
            (
                "-m Qwen3-32B.gguf -md spd_qwen_0_6b.gguf -np 1 -c 1024 -ngl all \\\n    "
                "--spec-type draft-simple --spec-draft-n-max 7"
            ),
        ),
        ("specpipe_llama_3_1_70b_8xl40", "specpipe.yaml", "stage_layers"),
    ],
)
def test_an_answer_is_written_for_what_serves_it_and_can_be_run(
    name: str, file: str, words: str, tmp_path: Path
) -> None:
    loaded = load(name)
    written = exports(
        SimpleNamespace(candidate=SimpleNamespace(loaded=loaded), replicas=1), None, {}
    )
    assert set(written) == {"scenario.yaml", file}
    assert words in written[file]
    (tmp_path / "again.yaml").write_text(written["scenario.yaml"])
    again = resolved(load(str(tmp_path / "again.yaml")).scenario)
    assert again == resolved(loaded.scenario) | {"name": "again"}


def test_a_plan_in_a_folder_can_be_run_and_served(tmp_path: Path) -> None:
    path, folder = written(tmp_path), tmp_path / "out"
    arguments = ["plan", str(path), "--draws", "2", "--json"]
    done = CliRunner().invoke(main, [*arguments, "--out", str(folder)])
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert {file.name for file in folder.iterdir()} >= {
        "plan.md",
        "plan.html",
        "plan.svg",
        "scenario.yaml",
    }
    answer = data["answer"]
    assert answer["kept"]
    again = load(str(folder / "scenario.yaml"))
    outcome, _ = evaluate.simulate(again.scenario, again.acceptance())
    assert outcome.tpot_s * 1e3 == pytest.approx(answer["tpot_ms"], rel=1e-12)
    page = (folder / "plan.md").read_text()
    assert answer["candidate"] in page
    assert CliRunner().invoke(main, arguments).stdout == done.stdout


def test_twice_the_machines_are_found_where_traffic_doubles(tmp_path: Path) -> None:
    done = study(small(tmp_path, "scenario.requests.arrivals.rate_per_s=16"), draws=2)
    doubled = next(footing for footing in done.sensitivity if footing.change == "twice the traffic")
    assert (
        doubled.answer is None or doubled.answer.cost_usd_per_hour >= done.chosen.cost_usd_per_hour
    )
    assert done.capacity
    assert done.capacity < 2.0 or doubled.holds


def test_measured_widths_that_fall_are_taken_as_their_least_from_there_on() -> None:
    points = [
        {"tokens": 1, "ratio": 1.0},
        {"tokens": 64, "ratio": 3.0, "fixed_ratio": 2.0},
        {"tokens": 128, "ratio": 2.0},
    ]
    rate = {"memory_efficiency": 1, "compute_efficiency": 1, "p_norm": 2, "fixed_us": 5}
    operation = Roofline.model_validate({**rate, "width": points, "width_source": "made up"})
    least = _least_widths(operation)
    assert [(ratio.ratio, ratio.fixed_ratio) for ratio in least.width] == [
        (1.0, 1.0),
        (2.0, 1.0),
        (2.0, 1.0),
    ]
    found = [
        (least.width_ratios(tokens), operation.width_ratios(tokens)) for tokens in range(1, 200)
    ]
    assert all(low <= high for lows, highs in found for low, high in zip(lows, highs, strict=True))
    assert [lows for lows, _ in found] == sorted(lows for lows, _ in found)
    plain = Roofline.model_validate(rate)
    assert _least_widths(plain) is plain


def test_what_is_altered_is_made_anew_and_nothing_else() -> None:
    scenario = load("vanilla_qwen3_32b_a100").scenario
    assert replace_nested(scenario, Device, lambda device: device) is scenario
    doubled = Positive(value=2.0)
    other = replace_nested(
        scenario, Device, lambda device: device.model_copy(update={"peak_tflops": doubled})
    )
    assert {place.device.peak_tflops for place in (other.target, other.draft)} == {doubled}
    assert other.requests is scenario.requests
    assert scenario.target
    assert scenario.target.device.peak_tflops.value != 2.0
    sharper = replace_nested(
        scenario, Roofline, lambda one: one.model_copy(update={"p_norm": doubled})
    )
    assert all(one.p_norm is doubled for one in sharper.target.device.matmul.values())
