"""Bound what any fleet of a candidate can do, however its router deals, and rule it out without a
simulation.

A bound is optimistic: where it says that a limit is broken, every simulation of the candidate
breaks it. Both bounds need what ``holds_for`` checks; where that does not hold they say nothing,
and the candidate is simulated.

*Monotone costs.* A pass over more rows, or more cached tokens, never takes less: bytes, flops and
tiles only grow, and the host takes no less for many rows than for one (checked). Ratios measured by
width may fall where a kernel changes; each is taken as the least at its width or above, which is
never more than the ratio and never falls.

*Prefix caching* makes company pay, so that the bounds say nothing of requests that arrive by
themselves. Of a turn of a session the law of hits says what is found at most, whatever else is
served (:func:`simulator.core.serving.cache.session_hits.most_found`), so that at least the rest of
its prompt is computed; it is taken as a prompt of so many tokens with nothing behind it in the
cache, which has no more rows and no more pairs.

*Sessions*: each turn takes no less than alone, whenever it comes. When it comes depends on answers,
so that *demand* is that of first turns.

*alone*: a request is never quicker in company than alone.
    Its windows and verdicts depend on nothing but itself (fixed window, one recording per request),
    so it takes part in the same steps; each has its rows and perhaps those of more requests, and by
    monotone costs takes no less. The same holds for the pass of its prompt, which is never split.
    So TTFT, TPOT and E2E of every request, and every gap between its tokens, are at least what they
    are when requests come one at a time, each into an idle machine, with no more in the cache than
    the prompt. If so many exceed a limit even then, it is broken.

*demand*: work has to fit between arrivals and deadlines (processor demand; Baruah, Rosier and
    Howell 1990). A replica does one iteration at a time. A step of B requests takes T(B), so that
    each of them takes at least ``min T(B)/B`` of it; a pass over n tokens of prompts takes at least
    ``min T(n)/n`` for each. Request i thus needs ``work_i`` seconds of some replica, after its
    arrival and, if it meets the SLO, before its deadline. For all s < t the work of those that
    arrive from s on and are due by t, less the heaviest ones that a percentile lets go, must not
    exceed ``replicas (t - s)``. Between two priced sizes the quotient is taken low: T of the
    smaller over the larger.

*Preemption* puts a pass over prompt and output so far in the place of a step. A request that is
further on in its text is so after its next window too, so that with passes of one token among them
it never gets through in fewer rounds; each is taken as the quicker of the two. Gaps are then not
bounded, nor is a recording by start, where being further on may be worse.

Requests of a warm-up or cool-down do their work and set no deadline.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise, product
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from simulator.core.acceptance.assignment import TraceAssignment
from simulator.core.acceptance.cursors import Chain
from simulator.core.acceptance.sources import Cycle
from simulator.core.cost.protocol import Cost
from simulator.core.cost.roofline import Roofline
from simulator.core.cost.rows import Rows
from simulator.core.quantities import replace_nested
from simulator.core.serving.cache.prefixes import PrefixCache
from simulator.core.serving.fleet.handover import PoolRole
from simulator.core.serving.requests import Request
from simulator.core.serving.slo import Limit
from simulator.core.strategies.common.capabilities import ProvenSteps, drafts_first
from simulator.scenario import Loaded, Scenario
from simulator.scenario.pools import pool_scenarios
from simulator.scenario.stability import most_cached
from simulator.studies.plan.watch import MARGIN, may_exceed

PROMPT_GRID = 64
"""Prompt tokens between two sizes at which a pass is priced."""
INSTANTS = 500
"""Arrivals from which on demand is added up, at most; leaving some out only weakens the bound."""
MOST_SHARES = 16
"""Hardware whose least time of a prompt's token is kept: candidates and traffic share it."""
Times = NDArray[np.float64]
"""(requests,) seconds, or counts of steps, one for each request."""


def holds_for(loaded: Loaded) -> bool:
    """Return whether both proofs cover a scenario."""
    scenario = loaded.scenario
    policy = scenario.serving.policy
    schedule = scenario.schedule
    if policy.name not in ("fixed_batch", "prefill_first"):
        return False
    if getattr(policy, "splits_prompts", False) or not _known_at_most(scenario):
        return False
    if not isinstance(schedule, ProvenSteps) or not schedule.independent_steps:
        return False
    by_position = loaded.trace is None or loaded.trace.run is None or not schedule.window
    if scenario.cost.jitters or not (by_position or _room_for_all(scenario)):
        return False
    return _monotone(scenario)


def _known_at_most(scenario: Scenario) -> bool:
    """Return whether it is known what a cache has of each prompt at most, and which turns count."""
    requests = scenario.requests
    if requests.sessions is not None and not requests.all_count:
        return False
    memory = scenario.serving.memory
    if not memory.prefix_caching:
        return True
    by_law = requests.sessions is not None and requests.past_end == "cut"
    plain_cache = type(memory.pool(None)) is PrefixCache
    return by_law and plain_cache and _room_for_all(scenario)


def _room_for_all(scenario: Scenario) -> bool:
    """Return whether no request can be preempted: it keeps its room, or there is memory for the
    longest at every place.
    """
    memory = scenario.memory()
    _, _, longest = scenario.lengths
    policy = scenario.serving.policy
    slots = policy.step_slots(scenario.schedule.needs)
    needed = scenario.batch * memory.needed(longest + slots)
    return policy.reserves or needed <= memory.total


def _monotone(scenario: Scenario) -> bool:
    """Return whether the costs of hosts and of kernels' rows are monotone; :func:`_least_widths`
    makes those of the devices so.
    """
    for place in (scenario.target, scenario.draft):
        if place and not (place.engine.monotone and place.device.monotone):
            return False
    return scenario.target is not None


def _least_widths(operation: Roofline) -> Roofline:
    """Return an operation with each measured ratio as the least at its width or above."""
    points = []
    least = inf
    fixed = inf
    for point in reversed(operation.width):
        least = min(least, point.ratio)
        fixed = min(fixed, point.fixed_ratio)
        points.append(point.model_copy(update={"ratio": least, "fixed_ratio": fixed}))
    if points:
        return operation.model_copy(update={"width": tuple(reversed(points))})
    return operation


@dataclass(frozen=True)
class FleetBounds:
    """Rules out numbers of replicas of one candidate under the limits of a plan."""

    loaded: Loaded
    limits: tuple[Limit, ...]
    part: PoolRole = "both"
    """What its replicas do of each request; elsewhere the rest takes no time at all."""

    def broken_by(self, replicas: int) -> tuple[str, Limit] | None:
        """Return the name of the bound that rules out so many replicas and the limit that they
        break; None where none does.
        """
        if not self.holds:
            return None
        if limit := self.overdue(replicas):
            return "demand", limit
        if limit := self.broken_alone:
            return "alone", limit
        return None

    @cached_property
    def _scenario(self) -> Scenario:
        """Return the scenario on devices that are never slower for fewer rows."""
        scenario: Scenario = replace_nested(self.loaded.scenario, Roofline, _least_widths)
        return scenario

    @cached_property
    def holds(self) -> bool:
        """Return whether the proofs cover this candidate."""
        return holds_for(self.loaded)

    # ---- alone

    @cached_property
    def broken_alone(self) -> Limit | None:
        """Return a limit that requests break even when they come one at a time; None where there is
        none.
        """
        for limit in self.limits:
            if self._breaks(limit):
                return limit
        return None

    def _breaks(self, limit: Limit) -> bool:
        if limit.metric == "tbt":
            outputs = self._lengths[:, 1]
            every_gap = _room_for_all(self._scenario) and self._counted.all()
            if not (every_gap and (outputs > 1).any()):
                return False
            shortest = int(self._lengths[:, 0].min())
            return _step(self._scenario, 1, shortest) > limit.seconds * MARGIN
        # no prompt takes longer than the longest, and mostly that one is within the limit
        return self._exceed(limit, self._as_the_longest) and self._exceed(limit, self._alone)

    def _exceed(self, limit: Limit, taken: tuple[Times, Times]) -> bool:
        """Return whether too many requests exceed a limit on TTFT, TPOT or E2E if they take so
        long, to the first token and from there on.
        """
        first, rest = taken
        outputs = self._lengths[:, 1]
        counted = self._judged(limit)
        seconds = first
        if limit.metric == "e2e":
            seconds = first + rest
        elif limit.metric == "tpot":
            seconds = rest / np.maximum(1, outputs - 1)
            counted = counted & (outputs > 1)
        judged = seconds[counted]
        return int((judged > limit.seconds * MARGIN).sum()) > may_exceed(limit, len(judged))

    @cached_property
    def _alone(self) -> tuple[Times, Times]:
        """Return two (requests,): seconds to the first token, and from there to the last with the
        step that ends the prompt.
        """
        return self._taken(self._computed, self._lengths[:, 0])

    @cached_property
    def _as_the_longest(self) -> tuple[Times, Times]:
        """Return the same of requests whose prompts are all as long as the longest."""
        computed = self._computed
        prompts = self._lengths[:, 0]
        return self._taken(
            np.full_like(computed, computed.max()), np.full_like(prompts, prompts.max())
        )

    def _taken(
        self, computed: NDArray[np.int64], prompts: NDArray[np.int64]
    ) -> tuple[Times, Times]:
        """Return the same of requests with prompts of so many tokens, (requests,), of which so many
        are computed.
        """
        scenario = self._scenario
        pairs, place = np.unique(np.stack([computed, prompts]), axis=1, return_inverse=True)
        admissions = np.array([_admission(scenario, *pair) for pair in pairs.T.tolist()])
        first, window = admissions[place.ravel()].T
        if self.part == "prefill":
            return first, np.zeros(len(first))
        coarse = prompts // PROMPT_GRID * PROMPT_GRID
        contexts, place = np.unique(coarse, return_inverse=True)
        steps = np.array([_step(scenario, 1, int(context)) for context in contexts])
        step = steps[place]
        if not _room_for_all(self._scenario):
            step = np.minimum(step, first)
        if self.part == "decode":  # what stands behind the prompt may have been done elsewhere
            return np.zeros(len(first)), self._steps * step
        return first, window * (self._lengths[:, 1] > 1) + self._steps * step

    # ---- demand

    def overdue(self, replicas: int) -> Limit | None:
        """Return a limit whose work does not fit between arrivals and deadlines on so many
        replicas; None where all does.
        """
        for limit, least in self._replicas_due:
            if least > replicas:
                return limit
        return None

    @cached_property
    def _replicas_due(self) -> list[tuple[Limit, float]]:
        """Return for each deadline its limit, and the replicas that its work takes at least, a
        fraction among them.
        """
        due_of = []
        for limit, let_go, due, work in self._deadlines:
            counted_due = np.where(self._judged(limit), due, inf)
            known = self._arrivals < inf
            due_known = counted_due[known]
            late = min(let_go, len(due_known))
            least = _least_replicas(self._arrivals[known], due_known, work[known], late)
            due_of.append((limit, least))
        return due_of

    @cached_property
    def _deadlines(self) -> list[tuple[Limit, int, Times, Times]]:
        """Return for each deadline its limit, the requests it lets go, when the rest are due (s),
        and their work (s).
        """
        arrivals = self._arrivals
        outputs = self._lengths[:, 1]
        prompts, whole = self._work
        counts = {limit: int(self._judged(limit).sum()) for limit in self.limits}
        late = {limit: may_exceed(limit, count) for limit, count in counts.items()}
        ttft = [limit for limit in self.limits if limit.metric == "ttft"]
        e2e = [limit for limit in self.limits if limit.metric == "e2e"]
        tpot = [limit for limit in self.limits if limit.metric == "tpot"]
        deadlines = []
        for limit in ttft:
            deadlines.append((limit, late[limit], arrivals + limit.seconds * MARGIN, prompts))
        for limit in e2e:
            deadlines.append((limit, late[limit], arrivals + limit.seconds * MARGIN, whole))
        for first, token in product(ttft, tpot):
            if first.of != token.of:
                continue
            due = arrivals + (first.seconds + token.seconds * (outputs - 1)) * MARGIN
            deadlines.append((first, late[first] + late[token], due, whole))
        return [deadline for deadline in deadlines if deadline[1] < counts[deadline[0]]]

    @property
    def _work(self) -> tuple[Times, Times]:
        """Return the work of each request (s) until its first token, and until its last one."""
        prompts = self._prompt_work
        if self.part == "prefill":
            return prompts, prompts
        if self.part == "decode":
            prompts = np.zeros(len(self._arrivals))
        if self._prompts_elsewhere:
            return prompts, self._step_work
        return prompts, prompts + self._step_work

    @property
    def _prompts_elsewhere(self) -> bool:
        """Whether prompts do not hold up the stages on which tokens are decoded."""
        return self._scenario.schedule.traits.staged

    @cached_property
    def _requests(self) -> list[Request]:
        requests = self._scenario.requests
        acceptance = self.loaded.acceptance()
        assignment = TraceAssignment(acceptance, requests.flavours_by_task)
        seed = self._scenario.seed
        came = list(requests.source_of(seed, assignment).due(inf))
        if requests.sessions is None:
            return came
        begins = {request.session: request.arrival_s for request in came}
        classes = {request.session: request.service_class for request in came}
        cut = requests.past_end == "cut"
        every_turn = []
        for turns in requests.dealt_turns(seed, assignment):
            at_s = begins[turns[0].session]
            for turn in turns:
                asked = turn.prompt_tokens, turn.output_tokens
                request = Request(turn.number, at_s, *asked, cut, turn.dealt)
                request.service_class = classes[turn.session]
                every_turn.append(request)
                at_s = inf  # nobody knows when the next one comes
        return every_turn

    @cached_property
    def _counted(self) -> NDArray[np.bool_]:
        """Return (requests,): which of them are neither warm-up nor cool-down."""
        requests = self._scenario.requests
        place = np.arange(len(self._requests))
        return (place >= requests.warm_up) & (place < len(place) - requests.cool_down)

    def _judged(self, limit: Limit) -> NDArray[np.bool_]:
        """Return (requests,): which of them a limit is about."""
        if not limit.of:
            return self._counted
        classes = np.array([request.service_class for request in self._requests])
        return np.asarray(self._counted & (classes == limit.of), dtype=np.bool_)

    @cached_property
    def _arrivals(self) -> Times:
        return np.array([request.arrival_s for request in self._requests])

    @cached_property
    def _lengths(self) -> NDArray[np.int64]:
        """Return (requests, 2): prompt and output tokens."""
        lengths = [(request.prompt_tokens, request.output_tokens) for request in self._requests]
        return np.array(lengths)

    @cached_property
    def _computed(self) -> NDArray[np.int64]:
        """Return (requests,) the prompt tokens that are computed at least."""
        prompts = self._lengths[:, 0]
        cached = most_cached(self._scenario)
        if not cached:
            return prompts
        return np.asarray(prompts - np.array(cached), dtype=np.int64)

    @cached_property
    def _prompt_work(self) -> Times:
        """Return seconds of a replica's time that the prompt of each request takes at least,
        whatever goes with it.
        """
        scenario = self._scenario
        longest = scenario.batch * int(self._lengths[:, 0].max())
        most = getattr(scenario.serving.policy, "batch_tokens", longest)
        share = _prompt_share(scenario.cost, self._prompts_elsewhere, most)
        return np.asarray(self._computed * share, dtype=np.float64)

    @cached_property
    def _step_work(self) -> Times:
        """Return seconds of a replica's time that the steps of each request take at least,
        whichever requests share them.
        """
        scenario = self._scenario
        context = int(self._lengths[:, 0].min())
        sizes = [0, *_sizes(scenario.batch)]
        share = min(_busy(scenario, below + 1, context) / above for below, above in pairwise(sizes))
        if _room_for_all(scenario):
            return np.asarray(self._steps * share, dtype=np.float64)
        if self._prompts_elsewhere:
            least = np.zeros(len(self._steps))
        else:
            least = np.minimum(share, self._prompt_work)
        return np.asarray(self._steps * least, dtype=np.float64)

    @cached_property
    def _steps(self) -> Times:
        """Return the steps of each request after its first token, which depend on no other
        request.
        """
        scenario = self._scenario
        acceptance = self.loaded.acceptance()
        strategy = scenario.schedule
        if not strategy.window:
            return np.asarray(self._lengths[:, 1] - 1.0, dtype=np.float64)
        proposal = Chain(strategy.window, strategy.bonus_on_full_accept)
        steps_of_requests = []
        for request in self._requests:
            cursor = acceptance.cursor(request.dealt, scenario.exit)
            steps = 0
            tokens = cursor.judge(proposal).committed if drafts_first(strategy) else 1
            while tokens < request.output_tokens:
                tokens += cursor.judge(proposal).committed
                steps += 1
            steps_of_requests.append(float(steps))
        return np.array(steps_of_requests, dtype=np.float64)


@dataclass(frozen=True)
class SplitBounds:
    """Rules out splits of one candidate: each pool has to do its part of every request, as if the
    other one and the link took no time.
    """

    loaded: Loaded
    limits: tuple[Limit, ...]

    def broken_by(self, prefill: int, decode: int) -> tuple[str, Limit] | None:
        """Return the name of the bound that rules out so many replicas for either, and the limit
        that they break; None where none does.
        """
        for bounds, replicas in zip(self._pools, (prefill, decode), strict=True):
            if ruled_out := bounds.broken_by(replicas):
                return ruled_out
        return None

    @cached_property
    def _pools(self) -> tuple[FleetBounds, ...]:
        """Return the bounds of both pools.

        A draft that has nothing of the prompt takes other steps, of which nothing is proven.
        """
        scenario = self.loaded.scenario
        handover = scenario.serving.handover
        pools = []
        for pool, own in pool_scenarios(scenario):
            limits = self.limits
            if pool.role == "prefill":
                limits = tuple(limit for limit in limits if limit.metric in ("ttft", "e2e"))
            elif handover and handover.draft_state == "absent" and scenario.schedule.window:
                limits = ()
            loaded = Loaded(own, self.loaded.trace, self.loaded.document, self.loaded.verdicts)
            pools.append(FleetBounds(loaded, limits, pool.role))
        return tuple(pools)


def _sizes(places: int) -> list[int]:
    """Return every batch size up to 64, then sixteen for each doubling, and ``places`` last."""
    sizes = []
    size = 1
    while size < places:
        sizes.append(size)
        size += max(1, size // 16 if size >= 64 else 1)
    return [*sizes, places]


def _admission(scenario: Scenario, computed: int, tokens: int) -> tuple[float, float]:
    """Return seconds of the ``computed`` tokens of the prompt of one request through target and
    draft, and of a first window behind all ``tokens`` of it.
    """
    admission = scenario.schedule.admission(scenario.cost, Rows.prefill(computed), 1, tokens)
    sides = admission.target, admission.draft
    in_turn = scenario.one_lane or drafts_first(scenario.schedule)
    return sum(sides) if in_turn else max(sides), admission.window


def _step(scenario: Scenario, requests: int, context: int) -> float:
    """Return seconds of the quickest step of so many requests that have ``context`` tokens each in
    the cache.
    """
    strategy = scenario.strategy.fitted_to(requests, scenario.stages)
    perfect = Cycle((strategy.window,))
    kind = next(iter(strategy.kinds(lambda gamma: perfect.odds(gamma, scenario.exit), requests)))
    return float(
        strategy.step_seconds(strategy.durations(scenario.cost, strategy.step(kind, context)), kind)
    )


def _busy(scenario: Scenario, requests: int, context: int) -> float:
    """Return seconds for which a step keeps a replica from the next one: the whole step, or that of
    the slowest stage.
    """
    if scenario.schedule.traits.staged:
        return _slowest_stage(scenario.cost, Rows.decode(1, requests * context, requests))
    return _step(scenario, requests, context)


@lru_cache(MOST_SHARES)
def _prompt_share(cost: Cost, on_stages: bool, most: int) -> float:
    """Return seconds that a token of a prompt takes at least, in a pass over at most so many tokens
    of prompts; on stages they are those of the slowest one.
    """
    apart = max(PROMPT_GRID, most // 256 // PROMPT_GRID * PROMPT_GRID)
    sizes = [0, *range(PROMPT_GRID, most, apart), most]
    share = inf
    for below, above in pairwise(sizes):
        rows = Rows.prefill(below + 1)
        # however long the prompts are: a token sees itself at least
        least = rows._replace(attention_pairs=rows.tokens, prompt_pairs=rows.tokens)
        if on_stages:
            seconds = _slowest_stage(cost, least)
        else:
            seconds = float(cost.prefill("target", least).wall_s)
        share = min(share, seconds / above)
    return share


def _slowest_stage(cost: Cost, rows: Rows) -> float:
    """Return seconds of a pass on its slowest stage: the next may follow on stages already left."""
    return max(float(cost.stage(index, rows).wall_s) for index in range(cost.stages))


def _least_replicas(arrivals: Times, due: Times, work: Times, let_go: int) -> float:
    """Return how many replicas the work takes at least, at the worst of all intervals: its seconds
    over those of the interval; below zero where nothing is due.
    """
    spared = float(np.sort(work)[len(work) - let_go :].sum())
    order = np.argsort(due)
    ends = due[order]
    most = -inf
    for start in arrivals[:: max(1, ceil(len(arrivals) / INSTANTS))]:
        inside = np.cumsum(np.where(arrivals[order] >= start, work[order], 0.0))
        later = (ends > start) & (ends < inf)
        needed = (inside - spared)[later] / (ends - start)[later]
        most = max(most, float(needed.max(initial=-inf)))
    return most
