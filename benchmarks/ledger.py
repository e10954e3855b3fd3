"""Score released sets of measured runs, each by itself: what was known, how far the laws are off,
and what was decided with the rows in sight.

    python -m benchmarks.ledger --tables ../shared/data/engine_runs

writes ``reports/ledger`` and the table of the README. ``ledger.yaml`` beside this file says of each
set which role it has; the tables themselves are not in the repository. Nothing is fitted, and no
two sets are pooled.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import click
import numpy as np
import yaml
from pydantic import Field

from benchmarks.live.vllm.judged import read_cells
from benchmarks.live.vllm.kept import read as read_recording
from simulator.core.cost.engine import EngineErrors
from simulator.core.quantities import Frozen
from simulator.evidence.ledger.rows import (
    PLAIN_STEP,
    SPEEDUP,
    STEP,
    LedgerRow,
    LeftOut,
    MeasuredTable,
    read_table,
)
from simulator.evidence.ledger.score import (
    BYTES,
    EVERY,
    NEITHER,
    OURS,
    SHARE,
    CountedShare,
    Score,
    StepScore,
    judged,
    score,
    speedups,
    step_scores,
)
from simulator.evidence.validation import engine_fits
from simulator.inputs.catalogue import Catalogue
from simulator.report.blocks import Bullets, Hyperlink, Page, Paragraph, Table, sections
from simulator.report.columns import Column, table
from simulator.report.markdown import as_markdown
from simulator.report.pages.ledger import reasons
from simulator.report.wording import number, plural, share, signed_share, whole_share
from simulator.scenario.uncertain.distance import GROWTH

ROOT = Path(__file__).parent.parent
FACTS = Path(__file__).with_suffix(".yaml")
TABLES = ROOT.parent / "shared/data/engine_runs"
REPORT = ROOT / "reports/ledger"
PAGE, SETS = "ledger.md", "sets.csv"
RECORD, CELLS = (ROOT / "reports/live/vllm" / name for name in ("record.jsonl.gz", "cells.csv"))
README = ROOT / "README.md"
BEGIN = "<!-- sets: made by `python -m benchmarks.ledger` -->"
END = "<!-- end of the sets -->"
COMMAND = "python -m benchmarks.ledger"
CSV_COLUMNS = (
    *("set", "role", "quantity", "rows", "sign", "losses", "losses_found", "gains"),
    *("false_alarms", "median_error", "bias", "held", "width", "interval_score"),
)
MOST_ROWS = 10
"""Sets that the README shows at most."""
Role = Literal["blind", "left out", "fitted"]
ROLES: Mapping[Role, str] = {
    "blind": "nothing was decided with these rows",
    "left out": "no number was fitted to them, but a range, a form or numbers of the same source "
    "were decided with them in sight",
    "fitted": "numbers of an engine or a device were fitted to them",
}


class ReleasedSet(Frozen):
    """Rows of one file that have one role."""

    name: str
    file: str
    known: str
    """What is known of the runs, and so is an input."""
    role: Role
    why: str
    """Why it has this role."""
    widths: Role | None = None
    """Role for the widths of intervals, where it is another one."""
    sources: tuple[str, ...] = ()
    """Those of the file that belong to it; without any, all that no other set of the file names."""
    shared: dict[str, str] = Field(default_factory=dict)
    """Cells of all rows that the file states elsewhere, by column."""


class Choice(Frozen):
    """Something that was decided after an error was seen."""

    what: str
    sentence: str


class Facts(Frozen):
    """The sets, and the choices."""

    sets: tuple[ReleasedSet, ...]
    choices: tuple[Choice, ...]

    def named_elsewhere(self, released: ReleasedSet) -> set[str]:
        """Return the sources of a set's file that other sets name."""
        named: set[str] = set()
        for other in self.sets:
            if other.file == released.file and other != released:
                named |= set(other.sources)
        return named


class SpeedupScores(NamedTuple):
    """How good our speed-ups are, and those of bytes alone."""

    ours: Score
    by_bytes: Score


@dataclass(frozen=True)
class ScoredSet:
    """A set with its rows and what they say of the laws."""

    released: ReleasedSet
    rows: tuple[LedgerRow, ...]
    left_out: tuple[LeftOut, ...]
    speedups: SpeedupScores | None
    """None where none was measured."""
    steps: Mapping[str, StepScore]

    @property
    def engines(self) -> list[str]:
        """Return the engines of its rows."""
        names = []
        for row in self.rows:
            target = row.loaded.scenario.target
            if target:
                names.append(target.engine.name)
        return sorted(set(names))


def facts() -> Facts:
    """Return what ``ledger.yaml`` says."""
    return Facts.model_validate(yaml.safe_load(FACTS.read_text("utf-8")))


def scored(given: Facts, folder: Path, catalogue: Catalogue) -> list[ScoredSet]:
    """Return every set with its scores."""
    return [_scored(released, given, folder, catalogue) for released in given.sets]


def _scored(released: ReleasedSet, given: Facts, folder: Path, catalogue: Catalogue) -> ScoredSet:
    ledger = read_table(folder / released.file, catalogue, released.shared)
    part = _part(ledger, released, given.named_elsewhere(released))
    of_speedups = None
    if found := speedups(part.rows):
        said = judged(found)
        of_speedups = SpeedupScores(
            score(OURS, EVERY, said[OURS]), score(BYTES, EVERY, said[BYTES])
        )
    steps = {step.quantity: step for step in step_scores(part.rows)}
    return ScoredSet(released, part.rows, part.left_out, of_speedups, steps)


def _part(ledger: MeasuredTable, released: ReleasedSet, elsewhere: set[str]) -> MeasuredTable:
    """Return the rows of a file that belong to a set."""

    def belongs(source: str) -> bool:
        if released.sources:
            return source in released.sources
        return source not in elsewhere

    return MeasuredTable(
        tuple(row for row in ledger.rows if belongs(row.source)),
        tuple(row for row in ledger.left_out if belongs(row.source)),
    )


# ---- the page


def page(sets: Sequence[ScoredSet], given: Facts, fits: Mapping[str, EngineErrors]) -> Page:
    """Return the page of all sets, one below the other."""
    return Page(
        "Errors on released sets, set by set",
        answer=headline(sets, given),
        opening=[_speedups(sets), Bullets([*_roles(), *LEGEND])],
        sections=sections(
            ("Steps", [_steps(sets)]),
            ("What was known", [_known(sets)]),
            ("Free parameters", [_free(fits), Paragraph(growth_words())]),
            ("Chosen after an error was seen", [_choices(given)]),
            ("Rows that could not run", [_not_run(sets)]),
            ("Assumed", [Paragraph(ASSUMED), _assumed(sets)]),
            ("A running engine", [_living()]),
        ),
        command=COMMAND,
    )


LEGEND = (
    "Speed-ups over plain decoding, by the laws. A loss or a gain is more than "
    f"{whole_share(NEITHER)} from 1; a source counts once; `may hurt` is half a loss found, and "
    "half a false alarm.",
    f"held: measured values within intervals that should hold {whole_share(SHARE)}; width: mean of "
    "log(high / low); interval score: width, and ten times what lies outside.",
    "bytes alone: a pass takes as long as reading its weights.",
)
ASSUMED = "What rows do not state, with the number of rows."


def headline(sets: Sequence[ScoredSet], given: Facts) -> str:
    """Return how many sets and rows there are, by role, and how many choices."""
    words = []
    for role in ROLES:
        of_role = [one for one in sets if one.released.role == role and one.rows]
        rows = sum(len(one.rows) for one in of_role)
        words.append(f"{plural(len(of_role), 'set')} {role} ({plural(rows, 'row')})")
    left_out = sum(len(one.left_out) for one in sets)
    return (
        f"{', '.join(words)}; {plural(left_out, 'row')} could not run. "
        f"{plural(len(given.choices), 'choice')} made after an error was seen."
    )


def _roles() -> Iterator[str]:
    for role, words in ROLES.items():
        yield f"{role}: {words}."


def _counted(of: CountedShare) -> str:
    if of.value is None:
        return ""
    return f"{whole_share(of.value)} ({of.rows})"


def _speedups(sets: Sequence[ScoredSet]) -> Table:
    return table(
        "Speed-ups, set by set",
        [(one.released, one.speedups) for one in sets if one.speedups],
        [
            Column("set", lambda of: of[0].name),
            Column("rows are", lambda of: of[0].role),
            Column("speed-ups", lambda of: str(of[1].ours.held.rows)),
            Column("sign right", lambda of: _counted(of[1].ours.sign)),
            Column("losses found", lambda of: _counted(of[1].ours.losses_found)),
            Column("false alarms", lambda of: _counted(of[1].ours.false_alarms)),
            Column("error (median)", lambda of: share(of[1].ours.median_error)),
            Column("held", lambda of: whole_share(of[1].ours.held.value)),
            Column("widths are", lambda of: of[0].widths or of[0].role),
            Column("width", lambda of: number(of[1].ours.width, 2)),
            Column("interval score", lambda of: number(of[1].ours.interval_score, 2)),
            Column("bytes alone: sign", lambda of: whole_share(of[1].by_bytes.sign.value)),
            Column("bytes alone: error", lambda of: share(of[1].by_bytes.median_error)),
        ],
    )


def _steps(sets: Sequence[ScoredSet]) -> Table:
    found = []
    for one in sets:
        for quantity in (PLAIN_STEP, STEP):
            if quantity in one.steps:
                found.append((one, one.steps[quantity]))
    return table(
        "Times of steps, rows counted singly",
        found,
        [
            Column("set", lambda pair: pair[0].released.name),
            Column("rows are", lambda pair: pair[0].released.role),
            Column("time of a", lambda pair: pair[1].quantity),
            Column("rows", lambda pair: str(pair[1].rows)),
            Column("error (median)", lambda pair: share(pair[1].median_error)),
            Column("bias (median)", lambda pair: signed_share(pair[1].bias)),
            Column("held", lambda pair: whole_share(pair[1].held)),
        ],
    )


def _known(sets: Sequence[ScoredSet]) -> Table:
    return table(
        "What was known of each set",
        sets,
        [
            Column("set", lambda one: one.released.name),
            Column("known", lambda one: one.released.known),
            Column("engines", lambda one: ", ".join(one.engines)),
            Column("rows", lambda one: str(len(one.rows))),
            Column("could not run", lambda one: str(len(one.left_out))),
            Column("rows are", lambda one: one.released.role),
            Column("why", lambda one: one.released.why),
        ],
    )


def _free(fits: Mapping[str, EngineErrors]) -> Table:
    return table(
        "Free parameters of engines",
        list(fits.items()),
        [
            Column("engine", lambda pair: pair[0]),
            Column("free parameters", lambda pair: str(pair[1].free)),
            Column("rows", lambda pair: str(pair[1].rows)),
            Column("error where fitted", lambda pair: share(pair[1].errors["fitted"])),
            Column("fitted to", lambda pair: pair[1].source),
        ],
    )


def _living() -> Paragraph:
    """Return what came of the loop on a running vLLM, from its last record."""
    about = read_recording(RECORD).about
    numbers = read_cells(CELLS)
    judged_there = [each for each in numbers if each["role"] == "judged"]
    held = sum(each["held"] == "True" for each in judged_there)
    with_interval = [each for each in judged_there if each["turns_within"]]
    turns = sum(len(each["turns"].split()) for each in with_interval)
    within = sum(int(each["turns_within"]) for each in with_interval)
    return Paragraph(
        (
            f"vLLM {about['vllm']} on {about['machine']}, {about['date']}: eight numbers fitted to "
            f"plain decoding and K 3; {held} of {len(judged_there)} other times per token and "
            f"throughputs within 8 % or the spread of the turns, {within} of {turns} measured "
            "ones in their 90 % intervals (",
            Hyperlink("cell by cell", "../live/vllm/README.md"),
            ").",
        )
    )


def growth_words() -> str:
    """Return how many numbers say how intervals grow outside of a fit."""
    numbers = [
        part for growth in GROWTH.values() for part in (growth.every_pass, growth.speculation)
    ]
    free = sum(1 for part in numbers if part)
    return (
        f"Intervals outside of a fit grow by {plural(free, 'number')} along "
        f"{len(GROWTH)} axes, measured by `python -m benchmarks.distance` on "
        "sets whose widths are fitted."
    )


def _choices(given: Facts) -> Bullets:
    return Bullets([f"{choice.what}: {choice.sentence}" for choice in given.choices])


def _not_run(sets: Sequence[ScoredSet]) -> Bullets:
    lines = []
    for one in sets:
        for words in reasons(one.left_out):
            lines.append(f"{one.released.name}: {words.replace(_folder_of(words), '')}")
    return Bullets(lines)


def _folder_of(words: str) -> str:
    """Return the folder before the name of a table."""
    found = re.match(r"\S*/", words)
    return found[0] if found else ""


def _assumed(sets: Sequence[ScoredSet]) -> Bullets:
    lines = []
    for one in sets:
        counts: dict[str, int] = {}
        for row in one.rows:
            for words in row.assumed:
                counts[words] = counts.get(words, 0) + 1
        said = ", ".join(f"{words} ({count})" for words, count in counts.items())
        if said:
            lines.append(f"{one.released.name}: {said}")
    return Bullets(lines)


# ---- the files


def sets_csv(sets: Iterable[ScoredSet]) -> str:
    """Return a row for each set and quantity, errors and shares of 1."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for one in sets:
        said = {"set": one.released.name, "role": one.released.role}
        if one.speedups:
            writer.writerow(said | _speedup_cells(one.speedups.ours))
        for step in one.steps.values():
            writer.writerow(said | _step_cells(step))
    return text.getvalue()


def _speedup_cells(ours: Score) -> dict[str, str]:
    return {
        "quantity": SPEEDUP,
        "rows": str(ours.held.rows),
        "sign": _short(ours.sign.value),
        "losses": str(ours.losses_found.rows),
        "losses_found": _short(ours.losses_found.value),
        "gains": str(ours.false_alarms.rows),
        "false_alarms": _short(ours.false_alarms.value),
        "median_error": _short(ours.median_error),
        "held": _short(ours.held.value),
        "width": _short(ours.width),
        "interval_score": _short(ours.interval_score),
    }


def _step_cells(step: StepScore) -> dict[str, str]:
    return {
        "quantity": step.quantity,
        "rows": str(step.rows),
        "median_error": _short(step.median_error),
        "bias": _short(step.bias),
        "held": _short(step.held),
    }


def _short(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}"


def readme_table(sets: Sequence[ScoredSet]) -> str:
    """Return the table of the README: the sets of the most speed-ups."""
    found = [(one.released, one.speedups.ours) for one in sets if one.speedups]
    sizes = [-ours.held.rows for _, ours in found]
    largest = np.argsort(sizes, kind="stable")[:MOST_ROWS]
    lines = [
        "| measured runs | rows are | speed-ups | sign right | losses found | error (median) "
        f"| within intervals of {whole_share(SHARE)} |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for place in sorted(largest):
        released, ours = found[place]
        cells = (
            released.name,
            released.role,
            str(ours.held.rows),
            whole_share(ours.sign.value),
            _counted(ours.losses_found) or "none measured",
            share(ours.median_error),
            whole_share(ours.held.value),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def with_table(text: str, made: str) -> str:
    """Return a page with the table between its marks; raise ValueError where they are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"expected {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{after}"


def files(folder: Path, catalogue: Catalogue) -> dict[str, str]:
    """Return the kept files by name, and the README's table under its name."""
    given = facts()
    sets = scored(given, folder, catalogue)
    return {
        PAGE: as_markdown(page(sets, given, engine_fits(catalogue))),
        SETS: sets_csv(sets),
        README.name: readme_table(sets),
    }


@click.command()
@click.option("--tables", type=click.Path(path_type=Path, exists=True), default=TABLES)
@click.option("--out", type=click.Path(path_type=Path), default=REPORT)
def main(tables: Path, out: Path) -> None:
    """Write the report of all sets, and the table of the README where it is the kept one."""
    made = files(tables, Catalogue())
    for_readme = made.pop(README.name)
    out.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        (out / name).write_text(text, "utf-8")
        click.echo(out / name)
    if out == REPORT:
        README.write_text(with_table(README.read_text("utf-8"), for_readme), "utf-8")
        click.echo(README)


if __name__ == "__main__":
    main()
