"""How many bytes a request takes along: caches and states of the target, and of the draft or what
its cache is filled from.
"""

from simulator.core.cost.formats import CACHE_BYTES
from simulator.core.cost.model import DraftHead
from simulator.core.cost.placement import Placement
from simulator.core.numeric import ordered_sum
from simulator.core.serving.fleet.handover import Handover
from simulator.core.strategies.common.base import Strategy
from simulator.core.strategies.common.capabilities import extra_memory, heads_of

HIDDEN_BYTES = 2
"""Bytes of a number in a hidden state (bf16)."""
MOST_HIDDEN = 3
"""Layers whose hidden states a head reads, at most (EAGLE-3)."""


def cache_bytes(place: Placement, tokens: int) -> float:
    """Return the bytes of the caches and states of a sequence of so many tokens in all layers of a
    model, whole: copies on several devices go over once.
    """
    value = CACHE_BYTES[place.kv_cache]
    caches = ordered_sum(
        count * mixer.cache_bytes(tokens, value) for mixer, count in place.model.mixer_layers
    )
    return float(caches + place.model.state_bytes)


def head_bytes(strategy: Strategy, target: Placement, tokens: int) -> float:
    """Return the bytes of the caches of heads that draft beside the target: of each of their layers
    as many as of a layer of the target, in the mean.
    """
    layers = extra_memory(strategy, target.model).kv_layers
    if not layers:
        return 0.0
    without_states = cache_bytes(target, tokens) - target.model.state_bytes
    return without_states / target.model.num_hidden_layers * layers


def hidden_bytes(strategy: Strategy, target: Placement, tokens: int, layers: int | None) -> float:
    """Return the bytes of the hidden states that heads read of a prompt, of so many ``layers`` or
    as their matrices have it.
    """
    heads = heads_of(strategy)
    if not heads:
        return 0.0
    read = layers or max(hidden_layers(head) for head in heads)
    return float(tokens * read * target.model.hidden_size * HIDDEN_BYTES)


def hidden_layers(head: DraftHead) -> int:
    """Return of how many layers a head reads hidden states: EAGLE and MTP have two matrices, for
    one layer and an embedding; EAGLE-3 has two more.
    """
    return min(MOST_HIDDEN, max(1, head.squares - 1))


def request_bytes(
    handover: Handover, strategy: Strategy, target: Placement, draft: Placement | None, tokens: int
) -> float:
    """Return the bytes that go over with a request whose prompt has so many tokens.

    ``draft`` is the model that drafts; None where none does.
    """
    size = cache_bytes(target, tokens)
    if handover.draft_state == "transferred":
        size += head_bytes(strategy, target, tokens)
        if draft is not None:
            size += cache_bytes(draft, tokens)
    elif handover.draft_state == "recomputed":
        size += hidden_bytes(strategy, target, tokens, handover.hidden_layers)
    return size
