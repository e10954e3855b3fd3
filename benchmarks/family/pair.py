"""The shipped pair and the family around it as one small file of int8 weights: read, packed and
written.

A matrix is stored as int8 rows and one float16 scale a row, everything else as float16. The family
was rounded to this grid *before* anything was recorded, so that the shipped file is the pair that
the shipped traces came from, bit for bit. The file also holds the further drafters of
:mod:`benchmarks.family.members`.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from torch import nn

from benchmarks.family.network import DRAFT, TARGET, Network
from simulator.inputs.writing import replacing


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
    """Return the BLAKE2b digest over all parameters in order, to tell which weights a trace came
    from.
    """
    state = hashlib.blake2b(digest_size=16)
    for _, parameter in sorted(module.named_parameters()):
        state.update(parameter.detach().numpy().tobytes())
    return state.hexdigest()


def pack(module: nn.Module, prefix: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield a module's parameters as arrays, named ``prefix/parameter``."""
    for name, parameter in module.named_parameters():
        values = parameter.detach().float()
        if values.dim() != 2:
            yield f"{prefix}/{name}", values.half().numpy()
            continue
        scale = (values.abs().amax(1, keepdim=True) / 127.0).half().clamp(min=2.0**-24)
        yield (
            f"{prefix}/{name}",
            (values / scale.float()).round().clamp(-127, 127).to(torch.int8).numpy(),
        )
        yield f"{prefix}/{name}.scale", scale.numpy()


def round_to_shipped(module: nn.Module) -> None:
    """Round a module to what its file would say; its parameters no longer train."""
    unpack(module, "", dict(pack(module, "")))


def write(path: Path, header: Mapping[str, Any], modules: Mapping[str, nn.Module]) -> None:
    """Write all modules and a JSON header into a compressed ``.npz``."""
    arrays: dict[str, Any] = dict(
        item for prefix, module in modules.items() for item in pack(module, prefix)
    )
    text = np.frombuffer(
        json.dumps(header, sort_keys=True, allow_nan=False).encode(), dtype=np.uint8
    )
    with replacing(path) as new:
        np.savez_compressed(new, header=text, **arrays)
