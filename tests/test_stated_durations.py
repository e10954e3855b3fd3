"""Durations by load: a formula and a table by hand, and the walk over a recording that they
price.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from simulator.core.cost.durations import ByLoad, Tabulated
from simulator.core.cost.rows import Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.faults import BadInput
from simulator.inputs.traces import converters, file as trace_file
from simulator.scenario import load
from simulator.scenario.evaluate import law, simulate

TABLE = "rows,cached_tokens,ms\n1,0,10\n1,1000,12\n8,0,14\n8,1000,20\n"
SHARED = (
    Path(__file__).parents[2]
    / "shared/data/acceptance_traces/specdecode_bench_llama3.1-8b_positional_acclen.jsonl"
)


def scenario(
    folder: Path, durations: str, rest: str = "acceptance: {always: 2}", name: str = "mine"
) -> str:
    (folder / "target.csv").write_text(TABLE)
    path = folder / f"{name}.yaml"
    path.write_text(f"strategy: {{name: vanilla_sd, gamma: 4}}\ndurations: {durations}\n{rest}\n")
    return str(path)


def test_a_formula_by_hand() -> None:
    """28 + 5 rows at 0.4 + 300 cached tokens at 0.01 + 1 sequence at 0.5."""
    formula = ByLoad(base_ms=28.0, row_ms=0.4, cached_token_ms=0.01, sequence_ms=0.5)
    assert formula.ms(Rows.decode(5, 300)) == pytest.approx(28.0 + 2.0 + 3.0 + 0.5)
    assert formula.ms(Rows.decode(5, 300, 2)) == pytest.approx(28.0 + 4.0 + 3.0 + 1.0), (
        "300 cached in both together"
    )
    assert formula.ms(Rows.decode(5, np.array([0, 300]))).tolist() == pytest.approx([30.5, 33.5])


GRID = Tabulated(
    columns=("rows", "cached_tokens", "ms"),
    points=((8, 0, 14), (1, 0, 10), (1, 1000, 12), (8, 1000, 20)),
)


@pytest.mark.parametrize(
    ("rows", "cached", "ms"),
    [(1, 0, 10), (8, 1000, 20), (1, 500, 11), (8, 500, 17), (5, 0, 10 + 4 * 4 / 7), (64, 9000, 20)],
)
def test_a_table_by_hand(rows: int, cached: int, ms: float) -> None:
    assert GRID.ms(Rows.decode(rows, cached)) == pytest.approx(ms)
    assert (
        GRID.ms(Rows.decode(rows, np.array([cached, cached]))).tolist()
        == [GRID.ms(Rows.decode(rows, cached))] * 2
    )


@given(st.integers(1, 40), st.integers(0, 3000), st.integers(0, 500))
def test_a_table_that_grows_gives_times_that_grow(rows: int, cached: int, more: int) -> None:
    assert GRID.ms(Rows.decode(rows, cached)) <= GRID.ms(Rows.decode(rows, cached + more)) + 1e-12


def test_the_law_takes_the_mean_context_and_the_simulation_each_step_at_its_own(
    tmp_path: Path,
) -> None:
    """Steps of 3 tokens behind 8, 11 and 14 cached ones: 5 rows, and 4 drafted at the window's last
    context.
    """
    durations = (
        "{target_ms: {base_ms: 30, row_ms: 1, cached_token_ms: 0.1}, draft_step_ms: {base_ms: "
        "2, cached_token_ms: 0.01}}"
    )
    requests = "requests: {count: 1, prompt_tokens: 8, output_tokens: 10}"
    loaded = load(scenario(tmp_path, durations, f"acceptance: {{always: 2}}\n{requests}"))
    assert loaded.scenario.cost.reads_context
    _, spans = simulate(loaded.scenario, loaded.acceptance(), spans=50)
    passes = {
        lane: [1e3 * (span.end_s - span.start_s) for span in spans if span.lane == lane]
        for lane in ("target", "draft")
    }
    contexts = [8, 11, 14]
    assert [ms for ms in passes["target"] if ms] == pytest.approx(
        [30.0 + 5.0 + 0.1 * cached for cached in contexts]
    )
    assert [ms for ms in passes["draft"] if ms] == pytest.approx(
        [4 * (2.0 + 0.01 * (cached + 4)) for cached in contexts]
    )


def test_a_file_is_named_relative_to_the_scenario_and_stays_out_of_an_export(
    tmp_path: Path,
) -> None:
    loaded = load(scenario(tmp_path, "{target_ms: {file: target.csv}, draft_step_ms: 1}"))
    assert loaded.scenario.durations.target_ms.points[0] == (1.0, 0.0, 10.0)
    again = StatedDurations.model_validate(
        json.loads(loaded.scenario.durations.model_dump_json(exclude_none=True))
    )
    assert StatedCost(again).target(Rows.decode(8, 0)).wall_s == pytest.approx(14e-3)


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ("rows,ms\n1,ten\n", "target.csv:2:0: expected numbers, found '1,ten'"),
        (
            "rows,cached_tokens,ms\n1,0,10\n8,5,11\n",
            "expected a grid, in which rows 1, cached_tokens 5 is missing",
        ),
        ("rows,ms\n1,10\n1,11\n", "was given twice"),
        ("rows\n1\n", "expected ms and at least one of rows, cached_tokens, sequences"),
        ("batch,ms\n1,10\n", "columns.0"),
        ("rows,ms\n1,-10\n", "points.0.1"),
        ("", "durations.target_ms.points"),
    ],
)
def test_faults_of_a_table_say_where(tmp_path: Path, table: str, fault: str) -> None:
    path = scenario(tmp_path, "{target_ms: {file: target.csv}, draft_step_ms: 1}")
    (tmp_path / "target.csv").write_text(table)
    with pytest.raises(BadInput) as caught:
        load(path)
    assert fault in str(caught.value)


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"durations.target_ms.file: there is no file .*other.csv"):
        load(scenario(tmp_path, "{target_ms: {file: other.csv}, draft_step_ms: 1}"))


# ---- SpecDecode-Bench: the law of a step times a walk of the recording


def walk(lengths: list[int], gamma: int, tokens: int) -> tuple[int, int]:
    """Return the steps that start at p, emit lengths[p] at most gamma + 1 of them, and go on behind
    them; and the tokens.
    """
    position = steps = emitted = 0
    while emitted < tokens:
        length = min(lengths[position % len(lengths)], gamma + 1)
        position, steps, emitted = position + length, steps + 1, emitted + length
    return steps, emitted


def walked_by_hand(tmp_path: Path, rows: list[dict], gamma: int) -> None:
    """Every step costs gamma draft steps of 2 ms and 30 ms + 0.5 a row; a request's steps follow
    one another.
    """
    trace_file.write(converters.positional(rows, "eagle"), tmp_path / "bench.npz")
    tokens = min(len(row["acc_len_eagle"]) for row in rows)
    path = scenario(
        tmp_path,
        "{target_ms: {base_ms: 30, row_ms: 0.5}, draft_step_ms: 2}",
        f"acceptance: {{trace: {tmp_path}/bench.npz, stand_in: true}}\n"
        f"requests: {{count: {len(rows)}, prompt_tokens: 16, output_tokens: {tokens}}}",
    )
    loaded = load(path, [f"strategy.gamma={gamma}"])
    (outcome, _), order = simulate(loaded.scenario, loaded.acceptance()), loaded.acceptance().order
    step_ms = gamma * 2.0 + 30.0 + 0.5 * (gamma + 1)
    assert law(loaded.scenario, loaded.acceptance()).step_s == pytest.approx(
        1e-3 * step_ms, rel=1e-9
    )
    by_hand = [
        step_ms * walk(rows[recording]["acc_len_eagle"], gamma, tokens - 1)[0]
        for recording in order
    ]
    assert outcome.tpot_s * 1e3 * (tokens - 1) == pytest.approx(np.mean(by_hand), rel=1e-9)


@pytest.mark.parametrize("gamma", [1, 3, 5])
def test_a_walk_of_a_made_up_recording_costs_what_it_does_by_hand(
    tmp_path: Path, gamma: int
) -> None:
    random = np.random.default_rng(gamma)
    walked_by_hand(
        tmp_path, [{"acc_len_eagle": random.integers(1, 7, 60).tolist()} for _ in range(5)], gamma
    )


@pytest.mark.skipif(
    not SHARED.is_file(), reason="needs the benchmark's recording, which is not part of the project"
)
@pytest.mark.parametrize("gamma", [3, 5])
def test_a_walk_of_the_benchmarks_recording_costs_what_it_does_by_hand(
    tmp_path: Path, gamma: int
) -> None:
    rows = [
        row
        for row in map(json.loads, SHARED.read_text("utf-8").splitlines())
        if len(row["acc_len_eagle"]) >= 40
    ]
    walked_by_hand(tmp_path, rows[:40], gamma)
