"""How wrong the i.i.d. formula is (``specsim trace iid``)."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure as Drawing

from simulator.acceptance.iid import IidError, Independence
from simulator.report.blocks import Block, Figure, Page, Paragraph, Section
from simulator.report.drawing import canvas
from simulator.report.figures import panel
from simulator.report.panels import BLUE, GREY, ORANGE, VERMILLION
from simulator.report.wording import Wording, share

NAME, FIGURE = "iid", "iid.svg"
say = Wording("iid")
LOOKS = (("o", BLUE), ("s", ORANGE), ("D", VERMILLION), ("^", GREY))
"""Marker and colour of a window size in the figure."""


def windows(drafters: Sequence[Independence]) -> list[int]:
    """Return every window size in draft tokens that was asked about, ascending."""
    return sorted({error.gamma for drafter in drafters for error in drafter.errors})


def headline(drafters: Sequence[Independence]) -> str:
    """Return a sentence with the largest error in either direction, in per cent."""
    errors = [
        (error.percent, drafter.name, error.gamma)
        for drafter in drafters
        for error in drafter.errors
    ]
    return say("headline", low=min(errors), high=max(errors)) if errors else say("none")


def page(drafters: Sequence[Independence], command: str) -> Page:
    """Return the page: the largest errors, the error of each drafter by window, a figure, and the
    intervals.
    """
    gammas = windows(drafters)
    details: list[Block] = [
        Paragraph(say("details")),
        say.table("detailed", drafters, gammas=gammas, at=error_at),
    ]
    return Page(
        title=say("title"),
        answer=headline(drafters),
        opening=(
            say.table("brief", drafters, gammas=gammas, at=error_at),
            Paragraph(say("legend")),
            Figure(say("picture"), FIGURE, lambda: figure(drafters)),
        ),
        sections=(Section("By position, with intervals", details, terminal=False),),
        command=command,
    )


def error_at(drafter: Independence, gamma: int) -> IidError | None:
    """Return the error at a window; None where the recording cannot answer for it."""
    return next((error for error in drafter.errors if error.gamma == gamma), None)


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
    marked = [
        (place, error)
        for place, drafter in enumerate(drafters)
        if (error := error_at(drafter, gamma))
    ]
    rows, errors = zip(*marked, strict=True)
    axes.hlines(
        rows,
        [e.low_percent for e in errors],
        [e.high_percent for e in errors],
        color=colour,
        lw=1.0,
        alpha=0.6,
    )
    axes.plot([e.percent for e in errors], rows, mark, color=colour, ms=4, label=f"γ = {gamma}")
