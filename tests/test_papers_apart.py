"""A paper that is taken away, folder and all that is called after it, leaves a working tool."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from simulator.api.studies import study_names
from simulator.core.plugin_group import PAPERS as PACKAGE
from simulator.core.strategies import strategies
from simulator.scenario import load
from simulator.studies.of_papers import studies_of_papers
from tests.apart import FOLDER, PAPERS

ROOT = Path(__file__).parent.parent
ALONE = ("lyanna",)
"""Papers that no test needs but those called after them."""
EXTRAS = {"torch", "tokenizers", "transformers", "safetensors", "distributed", "dask", "pyarrow"}
LOOK = """
import importlib, json, pkgutil, simulator
from click.testing import CliRunner
from simulator.api.studies import study_names
from simulator.cli.main import main
from simulator.core.faults import BadInput

def printed(*words):
    return CliRunner().invoke(main, words, catch_exceptions=False).stdout

missing = []
for module in pkgutil.walk_packages(simulator.__path__, "simulator."):
    if module.name == "simulator.__main__":
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        missing.append(error.name)

faults = {}
for name in json.loads(printed("list", "scenario", "--json"))["scenario"]:
    faults[name] = ""
    try:
        simulator.load(name)
    except BadInput as error:
        faults[name] = "; ".join(map(str, error.faults))

print(json.dumps({
    "file": simulator.__file__,
    "missing": missing,
    "strategies": list(json.loads(printed("list", "strategy", "--json"))["strategy"]),
    "schema": printed("schema", "scenario"),
    "help": printed("--help"),
    "studies": study_names(),
    "faults": faults,
}))
"""
"""Prints what a copy has: modules that could not be imported, strategies, studies, faults of
scenarios.
"""
STUDY = "from simulator.cli.main import main; main()"


class Left(NamedTuple):
    """A checkout without a paper, its scenarios, methods and claims, and what ``LOOK`` printed."""

    paper: str
    copy: Path
    found: dict[str, Any]

    @property
    def gone(self) -> set[str]:
        """Names of the strategies that lie in the folder of the paper."""
        own = f"{PACKAGE}.{self.paper}."
        return {name for name, kind in strategies().items() if kind.__module__.startswith(own)}


@pytest.mark.full
@pytest.mark.parametrize("paper", [paper for paper in PAPERS if (FOLDER / paper).is_dir()])
def test_what_is_left_works(paper: str, tmp_path: Path) -> None:
    """One test a paper, as its copy takes longer to make than to ask."""
    left = without(paper, tmp_path / f"without_{paper}")
    strategies_are_listed_no_more_and_all_others_are(left)
    studies_are_commands_no_more_and_all_others_are(left)
    every_module_is_imported(left)
    every_scenario_loads_that_does_not_build_on_the_paper(left)
    studies_of_other_strategies_work(left)


def without(paper: str, copy: Path) -> Left:
    """Copy the checkout but for what is called after a paper, and look at it."""
    for name in ("simulator", "scenarios", "hardware_profiles"):
        shutil.copytree(
            ROOT / name, copy / name, ignore=shutil.ignore_patterns(f"{paper}*", "__pycache__")
        )
    assert not (copy / "simulator/papers" / paper).exists()
    assert (copy / "scenarios/durations_only.yaml").exists()
    return Left(paper, copy, json.loads(python(copy, "-c", LOOK)))


def python(copy: Path, *words: str) -> str:
    """What Python prints with the copy on its path."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=copy,
        env=environment(copy),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    return done.stdout


def environment(copy: Path) -> dict[str, str]:
    """Variables for a process of the copy, which is no worker of these tests and not covered."""
    outer = ("PYTEST_", "COVERAGE_")
    own = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    return {**own, "PYTHONPATH": str(copy)}


def strategies_are_listed_no_more_and_all_others_are(left: Left) -> None:
    assert set(strategies()) - set(left.found["strategies"]) == left.gone != set()
    assert [name for name in left.gone if f'"{name}"' in left.found["schema"]] == []


def studies_are_commands_no_more_and_all_others_are(left: Left) -> None:
    own = f"{PACKAGE}.{left.paper}."
    studies = studies_of_papers().values()
    gone = {study.name for study in studies if study.module.startswith(own)}
    assert set(study_names()) - set(left.found["studies"]) == gone
    lines = [line.strip() for line in left.found["help"].splitlines()]
    listed = {line.partition(" ")[0] for line in lines}
    assert set(study_names()) & listed == set(left.found["studies"])


def every_module_is_imported(left: Left) -> None:
    assert Path(left.found["file"]).is_relative_to(left.copy)
    assert set(left.found["missing"]) <= EXTRAS


def every_scenario_loads_that_does_not_build_on_the_paper(left: Left) -> None:
    """One that names its strategy, or begins with a scenario that went with it, says so."""
    said: dict[str, str] = left.found["faults"]
    faults = {name: fault for name, fault in said.items() if fault}
    needs = {name for name in said if strategy_of(name) in left.gone}
    assert faults.keys() >= needs
    reason = re.compile(f"there is no (strategy|scenario) '{left.paper}")
    assert [fault for fault in faults.values() if not reason.search(fault)] == []
    assert len(said) - len(faults) > 40


@cache
def strategy_of(scenario: str) -> str:
    """Name of the strategy of a shipped scenario."""
    return load(scenario).scenario.strategy.name


def studies_of_other_strategies_work(left: Left) -> None:
    words = ["batches", "vanilla_qwen3_32b_a100", "--sizes", "1,2", "--simulate", "1"]
    words += ["--set", "requests.count=2", "--json"]
    study = json.loads(python(left.copy, "-c", STUDY, *words))
    assert [row["batch"] for row in study["batches"]] == [1, 2]


@pytest.mark.full(minutes=10)
@pytest.mark.parametrize("paper", [paper for paper in ALONE if (FOLDER / paper).is_dir()])
def test_the_fast_tests_pass_without_all_that_is_called_after_it(
    paper: str, tmp_path: Path
) -> None:
    """All of them, as anything may go over what lies in the folders: pages, kept numbers, claims,
    benchmarks.
    """
    copy = tmp_path / "copy"
    outside = shutil.ignore_patterns(f"*{paper}*", ".git", ".venv*", "build", "__pycache__")
    shutil.copytree(ROOT, copy, ignore=outside)
    python(copy, "-m", "pytest", "-n", "2", "-m", "not full")
