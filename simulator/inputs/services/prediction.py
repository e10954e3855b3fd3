"""What was predicted of a service after a change: the content of ``prediction.yaml``.

What nobody knows is None, never 0. Times and rates are those of the same load before and after.
"""

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Literal, NamedTuple

import yaml
from pydantic import model_validator

from simulator.core.faults import BadInput
from simulator.core.quantities import Frozen
from simulator.inputs.document import read
from simulator.inputs.schema import validate
from simulator.inputs.services.observed import (
    Count,
    MeasuredTime,
    Observed,
    ObservedLoad,
    Quantity,
    Side,
)

PREDICTION = "prediction.yaml"


class ServiceNumber(NamedTuple):
    """A number that a service is judged by, with its name in files and in words."""

    key: str
    words: str
    less_is_better: bool
    least: float = 0.0
    """No less is possible."""
    most: float = inf
    """No more is possible."""


SERVICE_NUMBERS = (
    ServiceNumber("ttft_ms", "TTFT (ms)", True),
    ServiceNumber("tpot_ms", "TPOT (ms)", True),
    ServiceNumber("e2e_ms", "E2E (ms)", True),
    ServiceNumber("output_tokens_per_s", "output tokens/s", False),
    ServiceNumber("tokens_per_step", "tokens/step", False, least=1.0),
    ServiceNumber("hit_rate", "hit rate", False, most=1.0),
)
TIMES: dict[str, Quantity] = {"ttft_ms": "ttft", "tpot_ms": "tpot", "e2e_ms": "e2e"}
"""Which of the numbers are mean times over requests."""


class Bounds(Frozen):
    """Between what a share of all draws lies."""

    low: float
    high: float

    @model_validator(mode="after")
    def _in_order(self) -> "Bounds":
        if self.low > self.high:
            raise ValueError("expected low no larger than high")
        return self

    def holds(self, value: float) -> bool:
        """Return whether a value lies within."""
        return self.low <= value <= self.high


class PredictedNumber(Frozen):
    """A number of a service before a change, and what is expected of it after that."""

    before: float | None = None
    """As it was measured; None where it was not."""
    after: float
    """Central value."""
    within_80: Bounds | None = None
    """Between what it lies in 80 % of the draws; None where nobody knows."""
    within_90: Bounds | None = None
    seen_by: Side | None = None
    """Who measured a time."""
    definition: str | None = None
    """What exactly a time is of."""


class ChangedSetting(Frozen):
    """A field of a scenario that differs after a change."""

    field: str
    before: str
    after: str


class ServicePrediction(Frozen):
    """What a change is expected to do to a service."""

    prediction: Literal[1] = 1
    """Version of this format."""
    tried: str
    """The change, as it was typed."""
    changed: tuple[ChangedSetting, ...] = ()
    scenario: str
    """Name of the scenario that stands for the service before the change."""
    engine: str | None = None
    model: str | None = None
    verdict: Literal["helps", "may hurt", "hurts"] | None = None
    """By the chance that the change makes the service faster."""
    chance: float | None = None
    """That chance, from 0 to 1."""
    window: Count | None = None
    """Draft tokens of a step after the change; None in files of earlier versions."""
    load: ObservedLoad = ObservedLoad()
    """Under which it holds."""
    ttft_ms: PredictedNumber | None = None
    tpot_ms: PredictedNumber | None = None
    e2e_ms: PredictedNumber | None = None
    output_tokens_per_s: PredictedNumber | None = None
    tokens_per_step: PredictedNumber | None = None
    hit_rate: PredictedNumber | None = None

    def numbers(self) -> Iterator[tuple[ServiceNumber, PredictedNumber]]:
        """Yield what is predicted, in the order in which it is shown."""
        for number in SERVICE_NUMBERS:
            predicted = getattr(self, number.key)
            if predicted is not None:
                yield number, predicted


def read_prediction(path: Path) -> ServicePrediction:
    """Return the prediction of a file, or of ``prediction.yaml`` in a folder; raises
    :class:`BadInput` with the place of every fault.
    """
    file = path
    if path.is_dir():
        file = path / PREDICTION
        within = sorted(str(each.parent) for each in path.glob(f"*/{PREDICTION}"))
        if within and not file.exists():
            raise BadInput.at(path, f"holds predictions; name one: {', '.join(within)}")
    document = read(file)
    if "prediction" not in document.data:
        message = f"is no prediction; expected a {PREDICTION} of specsim what-if --out FOLDER"
        raise BadInput.at(file, message)
    return validate(ServicePrediction, document)


def prediction_text(prediction: ServicePrediction) -> str:
    """Return the content of ``prediction.yaml``."""
    content = prediction.model_dump(mode="json", exclude_none=True)
    return yaml.safe_dump(content, sort_keys=False, width=100, allow_unicode=True)


class SeenNumber(NamedTuple):
    """A number of a service as it was observed."""

    value: float
    seen_by: Side | None = None
    definition: str | None = None


def seen_numbers(
    observed: Observed, sides: dict[str, PredictedNumber] | None = None
) -> dict[str, SeenNumber]:
    """Return what was observed of the numbers that a service is judged by; those that were not are
    left out.

    ``sides`` says by name whose times are wanted, and by what definition, where there are several;
    a client's come first.
    """
    seen = {}
    for key, quantity in TIMES.items():
        wanted = (sides or {}).get(key)
        time = _time(observed.times_of(quantity), wanted)
        if time is not None and time.mean_ms is not None:
            seen[key] = SeenNumber(time.mean_ms, time.seen_by, time.definition)
    acceptance = observed.acceptance
    others = {
        "output_tokens_per_s": observed.load.output_tokens_per_s,
        "tokens_per_step": None if acceptance is None else acceptance.tokens_per_step,
        "hit_rate": observed.state.hit_rate,
    }
    for key, value in others.items():
        if value is not None:
            seen[key] = SeenNumber(value)
    return seen


def _time(times: tuple[MeasuredTime, ...], wanted: PredictedNumber | None) -> MeasuredTime | None:
    """Return the time that is most like the one wanted; None where no mean is known."""
    known = [time for time in times if time.mean_ms is not None]
    if wanted is None or wanted.seen_by is None:
        return next(iter(known), None)
    of_side = [time for time in known if time.seen_by == wanted.seen_by]
    alike = [time for time in of_side if time.definition == wanted.definition]
    return next(iter([*alike, *of_side]), None)
