"""These closed forms of Speculative Streaming give trees, the work they make, and where one model
beats two.

Source: Speculative Streaming (specstream), sections and appendices as noted; SS-1 to SS-11. Counts
are tokens or rows, costs are in one unit of time; every argument may be an array.
"""

import numpy as np

from simulator.core.numeric import Numbers


def tree_nodes(streams: int, branching: int) -> int:
    """Return the nodes of a full tree, the root included: ``1 + sum k^g`` for g from 1 to gamma
    (sec. 2.3, SS-1).
    """
    return sum(branching**level for level in range(streams + 1))


def query_products(
    nodes: Numbers, streams: Numbers, context: Numbers, attended: Numbers
) -> Numbers:
    """Return the query-key products with the context where streams see its ``attended`` weightiest
    tokens (app. H.1, SS-6).
    """
    return nodes * context + nodes * streams * np.minimum(attended, context)


def parity(gamma: Numbers, latency_ratio: Numbers, target_over_single: Numbers = 1.0) -> Numbers:
    """Return zeta over beta at which two models are as fast as one (app. N, Eq. 10; SS-8).

    ``zeta``, ``beta``: tokens per verification of two models and of streaming; ``latency_ratio``: R
    = C_target / C_draft; ``target_over_single``: C_target / C_ss.
    """
    return (1.0 + gamma / latency_ratio) * target_over_single


def speedup_over_two_models(
    gamma: Numbers, latency_ratio: Numbers, token_ratio: Numbers, target_over_single: Numbers = 1.0
) -> Numbers:
    """Return the speed-up of streaming over serial drafting with a model; ``token_ratio`` = zeta /
    beta (Figure 20, SS-9).
    """
    return parity(gamma, latency_ratio, target_over_single) / token_ratio


def relative_step_cost(tokens_per_step: Numbers, speedup: Numbers) -> Numbers:
    """Return a step in units of a plain one, from tokens per pass and speed-up over plain decoding
    (SS-11).
    """
    return tokens_per_step / speedup
