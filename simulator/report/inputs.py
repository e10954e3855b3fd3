"""The inputs of a page: every number with its source, and the scenario with every default and file
filled in.
"""

from collections import Counter
from collections.abc import Iterator
from typing import get_args

import yaml

from simulator.files.schema import Confidence, provenance
from simulator.report.blocks import Block, Listing, Paragraph
from simulator.report.wording import Wording
from simulator.scenario import Scenario, resolved

PROVENANCE, RESOLVED = "Where the numbers come from", "The scenario, resolved"
CONFIDENCES = get_args(Confidence)
say = Wording("inputs")


def provenance_blocks(scenario: Scenario) -> Iterator[Block]:
    """Yield the table of every number with a source, measured ones first."""
    entries = list(provenance(scenario))
    counts = Counter(str(entry["confidence"]) for entry in entries)
    order = [name for name in CONFIDENCES if name in counts]
    yield Paragraph(
        say("counted", count=len(entries), confidences=[(counts[name], name) for name in order])
    )
    ranked = sorted(entries, key=lambda entry: order.index(str(entry["confidence"])))
    if entries:
        yield say.table("numbers", ranked)


def resolved_blocks(scenario: Scenario) -> Iterator[Block]:
    """Yield the complete scenario as a folded listing."""
    text = yaml.safe_dump(resolved(scenario), sort_keys=False, allow_unicode=True, width=110)
    yield Listing(text, "yaml", f"{scenario.name}, every default and every file filled in")
