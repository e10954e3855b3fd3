"""Step times: a table, an array and a single price are the same floats, and equal hardware has one
home.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, ConfigDict, Field

from simulator.core.acceptance.sources import Cycle, odds_of
from simulator.core.cost.durations import ByLoad
from simulator.core.cost.rows import NO_ROWS, Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.numeric import p_norm, root
from simulator.core.serving.fields import Serving
from simulator.core.serving.requests import Requests
from simulator.core.serving.service import Service
from simulator.core.serving.step_times import BLOCK, LARGEST, MOST_TIMES, StepTimes, step_times
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.step import UNLIMITED, Kind, Step
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.inputs.catalogue import Catalogue
from simulator.scenario import Loaded, load
from simulator.scenario.evaluate import plain, tuned

BY_CONTEXT = StatedCost(StatedDurations(target_ms=ByLoad(base_ms=20.0, cached_token_ms=0.5)))
BY_ROWS = StatedCost(StatedDurations(target_ms={1: 20.0, 8: 27.0}))
CONTEXTS = (1, 7, 340, 341, 342, 1_500, 40_001)
"""Cached tokens of each request; three of them have 1,020 to 1,026 together, around the end of a
block.
"""

FAMILIES = {
    "autoregressive_qwen3_32b_a100",
    "vanilla_llama_2_7b_a100",
    "mtp_qwen3_5_27b_h100",
    "ngram_qwen3_30b_a3b_h200",
    "lyanna_llama_2_7b_a800",
    "duodecoding_llama_2_7b_a800",
    "mirror_qwen3_32b_a100",
    "methods_vicuna_7b_a100",
}
"""A scenario of each family of strategies; a paper that is taken away takes its own."""


@given(
    st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=40),
    st.floats(0.0, 1e3),
    st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.7, 8.0]),
)
def test_roots_and_norms_are_the_same_for_a_number_and_an_entry(
    terms: list[float], beside: float, p: float
) -> None:
    array = np.array(terms)
    assert root(array).tolist() == [root(term) for term in terms]
    norms = p_norm((array, beside), p).tolist()
    assert norms == [p_norm((term, beside), p) for term in terms]


def test_a_norm_of_two_is_that_of_pythagoras() -> None:
    assert p_norm((3.0, 4.0, 0.0), 2.0) == pytest.approx(5.0)
    assert p_norm((0.0, 0.0), 2.0) == 0.0


def steps_by_law(loaded: Loaded) -> Iterator[list[Step]]:
    """The steps of some kinds that a law knows at ``CONTEXTS``, in batches of 1, 3 and 64."""
    strategy = loaded.scenario.schedule
    odds = odds_of(loaded.acceptance(), loaded.scenario.exit)
    for requests in (1, 3, 64):
        for kind in list(strategy.kinds(odds, requests))[:6]:
            yield [strategy.step(kind, context) for context in CONTEXTS]


def as_arrays(steps: Sequence[Step]) -> Step:
    """One step with an array for what depends on the context."""
    rows = steps[0].rows._replace(
        kv_tokens=np.array([step.rows.kv_tokens for step in steps]),
        attention_pairs=np.array([step.rows.attention_pairs for step in steps]),
    )
    redraft: Any = np.array([step.redraft_kv_tokens for step in steps])
    return steps[0]._replace(rows=rows, redraft_kv_tokens=redraft if redraft.any() else 0)


@pytest.mark.few(6)
@pytest.mark.parametrize("name", sorted(Catalogue().names("scenario")))
def test_block_array_and_single_step_have_the_same_price(name: str) -> None:
    """Whatever block or array a price comes from: the floats of the step priced by itself."""
    loaded = tuned(load(name))
    strategy = loaded.scenario.schedule
    cost = loaded.scenario.cost
    if cost.jitters or cost.stages:
        return
    times = StepTimes(strategy, cost)
    for steps in steps_by_law(loaded):
        exact = [tuple(strategy.durations(cost, step)) for step in steps]
        assert [tuple(times.of(step)) for step in steps] == exact
        for step, seconds in zip(steps, exact, strict=True):
            if block := times.block(step):
                total = step.rows.kv_tokens - step.rows.tokens
                assert block.first <= total < block.stop
                assert tuple(block.at(total)) == seconds
        if not steps[0].loads:
            along = [
                np.broadcast_to(column, len(steps)) for column in times.along(as_arrays(steps))
            ]
            assert [*zip(*along, strict=True)] == exact


@pytest.mark.parametrize("name", sorted(FAMILIES & set(Catalogue().names("scenario"))))
def test_steps_of_one_length_have_a_block(name: str) -> None:
    """Some kind of step of each family of strategies is read from a table."""
    loaded = tuned(load(name))
    times = StepTimes(loaded.scenario.schedule, loaded.scenario.cost)
    assert any(times.block(steps[0]) is not None for steps in steps_by_law(loaded))


def test_a_block_is_worked_out_once_and_counts_total_contexts() -> None:
    """20 ms, and half a millisecond for each cached token."""
    times = StepTimes(Autoregressive(), BY_CONTEXT)
    kind = Kind("step", 0, bare=3)
    block = times.block(Step(kind, Rows.decode(1, BLOCK + 5, 3)))
    assert block is not None
    assert (block.first, block.stop) == (BLOCK, 2 * BLOCK)
    assert block.at(BLOCK + 5) == (pytest.approx((20.0 + 0.5 * (BLOCK + 5)) / 1e3),)
    assert times.block(Step(kind, Rows.decode(1, 2 * BLOCK - 1, 3))) is block
    assert times.block(Step(kind, Rows.decode(1, 2 * BLOCK, 3))) is not block


def test_times_that_do_not_read_the_context_are_one_block_without_end() -> None:
    times = StepTimes(Autoregressive(), BY_ROWS)
    step = Step(Kind("step", 0, bare=1), Rows.decode(1, 77, 1))
    assert times.block(step) == (0, UNLIMITED, (0.020,))


def test_a_step_that_depends_on_more_than_the_total_context_has_no_block() -> None:
    times = StepTimes(Autoregressive(), BY_CONTEXT)
    kind = Kind("step", 2)
    rows = Rows.decode(3, 50, 2)
    assert times.block(Step(kind, rows)) is not None
    ragged = Rows.decode(4, 20, 1) + Rows.decode(2, 30, 1)
    large = LARGEST + 1
    for step in (
        Step(kind, ragged),
        Step(kind, rows, prompts=Rows.prefill(9)),
        Step(kind, rows, loads=(rows,)),
        Step(kind, rows._replace(experts_read=3.5)),
        Step(kind._replace(redrafts=1), rows, 25),
        Step(Kind("step", large), Rows.decode(3, 50, large)),
        Step(kind, NO_ROWS),
    ):
        assert times.block(step) is None


def test_equal_strategies_on_equal_hardware_have_the_same_times() -> None:
    name = "vanilla_llama_2_7b_a100"
    first = load(name).scenario
    again = load(name).scenario
    assert first.cost is not again.cost
    times = step_times(first.schedule, first.cost)
    assert step_times(again.schedule, again.cost) is times
    longer = VanillaSD(gamma=7)
    assert step_times(longer, first.cost) is not times
    assert step_times(plain(first).schedule, plain(first).cost) is not times


def test_an_admission_is_worked_out_once() -> None:
    times = StepTimes(VanillaSD(gamma=3), BY_ROWS)
    known = times.admission(Rows.prefill(8), 1, 8)
    assert known == times.strategy.admission(BY_ROWS, Rows.prefill(8), 1, 8)
    assert times.admission(Rows.prefill(8), 1, 8) is known
    assert times.admission(Rows.prefill(8), 0, 0) is not known


def test_no_block_and_no_admission_keeps_step_times_that_are_no_longer_kept() -> None:
    step = Step(Kind("step", 0, bare=1), Rows.decode(1, 50, 1))

    def used(base_ms: float) -> weakref.ref[StepTimes]:
        durations = StatedDurations(target_ms=ByLoad(base_ms=base_ms, cached_token_ms=0.5))
        times = step_times(Autoregressive(), StatedCost(durations))
        times.admission(Rows.prefill(8), 1, 8)
        assert times.block(step) is not None
        return weakref.ref(times)

    first, *_, last = [used(1.0 + number) for number in range(MOST_TIMES + 1)]
    gc.collect()
    assert first() is None
    assert last() is not None


class Loose(BaseModel):
    """Settings of another package."""

    tokens: set[int] = {1}


class Banning(VanillaSD):
    """A strategy of another package with fields that are no keys."""

    banned: set[int] = Field(default={1})
    loose: Loose = Loose()


class Weighing(VanillaSD):
    """One that has no hash."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    weights: np.ndarray


@pytest.mark.parametrize("strategy", [Banning(gamma=3), Weighing(gamma=3, weights=np.ones(2))])
def test_a_strategy_runs_whatever_its_fields_are(strategy: VanillaSD) -> None:
    cost = StatedCost(StatedDurations(target_ms=20, draft_step_ms=1))
    requests = Requests(count=2, prompt_tokens=8, output_tokens=8)
    like = Service(VanillaSD(gamma=3), Cycle((3,)), cost, requests, Serving()).run()
    done = Service(strategy, Cycle((3,)), cost, requests, Serving()).run()
    assert done.end_s == like.end_s


def test_times_of_a_strategy_without_a_hash_are_not_kept() -> None:
    kept = Banning(gamma=3)
    assert step_times(kept, BY_ROWS) is step_times(Banning(gamma=3), BY_ROWS)
    other = Weighing(gamma=3, weights=np.ones(2))
    assert step_times(other, BY_ROWS) is not step_times(other, BY_ROWS)
