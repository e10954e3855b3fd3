"""Variants: what ``load`` with overrides gives, without reading anything again that has not
changed.
"""

from __future__ import annotations

import pytest

from simulator.core.faults import BadInput, Infeasible
from simulator.scenario import load
from simulator.scenario.evaluate import simulate
from simulator.scenario.loading import variant

CHANGES: list[tuple[str, dict[str, object]]] = [
    ("durations_only", {"strategy.gamma": 3, "seed": 4}),
    ("vanilla_llama_2_7b_a100", {"target.device.memory_bandwidth_gb_s": 1000}),
    ("vanilla_llama_2_7b_a100", {"target.device": "h800_pcie_80g", "requests.concurrency": 3}),
    ("vanilla_llama_2_7b_a100", {"strategy": "autoregressive"}),
    ("mirror_qwen3_32b_a100", {"seed": 3, "channel.latency_us": 50}),
    ("mirror_qwen3_32b_m2_ultra", {"acceptance.rescale.tokens_per_step": 3.5, "strategy.gamma": 4}),
    ("methods_vicuna_7b_a100", {"strategy": "pld"}),
]


@pytest.mark.parametrize(("name", "changes"), CHANGES)
def test_a_variant_is_what_overrides_load(name: str, changes: dict[str, object]) -> None:
    base = load(name)
    found, read = (
        variant(base, changes),
        load(name, [f"{key}={value}" for key, value in changes.items()]),
    )
    assert found.scenario == read.scenario
    assert found.document.data == read.document.data
    small = {"requests.count": 2, "requests.concurrency": 1}
    ours, theirs = (
        simulate((one := variant(each, small)).scenario, one.acceptance())[0]
        for each in (found, read)
    )
    assert (ours.end_s, ours.kinds, ours.accepted) == (theirs.end_s, theirs.kinds, theirs.accepted)


def test_a_variant_leaves_its_base_alone_and_shares_the_rest() -> None:
    base = load("mirror_qwen3_32b_a100")
    before = base.scenario.model_dump()
    found = variant(base, {"strategy.gamma": 3, "target.tensor_parallel": 4})
    assert base.scenario.model_dump() == before
    assert variant(base, {}) is base
    assert found.scenario.draft is base.scenario.draft
    assert found.trace is base.trace
    assert found.acceptance() is base.acceptance()
    assert variant(found, {"strategy.gamma": 5}).scenario.target.tensor_parallel == 4


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"strategy.gama": 3}, BadInput, "did you mean 'gamma'"),
        ({"strategy.exit_layer": 65}, BadInput, "the target has 64 layers"),
        ({"target.device": "a100_80g_sxmm"}, BadInput, "did you mean"),
        ({"target.tensor_parallel": 1, "target.device": "rtx_3090"}, Infeasible, "does not fit"),
        ({"acceptance.flavours": ["none such"]}, BadInput, "the trace has no flavour"),
    ],
)
def test_a_variant_that_cannot_be_says_why(
    changes: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        variant(load("mirror_qwen3_32b_a100"), changes)
    assert "--set" in str(caught.value)
