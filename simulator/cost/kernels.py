"""Kernels take device time: here are the seconds of a layer's products, of attention, of the LM head and of collectives."""

from collections.abc import Callable
from math import inf, log, sqrt
from typing import Any, NamedTuple

from simulator.cost.device import Attention
from simulator.cost.formats import ACTIVATION_BYTES, CACHE_BYTES
from simulator.cost.placement import Placement
from simulator.cost.rows import Rows


def computes_longer_than_it_reads(place: Placement) -> bool:
    """Return whether a weight takes longer to multiply with one row than to read: no decoding that was measured is so."""
    device, form = place.device, place.device.number_format(place.weights)
    product = device.matmul_for(place.weights)
    peak = device.peaks_tflops.get(form.arithmetic, device.peak_tflops).value * 1e12 * product.compute_efficiency.value
    bandwidth = device.memory_bandwidth_gb_s.value * 1e9 * product.memory_efficiency.value
    return 2.0 * product.tiled(1) / peak > form.weight_bytes / bandwidth


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
    model, ranks, device = place.model, place.tensor_parallel, place.device
    traffic = place.engine.kv_traffic(model.num_attention_heads // model.num_key_value_heads)
    cached = model.kv_bytes_per_layer(CACHE_BYTES[place.kv_cache]) * traffic
    pair = 4.0 * model.query_width
    if isinstance(device.attention, Attention):
        return _attention_in_parts(place, device.attention, cached / ranks, pair / ranks)
    seconds = device.timer(device.attention)
    return lambda rows: seconds(rows.kv_tokens * cached / ranks, rows.attention_pairs * pair / ranks, rows.tokens)


def _attention_in_parts(place: Placement, attention: Attention, cached: float, pair: float) -> Callable[[Rows], Any]:
    """Return a function from rows to seconds; a token has ``cached`` bytes on a rank, a query-key pair ``pair`` flops.

    Prompts are priced by ``prefill``, all other rows by ``decode``, with ``extra_row`` for those of a verification.
    """
    model, parts = place.model, attention.over(place.kv_cache)
    decode, prefill, extra = place.device.timer(parts.decode), place.device.timer(parts.prefill), attention.extra_row.value
    heads = max(1.0, model.num_key_value_heads / place.tensor_parallel)
    query_and_output = 2.0 * ACTIVATION_BYTES * model.query_width / place.tensor_parallel

    def seconds(rows: Rows) -> Any:
        total: Any = 0.0
        if rows.prompt_tokens:
            size = rows.prompt_kv_tokens * cached + rows.prompt_tokens * query_and_output
            total = prefill(size, rows.prompt_pairs * pair, rows.prompt_tokens)
        if tokens := rows.tokens - rows.prompt_tokens:
            sequences = max(1, rows.sequences - rows.prompt_sequences)
            size = (rows.kv_tokens - rows.prompt_kv_tokens) * cached + tokens * query_and_output
            flops = (rows.attention_pairs - rows.prompt_pairs) * pair
            verifying = 1.0 + extra * max(0.0, tokens / sequences - 1.0)
            total = total + decode(size, flops, tokens, sequences * heads) * verifying
        return total

    return seconds


def product_timer(place: Placement, weight_format: str) -> Callable[..., float]:
    """Return a function (inputs, outputs, rows, weights) to the seconds of a product on one of the tensor-parallel ranks.

    Every row has so many inputs and outputs over all ranks; ``weights`` are inputs times outputs by default.
    """
    device, ranks, form = place.device, place.tensor_parallel, place.device.number_format(weight_format)
    timed = device.timer(device.matmul_for(weight_format), form.arithmetic, place.in_cache)

    def seconds(inputs: float, outputs: float, rows: float, weights: float | None = None) -> float:
        weights = inputs * outputs if weights is None else weights
        size = form.product_bytes(inputs, outputs, rows, weights)
        taken: float = timed(size / ranks, 2.0 * rows * weights / ranks, rows)
        return taken

    return seconds


def layer_time(place: Placement, rows: Rows, experts: bool) -> LayerTime:
    """Return the seconds of one layer over ``rows``, by operation group, on one of the tensor-parallel ranks."""
    products = layer_products(place, rows.tokens, experts, rows.adapted, place.model.independent_rows(rows))
    return products._replace(attention=attention_timer(place)(rows))


def layer_products(place: Placement, n: int, experts: bool, adapted: int = 0, independent: float | None = None) -> LayerTime:
    """Return the seconds of one layer that depend on its ``n`` rows alone: all but attention, which is left at zero.

    ``adapted`` of the rows do not pass the MLP; ``experts``: the MLP is a mixture of experts, of which the rows read as many
    as ``independent`` ones, by default each its own.
    """
    model, device, ranks = place.model, place.device, place.tensor_parallel
    product = product_timer(place, place.weights)
    hidden, ff, full = model.hidden_size, model.intermediate_size, n - adapted
    if experts and model.experts:
        inner = model.experts.intermediate_size
        mlp = experts_time(place, full, full if independent is None else min(independent, full))
        if model.experts.shared:
            mlp += product(hidden + inner, 2 * inner, full, model.experts.shared * model.expert_weights)
    else:
        mlp = product(hidden, model.up_weights // hidden, full) + product(ff, hidden, full)
    stream = hidden / ranks if place.collectives.per == "pass" else hidden  # tracks of an SPD draft have their own
    widths = n * (8 * stream + 2 * (model.query_width + 2 * model.kv_width) / ranks) + full * 3 * ff / ranks
    small_bytes = ACTIVATION_BYTES * widths
    small = device.seconds(device.small_operations, small_bytes, 0.0, n) * place.engine.small_operations_ratio.value
    return LayerTime(
        qkv=product(hidden, model.query_width + 2 * model.kv_width, n),
        attention=0.0,
        output=product(model.query_width, hidden, n),
        mlp=mlp,
        small=small,
    )


def experts_time(place: Placement, rows: int, independent: float) -> float:
    """Return the seconds of router and routed experts of a layer, whose ``rows`` read as many as ``independent`` ones.

    It is that of the busiest rank where ranks hold whole experts. On a device without a fit for experts it is one product over
    all experts read, each with its share of the rows, and no router.
    """
    model, experts, ranks, device = place.model, place.model.experts, place.tensor_parallel, place.device
    if experts is None:
        return 0.0
    sliced, touched, pairs = place.experts == "sliced", experts.touched(independent), float(rows * experts.per_token)
    hidden, weights, inner = model.hidden_size, float(model.expert_weights), float(experts.intermediate_size)
    if not sliced:
        touched, pairs = min(busiest(touched, ranks, experts.routed), experts.routed / ranks), busiest(pairs, ranks)
    curve, form, each = device.experts_for(place.weights), device.number_format(place.weights), max(1.0, pairs / touched)
    if curve is None:  # product_timer takes a slice of every weight
        whole = touched * weights * (1 if sliced else ranks)
        return product_timer(place, place.weights)(hidden + inner, 2 * inner, each, whole)
    if sliced:
        inner, weights = inner / ranks, weights / ranks
    size = touched * weights * form.weight_bytes + curve.pair_bytes(pairs, hidden + inner)
    seconds: float = device.timer(curve, form.arithmetic)(size, 2.0 * pairs * weights, each)
    undivided = place.model_copy(update={"tensor_parallel": 1})  # every device routes all rows
    router = product_timer(undivided, place.table_format)(hidden, experts.routed, rows)
    return seconds + float(curve.beside_s(touched, hidden + inner)) + router


def busiest(items: float, ranks: int, of: float = inf) -> float:
    """Return how many of some ``items``, out of at most ``of``, the busiest of the ranks gets where each falls on any of them.

    The largest of G normal numbers of the binomial's mean and variance: m + sqrt(2 ln G m (1 - items/of)), never above all.
    """
    mean = items / ranks
    return min(items, mean + sqrt(2.0 * log(ranks) * mean * (1.0 - min(1.0, items / of))))


def exchange_time(place: Placement, rows: int) -> float:
    """Return the seconds that a layer of experts takes beyond its all-reduces to send ``rows`` to their experts and back.

    Every rank sends its share of the rows in 8 bits to each of their experts and gets them back in 16 bits (DeepEP), instead of
    summing the layer's output over the ranks; 0 where rows are not sent.
    """
    experts, exchange = place.model.experts, place.link.all_to_all if place.link else None
    if experts is None or exchange is None or place.experts != "dispatched" or place.tensor_parallel == 1:
        return 0.0
    values = -(-rows // place.tensor_parallel) * experts.per_token * place.model.hidden_size
    sent = exchange.dispatch.seconds(values, place.tensor_parallel) + exchange.combine.seconds(
        values * ACTIVATION_BYTES, place.tensor_parallel
    )
    return sent - all_reduce_time(place, rows)


def side_product_time(place: Placement, tokens: int, width: int) -> float:
    """Return the seconds of the product of ``tokens`` rows with one h x ``width`` matrix."""
    return product_timer(place, place.weights)(place.model.hidden_size, width, tokens)


def head_time(place: Placement, logit_rows: int) -> float:
    """Return the seconds of the LM head over ``logit_rows`` and of sampling from its logits; 0 without rows."""
    if not logit_rows:
        return 0.0
    model = place.model
    head = product_timer(place, place.table_format)(model.hidden_size, model.vocab_size, logit_rows, model.head_weights)
    return head + place.engine.sampling_us.value * 1e-6


def all_reduce_time(place: Placement, tokens: int) -> float:
    """Return the seconds of one all-reduce over the activations of ``tokens``; 0 on one rank."""
    form = place.all_reduce_form()
    if form is None or not place.collectives.count:
        return 0.0
    return form.seconds(tokens * place.model.hidden_size * ACTIVATION_BYTES, place.tensor_parallel)
