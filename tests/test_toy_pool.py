"""A router of another package, with replicas of two roles: a scenario runs it by its name, with
nothing of ours edited.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.packages import specsim_with

ROOT = Path(__file__).parent.parent
TOY = ROOT / "tests/toy_pool"
TRAFFIC = """arrival_s,prompt_tokens,output_tokens
0,100,3
0,8,3
0,100,2
0,8,2
0.005,8,3
0.005,8,2
"""
SCENARIO = """strategy: autoregressive
durations: {target_ms: 10, prefill_ms: 20}
requests: {arrivals: {name: file, file: six.csv, format: csv}}
serving:
  policy: {name: fixed_batch, max_requests: 1}
  replicas: 3
  router: {name: long_prompts_apart, short_tokens: 50}
"""
TIMELINE = [  # start, end (ms), kind, request, who waits there, replica
    (0, 20, "prefill", 0, 1, 1),  # request 2 is long, too, and waits though others are free
    (0, 20, "prefill", 1, 0, 2),
    (0, 20, "prefill", 3, 0, 3),
    (20, 30, "step", 0, 1, 1),
    (20, 30, "step", 1, 1, 2),  # 4 and 5 came at 5 ms, one to each short replica
    (20, 30, "step", 3, 1, 3),
    (30, 40, "step", 0, 1, 1),
    (30, 40, "step", 1, 1, 2),
    (30, 50, "prefill", 5, 0, 3),
    (40, 60, "prefill", 2, 0, 1),
    (40, 60, "prefill", 4, 0, 2),
    (50, 60, "step", 5, 0, 3),
    (60, 70, "step", 2, 0, 1),
    (60, 70, "step", 4, 0, 2),
    (70, 80, "step", 4, 0, 2),
]


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """Two long prompts and four short ones; a replica serves one request at a time."""
    (tmp_path / "six.csv").write_text(TRAFFIC, "utf-8")
    file = tmp_path / "six.yaml"
    file.write_text(SCENARIO, "utf-8")
    return file


def specsim(*words: str, package: Path | None = TOY) -> subprocess.CompletedProcess[str]:
    """Run a command with ``package`` on the path, or with none."""
    return specsim_with(package, *words, COLUMNS="400")


def test_each_pool_serves_its_own_prompts(scenario: Path) -> None:
    log = scenario.with_name("iterations.csv")
    done = specsim("run", str(scenario), "--iteration-log", str(log), "--json")
    assert done.returncode == 0, done.stderr
    lines = []
    with log.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            start_ms = 1000 * float(line["start_s"])
            end_ms = start_ms + 1000 * float(line["duration_s"])
            numbers = (int(line["requests"]), int(line["waiting"]), int(line["replica"]))
            lines.append((round(start_ms, 6), round(end_ms, 6), line["kind"], *numbers))
    assert lines == TIMELINE
    replicas = json.loads(done.stdout)["simulated"]["replicas"]
    assert [(replica["role"], replica["requests"]) for replica in replicas] == [
        ("long", 2),
        ("short", 2),
        ("short", 2),
    ]


def test_its_rule_its_fields_and_its_roles_are_shown(scenario: Path) -> None:
    explained = specsim("explain", str(scenario)).stdout
    assert "3 replicas (1 long, 2 short). Long prompts apart: one pool takes prompts" in explained
    assert "serving.router.long_replicas = 1" in explained
    assert "serving.router.short_tokens" not in explained, "it is no default"
    schema = json.loads(specsim("schema", "scenario").stdout)
    fields = schema["$defs"]["LongPromptsApart"]["properties"]
    assert fields["long_replicas"]["description"] == "Replicas that take long prompts."
    report = scenario.with_name("report")
    printed = specsim("run", str(scenario), "--long", "--out", str(report)).stdout
    assert re.search(r"replica +role", printed)
    page = (report / "report.md").read_text("utf-8")
    assert "| replica | role | requests |" in page
    assert "3 replicas behind long prompts apart" in page


@pytest.mark.parametrize(
    ("router", "faults"),
    [
        ("long_prompts_apart", ["serving.router.short_tokens: is required and missing"]),
        (
            "{name: long_prompts_apart, short_tokens: 50, long_replica: 2}",
            ["serving.router.long_replica: unknown field; did you mean 'long_replicas'?"],
        ),
        (
            "{name: long_prompts_apart, short_tokens: 50, long_replicas: 3}",
            ["serving.router: long_prompts_apart makes 3 long and 0 short of 3 replicas; "],
        ),
        (
            "long_prompts_aprt",
            [
                "there is no router 'long_prompts_aprt'; did you mean 'long_prompts_apart'?; ",
                "entry points of the group specsim.routers (long_prompts_apart)",
            ],
        ),
    ],
)
def test_what_is_wrong_with_it_is_said_at_its_field(
    scenario: Path, router: str, faults: list[str]
) -> None:
    done = specsim("run", str(scenario), "--set", f"serving.router={router}")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    for fault in faults:
        assert fault in done.stderr


def test_without_the_package_the_fault_says_how_routers_are_found(scenario: Path) -> None:
    done = specsim("run", str(scenario), package=None)
    assert done.returncode == 2
    assert "six.yaml:7:3: serving.router: there is no router 'long_prompts_apart'" in done.stderr
    assert "entry points of the group specsim.routers (none is installed" in done.stderr
