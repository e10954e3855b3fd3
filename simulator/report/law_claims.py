"""What became of the claims of laws (``specsim validate --law``), in words, as a page and as
data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simulator.core.plain import PlainData
from simulator.report.blocks import (
    FIRST,
    Block,
    Bullets,
    Page,
    Remark,
    Standing,
    Table,
)
from simulator.report.columns import Column, table

if TYPE_CHECKING:
    from simulator.evidence.law_check import ExampleVerdict, LawCheck


def law_sentence(verdict: ExampleVerdict, failed: str = "FAIL") -> str:
    """Return what became of the law of a strategy on its example; ``failed`` is the word for a
    broken claim.
    """
    strategy = verdict.strategy
    worst = verdict.worst
    if not verdict.compared:
        return f"{strategy}: {failed}: its example leaves nothing of the law to compare"
    if worst is None:
        return f"{strategy}: the law keeps its claim in {verdict.compared} numbers"
    if not verdict.broken:
        return (
            f"{strategy}: the law keeps its claim in {verdict.compared} numbers; the largest gap "
            f"is {_size(worst)}"
        )
    if "share" in worst.way:
        by_law = f"{worst.law * 100:.3g} %"
        by_process = f"{worst.process * 100:.3g} %"
    elif "step" in worst.way:
        by_law = f"{worst.law * 1e3:.6g} ms"
        by_process = f"{worst.process * 1e3:.6g} ms"
    else:
        by_law = f"{worst.law:.6g} tokens"
        by_process = f"{worst.process:.6g} tokens"
    return (
        f"{strategy}: {failed} in {verdict.broken} of {verdict.compared} numbers: the law claims "
        f"to be {worst.claim.noun}; worst is {worst.way} ({worst.condition}): {by_law} by law, "
        f"{by_process} by the process ({worst.gap * 100:+.3g} %)"
    )


def on_page(shown: str) -> str:
    """Return what a run shows of a law's claim, with the word of pages for one that is broken; the
    sentence itself stands in JSON.
    """
    return shown.replace("DISAGREEMENT", "FAIL", 1)


def page(verdicts: Sequence[ExampleVerdict], command: str) -> Page:
    """Return the page: strategies and their examples, and a sentence about every law that
    disagrees.
    """
    broken = [law_sentence(verdict) for verdict in verdicts if verdict.disagreement]
    laws = [f"{verdict.strategy} {_verdict(verdict)}" for verdict in verdicts]
    opening: list[Block] = [_laws(verdicts)]
    if broken:
        opening.append(Bullets(broken))
    return Page(
        "Laws against the timelines of their examples",
        answer=headline(len(verdicts) - len(broken), len(verdicts)),
        opening=opening,
        command=command,
        standing=Standing(doubts=broken, more=[Remark("Laws", f"{', '.join(laws)}.", FIRST)]),
    )


def headline(kept: int, laws: int) -> str:
    """Return how many laws keep their claim."""
    if laws == 1:
        return f"{kept} of 1 law keeps its claim."
    return f"{kept} of {laws} laws keep their claim."


def _laws(verdicts: Sequence[ExampleVerdict]) -> Table:
    """Return the table of laws."""
    columns: list[Column[ExampleVerdict]] = [
        Column("strategy", lambda verdict: verdict.strategy),
        Column("compared", lambda verdict: verdict.compared),
        Column("broken", lambda verdict: verdict.broken),
        Column("largest gap", lambda verdict: _size(verdict.worst)),
        Column("verdict", _verdict),
    ]
    return table("Laws", verdicts, columns)


def _size(check: LawCheck | None) -> str:
    """Return how far law and process are apart, without its sign; nothing for None."""
    if check is None:
        return ""
    return f"{abs(check.gap):.1e}"


def _verdict(verdict: ExampleVerdict) -> str:
    if verdict.disagreement:
        return "FAIL"
    return "PASS"


def law_data(verdicts: Sequence[ExampleVerdict]) -> list[PlainData]:
    """Return what became of each strategy's example as plain data."""
    return [
        {
            "strategy": verdict.strategy,
            "compared": verdict.compared,
            "broken": verdict.broken,
            "disagreement": verdict.disagreement,
            "claims": list(verdict.claims),
            "gap": verdict.worst and verdict.worst.gap,
            "words": law_sentence(verdict, failed="DISAGREEMENT"),
        }
        for verdict in verdicts
    ]
