"""One step of a batch, by hand and complete: what is composed, what costs are asked for, what is
booked, what is settled.
"""

from __future__ import annotations

import dataclasses
from itertools import islice

import numpy as np
import pytest

from simulator.core.acceptance.cursors import Verdict
from simulator.core.acceptance.sources import Cycle, Odds, Rates, Replay, odds_of
from simulator.core.acceptance.tree_replay import DrawnMatches, RecordedRun, RecordedRuns, RunCursor
from simulator.core.cost.model import DraftHead, ModelSpec
from simulator.core.cost.rows import NO_ROWS, Phase, Rows
from simulator.core.quantities import Fraction, Ranged
from simulator.core.strategies.autoregressive import Autoregressive
from simulator.core.strategies.common.adaptive import OffAbove, WindowTable
from simulator.core.strategies.common.base import Strategy, early_exit
from simulator.core.strategies.common.capabilities import ExtraMemory, drafts_first, extra_memory
from simulator.core.strategies.common.chain import _sizes, cut_to_grants
from simulator.core.strategies.common.drafters import DraftPass, StreamingDrafter
from simulator.core.strategies.common.law import Part, means
from simulator.core.strategies.common.step import ABSENT, Admission, Kind, Progress, State, Step
from simulator.core.strategies.common.token_tree import TokenTree
from simulator.core.strategies.tree_sd import TreeSD
from simulator.core.strategies.vanilla_sd import VanillaSD
from simulator.papers.mirror_sd import (
    MirrorSD,
    batching_rule,
    exposed_draft,
    relative_overhead,
)
from tests.ledger import Ledger, booked, first_finding, near, states
from tests.test_cost import MODEL
from tests.test_tree_replay import trace_of

PROMPT = Rows.prefill(6)
NOTHING = Phase(0.0, {})


# ---- autoregressive


def test_autoregressive_passes_one_row_a_request() -> None:
    plain, ledger = Autoregressive(), Ledger()
    batch = states(plain, (10, 5), (20, 5))
    step = plain.compose(batch, PROMPT)
    assert step == Step(Kind("step", 0, 2, prompts=1), Rows(2, 2, 2, 32, 32), 0, PROMPT)
    assert plain.phases(ledger, step) == {"target": Phase(8.0, {"target compute": 8.0})}
    assert ledger.asked == [("target", step.rows + PROMPT, 0.0, 1.0)]
    assert booked(plain, plain.durations(ledger, step), step.kind) == (
        [("target", 0, 8, "decode")],
        8,
    )
    assert plain.settle(batch) == [Progress(1, 1, 0, 0)] * 2
    assert [state.context for state in batch] == [11, 21]
    assert plain.step_seconds(plain.durations(ledger, step), step.kind) == 8
    assert plain.kinds(lambda gamma: Rates((0.5,)).odds(gamma, None), 3) == {
        Kind("step", 0, bare=3): 1.0
    }


def test_what_every_strategy_answers_unless_it_knows_better() -> None:
    plain, ledger = Autoregressive(), Ledger()
    assert (
        plain.window,
        plain.needs.draft_model,
        plain.needs.dynamic_draft,
        plain.needs.draft_steps,
    ) == (
        0,
        False,
        False,
        1,
    )
    assert (
        plain.needs.rows,
        plain.needs.cache_tokens,
        plain.needs.in_flight,
        plain.window_for(5),
    ) == (None, 1, 1, 0)
    assert (plain._window_of(Kind("x", 1)), plain._window_of(Kind("x", 1, window=3))) == (0, 3)
    assert (
        early_exit(plain, 4),
        first_finding(plain, stated=True),
        plain.fitted_to(stages=3),
        plain.fitted_to(3),
    ) == (
        None,
        None,
        plain,
        plain,
    )
    assert plain.claim(ledger, 1, 100, {}, True).exact
    assert Kind("x", 2, bare=3).batch == 5
    assert Strategy.kinds(plain, lambda gamma: Rates((0.5,)).odds(gamma, None), 3) == {
        Kind("step", 3): 1.0
    }
    model = ModelSpec.model_validate(MODEL)
    assert (extra_memory(plain, model), first_finding(plain, target=model)) == (
        ExtraMemory(0, 0),
        None,
    )
    assert [VanillaSD(gamma=gamma).needs.draft_model for gamma in (1, 2)] == [True, True]
    assert VanillaSD(gamma=2).step(Kind("x", 2, 1, 3), 10) == Step(
        Kind("x", 2, 1, 3), Rows(7, 7, 3, 37, 72 + 11), 30
    )
    assert plain.step(Kind("x", 0, bare=3), 10) == Step(Kind("x", 0, bare=3), Rows(3, 3, 3, 33, 33))
    assert plain.admission(ledger, PROMPT) == Admission(3.0, 0.0, 0.0)
    assert ledger.asked == [("prefill", "target", PROMPT)]


def test_sizes_of_a_batch_that_are_looked_at() -> None:
    assert list(islice(_sizes(), 25)) == [*range(1, 17), 19, 23, 27, 32, 38, 45, 54, 64, 76]


def test_means_over_kinds_of_steps_by_hand() -> None:
    """A quarter of steps of 8 s and 3 tokens, the rest 4 s and 1 token: 5 s; of batches of 2 and 4,
    3.5 requests.
    """
    kind = Kind("x", 1)

    def parts(*batches: int) -> list[Part]:
        return [
            Part(kind, share, lambda seconds: seconds, seconds, tokens, batch)
            for share, seconds, tokens, batch in zip(
                (0.25, 0.75), (8.0, 4.0), (3, 1), batches, strict=True
            )
        ]

    assert means(parts(2, 2)) == (5, 0.75, 5)
    assert means(parts(2, 4)) == (5, near(1.5 / 3.5), near((0.25 * 16 + 0.75 * 16) / 3.5))
    assert means(parts(4, 4)[:1]) == (8, 0.75, 8)


def test_windows_that_a_trace_of_windows_can_answer() -> None:
    runs = dataclasses.replace(
        trace_of([0, 1], header={"window": 4}), run=np.array([0, 4], dtype=np.uint16)
    )
    why = "knows windows of up to 4 draft tokens, got 5; set strategy.gamma=4"
    assert [first_finding(VanillaSD(gamma=gamma), trace=runs) for gamma in (3, 4, 5)] == [
        None,
        None,
        ("gamma", why),
    ]
    assert first_finding(VanillaSD(gamma=5), trace=trace_of([0, 1])) is None


# ---- vanilla


def test_vanilla_drafts_a_window_hands_it_over_and_verifies_it() -> None:
    """Two requests at 10 and 20, windows of 3: three internal steps of 2 rows, 36 bytes, a pass
    over 8 rows.
    """
    vanilla, ledger = VanillaSD(gamma=3), Ledger()
    batch = states(vanilla, (10, 2), (20, 9))
    step = vanilla.compose(batch)
    assert step == Step(Kind("step", 2), Rows(8, 8, 2, 38, 4 * 30 + 20))
    assert [state.proposed for state in batch] == [3, 3]
    assert vanilla.phases(ledger, step) == {
        "draft": Phase(near(0.6), {"draft compute": near(0.6)}),
        "rv": Phase(near(0.036), {"": near(0.036)}),
        "target": Phase(8.0, {"target compute": 8.0}),
    }
    assert ledger.asked == [
        ("draft", Rows(2, 2, 2, 38, 38), "window"),
        ("rendezvous", "fv", 0, 36),
        ("target", step.rows, 0.0, 1.0),
    ]
    t = vanilla.durations(ledger, step)
    assert booked(vanilla, t, step.kind) == (
        [
            ("draft", 0, near(0.6), "draft window"),
            ("rendezvous", near(0.6), near(0.636), "window"),
            ("target", near(0.636), near(8.636), "verify"),
        ],
        near(8.636),
    )
    assert vanilla.step_seconds(t, step.kind) == near(8.636)
    assert vanilla.settle(batch) == [Progress(3, 3, 2, 3), Progress(4, 4, 3, 3)]
    assert [state.context for state in batch] == [13, 24]
    assert [state.context for state in states(vanilla, (7, 1))] == [7]


def test_vanilla_without_a_bonus_keeps_no_more_than_it_proposed() -> None:
    vanilla = VanillaSD(gamma=3, bonus_on_full_accept=False)
    batch = states(vanilla, (10, 2), (20, 9))
    vanilla.compose(batch)
    assert vanilla.settle(batch) == [Progress(3, 3, 2, 3), Progress(3, 3, 3, 3)]


def test_vanilla_cuts_windows_to_what_the_scheduler_grants() -> None:
    vanilla, ledger = VanillaSD(gamma=3), Ledger()
    batch = states(vanilla, (10, 9), (20, 9), (30, 9))
    for state, rows in zip(batch, (4, 3, 1), strict=True):
        state.most_rows = rows
    step = vanilla.compose(batch, PROMPT)
    assert [state.proposed for state in batch] == [3, 2, 0]
    assert step.rows == Rows(8, 8, 3, 14 + 23 + 31, 50 + 66 + 31)
    assert (step.kind, step.prompts) == (Kind("step", 3, prompts=1), PROMPT)
    assert vanilla.phases(ledger, step)["draft"].wall_s == near(6 * 0.25 + 3 * 0.3)
    assert vanilla.settle(batch) == [
        Progress(4, 4, 3, 3),
        Progress(3, 3, 2, 2),
        Progress(1, 1, 0, 0),
    ]
    batch[1].proposed = None
    assert cut_to_grants(batch[1:2]) == NO_ROWS
    assert vanilla.settle(batch[1:]) == [ABSENT, Progress(1, 1, 0, 0)]


def test_vanilla_takes_bare_tokens_where_the_window_is_off() -> None:
    vanilla, ledger = VanillaSD(gamma=3, adaptive=OffAbove(name="off_above", requests=1)), Ledger()
    step = vanilla.compose(states(vanilla, (10, 9), (20, 9)))
    assert step == Step(Kind("step", 0, 2, window=0), Rows(2, 2, 2, 32, 32))
    assert vanilla.phases(ledger, step) == {
        "draft": Phase(0, {}),
        "rv": NOTHING,
        "target": Phase(2.0, {"target compute": 2.0}),
    }
    assert booked(vanilla, vanilla.durations(ledger, step), step.kind) == (
        [("target", 0, 2, "verify")],
        2,
    )
    with_prompt = vanilla.compose(states(vanilla, (10, 9), (20, 9)), PROMPT)
    spans, end = booked(vanilla, vanilla.durations(ledger, with_prompt), with_prompt.kind)
    assert (spans, end) == (
        [("draft", 0, 1.5, "draft prefill"), ("target", 1.5, 9.5, "verify")],
        9.5,
    )
    odds = lambda gamma: Rates((0.5,)).odds(gamma, None)
    assert [vanilla.kinds(odds, requests) for requests in (1, 2)] == [
        {Kind("step", 1): 1.0},
        {Kind("step", 0, 2, window=0): 1.0},
    ]
    shorter = VanillaSD(gamma=3, adaptive=WindowTable(name="table", windows={2: 1}))
    assert shorter.kinds(odds, 2) == {Kind("step", 2, window=1): 1.0}
    assert shorter.compose(states(shorter, (10, 9), (20, 9))) == Step(
        Kind("step", 2, window=1), Rows(4, 4, 2, 34, 66)
    )


def test_law_of_vanilla_by_hand() -> None:
    """Rate 0.5, gamma 2: 1.75 tokens of 4 requests at 100; 0.8 s of drafting, 48 bytes, 12 rows."""
    vanilla, ledger = VanillaSD(gamma=2), Ledger()
    found = vanilla.law(ledger, lambda gamma: Rates((0.5,)).odds(gamma, None), 4, 100)
    assert (found.step_s, found.tokens_per_step, found.request_step_s) == (
        near(12.848),
        near(1.75),
        near(12.848),
    )
    assert (found.relation, found.source) == (
        "exact",
        "T_SD = T_draft + T_target (Mirror-SD Eq. 5); stated rates",
    )
    assert {type(found.step_s), type(found.tokens_per_step), type(found.request_step_s)} == {float}
    assert (found.kinds, found.tpot_s) == ({Kind("step", 4): 1.0}, near(12.848 / 1.75))
    assert ("target", Rows(12, 12, 4, 412, 3 * 400 + 24), 0.0, 1.0) in ledger.asked
    assert vanilla.admission(ledger, PROMPT) == Admission(3.0, 1.5, 0.0)


def test_vanilla_drafts_before_the_target_reads_a_prompt_where_it_is_set() -> None:
    """Two prompts, windows of 2: 1.5 s of reading, one pass of 2 rows behind it, 24 bytes; the
    target reads 6 + 4 rows.
    """
    vanilla, ledger = VanillaSD(gamma=2, drafts_first=True), Ledger()
    assert (drafts_first(vanilla), drafts_first(VanillaSD()), drafts_first(MirrorSD())) == (
        True,
        False,
        False,
    )
    assert vanilla.admission(ledger, PROMPT, 2, 50) == Admission(
        near(5.0), near(1.5 + 0.2 + 0.024), 0.0
    )
    assert ("draft", Rows(2, 2, 2, 52, 2 * 26), "window") in ledger.asked
    assert ("prefill", "target", PROMPT + Rows(4, 4, 0, 4, 2 * 50 + 2 * 3)) in ledger.asked
    assert vanilla.admission(ledger, PROMPT) == Admission(3.0, 1.5, 0.0)
    off = VanillaSD(gamma=2, drafts_first=True, adaptive=WindowTable(name="table", windows={2: 0}))
    assert off.admission(ledger, PROMPT, 2, 50) == Admission(3.0, 1.5, 0.0)


# ---- mirror


def test_mirror_overlaps_the_suffix_with_the_next_window() -> None:
    """Two requests, windows of 2, kappa 2: 12 branches behind 6 positions; 72 bytes at the exit, 16
    behind.
    """
    mirror, ledger = MirrorSD(gamma=2, kappa=2), Ledger()
    batch = states(mirror, (10, 1), (20, 9))
    step = mirror.compose(batch)
    assert step == Step(Kind("reuse", 2), Rows(6, 6, 2, 36, 3 * 30 + 12))
    phases = mirror.phases(ledger, step)
    assert {name: phase.wall_s for name, phase in phases.items()} == {
        "prefix": 6.0,
        "rv_ee": near(0.072),
        "suffix": 6.0,
        "draft": near(2.4),
        "rv_fv": near(0.016),
    }
    assert ledger.asked == [
        ("draft", Rows(12, 12, 2, 36, 12 * 18), "window"),
        ("target", step.rows, 0.0, 0.5),
        ("rendezvous", "ee", 6, 72),
        ("target", step.rows, 0.5, 1.0),
        ("rendezvous", "fv", 6, 16),
    ]
    t = mirror.durations(Ledger(contention=1.5), step)
    assert t.contention == 1.5
    t = mirror.durations(ledger, step)
    assert booked(mirror, t, step.kind) == (
        [
            ("target", 0, 6, "layers 1..l_e"),
            ("rendezvous", 6, near(6.072), "early exit"),
            ("draft", near(6.072), near(8.472), "draft next window"),
            ("target", near(6.072), near(12.072), "layers l_e+1..N"),
            ("rendezvous", near(12.072), near(12.088), "verification"),
        ],
        near(12.088),
    )
    assert mirror.step_seconds(t, step.kind) == near(12.088)
    assert mirror.step_seconds(t._replace(contention=1.5), step.kind) == near(12.088 + 0.5 * 2.4)
    assert mirror.settle(batch) == [
        Progress(2, 2, 1, 2, "stored continuation"),
        Progress(3, 3, 2, 2, "stored continuation"),
    ]
    assert [(state.context, state.ready) for state in batch] == [(12, True), (23, True)]


@pytest.mark.parametrize(
    ("fallback", "others"), [("redraft", "wait"), ("redraft", "proceed"), ("undrafted", "wait")]
)
def test_mirror_with_a_request_that_has_lost_its_window(fallback: str, others: str) -> None:
    mirror, ledger = MirrorSD(gamma=2, kappa=2, fallback=fallback, others=others), Ledger()
    batch = [*states(mirror, (10, 1)), *states(mirror, (20, 0), off_exit=True)]
    batch[1].ready = False
    step = mirror.compose(batch)
    wait = (Kind("fallback", 2, redrafts=1), Rows(6, 6, 2, 36, 102), 20, [2, 2])
    proceed = (Kind("fallback", 1, redrafts=1, waiting=1), Rows(3, 3, 1, 13, 36), 20, [2, None])
    undrafted = (Kind("fallback", 1, bare=1), Rows(4, 4, 2, 34, 57), 0, [2, 0])
    expected = {"redraft": wait if others == "wait" else proceed, "undrafted": undrafted}[fallback]
    assert (
        step.kind,
        step.rows,
        step.redraft_kv_tokens,
        [state.proposed for state in batch],
    ) == expected
    t = mirror.durations(ledger, step)
    assert t.redraft == (near(0.2) if fallback == "redraft" else 0.0)
    assert (("draft", Rows(1, 1, 1, 20, 20), "redraft") in ledger.asked) == (fallback == "redraft")
    spans, end = booked(mirror, t, step.kind)
    assert end == near(float(mirror.step_seconds(t, step.kind)))
    first = {"wait": near(0.2), "proceed": 0.0}[others] if fallback == "redraft" else 0.0
    assert [span[1] for span in spans if span[3] == "layers 1..l_e"] == [first]
    assert [span[3] for span in spans].count("redraft") == (fallback == "redraft")
    one, other = mirror.settle(batch)
    assert one == Progress(2, 2, 1, 2, "stored continuation")
    lost = {"wait": Progress(1, 1, 0, 2, "fresh rollout", True), "proceed": ABSENT}[others]
    assert other == (lost if fallback == "redraft" else Progress(1, 1, 0, 0, "fresh rollout"))
    assert batch[1].ready == (others == "proceed")


def test_mirror_without_anything_at_hand_redrafts_alone() -> None:
    mirror, ledger = MirrorSD(gamma=3, kappa=2, others="proceed"), Ledger()
    batch = states(mirror, (10, 1), (20, 1))
    for state in batch:
        state.ready = False
    step = mirror.compose(batch)
    assert step == Step(Kind("fallback", 0, redrafts=2, waiting=2), NO_ROWS, 30)
    assert {name: phase.wall_s for name, phase in mirror.phases(ledger, step).items()} == {
        "redraft": near(0.6)
    }
    assert ledger.asked == [("draft", Rows(2, 2, 2, 30, 30), "redraft")]
    t = mirror.durations(ledger, step)
    assert booked(mirror, t, step.kind) == ([("draft", 0, near(0.6), "redraft")], near(0.6))
    assert mirror.step_seconds(t, step.kind) == near(0.6)
    assert mirror.settle(batch) == [ABSENT, ABSENT]
    assert all(state.ready for state in batch)
    assert mirror.derived(ledger, step, odds_of(Cycle((1,)), None)) == {}


def test_mirror_opens_a_request_with_or_without_its_window() -> None:
    mirror, cursor = MirrorSD(), Cycle((1,)).cursor(0, None)
    assert mirror.open(cursor, 9) == State(cursor, 9, ready=True)
    assert mirror.open(cursor, 9, drafted=False) == State(cursor, 9, ready=False)


def test_prompts_beside_a_mirror_step_pass_both_models() -> None:
    mirror, ledger = MirrorSD(gamma=2, kappa=2), Ledger()
    step = mirror.compose(states(mirror, (10, 1)), PROMPT)
    assert (step.kind, step.prompts) == (Kind("reuse", 1, prompts=1), PROMPT)
    found = {name: phase.wall_s for name, phase in mirror.phases(ledger, step).items()}
    assert found == {
        "prefix": 9.0,
        "rv_ee": near(0.036),
        "suffix": 9.0,
        "draft": near(1.5 + 1.2),
        "rv_fv": near(0.008),
    }
    assert ("target", step.rows + PROMPT, 0.0, 0.5) in ledger.asked
    nobody = Step(Kind("reuse", 0, prompts=1), NO_ROWS, 0, PROMPT)
    assert {name: phase.wall_s for name, phase in mirror.phases(ledger, nobody).items()} == {
        "prefix": 6.0,
        "rv_ee": 0.0,
        "suffix": 6.0,
        "draft": 1.5,
        "rv_fv": 0.0,
    }
    assert mirror.step_seconds(mirror.durations(ledger, nobody), nobody.kind) == near(12.0)


def test_mirror_whose_window_is_off_takes_bare_tokens() -> None:
    mirror, ledger = (
        MirrorSD(gamma=2, kappa=2, adaptive=OffAbove(name="off_above", requests=1)),
        Ledger(),
    )
    batch = states(mirror, (10, 1), (20, 9))
    step = mirror.compose(batch)
    assert step == Step(Kind("bare", 0, bare=2, window=0), Rows(2, 2, 2, 32, 32))
    assert {name: phase.wall_s for name, phase in mirror.phases(ledger, step).items()} == {
        "prefix": 2.0,
        "rv_ee": 0.0,
        "suffix": 2.0,
        "draft": 0,
        "rv_fv": 0.0,
    }
    assert mirror.settle(batch) == [Progress(1, 1, 0, 0)] * 2
    assert [(state.ready, state.pending) for state in batch] == [(False, 0)] * 2
    odds = odds_of(Rates((0.5,), 0.9), None)
    assert mirror.derived(ledger, step, odds) == {}
    assert mirror.kinds(odds, 2) == {Kind("bare", 0, bare=2, window=0): 1.0}


def test_windows_of_a_mirror_step_are_as_long_as_the_shortest_at_hand() -> None:
    mirror = MirrorSD(gamma=4, kappa=2)
    batch = states(mirror, (10, 9), (20, 9))
    batch[0].pending = 1
    step = mirror.compose(batch)
    assert (step.kind, [state.proposed for state in batch]) == (Kind("reuse", 2, window=1), [1, 1])
    assert [state.pending for state in batch] == [4, 4]
    batch[0].most_rows = 3
    step = mirror.compose(batch)
    assert (step.kind, [state.proposed for state in batch]) == (Kind("reuse", 2), [2, 4])
    assert step.rows == Rows.decode(3, 10) + Rows.decode(5, 20)


def test_a_redraft_beside_the_prefix_may_hold_the_draft_up() -> None:
    """Redraft 5 beside prefix 1 and exit 0.5: the draft begins 3.5 late."""
    mirror, kind = MirrorSD(others="proceed"), Kind("fallback", 1, redrafts=1)
    t = MirrorSD.traits.durations(
        prefix=1.0, rv_ee=0.5, suffix=4.0, draft=2.0, rv_fv=0.25, redraft=5.0
    )
    assert mirror.step_seconds(t, kind) == booked(mirror, t, kind)[1] == 7.25
    assert (
        mirror.step_seconds(t._replace(redraft=1.25), kind)
        == booked(mirror, t._replace(redraft=1.25), kind)[1]
        == 5.75
    )
    waiting = MirrorSD()
    assert waiting.step_seconds(t, kind) == booked(waiting, t, kind)[1] == 10.75


def test_a_window_written_anew_is_as_long_as_those_it_waits_for() -> None:
    mirror, ledger = MirrorSD(gamma=4, kappa=2), Ledger()
    batch = states(mirror, (10, 0), (20, 0))
    batch[0].pending, batch[1].ready = 1, False
    step = mirror.compose(batch)
    assert (step.kind, [state.proposed for state in batch]) == (
        Kind("fallback", 2, redrafts=1, window=1),
        [1, 1],
    )
    assert mirror.phases(ledger, step)["redraft"].wall_s == near(0.1)
    proceed = mirror.model_copy(update={"others": "proceed"})
    batch[0].pending = 1
    assert proceed.phases(ledger, proceed.compose(batch))["redraft"].wall_s == near(0.4)


def test_a_bare_request_has_one_position_with_candidates() -> None:
    mirror, ledger = MirrorSD(gamma=2, kappa=2, fallback="undrafted"), Ledger()
    kind = Kind("fallback", 1, bare=2)
    assert (mirror.branches(kind), mirror.payload_bytes(kind)) == (10, 60)
    mirror.phases(ledger, mirror.step(kind, 10))
    assert ("rendezvous", "ee", 5, 60) in ledger.asked
    mirror = MirrorSD(gamma=1)
    batch = states(mirror, (10, 9))
    mirror.compose(batch)
    assert (mirror.settle(batch), batch[0].ready) == (
        [Progress(2, 2, 1, 1, "stored continuation")],
        True,
    )


def test_who_falls_back_and_how_often() -> None:
    """Rate 0.5, Omega 0.9, gamma 2: off the exit 0.1, 0.05, 0.025; off the path 0.125."""
    odds = Rates((0.5,), 0.9).odds
    of = {
        (message, bonus): MirrorSD(gamma=2, message=message, bonus_on_full_accept=bonus).miss(
            odds(2, None)
        )
        for message in ("per_position", "first_position")
        for bonus in (True, False)
    }
    assert of == {
        ("per_position", True): near(0.175),
        ("per_position", False): near(0.15),
        ("first_position", True): near(0.1 + 0.25 + 0.125),
        ("first_position", False): near(0.35),
    }
    kinds = MirrorSD(gamma=2).kinds(lambda gamma: odds(gamma, None), 2)
    assert kinds == {
        Kind("reuse", 2): near(0.825**2),
        Kind("fallback", 2, redrafts=1): near(2 * 0.825 * 0.175),
        Kind("fallback", 2, redrafts=2): near(0.175**2),
    }
    proceed, share = MirrorSD(gamma=2, others="proceed"), 0.175 / 1.175
    found = proceed.kinds(lambda gamma: odds(gamma, None), 2)
    assert found == {
        Kind("reuse", 2): near((1 - share) ** 2),
        Kind("fallback", 1, redrafts=1, waiting=1): near(2 * share * (1 - share)),
        Kind("fallback", 0, redrafts=2, waiting=2): near(share**2),
    }
    assert [kind.batch for kind in found] == [2, 2, 2]
    assert Kind("fallback", 2, redrafts=1).batch == 2
    undrafted = MirrorSD(gamma=2, fallback="undrafted").fallback_share(
        lambda gamma: odds(gamma, None), 2
    )
    assert undrafted == near(0.175 / (1 + 0.175 - 0.1))
    never = MirrorSD(gamma=2).kinds(
        lambda gamma: Odds(odds(2, None).accepted, 0 * odds(2, None).off_exit, 0.0, ""), 2
    )
    assert never == {Kind("reuse", 2): 1.0}
    shorter = MirrorSD(gamma=4, adaptive=WindowTable(name="table", windows={1: 2}))
    assert set(shorter.kinds(lambda gamma: odds(gamma, None), 1)) == {
        Kind("reuse", 1, window=2),
        Kind("fallback", 1, redrafts=1, window=2),
    }


def test_which_verdicts_stay_on_the_tree() -> None:
    def reuses(message: str, bonus: bool, accepted: int, off_exit: bool, off_path: bool) -> bool:
        mirror = MirrorSD(gamma=2, message=message, bonus_on_full_accept=bonus)
        return mirror.reuses(Verdict(accepted, accepted + 1, off_exit, off_path), 2)

    every, first = "per_position", "first_position"
    assert [
        reuses(every, True, kept, off, not off) for kept in (0, 1, 2) for off in (False, True)
    ] == [True, False] * 3
    assert [reuses(every, False, kept, True, True) for kept in (0, 1, 2)] == [False, False, True]
    assert [reuses(first, True, 0, off, True) for off in (False, True)] == [True, False]
    assert [reuses(first, True, 1, False, off) for off in (False, True)] == [False, False]
    assert [reuses(first, True, 2, True, off) for off in (False, True)] == [True, False]
    mirror = MirrorSD(gamma=2, bonus_on_full_accept=False)
    assert [mirror.reuses(Verdict(0, 1, off, False), 0) for off in (False, True)] == [True, False]
    assert [mirror.choice(True, Verdict(kept, 1, False, False)) for kept in (0, 1)] == [
        *("branch rooted at the correction", "stored continuation"),
    ]


def test_what_a_mirror_run_reports_beside_its_durations() -> None:
    mirror, ledger = MirrorSD(gamma=2, kappa=2), Ledger()
    odds = odds_of(Rates((0.5,)), None)
    found = mirror.derived(ledger, mirror.compose(states(mirror, (10, 1), (20, 1))), odds)
    assert found == {
        "exposed_draft_ms": 0.0,
        "relative_draft_overhead": 0.0,
        "branches": 12.0,
        "early_exit_payload_bytes": 72.0,
    }
    assert ledger.asked[-1] == ("draft", Rows(2, 2, 2, 36, 36), "redraft")
    wide = MirrorSD(gamma=2, kappa=20)
    derived = wide.derived(ledger, wide.compose(states(wide, (10, 1), (20, 1))), odds)
    assert (derived["exposed_draft_ms"], derived["relative_draft_overhead"]) == (
        near(18_000),
        near(18 / 0.4),
    )
    t = MirrorSD.traits.durations(suffix=3.0, draft=5.0)
    assert (exposed_draft(t), relative_overhead(t, 4.0)) == (2.0, 0.5)


def test_parts_of_a_mirror_step_follow_one_another_but_for_suffix_and_draft() -> None:
    mirror, kind = MirrorSD(gamma=2), Kind("step", 1)
    parts = {"redraft": 0.5, "prefix": 2.0, "rv_ee": 0.25, "rv_fv": 0.125}
    t = MirrorSD.traits.durations(suffix=3.0, draft=5.0, **parts)
    assert mirror.in_turn(t, kind, one_lane=False) == (0.5, 2.0, 0.25, 5.0, 0.125)
    assert mirror.in_turn(t, kind, one_lane=True) == (0.5, 2.0, 0.25, 3.0, 5.0, 0.125)
    longer = t._replace(suffix=6.0)
    assert mirror.in_turn(longer, kind, one_lane=False) == (0.5, 2.0, 0.25, 6.0, 0.125)


def test_the_first_window_of_a_mirror_request_comes_before_its_steps() -> None:
    mirror, ledger = MirrorSD(gamma=3), Ledger()
    assert mirror.admission(ledger, PROMPT) == Admission(3.0, 1.5, 0.0)
    assert mirror.admission(ledger, PROMPT, ending=2, context=50) == Admission(3.0, 1.5, near(0.6))
    assert ledger.asked[-1] == ("draft", Rows(2, 2, 2, 50, 50), "redraft")


def test_settings_of_a_mirror() -> None:
    assert [batching_rule(size) for size in (1, 15, 16, 31, 32, 63, 64)] == [
        (8, 2),
        (8, 2),
        (4, 1),
        (4, 1),
        (2, 1),
        (2, 1),
        (1, 1),
    ]
    assert [
        early_exit(MirrorSD(exit_layer=depth), layers).fraction
        for depth, layers in ((8, 32), (0.3, 32), (8, None))
    ] == [
        0.25,
        0.3,
        8,
    ]
    assert early_exit(MirrorSD(kappa=5), 32).kappa == 5
    assert [MirrorSD(message=one).positions(3) for one in ("per_position", "first_position")] == [
        4,
        1,
    ]
    for depth in (0, -3, 0.0, 1.0, 1.5):
        with pytest.raises(ValueError, match="expected a layer number from 1 or a share"):
            MirrorSD(exit_layer=depth)
    assert [MirrorSD(exit_layer=depth).exit_layer for depth in (1, 40, 0.01, 0.99)] == [
        1,
        40,
        0.01,
        0.99,
    ]
    ruled = MirrorSD(batching_rule=True, drafter=StreamingDrafter(streams=7)).fitted_to(40)
    assert (ruled.kappa, ruled.drafter) == (2, StreamingDrafter(streams=1))
    assert MirrorSD(batching_rule=True).fitted_to(40).drafter.name == "autoregressive"
    plain = MirrorSD(kappa=5)
    assert plain.fitted_to(40) is plain
    assert plain.extra_memory(ModelSpec.model_validate(MODEL)).weights == 10_000


@pytest.mark.parametrize(
    ("one_lane", "relation"),
    [(True, "lower bound: target and draft share one lane and cannot overlap"), (False, "exact")],
)
def test_a_law_says_how_it_stands_to_its_process_on_one_lane(one_lane: bool, relation: str) -> None:
    law = MirrorSD(gamma=2).law(
        Ledger(), lambda gamma: Rates((0.5,), 0.9).odds(gamma, None), 1, 100, None, one_lane
    )
    assert law.relation == relation


@pytest.mark.parametrize(
    ("contention", "one_lane", "others", "relation"),
    [
        (1.0, True, "wait", "lower bound: target and draft share one lane and cannot overlap"),
        (
            1.2,
            False,
            "proceed",
            "idealised: the contention of a redraft beside the prefix is left out",
        ),
        (1.2, False, "wait", "exact"),
        (1.0, False, "proceed", "exact"),
    ],
)
def test_how_the_law_of_mirror_stands_to_its_process(
    contention: float, one_lane: bool, others: str, relation: str
) -> None:
    cost = Ledger(contention=contention)
    assert str(MirrorSD(others=others).claim(cost, 1, 100, {}, one_lane)) == relation


# ---- trees


HEAD = DraftHead(layers=1)
TREE = TreeSD(
    tree=TokenTree(branching=(2, 1)),
    passes=(DraftPass(rows=(3, 1), head=HEAD), DraftPass(rows=(2,), logits=False)),
    extra_rows=1,
    host_ms=Ranged(value=50.0),
)


def test_a_tree_step_drafts_in_every_pass_and_verifies_all_nodes() -> None:
    """Two requests at 10 and 20; 1 + 4 + 1 rows each; head passes of 3 and 1 rows, a draft pass of
    2 without logits.
    """
    ledger = Ledger()
    batch = states(TREE, (10, 1), (20, 9))
    step = TREE.compose(batch, PROMPT)
    assert step == Step(Kind("step", 2, prompts=1), Rows(12, 12, 2, 42, 6 * 30 + 42), 0, PROMPT)
    phases = TREE.phases(ledger, step)
    assert phases == {
        "draft": Phase(
            near(1.5 + 0.06 + 0.02 + 0.4),
            {"draft compute": near(1.9), "draft head compute": near(0.08)},
        ),
        "host": Phase(near(0.1), {}),
        "target": Phase(18.0, {"target compute": 18.0}),
    }
    assert ledger.asked == [
        ("prefill", "draft", PROMPT),
        ("head", HEAD, Rows(6, 6, 2, 30, 90)),
        ("head", HEAD, Rows(2, 2, 2, 30, 30)),
        ("draft", Rows(4, 0, 2, 30, 60), "window"),
        ("target", step.rows + PROMPT, 0.0, 1.0),
    ]
    t = TREE.durations(ledger, step)
    assert booked(TREE, t, step.kind) == (
        [
            ("draft", 0, near(1.98), "draft"),
            ("rendezvous", near(1.98), near(2.08), "host"),
            ("target", near(2.08), near(20.08), "verify"),
        ],
        near(20.08),
    )
    assert TREE.step_seconds(t, step.kind) == near(20.08)
    assert TREE.settle(batch) == [Progress(2, 2, 1, 4), Progress(3, 3, 2, 4)]
    assert [state.context for state in batch] == [12, 23]


def test_a_request_without_the_rows_for_a_tree_takes_one_token() -> None:
    ledger = Ledger()
    batch = states(TREE, (10, 9), (20, 9))
    batch[0].most_rows, batch[1].most_rows = 6, 5
    step = TREE.compose(batch)
    assert step == Step(Kind("hit", 1, 1), Rows(7, 7, 2, 37, 6 * 10 + 21 + 21))
    assert TREE.phases(ledger, step)["host"].wall_s == near(0.1)
    assert ledger.asked[0] == ("head", HEAD, Rows(3, 3, 1, 15, 45))
    assert TREE.settle(batch) == [Progress(3, 3, 2, 4), Progress(1, 1, 0, 0)]
    batch[0].most_rows = 1
    step, ledger.asked = TREE.compose(batch), []
    assert step.kind == Kind("miss", 0, 2)
    t = TREE.durations(ledger, step)
    assert ledger.asked == [("target", step.rows, 0.0, 1.0)]
    assert booked(TREE, t, step.kind) == (
        [("rendezvous", 0, near(0.1), "host"), ("target", near(0.1), near(2.1), "decode")],
        near(2.1),
    )


def test_heads_beside_the_target_draft_on_its_lane() -> None:
    medusa = TreeSD(tree=TokenTree(branching=(2,)), passes=(DraftPass(rows=(1,), head=HEAD),))
    step = medusa.compose(states(medusa, (10, 1)), PROMPT)
    ledger = Ledger()
    t = medusa.durations(ledger, step)
    assert booked(medusa, t, step.kind) == (
        [("target", 0, near(0.01), "draft"), ("target", near(0.01), near(9.01), "verify")],
        near(9.01),
    )
    assert [question[0] for question in ledger.asked] == ["head", "target"]
    lookup = TreeSD(tree=TokenTree(branching=(1, 1)))
    step = lookup.compose(states(lookup, (10, 1)))
    assert booked(lookup, lookup.durations(ledger, step), step.kind) == (
        [("target", 0, 3, "verify")],
        3,
    )
    assert (lookup.needs.draft_model, medusa.needs.draft_model, TREE.needs.draft_model) == (
        False,
        False,
        True,
    )


def test_numbers_of_a_tree() -> None:
    model = ModelSpec.model_validate(MODEL)
    reused = TREE.model_copy(
        update={
            "passes": (*TREE.passes, DraftPass(rows=(1,), head=HEAD, reused=True)),
            "ids_per_entry": 3,
        }
    )
    assert (
        TREE.window,
        TREE.needs.draft_steps,
        TREE.rows,
        TREE.needs.cache_tokens,
        TREE.needs.rows,
    ) == (2, 3, 6, 6, 6)
    assert (TREE.needs.dynamic_draft, reused.needs.draft_steps) == (False, 4)
    assert (TREE.extra_memory(model).weights, reused.extra_memory(model).weights) == (
        90_000,
        90_000,
    )
    assert (TREE.extra_memory(model).table_bytes, reused.extra_memory(model).table_bytes) == (
        0,
        3 * 1_000 * 8,
    )
    assert TREE.step(Kind("hit", 2, 1), 10) == Step(
        Kind("hit", 2, 1), Rows(13, 13, 3, 43, 6 * 20 + 42 + 11)
    )


def test_look_up_finds_something_for_each_request_on_its_own() -> None:
    odds = Rates((0.5,)).odds(2, None)
    kinds = TREE.kinds(lambda gamma: Odds(odds.accepted, odds.off_exit, 0.0, "", unmatched=0.25), 2)
    assert kinds == {
        Kind("step", 2): near(0.5625),
        Kind("hit", 1, 1): near(0.375),
        Kind("miss", 0, 2): near(0.0625),
    }
    assert TREE.kinds(lambda gamma: odds, 2) == {Kind("step", 2): 1.0}


def test_what_a_tree_asks_of_acceptance() -> None:
    """Ranks of two levels; stated acceptance as it is, or with the share of steps in which look-up
    finds something.
    """
    rates, lookup = Rates((0.5,)), TREE.model_copy(update={"matched": Fraction(value=0.75)})
    assert TREE.reads(rates) is rates
    drawn = lookup.reads(rates)
    assert isinstance(drawn, DrawnMatches)
    assert (drawn.verdicts, drawn.odds(2, None).unmatched) == (rates, 0.25)
    nothing = (
        "holds nothing that drafts like this; state rate, per_position, always or cycle instead"
    )
    assert first_finding(TREE, trace=trace_of([0, 1])) == ("drafter", nothing)
    ranked = TREE.model_copy(update={"drafter": "draft"})
    assert first_finding(ranked, trace=trace_of([0, 1])) is None
    kept = ranked.reads(Replay(trace_of([9, 0, 0, 1, 0, 2])))
    assert isinstance(kept, RecordedRuns)
    assert kept.runs(0).tolist() == [2, 1, 2, 1, 0]
    other = TREE.model_copy(update={"drafter": "medusa"})
    assert first_finding(other, trace=trace_of([0, 1])) == (
        "tree",
        "holds nothing of the drafter 'medusa', but draft",
    )
    chains = trace_of([0, 1], medusa_run=[0, 1])
    assert first_finding(other, trace=chains) == ("tree", "holds chains of 'medusa', and no trees")
    assert first_finding(other.model_copy(update={"borrowed": True}), trace=chains) is None
    starts = dataclasses.replace(trace_of([0, 1]), run=np.array([0, 2], dtype=np.uint16))
    assert first_finding(TREE, trace=starts) is None


def test_look_up_that_finds_nothing_takes_a_bare_token() -> None:
    lookup = TREE.model_copy(update={"matched": Fraction(value=0.5)})
    found = []
    for matched in (True, False):
        batch = [lookup.open(RunCursor(RecordedRun([9], [matched])), 10)]
        found.append((lookup.compose(batch).kind, batch[0].proposed, *lookup.settle(batch)))
    assert found == [
        (Kind("step", 1), 5, Progress(3, 3, 2, 4)),
        (Kind("miss", 0, 1), 0, Progress(1, 1, 0, 0)),
    ]
    with pytest.raises(TypeError, match="_CycleCursor does not know what look-up finds"):
        lookup.open(Cycle((1,)).cursor(0, None), 10)
