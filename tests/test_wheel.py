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
FONTS = {"home/.cache", "home/.config"}  # matplotlib keeps its list of fonts there, whoever draws with it

pytestmark = pytest.mark.full


def pip(*args):
    subprocess.run([PYTHON, "-m", "pip", *args], check=True)


def build(folder):
    """The wheel of this checkout, made in ``folder``."""
    pip("wheel", "-q", "--no-deps", "-w", folder, ROOT)
    (file,) = folder.glob("specdecode_sim-*.whl")
    return file


def contents(folder):
    """Every file and folder below, with what changes when it is written."""
    paths = [Path(where, name) for where, folders, files in os.walk(folder) for name in (*folders, *files)]
    return {(str(path.relative_to(folder)), path.lstat().st_size, path.lstat().st_mtime_ns) for path in paths if path.is_file()}


def files(folder, ending):
    return {str(file.relative_to(ROOT)) for file in (ROOT / folder).rglob(f"*{ending}")}


def test_wheel_carries_the_code_and_the_catalogue_alone(tmp_path):
    with ZipFile(build(tmp_path)) as wheel:
        carried = {name for name in wheel.namelist() if ".dist-info/" not in name}
    catalogue = files("hardware_profiles", ".yaml") | files("scenarios", ".yaml") | files("scenarios", ".npz")
    assert {name for name in carried if name.endswith(".py")} == files("simulator", ".py")
    assert {f"simulator/_shipped/{file}" for file in catalogue} <= carried
    assert {str(file.relative_to(ROOT)) for file in (ROOT / "simulator/report/templates").iterdir()} <= carried
    assert {name.partition("/")[0] for name in carried} == {"simulator"}
    assert not [name for name in carried if "__pycache__" in name]


def test_an_installed_wheel_works_anywhere_and_writes_here_only(tmp_path):
    installed, here, outside = tmp_path / "env", tmp_path / "here", tmp_path / "outside"
    for folder in (here, outside / "home", outside / "scratch"):
        folder.mkdir(parents=True)
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", installed], check=True)
    pip("--python", installed, "install", "-q", "--no-compile", build(tmp_path))
    environ = {
        "HOME": f"{outside}/home",
        "TMPDIR": f"{outside}/scratch",
        "PATH": "/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    environment = contents(installed)

    def specsim(*args, fonts=False):
        command = [installed / "bin" / "specsim", *args]
        done = subprocess.run(command, cwd=here, env=environ, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        strays = {file for file, *_ in contents(outside)}
        assert {file for file in strays if not (fonts and file.startswith(tuple(FONTS)))} == set(), args
        return done.stdout

    found = json.loads(specsim("list", "--json"))
    assert {f"scenarios/{name}.yaml" for name in found["scenario"]} == {
        str(f.relative_to(ROOT)) for f in ROOT.glob("scenarios/*.yaml")
    }
    assert {f"hardware_profiles/devices/{name}.yaml" for name in found["device"]} == files("hardware_profiles/devices", ".yaml")
    assert "durations_only" in specsim("list")

    assert specsim("law", "durations_only")
    numbers = json.loads(specsim("run", "durations_only", "--json"))
    assert not list(here.iterdir())
    assert "reports/durations_only/report.html" in specsim("run", "durations_only", fonts=True)
    assert (here / "reports" / "durations_only" / "report.md").is_file()
    assert "<figure data-timeline>" in (here / "reports" / "durations_only" / "report.html").read_text("utf-8")
    assert contents(installed) == environment

    script = "from simulator.cli.main import main; main()"
    command = [sys.executable, "-c", script, "run", "durations_only", "--json"]
    checkout = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(checkout.stdout) == numbers
