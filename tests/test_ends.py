"""Where a clock, a name, a recording or a workload gives out, a command says so: what soaking
found, by family.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.cli.scenario import LONG_RUN
from simulator.core.faults import BadInput
from simulator.core.parallel import STOP
from simulator.core.serving.collector import MetricsCollector
from simulator.core.serving.requests import Request
from simulator.inputs.traces.file import read as read_trace
from simulator.scenario import load
from simulator.scenario.evaluate import run, simulate
from simulator.studies.sweep.axes import assigned as axis_from

ARRIVALS = "requests={{arrivals: {{name: poisson, rate_per_s: {rate}}}, count: {count}}}"
SERVED = "serving.policy={name: prefill_first}"


def typed(*words: str, **changes: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    done = CliRunner().invoke(
        main, [*words, *(word for change in changes.values() for word in ("--set", change))]
    )
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    return done.exit_code, done.stdout, done.stderr


# ---- a clock


@pytest.mark.parametrize(
    "durations",
    [
        "{target_ms: 0, draft_ms: 1}",
        "{prefix_ms: 0, suffix_ms: 0, draft_ms: 1}",
        "{layers_ms: [0, 0], draft_ms: 1}",
        "{target_ms: {1: 5, 8: 0}, draft_ms: 1}",
    ],
)
def test_a_target_that_takes_no_time_has_no_speed(durations: str) -> None:
    code, out, errors = typed(
        "law",
        "durations_only",
        strategy="strategy={name: vanilla_sd, gamma: 7}",
        durations=f"durations={durations}",
    )
    assert (code, out) == (2, "")
    assert "durations: the target's passes take no time, so no speed can be told" in errors


def test_a_part_of_the_target_may_take_no_time() -> None:
    assert (
        typed(
            "law", "durations_only", durations="durations={prefix_ms: 0, suffix_ms: 9, draft_ms: 1}"
        )[0]
        == 0
    )


def test_arrivals_end_before_the_clock_loses_count(tmp_path: Path) -> None:
    code, _, errors = typed(
        "law", "durations_only", served=SERVED, requests=ARRIVALS.format(rate=1e-9, count=20)
    )
    assert code == 2
    assert "count 20 at rate_per_s 1e-09 takes longer than 1e+10 s" in errors
    file = tmp_path / "late.csv"
    file.write_text("arrival_s,prompt_tokens,output_tokens\n0,9,9\n2e10,9,9\n")
    traffic = f"requests={{arrivals: {{name: file, format: csv, file: {file}}}}}"
    code, _, errors = typed("law", "durations_only", served=SERVED, requests=traffic)
    assert (code, errors) == (
        2,
        f"error: {file}:3:1: arrives 2e+10 s from the beginning; expected 1e+10 at most\n",
    )


def test_a_claim_is_held_to_what_the_clock_tells_apart() -> None:
    """After 4 months a step of 36 ms is known to 5e-8 of it; the law does not disagree for that."""
    late = load(
        "durations_only", [SERVED, ARRIVALS.format(rate=1e-6, count=12), "requests.output_tokens=2"]
    )
    result = run(late)
    assert result.simulated.end_s > 1e6
    assert abs(result.replay.step_s / result.simulated.step_s - 1.0) < 1e-6
    assert not result.agreement.disagreement


def test_a_mean_length_says_nothing_of_a_strategy_without_drafts() -> None:
    code, out, _ = typed(
        "law",
        "durations_only",
        strategy="strategy=autoregressive",
        mean="acceptance={tokens_per_step: 2.4}",
    )
    assert code == 0
    assert "36.00" in out


@pytest.mark.parametrize("study", ["batches", "load"])
def test_several_at_a_time_are_no_load_of_a_strategy_that_takes_one(study: str) -> None:
    code, out, errors = typed(study, "duodecoding_llama_2_7b_a800_figure_1", "--sizes", "2")
    assert (code, out) == (2, "")
    assert (
        "requests.concurrency: duodecoding takes one request at a time, got 2; ask for --sizes 1"
        in errors
    )


# ---- a run that is stopped


class Patience(tuple[bool, ...]):
    """Something that is there from the 31st question on."""

    asked = 0

    def __bool__(self) -> bool:
        self.asked += 1
        return self.asked > 30


def test_a_run_that_is_stopped_tells_of_the_requests_that_came() -> None:
    """After 30 questions whether to stop: nobody comes any more, and what came is what a run of so
    many would be.
    """
    changes = [
        "strategy=autoregressive",
        ARRIVALS.format(rate=5, count=900),
        "requests.cool_down=3",
        SERVED,
    ]
    STOP.set(Patience())
    stopped = run(load("durations_only", changes))
    came = stopped.scenario.requests.count
    assert 5 < came < 60
    assert stopped.cautions[0] == f"stopped early: the first {came} of 900 requests"
    assert (
        stopped.simulated.serving.requests
        == stopped.replay.serving.requests
        == stopped.baseline.serving.requests
        == came
    )
    assert stopped.simulated.serving.counted.rule.startswith(
        (f"all {came}", f"requests 1 to {came} of {came}")
    )
    assert stopped.simulated.step_s == pytest.approx(stopped.replay.step_s, rel=1e-9)
    STOP.set([True])
    with pytest.raises(KeyboardInterrupt):
        run(load("durations_only", [*changes, "requests.warm_up=100"]))
    STOP.set(())


@pytest.mark.parametrize(("count", "came"), [(LONG_RUN, True), (LONG_RUN - 1, False)])
def test_ctrl_c_in_a_long_run_leaves_a_report(
    count: int, came: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is pressed as request 40 ends; a shorter run ends at once and leaves nothing."""
    note = MetricsCollector.note

    def pressing(self: MetricsCollector, request: Request) -> None:
        note(self, request)
        if request.index == 40:
            monkeypatch.setattr(MetricsCollector, "note", note)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(MetricsCollector, "note", pressing)
    folder = tmp_path / "report"
    # tests begun in the background ignore it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code, out, _ = typed(
            *("run", "durations_only", "--out", str(folder)),
            strategy="strategy=autoregressive",
            requests=ARRIVALS.format(rate=5, count=count),
            served=SERVED,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert (code, folder.exists(), "Stopped early: the first " in out) == (130, came, came)
    if came:
        assert f"of {count:,} requests" in (folder / "report.md").read_text()


# ---- a claim without a replay


@pytest.mark.parametrize(
    ("scenario", "policy"),
    [
        ("traffic_specpipe_llama_3_1_8b_4xa100", "{name: fixed_batch, max_requests: 1}"),
        (
            "traffic_mirror_llama_3_1_8b_4xa100",
            "{name: unified_budget, max_requests: 1, budget_tokens: 1}",
        ),
    ],
)
def test_steps_with_fewer_rows_than_their_kind_has_break_no_claim(
    scenario: str, policy: str
) -> None:
    """Levels that are pruned, windows that a budget cuts: a kind of step says neither, and several
    replicas have no replay.
    """
    changes = [ARRIVALS.format(rate=0.1, count=4), f"serving.policy={policy}", "serving.replicas=3"]
    found = run(load(scenario, changes)).agreement
    assert (found.disagreement, found.gap) == (False, None)
    assert found.shown.startswith("levels are pruned or windows cut")


def test_a_law_that_is_wrong_is_still_told_on_several_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes = [
        ARRIVALS.format(rate=0.1, count=4),
        "serving.policy={name: fixed_batch, max_requests: 1}",
        "serving.replicas=3",
    ]
    loaded = load("vanilla_qwen3_32b_a100", changes)
    assert run(loaded).agreement.gap is not None
    strategy = type(loaded.scenario.strategy)
    seconds = strategy.step_seconds
    monkeypatch.setattr(
        strategy,
        "step_seconds",
        lambda self, durations, kind: 1.01 * seconds(self, durations, kind),
    )
    assert run(loaded).agreement.disagreement


# ---- a recording, a workload


def test_a_batch_whose_shared_tree_was_not_recorded_is_refused_in_words() -> None:
    code, out, errors = typed("load", "specpipe_db_llama_3_1_70b_8x3090", "--sizes", "3")
    assert (code, out) == (2, "")
    assert "strategy.width: the trace holds no tree of width 21 (64 shared by 3 requests)" in errors


def test_crossovers_take_a_pipeline_at_its_stages() -> None:
    code, out, errors = typed(
        "crossovers",
        "specpipe_llama_3_1_70b_8xl40",
        "--only",
        "specpipe",
        "--sizes",
        "1,2",
        "--json",
    )
    assert code in (0, 2), errors
    assert out == "" or json.loads(out)


def test_outputs_that_end_with_their_prompt_leave_no_step_to_time() -> None:
    whole = "durations={target_ms: 36, draft_ms: 12, prefill_ms: 20}"
    changes = [
        "strategy={name: vanilla_sd, gamma: 5, drafts_first: true}",
        whole,
        "acceptance={always: 5}",
    ]
    loaded = load("durations_only", [*changes, "requests={count: 2, output_tokens: 2}"])
    with pytest.raises(
        BadInput,
        match=r"requests\.output_tokens: all outputs end with the pass that reads the prompt",
    ):
        simulate(loaded.scenario, loaded.acceptance())


# ---- names, and numbers that are taken away


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["new", ""], "error: NAME: expected the name of a file to write, got an empty one"),
        (["new", "x" * 300], "File name too long"),
        (
            ["run", "durations_only", "--set", "requests.count=2", "--out", "x" * 300],
            "File name too long",
        ),
        (["law", f"./{'x' * 300}.yaml"], "File name too long"),
    ],
)
def test_a_name_that_no_file_can_have_is_one_line(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, errors = typed(*words)
    assert (code, out, len(errors.splitlines())) == (2, "", 1)
    assert said in errors
    assert list(tmp_path.iterdir()) == []


def test_a_price_can_be_taken_away_and_a_memory_cannot() -> None:
    scenario = "autoregressive_qwen3_32b_a100"
    priced = load(scenario, ["target.device.price_usd_per_hour=2"]).scenario.target
    bare = load(scenario, ["target.device.price_usd_per_hour=null"]).scenario.target
    assert priced is not None
    assert priced.device.price_usd_per_hour is not None
    assert bare is not None
    assert bare.device.price_usd_per_hour is None
    for value, said in (
        ("null", "expected a number, got null"),
        ("[]", "expected a number"),
        ("abc", "expected a number, got 'abc'"),
    ):
        code, _, errors = typed("law", scenario, memory=f"target.device.memory_gb={value}")
        assert (code, errors) == (
            2,
            f"error: --set target.device.memory_gb={value}: target.device.memory_gb: {said}\n",
        )


def test_a_profile_that_starts_from_another_may_take_its_price_away(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("like: a100_80g_sxm\nprice_usd_per_hour: null\n")
    loaded = load("autoregressive_qwen3_32b_a100", [f"target.device={tmp_path}/mine.yaml"])
    assert loaded.scenario.target is not None
    assert loaded.scenario.target.device.price_usd_per_hour is None


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs a device that never ends")
def test_what_never_ends_is_no_trace() -> None:
    with pytest.raises(BadInput, match="cannot be read: is no regular file"):
        read_trace(Path("/dev/zero"))


def test_an_axis_has_an_end() -> None:
    with pytest.raises(BadInput, match="expected at most 1,000,000 values on an axis"):
        axis_from("acceptance.rate=0.5:0.9:1000000000")


def test_what_counts_may_arrive_and_leave_together() -> None:
    loaded = load(
        "durations_only", ["requests={concurrency: 3, count: 3, warm_up: 1, cool_down: 1}"]
    )
    outcome, _ = simulate(loaded.scenario, loaded.acceptance())
    assert outcome.tokens_per_s == outcome.tokens / outcome.end_s
