"""A scenario explained on a terminal (``specsim explain``): topics, defaults that apply, and how well its numbers are known."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from simulator.report.console import WIDEST, item
from simulator.scenario.explain import Explanation


def print_explanation(name: str, explanation: Explanation, console: Console) -> None:
    """Print topics, defaults grouped by what they belong to, numbers by confidence, and notes; at most 100 columns."""
    width = min(console.width, WIDEST)
    console.print(Text(name, style="bold"), width=width)
    topics = Table.grid(padding=(0, 2))
    for topic, words in explanation.topics.items():
        topics.add_row(topic, Text(words))
    console.print(topics, width=width)
    title = f"\nDefaults that apply ({len(explanation.defaults)}); --set changes any of them"
    console.print(Text(title, style="bold"), width=width)
    for group in dict.fromkeys(default.of for default in explanation.defaults):
        console.print(Text(group), width=width)
        for default in explanation.defaults:
            if default.of == group:
                source = f"   {default.source}" if default.source else ""
                line = Text(f"{default.field} = {default.value}{source}", style="dim")
                console.print(Padding(line, (0, 0, 0, 4)), width=width)
    counts = ", ".join(f"{count} {confidence}" for confidence, count in explanation.confidences.items())
    console.print(Text("\nNumbers used", style="bold"), width=width)
    sources = f"{counts}; the report lists each with its source" if counts else "none with a source: all are stated"
    item(console, sources, width)
    for note in explanation.notes:
        item(console, f"Note: {note}", width)
