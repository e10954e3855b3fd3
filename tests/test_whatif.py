"""The studies behind the what-if pages: drafts of other sizes, crossovers as a page, and where a
network breaks a pipeline.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.core.acceptance.sources import Rates
from simulator.papers.specpipe.network import CLOSE, breaking, latency_sweep, study as network
from simulator.papers.specpipe.network_page import broken
from simulator.report.pages.drafts import sentences
from simulator.scenario import Loaded, load
from simulator.scenario.evaluate import baseline
from simulator.studies.drafts import LONGEST, RATES, study

SERIAL = [
    "strategy.drafter={name: autoregressive}",
    "draft.model=qwen3_0_6b",
    "target.tensor_parallel=4",
]


def with_draft(name: str) -> Loaded:
    return load("vanilla_qwen3_32b_a100", [*SERIAL, f"draft.model={name}"])


def worth(loaded: Loaded, rate: float) -> float:
    """The best window's law, put together here once more."""
    scenario = loaded.scenario
    times: list[float] = []
    for window in range(1, LONGEST + 1):
        one: Any = scenario.schedule.model_copy(update={"gamma": window})
        odds = Rates((rate,)).odds(window, None)
        law = one.law(
            scenario.cost,
            lambda gamma, odds=odds: odds,
            1,
            scenario.mean_context,
            outputs=scenario.outputs,
        )
        times.append(law.tpot_s)
    return baseline(scenario).tpot_s / min(times)


def test_a_bigger_draft_needs_what_makes_the_laws_equal() -> None:
    names = ("qwen3_0_6b", "qwen3_1_7b", "qwen3_8b")
    own, *others = (with_draft(name) for name in names)
    points = study([own, *others])
    assert [point.model for point in points.points] == list(names)
    assert points.stand_in
    assert points.own_speedup == pytest.approx(worth(own, points.own_rate), rel=1e-9)
    small, bigger, biggest = points.points
    assert small.needed == pytest.approx(points.own_rate, abs=1e-3)
    assert bigger.needed
    assert bigger.pays
    assert worth(others[0], bigger.needed) == pytest.approx(points.own_speedup, rel=1e-3)
    assert worth(others[0], bigger.pays) == pytest.approx(1.0, rel=1e-3)
    assert biggest.needed is None
    assert worth(others[1], 1.0) < points.own_speedup
    for one in points.points:
        assert list(one.speedups) == sorted(one.speedups)
        assert len(one.speedups) == len(RATES)
    assert "cannot come level" in list(sentences(points))[-1]


def test_drafts_speaks_of_serial_drafting_only() -> None:
    done = CliRunner().invoke(main, ["drafts", "mirror_qwen3_32b_a100", "--model", "qwen3_1_7b"])
    assert done.exit_code == 2
    assert "mirror_sd drafts on from an early exit of the target" in done.stderr
    assert "--set strategy=vanilla_sd compares them" in done.stderr


def test_drafts_as_page_and_as_json(tmp_path: Path) -> None:
    sets = [word for setting in SERIAL for word in ("--set", setting)]
    arguments = [
        "drafts",
        "vanilla_qwen3_32b_a100",
        *sets,
        "--model",
        "qwen3_1_7b",
        "--json",
        "--out",
        str(tmp_path / "page.md"),
    ]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert [point["model"] for point in json.loads(done.stdout)["points"]] == [
        "qwen3_0_6b",
        "qwen3_1_7b",
    ]
    assert "| qwen3_1_7b |" in (tmp_path / "page.md").read_text()
    assert (tmp_path / "page.svg").read_text().startswith("<?xml")


def test_crossovers_as_a_page(tmp_path: Path) -> None:
    arguments = [
        "crossovers",
        "methods_vicuna_7b_a100",
        "--only",
        "vanilla_sd",
        "--only",
        "pld",
        "--sizes",
        "1,8,64",
    ]
    done = CliRunner().invoke(main, [*arguments, "--out", str(tmp_path / "page.md")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page.md").read_text()
    assert "| vanilla_sd |" in page
    assert "falls behind first" in page or "never up to 64" in page


def test_where_a_network_breaks_a_pipeline() -> None:
    few = ["requests.count=2", "requests.output_tokens=16", "requests.prompt_tokens=64"]
    loaded = load("specpipe_llama_3_1_70b_two_servers", few)
    overlapped, in_turn = breaking(loaded)
    assert overlapped.latency_ms
    assert in_turn.latency_ms
    assert overlapped.latency_ms > in_turn.latency_ms
    assert overlapped.gbit_s
    assert in_turn.gbit_s
    assert overlapped.gbit_s <= in_turn.gbit_s * CLOSE
    one_server = latency_sweep(
        loaded, [overlapped.latency_ms * 1e3, overlapped.latency_ms * 1e3 / CLOSE]
    )
    least = network([loaded]).rows[0].tpot_ms
    assert one_server[0].overlapped_ms >= least > one_server[1].overlapped_ms
    assert "twice as long as on one server from" in next(broken([overlapped]))


PAGES = Path(__file__).parent.parent / "reports" / "whatif"
ANSWER = re.compile(r"^\| (.+?) \| (.+) \| \[.+?\]\((.+?)\) \|$", re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.,])\d(?:[\d,]*\d)?(?:\.\d+)?(?!\.?\w)")


def test_the_answers_of_the_index_stand_on_its_pages() -> None:
    rows = ANSWER.findall((PAGES / "README.md").read_text())
    assert len(rows) == 5
    for question, answer, page in rows:
        held = NUMBER.findall((PAGES / page).read_text())
        quoted = NUMBER.findall(answer)
        assert quoted, question
        assert [one for one in quoted if one not in held] == [], question
