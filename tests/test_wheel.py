"""The wheel works by itself: installed into a clean environment, run from a folder that is not the checkout."""

import json
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent
PYTHON = getattr(sys, "_base_executable", sys.executable)
SHIPPED = ("hardware_profiles", "scenarios")

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("wheel")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([PYTHON, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT], check=True)
    (file,) = folder.glob("specsim-*.whl")
    return file


@pytest.fixture(scope="module")
def installed(tmp_path_factory, wheel):
    """An environment that holds the wheel and what it asks for, and nothing else."""
    folder = tmp_path_factory.mktemp("installed") / "env"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", folder], check=True)
    subprocess.run([PYTHON, "-m", "pip", "--python", folder, "install", "-q", "--no-compile", wheel], check=True)
    return folder


@pytest.fixture
def specsim(installed, tmp_path):
    """Run specsim in ``here``, with a home and a temporary folder of its own; see that it writes nowhere but ``here``."""
    here, outside = tmp_path / "here", tmp_path / "outside"
    for folder in (here, outside / "home", outside / "scratch"):
        folder.mkdir(parents=True)
    names = {"PATH": "/usr/bin:/bin", "HOME": f"{outside}/home", "TMPDIR": f"{outside}/scratch"}

    def run(*args):
        before = contents(installed), contents(outside)
        command = [installed / "bin" / "specsim", *args]
        env = names | {"PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert (contents(installed), contents(outside)) == before
        return done.stdout

    run.here = here
    return run


def contents(folder):
    """Every file and folder below, with what changes when it is written."""
    paths = [Path(where, name) for where, folders, files in os.walk(folder) for name in (*folders, *files)]
    return {path: (path.lstat().st_size, path.lstat().st_mtime_ns) for path in paths}


def test_wheel_carries_the_catalogue_and_nothing_stray(wheel):
    carried = {name for name in ZipFile(wheel).namelist() if not name.startswith("specsim-")}
    tops = {name.split("/")[0] for name in carried}
    assert tops == {"simulator"}
    for folder in SHIPPED:
        files = {str(file.relative_to(ROOT)) for ending in ("yaml", "npz") for file in (ROOT / folder).rglob(f"*.{ending}")}
        assert files
        assert {f"simulator/_shipped/{file}" for file in files} <= carried
    assert not [name for name in carried if "__pycache__" in name]


def test_list_names_what_the_checkout_has(specsim):
    found = json.loads(specsim("list", "--json"))
    assert set(found["scenario"]) == {file.stem for file in (ROOT / "scenarios").glob("*.yaml")}
    assert set(found["device"]) == {file.stem for file in (ROOT / "hardware_profiles" / "devices").glob("*.yaml")}
    assert "durations_only" in specsim("list")


def test_run_and_law(specsim):
    assert json.loads(specsim("run", "durations_only", "--json"))
    assert specsim("law", "durations_only")
    assert not list(specsim.here.iterdir())


def test_run_writes_its_report_here(specsim):
    assert "reports/durations_only/report.md" in specsim("run", "durations_only")
    assert (specsim.here / "reports" / "durations_only" / "report.md").is_file()


def test_a_run_is_that_of_the_checkout(specsim):
    checkout = [sys.executable, "-c", "from simulator.cli import main; main()", "run", "durations_only", "--json"]
    done = subprocess.run(checkout, cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == json.loads(specsim("run", "durations_only", "--json"))
