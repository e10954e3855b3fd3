"""Expected steps of outputs that end: bounds of what an end cuts, and the straight line far from
the beginning.
"""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from simulator.core.acceptance.sources import Rates
from simulator.core.strategies.common.outputs import Outputs, expected_steps

chances = st.lists(st.floats(0.0, 1.0), min_size=2, max_size=6).filter(lambda some: sum(some) > 0.1)


@given(chances, st.dictionaries(st.integers(2, 40), st.integers(1, 5), min_size=1, max_size=4))
def test_shares_of_steps_stay_within_what_an_end_can_cut(
    some: list[float], lengths: dict[int, int]
) -> None:
    """The last step begins with a token left at least, so an end cuts less than the most that a
    step commits.
    """
    each = [chance / sum(some) for chance in some]
    mean = sum(tokens * chance for tokens, chance in enumerate(each, start=1))
    share = Outputs(lengths).share_emitted([0.0, *each])
    left = sum((output - 1) * count for output, count in lengths.items())
    assert left / (left + (len(each) - 1) * sum(lengths.values())) <= share * (1 + 1e-12)
    assert share <= 1 + 1e-12
    assert Outputs(lengths, cut=False).share_emitted([0.0, *each]) == 1.0
    assert mean * share >= 1 - 1e-12


@settings(max_examples=10)
@given(st.floats(0.05, 0.95), st.integers(1, 6))
def test_far_from_its_beginning_the_steps_of_an_output_are_a_straight_line(
    rate: float, gamma: int
) -> None:
    """At 5,000 tokens, which are beyond where the line begins, within what the steps one by one
    come to.
    """
    accepted = Rates((rate,)).odds(gamma, None).accepted.tolist()
    steps = [0.0]
    for tokens in range(1, 5_001):
        steps.append(
            1.0
            + sum(
                chance * steps[tokens - kept - 1]
                for kept, chance in enumerate(accepted)
                if kept < tokens - 1
            )
        )
    assert expected_steps(accepted, {5_000: 1.0}) == pytest.approx(steps[5_000], rel=1e-12)
    arrays = [np.array([chance, chance]) for chance in accepted]
    assert expected_steps(arrays, {37: 1.0, 5_000: 2.0}) == pytest.approx(
        [steps[37] + 2 * steps[5_000]] * 2, rel=1e-12
    )
