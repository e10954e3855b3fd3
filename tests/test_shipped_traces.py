"""The shipped recordings can be made again: the committed pair, in numpy alone, writes and judges
what they hold.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from simulator.core.acceptance.sources import Replay
from simulator.core.acceptance.trace import Trace
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.traces.file import read

PAIRS = Path(__file__).parents[1] / "scenarios/pairs"
POSITIONS = 50
HEADS = {"target": 7, "draft": 4}
Array = NDArray[np.float64]


@pytest.fixture(scope="module")
def prompts() -> dict[tuple[str, int], dict[str, str]]:
    with (PAIRS / "six_flavours_prompts.csv").open(encoding="utf-8", newline="") as file:
        return {(row["trace"], int(row["request"])): row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def weights() -> dict[str, Array]:
    """Every matrix as int8 rows times one scale a row, everything else as it is."""
    with np.load(PAIRS / "six_flavours.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files if name.startswith(("target/", "draft/"))}
    return {
        name: values.astype(np.float64) * arrays.get(f"{name}.scale", np.float64(1.0))
        for name, values in arrays.items()
        if not name.endswith(".scale")
    }


def normalised(x: Array, weight: Array | float = 1.0) -> Array:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.finfo(np.float32).eps) * weight


def rotated(x: Array) -> Array:
    """(heads, tokens, width) with rotary positions."""
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[1])[:, None] * 10_000.0 ** (-np.arange(half) / half)
    left, right = x[..., :half], x[..., half:]
    return np.concatenate(
        [
            left * np.cos(angle) - right * np.sin(angle),
            left * np.sin(angle) + right * np.cos(angle),
        ],
        -1,
    )


def logits(weights: Mapping[str, Array], model: str, tokens: Array) -> Array:
    """(tokens, vocabulary): the pre-norm decoder of simulator/evidence/network.py, written once
    more.
    """
    of, heads = (
        {name.removeprefix(f"{model}/"): values for name, values in weights.items()},
        HEADS[model],
    )
    x = of["embedding.weight"][tokens]
    causal = np.where(np.tri(len(tokens), dtype=bool), 0.0, -np.inf)
    for block in range(
        1 + max(int(name.split(".")[1]) for name in of if name.startswith("blocks."))
    ):
        layer = {name.removeprefix(f"blocks.{block}."): values for name, values in of.items()}
        projected = normalised(x, layer["norm_attention.weight"]) @ layer["qkv.weight"].T
        q, k, v = projected.reshape(len(tokens), 3, heads, -1).transpose(1, 2, 0, 3)
        scores = (
            rotated(normalised(q))
            @ rotated(normalised(k)).transpose(0, 2, 1)
            / np.sqrt(q.shape[-1])
            + causal
        )
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = shares / shares.sum(-1, keepdims=True) @ v
        x = x + mixed.transpose(1, 0, 2).reshape(len(tokens), -1) @ layer["out.weight"].T
        gate, value = np.split(
            normalised(x, layer["norm_mlp.weight"]) @ layer["up.weight"].T, 2, -1
        )
        x = x + (gate / (1.0 + np.exp(-gate)) * value) @ layer["down.weight"].T
    return normalised(x, of["norm.weight"]) @ of["embedding.weight"].T


def judged(
    weights: Mapping[str, Array], model: str, prompt: list[int], written: list[int]
) -> tuple[Array, Array]:
    """Rank and probability of every written token."""
    scores = logits(weights, model, np.array([*prompt, *written[:-1]]))[len(prompt) - 1 :]
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    own = scores[np.arange(len(written)), written]
    chance = shares[np.arange(len(written)), written] / shares.sum(-1)
    return (scores > own[:, None]).sum(-1), chance


@pytest.mark.full
@pytest.mark.parametrize("flavour", ["code", "docs", "prose", "maths"])
def test_the_committed_pair_writes_and_judges_what_the_committed_trace_holds(
    flavour: str, weights: Mapping[str, Array], prompts: Mapping[tuple[str, int], Mapping[str, str]]
) -> None:
    """50 positions of a request of each kind of text that may be passed on: 200 in all."""
    trace = read(Catalogue().names("trace")["six_flavours_greedy"])
    request = trace.requests_by_flavour[flavour][3]
    start = int(trace.offsets[request])
    held = slice(start, start + POSITIONS)
    ids = list(map(int, prompts["six_flavours_greedy", request]["ids"].split()))
    rank, _ = judged(weights, "target", ids, trace.token[held].tolist())
    assert rank.tolist() == [0] * POSITIONS, "the target's first choices"
    rank, chance = judged(weights, "draft", ids, trace.token[held].tolist())
    assert rank.tolist() == trace.draft_rank[held].tolist()
    assert chance == pytest.approx(trace.q[held].astype(np.float64), abs=2e-3)


def test_every_recorded_request_says_where_its_text_is(
    prompts: Mapping[tuple[str, int], Mapping[str, str]],
) -> None:
    """Ids stand where the licence allows, and are those of the digest; no document begins two
    requests at the same token.
    """
    traces: dict[str, Trace] = {
        name: read(path)
        for name, path in Catalogue().names("trace").items()
        if "six_flavours" in name
    }
    assert set(prompts) == {
        (name, request) for name, trace in traces.items() for request in range(len(trace.flavour))
    }
    for (name, request), row in prompts.items():
        trace = traces[name]
        assert row["flavour"] == trace.flavours[trace.flavour[request]]
        ids = np.array(row["ids"].split(), dtype="<u2")
        assert (len(ids) == trace.header["prompt_tokens"]) == (
            row["flavour"] not in ("manual", "dialogue")
        )
        assert (
            not len(ids)
            or hashlib.blake2b(ids.tobytes(), digest_size=8).hexdigest() == row["blake2b"]
        )
    places = [
        (row["trace"], row["flavour"], row["document"], row["first_token"])
        for row in prompts.values()
    ]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    ("drafter", "tokens"),
    [("draft", (3.29, 3.52, 3.71, 3.80)), ("eagle", (2.57, 2.87, 3.06, 3.10))],
)
def test_greedy_text_becomes_easier_as_it_goes_on(drafter: str, tokens: tuple[float, ...]) -> None:
    """Tokens a step of windows of five, by quarter of the output, as
    docs/background/acceptance.md has them.
    """
    replay = Replay(read(Catalogue().names("trace")["six_flavours_greedy"]).drafted_by(drafter))
    kept: list[list[int]] = [[], [], [], []]
    for recording in replay.order:
        run, position = np.minimum(replay.runs(recording), 5).tolist(), 0
        while position < len(run):
            kept[4 * position // len(run)].append(run[position])
            position += run[position] + 1
    assert [1.0 + np.mean(quarter) for quarter in kept] == pytest.approx(tokens, abs=0.005)
