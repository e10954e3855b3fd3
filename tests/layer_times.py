"""Times of a layer with the model's own heads, and a dense MLP or experts."""

from simulator.cost import kernels
from simulator.cost.kernels import LayerTime
from simulator.cost.mixer import LayerKind
from simulator.cost.placement import Placement
from simulator.cost.rows import Rows


def kind_of(place: Placement, experts: bool) -> LayerKind:
    experts = experts and place.model.experts is not None
    return LayerKind(place.model.attention, 0 if experts else place.model.intermediate_size, experts)


def layer_products(place: Placement, n: int, experts: bool, adapted: int = 0, independent: float | None = None) -> LayerTime:
    return kernels.layer_products(place, n, kind_of(place, experts), adapted, independent)


def layer_time(place: Placement, rows: Rows, experts: bool) -> LayerTime:
    independent = place.model.independent_rows(rows)
    return layer_products(place, rows.tokens, experts, rows.adapted, independent)._replace(
        attention=kernels.attention_timer(place)(rows)
    )
