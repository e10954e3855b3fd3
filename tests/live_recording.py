"""A trace recorded on the spot, as the shipped ones are."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from benchmarks.family.members import Members
from benchmarks.family.recorder import assemble, observe
from benchmarks.family.writing import generate
from simulator.core.acceptance.draft_tree import Beam
from simulator.core.acceptance.trace import Trace
from simulator.record.scores import Sampling

RECORDED_TOKENS = 128


def recorded(
    family: Members,
    prompts: torch.Tensor,
    temperature: float,
    seed: int = 1,
    beams: Sequence[Beam] = (),
    tokens: int = RECORDED_TOKENS,
) -> Trace:
    """One request for each prompt."""
    sampling = Sampling(temperature)
    written = generate(
        family.target, prompts, tokens, sampling, torch.Generator().manual_seed(seed)
    )
    return assemble(
        family, [observe(family, prompts, written, sampling, beams)], sampling, seed, beams, tokens
    )
