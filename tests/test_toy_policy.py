"""A scheduling policy of another package: a scenario runs it by its name, with nothing of ours
edited.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.packages import specsim_with

ROOT = Path(__file__).parent.parent
TOY = ROOT / "tests/toy_policy"
TRAFFIC = """arrival_s,prompt_tokens,output_tokens
0,8,40
0,8,30
0,8,20
0,8,10
"""
SCENARIO = """strategy: autoregressive
durations: {target_ms: 10}
requests: {arrivals: {name: file, file: four.csv, format: csv}}
serving: {policy: {name: shortest_first, max_requests: 1}}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """Four answers of 40, 30, 20 and 10 tokens, asked for at once and served one at a time."""
    (tmp_path / "four.csv").write_text(TRAFFIC, "utf-8")
    file = tmp_path / "four.yaml"
    file.write_text(SCENARIO, "utf-8")
    return file


def specsim(*words: str, package: Path | None = TOY) -> subprocess.CompletedProcess[str]:
    """Run a command with ``package`` on the path, or with none."""
    return specsim_with(package, *words)


def finished(scenario: Path, *words: str) -> list[tuple[int, float]]:
    """Return number and time of the last token of each request, in the order of leaving."""
    log = scenario.with_name("requests.csv")
    report = scenario.with_name("report")
    done = specsim("run", str(scenario), "--request-log", str(log), "--out", str(report), *words)
    assert done.returncode == 0, done.stderr
    with log.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    return [(int(line["request"]), float(line["finished_s"])) for line in lines]


def test_a_scenario_runs_a_policy_on_the_path_by_its_name(scenario: Path) -> None:
    by_length = [(3, 0.09), (2, 0.28), (1, 0.57), (0, 0.96)]  # n tokens: n - 1 steps of 10 ms
    assert finished(scenario) == [(number, pytest.approx(end)) for number, end in by_length]
    in_turn = [(0, 0.39), (1, 0.68), (2, 0.87), (3, 0.96)]
    assert finished(scenario, "--set", "serving.policy.name=prefill_first") == [
        (number, pytest.approx(end)) for number, end in in_turn
    ]


def test_its_fields_and_its_rule_are_shown(scenario: Path) -> None:
    explained = specsim("explain", str(scenario))
    assert "Shortest output first" in explained.stdout, explained.stderr
    done = specsim("run", str(scenario), "--set", "serving.policy.max_request=1")
    assert done.returncode == 2
    assert "unknown field; did you mean 'max_requests'?" in done.stderr
    schema = json.loads(specsim("schema", "scenario").stdout)
    assert "ShortestFirst" in schema["$defs"]


def test_it_preempts_and_speculates_with_balanced_books(scenario: Path) -> None:
    """Memory runs out while windows are drafted; a run whose books do not balance fails."""
    words = ["--set", "strategy=vanilla_sd", "--set", "acceptance.rate=0.5"]
    words += ["--set", "durations={target_ms: 10, draft_step_ms: 1, rv_fv_ms: 0}"]
    words += ["--set", "serving.policy.max_requests=4", "--set", "serving.memory.kv_tokens=96"]
    done = specsim("run", str(scenario), *words, "--json")
    assert done.returncode == 0, done.stderr
    served = json.loads(done.stdout)["simulated"]["serving"]
    assert served["requests"] == 4
    assert served["preemptions"] > 0


def test_without_the_package_the_fault_says_how_policies_are_found(scenario: Path) -> None:
    done = specsim("run", str(scenario), package=None)
    assert done.returncode == 2
    assert "there is no policy 'shortest_first'" in done.stderr
    assert "entry points of the group specsim.policies (none is installed" in done.stderr
    near = specsim("run", str(scenario), "--set", "serving.policy.name=shortest_frst")
    assert "did you mean 'shortest_first'?" in near.stderr
    assert "specsim.policies (shortest_first)" in near.stderr


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("import no_such_module\n", "cannot be loaded: ModuleNotFoundError: No module named"),
        ("class Shortest: ...\n", "cannot be loaded: AttributeError: module"),
        ("class ShortestFirst: ...\n", "is no class derived from Policy"),
    ],
)
def test_a_broken_package_is_named_in_a_line(
    tmp_path: Path, scenario: Path, module: str, reason: str
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(TOY, broken)
    (broken / "toy_shortest_first.py").write_text(module, "utf-8")
    done = specsim("run", str(scenario), package=broken)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    entry = "specsim.policies: shortest_first (toy_shortest_first:ShortestFirst)"
    assert line.startswith(f"error: package toy-shortest-first 1.0: {entry} {reason}")
