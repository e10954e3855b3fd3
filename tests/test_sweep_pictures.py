"""What pictures of sweeps call things, and which of them cannot be drawn."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from simulator.core.faults import BadInput
from simulator.report.pages.plot import label, picture
from simulator.studies.sweep.axes import Axis, Design
from simulator.studies.sweep.study import Plot, SweepFile
from simulator.studies.sweep.table import SweepTable

WINDOWS = (1, 2, 4)
LATENCIES = (10.0, 100.0)


def swept(
    windows: tuple[Any, ...] = WINDOWS, combine: Any = "product", speedups: Any = None
) -> SweepTable:
    """A sweep over windows and latencies by law, whose speed-up grows with the window."""
    by_key = {"strategy.gamma": windows, "channel.latency_us": LATENCIES}
    axes = tuple(
        Axis(key, values, tuple({key: value} for value in values)) for key, values in by_key.items()
    )
    rows = [(gamma, latency) for gamma in windows for latency in LATENCIES]
    frame = pd.DataFrame(rows, columns=list(by_key))
    frame.insert(0, "point", range(len(rows)))
    frame["law_speedup"] = speedups or [1.0 + 0.1 * place for place in range(len(rows))]
    frame["law_tpot_ms"] = [20.0 - place for place in range(len(rows))]
    frame["fault"] = None
    file = SweepFile(scenario="mine", evaluate="law", combine=combine)
    return SweepTable("small", file, Design(axes, combine, len(rows)), frame)


def legend(points: SweepTable, **stated: Any) -> list[str]:
    """What the legend of a picture names, its title first."""
    (shown,) = picture(points, Plot(**stated)).legends
    return [shown.get_title().get_text(), *(text.get_text() for text in shown.get_texts())]


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("law_speedup", "speed-up, law"),
        ("strategy.gamma", "window γ (draft tokens)"),
        ("strategy.exit_layer", "early exit (share of the depth)"),
        ("requests.concurrency", "batch (requests)"),
        ("requests.prompt_tokens", "prompt (tokens)"),
        ("strategy", "method"),
        ("channel.latency_us", "channel latency (µs)"),
        ("durations.target_ms", "durations target (ms)"),
        ("channel.bandwidth_gb_s", "channel bandwidth (GB/s)"),
        ("target.device.memory_gb", "device memory (GB)"),
        ("requests.patience_s", "requests patience (s)"),
        ("target.device.peak_tflops", "device peak (TFLOP/s)"),
        ("requests.output_tokens", "requests output (tokens)"),
        ("channel.message_bytes", "channel message (bytes)"),
        ("target.device.power_w", "device power (W)"),
        ("strategy.kappa", "kappa"),
    ],
)
def test_axes_in_words(key: str, said: str) -> None:
    assert label(key) == said


def test_a_line_for_each_latency_is_named_in_order() -> None:
    look = {"kind": "line", "x": "strategy.gamma", "y": "speedup", "hue": "channel.latency_us"}
    assert legend(swept(), **look) == ["channel latency (µs)", "10", "100"]


def test_axes_that_are_left_at_their_best_are_named() -> None:
    drawing = picture(swept(), Plot(kind="line", x="strategy.gamma", y="speedup", title="Windows"))
    assert drawing.get_suptitle() == "Windows · best over channel latency (µs)"
    (axes,) = drawing.axes
    assert axes.lines[0].get_ydata().tolist() == [1.1, 1.3, 1.5]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("window γ (draft tokens)", "speed-up\nlaw")
    slowest = picture(swept(), Plot(kind="line", x="strategy.gamma", y="tpot_ms"))
    assert slowest.axes[0].lines[0].get_ydata().tolist() == [19.0, 17.0, 15.0]


def test_panels_are_named_by_their_axis() -> None:
    look = {"x": "strategy.gamma", "y": "speedup", "facet": "channel.latency_us"}
    drawing = picture(swept(), Plot(kind="line", **look))
    assert [axes.get_title(loc="left") for axes in drawing.axes] == [
        "latency 10 µs",
        "latency 100 µs",
    ]
    assert [axes.get_ylabel() for axes in drawing.axes] == ["speed-up\nlaw", ""]


MAP = {"x": "strategy.gamma", "y": "channel.latency_us", "value": "speedup"}


@pytest.mark.parametrize("kind", ["heatmap", "contour"])
def test_the_level_of_a_map_is_named(kind: str) -> None:
    assert legend(swept(), kind=kind, level=1.2, **MAP) == ["", "speed-up = 1.2"]


def test_a_front_names_its_points() -> None:
    named = legend(swept(), kind="pareto", x="tpot_ms", y="speedup")
    assert named == ["", "front", "A: gamma 4, latency 100 µs"]


@pytest.mark.parametrize(
    ("level", "side"), [(0.5, ": above everywhere"), (9.0, ": below everywhere"), (1.2, "")]
)
def test_lines_of_a_level_say_where_they_are_not(level: float, side: str) -> None:
    table = swept()
    look = {"kind": "contour", "level": level, "hue": "strategy", **MAP}
    frame = table.frame.assign(strategy="any")
    axes = (*table.design.axes, Axis("strategy", ("any",), ({"strategy": "any"},)))
    points = SweepTable("small", table.file, Design(axes), frame)
    assert legend(points, **look) == ["method", f"any{side}"]


@pytest.mark.parametrize(
    ("points", "stated", "fault"),
    [
        (
            swept(combine="latin_hypercube"),
            {"kind": "heatmap"},
            "small: kind: points of a Latin hypercube make no cells; choose contour",
        ),
        (
            swept(("a", "b", "c")),
            {"kind": "contour"},
            "small: strategy.gamma: a contour needs numbers on both axes; choose heatmap",
        ),
        (
            swept((4,)),
            {"kind": "contour"},
            "small: strategy.gamma: a contour needs two values on both axes; choose line",
        ),
        (
            swept(speedups=[None] * 6),
            {"kind": "heatmap"},
            "small: strategy.gamma, channel.latency_us, law_speedup: no point has a value for all "
            "of these",
        ),
    ],
)
def test_what_cannot_be_drawn_is_said(
    points: SweepTable, stated: dict[str, Any], fault: str
) -> None:
    with pytest.raises(BadInput) as caught:
        picture(points, Plot(**stated, **MAP))
    assert str(caught.value) == fault
