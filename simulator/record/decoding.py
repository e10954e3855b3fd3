"""Lets a target write behind a batch of prompts, then asks a draft about every token it wrote."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simulator.core.faults import BadInput
from simulator.record.huggingface_pair import Pair
from simulator.record.scores import draw, rank_of

LOGITS_AT_ONCE = 1 << 26
"""Logits of the draft held at a time: 256 MB in float32."""

HIGHEST_RANK = 65_535


class Reading:
    """One model reads a batch: left-padded prompts, then what follows them, with its KV cache."""

    def __init__(self, model: Any, batch: int) -> None:
        self.model = model
        self.cache = None
        device = next(model.parameters()).device
        self.present = torch.zeros(batch, 0, dtype=torch.long, device=device)
        self.accepted = inspect.signature(model.forward).parameters

    def feed(self, tokens: Tensor, present: Tensor | None = None, keep: int = 1) -> Tensor:
        """Return logits (batch, keep, V) behind the last ``keep`` of ``tokens``; ``present`` is 0
        where a token is padding.

        A token's position is the number of present ones before it, so that padding shifts nothing.
        """
        if present is None:
            present = torch.ones_like(tokens)
        self.present = torch.cat((self.present, present), 1)
        before = (self.present.cumsum(1) - 1).clamp(min=0)
        _, count = tokens.shape
        extra = {"position_ids": before[:, -count:], "logits_to_keep": keep}
        known = {name: value for name, value in extra.items() if name in self.accepted}
        said = self.model(
            input_ids=tokens,
            attention_mask=self.present,
            past_key_values=self.cache,
            use_cache=True,
            **known,
        )
        self.cache = said.past_key_values
        return said.logits[:, -keep:].float()


def padded(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return token ids and presence, each (batch, longest), padded on the left."""
    longest = max(map(len, prompts))
    tokens = []
    present = []
    for prompt in prompts:
        padding = [0] * (longest - len(prompt))
        tokens.append(padding + list(prompt))
        present.append(padding + [1] * len(prompt))
    return torch.tensor(tokens, device=device), torch.tensor(present, device=device)


@torch.inference_mode()
def record_batch(
    pair: Pair,
    prompts: Sequence[Sequence[int]],
    uniforms: np.ndarray[Any, Any],
    tick: Callable[[], None],
) -> dict[str, np.ndarray[Any, Any]]:
    """Record some requests and return the trace's arrays, flat, with the ``length`` of each
    request.

    ``uniforms`` (requests, output tokens) are the random numbers of sampling; their width is the
    most a request writes. ``tick`` is called once per token position written.
    """
    tokens, present = padded(prompts, pair.device)
    draws = torch.from_numpy(uniforms).to(pair.device)
    written, alive, p, exits = write(pair, tokens, present, draws, tick)
    ranks, q = ask(pair, tokens, present, written)
    finite = p.isfinite() & q.isfinite()
    if not (finite | ~alive).all():
        message = "a model answered with probabilities that are no numbers; try --dtype float32"
        raise BadInput.at("trace record", message)

    def flat(values: Tensor, kind: type[np.generic]) -> np.ndarray[Any, Any]:
        return values[..., alive].cpu().numpy().astype(kind)

    return {
        "length": alive.sum(1).cpu().numpy(),
        "token": flat(written, np.uint32),
        "draft_rank": flat(ranks.clamp(max=HIGHEST_RANK), np.uint16),
        "p": flat(p, np.float16),
        "q": flat(q, np.float16),
        "exit_rank": flat(exits.clamp(max=HIGHEST_RANK), np.uint16),
    }


def write(
    pair: Pair, tokens: Tensor, present: Tensor, uniforms: Tensor, tick: Callable[[], None]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Let the target write; return (written, alive, p), each (requests, tokens), and exit ranks
    (exits, requests, tokens).

    ``alive`` ends behind the token that ends a text; what a finished request goes on to write is
    filler.
    """
    reading = Reading(pair.target, len(tokens))
    ends = torch.tensor(pair.ends, dtype=torch.long, device=tokens.device)
    going = torch.ones(len(tokens), dtype=torch.bool, device=tokens.device)
    columns: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    for step in range(uniforms.shape[1]):
        logits = reading.feed(tokens, present)[:, 0]
        odds = pair.sampling.distribution(logits)
        if pair.sampling.temperature:
            chosen = draw(odds, uniforms[:, step])
        else:
            chosen = logits.argmax(-1)
        p = odds.gather(-1, chosen[:, None])[:, 0]
        ranks = [rank_of(lens, chosen) for lens in pair.lens.logits()]
        exit_ranks = chosen.new_zeros(0, len(chosen))
        if ranks:
            exit_ranks = torch.stack(ranks)
        columns.append((chosen, going, p, exit_ranks))
        tick()
        going = going & ~torch.isin(chosen, ends)
        if not going.any():
            break
        tokens = chosen[:, None]
        present = torch.ones_like(tokens)
    written, alive, odds_of_written, exits = zip(*columns, strict=True)
    return _in_time(written), _in_time(alive), _in_time(odds_of_written), _in_time(exits)


def _in_time(steps: Sequence[Tensor]) -> Tensor:
    """Return what every step gave, with the steps as the last axis."""
    return torch.stack(list(steps), -1)


def ask(pair: Pair, tokens: Tensor, present: Tensor, written: Tensor) -> tuple[Tensor, Tensor]:
    """Return rank and probability, each (requests, tokens), of every token under a draft that has
    read those before it.
    """
    reading = Reading(pair.draft, len(tokens))
    logits = reading.feed(tokens, present)
    span = max(1, LOGITS_AT_ONCE // logits[:, 0].numel())
    _, length = written.shape
    pieces = [_score(pair, logits, written[:, :1])]
    for start in range(1, length, span):
        end = min(start + span, length)
        logits = reading.feed(written[:, start - 1 : end - 1], keep=end - start)
        pieces.append(_score(pair, logits, written[:, start:end]))
    ranks, odds = zip(*pieces, strict=True)
    return torch.cat(ranks, 1), torch.cat(odds, 1)


def _score(pair: Pair, logits: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    return rank_of(logits, wanted), pair.sampling.probability(logits, wanted)
