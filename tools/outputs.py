#!/usr/bin/env python3
"""Write what the commands print and the reports that they make, so that two trees can be compared
byte by byte: a change that only moves code changes none of it.

``PYTHONPATH=TREE python3 tools/outputs.py FOLDER`` runs every shipped scenario (``run`` as report
and as JSON, ``law``, ``explain``) and the studies, sweeps and plans of ``tools/golden.py`` (as
text, JSON, report); ``diff --recursive FOLDER OTHER`` shows what differs. ``--only PART`` keeps the
cases whose name holds it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from click.testing import CliRunner
from golden import PLANS, STUDIES, SWEEPS

from simulator.cli.main import main
from simulator.inputs.catalogue import Catalogue

FEW_REQUESTS = 6
REPORTED = ("run", "plan", "sweep", *STUDIES)
"""Commands that write a report with ``--out``."""


def cases() -> Iterator[tuple[str, list[str]]]:
    """Yield a name and the words of every command."""
    catalogue = Catalogue()
    for name in catalogue.names("scenario"):
        together = catalogue.scenario(name).data.get("requests", {}).get("concurrency", 1)
        few = ["--set", f"requests.count={max(FEW_REQUESTS, together)}"]
        yield f"run-{name}", ["run", name, *few]
        yield f"law-{name}", ["law", name]
        yield f"explain-{name}", ["explain", name]
    for name, study in STUDIES.items():
        yield f"study-{name}", study.words.split()
    for name, words in PLANS.items():
        yield f"plan-{name}", ["plan", *words.split()]
    for name, words in SWEEPS.items():
        yield f"sweep-{name}", ["sweep", *words.split(), "--workers", "1"]
    for kind in ("scenario", "sweep", "plan"):
        yield f"schema-{kind}", ["schema", kind]
    yield "list", ["list"]


def said(words: list[str]) -> str:
    """Return what a command prints, but for how far it has come, and its exit code."""
    done = CliRunner().invoke(main, words)
    faults = [line for line in done.stderr.splitlines() if not line.startswith("... ")]
    failure = "" if done.exception is None else repr(done.exception)
    return "\n".join([done.stdout, *faults, failure, f"exit code {done.exit_code}\n"])


def write(folder: Path, name: str, words: list[str]) -> None:
    """Write what a command prints as text and as JSON, and its report where it makes one."""
    places: list[str] = []
    with TemporaryDirectory() as scratch:
        os.chdir(scratch)
        if words[0] == "sweep":
            places = ["--store", "points.sqlite"]
        if words[0] in REPORTED:
            places += ["--out", "report"]
        (folder / f"{name}.txt").write_text(said([*words, *places]), "utf-8")
        (folder / f"{name}.json").write_text(said([*words, *places, "--json"]), "utf-8")
        report = Path("report")
        if report.exists():
            report.rename(folder / name)
        os.chdir(folder)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What all commands print, as files of a folder.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="a part of the names of the cases to run")
    return parser.parse_args()


if __name__ == "__main__":
    asked = arguments()
    asked.folder.mkdir(parents=True)
    goal = asked.folder.resolve()
    for case, command in cases():
        if asked.only in case:
            write(goal, case, command)
