"""How wrong the i.i.d. formula is (``specsim trace iid``)."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from simulator.core.acceptance.iid import IidError, Independence
from simulator.report.blocks import (
    Figure,
    Page,
    Paragraph,
    Section,
    Standing,
    Table,
)
from simulator.report.columns import Column, table
from simulator.report.drawing import canvas
from simulator.report.panels import BLUE, GREY, ORANGE, VERMILLION, dress
from simulator.report.wording import share

NAME = "iid"
FIGURE = "iid.svg"
LOOKS = (("o", BLUE), ("s", ORANGE), ("D", VERMILLION), ("^", GREY))
"""Marker and colour of a window size in the figure."""

LEGEND = (
    "Error of (1 - a^(γ+1)) / (1 - a) tokens per step, correction or bonus included; a: share kept "
    "by windows of one token, to which the formula is fitted."
)
DETAILS = (
    "At 1, 2, 3: share kept at that position of the widest window, of the windows that got there; "
    "in brackets 90 % of bootstrap samples over requests."
)
POSITIONS = (1, 2, 3)
"""Positions of a window whose share of kept tokens the table shows."""


def windows(drafters: Sequence[Independence]) -> list[int]:
    """Return every window size in draft tokens that was asked about, ascending."""
    return sorted({error.gamma for drafter in drafters for error in drafter.errors})


def headline(drafters: Sequence[Independence]) -> str:
    """Return a sentence with the largest error in either direction, in per cent."""
    errors = []
    for drafter in drafters:
        for error in drafter.errors:
            errors.append((error.percent, drafter.name, error.gamma))
    if not errors:
        return "No window to compare."
    most, named, wide = max(errors)
    least, other, narrow = min(errors)
    parts = []
    if most > 0:
        parts.append(f"too much by up to {most:.1f} % ({named}, γ = {wide})")
    if least < 0:
        parts.append(f"too little by up to {-least:.1f} % ({other}, γ = {narrow})")
    predicted = " and ".join(parts) or "exactly what was recorded"
    return f"The i.i.d. formula predicts {predicted}."


def page(drafters: Sequence[Independence], command: str) -> Page:
    """Return the page: the largest errors, the error of each drafter by window, a figure, and the
    intervals.
    """
    return Page(
        "How wrong is i.i.d.?",
        answer=headline(drafters),
        standing=Standing(),
        opening=(
            _brief(drafters),
            Paragraph(LEGEND),
            Figure("Error of the formula by drafter and window", FIGURE, lambda: figure(drafters)),
        ),
        sections=(
            Section(
                "By position, with intervals",
                [Paragraph(DETAILS), detailed(drafters)],
                terminal=False,
            ),
        ),
        command=command,
    )


def _drafter_columns() -> list[Column[Independence]]:
    """Return the columns that both tables begin with: the drafter, and a of the formula."""
    return [
        Column("", lambda drafter: drafter.name),
        Column("a", lambda drafter: f"{drafter.rate:.3f}"),
    ]


def _brief(drafters: Sequence[Independence]) -> Table:
    """Return the table of errors by drafter and window."""
    errors = [_errors(gamma, _percent) for gamma in windows(drafters)]
    return table("Error by drafter and window", drafters, [*_drafter_columns(), *errors])


def detailed(drafters: Sequence[Independence]) -> Table:
    """Return the table of errors with their intervals, and of shares kept by position."""
    columns = [
        *_drafter_columns(),
        *(_kept_at(position) for position in POSITIONS),
        *(_errors(gamma, _with_interval) for gamma in windows(drafters)),
    ]
    return table("Error of the formula by drafter", drafters, columns, sortable=True)


def _kept_at(position: int) -> Column[Independence]:
    """Return the column of the share kept at a position; empty where no window got there."""

    def kept(drafter: Independence) -> str:
        if position > len(drafter.by_position):
            return ""
        return f"{drafter.by_position[position - 1]:.3f}"

    return Column(f"at {position}", kept)


def _errors(gamma: int, show: Callable[[IidError], str]) -> Column[Independence]:
    """Return the column of errors at a window; empty where the recording cannot answer for it."""

    def cell(drafter: Independence) -> str:
        error = error_at(drafter, gamma)
        if error:
            return show(error)
        return ""

    return Column(f"γ = {gamma}", cell)


def _percent(error: IidError) -> str:
    return f"{error.percent:+.1f} %"


def _with_interval(error: IidError) -> str:
    return f"{_percent(error)} ({error.low_percent:+.1f} to {error.high_percent:+.1f})"


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
        dress(
            axes,
            x_label="i.i.d. formula against recording, tokens per step (%); in brackets: share "
            "kept by windows of one token",
            legend_columns=4,
        )
        return drawing


def _marks(
    axes: Axes, drafters: Sequence[Independence], gamma: int, mark: str, colour: str
) -> None:
    """Draw the errors at one window size, each in the row of its drafter."""
    rows = []
    errors = []
    for place, drafter in enumerate(drafters):
        error = error_at(drafter, gamma)
        if error:
            rows.append(place)
            errors.append(error)
    axes.hlines(
        rows,
        [error.low_percent for error in errors],
        [error.high_percent for error in errors],
        color=colour,
        lw=1.0,
        alpha=0.6,
    )
    axes.plot(
        [error.percent for error in errors], rows, mark, color=colour, ms=4, label=f"γ = {gamma}"
    )
