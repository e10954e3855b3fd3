"""A strategy of another package: found, listed, run, and held to its law; a wrong law is caught."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from tests.packages import python_with, specsim_with

ROOT = Path(__file__).parent.parent
TOY = ROOT / "tests/toy_strategy"
RIGHT = "return t.half + np.maximum(t.half, t.rv) + t.rv + t.target"
WRONG = "return 7 * t.half + t.target"
STATED = [
    "--set",
    "strategy=chunked_sd",
    "--set",
    "durations={target_ms: 30, draft_step_ms: 5, rv_fv_ms: 2}",
]
LAW_TEST = "tests/test_laws.py::test_every_law_keeps_its_claim_on_its_example[chunked_sd]"
LIST_TEST = "tests/test_house.py::test_list_names_everything_once"


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """The toy with a law of 100 ms for steps of 52 ms."""
    folder = tmp_path / "wrong"
    shutil.copytree(TOY, folder)
    module = folder / "toy_chunked_sd.py"
    text = module.read_text("utf-8")
    assert text.count(RIGHT) == 1
    module.write_text(text.replace(RIGHT, WRONG), "utf-8")
    return folder


def called(package: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with ``package`` on the path."""
    return python_with(package, *words, COLUMNS="100")


def specsim(package: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return specsim_with(package, *words, COLUMNS="100")


def test_a_strategy_on_the_path_is_listed_shown_run_and_validated() -> None:
    listed = json.loads(specsim(TOY, "list", "strategy", "--json").stdout)["strategy"]
    assert listed["chunked_sd"] == "of another package: toy_chunked_sd:ChunkedSD"
    assert "T_half + max{T_half, T_rv}" in specsim(TOY, "show", "chunked_sd").stdout
    data = json.loads(
        specsim(TOY, "run", "durations_only", *STATED, "--set", "requests.count=2", "--json").stdout
    )
    assert data["simulated"]["step_ms"] == pytest.approx(52.0)
    assert data["agreement"]["claim"] == "exact"
    assert data["agreement"]["disagreement"] is False
    assert data["agreement"]["gap"] == pytest.approx(0.0, abs=1e-9)
    held = specsim(TOY, "validate", "--law", "chunked_sd")
    assert (held.returncode, "FAIL" in held.stdout) == (0, False), held.stderr
    assert "PASS" in held.stdout


def test_the_law_test_and_the_listing_find_it_by_themselves() -> None:
    done = called(TOY, "-m", "pytest", "-q", "-p", "no:cacheprovider", LAW_TEST, LIST_TEST)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout or ".." in done.stdout


def test_a_wrong_law_is_caught_by_the_law_test(wrong: Path) -> None:
    done = called(wrong, "-m", "pytest", "-q", "-p", "no:cacheprovider", LAW_TEST)
    assert done.returncode == 1, done.stdout
    assert "chunked_sd: FAIL" in done.stdout


def test_a_wrong_law_is_called_a_disagreement_by_every_command(wrong: Path, tmp_path: Path) -> None:
    held = specsim(wrong, "validate", "--law", "chunked_sd", "--json")
    assert held.returncode == 3, held.stderr
    data = json.loads(held.stdout)
    assert data["disagreement"] is True
    assert "100 ms by law, 52 ms by the process" in data["examples"][0]["words"]
    words = ["run", "durations_only", *STATED, "--set", "requests.count=2", "--explain-gap"]
    printed = specsim(wrong, *words, "--out", str(tmp_path / "report")).stdout
    assert "FAIL" in printed
    page = (tmp_path / "report/report.md").read_text("utf-8")
    assert "FAIL: the law claims to be exact, and its step is 92.3 % longer" in page
    assert "unexplained" in page
    assert "May be due to: the law or the timeline is wrong, as they disagree; no other" in page
    assert "are verified but not delivered" not in printed + page
    found = json.loads(specsim(wrong, *words, "--json").stdout)
    assert found["agreement"]["disagreement"] is True
    assert found["agreement"]["gap"] == pytest.approx(100 / 52 - 1)
    shares = {part["reason"]: part["share_percent"] for part in found["gap_parts"]}
    assert sum(shares.values()) == pytest.approx(100.0)
    assert shares["unexplained"] > 80.0
    unasked = json.loads(specsim(wrong, *words[:-1], "--json").stdout)
    assert "gap_parts" not in unasked


def test_a_package_is_installed_as_the_page_says(tmp_path: Path) -> None:
    """Into an environment without pip, by the pip of the Python around it; offline, so that nothing
    else is fetched.
    """
    root = Path(__file__).resolve().parents[1]
    page = (root / "CONTRIBUTING.md").read_text("utf-8")
    command = re.search(r"`python3 (-m pip --python) \S+/.venv (install -e \.)`", page)
    assert command, "the page installs into an environment that has no pip"
    environment, package = tmp_path / ".venv", tmp_path / "package"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    package.mkdir()
    (package / "pyproject.toml").write_text(
        re.sub("(?m)^    ", "", page[page.index("    [project]") :].partition("\n## ")[0])
    )
    (package / "eager_drafting.py").write_text("class EagerDrafting: ...\n")
    python = getattr(sys, "_base_executable", sys.executable)
    words = [python, *command[1].split(), str(environment), *command[2].split()]
    words += ["--no-deps", "--no-index", "--no-build-isolation"]
    done = subprocess.run(words, cwd=package, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"nothing here builds a package offline: {done.stderr[-200:]}")
    seen = "from simulator.inputs.plugins import packages_found; print(packages_found())"
    ran = [str(environment / "bin" / "python"), "-c", seen]
    told = subprocess.run(
        ran, env={"PYTHONPATH": str(root)}, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "(eager_drafting)" in told.stdout


UNKNOWN = [
    ["run", "durations_only", "--set", f"strategy={stated}"]
    for stated in ("eager_drafting", "{name: eager_drafting}")
]


@pytest.mark.parametrize("words", [["validate", "--law", "eager_drafting"], *UNKNOWN])
def test_an_unknown_strategy_says_how_those_of_packages_are_found(words: list[str]) -> None:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert "entry points of the group specsim.strategies (" in done.stderr
