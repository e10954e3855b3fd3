"""Law against process: the example of every strategy, step by step, and every shipped scenario.

An example has stated durations and constant acceptance, so that a run of it repeats itself. Each
kind of step that the law names is played on quiet lanes; then a simulation and, where one request
follows another, a replay are run until they repeat, and the law is held to one turn of them. Where
it claims to be exact for outputs that end, it is held to short ones as well. What it has to keep to
is its own claim. How often each kind of step occurs is held to runs in which chance decides, since
a wrong share may be right where all or none of a window is kept.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from math import isclose
from typing import Any, NamedTuple

import numpy as np
from simpy import Event

from simulator.core.acceptance.sources import Acceptance, Cycle, Rates, odds_of
from simulator.core.cost.stated import StatedCost
from simulator.core.faults import BadInput
from simulator.core.numeric import ordered_sum
from simulator.core.parallel import Spread
from simulator.core.serving.cache.memory import Blocks
from simulator.core.serving.iteration import Iteration
from simulator.core.serving.policies import FixedBatch
from simulator.core.serving.requests import ClosedLoop, Requests
from simulator.core.serving.scheduler import Scheduler
from simulator.core.serving.service import lanes_of
from simulator.core.strategies import Strategy, strategies
from simulator.core.strategies.common.base import early_exit
from simulator.core.strategies.common.capabilities import Tunable, drafts_first, line_of
from simulator.core.strategies.common.claim import EXACT, Claim, Example
from simulator.core.strategies.common.outputs import Outputs
from simulator.core.strategies.common.step import NO_DURATIONS, Kind
from simulator.core.world import World
from simulator.inputs.catalogue import Catalogue
from simulator.scenario import load
from simulator.scenario.agreement import TOLERANCE, Agreement, agreement
from simulator.scenario.evaluate import is_followed, law, law_from, replay, simulate, tuned

CONTEXT = 100
"""Cached tokens at which an example's law is taken; stated durations do not depend on them."""
STEPS = 80
"""Steps of an example's run, at least; enough for a few turns of its steady state."""
VARIED = (0.5, 2.0)
"""Parts of itself that a duration is of at once, where a law is asked for several."""
CHANCES = (0.5, 0.9)
"""Chances of each draft token in runs that chance decides."""
DRAWN_STEPS = 5_000
"""Steps of such a run."""
DRAWN_SLACK = 0.02
"""Difference of a share by law and in such a run that chance explains; those of shipped strategies
are within 0.01.
"""


class LawCheck(NamedTuple):
    """Holds one number of an example by law and by process: seconds of a step, or tokens of a step
    and request.
    """

    strategy: str
    way: str
    """How the process ran (a step from rest, a replay, a simulation), and which number was
    compared.
    """
    condition: str
    """Batch and constant acceptance of the run."""
    claim: Claim
    law: float
    process: float
    slack: float = 0.0
    """Difference that chance explains, of shares of steps; 0 where nothing is left to chance."""

    @property
    def gap(self) -> float:
        """Return the law over the process, less one, as a share."""
        if self.process:
            return self.law / self.process - 1.0
        return 0.0

    @property
    def disagreement(self) -> bool:
        """Return whether the process breaks the claim by more than rounding, or by more than
        chance.
        """
        if self.slack:
            return abs(self.law - self.process) > self.slack
        return not self.claim.allows(self.process, self.law, self.law, TOLERANCE)


class ExampleTrial(NamedTuple):
    """Sets an example under one condition: so many requests, of whose draft tokens each
    verification keeps as many.
    """

    example: Example
    batch: int
    accepted: int
    off_exit: bool

    @property
    def condition(self) -> str:
        """Return batch and acceptance in words."""
        return (
            f"batch {self.batch}, {self.accepted} kept{', off the exit' if self.off_exit else ''}"
        )


class SteadyTurn(NamedTuple):
    """Holds one turn of a run that repeats itself."""

    kinds: dict[Kind, int]
    """Steps of each kind in it."""
    step_s: float
    """Mean duration of a step, in seconds."""
    tokens_per_step: float
    """Verified tokens per step and request."""


class _Record(NamedTuple):
    kind: Kind
    seconds: float
    tokens: int


def check_example(example: Example) -> Iterator[LawCheck]:
    """Hold the law of an example to its timeline and its replay, for several acceptances and
    batches. Raises :class:`BadInput` for a law that fails for durations that are arrays, as a
    report asks for them.
    """
    longest = example.strategy_for(1).window
    for batch in example.batches:
        has_exit = early_exit(example.strategy_for(batch), None) is not None
        for accepted in sorted({0, 1, longest // 2, longest, longest + 3}):
            for off_exit in (False, True) if has_exit else (False,):
                yield from _check_trial(ExampleTrial(example, batch, accepted, off_exit))


class ExampleVerdict(NamedTuple):
    """Says what became of one strategy's example."""

    strategy: str
    claims: tuple[str, ...]
    """Everything that the law claims under the conditions of the example."""
    compared: int
    """Numbers by law that were held to a process; those of an idealised law are not."""
    worst: LawCheck | None
    """The comparison that breaks its claim furthest, else the one of an exact law with the largest
    gap.
    """
    broken: int
    """Comparisons that break their claim."""

    @property
    def disagreement(self) -> bool:
        """Return whether a claim is broken, or the example leaves nothing that could be held."""
        return self.broken > 0 or self.compared == 0


def check_mix(example: Example) -> Iterator[LawCheck]:
    """Hold how often each kind of step occurs, by law, to runs of one request in which chance
    decides. Raises :class:`BadInput` for kinds that fail for several chances at once, as a report
    asks for them.
    """
    strategy: Strategy = example.strategy_for(1)
    cost = example.cost_of(strategy)
    target_exit = early_exit(strategy, None)
    for place, chance in enumerate(CHANCES):
        acceptance = strategy.reads(Rates((chance,)))
        odds = odds_of(acceptance, target_exit)
        tuned_to = strategy
        if isinstance(strategy, Tunable):
            tuned_to = strategy.tuned(cost, odds, 1, CONTEXT)
        predicted = tuned_to.law(cost, odds, 1, CONTEXT)
        if len(predicted.kinds) == 1 or predicted.claim.relation == "idealised":
            continue
        at_once = _kinds_at_once(tuned_to)
        output = 1 + int(DRAWN_STEPS * float(predicted.tokens_per_step))
        met = _played(tuned_to, acceptance, cost, 1, output, tuned_to.needs.in_flight == 1)
        steps = met.ledger.tally.steps
        for kind, share in tuned_to.kinds(odds, 1).items():
            words = (
                f"batch 1, chance {chance} of a token, kind {kind.name}, {kind.redrafts} redrafted"
            )
            check = partial(LawCheck, strategy.name, claim=EXACT, condition=words)
            met_share = steps.get(kind, 0) / sum(steps.values())
            yield check("share of steps", law=float(share), process=met_share, slack=DRAWN_SLACK)
            if kind in at_once:
                together = float(np.broadcast_to(at_once[kind], len(CHANCES))[place])
                yield check("share of steps, for all chances at once", law=together, process=share)


def _kinds_at_once(strategy: Strategy) -> Mapping[Kind, Any]:
    """Return the shares of kinds of step of one request for all chances, as arrays; none where the
    strategy takes one at a time.
    """
    if strategy.needs.single_rates:
        return {}
    acceptance = strategy.reads(Rates((np.array(CHANCES),)))
    try:
        return strategy.kinds(odds_of(acceptance, early_exit(strategy, None)), 1)
    except (TypeError, ValueError) as error:
        raise BadInput.at(
            strategy.name,
            f"kinds fails for several acceptance rates at once, which are arrays: {error}; leave "
            "out float(), or say single_rates=True in needs",
        ) from error


def verdict_on(example: Example, drawn: bool = True) -> ExampleVerdict:
    """Return what became of an example, over all its conditions, runs that chance decides among
    them where ``drawn``. Raises as :func:`check_mix`.
    """
    checks = list(check_example(example))
    if drawn:
        checks += check_mix(example)
    compared = [check for check in checks if check.claim.relation != "idealised"]
    broken = [check for check in compared if check.disagreement]
    candidates = broken or [check for check in compared if check.claim.exact and not check.slack]
    worst = max(candidates, key=lambda check: abs(check.gap), default=None)
    claims = tuple(dict.fromkeys(str(check.claim) for check in checks))
    return ExampleVerdict(example.strategy.name, claims, len(compared), worst, len(broken))


def check_strategy(name: str) -> ExampleVerdict:
    """Return what became of the example of a strategy, by its name."""
    return verdict_on(strategies()[name].example())


def _check_trial(trial: ExampleTrial) -> Iterator[LawCheck]:
    strategy: Strategy = trial.example.strategy_for(trial.batch)
    cost = trial.example.cost_of(strategy)
    acceptance = strategy.reads(Cycle((trial.accepted,), (trial.off_exit,)))
    odds = odds_of(acceptance, early_exit(strategy, None))
    if isinstance(strategy, Tunable):
        strategy = strategy.tuned(cost, odds, trial.batch, CONTEXT)
    predicted = strategy.law(cost, odds, trial.batch, CONTEXT)
    check = partial(LawCheck, strategy.name)
    if (
        strategy.needs.in_flight == 1
        and line_of(strategy, cost, lanes_of(World(), strategy, cost, cost.stages)) is None
    ):
        for kind in predicted.kinds:
            durations = strategy.durations(cost, strategy.step(kind, CONTEXT))
            law_s = float(strategy.step_seconds(durations, kind))
            words = f"{trial.condition}, kind {kind.name}"
            _refuse_one_at_a_time(strategy, durations, kind)
            yield check(
                "step from rest",
                words,
                predicted.claim,
                law_s,
                step_from_rest(strategy, cost, kind),
            )
    ways = ("simulation", "replay") if strategy.needs.in_flight == 1 else ("simulation",)
    for way in ways:
        turn = steady_turn(strategy, acceptance, cost, trial.batch, way == "replay")
        shares = {kind: count / sum(turn.kinds.values()) for kind, count in turn.kinds.items()}
        met = strategy.law(cost, odds, trial.batch, CONTEXT, shares)
        if len(predicted.kinds) > 1 and trial.batch > 1:
            laws = {"": met}
        else:
            laws = {"": met, ", kinds as predicted": predicted}
        for words, law_of_run in laws.items():
            yield check(
                f"{way}, step",
                trial.condition + words,
                law_of_run.claim,
                law_of_run.step_s,
                turn.step_s,
            )
            if law_of_run.claim.exact:
                tokens = float(law_of_run.tokens_per_step)
                yield check(
                    f"{way}, tokens", trial.condition + words, EXACT, tokens, turn.tokens_per_step
                )
        for output in (2, strategy.window + 2, 2 * strategy.window + 5):
            outputs = Outputs({output: trial.batch}, windows_first=drafts_first(strategy))
            ends = strategy.law(cost, odds, trial.batch, CONTEXT, outputs=outputs)
            played = _played(strategy, acceptance, cost, trial.batch, output, way == "replay")
            tally = played.ledger.tally
            if ends.claim.exact and tally.request_steps:
                words = f"{trial.condition}, {output} output tokens"
                emitted = tally.shown / tally.request_steps
                yield check(f"{way}, tokens", words, EXACT, float(ends.tokens_per_step), emitted)


def _refuse_one_at_a_time(strategy: Strategy, durations: NamedTuple, kind: Kind) -> None:
    """Raise :class:`BadInput` for a law that fails for an array of one of its durations, or says
    something else of it than of one after the other.
    """
    for name in durations._fields:
        duration = getattr(durations, name)
        if name in NO_DURATIONS or isinstance(duration, tuple):
            continue
        varied = duration * np.array(VARIED)
        apart_s = []
        for alone in varied.tolist():
            apart_s.append(strategy.step_seconds(durations._replace(**{name: alone}), kind))
        why = "is another one than for one after the other"
        try:
            together_s = strategy.step_seconds(durations._replace(**{name: varied}), kind)
            if np.allclose(together_s, apart_s, rtol=TOLERANCE, atol=0.0):
                continue
        except (TypeError, ValueError) as error:
            why = f"fails: {error}"
        raise BadInput.at(
            strategy.name,
            f"step_seconds for several durations {name} at once, which are an array, {why}; write "
            "np.maximum for max, np.where for if, and leave out float()",
        )


def step_from_rest(strategy: Strategy, cost: StatedCost, kind: Kind) -> float:
    """Return the seconds that a step of this kind takes on lanes that have nothing else to do."""
    world = World()
    lanes = lanes_of(world, strategy, cost, cost.stages)
    durations = strategy.durations(cost, strategy.step(kind, CONTEXT))
    ends: list[float] = []

    def step() -> Generator[Event, object, None]:
        yield from strategy.timeline(lanes, durations, kind)
        ends.append(world.now)

    world.environment.process(step())
    world.environment.run()
    return ends[0]


def steady_turn(
    strategy: Strategy, acceptance: Acceptance, cost: StatedCost, batch: int, replayed: bool
) -> SteadyTurn:
    """Run ``batch`` equal requests until their steps repeat, and return one turn; ``replayed``:
    without the event engine.
    """
    records: list[_Record] = []
    before: dict[Kind, int] = {}
    committed = 0

    def note(scheduler: Scheduler, iteration: Iteration) -> None:
        nonlocal committed
        counts = scheduler.ledger.tally.steps
        kind = next((kind for kind, count in counts.items() if count != before.get(kind, 0)), None)
        if kind is not None:
            before[kind] = counts[kind]
            records.append(
                _Record(kind, iteration.duration_s, scheduler.ledger.tally.committed - committed)
            )
            committed = scheduler.ledger.tally.committed

    _played(strategy, acceptance, cost, batch, 1 + STEPS * (strategy.window + 1), replayed, note)
    return _turn_of(strategy, records)


def _played(
    strategy: Strategy,
    acceptance: Acceptance,
    cost: StatedCost,
    batch: int,
    output: int,
    replayed: bool,
    note: Callable[[Scheduler, Iteration], object] | None = None,
) -> Scheduler:
    """Run ``batch`` requests of ``output`` tokens each and return their scheduler; ``note`` is
    called with its iterations.
    """
    requests = Requests(concurrency=batch, count=batch, output_tokens=output)
    memory = Blocks(16, 1_000_000)
    source = ClosedLoop(requests)
    target_exit = early_exit(strategy, None)
    scheduler = Scheduler(strategy, acceptance, target_exit, source, cost, FixedBatch(), memory)
    scheduler.log = partial(note, scheduler) if note else None
    if replayed:
        scheduler.replay()
    else:
        world = World()
        lanes = lanes_of(world, strategy, cost, cost.stages)
        for _ in range(strategy.needs.in_flight):
            world.environment.process(scheduler.run(world, lanes))
        world.environment.run()
    return scheduler


def _turn_of(strategy: Strategy, records: Sequence[_Record]) -> SteadyTurn:
    """Return the shortest turn that the middle half of a run consists of, or all of it where it
    does not repeat.
    """
    middle = records[len(records) // 4 : len(records) * 3 // 4]
    length = next(
        (length for length in range(1, len(middle) // 3) if _repeats(middle, length)), len(middle)
    )
    turn = middle[:length]
    kinds = Counter(record.kind for record in turn)
    present = sum(kind.batch * count for kind, count in kinds.items())
    seconds = ordered_sum(record.seconds for record in turn)
    return SteadyTurn(kinds, seconds / length, sum(record.tokens for record in turn) / present)


def _repeats(records: Sequence[_Record], length: int) -> bool:
    """Return whether every record is like the one ``length`` places before it."""
    return all(
        (record.kind, record.tokens) == (earlier.kind, earlier.tokens)
        and isclose(record.seconds, earlier.seconds, rel_tol=TOLERANCE)
        for record, earlier in zip(records[length:], records, strict=False)
    )


# ---- every shipped scenario


class LawGap(NamedTuple):
    """Holds milliseconds of a step, and of a token, by law and by simulation."""

    scenario: str
    relation: str
    """What the law claims, exact, a bound, ..., and why the run cannot show it where that is so."""
    simulated_step_ms: float
    law_step_ms: float
    """With the acceptance and the kinds of steps that the simulation met."""
    simulated_tpot_ms: float
    law_tpot_ms: float
    """With marginal acceptance rates, which know nothing of the run."""
    shown: str = ""
    """What the run shows of the claim, in a sentence."""
    disagreement: bool = False
    """Whether the run breaks the claim."""

    @property
    def step_gap(self) -> float:
        """Return how much longer a step is by law, as a share of the simulated step."""
        return self.law_step_ms / self.simulated_step_ms - 1.0

    @property
    def tpot_gap(self) -> float:
        """Return how much longer a token takes by law, as a share of the simulated time."""
        return self.law_tpot_ms / self.simulated_tpot_ms - 1.0


def law_gap(name: str) -> LawGap:
    """Return how far law and simulation of one shipped scenario are apart, and whether the law's
    claim survives it.
    """
    loaded = tuned(load(name))
    scenario = loaded.scenario
    acceptance = loaded.acceptance()
    simulated, _ = simulate(scenario, acceptance)
    replayed = simulated
    if is_followed(scenario):
        replayed = replay(scenario, acceptance)
    marginal = law(scenario, acceptance)
    met = law_from(scenario, simulated)
    shown = agreement(scenario, marginal, replayed, simulated)
    return LawGap(
        scenario=name,
        relation=_relation(shown),
        simulated_step_ms=simulated.step_s * 1e3,
        law_step_ms=met.step_s * 1e3,
        simulated_tpot_ms=simulated.tpot_s * 1e3,
        law_tpot_ms=marginal.tpot_s * 1e3,
        shown=shown.shown,
        disagreement=shown.disagreement,
    )


def _relation(shown: Agreement) -> str:
    """Return what a law claims; where the run cannot show it, also why."""
    if shown.gap is None and shown.claim.relation != "idealised":
        return f"{shown.claim}, not shown: {shown.shown}"
    return str(shown.claim)


def law_gaps(spread: Spread) -> Sequence[LawGap]:
    """Return the gaps of every shipped scenario, by name."""
    return spread(law_gap, Catalogue().names("scenario"))
