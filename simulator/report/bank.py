"""The bank of acceptance: the pages of ``specsim trace list`` and ``specsim trace advise``."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from simulator.report.blocks import Listing, Page, Paragraph, Section, Table
from simulator.scenario.bank import COMPARED, Loan

RECORDED = ("recording", "T", "requests", "widest", f"tokens/step at {COMPARED}", "scenarios")
PUBLISHED = ("target", "method", "window", "T", "task", "tokens/step", "differs in")
STABILITY = (
    "How far off a loan may be, by published means that were repeated: 2 % in a repeat of the same test, 15 % on another mix "
    "of tasks, up to 45 % from code to prose, up to a factor of 2 with another tree, language, context or sampling rule."
)


def list_page(recordings: Sequence[Mapping[str, Any]], means: int, targets: int) -> Page:
    """Return the page of everything that can be borrowed."""
    rows = [[_or_dash(value) for value in list(seen.values())[: len(RECORDED)]] for seen in recordings]
    texts, pairs = ("; ".join(dict.fromkeys(seen[key] for seen in recordings)) for key in ("texts", "pair"))
    words = f"Recorded kinds of text: {texts}. Models: {pairs}. Beside them {means} published means of {targets} targets: "
    table = Table(RECORDED, rows, "Recordings")
    return Page("Acceptance that can be borrowed", opening=[table, Paragraph(f"{words}specsim list acceptance.")])


def advice_page(target: str, recorded: Mapping[str, object] | None, loans: Sequence[Loan], measure: str) -> Page:
    """Return the page of what is nearest to a pair, how far it is, and how to measure one's own."""
    rows = [
        [_or_dash(value) for value in (near, mean.method, mean.window, mean.temperature, mean.task, mean.tokens_per_step)]
        + ["; ".join(unlike) or "nothing that was stated"]
        for near, mean, unlike, _ in loans
    ]
    lends = "No recording holds such a drafter: the mean becomes an i.i.d. rate."
    if recorded:
        pair = f"{recorded['pair']}, temperature {recorded['temperature']}"
        lends = f"{recorded['name']} lends its bursts, never its mean; recorded from {pair}."
    block = yaml.safe_dump({"acceptance": dict(loans[0].block)}, sort_keys=False, width=100)
    sections = [
        Section("The nearest, as a scenario states it", [Listing(block, "yaml"), Paragraph(STABILITY)]),
        Section("Nearest recording", [Paragraph(lends)]),
        Section("Your own in ten minutes", [Listing(measure, "sh")]),
    ]
    return Page(f"Acceptance for {target}", opening=[Table(PUBLISHED, rows, "Nearest published means")], sections=sections)


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)
