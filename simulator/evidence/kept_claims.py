"""Verdicts on claims that are kept: the table that ``specsim validate --claims --out`` writes, read
back, so that nothing has to run.
"""

import csv
from collections.abc import Iterable
from math import inf
from typing import cast

from simulator.core.faults import BadInput
from simulator.evidence.claims import ClaimRow, Judged, Verdict
from simulator.inputs.catalogue import shipped

KEPT_CLAIMS = "reports/claims/claims.csv"


def kept_claims(rows: Iterable[ClaimRow]) -> list[Judged]:
    """Return claims with their kept values and verdicts, in their order; without those that were
    written after the table.

    Values are rounded to three digits, as they are shown. Raises :class:`BadInput` where the table
    is missing.
    """
    path = shipped() / KEPT_CLAIMS
    if not path.is_file():
        remedy = "make it with specsim validate --claims --out reports/claims"
        raise BadInput.at(KEPT_CLAIMS, f"no verdicts are kept here; {remedy}")
    with path.open(encoding="utf-8", newline="") as file:
        records = {(record["paper"], record["claim"]): record for record in csv.DictReader(file)}
    claims = []
    for row in rows:
        record = records.get((row.paper, row.claim.claim))
        if record:
            ends = [_values(end) for end in record["ends"].split(" to ") if end]
            verdict = cast("Verdict", record["verdict"])
            claims.append(Judged(row, _values(record["ours"]), ends, verdict))
    return claims


def _values(cell: str) -> list[float]:
    """Return the values of a cell, as :func:`simulator.report.pages.claims.ours` writes them."""
    words = cell.split(", ") if cell else []
    return [inf if word == "never" else float(word.replace(",", "")) for word in words]
