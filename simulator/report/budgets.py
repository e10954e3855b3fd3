"""The sweep over budgets, on screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from simulator.report.facts import number

READINGS = (
    ("verified", "law"),
    ("verified", "replay"),
    ("verified", "simulation"),
    ("emitted", "law"),
    ("emitted", "simulation"),
)
HEAD = ("T_draft\nms", "step\nms", "verified\nlaw", "\nreplay", "\nsimul.", "emitted\nlaw", "\nsimul.", "program\ncounts")


def print_budgets(found: Mapping[str, Any], console: Console) -> None:
    """c, the best budgets, the budgets that were simulated, the ablation around c, numbers of sequences."""
    console.print(
        f"{found['scenario']}: c = T_target / T_draft = {number(found['cost_coefficient'], 4)}, gamma = {found['budget']}"
    )
    for count in ("verified", "emitted"):
        for name in ("law", "simulation"):
            first, last = found["flat"][f"{count}_{name}"]
            best = found["best"][f"{count}_{name}"]
            console.print(f"- most {count} tokens per second at gamma = {best} ({name}); within 1 % from {first} to {last}")
    simulated = [point for point in found["budgets"] if point["verified"]["simulation"]]
    console.print(_table("gamma", simulated, "gamma"))
    around = Table("against\nc: gamma", "verified\nlaw", "\nsimul.", "emitted\nlaw", "\nsimul.", box=None)
    for point in found["around_c"]:
        names = [f"{count}_{name}_change" for count in ("verified", "emitted") for name in ("law", "simulation")]
        around.add_row(str(point["gamma"]), *(f"{point[name]:+.2%}" if name in point else "" for name in names))
    console.print(around)
    console.print(_table("sequences", found["sequences"], "sequences"))
    console.print(
        "Tokens per second while decoding, one sequence in the first table. emitted: a request ends when its last token is "
        "shown, checked or not. program: tokens counted as the released program does over those of them that are verified. "
        f"Law: {found['acceptance']}."
    )


def _table(title: str, points: Sequence[Mapping[str, Any]], key: str) -> Table:
    table = Table(f"\n{title}", *HEAD, box=None)
    for point in points:
        rates = [point[count][name] for count, name in READINGS]
        ratio = f"x {point['reported_ratio']:.2f}"
        table.add_row(str(point[key]), number(point["draft_ms"]), number(point["step_ms"]), *map(number, rates), ratio)
    return table
