"""An engine has ages: a name with a version leads to the file that holds for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.core.faults import BadInput
from simulator.inputs.ages import ages, of_month, of_version, version
from simulator.inputs.catalogue import Catalogue
from simulator.scenario import load

ENGINE = """about: An engine of {since}.
versions: {{first: '{first}', since: {since}, changed: Everything.}}
host_us_per_layer: 0
host_us_per_pass: {host}
small_operations_ratio: 1
kv_traffic_ratio: 1
sampling_us: 0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an engine of three ages, of which a pass takes 100, 200 and 300 us."""
    engines = tmp_path / "hardware_profiles/engines"
    engines.mkdir(parents=True)
    for name, first, since, host in (
        ("mine@0.9", "0.9", "2025-03", 100),
        ("mine@0.20", "0.20", "2025-09", 200),
        ("mine", "0.31", "2026-06", 300),
    ):
        text = ENGINE.format(first=first, since=since, host=host)
        (engines / f"{name}.yaml").write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0.9", (0, 9)), ("v0.10.2", (0, 10, 2)), ("0.2x", (0, 20)), ("new", None), ("", None)],
)
def test_a_version_is_its_numbers(text: str, numbers: tuple[int, ...] | None) -> None:
    assert version(text) == numbers


@pytest.mark.parametrize(
    ("asked", "held"),
    [
        ("mine@0.9", "mine@0.9"),
        ("mine@0.19.3", "mine@0.9"),
        ("mine@0.2x", "mine@0.20"),
        ("mine@0.31", "mine"),
        ("mine@1.0", "mine"),
        ("mine@0.8", None),
        ("yours@0.9", None),
        ("mine@new", None),
    ],
)
def test_a_version_leads_to_the_age_that_holds_for_it(
    asked: str, held: str | None, folder: Path
) -> None:
    files = Catalogue((folder,)).names("engine")
    assert of_version(asked, files) == held


def test_an_age_ends_where_its_file_says(folder: Path) -> None:
    path = folder / "hardware_profiles/engines/mine@0.9.yaml"
    path.write_text(path.read_text().replace("first: '0.9'", "first: '0.9', before: '0.12'"))
    files = Catalogue((folder,)).names("engine")
    asked = ("mine@0.11", "mine@0.12", "mine@0.20")
    assert [of_version(name, files) for name in asked] == ["mine@0.9", None, "mine@0.20"]


def test_a_month_leads_to_the_age_of_then(folder: Path) -> None:
    files = Catalogue((folder,)).names("engine")
    assert [age.name for age in ages("mine", files)] == ["mine@0.9", "mine@0.20", "mine"]
    months = ("2025-08", "2025-09", "2026-11", "2024-01")
    assert [of_month("mine", month, files) for month in months] == [
        *("mine@0.9", "mine@0.20", "mine"),
        "mine",
    ], "of an engine that is older than all ages nothing is known"
    assert of_month("ideal", "2025-07", files) == "ideal", "it has no ages"


def test_a_scenario_runs_on_the_version_that_it_names(folder: Path) -> None:
    for asked, host_us in (("mine", 300), ("mine@0.9", 100), ("mine@0.25.1", 200)):
        loaded = load(
            "autoregressive_qwen3_32b_a100", [f"target.engine={asked}"], Catalogue((folder,))
        )
        assert loaded.scenario.target is not None
        assert loaded.scenario.target.engine.host_us_per_pass.value == host_us
    with pytest.raises(BadInput, match=r"there is no engine 'mine@0\.8'"):
        load("autoregressive_qwen3_32b_a100", ["target.engine=mine@0.8"], Catalogue((folder,)))


def test_the_shipped_ages_of_vllm_are_shown_and_differ() -> None:
    done = CliRunner().invoke(main, ["list", "engine"])
    assert done.exit_code == 0
    assert "vllm@0.9" in done.output
    files = Catalogue().names("engine")
    assert of_version("vllm@0.13", files) == "vllm@0.9"
    assert of_version("vllm@0.2x", files) == "vllm"
    assert of_month("vllm", "2025-07", files) == "vllm@0.9"
