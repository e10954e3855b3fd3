"""Sliders over the law of a scenario, and the same law as a table: what an answer becomes as acceptance and window change."""

from collections.abc import Iterator

from simulator.report.blocks import Block, Paragraph, Sliders, Table
from simulator.report.wording import Wording, number
from simulator.studies.what_if import FEW_RATES, WhatIf

TITLE = "What if"
say = Wording("what_if")


def blocks(law: WhatIf) -> Iterator[Block]:
    """Yield the sliders, what they are about, and a table of speed-ups where acceptance plays a part."""
    yield Sliders(say("title", law=law), law)
    yield Paragraph(say("about", law=law))
    if len(law["rates"]) > 1:
        rows = [
            (say("rate", rate=rate), *(f"{number(law['plain_s'] / tpot_s, 3)} ×" for tpot_s in times))
            for rate, times in zip(law["rates"], law["tpot_s"], strict=True)
            if rate in (None, *FEW_RATES)
        ]
        head = ("draft tokens kept", *(say("window", tokens=tokens) for tokens in law["windows"]))
        yield Table(head, rows, say("table"))
