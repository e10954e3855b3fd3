"""A name is suggested where it is near: what tells devices, models and formats apart are
numbers.
"""

import pytest

from simulator.core.cost.formats import FORMATS
from simulator.core.faults import BadInput, did_you_mean
from simulator.inputs.catalogue import Catalogue
from simulator.scenario.loading import load

DEVICES, ENGINES, MODELS = (
    sorted(Catalogue().names(kind)) for kind in ("device", "engine", "model")
)


@pytest.mark.parametrize(
    ("word", "names", "near"),
    [
        ("8060s", DEVICES, None),
        ("gfx1151", DEVICES, None),
        ("7900xtx", DEVICES, "rx_7900_xtx"),
        ("strix_halo", DEVICES, None),
        ("h200", DEVICES, "h200_sxm"),
        ("H100-SXM", DEVICES, "h100_sxm"),
        ("a100-80g", DEVICES, "a100_80g_sxm"),
        ("rtx3090", DEVICES, "rtx_3090"),
        ("rtx_3070", DEVICES, "rtx_4070"),
        ("Q4_K_XXL", FORMATS, "q4_k"),
        ("Q8_0", FORMATS, "q8_0"),
        ("Q5_K_N", FORMATS, "q5_k"),
        ("Q7_K", FORMATS, None),
        ("fp8_e4m3", FORMATS, "fp8"),
        ("vlm", ENGINES, "vllm"),
        ("qwen3-8", MODELS, "qwen3_8b"),
        ("x", [], None),
    ],
)
def test_the_nearest_name(word, names, near):
    said = did_you_mean(word, names)
    assert said == f"; did you mean '{near}'?" if near else "did you mean" not in said


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("target.weights=Q4_KM", "there is no format of weights 'Q4_KM'; did you mean 'q4_k_m'?"),
        ("target.kv_cache=FP8", "got 'FP8'; did you mean 'fp8'?"),
        ("target.collectives.per=layers", "got 'layers'; did you mean 'layer'?"),
        (
            "target.device=8060s",
            "and one of your own is a file, as ./my_device.yaml, with like: NAME of the nearest",
        ),
    ],
)
def test_what_was_perhaps_meant_is_said_of_fixed_words_too(field, words):
    with pytest.raises(BadInput) as error:
        load("autoregressive_qwen3_32b_a100", [field])
    assert str(error.value).endswith(words)
    assert "h800_sxm'?" not in str(error.value)
