"""Cells of SpecDecode-Bench: fixed windows, an oracle, EAGLE and n-gram combined, at batch 1 to 64,
against a plain loop.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from simulator.core.acceptance.sources import Replay
from simulator.inputs.traces import converters, file as trace_file
from simulator.inputs.traces.file import read
from simulator.scenario import load
from simulator.scenario.evaluate import run

DATA = Path(__file__).parents[2] / "shared/data/acceptance_traces"
SPEC = DATA / "specdecode_bench_llama3.1-8b_positional_acclen.jsonl"
OUTPUT = 65
"""Tokens of an output, the first of which the prefill emits."""
TARGET = [(1, 28.0), (8, 30.0), (64, 44.0), (1024, 300.0)]
DRAFT = [(1, 1.5), (64, 2.5)]
"""Milliseconds of a pass by its rows; linear in between."""
Window = int | str


def table(points: Sequence[tuple[int, float]]) -> str:
    return f"{{columns: [rows, ms], points: {[list(point) for point in points]}}}"


def ms(points: Sequence[tuple[int, float]], rows: int) -> float:
    return float(np.interp(rows, [at for at, _ in points], [time for _, time in points]))


def by_hand(lengths: Sequence[Sequence[int]], window: Window, batch: int) -> tuple[float, int]:
    """Return milliseconds and steps until every request has its tokens: start at p, emit
    lengths[p], go on behind.
    """
    waiting, time, steps = list(lengths), 0.0, 0
    running: list[list[int]] = []
    """Number of the request, and the tokens that it has behind its first."""
    started = 0
    while running or started < len(waiting):
        while len(running) < batch and started < len(waiting):
            running.append([started, 0])
            started += 1
        windows = []
        for state in running:
            emitted = waiting[state[0]][state[1] % len(waiting[state[0]])]
            windows.append(emitted - 1 if window == "oracle" else int(window))
            state[1] += min(emitted, windows[-1] + 1)
        drafting = sum(size > 0 for size in windows)
        time += ms(TARGET, sum(size + 1 for size in windows))
        time += max(windows) * ms(DRAFT, drafting) if drafting else 0.0
        steps += 1
        running = [state for state in running if state[1] < OUTPUT - 1]
    return time, steps


def ours(
    folder: Path, window: Window, batch: int, count: int, drafter: str = "drafter: draft"
) -> tuple[float, int]:
    rule = "gamma: 25, adaptive: oracle" if window == "oracle" else f"gamma: {window}"
    (folder / "x.yaml").write_text(
        f"strategy: {{name: vanilla_sd, {rule}}}\n"
        f"durations: {{target_ms: {table(TARGET)}, draft_step_ms: {table(DRAFT)}}}\n"
        f"acceptance: {{trace: {folder}/t.npz, {drafter}}}\n"
        f"requests: {{count: {count}, concurrency: {batch}, output_tokens: {OUTPUT}}}\n"
    )
    result = run(load(str(folder / "x.yaml")))
    assert result.replay.tpot_s == pytest.approx(result.simulated.tpot_s, rel=1e-9)
    return result.simulated.end_s * 1e3, result.simulated.steps


def written(folder: Path, rows: Sequence[dict[str, object]]) -> list[int]:
    """Write the trace of both methods, wide enough for the oracle; return the rows in the order in
    which requests get them.
    """
    trace = converters.both(rows, 25)
    trace_file.write(trace, folder / "t.npz")
    return Replay(read(folder / "t.npz")).order


CELLS: list[tuple[Window, int]] = [
    (1, 1),
    (3, 1),
    (5, 8),
    (3, 64),
    ("oracle", 1),
    ("oracle", 8),
    ("oracle", 64),
]


@pytest.mark.parametrize(("window", "batch"), CELLS)
def test_cells_on_made_up_files(tmp_path: Path, window: Window, batch: int) -> None:
    random = np.random.default_rng(22)
    rows = [
        {"acc_eagle": {"acc_len": draw(0.35)}, "acc_ngram": {"acc_len": draw(0.6)}}
        for draw in [made_up(random)] * 96
    ]
    check(tmp_path, rows, window, batch)


def made_up(random: np.random.Generator) -> Callable[[float], list[int]]:
    return lambda chance: np.minimum(
        random.geometric(chance, int(random.integers(40, 90))), 21
    ).tolist()


@pytest.mark.skipif(not SPEC.is_file(), reason="the data files are not part of the repository")
@pytest.mark.parametrize(("window", "batch"), CELLS)
def test_cells_on_the_benchmark_itself(tmp_path: Path, window: Window, batch: int) -> None:
    lines = SPEC.read_text(encoding="utf-8").splitlines()
    check(tmp_path, [json.loads(line) for line in lines[:: len(lines) // 96][:96]], window, batch)


def check(folder: Path, rows: Sequence[dict[str, object]], window: Window, batch: int) -> None:
    """EAGLE, n-gram and the best of both: law of size step times a walk of the recording, at
    1e-9.
    """
    order = written(folder, rows)
    pairs = [[lengths_of(row, method) for method in ("eagle", "ngram")] for row in rows]
    for drafter, chosen in (("draft", 0), ("ngram", 1), ("best_of, best_of: [draft, ngram]", None)):
        cut = [list(zip(*pair, strict=False)) for pair in pairs]
        lengths = [
            [max(both) if chosen is None else both[chosen] for both in request] for request in cut
        ]
        time, steps = by_hand([lengths[recording] for recording in order], window, batch)
        simulated, ran = ours(folder, window, batch, len(rows), f"drafter: {drafter}")
        assert ran == steps
        assert simulated == pytest.approx(time, rel=1e-9)


def lengths_of(row: dict[str, object], method: str) -> list[int]:
    nested = row.get(f"acc_{method}")
    found = nested["acc_len"] if isinstance(nested, dict) else row[f"acc_len_{method}"]
    assert isinstance(found, list)
    return found
