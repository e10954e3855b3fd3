"""Pictures of a service: what was measured and simulated of it as it is, what is predicted of it
after a change, with intervals, and what was measured then.
"""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from simulator.core.plain import PlainData
from simulator.evidence.verified import VerifiedPredictions
from simulator.inputs.services.observed import Observed, Quantity
from simulator.inputs.services.prediction import Bounds, PredictedNumber
from simulator.report.drawing import WIDTH_IN, canvas
from simulator.report.panels import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILLION, dress
from simulator.scenario.decision.verdict import Verdict
from simulator.studies.service.tried import WhatIfService

DRAWN = ("e2e_ms", "ttft_ms", "tpot_ms", "output_tokens_per_s")
"""Numbers that are drawn of changes."""
ROW_IN = 0.24
NAME = 26
"""Letters of a line of the name of a row."""


class Style(NamedTuple):
    """Colour and mark of points."""

    colour: str
    mark: str
    filled: bool = True
    points: float = 6.0


MEASURED = Style(BLACK, "D")
BEFORE = Style(BLACK, "D", filled=False, points=9.0)
SIMULATED = Style(GREY, "o", filled=False)
PREDICTED = Style(BLUE, "o")
VERDICTS: Mapping[Verdict, Style] = {
    "helps": Style(GREEN, "o"),
    "may hurt": Style(ORANGE, "s"),
    "hurts": Style(VERMILLION, "X"),
}


def tried_figure(result: WhatIfService) -> Drawing:
    """Return a panel for each number: as it is, measured and simulated, and below it what is
    predicted of every change.
    """
    keys = [key for key in DRAWN if any(tried.gain(key) for tried in result.tries)]
    names = ["as it is", *(fill(tried.change.typed, NAME) for tried in result.tries)]
    lines = (len(keys) + 1) // 2
    height = lines * (0.9 + ROW_IN * sum(1 + name.count("\n") for name in names)) + 0.4
    with canvas(height, WIDTH_IN * 1.1) as drawing:
        grid = drawing.subplots(lines, min(2, len(keys)), sharey=True, squeeze=False)
        for axes, key in zip(grid.flat, keys, strict=False):
            _tried_panel(axes, result, key)
            _rows(axes, names)
        for axes in grid.flat[len(keys) :]:
            axes.set_visible(False)
        entries: dict[str, Style] = {"simulated as it is": SIMULATED}
        if result.observed is not None:
            entries = {"measured": MEASURED} | entries
        for tried in result.tries:
            entries[tried.verdict] = VERDICTS[tried.verdict]
        _legend(drawing, entries)
        return drawing


def _tried_panel(axes: Axes, result: WhatIfService, key: str) -> None:
    """Draw one number: of the service as it is, and after every change."""
    words = ""
    for each in result.before:
        if each.number.key != key:
            continue
        measured = each.measured and each.measured.value
        if each.simulated is not None:
            _point(axes, 0, each.simulated, SIMULATED, "as it is, simulated")
        if measured is not None:
            _point(axes, 0, measured, MEASURED, "as it is, measured")
        level = each.simulated if measured is None else measured
        if level is not None:
            axes.axvline(level, color=GREY, lw=0.8, ls="--", zorder=0)
    for row, tried in enumerate(result.tries, 1):
        gain = tried.gain(key)
        if gain:
            words = gain.number.words
            _predicted(axes, row, gain.predicted, VERDICTS[tried.verdict], tried.change.typed)
    dress(axes, title=f"{words}: dashed, as it is")


def verified_figure(result: VerifiedPredictions) -> Drawing:
    """Return a row for each number of each prediction: its intervals and what was measured, before
    and after, relative to the prediction.
    """
    names = []
    for place, pair in enumerate(result.pairs, 1):
        prefix = f"{place}. " if len(result.pairs) > 1 else ""
        names += [f"{prefix}{each.number.words}" for each in pair.numbers]
    with canvas(1.1 + ROW_IN * len(names)) as drawing:
        axes = drawing.subplots()
        row = 0
        for pair in result.pairs:
            for each in pair.numbers:
                after = each.predicted.after
                if after:
                    relative = _relative(each.predicted)
                    _predicted(axes, row, relative, PREDICTED, f"{names[row]}, predicted")
                    if each.predicted.before is not None:
                        before = _percent(each.predicted.before, after)
                        _point(axes, row, before, BEFORE, f"{names[row]}, measured before")
                    measured = _percent(each.measured, after)
                    _point(axes, row, measured, MEASURED, f"{names[row]}, measured after")
                row += 1
        axes.axvline(0.0, color=GREY, lw=0.8, ls="--", zorder=0)
        dress(axes, x_label="against the prediction (%)")
        _rows(axes, names)
        entries = {"predicted": PREDICTED, "measured before": BEFORE, "measured after": MEASURED}
        _legend(drawing, entries)
        return drawing


def observed_figure(observed: Observed, called: Mapping[Quantity, str]) -> Drawing:
    """Return a row for each time: from the median to the 99th percentile, and the mean; ``called``
    names the times.
    """
    rows = []
    for quantity, words in called.items():
        for time in observed.times_of(quantity):
            if time.p50_ms and time.p99_ms:
                ends = [time.p50_ms, time.p99_ms]
                rows.append((f"{words}, {time.seen_by}", ends, time.mean_ms))
    with canvas(1.1 + ROW_IN * len(rows)) as drawing:
        axes = drawing.subplots()
        for row, (name, ends, mean_ms) in enumerate(rows):
            axes.plot(ends, [row, row], "-", color=BLUE, lw=3.0, label=f"{name}, 50 to 99 %")
            if mean_ms:
                _point(axes, row, mean_ms, MEASURED, f"{name}, mean")
        axes.set_xscale("log")
        dress(axes, x_label="ms")
        _rows(axes, [name for name, _, _ in rows])
        handles = [Line2D([], [], color=BLUE, lw=3.0, label="median to 99 %")]
        handles.append(Line2D([], [], ls="none", color=BLACK, marker="D", label="mean"))
        drawing.legend(handles=handles, loc="outside lower center", ncols=2)
        return drawing


def _relative(predicted: PredictedNumber) -> PredictedNumber:
    """Return the intervals of a prediction in per cent of it."""

    def within(bounds: Bounds | None) -> Bounds | None:
        if bounds is None:
            return None
        ends = sorted(_percent(end, predicted.after) for end in (bounds.low, bounds.high))
        return Bounds(low=ends[0], high=ends[1])

    return PredictedNumber(
        after=0.0, within_80=within(predicted.within_80), within_90=within(predicted.within_90)
    )


def _percent(value: float, predicted: float) -> float:
    return 100.0 * (value / predicted - 1.0)


def _predicted(axes: Axes, row: int, predicted: PredictedNumber, style: Style, name: str) -> None:
    """Draw a prediction with its intervals: 80 % thick, 90 % thin."""
    for within, width, share in ((predicted.within_90, 1.0, 90), (predicted.within_80, 3.0, 80)):
        if within is not None:
            ends = [within.low, within.high]
            label = f"{name}, {share} % interval"
            axes.plot(ends, [row, row], "-", color=style.colour, lw=width, label=label)
    _point(axes, row, predicted.after, style, name)


def _point(axes: Axes, row: int, value: float, style: Style, name: str) -> None:
    inside = style.colour if style.filled else "white"
    axes.plot(
        [value],
        [row],
        style.mark,
        color=style.colour,
        mfc=inside,
        ms=style.points,
        label=name,
        zorder=3,
    )


def _rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows, from the top down."""
    axes.set_yticks(range(len(names)), names, size=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="y", color="#e4e4e4", lw=0.5)
    axes.set_axisbelow(True)


def _legend(drawing: Drawing, entries: Mapping[str, Style]) -> None:
    """Name the marks and the intervals below the panels."""
    handles = []
    for name, (colour, mark, filled, points) in entries.items():
        inside = colour if filled else "white"
        look: PlainData = {"color": colour, "marker": mark, "mfc": inside, "ms": points}
        handles.append(Line2D([], [], ls="none", label=name, **look))
    for width, share in ((3.0, 80), (1.0, 90)):
        handles.append(Line2D([], [], color=GREY, lw=width, label=f"{share} % interval"))
    drawing.legend(handles=handles, loc="outside lower center", ncols=4)
