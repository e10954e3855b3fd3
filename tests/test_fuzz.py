"""Loaders meet files broken by chance; `python3 dev.py fuzz` goes on where this stops."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import fuzz
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

LOADERS = fuzz.loaders()


def test_every_sound_file_of_ours_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nothing behind the first fault would ever be tried."""
    monkeypatch.chdir(tmp_path)
    for kind in ("config", "record", "measurements", "trace", "paper", "services"):
        name, content = LOADERS[kind].sound[0]
        (tmp_path / name).write_bytes(content)
        LOADERS[kind].use(tmp_path / name)


def test_an_input_is_decided_by_its_number() -> None:
    content = b"gamma: 7\nseed: 3\n"
    made = [
        [fuzz.broken(content, fuzz.chance_of(0, number)) for number in range(50)] for _ in range(2)
    ]
    assert made[0] == made[1]
    assert len(set(made[0])) > 30


def test_a_loader_that_raises_is_found(tmp_path: Path) -> None:
    def raises(_: Path) -> None:
        raise KeyError

    with pytest.raises(KeyError):
        fuzz.tried(
            fuzz.Loader(raises, [("a.yaml", b"x")], fuzz.broken), fuzz.chance_of(0, 0), tmp_path
        )


@pytest.mark.full
@pytest.mark.parametrize("kind", sorted(LOADERS))
def test_broken_files_are_refused_in_words_or_read(
    kind: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp(kind)
    monkeypatch.chdir(folder)

    @settings(
        max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @example(5693)  # a trace whose exits have no depth
    @given(st.integers(0, 10**9))
    def check(number: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fuzz.tried(LOADERS[kind], fuzz.chance_of(1, number), folder)

    check()


@pytest.mark.full
def test_the_guided_fuzzer_tries_its_sound_files_and_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("atheris")
    script = Path(__file__).with_name("fuzz_guided.py")
    done = subprocess.run(
        [sys.executable, str(script), "-runs=60", "-seed=1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Done 60 runs" in done.stderr
    assert list(tmp_path.iterdir()) == []
