"""Drafts in a cut vocabulary: what they cost, and what is lost of acceptance that is stated or
recorded.
"""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest
from hypothesis import given, strategies as st
from test_laws import play
from test_tree_replay import trace_of

from simulator.core.acceptance.cut_vocabulary import (
    Covered,
    covered_tokens,
    cut_runs,
    usual_share,
)
from simulator.core.acceptance.sources import Rates, Replay, odds_of
from simulator.core.acceptance.trace import Trace
from simulator.core.cost.hardware_cost import HardwareCost
from simulator.core.cost.rows import Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.faults import BadInput
from simulator.core.quantities import Share
from simulator.core.serving.requests import Requests
from simulator.core.strategies.common.traits import Facts
from simulator.core.strategies.tree_sd import TreeSD
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.evidence.calibrate.runs import acceptance_of
from simulator.scenario import Loaded, evaluate, load
from simulator.scenario.caveats import caveats
from simulator.scenario.decision.flips import flips
from simulator.scenario.evaluate import law, simulate
from simulator.scenario.uncertain.acceptance import acceptance_range
from tests.test_cost import place

SHARE = Share(value=0.75)
COST = StatedCost(StatedDurations(target_ms=10.0, draft_step_ms=2.0), 1)
CHAIN = VanillaSD(gamma=2, covered=SHARE)
METHODS = "methods_vicuna_7b_a100"


def text(tokens: list[int], ranks: list[int], **more: list[int]) -> Trace:
    return replace(trace_of(ranks, **more), token=np.array(tokens, dtype=np.uint16))


# ---- stated


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(1, 8))
def test_each_position_holds_its_token_on_its_own(rate: float, share: float, gamma: int) -> None:
    """As if the rate were their product."""
    cut, product = Covered(Rates((rate,)), share), Rates((rate * share,))
    assert cut.odds(gamma, None).accepted == pytest.approx(
        product.odds(gamma, None).accepted, abs=1e-12
    )


def test_drawn_windows_meet_the_law() -> None:
    verdicts = CHAIN.reads(Rates((0.8,)))
    loop, _ = play(CHAIN, verdicts, COST, Requests(count=40, output_tokens=1_000))
    by_law = CHAIN.law(COST, odds_of(verdicts, None), 1, 100)
    assert by_law.tokens_per_step == pytest.approx(1 + 0.6 + 0.36)
    tally = loop.ledger.tally
    assert tally.committed / tally.request_steps == pytest.approx(by_law.tokens_per_step, rel=0.01)


# ---- recorded


def test_the_most_frequent_tokens_make_up_the_share() -> None:
    """Four of eight are 5, two are 6: these make up three quarters."""
    trace = text([5, 6, 5, 7, 5, 6, 8, 5], [0] * 8)
    assert covered_tokens(trace, 0.75).tolist() == [True] * 3 + [False] + [True] * 2 + [False, True]
    assert covered_tokens(trace, 1.0).all()
    assert not covered_tokens(trace, 0.0).any()


def test_a_window_ends_before_a_rare_token() -> None:
    """All drafts are right; 7 and 8, behind two tokens each, are not in the vocabulary, so that a
    window of two ends there. A run over the end of the recording stays.
    """
    trace = text([5, 6, 5, 7, 5, 6, 8, 5], [0] * 8, tree_run=[0, 3, 3, 3, 3, 3, 3, 3])
    run = trace.extra["tree.run"].astype(np.int64)
    assert cut_runs(trace, run, 0.75).tolist() == [0, 2, 1, 0, 2, 1, 0, 3]
    for strategy, own in (
        (CHAIN, trace),
        (CHAIN, trace.drafted_by("tree")),
        (
            TreeSD.model_validate(
                {"tree": {"branching": [1, 1]}, "drafter": "tree", "covered": 0.75}
            ),
            trace,
        ),
    ):
        cursor = strategy.reads(Replay(own)).cursor(0, None)
        (state,) = states = [strategy.open(cursor, 100)]
        walk = []
        for _ in range(3):
            strategy.compose(states)
            (progress,) = strategy.settle(states)
            walk.append((progress.accepted, state.context))
        assert walk == [(2, 103), (2, 106), (2, 109)]


def test_a_recording_without_its_text_is_refused() -> None:
    bare = text([], [0, 0, 0])
    ((field, message),) = CHAIN.findings(Facts(trace=bare))
    assert (field, message[:13]) == ("covered", "holds no text")


# ---- what it costs


def test_a_cut_lm_head_reads_so_many_rows() -> None:
    """An LM head of 100 x 1,000 at two bytes takes 200 us and its activations; cut to a quarter 50,
    and a copy of the rows takes room.
    """
    whole, cut = place(), place(lm_head_rows=250)
    row = Rows.decode(1, 99)
    saved = HardwareCost(whole).target(row).wall_s - HardwareCost(cut).target(row).wall_s
    assert saved == pytest.approx((750 * 100 + 750) * 2e-9)
    assert cut.weights_gb() - whole.weights_gb() == pytest.approx(250 * 100 * 2e-9)
    with pytest.raises(
        ValueError, match="lm_head_rows 1,001 is more than the 1,000 tokens of tiny"
    ):
        place(lm_head_rows=1_001)


def test_a_target_needs_all_of_its_logits() -> None:
    with pytest.raises(BadInput, match=r"set draft.lm_head_rows, or vocabulary of a head"):
        load("vanilla_llama_2_7b_a100", ["target.lm_head_rows=100"])


def test_a_head_as_wide_as_the_target_cuts_nothing() -> None:
    """Vicuna has 32,000 tokens, fewer than FR-Spec keeps of Llama 3's."""
    message = "LM head is 32,768 tokens wide, and vicuna_7b has 32,000; set vocabulary of the head"
    with pytest.raises(BadInput, match=message):
        load(METHODS, ["strategy=fr_spec"])
    head = "{name: head, head: {layers: 1, squares: 2}}"
    with pytest.raises(BadInput, match="LM head is 32,000 tokens wide"):
        load(METHODS, [f"strategy={{name: vanilla_sd, covered: 0.9, drafter: {head}}}"])


def test_fr_spec_is_eagle_2_with_less_to_read_and_less_that_is_kept() -> None:
    """Llama-3.1-8B: 32,768 of 128,256 tokens. Drafting takes less time, and a step brings less."""
    found = {}
    for method in ("eagle_2", "fr_spec"):
        loaded = load(
            METHODS,
            [f"strategy={method}", "target.model=llama_3_1_8b", "acceptance.stand_in=true"],
        )
        verdicts = loaded.acceptance()
        found[method] = law(loaded.scenario, verdicts)
        if method == "fr_spec":
            own = load(
                METHODS,
                [
                    f"strategy={method}",
                    "target.model=llama_3_1_8b",
                    "requests={count: 2, prompt_tokens: 16, output_tokens: 40}",
                ],
            )
            simulated, _ = simulate(own.scenario, own.acceptance())
            replayed = evaluate.replay(own.scenario, own.acceptance())
            assert replayed.tpot_s == pytest.approx(simulated.tpot_s, rel=1e-9)
    assert found["fr_spec"].step_s < 0.97 * found["eagle_2"].step_s
    tokens = found["fr_spec"].verified_per_step / found["eagle_2"].verified_per_step
    assert 0.8 < tokens < 0.97


def test_what_acceptance_is_taken_to_be_is_said() -> None:
    cut = load("vanilla_llama_2_7b_a100", ["draft.lm_head_rows=2000", "acceptance={rate: 0.7}"])
    assert any("with 2,000 rows of its LM head" in words for words in cautions_of(cut))
    mean = load(
        "vanilla_llama_2_7b_a100",
        ["strategy.covered=0.8", "acceptance={tokens_per_step: 2.5, window: 4}"],
    )
    assert any("strategy.covered plays no part" in words for words in cautions_of(mean))
    both = ["draft.lm_head_rows=2000", "strategy.covered=0.8", "acceptance={rate: 0.7}"]
    assert not any("cut" in words for words in cautions_of(load("vanilla_llama_2_7b_a100", both)))


def test_a_quarter_of_a_vocabulary_has_the_published_share() -> None:
    assert usual_share(0.25) == pytest.approx(0.95)
    assert usual_share(1.0) == 1.0
    assert usual_share(1.0 / 16.0) == pytest.approx(19 * 3 / 15 / (1 + 19 * 3 / 15))


@given(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0))
def test_a_larger_part_of_a_vocabulary_covers_more(part: float, other: float) -> None:
    less, more = sorted((part, other))
    assert less <= usual_share(less) <= usual_share(more) <= 1.0


@pytest.mark.parametrize("acceptance", ["{rate: 0.7}", "{tokens_per_step: 2.5, window: 4}"])
def test_an_interval_reaches_down_to_what_a_cut_head_may_lose(acceptance: str) -> None:
    """8,000 of 32,000 rows: 95 % of tokens, so that a rate of 0.7 is 0.665 at the lower end."""
    sets = ["strategy.gamma=4", "draft.lm_head_rows=8000", f"acceptance={acceptance}"]
    cut = load("vanilla_llama_2_7b_a100", sets)
    low, high = acceptance_range(cut)
    assert low < -0.05
    assert high == 0.0
    if acceptance == "{rate: 0.7}":
        tokens = [sum(rate**place for place in range(5)) for rate in (0.7, 0.7 * 0.95)]
        assert low == pytest.approx(log(tokens[1] / tokens[0]))
    for known in ("strategy.covered=1", "draft.lm_head_rows=null"):
        assert acceptance_range(load("vanilla_llama_2_7b_a100", [*sets, known])) == (0.0, 0.0)


def test_what_is_never_kept_is_not_lost() -> None:
    sets = ["draft.lm_head_rows=8000", "acceptance={always: 0}"]
    assert acceptance_range(load("vanilla_llama_2_7b_a100", sets)) == (0.0, 0.0)


def test_a_flip_by_acceptance_is_of_the_draft_whose_mean_is_stated() -> None:
    """Beside a mean the cut plays no part, so that it turns where it does without ``covered``;
    beside a rate, which is of the whole vocabulary, 0.8 of the chance is that without a cut.
    """
    turns = {}
    for stated in ("{tokens_per_step: 2.5, window: 4}", "{rate: 0.7}"):
        for covered in ("null", "0.8"):
            sets = ["strategy.gamma=4", f"strategy.covered={covered}", f"acceptance={stated}"]
            loaded = load("vanilla_llama_2_7b_a100", sets)
            turns[stated[1:5], covered] = flips(loaded, 1).acceptance
    assert turns["toke", "0.8"].chance == turns["toke", "null"].chance
    assert 0.8 * turns["rate", "0.8"].chance == pytest.approx(
        turns["rate", "null"].chance, abs=2e-3
    )


def test_rates_in_place_of_a_stated_mean_are_of_the_cut_draft() -> None:
    sets = ["strategy.covered=0.5", "acceptance={tokens_per_step: 2.5, window: 4}"]
    scenario = load("vanilla_llama_2_7b_a100", sets).scenario
    assert scenario.at_rates(Rates((0.8,))) == Rates((0.8,))
    measured = acceptance_of(load("vanilla_llama_2_7b_a100", sets), 3.0)
    assert isinstance(measured, Rates)


def cautions_of(loaded: Loaded) -> list[str]:
    return list(caveats(loaded, loaded.acceptance()))
