"""What became of the claims of laws (``specsim validate --law``), in words, as a page and as
data.
"""

from collections.abc import Sequence
from typing import Any

from simulator.evidence.law_check import ExampleVerdict
from simulator.report.blocks import Block, Bullets, Page
from simulator.report.wording import Wording

say = Wording("law_claims")


def law_sentence(verdict: ExampleVerdict) -> str:
    """Return what became of the law of a strategy on its example."""
    worst = verdict.worst
    law, process = worst[-2:] if worst else (None, None)
    return say("sentence", one=verdict, worst=worst, law=law, process=process)


def page(verdicts: Sequence[ExampleVerdict], command: str) -> Page:
    """Return the page: strategies and their examples, and a sentence about every law that
    disagrees.
    """
    broken = [law_sentence(verdict) for verdict in verdicts if verdict.disagreement]
    opening: list[Block] = [say.table("laws", verdicts), *([Bullets(broken)] if broken else [])]
    answer = say("answer", kept=len(verdicts) - len(broken), all=len(verdicts))
    return Page(
        "Laws against the timelines of their examples",
        answer=answer,
        opening=opening,
        command=command,
    )


def law_data(verdicts: Sequence[ExampleVerdict]) -> list[dict[str, Any]]:
    """Return what became of each strategy's example as plain data."""
    return [
        {name: getattr(one, name) for name in ("strategy", "compared", "broken", "disagreement")}
        | {
            "claims": list(one.claims),
            "gap": one.worst and one.worst.gap,
            "words": law_sentence(one),
        }
        for one in verdicts
    ]
