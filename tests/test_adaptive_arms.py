"""What adaptive verification loses to the best fixed window, and the order of released arms."""

from __future__ import annotations

import pytest

from benchmarks.adaptive_arms import crossings, in_order, ratios, tokens_of
from benchmarks.adaptive_regret import DRAWN, drawn_arms, placed, recorded_arms
from simulator.scenario.evaluate import law, tuned


def test_by_chances_of_positions_no_fixed_window_is_better_by_a_hundredth() -> None:
    """The arms share their draws, and the rule's own step is that of its law."""
    for arms in drawn_arms(2_000, (1, 8, 32)):
        assert arms.regret <= 0.01
        loaded = tuned(placed(*DRAWN, arms.requests))
        by_law = arms.requests / float(law(loaded.scenario, loaded.acceptance()).tpot_s)
        ends = law(loaded.scenario, loaded.acceptance()).share_emitted
        assert arms.adaptive == pytest.approx(by_law / ends, rel=0.03)
        assert arms.plain < arms.adaptive


def test_by_chances_of_tokens_it_is_ahead_of_every_fixed_window() -> None:
    (few, many) = recorded_arms(150, (2, 64))
    assert few.regret <= 0.01
    assert many.regret < -0.02


@pytest.mark.parametrize("layers", [1, 3])
def test_the_order_of_the_released_arms_comes_out_at_some_acceptance(layers: int) -> None:
    """Whatever is kept, the fixed block is ahead of none for few clients first; adaptive
    verification is behind it only by costs that were measured behind longer contexts.
    """
    ahead = crossings(layers)
    assert ahead[4] < ahead[32] < 2.0
    assert ahead[256] > 3.0
    assert tokens_of(0.71) == pytest.approx(3.23, abs=0.01)
    assert in_order(0.71, layers)
    assert not in_order(0.5, layers)
    assert not in_order(0.9, layers)
    assert ratios(32, 0.71, layers).adaptive == pytest.approx(1.0, abs=1e-3)
