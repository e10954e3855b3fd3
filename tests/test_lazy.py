"""Leaps: a run of steps taken at once leaves the same books, spans and requests as the steps one by
one, to the last bit.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any

import both_ways
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from simulator.core.acceptance.sources import Cycle, Rates
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.serving.cache.fields import KVMemory
from simulator.core.serving.cache.memory import Blocks
from simulator.core.serving.fields import Serving
from simulator.core.serving.lazy import to_come
from simulator.core.serving.ledger import Ledger
from simulator.core.serving.policies import PrefillFirst, UnifiedBudget
from simulator.core.serving.requests import Request, Requests
from simulator.core.serving.service import Service
from simulator.core.strategies import strategies
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.base import early_exit
from simulator.core.strategies.common.courses import Course, tells_courses
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.core.world import Span


@pytest.fixture(autouse=True)
def eager() -> Iterator[None]:
    """Leave and take up batches as often as may be."""
    with both_ways.eager():
        yield


# ---- by hand

SECOND = StatedCost(
    StatedDurations(target_ms=1000, draft_step_ms=250, rv_fv_ms=500, prefill_ms=2000), 2
)
"""A pass takes a second, a window of two half a second, its transfer another half."""


def test_a_leap_ends_with_the_step_in_which_a_request_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Request 0 is read for 2 s and decodes alone; request 1 comes at 5.5 s, is read from 6 to 8 s,
    and then both decode.
    """
    requests = Requests.model_validate(
        {
            "arrivals": {"name": "deterministic", "rate_per_s": 2 / 11},
            "count": 2,
            "prompt_tokens": 8,
            "output_tokens": 8,
        }
    )
    done = Service(
        Autoregressive(), Cycle((0,)), SECOND, requests, Serving(policy=PrefillFirst())
    ).run(spans=20)
    first = next(requests._arriving(0, lambda index, task: index)).arrival_s
    spans = [(span.start_s - first, span.end_s - first, span.label) for span in done.spans]
    decode = [(float(at), at + 1.0, "decode") for at in (2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14)]
    assert spans == [(0.0, 2.0, "prefill"), *decode[:4], (6.0, 8.0, "prefill"), *decode[4:]]
    assert done.tally.e2e.total == 11.0 + 9.5


def test_a_leap_books_every_lane_and_walks_the_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of two keep 2, 0, 1, 2, ... tokens: steps of 2 s commit 3, 1, 2, 3, and the fifth
    ends an output of 11.
    """
    requests = Requests(count=1, prompt_tokens=8, output_tokens=11)
    done = Service(VanillaSD(gamma=2), Cycle((2, 0, 1)), SECOND, requests, Serving()).run(spans=20)
    at = 2.0
    expected = [Span("target", 0.0, at, "prefill")]
    for _ in range(5):
        expected += [
            Span("draft", at, at + 0.5, "draft window"),
            Span("rendezvous", at + 0.5, at + 1.0, "window"),
            Span("target", at + 1.0, at + 2.0, "verify"),
        ]
        at += 2.0
    assert done.spans == expected
    assert dict(done.tally.accepted) == {2: 2, 0: 2, 1: 1}
    assert done.busy_s == [{"target": 7.0, "draft": 2.5, "rendezvous": 2.5}]


def test_what_requests_share_does_not_grow_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 requests with as many lengths of output have half a million steps, 4 MB of blocks; of
    1,000 steps they are kept.
    """
    monkeypatch.setattr(to_come, "MOST_SHARED", 1_000)
    steps = to_come.StepsToCome(Blocks(16), reserved=False, alone=False, priced=False)
    steps.make_room(1, 1_000)
    expected = np.zeros(1_000, dtype=np.int64)
    tracemalloc.start()
    try:
        for length in range(1, 1_001):
            tokens = np.arange(length)
            expected[:length] += -(-(tokens + length) // 16)
            tokens.flags.writeable = False
            course = Course(tokens[None], range(1, length + 1), {})
            during = (length - 1) // 16
            assert steps.begin(course, length, 0, 0) == (length, during, 0)
            expected[:length] -= during
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 100_000
    grown = steps.rows[to_come.DURING, :1_000]
    assert grown.tolist() == expected.tolist()


def test_a_subclass_that_changes_a_step_is_stepped() -> None:
    class Slower(VanillaSD):
        """Waits before it verifies."""

        def step_seconds(self, durations: Any, kind: Any) -> Any:
            return 2.0 * super().step_seconds(durations, kind)

    class OtherLanes(VanillaSD):
        """Books otherwise."""

        def timeline(self, lanes: Any, durations: Any, kind: Any) -> Any:
            return super().timeline(lanes, durations, kind)

    assert (
        tells_courses(VanillaSD()) and tells_courses(Slower()) and not tells_courses(OtherLanes())
    )


def test_tokens_that_a_step_may_take_back_are_stepped() -> None:
    """DuoDecoding that shows unchecked tokens takes some back in a step, which brings no gap."""
    example = strategies()["duodecoding"].example()
    emitted = example.strategy.model_copy(update={"count": "emitted"})
    assert example.strategy.course_window(1) and emitted.course_window(1) is None
    verdicts = emitted.reads(Rates((0.8,), 0.9))
    requests = Requests(count=5, prompt_tokens=30, output_tokens=60)
    cost = StatedCost(example.durations, emitted.needs.draft_steps)
    assert not both_ways.differences(Service(emitted, verdicts, cost, requests, Serving()))


TELLING = [name for name, found in strategies().items() if tells_courses(found.example().strategy)]
"""Strategies that tell what a request will do."""


@pytest.mark.parametrize("budget_tokens", [9, 24, 40])
@pytest.mark.parametrize("name", TELLING)
def test_prompts_are_read_in_what_steps_leave_of_a_tight_budget(
    name: str, budget_tokens: int
) -> None:
    """Forty requests come while others decode, and are read beside them piece by piece: some steps
    have fewer rows than a window, of some strategies known before the step, of others not.
    """
    example = strategies()[name].example()
    cost = StatedCost(example.durations, example.strategy.needs.draft_steps)
    arrivals = {"name": "poisson", "rate_per_s": 8.0}
    stated = {"arrivals": arrivals, "count": 40, "prompt_tokens": 33, "output_tokens": 20}
    places = 1 if example.strategy.traits.alone else 16
    policy = UnifiedBudget(max_requests=places, budget_tokens=budget_tokens)
    service = Service(
        example.strategy,
        example.strategy.reads(Rates((0.7,), 0.9)),
        cost,
        Requests.model_validate(stated),
        Serving(policy=policy),
        exit=early_exit(example.strategy, None),
    )
    assert both_ways.differences(service, spans=100) == {}


@pytest.mark.parametrize("name", TELLING)
def test_every_strategy_that_tells_courses_takes_them_in_its_example(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = strategies()[name].example()
    cost = StatedCost(example.durations, example.strategy.needs.draft_steps)
    requests = Requests(count=3, prompt_tokens=64, output_tokens=40)
    service = Service(
        example.strategy,
        example.strategy.reads(Rates((0.7,), 0.9)),
        cost,
        requests,
        Serving(),
        exit=early_exit(example.strategy, None),
    )
    assert both_ways.differences(service, spans=100) == {}


# ---- by chance


@pytest.mark.full
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_lazy_batches_leave_what_steps_leave(data: st.DataObject) -> None:
    def pick(options: Sequence[Any]) -> Any:
        return data.draw(st.sampled_from(options))

    composed = both_ways.service(pick)
    assert both_ways.differences(composed, spans=pick((0, 5, 100_000))) == {}


@pytest.mark.parametrize("seed", range(4))
def test_replicas_of_sessions_leave_what_steps_leave(seed: int) -> None:
    """Turns come when turns before them have ended, on whichever replica; no two at once."""
    requests = Requests.model_validate(
        {
            "arrivals": {"name": "poisson", "rate_per_s": 8},
            "count": 60,
            "prompt_tokens": {"name": "uniform", "most_tokens": 300},
            "output_tokens": {"name": "uniform", "most_tokens": 60},
            "sessions": {
                "name": "drawn",
                "turns": 4,
                "turn_tokens": {"name": "uniform", "most_tokens": 100},
                "think_s": {"name": "exponential", "mean_s": 0.3},
            },
        }
    )
    serving = Serving(
        policy=UnifiedBudget(name="unified_budget", budget_tokens=128),
        memory=KVMemory(prefix_caching=True),
        replicas=3,
    )
    cost = StatedCost(both_ways.DURATIONS[1], 3)
    strategy = VanillaSD(gamma=3)
    service = Service(strategy, Rates((0.7,)), cost, requests, serving, kv_tokens=2_000, seed=seed)
    assert both_ways.differences(service, spans=5) == {}


def test_a_comparison_names_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Courses that move a first token a second behind its time."""
    requests = Requests(count=2, prompt_tokens=8, output_tokens=9)
    composed = Service(Autoregressive(), Cycle((0,)), SECOND, requests, Serving())
    assert both_ways.differences(composed) == {}
    hand_out_course = Ledger.hand_out_course

    def late(ledger: Ledger, request: Request, *rest: Any) -> None:
        hand_out_course(ledger, request, *rest)
        request.first_token_s += 1.0

    monkeypatch.setattr(Ledger, "hand_out_course", late)
    names = {"tally.tpot", "collector.ttft", "collector.tpot", "requests in order of ending"}
    replayed = {f"replayed: {name}" for name in names if name != "requests in order of ending"}
    assert set(both_ways.differences(composed)) == names | replayed
