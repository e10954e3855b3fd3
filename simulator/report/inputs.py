"""The inputs of a page: every number with its source, and the scenario with every default and file
filled in.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import yaml

from simulator.core.quantities import Confidence, provenance
from simulator.report.blocks import Block, Code, Listing, Paragraph
from simulator.report.columns import Column, table
from simulator.scenario import Scenario, resolved

PROVENANCE = "Where the numbers come from"
RESOLVED = "The scenario, resolved"
CONFIDENCES = get_args(Confidence)
DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def provenance_blocks(scenario: Scenario) -> Iterator[Block]:
    """Yield the table of every number with a source, measured ones first."""
    entries = list(provenance(scenario))
    counts = Counter(str(entry["confidence"]) for entry in entries)
    ranked = {name: counts[name] for name in CONFIDENCES if name in counts}
    yield Paragraph(counted(ranked))
    if not entries:
        return
    order = list(ranked)
    columns = [
        Column[Mapping[str, object]]("confidence", lambda entry: str(entry["confidence"])),
        Column[Mapping[str, object]]("parameter", lambda entry: Code(str(entry["parameter"]))),
        Column[Mapping[str, object]]("value", lambda entry: format(entry["value"], "g")),
        Column[Mapping[str, object]]("source", lambda entry: str(entry["source"])),
    ]
    yield table(
        "Numbers used",
        sorted(entries, key=lambda entry: order.index(str(entry["confidence"]))),
        columns,
        badges=(0,),
        sortable=True,
    )


def counted(confidences: Mapping[str, int]) -> str:
    """Return how many numbers have which confidence, in a sentence."""
    if not confidences:
        return "No number with a source was used: durations and rates are stated in the scenario."
    each = ", ".join(f"{count} {name}" for name, count in confidences.items())
    return f"{sum(confidences.values())} numbers: {each}."


def resolved_blocks(scenario: Scenario) -> Iterator[Block]:
    """Yield the complete scenario as a folded listing."""
    text = yaml.dump(
        resolved(scenario), Dumper=DUMPER, sort_keys=False, allow_unicode=True, width=110
    )
    yield Listing(text, "yaml", f"{scenario.name}, every default and every file filled in")
