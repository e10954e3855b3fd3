"""``python -m benchmarks.exports``: hold the record of accepted commands to today's exports.

``dev.py exports`` makes a record: ``write`` puts down commands and the folders of checkpoints, the
engines are asked in an environment of their own, ``keep`` takes up what they said.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import click
import yaml

from benchmarks.exports.asked import commands, to_serve
from benchmarks.exports.folders import write_folders
from benchmarks.exports.page import page
from benchmarks.exports.record import (
    DOCUMENTED,
    REFUSED,
    ExportRecord,
    JudgedCommand,
    changed,
    held_to_documents,
    read_record,
    record_text,
)
from simulator.report.markdown import as_markdown

REPORT = Path(__file__).parents[2] / "reports/exports"
RECORD = REPORT / "record.json"
PATH = click.Path(path_type=Path)


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Write the page of the record that is kept, and say what it does not speak of."""
    if context.invoked_subcommand is None:
        record = read_record(RECORD)
        text = as_markdown(page(record))
        (REPORT / "README.md").write_text(text, "utf-8")
        click.echo(text)
        others = changed(record, commands())
        refused = [one.fleet for one in record.judged if one.verdict == REFUSED]
        for words in others:
            click.echo(words)
        sys.exit(1 if others or refused else 0)


@main.command()
@click.argument("folder", type=PATH)
def write(folder: Path) -> None:
    """Write the commands, and the folders of the checkpoints that they name."""
    asked = list(commands())
    write_folders(folder / "models", asked)
    words: dict[str, dict[str, list[str]]] = {"vllm": {}, "sglang": {}}
    for command in asked:
        if command.engine in words:
            words[command.engine][command.fleet] = command.words
    (folder / "commands.json").write_text(json.dumps(words, allow_nan=False))
    served = {name: command.words for name, command in to_serve().items()}
    (folder / "to_serve.json").write_text(json.dumps(served, allow_nan=False))


@main.command()
@click.argument("folder", type=PATH)
def keep(folder: Path) -> None:
    """Keep what the engines said of the commands in FOLDER as the record."""
    told = json.loads((folder / "verdicts.json").read_text())
    served = json.loads((folder / "served.json").read_text())
    for name, words in json.loads((folder / "to_serve.json").read_text()).items():
        served[name]["command"] = words
    judged = []
    for command in commands():
        if command.engine in told["verdicts"]:
            said = told["verdicts"][command.engine][command.fleet]
        else:
            said = held_to_documents(command)
        judged.append(
            JudgedCommand(command.engine, command.fleet, command.words, said, command.fields)
        )
    versions = dict(told["versions"])
    documented = yaml.safe_load(DOCUMENTED.read_text("utf-8"))
    versions["llama_cpp"] = documented["llama_cpp"]["version"][:8]
    versions["tensorrt_llm"] = documented["tensorrt_llm"]["version"]
    today = datetime.now(tz=UTC).date().isoformat()
    REPORT.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(record_text(ExportRecord(today, versions, judged, served)), "utf-8")


if __name__ == "__main__":
    main()
