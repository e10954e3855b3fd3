"""What is said of rows by engines that had not seen them: a source is left out of the fits at a
time.

    python -m benchmarks.left_out --tables ../shared/data/engine_runs

``left_out.yaml`` beside this file says what an engine knew before. Nothing is fitted.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
import yaml
from pydantic import Field

from benchmarks.ledger import TABLES
from simulator.core.plain import PlainData
from simulator.core.quantities import Frozen
from simulator.evidence.ledger.rows import SPEEDUP, LedgerRow, read_table
from simulator.evidence.ledger.score import SHARE
from simulator.inputs.catalogue import FOLDERS, Catalogue

SOURCE = "left out"
"""Source of a number that another one stands for."""


class UnseenSource(Frozen):
    """Rows that take no part in a fit, and the engine as it was without them."""

    name: str
    file: str
    """The table that holds the rows."""
    sources: tuple[str, ...]
    """Those of the table that are left out; none: all."""
    engine: str
    """The engine that is replaced."""
    renamed: str | None = None
    """What the rows call their engine, in place of what they say."""
    generation: str | None = None
    """The generation of cards whose ``rows`` they alone decided."""
    dropped: tuple[str, ...]
    """Dotted names of fields that the rows alone decided."""
    stated: Mapping[str, dict[str, object]] = Field(default={})
    """Fields as they were, by dotted name."""

    def engine_before(self, catalogue: Catalogue) -> PlainData:
        """Return the content of the engine's file without what the rows decided."""
        path = catalogue.names("engine")[self.engine]
        data = deepcopy(catalogue.content("engine", path).data)
        for name in self.dropped:
            inner, last = _inner(data, name)
            inner.pop(last, None)
        for name, value in self.stated.items():
            inner, last = _inner(data, name)
            is_number = "value" in value
            inner[last] = {"source": SOURCE, **value} if is_number else value
        if self.renamed:
            data.pop("versions", None)  # of all ages the same
        return data

    def rows(self, tables: Path, folder: Path) -> tuple[LedgerRow, ...]:
        """Return the rows as they are said to be by the engine as it was; ``folder`` is for its
        file and for the table.
        """
        _write(folder, "engine", self.engine, self.engine_before(Catalogue()))
        if self.generation:
            path = Catalogue().names("generation")[self.generation]
            data = deepcopy(Catalogue().content("generation", path).data)
            data.pop("rows", None)
            _write(folder, "generation", self.generation, data)
        with (tables / self.file).open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            columns = list(reader.fieldnames or ())
            every = list(reader)
        kept = [row for row in every if not self.sources or row["source"] in self.sources]
        for row in kept:
            if self.renamed:
                row["engine"] = self.renamed
        path = folder / self.file
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(kept)
        return read_table(path, Catalogue((folder,))).rows


def _write(folder: Path, kind: str, name: str, data: PlainData) -> None:
    """Write a file of a catalogue that begins at a folder."""
    below, ending = FOLDERS[kind]
    path = folder / below / f"{name}{ending}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(data, sort_keys=False))


def _inner(data: PlainData, name: str) -> tuple[PlainData, str]:
    """Return the part that holds a field of a dotted name, and the last part of the name."""
    *path, last = name.split(".")
    for key in path:
        data = data[key]
    return data, last


@click.command()
@click.option("--tables", type=click.Path(path_type=Path, exists=True), default=TABLES)
def main(tables: Path) -> None:
    """Print what is said of the rows of each source that is left out."""
    stated = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    for entry in stated:
        unseen = UnseenSource.model_validate(entry)
        with TemporaryDirectory() as folder:
            rows = unseen.rows(tables, Path(folder))
        errors = []
        print(unseen.name)
        for row in rows:
            said = row.of(SPEEDUP)
            if said is None:
                continue
            errors.append(abs(said.error))
            low, high = said.predicted.interval(SHARE)
            chance = said.predicted.chance_above(1.0)
            print(
                f"  line {row.place[1]}: measured {said.measured:.2f}, said "
                f"{said.predicted.value:.2f} ({low:.2f} to {high:.2f}), faster by "
                f"{100 * chance:.0f} %, {row.words}"
            )
        print(f"  median error {100 * float(np.median(errors)):.1f} % of {len(errors)}")


if __name__ == "__main__":
    main()
