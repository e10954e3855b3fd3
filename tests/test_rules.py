"""Rules by which outputs change: what they keep of chains and trees, how much the target would not
have written of it, and what a reader is told.
"""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest
from hypothesis import given, strategies as st
from test_laws import play
from test_tree_replay import trace_of

from simulator.core.acceptance.lossy.rules import Rule, ThresholdRule, TypicalRule, relaxed
from simulator.core.acceptance.lossy.scores import (
    Kept,
    Scores,
    chain_of,
    changed_share,
    parents_of,
    scores_of,
    under,
)
from simulator.core.acceptance.sources import Cycle, Rates, Replay, odds_of
from simulator.core.acceptance.trace import Trace
from simulator.core.acceptance.window_replay import WindowReplay
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.faults import BadInput
from simulator.core.serving.requests import Requests
from simulator.core.strategies.common.drafters import DraftPass
from simulator.core.strategies.common.token_tree import TokenTree
from simulator.core.strategies.tree_sd import TreeSD
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.traces.file import read
from simulator.scenario import load
from simulator.scenario.evaluate import run
from simulator.scenario.loading import variant
from simulator.scenario.lossy import outputs_change
from simulator.scenario.recording import nearest_recording
from simulator.scenario.uncertain.acceptance import acceptance_range
from simulator.studies.plan.commands.engines import ENGINES

COST = StatedCost(StatedDurations(target_ms=10.0, draft_step_ms=2.0), 1)
SCORED = "small_family_scored"
VANILLA = "vanilla_llama_2_7b_a100"


def chain(p: list[float], entropy: list[float], positions: int = 1) -> Scores:
    """One chain, the same behind every position."""
    rows = [np.repeat(np.array(row, dtype=float)[:, None], positions, 1) for row in (p, entropy)]
    return Scores(chain_of(len(p)), rows[0], rows[1])


def recorded(p: list[float], entropy: list[float], positions: int) -> Trace:
    """A recording in which every window is scored alike."""
    scores = chain(p, entropy, positions)
    extra = {"rollout.p": scores.p, "rollout.entropy": scores.entropy}
    return replace(trace_of([0] * positions), extra=extra)


# ---- chains


def test_a_token_is_typical_if_it_is_likelier_than_the_entropy_asks() -> None:
    """min(0.09, 0.3 exp(-H)): 0.09 where the target is sure, 0.03 at H = ln 10."""
    rule = TypicalRule()
    assert rule.asked(np.array([0.0, log(10.0)])) == pytest.approx([0.09, 0.03])
    assert rule.kept(chain([0.10, 0.04, 0.9], [0.0, log(10.0), 0.0]), 0).tokens.tolist() == [3]
    assert rule.kept(chain([0.10, 0.029, 0.9], [0.0, log(10.0), 0.0]), 0).tokens.tolist() == [1]
    assert rule.kept(chain([0.08, 0.9, 0.9], [0.0] * 3), 0).tokens.tolist() == [0]


def test_what_is_kept_and_would_not_have_been_written_is_counted() -> None:
    """Of two typical tokens the target would have written the first in 60 of 100 cases, the second
    in 90: 0.5 of the three tokens of a step are not its own.
    """
    kept = TypicalRule().kept(chain([0.6, 0.9], [0.0, 0.0], 4), 0)
    assert kept.forced[:, 0] == pytest.approx([0.4, 0.1])
    replay = Replay(under(recorded([0.6, 0.9], [0.0, 0.0], 4), kept))
    assert changed_share(replay, 2) == pytest.approx(0.5 / 3.0)
    assert changed_share(replay, 1) == pytest.approx(0.4 / 2.0)
    assert changed_share(Replay(trace_of([0, 0])), 1) is None


@pytest.mark.parametrize(
    ("rule", "chance"),
    [
        (ThresholdRule(), 0.25),
        (ThresholdRule(accumulated=0.5), 0.5),
        (ThresholdRule(single=0.25), 1.0),
        (ThresholdRule(single=0.26), 0.25),
        (ThresholdRule(accumulated=0.2), 1.0),
    ],
)
def test_a_threshold_raises_the_chance_of_a_draw(rule: ThresholdRule, chance: float) -> None:
    kept = rule.kept(chain([0.25], [1.0], 40_000), 3)
    assert kept.tokens.mean() == pytest.approx(chance, abs=0.01)
    forced = kept.forced[0][kept.tokens > 0]
    assert forced == pytest.approx(1.0 - 0.25 / chance)
    assert rule.lossy == (rule != ThresholdRule())


@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6),
    st.floats(0.05, 1.0),
    st.floats(0.05, 1.0),
)
def test_lower_thresholds_keep_no_less(p: list[float], lower: float, higher: float) -> None:
    """The same draws, one rule more lenient than the other."""
    lower, higher = sorted((lower, higher))
    scores = chain(p, [1.0] * len(p), 20)
    for rules in (
        [ThresholdRule(single=part) for part in (lower, higher)],
        [ThresholdRule(accumulated=part) for part in (lower, higher)],
        [TypicalRule(threshold=part) for part in (lower, higher)],
    ):
        lenient, strict = (rule.kept(scores, 1).tokens for rule in rules)
        assert (lenient >= strict).all()


# ---- trees

NODES = ((0,), (1,), (0, 0), (1, 0))


def tree(p: list[float], positions: int = 1) -> Scores:
    rows = np.repeat(np.array(p)[:, None], positions, 1)
    return Scores(NODES, rows, np.zeros((len(parents_of(NODES)), positions)))


def test_the_longest_typical_path_is_kept() -> None:
    """Both first tokens are typical, behind the second one also the next."""
    kept = TypicalRule().kept(tree([0.6, 0.3, 0.01, 0.8]), 0)
    assert kept.tokens.tolist() == [2]
    assert kept.forced[:, 0] == pytest.approx([0.7, 0.2])


def test_siblings_share_a_draw() -> None:
    """Children with 0.6 and 0.3: with a draw between the two the second is taken, in three of ten
    cases; none in one. Sampling from the target forces nothing.
    """
    kept = ThresholdRule().kept(tree([0.6, 0.3, 0.0, 1.0], 40_000), 5)
    counts = np.bincount(kept.tokens, minlength=3) / 40_000
    assert counts == pytest.approx([0.1, 0.6, 0.3], abs=0.01)
    assert kept.forced.max() < 1e-9


def test_a_threshold_on_the_sum_of_siblings() -> None:
    """Divided by 0.75 they fill 0.8 and the rest: one of both is always taken."""
    kept = ThresholdRule(accumulated=0.75).kept(tree([0.6, 0.3, 1.0, 0.0], 40_000), 5)
    assert (kept.tokens > 0).all()
    assert (kept.tokens == 2).mean() == pytest.approx(0.8, abs=0.01)
    first = kept.forced[0][kept.tokens == 2]
    assert first == pytest.approx(1.0 - 0.6 / 0.8)
    assert kept.forced[0][kept.tokens == 1] == pytest.approx(0.0, abs=1e-9), "0.3 of 0.2 is no more"


def test_a_chain_is_a_tree() -> None:
    p = [0.7, 0.2, 0.5]
    rows = np.repeat(np.array(p)[:, None], 50, 1)
    rule = ThresholdRule(single=0.6, accumulated=0.8)
    nodes = tuple((0,) * depth for depth in (1, 2, 3))
    alone = rule.kept(Scores(nodes, rows, np.zeros((3, 50))), 9)
    assert alone.tokens.tolist() == rule.kept(chain(p, [0.0] * 3, 50), 9).tokens.tolist()


# ---- law, replay, events


@pytest.mark.parametrize("rule", [TypicalRule(), ThresholdRule(single=0.3)])
def test_law_replay_and_events_agree_where_every_step_keeps_the_same(rule: Rule) -> None:
    """Of windows of three the first two are kept: three tokens in 16 ms, to 1e-9."""
    scored = recorded([0.5, 0.3, 0.001], [0.0] * 3, 40)
    scores = scores_of(scored, "draft", chain_of(3))
    assert scores is not None
    trace = under(scored, rule.kept(scores, 0))
    strategy = VanillaSD(gamma=3)
    acceptance = strategy.reads(Replay(trace))
    by_law = strategy.law(COST, odds_of(acceptance, None), 1, 100)
    assert by_law.tokens_per_step == pytest.approx(3.0, abs=1e-9)
    assert by_law.tpot_s == pytest.approx(16e-3 / 3, rel=1e-9)
    assert WindowReplay.of(Replay(trace)).mean(3) == pytest.approx(2.0, abs=1e-9)
    loop, world = play(strategy, acceptance, COST, Requests(count=1, output_tokens=31))
    tally = loop.ledger.tally
    assert tally.committed / tally.request_steps == pytest.approx(3.0, abs=1e-9)
    assert world.spans[-1].end_s - world.spans[-20].start_s == pytest.approx(10 * 16e-3, rel=1e-9)


def test_a_tree_is_kept_by_the_rule_of_its_recording() -> None:
    header = {"scored_trees": {"heads": {"paths": "0 1 00 10"}}}
    scores = tree([0.6, 0.3, 0.01, 0.8], 40)
    extra = {"heads.tree.p": scores.p, "heads.tree.entropy": scores.entropy}
    trace = replace(trace_of([0] * 40, header=header), extra=extra, rule=TypicalRule())
    strategy = TreeSD(
        tree=TokenTree(paths="0 1 00 10"), passes=(DraftPass(rows=(4,)),), drafter="heads"
    )
    assert strategy._unrecorded(trace) is None
    acceptance = strategy.reads(Replay(trace))
    by_law = strategy.law(COST, odds_of(acceptance, None), 1, 100)
    assert by_law.tokens_per_step == pytest.approx(3.0, abs=1e-9)
    loop, _ = play(strategy, acceptance, COST, Requests(count=1, output_tokens=31))
    tally = loop.ledger.tally
    assert tally.committed / tally.request_steps == pytest.approx(3.0, abs=1e-9)
    assert isinstance(acceptance, Replay)
    assert changed_share(acceptance, 2) == pytest.approx(0.9 / 3.0)
    narrow = TokenTree(paths="0 00")
    part = narrow.kept_under(TypicalRule(), trace, "heads", 0)
    assert isinstance(part, Kept) and part.tokens.tolist() == [1] * 40
    missing = TokenTree(paths="0 2").unrecorded(trace, "heads")
    assert missing is not None and "what the target thinks" in missing


# ---- what is stated of a rule


def test_rejected_tokens_that_a_rule_keeps() -> None:
    """Half of what is rejected: 0.8 becomes 0.9, of a recording as of rates."""
    rates = relaxed(Rates((0.8, 0.6)), 0.5, 0)
    assert isinstance(rates, Rates)
    assert rates.rates == pytest.approx((0.9, 0.8))
    replay = Replay(trace_of([0, 1] * 5_000))
    kept = relaxed(replay, 0.5, 0)
    assert isinstance(kept, Replay)
    assert kept.accepted.mean() == pytest.approx(0.75, abs=0.02)
    assert (kept.accepted >= replay.accepted).all()
    assert relaxed(Cycle((1,)), 0.5, 0) == Cycle((1,))


def test_a_stated_share_has_a_range_and_a_warning() -> None:
    """A window of one token, kept with 0.5: a fifth of the rejected tokens make it 0.6, none 0.5,
    all of them 1. Of 1.6 tokens 0.1 are then not the target's.
    """
    loaded = load(
        VANILLA,
        [
            "strategy.gamma=1",
            "acceptance={rate: 0.5, rule: {name: typical, passes: "
            "{value: 0.2, low: 0, high: 1, source: a guess}}}",
        ],
    )
    (said,) = outputs_change(loaded, loaded.acceptance())
    assert said == (
        "outputs are no longer those of the target alone: under typical acceptance (threshold "
        "0.09, alpha 0.3) 6.2 % (0 % to 25 %) of the tokens written are ones that the target would "
        "have rejected, by what is stated of the rule (a guess)"
    )
    low, high = acceptance_range(loaded)
    assert (low, high) == pytest.approx((log(1.5 / 1.6), log(2.0 / 1.6)))
    result = run(loaded)
    assert result.cautions[0] == said
    assert result.law.verified_per_step == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ("rate: 0.8, rule: {name: typical}", "is not known; acceptance.rule.changed says it"),
        (
            "rate: 0.8, rule: {name: threshold, single: 0.5, changed: {value: 0.1, low: 0.05, "
            "high: 0.2, source: a run}}",
            "10 % (5 % to 20 %) of the tokens written",
        ),
        (
            "trace: small_family_scored, stand_in: true, rule: {name: typical}",
            "are ones that the target would have rejected, as recorded",
        ),
    ],
)
def test_the_headline_says_that_outputs_change(stated: str, words: str) -> None:
    loaded = load(VANILLA, [f"acceptance={{{stated}}}", "requests.count=40"])
    result = run(loaded)
    assert words in result.cautions[0]


def test_sampling_from_the_target_changes_nothing() -> None:
    loaded = load(
        VANILLA, [f"acceptance={{trace: {SCORED}, stand_in: true, rule: {{name: threshold}}}}"]
    )
    assert not list(outputs_change(loaded, loaded.acceptance()))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            "acceptance={trace: six_flavours_greedy, stand_in: true, rule: {name: typical}}",
            "set acceptance.trace=small_family_scored",
        ),
        (
            "acceptance={rate: 0.8, rule: {name: typical, passes: 1.5}}",
            "passes: expected a share of at most 1",
        ),
        (
            "acceptance={always: 2, rule: {name: typical, passes: 0.5}}",
            "rule.passes is for rate",
        ),
        (
            "acceptance={trace: six_flavours_greedy, stand_in: true, drafter: best_of, "
            "best_of: [draft, eagle], rule: {name: typical}}",
            "leave best_of or rule out",
        ),
    ],
)
def test_what_a_rule_cannot_know_is_refused(change: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        load(VANILLA, [change]).acceptance()


@pytest.mark.parametrize(
    ("base", "more"),
    [
        (VANILLA, ["acceptance={trace: six_flavours_greedy, stand_in: true, drafter: eagle}"]),
        ("methods_vicuna_7b_a100", ["strategy=medusa_1"]),
    ],
)
def test_a_share_of_rejected_tokens_says_nothing_of_runs_and_trees(
    base: str, more: list[str]
) -> None:
    loaded = load(base, [*more, "acceptance.rule={name: typical, passes: 0.2}"])
    with pytest.raises(BadInput, match="not known under a rule"):
        loaded.acceptance()


def test_a_mean_that_was_measured_under_a_rule_keeps_its_warning() -> None:
    """Also where the strategy takes the i.i.d. rate that it comes to."""
    rule = "rule: {name: typical, changed: 0.3}"
    for base, mean in ((VANILLA, "2.4, window: 5"), ("specpipe_llama_3_1_70b_8x3090", "1.6")):
        loaded = load(base, [f"acceptance={{tokens_per_step: {mean}, {rule}}}"])
        (said,) = outputs_change(loaded, loaded.acceptance())
        assert "30 % of the tokens written" in said


def test_a_sweep_over_a_rule_asks_the_recording_again() -> None:
    change = f"acceptance={{trace: {SCORED}, stand_in: true, rule: {{name: threshold}}}}"
    plain = load(VANILLA, [change])
    lenient = variant(plain, {"acceptance.rule.single": 0.3})
    tokens = [float(one.acceptance().odds(5, None).committed()) for one in (plain, lenient)]
    assert tokens[1] > 1.1 * tokens[0]


def test_other_readings_of_a_recording_are_refused() -> None:
    change = f"acceptance={{trace: {SCORED}, stand_in: true, rule: {{name: typical}}}}"
    for method in ("eagle_2", "speculative_streaming"):
        with pytest.raises(BadInput):
            load("methods_vicuna_7b_a100", [f"strategy={method}", change]).acceptance()


def test_a_replay_of_scores_may_keep_too_little() -> None:
    """Decoding kept up to 9 % more; sampling from the target what the replay says."""
    lossy = f"acceptance={{trace: {SCORED}, stand_in: true, rule: {{name: typical}}}}"
    assert acceptance_range(load(VANILLA, [lossy])) == pytest.approx((0.0, log(1.09)))
    plain = f"acceptance={{trace: {SCORED}, stand_in: true, rule: {{name: threshold}}}}"
    assert acceptance_range(load(VANILLA, [plain])) == (0.0, 0.0)


# ---- the recording


def test_scores_are_asked_by_name_alone() -> None:
    """A mean at temperature 1 borrows the bursts of the whole recording, as before."""
    found = nearest_recording(Catalogue(), "draft", 1.0)
    assert found is not None and found[0] == "six_flavours_sampled"


def test_the_shipped_scores_belong_to_the_shipped_text() -> None:
    """Where a draft's first choice is the token that was written, its score is the probability of
    that token.
    """
    trace = read(Catalogue().names("trace")[SCORED])
    same = trace.draft_rank == 0
    assert same.sum() > 2_000
    assert trace.extra["rollout.p"][0][same] == pytest.approx(trace.p[same], abs=2e-3)
    same = trace.extra["medusa.rank"][0] == 0
    assert trace.extra["medusa.tree.p"][0][same] == pytest.approx(trace.p[same], abs=2e-3)


def test_sampling_keeps_as_many_tokens_as_the_recording_says() -> None:
    """A greedy draft, judged by draws from the target, agrees with the written text as often as
    its first choice does.
    """
    trace = read(Catalogue().names("trace")[SCORED])
    scores = scores_of(trace, "draft", chain_of(1))
    assert scores is not None
    kept = ThresholdRule().kept(scores, 0).tokens.mean()
    assert kept == pytest.approx((trace.draft_rank == 0).mean(), abs=0.015)


def test_medusas_tree_keeps_more_typical_tokens_than_drawn_ones() -> None:
    tokens = {}
    for rule in ("{name: threshold}", "{name: typical}"):
        change = f"acceptance={{trace: {SCORED}, stand_in: true, rule: {rule}}}"
        loaded = load("methods_vicuna_7b_a100", ["strategy=medusa_1", change])
        tokens[rule] = run(loaded).simulated.verified_per_step
    assert tokens["{name: typical}"] > 1.1 * tokens["{name: threshold}"]


# ---- commands


def test_sglang_takes_the_thresholds() -> None:
    program = ENGINES["sglang"]
    assert program.rule(ThresholdRule(single=0.5)) == [
        "--speculative-accept-threshold-single",
        "0.5",
        "--speculative-accept-threshold-acc",
        "1",
    ]
    assert not program.rule(TypicalRule())
    assert not ENGINES["vllm"].rule(ThresholdRule(single=0.5))


def test_commands_say_that_outputs_change() -> None:
    loaded = load(
        VANILLA,
        ["acceptance={rate: 0.8, rule: {name: threshold, single: 0.5}}"],
    )
    script = ENGINES["sglang"].script(loaded.scenario)
    assert script is not None
    assert "# outputs are not the target's alone: threshold acceptance (single 0.5" in script
    assert "--speculative-accept-threshold-single 0.5" in script
    other = ENGINES["vllm"].script(loaded.scenario)
    assert other is not None and "has no option for that rule" in other
