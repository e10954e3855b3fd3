"""The timeline of a pipeline: what is drawn where, and that the flush is in it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from simulator.core.world import Span
from simulator.report.pipeline_timeline import COLOURS, THIN, devices, draw, pipeline_timeline
from simulator.report.timeline import steady_window
from simulator.scenario import load
from simulator.scenario.evaluate import SPANS, simulate

WORLD = [
    Span("target", 0.0, 0.010, "prefill"),
    Span("draft", 0.010, 0.012, "draft level"),
    Span("stage 1", 0.010, 0.020, "compute"),
    Span("link 1", 0.020, 0.021, "transmit"),
    Span("stage 2", 0.021, 0.031, "compute"),
    Span("stage 1", 0.031, 0.036, "prune"),
    Span("stage 10", 0.031, 0.036, "prune"),
]


def boxes(axes: object) -> dict[str, list[tuple[float, float, float, float]]]:
    """(left, right, top, bottom) of every rectangle by its label."""
    names, found = {to_hex(colour): label for label, colour in COLOURS.items()}, {}
    for patch in axes.patches:
        corners = patch.get_path().vertices.reshape(-1, 5, 2)
        found[names[to_hex(patch.get_facecolor())]] = [
            tuple(pytest.approx(one) for one in (x.min(), x.max(), y.min(), y.max()))
            for x, y in corners.transpose(0, 2, 1)
        ]
    return found


def test_a_row_for_each_device_with_what_it_sends_below() -> None:
    """Milliseconds from left to right; rows draft, 1, 2, 10 from the top; a span is cut where the
    stretch begins or ends.
    """
    axes = Figure().subplots()
    assert devices(WORLD) == ["draft", "stage 1", "stage 2", "stage 10"]
    assert draw(axes, WORLD, (0.011, 0.034)) == {"draft level", "compute", "transmit", "prune"}
    assert boxes(axes) == {
        "draft level": [(11, 12, -0.4, 0.4)],
        "compute": [(11, 20, 0.6, 1.4), (21, 31, 1.6, 2.4)],
        "transmit": [(20, 21, 1.4 - THIN, 1.4)],
        "prune": [(31, 34, 0.6, 1.4), (31, 34, 2.6, 3.4)],
    }
    assert [label.get_text() for label in axes.get_yticklabels()] == devices(WORLD)


def test_both_panels_of_a_run_with_its_flush_inside() -> None:
    """The stretch that is zoomed in begins with all stages at work and goes on with most of them
    idle.
    """
    loaded = load("specpipe_llama_3_1_70b_8x3090", ["requests.count=2"])
    _, spans = simulate(loaded.scenario, loaded.acceptance(), SPANS)
    begin, end = steady_window(spans, 11)
    inside = [
        s for s in spans if s.lane.startswith("stage") and s.start_s < end and s.end_s > begin
    ]
    moments = [begin + (end - begin) * part / 200 for part in range(200)]
    at_work = [
        len({s.lane for s in inside if s.start_s <= at < s.end_s and s.label == "compute"})
        for at in moments
    ]
    assert max(at_work) == 8
    assert min(working for working in at_work if working) == 1
    drawn = pipeline_timeline(spans, (begin, end), "a < b")
    assert drawn == pipeline_timeline(spans, (begin, end), "a < b")
    # our own
    words = [text.strip() for text in ElementTree.fromstring(drawn).itertext()]
    assert {"a < b", "draft", "stage 1", "stage 8", "prune", "transmit"} <= set(words)
    assert words.count("stage 8") == 2
