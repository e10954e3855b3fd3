"""The numbers that a service is judged by, simulated, with how far off they may be.

    TPOT           follows the law of a token, TTFT that of a step, with the power that a run shows
                   in which devices and hosts are slower by a tenth (a queue makes more of it)
    whole request  both together
    tokens/s       of clients the inverse of a whole request; where requests arrive by themselves
                   with the power that the slower run shows
    tokens/step    acceptance alone, of other windows by the draft tokens that they keep: a step
                   always has the one of the target beside them
    hit rate       a beta distribution of as many independent tokens as sessions (or requests of
                   none) show by how far their own rates are apart; and the power of a slower run

Draws are logs of factors. What is in doubt has one name before and after a change, and is drawn
once for both; but for the acceptance of another method, and for what the fit of an engine left of
its passes, as that of plain decoding is drawn apart beside any speculation, and that of windows
which the fit has not seen beside those which it has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.core.cost.device import Device
from simulator.core.cost.engine import Engine
from simulator.core.quantities import nested
from simulator.core.serving.request_times import GROUPS
from simulator.core.serving.requests import Request
from simulator.scenario import Loaded
from simulator.scenario.evaluate import observed_batch, simulate, tuned
from simulator.scenario.outcome import Outcome
from simulator.scenario.uncertain.devices import spread_of, with_slower
from simulator.scenario.uncertain.distance import farthest
from simulator.scenario.uncertain.doubts import changed
from simulator.scenario.uncertain.draws import DRAWS, Deviates, Doubt, Drawn
from simulator.scenario.uncertain.intervals import (
    FIT,
    Laws,
    doubts_of,
    laws_of,
    step_by_law,
    tpot_by_law,
)

Floats = NDArray[np.float64]
SLOWER = 1.1
"""How many times as long everything takes in a slower run."""
LEAST = 0.01
"""Log change of a step from which on it is seen what a slower run does."""
LEAST_RATE = 1e-9
"""Least hit rate that is drawn, so that it has a log."""
UNSEEN = "windows that it has not seen"
MS = 1e3


class RequestTimes(NamedTuple):
    """Times of a simulated request in seconds, and its tokens behind the first."""

    ttft_s: float
    decoding_s: float
    tokens: int


class SessionHits(NamedTuple):
    """Prompt tokens of a session, or of a request of none, and those of them that were found in a
    cache.
    """

    prompt_tokens: int
    hit_tokens: int


class RunOfService(NamedTuple):
    """A simulation of a service."""

    outcome: Outcome
    times: Sequence[RequestTimes]
    """Of the requests that count, in the order of their arrival."""
    hits: Sequence[SessionHits]
    """Of all sessions; empty where no prompts are kept."""


@dataclass(frozen=True)
class SimulatedService:
    """What a scenario of a service comes to."""

    loaded: Loaded
    """As it was run: with windows that were chosen."""
    outcome: Outcome
    values: Mapping[str, float]
    """Numbers by key; the hit rate alone where prompts are kept."""
    changes: Mapping[str, Floats]
    """Draws of what is not known of them, by key; (draws,)."""
    others: Mapping[str, Floats]
    """Draws of other requests of the same kind, by key; (draws,)."""

    def expected(self, key: str) -> Drawn:
        """Return a number as a service would measure it, of other requests of the same kind."""
        return Drawn(self.values[key], self.changes[key] + self.others[key])


def simulated_service(loaded: Loaded, another_method: str = "") -> SimulatedService:
    """Return what a scenario comes to, with the draws of what is not known.

    ``another_method`` names a way to draft which scenarios that are held to it do not have; empty
    where it is the same.
    """
    loaded = tuned(loaded)
    done = _run(loaded)
    outcome = done.outcome
    batch = observed_batch(loaded.scenario, outcome)
    slower = _slower_run(loaded, outcome, batch)
    quantities = (tpot_by_law, step_by_law, tokens_by_law)
    fit_of = another_method
    if not fit_of and "rows" in farthest(loaded.scenario, batch):
        fit_of = UNSEEN
    doubts = []
    for doubt in doubts_of(loaded, (), quantities, batch, outcome.tokens_per_step):
        # plain decoding is a service of its own, drawn by other names than a floor has
        doubts.append(_apart(doubt._replace(floor=None), fit_of))
    deviates = Deviates()
    source = f"acceptance, {another_method}" if another_method else "acceptance"
    tpot, step, tokens = (deviates.drawn(1.0, doubt, acceptance=source).changes for doubt in doubts)
    laws = {"tpot_ms": tpot, "tokens_per_step": tokens}
    laws["ttft_ms"] = slower.get("ttft_ms", 1.0) * step
    if done.hits:
        laws["hit_rate"] = slower.get("hit_rate", 0.0) * step
    values = _values(outcome)
    open_loop = loaded.scenario.requests.arrivals is not None
    rate = slower.get("output_tokens_per_s", 0.0) * step if open_loop else None
    return SimulatedService(
        loaded=loaded,
        outcome=outcome,
        values=values,
        changes=_together(values, _plus(laws, _resampled(done, Deviates())), rate),
        others=_together(values, _of_others(done), np.zeros(DRAWS)),
    )


def tokens_by_law(laws: Laws) -> float:
    """Return the tokens of a step of a request."""
    return float(laws.own.verified_per_step)


def _apart(doubt: Doubt, fit_of: str) -> Doubt:
    """Return a doubt in which what the fit of an engine left is of this method or these windows
    alone; of all together where ``fit_of`` is empty.
    """
    if not fit_of:
        return doubt
    changes = {}
    for name, change in doubt.changes.items():
        changes[f"{name}, {fit_of}" if name.startswith(FIT) else name] = change
    return doubt._replace(changes=changes)


def _run(loaded: Loaded) -> RunOfService:
    """Return a simulation with what is drawn again of it."""
    ended: list[tuple[int, RequestTimes]] = []
    hits: dict[tuple[str, int], SessionHits] = {}

    def note(request: Request) -> None:
        ttft_s = request.first_token_s - request.arrival_s
        decoding_s = request.finished_s - request.first_token_s
        ended.append((request.index, RequestTimes(ttft_s, decoding_s, request.tokens - 1)))
        of = ("request", request.index)
        if request.session is not None:
            of = ("session", request.session)
        asked, hit = hits.get(of, SessionHits(0, 0))
        hits[of] = SessionHits(asked + request.prompt_tokens, hit + request.hit_tokens)

    outcome, _ = simulate(loaded.scenario, loaded.acceptance(), finished=note)
    warm_up = loaded.scenario.requests.warm_up
    times = [times for place, times in sorted(ended) if place >= warm_up]
    kept = [each for _, each in sorted(hits.items())] if outcome.serving.prefix_cache else []
    return RunOfService(outcome, times, kept)


def _values(outcome: Outcome) -> dict[str, float]:
    """Return the numbers of a run by key, without those that are not there."""
    values = {
        "ttft_ms": outcome.ttft_s * MS,
        "tpot_ms": outcome.tpot_s * MS,
        "e2e_ms": outcome.serving.e2e.mean * MS,
        "output_tokens_per_s": outcome.tokens_per_s,
        "tokens_per_step": outcome.tokens_per_step,
    }
    hit_rate = outcome.serving.prefix_cache.get("hit_rate")
    if hit_rate is not None:
        values["hit_rate"] = hit_rate
    return values


def _slower_run(loaded: Loaded, outcome: Outcome, batch: int) -> dict[str, float]:
    """Return with what power of a step's time each number goes, by a run with slower devices and
    hosts; empty where these change no step.
    """
    spreads = {}
    for device in nested(loaded.scenario, Device):
        spreads[device.name] = log(SLOWER) / log(1.0 + spread_of(device))
    slower = changed(Engine, _slower_host, with_slower(spreads, loaded))
    acceptance = loaded.acceptance()
    before_s = step_by_law(laws_of(loaded.scenario, acceptance, batch))
    step = log(step_by_law(laws_of(slower.scenario, acceptance, batch)) / before_s)
    if step < LEAST:
        return {}
    powers = {}
    before = _values(outcome)
    for key, value in _values(_run(slower).outcome).items():
        if value > 0.0 and before[key] > 0.0:
            powers[key] = log(value / before[key]) / step
    return powers


def _slower_host(engine: Engine) -> Engine:
    """Return an engine whose host takes longer for everything."""
    ratio = engine.host_ratio
    slower = ratio.model_copy(update={"value": ratio.value * SLOWER, "low": None, "high": None})
    return engine.model_copy(update={"host_ratio": slower})


def _resampled(done: RunOfService, deviates: Deviates) -> dict[str, Floats]:
    """Return the draws of requests drawn again, by key; the same ones for every run of as many
    requests.
    """
    grouped = _grouped(done.times)
    firsts = tuple((group.ttft_s, 1) for group in grouped)
    decoding = tuple((group.decoding_s, group.tokens) for group in grouped if group.tokens)
    draws = {"ttft_ms": deviates.times(firsts), "tpot_ms": deviates.times(decoding)}
    if done.hits:
        draws["hit_rate"] = hit_rate_changes(done.hits, deviates.normal("hits"))
    return draws


def hit_rate_changes(hits: Sequence[SessionHits], normal: Floats) -> Floats:
    """Return log changes of a hit rate over as many other sessions, by standard normal deviates;
    none where nothing is found, of which no share can be drawn.

    A session finds all of a beginning or nothing, so its tokens are not independent. With r the
    rate, p_i the prompt tokens of a session and h_i those found, the rate has the variance of a
    ratio of sums over n sessions, and is worth as many independent tokens as a binomial share of
    that variance::

        v = n / (n - 1) sum((h_i - r p_i)^2) / sum(p_i)^2        m = r (1 - r) / v

    It is drawn from Beta(r m + 1/2, (1 - r) m + 1/2), Jeffreys' posterior. Where sessions do not
    differ, they say no more than their number does. Source: E. L. Korn, B. I. Graubard, Survey
    Methodology 24 (1998) 193.
    """
    asked, hit = np.array(hits, dtype=float).T
    count = len(hits)
    rate = float(hit.sum() / asked.sum())
    if rate == 0.0:
        return np.zeros(DRAWS)
    worth = float(count)
    apart = float(((hit - rate * asked) ** 2).sum())
    if count > 1 and apart > 0.0:
        variance = count / (count - 1) * apart / float(asked.sum()) ** 2
        worth = rate * (1.0 - rate) / variance
    from scipy.special import betaincinv, ndtr

    drawn = betaincinv(rate * worth + 0.5, (1.0 - rate) * worth + 0.5, ndtr(normal))
    changes: Floats = np.log(np.maximum(drawn, LEAST_RATE) / rate)
    return changes


def _of_others(done: RunOfService) -> dict[str, Floats]:
    """Return the draws of as many other requests of the same kind, and of as many windows."""
    deviates = Deviates(1)
    draws = _resampled(done, deviates)
    accepted = done.outcome.accepted
    counts = np.array(list(accepted.values()), dtype=float)
    kept = np.array(list(accepted), dtype=float)
    if float(kept @ counts) > 0.0:
        mean = float(np.average(kept, weights=counts))
        variance = float(np.average((kept - mean) ** 2, weights=counts))
        relative = sqrt(variance / counts.sum()) / mean
        tokens = done.outcome.tokens_per_step
        others = 1.0 + (tokens - 1.0) * np.exp(relative * deviates.normal("windows"))
        draws["tokens_per_step"] = np.log(others / tokens)
    return draws


def _grouped(times: Sequence[RequestTimes]) -> list[RequestTimes]:
    """Return sums over neighbours where there are more requests than are drawn one by one."""
    size = -(-len(times) // GROUPS)
    if size <= 1:
        return list(times)
    groups = []
    for first in range(0, len(times), size):
        of_group = times[first : first + size]
        groups.append(
            RequestTimes(
                sum(each.ttft_s for each in of_group),
                sum(each.decoding_s for each in of_group),
                sum(each.tokens for each in of_group),
            )
        )
    return groups


def _plus(changes: Mapping[str, Floats], others: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the sums of draws by key."""
    return {key: each + others.get(key, 0.0) for key, each in changes.items()}


def _together(
    values: Mapping[str, float], changes: Mapping[str, Floats], rate: Floats | None
) -> dict[str, Floats]:
    """Return draws with those of a whole request, of which the first token is a part, and of tokens
    a second: ``rate``, or the inverse of a whole request.
    """
    share = min(1.0, values["ttft_ms"] / values["e2e_ms"]) if values["e2e_ms"] else 0.0
    first = share * np.exp(changes["ttft_ms"])
    whole = np.log(first + (1.0 - share) * np.exp(changes["tpot_ms"]))
    return {
        **changes,
        "e2e_ms": whole,
        "output_tokens_per_s": -whole if rate is None else rate,
        "tokens_per_step": changes.get("tokens_per_step", np.zeros(DRAWS)),
    }
