"""The soak: its promises can be broken, its attempts are decided by their numbers, and planted
faults are found.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import soak

ROOT = Path(__file__).parent.parent
PLANTED = {
    "files": (
        "inputs/document.py",
        "except (ValueError, KeyError) as error",
        "except LookupError as error",
    ),
    "settings": (
        "scenario/checks.py",
        "refusal = policy.refusal(",
        "refusal = (lambda *_: None)(",
    ),
    "words": ("cli/options.py", "if error.filename is None or", "if error.filename or"),
    "books": (
        "core/strategies/vanilla_sd.py",
        "return durations.draft + durations.rv + durations.target",
        "return durations.draft + durations.target",
    ),
    "services": (
        "core/serving/lazy/batch.py",
        "self.to_come.end(member.begun)",
        "self.to_come.end((member.begun[0] - 1, *member.begun[1:]))",
    ),
    "places": (
        "scenario/result/run_result.py",
        "for lane in sorted(busy_s)",
        "for lane in set(busy_s)",
    ),
    "kills": (
        "inputs/writing.py",
        "new = folder / path.name",
        (
            "new = folder / path.name; shutil.rmtree(path) if path.is_dir() else "
            "path.unlink(missing_ok=True)"
        ),
    ),
}
"""A fault of each family: a file of ``simulator/``, and what is put in the place of what."""
QUICK = ["files", "settings", "words", "books", "services"]
"""Families of which a few attempts take a few seconds."""


@pytest.mark.parametrize(
    ("code", "out", "errors"),
    [
        (1, "", "Traceback (most recent call last)"),
        (0, "", ""),
        (2, "half", "error: x"),
        (2, "", ""),
        (3, "", "error: x\nwhat is this"),
        (0, '{"a": NaN}', ""),
        (0, '{"a": Infinity}', ""),
    ],
)
def test_an_answer_that_no_command_may_give_is_refused(code: int, out: str, errors: str) -> None:
    with pytest.raises(soak.BrokenPromiseError):
        soak.judge(code, out, errors, as_json=True)


def test_answers_that_a_command_may_give_are_taken() -> None:
    soak.judge(0, '{"a": null}', "", as_json=True)
    soak.judge(
        2, "", "error: x.yaml:1:1: gamma: unknown field\nerror: x.yaml:2:1: y: unknown field"
    )
    soak.judge(
        2,
        "",
        "Usage: specsim run [OPTIONS] SCENARIO\nTry 'specsim run -h' for help.\n\nError: "
        "Missing argument.",
    )
    with pytest.raises(json.JSONDecodeError):
        soak.judge(0, "{", "", as_json=True)


def test_an_attempt_is_decided_by_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    typed = list[list[str]]()
    monkeypatch.setattr(soak, "asked", lambda words: (typed.append(words), (2, ""))[1])
    for _ in range(2):
        for number in range(30):
            for family in (soak.settings, soak.words, soak.books):
                family(soak.random.Random(f"0:{number}"), tmp_path)
    assert typed[:90] == typed[90:]
    assert len({tuple(words) for words in typed}) > 80


def test_a_few_attempts_of_every_family_that_is_quick_find_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    state = soak.soak(7, iter(range(15)), soak.time.monotonic() + 300, QUICK)
    assert state.findings == {}
    assert state.outcomes.total() == 15


@pytest.mark.full
@pytest.mark.parametrize("family", PLANTED)
def test_a_fault_of_the_family_is_found(family: str, tmp_path: Path) -> None:
    """Within ten minutes, on one core; the attempts are the same every time."""
    file, old, new = PLANTED[family]
    shutil.copytree(
        ROOT / "simulator", tmp_path / "simulator", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("tests", "tools", "scenarios", "hardware_profiles"):
        (tmp_path / name).symlink_to(ROOT / name)
    text = (tmp_path / "simulator" / file).read_text("utf-8")
    assert text.count(old) == 1
    (tmp_path / "simulator" / file).write_text(text.replace(old, new), "utf-8")
    words = [
        sys.executable,
        str(tmp_path / "tools" / "soak.py"),
        "--family",
        family,
        "--minutes",
        "10",
        "--first",
    ]
    done = subprocess.run(
        words,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert ", 1 findings" in done.stdout


@pytest.mark.full
@pytest.mark.parametrize("name", soak.WRITTEN)
def test_what_kills_end_writes_when_nobody_ends_it(name: str) -> None:
    """Else a kill would find nothing to spoil."""
    if name in soak._written():
        assert soak._whole(name, new=True)["files"]
