"""What a config.json leaves out is what the classes of transformers take; held against them where
they are installed.
"""

import json
import logging
import warnings
from pathlib import Path
from typing import Any

import pytest

from benchmarks import write_families
from simulator.core.cost.model import ModelSpec
from simulator.inputs.models.config_fields import FAMILIES, FIELDS, STATED_ALONE
from simulator.inputs.models.huggingface import read_config

ORIGIN = {"name", "about", "source", "mtp_layers"}  # no file that is silent has layers for drafting
STATED: dict[
    str, dict[str, Any]
] = {  # of classes whose defaults contradict each other or leave a size to the file
    "deepseek_v2": {"num_experts_per_tok": 6},
    "glm4_moe": {"head_dim": 128},
    "glm4v_moe_text": {"head_dim": 128},
    "granitemoehybrid": {"shared_intermediate_size": 22_016},
    "nemotron_h": {
        "num_hidden_layers": 4,
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
    },
}
NO_TABLE = 0.001
"""Convolutions, gates of shared experts and biases of experts, which are left out: share of the
weights.
"""


@pytest.fixture(scope="module")
def transformers() -> Any:
    module = pytest.importorskip("transformers")
    logging.getLogger("transformers").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    return module


def read(folder: Path, data: dict[str, Any]) -> dict[str, Any]:
    return spec(folder, data).model_dump(exclude=ORIGIN)


def spec(folder: Path, data: dict[str, Any]) -> ModelSpec:
    path = folder / "config.json"
    path.write_text(json.dumps(data))
    return read_config(path)


def whole(kind: str, **fields: Any) -> Any:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return CONFIG_MAPPING[kind](**STATED.get(kind, {}) | fields)


# ---- held against transformers


def test_the_file_holds_what_the_installed_classes_take(transformers):
    """A newer class may know fields that the file does not; those of the file have its values."""
    assert write_families.written() == dict(FAMILIES)


@pytest.mark.parametrize("kind", FAMILIES["takes"])
def test_a_field_left_out_is_what_the_class_takes(transformers, tmp_path, kind):
    stated = write_families.as_file(whole(kind)) | STATED.get(kind, {})
    complete = read(tmp_path, stated)
    own = {
        *FAMILIES["takes"][kind],
        *FIELDS["families"].get(kind, {}),
        "tie_word_embeddings",
        "layer_types",
        "head_dim",
    }
    own |= {"num_key_value_heads", "intermediate_size", "n_inner", "sliding_window"}
    alone = {name for key in STATED_ALONE for name in FIELDS["names"][key]}
    for name in sorted(own & stated.keys() - alone - STATED.get(kind, {}).keys()):
        assert (
            read(tmp_path, {key: value for key, value in stated.items() if key != name}) == complete
        ), name


@pytest.mark.parametrize("kind", FAMILIES["takes"])
def test_a_file_without_any_default_is_the_class(transformers, tmp_path, kind):
    config = whole(kind)
    depth = {name: value for key in STATED_ALONE for name, value in stated_as(config, key).items()}
    assert read(tmp_path, {"model_type": kind} | depth | STATED.get(kind, {})) == read(
        tmp_path, write_families.as_file(config) | STATED.get(kind, {})
    )


def stated_as(config: Any, key: str) -> dict[str, Any]:
    data = write_families.as_file(config)
    return {name: data[name] for name in FIELDS["names"][key] if name in data}


@pytest.mark.parametrize("kind", FAMILIES["composites"])
def test_the_text_model_of_a_composite(transformers, tmp_path, kind):
    config = whole(kind)
    text = config.text_config
    own = write_families.as_file(text) | {
        "tie_word_embeddings": bool(getattr(config, "tie_word_embeddings", False))
    }
    more = STATED.get(text.model_type, {})
    assert read(
        tmp_path, {"model_type": kind, "text_config": {"model_type": text.model_type, **more}}
    ) == read(
        tmp_path,
        {**write_families.as_file(write_families.default_config(text.model_type)), **more}
        | {"tie_word_embeddings": own["tie_word_embeddings"]},
    )


@pytest.mark.parametrize("kind", FAMILIES["takes"])
def test_weights_are_those_of_the_class(transformers, tmp_path, kind):
    torch = pytest.importorskip("torch")
    config = whole(kind)
    model = spec(tmp_path, write_families.as_file(config) | STATED.get(kind, {}))
    with torch.device("meta"):
        try:
            made = transformers.AutoModelForCausalLM.from_config(config)
        except (TypeError, ValueError, AttributeError) as error:
            pytest.skip(f"the class makes no model of its own defaults: {error}")
    matrices = sum(weight.numel() for weight in made.parameters() if weight.dim() >= 2)
    assert model.weights == pytest.approx(matrices, rel=NO_TABLE)
