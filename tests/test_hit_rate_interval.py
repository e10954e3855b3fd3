"""How far the hit rate of a prefix cache may be off: a beta distribution of as many independent
tokens as its sessions show.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta

import simulator
from simulator.evidence.verified import verified
from simulator.inputs.services.observed import Observed, ObservedState
from simulator.scenario.uncertain.draws import Deviates
from simulator.studies.service.simulated import SessionHits, hit_rate_changes

NORMAL = Deviates().normal("hits")
SCENARIO = "sessions_chat_eagle3_qwen3_30b_a3b_h200"


def within(hits: list[SessionHits], share: float) -> tuple[float, float]:
    """Between what the hit rate lies with a share of the draws."""
    rate = sum(each.hit_tokens for each in hits) / sum(each.prompt_tokens for each in hits)
    tail = (1.0 - share) / 2.0
    low, high = rate * np.exp(np.quantile(hit_rate_changes(hits, NORMAL), (tail, 1.0 - tail)))
    return float(low), float(high)


def test_one_that_finds_all_and_one_that_finds_nothing_are_worth_one_token() -> None:
    """r = 1/2, v = 2 (50^2 + 50^2) / 200^2 = 1/4, m = 1: Beta(1, 1), where all rates are alike."""
    hits = [SessionHits(100, 0), SessionHits(100, 100)]
    assert within(hits, 0.8) == pytest.approx((0.1, 0.9), abs=0.02)


def test_more_sessions_are_worth_more() -> None:
    """Fifty of each: m = 99, as many independent tokens as sessions less one."""
    hits = [SessionHits(100, 0), SessionHits(100, 100)] * 50
    assert within(hits, 0.9) == pytest.approx(beta(50, 50).interval(0.9), abs=0.015)


def test_sessions_that_do_not_differ_say_no_more_than_their_number() -> None:
    assert within([SessionHits(100, 50)] * 10, 0.9) == pytest.approx(
        beta(5.5, 5.5).interval(0.9), abs=0.02
    )
    assert within([SessionHits(100, 100)] * 9, 0.9)[0] == pytest.approx(
        beta(9.5, 0.5).ppf(0.05), abs=0.02
    )


def test_where_nothing_is_found_nothing_is_drawn() -> None:
    assert not hit_rate_changes([SessionHits(100, 0)] * 9, NORMAL).any()


@pytest.mark.parametrize("chance", [0.2, 0.5, 0.9])
def test_an_interval_of_eighty_per_cent_holds_eighty_of_a_hundred(chance: float) -> None:
    """Sessions of one to nine blocks, each with all of its tokens found or none."""
    random = np.random.default_rng(7)
    held = 0
    for _ in range(400):
        hits = []
        for tokens in random.integers(1, 10, 40) * 16:
            hits.append(SessionHits(int(tokens), int(tokens * (random.random() < chance))))
        low, high = within(hits, 0.8)
        held += low <= chance <= high
    assert 0.74 <= held / 400 <= 0.86


def test_a_prediction_has_the_interval_and_is_held_to_it() -> None:
    """Of a scenario whose sessions come back to their own beginnings: 0.88 of their tokens."""
    result = simulator.what_if(SCENARIO, tries=["max_num_seqs=8"]).value
    gain = result.tries[0].gain("hit_rate")
    assert gain is not None
    predicted = gain.predicted
    assert predicted.within_80 is not None
    assert predicted.within_90 is not None
    assert 0.8 < predicted.within_90.low < predicted.within_80.low < predicted.after
    assert predicted.after < predicted.within_80.high < predicted.within_90.high <= 1.0
    for rate, inside in ((predicted.after, True), (0.5, False)):
        state = ObservedState(hit_rate=rate)
        after = Observed(bottleneck="none", state=state)
        (number,) = verified(result.prediction(result.tries[0]), after).numbers
        assert (number.in_80, number.in_90) == (inside, inside)
