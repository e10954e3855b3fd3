"""Every worked example of Speculative Streaming's equations (SS-*), to the printed digits.

``data/speculative_streaming_worked_examples.csv`` holds inputs and results. One function per block
answers with the project's own code; a row without an answer is a failure.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.family.draft_tree import DraftTree
from simulator.core.cost.model import DraftHead, ModelSpec
from simulator.core.strategies.common.step import Kind
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import read
from simulator.inputs.schema import validate
from simulator.papers.speculative_streaming import laws
from simulator.papers.speculative_streaming.strategy import SpeculativeStreaming
from tests.formulas import accept_threshold, late_saving, stream_rows, token_layers

DATA = Path(__file__).parent / "data/speculative_streaming_worked_examples.csv"
ROWS = list(csv.DictReader(DATA.open()))
VICUNA = validate(ModelSpec, read(Catalogue().names("model")["vicuna_7b"]))
Answers = dict[str, Any]


def tree(parents: dict[str, Any]) -> DraftTree:
    """A tree from parents by name, levels one after the other; every token is its own name."""
    found, names = DraftTree.single(0), [0]
    below = {int(node): parent for node, parent in parents.items() if parent is not None}
    while level := [
        node for node, parent in below.items() if node not in names and int(parent) in names
    ]:
        places = np.array([names.index(int(below[node])) for node in level])
        found = found.append(np.array(level), np.zeros(len(level)), places)
        names += [level[place] for place in np.argsort(places, kind="stable")]
    return found


def ss_1(i: dict[str, Any]) -> Answers:
    nodes = laws.tree_nodes(i["gamma"], i["k"])
    if i["gamma"]:
        strategy = SpeculativeStreaming(streams=i["gamma"], branching=i["k"], kept=None)
        step = strategy.step(Kind("step", 1), 100)
        assert (step.rows.tokens, step.loads[0].tokens) == (nodes, stream_rows(nodes, i["gamma"]))
    return {"tree": nodes, "batch": stream_rows(nodes, i["gamma"])}


def ss_2(i: dict[str, Any]) -> Answers:
    if "scores" in i:
        found = tree(i["parent"])
        dropped = {int(node) for node, score in i["scores"].items() if score < i["threshold"]}
        gone = found.mask[:, [list(found.tokens).index(node) for node in dropped]].any(axis=1)
        return {
            "kept": sorted(found.tokens[~gone].tolist()),
            "dropped": sorted(found.tokens[gone].tolist()),
        }
    strategy = SpeculativeStreaming(
        streams=i.get("gamma", 4), kept=i["kept"], stream_layers=i.get("N_s", 4)
    )
    upper = strategy.step(Kind("step", 1), 100).loads[0]
    work = i["N"], i["N_s"], i["tree"]
    return {
        "msa_batch": upper.tokens,
        "token_layers_pruned": token_layers(*work, i["kept"], i["gamma"]),
        "token_layers_unpruned": token_layers(*work, i["tree"], i["gamma"]),
        "token_layers_AR": token_layers(i["N"], i["N_s"], 1, 1, 0),
    }


def ss_3(i: dict[str, Any]) -> Answers:
    return {"mask": tree(i["parent"]).mask.astype(int).tolist()}


def ss_4(i: dict[str, Any]) -> Answers:
    threshold = float(accept_threshold(i["target_prob"], i["virtual_draft_prob"]))
    return {"threshold": threshold, "accept": i["r"] < threshold}


def ss_5(i: dict[str, Any]) -> Answers:
    return {"stream_layer_saving": late_saving(i["N"], i["N_s"])}


def ss_6(i: dict[str, Any]) -> Answers:
    naive = stream_rows(i["nodes"], i["gamma"]) * i["l_kv"]
    limited = int(laws.query_products(i["nodes"], i["gamma"], i["l_kv"], i["p"]))
    strategy = SpeculativeStreaming(streams=i["gamma"], kept=i["nodes"], attended_tokens=i["p"])
    step = strategy.step(Kind("step", 1), i["l_kv"])
    among = i["nodes"] * (i["nodes"] + 1) // 2
    assert step.loads[0].attention_pairs == limited + among, (
        "the nodes see each other too, as in every pass"
    )
    return {"naive_products": naive, "limited_products": limited, "ratio": limited / naive}


def ss_7(i: dict[str, Any]) -> Answers:
    h, rank = i["h"], i["R_s"]
    full, narrow = (
        DraftHead(**side).weights(VICUNA.model_copy(update={"hidden_size": h}))
        for side in ({"squares": 2}, {"rank": rank})
    )
    return {"mlp_reduction": full / narrow}


def ss_8(i: dict[str, Any]) -> Answers:
    return {
        "zeta_over_beta": laws.parity(i["gamma"], i["target_draft_ratio"], i["C_target_over_C_ss"])
    }


def ss_9(i: dict[str, Any]) -> Answers:
    return {
        "speedup_SS_over_SD": laws.speedup_over_two_models(
            i["gamma"], i["target_draft_ratio"], i["zeta_over_beta"]
        )
    }


def ss_10(i: dict[str, Any]) -> Answers:
    medusa = 4 * DraftHead(squares=1, vocabulary=VICUNA.vocab_size).weights(VICUNA)
    own = SpeculativeStreaming(mode="shared").extra_memory(VICUNA).weights
    assert (medusa, own) == pytest.approx((5.9e8, 8.2e4), rel=5e-3), (
        "both counts follow from the shapes"
    )
    if "params" in i:
        held = np.array(i["apps"]) * i["params"] * i["bytes"]
        return {"GB": (held / 1e9).tolist(), "MB": (held / 1e6).tolist()}
    return {"ratio": i["medusa"] / i["ss"]}


def ss_11(i: dict[str, Any]) -> Answers:
    return {
        "relative_step_cost": laws.relative_step_cost(i.get("beta", i.get("zeta")), i["speedup"])
    }


BLOCKS: dict[str, Callable[[dict[str, Any]], Answers]] = {
    f"SS-{n}": globals()[f"ss_{n}"] for n in range(1, 12)
}


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row['eq_id']}-{row['case']}-{row['output']}"
)
def test_worked_example(row: dict[str, str]) -> None:
    answer = BLOCKS[row["eq_id"]](json.loads(row["inputs"]))[row["output"]]
    expected = json.loads(row["value"])
    if isinstance(expected, list) and isinstance(expected[0], list):
        assert answer == expected
    else:
        assert answer == pytest.approx(expected, rel=5e-5, abs=1e-9)


def test_every_block_is_there() -> None:
    assert {row["eq_id"] for row in ROWS} == set(BLOCKS)
