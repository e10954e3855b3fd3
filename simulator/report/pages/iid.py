"""How wrong the i.i.d. formula is (``specsim trace iid``)."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure as Drawing

from simulator.acceptance.iid import Independence
from simulator.report.blocks import Block, Figure, Page, Paragraph, Section, Table
from simulator.report.drawing import canvas
from simulator.report.figures import BLUE, GREY, ORANGE, VERMILLION, panel
from simulator.report.wording import Wording, share

NAME, FIGURE = "iid", "iid.svg"
say = Wording("iid")
POSITIONS = 3
"""How many positions of a window have a column of their own."""
LOOKS = (("o", BLUE), ("s", ORANGE), ("D", VERMILLION), ("^", GREY))
"""Marker and colour of a window size in the figure."""


def windows(drafters: Sequence[Independence]) -> list[int]:
    """Return every window size in draft tokens that was asked about, ascending."""
    return sorted({error.gamma for drafter in drafters for error in drafter.errors})


def headline(drafters: Sequence[Independence]) -> str:
    """Return a sentence with the largest error in either direction, in per cent."""
    errors = [(error.percent, drafter.name, error.gamma) for drafter in drafters for error in drafter.errors]
    return say("headline", low=min(errors), high=max(errors)) if errors else say("none")


def page(drafters: Sequence[Independence], command: str) -> Page:
    """Return the page: the largest errors, the error of each drafter by window, a figure, and the intervals."""
    gammas = windows(drafters)
    positions = (f"at {position}" for position in range(1, POSITIONS + 1))
    by_window = [f"γ = {gamma}" for gamma in gammas]
    detailed = [row(drafter, gammas) for drafter in drafters]
    details: list[Block] = [
        Paragraph(say("details")),
        Table(("", "a", *positions, *by_window), detailed, "Error of the formula by drafter", sortable=True),
    ]
    return Page(
        title=say("title"),
        answer=headline(drafters),
        opening=(
            Table(("", "a", *by_window), [_brief_row(drafter, gammas) for drafter in drafters], "Error by drafter and window"),
            Paragraph(say("legend")),
            Figure(say("picture"), FIGURE, lambda: figure(drafters)),
        ),
        sections=(Section("By position, with intervals", details, terminal=False),),
        command=command,
    )


def _brief_row(drafter: Independence, gammas: Sequence[int]) -> list[str]:
    """Return the name and the rate of a drafter, and the error at each window in per cent."""
    errors = {error.gamma: f"{error.percent:+.1f} %" for error in drafter.errors}
    return [drafter.name, f"{drafter.rate:.3f}", *(errors.get(gamma, "") for gamma in gammas)]


def row(drafter: Independence, gammas: Sequence[int]) -> list[str]:
    """Return the cells of a drafter in the table of the page: rates by position, then errors with their intervals."""
    rates = [f"{rate:.3f}" for rate in (drafter.rate, *drafter.by_position[:POSITIONS])]
    missing = [""] * (POSITIONS + 1 - len(rates))
    errors = {e.gamma: f"{e.percent:+.1f} % ({e.low_percent:+.1f} to {e.high_percent:+.1f})" for e in drafter.errors}
    return [drafter.name, *rates, *missing, *(errors.get(gamma, "") for gamma in gammas)]


def figure(drafters: Sequence[Independence]) -> Drawing:
    """Draw a line for each drafter and a mark with its interval for each window."""
    with canvas(0.9 + 0.24 * len(drafters)) as drawing:
        axes = drawing.subplots()
        for gamma, (mark, colour) in zip(windows(drafters), LOOKS * 4, strict=False):
            _marks(axes, drafters, gamma, mark, colour)
        axes.axvline(0.0, color=GREY, lw=0.8, zorder=0)
        names = [f"{drafter.name}  ({share(drafter.rate)})" for drafter in drafters]
        axes.set_yticks(range(len(drafters)), names, size=7.5)
        axes.set_ylim(len(drafters) - 0.4, -0.6)
        axes.grid(axis="y", color="#e4e4e4", lw=0.5)
        panel(axes, say, "panel", ())
        return drawing


def _marks(axes: Any, drafters: Sequence[Independence], gamma: int, mark: str, colour: str) -> None:
    """Draw the errors at one window size, each in the row of its drafter."""
    rows, errors = [], []
    for place, drafter in enumerate(drafters):
        for error in drafter.errors:
            if error.gamma == gamma:
                rows.append(place)
                errors.append(error)
    axes.hlines(rows, [e.low_percent for e in errors], [e.high_percent for e in errors], color=colour, lw=1.0, alpha=0.6)
    axes.plot([e.percent for e in errors], rows, mark, color=colour, ms=4, label=f"γ = {gamma}")
