"""A service that is a simulation is observed and calibrated, and gives its numbers back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from simulator.cli.main import main
from simulator.evidence.live.cases import is_held_out, observed_case, pass_ms
from simulator.evidence.live.terms import TERMS, written
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.services.measured import ServedPass
from simulator.inputs.writing import csv_text
from simulator.scenario import load
from tests.live_files import write_service

CLOSE = 0.01
ENGINE = {
    "like": "vllm",
    "launch": "synchronous",
    "asynchronous": False,
    "graph_rows": [],
    "host_us_per_layer": 10,
    "schedule_us": 1_000,
    "schedule_us_per_request": 100,
    "outside_ms": 20,
    "verified_row_us": 50,
}
TRUE_ENGINE = ENGINE | {"outside_ms": 60, "schedule_us_per_request": 1_500}
EFFICIENCIES = {"memory_efficiency": 0.5, "compute_efficiency": 0.5}
TRUE_EFFICIENCIES = {"memory_efficiency": 0.25, "compute_efficiency": 0.1}
PLAIN = {"name": "autoregressive"}
DRAFTING = {"name": "vanilla_sd", "gamma": 3}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def device(efficiencies: dict[str, float]) -> dict[str, Any]:
    default = {name: {"value": value} for name, value in efficiencies.items()}
    return {"like": "xeon_16_cores", "matmul": {"default": default}}


def scenario(folder: Path, name: str, strategy: dict[str, Any], clients: int, of: str) -> Path:
    """A closed loop of 24 requests of different lengths, under an engine and a device ``of`` one
    name.
    """
    (folder / "sessions.csv").write_text(
        "session,prompt_tokens,output_tokens\n"
        + "".join(f"{i},{40 + 97 * i % 500},{12 + 7 * i % 30}\n" for i in range(24))
    )
    place = {"device": f"./{of}_device.yaml", "engine": f"./{of}_engine.yaml", "weights": "bf16"}
    data: dict[str, Any] = {
        "strategy": strategy,
        "target": {"model": "tinyllama_1_1b", "machine": "here", **place},
        "requests": {
            "concurrency": clients,
            "sessions": {"name": "file", "file": "sessions.csv", "between_s": 0.06},
        },
        "serving": {
            "policy": {"name": "engine"},
            "memory": {"prefix_caching": False, "kv_tokens": 50_000},
        },
    }
    if strategy is DRAFTING:
        data["draft"] = {"model": "llama_68m", "machine": "here", **place}
        data["acceptance"] = {"per_position": [0.8, 0.7, 0.6]}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scenario to start from, and what was observed of a service with other numbers."""
    folder = tmp_path_factory.mktemp("service")
    for name, content in {
        "like_engine": ENGINE,
        "true_engine": TRUE_ENGINE,
        "like_device": device(EFFICIENCIES),
        "true_device": device(TRUE_EFFICIENCIES),
    }.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    scenario(folder, "like", DRAFTING, 1, "like")
    for name, strategy, clients in (
        ("plain_1", PLAIN, 1),
        ("plain_8", PLAIN, 8),
        ("k_3", DRAFTING, 4),
    ):
        truth = load(str(scenario(folder, f"true_{name}", strategy, clients, "true")))
        files = write_service(folder / f"files_{name}", truth)
        done = run("observe", *files, "--out", folder / name)
        assert done.exit_code == 0, done.output
    return folder


def calibrated(world: Path, *arguments: object) -> dict[str, Any]:
    """What ``calibrate service`` says as JSON."""
    done = run("calibrate", "service", *arguments, "--like", world / "like.yaml", "--json")
    assert done.exit_code == 0, done.output
    data: dict[str, Any] = json.loads(done.stdout, parse_constant=pytest.fail)
    return data


def terms(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {term["name"]: term for term in data["terms"]}


def seen(world: Path, *names: str) -> list[Path]:
    return [world / name / "observed.yaml" for name in names]


@pytest.mark.full
def test_a_known_service_gives_its_numbers_back(world: Path, tmp_path: Path) -> None:
    data = calibrated(world, *seen(world, "plain_1", "plain_8", "k_3"), "--out", tmp_path / "fit")
    numbers = terms(data)
    for name, value in {
        "engine.outside_ms": 60,
        "device.matmul.memory_efficiency": 0.25,
        "device.matmul.compute_efficiency": 0.1,
        "engine.schedule_us_per_request": 1_500,
    }.items():
        assert numbers[name]["identified"], name
        assert numbers[name]["value"] == pytest.approx(value, rel=CLOSE), name
    assert not numbers["engine.schedule_us"]["identified"]
    assert numbers["engine.schedule_us"]["value"] == 1_000
    assert "not told apart from" in numbers["engine.schedule_us"]["kept"]
    held = [score for score in data["scores"] if score["part"] == "held out"]
    assert {score["observation"] for score in held} == {"plain_1", "plain_8", "k_3"}
    for score in held:
        for error in ("tpot_error", "ttft_error", "throughput_error"):
            assert abs(score[error]) < CLOSE, score
        assert abs(score["tpot_before"]) > 10 * CLOSE
    written = load(str(tmp_path / "fit" / "scenario.yaml")).scenario
    assert written.target is not None
    assert written.target.engine.outside_ms.value == pytest.approx(60, rel=CLOSE)
    assert written.target.engine.outside_ms.confidence == "calibrated"
    assert run("run", tmp_path / "fit" / "observation_3" / "scenario.yaml").exit_code == 0


def test_an_observation_that_is_held_out_is_simulated_and_not_fitted(world: Path) -> None:
    data = calibrated(
        world,
        *seen(world, "plain_1"),
        "--hold-out",
        *seen(world, "plain_8"),
        "--free",
        "device.matmul.compute_efficiency",
        "--free",
        "engine.verified_row_us",
    )
    parts = [(score["observation"], score["part"], score["requests"]) for score in data["scores"]]
    assert parts == [
        ("plain_1", "fitted", 18),
        ("plain_1", "held out", 6),
        ("plain_8", "held out", 24),
    ]
    assert set(terms(data)) == {"device.matmul.compute_efficiency", "engine.verified_row_us"}
    kept = terms(data)["engine.verified_row_us"]["kept"]
    assert kept == "nothing is drafted in these files; a run with speculation would tell it"


def test_about_one_request_of_four_is_held_out_whatever_its_times() -> None:
    held = [row for row in range(1, 401) if is_held_out(row)]
    assert held[:6] == [4, 6, 14, 16, 21, 23]
    assert len(held) == 99


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--free", "engine.outside"], "there is no term 'engine.outside'; did you mean"),
        (["--hold-out", "plain_1/observed.yaml"], "expected each observation once"),
    ],
)
def test_what_cannot_be_fitted_is_said(world: Path, options: list[str], message: str) -> None:
    options = [str(world / word) if "/" in word else word for word in options]
    done = run(
        "calibrate", "service", *seen(world, "plain_1"), "--like", world / "like.yaml", *options
    )
    assert done.exit_code == 2
    assert message in done.stderr


def test_stated_durations_have_no_terms(world: Path) -> None:
    done = run("calibrate", "service", *seen(world, "plain_1"), "--like", "durations_only")
    assert done.exit_code == 2
    assert "states durations, of which no device or engine can be fitted" in done.stderr


def test_the_page_says_errors_first_then_terms_and_what_would_tell_others(world: Path) -> None:
    done = run(
        "calibrate",
        "service",
        *seen(world, "plain_1"),
        "--like",
        world / "like.yaml",
        "--free",
        "engine.outside_ms",
    )
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "like_device under like_engine, fitted to plain_1"
    assert "requests that were held out: time per token" in " ".join(" ".join(lines[1:3]).split())


def test_a_log_is_replayed_request_by_request(world: Path, tmp_path: Path) -> None:
    """By the numbers that it was made with every request takes as long as it took, by others none
    does.
    """
    words = ("calibrate", "replay", *seen(world, "k_3"))
    done = run(*words, "--like", world / "true_k_3.yaml", "--json")
    assert done.exit_code == 0, done.output
    times = {each["time"]: each for each in json.loads(done.stdout)["times"]}
    assert list(times) == ["ttft", "tpot", "e2e"]
    for each in times.values():
        assert each["requests"] == 24
        assert abs(each["worst_error"]) < 1e-4
        assert each["correlation"] == pytest.approx(1.0)
    done = run(*words, "--like", world / "like.yaml", "--out", tmp_path / "replay")
    assert done.exit_code == 0, done.output
    assert "Median errors of a request: time to first token" in " ".join(done.stdout.split())
    assert "each with the steps that it took" in " ".join(done.stdout.split())
    head, *rows = (tmp_path / "replay" / "replayed_requests.csv").read_text().splitlines()
    assert head.split(",")[:3] == ["row", "prompt_tokens", "output_tokens"]
    assert [row.split(",")[0] for row in rows] == [str(row) for row in range(1, 25)]
    assert (tmp_path / "replay" / "replayed.svg").exists()


def test_arrivals_are_kept_where_they_are_asked_for(world: Path) -> None:
    words = ("calibrate", "replay", *seen(world, "plain_8"), "--like", world / "like.yaml")
    came = []
    for option in ([], ["--arrivals"]):
        requests = json.loads(run(*words, *option, "--json").stdout)["requests"]
        came.append([request["simulated_arrival_s"] for request in requests])
        measured = [request["measured_arrival_s"] for request in requests]
    assert came[0] != pytest.approx(measured, abs=1e-3)
    assert came[1] == pytest.approx(measured, abs=1e-3)


def test_sums_cannot_be_replayed(tmp_path: Path) -> None:
    path = tmp_path / "observed.yaml"
    load_of_sums = "{requests: 4, prompt_tokens: 400, output_tokens: 40, arrival_rate_per_s: 1}"
    path.write_text(f"observed: 1\nbottleneck: none\nload: {load_of_sums}\n")
    done = run("calibrate", "replay", path, "--like", "vanilla_llama_2_7b_a100")
    assert done.exit_code == 2
    assert "holds no times of each request" in done.stderr


def test_passes_with_their_composition_are_fitted(world: Path, tmp_path: Path) -> None:
    """Passes of one request and of eight behind 100 tokens each, with a prompt of 50 or without, as
    long as they are with the true numbers, give two of these back.
    """
    truth = observed_case(
        seen(world, "plain_1")[0], str(world / "true_plain_1.yaml"), tmp_path / "truth", Catalogue()
    )
    passes = []
    for requests in (1, 8, 1, 8):
        for prompts in (0, 1, 0):
            one = ServedPass(0, 1.0, prompts, 50 * prompts, 0, requests, 100 * requests, None)
            passes.append(one._replace(wall_ms=pass_ms(truth, truth.scenario, one)))
    table = csv_text(ServedPass._fields, passes)
    (tmp_path / "observed_passes.csv").write_text(table)
    path = tmp_path / "observed.yaml"
    path.write_text("observed: 1\nbottleneck: none\npasses_file: observed_passes.csv\n")
    free = ["device.matmul.memory_efficiency", "engine.schedule_us_per_request"]
    like = world / "plain_like.yaml"
    like.write_text((world / "true_plain_1.yaml").read_text().replace("./true_", "./like_"))
    done = run(
        *("calibrate", "service", path, "--like", like, "--json"),
        *("--free", free[0], "--free", free[1], "--free", "device.matmul.compute_efficiency"),
    )
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    numbers = terms(data)
    assert {score["part"]: score["pass_error"] for score in data["scores"]} == pytest.approx(
        {"fitted": 0.0, "held out": 0.0}, abs=1e-3
    )
    assert numbers[free[0]]["value"] == pytest.approx(0.25, rel=CLOSE)
    assert numbers[free[1]]["value"] == pytest.approx(1_500, rel=CLOSE)


def test_a_fitted_device_is_read_again(tmp_path: Path) -> None:
    """Each time and efficiency of a device may be fitted: its file has no ranges of them."""
    device = yaml.safe_load(Path("hardware_profiles/devices/xeon_16_cores.yaml").read_text())
    for term in TERMS:
        if term.part == "device":
            written(term, device, 0.5, 0.1, "mine")
    (tmp_path / "device.yaml").write_text(yaml.safe_dump(device))
    loaded = load("ngram_qwen3_30b_a3b_h200", [f"target.device={tmp_path / 'device.yaml'}"])
    assert loaded.scenario.target is not None
    assert loaded.scenario.target.device.small_operations.fixed_us.value == 0.5
