"""The claims of the papers beside ours (``specsim validate --claims``): verdict, bound and the
command that gives it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite

from simulator.core.numeric import grouped
from simulator.core.plain import PlainData
from simulator.evidence.claims import VERDICTS, Judged
from simulator.inputs.writing import csv_text
from simulator.report.blocks import (
    FIRST,
    Block,
    Bullets,
    Code,
    Page,
    Paragraph,
    Remark,
    Standing,
    Strong,
    Table,
    Words,
    sections,
)
from simulator.report.columns import Column, table
from simulator.report.wording import number

CLAIMS = "claims.csv"
RULE = (
    "Reproduced: within 10 % of the number, or inside the range widened by 5 %, and in the shape "
    "that is claimed. In shape: the order or the trend comes out, the number is off or not "
    "printed. Refuted: a bound, computed from what the paper states, excludes the number, or no "
    "plausible input reproduces it. Inputs not printed: what would have to be known is named, and "
    "what the ends of its plausible range give."
)

WHERE_REFUTED: Words = (
    "Those that did not come out, each with what excludes it: ",
    Code("specsim claims --refuted"),
    ".",
)
REFUTING = (
    "A bound is what can come out at all, computed from what the paper itself states; the number "
    "lies beyond it. Where there is none, an input is not printed: nothing between the two ends "
    "of what is plausible for it comes near the number, or has the shape. Labels such as K31 "
    "number what contradicts itself in a paper; the page of `specsim validate` lists that."
)


def counts(claims: Iterable[Judged]) -> str:
    """Return how many claims have each verdict, in words."""
    by_verdict = Counter(judged.verdict for judged in claims)
    named = [f"{by_verdict[verdict]} {verdict}" for verdict in VERDICTS if by_verdict[verdict]]
    if by_verdict[""]:
        named.append(f"{by_verdict['']} without a verdict")
    return ", ".join(named)


def page(claims: Sequence[Judged], command: str) -> Page:
    """Return the page of claims: how many have which verdict, then a table for each paper."""
    answer = "No claims are written down."
    if claims:
        answer = f"{len(claims)} claims: {counts(claims)}."
    return Page(
        title="The papers, claim by claim",
        answer=answer,
        opening=[Paragraph(RULE), Paragraph(WHERE_REFUTED)],
        sections=sections(*by_paper(claims).items()),
        command=command,
        standing=_standing(claims),
    )


def refuted_page(claims: Sequence[Judged], command: str) -> Page:
    """Return the page of the claims that did not come out: what the paper says, ours and what
    excludes it.
    """
    refuted = [judged for judged in claims if judged.verdict == "refuted"]
    answer = f"None of {len(claims)} claims is refuted."
    if refuted:
        bounded = sum(judged.claim.refuted for judged in refuted)
        answer = (
            f"{len(refuted)} of {len(claims)} claims did not come out: {bounded} by a bound, "
            f"{len(refuted) - bounded} with no plausible value of an input that is not printed."
        )
    papers = grouped(refuted, lambda judged: judged.row.paper)
    return Page(
        title="What the papers claim and what did not come out",
        answer=answer,
        opening=[Paragraph(REFUTING)],
        sections=sections(
            *((paper, [Bullets([_refuted(one) for one in own])]) for paper, own in papers.items())
        ),
        command=command,
    )


def _refuted(judged: Judged) -> Words:
    """Return a refuted claim in a few sentences."""
    claim = judged.claim
    beside = f" ({claim.where}; {claim.claim}). Paper: {_printed(judged)}; ours: {ours(judged)}. "
    if claim.refuted:
        return (Strong(claim.says), beside, f"Bound: {_limit(judged)}.")
    return (
        Strong(claim.says),
        beside,
        f"No plausible input: from {ends(judged)}. Not printed: {claim.missing}.",
    )


def _standing(claims: Sequence[Judged]) -> Standing:
    """Return the verdicts paper by paper, and which claims have none."""
    more = []
    for paper, own in grouped(claims, lambda judged: judged.row.paper).items():
        more.append(Remark(paper, f"{counts(own)}.", FIRST))
    open_ = [f"{judged.row.claim.claim} has no verdict" for judged in claims if not judged.verdict]
    return Standing(doubts=open_, more=more)


def by_paper(claims: Iterable[Judged]) -> dict[str, list[Block]]:
    """Return the table of claims of each paper."""
    papers = grouped(claims, lambda judged: judged.row.paper)
    return {paper: list(_blocks(paper, own)) for paper, own in papers.items()}


def _blocks(paper: str, own: Sequence[Judged]) -> Iterator[Block]:
    yield Paragraph(f"{len(own)} claims: {counts(own)}.")
    columns: list[Column[Judged]] = [
        Column("claim", lambda judged: f"{judged.claim.says} [{judged.claim.claim}]"),
        Column("where", lambda judged: judged.claim.where),
        Column("paper", _printed),
        Column("ours", ours),
        Column("verdict", lambda judged: judged.verdict or "none yet"),
        Column("bound, or what is missing", bound),
        Column("command", _command),
    ]
    yield table(
        f"Claims of {paper}",
        own,
        columns,
        badges=(4,),
        sortable=True,
        terminal_columns=(0, 2, 3, 4),
    )


def _printed(judged: Judged) -> str:
    """Return the number or the range that the paper prints; where it prints none, the shape."""
    claim = judged.claim
    if claim.published:
        return f"{claim.published.replace('..', ' to ')} {claim.unit}".rstrip()
    return _shape(judged).replace("_", " ")


def _shape(judged: Judged) -> str:
    """Return the conditions of the shape in words; empty where none is claimed."""
    return " and ".join(condition.words for condition in judged.claim.shape)


def _bound(judged: Judged) -> str:
    """Return the bound in words; empty without one."""
    if judged.claim.bound:
        return judged.claim.bound.words
    return ""


def ours(judged: Judged) -> str:
    """Return our value, or our values in their order; empty where no command gives any."""
    return _listed(judged.ours)


def ends(judged: Judged) -> str:
    """Return what comes out with unprinted inputs at their first, then at their last end; empty
    where there are none.
    """
    return " to ".join(_listed(values) for values in judged.ends)


def _listed(values: Iterable[float]) -> str:
    """Return values in words: an infinite one counts to what never comes."""
    return ", ".join(number(value, 3) if isfinite(value) else "never" for value in values)


def bound(judged: Judged) -> str:
    """Return what excludes the number and why, or which input is missing; then what comes out at
    the ends of its range.
    """
    reason = _limit(judged) or judged.claim.missing
    at_ends = ends(judged)
    if at_ends:
        reason = f"{reason}; at the ends of what is plausible: {at_ends}"
    return reason


def _limit(judged: Judged) -> str:
    """Return the bound and its arithmetic; empty without one."""
    claim = judged.claim
    if not claim.bound:
        return ""
    return f"{claim.bound.words.replace('_', ' ')} {claim.unit}: {claim.bound_why}"


def _command(judged: Judged) -> Code | str:
    """Return the command that gives our value, beside the one that it is combined with."""
    taken = judged.claim.values.readings[0]
    if not taken.command:
        return ""
    if not taken.combine:
        return Code(taken.command)
    return Code(f"{taken.command} ({taken.combine.replace('_', ' ')} {taken.against})")


def _records(claims: Iterable[Judged]) -> Table:
    """Return the table of every claim that programs read."""
    columns: list[Column[Judged]] = [
        Column("paper", lambda judged: judged.row.paper),
        Column("claim", lambda judged: judged.claim.claim),
        Column("where", lambda judged: judged.claim.where),
        Column("says", lambda judged: judged.claim.says),
        Column("published", lambda judged: judged.claim.published),
        Column("unit", lambda judged: judged.claim.unit),
        Column("ours", ours),
        Column("ends", ends),
        Column("verdict", lambda judged: judged.verdict),
        Column("shape", _shape),
        Column("bound", _bound),
        Column("bound_why", lambda judged: judged.claim.bound_why),
        Column("missing", lambda judged: judged.claim.missing),
        Column("command", lambda judged: judged.claim.values.command),
        Column("metric", lambda judged: judged.claim.values.metric),
        Column("against", lambda judged: judged.claim.values.against),
        Column("combine", lambda judged: judged.claim.values.combine),
        Column("cells", lambda judged: judged.claim.cells),
        Column("remark", lambda judged: judged.claim.remark),
    ]
    return table("Claims", claims, columns)


def as_data(claims: Iterable[Judged]) -> list[PlainData]:
    """Return the claims as ``--json`` prints them; our values are numbers, null where what is asked
    for never comes.
    """
    claims = list(claims)
    records = _records(claims)
    data = []
    for judged, row in zip(claims, records.rows, strict=True):
        record: PlainData = dict(zip(records.head, row, strict=True))
        record["ours"] = [value if isfinite(value) else None for value in judged.ours]
        data.append(record)
    return data


def claims_csv(claims: Iterable[Judged]) -> str:
    """Return every claim as CSV text."""
    records = _records(claims)
    return csv_text(records.head, records.rows)
