"""What the shipped recordings promise: flavours that differ, drafters that are of use, files that stay small."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from simulator.acceptance.sequences import Automaton, RecordedSequences, Split, unrecorded
from simulator.acceptance.sources import Replay
from simulator.acceptance.statistics import Statistics, statistics
from simulator.acceptance.trace import Trace, read
from simulator.acceptance.tree_replay import ranks_ahead, recorded_beams
from simulator.names import Catalogue, shipped

OURS = {name: path for name, path in Catalogue().names("trace").items() if name.startswith("six_flavours")}
MEGABYTE = 1_000_000


@pytest.fixture(scope="module", params=sorted(OURS))
def trace(request: pytest.FixtureRequest) -> Trace:
    return read(OURS[request.param])


@pytest.fixture(scope="module")
def found(trace: Trace) -> Statistics:
    return statistics(trace)


def test_files_stay_small() -> None:
    pair = shipped() / "scenarios/pairs/six_flavours.npz"
    sizes = [path.stat().st_size for path in OURS.values()]
    assert pair.stat().st_size <= 12 * MEGABYTE
    assert pair.stat().st_size + sum(sizes) <= 30 * MEGABYTE
    assert sum(sizes) <= 9 * MEGABYTE
    assert sum(read(path).positions for path in OURS.values()) >= 60_000


def test_flavours_are_neither_hopeless_nor_certain_and_differ(trace: Trace, found: Statistics) -> None:
    """Sampled, a draft that has learnt which choices are free agrees on them too: sums come out near 0.96."""
    rates = [one.rate for one in found.flavours]
    assert len(rates) >= 6
    assert min(rates) >= 0.5
    assert max(rates) <= (0.92 if trace.temperature == 0 else 0.98)
    assert max(rates) - min(rates) >= 0.15


@pytest.mark.parametrize(("drafter", "least"), [("eagle", 0.45), ("lyanna", 0.45), ("medusa", 0.35), ("streams", 0.35)])
def test_heads_are_trained_well_enough_to_be_of_use(drafter: str, least: float) -> None:
    found = {one.name: one for one in statistics(read(OURS["six_flavours_greedy"])).drafters}
    assert found[drafter].by_position[0] >= least


def test_a_wider_tree_holds_more_of_the_text(found: Statistics) -> None:
    by_shape: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for one in found.pipelines:
        by_shape.setdefault((one.branching, one.stages), []).append((one.width, one.hit_rate))
    for members in by_shape.values():
        rates = [rate for _, rate in sorted(members)]
        assert np.all(np.diff(rates) >= -0.005), "beyond what one recording can tell apart"


def test_passages_add_up(trace: Trace) -> None:
    """A miss empties the pipeline; a token takes at most all stages, the last one alone; every step has a level entering."""
    inside = np.ones(trace.positions, dtype=bool)
    inside[trace.offsets[:-1]] = False
    behind = inside.copy()
    behind[trace.offsets[:-1] + 1] = False
    steps, hit, rows = (trace.extra[f"beam.{name}"] for name in ("steps", "hit", "rows"))
    for index, beam in enumerate(recorded_beams(trace)):
        assert steps[index, inside].min() >= 1
        assert steps[index].max() <= beam.stages
        assert (steps[index, trace.offsets[:-1] + 1] == beam.stages).all()
        after_miss = behind & ~np.roll(hit[index], 1).astype(bool)
        assert (steps[index, after_miss] == beam.stages).all()
        stage = np.arange(len(rows[index]))[:, None]
        assert (rows[index, beam.stages - 1, inside] == 1).all()
        assert (rows[index][np.broadcast_to((stage < steps[index]) & inside, rows[index].shape)] > 0).all()
        assert not rows[index, beam.stages :].any()
        assert rows[index].max() <= max(beam.width, 1)


def test_levels_lose_rows_on_their_way(trace: Trace) -> None:
    """Behind a hit a level has moved on by as many stages as steps have passed, and has no more rows than before."""
    behind = np.ones(trace.positions, dtype=bool)
    behind[np.concatenate((trace.offsets[:-1], trace.offsets[:-1] + 1))] = False
    for index, beam in enumerate(recorded_beams(trace)):
        steps, hit, rows = (trace.extra[f"beam.{name}"][index] for name in ("steps", "hit", "rows"))
        for moved in range(1, beam.stages):
            here = np.flatnonzero(behind & np.roll(hit, 1).astype(bool) & (steps == moved))
            assert (rows[moved : beam.stages, here] <= rows[: beam.stages - moved, here - 1]).all()


def test_a_tree_keeps_a_first_token_among_its_choices_only(trace: Trace) -> None:
    """Greedy, it also keeps the layer's first choice wherever that is right, and so more than the chain of them.

    Sampled at temperature 1 it keeps less: a token drawn by the target is in the tree less often than a drafted
    one passes min(1, p/q).
    """
    chain, tree = trace.drafted_by("eagle").run, trace.extra["eagle2.run"]
    assert chain is not None
    first = trace.extra["eagle.rank"][0]
    assert (first[tree >= 1] < trace.header["trees"]["eagle2"]["branching"]).all()
    if trace.temperature == 0:
        assert (tree >= np.minimum(chain, 1)).all()
        assert tree.mean() > chain.mean()


def test_trees_name_the_windows_they_answer_for(trace: Trace) -> None:
    for name, tree in trace.header["trees"].items():
        if f"{name}.run" in trace.extra:
            assert trace.drafted_by(name).window == tree["levels"] == trace.extra[f"{name}.run"].max()


def test_every_drafter_is_a_trace_of_its_own(trace: Trace) -> None:
    for name in trace.drafters:
        alone = statistics(trace.drafted_by(name))
        assert bool(alone.pipelines) == (name == "draft"), "dynamic trees belong to the recorded draft"
        assert alone.tokens == trace.positions


def test_the_warm_trace_is_drawn_as_specpipe_draws() -> None:
    """Temperature 0.6, top-k 80, top-p 0.9 (sec. 4.3), and so few tokens are outside a tree of 64 first choices."""
    trace = read(OURS["six_flavours_warm"])
    assert (trace.temperature, trace.header["sampling"]) == (0.6, {"top_k": 80, "top_p": 0.9})
    assert trace.header["command"].endswith("--trace six_flavours_warm --temperature 0.6 --top-k 80 --top-p 0.9 --requests 20")
    assert (trace.p > 0).all(), "every token was drawn from what the cut leaves"
    assert (trace.q == 0).any(), "the draft is cut as well"
    assert (trace.draft_rank >= 64).mean() < 0.01
    assert (read(OURS["six_flavours_sampled"]).draft_rank >= 64).mean() > 0.02


ROLLED_OUT = {"": 24, "plain": 24, "eagle": 8, "lyanna": 8, "medusa": 3, "streams": 3}


@pytest.mark.parametrize("drafter", ROLLED_OUT)
def test_a_roll_out_is_right_for_as_long_as_its_chain(drafter: str) -> None:
    """Ranks were recorded behind the text's own tokens, roll-outs behind the drafter's: they part with the first wrong one."""
    trace, prefix = read(OURS["six_flavours_greedy"]), f"{drafter}." if drafter else ""
    written = trace.extra[f"{prefix}rollout.token"]
    depths = len(written)
    assert len(trace.extra[f"{prefix}rollout.sequences"]) == depths == ROLLED_OUT[drafter]
    agree = ranks_ahead(trace, drafter or "draft", depths) == 0
    right = np.zeros_like(agree)
    for start, end in zip(trace.offsets[:-1], trace.offsets[1:], strict=True):
        for depth in range(depths):
            right[depth, start : end - depth] = written[depth, start : end - depth] == trace.token[start + depth : end]
    first = np.isin(np.arange(trace.positions), trace.offsets[:-1])
    kept, rolled = (np.cumprod(each, axis=0).sum(axis=0)[~first] for each in (agree, right))
    assert (kept == rolled).mean() > 0.9999, "but for rounding in a tie"


def test_longer_chains_keep_more() -> None:
    trace = read(OURS["six_flavours_greedy"])
    for name, chain in trace.header["chains"].items():
        alone = trace.drafted_by(name)
        assert alone.window == chain["recorded"] == 8 > chain["trained"]
        assert alone.run is not None
        assert alone.run.max() > chain["trained"]


def test_several_sequences_replay_from_the_second_draft_too() -> None:
    trace = read(OURS["six_flavours_greedy"]).drafted_by("plain")
    assert unrecorded(trace, Split(24)) is None
    steps = Counter[int]()
    replay = Replay(trace)
    for request in range(12):
        automaton = Automaton(RecordedSequences(replay, Split(24)).cursor(request, None), Split(24))
        steps.update(automaton.judge().sequences for _ in range(40))
    assert set(steps) > {1, 2}
