"""Plans whose prefill and decode may be apart: splits near balance, bounds that rule out nothing
that holds, and what the split buys.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings, strategies as st

from simulator.cli.main import main
from simulator.core.serving.slo import Slo
from simulator.scenario import load
from simulator.scenario.evaluate import simulate
from simulator.studies.plan.bounds import SplitBounds
from simulator.studies.plan.export import exports
from simulator.studies.plan.file import FleetSplit, Plan
from simulator.studies.plan.search import examine, keeps, search
from simulator.studies.plan.split_or_not import split_or_not
from simulator.studies.plan.splits import Balance, every_split, split_as
from simulator.studies.plan.throughput import by_law
from tests.test_plan import SMALL, small, written
from tests.test_question import asked

HANDOVER = {"link": "infiniband_ndr"}


def apart(folder: Path, *overrides: str, **changes: Any) -> Plan:
    """The small plan with splits of up to four replicas."""
    devices = {"a100_80g_sxm": {"price_usd_per_hour": 2, "count": 8}}
    more = {"apart": "try", "handover": HANDOVER, "devices": devices, "replicas": 4}
    return small(folder, *overrides, **(more | changes))


def test_the_best_splits_are_those_nearest_to_balance() -> None:
    even = Balance(read_s=1.0, decode_s=3.0)
    assert even.read_share == 0.25
    assert even.per_s(FleetSplit(1, 3)) == 1.0
    assert even.per_s(FleetSplit(2, 2)) == 2 / 3
    assert even.nearest(2) == [FleetSplit(1, 1)]
    assert even.nearest(4) == [FleetSplit(1, 3), FleetSplit(2, 2)]
    assert even.nearest(8) == [FleetSplit(2, 6), FleetSplit(3, 5)]
    assert even.kept(4) == even.kept(8) == 1.0
    assert even.kept(2) == pytest.approx(2 / 3)
    assert even.kept(3) == pytest.approx((2 / 3) / (3 / 4))


def test_splits_have_the_devices_of_as_many_replicas_and_two_pools(tmp_path: Path) -> None:
    plan = apart(tmp_path, "scenario.requests.arrivals.rate_per_s=20")
    splits = list(every_split(plan))
    assert splits
    for one in splits:
        assert one.split
        pools = one.loaded.scenario.serving.pools
        assert pools
        assert [pool.role for pool in pools] == ["prefill", "decode"]
        assert tuple(pool.replicas for pool in pools) == one.split
        assert one.sizes == [sum(one.split)]
        assert 2 <= sum(one.split) <= one.most_replicas
        assert by_law(one.loaded, sum(one.split)) >= 0.5
        assert one.family == ("a100, apart", one.strategy)


def test_without_a_word_of_it_nothing_is_split_and_trying_changes_nothing_together(
    tmp_path: Path,
) -> None:
    whole = small(tmp_path)
    assert not whole.apart
    devices = SMALL["devices"]
    tried = search(apart(tmp_path, devices=devices, replicas=SMALL["replicas"]))
    alone = search(whole)
    together = [one for one in tried.findings if not one.candidate.split]
    assert [(one.candidate.name, one.replicas, one.measured) for one in together] == [
        (one.candidate.name, one.replicas, one.measured) for one in alone.findings
    ]
    assert len(tried.findings) > len(together)


def test_only_splits_are_looked_at_where_the_plan_says_so(tmp_path: Path) -> None:
    found = search(apart(tmp_path, apart="only"))
    assert found.best
    assert all(one.candidate.split for one in found.findings)
    assert found.best.replicas == sum(found.best.candidate.split or ())


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rate=st.sampled_from([4, 15, 40]),
    ttft_ms=st.sampled_from([40, 80, 200, 600]),
    tpot_ms=st.sampled_from([6, 12, 20]),
    e2e=st.booleans(),
    prompt=st.sampled_from([100, 1500]),
)
def test_a_bound_rules_out_no_split_that_holds(
    tmp_path: Path, rate: int, ttft_ms: int, tpot_ms: int, e2e: bool, prompt: int
) -> None:
    slo: dict[str, dict[str, float]] = {"ttft_ms": {"p90": ttft_ms}, "tpot_ms": {"p90": tpot_ms}}
    if e2e:
        slo["e2e_ms"] = {"p50": ttft_ms + 40 * tpot_ms}
    requests = {
        "arrivals": {"name": "poisson", "rate_per_s": rate},
        "count": 30,
        "prompt_tokens": prompt,
        "output_tokens": 40,
    }
    plan = apart(tmp_path, scenario=SMALL["scenario"] | {"requests": requests}, slo=slo)
    limits = Slo(**slo).limits
    ruled_out = 0
    for template in plan.apart:
        bounds = SplitBounds(template.loaded, limits)
        for split in (FleetSplit(1, 1), FleetSplit(1, 3), FleetSplit(3, 1)):
            broken = bounds.broken_by(*split)
            if broken is None:
                continue
            ruled_out += 1
            one = split_as(template, split)
            run = examine(one, sum(split), "end")
            missed = {measured.limit for measured in run.measured if not measured.kept}
            assert broken[1] in missed or not run.kept, (one.name, broken)
    if ttft_ms == 40 and prompt == 1500:
        assert ruled_out


def test_bounds_rule_out_pools_that_cannot_do_their_part(tmp_path: Path) -> None:
    """Forty prompts of 1,500 tokens a second are too many for one replica, and not for four."""
    plan = apart(
        tmp_path,
        "scenario.requests.arrivals.rate_per_s=40",
        "scenario.requests.prompt_tokens=1500",
        "slo.ttft_ms.p90=1000",
    )
    bounds = SplitBounds(plan.apart[0].loaded, plan.file.slo.limits)
    one = bounds.broken_by(1, 3)
    assert one
    assert one[0] == "demand"
    assert one[1].metric == "ttft"
    assert bounds.broken_by(30, 3) is None


def test_the_same_devices_stand_beside_each_other(tmp_path: Path) -> None:
    searched = search(apart(tmp_path))
    assert searched.best
    found = split_or_not(searched, searched.best)
    assert found
    assert found.apart
    assert found.together
    assert found.apart.devices == found.together.devices
    assert found.apart.cost_usd_per_hour == found.together.cost_usd_per_hour
    assert found.apart.measured
    assert found.together.measured
    assert found.handover_s
    assert split_or_not(search(small(tmp_path)), searched.best) is None


def test_a_strategy_that_cannot_be_split_says_why(tmp_path: Path) -> None:
    serving = {"policy": {"name": "fixed_batch", "max_requests": 8}}
    plan = apart(tmp_path, scenario=SMALL["scenario"] | {"serving": serving})
    assert not plan.apart
    reasons = {one.reason for one in plan.left_out}
    assert len(reasons) == 1
    assert "keeps places and room for whole outputs" in reasons.pop()
    searched = search(plan)
    assert searched.best
    found = split_or_not(searched, searched.best)
    assert found
    assert found.apart is None
    assert "keeps places and room" in found.refused


def test_the_exported_scenario_of_a_split_gives_the_same_figures(tmp_path: Path) -> None:
    best = search(apart(tmp_path, apart="only")).best
    assert best
    assert best.outcome
    files = exports(best, None, {})
    path = tmp_path / "scenario.yaml"
    path.write_text(files["scenario.yaml"])
    again = load(str(path))
    outcome, _ = simulate(again.scenario, again.acceptance())
    assert outcome.tokens_per_s == best.outcome.tokens_per_s
    assert outcome.pools == best.outcome.pools


def test_the_answer_says_split_or_not(tmp_path: Path) -> None:
    plan = apart(tmp_path)
    data = yaml.safe_load((tmp_path / "small.yaml").read_text())
    path = str(written(tmp_path, **data))
    words = CliRunner().invoke(main, ["plan", path, "--draws", "1"]).stdout
    assert "Split or not: do not split. " in words
    assert "prefill apart from decode: caches go over infiniband_ndr (as stated)" in " ".join(
        words.split()
    )
    done = CliRunner().invoke(main, ["plan", path, "--draws", "1", "--json"])
    found = json.loads(done.stdout)
    assert found["answer"]["split"] is None
    assert found["split"]["apart"]
    assert set(found["split"]["throughput_kept"]) == {"2", "4", "8", "16", "32"}
    assert plan.file.apart == "try"


def test_a_line_splits_over_a_link(tmp_path: Path) -> None:
    done = asked(
        tmp_path, "--draws", "1", "--json", apart="only", link="ethernet_100g", device="h100_sxm:4"
    )
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert sum(found["answer"]["split"].values()) == found["answer"]["replicas"]
    assert found["owned"]["h100_sxm"]["used"] <= 4
    refused = asked(tmp_path, link="ethernet_100g")
    assert refused.exit_code == 2
    assert "add --apart try" in refused.stderr


@pytest.mark.parametrize("rate", [4, 20, 40])
@pytest.mark.parametrize("ttft_ms", [60, 150, 400])
def test_a_run_cut_short_says_what_the_whole_run_of_a_split_says(
    tmp_path: Path, rate: int, ttft_ms: int
) -> None:
    plan = apart(
        tmp_path,
        f"scenario.requests.arrivals.rate_per_s={rate}",
        f"slo.ttft_ms.p90={ttft_ms}",
    )
    for template in plan.apart[::5]:
        one = split_as(template, FleetSplit(1, 2))
        whole = examine(one, 3, "end")
        assert keeps(one, 3) is whole.kept
        assert examine(one, 3, "exceeded").kept is whole.kept
        assert examine(one, 3, "known").kept is whole.kept
