"""An explained scenario on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from simulator.report.console import WIDEST, item
from simulator.scenario.explain import Explanation


def print_explanation(name: str, found: Explanation, console: Console) -> None:
    """Topics, defaults below what they are fields of, numbers by confidence, notes; at most 100 columns."""
    width = min(console.width, WIDEST)
    console.print(Text(name, style="bold"), width=width)
    topics = Table.grid(padding=(0, 2))
    for topic, words in found.topics.items():
        topics.add_row(topic, Text(words))
    console.print(topics, width=width)
    console.print(Text(f"\nDefaults that apply ({len(found.defaults)}); --set changes any of them", style="bold"), width=width)
    for of in dict.fromkeys(one.of for one in found.defaults):
        console.print(Text(of), width=width)
        for one in found.defaults:
            if one.of == of:
                source = f"   {one.source}" if one.source else ""
                console.print(Padding(Text(f"{one.field} = {one.value}{source}", style="dim"), (0, 0, 0, 4)), width=width)
    counts = ", ".join(f"{count} {confidence}" for confidence, count in found.confidences.items())
    console.print(Text("\nNumbers that go in", style="bold"), width=width)
    item(console, f"{counts}; the report lists each with its source" if counts else "none with a source: all is stated", width)
    for note in found.notes:
        item(console, f"Note: {note}", width)
