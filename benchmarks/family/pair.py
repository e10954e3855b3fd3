"""The trained family as one small file of int8 weights, in the format that :mod:`simulator.acceptance.record.family` reads."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from simulator.acceptance.record.family import unpack
from simulator.files.writing import replacing


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


def round_to_shipped(module: nn.Module) -> None:
    """Round a module to what its file would say; its parameters no longer train."""
    unpack(module, "", dict(pack(module, "")))


def write(path: Path, header: Mapping[str, Any], modules: Mapping[str, nn.Module]) -> None:
    """Write all modules and a JSON header into a compressed ``.npz``."""
    arrays: dict[str, Any] = dict(item for prefix, module in modules.items() for item in pack(module, prefix))
    text = np.frombuffer(json.dumps(header, sort_keys=True).encode(), dtype=np.uint8)
    with replacing(path) as new:
        np.savez_compressed(new, header=text, **arrays)
