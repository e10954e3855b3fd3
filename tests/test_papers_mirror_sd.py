"""Mirror-SD's Table 1: how far the committed predictions are off, and what both methods have in common."""

from __future__ import annotations

import pytest
from papers import Committed


def test_errors_stay_within_the_bound_and_below_the_guess() -> None:
    found = Committed("mirror_sd")
    assert found.paper.free == 9
    assert found.errors().mape < 0.09
    assert found.guesses().count == 18
    assert found.errors().mape < found.guesses().mape


def test_both_methods_keep_the_same_tokens_of_a_window() -> None:
    """App. B: acceptance is a matter of the draft, not of the schedule."""
    found = Committed("mirror_sd")
    serial, mirror = (found.paper.question(found.cells[f"mirror_sd_table1:{number}"]).run for number in (28, 33))
    kept = [one.measured("simulated.tokens_per_step") for one in (serial, mirror)]
    assert kept[0] == pytest.approx(kept[1])
