"""Tokens of a step are those of an output: what a step verifies behind its end is counted beside
them, by law and by run.
"""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.scenario import Loaded, load
from simulator.scenario.evaluate import law, law_from, run, simulate
from simulator.studies.sweep.grid import law_columns
from simulator.studies.what_if import what_if
from tests.apart import kept

SERIAL = "strategy={name: vanilla_sd, gamma: 5}"
TIMES = "durations={target_ms: 10, draft_step_ms: 2}"
"""A step takes 20 ms."""


def world(
    *changes: str, output: Any = 10, acceptance: str = "{always: 5}", strategy: str = SERIAL
) -> Loaded:
    requests = f"requests={{count: 20, prompt_tokens: 8, output_tokens: {output}}}"
    return load("durations_only", [strategy, TIMES, f"acceptance={acceptance}", requests, *changes])


def test_an_end_inside_an_accepted_window_cuts_its_tokens() -> None:
    """Nine tokens behind the first in two steps of six: 4.5 of an output a step, 40 ms for nine."""
    result = run(world())
    for answer in (result.law, result.law_replayed, result.replay, result.simulated):
        assert answer.tokens_per_step == pytest.approx(4.5, rel=1e-12)
        assert answer.verified_per_step == pytest.approx(6.0, rel=1e-12)
        assert answer.tpot_s == pytest.approx(0.040 / 9, rel=1e-9)
    assert result.law.claim.exact
    assert result.agreement.claim.exact
    assert not result.agreement.disagreement


def test_commands_say_emitted_tokens_everywhere() -> None:
    words = ["--set", SERIAL, "--set", TIMES, "--set", "acceptance={always: 5}", "--set"]
    words += ["requests={count: 20, prompt_tokens: 8, output_tokens: 10}", "--json"]
    told = {
        name: json.loads(CliRunner().invoke(main, [name, "durations_only", *words]).stdout)
        for name in ("run", "law")
    }
    found = [
        told["run"][part]["tokens_per_step"]
        for part in ("law", "law_replayed", "replay", "simulated")
    ]
    assert [*found, told["law"]["law"]["tokens_per_step"]] == pytest.approx([4.5] * 5)
    assert told["run"]["simulated"]["verified_per_step"] == 6.0
    assert told["law"]["law"]["relation"] == "exact"
    page = what_if(world())
    place, window = page["start"]
    assert page["tpot_s"][place][window] == pytest.approx(0.040 / 9)
    columns = {"durations.target_ms": [10.0, 20.0]}
    assert law_columns(world(), columns)["tokens_per_step"].tolist() == pytest.approx([4.5, 4.5])


def test_a_law_of_independent_positions_knows_ends() -> None:
    """Windows of one token that is kept every other time: one step, and half the time a second, for
    two tokens.
    """
    loaded = world(
        "requests.count=4000",
        output=3,
        acceptance="{rate: 0.5}",
        strategy="strategy={name: vanilla_sd, gamma: 1}",
    )
    found = law(loaded.scenario, loaded.acceptance())
    assert found.tokens_per_step == pytest.approx(2 / 1.5, rel=1e-12)
    assert found.verified_per_step == 1.5
    assert found.relation == "exact"
    outcome, _ = simulate(loaded.scenario, loaded.acceptance())
    assert outcome.tokens_per_step == pytest.approx(2 / 1.5, rel=0.02)
    assert outcome.tpot_s == pytest.approx(found.tpot_s, rel=0.02)


@pytest.mark.parametrize(
    "strategy",
    [
        "strategy=autoregressive",
        "strategy={name: vanilla_sd, gamma: 3}",
        "strategy={name: vanilla_sd, gamma: 3, bonus_on_full_accept: false}",
        "strategy={name: vanilla_sd, gamma: oracle}",
        "strategy={name: vanilla_sd, gamma: 3, drafts_first: true}",
        "strategy={name: tree_sd, tree: {branching: [2, 2]}, passes: [{rows: [1, 2]}]}",
        "strategy={name: tree_sd, tree: {branching: [1, 1]}, matched: 0.4}",
    ],
)
def test_laws_that_call_themselves_exact_meet_a_simulation_of_short_outputs(strategy: str) -> None:
    loaded = world(
        "requests.count=3000",
        output="{name: uniform, least_tokens: 2, most_tokens: 9}",
        acceptance="{rate: 0.7}",
        strategy=strategy,
    )
    found, (outcome, _) = (
        law(loaded.scenario, loaded.acceptance()),
        simulate(loaded.scenario, loaded.acceptance()),
    )
    assert found.relation == "exact"
    assert found.tokens_per_step == pytest.approx(outcome.tokens_per_step, rel=0.02)
    assert found.verified_per_step == pytest.approx(outcome.verified_per_step, rel=0.02)


@pytest.mark.parametrize(
    ("strategy", "acceptance", "words"),
    kept(
        [
            (
                SERIAL,
                "{cycle: {accepted: [5, 0, 3]}}",
                "what steps keep is taken to be independent",
            ),
            (
                SERIAL,
                "{trace: six_flavours_greedy, stand_in: true}",
                "what steps keep is taken to be independent",
            ),
            (
                "strategy={name: mirror_sd, gamma: 5}",
                "{rate: 0.8, overlap: 0.9}",
                "the first steps of a request",
            ),
            (
                "strategy={name: vanilla_sd, gamma: 5, adaptive: moving}",
                "{rate: 0.8}",
                "the first steps of a request",
            ),
            ("strategy={name: lyanna, depth: 3}", "{rate: 0.8}", "the first steps of a request"),
        ]
    ),
)
def test_a_law_that_does_not_know_the_ends_is_not_exact_and_says_how_much_they_cut(
    strategy: str, acceptance: str, words: str
) -> None:
    loaded = world(strategy=strategy, acceptance=acceptance)
    found = law(loaded.scenario, loaded.acceptance())
    assert found.claim.relation == "idealised"
    assert words in found.claim.words
    cut = 1.0 - found.tokens_per_step / found.verified_per_step
    assert cut > 0.02
    assert found.claim.words.endswith(f"ends cut {cut:.2g} of the tokens of a step")
    outcome, _ = simulate(loaded.scenario, loaded.acceptance())
    assert outcome.tokens_per_step <= outcome.verified_per_step
    assert found.tokens_per_step == pytest.approx(outcome.tokens_per_step, rel=0.15)
    met = law_from(loaded.scenario, outcome)
    assert met.tokens_per_step == pytest.approx(outcome.tokens_per_step, rel=1e-9)


def test_what_is_counted_past_the_end_is_output() -> None:
    result = run(world("requests.past_end=counted"))
    for answer in (result.law, result.replay, result.simulated):
        assert answer.tokens_per_step == answer.verified_per_step == 6.0
    assert result.simulated.tokens == 20 * 13


def test_the_points_of_a_grid_are_the_laws_of_short_outputs() -> None:
    rates = [0.0, 0.3, 0.9, 1.0]
    for output in (2, 7, "{name: uniform, least_tokens: 3, most_tokens: 30}"):
        loaded = world(output=output, acceptance="{rate: 0.5}")
        one_by_one = []
        for rate in rates:
            point = world(output=output, acceptance=f"{{rate: {rate}}}")
            one_by_one.append(law(point.scenario, point.acceptance()).tokens_per_step)
        assert law_columns(loaded, {"acceptance.rate": rates})[
            "tokens_per_step"
        ].tolist() == pytest.approx(one_by_one, rel=1e-14)
