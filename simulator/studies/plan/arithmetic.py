"""The most traffic that the datasheets allow: flops, bytes and the KV cache, which no simulation
exceeds.

A request of p prompt and n output tokens needs of the target, however it is served and drafted for:

* *flops*: 2 W for each of p + n - 1 rows, where W are the weights of the layers that one token
  uses, and 2 V for each of n rows with logits, where V are those of the LM head; at the datasheet's
  peak, the highest of the arithmetic that its weights use.
* *bytes*: (n - 1) / (window + 1) passes at least. A pass holds as many requests as there are
  places, and as have room in the KV cache, each with its prompt; it reads the weights once that one
  token uses, and the cache of each prompt, at the datasheet's bandwidth. Left out where a cache on
  the chip may hold them, where passes overlap on stages, and for attention that sees a part of its
  context.

Every term is a lower bound of what the cost model charges, whose efficiencies are shares of these
peaks: attention over pairs, activations, collectives, hosts and drafts come on top. Prompts that
may be cached count as one row; of turns of sessions what the law of hits leaves to compute.
"""

from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from simulator.core.cost.formats import CACHE_BYTES
from simulator.core.cost.placement import Placement
from simulator.core.faults import BadInput
from simulator.core.serving.slo import Limit
from simulator.scenario import Scenario
from simulator.scenario.stability import most_cached

Seconds = NDArray[np.float64]
"""(requests,) seconds of a replica."""
ROUNDING = 1e-9
"""Part of a request by which a share of requests may be above a whole number: 0.55 of 100 is
55.00000000000001.
"""


def most_times(
    scenario: Scenario, replicas: int, limits: tuple[Limit, ...], steady: bool, rate_per_s: float
) -> float:
    """Return the highest multiple of its traffic that so many replicas could serve within the
    limits; infinity without devices.

    Traffic that goes on has to be served as fast as it comes. Of traffic that is gone through once,
    the work of all requests but those that a percentile lets go has to be done between the first
    arrival and the last deadline.
    """
    if scenario.target is None:
        return inf
    lengths = np.array(list(scenario.requests.lengths(scenario.seed)))
    prompts = lengths[:, 0].astype(float)
    outputs = lengths[:, 1].astype(float)
    if steady:
        taken = max(float(part.mean()) for part in least_seconds(scenario, prompts, outputs))
        return replicas / (taken * rate_per_s)
    if scenario.requests.sessions is not None:
        return inf  # when later turns come depends on answers
    prompts_alone = least_seconds(scenario, prompts, np.ones(len(prompts)))
    whole = least_seconds(scenario, prompts, outputs)
    lasts_s = max((line.arrival_s for line in scenario.requests.lines()), default=0.0)
    most = inf
    for limit in limits:
        if limit.metric in ("ttft", "e2e") and not limit.of:
            parts = prompts_alone if limit.metric == "ttft" else whole
            kept = ceil(limit.share * len(prompts) - ROUNDING)
            taken = max(float(np.sort(part)[:kept].sum()) for part in parts)
            most = min(most, replicas * (lasts_s + limit.seconds) / taken)
    return most


def least_seconds(
    scenario: Scenario, prompts: Seconds, outputs: Seconds
) -> tuple[Seconds, Seconds]:
    """Return two (requests,): seconds of a replica that each request needs at least for its flops,
    and for its bytes.

    Raises :class:`BadInput` without a target on devices.
    """
    target = scenario.target
    if target is None:
        raise BadInput.at(scenario.name, "is required and missing", "target")
    model = target.model
    places = target.on_stages or (target,)
    used = _used_weights(target)
    computed = _computed(scenario, prompts)
    flops = 2.0 * used * (computed + outputs - 1.0) + 2.0 * model.head_weights * outputs
    by_flops = flops / sum(place.tensor_parallel * _peak_flops(place) for place in places)
    if len(places) > 1 or scenario.schedule.traits.staged or not _reads_all(target):
        return by_flops, np.zeros(len(prompts))
    passes = (outputs - 1.0) / (scenario.schedule.window + 1.0)
    share = np.full(len(prompts), 1.0 / scenario.batch)
    memory = scenario.memory()
    if memory.total < inf and not scenario.serving.memory.prefix_caching:
        needed = np.array([memory.needed(int(tokens)) for tokens in prompts])
        share = np.maximum(share, needed / memory.total)
    read = passes * (
        share * _pass_bytes(target)
        + np.array([_cache_bytes(target, int(tokens)) for tokens in prompts])
    )
    return by_flops, read / (
        target.tensor_parallel * target.device.memory_bandwidth_gb_s.value * 1e9
    )


def _computed(scenario: Scenario, prompts: Seconds) -> Seconds:
    """Return (requests,) the tokens of prompts that are computed at least."""
    if not scenario.serving.memory.prefix_caching:
        return prompts
    if scenario.requests.sessions is None or scenario.requests.past_end != "cut":
        return np.ones(len(prompts))
    return np.asarray(prompts - np.array(most_cached(scenario)), dtype=np.float64)


def _used_weights(place: Placement) -> float:
    """Return the weights of all layers that one token uses."""
    model = place.model
    experts = model.experts
    idle = (experts.routed - experts.per_token) * model.expert_weights if experts else 0
    return float(
        sum(
            count * (model.kind_weights(kind) - idle * kind.experts)
            for kind, count in model.kinds().items()
        )
    )


def _peak_flops(place: Placement) -> float:
    """Return the highest peak of a device's arithmetic that a format of the model's weights uses,
    in flops a second.
    """
    device = place.device
    peaks = [device.peak_tflops.value]
    for stored in (place.weights, place.expert_format):
        arithmetic = device.number_format(stored).arithmetic
        peaks.append(device.peaks_tflops.get(arithmetic, device.peak_tflops).value)
    return max(peaks) * 1e12


def _reads_all(place: Placement) -> bool:
    """Return whether every pass reads weights and whole caches from memory."""
    mixers = [mixer for mixer, _ in place.model.mixer_layers]
    return not place.in_cache and all(
        mixer.sees_all and not mixer.state and not mixer.index_width for mixer in mixers
    )


def _pass_bytes(place: Placement) -> float:
    """Return the bytes of the weights that a pass of one row reads."""
    model = place.model
    experts = place.model.experts
    routed = model.expert_layers * experts.per_token * model.expert_weights if experts else 0
    bits = place.bits
    rest = (_used_weights(place) - routed) * bits.block_bits
    return (rest + routed * bits.expert_bits + model.head_weights * bits.head_bits) / 8.0


def _cache_bytes(place: Placement, tokens: int) -> float:
    """Return the bytes of a request's cache; 0 where a cache on the chips could hold them."""
    value = CACHE_BYTES[place.kv_cache]
    size = sum(
        count * mixer.cache_bytes(tokens, value) for mixer, count in place.model.mixer_layers
    )
    if place.device.cache_mb:
        on_chip = place.device.cache_mb.value * 1e6 * place.tensor_parallel
    else:
        on_chip = 0.0
    if size > on_chip:
        return float(size)
    return 0.0
