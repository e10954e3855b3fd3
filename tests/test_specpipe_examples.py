"""Every worked example of SpecPipe's equations (SP-*), to the printed digits.

``data/specpipe_worked_examples.csv`` holds inputs and results. One function per block answers with
the project's own code; a row without an answer is a failure.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.family.draft_tree import DraftTree, widest
from simulator.core.acceptance.tree_replay import tree_of
from simulator.core.cost.device import Link
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.partition import GIB, message_bytes, printed_layer_weights, stage_memory
from simulator.core.cost.roofline import Roofline
from simulator.core.strategies.common.pipeline_laws import (
    PipelineTimes,
    break_even,
    hit_shares,
    unequal_stages,
)
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import read
from simulator.inputs.schema import validate
from tests.formulas import arrivals, equal_stages, per_token

ROWS = list(csv.DictReader((Path(__file__).parent / "data/specpipe_worked_examples.csv").open()))
LLAMA = validate(ModelSpec, read(Catalogue().names("model")["llama_3_1_70b"]))
Answers = dict[str, Any]


def sp_1(i: dict[str, Any]) -> Answers:
    times = PipelineTimes(tuple(i["t_ms"]))
    assert per_token(
        times, "tandem", hit_shares(i["P"], len(i["t_ms"]), late=True)
    ) == pytest.approx(unequal_stages(i["t_ms"], i["P"]))
    return {"E_ms": unequal_stages(i["t_ms"], i["P"])}


def sp_2(i: dict[str, Any]) -> Answers:
    m = i["m"]
    if "target_gain" in i:
        return {"break_even_P": break_even(i["t_1"], i["t_w"], m)}
    t = i.get("t_ms", i.get("t_w"))
    printed = equal_stages(t, i["P"], m)
    plain = m * i.get("t_1", t)
    return {
        "E_ms": printed,
        "E_ms_refill_m_minus_1": equal_stages(t, i["P"], m - 1),
        "PP_ms": plain,
        "SpecPipe_ms": printed,
        "gain": plain / printed,
    }


def sp_3(i: dict[str, Any]) -> Answers:
    m, tokens = i["m"], i["tokens"]
    refill = m if i.get("refill_steps") == "m" else m - 1
    missed = i["miss"] if "miss" in i else range(1, i["misses"] + 1)
    found = arrivals(i.get("t_ms", i.get("t")), m, tokens, missed, refill)
    return {"arrival_ms": found, "total_ms": found[-1]}


def tree(i: dict[str, Any]) -> DraftTree:
    """The tree of a mask: nodes named 1, 2, ... in the order of its rows."""
    mask = np.array(i["M"], dtype=bool)
    chance = np.log(i.get("P", [1, 0.6, 0.3, 0.7, 0.4])[: len(mask)])
    level = mask.sum(axis=1) - 1
    path = np.full((len(mask), level.max() + 1), -1)
    for node, ancestor in np.argwhere(mask):
        path[node, level[ancestor]] = ancestor
    return DraftTree(
        np.arange(1, len(mask) + 1), chance, chance, level, np.full(len(mask), -1), path
    )


def sp_4(i: dict[str, Any]) -> Answers:
    names = [*i["I"], *(token for token, _, _ in i["new"])]
    ids = {name: number for number, name in enumerate(names, start=1)}
    new = [[ids[token], np.log(chance), parent] for token, chance, parent in i["new"]]
    columns = [
        np.array([row[c] for row in new], dtype=kind) for c, kind in enumerate((int, float, int))
    ]
    found = tree(i).append(*columns)
    return {
        "I": [names[token - 1] for token in found.tokens],
        "P": np.exp(found.chance).tolist(),
        "M": found.mask.astype(int).tolist(),
    }


def sp_5(i: dict[str, Any]) -> Answers:
    root = i["I"].index(i["new_root"])
    found = tree(i).prune(root)
    return {
        "keep": tree(i).subtree(root).tolist(),
        "I": [i["I"][token - 1] for token in found.tokens],
        "P": np.exp(found.chance).tolist(),
        "M": found.mask.astype(int).tolist(),
    }


def sp_6(i: dict[str, Any]) -> Answers:
    return {"kv_keep": tree(i).cached(int(i["new_root"][1:]) - 1).tolist()}


def sp_7(i: dict[str, Any]) -> Answers:
    parents, k = list(i["bottom"]), i["k"]
    best = [
        sorted(i["children"][parent].items(), key=lambda item: -item[1])[:k] for parent in parents
    ]
    most = max(map(len, best))
    chance = np.log([[*(value for _, value in row), *[1e-30] * (most - len(row))] for row in best])
    reach = np.log(list(i["bottom"].values()))
    layer = [
        (parents[p] + best[p][r][0], np.exp(reach[p] + chance[p, r]))
        for p, r in zip(*widest(reach, chance, i["w"]), strict=True)
    ]
    ranked = sorted(layer, key=lambda node: -node[1])
    return {"layer": [[name, pytest.approx(value)] for name, value in ranked]}


def sp_8(i: dict[str, Any]) -> Answers:
    fields = {
        "fixed_us": 0,
        "memory_efficiency": 1,
        "compute_efficiency": 1,
        "p_norm": 1,
        "tile_tokens": (64,),
    }
    padded = [Roofline.model_validate(fields).tiled(tokens) for tokens in i["tokens"]]
    tiles = [tokens / 64 for tokens in padded]
    return {
        "tiles": tiles,
        "padded": padded,
        "layer_ms": [i.get("base_ms", 0) + i.get("per_tile_ms", 0) * n for n in tiles],
    }


def sp_9(i: dict[str, Any]) -> Answers:
    if "d" in i:
        return {
            "bytes": [
                message_bytes(LLAMA.model_copy(update={"hidden_size": i["d"]}), tokens)
                for tokens in i["tokens"]
            ]
        }
    link = Link.model_validate({"latency_us": 0, "bandwidth_gb_s": i["link_gbit_s"] / 8})
    return {"wire_ms": link.transfer_seconds(i["bytes"]) * 1e3}


def sp_10(i: dict[str, Any]) -> Answers:
    assert (LLAMA.hidden_size, LLAMA.intermediate_size, LLAMA.vocab_size) == (8192, 28672, 128256)
    one, ten = (stage_memory(LLAMA, layers, 81920, formula="printed") for layers in (1, 10))
    return {
        "params_per_layer": printed_layer_weights(LLAMA),
        "params_per_layer_gqa": LLAMA.layer_weights,
        "layer_GiB_bf16": one.weights / GIB,
        "weights_GiB": ten.weights / GIB,
        "kv_GiB": ten.kv / GIB,
        "gpu_1_to_6_GiB": ten.gib,
        "embedding_GiB": stage_memory(LLAMA, 10, 81920, ends=1).table / GIB,
        "gpu_0_and_7_GiB": stage_memory(LLAMA, 10, 81920, ends=1, formula="printed").gib,
    }


def sp_11(i: dict[str, Any]) -> Answers:
    nodes = tree_of(i["branching"])
    sizes = [
        sum(len(path) == depth for path in nodes) for depth in range(1, len(i["branching"]) + 1)
    ]
    return {"level_sizes": sizes, "tokens": len(nodes)}


BLOCKS: dict[str, Callable[[dict[str, Any]], Answers]] = {
    f"SP-{n}": globals()[f"sp_{n}"] for n in range(1, 12)
}


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row['eq_id']}-{row['case']}-{row['output']}"
)
def test_worked_example(row: dict[str, str]) -> None:
    answer = BLOCKS[row["eq_id"]](json.loads(row["inputs"]))[row["output"]]
    expected = json.loads(row["value"])
    if isinstance(expected, list) and (not expected or isinstance(expected[0], list | str)):
        assert answer == expected
    else:
        assert answer == pytest.approx(expected, rel=5e-5, abs=1e-9)


def test_every_block_is_there() -> None:
    assert {row["eq_id"] for row in ROWS} == set(BLOCKS)


def test_memory_of_table_1() -> None:
    """23.5, 21.5, 23.5 GiB to 0.5 % with the printed formula; grouped heads leave 2.2 GiB more, a
    tree is below 4 MiB.
    """
    printed = [
        stage_memory(LLAMA, 10, 81_920, ends=ends, formula="printed", width=64, stages=8)
        for ends in (1, 0, 1)
    ]
    assert [cell.gib for cell in printed] == pytest.approx([23.5, 21.5, 23.5], rel=5e-3)
    assert max(cell.tree for cell in printed) <= 4 * 2**20
    grouped = stage_memory(LLAMA, 10, 81_920, width=64, stages=8)
    assert printed[1].gib - grouped.gib == pytest.approx(10 * 2 * 117_440_512 / GIB)
