"""Vocabularies that differ by padding are one tokenizer; by more they are two."""

import re
from pathlib import Path

import pytest

from simulator.core.faults import BadInput
from simulator.inputs.catalogue import shipped
from simulator.scenario.caveats import caveats
from simulator.scenario.loading import Loaded, load

MODELS = shipped() / "scenarios" / "models"
STATED = ["target.tensor_parallel=1", "acceptance={rate: 0.7}", "target.weights=int8_wo"]


def with_vocabulary(folder: Path, name: str, size: int) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(
        re.sub(
            r"(?m)^vocab_size: \d+",
            f"vocab_size: {size}",
            (MODELS / f"{name}.yaml").read_text("utf-8"),
        )
    )
    return path


def drafted(folder: Path, target: int, draft: int) -> Loaded:
    models = [("target", "qwen3_32b", target), ("draft", "qwen3_0_6b", draft)]
    sets = [f"{role}.model={with_vocabulary(folder, name, size)}" for role, name, size in models]
    return load("vanilla_qwen3_32b_a100", [*STATED, *sets])


@pytest.mark.parametrize(
    ("target", "draft"), [(152_064, 151_936), (151_936, 152_064), (151_936, 151_935)]
)
def test_sizes_that_differ_by_padding_are_one_tokenizer_and_it_is_said(tmp_path, target, draft):
    scenario = drafted(tmp_path, target, draft)
    assert scenario.scenario.target is not None
    assert scenario.scenario.draft is not None
    sizes = [
        place.model.vocab_size for place in (scenario.scenario.target, scenario.scenario.draft)
    ]
    assert sizes == [target, draft]
    words = (
        f"the draft's vocabulary of {draft:,} and the target's of {target:,} are taken as one "
        "tokenizer with different padding"
    )
    assert words in list(caveats(scenario, scenario.acceptance()))


def test_equal_sizes_need_no_words(tmp_path):
    scenario = drafted(tmp_path, 151_936, 151_936)
    assert not [words for words in caveats(scenario, scenario.acceptance()) if "padding" in words]


def test_sizes_that_differ_by_more_are_two_tokenizers(tmp_path):
    with pytest.raises(
        BadInput,
        match=r"vocabulary of 151,936 is not the target's of 152,065; they must share a tokenizer",
    ):
        drafted(tmp_path, 152_065, 151_936)


def test_a_recording_fits_a_target_of_the_same_tokenizer(tmp_path):
    """six_flavours_greedy was recorded with 2,048 tokens."""
    trace = ["acceptance={trace: six_flavours_greedy}", "draft=null", "strategy=pld"]
    for size in (2048 + 128, 2048 - 40):
        model = with_vocabulary(tmp_path, "qwen3_0_6b", size)
        load("vanilla_qwen3_32b_a100", [*STATED, *trace, f"target.model={model}"])
    model = with_vocabulary(tmp_path, "qwen3_0_6b", 2048 + 129)
    with pytest.raises(BadInput, match="vocabulary of 2,048"):
        load("vanilla_qwen3_32b_a100", [*STATED, *trace, f"target.model={model}"])


def test_a_draft_that_is_taken_over_stays_where_its_vocabulary_differs_by_padding(tmp_path):
    model = with_vocabulary(tmp_path, "qwen3_32b", 152_064)
    scenario = load("vanilla_qwen3_32b_a100", [*STATED, f"target.model={model}"]).scenario
    assert scenario.draft is not None
    assert scenario.draft.model.vocab_size == 151_936
