"""A trace recorded on the spot, as the shipped ones are."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from simulator.draft_tree import Beam
from simulator.record.family import Family
from simulator.record.recorder import assemble, observe
from simulator.record.writing import generate
from simulator.traces import Trace

RECORDED_TOKENS = 128


def recorded(
    family: Family,
    prompts: torch.Tensor,
    temperature: float,
    seed: int = 1,
    beams: Sequence[Beam] = (),
    tokens: int = RECORDED_TOKENS,
) -> Trace:
    """One request for each prompt."""
    written = generate(family.target, prompts, tokens, temperature, torch.Generator().manual_seed(seed))
    return assemble(family, [observe(family, prompts, written, temperature, beams)], temperature, seed, beams, tokens)
