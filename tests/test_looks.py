"""Series of pictures are told apart by everybody, and words beside points stand apart."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from matplotlib.figure import Figure

from simulator.report.chart import Chart, ChartSeries, Panel
from simulator.report.chart_svg import SHAPES, chart_svg
from simulator.report.drawing import PointLabel, canvas, label_points, plotted
from simulator.report.panels import COLOURS, DEEP, MARKS, look
from tests.test_html import contrast

SEEN = {
    "by most": np.eye(3),
    "without long waves": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "without middle waves": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "without short waves": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
"""Linear RGB as it is seen (Machado, Oliveira and Fernandes 2009, severity 1)."""
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
WHITE = np.array([0.95047, 1.0, 1.08883])
APART = 15.0
"""Least distance of two colours in CIELAB; 2.3 is just noticed."""


def lab(colour: str, seen: object) -> np.ndarray:
    """Place of a colour in CIELAB, as it is seen."""
    parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(np.array(seen) @ linear, 0.0, 1.0) / WHITE
    roots = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    x, y, z = roots
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_lab_of_known_colours() -> None:
    assert lab("#ffffff", SEEN["by most"]) == pytest.approx([100, 0, 0], abs=0.05)
    assert lab("#ff0000", SEEN["by most"]) == pytest.approx([53.24, 80.09, 67.20], abs=0.05)


@pytest.mark.parametrize("who", SEEN)
def test_twelve_colours_are_told_apart(who: str) -> None:
    assert len(COLOURS) == 12
    near = {
        (one, other): np.linalg.norm(lab(one, SEEN[who]) - lab(other, SEEN[who]))
        for one, other in combinations(COLOURS, 2)
    }
    assert {pair: far for pair, far in near.items() if far < APART} == {}


def test_red_and_green_of_one_lightness_are_not_told_apart_without_middle_waves() -> None:
    def far(who: str) -> float:
        return float(np.linalg.norm(lab("#b06000", SEEN[who]) - lab("#7a7800", SEEN[who])))

    assert far("by most") > APART > far("without middle waves")


def test_colours_stand_out_from_white_but_for_the_lightest_of_okabe_and_ito() -> None:
    faint = {colour for colour in COLOURS if contrast(colour, "#ffffff") < 3.0}
    assert faint == {"#E69F00", "#56B4E9"}


def test_colours_stand_out_from_a_dark_page_or_are_turned_around_there() -> None:
    faint = {colour for colour in COLOURS if contrast(colour, "#16181c") < 3.0}
    assert faint == set(DEEP)


def test_no_two_of_forty_eight_series_look_alike() -> None:
    looks = [look(place) for place in range(48)]
    assert len({(one.colour, one.line) for one in looks}) == 48
    dozen = looks[:12]
    assert len({one.colour for one in dozen}) == len({one.mark for one in dozen}) == 12


def test_our_own_charts_draw_every_mark_another_way() -> None:
    assert set(MARKS) <= set(SHAPES)
    assert len(set(SHAPES.values())) == len(SHAPES)
    series = [
        ChartSeries(
            f"s{place}", look(place).colour, [place], [1.0], look(place).line, look(place).mark
        )
        for place in range(14)
    ]
    chart = Chart("all", [Panel("x", "y", (-1, 15), (0, 2), series)])
    assert chart_svg(chart).count('class="mark') == 2 * 14
    assert len(plotted(chart).axes[0].get_lines()) == 14


def boxes(figure: Figure) -> list[object]:
    """Boxes of all words beside points."""
    figure.draw_without_rendering()
    return [text.get_window_extent() for axes in figure.axes for text in axes.texts]


places = st.tuples(st.integers(0, 12), st.integers(0, 12))


@settings(max_examples=25, deadline=None)
@given(st.lists(places, min_size=1, max_size=30))
def test_words_beside_points_lie_on_no_other_words(points: list[tuple[int, int]]) -> None:
    with canvas(2.5) as figure:
        axes = figure.subplots()
        axes.plot(*zip(*points, strict=True), "o", label="points")
        figure.legend(loc="outside right upper")
        labels = [PointLabel(f"{x} of {y}", x, y, {"size": 7}) for x, y in points]
        label_points(figure, axes, labels)
        shown = boxes(figure)
    assert len(shown) >= 1
    assert not [pair for pair in combinations(shown, 2) if pair[0].overlaps(pair[1])]


def test_words_that_have_room_are_all_there() -> None:
    with canvas(2.5) as figure:
        axes = figure.subplots()
        axes.plot(range(6), range(6), "o")
        label_points(figure, axes, [PointLabel(str(at), at, at, {"size": 7}) for at in range(6)])
        shown = boxes(figure)
    assert len(shown) == 6
    assert all(left.x0 < right.x0 for left, right in pairwise(shown))
