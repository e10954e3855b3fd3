"""The page of ``specsim explain``: topics of a scenario, the defaults that apply, and how well its
numbers are known.
"""

from collections.abc import Iterator

from simulator.numeric import grouped
from simulator.report.blocks import Block, Bullets, Page, Paragraph, sections
from simulator.report.wording import Wording
from simulator.scenario.explain import Explanation
from simulator.scenario.uncertainty import SPREADS, WORTH_NAMING

say = Wording("explain")


def page(name: str, explanation: Explanation) -> Page:
    """Return the page of the scenario ``name``: topics, defaults by what they belong to, numbers by
    confidence, notes.
    """
    moving = [
        footing for footing in explanation.rests_on if abs(footing.change) >= WORTH_NAMING / 10
    ]
    return Page(
        title=name,
        opening=[say.table("topics", explanation.topics.items())],
        sections=sections(
            (
                f"Defaults that apply ({len(explanation.defaults)}); --set changes any of them",
                _defaults(explanation),
            ),
            (
                "What the answer rests on",
                [
                    say.table("footings", moving),
                    Paragraph(say("deviation", spreads=SPREADS.items())),
                ],
            ),
            (
                "Numbers used",
                [
                    Bullets(
                        [
                            say("sources", counts=explanation.confidences.items()),
                            *(f"Note: {note}" for note in explanation.notes),
                        ]
                    )
                ],
            ),
        ),
    )


def _defaults(explanation: Explanation) -> Iterator[Block]:
    """Yield the title of each group of defaults, and the fields in it with their values."""
    for group, defaults in grouped(explanation.defaults, lambda default: default.of).items():
        yield Paragraph(group)
        yield Bullets(
            [
                f"{default.field} = {default.value}   {default.source or ''}".rstrip()
                for default in defaults
            ]
        )
