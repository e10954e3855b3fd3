"""Plans for prompts that are kept: what caches have of them, what speculation costs them, and
sessions as the load.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings, strategies as st

from simulator.cli.main import main
from simulator.core.serving.slo import Limit
from simulator.report.blocks import Table
from simulator.report.pages import plan as plan_page
from simulator.report.wording import share as in_words
from simulator.scenario import Loaded, evaluate, load
from simulator.scenario.cache_cost import CacheCost
from simulator.studies.plan.arithmetic import most_times
from simulator.studies.plan.bounds import FleetBounds
from simulator.studies.plan.commands.engines import ENGINES
from simulator.studies.plan.file import Plan, load_plan
from simulator.studies.plan.headroom import Headroom, _cut_short, filling_up, lasting_s
from simulator.studies.plan.line.load import talked
from simulator.studies.plan.search import examine, keeps, replicated, search
from simulator.studies.plan.study import study, summary

KEPT: dict[str, Any] = {
    "about": "a 30B on one H200, prompts that begin alike",
    "scenario": {
        "like": "eagle3_qwen3_30b_a3b_h200",
        "serving": {
            "policy": {"name": "prefill_first", "max_requests": 8},
            "memory": {"prefix_caching": True, "block_tokens": 16},
        },
    },
    "slo": {"ttft_ms": {"p90": 2000}, "tpot_ms": {"p90": 100}},
    "devices": {"h200_sxm": {"price_usd_per_hour": 3, "count": 2}},
    "hardware": {"h200": {"target": {"device": "h200_sxm"}}},
    "strategies": {
        "plain": {"strategy": "autoregressive"},
        "eagle3": {"draft": None},
    },
    "replicas": 2,
}


def kept(folder: Path, requests: dict[str, Any], *overrides: str, **changes: Any) -> Plan:
    """A plan for these requests."""
    written = KEPT | changes
    scenario = {**written["scenario"], "requests": requests}
    path = folder / "kept.yaml"
    path.write_text(yaml.safe_dump({**written, "scenario": scenario}, sort_keys=False))
    return load_plan(str(path), overrides)


def alike(folder: Path, count: int = 8) -> dict[str, Any]:
    """Requests, one a second, whose prompts of 1,024 tokens are all the same."""
    line = {"input_length": 1024, "output_length": 8, "hash_ids": [0, 1]}
    lines = [json.dumps({"timestamp": 1000 * at, **line}) for at in range(count)]
    path = folder / "alike.jsonl"
    path.write_text("\n".join(lines))
    return {"arrivals": {"name": "file", "format": "mooncake", "file": str(path)}}


# ---- what caches have, and what drafts cost them


def test_a_plan_says_what_is_found_and_what_drafts_cost(tmp_path: Path) -> None:
    """Of eight prompts seven find all but the last block of 16 tokens, and EAGLE-3 drops one of
    those.
    """
    answered = study(kept(tmp_path, alike(tmp_path), "least_chance=0"), draws=1)
    found = summary(answered)
    rows = {row["strategy"]: row for row in found["families"]}
    assert rows["plain"]["cheapest"]["hit_rate"] == pytest.approx(7 * 1008 / 8192)
    assert rows["plain"]["cache_cost"] is None
    assert rows["eagle3"]["cheapest"]["hit_rate"] == pytest.approx(7 * 992 / 8192)
    cost = rows["eagle3"]["cache_cost"]
    assert cost["lost_rate"] == pytest.approx(7 * 16 / 8192)
    assert cost["dropped_tokens"] == 14
    assert 0.0 < cost["work_share"] < 1.0
    assert found["cache_cost"] == rows[found["answer"]["strategy"]]["cache_cost"]
    (alternatives, _) = plan_page.page(answered).sections[0].blocks
    assert isinstance(alternatives, Table)
    head = list(alternatives.head)
    shown = {
        row[0]: (row[head.index("hit rate")], row[head.index("hit rate without drafts")])
        for row in alternatives.rows
    }
    assert shown == {"plain": ("86.1 %", ""), "eagle3": ("84.8 %", "86.1 %")}


def test_the_answer_says_what_its_cache_has(tmp_path: Path) -> None:
    answered = study(kept(tmp_path, alike(tmp_path)), draws=1)
    chosen = answered.chosen
    rate = in_words(chosen.hit_rate or 0.0)
    found = f"{rate} of prompt tokens are found and not computed"
    assert plan_page.prefix_cache(chosen, None) == f"{found}."
    nothing = CacheCost(0.0, 0.0, 0.5, 0.5, 0.0, 0.0, None)
    assert plan_page.prefix_cache(chosen, nothing) == (
        f"{found}; speculation drops nothing of them and costs 0 points of hit rate."
    )
    dropped = CacheCost(14.0, 14.0, 0.5, 0.6, 0.001, 0.02, 30.0)
    assert "10.0 points fewer than without it" in plan_page.prefix_cache(chosen, dropped)
    topics = [topic for topic, _ in plan_page.reasons(answered)]
    assert "Prefix cache" in topics


# ---- sessions as the load


def talks(rate: float = 1.0, count: int = 24, **fields: Any) -> dict[str, Any]:
    """Sessions of three turns that begin with one of two system prompts."""
    sessions = {
        "turns": 3,
        "turn_tokens": 100,
        "think_s": 0.5,
        "system_prompts": {"count": 2, "tokens": 160},
    }
    return {
        "arrivals": {"name": "poisson", "rate_per_s": rate},
        "sessions": sessions | fields,
        "count": count,
        "prompt_tokens": {
            "name": "lognormal",
            "mean_tokens": 400,
            "spread": 1.0,
            "most_tokens": 2000,
        },
        "output_tokens": {"name": "lognormal", "mean_tokens": 20, "spread": 1.0, "most_tokens": 60},
    }


HEAD = (
    "strategy={name: vanilla_sd, gamma: 3, drafter: {name: head, "
    "head: {layers: 1, squares: 4, vocabulary: 32000}}}"
)
WORLDS = {
    "plain": load("eagle3_qwen3_30b_a3b_h200", ["strategy=autoregressive"]),
    "head": load("eagle3_qwen3_30b_a3b_h200", [HEAD]),
    "drafted": load("vanilla_llama_2_7b_a100"),
}


@pytest.mark.full
@given(
    world=st.sampled_from(sorted(WORLDS)),
    caching=st.booleans(),
    rate=st.sampled_from([0.2, 5.0, 200.0]),
    policy=st.sampled_from(["fixed_batch", "prefill_first"]),
    places=st.integers(1, 8),
    kv_tokens=st.sampled_from([None, 4_000]),
    replicas=st.integers(1, 3),
    share=st.sampled_from([0.5, 0.9]),
    branches=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_simulation_of_sessions_beats_a_bound(
    world: str,
    caching: bool,
    rate: float,
    policy: str,
    places: int,
    kv_tokens: int | None,
    replicas: int,
    share: float,
    branches: float,
    seed: int,
) -> None:
    """Limits just long enough for the simulation to keep them."""
    base = WORLDS[world]
    old = base.scenario
    memory = {"kv_tokens": kv_tokens, "prefix_caching": caching, "block_tokens": 16}
    serving = {"policy": {"name": policy, "max_requests": places}, "memory": memory}
    one = base.replace(
        seed=seed,
        requests=type(old.requests).model_validate(talks(rate, branch_share=branches)),
        serving=type(old.serving).model_validate(serving),
    )
    scenario = replicated(one, replicas).scenario
    outcome, _ = evaluate.simulate(scenario, one.acceptance())
    limits = tuple(
        Limit(metric, share, 1.01 * getattr(outcome.serving, metric).quantile(share))
        for metric in ("ttft", "tpot", "e2e", "tbt")
    )
    bounds = FleetBounds(one, limits)
    assert bounds.holds or (policy == "prefill_first" and kv_tokens)
    assert bounds.broken_by(replicas) is None
    assert FleetBounds(one, limits[:2]).broken_by(replicas) is None
    most = most_times(scenario, replicas, (), True, outcome.serving.requests / outcome.end_s)
    assert most >= 1.0


def bounded(*changes: str) -> Loaded:
    requests = json.dumps(talks(2.0))
    serving = {
        "policy": {"name": "prefill_first", "max_requests": 4},
        "memory": {"prefix_caching": True, "block_tokens": 16},
    }
    return load(
        "eagle3_qwen3_30b_a3b_h200",
        [HEAD, f"requests={requests}", f"serving={json.dumps(serving)}", *changes],
    )


def test_bounds_of_sessions_bite() -> None:
    """A prompt takes no less than what no cache can have of it."""
    one = bounded()
    for metric in ("ttft", "tpot", "e2e", "tbt"):
        assert FleetBounds(one, (Limit(metric, 0.9, 1e-4),)).broken_alone
    flood = bounded("requests.arrivals.rate_per_s=1e6", "requests.sessions.turns=1")
    assert FleetBounds(flood, (Limit("e2e", 0.99, 0.05),)).overdue(1)
    assert FleetBounds(flood, (Limit("e2e", 0.99, 0.05),)).overdue(10_000) is None
    bounds = FleetBounds(one, (Limit("ttft", 0.9, 1.0),))
    turns = [turn for turns in one.scenario.requests.turns(0) for turn in turns]
    computed = bounds._computed.tolist()
    assert computed[0] == turns[0].prompt_tokens - max(0, 160 - 16)  # the drop of EAGLE-3
    known = turns[0].tokens - 1
    assert computed[1] == turns[1].prompt_tokens - (known // 16 - 1) * 16


@pytest.mark.parametrize(
    "change",
    [
        "requests.warm_up=2",
        "requests.past_end=counted",
        "serving.memory.kv_tokens=4000",
    ],
)
def test_bounds_keep_out_where_more_may_be_found(change: str) -> None:
    assert not FleetBounds(bounded(change), (Limit("ttft", 0.9, 1e-6),)).holds


def test_the_answer_for_sessions_is_that_of_simulating_everything(tmp_path: Path) -> None:
    """Where one replica is too few and two are enough."""
    plan = kept(tmp_path, talks(40.0, 60), "slo.ttft_ms.p90=60", "least_chance=0")
    searched = search(plan)
    assert searched.best is not None
    verdicts = {}
    for candidate in plan.candidates:
        for replicas in candidate.sizes:
            found = examine(candidate, replicas, "end")
            verdicts[candidate.strategy, replicas] = found.kept
            assert keeps(candidate, replicas) == found.kept
    for finding in searched.findings:
        assert finding.kept == verdicts[finding.candidate.strategy, finding.replicas]
    assert verdicts == {
        ("plain", 1): False,
        ("plain", 2): True,
        ("eagle3", 1): False,
        ("eagle3", 2): True,
    }


def test_a_plan_takes_sessions(tmp_path: Path) -> None:
    answered = study(kept(tmp_path, talks()), draws=1)
    found = summary(answered)
    assert found["answer"]["kept"]
    assert 0.4 < found["answer"]["hit_rate"] < 1.0
    assert found["capacity_ratio"] > 1.0
    assert found["headroom"]["steady"]


# ---- asked in one line, and exported

TABLE = """\
session,turn,new_tokens,prompt_tokens,output_tokens,arrival_s,think_s,parent,system_prompt,system_tokens
a,0,300,,20,0,,,house,160
a,1,80,,30,,1.5,,,
a,2,,250,30,,1.0,,,
b,0,400,,20,2.5,,,house,160
b,1,50,,10,5.25,0.5,,,
b,2,40,,10,,0.5,0,,
c,0,200,,12,4.5,,,,
c,1,100,,20,,2,,,
"""
TALK = [
    {
        "messages": [
            {"role": "user", "content": "a" * 400},
            {"role": "assistant", "content": "b" * 80},
        ]
    }
]


def asked(folder: Path, name: str, text: str, *words: str) -> Result:
    (folder / name).write_text(text)
    line = ["plan", "--model", "Qwen/Qwen3-8B", "--device", "h100_sxm", "--ttft-p95", "1s"]
    sessions = ["--sessions", str(folder / name)]
    return CliRunner().invoke(main, [*line, *sessions, "--draws", "1", "--json", *words])


@pytest.mark.full
def test_sessions_are_exported_so_that_they_can_be_run(tmp_path: Path) -> None:
    """To the last digit, with branches, prompts that were cut, and turns that come at a time."""
    out = tmp_path / "out"
    saved = tmp_path / "saved.yaml"
    words = ("--out", str(out), "--save", str(saved), "--tpot-p95", "40ms")
    done = asked(tmp_path, "talks.csv", TABLE, *words)
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)["answer"]
    again = load(str(out / "scenario.yaml"))
    outcome, _ = evaluate.simulate(again.scenario, again.acceptance())
    assert outcome.tpot_s * 1e3 == answer["tpot_ms"]
    assert outcome.serving.prefix_cache["hit_rate"] == answer["hit_rate"]
    measured = outcome.serving.counted.slo
    assert [limit.found_ms for limit in measured] == list(answer["measured_ms"].values())
    assert "--enable-prefix-caching" in (out / "vllm.sh").read_text("utf-8")
    requests = load_plan(str(saved)).candidates[0].loaded.scenario.requests
    assert list(requests.turns(0)) == list(again.scenario.requests.turns(0))


def test_a_rate_stretches_the_beginnings_of_sessions(tmp_path: Path) -> None:
    """Three sessions within 4.5 s begin at 2 / 4.5 a second; at 0.2 a second within 10 s."""
    path = tmp_path / "talks.csv"
    path.write_text(TABLE)
    recorded, _ = talked(str(path), 400, None, None)
    assert recorded["arrivals"] == {"name": "recorded"}
    stretched, said = talked(str(path), 4, 0.2, None)
    assert stretched["count"] == 4
    assert stretched["arrivals"]["rate_scale"] == pytest.approx(0.2 * 2.5)
    assert said[1] == "planned for the first 4 turns, of 2 sessions"
    slower, _ = talked(str(path), 400, 0.2, None)
    assert slower["arrivals"]["rate_scale"] == pytest.approx(0.45)
    short, said = talked(str(path), 400, None, 500)
    assert said[1].startswith("5 turns from the first of more than 500 tokens on left out")
    assert short["sessions"]["context_tokens"] == 500
    untimed = tmp_path / "talk.json"
    untimed.write_text(json.dumps(TALK))
    drawn, _ = talked(str(untimed), 400, 3.0, None)
    assert drawn["arrivals"] == {"name": "poisson", "rate_per_s": 3.0}


@pytest.mark.parametrize(
    ("name", "text", "words", "message"),
    [
        ("talk.json", json.dumps(TALK), (), "does not say when sessions begin; state --rate"),
        ("talks.csv", TABLE, ("--traffic", "log.csv"), "--traffic log.csv"),
        ("talks.csv", TABLE, ("--columns", "arrival=ts"), "leave it out beside --sessions"),
        ("talks.csv", TABLE, ("--rate", "-1"), "expected sessions per second above 0"),
        ("talks.csv", TABLE.replace("a,1,80", "a,5,80"), (), "talks.csv:3"),
        ("talks.txt", TABLE, (), "expected a file of sessions that ends in"),
        (
            "talks.csv",
            "session,new_tokens,output_tokens,arrival_s\na,50000,20,0\n",
            (),
            "holds no turn within the context of the model",
        ),
    ],
)
def test_what_is_wrong_with_sessions_is_said(
    tmp_path: Path, name: str, text: str, words: tuple[str, ...], message: str
) -> None:
    done = asked(tmp_path, name, text, *words)
    assert done.exit_code == 2, done.output
    assert message in done.stderr


def test_commands_say_how_sessions_come_back_to_their_replica(tmp_path: Path) -> None:
    candidate = kept(tmp_path, talks()).candidates[0]
    two = replicated(candidate.loaded, 2).scenario
    router = two.serving.router.name
    hint = f"# turns were dealt to replicas by {router}; a session stays"
    for program in ENGINES.values():
        assert (program.script(two) or "").count(hint) == 1
        one = program.script(candidate.loaded.scenario) or ""
        assert "turns were dealt" not in one


def test_a_run_that_ends_before_its_system_is_full_says_so(tmp_path: Path) -> None:
    """Sessions of three turns, 24 turns at a session a second: they begin for 8 s, and think for
    twice 4 s.
    """
    short = examine(kept(tmp_path, talks(think_s=4.0)).candidates[0], 1, "end")
    filling = filling_up(short)
    assert filling is not None and short.outcome is not None
    each_s = (short.outcome.serving.e2e.mean_ms or 0.0) / 1e3
    assert filling.begin_s == 8.0
    assert filling.session_s == pytest.approx(8.0 + 3 * each_s)
    assert filling.enough_turns == math.ceil(3 * 3 * filling.session_s)
    words = plan_page.not_full(filling)
    assert words.startswith("Sessions begin for 8.0 s, and one lasts 8.")
    assert words.endswith(f"with requests.count={filling.enough_turns} or more it is full.")
    long = examine(kept(tmp_path, talks(think_s=0.0)).candidates[0], 1, "end")
    assert filling_up(long) is None


def test_a_run_that_ends_before_sessions_fill_replicas_up_says_so() -> None:
    """Agents who think for an hour: 3,000 turns of a replica are over long before."""
    settings = ["requests.arrivals={name: poisson, rate_per_s: 1}", "requests.count=100"]
    for think_s, cut in ((3_600, True), (0, False)):
        think = f"requests.sessions.think_s={think_s}"
        loaded = load("sessions_chat_eagle3_qwen3_30b_a3b_h200", [*settings, think])
        assert _cut_short(loaded, 1.0, 1) is cut
        rate = loaded.scenario.requests.offered_per_s(0)
        assert rate
        assert cut is (lasting_s(loaded, 1.0, 1) == pytest.approx(3_000 / rate))
    room = Headroom(2.0, math.inf, True, None, requests=3_000, lasted_s=1_500.0, cut_short=True)
    words = plan_page.headroom_words(room)
    assert "the run ends behind 3,000 turns a replica, before sessions have filled it up" in words
    assert room.as_data()["cut_short"] is True
