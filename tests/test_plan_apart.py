"""Plans whose prefill and decode may be apart: splits near balance, bounds that rule out nothing
that holds, and what the split buys.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings, strategies as st

from simulator.cli.main import main
from simulator.core.serving.slo import Slo
from simulator.report.pages.plan import split_words
from simulator.scenario import load
from simulator.scenario.evaluate import simulate
from simulator.scenario.stability import cached_tokens
from simulator.studies.plan.bounds import SplitBounds
from simulator.studies.plan.export import exports
from simulator.studies.plan.file import FleetSplit, Plan, PlanFile
from simulator.studies.plan.search import Search, examine, keeps, no_answer, search
from simulator.studies.plan.split_or_not import split_or_not
from simulator.studies.plan.splits import Balance, balance, every_split, split_as
from simulator.studies.plan.throughput import by_law
from tests.test_plan import SMALL, small, written
from tests.test_question import asked

HANDOVER = {"link": "infiniband_ndr"}
FIXED = {"name": "fixed_batch", "max_requests": 8}


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
        assert one.family == ("a100, apart", one.strategy)


def test_splits_are_looked_at_however_little_the_law_says_they_carry(tmp_path: Path) -> None:
    """Only a bound leaves a split out: the law is no proof of a miss."""
    plan = apart(tmp_path, "scenario.requests.arrivals.rate_per_s=200", "replicas=2")
    splits = list(every_split(plan))
    assert {one.placed for one in splits} == {one.placed for one in plan.apart}
    assert all(by_law(one.loaded, 2) < 0.5 for one in splits)


def test_what_a_cache_has_of_a_log_is_no_work(tmp_path: Path) -> None:
    """Ten prompts of 512 tokens that are all the same: nine tenths of their whole blocks are had,
    whether the fleet is split or not.
    """
    lines = []
    for number in range(10):
        hashes = {"hash_ids": [7], "timestamp": 1000 * number}
        lines.append(json.dumps({"input_length": 512, "output_length": 20} | hashes))
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(lines) + "\n")
    arrivals = {"name": "file", "format": "mooncake", "file": str(log)}
    found = {}
    for caching in (False, True):
        serving = SMALL["scenario"]["serving"] | {"memory": {"prefix_caching": caching}}
        fields = {"requests": {"arrivals": arrivals}, "serving": serving}
        plan = apart(tmp_path, scenario=SMALL["scenario"] | fields)
        whole, divided = plan.candidates[0].loaded, plan.apart[0].loaded
        found[caching] = (balance(divided), by_law(whole, 1), by_law(divided, 2))
    left = 1.0 - cached_tokens(whole.scenario, written=False) / 512
    assert 0.1 <= left < 0.2
    (without, alone, two), (having, alone_had, two_had) = found.values()
    assert having.read_s == pytest.approx(left * without.read_s)
    assert having.decode_s == without.decode_s
    assert alone_had > alone
    assert two_had >= two


@pytest.mark.full
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


@pytest.mark.full
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
    plan = apart(tmp_path, scenario=SMALL["scenario"] | {"serving": {"policy": FIXED}})
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
    nothing = no_answer(replace(plan, file=_alone(plan)), None, {}, {})
    assert "no candidate can be split: fixed_batch keeps places" in str(nothing)


def _alone(plan: Plan) -> PlanFile:
    """The file of a plan all of whose fleets are to be split."""
    return plan.file.model_copy(update={"apart": "only"})


def test_what_is_missing_for_a_split_is_said(tmp_path: Path) -> None:
    """A replica on two devices of which two are owned has no second one beside it."""
    devices = {"a100_80g_sxm": {"price_usd_per_hour": 2, "count": 8, "owned": 2}}
    hardware = {"a100": {"target": {"link": "nvlink_a100", "tensor_parallel": 2}}}
    plan = apart(tmp_path, devices=devices, hardware=hardware)
    searched = search(plan)
    assert searched.best
    found = split_or_not(searched, searched.best)
    assert found
    assert found.missing == "4 x a100_80g_sxm, of which 2 may be used"
    assert f". The comparison takes {found.missing}." in split_words(found, searched.best)
    nothing = no_answer(replace(plan, file=_alone(plan)), None, {}, {})
    assert "a split takes two replicas, and no candidate may have as many" in str(nothing)


def test_a_refusal_of_another_strategy_is_not_quoted(tmp_path: Path) -> None:
    other = {"strategy": "autoregressive", "serving": {"policy": FIXED}}
    strategies = {"other": other, "plain": {"strategy": "autoregressive"}}
    plan = apart(tmp_path, strategies=strategies)
    refused = {}
    for one in plan.candidates:
        nothing_split = Search(replace(plan, apart=()), ())
        found = split_or_not(nothing_split, examine(one, 1))
        assert found
        refused[one.strategy] = found.refused
    assert "keeps places and room" in refused["other"]
    assert refused["plain"] == "no split has as many devices"


@pytest.mark.full
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
    words = CliRunner().invoke(main, ["plan", path, "--draws", "1", "--long"]).stdout
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


@pytest.mark.full
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


@pytest.mark.few(2)
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
