#!/usr/bin/env python3
"""Mutation testing: which small faults in laws, costs, acceptance and world would the fast tests
let through?

    python3 dev.py mutate [--again] [--share F] [MODULE ...]

mutmut breaks the functions of a module one place at a time and runs the tests that reach the broken
function. What counts and what does not is the same for every module and stands in
:data:`NOT_COUNTED` and :func:`without_decorators`. ``--again`` tries only what survived the last
time. The scores go to ``tests/MUTANTS.md``, the survivors to the screen.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import chdir
from datetime import UTC, datetime
from math import ceil, sqrt
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / ".mutants"
PAGE = ROOT / "tests/MUTANTS.md"
GOAL = 0.85
BEGIN, END = "<!-- scores: written by dev.py mutate -->", "<!-- end of scores -->"


def laws() -> list[str]:
    """Return the file of every strategy of the core, below ``simulator`` and without its ending."""
    package = ROOT / "simulator"
    folder = package / "core/strategies"
    files = folder.glob("[!_]*.py")
    return sorted(file.relative_to(package).with_suffix("").as_posix() for file in files)


def papers() -> list[str]:
    """Return the papers that have a strategy, in order of names."""
    return sorted(file.parent.name for file in (ROOT / "simulator/papers").glob("*/strategy.py"))


def strategies_of(paper: str) -> list[str]:
    """Return the file of a paper's strategy, and of further ones that are called after it."""
    package = ROOT / "simulator"
    folder = package / "papers" / paper
    files = [folder / "strategy.py", *sorted(folder.glob(f"{paper}_*.py")), *folder.glob("laws.py")]
    return [file.relative_to(package).with_suffix("").as_posix() for file in files]


STEPS = ("steps_by_hand", "worked_examples")
QUICKER = {"specpipe": ("specpipe_by_hand", "specpipe")}
"""Tests of papers that are not held by their worked examples."""


def tests_of(paper: str) -> Sequence[str]:
    """Return the tests of a paper's strategy: its own steps by hand and examples, or a file called
    after it, or the steps of all.
    """
    if paper in QUICKER:
        return QUICKER[paper]
    for own in ([f"{paper}_by_hand", f"{paper}_examples"], [paper]):
        if all((ROOT / f"tests/test_{name}.py").exists() for name in own):
            return own
    return STEPS


def tests_by_module(paper: str) -> dict[str, Sequence[str]]:
    """Return the tests of each file of a paper's strategies: those of the paper, and a file called
    after the module.
    """
    tests = {}
    for module in strategies_of(paper):
        name = Path(module).name
        further = name.startswith(f"{paper}_") and (ROOT / f"tests/test_{name}.py").exists()
        tests[module] = (*tests_of(paper), name) if further else tests_of(paper)
    return tests


GROUPS: dict[str, dict[str, Sequence[str]]] = {
    "world": {"core/world": ("world", "worked_examples")},
    "acceptance": {"core/acceptance/sources": ("acceptance", "worked_examples")},
    "cost": {
        f"core/cost/{name}": ("cost", "cost_by_hand")
        for name in ("rows", "placement", "kernels", "hardware_cost")
    },
    "laws": {
        "core/strategies/common/base": (*STEPS, "laws"),
        "core/strategies/autoregressive": STEPS,
        "core/strategies/vanilla_sd": STEPS,
        "core/strategies/tree_sd": ("steps_by_hand", "tree_sd"),
        "core/strategies/pipeline": ("stages_by_hand", "pipeline_tree"),
        "core/strategies/pipeline_tree": ("stages_by_hand", "pipeline_tree"),
        "core/strategies/common/ahead": ("edge_sd", "specactor"),
        "core/strategies/common/pipeline_laws": (
            "stages_by_hand",
            "specpipe_by_hand",
            "pipeline_laws",
            "specpipe_examples",
        ),
        "core/numeric": ("binomial",),
        "core/acceptance/sequence_chances": (
            "duodecoding_by_hand",
            "duodecoding_examples",
            "sequences",
        ),
        "studies/sweep/grid": ("grid",),
    },
}
"""Modules of ``simulator`` by group, and the test files that hold each; a paper is a group."""
GROUPS["laws"] |= {law: (*STEPS, "laws") for law in laws() if law not in GROUPS["laws"]}
GROUPS |= {paper: tests_by_module(paper) for paper in papers()}

TESTS = {module: tests for modules in GROUPS.values() for module, tests in modules.items()}

KILLED = ("killed", "timeout")
NOT_COUNTED = [r"\braise\b", r"\b(ValueError|BadInput|Fault)\("]
"""Lines whose expressions are left whole: what a fault says. mutmut itself leaves docstrings, types
and decorators.
"""

CONFIG = """
[tool.mutmut]
source_paths = ["simulator"]
only_mutate = ["{module}"]
do_not_mutate_patterns = {patterns}
pytest_add_cli_args = ["--hypothesis-profile=mutants", "-m", "not full", "-p", "no:cacheprovider"]
pytest_add_cli_args_test_selection = {tests}
process_isolation = "forkserver"
timeout_multiplier = 8.0
timeout_constant = 1.5
track_dependencies = false
use_git_change_detection = false
"""


class Score(NamedTuple):
    """What became of the mutants of a module or of a group."""

    part: str
    mutants: int
    """As many as there are."""
    tried: int
    killed: int
    timed_out: int
    """Of those killed."""
    when: str
    """Day and commit."""

    @property
    def line(self) -> str:
        """Its line in the table; with an interval where only a sample was tried."""
        low, high = wilson(self.killed, self.tried)
        interval = f" ({low:.1%} to {high:.1%})" if self.tried < self.mutants else ""
        share = f"{self.killed / self.tried:.1%}{interval}"
        return (
            f"| {self.part} | {self.mutants} | {self.tried} | {self.killed} | {self.timed_out} "
            f"| {share} | {self.when} |"
        )


def without_decorators(source: str) -> str:
    """``@d def f`` as ``def f`` and ``f = d(f)``: mutmut passes decorated functions by, and half of
    the laws are properties.
    """
    import libcst as cst

    class Undecorate(cst.CSTTransformer):
        def leave_FunctionDef(
            self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
        ) -> cst.BaseStatement:
            value: cst.BaseExpression = updated_node.name
            for each in reversed(updated_node.decorators):
                value = cst.Call(each.decorator, [cst.Arg(value)])
            if not updated_node.decorators:
                return updated_node
            assigned = cst.SimpleStatementLine(
                [cst.Assign([cst.AssignTarget(updated_node.name)], value)]
            )
            return cst.FlattenSentinel([updated_node.with_changes(decorators=[]), assigned])

    return cst.parse_module(source).visit(Undecorate()).code


def folder(module: str) -> Path:
    """Where mutmut works on a module."""
    return WORK / module.replace("/", ".")


def prepare(module: str) -> Path:
    """A copy of package and tests for mutmut to work on, with links to what they read; a module
    that has not changed keeps what is known of its mutants.
    """
    work, path = folder(module), f"simulator/{module}.py"
    before = (work / path).read_text() if (work / path).exists() else ""
    for name in ("simulator", "tests"):
        shutil.copytree(
            ROOT / name,
            work / name,
            ignore=shutil.ignore_patterns("__pycache__"),
            dirs_exist_ok=True,
        )
    source = without_decorators((ROOT / path).read_text())
    (work / path).write_text(source)
    if source == before:
        os.utime(work / path, (0, 0))  # older than what mutmut made of it: it goes by the time
    (work / "mutants").mkdir(exist_ok=True)
    for name in ("scenarios", "hardware_profiles", "reports", "docs", "benchmarks", "tools"):
        if not (work / "mutants" / name).is_symlink():
            (work / "mutants" / name).symlink_to(ROOT / name)
    tests = [f"tests/test_{name}.py" for name in TESTS[module]]
    settings = CONFIG.format(module=path, patterns=json.dumps(NOT_COUNTED), tests=json.dumps(tests))
    (work / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + settings)
    # tests may reach other functions than they did
    (work / "mutants/mutmut-stats.json").unlink(missing_ok=True)
    return work


def mutants(work: Path, module: str) -> list[str]:
    """The names of all mutants of a module."""
    from mutmut.configuration import reset_config
    from mutmut.mutation.file_mutation import mutate_file_contents
    from mutmut.utils.format_utils import get_mutant_name

    path = Path(f"simulator/{module}.py")
    with chdir(work):
        reset_config()
        return [
            get_mutant_name(path, name)
            for name in mutate_file_contents(str(path), path.read_text()).mutant_names
        ]


def outcomes(work: Path, module: str) -> dict[str, str]:
    """What became of every mutant tried so far."""
    from mutmut.stats import status_by_exit_code

    try:
        meta = json.loads((work / f"mutants/simulator/{module}.py.meta").read_text())
    except FileNotFoundError:
        return {}
    return {
        name: status_by_exit_code[code]
        for name, code in meta["exit_code_by_key"].items()
        if code is not None
    }


def break_and_test(work: Path, names: Sequence[str]) -> None:
    """Let mutmut try these mutants."""
    if names:
        command = [
            "nice",
            "-n",
            "10",
            str(Path(sys.executable).with_name("mutmut")),
            "run",
            "--max-children",
            "2",
            *names,
        ]
        with (work / "log").open("w") as log:
            subprocess.run(command, cwd=work, stdout=log, stderr=subprocess.STDOUT, check=False)


def attempt(module: str, again: bool, share: float) -> tuple[Score, list[str]]:
    """Break a module in every way, or in a share of them that chance has chosen once; its score and
    what survived.
    """
    if not again:
        shutil.rmtree(folder(module), ignore_errors=True)
    work = prepare(module)
    everything = mutants(work, module)
    chosen = random.Random(module).sample(everything, len(everything))[
        : ceil(share * len(everything))
    ]
    known = outcomes(work, module)
    left = [name for name in chosen if known.get(name) not in KILLED]
    for _ in range(2):  # mutmut forgets what it knew of a function that has changed
        break_and_test(work, left)
        found = outcomes(work, module)
        left = [name for name in chosen if name not in found]
    if left:
        sys.exit(
            f"{len(left)} mutants of {module} were not tried; what mutmut said is in {work / 'log'}"
        )
    count = Counter(found[name] for name in chosen)
    killed = sum(count[status] for status in KILLED)
    score = Score(
        module,
        len(everything),
        len(chosen),
        killed,
        count["timeout"],
        f"{datetime.now(UTC):%Y-%m-%d} {commit()}",
    )
    return score, [name for name in chosen if found[name] not in KILLED]


def shown(module: str, names: Sequence[str]) -> str:
    """What was changed in each of these mutants."""
    from mutmut.configuration import reset_config
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    with chdir(folder(module)):
        reset_config()
        diffs = (
            get_diff_for_mutant(name, path=Path(f"simulator/{module}.py")).splitlines()
            for name in names
        )
        changed = ([line for line in diff[2:] if line[:1] in "+-"] for diff in diffs)
        return "\n".join(
            "\n".join([name.rpartition(".")[2], *lines])
            for name, lines in zip(names, changed, strict=True)
        )


def wilson(killed: int, tried: int) -> tuple[float, float]:
    """The interval of a share at 95 %."""
    z, share = 1.96, killed / tried
    middle, half = (
        share + z * z / (2 * tried),
        z * sqrt(share * (1 - share) / tried + (z / (2 * tried)) ** 2),
    )
    return (middle - half) / (1 + z * z / tried), (middle + half) / (1 + z * z / tried)


def commit() -> str:
    """The newest one."""
    command = ["git", "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def kept(page: str) -> dict[str, Score]:
    """The scores of modules that a page states."""
    table = page.partition(BEGIN)[2].partition(END)[0]
    cells = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[3:])
    found = (Score(part, *map(int, counts), when) for part, *counts, _, when in filter(None, cells))
    return {score.part: score for score in found if score.part in TESTS}


def total(group: str, scores: Sequence[Score]) -> Score:
    """Of a group; its day is that of the oldest."""
    counts = (sum(column) for column in zip(*(score[1:5] for score in scores), strict=True))
    return Score(f"**{group}**", *counts, min(score.when for score in scores).split()[0])


def written(page: str, scores: dict[str, Score]) -> str:
    """The page with these scores, and with older ones of the other modules."""
    scores = kept(page) | scores
    lines = [
        "| part | mutants | tried | killed | of them by time | score | when |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for group, modules in GROUPS.items():
        own = [scores[module] for module in modules if module in scores]
        lines += [score.line for score in [*([total(group, own)] if own else []), *own]]
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    return f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}"


def main() -> int:
    """Break what is asked for, or everything; 1 if a score is below :data:`GOAL`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "modules",
        nargs="*",
        metavar="MODULE",
        help=f"a group ({', '.join(GROUPS)}) or a module of one",
    )
    parser.add_argument("--again", action="store_true", help="only what survived the last time")
    parser.add_argument(
        "--share",
        type=float,
        default=1.0,
        help="of the mutants of each module, drawn by chance once for all",
    )
    options = parser.parse_args()
    if unknown := set(options.modules) - set(GROUPS) - set(TESTS):
        parser.error(
            f"no module or group: {', '.join(sorted(unknown))}; there are "
            f"{', '.join([*GROUPS, *TESTS])}"
        )
    asked = options.modules or list(GROUPS)
    low = False
    for module in dict.fromkeys(each for name in asked for each in GROUPS.get(name, [name])):
        start = time.monotonic()
        score, survivors = attempt(module, options.again, options.share)
        print(
            f"{shown(module, survivors)}\n{score.line} {time.monotonic() - start:.0f} s", flush=True
        )
        PAGE.write_text(written(PAGE.read_text(), {module: score}))
        low |= score.killed < GOAL * score.tried
    return int(low)


if __name__ == "__main__":
    sys.exit(main())
