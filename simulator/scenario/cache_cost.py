"""What speculation costs where a service keeps prompts: blocks that are read again, and the output
behind which that is worth it.

A draft that reads hidden states of the target has the last block of what is found computed again
(:mod:`simulator.core.serving.cache.prefixes`), once for each prompt::

    x = h_plain - h                      of the hit rate: blocks that are dropped, and what goes
                                         with them: states that are kept earlier, room of the draft
    y = R / (R + the rest of the work)   of what a busy replica serves; R seconds a prompt to read
                                         what plain decoding finds, at least what is dropped
    z = R / (t_plain / n - t / n)        tokens of output from which on it pays, n requests a step

with ``t / n`` the seconds that a replica works for a token of one request. This is a law of full
replicas: where they idle, reading again costs time to the first token alone. Where prefill and
decode are apart, all of it is of the pool that reads prompts, and no output of another pool makes
up for it: there is no z.
"""

from typing import NamedTuple

from simulator.scenario.fields import Scenario
from simulator.scenario.outcome import Outcome
from simulator.scenario.pools import pool_scenarios
from simulator.scenario.stability import read_s

TOGETHER = 8
"""Prompts in the pass whose time they share, so that reading weights is no price of a block."""


class CacheCost(NamedTuple):
    """What drafts cost a prefix cache; tokens and seconds are means over prompts."""

    dropped_tokens: float
    """Found, and computed again."""
    again_tokens: float
    """Computed again in all, though plain decoding finds them."""
    hit_rate: float
    """Share of prompt tokens that were found and not computed."""
    plain_hit_rate: float
    """The same without speculation, in the room that its drafts would take."""
    again_s: float
    """Seconds of a replica in which these tokens are computed again."""
    work_share: float
    """Share of these in all its work, which is what a busy replica serves less."""
    worth_tokens: float | None
    """Output tokens from which on drafts save more than that; None where they save nothing, and
    where outputs are written elsewhere.
    """
    apart: bool = False
    """Whether outputs are written by another pool than the one that reads prompts."""

    @property
    def drops(self) -> bool:
        """Return whether it is worth a word: a block is dropped, or half a point of hits lost."""
        return self.dropped_tokens > 0.0 or self.lost_rate >= 0.005

    @property
    def lost_rate(self) -> float:
        """Return the hit rate that speculation loses in all: blocks that are dropped, and room."""
        return self.plain_hit_rate - self.hit_rate


class TokenTimes(NamedTuple):
    """Seconds that a replica works for an output token of one request, by law."""

    drafted_s: float
    plain_s: float


def cache_cost(
    scenario: Scenario, simulated: Outcome, plain: Outcome, times: TokenTimes
) -> CacheCost | None:
    """Return what speculation costs the prefix cache of a run, held to that of plain decoding; None
    where nothing is kept or nothing is drafted.
    """
    cache = simulated.serving.prefix_cache
    of_plain = plain.serving.prefix_cache
    if not (cache and of_plain and scenario.schedule.window):
        return None
    prompts = simulated.serving.requests
    dropped = cache["dropped_tokens"] / prompts
    computed = (cache["prompt_tokens"] - cache["hit_tokens"]) / prompts
    hit = cache["hit_tokens"] / prompts
    lost = (of_plain["hit_rate"] - cache["hit_rate"]) * cache["prompt_tokens"] / prompts
    again = max(dropped, lost)
    reader, apart = _reader(scenario)
    prompt_s = read_s(reader, computed, hit, TOGETHER)
    again_s = prompt_s - read_s(reader, computed - again, hit + again, TOGETHER)
    work_s = prompt_s
    saved_s = 0.0
    if not apart:
        work_s += times.drafted_s * simulated.tokens / prompts
        saved_s = times.plain_s - times.drafted_s
    worth = again_s / saved_s if saved_s > 0.0 else None
    rates = cache["hit_rate"], of_plain["hit_rate"]
    return CacheCost(dropped, again, *rates, again_s, again_s / work_s, worth, apart)


def _reader(scenario: Scenario) -> tuple[Scenario, bool]:
    """Return the scenario of the replicas that read prompts, and whether they do nothing else."""
    for pool, own in pool_scenarios(scenario):
        if pool.role != "decode":
            return own, pool.role == "prefill"
    return scenario, False
