"""What speculation leaves of a prefix cache, by the law alone."""

from __future__ import annotations

import pytest

from benchmarks import prefix_hits

needs_data = pytest.mark.skipif(
    not prefix_hits.SHARED.is_dir(), reason="the data files are not part of the repository"
)


@needs_data
def test_the_published_hits_are_those_of_the_law() -> None:
    rows = list(prefix_hits.published(prefix_hits.SHARED))
    assert len(rows) == 5
    assert all(hit == by_law for _, _, hit, by_law in rows)


def test_a_head_takes_a_block_of_each_prompt() -> None:
    """Ten prompts of 5,120 tokens, alike: nine find 5,104; with a head in blocks of 512, 4,096."""
    lines = [(list(range(10)), 5_120)] * 10
    assert prefix_hits.counted_by_hashes(lines) == 9 * 5_104 / 51_200
    assert prefix_hits.hit_rate(lines, 16, 0) == 9 * 5_104 / 51_200
    assert prefix_hits.hit_rate(lines, 512, 1) == 9 * 4_096 / 51_200


@pytest.mark.full
@needs_data
def test_the_tables_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    prefix_hits.main(prefix_hits.SHARED)
    printed = capsys.readouterr().out
    assert "2144  18,770     15,008  15,008" in printed
    assert "conversation_trace       37.4%     37.4%     37.2%" in printed
