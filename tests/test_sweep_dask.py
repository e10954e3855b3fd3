"""A sweep on a Dask cluster of this machine: the same table, also when a worker is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_sweep_workers import AXES, PATIENCE_S, ROOT, WORLD, done, started, table, until

pytest.importorskip("distributed", reason="needs the extra 'dask'")
pytestmark = pytest.mark.full


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tiny.yaml").write_text(WORLD)
    return tmp_path


@pytest.fixture
def cluster(
    folder: Path,
) -> Iterator[tuple[str, list[subprocess.Popen[bytes]], subprocess.Popen[bytes]]]:
    """The address of a scheduler, two workers, and the scheduler."""
    file = folder / "scheduler.json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def dask(*words: str) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "dask",
            *words,
            "--scheduler-file",
            str(file),
            "--dashboard-address",
            "127.0.0.1:0",
        ]
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    scheduler = dask("scheduler", "--host", "127.0.0.1", "--port", "0")
    until(
        lambda: file.exists() and file.read_text().strip().endswith("}"),
        "the scheduler did not start",
    )
    workers = [dask("worker", "--nthreads", "1", "--no-nanny") for _ in range(2)]
    yield json.loads(file.read_text())["address"], workers, scheduler
    for process in (*workers, scheduler):
        process.kill()
        process.wait(10)


def test_a_cluster_loses_nothing_with_a_worker(
    folder: Path, cluster: tuple[str, list[subprocess.Popen[bytes]], subprocess.Popen[bytes]]
) -> None:
    address, workers, _ = cluster
    undisturbed = table(folder, "whole", *AXES)
    with started(
        folder, "--store", "far.sqlite", "--export", "far.csv", "--scheduler", address, *AXES
    ) as process:
        until(
            lambda: done(folder, "far") > 5 or process.poll() is not None, "no point was evaluated"
        )
        assert process.poll() is None, process.communicate()
        workers[0].send_signal(signal.SIGKILL)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, out + err
    assert (folder / "far.csv").read_bytes() == undisturbed


def test_a_scheduler_that_dies_is_a_line_and_the_store_goes_on(
    folder: Path, cluster: tuple[str, list[subprocess.Popen[bytes]], subprocess.Popen[bytes]]
) -> None:
    address, _, scheduler = cluster
    with started(
        folder, "--store", "far.sqlite", "--export", "far.csv", "--scheduler", address, *AXES
    ) as process:
        until(
            lambda: done(folder, "far") > 5 or process.poll() is not None, "no point was evaluated"
        )
        scheduler.send_signal(signal.SIGKILL)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert len(err.splitlines()) == 1, err
    assert "the scheduler is gone" in err
    assert done(folder, "far") > 5
    with started(
        folder, "--store", "far.sqlite", "--export", "far.csv", "--resume", *AXES
    ) as process:
        process.communicate(timeout=PATIENCE_S)
    assert (folder / "far.csv").read_bytes() == table(folder, "whole", *AXES)


def test_a_scheduler_that_is_not_there_is_bad_input(folder: Path) -> None:
    with started(
        folder, "--store", "none.sqlite", "--scheduler", "tcp://127.0.0.1:1", *AXES
    ) as process:
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert "no scheduler answers" in err
