"""Published values beside runs: intervals, summaries, bounds, the commands and their files, the
figures of the papers.
"""

from __future__ import annotations

import csv
import json
import shlex
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from io import StringIO
from math import exp, log
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

from benchmarks.papers.__main__ import main as fit_paper
from simulator.cli.claims import answers
from simulator.cli.main import main
from simulator.cli.options import Paths
from simulator.core.faults import BadInput, Fault
from simulator.core.parallel import Spread, in_turn, spread
from simulator.core.serving.request_times import Times
from simulator.evidence.drawn import drawn_figures
from simulator.evidence.fits import Paper, Question, papers
from simulator.evidence.law_check import law_gap
from simulator.evidence.published import cells, notes, paper_figures
from simulator.evidence.validation import (
    ErrorBounds,
    Prediction,
    Validated,
    left_over,
    shortfalls,
    summaries,
    validated,
)
from simulator.inputs.catalogue import Catalogue, shipped
from simulator.report.pages import validate as validate_page
from simulator.report.terminal import print_page
from simulator.scenario import load
from simulator.scenario.evaluate import run
from simulator.scenario.uncertain.devices import slowed
from simulator.scenario.uncertain.draws import Doubt, interval
from simulator.scenario.uncertain.intervals import doubt_of
from tests.apart import gone, kept
from tests.kept_reports import differing
from tests.toy_paper import TERMS, written

NOTES = "cell,note\nd,poems are long\n?,of the toy\n"


@pytest.fixture
def fitted(tmp_path: Path) -> Paper:
    folder = written(tmp_path)
    (folder / "fitted.yaml").write_text(yaml.safe_dump({"command": "by hand", "terms": TERMS}))
    (folder / "notes.csv").write_text(NOTES)
    return Paper.of("round", cells(tmp_path)["round"], tmp_path)


# ---- work spread over processes


def refuse(name: str) -> None:
    raise BadInput([Fault((name, 1, 2), "key", "no")])


@pytest.mark.full
def test_processes_change_nothing_and_hand_faults_back(fitted: Paper) -> None:
    questions = [fitted.question(cell) for cell in fitted.with_role("calibrate", "predict")]
    with spread(2) as everywhere:
        assert everywhere(Question.answer, questions) == in_turn(Question.answer, questions)
        with pytest.raises(BadInput, match=r"x\.yaml:1:2: key: no") as caught:
            everywhere(refuse, ["x.yaml"])
    assert caught.value.faults[0].field == "key"


# ---- intervals


def test_an_interval_of_devices_is_lognormal() -> None:
    low, high = interval(10.0, Doubt((), {"a": 0.03, "b": -0.04}))
    assert log(high / 10) == pytest.approx(1.645 * 0.05, rel=0.05)
    assert log(low / 10) == pytest.approx(-1.645 * 0.05, rel=0.05)


def test_an_interval_of_requests_is_their_bootstrap() -> None:
    """Half the requests take 1 s a token, half 3 s: the mean of 100 has a standard error of 0.1 s
    around 2 s.
    """
    low, high = interval(2.0, Doubt(((1.0, 1), (3.0, 1)) * 50, {}))
    assert (low, high) == (pytest.approx(2 - 0.1645, rel=0.02), pytest.approx(2 + 0.1645, rel=0.02))


def test_an_interval_of_residuals_reaches_from_one_to_the_other() -> None:
    assert interval(1.0, Doubt((), {}), [log(0.9), log(1.2)]) == (
        pytest.approx(1 / 1.2),
        pytest.approx(1 / 0.9),
    )
    assert interval(7.0, Doubt(((1.0, 1),), {})) == (7.0, 7.0)


def test_a_fit_that_has_used_up_its_cells_leaves_wider_residuals(fitted: Paper) -> None:
    three = [
        Prediction("round", cell, float(cell.published) * exp(0.1), None)
        for cell in fitted.with_role("calibrate")
    ]
    assert left_over(three, 0) == pytest.approx([0.1] * 3)
    assert left_over(three, 1) == pytest.approx([0.1 * 2**0.5] * 3)
    assert left_over(three, 4) == pytest.approx([0.1 * 7**0.5] * 3)


def test_a_slower_device_is_slower_by_its_spread_and_leaves_the_others_alone() -> None:
    before = load("duodecoding_vicuna_7b_a800")
    target, draft = before.scenario.target, before.scenario.draft
    assert target
    assert draft
    changes = dict(slowed(before))
    assert set(changes) == {target.device.name, draft.device.name}
    after = changes[target.device.name](before).scenario
    assert after.draft == draft
    for rate in ("memory_bandwidth_gb_s", "peak_tflops"):
        assert getattr(after.target.device, rate).value == pytest.approx(
            getattr(target.device, rate).value / 1.06
        )
    one = load("vanilla_llama_2_7b_a100")
    change = dict(slowed(one))[one.scenario.target.device.name]
    factor = one.scenario.target.device.spread.value
    assert change(one).scenario.target.device.peak_tflops.value == pytest.approx(312 / (1 + factor))


def test_the_stages_of_a_pipeline_are_slowed_by_device() -> None:
    before = load("specpipe_llama_3_1_70b_two_servers")
    names = dict(slowed(before))
    stages = [
        stage.device or before.scenario.target.device
        for stage in before.scenario.target.pipeline.stages
    ]
    assert {device.name for device in stages} <= set(names)
    changed = names["rtx_4090"](before).scenario.target
    rates = {
        (s.device or changed.device).name: (s.device or changed.device).peak_tflops.value
        for s in changed.pipeline.stages
    }
    assert rates["rtx_4090"] == pytest.approx(
        next(d for d in stages if d.name == "rtx_4090").peak_tflops.value / 1.1
    )
    assert rates["rtx_3090"] == next(d for d in stages if d.name == "rtx_3090").peak_tflops.value


def test_a_run_of_stated_durations_is_as_sure_as_its_requests() -> None:
    """Nothing to slow: the interval is that of the requests alone."""
    loaded, times = load("durations_only", ["requests.count=20"]), Times()
    speedup = run(loaded, finished=times.note).speedup
    assert len(times.requests) == 20
    assert interval(speedup, doubt_of(loaded, times.requests)) == interval(
        speedup, Doubt(tuple(times.requests), {})
    )


def test_run_prints_its_interval() -> None:
    done = CliRunner().invoke(
        main, ["run", "vanilla_llama_2_7b_a100", "--set", "requests.count=4", "--json"]
    )
    data = json.loads(done.stdout)
    assert data["speedup_interval"]["low"] < data["speedup"] < data["speedup_interval"]["high"]


# ---- papers


def test_a_paper_beside_its_runs(fitted: Paper) -> None:
    validation = validated(fitted, in_turn)
    assert [(cell.cell.cell, cell.run, cell.note) for cell in validation.predicted] == [
        ("d", pytest.approx(20), "poems are long; of the toy"),
        ("e", pytest.approx(12), "of the toy"),
    ]
    assert [cell.run for cell in validation.calibrated] == [
        pytest.approx(value) for value in (8, 12, 16)
    ]
    assert [cell.cell for cell in validation.unmapped] == ["f"]
    assert validation.asked == 2
    assert [cell.interval for cell in validation.predicted] == [
        pytest.approx((20, 20)),
        pytest.approx((12, 12)),
    ]
    assert not any(cell.covered for cell in validation.predicted)


def test_summaries_and_bounds(fitted: Paper) -> None:
    validation = validated(fitted, in_turn)
    bare = Validated(
        Paper("bare", fitted.cells[3:4], {}, {}, fitted.folder), [], [], [], [], fitted.cells[3:4]
    )
    first, second, pooled = summaries([validation, bare])
    assert (first.asked, first.free, second.asked, pooled.asked) == (2, 4, 1, 3)
    assert second.errors is None
    assert pooled.errors
    assert pooled.errors.mape == pytest.approx(0.2)
    missed = shortfalls([validation, bare], ErrorBounds(0.1, 0.3, 0.5, 0.01))
    assert list(map(str, missed)) == [
        "all papers: MAPE 20.0 % is above 10 %",
        "all papers: within 10 % 0.0 % is below 50 %",
    ]


def test_a_name_that_is_no_paper() -> None:
    with pytest.raises(BadInput, match="there is no paper of this name; did you mean 'specpipe'"):
        papers(Catalogue(), ["specpip"])


def test_law_and_simulation_of_a_shipped_scenario() -> None:
    gap = law_gap("vanilla_llama_2_7b_a800")
    assert gap.relation == "exact"
    assert abs(gap.step_gap) < 1e-9


def test_a_law_is_not_told_as_exact_of_steps_that_carry_prompts() -> None:
    gap = law_gap("classes_vanilla_llama_3_1_8b_4xa100")
    assert gap.relation.startswith("exact, not shown: prompts travel in the steps")
    assert not gap.disagreement


@pytest.mark.parametrize("width", [80, 100])
def test_a_terminal_of_eighty_columns_holds_the_table(fitted: Paper, width: int) -> None:
    named = replace(fitted, name="speculative_streaming")
    page = StringIO()
    shown = validate_page.page([validated(named, in_turn)], [], [], [], [], "specsim validate")
    print_page(shown, Console(file=page, width=width))
    lines = page.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    row = next(line for line in lines if line.startswith("speculative_streaming")).split(maxsplit=1)
    baseline = "36.0 %"  # 12 for 25 and 10
    assert " ".join(row[1].split()) == f"2 of 2 4 20.0 % 20.0 % 0 % {baseline} 0 %"


# ---- the commands


@pytest.mark.full
def test_calibrate_writes_what_validate_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path)
    own = ["--catalogue", str(tmp_path), "--processes", "1"]
    again = CliRunner().invoke(
        fit_paper, ["round", *own, "--out", str(tmp_path / "again.yaml"), "--json"]
    )
    assert json.loads(again.stdout)["residuals"].keys() == {"a", "b", "c"}
    made = CliRunner().invoke(fit_paper, ["round", *own])
    assert made.exit_code == 0, made.output
    assert "round: 4 free parameters, 3 calibrated cells, 2 predicted cells" in made.stdout
    assert (tmp_path / "again.yaml").read_bytes() == (folder / "fitted.yaml").read_bytes()
    renewed = CliRunner().invoke(fit_paper, ["round", *own])
    assert renewed.exit_code == 0, renewed.output
    # three cells leave one open
    (folder / "fitted.yaml").write_text(yaml.safe_dump({"command": "by hand", "terms": TERMS}))
    monkeypatch.setattr(
        "simulator.evidence.law_check.law_gaps",
        lambda spread: spread(law_gap, ["vanilla_llama_2_7b_a800"]),
    )
    out = tmp_path / "out"
    command = [
        "validate",
        "round",
        *own,
        "--out",
        str(out),
        "--most-mape",
        "6",
        "--least-within-10",
        "0",
    ]
    first = CliRunner().invoke(main, command)
    assert first.exit_code == 3, first.output
    assert "bound missed: all papers: MAPE 20" in first.stderr
    held = {path.name: path.read_bytes() for path in out.iterdir()}
    pictures = {
        f"{name}.{ending}" for name in ("parity", "residuals") for ending in ("svg", "data.csv")
    }
    assert set(held) == {"validation.md", "validation.html", "cells.csv", *pictures}
    rows = list(csv.DictReader((out / "cells.csv").read_text().splitlines()))
    assert [(row["cell"], row["role"]) for row in rows] == [(name, "predict") for name in "de"] + [
        (n, "calibrate") for n in "abc"
    ]
    assert [float(row["error_percent"]) for row in rows[:2]] == [
        pytest.approx(-20, abs=0.2),
        pytest.approx(20, abs=0.2),
    ]
    second = CliRunner().invoke(main, [*command[:-4], "--json"])
    assert second.exit_code == 0, second.output
    assert {path.name: path.read_bytes() for path in out.iterdir()} == held
    assert json.loads(second.stdout)["papers"][0]["name"] == "round"


def test_a_paper_that_was_not_fitted_is_told_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path)
    monkeypatch.setattr("simulator.evidence.law_check.law_gaps", lambda spread: [])
    done = CliRunner().invoke(
        main, ["validate", "round", "--catalogue", str(tmp_path), "--processes", "1"]
    )
    assert done.exit_code == 2
    assert "run python -m benchmarks.papers round" in done.stderr


# ---- what is committed


@pytest.mark.parametrize("paper", sorted(cells()))
def test_notes_are_of_cells(paper: str) -> None:
    assert [
        note.cell for note in notes(paper) if not any(note.about(cell) for cell in cells()[paper])
    ] == []


def test_every_figure_is_reproduced_or_says_why_not() -> None:
    figures = paper_figures()
    numbers = {
        "duodecoding": 5,
        "lyanna": 7,
        "mirror_sd": 11,
        "specpipe": 12,
        "speculative_streaming": 11,
    }
    assert Counter(figure.paper for figure in figures) == {
        paper: numbers[paper] for paper in kept(numbers)
    }
    scenarios = Catalogue().names("scenario")
    for one in figures:
        assert not (one.picture and not one.command), one.figure
        assert not one.picture or (shipped() / "reports" / one.picture).exists(), one.picture
        words = shlex.split(one.command)
        assert not words or (words[0] == "specsim" and words[1] in main.list_commands(None)), (
            one.command
        )
        if words and words[1] == "figure":
            assert words[2] == one.paper
            assert set(words[3:]) <= set(one.numbers)
            assert (one.paper, words[3]) in drawn_figures(Catalogue())
        elif words and words[1] not in ("calibrate", "list"):
            named = [word for word in words[2:] if "_" in word and "=" not in word]
            assert named
            assert set(named) <= set(scenarios), one.command


@pytest.mark.full(minutes=10)
@pytest.mark.skipif(bool(gone()), reason="the kept report is of all papers")
def test_the_committed_reports_are_what_validate_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of claims and of everything; the commands of the claims, hundreds of them, are run once
    for both.
    """
    known: dict[str, object] = {}

    def once(commands: Iterable[str], own: Paths, everywhere: Spread) -> dict[str, object]:
        known.update(
            answers([command for command in commands if command not in known], own, everywhere)
        )
        return known

    monkeypatch.setattr("simulator.cli.claims.answers", once)
    for folder, words in (("claims", ["--claims"]), ("validation", [])):
        done = CliRunner().invoke(main, ["validate", *words, "--out", str(tmp_path / folder)])
        assert done.exit_code == 0, done.output
        assert known
        assert differing(shipped() / "reports" / folder, tmp_path / folder) == []


@pytest.mark.parametrize(
    ("made", "differs"),
    [("url(#pc9a2c7629d)", []), ("url(#p1)", ["a.svg"]), (None, ["a.svg"]), ("", ["a.svg"])],
)
def test_a_kept_picture_differs_by_more_than_a_hash(
    made: str | None, differs: list[str], tmp_path: Path
) -> None:
    for folder, text in (("kept", "url(#p9d649faaa5)"), ("made", made)):
        (tmp_path / folder).mkdir()
        if text is not None:
            (tmp_path / folder / "a.svg").write_text(text)
    assert differing(tmp_path / "kept", tmp_path / "made") == differs
