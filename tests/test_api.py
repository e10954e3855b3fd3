"""The public face: functions that do what the commands do, and results that notebooks show,
tabulate and save.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

import simulator
from simulator.cli.main import main
from simulator.core.faults import BadInput
from tests.test_question import log

ROOT = Path(__file__).parent.parent
SMALL = {"requests.count": 8}


def printed(*arguments: str) -> object:
    """Return what a command prints with ``--json``."""
    return json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)


def test_importing_the_package_loads_nothing_else() -> None:
    script = (
        "import sys, simulator; print([name for name in sys.modules if "
        "name.startswith('simulator.') or name == 'numpy'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    for name in simulator.__all__:
        assert getattr(simulator, name) is not None
        assert name in dir(simulator)
    for name in simulator._HOME:
        assert getattr(simulator, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = simulator.nothing


def test_a_run_gives_the_numbers_of_the_command() -> None:
    result = simulator.run("durations_only", SMALL)
    assert (
        result.to_dict()["simulated"]
        == printed("run", "durations_only", "--set", "requests.count=8")["simulated"]
    )
    assert result.speedup == result.value.speedup
    frame = result.to_frame()
    assert frame.loc["simulated", "tpot_ms"] == pytest.approx(result.simulated.tpot_s * 1e3)
    assert set(frame.index) == {"law", "law_replayed", "replay", "simulated", "baseline"}


def test_a_law_gives_its_kinds_of_steps() -> None:
    result = simulator.law("durations_only")
    assert result.to_dict() == printed("law", "durations_only")
    assert result.to_frame()["share"].sum() == pytest.approx(1.0)


def test_a_loaded_scenario_runs_as_it_is() -> None:
    loaded = simulator.load("durations_only", {"strategy.gamma": 3, **SMALL})
    assert loaded.scenario.strategy.window == 3
    assert simulator.run(loaded).scenario.strategy.window == 3
    with pytest.raises(TypeError, match="give its name"):
        simulator.run(loaded, SMALL)
    with pytest.raises(BadInput, match="gama"):
        simulator.load("durations_only", {"strategy.gama": 3})


def test_whoever_reads_a_file_anew_takes_no_loaded_scenario() -> None:
    loaded = simulator.load("durations_only", SMALL)
    calls = (
        lambda: simulator.sweep(loaded, ["strategy.gamma=1,2"]),
        lambda: simulator.compare(loaded, "durations_only"),
        lambda: simulator.study("batches", loaded),
    )
    for call in calls:
        with pytest.raises(TypeError) as raised:
            call()
        assert len(str(raised.value)) < 300
        assert "name or the file of a scenario, got Loaded" in str(raised.value)


def test_a_recording_is_asked_for_another_of_its_drafters() -> None:
    trace = "scenarios/traces/six_flavours_greedy.npz"
    second = simulator.trace(f"{trace}:plain")
    assert second.to_dict() == simulator.trace("six_flavours_greedy:plain").to_dict()
    assert second.to_dict() != simulator.trace(trace).to_dict()
    with pytest.raises(BadInput, match="no drafter 'plane'; did you mean 'plain'"):
        simulator.trace(f"{trace}:plane")


def test_a_sweep_is_a_table_of_its_points(tmp_path: Path) -> None:
    axes = {"durations.draft_ms": [6, 12], "acceptance.rate": [0.5, 0.9]}
    result = simulator.sweep(
        "durations_only", axes, evaluate="law", store=tmp_path / "points.sqlite"
    )
    frame = result.to_frame()
    assert frame["durations.draft_ms"].tolist() == [6, 6, 12, 12]
    assert frame["law_tpot_ms"].is_monotonic_increasing is False
    one = simulator.law("durations_only", {"durations.draft_ms": 12, "acceptance.rate": 0.9})
    assert frame["law_tpot_ms"].iloc[3] == pytest.approx(one.tpot_s * 1e3, rel=1e-12)
    assert (tmp_path / "points.sqlite").exists()
    result.save(tmp_path / "page")
    assert {path.suffix for path in (tmp_path / "page").iterdir()} >= {".md", ".html", ".csv"}


def test_scenarios_stand_side_by_side() -> None:
    changes = ["requests.count=8", "B:strategy.gamma=4"]
    result = simulator.compare("durations_only", "durations_only", overrides=changes)
    assert list(result.to_frame().columns) == [
        "A: durations_only",
        "B: durations_only, strategy.gamma=4",
    ]
    assert result.to_frame().loc["speedup"].notna().all()


def test_a_study_takes_the_options_of_its_command() -> None:
    result = simulator.study(
        "batches", "vanilla_llama_2_7b_a100", sizes=[1, 8], simulated=[1], overrides=SMALL
    )
    asked = [
        "batches",
        "vanilla_llama_2_7b_a100",
        "--sizes",
        "1,8",
        "--simulate",
        "1",
        "--set",
        "requests.count=8",
    ]
    assert result.to_dict() == printed(*asked)
    assert result.to_frame()["batch"].tolist() == [1, 8]
    with pytest.raises(ValueError, match="there is no study 'tree'; there are batches, "):
        simulator.study("tree", "durations_only")


def test_a_recording_and_its_formula() -> None:
    assert (
        simulator.trace("six_flavours_greedy").to_frame()["tokens_per_step"].is_monotonic_increasing
    )
    errors = simulator.iid("six_flavours_greedy", windows=(1, 3)).to_frame()
    assert errors["gamma 1"].abs().max() < 1e-9


def test_the_catalogue_lists_every_kind() -> None:
    frame = simulator.catalogue().to_frame()
    assert {"scenario", "strategy", "device", "trace"} <= set(frame["kind"])
    assert set(simulator.catalogue("device").to_frame()["kind"]) == {"device"}


def test_a_result_is_saved_in_every_form(tmp_path: Path) -> None:
    result = simulator.run("durations_only", SMALL)
    for name in ("a.json", "a.csv", "a.html", "a.md"):
        assert result.save(tmp_path / name).read_text()
    assert pd.read_csv(tmp_path / "a.csv", index_col=0).loc["law", "step_ms"] > 0
    assert (result.save(tmp_path / "report") / "report.html").exists()
    with pytest.raises(ValueError, match="expected a name that ends in"):
        result.save(tmp_path / "a.docx")


def test_a_notebook_shows_answer_table_and_picture() -> None:
    result = simulator.run(
        "durations_only", {"requests.count": 8, "about": "<script>alert(1)</script>"}
    )
    shown = result._repr_html_()
    assert "<script" not in shown
    assert "<table" in shown
    assert "<svg" in shown
    assert "times as fast" in shown
    assert result.picture("timeline")._repr_svg_().startswith("<")
    with pytest.raises(KeyError, match="no picture is called 'nothing'"):
        result.picture("nothing")
    with pytest.raises(KeyError, match="draws no picture; to_frame"):
        simulator.law("durations_only").picture()
    assert simulator.law("durations_only")._repr_html_().count("<table") == 1


def modules_used(code: str) -> set[str]:
    """Return the modules of ours that a program names, below the package itself."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name for name in names if name.startswith("simulator.")}


@pytest.mark.parametrize(
    "path", sorted((ROOT / "notebooks").glob("*.py")), ids=lambda path: path.stem
)
def test_notebooks_use_nothing_deeper_than_the_face(path: Path) -> None:
    assert modules_used(path.read_text()) == set()


def test_documentation_uses_nothing_deeper_than_the_face() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    blocks = [
        block
        for page in pages
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    ]
    assert blocks
    assert set().union(*map(modules_used, blocks)) == set()


def test_compared_fleets_are_those_of_the_command(tmp_path: Path) -> None:
    log_ = str(log(tmp_path))
    asked = {"model": "lmsys/vicuna-7b-v1.3", "slo": "ttft_ms p95 < 1000", "requests": 4}
    result = simulator.compare_fleets(["a100_80g_sxm:1"], traffic=log_, draws=1, **asked)
    words = [word for name, value in asked.items() for word in (f"--{name}", str(value))]
    said = printed("plan", "--compare", "a100_80g_sxm:1", *words, "--traffic", log_, "--draws", "1")
    assert result.to_dict() == said
    assert list(result.to_frame()["fleet"]) == ["1 x a100_80g_sxm"]
    assert result.page
    assert "--compare a100_80g_sxm:1" in result.page.command
    result.save(tmp_path / "fleets")
    assert (tmp_path / "fleets" / "fleets.html").is_file()
    with pytest.raises(BadInput, match="--compare l4: expected NAME:N"):
        simulator.compare_fleets(["l4"], traffic=log_, **asked)
