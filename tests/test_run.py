"""Whole runs: three evaluators that agree, the laws' limits on real hardware and traces, the
promised JSON.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.core.acceptance.sources import Replay
from simulator.core.faults import BadInput
from simulator.core.strategies.common.step import Kind
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.traces.file import read
from simulator.papers.mirror_sd import MirrorSD
from simulator.papers.mirror_sd.fallback import fallback_rates
from simulator.scenario import load
from simulator.scenario.evaluate import law, run, simulate
from simulator.scenario.result.data import result_data
from simulator.studies.window import window_sweep

SCENARIOS = sorted(Catalogue().names("scenario"))
MIRRORS = [name for name in SCENARIOS if name.startswith("mirror")]
TRACES = sorted(name for name in Catalogue().names("trace") if name.startswith("six_flavours"))
FEW = ["requests.count=12", "requests.output_tokens=96"]


def few(name: str) -> list[str]:
    """Twelve requests, or as many as decode together."""
    stated = Catalogue().scenario(name).data.get("requests", {})
    return [f"requests.count={max(12, stated.get('concurrency', 1))}", *FEW[1:]]


@pytest.mark.few(6)
@pytest.mark.parametrize("name", SCENARIOS)
def test_replay_and_simulation_are_the_same_run(name: str) -> None:
    """One walks the recording with the law's step times, the other books lanes: same steps, same
    times.
    """
    result = run(load(name, few(name)))
    replay, simulated = result.replay, result.simulated
    assert (replay.steps, replay.tokens, replay.accepted) == (
        simulated.steps,
        simulated.tokens,
        simulated.accepted,
    )
    for one, other in (
        (replay.step_s, simulated.step_s),
        (replay.tpot_s, simulated.tpot_s),
        (replay.ttft_s, simulated.ttft_s),
    ):
        assert one == pytest.approx(other, rel=1e-9)
    assert replay.end_s == pytest.approx(simulated.end_s, rel=1e-9)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", MIRRORS)
def test_the_law_with_replayed_means_explains_the_simulation(name: str) -> None:
    """What is left is the growing context: the law takes its durations halfway."""
    result = run(load(name, FEW))
    assert result.law_replayed.step_s == pytest.approx(result.simulated.step_s, rel=0.01)
    assert result.law_replayed.tokens_per_step == pytest.approx(
        result.simulated.tokens_per_step, rel=1e-9
    )


@pytest.mark.few(4)
@pytest.mark.parametrize("name", SCENARIOS)
def test_eight_at_a_time(name: str) -> None:
    loads = [
        "requests.arrivals=null",
        "requests.concurrency=8",
        "requests.count=20",
        "requests.output_tokens=40",
    ]
    scenario = load(name).scenario
    if scenario.strategy.traits.alone and scenario.serving.policy.max_requests != 1:
        with pytest.raises(BadInput, match="one request at a time, got 8"):
            load(name, loads)
        return
    result = run(load(name, loads))
    assert result.simulated.tokens == 20 * 40
    assert result.replay.step_s == pytest.approx(result.simulated.step_s, rel=1e-9)


@pytest.mark.parametrize("name", ["mirror_qwen3_32b_a100", "vanilla_qwen3_32b_a100"])
def test_the_law_weighs_steps_by_the_requests_that_meet_them(name: str) -> None:
    """Eight at a time, twelve in all: the batch shrinks at the end, and few requests meet the quick
    steps there.
    """
    result = run(
        load(name, ["requests.concurrency=8", "requests.count=12", "requests.output_tokens=150"])
    )
    law, kinds, steps = result.law_replayed, result.simulated.kinds, result.simulated.steps
    assert law.step_s == pytest.approx(result.simulated.step_s, rel=0.01)
    assert law.tokens_per_step == pytest.approx(result.simulated.tokens_per_step, rel=1e-9)
    strategy, cost, context = (
        result.scenario.schedule,
        result.scenario.cost,
        result.scenario.mean_context,
    )
    met = tokens = 0.0
    for kind, count in kinds.items():
        seconds = float(
            strategy.step_seconds(strategy.durations(cost, strategy.step(kind, context)), kind)
        )
        met += count / steps * kind.batch * seconds
        tokens += count / steps * kind.batch * law.tokens_per_step
    assert law.tpot_s == pytest.approx(met / tokens, rel=1e-9)
    assert law.tpot_s > law.step_s / law.tokens_per_step * 1.01


@pytest.mark.parametrize("prompt", [512, 30_000])
def test_one_request_alone_waits_and_proceeds_alike(prompt: int) -> None:
    """With nobody else in the batch the two ways of falling back are one process, at any
    context.
    """
    changes = ["requests.count=6", f"requests.prompt_tokens={prompt}", "requests.output_tokens=96"]
    times = []
    for others in ("wait", "proceed"):
        result = run(load("mirror_qwen3_32b_a100", [*changes, f"strategy.others={others}"]))
        times.append((result.simulated.tpot_s, result.law.tpot_s))
    assert times[0] == pytest.approx(times[1], rel=1e-6)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", MIRRORS)
def test_mirror_never_beats_vanilla_by_more_than_its_overlap(name: str) -> None:
    """S_mirror / S_vanilla <= 1 + Delta / T_target for the same draft and acceptance, at every
    window.
    """
    loaded = load(name)
    for gamma in range(1, 17):
        scenario = loaded.change(gamma=gamma).scenario
        mirror, kind = scenario.schedule, Kind("reuse", 1)
        assert isinstance(mirror, MirrorSD)
        t = mirror.durations(scenario.cost, mirror.step(kind, scenario.mean_context))
        serial = VanillaSD(gamma=gamma, drafter=mirror.drafter)
        s = serial.durations(scenario.cost, serial.step(Kind("step", 1), scenario.mean_context))
        same_draft = s._replace(draft=t.draft)
        for vanilla in (s, same_draft):
            ratio = serial.step_seconds(vanilla, Kind("step", 1)) / mirror.step_seconds(t, kind)
            assert ratio <= 1 + t.suffix / (t.prefix + t.suffix) + 1e-12


def test_a_strategy_whose_every_window_is_beyond_what_is_shown_has_no_sweep() -> None:
    few = [
        "strategy.gamma=64",
        "strategy.sequences=48",
        "strategy.divisors=false",
        "requests.count=2",
    ]
    assert window_sweep(load("duodecoding_llama_2_7b_a800", few)) == []


def test_zero_slope_and_then_the_draft_time_per_token() -> None:
    """Delta 18, 3 ms a draft token: flat to gamma* = 6, then 3 ms more per token, in law and
    simulation.
    """
    text = [
        "durations={prefix_ms: 18, suffix_ms: 18, draft_step_ms: 3, rv_ee_ms: 0.05, rv_fv_ms: 0.05}"
    ]
    sure = ["acceptance={always: 99}", "requests.count=2", "requests.output_tokens=121"]
    loaded = load("durations_only", [*text, *sure])
    steps = []
    for gamma in range(1, 12):
        steps.append(run(loaded.change(gamma=gamma)).simulated.step_s * 1e3)
    assert steps == pytest.approx([36.1] * 6 + [36.1 + 3 * extra for extra in range(1, 6)])
    assert [point.main_step_ms for point in window_sweep(loaded)] == pytest.approx(steps)


def test_on_hardware_the_step_is_the_target_plus_what_sticks_out() -> None:
    """The target itself takes longer for a longer window; beyond that, only the exposed draft
    counts.
    """
    loaded = load("mirror_qwen3_32b_a100")
    for gamma in range(1, 25):
        scenario = loaded.change(gamma=gamma).scenario
        mirror, kind = scenario.schedule, Kind("reuse", 1)
        t = mirror.durations(scenario.cost, mirror.step(kind, scenario.mean_context))
        beyond = mirror.step_seconds(t, kind) - (t.prefix + t.suffix + t.rv_ee + t.rv_fv)
        assert beyond == pytest.approx(max(0.0, t.draft - t.suffix), abs=1e-12)


def test_one_shared_device_serialises_and_the_law_says_it_is_a_bound() -> None:
    changes = ["draft.machine=a100", "draft.device=a100_80g_sxm", "channel=null", *FEW]
    result = run(load("mirror_qwen3_32b_a100", changes))
    assert result.law.relation.startswith("lower bound")
    assert result.simulated.step_s > result.law_replayed.step_s * 1.05
    assert any("share one lane" in note for note in result.caveats)


def test_the_overlap_emerges_from_two_lanes() -> None:
    """No formula stands in the timeline: the draft's spans lie beside the suffix's, and the step
    ends with the later.
    """
    result = run(load("mirror_qwen3_32b_a100", FEW))
    suffixes = [span for span in result.spans if span.label == "layers l_e+1..N"]
    drafts = [span for span in result.spans if span.label == "draft next window"]
    verified = [span for span in result.spans if span.label == "verification"]
    assert len(suffixes) == len(drafts) == len(verified) == result.simulated.steps
    for suffix, draft, end in zip(suffixes, drafts, verified, strict=True):
        assert suffix.start_s == draft.start_s
        assert end.start_s == pytest.approx(max(suffix.end_s, draft.end_s))


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    first, again, other = (
        result_data(run(load("mirror_qwen3_32b_a100", FEW, seed=seed))) for seed in (1, 1, 2)
    )
    assert json.dumps(first) == json.dumps(again)
    assert first["simulated"] != other["simulated"]


def test_json_is_one_object_with_the_promised_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(
        main, ["run", "mirror_qwen3_32b_a100", "--json", "--set", FEW[0], "--set", FEW[1]]
    )
    data = json.loads(result.stdout)
    assert {"step_ms", "tokens_per_step", "tpot_ms", "relation", "source"} <= set(data["law"])
    simulated = {
        "step_ms",
        "tokens_per_step",
        "tpot_ms",
        "tokens_per_s",
        "ttft_ms",
        "steps",
        "tokens",
    }
    assert simulated <= set(data["simulated"])
    assert simulated <= set(data["replay"])
    assert {"strategy", "tpot_ms"} <= set(data["baseline"])
    assert data["speedup"] == pytest.approx(
        data["baseline"]["tpot_ms"] / data["simulated"]["tpot_ms"]
    )
    assert {lane: set(value) for lane, value in data["lanes"].items()}["target"] == {
        "busy_fraction"
    }
    assert {"parameter", "value", "source", "confidence"} == set(data["provenance"][0])
    assert data["scenario"]["target"]["model"]["name"] == "qwen3_32b"
    assert list(tmp_path.iterdir()) == []


def test_a_run_writes_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["run", "durations_only", "--set", "requests.count=5"])
    assert result.exit_code == 0, result.output
    written = {path.name for path in (tmp_path / "reports/durations_only").iterdir()}
    pages = {"report.md", "report.html"}
    pictures = {"window_sweep.svg", "accepted_lengths.svg", "timeline.svg"}
    data = {"window_sweep.data.csv", "accepted_lengths.data.csv", "timeline.json"}
    assert written == pages | pictures | data
    named = [word for word in result.output.split() if word.startswith("reports/")]
    assert named == ["reports/durations_only/report.html"]


def test_the_batching_rule_is_applied_by_batch_size() -> None:
    found = {}
    for batch in (1, 16, 64):
        changes = ["strategy.batching_rule=true", f"requests.concurrency={batch}"]
        schedule = load("mirror_qwen3_32b_a100", changes).scenario.schedule
        assert isinstance(schedule, MirrorSD)
        found[batch] = (schedule.kappa, schedule.drafter.tokens_per_branch - 1)
    assert found == {1: (8, 2), 16: (4, 1), 64: (1, 1)}


# ---- the shipped traces


@pytest.mark.parametrize("name", TRACES)
def test_a_shipped_trace_is_sound_and_says_where_it_comes_from(name: str) -> None:
    trace = read(Catalogue().names("trace")[name])
    header = trace.header
    assert len(trace.flavours) >= 6
    assert header["command"].startswith(
        "python -m benchmarks.family --work DIR --out scenarios --family "
    )
    assert {source["licence"] for source in header["text"]["sources"].values()}
    for model in header["models"].values():
        assert model["loss"] > 0
        assert len(model["hash"]) == 32
        assert {"training_steps", "training_tokens", "seed", "parameters"} <= set(model)
    assert list(trace.exit_fractions) == [0.25, 0.5, 0.75]
    assert trace.repetition() < (0.6 if trace.temperature == 0 else 0.1)
    rates = [
        float(trace.accepted(0)[Replay(trace, [flavour]).positions()].mean())
        for flavour in trace.flavours
    ]
    assert min(rates) > 0.4
    assert max(rates) - min(rates) > 0.1


@pytest.mark.parametrize("message", ["per_position", "first_position"])
@pytest.mark.parametrize("name", TRACES)
def test_fallback_on_the_trace(name: str, message: str) -> None:
    """Monotone in kappa exactly, per position and per step; bounded by 1 - Omega per position only
    (K11).
    """
    trace = read(Catalogue().names("trace")[name])
    rates = fallback_rates(
        Replay(trace), MirrorSD.model_validate({"message": message}), widths=(1, 2, 4, 8, 16, 64)
    )
    for fraction in trace.exit_fractions:
        at = [rate for rate in rates if rate.exit_fraction == fraction]
        for narrow, wide in pairwise(at):
            assert wide.per_position <= narrow.per_position
            assert wide.per_step <= narrow.per_step
            assert wide.off_exit <= narrow.off_exit
    for rate in rates:
        assert rate.per_position <= rate.off_exit
        assert rate.per_step_low <= rate.per_step <= rate.per_step_high
    assert any(rate.per_step > rate.off_exit for rate in rates), (
        "the printed corollary does not hold per step"
    )


def test_replayed_windows_are_those_of_a_plain_walk_over_the_shipped_trace() -> None:
    """A second implementation: run lengths counted by hand on the arrays, request by request."""
    loaded = load("vanilla_qwen3_32b_a100", ["requests.count=24", "requests.output_tokens=150"])
    replay = loaded.acceptance()
    assert isinstance(replay, Replay)
    counted: dict[int, int] = {}
    for request in range(24):
        recording = replay.order[request]
        start = int(replay.trace.offsets[recording]) + 1
        tokens, position = 1, start
        while tokens < 150:
            accepted = 0
            while accepted < 7 and replay.accepted[position + accepted]:
                accepted += 1
            counted[accepted] = counted.get(accepted, 0) + 1
            position += accepted + 1
            tokens += accepted + 1
    outcome, _ = simulate(loaded.scenario, replay)
    assert dict(outcome.accepted) == dict(sorted(counted.items()))


def test_the_marginal_law_misses_what_comes_in_bursts() -> None:
    """Both gaps are real and reported: marginal rates against the replay, replayed means against
    the simulation.
    """
    loaded = load("mirror_qwen3_32b_a100")
    result = run(loaded)
    marginal = law(loaded.scenario, loaded.acceptance())
    assert marginal.tokens_per_step != pytest.approx(result.simulated.tokens_per_step, rel=1e-3)
    assert result.law_replayed.tokens_per_step == pytest.approx(
        result.simulated.tokens_per_step, rel=1e-9
    )
    assert np.isfinite(result.speedup)


def test_a_streaming_draft_that_nothing_was_recorded_of_says_so() -> None:
    """A rate alone: two streams count two tokens a pass. With a recording, or where it is stated,
    nothing is said.
    """
    stated = ["acceptance.trace=null", "acceptance.stand_in=false", "acceptance.rate=0.8", *FEW]
    said = run(load("mirror_qwen3_32b_m2_ultra", stated)).caveats
    assert any("with 2 streams writes: one token a stream" in note for note in said), said
    for known in (
        FEW,
        [*stated, "strategy.drafter.emitted=[1.75]"],
        [*stated, "strategy.drafter={name: autoregressive}"],
    ):
        assert not any(
            "one token a stream" in note
            for note in run(load("mirror_qwen3_32b_m2_ultra", known)).caveats
        ), known


@pytest.mark.parametrize(
    "name", ["durations_only", "mirror_qwen3_32b_m2_ultra", "autoregressive_qwen3_32b_a100"]
)
def test_a_run_ends_with_few_lines(name: str, tmp_path: Path) -> None:
    """The rest is in its report, or printed with ``--long``."""
    command = [
        "run",
        name,
        "--set",
        "requests.count=3",
        "--set",
        "requests.output_tokens=24",
        "--out",
        str(tmp_path / "out"),
    ]
    short, long = (
        CliRunner().invoke(main, [*command, *more], env={"COLUMNS": "80"})
        for more in ([], ["--long"])
    )
    assert short.exit_code == long.exit_code == 0, short.output + long.output
    assert 3 <= len(short.stdout.splitlines()) <= 25
    assert short.stdout.splitlines()[0].startswith(name)
    assert len(long.stdout.splitlines()) > 40
