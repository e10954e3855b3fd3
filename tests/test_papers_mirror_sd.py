"""Mirror-SD's Table 1: how far the committed predictions are off, and what both methods have in
common.
"""

from __future__ import annotations

import pytest
from papers import Committed

from simulator.evidence.fits import SCALES
from simulator.scenario import load


def test_errors_stay_within_the_bound_and_below_the_baseline() -> None:
    found = Committed("mirror_sd")
    assert found.paper.free == 9
    assert found.errors().mape < 0.09
    assert found.baseline().count == 18
    assert found.errors().mape < found.baseline().mape


def test_the_shipped_hardware_is_what_the_table_was_fitted_with() -> None:
    """One home: a new fit that is not carried into the profiles, or a profile that leaves the fit,
    fails here.
    """
    found = Committed("mirror_sd").paper
    shipped = load("mirror_qwen3_14b_m2_ultra").scenario.model_dump()
    for name in ("all_reduce", "npu_bandwidth"):
        parameter = found.parameters[name]
        fitted = SCALES[parameter.scale](found.fitted[name]["all"])
        for key in parameter.keys:
            number = shipped
            for part in key.split(".")[:-1]:
                number = number[part]
            assert number["value"] == pytest.approx(fitted, rel=2e-3), key
            assert number["confidence"] == "calibrated", key


def test_both_methods_keep_the_same_tokens_of_a_window() -> None:
    """App. B: acceptance is a matter of the draft, not of the schedule."""
    found = Committed("mirror_sd")
    serial, mirror = (
        found.paper.question(found.cells[f"mirror_sd_table1:{number}"]).run for number in (28, 33)
    )
    kept = [one.measured("simulated.verified_per_step") for one in (serial, mirror)]
    assert kept[0] == pytest.approx(kept[1])
