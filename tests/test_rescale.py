"""A recording by start, moved to a published mean: the mean is met, the order of starts stays, and
so do the bursts.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from test_tree_replay import trace_of

from simulator.core.acceptance.rescale import lengths, rescaled, stretched
from simulator.core.acceptance.sequences import RecordedSequences
from simulator.core.acceptance.sources import Cycle, Replay
from simulator.core.acceptance.tree_replay import RecordedRuns
from simulator.core.acceptance.window_replay import Walk, WindowReplay
from simulator.core.faults import BadInput
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.traces.file import read
from simulator.scenario import load
from simulator.scenario.evaluate import law
from simulator.scenario.loading import Loaded, variant
from simulator.scenario.stated.means import moving_rule, stated_rule

LEVELS = 4
SCENARIO = "methods_vicuna_7b_a100"


def bursts(count: int = 4_000) -> RecordedRuns:
    """Runs that are long for a while and short for a while."""
    random = np.random.default_rng(2)
    ease = np.convolve(random.normal(size=count), np.ones(25) / 5, "same")
    run = np.clip(np.rint(1.7 + ease + random.normal(size=count) / 2), 0, LEVELS).astype(np.int64)
    return RecordedRuns(Replay(trace_of([0] * count)), run, LEVELS)


RECORDED = bursts()


@pytest.mark.full
@settings(max_examples=15)
@given(st.floats(1.15, 4.8), st.integers(0, 3))
def test_the_mean_is_met_and_every_start_keeps_its_place(length: float, seed: int) -> None:
    trace = rescaled(RECORDED, length, LEVELS, seed)
    assert WindowReplay.of(trace).mean(LEVELS) + 1.0 == pytest.approx(length, abs=0.02)
    assert trace.trace.header["derived_from"]["mean_length_tokens"] == pytest.approx(
        length, abs=0.02
    )
    assert trace.order == RECORDED.order
    before, after = RECORDED.kept[1:], trace.kept[1:]
    ends = [
        (after[before == level].min(), after[before == level].max()) for level in range(LEVELS + 1)
    ]
    assert all(low[1] <= high[0] for low, high in pairwise(ends)), (
        "a longer run stays as long as a shorter"
    )


@given(
    st.floats(-3.0, 3.0),
    st.floats(0.0, 2.0),
    st.lists(st.floats(0.01, 1.0), min_size=2, max_size=6),
)
def test_lengths_grow_with_the_tilt(theta: float, more: float, shares: list[float]) -> None:
    shares_ = np.array(shares) / sum(shares)
    assert (lengths(shares_, theta, 200) <= lengths(shares_, theta + more, 200)).all()


@given(st.lists(st.integers(0, LEVELS), min_size=1, max_size=60))
def test_no_tilt_is_the_recording(run: list[int]) -> None:
    shares = np.bincount(run, minlength=LEVELS + 1) / len(run)
    assert lengths(shares, 0.0, len(run)).tolist() == sorted(run)


def test_the_tilted_shares_are_the_exponential_family() -> None:
    """Odds of neighbouring lengths are multiplied by e^theta."""
    found = (
        np.bincount(lengths(np.array([0.2, 0.5, 0.3]), np.log(2.0), 1_000_000), minlength=3) / 1e6
    )
    assert found == pytest.approx(np.array([0.2, 1.0, 1.2]) / 2.4, abs=2e-6)


@pytest.mark.parametrize("length", [2.0, 3.6])
def test_bursts_stay(length: float) -> None:
    """Of the correlation of a start with later ones at least three quarters stay; drawn
    independently none would.
    """

    def correlation(runs: RecordedRuns, lag: int) -> float:
        return float(np.corrcoef(runs.kept[1:-lag], runs.kept[1 + lag :])[0, 1])

    trace = rescaled(RECORDED, length, LEVELS)
    for lag in (1, 5, 10):
        assert 0.75 < correlation(trace, lag) / correlation(RECORDED, lag) < 1.1


def test_what_proposes_nothing_goes_on_proposing_nothing() -> None:
    proposed = np.tile([0, 1, 1, 1], 1_000)
    recorded = RecordedRuns(RECORDED, np.where(proposed > 0, RECORDED.kept, 0), LEVELS, proposed)
    trace = rescaled(recorded, 2.5, LEVELS)
    assert isinstance(trace, RecordedRuns)
    assert WindowReplay.of(trace).mean(LEVELS) + 1.0 == pytest.approx(2.5, abs=0.02)
    assert not trace.kept[proposed == 0].any()
    assert trace.odds(LEVELS, None).unmatched == recorded.odds(LEVELS, None).unmatched


def test_means_out_of_reach() -> None:
    short = RecordedRuns(Replay(trace_of([0] * 6)), np.array([0, 1, 0, 1, 0, 1]), LEVELS)
    with pytest.raises(
        BadInput, match=r"cannot be re-scaled to 3: the recorded lengths reach 1 to 2 tokens a step"
    ):
        rescaled(short, 3.0, LEVELS)
    with pytest.raises(BadInput, match="at window 4 it lies between 1 and 5"):
        rescaled(short, 5.0, LEVELS)
    with pytest.raises(BadInput, match="more of a recording than one run"):
        rescaled(Cycle((1,)), 2.0, LEVELS)


def test_a_chain_is_decided_anew_by_position() -> None:
    replay = Replay(read(Catalogue().names("trace")["six_flavours_greedy"]), ["code", "maths"])
    trace = rescaled(replay, 3.5, 5)
    assert trace.trace.run is None
    assert trace.order == replay.order
    assert WindowReplay.of(trace).mean(5) + 1.0 == pytest.approx(3.5, abs=0.02)


def test_a_scenario_asks_for_a_mean() -> None:
    asked = [
        "strategy=eagle_1",
        "acceptance.rescale={tokens_per_step: 3.94, source: a table, confidence: published}",
    ]
    loaded = load(SCENARIO, asked)
    acceptance = loaded.acceptance()
    assert acceptance is loaded.acceptance(), "worked out once"
    assert isinstance(acceptance, RecordedRuns)
    assert WindowReplay.of(acceptance).mean(5) + 1.0 == pytest.approx(3.94, abs=0.01)


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (
            ["acceptance.rescale.tokens_per_step=7"],
            "acceptance.rescale.tokens_per_step: a mean accepted length of 7 cannot be",
        ),
        (["acceptance.rescale.tokens_per_step=1"], "acceptance.rescale.tokens_per_step: expected"),
        (["acceptance={rate: 0.8, rescale: {tokens_per_step: 2}}"], "rescale is for a trace"),
    ],
)
def test_faults_name_the_field(overrides: list[str], fault: str) -> None:
    with pytest.raises(BadInput) as caught:
        load(SCENARIO, overrides)
    assert fault in str(caught.value)


GREEDY = Replay(read(Catalogue().names("trace")["six_flavours_greedy"]), ["code", "maths"])


def test_what_is_rejected_anew_has_the_rank_of_a_recorded_rejection() -> None:
    """So that a second sequence begins right as often as it did behind recorded rejections."""
    before, after = GREEDY.trace.draft_rank, rescaled(GREEDY, 2.2, 5).trace.draft_rank
    anew = after[(before == 0) & (after > 0)]
    assert len(anew) > 1_000
    assert np.mean(anew == 1) == pytest.approx(np.mean(before[before > 0] == 1), abs=0.03)
    kept = (before > 0) & (after > 0)
    assert (after[kept] == before[kept]).all()


@given(st.lists(st.integers(2, 40), min_size=2, max_size=5), st.floats(0.0, 1.0))
def test_requests_do_not_stretch_into_each_other(lengths_: list[int], stretch: float) -> None:
    offsets = np.concatenate(([0], np.cumsum(lengths_)))
    levels = np.repeat(np.arange(float(len(lengths_))), lengths_)
    assert stretched(levels, offsets, stretch) == pytest.approx(levels)


def test_a_stretch_keeps_the_mean_and_makes_longer_runs() -> None:
    plain, long = (rescaled(GREEDY, 3.0, 5, stretch=share) for share in (0.0, 0.8))
    assert WindowReplay.of(long).mean(5) + 1.0 == pytest.approx(3.0, abs=0.02)
    assert WindowReplay.of(long).mean(23) > 1.1 * WindowReplay.of(plain).mean(23)
    with pytest.raises(BadInput, match="runs recorded by start cannot be stretched"):
        rescaled(RECORDED, 2.0, LEVELS, stretch=0.5)


def test_a_mean_may_be_meant_at_another_window_and_reach_several_sequences() -> None:
    asked = ["strategy.sequences=2", "acceptance.rescale={tokens_per_step: 2.5, window: 5}"]
    acceptance = load("duodecoding_llama_2_7b_a800", asked).acceptance()
    assert isinstance(acceptance, RecordedSequences)
    assert acceptance.split.fixed == 2
    assert WindowReplay.of(acceptance.replay).mean(5) + 1.0 == pytest.approx(2.5, abs=0.02)


# ---- a mean that was measured elsewhere

# whose steps are one token wide, however many stages
METHODS = sorted(set(Catalogue().names("method")) - {"specpipe"})


@pytest.mark.parametrize("method", METHODS)
def test_a_mean_can_be_stated_for_every_method(method: str) -> None:
    mean = 1.7 if method == "mtp" else 2.4  # of a single draft token, of more
    stated = f"acceptance={{tokens_per_step: {mean}, method: {method}, source: a table}}"
    sets = [f"strategy={method}", "requests.count=20", stated]
    if method == "fr_spec":  # of a vocabulary that is larger than what its head is cut to
        sets.append("target.model=llama_3_1_8b")
    loaded = load("methods_vicuna_7b_a100", sets)
    acceptance, window = loaded.acceptance(), loaded.scenario.schedule.window
    replay = acceptance.replay if isinstance(acceptance, RecordedSequences) else acceptance
    if isinstance(replay, Replay):
        rule = stated_rule(moving_rule(loaded.scenario), loaded.document)
        assert Walk(rule).mean(replay, window) == pytest.approx(mean, abs=0.01)
    else:
        assert acceptance.odds(window, loaded.scenario.exit).committed() == pytest.approx(
            mean, abs=1e-9
        )


@pytest.mark.parametrize(
    "mean",
    [
        "tokens_per_step: 3.1, window: 5",
        "tokens_per_step: 2.1, bonus: false, window: 5",
        "accepted_share: 0.42, window: 5",
    ],
)
def test_a_mean_may_be_stated_in_three_conventions(mean: str) -> None:
    spec = load(
        "vanilla_llama_2_7b_a100", [f"acceptance={{{mean}, method: eagle_3}}"]
    ).scenario.acceptance
    assert (spec.rescale.tokens_per_step, spec.rescale.window) == (pytest.approx(3.1), 5)
    assert (spec.trace, spec.drafter, spec.stand_in) == ("six_flavours_greedy", "eagle", True)


def test_the_recording_nearest_in_temperature_lends_its_bursts() -> None:
    stated = "acceptance={tokens_per_step: 2.4, temperature: 0.7, drafter: plain}"
    assert (
        load("vanilla_llama_2_7b_a100", [stated]).scenario.acceptance.trace == "six_flavours_warm"
    )


@pytest.mark.parametrize(
    "stated",
    [
        "tokens_per_step: 2.4",
        "trace: six_flavours_greedy, stand_in: true, rescale: {tokens_per_step: 2.4}",
    ],
)
def test_a_sweep_over_windows_changes_the_window_and_not_what_was_measured(stated: str) -> None:
    base = load("vanilla_llama_2_7b_a100", ["strategy.gamma=4", f"acceptance={{{stated}}}"])
    means = {}
    for gamma in (1, 2, 4, 8):
        point = variant(base, {"strategy.gamma": gamma})
        assert point.scenario.acceptance.rescale.window == 4
        means[gamma] = WindowReplay.of(point.acceptance()).mean(gamma) + 1.0
    assert means[4] == pytest.approx(2.4, abs=0.01)
    assert 1.0 < means[1] < means[2] < means[4] < means[8]
    assert base.change(gamma=1).acceptance().trace is base.acceptance().trace


def test_a_recording_that_is_given_its_own_mean_keeps_its_own_best_window() -> None:
    plain = load("vanilla_llama_2_7b_a100", ["requests.count=30", "acceptance.drafter=draft"])
    own = WindowReplay.of(plain.acceptance()).mean(4) + 1.0
    lent = load(
        "vanilla_llama_2_7b_a100",
        ["requests.count=30", f"acceptance={{tokens_per_step: {own}, window: 4}}"],
    )
    gammas = range(1, 9)
    for gamma in gammas:
        lengths = [
            WindowReplay.of(loaded.change(gamma=gamma).acceptance()).mean(gamma)
            for loaded in (plain, lent)
        ]
        assert lengths[0] == pytest.approx(lengths[1], rel=0.003)

    def best(loaded: Loaded) -> int:
        return min(
            gammas,
            key=lambda gamma: law(loaded.change(gamma=gamma).scenario, loaded.acceptance()).tpot_s,
        )

    assert best(plain) == best(lent)


@pytest.mark.parametrize(
    ("stated", "fault"),
    [
        ("{tokens_per_step: 0.9}", "if none is counted, say bonus: false"),
        (
            "{rate: 0.8, window: 4}",
            "window and method say where tokens_per_step or accepted_share were measured",
        ),
        ("{tokens_per_step: 7, window: 5}", "at window 5 it lies between 1 and 6"),
        ("{tokens_per_step: 2, method: eagle_4}", "did you mean 'eagle_"),
        ("{tokens_per_step: 2, rate: 0.5}", "found tokens_per_step and rate"),
    ],
)
def test_means_that_cannot_be(stated: str, fault: str) -> None:
    with pytest.raises(BadInput) as caught:
        load("vanilla_llama_2_7b_a100", [f"acceptance={stated}"])
    assert fault in str(caught.value)
