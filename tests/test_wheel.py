"""The wheel works by itself: installed into a clean environment, run from a folder that is not the
checkout.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent
PYTHON = getattr(sys, "_base_executable", sys.executable)
FONTS = {
    "home/.cache",
    "home/.config",
}  # matplotlib keeps its list of fonts there, whoever draws with it
LARGEST_BYTES = 24_000_000
"""Nine tenths are recorded acceptance and the weights of the family that it was recorded from."""
EXAMPLES = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
)
SOMEBODY_ELSES = re.compile(rb"pip install ['\"]?specsim\b|specsim" + rb"\[")

full = pytest.mark.full


def pip(*args: str | Path) -> None:
    environment = {
        **os.environ,
        "PIP_CONSTRAINT": "constraints.txt",
        "PIP_BUILD_CONSTRAINT": "constraints.txt",
    }
    subprocess.run([PYTHON, "-m", "pip", *args], cwd=ROOT, env=environment, check=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "-q", "--no-deps", "-w", folder, ROOT)
    (file,) = folder.glob("specdecode_sim-*.whl")
    return file


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and what it needs, in it."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", folder], check=True)
    pip("--python", folder, "install", "-q", "--no-compile", wheel)
    return folder


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a machine on which nothing else is known; home and scratch folders are empty and
    side by side.
    """
    outside = tmp_path_factory.mktemp("outside")
    for folder in ("home", "scratch"):
        (outside / folder).mkdir()
    home = {"HOME": f"{outside}/home", "TMPDIR": f"{outside}/scratch"}
    return {**home, "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}


def names(archive: Path) -> set[str]:
    with ZipFile(archive) as opened:
        return set(opened.namelist())


def contents(folder: Path) -> set[tuple[str, int, int]]:
    """Every file and folder below, with what changes when it is written."""
    paths = [
        Path(where, name)
        for where, folders, files in os.walk(folder)
        for name in (*folders, *files)
    ]
    return {
        (str(path.relative_to(folder)), path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in paths
        if path.is_file()
    }


def files(folder: str, ending: str) -> set[str]:
    return {str(file.relative_to(ROOT)) for file in (ROOT / folder).rglob(f"*{ending}")}


def texts() -> Iterator[Path]:
    """The files of the checkout, without environments and caches."""
    for where, folders, inside in os.walk(ROOT):
        folders[:] = [
            name for name in folders if name == ".ci" or not name.startswith((".", "__pycache__"))
        ]
        yield from (Path(where, name) for name in inside)


def test_nothing_says_to_install_the_other_project_of_that_name() -> None:
    """``specsim`` on the package index is not this one."""
    assert [
        str(file.relative_to(ROOT)) for file in texts() if SOMEBODY_ELSES.search(file.read_bytes())
    ] == []


@full
def test_wheel_carries_the_code_and_the_catalogue_alone(wheel: Path) -> None:
    carried = {name for name in names(wheel) if ".dist-info/" not in name}
    catalogue = (
        files("hardware_profiles", ".yaml")
        | files("scenarios", ".yaml")
        | files("scenarios", ".npz")
    )
    assert {name for name in carried if name.endswith(".py")} == files("simulator", ".py")
    assert {f"simulator/_shipped/{file}" for file in catalogue} <= carried
    assert {
        str(file.relative_to(ROOT)) for file in (ROOT / "simulator/report/templates").iterdir()
    } <= carried
    assert "simulator/py.typed" in carried
    assert {name.partition("/")[0] for name in carried} == {"simulator"}
    assert not [name for name in carried if "__pycache__" in name]
    assert wheel.stat().st_size <= LARGEST_BYTES


@full
def test_the_source_archive_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    pip("install", "-q", "--target", tmp_path / "builder", "hatchling")
    script = f"from hatchling.build import build_sdist; build_sdist({str(tmp_path)!r})"
    builder = {**os.environ, "PYTHONPATH": str(tmp_path / "builder")}
    subprocess.run([PYTHON, "-c", script], cwd=ROOT, env=builder, check=True)
    (archive,) = tmp_path.glob("specdecode_sim-*.tar.gz")
    pip("wheel", "-q", "--no-deps", "-w", tmp_path, archive)
    (built,) = tmp_path.glob("specdecode_sim-*.whl")
    assert names(built) == names(wheel)


@full
def test_an_installed_wheel_adds_one_package_and_one_command(environment: Path) -> None:
    (site,) = environment.glob("lib/python*/site-packages")
    (information,) = site.glob("specdecode_sim-*.dist-info")
    recorded = [
        line.partition(",")[0] for line in (information / "RECORD").read_text("utf-8").splitlines()
    ]
    assert {Path(name).parts[0] for name in recorded} == {"simulator", information.name, ".."}
    assert [name for name in recorded if name.startswith("..")] == ["../../../bin/specsim"]
    others = {
        "scenarios",
        "hardware_profiles",
        "tests",
        "reports",
        "notebooks",
        "docs",
        "dev.py",
        "benchmarks",
        "specsim",
    }
    assert others & {path.name for path in site.iterdir()} == set()


@full
def test_an_installed_wheel_works_anywhere_and_writes_here_only(
    environment: Path, variables: dict[str, str], tmp_path: Path
) -> None:
    here, outside = tmp_path, Path(variables["HOME"]).parent
    before = contents(environment)

    def specsim(*args: str, fonts: bool = False) -> str:
        command = [environment / "bin" / "specsim", *args]
        done = subprocess.run(
            command, cwd=here, env=variables, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        strays = {file for file, *_ in contents(outside)}
        assert {
            file for file in strays if not (fonts and file.startswith(tuple(FONTS)))
        } == set(), args
        return done.stdout

    catalogue = json.loads(specsim("list", "--json"))
    assert {f"scenarios/{name}.yaml" for name in catalogue["scenario"]} == {
        str(file.relative_to(ROOT)) for file in ROOT.glob("scenarios/*.yaml")
    }
    devices = {f"hardware_profiles/devices/{name}.yaml" for name in catalogue["device"]}
    assert devices == files("hardware_profiles/devices", ".yaml")
    assert "durations_only" in specsim("list")

    assert specsim("law", "durations_only")
    numbers = json.loads(specsim("run", "durations_only", "--json"))
    assert not list(here.iterdir())
    for scenario in ("durations_only", "mirror_qwen3_32b_a100"):
        assert f"reports/{scenario}/report.html" in specsim("run", scenario, fonts=True)
        assert (here / "reports" / scenario / "report.md").is_file()
        page = (here / "reports" / scenario / "report.html").read_text("utf-8")
        assert re.search(r"<figure [^>]*data-timeline>", page)
    assert contents(environment) == before

    script = "from simulator.cli.main import main; main()"
    command = [sys.executable, "-c", script, "run", "durations_only", "--json"]
    checkout = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(checkout.stdout) == numbers


@full
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_readme_runs(
    environment: Path, variables: dict[str, str], tmp_path: Path, example: str
) -> None:
    command = [environment / "bin" / "python", "-c", example]
    done = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
