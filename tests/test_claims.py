"""Claims of the papers: shapes, verdicts, faults by line, the commands, and every row and figure
that is committed.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from simulator.cli.claims import claims, judged_claims, output
from simulator.cli.main import main
from simulator.core.faults import BadInput
from simulator.core.parallel import in_turn
from simulator.evidence.claims import (
    DIPS,
    FALLS,
    PEAKS,
    RISES,
    ClaimRow,
    Condition,
    Judged,
    PaperClaim,
    PrintedRange,
    Values,
    at_least,
    at_most,
    change_percent,
    claim,
    claims_of,
    combined,
    first_of,
    flat,
    judged,
    largest_at,
    last_of,
    least_of,
    mean_of,
    most_of,
    onset_of,
    over,
    percent,
    picked,
    quotient,
    reduction_percent,
    smallest_at,
    under,
    unprinted,
    values,
)
from simulator.evidence.drawn import FigureAxis, drawn_figures, figure
from simulator.evidence.published import cells, paper_figures
from simulator.inputs.catalogue import Catalogue, shipped
from simulator.report.page import write_picture
from simulator.report.pages.figure import picture
from simulator.scenario import load
from tests.apart import kept
from tests.toy_paper import toy_claim, written

ROWS = claims(sorted(cells()))
FIGURES = sorted(drawn_figures(Catalogue()))
RUN = "specsim law durations_only"
STEP = values("law.step_ms", RUN)


@pytest.mark.parametrize(
    ("shape", "good", "bad"),
    [
        (RISES, [1, 1, 2], [1, 2, 1.5]),
        (FALLS, [2, 1, 1], [2, 2]),
        (PEAKS, [1, 3, 2], [3, 2, 1]),
        (DIPS, [3, 1, 2], [1, 2, 3]),
        (flat(5), [100, 104], [100, 106]),
        (at_least(2), [2, 3], [1.9, 3]),
        (at_most(2), [2, 1], [2.1]),
        (largest_at(2), [1, 3, 2], [3, 1, 2]),
        (smallest_at(1), [1, 3, 2], [3, 1, 2]),
    ],
    ids=lambda given: getattr(given, "words", None),
)
def test_shapes(shape: Condition, good: list[float], bad: list[float]) -> None:
    assert shape.holds(good)
    assert not shape.holds(bad)


def test_shapes_in_words() -> None:
    shapes = [RISES, FALLS, PEAKS, DIPS, flat(5), at_least(1.35), at_most(0), largest_at(2)]
    assert [shape.words for shape in shapes] == [
        "rises",
        "falls",
        "peaks",
        "dips",
        "flat 5%",
        "at_least 1.35",
        "at_most 0",
        "largest_at 2",
    ]


@pytest.mark.parametrize(
    ("columns", "ours", "verdict"),
    [
        ({"published": "2"}, [2.2], "reproduced"),
        ({"published": "2"}, [2.21], ""),
        ({"published": "2..3"}, [1.9, 3.15], "reproduced"),
        ({"published": "2..3"}, [1.89, 3], ""),
        ({"published": "2", "shape": [RISES]}, [2, 1.9], ""),
        ({"published": "2", "shape": [RISES]}, [1, 5], "in shape"),
        ({"shape": [at_least(2)]}, [2], "in shape"),
        ({"published": "2", "bound": at_most(1.5), "bound_why": "3 / 2"}, [1], "refuted"),
        ({"published": "2", "bound": at_most(2), "bound_why": "4 / 2"}, [1], ""),
        ({"published": "2..3", "bound": at_most(2.5), "bound_why": "5 / 2"}, [1], ""),
        ({"published": "2..3", "bound": at_least(3.5), "bound_why": "7 / 2"}, [], "refuted"),
        ({"published": "2", "missing": "acceptance"}, [], "inputs not printed"),
        (
            {"published": "2", "missing": "acceptance", "bound": at_most(1), "bound_why": "1"},
            [],
            "refuted",
        ),
    ],
)
def test_verdicts(columns: dict[str, Any], ours: list[float], verdict: str) -> None:
    assert Judged(ClaimRow("round", toy_claim(**columns)), ours).verdict == verdict


@pytest.mark.parametrize(
    ("columns", "ends", "verdict"),
    [
        ({"published": "2"}, [[1.5], [2.5]], "inputs not printed"),
        ({"published": "2"}, [[1.5], [1.8]], "inputs not printed"),  # within 10 %
        ({"published": "2"}, [[1.2], [1.79]], "refuted"),
        ({"published": "2"}, [[2.21], [3.0]], "inputs not printed"),  # what is taken is below
        ({"published": "2..3"}, [[1.2], [1.91]], "inputs not printed"),  # within 5 % of the range
        ({"published": "2..3"}, [[1.2], [1.89]], "refuted"),
        ({"shape": [at_least(2)]}, [[1.2], [2.1]], "inputs not printed"),
        ({"shape": [at_least(2)]}, [[1.2], [1.9]], "refuted"),
    ],
)
def test_verdicts_between_the_ends(
    columns: dict[str, Any], ends: list[list[float]], verdict: str
) -> None:
    row = ClaimRow("round", toy_claim(missing="acceptance", **columns))
    assert Judged(row, [1.6], ends).verdict == verdict


def test_an_input_that_is_not_printed_is_run_as_taken_and_at_its_ends() -> None:
    x = unprinted("0.5", "0.2", "0.9")
    scenario = unprinted("b", "b", "c --set d=1")
    ours = over(
        values("v", f"specsim run a --set x={x} --set 'y={{z: 1}}'"),
        values("v", f"specsim run {scenario}"),
    )
    assert ours.command == "specsim run a --set x={0.5 in 0.2..0.9} --set 'y={z: 1}'"
    assert ours.against == "specsim run {b in b..c --set d=1}"
    row = ClaimRow("round", toy_claim(ours, published="2"))
    runs = [f"specsim run a --set x={x} --set 'y={{z: 1}}'" for x in (0.5, 0.2, 0.9)]
    others = ["specsim run b", "specsim run b", "specsim run c --set d=1"]
    assert row.claim.commands == [
        command for pair in zip(runs, others, strict=True) for command in pair
    ]
    answers = {
        command: {"v": value}
        for command, value in zip([*runs, *others], [1.0, 2, 3, 4, 4, 4], strict=False)
    }
    answers["specsim run c --set d=1"] = {"v": 1.0}
    (verdict,) = judged([row], answers)
    assert (verdict.ours, verdict.ends, verdict.verdict) == ([0.25], [[0.5], [3.0]], "")


def test_values_of_commands() -> None:
    data = {"points": [{"x": 1, "y": 2.0}, {"x": 3, "y": 4.0}], "by": {"a": 5}}
    assert picked(data, "points.*.y") == [2, 4]
    assert picked(data, "points.1.x") == [3]
    assert picked(data, "by.*") == [5]
    with pytest.raises(
        ValueError, match=r"there is no 'point' of 'point.0'; did you mean 'points'"
    ):
        picked(data, "point.0")
    with pytest.raises(ValueError, match="expected numbers at 'by', got dict"):
        picked(data, "by")
    assert combined([2, 4], [4], "over") == [0.5, 1]
    assert combined([2, 4], [4, 2], "under") == [2, 0.5]
    assert combined([3], [2], "change_percent") == [50]
    assert combined([3], [4], "reduction_percent") == [25]
    with pytest.raises(ValueError, match="as many values"):
        combined([1], [1, 2], "over")
    assert [PrintedRange.of("1.5"), PrintedRange.of("1..2")] == [(1.5, 1.5), (1, 2)]


def test_values_say_where_they_are_from_and_are_combined_then_reduced() -> None:
    answers = {
        "specsim a": {"points": [{"y": 2.0}, {"y": 4.0}]},
        "specsim b": {"points": [{"y": 1.0}], "z": 2},
    }
    both = values("points.*.y", "specsim a", "specsim b")
    other = values("z", "specsim b")
    assert both.numbers(answers) == [2, 4, 1]
    assert both.command == "specsim a ; specsim b"
    assert over(both, other).metric == "points.*.y | z"
    assert most_of(over(both, other)).metric == "most points.*.y | z"
    assert over(both, values("points.*.y", "specsim b")).metric == "points.*.y"
    assert over(both, other).numbers(answers) == [1, 2, 0.5]
    assert under(both, other).numbers(answers) == [1, 0.5, 2]
    assert percent(both, other).numbers(answers) == [100, 200, 50]
    assert change_percent(both, other).numbers(answers) == [0, 100, -50]
    assert reduction_percent(both, other).numbers(answers) == [0, -100, 50]
    assert quotient("points.0.y", "z", "specsim b").numbers(answers) == [0.5]
    reductions = {mean_of: 7 / 3, least_of: 1, most_of: 4, first_of: 2, last_of: 1, onset_of: 1}
    for reduce, number in reductions.items():
        assert reduce(both).numbers(answers) == [pytest.approx(number)], reduce
    for ours, others in ((mean_of(both), other), (both, mean_of(other)), (over(both, other), both)):
        with pytest.raises(ValueError, match="expected values that are combined first"):
            over(ours, others)
    never = onset_of(values("points.*.y", "specsim b"))
    assert never.numbers(answers) == [float("inf")]


def rows_of(monkeypatch: pytest.MonkeyPatch, *known: PaperClaim) -> None:
    """Let these be the claims of the paper ``round``."""
    rows = [ClaimRow("round", one_claim) for one_claim in known]
    monkeypatch.setattr("simulator.cli.claims.claims", lambda papers: rows)


@pytest.mark.parametrize(
    ("ours", "fault"),
    [
        (
            values("law.step", RUN),
            r"metric: a: there is no 'step' of 'law.step'; did you mean",
        ),
        (
            values("x", "specsim run nowhere"),
            "command: a: specsim run nowhere: nowhere: there is no scenario of this name",
        ),
    ],
)
def test_what_fails_is_named_by_the_place_of_its_function(
    monkeypatch: pytest.MonkeyPatch, ours: Values, fault: str
) -> None:
    rows_of(monkeypatch, toy_claim(ours, published="2"))
    with pytest.raises(BadInput) as caught:
        judged_claims(["round"], (), in_turn)
    (first,) = map(str, caught.value.faults)
    assert re.match(rf"\S*tests/toy_paper.py:\d+:1: {fault}", first), first


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({}, "a: expected a published value or a shape"),
        ({"published": "2", "says": ""}, "a: expected a docstring"),
        ({"published": "3..2"}, "expected a range from the least to the most, got '3..2'"),
        ({"published": "fast"}, "could not convert"),
        ({"published": "2", "bound": at_most(1)}, "a bound needs a bound_why"),
        ({"published": "2", "bound_why": "1"}, "a bound needs a bound_why"),
    ],
)
def test_a_faulty_claim_says_what_is_wrong(columns: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        toy_claim(**columns)


@pytest.mark.parametrize("command", ["law durations_only", "specsim law durations_only --json"])
def test_a_command_is_one_of_ours_without_json(command: str) -> None:
    with pytest.raises(ValueError, match="expected a command that begins with 'specsim'"):
        values("x", command)


def test_a_claim_is_made_of_a_function() -> None:
    @claim(where="Figure 1", shape=[RISES])
    def longer() -> Values:
        """a step grows
        with the window
        """
        return STEP

    (row,) = claims_of("round", ["other", longer, RISES])
    assert (row.claim.claim, row.claim.says) == ("longer", "a step grows with the window")
    assert row.claim.commands == [RUN]
    file, line, column, said = str(row.fault("metric", "is off")).split(":", 3)
    source = Path(__file__).read_text("utf-8").splitlines()
    assert file.endswith("tests/test_claims.py")
    assert source[int(line) - 1].strip() == '@claim(where="Figure 1", shape=[RISES])'
    assert (column, said) == ("1", " metric: longer: is off")


def test_a_paper_without_a_folder_has_no_claims() -> None:
    assert claims(["nowhere"]) == []
    claimed = {
        "duodecoding": 30,
        "lyanna": 45,
        "mirror_sd": 30,
        "specpipe": 36,
        "speculative_streaming": 20,
    }
    assert Counter(row.paper for row in ROWS) == {paper: claimed[paper] for paper in kept(claimed)}


def test_the_command_ends_with_3_where_a_claim_has_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = over(STEP, STEP)
    good = toy_claim(ours, published="1", unit="x")
    bad = toy_claim(ours, name="b", published="9", unit="x")
    written(tmp_path)
    rows_of(monkeypatch, good)
    command = ["validate", "round", "--claims", "--catalogue", str(tmp_path), "--processes", "1"]
    done = CliRunner().invoke(main, [*command, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "1 claims: 1 reproduced." in done.stdout
    (row,) = csv.DictReader((tmp_path / "out/claims.csv").read_text().splitlines())
    assert (row["ours"], row["verdict"]) == ("1.00", "reproduced")
    rows_of(monkeypatch, good, bad)
    done = CliRunner().invoke(main, [*command, "--json"])
    assert done.exit_code == 3
    verdicts = [record["verdict"] for record in json.loads(done.stdout)["claims"]]
    assert verdicts == ["reproduced", ""]
    assert ":1: b: has no verdict" in done.stderr


def test_a_single_cell_says_how_it_was_run() -> None:
    done = CliRunner().invoke(
        main, ["validate", "duodecoding", "--cell", "duodecoding_table1:1", "--json"]
    )
    (cell,) = json.loads(done.stdout)["cells"]
    assert cell["role"] == "calibrate"
    again = output(cell["commands"][0], (shipped(),))
    assert picked(again, cell["metric"]) == [cell["run"]]
    shown = CliRunner().invoke(main, ["validate", "--cell", "duodecoding_table1:1"])
    assert "specsim run scenarios/papers/duodecoding/vanilla.yaml" in " ".join(shown.stdout.split())
    wrong = CliRunner().invoke(main, ["validate", "--cell", "nothing"])
    assert (wrong.exit_code, wrong.stderr.strip()) == (
        2,
        "error: nothing: no mapped cell has such a name; see cells.csv of the paper",
    )


# ---- figures

PICTURE = """
figure: rounds
source: Figure 1
x: window
y: ms
kind: {kind}
series:
  - {{label: SD, scenario: sd, axis: {{key: strategy.gamma, values: [2, 4]}}, metric: law.step_ms, \
by: law}}
  - {{label: twice, scenario: sd, axis: {{key: strategy.gamma, values: [2, 4]}}, metric: \
law.step_ms, by: law,
     {ratio}: {{scenario: sd}}}}
  - {{label: other, command: specsim law durations_only, x: [4], y: law.step_ms}}
published:
  - {{label: SD, points: [[2, 3], [4, 5]], source: Figure 1}}
"""


@pytest.mark.parametrize(
    ("kind", "ratio"), [("lines", "over"), ("bars", "under"), ("points", "over")]
)
def test_a_figure_beside_its_published_points(tmp_path: Path, kind: str, ratio: str) -> None:
    folder = written(tmp_path) / "figures"
    folder.mkdir()
    (folder / "1.yaml").write_text(PICTURE.format(kind=kind, ratio=ratio))
    out = tmp_path / "one.svg"
    command = ["figure", "round", "1", "--catalogue", str(tmp_path), "--processes", "1"]
    done = CliRunner().invoke(main, [*command, "--json", "--out", str(out)])
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert data["ours"]["SD"] == [[2, 3.0], [4, 5.0]]
    assert data["ours"]["twice"] == [[2, 1.0], [4, 1.0]]
    assert data["published"]["SD"]["points"] == [[2, 3], [4, 5]]
    drawn = out.read_text()
    assert "round, Figure 1: rounds" in drawn
    assert "SD, published" in drawn


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (
            ["duodecodin", "4"],
            "no paper with drawn figures of this name; did you mean 'duodecoding'",
        ),
        (["duodecoding", "44"], "no drawn figure of duodecoding of this name"),
        (["duo"], "there is no paper of this name; did you mean 'duodecoding'"),
    ],
)
def test_a_figure_that_is_not_there(words: list[str], fault: str) -> None:
    done = CliRunner().invoke(main, ["figure", *words])
    assert done.exit_code == 2
    assert fault in done.stderr


def test_a_faulty_figure(tmp_path: Path) -> None:
    folder = written(tmp_path) / "figures"
    folder.mkdir()
    text = PICTURE.format(kind="lines", ratio="over")
    for before, after, fault in (
        (
            "metric: law.step_ms, by: law}",
            "metric: law.step, by: law}",
            "series.0: there is no 'step'",
        ),
        ("scenario: sd, axis", "axis", "expected a command, or a metric"),
        ("x: [4], y", "metric: a, y", "a command needs x and y"),
        ("scenario: sd,", "scenario: nowhere,", "nowhere: there is no"),
    ):
        (folder / "1.yaml").write_text(text.replace(before, after, 1))
        done = CliRunner().invoke(
            main, ["figure", "round", "1", "--catalogue", str(tmp_path), "--processes", "1"]
        )
        assert done.exit_code == 2, before
        assert fault in done.stderr


def test_figures_are_listed() -> None:
    data = json.loads(CliRunner().invoke(main, ["figure", "--json"]).stdout)
    assert len(data) == len(paper_figures())
    assert next(
        one for one in data if (one["paper"], one["figure"]) == ("duodecoding", "Figure 4")
    )["drawn"] == ["4"]
    assert "specsim figure PAPER NUMBER" in " ".join(
        CliRunner().invoke(main, ["figure", "duodecoding"]).stdout.split()
    )


# ---- what is committed


@cache
def parses(command: str) -> bool:
    """Whether a command's words are understood, and its scenarios and settings can be loaded."""
    words = shlex.split(command)[1:]
    context = main.make_context("specsim", words)
    protected = getattr(context, "_protected_args", None)  # its name since click 8.2
    name, sub, rest = main.resolve_command(
        context, [*(context.protected_args if protected is None else protected), *context.args]
    )
    assert sub, command
    values = sub.make_context(name, list(rest), parent=context).params
    if name in ("run", "law"):
        file = shipped() / values["scenario"]
        load(str(file) if file.is_file() else values["scenario"], values["overrides"])
    return True


@pytest.mark.few(12)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.paper}-{row.claim.claim}")
def test_a_claim_is_well_formed(row: ClaimRow) -> None:
    assert all(map(parses, row.claim.commands))
    own = {cell.cell: cell for cell in cells()[row.paper]}
    for name in row.claim.cells.split():
        printed = float(own[name].published)
        assert own[name].unit == row.claim.unit, name
        assert row.claim.span, name
        assert printed in row.claim.span, name


@pytest.mark.parametrize("place", FIGURES, ids="-".join)
def test_a_figure_is_well_formed(place: tuple[str, str]) -> None:
    asked = figure(Catalogue(), *place)
    assert all(map(parses, asked.commands))
    (row,) = [
        paper_figure
        for paper_figure in paper_figures()
        if paper_figure.paper == place[0] and place[1] in paper_figure.numbers
    ]
    assert row.figure


def test_every_reported_cell_has_a_run() -> None:
    """A scenario of its own, or a claim that names it and has a command."""
    said = {name for row in ROWS if row.claim.commands for name in row.claim.cells.split()}
    reported = [cell for paper in cells().values() for cell in paper if cell.role == "report"]
    assert reported
    assert {cell.cell for cell in reported if not cell.mapped} <= said


def test_what_is_not_printed_has_a_range() -> None:
    """Only the accuracy of a training is nothing that is simulated; every other input without a
    number has two ends.
    """
    lines = (shipped() / "reports/claims/claims.csv").read_text().splitlines()
    open_ = {
        (row["paper"], row["claim"])
        for row in csv.DictReader(lines)
        if row["verdict"] == "inputs not printed"
    }
    ranged = {(row.paper, row.claim.claim) for row in ROWS if len(row.claim.values.readings) == 3}
    assert set(kept(open_)) - ranged == set(kept({("lyanna", "hot_tokens")}))


def test_figures_name_claims_that_there_are() -> None:
    names = {(row.paper, row.claim.claim) for row in ROWS}
    named = [
        (paper_figure.paper, name)
        for paper_figure in paper_figures()
        for name in paper_figure.claims.split()
    ]
    assert set(named) <= names


def test_some_claims_have_a_verdict() -> None:
    chosen = ROWS[::30]
    commands = {command for row in chosen for command in row.claim.commands}
    beside = judged(
        chosen, {command: output(command, (shipped(),)) for command in sorted(commands)}
    )
    assert [claim.claim.claim for claim in beside if not claim.verdict] == []
    assert [
        claim.claim.claim
        for claim in beside
        if claim.ours and claim.claim.bound and not claim.claim.bound.holds(claim.ours)
    ] == []


def ends(axis: FigureAxis) -> FigureAxis:
    """The axis with its first two values and its last."""
    places = sorted({0, 1, len(axis.values) - 1} & {*range(len(axis.values))})
    labels = tuple(axis.labels[place] for place in places) if axis.labels else ()
    return axis.model_copy(
        update={"values": tuple(axis.values[place] for place in places), "labels": labels}
    )


@cache
def printed(command: str) -> Any:
    return output(command, Catalogue().roots)


@pytest.mark.full
@pytest.mark.parametrize("place", FIGURES, ids="-".join)
def test_a_figure_is_drawn(place: tuple[str, str], tmp_path: Path) -> None:
    """Every curve, at the ends of its axis."""
    asked = figure(Catalogue(), *place)
    curves = [curve.model_copy(update={"axis": ends(curve.axis)}) for curve in asked.picture.series]
    asked = asked._replace(picture=asked.picture.model_copy(update={"series": tuple(curves)}))
    points = asked.points({command: printed(command) for command in asked.commands})
    assert list(points) == [curve.label for curve in curves]
    write_picture(tmp_path / "a.svg", picture(asked, points))
    assert "</svg>" in (tmp_path / "a.svg").read_text()
