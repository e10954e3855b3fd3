"""What a re-sampled tree costs at every batch size, fused and apart: a panel of the batch study."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from simulator.report.panels import BLUE, GREY, VERMILLION, Curve, draw, dress
from simulator.studies.batches import BatchPoint

CURVES = (
    ("apart_trees_ms", "--", VERMILLION, "all re-sampled trees in a second pass"),
    ("fused_trees_ms", "-", BLUE, "all re-sampled trees in the same pass"),
    ("drafted_trees_ms", "-.", GREY, "drafted trees alone"),
)
"""Column, line, colour and words of each curve."""


def trees_panel(axes: Axes, points: Sequence[BatchPoint]) -> None:
    """Draw what the target takes to verify drafted trees, and re-sampled ones with or behind
    them.
    """
    curves = [_curve(*curve) for curve in CURVES]
    draw(axes, points, lambda point: point.batch, *curves)
    dress(axes, y_label="target in a step, law (ms)", ylim=(0.0, None), room=1.08)


def _curve(column: str, line: str, colour: str, words: str) -> Curve[BatchPoint]:
    return Curve(lambda point: point.extra.get(column), line, colour, words)
