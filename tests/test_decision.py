"""Whether to switch speculation on: chance, verdict, where it flips and what would settle it, in a
world whose numbers are worked out by hand.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

from simulator.cli.main import main
from simulator.core.acceptance.spec import AcceptanceSpec, Rescale
from simulator.report.blocks import Bullets, Highlight, Paragraph, Strong
from simulator.report.pages import (
    batches as batches_page,
    decision as words,
    methods as methods_page,
)
from simulator.scenario import Loaded, load
from simulator.scenario.decision.answer import (
    AcceptanceOrigin,
    AcceptanceTurn,
    Along,
    Decision,
    FewerTokens,
    Flips,
    Measurement,
    Setting,
    Side,
    Turn,
)
from simulator.scenario.decision.by_law import by_law
from simulator.scenario.decision.decide import acceptance_origin, decide
from simulator.scenario.decision.flips import along, flips
from simulator.scenario.decision.verdict import verdict
from simulator.scenario.uncertain.draws import DRAWS, Doubt, Drawn, drawn
from simulator.scenario.uncertain.footings import ACCEPTANCE, Footing
from simulator.scenario.uncertain.intervals import run_with_interval
from simulator.studies.batches import study as batches
from simulator.studies.methods import candidates, study as methods

WORLD = """
strategy: {{name: vanilla_sd, gamma: 3}}
durations: {{target_ms: {target}, draft_step_ms: {draft}}}
acceptance: {acceptance}
requests: {{concurrency: {concurrency}, count: 100, prompt_tokens: 1000, output_tokens: 2001}}
"""


def world(
    folder: Path,
    target: str = "{base_ms: 23, row_ms: 1}",
    draft: int = 6,
    acceptance: str = "{rate: 0.8}",
    concurrency: int = 1,
) -> Loaded:
    """Vanilla decoding with three draft tokens; by default a plain step of 24 ms, and one of 45 ms
    that drafts (3 x 6, and 23 + 4 for four rows).
    """
    path = folder / "world.yaml"
    path.write_text(
        WORLD.format(target=target, draft=draft, acceptance=acceptance, concurrency=concurrency)
    )
    return load(str(path))


# ---- where it flips


def test_the_batch_at_which_both_are_equally_fast(tmp_path: Path) -> None:
    """Three tokens in 12 + 10 + 4 B ms against 10 + B ms each: equal at B = 8."""
    loaded = world(tmp_path, "{base_ms: 10, row_ms: 1}", 4, "{always: 2}")
    by_batch = flips(loaded, 1).batch
    assert by_batch == Along(1, 1, 256, True, (Turn(8, False),))


def test_clients_that_wait_for_room_turn_it(tmp_path: Path) -> None:
    """A draft of 3 x 15 ms makes three tokens in 69 ms out of one in 24 ms: 1.04 times at every
    batch. Of ten clients nine run beside the four draft tokens of each, and all ten without: 27
    tokens in 69 ms are fewer than 10 in 24 ms.
    """
    loaded = world(tmp_path, "24", 15, "{always: 2}")
    assert flips(loaded, 1).batch == Along(1, 1, 256, True, ())
    memory = {"kv_tokens": 10 * 3001, "block_tokens": 1}
    text = (tmp_path / "world.yaml").read_text() + f"serving: {{memory: {memory}}}\n"
    (tmp_path / "world.yaml").write_text(text)
    full = load(str(tmp_path / "world.yaml"))
    assert flips(full, 1).batch == Along(1, 1, 256, True, (Turn(10, False),))


def test_the_context_at_which_both_are_equally_fast(tmp_path: Path) -> None:
    """Two tokens in 12 + 14 + x ms against 11 + x ms each: equal at x = 4 ms, 4,000 tokens; known
    to a 64th."""
    target = "{base_ms: 10, row_ms: 1, cached_token_ms: 0.001}"
    by_context = flips(world(tmp_path, target, 4, "{always: 1}"), 1).context
    (turn,) = by_context.turns
    assert (by_context.now, by_context.first, by_context.faster_at_first) == (2000, 128, False)
    assert turn.faster
    assert 4000 < turn.at <= 4000 * 65 / 64


def test_the_acceptance_at_which_both_are_equally_fast(tmp_path: Path) -> None:
    """45 ms over 24 ms are 1.875 tokens: 1 + a + a^2 + a^3 with a = 1/2."""
    by_acceptance = flips(world(tmp_path), 1).acceptance
    assert by_acceptance.now == pytest.approx(2.952, rel=1e-3)
    assert by_acceptance.chance == pytest.approx(0.5, abs=2e-3)
    assert by_acceptance.tokens_per_step == pytest.approx(1.875, rel=3e-3)
    assert by_acceptance.faster_at_last


@pytest.mark.parametrize(("draft", "faster"), [(0, None), (100, False)])
def test_drafts_for_nothing_and_drafts_for_ever_flip_at_the_ends(
    draft: int, faster: bool | None, tmp_path: Path
) -> None:
    """Three drafts of 100 ms and a pass of 27 ms bring four tokens at most, in 96 ms of plain
    decoding; without their time, 27 of 24 ms are 1.125 tokens.
    """
    by_acceptance = flips(world(tmp_path, draft=draft), 1).acceptance
    if faster is None:
        assert by_acceptance.tokens_per_step == pytest.approx(1.125, rel=5e-3)
    else:
        assert by_acceptance == AcceptanceTurn(by_acceptance.now, None, None, faster)


def test_a_flip_is_found_from_wherever_one_looks(tmp_path: Path) -> None:
    loaded = world(tmp_path, "{base_ms: 10, row_ms: 1}", 4, "{always: 2}", concurrency=100)
    assert flips(loaded, 100).batch == Along(100, 1, 256, True, (Turn(8, False),))


@given(
    turn=st.integers(2, 300),
    now=st.integers(1, 256),
    last=st.integers(1, 256),
    faster=st.booleans(),
)
def test_a_single_turn_is_found_exactly(turn: int, now: int, last: int, faster: bool) -> None:
    most = max(now, last)
    found = along(lambda value: (value >= turn) == faster, now, 1, most)
    expected = (Turn(turn, faster),) if turn <= most else ()
    assert found == Along(now, 1, most, not faster, expected)


# ---- the chance


def drafting(tmp_path: Path, changes: np.ndarray[Any, Any], value: float) -> Decision:
    """The decision of the world where draws are given."""
    decision = decide(world(tmp_path), Drawn(value, changes), [], 1)
    assert decision is not None
    return decision


def test_the_chance_is_the_share_of_draws_above_one(tmp_path: Path) -> None:
    changes = np.log(np.array([0.5, 0.9, 1.1, 2.0]))
    decision = drafting(tmp_path, changes, 1.0)
    assert (decision.chance, decision.verdict) == (0.5, "may hurt")
    assert drafting(tmp_path, changes, 3.0).verdict == "helps"
    assert drafting(tmp_path, changes, 0.4).verdict == "hurts"


@given(value=st.floats(0.3, 3.0), change=st.floats(0.01, 0.5))
def test_chance_and_interval_agree(value: float, change: float) -> None:
    """An interval of 90 % above 1 leaves at most 5 % of the draws below, and the reverse."""
    draws = drawn(value, Doubt((), {"a": change}))
    low, high = draws.interval()
    chance = draws.chance_above(1.0)
    rounding = 1.0 / DRAWS
    if low > 1.0:
        assert chance >= 0.95 - rounding
        assert verdict(chance) == "helps"
    elif high < 1.0:
        assert chance <= 0.05 + rounding
        assert verdict(chance) == "hurts"
    else:
        assert 0.05 - rounding <= chance <= 0.95 + rounding


def test_half_a_token_less_takes_its_share_of_the_speedup(tmp_path: Path) -> None:
    """2.452 of 2.952 tokens; 1.5744 times become 1.3077."""
    decision = by_law(world(tmp_path)).decision
    assert decision is not None
    assert decision.first.speedup == pytest.approx(24 * 2.952 / 45, rel=1e-3)
    fewer = decision.half_a_token_less
    assert fewer is not None
    assert fewer.tokens_per_step == pytest.approx(2.452, rel=1e-3)
    assert fewer.speedup == pytest.approx(24 * 2.452 / 45, rel=1e-3)
    assert fewer.verdict == "helps"


def test_no_step_brings_less_than_plain_decoding(tmp_path: Path) -> None:
    decision = by_law(world(tmp_path, acceptance="{rate: 0.2}")).decision
    assert decision is not None
    fewer = decision.half_a_token_less
    assert fewer is not None
    assert fewer.tokens_per_step == 1.0
    assert fewer.speedup == pytest.approx(24 / 45)


def test_plain_decoding_asks_no_question(tmp_path: Path) -> None:
    loaded = load("autoregressive_qwen3_32b_a100")
    assert by_law(loaded).decision is None


def test_a_closed_loop_is_decided_by_its_tokens_per_second(tmp_path: Path) -> None:
    """Prompts take their time on both sides, so that tokens per second gain less."""
    changes = np.zeros(4)
    decision = decide(world(tmp_path), Drawn(1.5, changes), [], 1, throughput=0.9)
    assert decision is not None
    assert decision.first == Side("output tokens per second", 0.9, 0.0)
    assert decision.other == Side("time per token", 1.5, 1.0)
    assert (decision.verdict, decision.both) == ("hurts", True)
    near = decide(world(tmp_path), Drawn(1.5, changes), [], 1, throughput=1.49)
    assert near is not None
    assert not near.both


def test_a_run_decides_with_the_draws_of_its_interval(tmp_path: Path) -> None:
    result, interval = run_with_interval(world(tmp_path))
    assert result.decision is not None
    assert result.decision.other == Side("time per token", result.speedup, 1.0)
    assert result.decision.first.speedup == result.speedup_with_prompts
    assert interval.low > 1.0


# ---- what it rests on, and what would settle it


@pytest.mark.parametrize(
    ("spec", "origin"),
    [
        (AcceptanceSpec(trace="x"), AcceptanceOrigin("recorded", "x, drafter draft", "", False)),
        (
            AcceptanceSpec(trace="x", stand_in=True),
            AcceptanceOrigin("borrowed", "x, drafter draft", "borrowed", False),
        ),
        (
            AcceptanceSpec(
                trace="x", stand_in=True, rescale=Rescale(tokens_per_step=3, source="a paper")
            ),
            AcceptanceOrigin(
                "borrowed",
                "3 tokens per step, a paper; bursts of x, drafter draft",
                "assumed",
                False,
            ),
        ),
        (
            AcceptanceSpec(
                trace="x",
                stand_in=True,
                rescale=Rescale(tokens_per_step=3, window=5, source="here", confidence="measured"),
            ),
            AcceptanceOrigin(
                "stated",
                "3 tokens per step of 5 draft tokens, here; bursts of x, drafter draft",
                "measured",
                False,
            ),
        ),
        (AcceptanceSpec(rate=0.5), AcceptanceOrigin("stated", "", "assumed", False)),
        (
            AcceptanceSpec(rate=0.5, source="logs", confidence="borrowed"),
            AcceptanceOrigin("borrowed", "logs", "borrowed", False),
        ),
    ],
)
def test_acceptance_is_recorded_stated_or_borrowed(
    spec: AcceptanceSpec, origin: AcceptanceOrigin
) -> None:
    assert acceptance_origin(spec) == origin


def in_doubt(parameter: str, change: float) -> Footing:
    return Footing(parameter, 1.0, "assumed", "a guess", change)


@pytest.mark.parametrize(
    ("acceptance", "doubted", "what"),
    [
        ("{rate: 0.8}", [], "acceptance"),
        ("{rate: 0.8}", [in_doubt("target.engine.schedule_us", -0.1)], "acceptance"),
        ("{rate: 0.8}", [in_doubt("target.engine.schedule_us", -0.2)], "step"),
        ("{rate: 0.8}", [in_doubt("draft.engine.schedule_us", -0.2)], "draft"),
        ("{rate: 0.8}", [in_doubt("channel.latency_us", 0.2)], "link"),
        ("{rate: 0.8, confidence: measured}", [in_doubt("target.engine.x", -0.01)], "step"),
        ("{rate: 0.8, confidence: measured}", [in_doubt("target.engine.x", -0.001)], None),
        ("{rate: 0.8, confidence: measured}", [], None),
        ("{rate: 0.8}", [in_doubt(ACCEPTANCE, -0.05), in_doubt("draft.x", -0.04)], "acceptance"),
    ],
)
def test_the_largest_doubt_is_what_to_measure(
    acceptance: str, doubted: list[Footing], what: str | None, tmp_path: Path
) -> None:
    """Half a token of 2.95 is 17 % of the speed-up, where acceptance is a guess without a range."""
    loaded = world(tmp_path, acceptance=acceptance)
    decision = decide(loaded, Drawn(1.0, np.zeros(2)), doubted, 1)
    assert decision is not None
    measured = decision.measurement
    assert (measured.what if measured else None) == what


# ---- in words


def said(**changes: Any) -> Decision:
    """A decision of round numbers."""
    decision = Decision(
        first=Side("time per token", 1.5, 0.96),
        other=None,
        setting=Setting(4, 3, 1000, 2.5),
        flips=Flips(
            Along(4, 1, 256, True, (Turn(17, False),)),
            Along(1000, 128, 40_960, True, ()),
            AcceptanceTurn(2.5, 1.6, 0.4, True),
        ),
        rests_on=AcceptanceOrigin("recorded", "mine, drafter draft", "", False),
        half_a_token_less=FewerTokens(2.0, 1.2, 0.7),
        measurement=Measurement("step", "target.engine.x", "assumed", -0.096),
    )
    return replace(decision, **changes)


def test_a_decision_in_words() -> None:
    assert words.sentence(said()) == (
        "Speculation helps: 96 % chance that it is faster than plain decoding."
    )
    assert list(words.highlights(said())) == [
        Highlight(
            "96 %", "chance that speculation is faster than plain decoding: it helps", "helps"
        )
    ]
    assert words.reasons(said()) == Bullets(
        [
            (
                Strong("Flips:"),
                " slower from a batch of 17 on; no context from 128 to 40,960 tokens changes this; "
                "as fast as plain decoding at 1.60 tokens per step, 40 % of draft tokens kept (now "
                "2.50).",
            ),
            (
                Strong("Acceptance:"),
                " 2.50 tokens per step of 3 draft tokens, recorded from these models (mine, "
                "drafter draft).",
            ),
            (Strong("Half a token less per step:"), " 1.20x (may hurt, 70 %)."),
            (
                Strong("To settle it:"),
                " measure a step at batch 4 with K 3 and with none (target.engine.x, assumed, "
                "speed-up -9.6 %).",
            ),
        ]
    )
    assert words.led(None, "Plain.") == "Plain."
    assert list(words.highlights(None)) == []


def test_both_measures_are_said_where_they_differ() -> None:
    decision = said(
        first=Side("output tokens per second", 0.9, 0.1), other=Side("time per token", 1.5, 0.96)
    )
    assert words.beside(decision) == "; in output tokens per second 0.90x (hurts, 10 %)"
    fewer = dict(words.said(decision))["Half a token less per step"]
    assert fewer == "1.20x in output tokens per second (may hurt, 70 %)"
    assert words.beside(said()) == words.beside(None) == ""


@pytest.mark.parametrize(
    ("chance", "text"),
    [(1.0, "over 99 %"), (0.995, "over 99 %"), (0.99, "99 %"), (0.004, "under 1 %"), (0.5, "50 %")],
)
def test_no_draws_make_certain(chance: float, text: str) -> None:
    assert words.chance_words(chance) == text


def test_what_never_flips_is_said() -> None:
    alone = Along(1, 1, 1, True, ())
    context = Along(10, 10, 20, False, (Turn(12, True), Turn(15, False)))
    assert words.flips(Flips(alone, context, AcceptanceTurn(2.0, None, None, True))) == (
        "it takes one request at a time; faster from a context of 12 tokens on, slower from a "
        "context of 15 tokens on; faster even if no draft token is kept"
    )
    unchanged = Along(4, 1, 64, True, ()), Along(100, 128, 4096, True, ())
    assert words.flips(Flips(*unchanged, AcceptanceTurn(2.0, None, None, True))) == (
        "no batch up to 64 and no context from 128 to 4,096 tokens changes this; faster even if no "
        "draft token is kept"
    )
    assert words.acceptance_turn(AcceptanceTurn(2.0, None, None, False)) == (
        "slower even if every draft token is kept"
    )
    assert words.acceptance_turn(AcceptanceTurn(2.0, 1.5, None, True)) == (
        "as fast as plain decoding at 1.50 tokens per step (now 2.00)"
    )


@pytest.mark.parametrize(
    ("origin", "text"),
    [
        (
            AcceptanceOrigin("borrowed", "", "borrowed", False),
            "borrowed from other models; the chance takes it as it is",
        ),
        (
            AcceptanceOrigin("stated", "a paper (with notes): more", "published", True),
            "stated (published, a paper); the chance counts its range",
        ),
    ],
)
def test_acceptance_in_words(origin: AcceptanceOrigin, text: str) -> None:
    assert words.acceptance(origin) == text


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("acceptance", "record acceptance on your prompts (assumed,"),
        ("draft", "measure a pass of the draft at batch 4 (x, assumed,"),
        ("link", "measure a transfer over the link (x, assumed,"),
    ],
)
def test_what_to_measure_in_words(what: Any, text: str) -> None:
    found = words.measurement(Measurement(what, "x", "assumed", 0.05), said().setting)
    assert found == f"{text} speed-up +5.0 %)"


# ---- batches and methods


def test_every_simulated_batch_has_a_chance_by_its_tokens_per_second(tmp_path: Path) -> None:
    """Nothing is in doubt in this world: the chance is 0 or 1. Three tokens in 22 + 4 B ms and
    10 + B ms each are equal at B = 8.
    """
    loaded = world(tmp_path, "{base_ms: 10, row_ms: 1}", 4, "{always: 2}")
    (one,) = batches([loaded], [1, 4, 32], [1, 4, 32]).studies
    chances = {point.batch: (point.chance, point.verdict) for point in one.points}
    assert chances == {1: (1.0, "helps"), 4: (1.0, "helps"), 32: (0.0, "hurts")}
    assert one.decision is not None
    assert one.decision.first.measure == "output tokens per second"
    assert one.decision.first.speedup == one.points[0].simulated_speedup
    data = batches([loaded], [4], []).as_data()
    assert data["decision"]["measures"][0]["measure"] == "time per token"
    assert (data["batches"][0]["chance"], data["batches"][0]["verdict"]) == (None, "")


def test_a_batch_study_of_one_scenario_begins_with_the_decision(tmp_path: Path) -> None:
    loaded = world(tmp_path)
    alone = batches_page.page(batches([loaded], [1], [1]))
    assert alone.answer.startswith("Speculation helps: over 99 % chance")
    assert isinstance(alone.opening[0], Bullets)
    both = batches_page.page(batches([loaded, loaded], [1], [1]))
    assert both.answer.startswith("By law")
    first, reasons, *_ = both.sections[0].blocks
    assert first == Paragraph(
        "Speculation helps: over 99 % chance that it is faster than plain decoding."
    )
    assert isinstance(reasons, Bullets)


def test_every_method_has_a_decision_and_the_first_comes_first() -> None:
    small = ["requests.count=2", "requests.output_tokens=16"]
    found = list(candidates("methods_vicuna_7b_a100", small, only=["hydra"]))
    compared = methods(found, "methods_vicuna_7b_a100")
    (point, *_) = compared.points
    assert point.decision is not None
    assert point.decision.other == Side(
        "time per token", point.speedup, point.decision.other.chance if point.decision.other else 0
    )
    row = compared.as_data()["methods"][0]
    assert row["decision"] == point.decision.as_data()
    page = methods_page.page(compared)
    assert page.answer.startswith(f"Speculation with hydra {point.decision.verdict}: ")


# ---- as commands print it


@pytest.mark.few(1)
@pytest.mark.parametrize("command", ["run", "law"])
def test_the_decision_comes_first_and_stands_in_the_json(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    world(tmp_path)
    shown = CliRunner().invoke(main, [command, "./world.yaml"])
    assert shown.exit_code == 0, shown.output
    answer = shown.stdout.splitlines()[1].removeprefix("Answer").lstrip()
    assert answer.startswith("Speculation helps: over 99 % chance")
    printed = CliRunner().invoke(main, [command, "./world.yaml", "--json"])
    data = json.loads(printed.stdout)
    decision = data["decision"]
    assert (decision["chance"], decision["verdict"]) == (1.0, "helps")
    assert set(decision) == {
        *("chance", "verdict", "measures", "setting", "flips", "rests_on"),
        *("half_a_token_less", "measurement"),
    }
    assert decision["half_a_token_less"]["verdict"] == "helps"
    assert decision["flips"]["batch"] == {
        "now": 1,
        "first": 1,
        "last": 256,
        "faster_at_first": True,
        "turns": [{"at": 26, "faster": False}],
    }
    assert data["speedup_interval"]["low"] > 1.0


def test_a_window_that_follows_confidence_has_a_turn_by_acceptance() -> None:
    """Its law knows no other chance than that of the recording: the step stays as long as it is."""
    confident = ["acceptance.drafter=draft", "strategy.adaptive={name: confidence, p_min: 0.6}"]
    loaded = load("vanilla_llama_2_7b_a100", ["strategy.gamma=8", "requests.count=4", *confident])
    turn = by_law(loaded).decision.flips.acceptance
    assert turn.chance is None
