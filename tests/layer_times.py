"""Times of a layer with the model's own heads, and a dense MLP or experts."""

from simulator.core.cost import kernels
from simulator.core.cost.kernels import LayerTime
from simulator.core.cost.mixer import LayerKind
from simulator.core.cost.placement import Placement
from simulator.core.cost.rows import Rows


def kind_of(place: Placement, experts: bool) -> LayerKind:
    experts = experts and place.model.experts is not None
    return LayerKind(
        place.model.attention, 0 if experts else place.model.intermediate_size, experts
    )


def layer_products(
    place: Placement, n: int, experts: bool, adapted: int = 0, read: float | None = None
) -> LayerTime:
    return kernels.layer_products(place, n, kind_of(place, experts), adapted, read)


def layer_time(place: Placement, rows: Rows, experts: bool) -> LayerTime:
    read = place.model.experts_read(rows)
    return layer_products(place, rows.tokens, experts, rows.adapted, read)._replace(
        attention=kernels.attention_timer(place)(rows)
    )
