"""``python -m benchmarks.live.vllm.loop``: observe a running vLLM, calibrate, predict the rest, and
judge.

Without a further word it judges the record that is kept, which needs no vLLM. ``live`` makes a
record: it exports the family, serves all configurations in turns and packs what they took
(``dev.py live`` installs what that needs).
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from benchmarks.live.vllm.settings import CALIBRATION, LOADS

ROOT = Path(__file__).parents[3]
REPORT = ROOT / "reports/live/vllm"
RECORD = REPORT / "record.jsonl.gz"
PROFILE = REPORT / "profile"
PATH = click.Path(path_type=Path)


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Judge the record that is kept: predict every cell, and write the page."""
    if context.invoked_subcommand is None:
        context.invoke(judge)


@main.command()
def judge() -> None:
    """Predict every cell of the record with the profile that is kept, and write the page."""
    from benchmarks.live.vllm.judged import as_csv, judge as judged
    from benchmarks.live.vllm.kept import read
    from benchmarks.live.vllm.page import page
    from benchmarks.live.vllm.predicted import Profile
    from simulator.report.markdown import as_markdown

    recording = read(RECORD)
    profile = Profile(PROFILE, recording)
    verdict = judged(recording, {cell: profile.predict(cell) for cell in recording.cells})
    (REPORT / "cells.csv").write_text(as_csv(verdict.numbers))
    text = as_markdown(page(recording, verdict))
    (REPORT / "README.md").write_text(text)
    click.echo(text)


@main.command()
def fit() -> None:
    """Fit the terms of the profile to the cells of the calibration, and keep them."""
    from benchmarks.live.vllm.kept import read
    from benchmarks.live.vllm.predicted import TERMS, Profile

    recording = read(RECORD)
    profile = Profile(PROFILE, recording)
    profile.write()
    values, errors = profile.fitted()
    cells = ", ".join(sorted({name for name, _ in CALIBRATION}))
    loads = ", ".join(load.name for load in LOADS if ("plain", load.name) in CALIBRATION)
    source = f"calibrated-on: reports/live/vllm, {cells} with {loads} clients"
    profile.keep(values, errors, source)
    profile.write()
    for term, value, error in zip(TERMS, values, errors, strict=True):
        click.echo(f"{term.path}: {value} +- {error}")


@main.command()
@click.argument("folder", type=PATH)
def export(folder: Path) -> None:
    """Write the family as folders of transformers, its prompts, and the trace of its answers."""
    from benchmarks.live.vllm.exported import export as exported
    from benchmarks.live.vllm.recorded import record, write_prompts

    models = exported(folder)
    write_prompts(folder / "prompts.json")
    PROFILE.mkdir(parents=True, exist_ok=True)
    for name, where in models.items():
        (PROFILE / f"{name}.json").write_text((where / "config.json").read_text())
    record(PROFILE / "trace.npz")


@main.command()
@click.argument("folder", type=PATH)
@click.option("--number", default=0, show_default=True)
def turn(folder: Path, number: int) -> None:
    """Start a server for every configuration, and serve every load once (six minutes)."""
    from benchmarks.live.vllm.served import Servers

    servers = Servers(Path(sys.executable), folder / "models", folder / f"servers_{number}")
    try:
        servers.start()
        servers.turn(folder / f"turn_{number}", number)
        servers.answers()
    finally:
        servers.close()


@main.command()
@click.argument("folder", type=PATH)
@click.option("--turns", default=3, show_default=True)
def live(folder: Path, turns: int) -> None:
    """Export, serve in turns, and pack: makes the record anew, in half an hour."""
    again = [sys.executable, "-m", "benchmarks.live.vllm.loop"]
    subprocess.run([*again, "export", str(folder / "models")], check=True)
    for number in range(turns):
        subprocess.run([*again, "turn", str(folder), "--number", str(number)], check=True)
    subprocess.run([*again, "keep", str(folder)], check=True)


@main.command()
@click.argument("folder", type=PATH)
def keep(folder: Path) -> None:
    """Pack the turns in FOLDER into the record."""
    from benchmarks.live.vllm.kept import pack

    pack(folder, about(), RECORD)


def about() -> dict[str, object]:
    """Return where and when a record was made."""
    return {
        "vllm": "0.32.0+cpu",
        "machine": machine(),
        "date": datetime.now(tz=UTC).date().isoformat(),
        "calibration": sorted(CALIBRATION),
    }


def machine() -> str:
    """Return what computes here, in words."""
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
    return f"{model}, {os.cpu_count()} cores, {platform.system()}"


if __name__ == "__main__":
    main()
