"""The corpus of broken files: how each is handed to a command, and the fault that it plants.

``tests/bad_inputs/FOLDER/NAME`` is one broken file; its folder says which command reads it. A YAML
file states the fault in a first line ``# fault: WORDS``, one such line for each line on stderr;
files that cannot hold a comment stand in ``faults.csv``. WORDS is part of what the command must
say, and begins with line and column where those are known. One more file needs no code.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "bad_inputs"
HARDWARE = "law autoregressive_qwen3_32b_a100 --set target.{kind}=./{file}"
ARRIVALS = "requests={{arrivals:{{name:\\ file,format:\\ {format},file:\\ ./{file}}}}}"
COMMANDS = {
    "scenarios": "law ./{file}",
    "devices": HARDWARE.replace("{kind}", "device"),
    "links": HARDWARE.replace("{kind}", "link"),
    "engines": HARDWARE.replace("{kind}", "engine"),
    "models": HARDWARE.replace("{kind}", "model"),
    "configs": HARDWARE.replace("{kind}", "model"),
    "methods": "law durations_only --set strategy=./{file}",
    "workloads": "law durations_only --set requests=./{file}",
    "traffic": "law durations_only --set serving.policy={{name:\\ prefill_first}} "
    f"--set {ARRIVALS}",
    "sessions": "law durations_only --set requests={{sessions:{{name:\\ file,file:\\ ./{file}}}}}",
    "traces": "law durations_only --set acceptance={{trace:\\ ./{file}}}",
    "records": "trace convert {file} --from {format} --out out.npz",
    "measurements": "calibrate device {file} --like a100_80g_sxm --out out.yaml",
    "imports": "calibrate import {file} --from {format} --source nobody --out out.csv",
    "plans": "plan ./{file}",
    "services": "observe {file}",
    "sweeps": "sweep ./{file} --store out.sqlite",
    "stores": "plot {file} --out out.svg",
}
"""Folder -> command line; ``{format}`` is the file's name up to its first hyphen."""


class Broken(NamedTuple):
    """A broken file and what must be said of it, line by line."""

    path: Path
    faults: tuple[str, ...]

    @property
    def folder(self) -> str:
        """What kind of file it is."""
        return self.path.parent.name


def command(folder: str, name: str) -> str:
    """The command line that reads a file of this folder, in the folder where it stands."""
    return COMMANDS[folder].format(file=name, format=name.partition("-")[0])


def corpus() -> Iterator[Broken]:
    """Every committed file with its faults."""
    with (FOLDER / "faults.csv").open(newline="", encoding="utf-8") as file:
        listed = {row["file"]: row["fault"] for row in csv.DictReader(file)}
    for path in sorted(FOLDER.glob("*/*")):
        if path.suffix == ".yaml":
            first = path.read_text("utf-8").splitlines()
            yield Broken(
                path,
                tuple(
                    line.removeprefix("# fault: ") for line in first if line.startswith("# fault: ")
                ),
            )
        else:
            yield Broken(path, (listed[str(path.relative_to(FOLDER))],))
