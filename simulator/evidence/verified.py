"""What was predicted of a service beside what was measured after the change, and over many such
pairs how far off predictions are.

    error        predicted / measured - 1
    inside       whether the measured number lies in the interval of the prediction
    sign         whether it went up or down as predicted; a prediction whose 80 % interval holds the
                 number before claims no sign
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from simulator.core.plain import PlainData
from simulator.inputs.services.observed import Observed, ObservedLoad
from simulator.inputs.services.prediction import (
    SERVICE_NUMBERS,
    PredictedNumber,
    SeenNumber,
    ServiceNumber,
    ServicePrediction,
    seen_numbers,
)
from simulator.inputs.services.warm import cold_words

UNCHANGED = 1e-4
"""Relative difference up to which a number is as it was; predictions have six digits."""
ANOTHER_LOAD = 0.1
"""Relative difference from which on a load is another one."""


class VerifiedNumber(NamedTuple):
    """A number of a service: predicted, and measured after the change."""

    number: ServiceNumber
    predicted: PredictedNumber
    measured: float

    @property
    def error(self) -> float | None:
        """Return how far the prediction is above what was measured, relative to that; None where
        that is 0.
        """
        if self.measured == 0.0:
            return None
        return self.predicted.after / self.measured - 1.0

    @property
    def in_80(self) -> bool | None:
        """Return whether what was measured lies in the 80 % interval; None without one."""
        within = self.predicted.within_80
        return None if within is None else within.holds(self.measured)

    @property
    def in_90(self) -> bool | None:
        """Return whether what was measured lies in the 90 % interval; None without one."""
        within = self.predicted.within_90
        return None if within is None else within.holds(self.measured)

    @property
    def sign_right(self) -> bool | None:
        """Return whether the number went up or down as predicted; None where no sign was claimed,
        or nothing was measured before.
        """
        before = self.predicted.before
        if before is None or before == self.predicted.after:
            return None
        if abs(self.measured - before) <= UNCHANGED * abs(before):
            return None
        within = self.predicted.within_80
        if within is not None and within.holds(before):
            return None
        return (self.predicted.after > before) == (self.measured > before)

    def as_data(self) -> PlainData:
        """Return the number as plain data."""
        return {
            "number": self.number.key,
            **self.predicted.model_dump(mode="json"),
            "measured": self.measured,
            "error": self.error,
            "in_80": self.in_80,
            "in_90": self.in_90,
            "sign_right": self.sign_right,
        }


@dataclass(frozen=True)
class VerifiedPrediction:
    """A prediction beside what was measured after the change."""

    prediction: ServicePrediction
    after: Observed
    numbers: Sequence[VerifiedNumber]
    not_measured: Sequence[ServiceNumber]
    """What was predicted and is in none of the files."""
    cautions: Sequence[str]
    """Why the two may not be about one thing."""

    def as_data(self) -> PlainData:
        """Return the pair as plain data."""
        return {
            "tried": self.prediction.tried,
            "scenario": self.prediction.scenario,
            "verdict": self.prediction.verdict,
            "after": [file.file for file in self.after.files],
            "numbers": [number.as_data() for number in self.numbers],
            "not_measured": [number.key for number in self.not_measured],
            "cautions": list(self.cautions),
        }


class LedgerOfNumber(NamedTuple):
    """How far predictions of a number, or of all of them, were off, over several pairs."""

    key: str
    words: str
    pairs: int
    mean_error: float | None
    """Mean of errors without their signs."""
    bias: float | None
    """Mean of errors with their signs."""
    with_interval: int
    inside_80: int
    inside_90: int
    signs: int
    """Pairs whose prediction claims a sign."""
    signs_right: int


@dataclass(frozen=True)
class VerifiedPredictions:
    """Predictions, each beside what was measured after its change."""

    pairs: Sequence[VerifiedPrediction]

    def ledger(self) -> list[LedgerOfNumber]:
        """Return how far off predictions were: by number, and of all numbers together at the
        end.
        """
        every = [number for pair in self.pairs for number in pair.numbers]
        rows = []
        for number in SERVICE_NUMBERS:
            of_it = [each for each in every if each.number.key == number.key]
            if of_it:
                rows.append(_ledger_of(number.key, number.words, of_it))
        return [*rows, _ledger_of("all", "all together", every)]

    def as_data(self) -> PlainData:
        """Return pairs and ledger as plain data."""
        return {
            "pairs": [pair.as_data() for pair in self.pairs],
            "ledger": [row._asdict() for row in self.ledger()],
        }


def verified(prediction: ServicePrediction, after: Observed) -> VerifiedPrediction:
    """Return a prediction beside what was measured after the change."""
    wanted = {number.key: predicted for number, predicted in prediction.numbers()}
    seen = seen_numbers(after, wanted)
    numbers = []
    not_measured = []
    for number, predicted in prediction.numbers():
        if number.key in seen:
            numbers.append(VerifiedNumber(number, predicted, seen[number.key].value))
        else:
            not_measured.append(number)
    cautions = [
        *_not_made(wanted, seen),
        *_another_window(prediction, after),
        *cold_words(after),
        *_other_service(prediction, after),
        *_other_load(prediction.load, after.load),
        *_other_times(wanted, seen),
    ]
    return VerifiedPrediction(prediction, after, numbers, not_measured, cautions)


def _not_made(
    wanted: Mapping[str, PredictedNumber], seen: Mapping[str, SeenNumber]
) -> Iterator[str]:
    """Yield that drafts are kept where plain decoding was predicted."""
    tokens = "tokens_per_step"
    if tokens not in wanted or tokens not in seen or wanted[tokens].after > 1.0:
        return
    if seen[tokens].value > 1.0 + UNCHANGED:
        yield (
            f"the service still drafts: {seen[tokens].value:.2f} tokens a step after a change to "
            "plain decoding, so this is not what came of it"
        )


def _another_window(prediction: ServicePrediction, after: Observed) -> Iterator[str]:
    """Yield that steps have more or fewer draft tokens than after the change."""
    seen = after.acceptance.window if after.acceptance else None
    if prediction.window and seen and seen != prediction.window:
        yield (
            f"steps of {seen} draft tokens were measured, of {prediction.window} predicted, so "
            "this is not what came of the change"
        )


def _other_service(prediction: ServicePrediction, after: Observed) -> Iterator[str]:
    """Yield where another service was measured than the one that the prediction is about."""
    for what, expected, measured in (
        ("model", prediction.model, after.model),
        ("engine", prediction.engine, after.engine),
    ):
        if expected is not None and measured is not None and expected != measured:
            yield f"another {what}: predicted of {expected}, measured of {measured}"


def _other_load(before: ObservedLoad, after: ObservedLoad) -> Iterator[str]:
    """Yield where a load generator asked for something else after the change than before."""
    asked = _asked(after)
    for what, expected in _asked(before).items():
        measured = asked[what]
        if not expected or measured is None:
            continue
        if abs(measured / expected - 1.0) > ANOTHER_LOAD:
            yield f"another load: {expected:,.4g} {what} before, {measured:,.4g} after"


def _asked(load: ObservedLoad) -> dict[str, float | None]:
    """Return what a load generator decides, by what it is called."""
    return {
        "prompt tokens a request": _mean(load.prompt_tokens, load.requests),
        "output tokens a request": _mean(load.output_tokens, load.requests),
        "requests at a time, at most,": load.most_concurrent,
        "requests asked for a second": load.asked_rate_per_s,
    }


def _other_times(wanted: dict[str, PredictedNumber], seen: dict[str, SeenNumber]) -> Iterator[str]:
    """Yield where a time after the change is of something else than the one before it."""
    for number in SERVICE_NUMBERS:
        expected = wanted.get(number.key)
        measured = seen.get(number.key)
        if expected is None or measured is None or expected.seen_by is None:
            continue
        if expected.seen_by != measured.seen_by:
            yield f"{number.words}: seen by a {expected.seen_by} before, a {measured.seen_by} after"
        elif expected.definition not in (None, measured.definition):
            yield f"{number.words}: {expected.definition} before, {measured.definition} after"


def _mean(tokens: int | None, requests: int | None) -> float | None:
    """Return mean tokens of a request; None where they are not known."""
    return None if tokens is None or not requests else tokens / requests


def _ledger_of(key: str, words: str, numbers: Sequence[VerifiedNumber]) -> LedgerOfNumber:
    """Return how far predictions were off, over numbers of several pairs."""
    errors = [number.error for number in numbers if number.error is not None]
    signs = [number.sign_right for number in numbers if number.sign_right is not None]
    return LedgerOfNumber(
        key=key,
        words=words,
        pairs=len(numbers),
        mean_error=fmean(map(abs, errors)) if errors else None,
        bias=fmean(errors) if errors else None,
        with_interval=sum(number.in_90 is not None for number in numbers),
        inside_80=sum(number.in_80 is True for number in numbers),
        inside_90=sum(number.in_90 is True for number in numbers),
        signs=len(signs),
        signs_right=sum(signs),
    )
