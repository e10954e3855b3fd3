"""SpecActor: drafters serve verifiers, a window ahead."""

from __future__ import annotations

import pytest

from simulator import law
from simulator.core.acceptance.sources import Rates, odds_of
from simulator.core.cost.durations import ByLoad
from simulator.core.cost.rows import Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.strategies.common.ahead import AheadDurations
from simulator.core.strategies.common.step import Kind
from simulator.papers.specactor.strategy import SpecActor
from simulator.scenario import load
from tests.ledger import PROMPT, Ledger, near, states as with_contexts

BY_ROWS = StatedDurations(
    target_ms=20.0, draft_step_ms=ByLoad(base_ms=2.0, sequence_ms=0.5), rv_fv_ms=0.5
)
HARDWARE = "specactor_qwen3_32b_3xh200"


@pytest.mark.parametrize(
    ("drafters", "verifiers", "drafted_ms"),
    [(1, 1, 4 * 4.0), (1, 3, 4 * 8.0), (2, 3, 4 * 5.0), (4, 1, 4 * 2.5)],
)
def test_a_drafter_writes_for_the_requests_of_all_that_it_serves(
    drafters: int, verifiers: int, drafted_ms: float
) -> None:
    """Four requests at either verifier: of 4, 12, 6 and 1 a pass takes 2 ms and 0.5 ms for each;
    windows of three have a guess behind them. A step is that, or 20 ms and 0.5 ms each way.
    """
    strategy = SpecActor(gamma=3, drafters=drafters, verifiers=verifiers)
    cost = StatedCost(BY_ROWS, 4)
    (kind,) = strategy.kinds(odds_of(Rates((1.0,)), None), 4)
    durations = strategy.durations(cost, strategy.step(kind, 100))
    assert durations.draft * 1e3 == pytest.approx(drafted_ms)
    assert strategy.step_seconds(durations, kind) * 1e3 == pytest.approx(max(21.0, drafted_ms))


def test_drafters_keep_the_caches_of_all_that_they_serve() -> None:
    """Two verifiers a drafter: a token takes twice the room on it."""
    two = load(HARDWARE, []).scenario
    one = load(HARDWARE, ["strategy.verifiers=1"]).scenario
    (_, of_two) = two.device_groups
    (_, of_one) = one.device_groups
    assert of_two.token_gb == pytest.approx(2 * of_one.token_gb)
    assert of_two.weights_gb == of_one.weights_gb


def test_what_is_lost_is_written_again() -> None:
    """Of four tokens each is right with a chance of 0.8: 0.41 of the windows stand, and a request
    sits out 0.59 / 1.59 of its steps.
    """
    strategy = SpecActor(gamma=3)
    odds = odds_of(Rates((0.8,)), None)
    by_law = strategy.law(StatedCost(StatedDurations(target_ms=20, draft_ms=4), 4), odds, 1, 100)
    lost = 1.0 - 0.8**4
    (sits_out,) = [share for kind, share in by_law.kinds.items() if kind.waiting]
    assert sits_out == pytest.approx(lost / (1.0 + lost))
    kept = sum(0.8**place for place in range(4))
    assert by_law.tokens_per_step == pytest.approx(kept / (1.0 + lost))


@pytest.mark.parametrize(("clients", "slower"), [(1, False), (8, False), (256, True)])
def test_more_verifiers_make_the_drafter_the_longer_side(clients: int, slower: bool) -> None:
    """One drafter for eight verifiers of a large batch is what they wait for."""
    sets = [f"requests={{count: {clients}, concurrency: {clients}, output_tokens: 60}}"]
    steps = [
        float(law(HARDWARE, [*sets, f"strategy.verifiers={verifiers}"]).step_s)
        for verifiers in (1, 8)
    ]
    assert (steps[1] > 1.05 * steps[0]) is slower


# ---- steps by hand


def test_a_drafter_has_its_part_of_prompts_and_messages() -> None:
    """Three verifiers and two drafters: of two requests at a verifier a drafter writes for three,
    in three passes of 0.3 s, and of a prompt of six tokens at either verifier it reads two.
    """
    strategy, ledger = SpecActor(gamma=2, drafters=2, verifiers=3), Ledger()
    batch = with_contexts(strategy, (10, 3), (20, 1))
    step = strategy.compose(batch, PROMPT)
    assert step.kind == Kind("step", 2, prompts=1)
    t = strategy.durations(ledger, step)
    assert t == AheadDurations(near(12.0), 0.0, near(0.25 * 12 + 3 * 0.3), near(0.036), near(0.036))
    assert ("draft", Rows(3, 3, 3, 54, 54), "window") in ledger.asked  # 36 tokens and half of them
    assert (strategy.caches_of_draft, strategy.draft_devices(9)) == (1.5, pytest.approx(2 / 3))
    assert strategy.sharing_targets == 3
    assert SpecActor(drafters=2, verifiers=4).sharing_targets == 2


def test_the_example_of_decoupled_servers_is_bound_by_its_drafters() -> None:
    """Four passes of 5.5 ms are longer than one of 18 ms with 0.2 ms each way."""
    example = SpecActor.example()
    strategy = example.strategy
    assert isinstance(strategy, SpecActor)
    assert (strategy.drafters, strategy.verifiers) == (2, 3)
    odds = odds_of(Rates((1.0,)), None)
    law = strategy.law(example.cost_of(strategy), odds, 1, 9)
    assert (law.step_s, law.tokens_per_step) == (near(0.022), near(4.0))
