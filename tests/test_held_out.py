"""``benchmarks/shelf.py`` on made-up tables: what lies between the sizes of a table, halves that
one curve explains.
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from benchmarks import shelf
from simulator.evidence.calibrate.importers import product
from simulator.evidence.calibrate.measurements import table, write


def asked(tmp_path: Path, *tables: Path | str) -> tuple[pd.DataFrame, str]:
    done = CliRunner().invoke(shelf.main, [*map(str, tables), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    return pd.read_csv(tmp_path / "out" / "held_out.csv"), (
        tmp_path / "out" / "held_out.md"
    ).read_text()


@pytest.mark.parametrize(("slower", "error"), [(1.0, 0.0), (1.25, 20.0)])
def test_sizes_between_those_of_a_link_are_asked_and_a_miss_is_said(
    slower: float, error: float, tmp_path: Path
) -> None:
    reduce = shelf.profile("nvlink_h100").all_reduce.measured["nccl"]
    rows = [
        {
            "operation": "all_reduce",
            "implementation": "nccl",
            "ranks": ranks,
            "size_bytes": kib * 1024,
        }
        | {"time_us": slower * 1e6 * reduce.seconds(kib * 1024, ranks)}
        for ranks in (2, 4, 8)
        for kib in (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
    ]
    write(table(rows), tmp_path / "nvlink_h100.csv")
    found, page = asked(tmp_path, tmp_path / "nvlink_h100.csv")
    assert len(found) == 1
    assert (found["rows"][0], found.percent[0]) == (15, pytest.approx(error, abs=0.01))
    assert found.two_numbers_percent[0] > 1.0
    assert ("**missed**" in page) == (error > 15.0)


def test_layers_of_one_half_are_asked_of_a_fit_to_the_other_and_other_lines_stay(
    tmp_path: Path,
) -> None:
    """Times of one curve: 5 us, 0.8 of an H100's bandwidth; products of 4,096 and 8,192 by four
    widths.
    """
    rows = []
    for inputs in (4096, 8192):
        for outputs in (4096, 8192, 10240, 16384):
            for tokens in (1, 16, 64, 128, 256):
                row = product("product", tokens, inputs, outputs, 1.0)
                time_us = 5.0 + row["size_bytes"] / (0.8 * 3350e3)
                rows.append(
                    {**row, "time_us": time_us, "model": f"VLLM {row['shape']}", "copies": 6}
                )
    write(table(rows), tmp_path / "h100_sxm.csv")
    (tmp_path / "out").mkdir()
    kept = shelf.Line("decode", "l40s", "fp16 cache", "1..131072", 9, 1.0, 2.0, 3.0, 4.0, 5.0)
    pd.DataFrame([kept]).to_csv(tmp_path / "out" / "held_out.csv", index=False)
    found, page = asked(tmp_path, tmp_path / "h100_sxm.csv")
    layers = found[found.table == "layers"]
    assert list(layers.range) == ["1..64", "1..256"]
    assert (layers.percent < 3.0).all()
    assert (layers.bare_percent > 15.0).all()
    assert "| l40s | fp16 cache |" in page


def config(folder: Path, name: str, hidden: int, ff: int) -> None:
    """The shape of a dense model with as many KV heads as query heads, of 128."""
    heads = {
        "num_attention_heads": hidden // 128,
        "num_key_value_heads": hidden // 128,
        "num_hidden_layers": 2,
    }
    shape = {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": ff,
        "vocab_size": 32_000,
        "hidden_act": "silu",
    }
    folder.mkdir(exist_ok=True)
    (folder / f"{name}_config.json").write_text(json.dumps(shape | heads))


def test_layers_of_a_model_are_asked_of_a_fit_to_another_one(tmp_path: Path) -> None:
    """Times of one curve; of the third model, in shapes the first, nothing is asked, and what a fit
    has seen is left out.
    """
    configs = tmp_path / "configs"
    for name, hidden, ff in (
        ("first", 4096, 12_288),
        ("other", 8192, 28_672),
        ("same", 4096, 12_288),
    ):
        config(configs, name, hidden, ff)
    models = shelf.layer_shapes(configs)
    assert list(models) == ["first", "other"]
    assert models["first"][1] == {
        "4096x6144",
        "2048x4096",
        "4096x12288",
        "6144x4096",
    }  # on two devices
    rows = []
    for shape in sorted(
        frozenset().union(*(layer for layers in models.values() for layer in layers))
    ):
        inputs, outputs = map(int, shape.split("x"))
        for tokens in (1, 16, 64, 128, 256):
            row = product("product", tokens, inputs, outputs, 1.0)
            time_us = 5.0 + row["size_bytes"] / (0.8 * 3350e3)
            rows.append({**row, "time_us": time_us, "model": f"VLLM {row['shape']}", "copies": 6})
    write(table(rows), tmp_path / "h100_sxm.csv")
    found, page = asked(tmp_path, tmp_path / "h100_sxm.csv", "--configs", configs)
    layers = found[found.table == "models"]
    assert list(layers.what) == [
        f"fp16, fit to {whom}" for whom in ("one model", "the others") for _ in shelf.RANGES
    ]
    assert list(layers.rows) == [
        21,
        35,
        21,
        35,
    ]  # 7 layers at 3 and 5 numbers of rows; a cache holds the eighth, on 8 devices
    assert (layers.percent < 3.0).all()
    assert "| h100_sxm | fp16, fit to one model | 1..64 |" in page
    assert "models" not in set(asked(tmp_path / "without", tmp_path / "h100_sxm.csv")[0].table)


CONFIGS = Path(__file__).parents[2] / "shared" / "data" / "model_configs"


@pytest.mark.skipif(not CONFIGS.is_dir(), reason="the files of models are not in the project")
def test_dense_models_are_those_whose_layers_are_alike() -> None:
    models = shelf.layer_shapes(CONFIGS)
    assert {
        "meta-llama--Meta-Llama-3.1-8B",
        "meta-llama--Meta-Llama-3.1-70B",
        "Qwen--Qwen3-8B",
    } <= set(models)
    assert not any("A3B" in name or "DeepSeek" in name for name in models)
    assert models["meta-llama--Meta-Llama-3.1-8B"][3] == {
        "4096x768",
        "512x4096",
        "4096x3584",
        "1792x4096",
    }
