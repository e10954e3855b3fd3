#!/usr/bin/env python3
"""Set specsim up and run its demo, tests, checks and benchmarks.

Needs Python and pip and nothing else: the rest goes into ``.venv``, which is made when it is missing and
brought up to date when ``pyproject.toml`` has changed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parent
PROJECT = ROOT / "pyproject.toml"
VENV = ROOT / ".venv"
STAMP = VENV / "made-from"
PYTHON: str = getattr(sys, "_base_executable", sys.executable)  # never the environment's own, which has no pip
OLDEST = (3, 11)
TEST = "test,parquet"
FULL = f"{TEST},browser,dask,record"  # extras of pyproject.toml; the second drives a browser and brings torch
MUTATE = f"{TEST},mutate"
DEMO = "mirror_qwen3_32b_m2_ultra"


def wanted(extras: str = TEST) -> str:
    """What the stamp of an environment that needs nothing done says: who made it and where, and from what."""
    version = ".".join(map(str, sys.version_info[:3]))
    return f"Python {version} of {sys.base_prefix} for {ROOT}\n{hashlib.sha256(PROJECT.read_bytes()).hexdigest()}\n{extras}\n"


def ready(extras: str) -> bool:
    """Whether the environment holds what is asked for; one with more will do."""
    return any(stamped() == wanted(each) for each in (TEST, FULL, MUTATE) if {*extras.split(",")} <= {*each.split(",")})


def stamped() -> str:
    """What the stamp says; nothing if the environment is missing or its setup was interrupted."""
    with suppress(FileNotFoundError):
        return STAMP.read_text()
    return ""


def setup(extras: str = TEST) -> None:
    """Make the environment or bring it up to date, if it is not already."""
    if ready(extras):
        return
    with PROJECT.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second dev.py waits here, and then finds the work done
        if not ready(extras):
            make(extras)


def make(extras: str) -> None:
    """Install the project and what its tests need; from nothing, unless only what is to be installed has changed."""
    quietly(PYTHON, "-m", "pip", "--version", hint="This Python has no pip. On Debian: apt-get install python3-pip")
    if VENV.is_symlink():
        say(f".venv is a link to {VENV.resolve()}, which setting up would change or clear. Remove the link first.")
        sys.exit(1)
    goal, same_maker = wanted(extras), stamped().partition("\n")[0] == wanted().partition("\n")[0]
    STAMP.unlink(missing_ok=True)
    say("updating .venv" if same_maker else "setting up .venv (about a minute)")
    if not same_maker:
        quietly(PYTHON, "-m", "venv", "--without-pip", "--clear", str(VENV), hint="On Debian: apt-get install python3")
    hint = "Could not install what pyproject.toml asks for."
    quietly(PYTHON, "-m", "pip", "--python", str(VENV), "install", "--no-input", "-e", f".[{extras}]", hint=hint)
    STAMP.write_text(goal)  # last, so that an interrupted setup starts over


def say(line: str) -> None:
    """One line about what goes on, out of the way of what commands print."""
    print(f"dev.py: {line}", file=sys.stderr, flush=True)


def quietly(*command: str, hint: str) -> None:
    """Run a command; only if it fails, show what it printed and a hint, and end."""
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        say(hint)
        sys.exit(done.returncode)


def call(tool: str, *args: str, cwd: Path = ROOT) -> int:
    """Run a tool of the environment; its exit code."""
    with subprocess.Popen([str(VENV / "bin" / tool), *args], cwd=cwd) as process:
        while process.returncode is None:
            with suppress(KeyboardInterrupt):  # the tool got it too and ends in its own way
                process.wait()
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def demo() -> int:
    """Run a shipped scenario, from wherever this was called."""
    return call("specsim", "run", DEMO, "--out", os.path.relpath(ROOT / "reports" / DEMO), cwd=Path.cwd())


def test(full: bool, args: list[str]) -> int:
    """Run pytest: the fast tier, or everything."""
    return call("pytest", "-n", "2", *([] if full else ["-m", "not full"]), *args)


def lint() -> int:
    """Run every check, also after one has failed."""
    return max([call("ruff", "check"), call("ruff", "format", "--check"), call("mypy")])


def bench() -> int:
    """Run every benchmark and write the page that is committed."""
    return call("python", str(ROOT / "benchmarks" / "report.py"))


def validate() -> int:
    """Compare laws with simulations and published values with runs, and write the report that is committed."""
    return call("specsim", "validate", "--out", "reports/validation")


def reference() -> int:
    """Write docs/reference anew from the command line and the classes that files are read into."""
    return call("python", "docs/write_reference.py", cwd=ROOT)


def fuzz(minutes: float, seed: int) -> int:
    """Break shipped files by chance and hand them to every loader."""
    return call("python", "tests/fuzz.py", "--minutes", str(minutes), "--seed", str(seed))


def matrix() -> int:
    """Make an environment for each other Python that is supported and found, and compare what all of them write."""
    pythons = [python for minor in (11, 12, 13) if minor != sys.version_info[1] for python in found(f"python3.{minor}")]
    made = []
    for python in pythons:
        folder = ROOT / f".venv-{Path(python).name}"
        say(f"setting up {folder.name}")
        quietly(python, "-m", "venv", "--without-pip", "--clear", str(folder), hint="This Python makes no environments.")
        quietly(PYTHON, "-m", "pip", "--python", str(folder), "install", "--no-input", "-e", ".", hint="Could not install.")
        made.append(str(folder / "bin" / "python"))
    if not made:
        say("no other Python from 3.11 to 3.13 is on the path or under pyenv")
        return 1
    os.environ["SPECSIM_PYTHONS"] = " ".join(made)
    return call("pytest", "tests/test_determinism.py", "-v")


def found(name: str) -> list[str]:
    """The interpreter of this name, if there is one that starts: on the path, or under pyenv, newest first."""
    kept = sorted(Path.home().glob(f".pyenv/versions/*/bin/{name}"), reverse=True)
    paths = [path for path in (shutil.which(name), *map(str, kept)) if path]
    starts = (path for path in paths if not subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode)
    return list(islice(starts, 1))


def mutate(args: list[str]) -> int:
    """Break laws, costs, acceptance and world one place at a time, and see which faults no test finds."""
    return call("python", "tests/mutate.py", *args)


def main(argv: list[str] | None = None) -> int:
    """Read the command line, set up, and do what it asks."""
    if sys.version_info < OLDEST:
        say("specsim needs Python 3.11 or newer. On Debian 12 or newer: apt-get install python3 python3-pip")
        return 1
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="dev.py", description=__doc__, formatter_class=raw)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser("setup", help="make .venv or bring it up to date; every other verb does this first")
    verbs.add_parser("demo", help=f"simulate {DEMO} and write its report")
    tests = verbs.add_parser("test", help="run the fast tests, or all of them with --full", allow_abbrev=False)
    tests.usage = "dev.py test [--full] [PYTEST ARGUMENT ...]"
    tests.add_argument("--full", action="store_true", help="the slow tests and those that need torch or a browser as well")
    verbs.add_parser("lint", help="run ruff check, ruff format --check and mypy")
    verbs.add_parser("bench", help="run benchmarks/bench_*.py and write reports/benchmarks.md")
    verbs.add_parser(
        "validate", help="compare runs with what the papers print, with the committed fits; writes reports/validation"
    )
    verbs.add_parser("reference", help="write docs/reference anew, from the command line and the classes of files")
    fuzzing = verbs.add_parser("fuzz", help="break shipped files by chance and hand them to every loader")
    fuzzing.add_argument("--minutes", type=float, default=1.0)
    fuzzing.add_argument("--seed", type=int, default=0)
    verbs.add_parser("matrix", help="compare what every supported Python that is found writes, byte by byte")
    verbs.add_parser(
        "mutate", help="break laws, costs, acceptance and world; writes the scores to tests/MUTANTS.md", add_help=False
    )
    options, rest = parser.parse_known_args(argv)
    if rest and options.verb not in {"test", "mutate"}:
        parser.error(f"{options.verb} takes no {rest[0]}")
    setup(MUTATE if options.verb == "mutate" else FULL if options.verb == "test" and options.full else TEST)
    if options.verb == "mutate":
        return mutate(rest)
    if options.verb == "test":
        return test(options.full, rest)
    if options.verb == "fuzz":
        return fuzz(options.minutes, options.seed)
    plain = (demo, lint, bench, validate, reference, matrix)
    return {"setup": lambda: 0, **{verb.__name__: verb for verb in plain}}[options.verb]()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
