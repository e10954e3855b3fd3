"""Leaps: a run of steps taken at once leaves the same books, spans and requests as the steps one by
one, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from simulator.core.acceptance.sources import Acceptance, Cycle, Rates
from simulator.core.cost.protocol import Cost
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.serving import leap
from simulator.core.serving.fields import Serving
from simulator.core.serving.memory import KVMemory
from simulator.core.serving.policies import (
    ChunkedPrefill,
    FixedBatch,
    Policy,
    PrefillFirst,
    UnifiedBudget,
)
from simulator.core.serving.requests import Request, Requests
from simulator.core.serving.service import Service, ServiceRun
from simulator.core.serving.slo import Slo
from simulator.core.strategies import strategies
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.adaptive import WindowTable
from simulator.core.strategies.common.base import Strategy, early_exit
from simulator.core.strategies.common.runs import takes_runs
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.core.world import Span
from simulator.papers.mirror_sd import MirrorSD
from simulator.scenario import load


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leap over runs of any length."""
    monkeypatch.setattr(leap, "LEAST", 1)
    monkeypatch.setattr(leap, "ALONE", 0)


def told(run: ServiceRun) -> dict[str, Any]:
    """Everything that a run counted, timed and kept, in the order in which it came up."""
    sketches = {**run.collector.times, "wait": run.collector.wait}
    tally = {name: _plain(value) for name, value in vars(run.tally).items()}
    collected = {name: _plain(sketch) for name, sketch in sketches.items()}
    memory = run.replicas[0].memory
    return {
        **tally,
        "collected": collected,
        "good": (run.collector.good, run.collector.good_tokens),
        "ends": (run.end_s, memory.most_used, memory.used),
        "busy": run.busy_s,
        "spans": run.spans,
    }


def _plain(value: Any) -> Any:
    """A sketch, a counter or a number as something that can be compared, order included."""
    if hasattr(value, "buckets"):
        return (
            value.count,
            value.total,
            value.least,
            value.most,
            list(value.buckets.items()),
            value.within,
        )
    if isinstance(value, dict):
        return [
            (key, (spent.steps, spent.seconds) if hasattr(spent, "steps") else spent)
            for key, spent in value.items()
        ]
    return value


class Counted:
    """Counts the leaps of the runs inside a ``with``."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.steps: list[int] = []
        settle = leap.Leap.settle

        def counting(run: leap.Leap) -> None:
            self.steps.append(run.steps)
            settle(run)

        patch.setattr(leap.Leap, "settle", counting)


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
    counted = Counted(monkeypatch)
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
    assert counted.steps == [
        4,
        2,
        3,
    ]  # before the arrival; before request 0 ends at 11; before request 1 ends at 15
    assert done.tally.e2e.total == 11.0 + 9.5


def test_a_leap_books_every_lane_and_walks_the_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of two keep 2, 0, 1, 2, ... tokens: steps of 2 s commit 3, 1, 2, 3, and the fifth
    ends an output of 11.
    """
    counted = Counted(monkeypatch)
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
    assert counted.steps == [4]
    assert dict(done.tally.accepted) == {2: 2, 0: 2, 1: 1}
    assert done.busy_s == [{"target": 7.0, "draft": 2.5, "rendezvous": 2.5}]


def test_short_runs_are_not_worth_a_leap(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    monkeypatch.setattr(leap, "LEAST", 7)
    requests = Requests(count=2, prompt_tokens=8, output_tokens=7)
    assert (
        Service(Autoregressive(), Cycle((0,)), SECOND, requests, Serving()).run().tally.finished
        == 2
    )
    assert not counted.steps
    longer = requests.model_copy(update={"output_tokens": 8})
    assert (
        Service(Autoregressive(), Cycle((0,)), SECOND, longer, Serving()).run().tally.finished == 2
    )
    assert counted.steps == [6, 6]  # all but the last, which ends the request


def test_a_subclass_that_changes_a_step_is_stepped() -> None:
    class Slower(VanillaSD):
        """Waits before it verifies."""

        def step_seconds(self, durations: Any, kind: Any) -> Any:
            return 2.0 * super().step_seconds(durations, kind)

    class OtherLanes(VanillaSD):
        """Books otherwise."""

        def timeline(self, lanes: Any, durations: Any, kind: Any) -> Any:
            return super().timeline(lanes, durations, kind)

    assert takes_runs(VanillaSD()) and takes_runs(Slower()) and not takes_runs(OtherLanes())


@pytest.mark.parametrize(
    "name", [name for name, found in strategies().items() if takes_runs(found.example().strategy)]
)
def test_every_strategy_that_takes_runs_takes_them_in_its_example(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    example = strategies()[name].example()
    cost = StatedCost(example.durations, example.strategy.needs.draft_steps)
    requests = Requests(count=3, prompt_tokens=64, output_tokens=40)
    service = Service(
        example.strategy,
        Rates((0.7,), 0.9),
        cost,
        requests,
        Serving(),
        exit=early_exit(example.strategy, None),
    )
    leapt = service.run(spans=100)
    assert len(counted.steps) >= 3
    assert told(leapt) == told(replace(service, leaps=False).run(spans=100))


# ---- by chance

LINEAR = {"base_ms": 7.3, "row_ms": 0.31, "cached_token_ms": 0.0007, "sequence_ms": 0.09}
GRID = {
    "columns": ["rows", "cached_tokens", "ms"],
    "points": [[1, 0, 9.1], [1, 200, 9.7], [8, 0, 10.3], [8, 200, 11.9]],
}
COSTS = (
    StatedDurations(
        prefix_ms=8.1,
        suffix_ms=7.3,
        draft_ms=6.7,
        redraft_ms=5.9,
        rv_ee_ms=0.13,
        rv_fv_ms=0.17,
        prefill_ms=20,
    ),
    StatedDurations(
        target_ms=LINEAR,
        draft_step_ms={"base_ms": 0.9, "row_ms": 0.07},
        rv_fv_ms=0.1,
        prefill_ms=11,
    ),
    StatedDurations(target_ms=0.0, draft_step_ms=0.0, prefill_ms=1),
    StatedDurations(target_ms=GRID, draft_step_ms=0.7, prefill_ms=3),
)
TRACE = load("vanilla_qwen3_32b_a100").acceptance()
HARDWARE = load("mirror_qwen3_32b_a100").scenario.cost


def chains() -> Iterator[st.SearchStrategy[Strategy]]:
    yield st.just(Autoregressive())
    gamma, bonus = st.integers(1, 6), st.booleans()
    yield st.builds(VanillaSD, gamma=gamma, bonus_on_full_accept=bonus)
    yield st.just(
        VanillaSD(gamma=5, adaptive=WindowTable(name="table", windows={1: 5, 2: 2, 4: 0}))
    )
    message = st.sampled_from(["per_position", "first_position"])
    lost = st.sampled_from(
        [("redraft", "wait"), ("redraft", "wait"), ("redraft", "proceed"), ("undrafted", "wait")]
    )
    yield st.builds(
        lambda message, lost, bonus, gamma: MirrorSD(
            gamma=gamma,
            message=message,
            fallback=lost[0],
            others=lost[1],
            bonus_on_full_accept=bonus,
        ),
        message,
        lost,
        bonus,
        gamma,
    )


def policies() -> st.SearchStrategy[Policy]:
    places = st.integers(1, 5)
    return st.one_of(
        st.builds(FixedBatch, max_requests=places),
        st.builds(PrefillFirst, max_requests=places, watermark=st.just(0.0)),
        st.builds(ChunkedPrefill, max_requests=places, chunk_tokens=st.sampled_from([9, 64, 512])),
        st.builds(
            UnifiedBudget, max_requests=places, budget_tokens=st.sampled_from([9, 64, 2_048])
        ),
    )


def loads() -> st.SearchStrategy[dict[str, Any]]:
    lengths = {"name": "uniform", "least_tokens": 2, "most_tokens": 70}
    arrivals = st.sampled_from(
        [
            {"concurrency": 1},
            {"concurrency": 4},
            {"arrivals": {"name": "poisson", "rate_per_s": 2.0}},
            {"arrivals": {"name": "gamma", "rate_per_s": 3.0, "burstiness": 4.0}},
        ]
    )
    return st.builds(
        lambda load, output, warm: {
            **load,
            "count": 8,
            "prompt_tokens": lengths,
            "output_tokens": output,
            "warm_up": warm,
        },
        arrivals,
        st.sampled_from([lengths, 40, 130]),
        st.sampled_from([0, 2]),
    )


def costs(strategy: Strategy) -> st.SearchStrategy[Cost]:
    stated = [StatedCost(durations, strategy.needs.draft_steps) for durations in COSTS]
    return st.sampled_from([*stated, HARDWARE])


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_leaps_leave_what_steps_leave(data: st.DataObject) -> None:
    strategy = data.draw(st.one_of(*chains()))
    verdicts: Acceptance = data.draw(
        st.sampled_from([Rates((0.8,), 0.9), Cycle((1, 0, 4), (True, False)), TRACE])
    )
    requests = Requests.model_validate(data.draw(loads()))
    memory = KVMemory(block_tokens=data.draw(st.sampled_from([1, 16])))
    one_lane = data.draw(st.booleans()) and not isinstance(strategy, MirrorSD)
    service = Service(
        strategy,
        verdicts,
        data.draw(costs(strategy)),
        requests,
        Serving(policy=data.draw(policies()), memory=memory),
        slo=Slo.model_validate({"tbt_ms": {"p50": 15.0}, "e2e_ms": {"p90": 900.0}}),
        exit=early_exit(strategy, 64),
        kv_tokens=data.draw(st.sampled_from([None, 260, 1_000])),
        one_lane=one_lane,
        seed=data.draw(st.integers(0, 3)),
    )
    spans = data.draw(st.sampled_from([0, 5, 100_000]))
    stepped = replace(service, leaps=False)
    ended: list[list[Request]] = [[], []]
    assert told(service.run(spans, on_finished=ended[0].append)) == told(
        stepped.run(spans, on_finished=ended[1].append)
    )
    assert [_end(request) for request in ended[0]] == [_end(request) for request in ended[1]]
    if strategy.needs.in_flight == 1:
        assert told(service.replay()) == told(stepped.replay())


def _end(request: Request) -> tuple[Any, ...]:
    return (
        request.index,
        request.finished_s,
        request.first_token_s,
        request.tokens,
        request.preemptions,
        request.late,
    )
