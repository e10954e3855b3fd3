"""The timeline of a pipeline: what is drawn where, and that the flush is in it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from simulator.core.world import Span
from simulator.report.pipeline_timeline import COLOURS, THIN, boxes, devices, pipeline_timeline
from simulator.report.timeline import load_window, steady_window
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


def test_a_row_for_each_device_with_what_it_sends_below() -> None:
    """Milliseconds from left to right; rows draft, 1, 2, 10 from the top; a span is cut where the
    stretch begins or ends.
    """
    rows = devices(WORLD)
    assert rows == ["draft", "stage 1", "stage 2", "stage 10"]
    found = boxes(WORLD, (0.011, 0.034), rows)
    assert list(found) == ["draft level", "compute", "prune", "transmit"]
    assert {label: [pytest.approx(box) for box in drawn] for label, drawn in found.items()} == {
        "draft level": [(11, 12, 0.1, 0.9)],
        "compute": [(11, 20, 1.1, 1.9), (21, 31, 2.1, 2.9)],
        "transmit": [(20, 21, 1.9 - THIN, 1.9)],
        "prune": [(31, 34, 1.1, 1.9), (31, 34, 3.1, 3.9)],
    }


def test_a_row_is_drawn_at_its_place_and_its_length() -> None:
    """In the lower panel 676 units are 23 ms; its rows begin below caption, title and the upper
    panel.
    """
    drawing = ElementTree.fromstring(pipeline_timeline(WORLD, (0.011, 0.034)))
    far, close = drawing.findall("{*}g")
    paths = {path.get("style"): path.get("d") for path in close.findall("{*}path")}
    top = 14 + 18 + 4 * 20 + 26 + 18
    draft_level = f"M70 {top + 2}h{round(676 / 23, 2):g}v16h{round(-676 / 23, 2):g}z"
    assert paths[f"fill: {COLOURS['draft level']}"] == draft_level
    assert set(paths) == {f"fill: {colour}" for colour in COLOURS.values()}
    (shade,) = (box for box in far.findall("{*}rect") if box.get("class") == "shade")
    assert float(shade.get("x")) == pytest.approx(70 + 676 / 23 / 6, abs=0.01)
    assert float(shade.get("width")) == pytest.approx(676 / 6, abs=0.01)


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


def test_the_longest_load_and_the_steps_behind_it() -> None:
    """Where a load has as many steps behind it; else nothing."""
    loads = [Span("from host", 1.0, 2.0, "load"), Span("from host", 4.0, 7.0, "load")]
    steps = [Span("target", float(at), at + 0.5, "target") for at in range(3, 13)]
    assert load_window([*loads, *steps]) == (4.0, 10.0)
    assert load_window([*loads, *steps[:6]]) == (1.0, 6.0)
    assert load_window(steps) is None
