"""Live decoding with trees, several sequences and pipelines against replays of what was recorded,
step for step.
"""

from __future__ import annotations

import copy
from itertools import islice
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'record'")

from benchmarks.family.heads import ExitHead
from benchmarks.family.members import EXIT_LAYERS, Members
from benchmarks.family.network import Network
from benchmarks.family.recorder import BEAMS, PRUNED, TREES
from simulator.core.acceptance.cursors import Chain
from simulator.core.acceptance.draft_tree import Beam, PrunedTree
from simulator.core.acceptance.sequences import (
    Automaton,
    RecordedDrafting,
    RecordedSequences,
    Split,
)
from simulator.core.acceptance.sources import Exit, Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.acceptance.tree_replay import (
    ranks_ahead,
    recorded_passages,
    static_tree_run,
    tree_of,
)
from simulator.papers.mirror_sd import MirrorSD
from tests import live_trees as live
from tests.live_recording import recorded

pytestmark = pytest.mark.full
TOKENS = 32
SPECINFER = (1, 1, 3, 1, 1, 1, 1, 1)


@pytest.fixture(scope="module")
def precise(family: Members) -> Members:
    """The pair in float64: which of two nearly equal branches is the better one must not depend on
    who multiplies.
    """
    return Members(
        {name: copy.deepcopy(module).double() for name, module in family.modules.items()},
        family.header,
    )


def draft_of(family: Members) -> Network:
    return cast(Network, family.modules["draft"])


def walked(run: Any, trace: Trace, request: int, steps: int) -> list[int]:
    """Tokens kept in each of the first steps by windows whose outcome by start is ``run``."""
    kept, position = [], int(trace.offsets[request]) + 1
    for _ in range(steps):
        kept.append(int(run[position]))
        position += kept[-1] + 1
    return kept


def same_text(trace: Trace, request: int, tokens: list[int]) -> bool:
    start = int(trace.offsets[request])
    return tokens[:TOKENS] == trace.token[start : start + TOKENS].tolist()


def check_tree(
    family: Members,
    trace: Trace,
    prompts: torch.Tensor,
    drafter: live.TreeDrafter,
    run: Any,
    requests: tuple[int, ...] = (0, 5),
) -> None:
    for request in requests:
        decoded = live.speculate_tree(family.target, drafter, prompts[request].tolist(), TOKENS)
        assert same_text(trace, request, decoded.tokens)
        assert walked(run, trace, request, len(decoded.accepted)) == decoded.accepted


@pytest.mark.parametrize("branching", [SPECINFER, (3, 2, 1), (1, 2, 2)])
def test_a_static_tree_replays_from_ranks(
    family: Members, greedy: Trace, prompts: torch.Tensor, branching: tuple[int, ...]
) -> None:
    run = static_tree_run(ranks_ahead(greedy, "draft", len(branching)), tree_of(branching))
    check_tree(family, greedy, prompts, live.static_drafter(draft_of(family), branching), run)


def test_eagle_2_replays_from_recorded_outcomes(
    family: Members, greedy: Trace, prompts: torch.Tensor
) -> None:
    drafter = live.eagle2_drafter(family.target, family.modules["eagle"], **TREES["eagle2"])
    check_tree(family, greedy, prompts, drafter, greedy.extra["eagle2.run"])


def test_pruned_streams_replay_from_recorded_outcomes(
    family: Members, greedy: Trace, prompts: torch.Tensor
) -> None:
    streams = cast(Any, family.modules["streams"])
    gate = cast(
        ExitHead, family.exits[EXIT_LAYERS.index(family.target.shape.layers - streams.layers)]
    )
    for request, tree in ((0, PrunedTree(4, 3, 7)), (5, PrunedTree(3, 8, 31))):
        drafter = live.pruned_streams_drafter(family.target, streams, gate, *tree)
        check_tree(
            family,
            greedy,
            prompts,
            drafter,
            greedy.extra["streams_pruned.run"][PRUNED.index(tree)],
            (request,),
        )


def test_a_full_tree_of_streams_replays_from_ranks(
    family: Members, greedy: Trace, prompts: torch.Tensor
) -> None:
    streams = family.modules["streams"]

    @torch.no_grad()
    def every_stream(text: list[int]) -> set[live.Path]:
        ahead = streams(
            family.target, family.target.hidden(torch.tensor([text[:-1]])), torch.tensor([text])
        )
        level, paths = list[live.Path]([()]), set[live.Path]()
        for rows in ahead:
            level = [
                (*path, token) for path in level for token in live.first_choices(rows[0, -1], 3)
            ]
            paths |= set(level)
        return paths

    run = static_tree_run(ranks_ahead(greedy, "streams", 4), tree_of((3, 3, 3, 3)))
    check_tree(family, greedy, prompts, every_stream, run)


@pytest.mark.parametrize("budget", [2, 4, 8, 12])
def test_duodecoding_replays_iteration_for_iteration(
    family: Members, greedy: Trace, prompts: torch.Tensor, budget: int
) -> None:
    divisors = [number for number in range(1, budget + 1) if budget % number == 0]
    several = 0
    for request in range(budget % 3, 6, 3):
        prompt = prompts[request].tolist()
        tokens, steps = live.duodecode(
            family.target, draft_of(family), prompt, TOKENS, budget, divisors
        )
        assert same_text(greedy, request, tokens)
        recorded_here = RecordedSequences(Replay(greedy), Split(budget)).request(request)
        replay = Automaton(RecordedDrafting(recorded_here), Split(budget))
        assert [replay.judge() for _ in steps] == steps
        several += sum(step.sequences > 1 for step in steps)
    assert several, "the draft was never unsure"


@pytest.mark.parametrize("beam", BEAMS[1::3], ids=lambda beam: "w{}-k{}-m{}".format(*beam))
def test_a_pipeline_replays_passage_for_passage(
    precise: Members, prompts: torch.Tensor, beam: Beam
) -> None:
    request, length = BEAMS.index(beam) % 6, 40 if beam.width < 64 else 16
    prompt = prompts[request : request + 1]
    trace = recorded(precise, prompt, 0.0, beams=[beam], tokens=length)
    tokens, passages = live.pipeline(
        precise.target, draft_of(precise), prompt[0].tolist(), length, beam
    )
    assert tokens == trace.token.tolist()
    assert list(islice(recorded_passages(trace, 0, beam), len(passages))) == passages


@pytest.mark.parametrize(("gamma", "kappa"), [(3, 1), (5, 8), (7, 4)])
def test_mirror_reuses_what_it_would_reuse_live(
    family: Members, greedy: Trace, prompts: torch.Tensor, gamma: int, kappa: int
) -> None:
    layer = EXIT_LAYERS[1]
    exit = Exit(layer / family.target.shape.layers, kappa)
    strategies = {
        message: MirrorSD(gamma=gamma, kappa=kappa, message=message)
        for message in ("per_position", "first_position")
    }
    gate = cast(ExitHead, family.exits[1])
    seen = set()
    for request in range(6):
        prompt = prompts[request].tolist()
        tokens, steps = live.mirror(
            family.target, draft_of(family), gate, layer, prompt, TOKENS, gamma, kappa
        )
        assert same_text(greedy, request, tokens)
        replay = Replay(greedy)
        cursor = replay.cursor(replay.order.index(request), exit)
        verdicts = [cursor.judge(Chain(gamma)) for _ in steps]
        assert [verdict.accepted for verdict in verdicts] == [step.accepted for step in steps]
        for verdict, step in zip(verdicts, steps, strict=True):
            assert strategies["per_position"].reuses(verdict, gamma) == step.reused_per_position
            assert strategies["first_position"].reuses(verdict, gamma) == step.reused_first_position
        seen |= {(step.reused_per_position, step.reused_first_position) for step in steps}
    assert len(seen) > 1
