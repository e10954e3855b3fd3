"""Scenarios side by side: what they come to, what differs in what went in, and whether that is one question.

Each has a letter; the first is the reference that the others are held against.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from simulator.scenario import Loaded, Scenario, resolved
from simulator.scenario.run import Result, run, tuned
from simulator.scenario.uncertainty import Interval, Times, of_speedup

UNTOLD = ("about", "source", "confidence", "width_source")
"""Fields that only say what others mean, or where they come from."""
SOURCED = {"value", "source", "confidence"}
INDEX = re.compile(r"\.\d+(?=\.|$)")
LONGEST = 32
"""Letters of a value that is shown whole."""


class Measure(NamedTuple):
    """A number of a result: its key with the unit, what it is in words, and how it is read off."""

    key: str
    words: str
    of: Callable[[Result], float | None]


class Value(NamedTuple):
    """What one scenario says in a field; source and confidence where it is a number with a source."""

    text: str
    source: str = ""
    confidence: str = ""


class Difference(NamedTuple):
    """A field, dotted as for ``--set``, and what each scenario says there; None where it has no such field."""

    field: str
    values: tuple[Value | None, ...]

    def others(self) -> list[int]:
        """Places of the scenarios that say something else than the first."""
        return [place for place, value in enumerate(self.values) if value != self.values[0]]


class Contestant(NamedTuple):
    """A scenario to compare: its letter, what tells it apart, how it is run alone."""

    letter: str
    name: str
    command: str
    loaded: Loaded


@dataclass(frozen=True)
class Compared:
    """One that was run, and the interval of its speed-up."""

    letter: str
    name: str
    command: str
    result: Result
    interval: Interval


@dataclass(frozen=True)
class Comparison:
    """All of it. ``cautions``: sentences on why numbers may not be held against each other."""

    compared: Sequence[Compared]
    differences: Sequence[Difference]
    cautions: Sequence[str]
    command: str

    @property
    def scenarios(self) -> list[Scenario]:
        """In the order asked for."""
        return [one.result.scenario for one in self.compared]


def compare(candidates: Sequence[Contestant], command: str) -> Comparison:
    """Run every scenario and lay the results side by side; ``command`` makes it again."""
    found = [_ran(one) for one in candidates]
    scenarios = [one.result.scenario for one in found]
    apart = list(differences(scenarios))
    return Comparison(found, apart, list(cautions(scenarios, [one.letter for one in found], apart)), command)


def _ran(one: Contestant) -> Compared:
    times = Times()
    result = run(one.loaded, one.command, finished=times.note)
    interval = of_speedup(tuned(one.loaded), result.speedup, times.requests)
    return Compared(one.letter, one.name, one.command, result, interval)


# ---- what they come to


def _fullest_gb(result: Result) -> float | None:
    """Weights and the most cache of a run on the device that they fill most; None without devices."""
    tokens = result.simulated.serving.most_kv_tokens
    groups = [(one.needed_gb(tokens) / one.limit_gb, one.needed_gb(tokens)) for one in result.scenario.device_groups]
    return max(groups)[1] if groups else None


def _speedup(result: Result) -> float | None:
    return result.speedup if result.scenario.schedule.window else None


def _goodput(result: Result) -> float | None:
    counted = result.simulated.serving.counted
    return counted.goodput_requests_per_s if counted.slo else None


MEASURES = (
    Measure("tpot_ms", "ms per token, simulation", lambda result: result.simulated.tpot_s * 1e3),
    Measure("law_tpot_ms", "ms per token, law", lambda result: result.law.tpot_s * 1e3),
    Measure("baseline_tpot_ms", "ms per token, autoregressive", lambda result: result.baseline.tpot_s * 1e3),
    Measure("speedup", "speed-up over autoregressive", _speedup),
    Measure("step_ms", "ms per step", lambda result: result.simulated.step_s * 1e3),
    Measure("tokens_per_step", "tokens per step and request", lambda result: result.simulated.tokens_per_step),
    Measure("tokens_per_s", "tokens per second, all requests", lambda result: result.simulated.tokens_per_s),
    Measure("goodput_requests_per_s", "good requests per second (SLO)", _goodput),
    Measure("ttft_ms", "TTFT, mean (ms)", lambda result: result.simulated.ttft_s * 1e3),
    Measure("tbt_p99_ms", "between deliveries, p99 (ms)", lambda result: result.simulated.serving.tbt.quantile(0.99) * 1e3),
    Measure(
        "usd_per_million_tokens", "USD per million tokens", lambda one: one.expenses and one.expenses.usd_per_million_tokens
    ),
    Measure("most_j_per_token", "J per token, at most", lambda one: one.expenses and one.expenses.most_j_per_token),
    Measure("memory_gb", "GB on the fullest device", _fullest_gb),
)


def measured(comparison: Comparison) -> Iterator[tuple[Measure, list[float | None]]]:
    """Every measure that any of the scenarios has, with what each comes to."""
    for measure in MEASURES:
        values = [measure.of(one.result) for one in comparison.compared]
        if any(value is not None for value in values):
            yield measure, values


def parts_ms(result: Result) -> dict[str, float]:
    """Named durations in ms, mean over the steps of the simulation; parts that run side by side add up to more than a step."""
    steps = sum(result.simulated.kinds[kind] for kind in result.phases)
    found = defaultdict[str, float](float)
    for kind, parts in result.phases.items():
        for name, phase in parts.items():
            found[name] += phase.wall_s * 1e3 * result.simulated.kinds[kind] / steps
    return {name: taken for name, taken in found.items() if taken}


# ---- what differs in what went in


def differences(scenarios: Sequence[Scenario]) -> Iterator[Difference]:
    """Fields of the resolved scenarios that are not the same everywhere, of stages alike once; no names or descriptions."""
    plain = [{key: value for key, value in resolved(one).items() if key != "name"} for one in scenarios]
    alike: dict[tuple[str, tuple[Value | None, ...]], list[str]] = {}
    for field, values in _differing(plain, ()):
        alike.setdefault((INDEX.sub(".*", field), values), []).append(field)
    for (field, values), fields in alike.items():
        yield Difference(field if len(fields) > 1 else fields[0], values)


def _differing(values: Sequence[Any], path: tuple[str, ...]) -> Iterator[tuple[str, tuple[Value | None, ...]]]:
    held = [one for one in values if one is not None]
    if all(_number(one) == _number(values[0]) for one in values):
        return
    fields = all(map(_has_fields, held))
    if not fields or (len(held) < len(values) and path):  # a part that not all of them have is told once
        yield ".".join(path), tuple(_told(values))
    if fields and (len(held) == len(values) or any(one != held[0] for one in held)):
        keyed = [dict(enumerate(one)) if isinstance(one, list) else one or {} for one in values]
        for key in dict.fromkeys(key for one in keyed for key in one):
            if key not in UNTOLD:
                yield from _differing([one.get(key) for one in keyed], (*path, str(key)))


def _number(value: Any) -> Any:
    """A value without its source: another source for the same number changes nothing."""
    return value["value"] if isinstance(value, dict) and set(value) == SOURCED else value


def _has_fields(value: Any) -> bool:
    """A mapping that is no number with a source, or a list of mappings that hold others (the stages of a pipeline)."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(one, dict) and any(map(_has_fields, one.values())) for one in value)
    return isinstance(value, dict) and set(value) != SOURCED


def _told(values: Sequence[Any]) -> Iterator[Value | None]:
    """Each in a few words; those that would look the same and are not, are numbered."""
    shown, alike = [_value(one) for one in values], defaultdict[str, list[Any]](list)
    for value, told in zip(values, shown, strict=True):
        if told and value not in alike[told.text]:
            alike[told.text].append(value)
    for value, told in zip(values, shown, strict=True):
        several = told and len(alike[told.text]) > 1
        yield told._replace(text=f"{told.text}, no. {alike[told.text].index(value) + 1}") if told and several else told


def _value(value: Any) -> Value | None:
    if value is None:
        return None
    if isinstance(value, dict):
        if set(value) == SOURCED:
            return Value(f"{value['value']:g}", value["source"], value["confidence"])
        model = value.get("model")
        return Value(str(value.get("name") or (model and model["name"]) or "stated"))
    text = yaml.safe_dump([value], default_flow_style=True, allow_unicode=True, width=10_000)[1:-2]
    return Value(text if len(text) <= LONGEST or not isinstance(value, list) else f"{len(value)} entries")


# ---- whether that is one question


class AgreementCheck(NamedTuple):
    """Fields that have to agree, themselves and below, between which pairs, and what it means where they do not."""

    fields: tuple[str, ...]
    words: str
    between: Callable[[Scenario, Scenario], bool] = lambda one, other: True

    def asks(self, field: str) -> bool:
        """Whether a field is among them."""
        return any(field == one or field.startswith(f"{one}.") for one in self.fields)


def _window_ms(scenario: Scenario) -> float | None:
    """The time that is stated for a whole window, however long it is."""
    return scenario.durations.draft_ms if scenario.durations else None


QUESTIONS = (
    AgreementCheck(
        ("target.model", "target.weights"),
        "decodes another target: its times and its text are another model's",
        lambda one, other: bool(one.target and other.target),
    ),
    AgreementCheck(
        ("durations", "target"),
        "has its times from elsewhere: hardware in one, stated in the other",
        lambda one, other: (one.target is None) != (other.target is None),
    ),
    AgreementCheck(("requests", "slo"), "serves other requests: times, tokens per second and tails are under another load"),
    AgreementCheck(
        ("acceptance.trace", "acceptance.flavours", "acceptance.rescale", "acceptance.rate", "acceptance.per_position",
         "acceptance.overlap", "acceptance.always", "acceptance.cycle"),
        "takes acceptance from elsewhere: what it keeps more or less of may be the text, not the method",
        lambda one, other: bool(one.schedule.window and other.schedule.window),
    ),
    AgreementCheck(
        ("strategy.gamma",),
        "drafts another window in the same stated draft_ms, as if more tokens took no longer; draft_step_ms would grow with it",
        lambda one, other: _window_ms(one) is not None and _window_ms(one) == _window_ms(other),
    ),
    AgreementCheck(("seed",), "has another seed: a small difference may be chance"),
)  # fmt: skip


def cautions(scenarios: Sequence[Scenario], letters: Sequence[str], apart: Sequence[Difference]) -> Iterator[str]:
    """What to know before numbers are held against each other."""
    reference = scenarios[0]
    for question in QUESTIONS:
        asked = [one for one in apart if question.asks(one.field)]
        for place, scenario in enumerate(scenarios[1:], start=1):
            fields = [one.field for one in asked if place in one.others()]
            if fields and question.between(reference, scenario):
                more = f" and {len(fields) - 2} more" if len(fields) > 2 else ""
                yield f"{letters[place]} {question.words} ({', '.join(fields[:2])}{more})"
