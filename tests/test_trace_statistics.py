"""The numbers of a trace, counted by hand on tiny ones and by cursors on drawn ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from simulator.core.acceptance.cursors import Chain
from simulator.core.acceptance.sources import Replay
from simulator.core.acceptance.statistics import (
    FlavourNumbers,
    Hits,
    Statistics,
    VocabularyShare,
    WindowMean,
    independent,
    statistics,
)
from simulator.core.faults import BadInput
from tests.plain_walk import walk
from tests.test_acceptance import make_trace


def test_all_numbers_of_a_tiny_trace() -> None:
    """Agreement 1 1 0 1 0 from position 1: one-token windows keep 1, 0, 1; two-token windows 2,
    1.
    """
    trace = make_trace([[9, 0, 0, 2, 0, 5]], [[9, 0, 0, 0, 0, 9]])
    trace = type(trace)(**{**vars(trace), "header": {**trace.header, "window": 2}})
    windows = (
        WindowMean(1, 2 / 3, 2 / 3, 0.6, 0.0, pytest.approx(-10.0)),
        WindowMean(
            2, 1.5, 2 / 3 + 4 / 9, 0.96, pytest.approx(-25.926, abs=1e-3), pytest.approx(-36.0)
        ),
    )
    figures = statistics(trace)
    assert figures == Statistics(
        requests=1,
        tokens=6,
        rate=0.6,
        flavours=(FlavourNumbers("only", 1, 6, 0.6, windows, (), 0.0),),
        windows=windows,
        hits=tuple(
            Hits(fraction, width, every, missed)
            for fraction, rows in (
                (
                    None,
                    [(1, 0.6, 0.0), (2, 0.6, 0.0), (4, 0.8, 0.5), (8, 1.0, 1.0), (32, 1.0, 1.0)],
                ),
                (0.5, [(1, 0.8, 0.5), (2, 0.8, 0.5), (4, 0.8, 0.5), (8, 0.8, 0.5), (32, 1.0, 1.0)]),
            )
            for width, every, missed in rows
        ),
        runs={1: 1, 2: 1},
        repetition=0.0,
        drafters=(),
        pipelines=(),
        vocabulary=tuple(
            VocabularyShare(share, 1.0) for share in (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
        ),
    )


def test_the_most_frequent_entries_of_a_vocabulary() -> None:
    """Behind the prefill's token 9: six times 0, three times 1, once 2, of a vocabulary of 20."""
    trace = make_trace([[0] * 11])
    tokens = np.array([9, 0, 1, 0, 1, 0, 1, 0, 2, 0, 0], dtype=trace.token.dtype)
    shares = statistics(
        replace(trace, token=tokens, header={**trace.header, "vocabulary": 20})
    ).vocabulary
    assert [(share.entries, share.tokens) for share in shares] == [
        *((0.05, 0.6), (0.1, 0.9), (0.25, 1.0), (0.5, 1.0), (0.75, 1.0), (1.0, 1.0)),
    ]


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=30), min_size=1, max_size=4),
    st.integers(1, 9),
)
def test_a_walk_is_what_a_cursor_does(ranks: list[list[int]], gamma: int) -> None:
    replay = Replay(make_trace(ranks))
    for request, recording in enumerate(replay.order):
        cursor, left, kept = replay.cursor(request, None), replay.length(request), []
        while left > 0:
            verdict = cursor.judge(Chain(gamma))
            kept.append(verdict.accepted)
            left -= verdict.committed
        assert walk(replay.runs(recording).tolist(), gamma) == kept


def test_independent_positions_are_predicted_by_the_formula() -> None:
    agreement = np.random.default_rng(3).random(40_001) < 0.7
    figures = statistics(make_trace([np.where(agreement, 0, 1).tolist()]))
    assert all(
        abs(window.independent_error_percent) < 3.0 and abs(window.law_error_percent) < 3.0
        for window in figures.windows
    )
    assert figures.flavours[0].by_position == pytest.approx([0.7] * 8, abs=0.03)
    assert independent(0.5, 3) == 0.875


def test_nothing_accepted_has_no_error_and_no_flavour_is_guessed() -> None:
    trace = make_trace([[1, 1, 1]])
    assert {window.law_error_percent for window in statistics(trace).windows} == {None}
    with pytest.raises(BadInput, match="no flavour 'onyl'; did you mean 'only'"):
        statistics(trace, ["onyl"])
