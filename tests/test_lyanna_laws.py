"""Lyanna's law against its timeline, whatever its settings."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from simulator.core.cost.stated import StatedDurations
from simulator.core.quantities import NonNegative
from simulator.papers.lyanna import Lyanna
from tests.test_laws import POLICIES, check_agreement, given_durations, milliseconds

any_lyanna = st.builds(
    Lyanna,
    depth=st.integers(2, 6),
    threshold=st.integers(0, 3),
    resample=st.booleans(),
    fusion=st.booleans(),
    host_ms=st.builds(NonNegative, value=milliseconds),
)


@pytest.mark.parametrize("policy", list(POLICIES))
@given(any_lyanna, given_durations, st.integers(0, 9), st.sampled_from([1, 8]))
def test_law_and_simulation_agree_with_constant_acceptance(
    policy: str, strategy: Lyanna, durations: StatedDurations, accepted: int, batch: int
) -> None:
    """Unfused, a cycle is a drafted tree, and in a step of its own what it left."""
    kept = min(accepted, strategy.depth)
    left = strategy.left(kept)
    cycles = 1
    if left and not strategy.fusion:
        cycles = kept + 1 + min(accepted, left) + 1
    check_agreement(policy, strategy, durations, accepted, False, batch, cycles)
