"""Kernels take device time: here are the seconds of a layer's products, of attention, of the LM
head and of collectives.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from math import ceil, inf, log, sqrt
from typing import Literal, NamedTuple

from simulator.core.cost.device import Device
from simulator.core.cost.formats import (
    ACTIVATION_BYTES,
    CACHE_BYTES,
    FORMATS,
    Arithmetic,
    NumberFormat,
)
from simulator.core.cost.mixer import INDEX_BYTES, LayerKind, Mixer
from simulator.core.cost.placement import Group, Placement
from simulator.core.cost.roofline import (
    Attention,
    AttentionRoofline,
    CachedHeads,
    ExpertRoofline,
    Roofline,
    WidthPoint,
)
from simulator.core.cost.row_costs import AnyRows, MeasuredRows
from simulator.core.cost.rows import Rows
from simulator.core.numeric import Numbers
from simulator.core.quantities import Open

MOST_ROWS = 1 << 22
"""Rows up to which the cost of further ones goes on in a line."""
TIMED = 4_096
"""Products, numbers of rows of an LM head, and sizes of a call of attention for which what
does not depend on the context is kept.
"""
STATE_FLOPS = 7.0
"""Flops of a row for each value of a state: decay, correction, outer product and query (gated delta
rule; Mamba-2 needs 5).
"""


def computes_longer_than_it_reads(place: Placement) -> bool:
    """Return whether a weight takes longer to multiply with one row than to read: no decoding that
    was measured is so.
    """
    device = place.device
    form = place.number_format("blocks")
    product = device.matmul_for(place.weights)
    peak_tflops = device.peaks_tflops.get(form.arithmetic, device.peak_tflops).value
    peak = peak_tflops * 1e12 * product.compute_efficiency.value
    bandwidth = device.memory_bandwidth_gb_s.value * 1e9 * product.memory_efficiency.value
    compute_s = 2.0 * product.tiled(1) / peak
    read_s = form.weight_bytes / bandwidth
    return compute_s > read_s


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


def attention_timer(place: Placement, mixer: Mixer | None = None) -> Callable[[Rows], Numbers]:
    """Return a function from rows to the seconds of a mixer in one layer, on one of its ranks; by
    default the model's heads.

    Kinds of attention differ in what their queries see, and in bytes and flops; the curves are
    those of the device's attention.
    """
    model = place.model
    ranks = place.mixer_ranks
    device = place.device
    mixer = mixer or model.attention
    if mixer.kind == "linear":
        return _state_timer(place, mixer)
    group = model.num_attention_heads // model.num_key_value_heads
    traffic = place.engine.kv_traffic(group)
    cached = mixer.cached * CACHE_BYTES[place.kv_cache] * traffic * mixer.copies(ranks)
    attention = device.attention_for("latent_attention" if mixer.widened else "attention")
    if isinstance(attention, Attention):
        attend = _attention_in_parts(place, attention, mixer, cached / ranks)
    else:
        whole = device.timers(attention)
        pair = mixer.pair_flops / ranks
        widened = (mixer.prompt_pair_flops or mixer.pair_flops) / ranks - pair

        def attend(rows: Rows) -> Numbers:
            flops = rows.attention_pairs * pair + rows.prompt_pairs * widened
            return whole(rows.tokens)(rows.kv_tokens * cached / ranks, flops)

    if mixer.sees_all and not mixer.index_width:
        return attend
    index = _index_timer(place, mixer)
    return lambda rows: attend(mixer.seen(rows)) + index(rows)


def _index_timer(place: Placement, mixer: Mixer) -> Callable[[Rows], Numbers]:
    """Return a function from rows to the seconds in which an indexer reads its keys of the context;
    0 without one.
    """
    seconds = place.device.timers(place.decode_attention)
    every = mixer.entry_tokens
    size = mixer.index_width * INDEX_BYTES / every
    pair = 2.0 * mixer.index_heads * mixer.index_width / every

    def index_seconds(rows: Rows) -> Numbers:
        if not size:
            return 0.0
        return seconds(rows.tokens)(rows.kv_tokens * size, rows.attention_pairs * pair)

    return index_seconds


def _state_timer(place: Placement, mixer: Mixer) -> Callable[[Rows], Numbers]:
    """Return a function from rows to the seconds of a recurrence: a state is read once and written
    after every row.

    A verification writes a state for each of its rows, to go on from the last one that is kept; a
    prompt writes the last. Memory and peak are reached as by products in 16 bits, without their
    tiles.
    """
    product = place.device.matmul_for("bf16")
    ranks = place.mixer_ranks
    seconds = place.device.timer(product)
    moved = 2.0 * ACTIVATION_BYTES * mixer.value_width / ranks
    flops = STATE_FLOPS * mixer.state / ranks / product.tiled(1)

    def state_seconds(rows: Rows) -> Numbers:
        states = rows.sequences + rows.tokens - rows.prompt_tokens + rows.prompt_sequences
        size = states * mixer.state_bytes / ranks + rows.tokens * moved
        return seconds(size, rows.tokens * flops, 1)

    return state_seconds


def _attention_in_parts(
    place: Placement, attention: Attention, mixer: Mixer, cached: float
) -> Callable[[Rows], Numbers]:
    """Return a function from rows to seconds; an entry of the cache has ``cached`` bytes on a rank.

    Prompts are priced by ``prefill``, all other rows by ``decode``, with ``extra_row`` for those of
    a verification.
    """
    ranks = place.mixer_ranks
    parts = attention.over(place.kv_cache)
    pair = mixer.pair_flops / ranks
    prompt_pair = pair if mixer.prompt_pair_flops is None else mixer.prompt_pair_flops / ranks
    heads = max(1.0, mixer.cache_heads / ranks)
    entry = mixer.cached / mixer.cache_heads * heads
    chip = place.device.chip

    def calls(
        part: AttentionRoofline, each: float, extra_row: float
    ) -> Callable[[float, float], Callable[[Numbers, Numbers], Numbers]]:
        # of a row's queries and outputs, which are multiplied with what a token leaves
        width = each / 2.0
        queries = max(1.0, round(width / entry))
        timers = place.device.timers(part)

        @lru_cache(TIMED)
        def call(tokens: float, sequences: float) -> Callable[[Numbers, Numbers], Numbers]:
            sequences = max(1, sequences)
            rows = tokens / sequences
            apart = part.apart(CachedHeads(sequences, rows, heads, queries), *chip)
            timed = timers(tokens)
            own_bytes = tokens * ACTIVATION_BYTES * width
            longer = 1.0 + extra_row * max(0.0, rows - 1.0)

            def seconds(kv_tokens: Numbers, pairs: Numbers) -> Numbers:
                moved = kv_tokens * cached + own_bytes
                size, blocks_s, longest_s, on_top_s = apart(kv_tokens / sequences, moved)
                return (timed(size, pairs * each, blocks_s, longest_s) + on_top_s) * longer

            return seconds

        return call

    decoding = calls(parts.decode, pair, attention.extra_row.value)
    prefill = calls(parts.prefill, prompt_pair, 0.0)

    @lru_cache(TIMED)  # many prompts are equally long
    def reading(tokens: float, sequences: float, kv_tokens: float, pairs: float) -> float:
        read: float = prefill(tokens, sequences)(kv_tokens, pairs)
        return read

    def seconds(rows: Rows) -> Numbers:
        if not rows.tokens:
            return 0.0
        prompt = rows.prompt_tokens
        if not prompt:
            return decoding(rows.tokens, rows.sequences)(rows.kv_tokens, rows.attention_pairs)
        prompts = rows.prompt_sequences
        read = reading(prompt, prompts, rows.prompt_kv_tokens, rows.prompt_pairs)
        if rows.tokens == prompt:
            return read
        decoded = decoding(rows.tokens - prompt, rows.sequences - prompts)
        cached = rows.kv_tokens - rows.prompt_kv_tokens
        return read + decoded(cached, rows.attention_pairs - rows.prompt_pairs)

    return seconds


class Products(NamedTuple):
    """Products with weights of one format run on one of the ranks that share them."""

    timed: Callable[..., float]
    """A function (bytes, flops, rows, seconds of further terms) to seconds: the roofline of the
    device.
    """
    form: NumberFormat
    ranks: int
    passing_s: Callable[[float, float], Numbers] | None = None
    """A function (inputs, outputs) to the seconds in which thread blocks pass the inputs; None
    where the device does not tell them apart.
    """

    def work(
        self,
        inputs: float,
        outputs: float,
        rows: float,
        weights: float | None = None,
        cut: Literal["inputs", "outputs"] = "outputs",
    ) -> tuple[float, ...]:
        """Return the bytes and flops of a rank's share of a product, its rows and, where the device
        tells it, the seconds in which thread blocks pass its inputs.

        Every row has so many inputs and outputs over all ranks, which share those that are ``cut``;
        ``weights`` are inputs times outputs by default.
        """
        weights = inputs * outputs if weights is None else weights
        size = self.form.product_bytes(inputs, outputs, rows, weights)
        work = (size / self.ranks, 2.0 * rows * weights / self.ranks, rows)
        if self.passing_s is None:
            return work
        if cut == "inputs":
            passing = self.passing_s(inputs / self.ranks, outputs)
        else:
            passing = self.passing_s(inputs, outputs / self.ranks)
        return (*work, float(passing))


@lru_cache(TIMED)
def products(
    place: Placement, group: Group = "blocks", ranks: int | None = None, prompt_rows: float = 0.0
) -> Products:
    """Return products with a group of the weights on one of their ``ranks``, by default those of
    tensor parallelism; ``prompt_rows`` of the rows belong to prompts.
    """
    form = place.number_format(group)
    curve = _curve(place, group, prompt_rows)
    timed = place.device.timer(curve, form.arithmetic, place.in_cache)
    passing_s = None
    if curve.depth_us is not None:
        multiprocessors, _ = place.device.chip
        passing_s = partial(curve.passing_s, multiprocessors=multiprocessors)
    return Products(timed, form, ranks or place.tensor_parallel, passing_s)


def lacks_curve(device: Device, weight_format: str) -> bool:
    """Return whether a device has no curve of its own for products with quantised weights that are
    widened to 16 bits.
    """
    form = device.number_format(weight_format)
    fitted = {weight_format, *form.curves} & set(device.matmul)
    return _is_widened(form) and not fitted


def _is_widened(form: NumberFormat) -> bool:
    """Return whether weights are stored in less than 16 bits and multiplied in 16."""
    return form.weight_bytes < ACTIVATION_BYTES and form.arithmetic == "fp16"


def _curve(place: Placement, group: Group, prompt_rows: float = 0.0) -> Roofline:
    """Return the roofline of products with a group of the weights; with what several rows cost in
    the engine's own kernels.
    """
    weight_format = place.format_of(group)
    device = place.device
    engine = place.engine
    curve = device.matmul_for(weight_format)
    costs = row_costs(place, weight_format)
    if costs:
        points = costs.points(_operation(place, group, curve))
        width = [WidthPoint(tokens=tokens, ratio=ratio) for tokens, ratio in points]
    else:
        width = [*curve.width]
    quantised = device.number_format(weight_format).weight_bytes < ACTIVATION_BYTES
    if engine.beyond_curve_ratio and width and not costs and quantised:
        last = width[-1]
        ratio = last.ratio * engine.beyond_curve_ratio.value
        beyond = last.model_copy(update={"tokens": last.tokens + 1, "ratio": ratio})
        width.append(beyond)
    further = further_rows(place, weight_format).value
    if further and len(width) > 2 and (costs or quantised):
        width = _further(width, further, ceil(prompt_rows))
    return curve.model_copy(update={"width": tuple(width)})


def row_costs(place: Placement, weight_format: str) -> AnyRows | None:
    """Return what several rows cost in the engine's own kernels: as measured on the device, else as
    the engine says; None where that is not stated.
    """
    measured = place.device.rows_of(place.engine.name, weight_format)
    if measured:
        return measured
    rows = place.engine.rows
    for name in (weight_format, *FORMATS[weight_format].curves):
        if name in rows:
            return rows[name]
    any_format = rows.get("any")
    own_kernels = any_format is not None and _is_widened(place.device.number_format(weight_format))
    if own_kernels or lacks_curve(place.device, weight_format):
        return rows.get("quantised") or any_format
    return any_format


def further_rows(place: Placement, weight_format: str) -> Open:
    """Return what a row beyond those that were measured costs, relative to the mean of those: as it
    is said of the device's rows, else of the engine.
    """
    costs = row_costs(place, weight_format)
    if isinstance(costs, MeasuredRows):
        return costs.further
    return place.engine.further_rows


def _operation(place: Placement, group: Group, curve: Roofline) -> float:
    """Return the time of one operation of vector units on a weight of a group, relative to that of
    reading the weight.
    """
    device = place.device
    bandwidth = device.memory_bandwidth_gb_s.value * 1e9 * curve.memory_efficiency.value
    if place.in_cache and device.cache_bandwidth_gb_s:
        bandwidth = device.cache_bandwidth_gb_s.value * 1e9
    read_s = place.number_format(group).weight_bytes / bandwidth
    return 1.0 / device.vector_rate / read_s


def measured_rows(place: Placement) -> int:
    """Return the most rows of a product that were measured where further ones are continued in a
    line; 0 where they are not.
    """
    curve = place.device.matmul_for(place.weights)
    costs = row_costs(place, place.weights)
    quantised = FORMATS[place.weights].weight_bytes < ACTIVATION_BYTES
    continued = costs or quantised
    if not further_rows(place, place.weights).value or not continued:
        return 0
    if costs:
        return costs.most
    if curve.width:
        return curve.width[-1].tokens
    return 0


def _further(width: list[WidthPoint], relative: float, prompt_rows: int) -> list[WidthPoint]:
    """Return a curve that goes on in a line behind its last but one point, as steep as from its
    second row on, or so.

    The last point is the ratio of the kernels beyond; rows of prompts cost no more than that.
    """
    *measured, beyond = width
    first = measured[1] if len(measured) > 2 else measured[0]
    last = measured[-1]
    slope = relative * (last.ratio - first.ratio) / (last.tokens - first.tokens)
    begin = last.tokens + prompt_rows
    flat = [beyond, beyond.model_copy(update={"tokens": begin})]
    line = []
    for rows in (begin + 1, MOST_ROWS):
        ratio = beyond.ratio + slope * (rows - begin)
        line.append(beyond.model_copy(update={"tokens": rows, "ratio": ratio}))
    return [*measured, *flat[:prompt_rows], *line]


def layer_products(
    place: Placement,
    n: int,
    kind: LayerKind,
    adapted: int = 0,
    read: float | None = None,
    share: float = 1.0,
    prompt_rows: int = 0,
    routed_here: bool = True,
) -> LayerTime:
    """Return the seconds of one layer that depend on its ``n`` rows alone: all but attention, which
    is left at zero, and routed experts that are not ``routed_here``, whose router is.

    ``adapted`` of the rows do not pass the MLP; the others read ``read`` routed experts, by default
    as independent rows do; a ``share`` of them passes the mixer on one rank, by default all.
    ``prompt_rows`` of them belong to prompts. Norms of q and k are among the small operations that
    a device was fitted with (docs/background/errors.md).
    """
    model = place.model
    ranks = place.tensor_parallel
    mixer = kind.mixer
    product = products(place, "blocks", ranks, prompt_rows)
    timed = product.timed
    full = n - adapted
    mixed = n if share == 1.0 else n * share
    hidden = model.hidden_size
    ff = kind.intermediate_size
    ups = 2 * ff if model.mlp == "gated" else ff
    mlp = 0.0
    if ff:
        up = timed(*product.work(hidden, ups, full))
        mlp = up + timed(*product.work(ff, hidden, full, cut="inputs"))
    if kind.experts:
        if routed_here:
            routed = experts_time(place, full, read, prompt_rows)
        else:
            routed = router_time(place, full)
        shared = shared_experts_time(place, full, prompt_rows)
        mlp += routed + shared + latent_time(place, full, prompt_rows)
        ff = ff or model.intermediate_size
    stream: float = hidden
    if place.collectives.per == "pass":  # tracks of an SPD draft have their own
        stream = hidden / ranks
    qkv = output = projected = 0.0
    if mixer is not None:
        own = products(place, "blocks", place.mixer_ranks, prompt_rows * share)
        among = place.mixer_ranks
        before = mixer.weights_before(among)
        projected = 2 * mixer.projected / among * share
        qkv = own.timed(*own.work(hidden, mixer.projected, mixed, before))
        behind = own.work(mixer.value_width, hidden, mixed, mixer.output, cut="inputs")
        output = own.timed(*behind)
        if mixer.products > 1:
            qkv += (mixer.products - 1) * own.timed(*own.work(0, 0, mixed))
    widths = n * (4 * kind.parts * stream + projected) + full * 3 * ff / ranks
    small = _small_operations(place)(ACTIVATION_BYTES * widths, 0.0, n)
    small *= place.engine.small_operations_ratio.value
    if mixer is not None and mixer.widened:
        small += place.engine.latent_us.value * 1e-6
    if mixer is not None and mixer.index_width:
        small += place.engine.index_us.value * 1e-6
    return LayerTime(qkv, 0.0, output, mlp, small)


@lru_cache(TIMED)
def _small_operations(place: Placement) -> Callable[[float, float, float], float]:
    """Return the timer of small operations."""
    return place.device.timer(place.device.small_operations)


def experts_time(place: Placement, rows: int, read: float | None, prompt_rows: int = 0) -> float:
    """Return the seconds of router and routed experts of a layer: no router on a device without a
    fit for experts.
    """
    seconds = routed_experts_time(place, rows, read, prompt_rows)
    if place.model.experts is None or place.device.experts_for(place.expert_format) is None:
        return seconds
    return seconds + router_time(place, rows)


def router_time(place: Placement, rows: int) -> float:
    """Return the seconds of the router of a layer over ``rows``."""
    if place.model.experts is None:
        return 0.0
    routing = products(_undivided(place), "head")  # every device routes all rows
    work = routing.work(place.model.hidden_size, place.model.experts.routed, rows)
    return routing.timed(*work)


def routed_experts_time(
    place: Placement, rows: int, read: float | None, prompt_rows: int = 0
) -> float:
    """Return the seconds of the routed experts of a layer, of which ``rows`` ``read`` so many, by
    default as many as independent rows do.

    It is that of the busiest rank where ranks hold whole experts. On a device without a fit for
    experts it is one product over all experts read, each with its share of the rows, and no router.
    """
    model = place.model
    experts = place.model.experts
    ranks = place.tensor_parallel
    device = place.device
    if experts is None:
        return 0.0
    sliced = place.experts == "sliced"
    touched = experts.touched(rows) if read is None else read
    pairs = float(rows * experts.per_token)
    hidden = experts.latent_size or model.hidden_size
    weights = float(model.expert_weights)
    inner = float(experts.intermediate_size)
    if not sliced:
        touched = min(busiest(touched, ranks, experts.routed), experts.routed / ranks)
        pairs = busiest(pairs, ranks)
    stored = place.expert_format
    each = max(1.0, pairs / touched)
    curve = device.experts_for(stored)
    form = place.number_format("experts")
    if curve is None:  # a product takes a slice of every weight
        whole = touched * weights * (1 if sliced else ranks)
        of_prompts = each * prompt_rows / rows if rows else 0.0
        product = products(place, "experts", None, of_prompts)
        seconds = product.timed(*product.work(hidden + inner, 2 * inner, each, whole))
        return seconds * _of_busiest_rank(place)
    if sliced:
        inner = inner / ranks
        weights = weights / ranks
    timed = _grouped_products(place, curve, form.arithmetic)
    size = touched * weights * form.weight_bytes + curve.pair_bytes(pairs, hidden + inner)
    seconds = timed(size, 2.0 * pairs * weights, each)
    seconds += float(curve.beside_s(touched, hidden + inner))
    return seconds * _of_busiest_rank(place)


def _of_busiest_rank(place: Placement) -> float:
    """Return how many times as long the experts of the busiest rank take as computed; 1 where every
    rank has a slice of each.
    """
    if place.experts == "sliced":
        return 1.0
    return place.engine.busiest_rank_ratio.value


def shared_experts_time(place: Placement, rows: int, prompt_rows: float = 0.0) -> float:
    """Return the seconds of the shared experts of a layer over ``rows``: a product with the
    matrices in front of the activation, and one with that behind it.
    """
    experts = place.model.experts
    if experts is None or not experts.shared:
        return 0.0
    product = products(place, "blocks", None, prompt_rows)
    weights = float(experts.shared * place.model.shared_expert_weights)
    inner = float(experts.shared * experts.intermediate_size)
    hidden = place.model.hidden_size
    behind = inner * hidden
    before = product.work(hidden, (weights - behind) / hidden, rows, weights - behind)
    after = product.work(inner, hidden, rows, behind, cut="inputs")
    return product.timed(*before) + product.timed(*after)


def latent_time(place: Placement, rows: int, prompt_rows: int = 0) -> float:
    """Return the seconds of the products into the width of the routed experts and back, where they
    are narrower than the model.
    """
    experts = place.model.experts
    if experts is None or not experts.latent_size:
        return 0.0
    product = products(place, "blocks", place.tensor_parallel, prompt_rows)
    work = product.work(place.model.hidden_size, experts.latent_size, rows)
    return 2.0 * product.timed(*work)


@lru_cache(TIMED)
def _grouped_products(
    place: Placement, curve: ExpertRoofline, arithmetic: Arithmetic
) -> Callable[[float, float, float], float]:
    """Return the timer of the products of all experts."""
    return place.device.timer(curve, arithmetic)


@lru_cache(TIMED)
def _undivided(place: Placement) -> Placement:
    """Return a place where every device computes what ranks otherwise share out."""
    return place.model_copy(update={"tensor_parallel": 1})


def busiest(items: float, ranks: int, of: float = inf) -> float:
    """Return how many of some ``items``, out of at most ``of``, the busiest of the ranks gets where
    each falls on any of them.

    The largest of G normal numbers of the binomial's mean and variance: m + sqrt(2 ln G m (1 -
    items/of)), never above all.
    """
    mean = items / ranks
    return min(items, mean + sqrt(2.0 * log(ranks) * mean * (1.0 - min(1.0, items / of))))


def exchange_time(place: Placement, rows: int) -> float:
    """Return the seconds that a layer of experts takes beyond its all-reduces to send ``rows`` to
    their experts and back.

    Every rank sends its share of the rows in 8 bits to each of their experts and gets them back in
    16 bits (DeepEP), instead of summing the layer's output over the ranks; 0 where rows are not
    sent.
    """
    experts = place.model.experts
    exchange = place.link.all_to_all if place.link else None
    ranks = place.tensor_parallel
    if experts is None or exchange is None or place.experts != "dispatched" or ranks == 1:
        return 0.0
    rows_of_rank = -(-rows // ranks)
    values = rows_of_rank * experts.per_token * place.model.hidden_size
    dispatch_s = exchange.dispatch.seconds(values, ranks)
    combine_s = exchange.combine.seconds(values * ACTIVATION_BYTES, ranks)
    return dispatch_s + combine_s - all_reduce_time(place, rows)


def side_product_time(place: Placement, tokens: int, width: int) -> float:
    """Return the seconds of the product of ``tokens`` rows with one h x ``width`` matrix."""
    product = products(place)
    return product.timed(*product.work(place.model.hidden_size, width, tokens))


@lru_cache(TIMED)
def transition_time(place: Placement, tokens: int, rank: int) -> float:
    """Return the seconds in which ``tokens`` rows are multiplied with ``rank`` x vocabulary, whole
    on every rank of devices, and tokens are chosen from the sums.
    """
    product = products(place, "head", 1)
    seconds = product.timed(*product.work(rank, place.model.vocab_size, tokens))
    return seconds + place.engine.sampling_us.value * 1e-6


@lru_cache(TIMED)
def head_time(place: Placement, logit_rows: int) -> float:
    """Return the seconds of the LM head over ``logit_rows`` and of sampling from its logits; 0
    without rows.
    """
    if not logit_rows:
        return 0.0
    model = place.model
    product = products(place, "head")
    tokens = place.lm_head_rows or model.vocab_size
    weights = tokens * model.head_width
    work = product.work(model.hidden_size, tokens, logit_rows, weights)
    return product.timed(*work) + place.engine.sampling_us.value * 1e-6


def all_reduce_time(place: Placement, tokens: int) -> float:
    """Return the seconds of one all-reduce over the activations of ``tokens``; 0 on one rank.

    Ranks on several servers sum inside each of them, then every rank sums its share with those of
    its number elsewhere, over a port of the network of its own (as NCCL does with one port a GPU).
    """
    if not place.collectives.count:
        return 0.0
    seconds = 0.0
    size = float(tokens * place.model.hidden_size * ACTIVATION_BYTES)
    for form, _, ranks in place.all_reduce_forms():
        seconds += form.seconds(size, ranks)
        size /= ranks
    return seconds
