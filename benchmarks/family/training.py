"""Trains the family: tokenizer, target, then drafts, early exits and heads on the frozen target.

Every stage writes checkpoints below one folder and goes on from the last one when called again.
Once trained, the target is rounded to the weights that are shipped, and writes some text of its
own: what a drafter has to guess is what the target would write, not what a human did.
"""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import torch
from rich.progress import Progress, track
from tokenizers import ByteLevelBPETokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.family import corpus, pair
from benchmarks.family.members import EXIT_LAYERS, SCHEDULES, Members, TrainingSchedule
from benchmarks.family.network import VOCABULARY, Network
from benchmarks.family.writing import generate
from simulator.inputs.writing import replacing
from simulator.record.scores import Sampling

CONTEXT = 256
OWN_PROMPT_TOKENS, OWN_ROWS = 64, 1_536
"""What the target writes itself: rows, and the tokens of each that are a prompt from the training
text.
"""


Loss = Callable[[Tensor], Tensor]


class TokenStreams:
    """The corpus as token streams, one per flavour, training and held-out text separate."""

    def __init__(self, work: Path) -> None:
        by_flavour = corpus.documents(corpus.unpack(work / "packages"))
        self.digest = corpus.digest(by_flavour)
        halves = {name: corpus.split(pieces) for name, pieces in by_flavour.items()}
        self.tokenizer = _tokenizer(
            work, [piece for train, _ in halves.values() for piece in train]
        )
        self.train = {name: self._stream(work, name, train) for name, (train, _) in halves.items()}
        self.held_out = {
            name: [np.array(self.tokenizer.encode(piece).ids) for piece in pieces]
            for name, (_, pieces) in halves.items()
        }

    def _stream(self, work: Path, name: str, pieces: list[str]) -> np.ndarray:
        path = work / f"tokens_{name}.npy"
        if not path.exists():
            ids = [encoding.ids for encoding in self.tokenizer.encode_batch(pieces)]
            np.save(path, np.concatenate([np.array(row, dtype=np.uint16) for row in ids]))
        return np.load(path)

    def batch(self, rng: np.random.Generator, rows: int, tokens: int = CONTEXT + 1) -> Tensor:
        """Return (rows, tokens) token ids, each row from a flavour drawn with equal chance."""
        streams = list(self.train.values())
        drawn = []
        for flavour in rng.integers(len(streams), size=rows):
            stream = streams[flavour]
            start = rng.integers(len(stream) - tokens)
            drawn.append(stream[start : start + tokens])
        return torch.from_numpy(np.stack(drawn).astype(np.int64))

    def describe(self) -> dict[str, object]:
        """Return the provenance of the text, for a header; the text itself is not shipped."""
        sources = {
            f.name: {"packages": list(f.packages), "licence": f.licence, "about": f.about}
            for f in corpus.FLAVOURS
        }
        return {"digest": self.digest, "sources": sources}


def _tokenizer(work: Path, pieces: list[str]) -> ByteLevelBPETokenizer:
    vocabulary, merges = work / "vocab.json", work / "merges.txt"
    if not merges.exists():
        tokenizer = ByteLevelBPETokenizer()
        tokenizer.train_from_iterator(
            pieces, vocab_size=VOCABULARY, min_frequency=2, show_progress=False
        )
        tokenizer.save_model(str(work))
    return ByteLevelBPETokenizer(str(vocabulary), str(merges))


def own_text(target: Network, text: TokenStreams, work: Path) -> Tensor:
    """Return (OWN_ROWS, CONTEXT + 1) ids: prompts of the training text, continued by the target at
    temperatures 0, 0.6, 1.
    """
    path = work / "own_text.npy"
    if not path.exists():
        prompts = text.batch(np.random.default_rng(21), OWN_ROWS, OWN_PROMPT_TOKENS).split(
            OWN_ROWS // 12
        )
        generator, rows = torch.Generator().manual_seed(21), []
        for turn, prompt in enumerate(track(prompts, "target writes", transient=True)):
            sampling = Sampling((0.0, 0.6, 1.0)[turn % 3])
            written = generate(target, prompt, CONTEXT + 1 - OWN_PROMPT_TOKENS, sampling, generator)
            rows.append(torch.cat((prompt, written), 1))
        np.save(path, torch.cat(rows).numpy().astype(np.uint16))
    return torch.from_numpy(np.load(path).astype(np.int64))


def target_loss(target: Network, tokens: Tensor) -> Tensor:
    """Return the cross entropy of the next token, nats."""
    return F.cross_entropy(target(tokens[:, :-1]).float().flatten(0, 1), tokens[:, 1:].flatten())


def draft_loss(draft: Network, target: Network, tokens: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence of the draft from the target, nats per token."""
    with torch.no_grad():
        wanted = target(tokens[:, :-1]).float().log_softmax(-1)
    given = draft(tokens[:, :-1]).float().log_softmax(-1)
    return F.kl_div(
        given.flatten(0, 1), wanted.flatten(0, 1), log_target=True, reduction="batchmean"
    )


def exit_loss(heads: nn.ModuleList, target: Network, tokens: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence of every early exit from the final layer in nats,
    summed over exits.
    """
    with torch.no_grad():
        states = target.hidden(tokens[:, :-1])
        wanted = target.head(states[-1]).float().log_softmax(-1).flatten(0, 1)
    losses = []
    for layer, head in zip(EXIT_LAYERS, heads, strict=True):
        given = head(states[layer - 1], target).float().log_softmax(-1).flatten(0, 1)
        losses.append(F.kl_div(given, wanted, log_target=True, reduction="batchmean"))
    return torch.stack(losses).sum()


def head_loss(head: nn.Module, target: Network, tokens: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence of every depth of a head from the target, deeper ones
    counting less.
    """
    inputs = tokens[:, :-1]
    with torch.no_grad():
        states = target.hidden(inputs)
        wanted = target.head(states[-1]).float().log_softmax(-1)
    losses = []
    for depth, logits in enumerate(head(target, states, inputs), start=1):
        given = logits[:, :-depth].float().log_softmax(-1)
        loss = F.kl_div(
            given.flatten(0, 1),
            wanted[:, depth:].flatten(0, 1),
            log_target=True,
            reduction="batchmean",
        )
        losses.append(loss * 0.8 ** (depth - 1))
    return torch.stack(losses).sum()


def fit(
    name: str,
    module: nn.Module,
    schedule: TrainingSchedule,
    work: Path,
    rows: Callable[[np.random.Generator], Tensor],
    loss_of: Loss,
) -> float:
    """Train ``module`` in place, or load it where it is finished; return the mean loss of its last
    100 steps.
    """
    path = work / f"{name}.pt"
    optimiser = torch.optim.AdamW(
        module.parameters(), lr=schedule.rate, betas=(0.9, 0.95), weight_decay=0.05
    )
    finished, recent = 0, []
    if path.exists():
        saved = torch.load(path, weights_only=True)
        module.load_state_dict(saved["module"])
        optimiser.load_state_dict(saved["optimiser"])
        finished, recent = saved["step"], saved["recent"]
    with Progress(transient=True, refresh_per_second=1) as progress:
        task = progress.add_task(name, total=schedule.steps, completed=finished)
        for step in range(finished, schedule.steps):
            warm, done = min(1.0, (step + 1) / 100), step / schedule.steps
            optimiser.param_groups[0]["lr"] = (
                schedule.rate * warm * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done)))
            )
            tokens = rows(np.random.default_rng((schedule.seed, step)))
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss_of(tokens)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimiser.step()
            recent = [*recent[-99:], loss.item()]
            progress.update(
                task, completed=step + 1, description=f"{name} loss {np.mean(recent):.3f}"
            )
            if (step + 1) % 100 == 0 or step + 1 == schedule.steps:
                _save(
                    path,
                    {
                        "module": module.state_dict(),
                        "optimiser": optimiser.state_dict(),
                        "step": step + 1,
                        "recent": recent,
                    },
                )
    module.requires_grad_(False)
    return float(np.mean(recent))


def _save(path: Path, content: dict[str, object]) -> None:
    with replacing(path) as new:
        torch.save(content, new)


def train_family(work: Path) -> tuple[Path, TokenStreams]:
    """Train what is missing in ``work``; return the file of the family, and the text it was trained
    on.
    """
    work.mkdir(parents=True, exist_ok=True)
    text, family = TokenStreams(work), Members.blank()
    loss = {name: train_member(name, family, text, work) for name in SCHEDULES}
    path = work / "family.npz"
    pair.write(
        path, {"models": family.describe(loss, CONTEXT), "text": text.describe()}, family.modules
    )
    return path, text


def train_member(name: str, family: Members, text: TokenStreams, work: Path) -> float:
    """Train one module, or load it, and return its loss; all but the plain models learn from a
    trained target.
    """
    target, module, schedule = family.target, family.modules[name], SCHEDULES[name]
    losses: dict[str, Loss] = {
        "target": lambda tokens: target_loss(target, tokens),
        "draft": lambda tokens: draft_loss(cast(Network, module), target, tokens),
        "plain": lambda tokens: target_loss(cast(Network, module), tokens),
        "exits": lambda tokens: exit_loss(family.exits, target, tokens),
    }
    own = None if name in ("target", "plain") else own_text(target, text, work)

    def rows(rng: np.random.Generator) -> Tensor:
        drawn = text.batch(rng, schedule.rows)
        return drawn if own is None else _half_own(own, drawn, rng)

    loss = fit(
        name, module, schedule, work, rows, losses.get(name, partial(head_loss, module, target))
    )
    if name == "target":
        pair.round_to_shipped(target)
    return loss


def _half_own(own: Tensor, rows: Tensor, rng: np.random.Generator) -> Tensor:
    """``rows`` with the first half replaced by text that the target wrote."""
    half = len(rows) // 2
    return torch.cat((own[torch.from_numpy(rng.integers(len(own), size=half))], rows[half:]))
