"""Sliders over the law of a scenario, and the same law as a table: what an answer becomes as
acceptance and window change.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from simulator.report.blocks import Block, Paragraph, Sliders, Table
from simulator.report.columns import Column, table
from simulator.report.wording import number, plural, whole_share
from simulator.studies.what_if import FEW_RATES, WhatIf

TITLE = "What if"


class AtRate(NamedTuple):
    """Times per token by window, at one chance that a draft token is kept; None for the acceptance
    of the scenario.
    """

    rate: float | None
    tpot_s: Sequence[float]


def blocks(law: WhatIf) -> Iterator[Block]:
    """Yield the sliders, what they are about, and a table of speed-ups where acceptance plays a
    part.
    """
    yield Sliders(title(law), law)
    yield Paragraph(about(law))
    if len(law["rates"]) > 1:
        yield _speedups(law)


def title(law: WhatIf) -> str:
    """Return what the sliders are over."""
    requests = law["requests"]
    noun = "request" if requests == 1 else "requests"
    return f"{law['name']} by law, {requests:,} {noun} at a time"


def about(law: WhatIf) -> str:
    """Return what moves with the sliders, and what does not."""
    chance = ""
    if len(law["rates"]) > 1:
        chance = (
            "; the chance is the same at every place of a window and independent of the places "
            'before it, while "as it is" is the acceptance of the scenario'
        )
    price = ""
    if law["usd_per_hour"] is not None:
        price = (
            "; the price of a token leaves out the work for prompts and the time without requests"
        )
    return (
        f"By law, at the mean context{chance}. Plain decoding stays as it is{price}. Python worked "
        "out the kinds of step (durations, shares, tokens); the page adds them up."
    )


def _speedups(law: WhatIf) -> Table:
    """Return the table of speed-ups with a row for each of a few rates, and a column a window."""
    times = map(AtRate, law["rates"], law["tpot_s"])
    rows = [row for row in times if row.rate is None or row.rate in FEW_RATES]
    columns = [
        Column[AtRate]("draft tokens kept", lambda row: whole_share(row.rate) or "as it is"),
        *(_at_window(place, law) for place in range(len(law["windows"]))),
    ]
    return table(
        "Speed-up over plain decoding by law, by acceptance and draft tokens", rows, columns
    )


def _at_window(place: int, law: WhatIf) -> Column[AtRate]:
    tokens = law["windows"][place]
    plain_s = law["plain_s"]
    head = plural(tokens, "token")
    return Column(head, lambda row: f"{number(plain_s / row.tpot_s[place], 3)} ×")
