"""Whether an installation is whole: what is missing is said with what adds it."""

from __future__ import annotations

import json
import re
import tomllib
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import pytest
from click.testing import CliRunner
from packaging.requirements import Requirement

from simulator.cli.main import main
from simulator.evidence import installation
from simulator.evidence.installation import (
    DISTRIBUTION,
    EXTRAS,
    Check,
    examine,
    is_whole,
    requirements,
    unmet,
)
from simulator.inputs.catalogue import Catalogue

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
NEEDED = ("simpy>=4.0", "no-such-package>=2.0", "numpy>=99.1", 'rich; extra == "more"')


def test_every_extra_is_told_with_what_it_is_for() -> None:
    assert set(EXTRAS) == set(PROJECT["optional-dependencies"])
    assert PROJECT["name"] == DISTRIBUTION


def test_what_is_needed_is_what_the_project_states() -> None:
    assert {str(one).lower() for one in requirements()} == set(PROJECT["dependencies"])
    for extra, stated in PROJECT["optional-dependencies"].items():
        names = {re.split(r"[^\w.-]", one)[0].lower() for one in stated}
        assert {one.name.lower() for one in requirements(extra)} <= names


def test_this_installation_is_whole() -> None:
    checks = {check.what: check for check in examine()}
    assert is_whole(list(checks.values()))
    assert {"Python", "packages", "catalogue", "recordings", "a run", "cache"} <= set(checks)
    assert checks["a run"].words == "10 ms per token, 10 by hand"
    assert [what for what, check in checks.items() if check.state == "ok" and check.remedy] == []
    done = CliRunner().invoke(main, ["doctor", "--json"])
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert data["whole"] is True
    assert [check["what"] for check in data["checks"]] == list(checks)


def test_what_is_missing_is_said_and_ends_with_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "requires", lambda _: NEEDED)
    monkeypatch.setattr(installation, "CHECKS", {"packages": installation._packages})
    done = CliRunner().invoke(main, ["doctor"])
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert " ".join(lines[0].split()) == (
        "MISSING no-such-package not installed; no-such-package>=2.0 is needed"
    )
    assert "add it: pip install" in lines[1]
    assert f"{metadata.version('numpy')}; numpy>=99.1 is needed" in lines[2]
    assert lines[-1] == "Missing: no-such-package, numpy."


def test_an_extra_that_is_not_there_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "requires", lambda _: ('nothing-here; extra == "dask"',))
    monkeypatch.setattr(installation, "CHECKS", {"extras": installation._extras})
    checks = {check.what: check for check in examine()}
    dask = checks["[dask]"]
    assert (dask.state, dask.words) == ("optional", f"{EXTRAS['dask']}: lacks nothing-here")
    assert dask.remedy in ("pip install -e '.[dask]'", "pip install 'specdecode-sim[dask]'")
    assert is_whole(list(checks.values()))


def test_a_recording_that_was_damaged_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte of the data is another one: the checksum of ZIP tells it."""
    good, bad, none = (tmp_path / f"{name}.npz" for name in ("good", "bad", "none"))
    for path in (good, bad):
        with ZipFile(path, "w") as archive:
            archive.writestr("kept.npy", b"12345678")
    bad.write_bytes(bad.read_bytes().replace(b"12345678", b"12345679"))
    none.write_bytes(b"no archive")
    files = {"good": good, "bad": bad, "none": none}
    monkeypatch.setattr(Catalogue, "names", lambda _, kind: files)
    (found,) = installation._recordings()
    assert found[:3] == ("recordings", "missing", "bad, none: not as shipped")


def test_whatever_a_check_trips_over_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[Check]:
        raise ImportError("no module named x\nmore")

    monkeypatch.setattr(installation, "CHECKS", {"a run": broken})
    (check,) = examine()
    assert check[:3] == ("a run", "missing", "ImportError: no module named x")
    assert check.remedy


def test_a_folder_that_cannot_be_written_to_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert installation._writable(tmp_path)
    assert not installation._writable(tmp_path / "none")
    monkeypatch.setattr(installation, "_writable", lambda _: False)
    states = {check.what: check.state for check in installation._pictures()}
    assert states["cache"] == "optional"
    assert [check.state for check in installation._reports()] == ["optional"]


@pytest.mark.parametrize(
    ("installed", "met"),
    [("1.10.0", True), ("1.9.0rc1", False), ("2.0b1", True), ("1.8.9", False), ("", False)],
)
def test_versions_are_those_of_pip(
    installed: str, met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def known(_: str) -> str:
        if not installed:
            raise metadata.PackageNotFoundError
        return installed

    monkeypatch.setattr(installation, "version", known)
    assert (unmet([Requirement("x>=1.9")]) == []) is met
