"""What became of the claims of laws (``specsim validate --law``), in words, as a page and as data."""

from collections.abc import Sequence
from typing import Any

from simulator.evidence.law_check import ExampleVerdict
from simulator.report.blocks import Block, Bullets, Page, Table


def law_sentence(verdict: ExampleVerdict) -> str:
    """Return what became of the law of a strategy on its example."""
    worst = verdict.worst
    if not verdict.compared:
        return f"{verdict.strategy}: DISAGREEMENT: its example leaves nothing of the law to compare"
    if not verdict.broken or worst is None:
        largest = f"; the largest gap is {abs(worst.gap):.1e}" if worst else ""
        return f"{verdict.strategy}: the law keeps its claim in {verdict.compared} numbers{largest}"
    law, process = (f"{value * 1e3:.6g} ms" if "step" in worst.way else f"{value:.6g} tokens" for value in worst[-2:])
    return (
        f"{verdict.strategy}: DISAGREEMENT in {verdict.broken} of {verdict.compared} numbers: the law claims to be "
        f"{worst.claim.noun}; worst is {worst.way} ({worst.condition}): {law} by law, {process} by the process "
        f"({worst.gap * 100:+.3g} %)"
    )


def page(verdicts: Sequence[ExampleVerdict], command: str) -> Page:
    """Return the page: strategies and their examples, and a sentence about every law that disagrees."""
    rows = []
    for verdict in verdicts:
        gap = f"{abs(verdict.worst.gap):.1e}" if verdict.worst else ""
        outcome = "in DISAGREEMENT" if verdict.disagreement else "as claimed"
        rows.append((verdict.strategy, str(verdict.compared), str(verdict.broken), gap, outcome))
    broken = [law_sentence(verdict) for verdict in verdicts if verdict.disagreement]
    kept = len(verdicts) - len(broken)
    opening: list[Block] = [Table(("strategy", "compared", "broken", "largest gap", "the law is"), rows, "Laws")]
    if broken:
        opening.append(Bullets(broken))
    return Page(
        title="Laws against the timelines of their examples",
        answer=f"{kept} of {len(verdicts)} {'law keeps its' if len(verdicts) == 1 else 'laws keep their'} claim.",
        opening=opening,
        command=command,
    )


def law_data(verdicts: Sequence[ExampleVerdict]) -> list[dict[str, Any]]:
    """Return what became of each strategy's example as plain data."""
    return [
        {
            "strategy": verdict.strategy,
            "claims": list(verdict.claims),
            "compared": verdict.compared,
            "broken": verdict.broken,
            "gap": verdict.worst.gap if verdict.worst else None,
            "disagreement": verdict.disagreement,
            "words": law_sentence(verdict),
        }
        for verdict in verdicts
    ]
