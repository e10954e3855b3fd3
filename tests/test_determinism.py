"""The same scenario and seed give the same bytes: in another process, place, language, order of hashing and Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from golden import golden

ROOT = Path(__file__).parent.parent
GOLDEN = Path(__file__).with_name("golden.json")
PLACES = [
    {"PYTHONHASHSEED": "1", "TZ": "UTC", "LC_ALL": "C"},
    {"PYTHONHASHSEED": "77", "TZ": "Pacific/Kiritimati", "LC_ALL": "C.UTF-8", "COLUMNS": "200"},
]
LATER = "import time; now = time.time; time.time = lambda: now() + 4e8; from simulator.cli import main; main()"
"""The command, a dozen years from now."""


def made(script: str, environment: dict[str, str], folder: Path, *words: str) -> dict[str, bytes]:
    """Output and files of ``specsim run``."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", script, "run", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        check=True,
    )
    return {"output": done.stdout} | {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*")}


@pytest.mark.full
@pytest.mark.parametrize(
    "words",
    [
        ("mirror_qwen3_32b_m2_ultra", "--set", "requests.count=4"),
        ("specpipe_llama_3_1_70b_8xl40", "--set", "requests.count=3"),
        ("durations_only", "--set", "requests={arrivals: {name: poisson, rate_per_s: 2}, count: 20}", "--set",
         "serving.policy={name: prefill_first}", "--seed", "5"),
    ],
)  # fmt: skip
def test_the_same_bytes_anywhere_and_any_day(words: tuple[str, ...], tmp_path: Path) -> None:
    here = made("from simulator.cli import main; main()", PLACES[0], tmp_path / "here", *words, "--out", "rep", "--json")
    there = made(LATER, PLACES[1], tmp_path / "there", *words, "--out", "rep", "--json")
    assert len(here) > 4
    assert {name for name in here if here[name] != there.get(name)} == set()
    assert set(here) == set(there)


def test_golden_results_of_the_stored_trace() -> None:
    kept, found = json.loads(GOLDEN.read_text()), golden()
    assert set(kept) == set(found)
    for name, numbers in kept.items():
        assert found[name] == pytest.approx(numbers, rel=1e-12), name


def other_pythons() -> list[str]:
    """Interpreters of another version that have what specsim needs: named in SPECSIM_PYTHONS, or on the path."""
    named = os.environ.get("SPECSIM_PYTHONS", "").split() or [f"python3.{minor}" for minor in range(11, 15)]
    found = [path for path in map(shutil.which, named) if path]
    needs = "import sys, yaml, numpy, scipy, pandas, pydantic, click, rich, simpy, matplotlib; print(sys.version_info[:2])"
    told = {path: subprocess.run([path, "-c", needs], capture_output=True, text=True, check=False).stdout for path in found}
    return [path for path, version in told.items() if version and version.strip() != str(tuple(sys.version_info[:2]))]


@pytest.mark.full
def test_the_same_numbers_on_another_python() -> None:
    pythons = other_pythons()
    if not pythons:
        pytest.skip("no Python of another version has the packages; name some in SPECSIM_PYTHONS")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for python in pythons:
        done = subprocess.run(
            [python, "tests/golden.py"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout == GOLDEN.read_text(), python
