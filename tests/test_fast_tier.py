"""What the fast tier leaves to the full one, and which tests it names as long."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fast_tier import TIER, long_ones, spread

ROOT = Path(__file__).parent.parent
CASES = """
import pytest

@pytest.mark.few(2)
@pytest.mark.parametrize("outer", "ab")
@pytest.mark.parametrize("inner", range(3))
def test_case(inner, outer):
    pass

@pytest.mark.few(5)
@pytest.mark.parametrize("case", range(2))
def test_pair(case):
    pass
"""


@pytest.mark.parametrize(
    ("count", "among", "places"),
    [(1, 9, {0}), (2, 9, {0, 8}), (3, 9, {0, 4, 8}), (4, 4, {0, 1, 2, 3}), (5, 2, {0, 1})],
)
def test_a_few_are_spread_from_the_first_to_the_last(
    count: int, among: int, places: set[int]
) -> None:
    assert spread(count, among) == places


def test_cases_beyond_a_few_are_in_the_full_tier(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(CASES)
    words = ("-m", "pytest", "--collect-only", "-m", "not full", "-p", "tests.conftest", "-c")
    done = subprocess.run(
        [sys.executable, *words, "pyproject.toml", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.findall(r"::(.+)", done.stdout) == [
        "test_case[0-a]",
        "test_case[2-b]",
        "test_pair[0]",
        "test_pair[1]",
    ]


def test_a_test_that_takes_more_than_a_hundredth_is_named() -> None:
    """Of 1,000 tests of 1 s each; two cases of 6 s are 12 of 1,010, two of 5 s are 10 of 1,008."""
    others = {f"quick.py::test_{number}": 1.0 for number in range(TIER - 2)}
    assert long_ones(others | {"slow.py::test[0]": 6.0, "slow.py::test[1]": 6.0}) == [
        "slow.py::test"
    ]
    assert long_ones(others | {"slow.py::test[0]": 5.0, "slow.py::test[1]": 5.0}) == []
    assert long_ones({"slow.py::test": 6.0}) == []
