"""Every worked example of DuoDecoding's equations (DUO-*), to the printed digits.

``data/duodecoding_worked_examples.csv`` holds inputs and results. One function per block answers
with the project's own code; a row without an answer is a failure.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.verification import sequences_worth, threshold, verify
from simulator.core.acceptance.sequence_chances import budget, cost_coefficient
from simulator.core.acceptance.sequences import Split
from simulator.core.acceptance.sources import Cycle, Rates, odds_of
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.papers.duodecoding.strategy import DuoDecoding
from tests.formulas import expected_tokens

ROWS = list(csv.DictReader((Path(__file__).parent / "data/duodecoding_worked_examples.csv").open()))
Answers = dict[str, Any]


def duo_1(i: dict[str, Any]) -> Answers:
    c = cost_coefficient(i["T_target_ms"], i["T_draft_ms"])
    return {
        "c": c,
        "gamma_floor": budget(c),
        "gamma_floor_min1": budget(c),
        "gamma_round": budget(c, "round"),
    }


def duo_2(i: dict[str, Any]) -> Answers:
    strategy = DuoDecoding(gamma=i["gamma"], sequences=1)
    each = i["overhead_ms"] / 2
    cost = StatedCost(
        StatedDurations(target_ms=i["T_target_ms"], draft_step_ms=i["T_draft_ms"], rv_fv_ms=each),
        i["gamma"],
    )
    kind = strategy.kind_of(i["gamma"] - 1, 1)
    step = strategy.step(kind, 100)
    idle = strategy.derived(cost, step, odds_of(strategy.reads(Cycle((1,))), None))
    return {
        "T_iter_ms": float(strategy.step_seconds(strategy.durations(cost, step), kind)) * 1e3,
        "gpu_idle_ms": idle["target_idle_ms"],
        "cpu_idle_ms": idle["draft_idle_ms"],
    }


def duo_3(i: dict[str, Any]) -> Answers:
    return {"theta": threshold(i["p1"], i["p21"]), "sequences": sequences_worth(i["p1"], i["p21"])}


def duo_4(i: dict[str, Any]) -> Answers:
    lengths = [Split(i["gamma"], s).tail(s) + 1 for s in i["s"]]
    unused = [i["gamma"] - s * length for s, length in zip(i["s"], lengths, strict=True)]
    return {"tokens_per_sequence": lengths, "unused": unused}


def duo_5(i: dict[str, Any]) -> Answers:
    """A token is kept where r < p/q."""
    tail, firsts = (
        [r < ratio for ratio, r in zip(i[ratios], i[draws], strict=True)]
        for ratios, draws in (("unverified_p_over_q", "r"), ("first_p_over_q", "r_first"))
    )
    committed, chosen = verify(tail, firsts)
    rejected = committed <= len(tail)
    taken = "all_sequences_rejected" if chosen is None else f"sequence_{chosen + 1}_accepted"
    return {
        "outcome": "prefix_rejected" if rejected else taken,
        "committed": committed,
        "rejected_position": committed if rejected else None,
        "next_unverified": 0 if chosen is None else i["gamma_over_s"] - 1,
    }


def duo_6(i: dict[str, Any]) -> Answers:
    """The printed law, and the strategy's shares of step kinds and tokens."""
    rate, first, tail = i["alpha"], i["alpha_first"], i["L"]
    warm, tokens_warm, tokens = expected_tokens(rate, first, tail)
    strategy = DuoDecoding(gamma=tail + 1, sequences=1, first_rate=first)
    source = strategy.reads(Rates((rate,)))
    kinds = strategy.kinds(lambda gamma: source.odds(gamma, None), 1)
    assert sum(share for kind, share in kinds.items() if kind.name == "warm") == pytest.approx(warm)
    law = strategy.law(
        StatedCost(StatedDurations(target_ms=1, draft_step_ms=1), 1),
        lambda gamma: source.odds(gamma, None),
        1,
        100,
    )
    assert law.tokens_per_step == pytest.approx(tokens)
    return {"pi_warm": warm, "E_tokens_warm": tokens_warm, "E_tokens_per_iteration": tokens}


ANSWERS: dict[str, Callable[[dict[str, Any]], Answers]] = {
    "DUO-1": duo_1,
    "DUO-2": duo_2,
    "DUO-3": duo_3,
    "DUO-4": duo_4,
    "DUO-5": duo_5,
    "DUO-6": duo_6,
}


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row['eq_id']}-{row['case']}-{row['output']}"
)
def test_worked_example(row: dict[str, str]) -> None:
    answer = ANSWERS[row["eq_id"]](json.loads(row["inputs"]))[row["output"]]
    try:
        expected = json.loads(row["value"])
    except json.JSONDecodeError:
        expected = row["value"]
    if isinstance(expected, str):
        assert answer == expected
    else:
        assert answer == pytest.approx(expected, rel=5e-5, abs=1e-9)


def test_every_block_is_there() -> None:
    assert {row["eq_id"] for row in ROWS} == set(ANSWERS)
