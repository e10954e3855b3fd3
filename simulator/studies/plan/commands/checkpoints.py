"""Which checkpoint a command serves, and how its weights come into the format of the plan: as they
were published, from a repository in that format, or quantised while they are loaded.

``checkpoints.yaml`` lists repositories by format.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

from simulator.core.cost.model import ModelSpec
from simulator.core.cost.placement import Placement
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.shell import Comment, named_file
from simulator.scenario.bank import published

FILE = Path(__file__).with_name("checkpoints.yaml")
UNQUANTISED = ("bf16", "fp16", "fp32")
"""Formats that an engine casts into each other."""


class ServedCheckpoint(NamedTuple):
    """What a server loads."""

    name: str
    """Its id on Hugging Face, or the model's name where none is known."""
    options: Sequence[str]
    """What the program is told of its format."""
    words: str
    """Which checkpoint it is, in which format."""


@cache
def repositories() -> Mapping[str, Mapping[str, str]]:
    """Return the repositories of a model by format, by the model's first id on Hugging Face."""
    return dict(yaml.safe_load(FILE.read_text("utf-8"))["repositories"])


def published_as(model: ModelSpec) -> str:
    """Return the first id of a model on Hugging Face, or its name where none is known; never a word
    that looks like an option.
    """
    return next(iter(model.huggingface), named_file(model.name))


def known_repository(place: Placement) -> str:
    """Return the repository of a placement's model in the format of its weights: that which was
    named, where it is none of the model's own; else of the checkpoint that was named, or of the
    first of the model's that has one; empty for none.
    """
    if place.checkpoint and place.checkpoint not in place.model.huggingface:
        return place.checkpoint
    if place.checkpoint:
        bases: Sequence[str] = [place.checkpoint]
    else:
        bases = place.model.huggingface
    for base in bases:
        repository = repositories().get(base, {}).get(place.weights)
        if repository:
            return repository
    return ""


def served_checkpoint(place: Placement, formats: Mapping[str, Sequence[str]]) -> ServedCheckpoint:
    """Return the checkpoint of a placement; ``formats`` are a program's options for weights that
    are not stored as the plan has them, by format. A named repository that is none of the model's
    own is served as it is.
    """
    model = place.model
    weights = place.weights
    own = place.checkpoint or published_as(model)
    named = Comment(own)
    repository = known_repository(place)
    if not place.checkpoint and not model.huggingface:
        words = f"{named}, of which no id on Hugging Face is known here; put a folder in its place"
        return ServedCheckpoint(own, formats.get(weights, ()), words)
    quantised = {model.weight_format, model.expert_format} - {None, *UNQUANTISED}
    if weights in quantised and own in model.huggingface:
        return ServedCheckpoint(own, (), f"{named} as published, in {weights}")
    if repository:
        return ServedCheckpoint(repository, (), f"{Comment(repository)}, in {weights}")
    options = formats.get(weights, ())
    if weights in UNQUANTISED and options and model.weight_format in (None, *UNQUANTISED):
        return ServedCheckpoint(own, options, f"{named}, computed in {weights}")
    if options and not quantised:
        words = f"{named}, quantised to {weights} as it is loaded ({' '.join(options)})"
        return ServedCheckpoint(own, options, words)
    words = f"none in {weights} is known here; put its name in the place of {named}"
    return ServedCheckpoint(own, (), words)


def gguf_checkpoint(place: Placement, formats: Mapping[str, Sequence[str]]) -> ServedCheckpoint:
    """Return the file of a placement for llama.cpp, which has its format in itself."""
    own = place.checkpoint or published_as(place.model)
    file = named_file(f"{own.rpartition('/')[2]}.gguf")
    words = f"{Comment(file)}, {Comment(own)} in {place.weights}"
    return ServedCheckpoint(file, (), f"{words} (convert_hf_to_gguf.py, llama-quantize)")


class KnownHead(NamedTuple):
    """A head of which a mean is published."""

    name: str
    """Its id on Hugging Face; empty for none."""
    target: str
    """The id of the checkpoint that the mean is of."""


@cache
def known_head(checkpoints: tuple[str, ...], kind: str, catalogue: Catalogue) -> KnownHead:
    """Return a head of a kind that a published mean names for one of these checkpoints, the first
    of them that has any, of the user's own means and then of the shipped ones; an empty one for
    none.
    """
    heads: dict[str, str] = {}
    for target, mean in published(catalogue):
        if mean.method == kind and "/" in mean.draft:
            heads.setdefault(target, mean.draft)
    for checkpoint in checkpoints:
        if checkpoint in heads:
            return KnownHead(heads[checkpoint], checkpoint)
    return KnownHead("", "")
