"""The page of ``specsim explain``: topics of a scenario, the defaults that apply, and how well its
numbers are known.
"""

from collections.abc import Iterator, Mapping

from simulator.core.numeric import grouped
from simulator.report.blocks import Block, Bullets, Page, Paragraph, Table, sections
from simulator.report.columns import Column, table
from simulator.report.wording import number, signed_share, whole_share
from simulator.scenario.explain import Explanation
from simulator.scenario.uncertain.doubts import SPREADS
from simulator.scenario.uncertain.footings import WORTH_NAMING, Footing


def page(name: str, explanation: Explanation) -> Page:
    """Return the page of the scenario ``name``: topics, defaults by what they belong to, numbers by
    confidence, notes.
    """
    topics = explanation.topics
    columns: list[Column[str]] = [
        Column("topic", lambda topic: topic),
        Column("in words", lambda topic: topics[topic]),
    ]
    defaults = f"Defaults that apply ({len(explanation.defaults)}); --set changes any of them"
    footings: list[Block] = [_footings(explanation), Paragraph(deviation())]
    told = sections(
        (defaults, _defaults(explanation)),
        ("What the answer depends on most", footings),
        ("Numbers used", [_numbers(explanation)]),
    )
    return Page(
        title=name, opening=[table("What will be simulated", topics, columns)], sections=told
    )


def _defaults(explanation: Explanation) -> Iterator[Block]:
    """Yield the title of each group of defaults, and the fields in it with their values."""
    for group, defaults in grouped(explanation.defaults, lambda default: default.of).items():
        lines = []
        for default in defaults:
            line = f"{default.field} = {default.value}   {default.source or ''}"
            lines.append(line.rstrip())
        yield Paragraph(group)
        yield Bullets(lines)


def _footings(explanation: Explanation) -> Table:
    """Return the table of numbers that change the speed-up, most first."""
    least = WORTH_NAMING / 10
    moving = [footing for footing in explanation.rests_on if abs(footing.change) >= least]
    columns: list[Column[Footing]] = [
        Column("number", lambda footing: footing.parameter),
        Column("value", lambda footing: number(footing.value)),
        Column("confidence", lambda footing: footing.confidence),
        Column("speed-up", lambda footing: signed_share(footing.change)),
        Column("source", lambda footing: footing.source[:60]),
    ]
    return table("Numbers by what one deviation of each changes", moving, columns, badges=(2,))


def deviation() -> str:
    """Return what the table of numbers shows, and how large one deviation is."""
    spreads = ", ".join(f"{name} {whole_share(spread)}" for name, spread in SPREADS.items())
    return (
        "Speed-up: how much it changes, by law, where the number is one standard deviation higher, "
        "or lower where it can be no higher (without speculation: how much the speed changes). The "
        "deviation comes from the range of the number, where it has one; otherwise it is a share "
        f"by confidence, judged and not measured: {spreads}."
    )


def _numbers(explanation: Explanation) -> Bullets:
    lines = [sources(explanation.confidences)]
    lines += [f"Note: {note}" for note in explanation.notes]
    return Bullets(lines)


def sources(confidences: Mapping[str, int]) -> str:
    """Return how many numbers have which confidence."""
    if not confidences:
        return "none with a source: all are stated"
    each = ", ".join(f"{count} {confidence}" for confidence, count in confidences.items())
    return f"{each}; the report lists each with its source"
