"""dev.py: when it sets up, what it hands on, and that it runs on nothing but the standard
library.
"""

import ast
import json
import os
import re
import subprocess
import sys
import time
from importlib.metadata import distributions
from pathlib import Path
from types import SimpleNamespace

import pytest

import dev
from tests.pins import PINS

PYTEST = ("pytest", "-n", "2")
QUIETLY = dev.quietly


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A project of its own for dev.py, the steps of setting it up that it ran, and the step that
    fails.
    """
    places = {
        "ROOT": ".",
        "PROJECT": "pyproject.toml",
        "PINS": "constraints.txt",
        "VENV": ".venv",
        "STAMP": ".venv/made-from",
    }
    for name, place in places.items():
        monkeypatch.setattr(dev, name, tmp_path / place)
    dev.PROJECT.write_text("[project]\n")
    dev.PINS.write_text("simpy==4.1.2\n")
    state = SimpleNamespace(ran=[], fails=None)

    def quietly(*command, hint, constraints=None):
        step = "venv" if "venv" in command else "install" if "install" in command else "check"
        if step == state.fails:
            raise SystemExit(7)
        state.ran.append(step)
        state.constraints = constraints
        dev.VENV.mkdir(exist_ok=True)

    monkeypatch.setattr(dev, "quietly", quietly)
    return state


def ran(checkout):
    """What a setup runs now."""
    checkout.ran = []
    dev.setup()
    return checkout.ran


def test_setup_does_nothing_the_second_time(checkout, capsys):
    assert ran(checkout) == ["check", "venv", "install"]
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert ran(checkout) == []
    assert capsys.readouterr() == ("", "")


def test_the_full_tier_adds_to_the_environment_once(checkout):
    dev.setup()
    checkout.ran = []
    dev.setup(dev.FULL)
    assert checkout.ran == ["check", "install"]
    assert ran(checkout) == []


@pytest.mark.parametrize("file", ["pyproject.toml", "constraints.txt"])
def test_setup_updates_after_a_change_of_what_is_asked_for(checkout, file):
    dev.setup()
    (dev.ROOT / file).write_text("[project]\nname = 'x'\n")
    assert ran(checkout) == ["check", "install"]
    assert ran(checkout) == []


def test_setup_says_what_it_installs_and_in_which_versions(checkout, capsys):
    dev.setup(dev.FULL)
    assert checkout.constraints == dev.PINS
    before, after = capsys.readouterr().err.splitlines()
    assert (
        f"specdecode-sim[{dev.FULL}], versions of constraints.txt, {dev.COSTS[dev.FULL]}" in before
    )
    assert re.search(r"done in \d+ s", after)
    assert all(
        re.search(r"GB|gigabytes", cost) and "minutes" in cost for cost in dev.COSTS.values()
    )


def test_constraints_reach_what_is_installed_and_what_builds_it(checkout, capfd):
    """pip up to 25.2 has one variable for both; newer ones have two."""
    asked = (
        "import os, sys; sys.exit(os.environ['PIP_CONSTRAINT'] + "
        "os.environ['PIP_BUILD_CONSTRAINT'])"
    )
    with pytest.raises(SystemExit):
        QUIETLY(sys.executable, "-c", asked, hint="", constraints=dev.PINS)
    assert "constraints.txtconstraints.txt" in capfd.readouterr().err


@pytest.mark.parametrize("what", ["version_info", "base_prefix"])
def test_setup_starts_over_for_another_python(checkout, monkeypatch, what):
    dev.setup()
    monkeypatch.setattr(sys, what, {"version_info": (3, 99, 0), "base_prefix": "/elsewhere"}[what])
    assert ran(checkout) == ["check", "venv", "install"]


def test_setup_starts_over_in_a_moved_checkout(checkout, monkeypatch, tmp_path):
    dev.setup()
    monkeypatch.setattr(dev, "ROOT", tmp_path / "moved")
    assert ran(checkout) == ["check", "venv", "install"]


@pytest.mark.parametrize("changed", [False, True])
def test_setup_starts_over_after_an_interruption(checkout, changed):
    if changed:
        dev.setup()
        dev.PROJECT.write_text("[project]\nname = 'x'\n")
    checkout.fails = "install"
    with pytest.raises(SystemExit, match="7"):
        dev.setup()
    checkout.fails = None
    assert ran(checkout) == ["check", "venv", "install"]
    assert ran(checkout) == []


def test_an_environment_behind_a_link_is_somebody_elses(checkout, capsys, tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "kept").touch()
    dev.VENV.symlink_to(tmp_path / "theirs")
    with pytest.raises(SystemExit, match="1"):
        dev.setup()
    assert checkout.ran == ["check"]
    assert [path.name for path in (tmp_path / "theirs").iterdir()] == ["kept"]
    assert "Remove the link first" in capsys.readouterr().err


def test_setup_without_pip_leaves_the_environment_alone(checkout):
    dev.setup()
    before = dev.STAMP.read_text()
    dev.PROJECT.write_text("[project]\nname = 'x'\n")
    checkout.fails = "check"
    with pytest.raises(SystemExit):
        dev.setup()
    assert dev.STAMP.read_text() == before


def test_quietly_is_silent_unless_it_fails(capfd):
    dev.quietly(sys.executable, "-c", "print('noise')", hint="do this")
    assert capfd.readouterr() == ("", "")
    with pytest.raises(SystemExit) as end:
        dev.quietly(sys.executable, "-c", "print('cause'); exit(5)", hint="do this")
    assert end.value.code == 5
    assert capfd.readouterr() == ("", "cause\ndev.py: do this\n")


def test_call_hands_on_exit_codes_and_signals(monkeypatch):
    monkeypatch.setattr(dev, "VENV", Path(sys.executable).parent.parent)
    python = Path(sys.executable).name
    assert dev.call(python, "-c", "") == 0
    assert dev.call(python, "-c", "exit(3)") == 3
    assert dev.call(python, "-c", "import os; os.kill(os.getpid(), 15)") == 128 + 15


@pytest.mark.parametrize(
    ("argv", "calls"),
    [
        (["setup"], []),
        (["test"], [(*PYTEST, "-m", "not full")]),
        (
            ["test", "-k", "model or cost", "-x"],
            [(*PYTEST, "-m", "not full", "-k", "model or cost", "-x")],
        ),
        (["test", "--full", "tests/test_dev.py"], [(*PYTEST, "tests/test_dev.py")]),
        (
            ["lint"],
            [
                ("ruff", "check"),
                ("ruff", "format", "--check"),
                ("mypy",),
                ("python", "tools/words.py"),
                ("python", "tools/plainness.py"),
            ],
        ),
        (
            ["fuzz", "--minutes", "3"],
            [("python", "tools/fuzz.py", "--minutes", "3.0", "--seed", "0")],
        ),
        (
            ["soak", "--minutes", "3"],
            [("python", "tools/soak.py", "--minutes", "3.0", "--seed", "0")],
        ),
        (["mutate", "world", "--again"], [("python", "tools/mutate.py", "world", "--again")]),
        (["validate"], [("specsim", "validate", "--out", "reports/validation")]),
        (["site"], [("python", "docs/write_site.py")]),
    ],
)
def test_verbs_set_up_and_call_tools(monkeypatch, argv, calls):
    done = []
    monkeypatch.setattr(dev, "setup", lambda extras=dev.TEST: done.append("setup"))
    monkeypatch.setattr(dev, "call", lambda *command, cwd=None: done.append(command) or 0)
    assert dev.main(argv) == 0
    assert done == ["setup", *calls]


@pytest.mark.skipif(not (dev.ROOT / ".git").exists(), reason="what is copied is what git knows")
def test_elsewhere_is_a_copy_with_a_blank_where_nothing_is_set(monkeypatch, tmp_path):
    tool = tmp_path / "venv" / "bin" / "pytest"
    tool.parent.mkdir(parents=True)
    tell = """pwd; test -f tests/conftest.py && printf '%s\\n' "$*"; env"""
    tool.write_text(f"#!/bin/sh\n{{ {tell}; }} > {tmp_path}/told\nexit 4\n")
    tool.chmod(0o755)
    monkeypatch.setattr(dev, "VENV", tmp_path / "venv")
    monkeypatch.setattr(dev, "isolated", lambda: ())
    assert dev.elsewhere(["tests/test_world.py"]) == 4
    folder, words, *environment = (tmp_path / "told").read_text().splitlines()
    assert " " in Path(folder).name
    assert not Path(folder).exists()
    assert words.endswith("tests/test_world.py")
    assert {line.partition("=")[0] for line in environment} <= {
        "PATH",
        "LC_ALL",
        "SPECSIM_ORDER",
        "PYTHONDONTWRITEBYTECODE",
        "PWD",
        "_",
    }


def test_without_the_tools_that_isolate_the_tests_run_as_they_are(monkeypatch, capsys):
    monkeypatch.setattr(dev.shutil, "which", lambda tool: None)
    assert dev.isolated() == ()
    assert "with network and rights as they are: unshare, ip" in capsys.readouterr().err


def test_lint_runs_every_check_and_fails_with_any(monkeypatch):
    codes = {"ruff": 1, "mypy": 0, "python": 0}
    done = []
    monkeypatch.setattr(dev, "setup", lambda extras: None)
    monkeypatch.setattr(dev, "call", lambda tool, *args: done.append(tool) or codes[tool])
    assert dev.main(["lint"]) == 1
    assert done == ["ruff", "ruff", "mypy", "python", "python"]


def test_demo_writes_into_the_checkout_from_anywhere(monkeypatch, tmp_path):
    calls = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dev, "call", lambda *command, cwd: calls.append((command, cwd)) or 0)
    assert dev.demo() == 0
    ((command, cwd),) = calls
    assert (cwd / command[-1]).resolve() == dev.ROOT / "reports" / dev.DEMO


@pytest.mark.parametrize(
    ("argv", "run"), [(["notebooks"], ["1_law"]), (["notebooks", "--full"], ["1_law", "2_trace"])]
)
def test_notebooks_are_run_where_git_ignores_them(checkout, monkeypatch, capsys, argv, run):
    (dev.ROOT / "notebooks").mkdir()
    (dev.ROOT / "notebooks" / "1_law.py").write_text("import simulator\n")
    (dev.ROOT / "notebooks" / "2_trace.py").write_text("import torch\n")
    made, calls = dev.ROOT / "build" / "notebooks", []
    monkeypatch.setattr(dev, "call", lambda *words: calls.append(words) or len(calls) - 1)
    assert dev.main(argv) == len(run) - 1, "the exit code of the worst"
    assert [words[-2:] for words in calls] == [
        (f"{made}/{name}.ipynb", f"{dev.ROOT}/notebooks/{name}.py") for name in run
    ]
    assert all({"--execute", "--run-path"} <= {*words} for words in calls)
    assert made.is_dir()
    assert ("2_trace needs torch" in capsys.readouterr().err) == (len(run) == 1)


def test_bench_writes_its_page(checkout, monkeypatch):
    calls = []
    monkeypatch.setattr(dev, "call", lambda *command: calls.append(command) or 0)
    assert dev.bench() == 0
    assert calls == [("python", str(dev.ROOT / "benchmarks" / "report.py"))]


def test_other_verbs_take_no_arguments(monkeypatch, capsys):
    monkeypatch.setattr(dev, "setup", lambda: pytest.fail("set up before reading the command line"))
    with pytest.raises(SystemExit, match="2"):
        dev.main(["lint", "--fix"])
    assert "lint takes no --fix" in capsys.readouterr().err


def test_an_old_python_is_told_so(monkeypatch, capsys):
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    assert dev.main(["setup"]) == 1
    assert "needs Python 3.11" in capsys.readouterr().err


def test_the_newest_python_that_starts_is_taken(tmp_path, monkeypatch):
    """What pyenv leaves on the path where no version is chosen does not start."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "shims"))
    assert dev.interpreter("python3.99") is None
    for place, code in {
        "shims": 127,
        ".pyenv/versions/3.99.1/bin": 0,
        ".pyenv/versions/3.99.0/bin": 0,
    }.items():
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "python3.99").write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / place / "python3.99").chmod(0o755)
    assert dev.interpreter("python3.99") == str(tmp_path / ".pyenv/versions/3.99.1/bin/python3.99")


def test_the_matrix_hands_the_tests_every_other_python(checkout, monkeypatch, capsys):
    monkeypatch.setenv("SPECSIM_PYTHONS", "")
    monkeypatch.setattr(dev, "interpreter", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(dev, "call", lambda *words: (words, os.environ["SPECSIM_PYTHONS"].split()))
    words, pythons = dev.other_pythons()
    assert words[:2] == ("pytest", "tests/test_determinism.py")
    supported = {f"{dev.ROOT}/.venv-python3.{minor}/bin/python" for minor in (11, 12, 13)}
    assert set(pythons) == supported - {
        f"{dev.ROOT}/.venv-python3.{sys.version_info[1]}/bin/python"
    }
    assert checkout.constraints == dev.PINS
    monkeypatch.setattr(dev, "interpreter", lambda name: None)
    assert dev.other_pythons() == 1
    assert "no other Python" in capsys.readouterr().err


@pytest.mark.parametrize(("codes", "code"), [((0, 0), 0), ((3, 0), 3), ((0, 5), 5)])
def test_the_matrix_fails_with_either_half(monkeypatch, codes, code):
    halves = dict(zip(("other_pythons", "lowest"), codes, strict=True))
    for name, ends in halves.items():
        monkeypatch.setattr(dev, name, lambda ends=ends: ends)
    assert dev.matrix() == code


def test_the_lowest_versions_are_installed_and_tested(checkout, monkeypatch, capsys):
    dev.PROJECT.write_text(
        """[project]
dependencies = ["simpy>=4.1.0", "pyyaml>=6"]
[project.optional-dependencies]
test = ["types-PyYAML>=6.0.12; python_version >= '3.11'"]
parquet = ["pyarrow>=14.0.1,<99"]
record = ["torch>=2.6"]
"""
    )
    (dev.ROOT / ".venv-lowest").mkdir()
    monkeypatch.setattr(dev, "interpreter", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(dev, "call", lambda *words, venv: (words, venv))
    assert dev.lowest() == (
        ("python", "-m", "pytest", "-n", "2", "-m", "not full"),
        dev.ROOT / ".venv-lowest",
    )
    assert checkout.ran == ["venv", "install"]
    assert (
        checkout.constraints.read_text()
        == "simpy==4.1.0\npyyaml==6\ntypes-PyYAML==6.0.12\npyarrow==14.0.1\n"
    )
    monkeypatch.setattr(dev, "oldest_python", lambda: None)
    assert dev.lowest() == 1
    assert "Python 3.11" in capsys.readouterr().err


def test_pin_writes_what_pip_would_install(checkout, monkeypatch):
    """Without the project itself, builds of a version, and what only the CUDA build of torch
    brings.
    """
    versions = {
        "torch": "2.13.0+cpu",
        "specdecode-sim": "0.2.0",
        "Jinja2": "3.1.6",
        "nvidia-nvtx": "13",
        "triton": "3",
    }
    commands = []

    def quietly(*command, hint):
        commands.append(command)
        packages = [
            {"metadata": {"name": name, "version": version}} for name, version in versions.items()
        ]
        Path(command[command.index("--report") + 1]).write_text(json.dumps({"install": packages}))

    monkeypatch.setattr(dev, "quietly", quietly)
    monkeypatch.setattr(dev, "setup", lambda *extras: pytest.fail("pin needs no environment"))
    assert dev.main(["pin", "torch==2.13.0"]) == 0
    text = dev.PINS.read_text()
    assert "python3 dev.py pin torch==2.13.0\n" in text
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        "Jinja2==3.1.6",
        "torch==2.13.0",
    ]
    assert commands[0][-4:] == (
        f".[{','.join(sorted({*dev.FULL.split(','), 'mutate', 'lab'}))}]",
        *dev.BUILD,
        "torch==2.13.0",
    )


def numbers(version):
    return [int(part) for part in re.findall(r"\d+", version)]


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_constraints_pin_all_that_pyproject_names_within_its_bounds():
    pinned = {normal(name): version for name, version in PINS.items()}
    bounds = dev.lower_bounds(f"{dev.FULL},{dev.MUTATE},{dev.LAB}") | dict.fromkeys(dev.BUILD, "0")
    assert sorted(name for name in bounds if normal(name) not in pinned) == [], (
        "run `python3 dev.py pin`"
    )
    low = {
        name: bound
        for name, bound in bounds.items()
        if numbers(pinned[normal(name)]) < numbers(bound)
    }
    assert low == {}, "run `python3 dev.py pin`"
    assert not re.search(
        r"://|--|@|;", "\n".join(f"{name}=={version}" for name, version in PINS.items())
    )


@pytest.mark.skipif(
    Path(sys.prefix) != dev.VENV or not dev.ready(dev.TEST),
    reason="needs the environment that dev.py made",
)
def test_the_environment_holds_what_constraints_pin():
    pinned = {normal(name): version for name, version in PINS.items()}
    installed = {
        normal(package.name): package.version.partition("+")[0] for package in distributions()
    }
    ours = {
        name: version
        for name, version in installed.items()
        if name != "specdecode-sim" and not dev.CUDA.match(name)
    }
    assert ours.items() - pinned.items() == set(), "run `python3 dev.py pin`"


def test_nothing_but_the_standard_library():
    # an old Python must get to say its line
    tree = ast.parse(Path(dev.__file__).read_text(), feature_version=(3, 8))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in imports
        for alias in node.names
    }
    assert names <= sys.stdlib_module_names | {"__future__"}


def test_a_second_setup_is_quick(checkout):
    """Hardly more than starting Python, three times over and taken turn by turn."""
    (dev.ROOT / "dev.py").write_text(Path(dev.__file__).read_text())
    dev.setup()

    def seconds(*command):
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *command], cwd=dev.ROOT, capture_output=True, check=True
        )
        assert (done.stdout, done.stderr) == (b"", b"")
        return time.perf_counter() - start

    ratios = sorted(seconds("dev.py", "setup") / seconds("-c", "") for _ in range(3))
    assert ratios[0] < 20


@pytest.mark.parametrize(("fails", "steps"), [("", 5), ("accepted", 2), ("served", 3)])
def test_exports_are_written_asked_served_kept_and_judged(monkeypatch, fails, steps):
    """In this order, the engines in an environment of their own; the first failure ends it."""
    ran = []

    def step(*words):
        ran.append(words)
        return 3 if fails and any(fails in str(word) for word in words) else 0

    monkeypatch.setattr(dev, "vllm_python", lambda: Path("/vllm/bin/python"))
    monkeypatch.setattr(dev, "call", step)
    monkeypatch.setattr(dev, "call_apart", step)
    installed = []
    monkeypatch.setattr(dev, "quietly", lambda *words, hint: installed.append(words))
    assert dev.exports(judge=False) == (3 if fails else 0)
    folder = str(dev.ROOT / "build/exports")
    python = Path("/vllm/bin/python")
    assert (
        ran
        == [
            ("python", "-m", "benchmarks.exports", "write", folder),
            (python, "benchmarks.exports.accepted", folder),
            (python, "benchmarks.exports.served", folder),
            ("python", "-m", "benchmarks.exports", "keep", folder),
            ("python", "-m", "benchmarks.exports"),
        ][:steps]
    )
    assert installed[0][3:5] == ("--python", "/vllm")
    assert installed[0][-4:] == dev.SGLANG
    ran.clear()
    assert dev.exports(judge=True) == 0
    assert ran == [("python", "-m", "benchmarks.exports")]
