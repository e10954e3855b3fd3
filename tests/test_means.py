"""Stated acceptance: what no window allows, what contradicts itself, and what is continued past the
last known position.
"""

from __future__ import annotations

import json
from itertools import pairwise
from math import log

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as some

from simulator.cli.main import main
from simulator.core.faults import BadInput
from simulator.scenario import load
from simulator.scenario.evaluate import law, run
from simulator.scenario.loading import variant
from simulator.scenario.uncertain.draws import Doubt, interval
from simulator.scenario.uncertain.intervals import doubt_of

STATED = ("strategy.gamma=3", "durations={target_ms: 10, draft_step_ms: 1}")
CHAIN = "vanilla_llama_2_7b_a100"
TRACE = "trace: six_flavours_greedy, stand_in: true"


def refusal(acceptance: str, scenario: str = "durations_only", *more: str) -> str:
    """What is said of a scenario that is refused; empty where it is read."""
    try:
        load(scenario, ["strategy.gamma=3", f"acceptance={acceptance}", *more])
    except BadInput as error:
        return "\n".join(map(str, error.faults))
    return ""


IMPOSSIBLE = [
    (
        "{rate: 0.7, tokens_per_step_between: [2.0, 9]}",
        "cannot be: with a window of 3 draft tokens a step writes 1 to 4",
    ),
    (
        "{tokens_per_step: 2.5, tokens_per_step_between: [2.0, 4.1]}",
        "2 to 4.1 cannot be: with a window of 3",
    ),
    (
        "{accepted_share: 0.5, window: 2, tokens_per_step_between: [1.5, 3.5]}",
        "1.5 to 3.5 cannot be: with a window of 2",
    ),
    (f"{{{TRACE}, tokens_per_step_between: [2.0, 9]}}", "2 to 9 cannot be"),
    (
        f"{{{TRACE}, rescale: {{tokens_per_step: 2.5}}, tokens_per_step_between: [2.0, 9]}}",
        "2 to 9 cannot be",
    ),
    (
        "{tokens_per_step: {code: 3, maths: 2}, tokens_per_step_between: [2.0, 9]}",
        "2 to 9 cannot be",
    ),
    (
        "{rate: 0.7, by_context: {tokens_per_step: {1000: 6, 2000: 2}}}",
        "6 at 1,000 tokens cannot be: with a window of 3",
    ),
    ("{lengths: [2.05]}", "lengths: 2.05 cannot be: at window 1 a mean lies between 1 and 2"),
    (
        "{per_position: [0.9, 0.9, 0.9], tokens_per_step_between: [1.2, 1.5]}",
        (
            "by acceptance.per_position a step writes 3.44 tokens at window 3, which is not within "
            "1.2 to 1.5"
        ),
    ),
    (
        "{rate: 0.9, tokens_per_step_between: [1.2, 1.5]}",
        "by acceptance.rate a step writes 3.44 tokens",
    ),
    (
        "{lengths: [1.9, 2.7, 3.4], tokens_per_step_between: [1.2, 1.5]}",
        "by acceptance.lengths a step writes 3.4 tokens",
    ),
    (
        "{tokens_per_step: 2.5, tokens_per_step_between: [2.6, 3]}",
        "by acceptance.tokens_per_step a step writes 2.5 tokens",
    ),
    (
        "{tokens_per_step: {code: 3, maths: 2}, tokens_per_step_between: [3.2, 3.9]}",
        "which is not within 3.2 to 3.9",
    ),
]


@pytest.mark.parametrize(
    ("acceptance", "expected"), IMPOSSIBLE, ids=[acceptance for acceptance, _ in IMPOSSIBLE]
)
def test_a_mean_that_no_window_allows_is_refused(acceptance: str, expected: str) -> None:
    assert expected in refusal(
        acceptance,
        CHAIN if "six" in acceptance or "tokens_per_step:" in acceptance else "durations_only",
    )


@pytest.mark.parametrize(
    "acceptance",
    [
        "{rate: 0.7, tokens_per_step_between: [1.0, 4.0]}",
        "{per_position: [0.84, 0.81, 0.60], tokens_per_step_between: [2.18, 3.1]}",
        "{lengths: [2.0, 3.0, 4.0]}",
    ],
)
def test_what_lies_at_the_bounds_is_read(acceptance: str) -> None:
    assert refusal(acceptance) == ""


@pytest.mark.parametrize(("share", "tokens"), [(0.0, 1.0), (1.0, 4.0)])
def test_nothing_and_everything_accepted_are_means_like_others(share: float, tokens: float) -> None:
    loaded = load(CHAIN, ["strategy.gamma=3", f"acceptance={{accepted_share: {share}, window: 3}}"])
    assert law(loaded.scenario, loaded.acceptance()).tokens_per_step == pytest.approx(
        tokens, rel=0.02
    )


def test_a_range_is_kept_at_the_window_for_which_it_is_stated() -> None:
    """2 to 3 at three tokens, of which 1.5 are accepted in the mean: at one token 0.6 is accepted,
    so 1.4 to 1.8.
    """
    base = load(
        "durations_only",
        [*STATED, "acceptance={per_position: [0.6], tokens_per_step_between: [2.0, 3.0]}"],
    )
    accepted = 0.6 + 0.36 + 0.216
    narrow = variant(base, {"strategy.gamma": 1})
    low, high = (1.0 + (end - 1.0) / accepted * 0.6 for end in (2.0, 3.0))
    found = doubt_of(narrow, ()).acceptance
    assert found == pytest.approx((log(low / 1.6), min(log(high / 1.6), log(2.0 / 1.6))))


def test_no_draw_is_beyond_the_window() -> None:
    """A step of 3.8 tokens at window 3 may write 4 at most, however wide the range and the
    draws.
    """
    doubt = Doubt(
        (), {}, (log(1.0 / 3.8), log(4.0 / 3.8)), possible=(log(1.0 / 3.8), log(4.0 / 3.8))
    )
    found = interval(2.0, doubt)
    assert found.high <= 2.0 * 4.0 / 3.8 * (1.0 + 1e-12)
    assert found.low >= 2.0 / 3.8 * (1.0 - 1e-12)
    without = interval(
        2.0,
        Doubt(
            (), {"acceptance behind long contexts": 0.5}, possible=(log(1.0 / 3.8), log(4.0 / 3.8))
        ),
    )
    assert without.high == pytest.approx(2.0 * 4.0 / 3.8)


@settings(deadline=None, max_examples=30)
@given(
    rate=some.floats(0.05, 0.95),
    gamma=some.integers(1, 6),
    ends=some.tuples(some.floats(0.0, 1.0), some.floats(0.0, 1.0)),
)
def test_a_speedup_by_any_range_is_one_of_a_possible_mean(
    rate: float, gamma: int, ends: tuple[float, float]
) -> None:
    """Between 1 and the mean, and the mean and window + 1: the speed-up lies between those of 1 and
    of window + 1 tokens.
    """
    mean = float(np.sum(rate ** np.arange(gamma + 1)))
    between = f"[{1.0 + (mean - 1.0) * ends[0]:.6f}, {mean + (gamma + 1.0 - mean) * ends[1]:.6f}]"
    words = [
        f"strategy.gamma={gamma}",
        STATED[1],
        f"acceptance={{rate: {rate}, tokens_per_step_between: {between}}}",
    ]
    found = interval(1.0, doubt_of(load("durations_only", words), ()))
    assert 1.0 / mean * (1 - 1e-9) <= found.low <= found.high <= (gamma + 1.0) / mean * (1 + 1e-9)


# ---- continued past the last known position

CONTINUED = [
    ("{lengths: [1.8]}", "windows of up to 1 draft tokens are known; at 3 the curve is continued"),
    (
        "{per_position: [0.8]}",
        "rates of the first 1 draft tokens are known; up to 3 the last is repeated",
    ),
    (
        "{per_position: [0.8, 0.7]}",
        "rates of the first 2 draft tokens are known; up to 3 the last is repeated",
    ),
    (
        "{per_position: [0.8, 0.75, 0.7], known_positions: 1}",
        "the first 1 draft tokens are known; up to 3 they are cont",
    ),
]


@pytest.mark.parametrize(
    ("acceptance", "expected"), CONTINUED, ids=[acceptance for acceptance, _ in CONTINUED]
)
def test_continued_rates_are_said_beside_the_headline_with_their_range(
    acceptance: str, expected: str
) -> None:
    """And the interval of the speed-up holds what the ends of that range would give."""
    loaded = load("durations_only", [*STATED, f"acceptance={acceptance}"])
    result = run(loaded)
    said = [text for text in result.cautions if expected in text]
    assert len(said) == 1
    further = loaded.scenario.acceptance.continuation(3)
    assert further is not None
    assert said[0].endswith(
        f"{further.length:.3g} tokens a step, in four of five drafters {further.low:.3g} to "
        f"{further.high:.3g}"
    )
    assert further.low < further.length < further.high < 4.0
    found = interval(result.speedup, doubt_of(loaded, ()))
    assert found.low <= result.speedup * further.low / further.length
    assert found.high >= result.speedup * further.high / further.length


def test_known_rates_are_not_said_to_be_continued() -> None:
    for acceptance in (
        "{lengths: [1.8, 2.4, 2.8]}",
        "{per_position: [0.8, 0.7, 0.6]}",
        "{rate: 0.8}",
    ):
        loaded = load("durations_only", [*STATED, f"acceptance={acceptance}"])
        assert loaded.scenario.acceptance.continuation(3) is None
        assert doubt_of(loaded, ()).acceptance == (0.0, 0.0)


def test_the_range_of_a_continued_length_is_possible() -> None:
    """A further draft token adds nothing at least, and at most what the last known one added."""
    loaded = load("durations_only", ["strategy.gamma=12", "acceptance={per_position: [0.9, 0.5]}"])
    for window, wider in pairwise(range(3, 13)):
        near, far = (loaded.scenario.acceptance.continuation(one) for one in (window, wider))
        assert near is not None
        assert far is not None
        assert 1.0 + 0.9 + 0.45 <= near.low <= near.high <= 1.0 + 0.9 + 0.45 * (window - 1)
        assert far.high >= near.high


def test_law_and_compare_say_what_is_continued() -> None:
    words = ["durations_only", "--set", "strategy.gamma=3", "--set", "acceptance={lengths: [1.8]}"]
    done = CliRunner().invoke(main, ["law", *words, "--json"])
    assert any("the curve is continued" in text for text in json.loads(done.stdout)["cautions"])
    assert "the curve is continued" in " ".join(
        CliRunner().invoke(main, ["law", *words]).output.split()
    )


def test_a_log_that_is_continued_says_so() -> None:
    words = [
        "trace",
        "convert",
        "1.84, 2.50, 2.99",
        "--from",
        "golden_lengths",
        "--window",
        "6",
        "--json",
    ]
    done = CliRunner().invoke(main, words)
    block = json.loads(done.stdout)["acceptance"]
    assert (block["known_positions"], len(block["per_position"])) == (3, 6)
