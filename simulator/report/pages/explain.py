"""The page of ``specsim explain``: topics of a scenario, the defaults that apply, and how well its
numbers are known.
"""

from collections.abc import Iterator, Mapping

from simulator.core.numeric import grouped
from simulator.report.blocks import Block, Bullets, Page, Paragraph, Table, sections
from simulator.report.columns import Column, table
from simulator.report.wording import number, signed_share, whole_share
from simulator.scenario.explain import Explanation
from simulator.scenario.uncertainty import SPREADS, WORTH_NAMING, Footing


def page(name: str, explanation: Explanation) -> Page:
    """Return the page of the scenario ``name``: topics, defaults by what they belong to, numbers by
    confidence, notes.
    """
    topics = [
        Column[tuple[str, str]]("topic", lambda topic: topic[0]),
        Column[tuple[str, str]]("in words", lambda topic: topic[1]),
    ]
    defaults = f"Defaults that apply ({len(explanation.defaults)}); --set changes any of them"
    return Page(
        title=name,
        opening=[table("What will be simulated", explanation.topics.items(), topics)],
        sections=sections(
            (defaults, _defaults(explanation)),
            ("What the answer depends on most", [_footings(explanation), Paragraph(deviation())]),
            ("Numbers used", [_numbers(explanation)]),
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


def _footings(explanation: Explanation) -> Table:
    """Return the table of numbers that change the speed-up, most first."""
    moving = [
        footing for footing in explanation.rests_on if abs(footing.change) >= WORTH_NAMING / 10
    ]
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
        "Speed-up: how much it changes, by law, where the number is one standard deviation higher "
        "(without speculation: how much the speed changes). The deviation comes from the range of "
        "the number, where it has one; otherwise it is a share by confidence, judged and not "
        f"measured: {spreads}."
    )


def _numbers(explanation: Explanation) -> Bullets:
    notes = (f"Note: {note}" for note in explanation.notes)
    return Bullets([sources(explanation.confidences), *notes])


def sources(confidences: Mapping[str, int]) -> str:
    """Return how many numbers have which confidence."""
    if not confidences:
        return "none with a source: all are stated"
    each = ", ".join(f"{count} {confidence}" for confidence, count in confidences.items())
    return f"{each}; the report lists each with its source"
