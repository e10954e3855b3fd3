"""The sweep over trees of a pipeline, on screen."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from simulator.report.facts import number, share
from simulator.sweep_tree import TreePoint


def print_trees(points: Sequence[TreePoint], console: Console) -> None:
    """One line for each tree; those not told apart from the best are marked."""
    table = Table("w", "k", "in the tree", "step (ms)", "ms per token", "Eq. (1)", "behind", "", box=None)
    for point in points:
        marks = ["best" if not point.behind_ms else "ties" if point.ties else "", "tile edge" if point.tile_edge else ""]
        table.add_row(
            str(point.width),
            str(point.branching),
            share(point.hit),
            number(point.step_ms),
            f"{number(point.tpot_ms)} ± {number(point.error_ms, 2)}",
            number(point.printed_ms),
            number(point.behind_ms) if point.behind_ms else "",
            ", ".join(mark for mark in marks if mark),
        )
    console.print(table)
    console.print(
        "ms per token: replay of the recorded passages, ± standard error over requests. Eq. (1): law as printed, with "
        "the share of tokens in the tree. ties: not told apart from the best tree, request by request (2 standard errors)."
    )
