"""What fitted numbers were fitted on: facts alone. How much less is known beyond it is judged by
:mod:`simulator.scenario.uncertain.distance`.
"""

from math import log2
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from simulator.core.cost.formats import WeightFormat
from simulator.core.cost.model import ModelSpec
from simulator.core.quantities import Frozen

Drafting = Literal["draft_model", "head", "tree", "look_up"]
"""How drafts come about: a chain of a draft model or of a head, a tree that is built on the host, a
look-up.
"""
ModelKind = Literal["dense", "experts", "hybrid"]
"""What a model has beside attention and one product after the other: a mixture of experts, layers
of linear attention.
"""


def _ascending(ends: tuple[int, int]) -> tuple[int, int]:
    if ends[0] > ends[1]:
        raise ValueError(f"expected the lower end first, got {list(ends)}")
    return ends


Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Ends = Annotated[tuple[Count, Count], AfterValidator(_ascending)]
"""The least and the most of what was measured."""


class Hull(Frozen):
    """The hull of the measurements that decided fitted numbers; what it does not state is not known
    to matter to them.
    """

    batch: Ends | None = None
    """Requests that decoded together."""
    rows: Ends | None = None
    """Rows of a pass: of one request in a verification, where an engine was fitted; all rows of a
    product, where a device was.
    """
    ranks: Ends | None = None
    """Devices that shared every layer."""
    context: Ends | None = None
    """Tokens in the cache of a request."""
    kinds: tuple[ModelKind, ...] = ()
    """Kinds of models that ran."""
    models: tuple[str, ...] = ()
    """Names of the targets that ran."""
    formats: tuple[WeightFormat, ...] = ()
    """Formats of the weights of the targets."""
    drafting: tuple[Drafting, ...] = ()
    """How drafts came about."""


def doublings(value: float, ends: Ends | None) -> float:
    """Return how many times a number has to be halved, or doubled, to lie between two ends; 0
    within them, and where none are known.
    """
    if ends is None or value <= 0.0:
        return 0.0
    low, high = ends
    return max(0.0, log2(value / high), log2(low / value))


def kinds_of(model: ModelSpec) -> frozenset[ModelKind]:
    """Return what kind of model it is; a hybrid with experts is both."""
    kinds = set[ModelKind]()
    if model.experts is not None:
        kinds.add("experts")
    if any(mixer.kind == "linear" for mixer, _ in model.mixer_layers):
        kinds.add("hybrid")
    return frozenset(kinds or {"dense"})
