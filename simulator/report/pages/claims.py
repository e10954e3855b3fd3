"""The claims of the papers beside ours (``specsim validate --claims``): verdict, bound and the
command that gives it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import Any

from simulator.evidence.claims import VERDICTS, Judged
from simulator.files.writing import csv_text
from simulator.numeric import grouped
from simulator.report.blocks import Block, Page, Paragraph, sections
from simulator.report.wording import Wording, number

CLAIMS = "claims.csv"
say = Wording("claims")


def counts(claims: Iterable[Judged]) -> str:
    """Return how many claims have each verdict, in words."""
    found = Counter(judged.verdict for judged in claims)
    named = [f"{found[verdict]} {verdict}" for verdict in VERDICTS if found[verdict]]
    return ", ".join([*named, *([f"{found['']} without a verdict"] if found[""] else [])])


def page(claims: Sequence[Judged], command: str) -> Page:
    """Return the page of claims: how many have which verdict, then a table for each paper."""
    return Page(
        title=say("title"),
        answer=f"{len(claims)} claims: {counts(claims)}."
        if claims
        else "No claims are written down.",
        opening=[Paragraph(say("rule"))],
        sections=sections(*((paper, blocks) for paper, blocks in by_paper(claims).items())),
        command=command,
    )


def by_paper(claims: Iterable[Judged]) -> dict[str, list[Block]]:
    """Return the table of claims of each paper."""
    papers = grouped(claims, lambda judged: judged.row.paper)
    return {paper: [*_blocks(paper, own)] for paper, own in papers.items()}


def _blocks(paper: str, own: Sequence[Judged]) -> Iterator[Block]:
    yield Paragraph(f"{len(own)} claims: {counts(own)}.")
    yield say.table(
        "claims",
        own,
        paper=paper,
        ours=ours,
        bound=lambda one: say("bound", claim=one.claim, ends=ends(one)),
    )


def ours(judged: Judged) -> str:
    """Return our value, or our values in their order; empty where no command gives any."""
    return ", ".join(number(value, 3) for value in judged.ours)


def ends(judged: Judged) -> str:
    """Return what comes out with unprinted inputs at their first, then at their last end; empty
    where there are none.
    """
    return " to ".join(", ".join(number(value, 3) for value in values) for values in judged.ends)


def as_data(claims: Iterable[Judged]) -> list[dict[str, Any]]:
    """Return the claims as ``--json`` prints them; our values are numbers, null where what is asked
    for never comes.
    """
    claims = list(claims)
    named = [
        dict(zip(say.head("record"), row, strict=True))
        for row in say.rows("record", claims, ours=ours, ends=ends)
    ]
    values = [[value if isfinite(value) else None for value in judged.ours] for judged in claims]
    return [record | {"ours": found} for record, found in zip(named, values, strict=True)]


def claims_csv(claims: Iterable[Judged]) -> str:
    """Return every claim as CSV text."""
    return csv_text(say.head("record"), say.rows("record", claims, ours=ours, ends=ends))
