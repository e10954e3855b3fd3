"""A paper that is taken away, folder and all that is called after it, leaves a working tool."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.core.strategies import strategies
from tests.apart import FOLDER, PAPERS

ROOT = Path(__file__).parent.parent
EVERY_MODULE = """
import importlib, pkgutil, simulator
from simulator.inputs.catalogue import Catalogue

missing = set()
for module in pkgutil.walk_packages(simulator.__path__, "simulator."):
    if module.name == "simulator.__main__":
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        missing.add(error.name)
loaded = [name for name in Catalogue().names("scenario") if simulator.load(name)]
print(simulator.__file__, *missing)
print(*loaded)
"""
EXTRAS = {"torch", "tokenizers", "transformers", "safetensors", "distributed", "dask", "pyarrow"}


@pytest.fixture(params=[paper for paper in PAPERS if (FOLDER / paper).is_dir()], scope="module")
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout without a paper, its scenarios, methods and claims."""
    paper: str = request.param
    copy = tmp_path_factory.mktemp(f"without_{paper}", numbered=False)
    for name in ("simulator", "scenarios", "hardware_profiles"):
        shutil.copytree(
            ROOT / name, copy / name, ignore=shutil.ignore_patterns(f"{paper}*", "__pycache__")
        )
    assert not (copy / "simulator/papers" / paper).exists()
    assert (copy / "scenarios/durations_only.yaml").exists()
    return copy


def python(copy: Path, *words: str) -> str:
    """What Python prints with the copy on its path."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def specsim(copy: Path, *words: str) -> str:
    return python(copy, "-c", "from simulator.cli.main import main; main()", *words)


def test_its_strategy_is_listed_no_more_and_all_others_are(left: Path) -> None:
    paper = left.name.removeprefix("without_")
    listed = json.loads(specsim(left, "list", "strategy", "--json"))["strategy"]
    assert set(strategies()) - set(listed) == {paper}
    assert paper not in specsim(left, "schema", "scenario")


def test_every_module_is_imported_and_every_other_scenario_loads(left: Path) -> None:
    where, scenarios = python(left, "-c", EVERY_MODULE).splitlines()
    file, *missing = where.split()
    assert Path(file).is_relative_to(left)
    assert set(missing) <= EXTRAS
    assert len(scenarios.split()) > 40


def test_studies_of_other_strategies_work(left: Path) -> None:
    words = ["batches", "mirror_qwen3_32b_a100", "--sizes", "1,2", "--simulate", "1"]
    study = json.loads(specsim(left, *words, "--set", "requests.count=2", "--json"))
    assert [row["batch"] for row in study["batches"]] == [1, 2]
