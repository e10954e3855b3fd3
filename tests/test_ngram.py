"""N-gram drafting on texts small enough to count by hand."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra 'record'")

from benchmarks.family.ngram import PROPOSED, Trie, replay


def test_the_most_frequent_continuation_of_the_longest_known_suffix_wins() -> None:
    # twice behind 1 2, against 4 once
    assert Trie([1, 2, 3, 9, 1, 2, 4, 9, 1, 2, 3, 8, 1, 2]).propose()[0] == 3
    # behind 2 both once; behind 1 2 only 4
    assert Trie([5, 2, 3, 9, 1, 2, 4, 9, 1, 2]).propose()[0] == 4
    assert Trie([7, 3, 7, 4, 7]).propose()[0] == 4  # once each: the one seen last


def test_a_new_last_token_proposes_nothing_and_a_loop_goes_on_for_ever() -> None:
    assert Trie([1, 2, 3]).propose() == []
    assert Trie([1, 2, 1, 2]).propose() == [1, 2] * (PROPOSED // 2)


def test_replay_reads_as_it_goes() -> None:
    assert replay([1, 2, 1], [2, 1, 2]) == [(10, 3), (10, 2), (10, 1)]
    assert replay([1, 2], [3, 1]) == [(0, 0), (0, 0)]
