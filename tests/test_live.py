"""Live decoding with the shipped pair against its replay: the same steps, not just the same
mean.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from scipy.stats import chisquare

torch = pytest.importorskip("torch", reason="needs the extra 'record'")

from benchmarks.family.members import HEADS, Members
from benchmarks.family.pair import weights_hash
from benchmarks.live.decoding import Drafter, autoregressive_drafter, speculate
from simulator.core.acceptance.cursors import Chain
from simulator.core.acceptance.sources import Replay
from simulator.core.acceptance.trace import Trace
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.traces.file import read
from tests.live_decoding import (
    head_drafter,
    lookup_drafter,
    ngram_drafter,
    sample_speculatively,
)
from tests.live_recording import RECORDED_TOKENS, recorded

TOKENS = 48
pytestmark = pytest.mark.full
DEPTHS = {"eagle": 8, "lyanna": 8, "medusa": 4, "streams": 4}


def replayed(trace: Trace, request: int, gamma: int, steps: int) -> list[int]:
    """Accepted tokens per step of one recorded request."""
    replay = Replay(trace)
    cursor = replay.cursor(replay.order.index(request), None)
    return [cursor.judge(Chain(gamma)).accepted for _ in range(steps)]


def check(
    family: Members,
    trace: Trace,
    prompts: torch.Tensor,
    drafter: Drafter,
    gamma: int,
    requests: Iterator[int] | range,
) -> None:
    for request in requests:
        prompt = prompts[request].tolist()
        live = speculate(family.target, drafter, prompt, gamma, TOKENS)
        start = int(trace.offsets[request])
        assert live.tokens[:TOKENS] == trace.token[start : start + TOKENS].tolist(), (
            "speculation changed the output"
        )
        assert replayed(trace, request, gamma, len(live.accepted)) == live.accepted


@pytest.mark.parametrize("gamma", [1, 2, 3, 4, 5, 7, 8, 11, 16])
@pytest.mark.parametrize("draft", ["draft", "plain"])
def test_chains_replay_step_for_step(
    family: Members, greedy: Trace, prompts: torch.Tensor, draft: str, gamma: int
) -> None:
    drafter = autoregressive_drafter(family.modules[draft])
    check(family, greedy.drafted_by(draft), prompts, drafter, gamma, range(gamma % 2, 6, 2))


@pytest.mark.parametrize("name", sorted(HEADS))
def test_heads_replay_step_for_step(
    family: Members, greedy: Trace, prompts: torch.Tensor, name: str
) -> None:
    drafter = head_drafter(family.target, family.modules[name])
    for request, gamma in enumerate(sorted({1, 2, DEPTHS[name] // 2 + 1, DEPTHS[name]})):
        check(family, greedy.drafted_by(name), prompts, drafter, gamma, range(request, request + 1))


@pytest.mark.parametrize(
    ("name", "drafter"), [("lookup", lookup_drafter()), ("ngram", ngram_drafter())]
)
def test_drafting_without_a_model_replays_step_for_step(
    family: Members, greedy: Trace, prompts: torch.Tensor, name: str, drafter: Drafter
) -> None:
    for gamma in (1, 4, 10):
        check(family, greedy.drafted_by(name), prompts, drafter, gamma, range(6))


def test_the_shipped_traces_come_from_the_shipped_pair(family: Members) -> None:
    hashes = {name: weights_hash(module) for name, module in family.modules.items()}
    for name, path in Catalogue().names("trace").items():
        if name.startswith("six_flavours"):
            assert {
                role: model["hash"] for role, model in read(path).header["models"].items()
            } == hashes


@pytest.mark.parametrize("gamma", [3, 7])
def test_sampled_acceptance_is_that_of_live_speculative_sampling(
    family: Members, prompts: torch.Tensor, gamma: int
) -> None:
    """Mean tokens kept per step, replayed by the coupling min(1, q/p) and live by p, q and
    residuals: 3 standard errors.
    """
    live, generator = [], torch.Generator().manual_seed(11)
    for _ in range(3):
        for prompt in prompts:
            live += sample_speculatively(
                family.target, family.modules["draft"], prompt.tolist(), gamma, TOKENS, generator
            ).accepted
    walked: list[int] = []
    for seed in range(3):
        trace = recorded(family, prompts, 1.0, seed)
        for request in range(6):
            cursor, used = Replay(trace, seed=seed).cursor(request, None), 1
            while used < RECORDED_TOKENS - gamma:
                verdict = cursor.judge(Chain(gamma))
                walked.append(verdict.accepted)
                used += verdict.committed
    error = np.hypot(np.std(live) / np.sqrt(len(live)), np.std(walked) / np.sqrt(len(walked)))
    assert abs(np.mean(live) - np.mean(walked)) < 3 * error


def test_live_speculative_sampling_is_lossless(family: Members, prompts: torch.Tensor) -> None:
    """The token behind a given one is distributed as the target's: chi-square over the likeliest
    tokens and the rest.
    """
    first = family.target(prompts)[:, -1].softmax(-1)
    row = int(first.amax(1).argmax())
    prompt, given = prompts[row].tolist(), int(first[row].argmax())
    expected = (
        family.target(torch.tensor([[*prompt, given]]))[0, -1].softmax(-1).numpy().astype(float)
    )
    generator, seen = torch.Generator().manual_seed(5), []
    for _ in range(600):
        found = sample_speculatively(
            family.target, family.modules["draft"], prompt, 2, 2, generator
        )
        if found.tokens[0] == given:
            seen.append(found.tokens[1])
    likely = np.argsort(-expected)[:10]
    likely = likely[expected[likely] * len(seen) >= 5]
    observed = np.bincount(seen, minlength=len(expected))[likely]
    wanted = expected[likely] * len(seen)
    assert len(seen) > 200
    assert (
        chisquare(
            [*observed, len(seen) - observed.sum()], [*wanted, len(seen) - wanted.sum()]
        ).pvalue
        > 1e-3
    )
