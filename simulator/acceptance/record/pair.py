"""The trained family as one small file: int8 weights, by which recording and live decoding are done.

A matrix is stored as int8 rows and one float16 scale a row, everything else as float16. The family is rounded to this grid
*before* anything is recorded, so that the shipped file is the pair that the shipped traces came from, bit for bit.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from simulator.files.writing import replacing

Arrays = Mapping[str, np.ndarray]


def pack(module: nn.Module, prefix: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield a module's parameters as arrays, named ``prefix/parameter``."""
    for name, parameter in module.named_parameters():
        values = parameter.detach().float()
        if values.dim() != 2:
            yield f"{prefix}/{name}", values.half().numpy()
            continue
        scale = (values.abs().amax(1, keepdim=True) / 127.0).half().clamp(min=2.0**-24)
        yield f"{prefix}/{name}", (values / scale.float()).round().clamp(-127, 127).to(torch.int8).numpy()
        yield f"{prefix}/{name}.scale", scale.numpy()


def unpack(module: nn.Module, prefix: str, arrays: Arrays) -> None:
    """Put packed arrays into a module of the same shape; its parameters no longer train."""
    for name, parameter in module.named_parameters():
        values = torch.from_numpy(arrays[f"{prefix}/{name}"]).float()
        scale = arrays.get(f"{prefix}/{name}.scale")
        parameter.data = values if scale is None else values * torch.from_numpy(scale).float()
    module.requires_grad_(False)


def round_to_shipped(module: nn.Module) -> None:
    """Round a module to what its file would say; its parameters no longer train."""
    unpack(module, "", dict(pack(module, "")))


def write(path: Path, header: Mapping[str, Any], modules: Mapping[str, nn.Module]) -> None:
    """Write all modules and a JSON header into a compressed ``.npz``."""
    arrays: dict[str, Any] = dict(item for prefix, module in modules.items() for item in pack(module, prefix))
    text = np.frombuffer(json.dumps(header, sort_keys=True).encode(), dtype=np.uint8)
    with replacing(path) as new:
        np.savez_compressed(new, header=text, **arrays)


def read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return header and arrays of a file."""
    with np.load(path, allow_pickle=False) as file:
        return json.loads(bytes(file["header"])), {name: file[name] for name in file.files if name != "header"}
