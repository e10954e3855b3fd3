"""How good predictions of speed-ups are: sign, losses found, false alarms, error, coverage, beside
three trivial guesses.

A source counts once: a share is the mean over its rows, then over the sources. A row within
``NEITHER`` of 1 is neither a loss nor a gain. *May hurt* is half a loss found, and half a false
alarm.

The guesses know what the simulator knows of a row, and no more:

* *always helps* says that, and no number;
* *tokens x constant*: a speed-up is the tokens of a step times one number, the geometric mean over
  the rows of all other sources; its interval is what these rows leave;
* *bytes alone*: a pass takes the time in which its weights are read, of the target and of every
  draft pass; its interval is what the rows of all other sources leave.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import NamedTuple, TypeAlias

import numpy as np

from simulator.core.numeric import grouped
from simulator.core.strategies.common.capabilities import extra_memory
from simulator.evidence.ledger.rows import (
    PLAIN_STEP,
    SPEEDUP,
    STEP,
    WHOLE_LOOP,
    LedgerRow,
    RowComparison,
)
from simulator.scenario import Scenario
from simulator.scenario.decision.verdict import Verdict, verdict
from simulator.scenario.uncertain.draws import Drawn, Interval

NEITHER = 0.03
"""Distance of a measured speed-up from 1 within which it is neither a loss nor a gain."""
SHARE = 0.8
"""Share of the measured values that the intervals of a ledger should hold."""
OURS = "specsim"
ALWAYS = "always helps"
CONSTANT = "tokens x constant"
BYTES = "bytes alone"
CONSUMER_CARD = re.compile(r"rtx_\d{4}(?!_ada)|m\d_|gb10|ryzen_ai")
"""Names of devices that people own: GeForce cards, Apple's chips, and small computers of NVIDIA and
AMD that share their memory."""


class Guess(NamedTuple):
    """What somebody says of a row's speed-up; None where he says no number."""

    verdict: Verdict
    speedup: float | None = None
    interval: Interval | None = None


class MeasuredSpeedup(NamedTuple):
    """A row whose speed-up was measured, as a factor."""

    row: LedgerRow
    measured: float
    predicted: Drawn
    """What the simulator says of it."""

    @property
    def chance(self) -> float:
        """Return the chance that is said of a gain, as a share of 1."""
        return self.predicted.chance_above(1.0)

    @property
    def loses(self) -> bool:
        """Return whether speculation was measured to lose."""
        return self.measured < 1.0 - NEITHER

    @property
    def gains(self) -> bool:
        """Return whether speculation was measured to gain."""
        return self.measured > 1.0 + NEITHER


class JudgedSpeedup(NamedTuple):
    """A measured speed-up, and what somebody says of it."""

    of: MeasuredSpeedup
    guess: Guess

    @property
    def alarm(self) -> float:
        """Return how far the row is called a loss: 1, a half where it may be one, or 0."""
        return {"hurts": 1.0, "may hurt": 0.5, "helps": 0.0}[self.guess.verdict]

    @property
    def error(self) -> float | None:
        """Return the relative error of the speed-up as a share; None where no number is said."""
        if self.guess.speedup is None:
            return None
        return self.guess.speedup / self.of.measured - 1.0


EVERY = "all"
Rule: TypeAlias = Callable[[Scenario], bool]
GROUPS: Mapping[str, Rule] = {
    EVERY: lambda scenario: True,
    "one request": lambda scenario: scenario.batch == 1,
    "2 to 32 requests": lambda scenario: 2 <= scenario.batch <= 32,
    "33 to 63 requests": lambda scenario: 33 <= scenario.batch <= 63,
    "64 requests and more": lambda scenario: scenario.batch >= 64,
    "experts": lambda scenario: bool(scenario.target and scenario.target.model.experts),
    "consumer cards": lambda scenario: bool(
        scenario.target and CONSUMER_CARD.match(scenario.target.device.name)
    ),
}
"""Which rows a group has, by their scenario."""


class CountedShare(NamedTuple):
    """A share, and over how many rows; None over no rows."""

    value: float | None
    rows: int


@dataclass(frozen=True)
class Score:
    """How good one guesser is over some rows."""

    guesser: str
    group: str
    losses_found: CountedShare
    false_alarms: CountedShare
    sign: CountedShare
    undecided: CountedShare
    """Share of rows of which *may hurt* is said."""
    median_error: float | None
    """Median over sources of the median relative error, as a share."""
    held: CountedShare
    """Share of measured values within the interval, every row counted once."""
    width: float | None
    """Mean of log(high / low)."""
    interval_score: float | None
    """Mean interval score of the logs (Gneiting and Raftery 2007, eq. 43): width, and 2 / (1 -
    ``SHARE``) for each unit of log outside."""


def speedups(rows: Iterable[LedgerRow]) -> list[MeasuredSpeedup]:
    """Return the rows that draft something and whose speed-up was measured."""
    found = []
    for row in rows:
        comparison = row.of(SPEEDUP)
        if comparison and row.loaded.scenario.schedule.window:
            found.append(MeasuredSpeedup(row, comparison.measured, comparison.predicted))
    return found


def judged(rows: Sequence[MeasuredSpeedup]) -> dict[str, list[JudgedSpeedup]]:
    """Return every row as each guesser sees it, by guesser."""
    guessers: dict[str, Callable[[MeasuredSpeedup], Guess]] = {
        OURS: our_guess,
        ALWAYS: lambda row: Guess("helps"),
        CONSTANT: lambda row: by_tokens(row, rows),
        BYTES: lambda row: by_bytes(row, rows),
    }
    said = {}
    for name, guess in guessers.items():
        said[name] = [JudgedSpeedup(row, guess(row)) for row in rows]
    return said


def our_guess(row: MeasuredSpeedup) -> Guess:
    """Return what the simulator says of a row."""
    predicted = row.predicted
    return Guess(verdict(row.chance), predicted.value, predicted.interval(SHARE))


def by_tokens(row: MeasuredSpeedup, rows: Sequence[MeasuredSpeedup]) -> Guess:
    """Return the tokens of a step times the constant that the rows of all other sources have;
    without any that it helps, and no number.
    """
    left = _left(row, rows, lambda other: other.row.tokens_per_step)
    if not left:
        return Guess("helps")
    constant = exp(float(np.mean(left)))
    residuals = [residual - log(constant) for residual in left]
    return _guess(constant * row.row.tokens_per_step, residuals)


def by_bytes(row: MeasuredSpeedup, rows: Sequence[MeasuredSpeedup]) -> Guess:
    """Return the tokens of a step over the bytes of weights that it reads, relative to plain
    decoding.
    """
    return _guess(_bytes_alone(row), _left(row, rows, _bytes_alone))


def _bytes_alone(row: MeasuredSpeedup) -> float:
    scenario = row.row.loaded.scenario
    target = scenario.target
    if target is None:
        return row.row.tokens_per_step
    plain_gb = target.weights_gb()
    if scenario.draft:
        draft_gb = scenario.draft.weights_gb()
    else:
        added = extra_memory(scenario.schedule, target.model).weights
        draft_gb = target.weights_gb(added) - plain_gb
    step_gb = plain_gb + draft_gb * scenario.schedule.needs.draft_steps
    return row.row.tokens_per_step * plain_gb / step_gb


def _left(
    row: MeasuredSpeedup,
    rows: Sequence[MeasuredSpeedup],
    size: Callable[[MeasuredSpeedup], float],
) -> list[float]:
    """Return ``log(measured / size)`` of the rows of all other sources."""
    left = []
    for other in rows:
        if other.row.source != row.row.source:
            left.append(log(other.measured / size(other)))
    return left


def _guess(speedup: float, left: Sequence[float]) -> Guess:
    """Return a guess with the interval of what it leaves of other rows, none of fewer than two."""
    word: Verdict = "helps"
    if speedup < 1.0:
        word = "hurts"
    if len(left) < 2:
        return Guess(word, speedup)
    tail = (1.0 - SHARE) / 2.0
    low, high = np.quantile(left, (tail, 1.0 - tail))
    return Guess(word, speedup, Interval(speedup * exp(low), speedup * exp(high)))


def score(guesser: str, group: str, rows: Sequence[JudgedSpeedup]) -> Score:
    """Return how good a guesser is over some rows."""
    decided = [said for said in rows if said.of.loses or said.of.gains]
    losses = [said for said in rows if said.of.loses]
    gains = [said for said in rows if said.of.gains]
    intervals = [(said.guess.interval, said.of.measured) for said in rows if said.guess.interval]
    return Score(
        guesser,
        group,
        losses_found=by_source(losses, lambda said: said.alarm),
        false_alarms=by_source(gains, lambda said: said.alarm),
        sign=by_source(decided, _right),
        undecided=by_source(rows, lambda said: float(said.guess.verdict == "may hurt")),
        median_error=_median_error(rows),
        held=CountedShare(
            _mean([float(low_high.holds(true)) for low_high, true in intervals]), len(intervals)
        ),
        width=_mean([_width(low_high) for low_high, _ in intervals]),
        interval_score=_mean([_interval_score(low_high, true) for low_high, true in intervals]),
    )


def scores(rows: Iterable[LedgerRow]) -> list[Score]:
    """Return how good every guesser is over every group that has rows, group by group."""
    found = []
    said = judged(speedups(rows))
    for group, belongs in GROUPS.items():
        for guesser, all_rows in said.items():
            of_group = [row for row in all_rows if belongs(row.of.row.loaded.scenario)]
            if of_group:
                found.append(score(guesser, group, of_group))
    return found


class StepScore(NamedTuple):
    """How far times of steps, or rates and times of closed loops, are off, over rows counted
    singly.
    """

    quantity: str
    rows: int
    median_error: float
    bias: float
    """Median signed error as a share."""
    held: float
    """Share of measured values within the interval."""


def step_scores(rows: Sequence[LedgerRow]) -> list[StepScore]:
    """Return how far plain and speculative steps are off, those that were measured."""
    return _scored(rows, (PLAIN_STEP, STEP))


def loop_scores(rows: Sequence[LedgerRow]) -> list[StepScore]:
    """Return how far rates and times of whole closed loops are off, those that were measured."""
    return _scored(rows, WHOLE_LOOP)


def _scored(rows: Sequence[LedgerRow], quantities: Sequence[str]) -> list[StepScore]:
    found = []
    for quantity in quantities:
        ours = _steps(rows, quantity)
        if not ours:
            continue
        errors = np.array([comparison.error for comparison in ours])
        held = [comparison.held(SHARE) for comparison in ours]
        median = float(np.median(np.abs(errors)))
        bias = float(np.median(errors))
        found.append(StepScore(quantity, len(ours), median, bias, float(np.mean(held))))
    return found


def _steps(rows: Sequence[LedgerRow], quantity: str) -> list[RowComparison]:
    """Return the comparisons of a quantity; a plain run that stands beside several speculative ones
    of its source is one.
    """
    found: dict[object, RowComparison] = {}
    for row in rows:
        comparison = row.of(quantity)
        if comparison is None:
            continue
        run: object = row.place
        if quantity == PLAIN_STEP:
            run = (row.source, comparison.measured, comparison.predicted.value)
        found[run] = comparison
    return list(found.values())


def by_source(
    rows: Sequence[JudgedSpeedup], number: Callable[[JudgedSpeedup], float]
) -> CountedShare:
    """Return the mean of a number over the rows of each source, then over sources."""
    means = []
    for of_source in _sources(rows):
        means.append(float(np.mean([number(said) for said in of_source])))
    return CountedShare(_mean(means), len(rows))


def _sources(rows: Sequence[JudgedSpeedup]) -> list[list[JudgedSpeedup]]:
    return list(grouped(rows, lambda said: said.of.row.source).values())


def _right(said: JudgedSpeedup) -> float:
    """Return how far the sign is right: 1, a half where it may be either, or 0."""
    if said.of.loses:
        return said.alarm
    return 1.0 - said.alarm


def _median_error(rows: Sequence[JudgedSpeedup]) -> float | None:
    medians = []
    for of_source in _sources(rows):
        errors = [abs(said.error) for said in of_source if said.error is not None]
        if errors:
            medians.append(float(np.median(errors)))
    if not medians:
        return None
    return float(np.median(medians))


def _width(interval: Interval) -> float:
    return log(interval.high / interval.low)


def _interval_score(interval: Interval, measured: float) -> float:
    outside = max(0.0, log(interval.low / measured), log(measured / interval.high))
    return _width(interval) + 2.0 / (1.0 - SHARE) * outside


def _mean(values: Sequence[float]) -> float | None:
    if not values:
        return None
    return float(np.mean(values))
