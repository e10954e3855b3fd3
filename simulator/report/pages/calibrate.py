"""What a fit came to: on a terminal, as data, as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.evidence.calibrate.profile import FittedProfile, text
from simulator.evidence.calibrate.quality import LEFT_OUT, LEFT_OUT_RANGES, FitError, HeldOutErrors, TileStep
from simulator.report.console import WIDEST, new_table

FEW_SHAPES = 3
"""Shapes told by name: those with the largest errors."""
HEADS = {
    "errors": ("", "tokens", "rows", "MAPE", "p95", "bias", "like", "sheet"),
    "left_out": ("left out", "", *(f"MAPE {low}..{high}" for low, high in LEFT_OUT_RANGES)),
    "steps": ("behind", "next", "measured", "predicted", "like"),
}
TITLES = {
    "errors": "Errors in % of the measured time; like: MAPE of the profile it starts from; sheet: of the datasheet's rates",
    "left_out": "Predicted by a fit to all the others: layers of a model or degree, products of a shape (%)",
    "steps": "Growth of a layer behind a step, median over models and degrees (%)",
}


def tables(found: FittedProfile) -> dict[str, list[tuple[str, ...]]]:
    """Rows of each table that there is something for, under ``HEADS``."""
    filled = {
        "errors": [row for name, errors in found.errors.items() for row in _errors(errors, found.before.get(name, ()))],
        "left_out": list(_left_out(found.left_out)),
        "steps": [_step(*pair) for pair in zip(found.steps, found.steps_before, strict=True)],
    }
    return {name: rows for name, rows in filled.items() if rows}


def _errors(errors: Sequence[FitError], before: Sequence[FitError]) -> Iterator[tuple[str, ...]]:
    like = {one[:3]: f"{one.mape_percent:.1f}" for one in before}
    for one in errors:
        tokens = f"{one.least_tokens}..{one.most_tokens}" if one.most_tokens else ""
        sheet = "" if one.datasheet_mape_percent is None else f"{one.datasheet_mape_percent:.1f}"
        told = f"{one.mape_percent:.1f}", f"{one.p95_percent:.1f}", f"{one.bias_percent:+.1f}"
        yield one.what, tokens, f"{one.rows:,}", *told, like.get(one[:3], ""), sheet


def _left_out(found: Sequence[HeldOutErrors]) -> Iterator[tuple[str, ...]]:
    """Every model and degree, and their mean weighted by rows; of the shapes the worst."""
    for by in LEFT_OUT:
        held = [one for one in found if one.by == by]
        if held:
            means = (_mean(held, place) for place in range(len(LEFT_OUT_RANGES)))
            yield by.replace("_", " "), f"all {len(held)}", *means
            told = sorted(held, key=lambda one: -one.mape_percent[-1])[:FEW_SHAPES] if by == "shape" else held
            yield from (("", one.name, *("" if isnan(mape) else f"{mape:.1f}" for mape in one.mape_percent)) for one in told)


def _mean(held: Sequence[HeldOutErrors], place: int) -> str:
    some = [(one.mape_percent[place], one.rows[place]) for one in held if one.rows[place]]
    return f"{sum(mape * rows for mape, rows in some) / sum(rows for _, rows in some):.1f}" if some else ""


def _step(one: TileStep, before: TileStep) -> tuple[str, ...]:
    growth = one.measured_percent, one.predicted_percent, before.predicted_percent
    return str(one.after_tokens), str(one.next_tokens), *(f"{percent:+.1f}" for percent in growth)


def as_data(found: FittedProfile) -> dict[str, Any]:
    """Everything, for JSON; what was not measured is null."""
    return {
        "profile": found.data,
        "errors": {name: [one._asdict() for one in errors] for name, errors in found.errors.items()},
        "errors_of_like": {name: [one._asdict() for one in errors] for name, errors in found.before.items()},
        "left_out": [
            one._asdict() | {"mape_percent": [None if isnan(mape) else mape for mape in one.mape_percent]}
            for one in found.left_out
        ],
        "steps": [one._asdict() for one in found.steps],
        "steps_of_like": [one._asdict() for one in found.steps_before],
        "layer_mape_percent_by_tiles": found.tiles,
    }


def print_fit(found: FittedProfile, console: Console) -> None:
    """The numbers, then how wrong they are."""
    width = min(console.width, WIDEST)
    for name, rows in tables(found).items():
        console.print(Text(f"\n{TITLES[name]}", style="bold"), width=width)
        shown: Table = new_table(*HEADS[name])
        for row in rows:
            shown.add_row(*row)
        console.print(shown, width=width)
    if found.tiles:
        told = "; ".join(f"{tiles}: {error:.1f}" for tiles, error in found.tiles.items())
        console.print(Text(f"\nTiles tried, layer MAPE up to 512 tokens (%): {told}"), width=width)


def page(name: str, found: FittedProfile, command: str) -> str:
    """The same as Markdown, with the profile itself; ``NAME.svg`` beside it holds the figure."""
    blocks = [f"# {name}: fitted to measurements"]
    blocks += [f"![Time of a layer by token count]({name}.svg)"] if found.layers is not None else []
    for kind, rows in tables(found).items():
        head = HEADS[kind]
        lines = [head, ("---", *["---:"] * (len(head) - 1)), *rows]
        blocks += [TITLES[kind] + ".", "\n".join(f"| {' | '.join(cells)} |" for cells in lines)]
    return "\n\n".join([*blocks, "## Profile", f"```yaml\n{text(found.data)}```", "## Made by", f"```\n{command}\n```"]) + "\n"
