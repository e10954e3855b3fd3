"""A section of another package on the page of a run: shown in all its forms, with nothing of ours
edited.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from simulator.report.wording import number
from tests.packages import specsim_with

ROOT = Path(__file__).parent.parent
TOY = ROOT / "tests/toy_page"
TITLE = "What a token costs at night"
ON_DEVICES = ["run", "vanilla_qwen3_32b_a100", "--set", "requests.count=2"]


def specsim(*words: str, package: Path | None = TOY) -> subprocess.CompletedProcess[str]:
    """Run a command with ``package`` on the path, or with none."""
    return specsim_with(package, *words)


def flat(text: str) -> str:
    """The words of a text, whatever its lines."""
    return " ".join(text.split())


def test_a_section_is_shown_in_all_forms(tmp_path: Path) -> None:
    """A kilowatt-hour is 3.6e6 J and costs 0.12 USD at night, 0.30 USD by day."""
    with_it = specsim(*ON_DEVICES, "--long", "--out", str(tmp_path / "with"))
    assert with_it.returncode == 0, with_it.stderr
    without = specsim(*ON_DEVICES, "--long", "--out", str(tmp_path / "without"), package=None)
    bill = json.loads(specsim(*ON_DEVICES, "--json").stdout)["bill"]
    night, day = (price * bill["busy_j_per_token"] / 3.6 for price in (0.12, 0.30))
    sentence = (
        f"At night a million tokens takes {number(night)} USD of electricity, "
        f"{number(day - night)} USD less than by day."
    )
    pages = {}
    for folder in ("with", "without"):
        for ending in ("md", "html"):
            path = tmp_path / folder / f"report.{ending}"
            pages[folder, ending] = path.read_text("utf-8")
    for shown in (with_it.stdout, pages["with", "md"], pages["with", "html"]):
        assert TITLE in shown
        assert sentence in flat(shown)
    assert f"| night, 22 to 6 | 0.120 | {number(night)} |" in pages["with", "md"]
    for shown in (without.stdout, pages["without", "md"], pages["without", "html"]):
        assert TITLE not in shown
    before, _, behind = pages["with", "md"].partition(f"## {TITLE}\n")
    rest = behind[behind.index("\n## ") + 1 :]
    assert before + rest == pages["without", "md"], "all else is as it was"


def test_a_section_that_has_nothing_to_say_is_left_out(tmp_path: Path) -> None:
    """Stated durations have no device, so that nobody knows their power."""
    words = ["run", "durations_only", "--set", "requests.count=2", "--out", str(tmp_path / "out")]
    done = specsim(*words, "--long")
    assert done.returncode == 0, done.stderr
    assert "Requests and batches" in done.stdout
    assert TITLE not in done.stdout + (tmp_path / "out/report.html").read_text("utf-8")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("def section(result): return 1 / 0\n", "raised ZeroDivisionError: division by zero"),
        ("def section(result): return 'none'\n", "returned str, not a Section or None"),
        ("import no_such_module\n", "cannot be loaded: ModuleNotFoundError: No module named"),
    ],
)
def test_a_broken_section_is_named_with_its_package(
    tmp_path: Path, module: str, reason: str
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(TOY, broken)
    (broken / "toy_night_tariff.py").write_text(module, "utf-8")
    words = ["run", "durations_only", "--set", "requests.count=2", "--out", str(tmp_path / "out")]
    done = specsim(*words, package=broken)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    entry = "specsim.sections: night_tariff (toy_night_tariff:section)"
    assert line.startswith(f"error: package toy-night-tariff 1.0: {entry} {reason}")
