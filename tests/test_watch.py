"""Verdicts on a run before its end, by hand: four requests, one second, one token a tenth."""

from __future__ import annotations

import pytest

from simulator.core.serving.load.arrivals import Poisson
from simulator.core.serving.requests import Request, Requests
from simulator.core.serving.slo import Limit
from simulator.studies.plan.watch import LimitBrokenError, Watch

TTFT = Limit("ttft", 0.5, 1.0)
"""Two of four requests may wait for their first token for more than a second."""
TPOT = Limit("tpot", 0.75, 0.1)
"""One of four may take more than a tenth of a second for a token."""
E2E = Limit("e2e", 0.75, 3.0)


def watch(*limits: Limit, cool_down: int = 0) -> Watch:
    requests = Requests(
        arrivals=Poisson(rate_per_s=1),
        count=4 + cool_down,
        cool_down=cool_down,
        prompt_tokens=10,
        output_tokens=11,
    )
    return Watch(limits, requests, 0)


def came(index: int, at_s: float) -> Request:
    return Request(index, at_s, 10, 11)


def end(request: Request, first_s: float, end_s: float) -> Request:
    request.first_token_s = first_s
    request.finished_s = end_s
    request.tokens = 11
    request.gone = True
    return request


def test_the_first_request_too_many_ends_a_run() -> None:
    one = watch(TTFT)
    one.ended(end(came(0, 0.0), 0.5, 3.0))
    one.ended(end(came(1, 0.0), 2.0, 3.0))
    one.ended(end(came(2, 0.0), 2.0, 3.0))
    with pytest.raises(LimitBrokenError) as error:
        one.ended(end(came(3, 0.0), 2.0, 3.0))
    assert error.value.limit == TTFT


@pytest.mark.parametrize(("now", "known"), [(1.0, False), (1.1, True)])
def test_who_waits_for_too_long_is_counted_before_the_first_token(now: float, known: bool) -> None:
    """Three wait since 0 s, and one may not: known once a second has passed."""
    one = watch(TTFT)
    requests = [came(index, 0.0) for index in range(4)]
    for request in requests:
        one.arrived(request)
    last = end(requests[3], 0.2, now)
    if not known:
        one.ended(last)
        return
    with pytest.raises(LimitBrokenError):
        one.ended(last)


@pytest.mark.parametrize(("limit", "known_s"), [(TPOT, 1.5), (E2E, 3.0)])
def test_who_decodes_for_too_long_is_counted_before_the_last_token(
    limit: Limit, known_s: float
) -> None:
    """First tokens at 0.5 s: ten more may take a second, or all of it three."""
    for now in (known_s - 0.1, known_s + 0.1):
        one = watch(limit)
        requests = [came(index, 0.0) for index in range(4)]
        for request in requests:
            one.arrived(request)
            request.first_token_s = 0.5
            request.tokens = 1
        last = end(requests[3], now, now)
        if now < known_s:
            one.ended(last)
            continue
        with pytest.raises(LimitBrokenError):
            one.ended(last)


def test_who_has_no_token_yet_may_still_decode_in_time() -> None:
    """Nobody has a token after two seconds, so that nothing is known of those per token."""
    one = watch(TPOT)
    requests = [came(index, 0.0) for index in range(4)]
    for request in requests:
        one.arrived(request)
    one.ended(end(requests[0], 1.0, 2.0))
    for request in requests[1:]:
        one.ended(end(request, 2.0, 3.0))
    assert one.kept


def test_what_is_left_cannot_break_a_limit_that_so_many_have_kept() -> None:
    """Three of four within their limit are enough, once the fourth is there."""
    one = watch(TPOT)
    requests = [came(index, 0.0) for index in range(4)]
    for request in requests[:3]:
        one.arrived(request)
        one.ended(end(request, 0.5, 1.5))
    assert not one.kept
    one.arrived(requests[3])
    assert one.kept


def test_a_request_of_the_cool_down_sets_no_limit_but_has_to_come() -> None:
    one = watch(TTFT, cool_down=1)
    requests = [came(index, 0.0) for index in range(5)]
    for request in requests[:4]:
        one.arrived(request)
    for request in requests[:2]:
        one.ended(end(request, 0.5, 0.6))
    assert not one.kept
    one.arrived(requests[4])
    assert one.kept
    one.ended(end(requests[4], 0.9, 0.9))
    assert one.kept


def test_of_gaps_between_tokens_nothing_is_known_early() -> None:
    one = watch(TTFT, Limit("tbt", 0.5, 1.0))
    for index in range(4):
        request = came(index, 0.0)
        one.arrived(request)
        one.ended(end(request, 0.5, 1.5))
    assert not one.kept
