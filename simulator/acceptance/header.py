"""What a trace file must hold to be replayed at all: the types of its header, the shapes and ranges of its arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from simulator.files.schema import BadInput, Document, Fault, validate

MOST_FLAVOURS = 256
KINDS = {
    **dict.fromkeys(("offsets", "flavour", "token", "draft_rank", "exit_rank", "run"), "iu"),
    **dict.fromkeys(("p", "q"), "f"),
}
"""Array -> kinds of number that it may hold, as numpy names them."""
DIMENSIONS = {"exit_rank": (2,), "beam.rows": (3,), "beam.steps": (2,), "beam.hit": (2,)}
"""Array -> how many it has, where that is not one; further drafters' have one or two."""


class _Open(BaseModel):
    """Fields that matter here; recordings say more."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False, strict=True)


class ModelShape(_Open):
    """Of a recorded model."""

    layers: int | None = Field(default=None, ge=1)
    """Decoder layers."""
    vocabulary: int = Field(ge=1)
    """Tokens known."""


class Model(_Open):
    """A recorded model, as far as it is known."""

    name: str | None = None
    """As its authors call it."""
    parameters: int | None = Field(default=None, ge=0)
    """Weights in all."""
    shape: ModelShape | None = None
    """As far as it is known."""


class Header(_Open):
    """The header of a trace; ``format`` is checked before."""

    format: Literal[1, 2]
    """Version of the format: 2 for what was converted from other people's records."""
    vocabulary: int | None = Field(ge=1)
    """Tokens known to the models; null: not known."""
    temperature: float | None = Field(ge=0)
    """At which the target's tokens were chosen; null: not known."""
    flavours: list[str] = Field(min_length=1, max_length=MOST_FLAVOURS)
    """Kinds of text, by the number that each request has."""
    exit_layers: list[int]
    """Layers of the target behind which it was asked as well."""
    models: dict[str, Model]
    """Target and drafters that were recorded."""
    window: int | None = Field(default=None, ge=1)
    """The largest window that the record can answer for; null: any."""


def check_header(path: Path, header: object) -> None:
    """Raises :class:`BadInput` with one fault per field that is missing or of the wrong kind."""
    validate(Header, Document(header, {(): (str(path), 0, 0)}))


def check_arrays(path: Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any] | None]) -> None:
    """Raise BadInput for arrays of other kinds, dimensions and ranges than :mod:`simulator.acceptance.trace` describes."""
    faults = [
        Fault((str(path), 0, 0), f"array {name}", message)
        for name, array in arrays.items()
        if array is not None
        for message in _wrong(name, array, header)
    ]
    if faults:
        raise BadInput(faults)


def _wrong(name: str, array: NDArray[Any], header: Mapping[str, Any]) -> Iterator[str]:
    kinds, dimensions = KINDS.get(name, "iuf"), DIMENSIONS.get(name, (1, 2) if "." in name else (1,))
    if array.dtype.kind not in kinds:
        words = "whole numbers" if kinds == "iu" else "fractions" if kinds == "f" else "numbers"
        yield f"expected {words}, holds {array.dtype}"
    elif array.ndim not in dimensions:
        yield f"expected {' or '.join(map(str, dimensions))} dimensions, has {array.ndim}"
    elif array.dtype.kind == "f" and not (np.isfinite(array).all() and (array >= 0).all()):
        yield "expected numbers of 0 or more, holds others"
    elif name == "offsets" and not (len(array) > 1 and array[0] == 0 and (np.diff(array) > 0).all()):
        yield "expected offsets that rise from 0"
    elif name == "offsets" and int(array[-1]) < len(array):
        yield "tells of no token behind the first of a request, which its prefill emits"
    elif "." in name and not array.size:
        yield "holds nothing"
    elif name == "flavour" and len(array) and int(array.max()) >= len(header["flavours"]):
        yield f"holds {int(array.max())}, and the header names {len(header['flavours'])} flavours"
    elif name == "exit_rank" and len(array) != len(header["exit_layers"]):
        yield f"has {len(array)} rows, and the header names {len(header['exit_layers'])} exits"
