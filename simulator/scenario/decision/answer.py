"""What is said on whether to switch speculation on, in numbers."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from simulator.core.plain import PlainData
from simulator.scenario.decision.verdict import Verdict, verdict

Measure = Literal["output tokens per second", "time per token"]
Origin = Literal["recorded", "stated", "borrowed"]
Measured = Literal["acceptance", "step", "draft", "link"]
DIFFERS = 0.05
"""Relative difference from which on speed-ups by two measures are both worth saying."""


class Side(NamedTuple):
    """Says how sure it is that speculation is faster by one measure."""

    measure: Measure
    speedup: float
    """How many times as fast as plain decoding."""
    chance: float
    """Chance that it is faster, as a share of 1."""

    @property
    def verdict(self) -> Verdict:
        """Return the word for this chance."""
        return verdict(self.chance)

    def as_data(self) -> PlainData:
        """Return the measure as plain data."""
        return {**self._asdict(), "verdict": self.verdict}


class Turn(NamedTuple):
    """Gives the first value behind a turn, and whether speculation is faster from there on."""

    at: int
    faster: bool


@dataclass(frozen=True)
class Along:
    """Holds the turns of the speed-up over a number, in its order."""

    now: int
    first: int
    last: int
    """Ends of what was looked at."""
    faster_at_first: bool
    turns: tuple[Turn, ...]

    def as_data(self) -> PlainData:
        """Return this as plain data."""
        return {**vars(self), "turns": [turn._asdict() for turn in self.turns]}


@dataclass(frozen=True)
class AcceptanceTurn:
    """Holds the acceptance at which both are equally fast."""

    now: float
    """Tokens per step as they are, by law."""
    tokens_per_step: float | None
    """Tokens per step at the turn; None where no acceptance is one."""
    chance: float | None
    """Chance of each draft token there, as a share of 1; None also where the law of a strategy is
    solved one chance at a time.
    """
    faster_at_last: bool
    """Whether speculation is faster where acceptance is best."""


@dataclass(frozen=True)
class Flips:
    """Holds where the speed-up by law is 1, one number changed at a time."""

    batch: Along
    context: Along
    acceptance: AcceptanceTurn

    def as_data(self) -> PlainData:
        """Return the turns as plain data, by what is changed."""
        return {
            "batch": self.batch.as_data(),
            "context": self.context.as_data(),
            "acceptance": vars(self.acceptance),
        }


class AcceptanceOrigin(NamedTuple):
    """Says where acceptance comes from."""

    origin: Origin
    where: str
    """Recording and drafter, or the source of what is stated; empty where none is given."""
    confidence: str
    """How well it is known; empty for a recording of the scenario's own models."""
    drawn: bool
    """Whether a range of it is part of the chance, which else takes it as it is."""


class FewerTokens(NamedTuple):
    """Says what half a token less per step would do, steps as long as they are."""

    tokens_per_step: float
    speedup: float
    chance: float

    @property
    def verdict(self) -> Verdict:
        """Return the word for this chance."""
        return verdict(self.chance)


class Measurement(NamedTuple):
    """Names the measurement that would tell most."""

    what: Measured
    settles: str
    """The number in doubt."""
    confidence: str
    change: float
    """Relative change of the speed-up by law where this number is off by one deviation."""


class Setting(NamedTuple):
    """Names where the decision is taken."""

    batch: int
    """Requests that decode together in one replica."""
    window: int
    """Draft tokens of a step."""
    context: int
    """Cached tokens of a request."""
    tokens_per_step: float
    """Output tokens that a step brings, by law."""


@dataclass(frozen=True)
class Decision:
    """Says whether to switch speculation on, and why."""

    first: Side
    """Output tokens per second in a closed loop that was simulated, else time per token of equal
    batches."""
    other: Side | None
    """Time per token, where ``first`` is of output tokens per second."""
    setting: Setting
    flips: Flips
    rests_on: AcceptanceOrigin
    half_a_token_less: FewerTokens | None
    """None where a step brings less than a token, as the levels of a pipeline do."""
    measurement: Measurement | None
    """None where nothing that is in doubt changes the speed-up noticeably."""

    @property
    def chance(self) -> float:
        """Return the chance that speculation is faster than plain decoding, as a share of 1."""
        return self.first.chance

    @property
    def verdict(self) -> Verdict:
        """Return the word for this chance."""
        return self.first.verdict

    @property
    def both(self) -> bool:
        """Return whether the two measures differ so much that both are worth saying."""
        if self.other is None:
            return False
        if self.other.verdict != self.verdict:
            return True
        return abs(self.other.speedup / self.first.speedup - 1.0) >= DIFFERS

    def as_data(self) -> PlainData:
        """Return the decision as plain data."""
        measures = [self.first.as_data()]
        if self.other:
            measures.append(self.other.as_data())
        fewer = self.half_a_token_less
        half: PlainData | None = None
        if fewer:
            half = {**fewer._asdict(), "verdict": fewer.verdict}
        return {
            "chance": self.chance,
            "verdict": self.verdict,
            "measures": measures,
            "setting": self.setting._asdict(),
            "flips": self.flips.as_data(),
            "rests_on": self.rests_on._asdict(),
            "half_a_token_less": half,
            "measurement": self.measurement and self.measurement._asdict(),
        }
