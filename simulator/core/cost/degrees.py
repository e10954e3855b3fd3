"""Degrees of tensor parallelism: with which an engine starts a model, and why it does not with
others.

A degree shares every layer out over so many ranks. It has to divide heads and widths, its slices
may not cut blocks of weights that share a scale where the engine refuses that, and all of its
devices need a link. Nothing here takes time: a degree that cannot start has none.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple, Protocol, Self

from simulator.core.cost.device import Link
from simulator.core.cost.engine import Engine
from simulator.core.cost.formats import FORMATS, WeightFormat
from simulator.core.cost.model import ModelSpec
from simulator.core.plain import PlainMapping

MOST_DEGREES = 64
"""Degrees that are tried where no link limits them."""
Of = Literal["products", "experts"]


class Placed(Protocol):
    """A placement, as far as its degree goes."""

    @property
    def model(self) -> ModelSpec:
        """Return the model that runs."""

    @property
    def engine(self) -> Engine:
        """Return the software that runs it."""

    @property
    def link(self) -> Link | None:
        """Return the link between its devices."""

    @property
    def network(self) -> Link | None:
        """Return the link between servers."""

    @property
    def tensor_parallel(self) -> int:
        """Return the number of devices that share every layer."""

    @property
    def attention(self) -> Literal["tensor_parallel", "data_parallel"]:
        """Return whether devices share every request's attention, or the requests."""

    @property
    def experts(self) -> Literal["sliced", "whole", "dispatched"]:
        """Return what a device has of a mixture."""

    @property
    def weights(self) -> WeightFormat:
        """Return the format of the weights."""

    @property
    def expert_format(self) -> WeightFormat:
        """Return the format of routed experts."""

    def model_copy(self, *, update: PlainMapping) -> Self:
        """Return a placement with something changed."""


class Slice(NamedTuple):
    """A rank's part of one side of a weight."""

    what: str
    """What it is a part of, in words."""
    whole: int
    """Width of all ranks together, or of all copies."""
    ranks: int
    """Ranks that share the width out."""
    sides: tuple[int, ...]
    """The sides of a block that lie along it: 0 for outputs of a product, 1 for its inputs."""
    of: Of = "products"

    @property
    def width(self) -> float:
        """Return the width that a rank has; not always whole."""
        return self.whole / self.ranks


def refusal(place: Placed) -> str:
    """Return why a placement's degree cannot start, and which degrees do, in words; empty where it
    can.
    """
    if place.tensor_parallel == 1 and not {place.weights, place.expert_format} & {
        *(place.engine.slicing.whole_blocks or ())
    }:
        return ""
    why = next(refusals(place, place.tensor_parallel), "")
    if why:
        return f"{why}; {working_words(place)}"
    return ""


def refusals(place: Placed, ranks: int) -> Iterator[str]:
    """Yield why a placement's model does not start on so many ranks, each in words."""
    yield from _beyond_link(place, ranks)
    yield from _unshared_heads(place, ranks)
    if place.model.experts and place.experts != "sliced":
        yield from _homeless_experts(place, ranks)
    slicing = place.engine.slicing
    if not slicing.even:
        return
    for part in _slices(place, ranks):
        if part.whole % part.ranks:
            yield f"tensor_parallel {ranks} does not divide {part.what} of {place.model.name}"
        else:
            yield from _cut_block(place, ranks, part)
    rows = -(-place.model.vocab_size // slicing.vocabulary_multiple) * slicing.vocabulary_multiple
    if slicing.vocabulary_multiple > 1 and rows % ranks:
        yield (
            f"tensor_parallel {ranks} does not divide the {rows:,} rows to which "
            f"{place.engine.name} pads the vocabulary of {place.model.name}"
        )


def working(place: Placed) -> list[int]:
    """Return the degrees with which a placement's model starts, as many as its link joins; whether
    it fits is not asked.
    """
    return [ranks for ranks in range(1, most_degrees(place) + 1) if not any(refusals(place, ranks))]


def working_words(place: Placed) -> str:
    """Return the degrees that work in words, and those that would with whole experts."""
    degrees = working(place)
    if degrees:
        words = f"tensor_parallel {_either(degrees)} works"
    else:
        words = "no degree works with this link, engine and format"
    if place.model.experts and place.experts == "sliced":
        whole = working(place.model_copy(update={"experts": "whole"}))
        if more := [ranks for ranks in whole if ranks not in degrees]:
            words += f", and with experts: whole (expert parallel) {_either(more)} too"
    return words


def most_degrees(place: Placed) -> int:
    """Return the highest degree that is worth trying: as many devices as its link joins."""
    if place.link is None or place.link.server_devices is None or place.network is not None:
        return max(MOST_DEGREES, place.tensor_parallel)
    return int(place.link.server_devices.value)


def unknown_blocks(place: Placed) -> str:
    """Return the slice of a quantised weight that ends within a block, where nobody knows whether
    the engine starts so.
    """
    if place.engine.slicing.whole_blocks is not None or not place.engine.slicing.even:
        return ""
    return next(
        (words for part in _slices(place, place.tensor_parallel) for words in _cuts(place, part)),
        "",
    )


def _beyond_link(place: Placed, ranks: int) -> Iterator[str]:
    """Yield why a link does not join so many devices."""
    if ranks == 1 or place.link is None or place.link.server_devices is None:
        return
    joined = int(place.link.server_devices.value)
    if ranks <= joined:
        return
    if place.network is None:
        yield (
            f"tensor_parallel {ranks} is more than the {joined} devices of one server that "
            f"{place.link.name} joins; state "
            f"network, the link between servers (as in network: infiniband_ndr), to have it priced"
        )
    elif ranks % joined:
        yield (
            f"tensor_parallel {ranks} does not fill servers of {joined} devices, which "
            f"{place.link.name} joins"
        )


def _unshared_heads(place: Placed, ranks: int) -> Iterator[str]:
    """Yield why heads cannot be shared out: all of a rank's are whole, and heads of keys and values
    fewer than ranks copied.
    """
    if place.attention == "data_parallel":
        return
    heads = place.model.num_attention_heads
    name = place.model.name
    if heads % ranks:
        yield f"tensor_parallel {ranks} does not divide the {heads} attention heads of {name}"
        return
    for mixer, _ in place.model.mixer_layers:
        cached = mixer.cache_heads
        if (
            place.engine.slicing.whole_heads
            and mixer.cached
            and max(cached, ranks) % min(cached, ranks)
        ):
            yield (
                f"tensor_parallel {ranks} neither divides the {cached} heads of keys and values "
                f"of {name} nor is a multiple of them"
            )
            return


def _homeless_experts(place: Placed, ranks: int) -> Iterator[str]:
    """Yield why whole experts cannot be dealt out: a rank without any, or, where rows are sent, one
    with fewer than another.
    """
    routed = place.model.experts.routed if place.model.experts else 0
    if ranks > routed:
        yield (
            f"tensor_parallel {ranks} is more than the {routed} experts of {place.model.name}, "
            "which stay whole"
        )
    elif place.experts == "dispatched" and routed % ranks:
        yield (
            f"tensor_parallel {ranks} does not divide the {routed} experts of "
            f"{place.model.name} that rows are sent to"
        )


def _slices(place: Placed, ranks: int) -> Iterator[Slice]:
    """Yield what every rank has of the widths of a model."""
    model = place.model
    of_mixers = ranks if place.attention == "tensor_parallel" else 1
    for kind in model.kinds():
        if kind.mixer is not None:
            value = kind.mixer.value_width
            yield Slice(f"the {value:,} values that attention yields", value, of_mixers, (1,))
        # of others, keys and values may differ in width
        if kind.mixer == model.attention and kind.mixer.kind == "full":
            heads = model.num_key_value_heads
            yield Slice(
                f"the {model.kv_width:,} columns of the keys",
                model.kv_width,
                min(of_mixers, heads),
                (0,),
            )
        if width := kind.intermediate_size:
            yield Slice(f"the {width:,} columns of the MLP", width, ranks, (0, 1))
        if kind.experts and model.experts:
            inner = model.experts.intermediate_size
            yield Slice(
                f"the {inner:,} columns of an expert",
                inner,
                ranks if place.experts == "sliced" else 1,
                (0, 1),
                "experts",
            )
            if model.experts.shared:
                shared = inner * model.experts.shared
                yield Slice(f"the {shared:,} columns of the shared experts", shared, ranks, (0, 1))


def _cut_block(place: Placed, ranks: int, part: Slice) -> Iterator[str]:
    """Yield why a slice ends within a block of the format, where the engine does not start so."""
    refused = place.engine.slicing.whole_blocks or ()
    if (place.expert_format if part.of == "experts" else place.weights) in refused:
        yield from (
            f"tensor_parallel {ranks} {words}, and {place.engine.name} does not start"
            for words in _cuts(place, part)
        )


def _cuts(place: Placed, part: Slice) -> Iterator[str]:
    """Yield that a slice ends within a block, in words."""
    stored = place.expert_format if part.of == "experts" else place.weights
    sides = list(FORMATS[stored].block)
    if part.of == "experts" and stored in place.engine.slicing.expert_groups:
        sides[1] = place.engine.slicing.expert_groups[stored]
    block = max(sides[side] for side in part.sides)
    if part.width % block:
        if part.ranks > 1:
            how = f"cuts {part.what} into {part.width:,.0f}"
        else:
            how = f"has {part.what}"
        yield f"{how}, no multiple of the {block} that share a scale in {stored}"


def _either(degrees: list[int]) -> str:
    """Return degrees in words, as in ``1, 2 or 4``."""
    *most, last = map(str, degrees)
    if most:
        return f"{', '.join(most)} or {last}"
    return last
