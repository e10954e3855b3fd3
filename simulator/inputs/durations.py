"""Tables of stated durations, as profilers write them."""

import csv
from pathlib import Path
from typing import Any

from simulator.core.faults import BadInput, Fault, told
from simulator.inputs import reading


def read_table(path: Path) -> dict[str, list[Any]]:
    """Return the columns and points of a CSV file; raises :class:`BadInput` with the line of what
    is no number.
    """
    header, *lines = list(csv.reader(reading.text(path).splitlines())) or [[]]
    points = []
    for number, line in enumerate(lines, 2):
        try:
            points.append([float(cell) for cell in line])
        except ValueError as error:
            found = told(",".join(line)[:40])
            raise BadInput(
                [Fault((str(path), number, 0), "", f"expected numbers, found {found}")]
            ) from error
    return {"columns": [name.strip() for name in header], "points": points}
