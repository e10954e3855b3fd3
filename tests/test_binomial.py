"""The binomial law of a batch, against fractions."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest

from simulator.core.numeric import MOST_EXACT, binomial


@pytest.mark.parametrize("requests", [1, 2, 7, 64, MOST_EXACT, MOST_EXACT + 1, 3_000])
@pytest.mark.parametrize(
    "share", [Fraction(1, 1024), Fraction(1, 8), Fraction(1, 2), Fraction(1023, 1024)]
)
def test_every_number_of_requests_has_its_chance(requests: int, share: Fraction) -> None:
    found = binomial(requests, float(share))
    for k in range(requests + 1):
        true = float(comb(requests, k) * share**k * (1 - share) ** (requests - k))
        assert found.get(k, 0.0) == pytest.approx(true, rel=1e-10, abs=1e-16)
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-11)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("requests", [1, 40, 2_000])
def test_what_none_or_all_do_is_certain(requests: int) -> None:
    assert binomial(requests, 0.0) == {0: 1.0}
    found = binomial(requests, 1.0)
    assert max(found, key=lambda k: found[k]) == requests
    assert found[requests] == 1.0
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-290)


def test_columns_have_the_chances_of_their_numbers() -> None:
    shares = np.array([0.0, 0.02, 0.5, 1.0])
    for requests in (3, 2_000):
        together = binomial(requests, shares)
        for place, share in enumerate(shares):
            alone = binomial(requests, share)
            for k, chances in together.items():
                assert chances[place] == pytest.approx(alone.get(k, 0.0), rel=1e-12, abs=1e-16)


def test_a_million_requests_take_few_numbers() -> None:
    found = binomial(10**6, 0.3)
    assert len(found) < 10_000
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-8)
    assert sum(k * chance for k, chance in found.items()) == pytest.approx(300_000, rel=1e-8)
