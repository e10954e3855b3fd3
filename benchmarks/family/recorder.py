"""Lets the target write, then asks every drafter about every token it wrote."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from rich.progress import track
from torch import Tensor, nn

from benchmarks.family import corpus, lookup, ngram, observations
from benchmarks.family.heads import ExitHead
from benchmarks.family.members import EXIT_LAYERS, HEADS, Members
from benchmarks.family.observations import MOST_STAGES, PROMPT_TOKENS, Arrays, flat, judged
from benchmarks.family.rollouts import roll_outs
from benchmarks.family.training import TokenStreams
from benchmarks.family.trees import Starts, eagle_tree, hidden_trees, pruned_streams
from benchmarks.family.writing import generate
from simulator.core.acceptance.draft_tree import Beam, PrunedTree
from simulator.core.acceptance.trace import UNKNOWN, Trace
from simulator.inputs.traces import file as trace_file
from simulator.record.scores import Sampling, rank_of

OUTPUT_TOKENS = 192
CANDIDATES = 3
"""Requests written for each one kept."""
TRACES = {
    "six_flavours_greedy": Sampling(),
    "six_flavours_warm": Sampling(0.6, 80, 0.9),
    "six_flavours_sampled": Sampling(1.0),
}
"""Each shipped trace, and how its tokens are drawn; the warm one as SpecPipe's stochastic setting
(sec. 4.3).
"""

TREES = {
    "eagle2": {"branching": 10, "passes": 5, "budget": 59},
    "lyanna_tree": {"branching": 4, "budget": 12, "resampled_budget": 4},
}
"""Trees recorded as kept tokens by start; the budget counts nodes without the root."""
LEVELS = (5, 3)
"""Levels of each of them: what was drafted, the depths of the hidden chain."""
PRUNED = (
    *(PrunedTree(4, branching, 31) for branching in (3, 4)),
    *(PrunedTree(3, branching, 31) for branching in (3, 4)),
    *(PrunedTree(4, 3, budget) for budget in (7, 15, 63)),
    *(PrunedTree(levels, branching, 31) for levels in (4, 3) for branching in (5, 6, 7, 8)),
)
"""Pruned trees of streams, recorded in the greedy trace; the first is the paper's (Speculative
Streaming, App. M and N.1).
"""
CHAINS = {"eagle": 8, "lyanna": 8}
"""Depths recorded of heads that can go on behind those they were trained for, which are 5 and 3."""
ROLL_OUTS = {"draft": 24, "plain": 24, "eagle": 8, "lyanna": 8, "medusa": 3, "streams": 3}
"""Tokens of the greedy roll-outs of each drafter, recorded in the greedy trace; heads without a
chain end there.
"""
BEAMS = (
    *(Beam(width, 16, 8) for width in (1, 2, 4, 8, 16, 32, 64, 128)),
    *(Beam(64, branching, 8) for branching in (2, 4, 8, 32)),
    *(Beam(16, branching, 8) for branching in (2, 4)),
    Beam(64, 16, 4),
    Beam(16, 16, 4),
    Beam(16, 16, MOST_STAGES),
)
"""Dynamic trees recorded in the greedy trace."""
SAMPLED_BEAMS = tuple(Beam(width, 16, 8) for width in (4, 16, 64))
"""Dynamic trees recorded in sampled traces."""


def beams(sampling: Sampling) -> Sequence[Beam]:
    """Return the dynamic trees of a trace."""
    return SAMPLED_BEAMS if sampling.temperature else BEAMS


def prompts(text: TokenStreams, flavour: str, count: int) -> Tensor:
    """Return (count, PROMPT_TOKENS) token ids from held-out documents, evenly spread over them."""
    windows = [ids for _, _, ids in prompt_windows(text, flavour)]
    if len(windows) < count:
        raise ValueError(
            f"{flavour}: {len(windows)} prompts of {PROMPT_TOKENS} tokens held out, {count} wanted"
        )
    return torch.from_numpy(np.stack(windows[:count]).astype(np.int64))


def prompt_windows(text: TokenStreams, flavour: str) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield held-out documents by number, first token and ids of a prompt: the first of each
    document, then the second, ...
    """
    for start in range(0, 16 * PROMPT_TOKENS, PROMPT_TOKENS):
        for number, document in enumerate(text.held_out[flavour]):
            if len(document) >= start + PROMPT_TOKENS:
                yield number, start, document[start : start + PROMPT_TOKENS]


def least_repetitive(written: Tensor, count: int) -> Tensor:
    """Return the rows with the most distinct four-token sequences, in order: small models fall into
    loops.
    """
    grams = written.unfold(1, 4, 1)
    distinct = torch.tensor([len(set(map(tuple, row.tolist()))) for row in grams])
    return distinct.argsort(descending=True, stable=True)[:count].sort().values


@torch.no_grad()
def observe(
    family: Members, prompt: Tensor, written: Tensor, sampling: Sampling, recorded: Sequence[Beam]
) -> Arrays:
    """Return ranks and probabilities of every written token, flat over (requests, tokens);
    ``recorded``: dynamic trees.
    """
    sequence = torch.cat((prompt, written), 1)
    states = family.target.hidden(sequence[:, :-1])
    here = [state[:, PROMPT_TOKENS - 1 :] for state in states]
    exits = [
        head(here[layer - 1], family.target)
        for layer, head in zip(EXIT_LAYERS, family.exits, strict=True)
    ]
    arrays = observations.observe(family, prompt, written, sampling, recorded)
    arrays["exit_rank"] = np.stack([flat(rank_of(logits, written), np.uint16) for logits in exits])
    arrays["plain.q"], arrays["plain.rank"] = judged(
        cast(Any, family.modules["plain"]), sequence, written, sampling
    )
    for name in HEADS:
        arrays |= _ahead(name, family, states, sequence, sampling)
    trees = [
        competing(family, text, [state[row : row + 1] for state in states], sampling)
        for row, text in enumerate(sequence)
    ]
    arrays |= {name: np.concatenate([tree[name] for tree in trees], axis=-1) for name in trees[0]}
    return arrays | _looked_up(prompt, written)


def competing(family: Members, text: Tensor, states: list[Tensor], sampling: Sampling) -> Arrays:
    """Return what becomes of competing trees of one request; roll-outs and pruned streams in greedy
    traces only.
    """
    target, modules, starts = family.target, family.modules, Starts(text, PROMPT_TOKENS)
    eagle, lyanna, streams = (cast(Any, modules[name]) for name in ("eagle", "lyanna", "streams"))
    arrays = {
        "eagle2.run": flat(eagle_tree(eagle, target, states, starts, **TREES["eagle2"]), np.uint8),
        "lyanna_tree.run": hidden_trees(lyanna, target, states, starts, **TREES["lyanna_tree"])
        .numpy()
        .astype(np.uint8),
    }
    if sampling.temperature == 0:
        gate = cast(ExitHead, family.exits[EXIT_LAYERS.index(target.shape.layers - streams.layers)])
        pruned = pruned_streams(streams, gate, target, states, starts, PRUNED)
        arrays["streams_pruned.run"] = pruned.numpy().astype(np.uint8)
        for name, depths in ROLL_OUTS.items():
            token, chance, sequences = roll_outs(modules[name], target, states, starts, depths)
            prefix = "" if name == "draft" else f"{name}."
            arrays[f"{prefix}rollout.token"] = token.numpy().astype(np.uint16)
            arrays[f"{prefix}rollout.sequences"] = sequences.numpy().astype(np.uint8)
            arrays |= {} if prefix else {"rollout.q": chance.numpy().astype(np.float16)}
    return arrays


def _ahead(
    name: str, family: Members, states: list[Tensor], sequence: Tensor, sampling: Sampling
) -> Arrays:
    """``NAME.rank`` and, where it is needed, ``NAME.q``: (depths, positions), for a window starting
    at each position.

    A window that starts at token s stands behind token s - 1, which the target has just yielded and
    not yet read: the newest state is that of token s - 2, and depth d is about token s + d.
    """
    ranks, chances = [], []
    longer = {"depths": CHAINS[name]} if name in CHAINS else {}
    for depth, logits in enumerate(family.modules[name](family.target, states, sequence, **longer)):
        known = sequence.shape[1] - PROMPT_TOKENS - depth
        rows, tokens = (
            logits[:, PROMPT_TOKENS - 2 :][:, :known],
            sequence[:, PROMPT_TOKENS + depth :],
        )
        behind = (0, depth)
        ranks.append(
            flat(nn.functional.pad(rank_of(rows, tokens), behind, value=UNKNOWN), np.uint16)
        )
        chances.append(
            flat(nn.functional.pad(sampling.probability(rows, tokens), behind), np.float16)
        )
    arrays = {f"{name}.rank": np.stack(ranks)}
    return arrays | {f"{name}.q": np.stack(chances)} if sampling.temperature else arrays


def _looked_up(prompt: Tensor, written: Tensor) -> Arrays:
    """``NAME.proposed`` and ``NAME.run`` of what needs no model: tokens proposed here, and how many
    are right.
    """
    arrays = Arrays()
    for name, replayed in (("lookup", lookup.replay), ("ngram", ngram.replay)):
        rows = [
            pair
            for p, w in zip(prompt.tolist(), written.tolist(), strict=True)
            for pair in replayed(p, w)
        ]
        proposed, right = np.array(rows, dtype=np.uint16).T
        arrays |= {f"{name}.proposed": proposed.copy(), f"{name}.run": right.copy()}
    return arrays


def record(
    shipped: Path, prompts_by_flavour: Sequence[Tensor], sampling: Sampling, kept: int, seed: int
) -> Trace:
    """Return a trace of ``kept`` requests of every flavour, each flavour recorded in a process of
    its own.
    """
    tasks = [
        (shipped, prompt, sampling, kept, (seed, index))
        for index, prompt in enumerate(prompts_by_flavour)
    ]
    with ProcessPoolExecutor(
        initializer=torch.set_num_threads, initargs=(1,), mp_context=get_context("spawn")
    ) as pool:
        running = [pool.submit(record_flavour, *task) for task in tasks]
        parts = [
            part.result()
            for part in track(
                running, f"recording at temperature {sampling.temperature:g}", transient=True
            )
        ]
    return assemble(Members.read(shipped), parts, sampling, seed, beams(sampling))


def record_flavour(
    shipped: Path, prompt: Tensor, sampling: Sampling, kept: int, seed: tuple[int, int]
) -> Arrays:
    """Return what is observed of one flavour, with the weights of the file ``shipped``."""
    family = Members.read(shipped)
    generator = torch.Generator().manual_seed(
        int(np.random.SeedSequence(seed).generate_state(1)[0])
    )
    written = generate(family.target, prompt, OUTPUT_TOKENS, sampling, generator)
    best = least_repetitive(written, kept)
    return observe(family, prompt[best], written[best], sampling, beams(sampling))


def assemble(
    family: Members,
    parts: Sequence[Arrays],
    sampling: Sampling,
    seed: int,
    recorded: Sequence[Beam],
    tokens: int = OUTPUT_TOKENS,
) -> Trace:
    """Join parts of one flavour each into one trace, in requests of ``tokens``."""
    return observations.assemble(describe(family, sampling, seed, recorded), parts, tokens)


def describe(
    family: Members, sampling: Sampling, seed: int, recorded: Sequence[Beam]
) -> dict[str, Any]:
    """Return the header without the command: everything needed to know what was recorded."""
    return observations.describe(family, sampling, seed, recorded) | {
        "selection": (
            f"the least repetitive of {CANDIDATES} times as many requests, by distinct "
            "four-token sequences"
        ),
        "exit_layers": list(EXIT_LAYERS),
        "flavours": [flavour.name for flavour in corpus.FLAVOURS],
        "trees": {
            name: {**tree, "levels": levels}
            for (name, tree), levels in zip(TREES.items(), LEVELS, strict=True)
        }
        | {"streams_pruned": PRUNED[0]._asdict()},
        **({} if sampling.temperature else {"pruned_trees": [tree._asdict() for tree in PRUNED]}),
        "chains": {
            name: {"recorded": CHAINS[name], "trained": cast(Any, family.modules[name]).depths}
            for name in CHAINS
        },
        "lookup": {"longest_ngram": lookup.LONGEST, "proposed_tokens": lookup.PROPOSED},
        "ngram": {"longest_ngram": ngram.LONGEST, "proposed_tokens": ngram.PROPOSED},
    }


def command(name: str, sampling: Sampling, per_flavour: int) -> str:
    """Return the command that makes a trace again from the shipped family."""
    drawn = (
        f"--temperature {sampling.temperature:g} --top-k {sampling.top_k} --top-p "
        f"{sampling.top_p:g}"
    )
    which = (
        f"--family scenarios/pairs/six_flavours.npz --trace {name} {drawn} --requests {per_flavour}"
    )
    return f"python -m benchmarks.family --work DIR --out scenarios {which}"


def record_all(
    shipped: Path,
    text: TokenStreams,
    folder: Path,
    per_flavour: int,
    traces: Mapping[str, Sampling] = TRACES,
) -> Iterator[Path]:
    """Record traces, by default the shipped ones, and yield their paths."""
    asked = [prompts(text, flavour.name, per_flavour * CANDIDATES) for flavour in corpus.FLAVOURS]
    for name, sampling in traces.items():
        path = folder / f"{name}.npz"
        trace = record(shipped, asked, sampling, per_flavour, seed=7)
        trace_file.write(
            replace(
                trace, header={**trace.header, "command": command(name, sampling, per_flavour)}
            ),
            path,
        )
        yield path
