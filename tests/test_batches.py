"""The batch study (Mirror-SD App. D.1) and where a batch stops paying."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from simulator.cli.main import main
from simulator.report.blocks import ALWAYS, Remark
from simulator.report.pages.batches import crossed, in_short, waiting
from simulator.scenario import load
from simulator.scenario.evaluate import baseline, law
from simulator.studies.batches import (
    BatchPoint,
    BatchStudy,
    batch_sweep,
    chance_for,
    crossover,
    crossover_interval,
    tile_edges,
)

SEVEN_B = "vanilla_llama_2_7b_a100"
OLDER = ["target.engine=vllm_v0", "draft.engine=vllm_v0"]
"""Without captured graphs, which round rows up as tiles do."""
SET_OLDER = [word for assignment in OLDER for word in ("--set", assignment)]
RULE = ["strategy.batching_rule=true"]


def test_mirror_and_vanilla_both_lose_their_lead_as_the_batch_grows() -> None:
    """App. D.1: both speed-ups fall. That Mirror stays ahead is not found with candidates for every
    position.
    """
    points = batch_sweep(load("mirror_qwen3_32b_m2_ultra", RULE), (1, 8, 16, 32, 64), (1, 8))
    for one, other in pairwise(points):
        assert other.speedup < one.speedup
        assert other.vanilla_speedup < one.vanilla_speedup
    simulated = [point for point in points if point.simulated_speedup is not None]
    assert [point.batch for point in simulated] == [1, 8]
    assert simulated[1].simulated_speedup < simulated[0].simulated_speedup
    assert points[0].speedup > points[0].vanilla_speedup
    assert [point.settings for point in points] == [
        "kappa 8, 2 streams",
        "kappa 8, 2 streams",
        "kappa 4, 1 stream",
        "kappa 2, 1 stream",
        "kappa 1, 1 stream",
    ]


def test_the_relative_draft_overhead_rises_with_the_batch_until_the_rule_steps_in() -> None:
    """While kappa and streams stay, each larger batch exposes more, once any is; every step of the
    rule brings it down.

    Rows beyond the eight that were measured cost nothing further here, or a verification would hide
    the draft.
    """
    sets = [*RULE, "target.engine.further_rows=0"]
    points = batch_sweep(load("mirror_qwen3_32b_m2_ultra", sets), range(1, 33), ())
    groups = [list(group) for _, group in groupby(points, key=lambda point: point.settings)]
    assert [len(group) for group in groups] == [15, 16, 1]
    for group in groups:
        for one, other in pairwise(group):
            exposes = other.relative_draft_overhead > one.relative_draft_overhead
            assert exposes or other.relative_draft_overhead == 0.0
        assert len(group) == 1 or group[-1].relative_draft_overhead > 0.5
    for group, following in pairwise(groups):
        assert following[0].relative_draft_overhead < group[-1].relative_draft_overhead


def test_the_overhead_is_exposed_time_over_the_draft_time_of_vanilla_decoding() -> None:
    (point,) = batch_sweep(load("mirror_qwen3_32b_a100", RULE), (4,), ())
    vanilla = load("vanilla_qwen3_32b_a100", ["strategy.drafter.name=streaming"]).scenario
    serial = vanilla.schedule
    kind = next(iter(serial.kinds(lambda gamma: None, 4)))
    whole = serial.durations(vanilla.cost, serial.step(kind, vanilla.mean_context)).draft * 1e3
    assert point.exposed_draft_ms is not None
    assert point.relative_draft_overhead == pytest.approx(point.exposed_draft_ms / whole)


def test_tiles_are_where_a_pass_jumps() -> None:
    """Gamma 4: five rows a request; the A100's products step behind 64, 128, 256, 384 and 512 rows,
    not behind 192.
    """
    loaded = load(SEVEN_B, OLDER)
    points = batch_sweep(loaded, range(1, 105), ())
    edges = tile_edges(loaded, points)
    assert edges == [13, 26, 52, 77, 103]
    rise = {point.batch: point.verify_ms / before.verify_ms for before, point in pairwise(points)}
    for edge in edges[:3]:
        assert rise[edge] > 1.1 > max(rise[edge - 1], rise[edge + 1])
    assert tile_edges(load("durations_only"), points) == []


def test_vanilla_decoding_of_a_7b_stops_to_pay_on_an_a100() -> None:
    """Where its rows fill more than two tiles of 64; level where they begin the second one."""
    points = batch_sweep(load(SEVEN_B, OLDER), range(1, 129), ())
    assert crossover(points) == (13, 26)
    assert all(point.speedup < 1.0 for point in points if point.batch >= 26)
    assert all(point.speedup > 0.99 for point in points if point.batch < 26)


def test_a_point_is_the_law_of_its_scenario() -> None:
    (point,) = batch_sweep(load(SEVEN_B, OLDER), (24,), ())
    loaded = load(SEVEN_B, [*OLDER, "requests.concurrency=24"])
    assert point.law_tpot_ms == law(loaded.scenario, loaded.acceptance()).tpot_s * 1e3
    assert point.baseline_tpot_ms == baseline(loaded.scenario).tpot_s * 1e3
    assert point.verify_rows == 24 * 5


def test_clients_beyond_the_room_of_the_cache_wait() -> None:
    """A block of 16 tokens is the step of the room; the draft's cache takes some of it."""
    loaded = load(
        SEVEN_B, ["requests.prompt_tokens=2000", "requests.output_tokens=128", "requests.count=40"]
    )
    room = loaded.scenario.kv_tokens
    assert room is not None
    most = room // 16 // -(-(2000 + 128 + 3) // 16)
    fits, waits = batch_sweep(loaded, (most, most + 1), ())
    assert (fits.running, waits.running, waits.baseline_running) == (most, most, most + 1)
    assert waits.law_tpot_ms == fits.law_tpot_ms
    rates = waits.law_tokens_per_s / waits.baseline_tokens_per_s
    assert waits.speedup == pytest.approx(rates, rel=1e-12)
    assert waits.speedup < fits.speedup
    words = waiting(BatchStudy(loaded.scenario, (fits, waits), (), None))
    assert words == (
        f"From B = {most + 1} on clients wait for room in the KV cache; {most + 1} clients: {most} "
        "run at a time, 1 wait; without speculation all would run"
    )
    assert not waiting(BatchStudy(loaded.scenario, (fits,), (), None))


def test_the_short_answer_names_three_simulated_sizes_with_their_chances() -> None:
    """The first, the one in the middle and the last of five; sizes by law alone are left out."""
    loaded = load(SEVEN_B, ["requests.count=2"])
    (one,) = batch_sweep(loaded, (1,), ())

    def study(*sizes: int) -> BatchStudy:
        points = [replace(one, batch=256, chance=0.0)]
        for place, size in enumerate(sizes):
            rates = {"simulated_tokens_per_s": 300.0 - 50 * place}
            chance = 0.9 - 0.2 * place
            base = {"simulated_baseline_tokens_per_s": 200.0}
            points.append(replace(one, batch=size, chance=chance, **rates, **base))
        return BatchStudy(loaded.scenario, tuple(points), (), None)

    assert list(in_short(study())) == []
    said = "1.50x at B = 1 (90 % chance)"
    assert list(in_short(study(1))) == [Remark("Simulated", f"{said}.", ALWAYS, 1)]
    (remark,) = in_short(study(1, 2, 4, 8, 16))
    assert remark.words == f"{said}, 1.00x at 4 (50 %), 0.50x at 16 (10 %)."


def test_crossings_in_words() -> None:
    def points(*speedups: float) -> list[BatchPoint]:
        return [
            BatchPoint(batch, 4, "", 10.0 * speedup, 1.0, 5, 1.0, 1.0, 10.0, 2.0, batch, batch)
            for batch, speedup in enumerate(speedups, start=1)
        ]

    assert crossed(*crossover(points(2.0, 1.5)), "x") == "x is ahead at every size"
    assert crossed(*crossover(points(2.0, 0.5, 0.4)), "x") == "x is slower from B = 2 on"
    assert (
        crossed(*crossover(points(2.0, 0.5, 1.4, 0.9)), "x")
        == "x is slower first at B = 2, and for good from B = 4 on"
    )
    assert (
        crossed(*crossover(points(0.5, 1.4)), "x")
        == "x is slower first at B = 1, and ahead again at the largest"
    )


def test_the_command_draws_and_tells(tmp_path: Path) -> None:
    file = tmp_path / "study.svg"
    arguments = [
        "batches",
        SEVEN_B,
        *(word for setting in OLDER for word in ("--set", setting)),
        "--sizes",
        "1-3,64-66",
        "--simulate",
        "2",
        "--out",
        str(file),
    ]
    result = CliRunner().invoke(
        main, [*arguments, "--long", "--set", "requests.count=20"], catch_exceptions=False
    )
    assert result.exit_code == 0
    assert "for batches of 1 to 66" in " ".join(result.stdout.split())
    words = "".join(ElementTree.parse(file).getroot().itertext())
    for text in ("vanilla_sd, law", "vanilla_sd, simulation", "another tile of rows", "320 rows"):
        assert text in words, text
    data = json.loads(
        CliRunner().invoke(main, [*arguments, "--json", "--set", "requests.count=20"]).stdout
    )
    assert [point["batch"] for point in data["batches"]] == [1, 2, 3, 64, 65, 66]
    assert (
        data["crossover"] == {"first": None, "for_good": None} or data["crossover"]["first"] == 64
    )
    assert [point["batch"] for point in data["batches"] if point["simulated_speedup"]] == [2]


@pytest.mark.parametrize("sizes", ["", "0", "a", "1-", "5000"])
def test_sizes_that_are_none_are_refused(sizes: str) -> None:
    result = CliRunner().invoke(main, ["batches", SEVEN_B, "--sizes", sizes])
    assert result.exit_code == 2
    assert "expected sizes" in result.stderr


@pytest.mark.parametrize("chance", [0.3, 0.99, 1.0, 1.5, 1e4, 2.5e12])
@pytest.mark.parametrize("gamma", [1, 2, 4, 7, 16])
def test_the_chance_of_a_mean_is_found_also_where_no_acceptance_pays(
    gamma: int, chance: float
) -> None:
    """Far above 1 the roots of the polynomial lie on a circle, none of them real to the last
    bit.
    """
    mean = sum(chance**kept for kept in range(gamma + 1))
    assert chance_for(mean, gamma) == pytest.approx(chance, rel=1e-6)


def test_plain_decoding_has_no_chance_that_would_pay() -> None:
    """Nor where a draft that nobody asks is so slow that the times of plain decoding are told apart
    from themselves.
    """
    words = [
        "draft.device.matmul.default.compute_efficiency.value=1e-12",
        "requests.count=4",
        "requests.output_tokens=12",
    ]
    loaded = load("autoregressive_qwen3_32b_a100", words)
    assert [point.break_even for point in batch_sweep(loaded, (1, 2), ())] == [None, None]


def test_the_crossover_is_drawn_at_every_size_by_the_same_deviates() -> None:
    """Speed-ups of 1.2, 1.1 and 0.9 at 1, 2 and 4: a draw that is 15 % slower at all sizes is first
    behind at 2, one as stated at 4, one 30 % faster nowhere.
    """
    changes = np.log(np.array([0.85, 1.0, 1.3]))
    points = [drawn_point(batch, speedup, changes) for batch, speedup in SPEEDUPS.items()]
    assert crossover_interval(points, 0.999) == (2, None)
    assert crossover_interval(points, 0.1) == (4, 4)
    assert crossover_interval([replace(point, log_changes=None) for point in points]) is None


def test_between_two_drawn_sizes_changes_follow_the_log_of_the_size() -> None:
    """Half-way from 1, where nothing changes, to 4, where it is log(0.64): at 2 it is log(0.8), so
    that 1.1 becomes 0.88.
    """
    ends = {1: np.zeros(2), 4: np.full(2, np.log(0.64))}
    points = [drawn_point(batch, value, ends.get(batch)) for batch, value in SPEEDUPS.items()]
    assert crossover_interval(points) == (2, 2)


SPEEDUPS = {1: 1.2, 2: 1.1, 4: 0.9}


def drawn_point(batch: int, speedup: float, changes: NDArray[np.float64] | None) -> BatchPoint:
    return BatchPoint(
        *(batch, 3, "", 10.0, 10.0, 4 * batch, 12.0, 1.0, 10.0 / speedup, 2.0, batch, batch),
        log_changes=changes,
    )
