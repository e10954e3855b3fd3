"""The README as a script: from a bare machine to an answer, by its commands in its order and
nothing else.

``dev.py test`` is the one that is left out: it would run this test.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from tests.test_docs import NUMBER

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
PYTHON = Path(getattr(sys, "_base_executable", sys.executable))
"""The machine's own, not that of an environment."""
LEFT_OUT = "python3 dev.py test"
COMMAND = re.compile(r"^    (?:\$ )?((?:python3|specsim|\.) .*)$", re.MULTILINE)
LONGEST = 120
"""Lines that a reader of the first page has patience for."""
REACH = re.compile(r"PIP_|SSL_|.*_proxy$", re.IGNORECASE)
"""Variables by which a machine finds packages, which is no part of the README."""


class Step(NamedTuple):
    """A command, and what is said behind its ``#``."""

    command: str
    words: str


def steps() -> list[Step]:
    """Every command of the README, in order."""
    parts = [found.partition(" #") for found in COMMAND.findall(README)]
    return [Step(command.strip(), words.strip()) for command, _, words in parts]


def checkout(folder: Path) -> Path:
    """What a clone of the working tree would hold."""
    asked = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def script(asked: list[Step]) -> str:
    """All of them in one shell, each between two marks, the second with its exit code."""
    return (
        "\n".join(
            f"echo '<<{place}'\n{one.command}\necho \">>$?\"" for place, one in enumerate(asked)
        )
        + "\n"
    )


def test_the_readme_begins_at_nothing_and_is_short() -> None:
    commands = [step.command for step in steps()]
    assert commands[:2] == ["python3 dev.py demo", ". .venv/bin/activate"]
    assert LEFT_OUT in commands
    assert README.count("\n") <= LONGEST
    assert README.count("\n    specsim") + README.count("\n    $ specsim") == sum(
        command.startswith("specsim") for command in commands
    )


@pytest.mark.full
@pytest.mark.skipif(
    not (ROOT / ".git").exists(), reason="needs a checkout to know what belongs to it"
)
def test_from_a_bare_machine_to_an_answer_by_the_readme_alone(tmp_path: Path) -> None:
    asked = [step for step in steps() if step.command != LEFT_OUT]
    home, here = tmp_path / "home", tmp_path / "specsim"
    home.mkdir()
    environment = {"HOME": str(home), "PATH": f"{PYTHON.parent}:/usr/bin:/bin", "COLUMNS": "120"}
    environment |= {name: value for name, value in os.environ.items() if REACH.match(name)}
    shell = ["bash", "-c", script(asked)]
    done = subprocess.run(
        shell, cwd=checkout(here), env=environment, capture_output=True, text=True, check=False
    )
    matches = re.findall(r"^<<\d+\n(.*?)^>>(\d+)$", done.stdout, re.MULTILINE | re.DOTALL)
    assert len(matches) == len(asked), done.stderr
    failed = [one.command for one, (_, code) in zip(asked, matches, strict=True) if code != "0"]
    assert failed == [], done.stderr
    for one, (printed, _) in zip(asked, matches, strict=True):
        if one.command.startswith(("specsim run", "specsim plan")) and one.words:
            missing = [
                number
                for number in NUMBER.findall(one.words)
                if number not in NUMBER.findall(printed)
            ]
            assert missing == [], f"{one.command}\n{printed}"
    report = here / "reports" / "mirror_qwen3_32b_m2_ultra" / "report.html"
    assert report.is_file()
    assert list(home.rglob("specsim*")) == []


@pytest.mark.full
def test_the_question_of_one_line_prints_what_stands_below_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    (asked,) = [step for step in steps() if step.command.startswith("specsim plan --model")]
    quoted = re.search(r"specsim plan --model.*?^```\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert quoted is not None
    words = shlex.split(asked.command)[1:]
    done = CliRunner().invoke(main, words, env={"COLUMNS": "100"}, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert quoted[1].splitlines() == [line.rstrip() for line in done.stdout.splitlines()]
