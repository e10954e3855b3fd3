"""``specsim drafts`` takes every strategy with a draft model whose law follows from one chance."""

from __future__ import annotations

import pytest

from simulator.core.faults import BadInput
from simulator.scenario import load
from simulator.scenario.evaluate import law, speedup_of
from simulator.studies.drafts import RATES, study

PEARL = "pearl_qwen3_32b_3xh200"
AT = RATES.index(0.7)


def test_a_draft_is_worth_what_the_law_of_the_strategy_says() -> None:
    """At 70 % kept, with the window named best, and no longer or shorter one is better."""
    loaded = load(PEARL)
    (point,) = study([loaded]).points

    def by_law(window: int) -> float:
        stated = ["acceptance={rate: 0.7}", f"strategy.gamma={window}"]
        scenario = load(PEARL, stated)
        return speedup_of(scenario.scenario, law(scenario.scenario, scenario.acceptance()))

    best = point.windows[AT]
    assert point.speedups[AT] == pytest.approx(by_law(best), rel=1e-9)
    assert point.speedups[AT] >= max(by_law(best - 1), by_law(best + 1))
    assert point.pays is not None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("autoregressive_mistral_24b_m2_ultra", "drafts with no model of its own"),
        ("mirror_mistral_24b_m2_ultra", "drafts on from an early exit of the target"),
        ("specpipe_llama_3_1_70b_4xl40", "has no window gamma"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_a_way_that_works(name: str, words: str) -> None:
    loaded = load(name)
    with pytest.raises(BadInput) as refused:
        study([loaded])
    (fault,) = refused.value.faults
    assert words in fault.message
    if "--set" in fault.message:
        assert "--set strategy=vanilla_sd" in fault.message
        serial = load(name, ["strategy=vanilla_sd"]).scenario
        assert serial.draft is not None
        assert serial.exit is None
