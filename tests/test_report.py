"""Reports: same bytes, drawings that parse, all of it or nothing, and only numbers that were passed
in.
"""

import ast
import json
from collections import Counter
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from simulator.core.faults import BadInput
from simulator.core.world import Span
from simulator.report import write
from simulator.report.forms import as_svg
from simulator.report.markdown import as_markdown
from simulator.report.pages import law as law_page
from simulator.report.run import figures
from simulator.report.run.gaps import gaps
from simulator.report.run.page import run_page
from simulator.report.terminal import new_table, print_page
from simulator.report.timeline import chrome_trace, steady_window, timeline_svg
from simulator.report.wording import number, percent
from simulator.scenario import load
from simulator.scenario.decision.by_law import by_law
from simulator.scenario.evaluate import run
from simulator.scenario.result.data import law_details
from simulator.scenario.uncertain.draws import interval
from simulator.scenario.uncertain.intervals import doubt_of, run_with_interval
from simulator.studies.what_if import of_run
from simulator.studies.window import SweepPoint, window_sweep

SVG = "{http://www.w3.org/2000/svg}"
COMMAND = "specsim run durations_only --set requests.count=4"
SPANS = [
    Span("target", 0.0, 0.010, "prefill"),
    Span("target", 0.010, 0.020, "verify <1>"),
    Span("draft", 0.020, 0.024, "draft"),
    Span("target", 0.024, 0.034, "verify <1>"),
    Span("draft", 0.034, 0.038, "draft"),
]


def parsed(svg):
    return ElementTree.fromstring(svg)


@pytest.fixture(scope="module")
def loaded():
    return load("durations_only", ["requests.count=4", "requests.output_tokens=64"])


@pytest.fixture(scope="module")
def result(loaded):
    return run(loaded, COMMAND)


@pytest.fixture(scope="module")
# after the run, so that the scenario has cached its own cost and schedule
def sweep(loaded, result):
    return window_sweep(loaded, result)


# ---- the window sweep


def test_drafting_is_hidden_up_to_gamma_star_and_costs_its_own_time_behind_it(sweep):
    end, star = figures.crossing(sweep)
    assert star == 10
    assert end == pytest.approx(10.5)  # 12 ms for 7 tokens against Delta = 18 ms
    steps = {point.gamma: point.main_step_ms for point in sweep}
    assert steps[1] == pytest.approx(36.1)
    assert steps[10] == pytest.approx(36.1)
    assert steps[13] - steps[12] == pytest.approx(12 / 7)


def test_what_was_run_stands_beside_its_law(sweep, result):
    assert [point.gamma for point in sweep if point.simulated_step_ms is not None] == [7]
    own = next(point for point in sweep if point.gamma == 7)
    assert own.simulated_step_ms == result.simulated.step_s * 1e3
    assert own.simulated_tpot_ms == result.simulated.tpot_s * 1e3
    assert own.replayed_tpot_ms == result.law_replayed.tpot_s * 1e3


def test_a_window_costs_what_was_stated_at_the_scenarios_own_gamma(sweep, result):
    own = next(point for point in sweep if point.gamma == 7)
    assert own.draft_ms == pytest.approx(12.0)
    assert own.law_step_ms == pytest.approx(result.law.step_s * 1e3)
    assert own.law_tpot_ms == pytest.approx(result.law.tpot_s * 1e3)


def test_requests_that_arrive_meet_the_law_of_the_batch_that_was_observed():
    """One request at a time, whatever there is room for: the window study and the law of the run
    are about the same batch, context and outputs.
    """
    arrivals = "requests.arrivals={name: poisson, rate_per_s: 0.5}"
    lengths = "requests.output_tokens={name: uniform, least_tokens: 20, most_tokens: 100}"
    changes = [
        "strategy={name: vanilla_sd, gamma: 4}",
        "durations={target_ms: 36, draft_ms: 12}",
        "serving.policy={name: prefill_first}",
    ]
    loaded = load("durations_only", [*changes, arrivals, lengths, "requests.count=300"])
    result = run(loaded)
    assert result.simulated.serving.mean_batch < 1.5
    own = next(point for point in window_sweep(loaded, result) if point.gamma == 4)
    assert own.law_tpot_ms == result.law.tpot_s * 1e3
    assert own.baseline_tpot_ms == pytest.approx(36.0)


def test_no_sweep_without_a_window():
    loaded = load("durations_only", ["strategy={name: autoregressive}", "requests.count=2"])
    assert window_sweep(loaded) == []
    assert "window_sweep.svg" not in as_markdown(run_page(run(loaded), []))


@pytest.mark.parametrize(
    ("draft_ms", "label"),
    [
        ((1.0, 2.0), "hidden at every window shown"),
        ((30.0, 60.0), "drafting is not hidden"),
        ((10.0, 30.0), "γ* = 1: up to here"),
        ((18.0, 18.0), "hidden at every window shown"),
    ],
)
def test_the_sweep_figure_names_its_regime(draft_ms, label):
    points = [
        SweepPoint(gamma, 40.0, 10.0, 36.0 + max(0.0, draft - 18.0), draft, 18.0, 36.0)
        for gamma, draft in enumerate(draft_ms, start=1)
    ]
    texts = "".join(parsed(as_svg(figures.window_sweep(points))).itertext())
    assert label in texts


# ---- the timeline


def test_chrome_trace_holds_every_second_of_every_lane(result):
    trace = json.loads(chrome_trace(result.spans, limit=len(result.spans)))
    names = {
        e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"
    }
    microseconds = Counter()
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            microseconds[names[event["tid"]]] += event["dur"]
    assert list(names.values()) == ["target", "draft", "rendezvous"]
    for lane, share in result.busy.items():
        assert microseconds[lane] == pytest.approx(share * result.simulated.end_s * 1e6, rel=1e-6)


def test_chrome_trace_says_what_it_left_out():
    trace = json.loads(chrome_trace(SPANS, limit=2))
    assert trace["otherData"] == {"spans": 5, "shown": 2}
    assert sum(event["ph"] == "X" for event in trace["traceEvents"]) == 2


def test_steady_window_begins_after_the_prefill():
    assert steady_window(SPANS, steps=1) == (0.010, 0.024)


def test_timeline_has_a_row_for_each_lane_and_shows_idle_time():
    root = parsed(timeline_svg(SPANS, (0.010, 0.038), "a < b"))
    rows = [group for group in root.iter(f"{SVG}g") if group.get("class") == "row"]
    assert [row.get("id") for row in rows] == ["lane-target", "lane-draft"]
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"a < b", "idle", "verify <1>", "target: verify <1>", "busy 71.4 %"} <= set(texts)


def test_text_stays_in_its_box(result):
    root = parsed(timeline_svg(result.spans, steady_window(result.spans)))
    boxes = [group for group in root.iter(f"{SVG}g") if group.find(f"{SVG}title") is not None]
    assert boxes
    for box in boxes:
        width = float(box.find(f"{SVG}rect").get("width"))
        assert all(len(text.text) * 11 * 0.6 <= width for text in box.iter(f"{SVG}text"))


# ---- the folder


def test_same_bytes_twice(result, sweep, tmp_path):
    first = write.write(run_page(result, sweep), result.spans, tmp_path / "a")
    second = write.write(run_page(result, sweep), result.spans, tmp_path / "b")
    elsewhere = {"caches.svg", "caches.data.csv", "scaling.csv"}  # prompts kept, replicas that go
    assert [path.name for path in first] == sorted(write.OURS - elsewhere)
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
    for path in first:
        if path.suffix == ".svg":
            parsed(path.read_text("utf-8"))


def test_nothing_half_written_is_left(result, sweep, tmp_path, monkeypatch):
    folder = tmp_path / "report"
    write.write(run_page(result, sweep), result.spans, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def broken(*_):
        raise OSError("no space left")

    monkeypatch.setattr(figures, "accepted_lengths", broken)
    with pytest.raises(BadInput, match="no space left"):
        write.write(run_page(result, sweep), result.spans, folder)
    with pytest.raises(BadInput, match="no space left"):
        write.write(run_page(result, sweep), result.spans, tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_an_old_report_is_replaced(result, sweep, tmp_path):
    (tmp_path / "report.md").write_text("old")
    write.write(run_page(result, sweep), result.spans, tmp_path)
    assert COMMAND in (tmp_path / "report.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("held", "message"),
    [(["thesis.tex"], "holds no report.md"), (["report.md", "thesis.tex"], "thesis.tex")],
)
def test_a_folder_with_other_things_is_left_alone(result, sweep, tmp_path, held, message):
    for name in held:
        (tmp_path / name).write_text("mine")
    with pytest.raises(BadInput, match=message):
        write.write(run_page(result, sweep), result.spans, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(held)


# ---- what is said


def test_report_says_the_answer_both_gaps_and_the_command(result, sweep):
    text = as_markdown(run_page(result, sweep))
    first, second = gaps(result)
    assert f"{number(result.simulated.tpot_s * 1e3, 3)} ms per token (simulation)" in text
    assert "T_draft = 12.0 ms is hidden behind Δ = 18.0 ms with 6.00 ms to spare" in text
    assert f"{first.title}: {percent(first.percent)}" in text
    assert f"{second.title}: {percent(second.percent)}" in text
    assert COMMAND in text
    assert "prefix_ms: 18.0" in text


def test_the_gaps_lead_from_the_law_to_the_simulation(result):
    first, second = gaps(result)
    assert result.law.tpot_s * (1 + first.percent / 100) * (
        1 + second.percent / 100
    ) == pytest.approx(result.simulated.tpot_s)
    for gap in (first, second):
        whole = 1.0
        for _, part in gap.parts:
            whole *= 1 + part / 100
        assert whole == pytest.approx(1 + gap.percent / 100)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9.2758, "9.276"),
        (38.5967, "38.60"),
        (0.05, "0.050"),
        (0.0, "0"),
        (1e-5, "<0.001"),
        (12345.6, "12,346"),
    ],
)
def test_numbers_are_short(value, text):
    assert number(value) == text


@pytest.mark.parametrize("width", [80, 100, 200])
def test_console_fits(loaded, result, width):
    page = StringIO()
    console = Console(file=page, width=width)
    print_page(
        run_page(result, (), interval(result.speedup, doubt_of(loaded, [(1.0, 10), (1.2, 10)]))),
        console,
    )
    decided = by_law(loaded)
    print_page(law_page.page(law_details(loaded, decided), decided.decision), console)
    lines = page.getvalue().splitlines()
    assert max(map(len, lines)) <= min(width, 100)
    assert "…" not in page.getvalue()
    assert any(line.startswith("time per token (ms)") for line in lines)
    assert any(line == "Fallback" for line in lines)
    assert any(line.startswith("Speed-up ") for line in lines)


@pytest.mark.parametrize(
    ("name", "borrowed"), [("vanilla_llama_2_7b_a100", True), ("durations_only", False)]
)
def test_a_law_says_where_its_acceptance_is_borrowed(name, borrowed):
    page = StringIO()
    loaded = load(name)
    decided = by_law(loaded)
    shown = law_page.page(law_details(loaded, decided), decided.decision)
    print_page(shown, Console(file=page, width=100))
    assert ("draft tokens, borrowed from other models" in page.getvalue()) == borrowed


def test_reports_run_nothing_and_only_figures_draw():
    folder = Path(write.__file__).parent
    for path in folder.rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert node.module != "simulator.scenario.evaluate", path.name
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = getattr(node, "module", None) or node.names[0].name
                assert (
                    not module.startswith("matplotlib")
                    or path.parent.name in ("pages", "services")
                    or path.stem
                    in (
                        "drawing",
                        "panels",
                        "validation_figures",
                    )
                )


def test_the_kept_demo_is_what_its_command_makes(tmp_path):
    """reports/demo is committed for readers of the README; made anew whenever a number in it
    changes.
    """
    loaded = load("mirror_qwen3_32b_m2_ultra")
    made, span = run_with_interval(loaded, "specsim run mirror_qwen3_32b_m2_ultra")
    write.write(
        run_page(made, window_sweep(loaded, made), span, of_run(loaded, made)),
        made.spans,
        tmp_path / "demo",
    )
    kept = Path(__file__).parent.parent / "reports/demo/report.md"
    assert (tmp_path / "demo/report.md").read_text() == kept.read_text()


# ---- the terminal


def test_no_number_is_cut_where_a_table_is_wider_than_the_terminal() -> None:
    numbers = ["74,937", "72,502", "92,059", "95,797", "120,432", "120,598"]
    table = new_table("ms", "mean", "p50", "p90", "p95", "p99", "most")
    table.add_row("from arrival to admission of each", *numbers)
    table.add_row("TTFT", *["0"] * 6)
    text = StringIO()
    Console(file=text, width=80).print(table, width=80)
    assert [number for number in numbers if number not in text.getvalue()] == []
    assert "…" not in text.getvalue()
    assert max(map(len, text.getvalue().splitlines())) <= 80
