"""Charts: the same points by our own writer and by matplotlib, which is loaded where it is asked
for alone.
"""

import subprocess
import sys
from csv import DictReader
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies as st

from simulator.report import WANTED
from simulator.report.blocks import Figure
from simulator.report.chart import Chart, ChartLevel, ChartNote, ChartSeries, Panel, round_up
from simulator.report.chart_svg import PHONE, WIDTH, chart_svg
from simulator.report.drawing import canvas, plotted, points
from simulator.report.forms import as_data, as_picture, as_svg

SVG = "{http://www.w3.org/2000/svg}"
RISING = ChartSeries("rising < falling", "#0072B2", [1, 2, 3], [10.0, 20.0, 30.0], "-", "o")
BARS = ChartSeries("bars", "#D55E00", [1, 2], [5.0, 40.0], bars=True)
PANEL = Panel(
    "window",
    "time (ms)",
    (0.0, 4.0),
    (0.0, 50.0),
    [BARS, RISING, ChartSeries("nowhere", "#000000", [], [], "-")],
    levels=[ChartLevel("plain", 25.0)],
    notes=[ChartNote("two\nlines", 0.5)],
    shaded=(1.0, 2.0),
    marked=2.0,
    whole=True,
)
CHART = Chart("A chart & more", [PANEL, PANEL])


def words(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_chart_names_its_series_axes_and_notes() -> None:
    svg = chart_svg(CHART)
    assert {"rising < falling", "bars", "plain", "window", "time (ms)", "two", "lines"} <= set(
        words(svg)
    )
    assert "nowhere" not in svg
    assert ElementTree.fromstring(svg).findtext(f"{SVG}title") == "A chart & more"
    assert svg == chart_svg(CHART)


def test_numbers_at_the_axes_are_round_and_whole_where_asked() -> None:
    assert {"0", "10", "20", "30", "40", "50"} <= set(words(chart_svg(CHART)))
    assert [word for word in words(chart_svg(CHART)) if word in ("0.5", "1.5", "2.5")] == []
    assert [round_up(length) for length in (0.02, 0.021, 1.0, 3.0, 70.0)] == [
        pytest.approx(0.02),
        pytest.approx(0.05),
        1.0,
        5.0,
        100.0,
    ]


def test_a_bar_stands_on_zero_and_reaches_its_height() -> None:
    root = ElementTree.fromstring(chart_svg(Chart("bars", [PANEL])))
    bars = [box for box in root.iter(f"{SVG}rect") if box.get("class") == "bar"]
    low, high, _ = bars  # the last is that of the legend
    assert float(high.get("height", 0)) == pytest.approx(8 * float(low.get("height", 0)))
    bottoms = {
        round(float(box.get("y", 0)) + float(box.get("height", 0)), 1) for box in (low, high)
    }
    assert len(bottoms) == 1


finite = st.floats(-1e6, 1e6).filter(lambda value: abs(value) > 1e-6)


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=20), st.booleans())
def test_every_point_lies_in_the_drawing(places: list[tuple[float, float]], marked: bool) -> None:
    """Whatever is drawn keeps the order of its places and stays within the drawing."""
    across = sorted(x for x, _ in places)
    up = [y for _, y in places]
    one = ChartSeries("one", "#000000", across, up, "-", "x" if marked else "")
    limits = (across[0] - 1.0, across[-1] + 1.0)
    heights = (min(up) - 1.0, max(up) + 1.0)
    root = ElementTree.fromstring(chart_svg(Chart("c", [Panel("x", "y", limits, heights, [one])])))
    whole = float(root.get("height", 0))
    line = next(path for path in root.iter(f"{SVG}path") if "line" in str(path.get("class")))
    drawn = [float(number) for number in line.get("d", "").strip("M").split()]
    assert drawn[::2] == sorted(drawn[::2])
    assert len(drawn) == 2 * len(places)
    assert all(0.0 <= x <= WIDTH for x in drawn[::2])
    assert all(0.0 <= y <= whole for y in drawn[1::2])
    below = sorted(zip(up, drawn[1::2], strict=True))
    assert [y for _, y in below] == sorted((y for _, y in below), reverse=True)
    marks = [path for path in root.iter(f"{SVG}path") if path.get("transform")]
    assert len(marks) == (len(places) + 1 if marked else 0)  # one in the legend


def test_matplotlib_draws_the_same_points() -> None:
    """What the CSV beside a picture holds is what either of them shows; names of bars aside."""
    ours = [row for row in CHART.rows() if row[1] != "bars"]
    theirs = [row for row in points(plotted(CHART)) if row[1] == "rising < falling"]
    assert ours == theirs
    rows = list(DictReader(StringIO(as_data(CHART) or "")))
    assert len(rows) == 2 * (3 + 2)
    assert {row["panel"] for row in rows} == {"time (ms)"}
    ends = [float(row["x"]) for row in rows if row["series"] == "bars"]
    assert sum(ends) == pytest.approx(2 * (1.35 + 2.35))


def test_other_forms_and_looks_are_drawn_by_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    assert as_picture(CHART, ".png").startswith(b"\x89PNG")
    assert as_picture(CHART, ".pdf").startswith(b"%PDF")
    assert as_svg(CHART) == chart_svg(CHART)
    monkeypatch.setattr(WANTED, "paper_columns", 1)
    narrow = as_svg(CHART)
    assert "rising" in narrow
    assert narrow != chart_svg(CHART)


LONG = "seconds of a step over the number of draft tokens that a window has"


def test_a_chart_for_phones_is_half_as_wide_and_breaks_its_words() -> None:
    note = ChartNote("drafting is not hidden behind verification here", 0.0)
    panel = Panel(LONG, "y", (0.0, 1.0), (0.0, 1.0), [RISING], notes=[note])
    figure = Figure("a picture", "picture.svg", lambda: Chart("chart", [panel]))
    assert figure.narrow_svg == chart_svg(figure.drawing, PHONE)
    narrow = ElementTree.fromstring(figure.narrow_svg)
    assert [float(narrow.get("width", 0.0)), PHONE] == [WIDTH / 2, WIDTH / 2]
    assert LONG in words(figure.svg)
    assert {"seconds of a step over the number of draft", "tokens that a window has"} <= set(
        words(figure.narrow_svg)
    )
    assert "drafting is not hidden behind verification" in words(figure.narrow_svg)


def test_a_picture_with_panels_side_by_side_has_none_for_phones() -> None:
    def beside(columns: int) -> Figure:
        def picture() -> Any:
            with canvas(2.0) as drawing:
                drawing.subplots(1, columns)
                return drawing

        return Figure("a picture", "picture.svg", picture)

    assert beside(2).narrow_svg is None
    wide = ElementTree.fromstring(beside(1).svg)
    narrow = ElementTree.fromstring(beside(1).narrow_svg or "")
    assert narrow.get("width") == "243.779528pt"  # 8.6 cm
    assert wide.get("width") == "453.543307pt"
    assert Figure("text", "text.svg", chart_svg(CHART)).narrow_svg is None
    assert WANTED.paper_columns == 0


def test_a_report_of_a_run_loads_neither_matplotlib_nor_pandas(tmp_path: Path) -> None:
    code = """
import sys
from simulator.cli.main import main
main(["run", "durations_only", "--set", "requests.count=4", "--out", sys.argv[1]],
     standalone_mode=False)
loaded = {"matplotlib", "pandas", "scipy", "scipy.stats", "PIL"} & set(sys.modules)
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "report")], check=True)
    for name in ("window_sweep.svg", "accepted_lengths.svg", "timeline.svg"):
        assert ElementTree.parse(tmp_path / "report" / name).getroot().tag == f"{SVG}svg"
    page = (tmp_path / "report/report.html").read_text("utf-8")
    before_scripts, _, _ = page.partition("<script")
    assert before_scripts.count("<svg") == 1  # the first picture needs no script
    assert page.count("</svg>") == 3 + 2  # charts once more for phones
