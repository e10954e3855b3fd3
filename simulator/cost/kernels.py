"""Kernels take device time: here are the seconds of a layer's products, of attention, of the LM head and of collectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from simulator.cost.model import WEIGHT_BYTES
from simulator.cost.partition import ACTIVATION_BYTES
from simulator.cost.placement import Placement
from simulator.cost.rows import Rows


class LayerTime(NamedTuple):
    """One layer takes these seconds on the device, by operation group."""

    qkv: float
    """Query, key and value projections."""
    attention: float
    """Attention over the cache."""
    output: float
    """Output projection of the attention."""
    mlp: float
    """Matrices of the MLP, or of the experts."""
    small: float
    """Norms, activations, rotations."""


def attention_timer(place: Placement) -> Callable[[Rows], Any]:
    """Return a function from rows to the seconds of attention in one layer, on one of the tensor-parallel ranks."""
    model, ranks = place.model, place.tensor_parallel
    cached = model.kv_bytes_per_layer() * place.engine.kv_traffic(model.num_attention_heads // model.num_key_value_heads)
    pair, seconds = 4.0 * model.query_width, place.device.timer(place.device.attention)
    return lambda rows: seconds(rows.kv_tokens * cached / ranks, rows.attention_pairs * pair / ranks, rows.tokens)


def layer_time(place: Placement, rows: Rows, experts: bool) -> LayerTime:
    """Return the seconds of one layer over ``rows``, by operation group, on one of the tensor-parallel ranks."""
    return layer_products(place, rows.tokens, experts, rows.adapted)._replace(attention=attention_timer(place)(rows))


def layer_products(place: Placement, n: int, experts: bool, adapted: int = 0) -> LayerTime:
    """Return the seconds of one layer that depend on its ``n`` rows alone: all but attention, which is left at zero.

    ``adapted`` of the rows do not pass the MLP; ``experts``: the MLP is a mixture of experts.
    """
    model, device, ranks = place.model, place.device, place.tensor_parallel

    def product(weights: float, width: float, tokens: float) -> float:
        size = weights * WEIGHT_BYTES[place.weights] + tokens * width * ACTIVATION_BYTES
        return device.seconds(device.matmul_for(place.weights), size / ranks, 2.0 * tokens * weights / ranks, tokens)

    hidden, ff, full = model.hidden_size, model.intermediate_size, n - adapted
    mlp_width = hidden + ff * (2 if model.mlp == "gated" else 1)
    if experts and model.experts:
        touched, expert = model.experts.touched(full), model.expert_weights
        expert_tokens = max(1.0, full * model.experts.per_token / touched)
        mlp = product(touched * expert, hidden + 3 * model.experts.intermediate_size, expert_tokens)
        if model.experts.shared:
            mlp += product(model.experts.shared * expert, hidden + 3 * model.experts.intermediate_size, full)
    else:
        mlp = product(model.up_weights, mlp_width, full) + product(model.down_weights, ff + hidden, full)
    stream = hidden / ranks if place.collectives.per == "pass" else hidden  # tracks of an SPD draft have their own
    widths = n * (8 * stream + 2 * (model.query_width + 2 * model.kv_width) / ranks) + full * 3 * ff / ranks
    small_bytes = ACTIVATION_BYTES * widths
    small = device.seconds(device.small_operations, small_bytes, 0.0, n) * place.engine.small_operations_ratio.value
    return LayerTime(
        qkv=product(model.qkv_weights, hidden + model.query_width + 2 * model.kv_width, n),
        attention=0.0,
        output=product(model.output_weights, model.query_width + hidden, n),
        mlp=mlp,
        small=small,
    )


def side_product_time(place: Placement, tokens: int, width: int) -> float:
    """Return the seconds of the product of ``tokens`` rows with one h x ``width`` matrix."""
    hidden, ranks = place.model.hidden_size, place.tensor_parallel
    weights = hidden * width
    size = weights * WEIGHT_BYTES[place.weights] + tokens * (hidden + width) * ACTIVATION_BYTES
    return place.device.seconds(place.device.matmul_for(place.weights), size / ranks, 2.0 * tokens * weights / ranks, tokens)


def head_time(place: Placement, logit_rows: int) -> float:
    """Return the seconds of the LM head over ``logit_rows`` and of sampling from its logits; 0 without rows."""
    if not logit_rows:
        return 0.0
    model, device = place.model, place.device
    size = (
        model.head_weights * WEIGHT_BYTES[place.weights]
        + logit_rows * (model.hidden_size + model.vocab_size) * ACTIVATION_BYTES
    )
    flops = 2.0 * logit_rows * model.head_weights
    head = device.seconds(
        device.matmul_for(place.weights), size / place.tensor_parallel, flops / place.tensor_parallel, logit_rows
    )
    return head + place.engine.sampling_us.value * 1e-6


def all_reduce_time(place: Placement, tokens: int) -> float:
    """Return the seconds of one all-reduce over the activations of ``tokens``; 0 on one rank."""
    if place.tensor_parallel == 1 or not place.collectives.count or place.link is None:
        return 0.0
    size = tokens * place.model.hidden_size * ACTIVATION_BYTES
    form = getattr(place.link.all_reduce, place.collectives.form)
    return float(form.seconds(size, place.tensor_parallel))
