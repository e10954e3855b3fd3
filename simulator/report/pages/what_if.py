"""Sliders over the law of a scenario, and the same law as a table: what an answer becomes as
acceptance and window change.
"""

from collections.abc import Iterator

from simulator.report.blocks import Block, Paragraph, Sliders
from simulator.report.wording import Wording
from simulator.studies.what_if import FEW_RATES, WhatIf

TITLE = "What if"
say = Wording("what_if")


def blocks(law: WhatIf) -> Iterator[Block]:
    """Yield the sliders, what they are about, and a table of speed-ups where acceptance plays a
    part.
    """
    yield Sliders(say("title", law=law), law)
    yield Paragraph(say("about", law=law))
    if len(law["rates"]) > 1:
        times = zip(law["rates"], law["tpot_s"], strict=True)
        yield say.table(
            "speedups", [at_rate for at_rate in times if at_rate[0] in (None, *FEW_RATES)], law=law
        )
