"""Claims of the papers: shapes, verdicts, faults by line, the commands, and every row and figure
that is committed.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from simulator.cli.claims import judged_claims, output
from simulator.cli.main import main
from simulator.core.faults import BadInput
from simulator.core.parallel import in_turn
from simulator.evidence.claims import (
    ClaimRow,
    Condition,
    Judged,
    PaperClaim,
    PrintedRange,
    claims,
    combined,
    judged,
    picked,
)
from simulator.evidence.drawn import FigureAxis, drawn_figures, figure
from simulator.evidence.published import PAPERS, cells, paper_figures
from simulator.inputs.catalogue import Catalogue, shipped
from simulator.report.page import write_picture
from simulator.report.pages.figure import picture
from simulator.scenario import load
from tests.toy_paper import written

ROWS = claims(Catalogue(), sorted(cells()))
FIGURES = sorted(drawn_figures(Catalogue()))
HEAD = (
    "claim,where,says,published,unit,command,metric,against,combine,shape,bound,bound_why,"
    "missing,cells"
)
RUN = "specsim law durations_only"


@pytest.mark.parametrize(
    ("shape", "good", "bad"),
    [
        ("rises", [1, 1, 2], [1, 2, 1.5]),
        ("falls", [2, 1, 1], [2, 2]),
        ("peaks", [1, 3, 2], [3, 2, 1]),
        ("dips", [3, 1, 2], [1, 2, 3]),
        ("flat 5%", [100, 104], [100, 106]),
        ("at_least 2", [2, 3], [1.9, 3]),
        ("at_most 2", [2, 1], [2.1]),
        ("largest_at 2", [1, 3, 2], [3, 1, 2]),
        ("smallest_at 1", [1, 3, 2], [3, 1, 2]),
    ],
)
def test_shapes(shape: str, good: list[float], bad: list[float]) -> None:
    assert Condition.of(shape).holds(good)
    assert not Condition.of(shape).holds(bad)


@pytest.mark.parametrize(
    ("columns", "ours", "verdict"),
    [
        ({"published": "2"}, [2.2], "reproduced"),
        ({"published": "2"}, [2.21], ""),
        ({"published": "2..3"}, [1.9, 3.15], "reproduced"),
        ({"published": "2..3"}, [1.89, 3], ""),
        ({"published": "2", "shape": "rises"}, [2, 1.9], ""),
        ({"published": "2", "shape": "rises"}, [1, 5], "in shape"),
        ({"shape": "at_least 2"}, [2], "in shape"),
        ({"published": "2", "bound": "at_most 1.5", "bound_why": "3 / 2"}, [1], "refuted"),
        ({"published": "2", "bound": "at_most 2", "bound_why": "4 / 2"}, [1], ""),
        ({"published": "2..3", "bound": "at_most 2.5", "bound_why": "5 / 2"}, [1], ""),
        ({"published": "2..3", "bound": "at_least 3.5", "bound_why": "7 / 2"}, [], "refuted"),
        ({"published": "2", "missing": "acceptance"}, [], "inputs not printed"),
        (
            {"published": "2", "missing": "acceptance", "bound": "at_most 1", "bound_why": "1"},
            [],
            "refuted",
        ),
    ],
)
def test_verdicts(columns: dict[str, str], ours: list[float], verdict: str) -> None:
    claim = PaperClaim(claim="a", where="Abstract", says="fast", **columns)
    assert Judged(ClaimRow("round", claim, "claims.csv", 2), ours).verdict == verdict


@pytest.mark.parametrize(
    ("columns", "ends", "verdict"),
    [
        ({"published": "2"}, [[1.5], [2.5]], "inputs not printed"),
        ({"published": "2"}, [[1.5], [1.8]], "inputs not printed"),  # within 10 %
        ({"published": "2"}, [[1.2], [1.79]], "refuted"),
        ({"published": "2"}, [[2.21], [3.0]], "inputs not printed"),  # what is taken is below
        ({"published": "2..3"}, [[1.2], [1.91]], "inputs not printed"),  # within 5 % of the range
        ({"published": "2..3"}, [[1.2], [1.89]], "refuted"),
        ({"shape": "at_least 2"}, [[1.2], [2.1]], "inputs not printed"),
        ({"shape": "at_least 2"}, [[1.2], [1.9]], "refuted"),
    ],
)
def test_verdicts_between_the_ends(
    columns: dict[str, str], ends: list[list[float]], verdict: str
) -> None:
    claim = PaperClaim(claim="a", where="Abstract", says="fast", missing="acceptance", **columns)
    assert Judged(ClaimRow("round", claim, "claims.csv", 2), [1.6], ends).verdict == verdict


def test_an_input_that_is_not_printed_is_run_as_taken_and_at_its_ends() -> None:
    words = {
        "command": "specsim run a --set x={0.5 in 0.2..0.9} --set 'y={z: 1}'",
        "against": "specsim run {b in b..c --set d=1}",
    }
    claim = PaperClaim(
        claim="a", where="w", says="s", published="2", metric="v", combine="over", **words
    )
    runs = [f"specsim run a --set x={x} --set 'y={{z: 1}}'" for x in (0.5, 0.2, 0.9)]
    others = ["specsim run b", "specsim run b", "specsim run c --set d=1"]
    assert claim.commands == [
        command for pair in zip(runs, others, strict=True) for command in pair
    ]
    answers = {
        command: {"v": value}
        for command, value in zip([*runs, *others], [1.0, 2, 3, 4, 4, 4], strict=False)
    }
    answers["specsim run c --set d=1"] = {"v": 1.0}
    (row,) = judged([ClaimRow("round", claim, "claims.csv", 2)], answers)
    assert (row.ours, row.ends, row.verdict) == ([0.25], [[0.5], [3.0]], "")


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
    answers = {"specsim a": data, "specsim b": {"points": [{"y": 1.0}], "z": 2}}
    of = {
        "claim": "c",
        "where": "w",
        "says": "s",
        "published": "1",
        "command": "specsim a ; specsim b",
    }
    assert PaperClaim(**of, metric="points.*.y").ours(answers) == [2, 4, 1]
    assert PaperClaim(**of, metric="most points.*.y | z", against="specsim b", combine="over").ours(
        answers
    ) == [2]
    assert [PrintedRange.of("1.5"), PrintedRange.of("1..2")] == [(1.5, 1.5), (1, 2)]


def written_claims(root: Path, *rows: str) -> Path:
    path = written(root) / "claims.csv"
    path.write_text("\n".join([HEAD, *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (
            f"a,T1,fast,2,x,{RUN},law.step,,,,,,,",
            "claims.csv:2:1: metric: a: there is no 'step' of 'law.step'; did you mean",
        ),
        (
            "a,T1,fast,2,x,specsim run nowhere,x,,,,,,,",
            (
                "claims.csv:2:1: command: a: specsim run nowhere: nowhere: there is no scenario of "
                "this name"
            ),
        ),
        (
            f"a,T1,fast,2,x,{RUN},x,,,rise,,,,",
            "claims.csv:2:1: .*there is no shape 'rise'; did you mean 'rises'",
        ),
        (f"a,T1,fast,2,x,{RUN},x,,,,rises,why,,", "expected a bound like 'at_most 64.8'"),
        (f"a,T1,fast,2,x,{RUN},x,,,,64.8,why,,", "there is no shape '64.8'"),
        (f"a,T1,fast,2,x,{RUN},x,,,flat,,,,", "expected 'flat' and a number, got 'flat'"),
        (f"a,T1,fast,2,x,{RUN},x,,,rises 5,,,,", "expected 'rises' alone, got 'rises 5'"),
        (f"a,T1,fast,3..2,x,{RUN},x,,,,,,,", "expected a range from the least to the most"),
        (
            "a,T1,fast,2,x,law durations_only,x,,,,,,,",
            "expected a command that begins with 'specsim'",
        ),
        (f"a,T1,fast,2,x,{RUN},,,,,,,,", "a metric needs a command"),
        ("a,T1,fast,,,,,,,,,,,", "expected a published value or a shape"),
    ],
)
def test_a_faulty_row_is_named_by_its_line(tmp_path: Path, row: str, fault: str) -> None:
    written_claims(tmp_path, row)
    with pytest.raises(BadInput) as caught:
        judged_claims(["round"], (tmp_path,), in_turn)
    (first, *_) = map(str, caught.value.faults)
    assert re.search(fault, first), first


def test_a_name_is_used_once(tmp_path: Path) -> None:
    written_claims(tmp_path, "a,T1,fast,2,,,,,,,,,speed,", "a,T1,slow,1,,,,,,,,,speed,")
    with pytest.raises(
        BadInput, match=r"claims.csv:3:1: claim: a: there is a claim of this name already"
    ):
        claims(Catalogue((tmp_path,)), ["round"])


def test_the_command_ends_with_3_where_a_row_has_no_verdict(tmp_path: Path) -> None:
    good, bad = (
        f"a,T1,fast,1,x,{RUN},law.step_ms,{RUN},over,,,,,",
        f"b,T1,faster,9,x,{RUN},law.step_ms,{RUN},over,,,,,",
    )
    path = written_claims(tmp_path, good)
    command = ["validate", "round", "--claims", "--catalogue", str(tmp_path), "--processes", "1"]
    done = CliRunner().invoke(main, [*command, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "1 claims: 1 reproduced." in done.stdout
    (row,) = csv.DictReader((tmp_path / "out/claims.csv").read_text().splitlines())
    assert (row["ours"], row["verdict"]) == ("1.00", "reproduced")
    path.write_text("\n".join([HEAD, good, bad]) + "\n")
    done = CliRunner().invoke(main, [*command, "--json"])
    assert done.exit_code == 3
    assert [one["verdict"] for one in json.loads(done.stdout)["claims"]] == ["reproduced", ""]
    assert "claims.csv:3:1: b: has no verdict" in done.stderr


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
    found = json.loads(done.stdout)
    assert found["ours"]["SD"] == [[2, 3.0], [4, 5.0]]
    assert found["ours"]["twice"] == [[2, 1.0], [4, 1.0]]
    assert found["published"]["SD"]["points"] == [[2, 3], [4, 5]]
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
    found = json.loads(CliRunner().invoke(main, ["figure", "--json"]).stdout)
    assert len(found) == 46
    assert next(
        one for one in found if (one["paper"], one["figure"]) == ("duodecoding", "Figure 4")
    )["drawn"] == ["4"]
    assert "specsim figure PAPER NUMBER" in " ".join(
        CliRunner().invoke(main, ["figure", "lyanna"]).stdout.split()
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
    (row,) = [one for one in paper_figures() if one.paper == place[0] and place[1] in one.numbers]
    assert row.figure


def test_every_reported_cell_has_a_run() -> None:
    """A scenario of its own, or a claim that names it and has a command."""
    said = {name for row in ROWS if row.claim.command for name in row.claim.cells.split()}
    reported = [cell for paper in cells().values() for cell in paper if cell.role == "report"]
    assert len(reported) == 55
    assert {cell.cell for cell in reported if not cell.mapped} <= said


def test_what_is_not_printed_has_a_range() -> None:
    """Only the accuracy of a training is nothing that is simulated; every other input without a
    number has two ends.
    """
    kept = csv.DictReader((shipped() / "reports/claims/claims.csv").read_text().splitlines())
    open_ = {row["claim"] for row in kept if row["verdict"] == "inputs not printed"}
    ranged = {row.claim.claim for row in ROWS if len(row.claim.readings) == 3}
    assert open_ - ranged == {"hot_tokens"}


def test_figures_name_claims_that_there_are() -> None:
    names = {(row.paper, row.claim.claim) for row in ROWS}
    named = [(one.paper, name) for one in paper_figures() for name in one.claims.split()]
    assert set(named) <= names


def test_some_claims_have_a_verdict() -> None:
    chosen = ROWS[::30]
    commands = {command for row in chosen for command in row.claim.commands}
    beside = judged(
        chosen, {command: output(command, (shipped(),)) for command in sorted(commands)}
    )
    assert [one.claim.claim for one in beside if not one.verdict] == []
    assert [
        one.claim.claim
        for one in beside
        if one.ours and one.claim.limit and not one.claim.limit.holds(one.ours)
    ] == []


def ends(axis: FigureAxis) -> FigureAxis:
    """The axis with its first two values and its last."""
    kept = sorted({0, 1, len(axis.values) - 1} & {*range(len(axis.values))})
    labels = tuple(axis.labels[place] for place in kept) if axis.labels else ()
    return axis.model_copy(
        update={"values": tuple(axis.values[place] for place in kept), "labels": labels}
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


def test_every_paper_is_named() -> None:
    assert {path.parent.name for path in (shipped() / PAPERS).glob("*/claims.csv")} <= set(cells())
