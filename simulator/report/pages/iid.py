"""How wrong the i.i.d. formula is: a table for a terminal, a page."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from simulator.acceptance.iid import IidError, Independence
from simulator.report.console import WIDEST, item, new_table

PAGE, FIGURE = "iid.md", "iid.svg"
LEGEND = (
    "Error of (1 - a^(γ+1)) / (1 - a) tokens per step, correction or bonus included; a: share kept by windows of one token, to "
    "which the formula is fitted"
)
DETAILS = (
    "at 1, 2, 3: share kept at that position of the widest window, of the windows that got there; in brackets 90 % of "
    "bootstrap samples over requests"
)
POSITIONS = 3


def windows(found: Sequence[Independence]) -> list[int]:
    """Every window that any of them was asked about."""
    return sorted({error.gamma for one in found for error in one.errors})


def span(found: Sequence[Independence]) -> str:
    """The worst in both directions, in words."""
    held = [(error.percent, one.name, error.gamma) for one in found for error in one.errors]
    if not held:
        return "No window to compare."
    (low, least, at), (high, most, where) = min(held), max(held)
    text = [f"too much by up to {high:.1f} % ({most}, γ = {where})"] if high > 0 else []
    text += [f"too little by up to {-low:.1f} % ({least}, γ = {at})"] if low < 0 else []
    return f"The i.i.d. formula predicts {' and '.join(text) or 'exactly what was recorded'}."


def print_independence(found: Sequence[Independence], console: Console) -> None:
    """One line each."""
    width, gammas = min(console.width, WIDEST), windows(found)
    table = new_table("", "a", *(f"γ = {gamma}" for gamma in gammas))
    for one in found:
        errors = {error.gamma: f"{error.percent:+.1f} %" for error in one.errors}
        table.add_row(one.name, f"{one.rate:.3f}", *(errors.get(gamma, "") for gamma in gammas))
    console.print(table, width=width)
    item(console, span(found), width)
    item(console, LEGEND, width)


def page(found: Sequence[Independence], command: str) -> str:
    """The page, with its figure by relative path."""
    gammas = windows(found)
    head = ["", "a", *(f"at {position}" for position in range(1, POSITIONS + 1)), *(f"γ = {gamma}" for gamma in gammas)]
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *(row(one, gammas) for one in found)]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    blocks = [
        "# How wrong is i.i.d.?",
        f"**{span(found)}**",
        f"{LEGEND}; {DETAILS}.",
        f"![Error of the formula by drafter and window]({FIGURE})",
        table,
        "## Made by",
        f"```\n{command}\n```",
    ]
    return "\n\n".join(blocks) + "\n"


def row(one: Independence, gammas: Sequence[int]) -> list[str]:
    """The cells of one drafter in the table of the page."""
    rates = [f"{rate:.3f}" for rate in (one.rate, *one.by_position[:POSITIONS])]
    missing = [""] * (POSITIONS + 1 - len(rates))
    errors = {error.gamma: error for error in one.errors}
    return [one.name, *rates, *missing, *(_shown(errors[gamma]) if gamma in errors else "" for gamma in gammas)]


def _shown(error: IidError) -> str:
    return f"{error.percent:+.1f} % ({error.low_percent:+.1f} to {error.high_percent:+.1f})"
