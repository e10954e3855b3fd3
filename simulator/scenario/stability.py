"""Whether arrivals can be served at all, by law and before anything is simulated.

A request keeps a replica busy for its share of a pass that reads prompts, and for its share of the
steps that bring its tokens; both are least in some batch. When more requests come than these shares
leave time for, the queue grows for as long as they come (Loynes, 1962).
"""

from itertools import chain
from math import floor, inf
from typing import NamedTuple

from simulator.core.acceptance.sources import Acceptance, odds_of
from simulator.core.cost.rows import Rows
from simulator.core.serving.cache.prefixes import PrefixCache
from simulator.core.serving.cache.session_hits import most_found, session_hits
from simulator.core.serving.fleet.handover import Handover
from simulator.core.serving.policies import UnifiedBudget
from simulator.core.strategies.common.capabilities import dropped_units
from simulator.core.strategies.common.step import UNLIMITED
from simulator.scenario.fields import Scenario
from simulator.scenario.pools import luggage_of, pool_scenarios


class Load(NamedTuple):
    """Arrivals, and what all replicas serve by law in the batch that suits them best, in requests a
    second.
    """

    offered_per_s: float
    most_per_s: float
    batch: int
    """Requests that decode together in that batch."""
    replicas: int
    slower: str = ""
    """The role of the pools that serve fewest, where prefill and decode are apart, or ``link``."""
    scaled: bool = False
    """Whether the number of replicas follows the load; then it is the most that there may be."""

    @property
    def stable(self) -> bool:
        """Return whether less comes than can be served."""
        return self.offered_per_s < self.most_per_s

    @property
    def served(self) -> str:
        """Return what comes and what is served, in a sentence."""
        return (
            f"{self.offered_per_s:.4g} requests come a second, and by law at most "
            f"{self.most_per_s:.4g} are served"
        )

    @property
    def words(self) -> str:
        """Return what comes and what is served, in a sentence; of an unstable load, the nearest
        change that would do.
        """
        if self.stable:
            return self.served
        if self.slower == "link":
            remedy = "set a faster serving.handover.link, or more connections"
        elif self.slower:
            remedy = f"add replicas to the {self.slower} pool"
        else:
            enough = floor(self.offered_per_s / self.most_per_s * self.replicas) + 1
            field = "serving.scaling.most" if self.scaled else "serving.replicas"
            remedy = f"set {field}={enough:,}"
        return (
            f"unstable: {self.served} ({self.batch:,} at a time), so the queue grows for as long "
            f"as they come; let fewer than {self.most_per_s:.4g} come, or {remedy}"
        )


def load_of(scenario: Scenario, acceptance: Acceptance) -> Load | None:
    """Return the load of a scenario; None in a closed loop, and where all requests come at once."""
    offered = scenario.requests.offered_per_s(scenario.seed)
    if offered is None:
        return None
    if scenario.serving.pools:
        return _load_of_pools(scenario, acceptance, offered)
    best, served = _served(scenario, acceptance, _reading_s(scenario))
    scaled = scenario.serving.scaling is not None
    return Load(offered, served, best, scenario.serving.copies, scaled=scaled)


def _load_of_pools(scenario: Scenario, acceptance: Acceptance, offered: float) -> Load:
    """Return the load where prefill and decode are apart: of the two and the links between them
    the slowest serves, and beside them pools that do both.
    """
    by_role = dict.fromkeys(("prefill", "decode", "both"), 0.0)
    largest = 1
    for pool, own in pool_scenarios(scenario):
        if pool.role == "prefill":
            by_role["prefill"] += pool.replicas / _reading_s(own, written=False)
            continue
        reading = _reading_s(own) if pool.role == "both" else 0.0
        best, served = _served(own, acceptance, reading)
        by_role[pool.role] += served
        largest = max(largest, best)
    slower = ""
    most = by_role.pop("both")
    if scenario.serving.handover and by_role["prefill"]:
        by_role["link"] = _handed_over_per_s(scenario, scenario.serving.handover)
        slower = min(by_role, key=lambda part: by_role[part])
        most += by_role[slower]
    return Load(offered, most, largest, scenario.serving.copies, slower)


def _handed_over_per_s(scenario: Scenario, handover: Handover) -> float:
    """Return the requests a second that the links between pools carry, each with a mean prompt."""
    pools = scenario.serving.pools or ()
    prefills = sum(pool.replicas for pool in pools if pool.role == "prefill")
    decodes = sum(pool.replicas for pool in pools if pool.role == "decode")
    links = min(prefills, decodes) if handover.shared else prefills * decodes
    size_bytes = luggage_of(scenario, handover).size_bytes(round(scenario.lengths[0]))
    seconds = handover.seconds(size_bytes)
    return links / seconds if seconds else inf


def least_first_token_s(scenario: Scenario) -> float | None:
    """Return the least TTFT of a mean prompt that is read in one pool and goes over to another, in
    seconds; None where none does.
    """
    handover = scenario.serving.handover
    reading = [own for pool, own in pool_scenarios(scenario) if pool.role == "prefill"]
    if handover is None or not reading:
        return None
    prompt = round(scenario.lengths[0])
    size_bytes = luggage_of(scenario, handover).size_bytes(prompt)
    alone_s = min(read_s(own, prompt, 0, 1) for own in reading)
    least_s = handover.least_ttft_s(alone_s, size_bytes, scenario.layers or 1)
    return least_s + scenario.cost.outside_s


def _sizes(largest: int) -> list[int]:
    """Return the batches that are looked at: powers of two, and the largest."""
    doubled = [2**power for power in range((largest - 1).bit_length())]
    return [*doubled, largest]


def _reading_s(scenario: Scenario, written: bool = True) -> float:
    """Return the least seconds that a prompt keeps a replica; ``written``: which writes outputs."""
    sizes = _sizes(scenario.batch)
    cached = cached_tokens(scenario, written)
    computed = scenario.lengths[0] - round(cached)
    return min(
        read_s(scenario, computed, cached, size) for size in sizes if size <= max(64, sizes[0])
    )


def _served(scenario: Scenario, acceptance: Acceptance, reading_s: float) -> tuple[int, float]:
    """Return the batch that suits the replicas best, and the requests a second that they then
    serve, each of which keeps one for ``reading_s`` besides its steps.
    """
    odds = odds_of(acceptance, scenario.exit)
    _, output, _ = scenario.lengths
    served = {}
    largest = scenario.batch
    if not scenario.serving.memory.prefix_caching:
        largest = scenario.fitting_batch  # shared blocks would have room for more
    for size in _sizes(largest):
        law = scenario.law_at(odds, size)
        decoding_s = (output - 1.0) * law.tpot_s / size
        served[size] = scenario.serving.copies / (reading_s + decoding_s)
    best = max(served, key=lambda size: served[size])
    return best, float(served[best])


def read_s(scenario: Scenario, computed: float, cached: float, together: int) -> float:
    """Return the seconds that a prompt keeps a replica of which ``computed`` tokens are read behind
    those that are ``cached``: its share of a pass over so many, on the slowest stage of a pipeline.
    """
    alone = Rows.prefill(round(computed), round(cached))
    cost = scenario.cost
    rows = Rows(*(number * together for number in alone))
    if scenario.schedule.traits.staged:
        return max(float(cost.stage(index, rows).wall_s) for index in range(cost.stages)) / together
    sides = scenario.schedule.admission(cost, rows)[:2]
    return (sum(sides) if scenario.one_lane else max(sides)) / together


def most_cached(scenario: Scenario) -> list[int]:
    """Return the most tokens of each turn's prompt that a cache can have, session by session; empty
    where nothing is kept, or there are no sessions.
    """
    pool = scenario.serving.memory.pool(None, None, dropped_units(scenario.schedule))
    if not isinstance(pool, PrefixCache):
        return []
    return list(most_found(scenario.requests.turns(scenario.seed), pool.block_tokens, pool.dropped))


def cached_tokens(scenario: Scenario, written: bool = True) -> float:
    """Return the mean tokens of a prompt that a cache has which nothing is evicted from: no other
    serves more from it. ``written``: outputs are in it, too, as its replica writes them.
    """
    pool = scenario.serving.memory.pool(None, None, dropped_units(scenario.schedule))
    if not isinstance(pool, PrefixCache):
        return 0.0
    if scenario.requests.sessions is not None:
        turns = chain.from_iterable(scenario.requests.turns(scenario.seed))
        hits = session_hits(turns, pool.block_tokens, pool.dropped, written)
        return sum(hits) / scenario.requests.count
    policy = scenario.serving.policy
    most = policy.budget_tokens if isinstance(policy, UnifiedBudget) else UNLIMITED
    for request in scenario.requests.source_of(scenario.seed).due(inf):
        request.cached = pool.cached(request)
        pool.hold(request, request.prompt_tokens)
        while request.left:
            request.cached += pool.pass_tokens(request, min(request.left, most), most)
            pool.share(request, request.cached)
        pool.keep(request, 0)
    return pool.hit_tokens / scenario.requests.count
