"""Variants: what ``load`` with overrides gives, without reading anything again that has not
changed.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import pytest

from simulator.core.acceptance.rescale import rescaled
from simulator.core.acceptance.sources import Acceptance, Rates
from simulator.core.faults import BadInput, Infeasible
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import Document
from simulator.inputs.schema import validate
from simulator.scenario import Loaded, Scenario, load
from simulator.scenario.evaluate import law, simulate
from simulator.scenario.loading import MOST_MADE, Verdicts, variant
from simulator.studies.sweep.base import Base, with_settings
from simulator.studies.sweep.key import fields_of

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


POINTS: list[tuple[str, dict[str, object]]] = [
    ("durations_only", {"strategy.gamma": 3, "acceptance.rate": 0.6, "seed": 4}),
    ("durations_only", {"durations": {"target_ms": 30.0}, "strategy": "autoregressive"}),
    ("vanilla_qwen3_32b_a100", {"draft.device.memory_bandwidth_gb_s": 900, "strategy.gamma": 3}),
    ("vanilla_qwen3_32b_a100", {"target.device": "h100_sxm", "draft.device": "h100_sxm"}),
    ("vanilla_qwen3_32b_a100", {"target.model": "qwen3_14b", "target.tensor_parallel": 4}),
    ("mirror_qwen3_32b_a100", {"acceptance.rescale.tokens_per_step": 3.5, "strategy.gamma": 4}),
    ("methods_vicuna_7b_a100", {"strategy": "pld", "requests.prompt_tokens": 300}),
    (
        "durations_only",
        {"serving.policy": {"name": "prefill_first"}, "requests": "chat_poisson", "seed": 2},
    ),
    ("vanilla_qwen3_32b_a100", {"slo": None, "strategy.gamma": 3, "seed": 4}),
    # wrong alone, right together: stages without a strategy that runs on them
    ("durations_only", {"durations": {"stages_ms": [3.0, 4.0]}, "strategy": "pipeline"}),
]


@pytest.mark.parametrize(("name", "settings"), POINTS)
def test_a_point_whose_parts_are_checked_apart_is_what_overrides_load(
    name: str, settings: dict[str, object]
) -> None:
    """The same scenario, written at the same places, with the same key, asked twice."""
    loaded = load(name)
    base = Base(loaded, Catalogue(), fields_of(loaded, Catalogue()))
    whole = with_settings(loaded, settings, Catalogue())
    for _ in range(2):
        point, fields = base.point(settings)
        assert point.scenario == whole.scenario
        assert fields == fields_of(whole, Catalogue())
        assert point.document.data == whole.document.data
        assert point.document.places == whole.document.places
        assert point.document.mentions == whole.document.mentions


def test_what_a_point_does_not_change_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve points of three windows and four devices check seven parts, and share what these
    read.
    """
    loaded = load("vanilla_qwen3_32b_a100")
    base = Base(loaded, Catalogue(), fields_of(loaded, Catalogue()))
    laid: list[dict[str, object]] = []

    def counted(before: Loaded, settings: dict[str, object], catalogue: Catalogue) -> Loaded:
        laid.append(settings)
        return with_settings(before, settings, catalogue)

    read: list[object] = []

    def noted(model: type[Scenario], document: Document) -> Scenario:
        read.append(document)
        return validate(model, document)

    monkeypatch.setattr("simulator.studies.sweep.base.with_settings", counted)
    monkeypatch.setattr("simulator.scenario.loading.validate", noted)
    points = {
        (gamma, speed): base.point(
            {"strategy.gamma": gamma, "draft.device.memory_bandwidth_gb_s": speed}
        )[0].scenario
        for gamma in (2, 3, 4)
        for speed in (800, 900, 1000, 1100)
    }
    assert len(laid) == len(read) == 7
    assert points[2, 900].draft is points[4, 900].draft
    assert points[2, 900].strategy is points[2, 1100].strategy
    assert points[2, 900].draft.model is loaded.scenario.draft.model
    assert points[2, 900].draft.device.memory_bandwidth_gb_s.value == 900
    device = loaded.scenario.draft.device
    for curve, roofline in device.matmul.items():
        assert points[2, 900].draft.device.matmul[curve] is roofline


def test_a_model_is_not_taken_for_fields_of_another_name() -> None:
    """A drafter of another name is read, whatever it has in common with the one before."""
    base = variant(load("durations_only"), {"strategy": {"name": "vanilla_sd", "gamma": 3}})
    found = variant(base, {"strategy": {"name": "mirror_sd", "gamma": 3}})
    assert (
        found.scenario == load("durations_only", ["strategy={name: mirror_sd, gamma: 3}"]).scenario
    )


MEAN = ["acceptance.rescale.tokens_per_step=3.5"]


def test_scenarios_of_one_trace_share_what_is_made_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean is set once for any hardware and any number of loads, again for another mean."""
    made: list[float] = []

    def counted(acceptance: Acceptance, length: float, *rest: object) -> Acceptance:
        made.append(length)
        return rescaled(acceptance, length, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("simulator.scenario.loading.rescaled", counted)
    monkeypatch.setattr("simulator.scenario.loading._OF_TRACES", WeakKeyDictionary())
    for device in ("a100_80g_sxm", "h100_sxm", "a100_80g_sxm"):
        loaded = load("mirror_qwen3_32b_a100", [*MEAN, f"target.device={device}"])
        assert law(loaded.scenario, loaded.acceptance()).verified_per_step == pytest.approx(
            3.5, rel=0.1
        )
    assert made == [3.5]
    load("mirror_qwen3_32b_a100", ["acceptance.rescale.tokens_per_step=3.0"]).acceptance()
    assert made == [3.5, 3.0]


def test_what_was_made_long_ago_is_made_again() -> None:
    """The last ones are kept, counted by when they were asked for."""
    kept = Verdicts()
    rates = [Rates((0.5,)) for _ in range(MOST_MADE + 1)]
    for number, rate in enumerate(rates[:-1]):
        assert kept.made_once(number, lambda rate=rate: rate) is rate
    assert kept.made_once(0, lambda: rates[-1]) is rates[0]  # asked for again
    assert kept.made_once(MOST_MADE, lambda: rates[-1]) is rates[-1]
    assert kept.made_once(0, lambda: rates[-1]) is rates[0]
    assert kept.made_once(1, lambda: rates[-1]) is rates[-1]  # gone, and made anew
