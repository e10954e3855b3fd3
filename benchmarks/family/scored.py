"""``python -m benchmarks.family.scored --out scenarios/traces``: what the target thinks of drafts.

Rules that accept what the target holds for likely enough, not what it would have written, need its
probability of every token that is drafted. They are recorded behind the tokens of
``six_flavours_sampled``: greedy chains of ``draft`` and ``eagle``, and Medusa's tree of 63. Prompts
are those that may be passed on (``scenarios/pairs/six_flavours_prompts.csv``); no text of others is
needed. With ``--check`` nothing is written: the pair decodes under such rules, and what it keeps is
printed beside what a replay of the scores keeps. Two minutes on a core each, with the extra
``record``.
"""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import click
import numpy as np
import torch
from torch import Tensor

from benchmarks.family.heads import branch
from benchmarks.family.members import Members
from benchmarks.family.network import Keys, Network, Reader
from benchmarks.family.observations import PROMPT_TOKENS, Arrays
from benchmarks.family.rollouts import model_speech, roll_outs
from benchmarks.family.trees import Starts, reorder
from simulator.core.acceptance.lossy.rules import Rule, ThresholdRule, TypicalRule
from simulator.core.acceptance.lossy.scores import Scores, chain_of, parents_of, scores_of, under
from simulator.core.acceptance.sources import Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.acceptance.window_replay import WindowReplay
from simulator.core.strategies.common.token_tree import TokenTree
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import read as read_document
from simulator.inputs.traces import file as trace_file
from simulator.record.scores import draw

SOURCE = "six_flavours_sampled"
NAME = "small_family_scored"
FLAVOURS = ("code", "docs", "prose", "maths")
"""Kinds of text whose prompts may be passed on."""
REQUESTS = 10
"""Requests of each."""
DEPTHS = 8
"""Tokens of the chains."""
CHECKED: tuple[Rule, ...] = (
    ThresholdRule(),
    ThresholdRule(single=0.3),
    ThresholdRule(accumulated=0.3),
    TypicalRule(),
)
"""Rules under which the pair decodes with ``--check``."""
WINDOW = 5


def entropy_of(logits: Tensor) -> Tensor:
    """Return the entropy (...) in nats of the distribution of ``logits`` (..., V)."""
    falling = logits.log_softmax(-1)
    return -(falling.exp() * falling).sum(-1)


@torch.no_grad()
def chain_scores(target: Network, starts: Starts, drafted: Tensor) -> tuple[Tensor, Tensor]:
    """Return the target's probability of each drafted token (depths, starts), given the text and
    those drafted before it, and its entropy there.
    """
    speech = model_speech(target, starts)
    logits = next(speech)
    chances = []
    entropies = []
    for depth, tokens in enumerate(drafted):
        chances.append(logits.softmax(-1).gather(-1, tokens[:, None])[:, 0])
        entropies.append(entropy_of(logits))
        if depth + 1 < len(drafted):
            logits = speech.send(tokens)
    return torch.stack(chances), torch.stack(entropies)


@torch.no_grad()
def tree_scores(
    target: Network, starts: Starts, choices: list[Tensor], tree: TokenTree
) -> tuple[Tensor, Tensor]:
    """Return the target's probability of each node (nodes, starts) of a static tree, in the order
    of its nodes, and its entropy behind every node that has children (parents, starts), the root
    first.

    ``choices``, by level (ranks, starts): the tokens that a drafter proposes, whatever the path.
    """
    cache: list[Keys] = []
    root = target.hidden(starts.text[None, :-1], 0, cache)[-1][:, -starts.count :]
    chances: dict[tuple[int, ...], Tensor] = {}
    logits = target.head(root)
    entropies: dict[tuple[int, ...], Tensor] = {(): entropy_of(logits[0])}
    own: list[list[Keys]] = [[] for _ in cache]
    above: list[tuple[int, ...]] = [()]
    for level in range(1, tree.depth + 1):
        nodes = [path for path in tree.nodes if len(path) == level]
        parent = torch.tensor([above.index(path[:-1]) for path in nodes])
        tokens = torch.stack([choices[level - 1][path[-1]] for path in nodes])
        odds = logits.softmax(-1)
        for row, path in enumerate(nodes):
            chances[path] = odds[parent[row]].gather(-1, tokens[row][:, None])[:, 0]
        x = target.embedding(tokens)
        of_starts = parent[:, None].expand(-1, starts.count)
        for block, trunk, rows in zip(target.blocks, cache, own, strict=True):
            rows[:] = reorder(rows, of_starts) if rows else []
            x = branch(cast(Any, block), x, level, trunk, rows)
        logits = target.head(x)
        for row, path in enumerate(nodes):
            entropies[path] = entropy_of(logits[row])
        above = nodes
    return (
        torch.stack([chances[path] for path in tree.nodes]),
        torch.stack([entropies[path] for path in parents_of(tree.nodes)]),
    )


def scores(family: Members, text: Tensor, tree: TokenTree) -> Arrays:
    """Return the scores of one request, whose prompt begins ``text`` (tokens,)."""
    target = family.target
    starts = Starts(text, PROMPT_TOKENS)
    states = target.hidden(text[None, :-1])
    arrays = Arrays()
    for name, prefix in (("draft", ""), ("eagle", "eagle.")):
        drafted, _, _ = roll_outs(family.modules[name], target, states, starts, DEPTHS)
        p, entropy = chain_scores(target, starts, drafted)
        arrays[f"{prefix}rollout.p"] = p.numpy().astype(np.float16)
        arrays[f"{prefix}rollout.entropy"] = entropy.numpy().astype(np.float16)
    before = [rows[:, :-1] for rows in states]
    heads = family.modules["medusa"](target, before, text[None])
    widest = 1 + max(max(path) for path in tree.nodes)
    choices = [logits[0, -starts.count :].topk(widest).indices.T for logits in heads]
    p, entropy = tree_scores(target, starts, choices, tree)
    arrays["medusa.tree.p"] = p.numpy().astype(np.float16)
    arrays["medusa.tree.entropy"] = entropy.numpy().astype(np.float16)
    return arrays


def prompts(pairs: Path) -> Mapping[tuple[str, int], list[int]]:
    """Return the ids of the prompts that may be passed on, by kind of text and place in it."""
    found: dict[tuple[str, int], list[int]] = {}
    with (pairs / "six_flavours_prompts.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["trace"] == SOURCE and row["ids"]:
                place = sum(flavour == row["flavour"] for flavour, _ in found)
                found[row["flavour"], place] = list(map(int, row["ids"].split()))
    return found


def chosen(trace: Trace) -> Iterator[tuple[str, int, int]]:
    """Yield the kind of text, place in it and number of every request that is scored."""
    for flavour in FLAVOURS:
        for place, request in enumerate(trace.requests_by_flavour[flavour][:REQUESTS]):
            yield flavour, place, request


def scored(family: Members, trace: Trace, ids: Mapping[tuple[str, int], list[int]]) -> Trace:
    """Return the part of a trace whose prompts are known, with scores."""
    spans = []
    parts = []
    tree = medusa_tree()
    for flavour, place, request in chosen(trace):
        span = np.arange(*trace.offsets[request : request + 2])
        spans.append(span)
        written = trace.token[span].astype(np.int64)
        text = torch.tensor([*ids[flavour, place], *written.tolist()])
        parts.append(scores(family, text, tree))
    at = np.concatenate(spans)
    extra = {name: np.concatenate([part[name] for part in parts], axis=-1) for name in parts[0]}
    for name in ("eagle.rank", "eagle.q", "medusa.rank", "medusa.q"):
        extra[name] = trace.extra[name][:, at]
    models = trace.header["models"]
    kept = ("target", "draft", "eagle", "medusa")
    header = {
        **trace.header,
        "flavours": list(FLAVOURS),
        "beams": [],
        "trees": {},
        "exit_layers": [],
        "scored_trees": {"medusa": {"paths": " ".join(tree.paths.split())}},
        "chains": {"eagle": trace.header["chains"]["eagle"]},
        "models": {name: models[name] for name in kept},
        "recorded_in_parts": f"the first {REQUESTS} requests of four kinds of text of {SOURCE}; "
        "what the target thinks of drafts behind them was added",
        "command": "python -m benchmarks.family.scored --out scenarios/traces",
    }
    for name in ("lookup", "ngram"):
        header.pop(name, None)
    return Trace(
        header=header,
        offsets=np.cumsum([0, *map(len, spans)]).astype(np.int64),
        flavour=np.repeat(np.arange(len(FLAVOURS), dtype=np.uint8), REQUESTS),
        token=trace.token[at],
        draft_rank=trace.draft_rank[at],
        p=trace.p[at],
        q=trace.q[at],
        exit_rank=trace.exit_rank[:0, at],
        extra=extra,
    )


def medusa_tree() -> TokenTree:
    """Return the tree of Medusa-1, as its method has it."""
    path = Catalogue().names("method")["medusa_1"]
    return TokenTree(**read_document(path, path.name).data["strategy"]["tree"])


@torch.no_grad()
def decoded(family: Members, ids: list[int], count: int, rule: Rule, random: Any) -> list[int]:
    """Return the draft tokens kept in every step in which the pair writes ``count`` tokens under a
    rule, with greedy windows; a rejected token is drawn anew from the target without it where a
    draw rejected it, else from the target.
    """
    target = Reader(family.target)
    draft = Reader(family.draft)
    text = list(ids)
    kept = []
    text.append(_drawn(target.extend(text)[-1].softmax(-1), random))
    while len(text) < len(ids) + 1 + count:
        window = list[int]()
        new = draft.extend(text[draft.read :])[-1]
        while len(window) < WINDOW:
            window.append(int(new.argmax()))
            if len(window) < WINDOW:
                new = draft.extend(window[-1:])[-1]
        odds = target.extend([*text[target.read :], *window])[-WINDOW - 1 :].softmax(-1)
        rows = odds[:WINDOW].double()
        p = rows.gather(-1, torch.tensor(window)[:, None]).numpy()
        entropy = -(rows * (rows + 1e-12).log()).sum(-1, keepdim=True).numpy()
        scores_here = Scores(chain_of(WINDOW), p, entropy)
        accepted = int(rule.kept(scores_here, int(random.integers(1 << 62))).tokens[0])
        rest = odds[accepted].clone()
        if accepted < WINDOW and isinstance(rule, ThresholdRule):
            rest[window[accepted]] = 0.0
        text += [*window[:accepted], _drawn(rest, random)]
        target.keep(len(text) - 1)
        draft.keep(min(draft.read, len(text) - 1))
        kept.append(accepted)
    return kept


def _drawn(odds: Tensor, random: Any) -> int:
    return int(draw(odds[None], torch.tensor([random.random()], dtype=torch.float64))[0])


def check(family: Members, trace: Trace, ids: Mapping[tuple[str, int], list[int]]) -> None:
    """Print tokens a step as the pair decodes under each rule, and as a replay of its scores
    says.
    """
    for rule in CHECKED:
        recorded = scores_of(trace, "draft", chain_of(DEPTHS))
        if recorded is None:
            raise click.UsageError(f"{NAME} holds no scores of the draft; record it first")
        replayed = Replay(under(trace, rule.kept(recorded, 0)))
        by_replay = 1.0 + WindowReplay.of(replayed).mean(WINDOW)
        random = np.random.default_rng(7)
        steps: list[int] = []
        for flavour, place, request in chosen(trace):
            count = int(np.diff(trace.offsets[request : request + 2])[0]) - 1
            steps += decoded(family, ids[flavour, place], count, rule, random)
        live = np.array(steps) + 1.0
        error = live.std() / len(live) ** 0.5
        click.echo(
            f"{rule.words}: decoded {live.mean():.3f} +- {error:.3f}, replayed {by_replay:.3f}"
        )


@click.command(help=__doc__)
@click.option(
    "--out", type=click.Path(path_type=Path, exists=True), required=True, help="Folder of traces."
)
@click.option("--check", "checks", is_flag=True, help="Decode under rules, and write nothing.")
def main(out: Path, checks: bool) -> None:
    """Score the drafts of the shipped family, or decode with it."""
    torch.set_num_threads(1)
    pairs = out.parent / "pairs"
    family = Members.read(pairs / "six_flavours.npz")
    ids = prompts(pairs)
    if checks:
        check(family, trace_file.read(out / f"{NAME}.npz"), ids)
        return
    path = out / f"{NAME}.npz"
    trace_file.write(scored(family, trace_file.read(out / f"{SOURCE}.npz"), ids), path)
    click.echo(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
