"""``python -m benchmarks.family.contexts --out FILE``: how acceptance of the shipped family falls
where nothing was trained.

Target, drafts and heads were trained on rows of 256 tokens. The target goes on from the committed
prompts far beyond, every drafter is asked about each token that it wrote, and each bin of contexts
becomes a row of a CSV. The target is as far from its training as the heads are, which its own
surprise (``target_nats``) shows.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import click
import numpy as np
import torch
from torch import Tensor

from benchmarks.family.members import Members
from benchmarks.family.training import CONTEXT
from benchmarks.family.writing import generate
from simulator.record.scores import Sampling

SCENARIOS = Path(__file__).parents[2] / "scenarios"
SAMPLING = Sampling(1.0)
"""Drawn from all tokens: a small model that takes the likeliest falls into loops, the longer the
surer.
"""
DEPTHS = 5
"""Draft tokens of a window, as many as the ``eagle`` head was trained for."""
BIN = 128
"""Tokens of context of a row."""
HEAD = (
    *("drafter", "context_from", "context_to", "trained_tokens", "requests"),
    *("target_nats", "tokens_per_step", "standard_error"),
    *(f"kept_at_{place}" for place in range(1, DEPTHS + 1)),
)


def prompts(count: int) -> Tensor:
    """Return (count, 64) ids of prompts whose licence lets them be passed on, evenly from all kinds
    of text.
    """
    with (SCENARIOS / "pairs/six_flavours_prompts.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["blake2b"]: row["ids"] for row in csv.DictReader(file) if row["ids"]}
    chosen = np.linspace(0, len(rows) - 1, count).round().astype(int)
    texts = list(rows.values())
    return torch.tensor([[int(token) for token in texts[index].split()] for index in chosen])


@torch.no_grad()
def kept(family: Members, sequence: Tensor, name: str) -> np.ndarray:
    """Return (starts, depths) the chance that a window from each token keeps its draft token, given
    those before it.

    A token that the target drew is kept with min(1, q / p): its mean over tokens is that of
    speculative sampling.
    """
    target = family.target
    states = target.hidden(sequence[:, :-1])
    p = SAMPLING.probability(target.head(states[-1]), sequence[:, 1:])[0]
    ratios = []
    if name in ("draft", "plain"):
        q = SAMPLING.probability(
            cast(Any, family.modules[name])(sequence[:, :-1]), sequence[:, 1:]
        )[0]
        whole = (q / p).clamp(max=1.0)
        ratios = [whole[depth:] for depth in range(DEPTHS)]
    else:
        for depth, logits in enumerate(
            cast(Any, family.modules[name])(target, states, sequence, depths=DEPTHS)
        ):
            tokens = sequence[:, depth + 2 :]
            q = SAMPLING.probability(logits[:, : tokens.shape[1]], tokens)[0]
            ratios.append((q / p[depth + 1 :]).clamp(max=1.0))
    shortest = len(ratios[-1])
    first = sequence.shape[1] - (DEPTHS - 1) - shortest
    starts = np.full((sequence.shape[1], DEPTHS), np.nan)
    starts[first : first + shortest] = torch.stack(
        [ratio[:shortest] for ratio in ratios], 1
    ).numpy()
    return starts


def rows(family: Members, sequences: Tensor, first: int) -> Iterator[tuple[object, ...]]:
    """Yield a row for each drafter and bin of contexts behind the ``first`` tokens, which are the
    prompt.
    """
    with torch.no_grad():
        surprise = np.array([_surprise(family, text[None]) for text in sequences])
    for name in ("draft", "plain", "eagle"):
        chances = np.stack([kept(family, text[None], name) for text in sequences])
        for start in range(first, sequences.shape[1] - BIN + 1, BIN):
            inside = chances[:, start : start + BIN - DEPTHS]
            reached = np.cumprod(inside, axis=2)
            lengths = 1.0 + reached.sum(axis=2).mean(axis=1)
            means = reached.mean(axis=(0, 1))
            given = means / np.concatenate(([1.0], means[:-1]))
            error = lengths.std(ddof=1) / np.sqrt(len(lengths))
            nats = surprise[:, start - 1 : start + BIN - 1].mean()
            head = name, start, start + BIN, CONTEXT, len(sequences), f"{nats:.3f}"
            yield (
                *head,
                f"{lengths.mean():.4f}",
                f"{error:.4f}",
                *(f"{share:.4f}" for share in given),
            )


def _surprise(family: Members, text: Tensor) -> np.ndarray:
    """Return (tokens - 1,) -ln p of each token under the target."""
    p = SAMPLING.probability(family.target(text[:, :-1]), text[:, 1:])[0]
    return -p.log().numpy()


@click.command(help=__doc__)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="CSV file to write.")
@click.option(
    "--tokens",
    default=1_984,
    show_default=True,
    help="Tokens that the target writes behind each prompt.",
)
@click.option("--requests", default=24, show_default=True, help="Prompts.")
def main(out: Path, tokens: int, requests: int) -> None:
    """Let the target write, ask every drafter, write the table."""
    torch.set_num_threads(1)
    family, prompt = Members.read(SCENARIOS / "pairs/six_flavours.npz"), prompts(requests)
    written = generate(family.target, prompt, tokens, SAMPLING, torch.Generator().manual_seed(22))
    with out.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(HEAD)
        table.writerows(rows(family, torch.cat((prompt, written), 1), prompt.shape[1]))


if __name__ == "__main__":
    main()
