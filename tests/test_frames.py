"""How many functions stand between ``run()`` and the price of a product."""

import pytest

from tests.kept import forget
from tools.frames import deepest_way

MOST_FRAMES = 19
"""Fourteen before steps stood in tables that a lazy batch reads: batch and table add five."""
FEW = ("requests.count=8", "requests.warm_up=0", "requests.cool_down=0")


@pytest.mark.parametrize(
    "name",
    [
        "mirror_qwen3_32b_a100",
        "pipeline_llama_3_1_70b_8x3090",
        "specpipe_llama_3_1_70b_8x3090",
        "eagle3_mixtral_8x7b_2xa100",
        "mtp_deepseek_v3_8xh200",
        "ngram_qwen3_30b_a3b_h200",
        "traffic_vanilla_llama_3_1_8b_4xa100",
    ],
)
def test_a_product_is_priced_few_frames_behind_run(name: str) -> None:
    forget()
    way = deepest_way(name, FEW)
    assert way[0] == "scenario.evaluate.run"
    assert way[-1] == "core.cost.device.Device.timer.<locals>.seconds"
    assert len(way) <= MOST_FRAMES, "\n".join(way)
