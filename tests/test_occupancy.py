"""How full memories are over time: complete series of tiny worlds, peaks that no stretch loses, and
the picture.
"""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from simulator.core.serving.cache.occupancy import (
    MOST_STRETCHES,
    SHORTEST_S,
    Occupancy,
    mean_most,
)
from simulator.report.forms import as_data, as_svg
from simulator.report.run import caches
from simulator.scenario import load
from simulator.scenario.evaluate import simulate
from simulator.scenario.outcome import Outcome
from tests.test_tiers import BOTH_CLOCKS, asked, serve, tier, tiered


def noted(*spans: tuple[float, int]) -> Occupancy:
    """One level, by when each value of it ends."""
    occupancy = Occupancy(1)
    for end_s, level in spans:
        occupancy.note(end_s, [level])
    return occupancy


def test_a_stretch_has_the_most_that_was_there_in_it() -> None:
    """Whole milliseconds, and what ends or begins between two of them counts in both."""
    short = noted((0.001, 2), (0.002, 5), (0.0024, 9), (0.0026, 3), (0.004, 1))
    assert short.most(0.001).tolist() == [[2, 5, 9, 1]]
    assert short.most(0.002).tolist() == [[5, 9]]
    assert noted((0.0015, 2), (0.003, 1)).most(0.001).tolist() == [[2, 2, 1]]


def test_moments_are_no_time() -> None:
    assert noted((0.001, 2), (0.001, 7), (0.002, 3)).most(0.001).tolist() == [[2, 3]]


def test_stretches_grow_with_the_run_and_stay_few() -> None:
    day = noted((30_000.0, 1), (30_000.01, 8), (86_400.0, 2))
    assert day.stretch_s == SHORTEST_S * 2**18
    most = day.most(day.stretch_s)[0].tolist()
    place = int(30_000.0 / day.stretch_s)
    assert len(most) == ceil(86_400 / day.stretch_s) <= MOST_STRETCHES
    assert most[place - 1 : place + 2] == [1, 8, 2]


def test_replicas_are_averaged_over_the_longer_stretches() -> None:
    late = noted((0.4, 0), (1.0, 6))
    early = noted((0.002, 4))
    early.note(1.0, [2])
    stretch_s, most = mean_most([early, late])
    assert stretch_s == 0.002
    assert most[0].tolist() == [2.0, *[1.0] * 199, *[4.0] * 300]


SPANS = st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(0, 9)), min_size=1, max_size=40)


@settings(max_examples=200, deadline=None)
@given(spans=SPANS, cuts=st.lists(st.floats(0.0, 1.0), max_size=5))
def test_it_does_not_depend_on_who_looks_how_often(
    spans: list[tuple[float, int]], cuts: list[float]
) -> None:
    """One by one, looked at in between, and many at a time: the same series, and its peaks are
    those of what took time.
    """
    ends = np.cumsum([seconds for seconds, _ in spans])
    begins = np.concatenate([[0.0], ends[:-1]])
    levels = [level for _, level in spans]
    one_by_one = noted(*zip(ends.tolist(), levels, strict=True))
    looked_at = Occupancy(1)
    for begin_s, end_s, level in zip(begins.tolist(), ends.tolist(), levels, strict=True):
        for cut in sorted(cuts):
            looked_at.note(min(begin_s + cut, end_s), [level])
        looked_at.note(end_s, [level])
    at_once = Occupancy(1)
    at_once.note_each(begins, ends, np.array([levels]))
    wide = one_by_one.stretch_s
    told = one_by_one.most(wide).tolist()
    assert looked_at.most(wide).tolist() == told
    assert at_once.most(wide).tolist() == told
    lasting = [level for level, begin, end in zip(levels, begins, ends, strict=True) if end > begin]
    assert max(told[0], default=0) == max(lasting, default=0)


@BOTH_CLOCKS
def test_a_device_and_a_host_over_time(replay: bool) -> None:
    """Room for five blocks, which a request has until it ends; four of its are whole then, and
    kept: b sends those of a to the host, and a, of which three come back, those of b.
    """
    memory = tiered(5, tier())
    requests = [asked(0, 0, "a"), asked(1, 100, "b"), asked(2, 200, "a")]
    scheduler = serve(requests, memory, replay=replay).scheduler
    assert scheduler.ledger.occupancy
    occupancy = scheduler.ledger.occupancy
    most = occupancy.most(4.096).tolist()
    in_use, device, host = most
    assert occupancy.since_s == 208.0
    assert len(in_use) == 51
    # 0 to 17 s, 100 to 117 s and 200 to 208 s, in stretches of 4.096 s
    assert in_use == [*[5] * 5, *[0] * 19, *[5] * 5, *[0] * 19, 3, 5, 5]
    assert device == [*[5] * 5, *[4] * 19, *[5] * 5, *[4] * 19, 5, 5, 5]
    assert host == [*[0] * 24, *[4] * 24, 6, 8, 8]


def tokens_at_most(outcome: Outcome, place: int) -> float:
    return max(outcome.cache[0].levels[place].tokens)


@pytest.fixture(scope="module")
def tiers_run() -> Outcome:
    loaded = load("tiers_agents_eagle3_qwen3_30b_a3b_h200", ["requests.count=40"])
    return simulate(loaded.scenario, loaded.acceptance())[0]


def test_the_series_of_a_run_peaks_where_the_books_do(tiers_run: Outcome) -> None:
    serving = tiers_run.serving
    (cache,) = tiers_run.cache
    assert [level.name for level in cache.levels] == ["in_use", "device", "host", "store"]
    assert tokens_at_most(tiers_run, 0) == serving.most_kv_tokens
    assert tokens_at_most(tiers_run, 1) <= (serving.kv_tokens or 0)
    assert 0.0 < cache.levels[2].tokens[-1] <= serving.tiers["host"]["kept_tokens"]
    assert cache.stretch_s * len(cache.levels[0].tokens) == pytest.approx(
        tiers_run.end_s, abs=cache.stretch_s
    )


def test_the_picture_has_a_panel_for_each_memory(tiers_run: Outcome) -> None:
    drawn = caches.chart(tiers_run.cache)
    assert [panel.y_label for panel in drawn.panels] == ["device (GB)", "host (GB)", "store (MB)"]
    data = as_data(drawn)
    assert data and data.startswith("panel,series,x,y,value")
    assert "of it in use by running requests" in as_svg(drawn)


def test_no_picture_where_nothing_is_kept() -> None:
    loaded = load("durations_only", ["requests.count=4"])
    outcome = simulate(loaded.scenario, loaded.acceptance())[0]
    assert outcome.cache == ()
    assert not caches.section(outcome).blocks
