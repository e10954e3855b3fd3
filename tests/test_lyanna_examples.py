"""Every worked example of Lyanna's equations (LYA-*), to the printed digits.

``data/lyanna_worked_examples.csv`` holds inputs and results. One function per block answers with
the project's own code; a row without an answer is a failure.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.family.draft_tree import DraftTree, widest
from simulator.core.acceptance.sources import Rates
from simulator.core.cost.hardware_cost import HardwareCost
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.placement import Placement
from simulator.core.cost.protocol import Depth
from simulator.core.cost.rows import Phase, Rows
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.quantities import NonNegative
from simulator.papers.lyanna import HOT_TOKENS, Lyanna, table_bytes
from simulator.papers.lyanna.resampling import RatedTrees

ROWS = list(csv.DictReader((Path(__file__).parent / "data/lyanna_worked_examples.csv").open()))
GIB = 2**30
Answers = dict[str, Any]


def drafting_ms(chain: str, i: dict[str, Any]) -> float:
    """Drafting of one request, from stated times of a layer, a head and a level."""
    switches = {"token_info": False, "resample": False} if chain == "tokens" else {}
    level = NonNegative(value=i["t_sample"] * 1e3)
    strategy = Lyanna(depth=i["k"], budget=1, chain=chain, level_us=level, **switches)
    cost = StatedCost(
        StatedDurations(target_ms=0, draft_step_ms=i["t_layer"], draft_head_ms=i["t_head"]),
        strategy.needs.draft_steps,
    )
    t = strategy.durations(cost, strategy.step(strategy.kind_of(1, 0), 100))
    return (t.layers + t.head + t.sample) * 1e3


def lya_1(i: dict[str, Any]) -> Answers:
    tokens, hidden = drafting_ms("tokens", i), drafting_ms("hidden_states", i)
    return {"token_AR_ms": tokens, "hidden_AR_ms": hidden, "reduction": 1 - hidden / tokens}


def head_cost(n: int, vocabulary: int, bandwidth_gb_s: float, peak_tflops: float) -> HardwareCost:
    """A device whose seconds are bytes, where its peak is endless, or operations, where its
    bandwidth is.
    """
    roofline = {"fixed_us": 0, "memory_efficiency": 1, "compute_efficiency": 1, "p_norm": 1}
    device = {
        "kind": "gpu",
        "memory_gb": 80,
        "memory_bandwidth_gb_s": bandwidth_gb_s,
        "peak_tflops": peak_tflops,
        "matmul": {"default": roofline},
        "attention": roofline,
        "small_operations": roofline,
    }
    engine = {
        "host_us_per_layer": 0,
        "host_us_per_pass": 0,
        "small_operations_ratio": 1,
        "kv_traffic_ratio": 1,
        "sampling_us": 0,
    }
    model = ModelSpec(
        hidden_size=n,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=1,
        intermediate_size=1,
        vocab_size=vocabulary,
    )
    return HardwareCost(
        Placement.model_validate({"model": model, "device": device, "engine": engine})
    )


def lya_2(i: dict[str, Any]) -> Answers:
    if "H" in i:
        hidden, weights = np.array(i["H"]), np.array(i["W"])
        whole = (hidden @ weights).tolist()
        assert whole == [(row @ weights).tolist() for row in hidden]
        return {"logits": whole}
    found = {}
    for name, chain in (("one_pass", "hidden_states"), ("iterative", "tokens")):
        strategy = Lyanna(
            depth=i["k"], branching=1, budget=1, chain=chain, token_info=False, resample=False
        )
        step = strategy.step(strategy.kind_of(1, 0), 0)
        flops = strategy.phases(head_cost(i["n"], i["V"], 1e30, 1e-12), step)["head"].wall_s
        activations = i["k"] * (i["n"] + i["V"])
        moved = (
            strategy.phases(head_cost(i["n"], i["V"], 1e-9, 1e30), step)["head"].wall_s / 2
            - activations
        )
        found |= {f"flops_{name}": flops, f"weight_reads_{name}": moved}
    return found


def lya_3(i: dict[str, Any]) -> Answers:
    size = i["V"]
    if "V_hot" in i:
        assert i["V_hot"] == HOT_TOKENS
        return {"fraction": table_bytes(size) / size**2}
    return {"matrix_GiB": size**2 * i["bytes_per_value"] / GIB}


def token_information_tree(
    logits: list[list[float]], information: dict[str, list[float]], branching: int
) -> tuple[DraftTree, list[list[int]]]:
    """Algorithm 1 with the root's information left out, and [token, parent] of every node behind
    the root.
    """
    tree, frontier, nodes = DraftTree.single(0), np.array([0]), []
    for level, raw in enumerate(logits):
        nothing = [0.0] * len(raw)
        shift = [
            information.get(str(tree.tokens[node]), nothing) if level else nothing
            for node in frontier
        ]
        chance = np.array(raw) + np.array(shift)
        chance -= np.log(np.exp(chance).sum(1, keepdims=True))
        tokens = np.argsort(-chance, axis=1, kind="stable")[:, :branching]
        best = np.take_along_axis(chance, tokens, axis=1)
        parents, rank = widest(tree.reach[frontier], best, branching)
        above, first = np.repeat(frontier, branching), len(tree)
        tree = tree.append(tokens.ravel(), best.ravel(), above)
        nodes += np.column_stack((tokens.ravel(), above)).tolist()
        frontier = np.sort(first + parents * branching + rank)
    return tree, nodes


def lya_4(i: dict[str, Any]) -> Answers:
    if "logits" in i:
        tree, nodes = token_information_tree(i["logits"], i["token_info"], i["k"])
        return {
            "nodes_token_parent": nodes,
            "prob": np.exp(tree.chance[1:]).tolist(),
            "joint": np.exp(tree.reach[1:]).tolist(),
        }
    if "p" in i:
        joint = np.cumprod(i["p"])
        return {"joint_2": joint[1], "joint_3": joint[2]}
    built = [
        Lyanna(depth=depth, branching=k, budget=1).built
        for k, depth in zip(i["k"], i["N"], strict=True)
    ]
    return {"nodes_without_root": built}


def lya_5(i: dict[str, Any]) -> Answers:
    if "joint" in i:
        parents, ranks = widest(np.zeros(1), np.log([i["joint"]]), i["budget"])
        assert not parents.any()
        return {"kept_nodes": ranks.tolist()}
    strategy = Lyanna(depth=i["N"], branching=i["k"], budget=i["budget"])
    return {"built": strategy.built, "dropped": strategy.built - strategy.budget}


def lya_6(i: dict[str, Any]) -> Answers:
    left = Lyanna(depth=i["N"], threshold=i["r"]).left(i["rejected_position"] - 1)
    return {
        "remaining": i["N"] - i["rejected_position"],
        "action": "build_subtree" if left else "root_only",
    }


@dataclass(frozen=True)
class Floor(StatedCost):
    """A pass takes ``max(memory floor, c n)``; the root of a tree costs nothing here."""

    floor_ms: float = 0.0
    ms_per_token: float = 0.0

    def target(self, rows: Rows, start: Depth = 0.0, stop: Depth = 1.0) -> Phase:
        return Phase(
            max(self.floor_ms, self.ms_per_token * (rows.tokens - rows.sequences)) * 1e-3, {}
        )


def lya_7(i: dict[str, Any]) -> Answers:
    stated = StatedDurations(target_ms=0, draft_step_ms=0)
    cost = Floor(stated, floor_ms=i["mem_floor_ms"], ms_per_token=i["ms_per_token"])
    drafted, resampled = i["draft_tokens"], i["resampled_tokens"]
    strategy = Lyanna(
        depth=3,
        branching=16,
        budget=drafted,
        resampled_budget=resampled or 1,
        resample=resampled > 0,
    )
    passes = strategy.batch_extra(cost, 1, 100)
    if not passes:
        alone = strategy.durations(cost, strategy.step(strategy.kind_of(1, 0), 100)).verify * 1e3
        return {"separate_ms": alone, "fused_ms": alone}
    return {"separate_ms": passes["apart_trees_ms"], "fused_ms": passes["fused_trees_ms"]}


def lya_8(i: dict[str, Any]) -> Answers:
    rates, depth = tuple(i["conditional"]), len(i["conditional"])
    odds = RatedTrees(
        Rates(rates), depth, Lyanna(depth=depth, budget=12, resample=False).least
    ).odds(depth, None)
    return {
        "E_accepted": odds.mean_accepted,
        "tokens_per_step": odds.committed(),
        "pmf": odds.accepted.tolist(),
    }


BLOCKS: dict[str, Callable[[dict[str, Any]], Answers]] = {
    f"LYA-{n}": globals()[f"lya_{n}"] for n in range(1, 9)
}


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row['eq_id']}-{row['case']}-{row['output']}"
)
def test_worked_example(row: dict[str, str]) -> None:
    answer = BLOCKS[row["eq_id"]](json.loads(row["inputs"]))[row["output"]]
    expected = row["value"] if row["output"] == "action" else json.loads(row["value"])
    if isinstance(expected, str) or (isinstance(expected, list) and isinstance(expected[0], list)):
        assert answer == expected
    else:
        assert answer == pytest.approx(expected, rel=5e-5, abs=1e-9)


def test_every_block_is_there() -> None:
    assert {row["eq_id"] for row in ROWS} == set(BLOCKS)


def test_recorded_trees_grow_by_algorithm_1() -> None:
    """What records the trees gives the joint probabilities of LYA-4 a, and keeps the nodes of LYA-5
    a.
    """
    torch = pytest.importorskip("torch")
    from benchmarks.family.trees import Growth

    rows = {row["output"]: row for row in ROWS if (row["eq_id"], row["case"]) == ("LYA-4", "a")}
    i = json.loads(rows["joint"]["inputs"])
    information = torch.tensor([i["token_info"].get(str(token), [0.0] * 4) for token in range(4)])
    growth, token, truth = (
        Growth.seed(1),
        torch.zeros(1, 1, dtype=torch.long),
        [torch.tensor([1]), torch.tensor([0])],
    )
    for level, raw in enumerate(torch.tensor(i["logits"])):
        shift = information[token] if level else torch.zeros(4)
        _, token = growth.grow(
            (raw + shift).log_softmax(-1).reshape(-1, 1, 4), truth[level], i["k"], i["k"]
        )
    assert torch.cat(growth.scores).exp().flatten().tolist() == pytest.approx(
        json.loads(rows["joint"]["value"]), rel=5e-5
    )
    assert [int(growth.accepted(budget)) for budget in (1, 3, 4, 5, 6)] == [0, 1, 1, 2, 2]
