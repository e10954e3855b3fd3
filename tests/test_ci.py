""".ci/run: it ends well only if every stage did, and in time; its logs name no hosts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / ".ci" / "run"
STAGES = ["lint", "test", "test --full -m full --exitfirst --maxschedchunk=1 -rs --within"]


def ci(folder: Path, code: str, limit_s: float = 600) -> tuple[int, str, list[str]]:
    """Exit code and log of .ci/run with a dev.py that runs ``code``, and the stages that it was
    called for.
    """
    (folder / ".ci").mkdir()
    shutil.copy2(SCRIPT, folder / ".ci" / "run")
    note = (
        "import sys, time; words = ' '.join(sys.argv[1:]).rstrip('-0123456789 '); print(words, "
        "file=open('stages', 'a'))\n"
    )
    (folder / "dev.py").write_text(note + code)
    tools = folder / "bin"
    tools.mkdir()
    (tools / "chromium").symlink_to("/bin/true")  # or it would be installed
    # there is a pip
    (tools / "python3").write_text(f'#!/bin/sh\n[ "$1" = -m ] || exec "{sys.executable}" "$@"\n')
    (tools / "python3").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "CI_LIMIT_S": str(limit_s),
    }
    run = subprocess.run(
        [folder / ".ci" / "run"], env=environment, capture_output=True, text=True, check=False
    )
    return run.returncode, run.stdout + run.stderr, (folder / "stages").read_text().splitlines()


def test_every_stage_runs_in_order(tmp_path: Path) -> None:
    code, log, stages = ci(
        tmp_path,
        "print('see https://index.example/simple and host=', repr('index.example'), sep='')",
    )
    assert (code, stages) == (0, STAGES)
    assert "index.example" not in log


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_fails_ends_it(tmp_path: Path, stage: str) -> None:
    code, _, stages = ci(tmp_path, f"sys.exit(3 * (words == {stage!r}))")
    assert (code, stages[-1]) == (3, stage)


@pytest.mark.few(2)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("when_interrupted", ["raise", "sys.exit(0)"])
def test_a_stage_that_runs_out_of_time_fails(
    tmp_path: Path, stage: str, when_interrupted: str
) -> None:
    """Also one that takes the interruption for its end and is content."""
    sleep = (
        f"try:\n    time.sleep(30 * (words == {stage!r}))\nexcept KeyboardInterrupt:\n    "
        f"{when_interrupted}\n"
    )
    code, log, stages = ci(tmp_path, sleep, limit_s=3)
    assert code != 0
    assert stages == STAGES[: len(stages)]
    assert f"out of time in: dev.py {stages[-1]}" in log or "out of time before" in log
