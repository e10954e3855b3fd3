"""The claims of the papers beside ours (``specsim validate --claims``): verdict, bound and the command that gives it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from simulator.evidence.claims import VERDICTS, Judged
from simulator.numeric import grouped
from simulator.report.blocks import Block, Code, Page, Paragraph, Table, Words, sections
from simulator.report.numbers import number
from simulator.report.page import csv_text

CLAIMS = "claims.csv"
COLUMNS = (
    *("paper", "claim", "where", "says", "published", "unit", "ours", "ends", "verdict"),
    *("shape", "bound", "bound_why", "missing", "command", "metric", "against", "combine", "cells", "remark"),
)
"""Columns of the CSV of every claim."""
HEAD = ("claim", "where", "paper", "ours", "verdict", "bound, or what is missing", "command")
NARROW = (0, 2, 3, 4)
"""Columns of ``HEAD`` that a terminal shows."""
NONE = "none: to be mended"
RULE = (
    "Reproduced: within 10 % of the number, or inside the range widened by 5 %, and in the shape that is claimed. In shape: "
    "the order or the trend comes out, the number is off or not printed. Refuted: a bound, computed from what the paper "
    "states, excludes the number, or no plausible input reproduces it. Inputs not printed: what would "
    "have to be known is named, and what the ends of its plausible range give."
)


def counts(claims: Iterable[Judged]) -> str:
    """Return how many claims have each verdict, in words."""
    found = Counter(one.verdict for one in claims)
    named = [f"{found[verdict]} {verdict}" for verdict in VERDICTS if found[verdict]]
    return ", ".join([*named, *([f"{found['']} without a verdict"] if found[""] else [])])


def page(claims: Sequence[Judged], command: str) -> Page:
    """Return the page of claims: how many have which verdict, then a table for each paper."""
    return Page(
        title="The papers, claim by claim",
        answer=f"{len(claims)} claims: {counts(claims)}." if claims else "No claims are written down.",
        opening=[Paragraph(RULE)],
        sections=sections(*((paper, blocks) for paper, blocks in by_paper(claims).items())),
        command=command,
    )


def by_paper(claims: Iterable[Judged]) -> dict[str, list[Block]]:
    """Return the table of claims of each paper."""
    papers = grouped(claims, lambda one: one.row.paper)
    return {paper: [*_blocks(paper, own)] for paper, own in papers.items()}


def _blocks(paper: str, own: Sequence[Judged]) -> Iterator[Block]:
    yield Paragraph(f"{len(own)} claims: {counts(own)}.")
    yield Table(HEAD, [_row(one) for one in own], f"Claims of {paper}", badges=(4,), sortable=True, terminal_columns=NARROW)


def _row(one: Judged) -> tuple[Words, ...]:
    claim = one.claim
    published = f"{claim.published.replace('..', ' to ')} {claim.unit}".strip() or claim.shape
    bound = f"{claim.bound.replace('_', ' ')} {claim.unit}: {claim.bound_why}" if claim.bound else claim.missing
    if one.ends:
        bound = f"{bound}; at the ends of what is plausible: {ends(one)}"
    taken = claim.readings[0]
    typed = f"{taken.command} ({taken.combine.replace('_', ' ')} {taken.against})" if taken.combine else taken.command
    words = f"{claim.says} [{claim.claim}]"
    return words, claim.where, published, ours(one), one.verdict or NONE, bound, Code(typed) if typed else ""


def ours(one: Judged) -> str:
    """Return our value, or our values in their order; empty where no command gives any."""
    return ", ".join(number(value, 3) for value in one.ours)


def ends(one: Judged) -> str:
    """Return what comes out with unprinted inputs at their first, then at their last end; empty where there are none."""
    return " to ".join(", ".join(number(value, 3) for value in values) for values in one.ends)


def _record(one: Judged) -> dict[str, str]:
    """Return a claim with our values and the verdict, under ``COLUMNS``."""
    return one.claim.model_dump() | {"paper": one.row.paper, "ours": ours(one), "ends": ends(one), "verdict": one.verdict}


def as_data(claims: Iterable[Judged]) -> list[dict[str, Any]]:
    """Return the claims as ``--json`` prints them; our values are numbers."""
    return [{name: _record(one)[name] for name in COLUMNS} | {"ours": list(one.ours)} for one in claims]


def claims_csv(claims: Iterable[Judged]) -> str:
    """Return every claim as CSV text under ``COLUMNS``."""
    return csv_text(COLUMNS, ([_record(one)[name] for name in COLUMNS] for one in claims))
