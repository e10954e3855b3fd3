"""A trace file is checked before it is replayed: the types of its header, the shapes and ranges of
its arrays.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from simulator.core.acceptance.draft_tree import Beam, PrunedTree
from simulator.core.faults import BadInput, Fault
from simulator.core.plain import PlainData, PlainMapping
from simulator.inputs.document import Document
from simulator.inputs.loader import packaged
from simulator.inputs.schema import validate

MOST_FLAVOURS = 65_536
"""Kinds of text that a trace can distinguish; as many as requests, so that each can be called by a
name of its own.
"""
MOST_POSITIONS = 10_000_000
"""Most recorded tokens of a trace; four hundred times those of the largest that is shipped."""
ARRAYS: PlainData = packaged(Path(__file__).with_name("arrays.yaml"))
"""Types, shapes and meanings of the arrays of a trace."""
KINDS = {name: "f" if "float" in array["type"] else "iu" for name, array in ARRAYS["own"].items()}
"""Kinds of number that an array may hold, as numpy names them, by array."""
BEAMS = ("beam.rows", "beam.steps", "beam.hit")
"""Arrays of trees in a pipeline, all of them or none."""
NUMBERS = {"iu": "whole numbers", "f": "fractions", "iuf": "numbers"}
"""Kinds of number in words, as a fault names them."""


class _Open(BaseModel):
    """Base of the parts of a header: fields that are checked; recordings hold more."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False, strict=True)


class ModelShape(_Open):
    """A recorded model has this shape."""

    layers: int | None = Field(default=None, ge=1)
    """Number of decoder layers; null: not known."""
    vocabulary: int = Field(ge=1)
    """Number of tokens in the vocabulary."""


class Model(_Open):
    """A model was recorded; its fields are stated as far as they are known."""

    name: str | None = None
    """Name that its authors gave it."""
    parameters: int | None = Field(default=None, ge=0)
    """Number of all weights."""
    shape: ModelShape | None = None
    """Its shape; null: not known."""
    experts: dict[str, PositiveInt | list[int]] | None = None
    """Experts of a layer, those that a token takes, and recorded layers; null: none, or not
    known.
    """


class Header(_Open):
    """The header of a trace says what was recorded; ``format`` is checked before."""

    format: Literal[1, 2]
    """Version of the format: 2 for what was converted from other people's records."""
    vocabulary: int | None = Field(ge=1)
    """Number of tokens in the models' vocabulary; null: not known."""
    temperature: float | None = Field(ge=0)
    """Temperature at which the target's tokens were chosen; null: not known."""
    flavours: list[str] = Field(min_length=1, max_length=MOST_FLAVOURS)
    """Names of the kinds of text, by their number in ``flavour``."""
    exit_layers: list[int]
    """Layers of the target behind which its early exits were recorded."""
    models: dict[str, Model]
    """Target and drafters that were recorded, by role."""
    window: int | None = Field(default=None, ge=1)
    """Largest window, in draft tokens, that the record can answer for; null: any."""
    beams: list[Beam] = Field(default_factory=list)
    """Trees in a pipeline, in the order of the arrays ``beam.*``."""
    pruned_trees: list[PrunedTree] = Field(default_factory=list)
    """Pruned trees, in the order of ``streams_pruned.run``."""
    trees: dict[str, dict[str, PositiveInt]] = Field(default_factory=dict)
    """Static trees, by drafter."""
    scored_trees: dict[str, dict[Literal["paths"], str]] = Field(default_factory=dict)
    """Static trees of which the target scored every node, by drafter, as ``paths`` of a tree."""
    replay: str = ""
    """What a replay of the record is worth."""
    derived_from: PlainData = Field(default_factory=dict)
    """What a derived trace was made from."""


def check_header(path: Path, header: object) -> None:
    """Raise :class:`BadInput`, with one fault per field that is missing or of the wrong kind."""
    names = validate(Header, Document(header, {(): (str(path), 0, 0)})).flavours
    if len(set(names)) < len(names):
        raise BadInput.at(path, "expected a name once, got one twice", "flavours")


def check_arrays(
    path: Path, header: PlainMapping, arrays: Mapping[str, NDArray[Any] | None]
) -> None:
    """Raise :class:`BadInput` for arrays that are not as :mod:`simulator.core.acceptance.trace`
    describes them.
    """
    faults = []
    missing = [name for name in BEAMS if name not in arrays]
    if 0 < len(missing) < len(BEAMS):
        message = "is missing beside the others of its trees"
        faults.append(Fault((str(path), 0, 0), f"array {missing[0]}", message))
    for name, array in arrays.items():
        if array is None:
            continue
        message = _wrong(name, array, header)
        if message:
            faults.append(Fault((str(path), 0, 0), f"array {name}", message))
    if faults:
        raise BadInput(faults)


def _wrong(name: str, array: NDArray[Any], header: PlainMapping) -> str:
    """Return the first thing that is wrong with an array; empty where nothing is."""
    message = _wrong_numbers(name, array)
    if message:
        return message
    if name == "offsets":
        return _wrong_offsets(array)
    if name == "flavour":
        return _wrong_flavours(array, len(header["flavours"]))
    return _wrong_rows(name, array, header)


def _wrong_numbers(name: str, array: NDArray[Any]) -> str:
    """Return what is wrong with the kind of an array's numbers, its dimensions, or its fractions'
    range.
    """
    kinds = KINDS.get(name, "iuf")
    if array.dtype.kind not in kinds:
        return f"expected {NUMBERS[kinds]}, holds {array.dtype}"
    of_drafters = (1, 2) if "." in name else (1,)
    dimensions = ARRAYS["dimensions"].get(name, of_drafters)
    if array.ndim not in dimensions:
        return f"expected {' or '.join(map(str, dimensions))} dimensions, has {array.ndim}"
    if array.dtype.kind == "f":
        usable = np.isfinite(array).all() and (array >= 0).all()
        if not usable:
            return "expected numbers of 0 or more, holds negative or infinite ones"
    return ""


def _wrong_offsets(offsets: NDArray[Any]) -> str:
    """Return what is wrong with the starts of requests, of which the last is the end of all."""
    if len(offsets) < 2 or offsets[0] != 0 or (np.diff(offsets) <= 0).any():
        return "expected offsets that rise from 0"
    positions = int(offsets[-1])
    if positions > MOST_POSITIONS:
        return f"holds {positions:,} positions; expected at most {MOST_POSITIONS:,}"
    if positions < len(offsets):
        return "holds no token behind the first of a request, which its prefill emits"
    return ""


def _wrong_flavours(flavours: NDArray[Any], names: int) -> str:
    """Return what is wrong with the kinds of text of the requests, of which the header has so many
    ``names``.
    """
    if len(flavours) and int(flavours.max()) >= names:
        return f"holds {int(flavours.max())}, and the header names {names} flavours"
    distinct = len(np.unique(flavours))
    if distinct < names:
        return f"holds {distinct:,} flavours, and the header names {names:,}"
    return ""


def _wrong_rows(name: str, array: NDArray[Any], header: PlainMapping) -> str:
    """Return what is wrong with an array whose rows the header may name."""
    if "." in name and not array.size:
        return "holds nothing"
    listed = ARRAYS["listed"].get(name)
    if listed:
        names = len(header.get(listed, ()))
        if len(array) != names:
            return f"has {len(array)} rows, and the header names {names} {listed}"
    if name == "beam.rows":
        return _wrong_beam_rows(array, header["beams"])
    return ""


def _wrong_beam_rows(rows: NDArray[Any], beams: Sequence[PlainMapping]) -> str:
    """Return what is wrong with the rows that the trees of a pipeline have at each stage."""
    for rows_of_beam, beam in zip(rows, beams, strict=True):
        if rows_of_beam.max() > beam["width"]:
            return "holds more rows of a level than its beam is wide"
    if rows.shape[1] < max(beam["stages"] for beam in beams):
        return "holds fewer levels than a beam has stages"
    return ""
