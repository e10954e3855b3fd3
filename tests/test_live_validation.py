"""Live decoding in every mode takes the steps of its simulation, and this machine's profile is one
that runs; never seconds.
"""

from __future__ import annotations

import json
import os
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch", reason="needs the extra 'record'")

from benchmarks.family.draft_tree import TravellingTree
from benchmarks.family.pair import Family
from benchmarks.family.tree_drafter import TreeDrafter
from benchmarks.live import (
    machine,
    pipeline as live_pipeline,
    validation as live_validation,
)
from benchmarks.live.__main__ import main as live_main
from benchmarks.live.budget import PAIR, beside
from benchmarks.live.costs import Samples, slowdown
from benchmarks.live.decoding import alone
from benchmarks.live.validation import BOUNDS, Live, LivePoint, Setting, validate
from simulator.cli.main import main
from simulator.core.acceptance.draft_tree import Beam
from simulator.inputs.catalogue import Catalogue, shipped
from simulator.scenario import load
from simulator.scenario.evaluate import run

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores"),
]


def test_every_mode_takes_the_steps_that_its_scenario_simulates(tmp_path: Path) -> None:
    ticks, before = count(), os.sched_getaffinity(0)
    validation = validate(
        (3,), tokens=12, requests=2, rounds=2, out=tmp_path, tick=lambda: next(ticks)
    )
    assert next(ticks) == 4
    assert os.sched_getaffinity(0) == before
    assert {point.setting.strategy for point in validation.points} == {
        "autoregressive",
        "vanilla_sd",
        "duodecoding",
        "specpipe",
    }
    for one in validation.points:
        assert one.identical == one.requests == 4, one.setting
        assert len(one.measured_ms) == len(one.predicted_ms) == 2
        name = f"{one.setting.strategy}{one.setting.gamma or ''}.yaml"
        assert run(load(str(tmp_path / name))).simulated.tpot_s * 1e3 == pytest.approx(
            one.predicted_ms[-1], rel=1e-12
        )


@pytest.mark.parametrize("beam", [Beam(8, 8, 2), Beam(1, 2, 2)])
def test_two_stages_write_what_the_target_writes_passage_for_passage(
    family: Family, prompts: torch.Tensor, beam: Beam
) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    with beside(shipped() / PAIR, cores, live_pipeline.second_stage_process) as connection:
        for request in (0, 4):
            prompt = prompts[request].tolist()
            done = live_pipeline.decode(family, connection, prompt, 24, beam)
            assert done.tokens == alone(family.target, prompt, 24).tokens
            drafter = TreeDrafter(family.modules["draft"], [*prompt, *done.tokens], beam.branching)
            tree = TravellingTree(done.tokens[0], len(prompt), drafter, beam)
            assert [tree.verify(token) for token in done.tokens[1:]] == done.passages


def test_a_machine_becomes_a_profile_that_scenarios_run_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        machine, "SHAPES", {name: machine.SHAPES[name] for name in ("small target", "small draft")}
    )
    monkeypatch.setattr(machine, "TOKENS", (1, 8))
    monkeypatch.setattr(machine, "CONTEXTS", (64,))
    before = os.sched_getaffinity(0)
    done = CliRunner().invoke(
        live_main, ["machine", "here", "--out", str(tmp_path), "--kind", "cpu", "--json"]
    )
    assert done.exit_code == 0, done.output
    assert os.sched_getaffinity(0) == before
    assert len(json.loads(done.stdout)["written"]) == 3
    own = Catalogue((tmp_path,))
    on_it = [
        f"target.{part}={value}"
        for part, value in (("device", "here"), ("engine", "here"), ("weights", "fp32"))
    ]
    small = ["target.weights=fp32", "target.model=tinyllama_1_1b", "draft.model=llama_68m"]
    loaded = load("vanilla_llama_2_7b_a100", [*on_it, *small], own)
    assert run(loaded).simulated.tpot_s > 0.0
    numbers = loaded.scenario.target.device
    assert numbers.memory_bandwidth_gb_s.confidence == numbers.peak_tflops.confidence == "measured"
    arguments = [
        "calibrate",
        "device",
        str(tmp_path / "here.csv"),
        "--like",
        "xeon_16_cores",
        "--quick",
        "--json",
    ]
    assert CliRunner().invoke(main, arguments).exit_code == 0


# ---- what is made of the times


@pytest.mark.parametrize("command", ["validation", "decoding"])
def test_both_commands_print_a_row_for_each_setting_and_keep_a_page(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = Live(
        [LivePoint(Setting(name, 2), [10.0, 10.0], [9.0, 9.0], 4, 4) for name in BOUNDS],
        "wall",
        (0.5, 1.0),
    )
    monkeypatch.setattr(live_validation, "validate", lambda *asked, **options: found)
    done = CliRunner().invoke(live_main, [command, "--out", str(tmp_path / "live")])
    assert done.exit_code == 3
    rows = [line.split()[:6] for line in done.stdout.splitlines() if line.startswith(tuple(BOUNDS))]
    assert rows[: len(BOUNDS)] == [[name, "2", "10.0", "9.00", "-10.0", "%"] for name in BOUNDS]
    assert "2 of 4 settings are predicted within their bounds" in done.stdout
    written = {"live.md", "live.html", "live.csv", "live.svg", "live.data.csv"}
    assert {path.name for path in (tmp_path / "live").iterdir()} == written
    text = (tmp_path / "live/live.md").read_text("utf-8")
    assert text.startswith("# Live decoding beside its prediction\n")
    assert (
        "**2 of 4 settings are predicted within their bounds, half of them within 10.0 %;" in text
    )
    assert f"torch {torch.__version__}" in text
    assert (
        "python -m benchmarks.live decoding --gammas 1,2,3,4,6,8 --clock wall --tokens 48" in text
    )


def test_error_spread_and_interval_of_round_numbers() -> None:
    point = LivePoint(
        Setting("vanilla_sd", 2), [10.0, 12.0, 8.0], [9.0, 12.0, 8.0], requests=3, identical=3
    )
    assert (point.error, point.spread, point.bound) == (0.0, 0.2, 0.2)
    low, high = point.interval_ms
    assert low < 8.0
    assert high > 12.0
    assert (point.covered, point.held) == (3, True)
    off = LivePoint(
        Setting("autoregressive", 0), [10.0, 10.0], [11.0, 11.0], requests=2, identical=2
    )
    assert off.error == pytest.approx(0.1)
    assert (off.bound, off.held, off.covered) == (0.08, False, 0)
    windows = [
        LivePoint(Setting(name, g), [1.0 + abs(g - 2)], [1.0 + abs(g - 3)])
        for name in ("vanilla_sd", "duodecoding")
        for g in (1, 2, 3)
    ]
    found = Live([point, off, *windows], "wall", (0.0, 0.0))
    assert Live(windows, "wall", (0.0, 0.0)).windows() == {
        "vanilla_sd": (2, 3),
        "duodecoding": (2, 3),
    }
    assert Live([point], "wall", (0.0, 0.0)).exit_code == 0
    assert Live([off], "wall", (0.0, 0.0)).exit_code == found.exit_code == 3
    off.identical = 1
    assert Live([off], "wall", (0.0, 0.0)).exit_code == 1


def test_a_slowdown_is_what_company_costs_and_never_a_gain() -> None:
    samples = Samples()
    for what, seconds in (
        ("target apart", 4.0),
        ("target beside", 5.0),
        ("draft apart", 1.0),
        ("draft beside", 1.25),
    ):
        samples.add(what, 1, seconds)
    assert slowdown(samples) == pytest.approx(1.25)
    samples.seconds["draft beside", 1][0] = samples.seconds["target beside", 1][0] = 0.5
    assert slowdown(samples) == 1.0
