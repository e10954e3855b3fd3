"""What a replica serves by law: seconds per prompt and output token in a full batch, and the
traffic that so many of them should be able to carry.
"""

from math import inf
from typing import NamedTuple

from simulator.core.cost.rows import Rows
from simulator.core.serving.fleet.tandem import Tandem
from simulator.core.serving.load.busier import rate_per_s
from simulator.scenario import Loaded
from simulator.scenario.evaluate import law, tuned
from simulator.scenario.stability import cached_tokens
from simulator.studies.plan.limits import limits_of

OVERLOADED = 0.5
"""Multiple of the traffic, by law, below which no run is needed to see that a fleet does not carry
all of it.
"""
SUSTAINED = 0.95
"""Share of what replicas serve by law up to which traffic is taken not to pile up (assumed)."""


def offered_per_s(loaded: Loaded) -> float:
    """Return how many requests come in a second, in the mean, of sessions turns; infinity where all
    come at once.
    """
    requests = loaded.scenario.requests
    if requests.sessions is None:
        return rate_per_s(requests)
    return requests.offered_per_s(loaded.scenario.seed) or inf


def full_step_s(loaded: Loaded) -> float:
    """Return seconds per token in a full batch, by law."""
    if loaded.scenario.lengths[1] <= 1.0:
        return 0.0
    ready = tuned(loaded)
    return float(law(ready.scenario, ready.acceptance(), full_batch(loaded)).tpot_s)


def full_batch(loaded: Loaded) -> int:
    """Return the requests that have a place, and room in the cache, at a time."""
    scenario = loaded.scenario
    memory = scenario.memory()
    prompt, output, _ = scenario.lengths
    room = memory.total / max(1, memory.needed(int(prompt + output)))
    return max(1, int(min(scenario.batch, room)))


def occupied_s(loaded: Loaded) -> tuple[float, float]:
    """Return seconds of a replica per prompt token, and per output token in a full batch, by
    law.
    """
    scenario = loaded.scenario
    prompt = max(1, int(scenario.lengths[0]))
    prefill = float(scenario.cost.prefill("target", Rows.prefill(prompt)).wall_s)
    return prefill / prompt, full_step_s(loaded) / full_batch(loaded)


class BatchByLaw(NamedTuple):
    """Is a batch with the seconds of each of its steps' tokens, by law."""

    batch: int
    tpot_s: float

    @property
    def token_s(self) -> float:
        """Return seconds of a replica per output token."""
        return self.tpot_s / self.batch


def within_limits(loaded: Loaded) -> BatchByLaw:
    """Return the largest batch of 1, 2, 4, ... and a full one in which TPOT is within the SLO by
    law; a single request where it is within it nowhere.
    """
    ready = tuned(loaded)
    full = full_batch(ready)
    limits = limits_of(ready.scenario)
    allowed_s = min((limit.seconds for limit in limits if limit.metric == "tpot"), default=inf)
    acceptance = ready.acceptance()
    for batch in (full, *(1 << power for power in reversed(range(full.bit_length())))):
        tpot_s = float(law(ready.scenario, acceptance, batch).tpot_s)
        if tpot_s <= allowed_s or batch == 1:
            break
    return BatchByLaw(batch, tpot_s)


def per_s_within_limits(loaded: Loaded, replicas: int) -> float:
    """Return the requests a second that so many replicas should serve in the largest batches that
    the SLO allows, by law.
    """
    prompt, output, _ = loaded.scenario.lengths
    prompt -= cached_tokens(loaded.scenario, written=True)
    of_prompt, _ = occupied_s(loaded)
    return replicas / (prompt * of_prompt + output * within_limits(loaded).token_s)


def by_law(loaded: Loaded, replicas: int) -> float:
    """Return the multiple of its traffic that so many replicas should be able to carry, by law, if
    it goes on.
    """
    prompt, output, _ = loaded.scenario.lengths
    of_prompt, of_output = occupied_s(loaded)
    serving = loaded.scenario.serving
    prompt -= cached_tokens(loaded.scenario, written=not serving.pools)
    if serving.pools:
        decodes = serving.decoding
        queues = Tandem(prompt * of_prompt, 0.0, output * of_output, replicas - decodes, decodes)
        return SUSTAINED * queues.most_per_s / offered_per_s(loaded)
    return (
        SUSTAINED * replicas / (offered_per_s(loaded) * (prompt * of_prompt + output * of_output))
    )
