"""The baseline by arithmetic: siblings, printed tokens, another method, layers; and what is counted
once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.evidence.baseline import arithmetic, interpolated
from simulator.evidence.fits import Paper
from simulator.evidence.published import PublishedCell, cells
from simulator.evidence.validation import Prediction, Validated, apart, summaries

TOKENS = "acceptance.rescale.tokens_per_step"


def cell(name: str, value: float, role: str = "calibrate", **columns: object) -> PublishedCell:
    of = {
        "source": "T1",
        "quantity": "speedup",
        "unit": "x",
        "scenario": "sd",
        "metric": "speedup",
        "model": "small",
        "task": "chat",
    }
    return PublishedCell(**{**of, **columns, "cell": name, "published": str(value), "role": role})


def paper(*known: PublishedCell) -> Paper:
    return Paper("round", known, {}, {}, Path())


def test_printed_tokens_times_the_ratio_of_the_sibling() -> None:
    own = cell("a", 3, "predict", task="code", overrides=f"{TOKENS}=3")
    beside = paper(
        own,
        cell("b", 1.5, overrides=f"{TOKENS}=2"),
        cell("c", 9, model="large", overrides=f"{TOKENS}=2"),
    )
    assert arithmetic(beside, own) == pytest.approx(1.5 / 2 * 3)
    assert interpolated(beside, own)


def test_siblings_that_differ_as_much_count_alike() -> None:
    own = cell("a", 3, "predict", task="code")
    beside = paper(
        cell("b", 2, task="chat"),
        cell("c", 8, task="poem"),
        cell("d", 50, task="poem", temperature=1.0),
    )
    assert arithmetic(beside, own) == pytest.approx(4)


def test_another_method_shows_the_ratio_between_two_settings() -> None:
    """Of two other methods the more alike, 3 beside 2, doubles from small to large; the other
    hardly moves.
    """
    own = cell("a", 3, "predict", model="large", task="MT")
    sibling = cell("b", 2, task="MT-Bench")
    others = [
        cell("c", 3, scenario="tree", task="MT"),
        cell("d", 6, scenario="tree", task="MT", model="large"),
    ]
    plain = [
        cell("e", 1, scenario="ar", task="MT"),
        cell("f", 1.1, scenario="ar", task="MT", model="large"),
    ]
    beside = paper(own, sibling, *plain, *others)
    assert arithmetic(beside, own) == pytest.approx(2 * 6 / 3)
    assert not interpolated(beside, own)
    assert arithmetic(paper(own, sibling), own) == 2


def test_one_setting_is_an_interpolation_and_two_are_not() -> None:
    sibling = cell("a", 2)
    for columns, between in (
        ({"overrides": "strategy.gamma=3"}, True),
        ({"temperature": 1.0}, True),
        ({"batch_size": 4, "overrides": "requests.concurrency=4"}, True),
        ({"overrides": "strategy.gamma=3 strategy.kappa=2"}, False),
        ({"task": "code", "temperature": 1.0}, False),
        ({"hardware": "other", "overrides": "target.device=other"}, False),
        ({"scenario": "tree"}, False),
    ):
        own = cell("b", 3, "predict", **columns)
        assert interpolated(paper(own, sibling), own) is between, columns


def test_a_time_grows_with_the_layers() -> None:
    """Of the real cells: OPT-6.7B has 32 layers and OPT-1.3B 24, and both print the length of their
    output.
    """
    real = Paper.of("speculative_streaming", cells()["speculative_streaming"])
    own, sibling = (
        next(cell for cell in real.cells if cell.cell == f"specstream_table5_two_model_sd:{n}")
        for n in (11, 3)
    )
    words = [
        dict(part.split("=") for part in cell.assignments)["requests.output_tokens.mean_tokens"]
        for cell in (own, sibling)
    ]
    expected = float(sibling.published) * float(words[0]) / float(words[1]) * 32 / 24
    assert arithmetic(real, own) == pytest.approx(expected)


def test_a_value_that_is_printed_twice_counts_once() -> None:
    once, again = cell("a", 10, "predict"), cell("b", 10, "predict", same_as="a")
    rows = [Prediction("round", one, 11, 12.0, interpolated=True) for one in (once, again)]
    found = Validated(paper(once, again), rows, [], [], [], [])
    (own, pooled) = summaries([found])
    assert own.errors
    assert (own.errors.count, own.asked, own.again, pooled.again) == (1, 2, 1, 1)
    parted = apart([found])
    assert [candidate.name for candidate in parted] == [
        "round: interpolations",
        "all papers: interpolations",
    ]
    assert parted[0].baseline
    assert parted[0].baseline.mape == pytest.approx(0.2)


@pytest.mark.parametrize("name", sorted(cells()))
def test_a_cell_is_the_same_as_one_that_prints_its_value(name: str) -> None:
    own = {cell.cell: cell for cell in cells()[name]}
    for one in own.values():
        if one.same_as:
            first = own[one.same_as]
            assert (one.published, one.role, one.unit, one.model) == (
                first.published,
                first.role,
                first.unit,
                first.model,
            )
            assert not first.same_as
