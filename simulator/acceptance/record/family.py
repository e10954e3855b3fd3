"""The small pair that decodes live: a target and a draft, read from the file of the shipped family.

A matrix is stored as int8 rows and one float16 scale a row, everything else as float16. The family was rounded to this grid
*before* anything was recorded, so that the shipped file is the pair that the shipped traces came from, bit for bit. The file
also holds further drafters, which ``benchmarks/family`` trains and records.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from torch import nn

from simulator.acceptance.record.network import Network, NetworkShape

VOCABULARY = 2_048
TARGET = NetworkShape(layers=8, width=224, heads=7, hidden=512, vocabulary=VOCABULARY)
DRAFT = NetworkShape(layers=2, width=128, heads=4, hidden=320, vocabulary=VOCABULARY)


@dataclass(frozen=True)
class Family:
    """Modules by name, ``target`` and ``draft`` among them, and the header of their file."""

    modules: Mapping[str, nn.Module]
    header: Mapping[str, Any]

    @classmethod
    def blank(cls) -> Self:
        """Return a family with fresh weights."""
        return cls({"target": Network(TARGET), "draft": Network(DRAFT)}, {})

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the family of a file, ready to decode."""
        with np.load(path, allow_pickle=False) as file:
            family = cls(cls.blank().modules, json.loads(bytes(file["header"])))
            for name, module in family.modules.items():
                unpack(module, name, file)
        return family

    @property
    def target(self) -> Network:
        """Return the model whose output counts."""
        return cast(Network, self.modules["target"])

    @property
    def draft(self) -> Network:
        """Return the model that writes drafts."""
        return cast(Network, self.modules["draft"])


def unpack(module: nn.Module, prefix: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Put packed arrays into a module of the same shape; its parameters no longer train."""
    for name, parameter in module.named_parameters():
        values = torch.from_numpy(arrays[f"{prefix}/{name}"]).float()
        scale = arrays.get(f"{prefix}/{name}.scale")
        parameter.data = values if scale is None else values * torch.from_numpy(scale).float()
    module.requires_grad_(False)


def weights_hash(module: nn.Module) -> str:
    """Return the BLAKE2b digest over all parameters in order, to tell which weights a trace came from."""
    state = hashlib.blake2b(digest_size=16)
    for _, parameter in sorted(module.named_parameters()):
        state.update(parameter.detach().numpy().tobytes())
    return state.hexdigest()
