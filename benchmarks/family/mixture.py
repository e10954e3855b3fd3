"""A small mixture of experts: the family's network with sixteen experts a layer, of which every
token takes two.

It is trained as mixtures that are served are: a softmax router whose two largest weights are
normalised, and a loss that keeps the experts in use (Fedus et al. 2022, Switch Transformers, Eqs. 4
to 6). What it is for is its routing, which ``python -m benchmarks.family.mixture --work DIR --out
scenarios/traces`` records: 40 minutes on a core.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.family import corpus
from benchmarks.family.heads import branch
from benchmarks.family.members import TrainingSchedule
from benchmarks.family.network import VOCABULARY, Block, Cache, Keys, Network, NetworkShape
from benchmarks.family.observations import PROMPT_TOKENS, Arrays, assemble, common_arrays
from benchmarks.family.pair import Family, weights_hash
from benchmarks.family.recorder import prompts
from benchmarks.family.rollouts import roll_outs
from benchmarks.family.training import CONTEXT, TokenStreams, fit
from benchmarks.family.trees import Starts
from benchmarks.family.writing import generate
from simulator.core.acceptance.trace import FORMAT
from simulator.inputs.traces import file as trace_file
from simulator.record.scores import Sampling

EXPERTS, ACTIVE = 16, 2
MIXTURE = NetworkShape(layers=6, width=192, heads=6, hidden=192, vocabulary=VOCABULARY)
"""The mixture's sizes; ``hidden`` is that of one expert."""
SCHEDULE = TrainingSchedule(steps=1_500, rate=2.5e-3, seed=31, rows=8)
RESTARTED = (
    "cosine over 1,500 steps; the shipped weights followed one over 1,200 to step 300 and one "
    "over 900 to step 900"
)
SAMPLING = Sampling(1.0)
REQUESTS, OUTPUT_TOKENS, DRAFTED = 8, 96, 7
"""Requests of each flavour, their tokens, and the draft tokens behind each of them whose experts
are recorded.
"""
BALANCE = 0.01
"""Weight of the loss that keeps the experts in use, as in Switch Transformers."""


class Experts(nn.Module):
    """A gated MLP in ``EXPERTS`` copies; each token takes the ``ACTIVE`` that its router
    prefers.
    """

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.router = nn.Linear(shape.width, EXPERTS, bias=False)
        self.up = nn.ModuleList(
            nn.Linear(shape.width, 2 * shape.hidden, bias=False) for _ in range(EXPERTS)
        )
        self.down = nn.ModuleList(
            nn.Linear(shape.hidden, shape.width, bias=False) for _ in range(EXPERTS)
        )
        self.taken = torch.empty(0)
        self.unbalance = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighted sum (batch, tokens, width) of each token's experts; note which, and
        how unevenly used.
        """
        rows = x.reshape(-1, x.shape[-1])
        chance = self.router(rows).float().softmax(-1)
        weight, taken = chance.topk(ACTIVE, -1)
        weight = (weight / weight.sum(-1, keepdim=True)).to(rows.dtype)
        out = torch.zeros_like(rows)
        for expert in range(EXPERTS):
            token, rank = (taken == expert).nonzero(as_tuple=True)
            gate, value = self.up[expert](rows[token]).chunk(2, -1)
            done = self.down[expert](F.silu(gate) * value) * weight[token, rank, None]
            out = out.index_add(0, token, done.to(out.dtype))
        share = torch.bincount(taken.flatten(), minlength=EXPERTS) / taken.numel()
        self.taken, self.unbalance = (
            taken.reshape(*x.shape[:-1], ACTIVE),
            EXPERTS * (share * chance.mean(0)).sum(),
        )
        return out.reshape(x.shape)


class MixtureBlock(Block):
    """One layer of the network with experts in place of its MLP."""

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__(shape)
        del self.up, self.down
        self.experts = Experts(shape)

    def finish(self, x: Tensor) -> Tensor:
        """Add the experts behind their norm and return the residual stream."""
        mixed: Tensor = self.experts(self.norm_mlp(x))
        return x + mixed


class Mixture(Network):
    """The decoder with experts in every layer."""

    def __init__(self, shape: NetworkShape = MIXTURE) -> None:
        super().__init__(shape)
        self.blocks = nn.ModuleList(MixtureBlock(shape) for _ in range(shape.layers))
        for name, parameter in self.blocks.named_parameters():
            if parameter.dim() == 2:
                scale = (2 * shape.layers) ** -0.5 if "out." in name or "down." in name else 1.0
                nn.init.normal_(parameter, std=0.02 * scale)

    @property
    def unbalance(self) -> Tensor:
        """Return how unevenly the last tokens used the experts, 1 where evenly, mean over
        layers.
        """
        return torch.stack([block.experts.unbalance for block in self.blocks]).mean()

    @property
    def routing(self) -> Tensor:
        """Return the experts (batch, tokens, layers, ACTIVE) that the last tokens took."""
        return torch.stack([block.experts.taken for block in self.blocks], -2)


def mixture_loss(mixture: Mixture, tokens: Tensor) -> Tensor:
    """Return the cross entropy of the next token in nats, with what keeps the experts in use."""
    loss = F.cross_entropy(mixture(tokens[:, :-1]).float().flatten(0, 1), tokens[:, 1:].flatten())
    return loss + BALANCE * mixture.unbalance


def trained(work: Path, text: TokenStreams) -> tuple[Mixture, float]:
    """Return the mixture, trained or as far as its checkpoint in ``work`` has come, and the loss of
    its last 100 steps.
    """
    torch.manual_seed(SCHEDULE.seed)
    mixture = Mixture()
    loss = fit(
        "mixture",
        mixture,
        SCHEDULE,
        work,
        lambda rng: text.batch(rng, SCHEDULE.rows),
        lambda rows: mixture_loss(mixture, rows),
    )
    return mixture, loss


@torch.no_grad()
def held_out_loss(mixture: Mixture, documents: Sequence[np.ndarray]) -> float:
    """Return the cross entropy of the next token on the start of every held-out document, nats."""
    rows = [
        torch.from_numpy(document[: CONTEXT + 1].astype(np.int64))[None]
        for document in documents
        if len(document) > 1
    ]
    losses = [F.cross_entropy(mixture(row[:, :-1])[0], row[0, 1:]).item() for row in rows[:40]]
    return float(np.mean(losses))


@torch.no_grad()
def routes(mixture: Mixture, draft: Network, text: Tensor) -> Arrays:
    """Return the experts that each token behind the prompt of a ``text`` (tokens,) takes, and those
    of its draft tokens.

    ``experts.taken``: (layers, ACTIVE, positions); ``experts.drafted``: (DRAFTED, layers, ACTIVE,
    positions), where a window that starts at a position reads the experts of the draft tokens from
    there on, whether they are accepted or not.
    """
    mixture(text[None])
    taken = mixture.routing[0, PROMPT_TOKENS:].permute(1, 2, 0)
    starts, cache = Starts(text, PROMPT_TOKENS), Cache()
    tokens, _, _ = roll_outs(draft, mixture, [], starts, DRAFTED)
    mixture.hidden(text[None, :-1], 0, cache)
    own, drafted = [list[Keys]() for _ in cache], []
    for shift, token in enumerate(tokens, start=1):
        state = mixture.embedding(token[None])
        for block, trunk, rows in zip(mixture.blocks, cache, own, strict=True):
            state = branch(block, state, shift, trunk, rows)
        drafted.append(mixture.routing[0].permute(1, 2, 0))
    both = {"experts.taken": taken, "experts.drafted": torch.stack(drafted)}
    return {name: experts.numpy().astype(np.uint8) for name, experts in both.items()}


@torch.no_grad()
def record_flavour(mixture: Mixture, draft: Network, prompt: Tensor, seed: int) -> Arrays:
    """Return what a trace holds of requests that go on from ``prompt`` (requests, PROMPT_TOKENS),
    written by the mixture.
    """
    written = generate(
        mixture, prompt, OUTPUT_TOKENS, SAMPLING, torch.Generator().manual_seed(seed)
    )
    sequence = torch.cat((prompt, written), 1)
    routed = [routes(mixture, draft, text) for text in sequence]
    return common_arrays(mixture, draft, sequence, written, SAMPLING, routed)


def describe(mixture: Mixture, family: Family, text: TokenStreams, loss: float) -> dict[str, Any]:
    """Return the header of the trace."""
    about = {
        "shape": asdict(mixture.shape),
        "experts": {
            "routed": EXPERTS,
            "per_token": ACTIVE,
            "layers": list(range(mixture.shape.layers)),
        },
        "parameters": sum(parameter.numel() for parameter in mixture.parameters()),
        "training_steps": SCHEDULE.steps,
        "schedule": RESTARTED,
        "training_tokens": SCHEDULE.steps * SCHEDULE.rows * CONTEXT,
        "seed": SCHEDULE.seed,
        "loss": loss,
        "held_out_loss": {
            name: held_out_loss(mixture, documents) for name, documents in text.held_out.items()
        },
        "objective": "next token of the text, experts balanced with a weight of 0.01",
        "hash": weights_hash(mixture),
    }
    draft = {**family.header["models"]["draft"], "hash": weights_hash(family.draft)}
    return {
        "format": FORMAT,
        "temperature": SAMPLING.temperature,
        "seed": SCHEDULE.seed,
        "vocabulary": VOCABULARY,
        "prompt_tokens": PROMPT_TOKENS,
        "exit_layers": [],
        "flavours": [flavour.name for flavour in corpus.FLAVOURS],
        "text": text.describe(),
        "models": {"target": about, "draft": draft},
        "command": "python -m benchmarks.family.mixture --work DIR --out scenarios/traces",
    }


@click.command(help=__doc__)
@click.option(
    "--work",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder for packages, tokens and checkpoints.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, exists=True),
    required=True,
    help="Folder of the trace.",
)
@click.option(
    "--family",
    type=click.Path(path_type=Path, exists=True),
    default=Path("scenarios/pairs/six_flavours.npz"),
)
def main(work: Path, out: Path, family: Path) -> None:
    """Train or resume the mixture and record its routing, the family's draft guessing what it
    writes.
    """
    text, pair = TokenStreams(work), Family.read(family)
    mixture, loss = trained(work, text)
    flavours = [flavour.name for flavour in corpus.FLAVOURS]
    parts = [
        record_flavour(mixture, pair.draft, prompts(text, name, REQUESTS), SCHEDULE.seed + index)
        for index, name in enumerate(flavours)
    ]
    path = out / "small_mixture_sampled.npz"
    trace_file.write(assemble(describe(mixture, pair, text, loss), parts, OUTPUT_TOKENS), path)
    click.echo(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
