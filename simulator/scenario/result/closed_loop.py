"""A closed loop by law: how many of its clients run and wait, tokens a second, time to the first
token.

The law (:mod:`simulator.core.serving.waiting`) is that of waves: all that run begin and end
together. Requests that are alike, with the same acceptance in every step, do so exactly under a
policy that reserves. Others begin one by one: then the mean number that runs and the queue stay,
and prompts that are read meanwhile hold up who decodes. A run's beginning and end are left out.
"""

from math import expm1
from typing import NamedTuple

from simulator.core.acceptance.sources import Acceptance
from simulator.core.cost.rows import Rows
from simulator.core.plain import PlainData
from simulator.core.serving.waiting import ClosedLoopLaw
from simulator.core.strategies.common.capabilities import drafts_first
from simulator.core.strategies.common.claim import EXACT, Claim
from simulator.core.strategies.common.law import Law
from simulator.scenario.fields import Scenario


class WaitingClients(NamedTuple):
    """A closed loop by law, and how many of its clients would run without speculation."""

    law: ClosedLoopLaw
    claim: Claim
    decoding_per_s: float
    """Output tokens a second of all clients together in steps alone, prompts left out."""
    plain_running: int | None
    """Requests that run at a time in autoregressive decoding; None where that is what runs."""

    @property
    def words(self) -> str:
        """Return how many clients run and wait, and how many would run without speculation."""
        return in_words(self.law.clients, self.law.running, self.plain_running)

    def as_data(self) -> PlainData:
        """Return plain data, times in milliseconds; those of a queue that has filled up."""
        law = self.law
        return {
            "clients": law.clients,
            "run": law.running,
            "wait": law.waiting,
            "run_without_speculation": self.plain_running,
            "decoding_tokens_per_s": self.decoding_per_s,
            "tokens_per_s": law.tokens_per_s,
            "wait_ms": law.wait_s * 1e3,
            "ttft_ms": law.ttft_s * 1e3,
            "e2e_ms": law.e2e_s * 1e3,
            "relation": str(self.claim),
        }


def in_words(clients: int, running: int, plain_running: int | None) -> str:
    """Return how many of some clients run and wait; ``plain_running``: how many would run without
    speculation, None where nothing is drafted.
    """
    words = f"{clients:,} clients: {running:,} run at a time, {clients - running:,} wait"
    if plain_running is None:
        return f"{words} for room in the KV cache"
    if plain_running == clients:
        return f"{words}; without speculation all would run"
    return f"{words}; without speculation {plain_running:,} would run"


def closed_loop(scenario: Scenario, acceptance: Acceptance, law: Law) -> WaitingClients | None:
    """Return the closed loop of a scenario by law, from the ``law`` of its steps; None where the
    cache has room for all clients, where requests arrive by themselves, and where prefill and
    decode are apart.
    """
    if scenario.serving.pools or not scenario.waits:
        return None
    replicas = scenario.serving.replicas
    clients = scenario.requests.concurrency
    running = scenario.batch
    output = scenario.lengths[1]
    steps_s = float(law.tpot_s) * (output - 1.0)
    alike = _alike(scenario, acceptance)
    together = running
    if not alike:
        together = _entering(running, (output - 1.0) / float(law.tokens_per_step))
    read_s, window_s = _admission_s(scenario, together)
    service_s = read_s * running / together + window_s + steps_s
    if scenario.serving.policy.decodes_beside:
        all_s, _ = _admission_s(scenario, running)
        service_s = all_s + steps_s
        read_s = float(law.step_s) + all_s / running
    plain_running = None
    if scenario.schedule.window:
        plain_running = min(clients, replicas * scenario.plain_batch)
    of_loop = ClosedLoopLaw(
        clients=clients,
        running=replicas * running,
        read_s=read_s,
        decode_s=service_s - read_s,
        outside_s=scenario.cost.outside_s,
        output_tokens=output,
    )
    decoding_per_s = of_loop.running / float(law.tpot_s)
    return WaitingClients(of_loop, _claim(scenario, law, alike), decoding_per_s, plain_running)


def _entering(running: int, steps: float) -> int:
    """Return how many prompts are read together where requests end one by one: those of the
    requests that end with the same step, in the mean over steps with which any do (Poisson).
    """
    ending = running / steps
    return min(running, max(1, round(ending / -expm1(-ending))))


def _admission_s(scenario: Scenario, together: int) -> tuple[float, float]:
    """Return the seconds of a pass that reads so many prompts, and those of first windows that are
    drafted behind it.
    """
    prompt = round(scenario.lengths[0])
    rows = Rows(*(number * together for number in Rows.prefill(prompt)))
    admission = scenario.schedule.admission(scenario.cost, rows, together, together * prompt)
    target, draft, window = admission
    if scenario.one_lane or drafts_first(scenario.schedule):
        return target + draft, window
    contended = (scenario.cost.contention - 1.0) * min(target, draft)
    return max(target, draft) + contended, window


def _alike(scenario: Scenario, acceptance: Acceptance) -> bool:
    """Return whether all requests are of one length and every step keeps as much of a window."""
    requests = scenario.requests
    window = scenario.schedule.window_for(scenario.batch)
    chances = acceptance.odds(window, scenario.exit).accepted
    fixed = isinstance(requests.prompt_tokens, int) and isinstance(requests.output_tokens, int)
    return fixed and float(chances.max()) == 1.0


def _claim(scenario: Scenario, law: Law, alike: bool) -> Claim:
    """Return what the law of waves claims in a scenario."""
    schedule = scenario.schedule
    serving = scenario.serving
    in_turn = schedule.needs.in_flight == 1 and serving.replicas == 1
    priced = law.claim.exact and len(law.kinds) == 1 and not scenario.cost.reads_context
    if alike and serving.policy.reserves and in_turn and priced:
        return EXACT
    if alike:
        return Claim("idealised", "all that run begin and end together, at the mean context")
    return Claim("idealised", "requests end one by one, at the mean context, and none is preempted")
