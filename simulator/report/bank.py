"""The bank of acceptance: the pages of ``specsim trace list`` and ``specsim trace advise``."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from simulator.report.blocks import Listing, Page, Paragraph, Section
from simulator.report.wording import Wording
from simulator.scenario.bank import COMPARED, Loan

say = Wording("bank")


def list_page(recordings: Sequence[Mapping[str, Any]], means: int, targets: int) -> Page:
    """Return the page of everything that can be borrowed."""
    table = say.table("recorded", [list(seen.values()) for seen in recordings], compared=COMPARED)
    texts, pairs = (
        "; ".join(dict.fromkeys(seen[key] for seen in recordings)) for key in ("texts", "pair")
    )
    more = Paragraph(say("more", texts=texts, pairs=pairs, means=means, targets=targets))
    return Page("Acceptance that can be borrowed", opening=[table, more])


def advice_page(
    target: str, recorded: Mapping[str, object] | None, loans: Sequence[Loan], measure: str
) -> Page:
    """Return the page of what is nearest to a pair, how far it is, and how to measure one's own."""
    block = yaml.safe_dump({"acceptance": dict(loans[0].block)}, sort_keys=False, width=100)
    sections = [
        Section(
            "The nearest, as a scenario states it",
            [Listing(block, "yaml"), Paragraph(say("stability"))],
        ),
        Section("Nearest recording", [Paragraph(say("lends", one=recorded))]),
        Section("Your own in ten minutes", [Listing(measure, "sh")]),
    ]
    return Page(
        f"Acceptance for {target}", opening=[say.table("published", loans)], sections=sections
    )
