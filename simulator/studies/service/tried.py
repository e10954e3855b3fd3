"""Changes tried on a service: each beside what was measured and beside the simulation of it as it
is.

A gain is a number after the change over that before, both simulated, drawn together. A prediction
is the measured number times the gain, of further requests of the same kind; where nothing was
measured, it is the simulated one. Of the tokens of a step those that are kept of drafts go with the
change; the one of the target is always there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log

import numpy as np

from simulator.core.parallel import counted
from simulator.core.plain import PlainData
from simulator.inputs.services.observed import Observed, ObservedLoad
from simulator.inputs.services.prediction import (
    SERVICE_NUMBERS,
    Bounds,
    ChangedSetting,
    PredictedNumber,
    SeenNumber,
    ServiceNumber,
    ServicePrediction,
    seen_numbers,
)
from simulator.scenario import Loaded, Scenario
from simulator.scenario.decision.verdict import Verdict, verdict
from simulator.scenario.uncertain.draws import DRAWS, Drawn
from simulator.studies.compare import differences
from simulator.studies.plan.commands.engines import ENGINES, program_name
from simulator.studies.service.changes import Change, Untried
from simulator.studies.service.simulated import SimulatedService, simulated_service

DIGIT = 1e-5
"""How far an interval is widened, so that digits that are not written cut nothing off."""
JUDGED_BY = "e2e_ms"
"""The number by which a change helps or hurts: the time of a whole request, which decides the rate
of clients that wait for their answers."""


@dataclass(frozen=True)
class BeforeChange:
    """A number of a service as it is: measured, and simulated."""

    number: ServiceNumber
    measured: SeenNumber | None
    simulated: float | None

    @property
    def error(self) -> float | None:
        """Return how far the simulation is above what was measured; None where either is not
        known.
        """
        if self.measured is None or self.simulated is None or not self.measured.value:
            return None
        return self.simulated / self.measured.value - 1.0


@dataclass(frozen=True)
class Gain:
    """A number after a change over that before, both simulated."""

    number: ServiceNumber
    simulated_before: float
    simulated_after: float
    drawn: Drawn | None
    """The ratio with its draws; None where nobody knows how far it is off."""
    predicted: PredictedNumber

    @property
    def ratio(self) -> float | None:
        """Return the number after the change over that before; None where that was 0."""
        if not self.simulated_before:
            return None
        return self.simulated_after / self.simulated_before

    def as_data(self) -> PlainData:
        """Return the gain as plain data, its interval with 80 % of the draws."""
        interval = None if self.drawn is None else list(self.drawn.interval(0.8))
        return {
            "number": self.number.key,
            "simulated_before": self.simulated_before,
            "simulated_after": self.simulated_after,
            "ratio": self.ratio,
            "ratio_80": interval,
            "predicted": self.predicted.model_dump(mode="json"),
        }


@dataclass(frozen=True)
class TriedChange:
    """What a change would do to a service."""

    change: Change
    gains: Sequence[Gain]
    chance: float
    """Chance that requests are answered faster, as a share of 1."""
    changed: Sequence[ChangedSetting]
    files: Mapping[str, str]
    """The engine's command for it, and the configuration that it reads, by names of files; empty
    where no options of it are known.
    """

    @property
    def command(self) -> str | None:
        """Return the engine's command for it; None where no options of it are known."""
        return next(iter(self.files.values()), None)

    @property
    def configuration(self) -> str | None:
        """Return what its command reads from a file beside it; None where that is nothing."""
        return next(iter([*self.files.values()][1:]), None)

    @property
    def verdict(self) -> Verdict:
        """Return the word for the chance."""
        return verdict(self.chance)

    def gain(self, key: str) -> Gain | None:
        """Return the gain of a number; None where it was not simulated."""
        return next((gain for gain in self.gains if gain.number.key == key), None)


@dataclass(frozen=True)
class WhatIfService:
    """A service as it is, and what changes would do to it."""

    name: str
    """What the service is called: the scenario that it is like."""
    base: Loaded
    observed: Observed | None
    before: Sequence[BeforeChange]
    tries: Sequence[TriedChange]
    untried: Sequence[Untried]

    @property
    def load(self) -> ObservedLoad:
        """Return the load: as it was observed, else of the scenario."""
        if self.observed is not None:
            return self.observed.load
        return load_of_scenario(self.base.scenario)

    def as_data(self) -> PlainData:
        """Return the study as plain data."""
        before = {}
        for each in self.before:
            before[each.number.key] = {
                "measured": each.measured and each.measured.value,
                "simulated": each.simulated,
                "error": each.error,
            }
        tries = []
        for tried in self.tries:
            tries.append(
                {
                    "tried": tried.change.typed,
                    "verdict": tried.verdict,
                    "chance": tried.chance,
                    "numbers": [gain.as_data() for gain in tried.gains],
                    "changed": [setting.model_dump() for setting in tried.changed],
                    "assumed": list(tried.change.said),
                    "command": tried.command,
                    "configuration": tried.configuration,
                }
            )
        return {
            "scenario": self.name,
            "judged_by": JUDGED_BY,
            "before": before,
            "tries": tries,
            "left_out": [untried._asdict() for untried in self.untried],
        }

    def prediction(self, tried: TriedChange) -> ServicePrediction:
        """Return what is written down of a change, to be verified after it was made."""
        observed = self.observed
        numbers = {gain.number.key: gain.predicted for gain in tried.gains}
        return ServicePrediction(
            tried=tried.change.typed,
            changed=tuple(tried.changed),
            scenario=self.name,
            engine=observed.engine if observed else None,
            model=observed.model if observed else None,
            verdict=tried.verdict,
            chance=round(tried.chance, 4),
            window=tried.change.loaded.scenario.schedule.window,
            load=self.load,
            **numbers,
        )


def study(
    base: Loaded,
    changes: Sequence[Change],
    untried: Sequence[Untried] = (),
    observed: Observed | None = None,
    name: str = "",
) -> WhatIfService:
    """Return what changes would do to the service that ``base`` stands for, ``observed`` as it is
    and called ``name``, by default as its scenario.

    Raises :class:`Infeasible` where nothing of the service decodes.
    """
    seen = seen_numbers(observed) if observed else {}
    as_it_is = simulated_service(base)
    before = []
    for number in SERVICE_NUMBERS:
        simulated = as_it_is.values.get(number.key)
        measured = seen.get(number.key)
        if simulated is not None or measured is not None:
            before.append(BeforeChange(number, measured, simulated))
    tries = []
    for change in counted(changes, "changes"):
        another_method = change.typed if change.another_method else ""
        after = simulated_service(change.loaded, another_method)
        tries.append(_tried(change, as_it_is, after, seen))
    return WhatIfService(name or base.scenario.name, base, observed, before, tries, untried)


def _tried(
    change: Change,
    before: SimulatedService,
    after: SimulatedService,
    seen: Mapping[str, SeenNumber],
) -> TriedChange:
    """Return what a change would do."""
    gains = []
    for number in SERVICE_NUMBERS:
        if number.key in before.values and number.key in after.values:
            gains.append(_gain(number, before, after, seen.get(number.key)))
    judged = after.values[JUDGED_BY] / before.values[JUDGED_BY]
    differing = after.changes[JUDGED_BY] - before.changes[JUDGED_BY]
    chance = float(np.mean(differing < -log(judged)))
    settings = []
    for difference in differences([before.loaded.scenario, after.loaded.scenario]):
        texts = [value.text if value else "" for value in difference.values]
        settings.append(ChangedSetting(field=difference.field, before=texts[0], after=texts[1]))
    return TriedChange(change, gains, chance, settings, _files(change))


def _gain(
    number: ServiceNumber,
    before: SimulatedService,
    after: SimulatedService,
    measured: SeenNumber | None,
) -> Gain:
    """Return the gain of a number, and what is predicted of it."""
    key = number.key
    first = before.values[key]
    second = after.values[key]
    known = key in before.changes and first > 0.0 and second > 0.0
    drawn = None
    if known:
        drawn = Drawn(second / first, after.changes[key] - before.changes[key])
    if key == "tokens_per_step" and not after.loaded.scenario.schedule.window:
        expected = Drawn(second, np.zeros(DRAWS))
    elif not known:
        expected = None
    else:
        central = _central(number, first, second, measured)
        if central is None:
            expected = after.expected(key)
        else:
            changes = after.changes[key] - before.changes[key] + after.others[key]
            expected = Drawn(central, changes)
        expected = _possible(number, expected)
    return Gain(
        number=number,
        simulated_before=first,
        simulated_after=second,
        drawn=drawn,
        predicted=PredictedNumber(
            before=_rounded(measured.value) if measured else None,
            after=_rounded(expected.value if expected else second),
            within_80=_bounds(number, expected, 0.8),
            within_90=_bounds(number, expected, 0.9),
            seen_by=measured.seen_by if measured else None,
            definition=measured.definition if measured else None,
        ),
    )


def _central(
    number: ServiceNumber, first: float, second: float, measured: SeenNumber | None
) -> float | None:
    """Return what is expected of a number that was measured, by what it is simulated first and
    second: what it has above the least that is possible goes with the change. None where nothing
    was measured, or nothing above that.
    """
    least = number.least
    if measured is None or (least and min(measured.value, first) <= least):
        return None
    return least + (measured.value - least) * (second - least) / (first - least)


def _possible(number: ServiceNumber, expected: Drawn) -> Drawn:
    """Return the draws of a number, none of which is less or more than is possible."""
    if expected.value <= 0.0:
        return expected
    least = log(number.least / expected.value) if number.least else -inf
    most = log(number.most / expected.value)
    return Drawn(expected.value, np.clip(expected.changes, least, most))


def _bounds(number: ServiceNumber, drawn: Drawn | None, share: float) -> Bounds | None:
    """Return between what a share of the draws lies; None without draws."""
    if drawn is None:
        return None
    low, high = drawn.interval(share)
    low, high = _rounded(low * (1.0 - DIGIT)), _rounded(high * (1.0 + DIGIT))
    return Bounds(low=max(number.least, low), high=min(number.most, high))


def _rounded(value: float) -> float:
    """Return a number with the six digits that are written down."""
    return float(f"{value:.6g}")


def _files(change: Change) -> dict[str, str]:
    """Return what serves a service after a change, by names of files; empty where no command is
    known.
    """
    scenario = change.loaded.scenario
    name = program_name(scenario)
    return ENGINES[name].files(scenario, None, change.head) if name else {}


def load_of_scenario(scenario: Scenario) -> ObservedLoad:
    """Return the load of a scenario as it would be observed."""
    requests = scenario.requests
    lengths = list(requests.lengths(scenario.seed))[: requests.count]
    closed = requests.arrivals is None and requests.sessions is None
    return ObservedLoad(
        requests=requests.count,
        prompt_tokens=sum(prompt for prompt, _ in lengths),
        output_tokens=sum(output for _, output in lengths),
        most_concurrent=requests.concurrency if closed else None,
    )
