"""The same scenario and seed give the same bytes: in another process, place, language, order of
hashing and Python.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from golden import SECTIONS, differences, dumped, keep, kept, names

from tests.fast_tier import spread

ROOT = Path(__file__).parent.parent
KEPT = kept()
"""Cases of numbers by section; what ``python3 tools/golden.py`` writes."""
PLACES = [
    {"PYTHONHASHSEED": "1", "TZ": "UTC", "LC_ALL": "C"},
    {"PYTHONHASHSEED": "77", "TZ": "Pacific/Kiritimati", "LC_ALL": "C.UTF-8", "COLUMNS": "200"},
]
NOW = "from simulator.cli.main import main; main()"
LATER = (
    "import time; now = time.time; time.time = lambda: now() + 4e8; from simulator.cli.main "
    "import main; main()"
)
"""The command, a dozen years from now."""
TOLERANCE = 1e-12
"""Relative; linear algebra picks its kernels by processor and version, so the last digits of a
law's shares may differ.
"""

WORDS = [
    ("mirror_qwen3_32b_m2_ultra", "--set", "requests.count=4"),
    ("specpipe_llama_3_1_70b_8xl40", "--set", "requests.count=3"),
    (
        "durations_only",
        "--set",
        "requests={arrivals: {name: poisson, rate_per_s: 2}, count: 20}",
        "--set",
        "serving.policy={name: prefill_first}",
        "--seed",
        "5",
    ),
]
SWEEP = [
    "--axis",
    "strategy.gamma=1,2,4",
    "--axis",
    "acceptance.rate=0.5:0.9:3",
    "--set",
    "requests.count=10",
]


def made(
    script: str,
    environment: dict[str, str],
    folder: Path,
    *words: str,
    python: str = sys.executable,
) -> dict[str, bytes]:
    """Output and files of a command."""
    folder.mkdir()
    done = subprocess.run(
        [python, "-c", script, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        check=True,
    )
    return {"output": done.stdout} | {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*")
    }


@pytest.mark.full
@pytest.mark.parametrize("words", WORDS, ids=lambda words: words[0])
def test_the_same_bytes_anywhere_and_any_day(words: tuple[str, ...], tmp_path: Path) -> None:
    here = made(NOW, PLACES[0], tmp_path / "here", "run", *words, "--out", "rep", "--json")
    there = made(LATER, PLACES[1], tmp_path / "there", "run", *words, "--out", "rep", "--json")
    assert len(here) > 4
    assert {name for name in here if here[name] != there.get(name)} == set()
    assert set(here) == set(there)


FAST = {"settings": 9, "scenarios": 4, "sweeps": 1, "studies": 2, "plans": 0}
"""Cases of each section that the fast tier makes, from the first to the last."""


def golden_cases() -> Iterator[ParameterSet]:
    """Section and name of every case that is made."""
    for section in sorted(SECTIONS):
        cases = sorted(names(section))
        fast = spread(FAST[section], len(cases))
        for place, name in enumerate(cases):
            marks = () if place in fast else pytest.mark.full
            yield pytest.param(section, name, marks=marks)


@pytest.mark.parametrize("section", sorted(KEPT.keys() | SECTIONS))
def test_every_case_has_its_golden_numbers(section: str) -> None:
    assert section in SECTIONS, (
        f"tests/golden keeps {section}, a section that golden.py does not make"
    )
    there, made = {*KEPT.get(section, {})}, {*names(section)}
    assert not there - made, f"tests/golden/{section} keeps {there - made}, no longer there"
    assert not made - there, f"tests/golden/{section} lacks {made - there}; python3 tools/golden.py"


@pytest.mark.parametrize(("section", "name"), list(golden_cases()))
def test_golden_numbers(section: str, name: str) -> None:
    got = json.loads(dumped(SECTIONS[section](name)))
    items = list(differences(KEPT[section][name], got, f"{section}.{name}", TOLERANCE))
    if items:
        pytest.fail(
            "\n".join([f"{len(items)} numbers differ, kept -> got:", *items]), pytrace=False
        )


def test_what_is_kept_is_what_was_written_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("golden.FOLDER", tmp_path)
    keep({"laws": {"one": {"step_ms": 1.0}, "two": {}}, "plans": {"one": {}}})
    keep({"laws": {"one": {"step_ms": 2.0}}})
    assert kept() == {"laws": {"one": {"step_ms": 2.0}}}


def of_another_version() -> list[str]:
    """Interpreters that have what specsim needs: named in SPECSIM_PYTHONS, or on the path."""
    named = os.environ.get("SPECSIM_PYTHONS", "").split() or [
        f"python3.{minor}" for minor in range(11, 15)
    ]
    found = [path for path in map(shutil.which, named) if path]
    needs = (
        "import sys, yaml, numpy, scipy, pandas, pydantic, click, rich, simpy, matplotlib, "
        "jinja2; print(sys.version_info[:2])"
    )
    told = {
        path: subprocess.run(
            [path, "-c", needs], capture_output=True, text=True, check=False
        ).stdout
        for path in found
    }
    return [
        path
        for path, version in told.items()
        if version and version.strip() != str(tuple(sys.version_info[:2]))
    ]


@pytest.fixture(scope="module")
def other_pythons() -> list[str]:
    return of_another_version() or pytest.skip(
        "no Python of another version has the packages; `python3 dev.py matrix` makes some"
    )


@pytest.mark.full
def test_the_same_numbers_on_another_python(other_pythons: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for python in other_pythons:
        done = subprocess.run(
            [python, "tools/golden.py", "--small"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == dumped({"settings": KEPT["settings"]}) + "\n", python


@pytest.mark.full
@pytest.mark.parametrize("words", WORDS, ids=lambda words: words[0])
def test_the_same_bytes_on_another_python(
    words: tuple[str, ...], other_pythons: list[str], tmp_path: Path
) -> None:
    here = made(NOW, PLACES[0], tmp_path / "here", "run", *words, "--out", "rep", "--json")
    for number, python in enumerate(other_pythons):
        there = made(
            LATER,
            PLACES[1],
            tmp_path / str(number),
            "run",
            *words,
            "--out",
            "rep",
            "--json",
            python=python,
        )
        assert {
            name for name in here.keys() | there if here.get(name) != there.get(name)
        } == set(), python


@pytest.mark.full
def test_the_same_table_of_a_sweep_with_one_worker_or_four_on_another_python(
    other_pythons: list[str], tmp_path: Path
) -> None:
    words = [
        "sweep",
        "durations_only",
        *SWEEP,
        "--evaluate",
        "simulation",
        "--store",
        "s.sqlite",
        "--export",
        "table.csv",
    ]
    one = made(NOW, PLACES[0], tmp_path / "one", *words, "--workers", "1")["table.csv"]
    assert len(one.splitlines()) == 10
    for number, python in enumerate([sys.executable, *other_pythons]):
        assert (
            made(LATER, PLACES[1], tmp_path / str(number), *words, "--workers", "4", python=python)[
                "table.csv"
            ]
            == one
        ), python
