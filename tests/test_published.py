"""The published values: complete, in their frozen roles, and at odds with the papers' own text
where we say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from statistics import mean

import pytest

from simulator.core.faults import BadInput
from simulator.evidence.published import PAPERS, PublishedCell, cells, contradictions, rows
from tests.apart import gone, kept

CELLS = cells()
EVERY = [one for paper in CELLS.values() for one in paper]
FROZEN = {
    "duodecoding": (277, "bc34dd12da05deb5361ebd6340c5ac07"),
    "lyanna": (95, "568d3c25dbacf9f4ab5f39ded1a2750c"),
    "mirror_sd": (358, "658eafb592fb405bb05ecab362c0cfe1"),
    "specpipe": (222, "f997a0555831bac866ddd8ffe5afd664"),
    "speculative_streaming": (523, "4688e1a4487610fac16b42099e730a3f"),
}
"""Cells of each paper, and the fingerprint of their roles as they were before anything was fitted.
It never changes; a dispute stands beside a result.
"""


def fingerprint(published: Sequence[PublishedCell]) -> str:
    """Return the BLAKE2b digest, 16 bytes in hexadecimal, of every cell and its role, which must
    not change.
    """
    lines = sorted(f"{cell.cell} {cell.role}" for cell in published)
    return blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def test_the_papers_are_these() -> None:
    assert list(CELLS) == kept(FROZEN)
    assert len({cell.cell for cell in EVERY}) == len(EVERY)


@pytest.mark.parametrize("paper", kept(FROZEN))
def test_every_value_keeps_its_role(paper: str) -> None:
    assert (len(CELLS[paper]), fingerprint(CELLS[paper])) == FROZEN[paper]


@pytest.mark.parametrize("paper", kept(FROZEN))
def test_a_changed_role_changes_the_fingerprint(paper: str) -> None:
    first, *others = CELLS[paper]
    other_role = "excluded" if first.role != "excluded" else "predict"
    moved = first.model_copy(update={"role": other_role})
    assert fingerprint([moved, *others]) != fingerprint([first, *others])


@pytest.mark.parametrize("paper", CELLS)
def test_a_paper_says_where_its_values_stand(paper: str) -> None:
    assert all(cell.source for cell in CELLS[paper])
    assert all(cell.reason for cell in CELLS[paper] if cell.role == "excluded")


def test_mapped_and_unmapped_rows_are_told_apart() -> None:
    row = CELLS["specpipe"][0].model_dump()
    mapped = PublishedCell(
        **row
        | {"scenario": "specpipe_70b", "overrides": "strategy.width=32 seed=1", "metric": "law.ms"}
    )
    assert (CELLS["specpipe"][0].mapped, mapped.mapped) == (bool(row["scenario"]), True)
    assert mapped.assignments == ("strategy.width=32", "seed=1")


HEADER = "cell,source,quantity,published,role,scenario,metric"


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (
            [HEADER, "t:1,Table 1,tbt,12,calibrate,x,y", "t:2,Table 1,tbt,12,predicted,,"],
            ":3:1: role: expected 'calibrate'",
        ),
        (
            [HEADER, "t:1,Table 1,tbt,twelve,predict,,"],
            ":2:1: could not convert string to float: 'twelve'",
        ),
        ([HEADER, "t:1,Table 1,tbt,12,predict,x,"], ":2:1: a scenario needs a metric"),
        (
            [HEADER, "t:1,Table 1,tbt,12,input,x,y"],
            ":2:1: a row with role 'input' names no scenario",
        ),
        (
            [f"{HEADER},quantiti", "t:1,Table 1,tbt,12,input,,,x"],
            "quantiti: unknown field; did you mean 'quantity'",
        ),
        ([HEADER, "t:1,,tbt,12,input,,"], ":2:1: source: is required and missing"),
    ],
)
def test_a_mistake_names_its_line(lines: list[str], fault: str, tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(BadInput) as caught:
        list(rows(PublishedCell, path))
    assert any(fault in str(one) for one in caught.value.faults), caught.value


def test_a_missing_file_is_one_fault(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"{PAPERS}/contradictions.csv: cannot be read"):
        contradictions(tmp_path)


# ---- contradictions that follow from the printed values alone are recomputed from them


def printed(paper: str, table: str, **chosen: object) -> list[float]:
    """Values of the rows of a table in which every given column is as given, in reading order."""
    return [
        float(cell.published)
        for cell in CELLS[paper]
        if cell.cell.startswith(f"{table}:")
        and all(getattr(cell, name) == value for name, value in chosen.items())
    ]


def finding(number: str) -> str:
    return next(
        contradiction.finding for contradiction in contradictions() if contradiction.id == number
    )


def test_contradictions_are_numbered_and_placed() -> None:
    found = contradictions()
    numbers = [f"K{number:02d}" for number in range(1, 76)]
    if not gone():
        assert [one.id for one in found] == numbers
    assert len({one.id for one in found} & set(numbers)) == len(found)
    assert {figure.paper for figure in found} == {*CELLS, "several"}


def mirror(method: str, **chosen: object) -> list[float]:
    return printed("mirror_sd", "mirror_sd_table1", method=method, **chosen)


def test_k01_the_average_of_mirror_sd() -> None:
    averages = [
        mean(mirror("Mirror-SD", temperature=0, model=model))
        for model in ("Qwen3-32B", "Qwen3-14B")
    ]
    assert all(f"{average:.3f}x" in finding("K01") for average in averages)


def gains_over_eagle3(temperature: int) -> list[float]:
    ours, theirs = (mirror(method, temperature=temperature) for method in ("Mirror-SD", "EAGLE3"))
    return [100.0 * (mine / other - 1.0) for mine, other in zip(ours, theirs, strict=True)]


def test_k02_the_gain_over_eagle3() -> None:
    greedy, sampled = gains_over_eagle3(0), gains_over_eagle3(1)
    assert all(
        f"{mean(some):.1f} %" in finding("K02") for some in (greedy + sampled, greedy, sampled)
    )


def test_k04_the_span_of_three_baselines() -> None:
    found = [
        value
        for method in ("Hydra", "Recycling", "Medusa")
        for value in mirror(method, task="Multi-turn Conversation")
    ]
    assert len(found) == 12
    assert f"{min(found):.2f}x to {max(found):.2f}x" in finding("K04")


def test_k17_what_the_law_cannot_produce() -> None:
    ratios = [a / b for a, b in zip(mirror("Mirror-SD"), mirror("Vanilla-SD"), strict=True)]
    text = (
        f"reaches {max(ratios):.2f} and is above 1.5 in {sum(r > 1.5 for r in ratios)} of "
        f"{len(ratios)} rows"
    )
    assert text in finding("K17")


def test_k21_one_framework_two_latencies() -> None:
    alone = printed("specpipe", "specpipe_table3_specinfer")
    (batched,) = printed("specpipe", "specpipe_table4_specinfer", batch_size=1, quantity="latency")
    assert f"{mean(alone):.1f} ms on average) and {batched} ms" in finding("K21")


def rate(method: str, task: str, model: str) -> float:
    (found,) = printed(
        "duodecoding",
        "duodecoding_table1",
        method=method,
        task=task,
        model=model,
        quantity="tokens_per_second",
    )
    return found


def test_k41_k43_speed_ups_from_tokens_per_second() -> None:
    average = [rate(method, "Avg.", "Llama2-7b") for method in ("DuoDec", "Vanilla")]
    assert f"gains {average[0] / average[1]:.2f}x on average" in finding("K41")
    translation = [rate(method, "Trans", "Vicuna-7b-v1.5") for method in ("PLD", "Vanilla")]
    assert f"is {translation[0] / translation[1]:.2f}x" in finding("K43")


def test_k45_two_fixed_sequences_are_faster_in_translation() -> None:
    fixed, chosen = (
        printed("duodecoding", "duodecoding_table2_sequences", method=one, task="MT")
        for one in ("DuoDec static s=2", "DuoDec dynamic")
    )
    assert f"({fixed[0]:.2f} against {chosen[0]:.2f} tokens per second)" in finding("K45")
