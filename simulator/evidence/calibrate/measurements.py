"""The table of measured operation times: one CSV, a row for each time.

``measurements.yaml`` says what each column means, what an empty or missing one stands for, and
which must be there.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd
import yaml

from simulator.core.faults import LARGEST, MOST_FAULTS, BadInput, Fault, did_you_mean
from simulator.core.plain import PlainData
from simulator.inputs import reading
from simulator.inputs.catalogue import shown
from simulator.inputs.document import readable
from simulator.inputs.writing import plain_frame, replacing

Table: TypeAlias = pd.DataFrame
OPERATIONS = (
    "matmul",
    "attention",
    "latent_attention",
    "experts",
    "small_operations",
    "pass",
    "all_reduce",
    "transfer",
    "dispatch",
    "combine",
)
LINK_OPERATIONS = OPERATIONS[6:]
COLUMNS: PlainData = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
"""Columns of the table, in the order in which they are written."""
WORDS = {
    name: column.get("empty") for name, column in COLUMNS.items() if column.get("kind") == "text"
}
"""Columns of text and what an empty or missing one means; None: it must be there."""
NUMBERS = {name: column.get("empty") for name, column in COLUMNS.items() if name not in WORDS}
"""Columns of numbers, likewise."""
NEEDED_BY: dict[str, tuple[str, ...]] = {
    name: tuple(column.get("needed_by", ())) for name, column in COLUMNS.items()
}
"""Operations whose rows need a column that others leave empty."""
SMALLEST = 1e-30
"""Smallest number that is above 0: of a smaller one, rates are beyond every number."""
FEWEST_RANKS = 2
"""Fewest devices between which anything has to move."""
CACHED, TEST, EAGER, WINDOW, HEAD_WIDTH = "cached", "test", "eager", "window", "head_width"
REASONS = {
    CACHED: "in a cache",
    TEST: "a test",
    EAGER: "the host's time",
    WINDOW: "windows",
    HEAD_WIDTH: "heads of another width",
}
"""Reasons why a row takes no part in a fit, and how they are told."""
LM_HEAD = "lm_head"


def table(rows: Iterable[dict[str, object]] | Table) -> Table:
    """Return rows as a table with every column, defaults filled in."""
    frame = pd.DataFrame(rows).reindex(columns=list(COLUMNS)).astype(dict.fromkeys(WORDS, object))
    return frame.fillna(
        {name: value for name, value in (WORDS | NUMBERS).items() if value is not None}
    )


def unfit(message: str, column: str = "") -> BadInput:
    """Return a fault of all measurements together, or of one column of them."""
    return BadInput.at("measurements", message, column)


def read(paths: Sequence[Path]) -> Table:
    """Read all rows of CSV files, packed or not; raise BadInput with a fault for each wrong
    line.
    """
    return pd.concat([_read(path) for path in paths], ignore_index=True)


def write(rows: Table, path: Path) -> None:
    """Write a table, whole or not at all, packed if the name ends in ``.gz``; numbers with six
    digits.
    """
    with replacing(path) as new:
        plain_frame(rows).to_csv(new, index=False, float_format="%.6g")


def _read(path: Path) -> Table:
    name = shown(path)
    try:
        with readable(name), reading.lines(path) as lines:
            frame = pd.read_csv(StringIO("".join(lines)), dtype=str, keep_default_na=False).fillna(
                ""
            )
    except (EOFError, zlib.error, ValueError) as error:  # pandas' own errors are ValueErrors
        raise BadInput.at(name, f"cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(frame.index, pd.RangeIndex):
        raise BadInput.at((name, 2, 1), "holds more cells in a row than the header names")
    faults = next(
        (found for check in (_columns, _needed, _values) if (found := list(check(name, frame)))), []
    )
    if faults:
        raise BadInput(faults)
    for column, default in NUMBERS.items():
        if column in frame:
            frame[column] = pd.to_numeric(frame[column].replace("", str(default))).astype(float)
    return table(frame)


def _columns(name: str, frame: Table) -> Iterator[Fault]:
    known = WORDS | NUMBERS
    for column in frame.columns:
        if column not in known:
            yield Fault((name, 1, 1), column, f"unknown column{did_you_mean(column, known)}")
    for column, default in known.items():
        if default is None and column not in frame:
            yield Fault((name, 1, 1), column, "is required and missing")
    if frame.empty:
        yield Fault((name, 1, 1), "", "holds no rows")


def _needed(name: str, frame: Table) -> Iterator[Fault]:
    """Yield the columns that are missing and needed by operations of the table alone."""
    for column, operations in NEEDED_BY.items():
        needing = sorted({*operations}.intersection(frame.operation))
        if needing and column not in frame:
            yield Fault((name, 1, 1), column, f"is required for {', '.join(needing)} and missing")


def _values(name: str, frame: Table) -> Iterator[Fault]:
    wrong = [
        (line, operation)
        for line, operation in enumerate(frame.operation, 2)
        if operation not in OPERATIONS
    ]
    for number, (line, operation) in enumerate(wrong):
        # the rest is counted
        hint = did_you_mean(operation, OPERATIONS) if number < MOST_FAULTS else ""
        yield Fault((name, line, 1), "operation", f"there is no '{operation}'{hint}")
    for line, why in enumerate(frame.get("left_out", ()), 2):
        if why not in ("", *REASONS):
            yield Fault(
                (name, line, 1),
                "left_out",
                f"expected nothing or one of {', '.join(REASONS)}, got '{why}'",
            )
    for column, default in NUMBERS.items():
        if column not in frame:
            continue
        text = frame[column]
        values = pd.to_numeric(
            text.replace("", None if default is None else str(default)), errors="coerce"
        ).astype(float)
        needed = frame.operation.isin(NEEDED_BY[column])
        fewest = FEWEST_RANKS if column == "ranks" else SMALLEST
        least = np.where(needed, fewest, SMALLEST if "least" in COLUMNS[column] else 0.0)
        for row in np.flatnonzero(~((values >= least) & (values <= LARGEST))):
            expected = {0.0: "a number of 0 or more", SMALLEST: "a number above 0"}.get(
                float(least[row]), f"{fewest} or more"
            )
            if LARGEST < values[row] < np.inf:
                beyond = f", {LARGEST:g} at most"
            else:
                beyond = ""
            yield Fault(
                (name, int(row) + 2, 1), column, f"expected {expected}{beyond}, got '{text[row]}'"
            )
