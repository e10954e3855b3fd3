"""Acceptance that can be borrowed: the shipped means, what is nearest to a pair, and how to measure
one's own.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from command_tree import choices

from simulator.cli.bank import OWN
from simulator.cli.main import main
from simulator.inputs.catalogue import Catalogue
from simulator.scenario import load
from simulator.scenario.bank import nearest, published, recordings
from simulator.scenario.evaluate import law


def call(*arguments: str) -> str:
    result = CliRunner().invoke(main, [*arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_published_mean_is_a_fact_with_a_source() -> None:
    """193 rows of 49 targets; a length fits its window, and one row whose rate has no settled
    meaning has no length.
    """
    means = [mean for _, mean in published(Catalogue())]
    assert (len(means), len({target for target, _ in published(Catalogue())})) == (193, 49)
    assert sum(mean.tokens_per_step is None for mean in means) == 1
    assert all(mean.source and mean.published for mean in means)
    for mean in means:
        if mean.window and "tree" not in mean.setting and mean.tokens_per_step:
            assert mean.tokens_per_step <= mean.window + 1.0, mean


def test_the_nearest_mean_says_in_what_it_differs() -> None:
    wanted = {"draft": None, "method": "eagle_3", "temperature": 0.0, "window": 3}
    first, second, *_ = nearest(Catalogue(), "qwen3-8b", wanted)
    assert (first.target, first.mean.tokens_per_step, first.unlike) == ("Qwen/Qwen3-8B", 2.26, ())
    assert second.unlike == ("temperature 0.6",)
    other = nearest(Catalogue(), "Qwen3-9B", wanted)[0]
    assert other.unlike == ("target Qwen/Qwen3-8B",)


def test_advice_can_be_pasted_into_a_scenario(tmp_path: Path) -> None:
    """For every method with a file and a stated window: the scenario commits the published mean."""
    advised = json.loads(
        call(
            "trace",
            "advise",
            "--target",
            "Llama-3.1-8B",
            "--method",
            "eagle_3",
            "--window",
            "3",
            "--json",
        )
    )
    block = advised["acceptance"]
    assert (block["method"], block["window"], block["confidence"]) == ("eagle_3", 3, "published")
    override = "acceptance=" + json.dumps(block)
    loaded = load("vanilla_llama_2_7b_a100", overrides=[override, "strategy.gamma=3"])
    assert loaded.scenario.acceptance.rescale is not None
    assert loaded.scenario.acceptance.rescale.tokens_per_step == block["tokens_per_step"]
    assert law(loaded.scenario, loaded.acceptance()).tokens_per_step == pytest.approx(
        block["tokens_per_step"], rel=0.15
    )
    assert advised["recording"]["name"] == "six_flavours_greedy:eagle"


def test_advice_on_a_terminal_says_how_far_and_how_to_measure() -> None:
    text = call(
        "trace",
        "advise",
        "--target",
        "Qwen3-8B",
        "--draft",
        "D",
        "--window",
        "5",
        "--engine",
        "llama_cpp",
        "--long",
    )
    for part in (
        "Nearest recording",
        "up to a factor of 2",
        "-md D.gguf --draft-max 5",
        "--from llama_cpp --window 5",
    ):
        assert part in " ".join(text.split())


@pytest.mark.parametrize("engine", OWN)
def test_measuring_ends_in_a_converter_or_the_recorder(engine: str) -> None:
    last = OWN[engine].strip().splitlines()[-1]
    assert last.startswith("specsim trace ")
    assert "trace record" in last or last.partition("--from ")[2].partition(" ")[0] in choices(
        "trace convert", "--from"
    )


def test_list_counts_scenarios_that_replay_a_recording() -> None:
    by_name = {recorded["recording"]: recorded for recorded in recordings(Catalogue())}
    plain = by_name["six_flavours_greedy:plain"]
    scenarios = [
        yaml.safe_load(path.read_text()) for path in Catalogue().names("scenario").values()
    ]
    named = [
        written
        for written in scenarios
        if (written.get("acceptance") or {}).get("drafter") == "plain"
    ]
    assert plain["scenarios"] >= len(named) > 0
    assert plain["tokens_per_step_at_3"] == 2.05
    data = json.loads(call("trace", "list", "--json"))
    assert data["published"] == {"means": 193, "targets": 49}
    assert len(data["recordings"]) == len(by_name)


def test_list_fits_a_screen_and_long_has_the_rest() -> None:
    """Each trace by the three drafters that keep most; all of them behind ``--long``."""
    short = call("trace", "list").splitlines()
    assert len(short) <= 10
    assert max(map(len, short)) <= 80
    traces = sorted(Catalogue().names("trace"))
    shown = [line.split()[1].rstrip(":") for line in short if line.startswith("Trace ")]
    assert sorted(shown) == traces
    assert "35 recordings to replay, and 193 published means of 49 targets" in short[1]
    long = call("trace", "list", "--long")
    for recorded in recordings(Catalogue()):
        assert recorded["recording"] in long
        assert recorded["pair"] in " ".join(long.split())


def test_means_are_listed_and_shown() -> None:
    assert "qwen3_8b_means" in call("list", "acceptance")
    assert "Qwen/Qwen3-8B" in call("show", "qwen3_8b_means")


def test_a_faulty_file_of_means_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "scenarios/acceptance"
    folder.mkdir(parents=True)
    (folder / "mine_means.yaml").write_text(
        "about: x\ntarget: T\nmeans:\n- {method: mtp, tokens_per_step: 0.5}\n"
    )
    result = CliRunner().invoke(
        main, ["trace", "advise", "--target", "T", "--catalogue", str(tmp_path)]
    )
    assert result.exit_code == 2
    assert "mine_means.yaml:4:" in result.stderr
    assert "tokens_per_step" in result.stderr
