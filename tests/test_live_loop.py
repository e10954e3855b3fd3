"""The loop on a running vLLM, from the record that is kept: predictions are made anew, and the page
says what comes of them. ``benchmarks/live/vllm/README.md`` says how the record was made.
"""

from __future__ import annotations

from functools import lru_cache

import pytest

from benchmarks.live.vllm.judged import Judged, Verdict, as_csv, judge
from benchmarks.live.vllm.kept import Measured, Recording, read
from benchmarks.live.vllm.loop import PROFILE, RECORD, REPORT
from benchmarks.live.vllm.predicted import TERMS, Profile
from benchmarks.live.vllm.settings import CALIBRATION, OUTPUT_TOKENS


@lru_cache
def recording() -> Recording:
    return read(RECORD)


@lru_cache
def verdict() -> Verdict:
    profile = Profile(PROFILE, recording())
    return judge(recording(), {cell: profile.predict(cell) for cell in recording().cells})


def test_predictions_of_the_record_are_those_of_the_table() -> None:
    assert as_csv(verdict().numbers) == (REPORT / "cells.csv").read_text("utf-8")


def test_at_most_eight_numbers_are_fitted_to_plain_and_k_3() -> None:
    assert len(TERMS) <= 8
    assert {name for name, _ in CALIBRATION} == {"plain", "draft_3"}
    assert [tuple(cell) for cell in recording().about["calibration"]] == sorted(CALIBRATION)


def test_each_step_of_a_draft_model_is_that_of_the_family() -> None:
    """The trace was recorded without the engine; greedy steps have to be the same to the last."""
    profile = Profile(PROFILE, recording())
    for cell in recording().cells:
        if cell[0].startswith("draft") and cell[1] != "poisson":
            steps = {turn[cell].counted["drafts"] for turn in recording().turns}
            assert steps == {profile.steps(cell)}, cell


def test_no_request_was_preempted_or_cut() -> None:
    for turn in recording().turns:
        for cell, measured in turn.items():
            counted = measured.counted
            assert counted["preemptions"] == 0, cell
            assert counted["output_tokens"] == OUTPUT_TOKENS * len(measured.ttft_s)


def test_times_of_a_cell_are_means_over_its_requests() -> None:
    cell = Measured(4.0, [0.0, 1.0], [0.1, 0.3], [1.0, 2.0], 11, {}, 0.0, 0.0)
    assert cell.tpot_ms == pytest.approx(150.0)
    assert cell.ttft_ms == pytest.approx(200.0)
    assert cell.tokens_per_s == pytest.approx(5.5)


def test_a_number_is_held_to_eight_percent_or_to_the_spread_of_the_turns() -> None:
    steady = Judged(("ngram_3", "1"), "tpot_ms", [10.0, 10.0, 10.0], 10.9, (10.1, 11.0))
    assert not steady.held
    assert steady.covered == 0
    shaky = Judged(("ngram_3", "1"), "tpot_ms", [9.0, 10.0, 11.0], 10.9, (9.5, 11.0))
    assert shaky.bound == pytest.approx(0.1)
    assert shaky.held
    assert shaky.covered == 2


def test_a_sign_is_right_where_the_median_turn_has_it() -> None:
    plain = Judged(("plain", "2"), "tpot_ms", [10.0, 10.0, 10.0], 10.0, None)
    slower = Judged(("draft_1", "2"), "tpot_ms", [11.0, 11.0, 9.0], 10.5, None)
    (sign,) = Verdict([plain, slower]).signs
    assert sign.right
    assert not sign.clear


def test_time_outside_of_the_engine_delays_requests_and_no_token() -> None:
    profile = Profile(PROFILE, recording())
    begin = [term.begin for term in TERMS]
    later = [term.begin + 100.0 * (term.path == "engine.outside_ms") for term in TERMS]
    before, after = (profile.simulated(("plain", "1"), values) for values in (begin, later))
    assert after["tpot_ms"] == pytest.approx(before["tpot_ms"])
    per_request = OUTPUT_TOKENS / before["tokens_per_s"], OUTPUT_TOKENS / after["tokens_per_s"]
    assert per_request[1] - per_request[0] == pytest.approx(0.1, rel=0.25)
