"""Scenarios side by side: what they come to, what differs in what went in, and whether that is one
question.

Scenarios have letters; the first is the reference that the rest are compared with.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from simulator.core.plain import PlainData
from simulator.scenario import Loaded, Scenario, resolved
from simulator.scenario.caveats import continued_rates
from simulator.scenario.result.run_result import RunResult
from simulator.scenario.uncertain.draws import Interval
from simulator.scenario.uncertain.intervals import run_with_interval

UNCOMPARED = ("about", "maker", "year", "source", "confidence", "width_source")
"""Fields that only say what further fields mean, or where they come from."""
SOURCED = {"value", "source", "confidence"}
INDEX = re.compile(r"\.\d+(?=\.|$)")
LONGEST = 32
"""Letters of a value that is shown whole."""


class Measure(NamedTuple):
    """Describes a number of a result: its key with the unit, what it is in words, and the function
    that reads it; None where a result has no such number.
    """

    key: str
    words: str
    of: Callable[[RunResult], float | None]


class Value(NamedTuple):
    """Holds what a scenario says in a field; source and confidence where it is a number with a
    source.
    """

    text: str
    source: str = ""
    confidence: str = ""


class Difference(NamedTuple):
    """Holds a field, dotted as for ``--set``, and what the scenarios say there; None where one has
    no such field.
    """

    field: str
    values: tuple[Value | None, ...]

    def others(self) -> list[int]:
        """Return the places of the scenarios that differ from the first."""
        return [place for place, value in enumerate(self.values) if value != self.values[0]]


class Contestant(NamedTuple):
    """Holds a scenario to compare: its letter, the name that distinguishes it, and the command that
    runs it alone.
    """

    letter: str
    name: str
    command: str
    loaded: Loaded


@dataclass(frozen=True)
class ComparedRun:
    """Holds the result of a contestant, and the interval of its speed-up."""

    letter: str
    name: str
    command: str
    result: RunResult
    interval: Interval


@dataclass(frozen=True)
class Comparison:
    """Holds the runs, what differs in what went in, and sentences on why numbers may not be
    comparable.
    """

    runs: Sequence[ComparedRun]
    differences: Sequence[Difference]
    cautions: Sequence[str]

    @property
    def scenarios(self) -> list[Scenario]:
        """Return the scenarios in the order asked for."""
        return [run.result.scenario for run in self.runs]

    def as_data(self) -> PlainData:
        """Return scenarios by letter, differences and cautions as plain data; times in ms."""
        numbers = list(measured(self))
        scenarios = {}
        for place, compared in enumerate(self.runs):
            scenarios[compared.letter] = {
                "name": compared.name,
                "command": compared.command,
                **{measure.key: values[place] for measure, values in numbers},
                "speedup_interval": compared.interval._asdict(),
                "parts_ms": parts_ms(compared.result),
                "busy": compared.result.busy,
            }
        rows = []
        for difference in self.differences:
            row: PlainData = {"field": difference.field}
            for letter, value in zip(scenarios, difference.values, strict=True):
                row[letter] = value and value._asdict()
            rows.append(row)
        return {"scenarios": scenarios, "differences": rows, "cautions": list(self.cautions)}


def study(contestants: Sequence[Contestant]) -> Comparison:
    """Return the runs of all contestants, what differs in what went in, and what to be careful
    about.
    """
    runs = []
    for letter, name, command, loaded in contestants:
        result, interval = run_with_interval(loaded, command)
        runs.append(ComparedRun(letter, name, command, result, interval))
    scenarios = [run.result.scenario for run in runs]
    letters = [run.letter for run in runs]
    fields = list(differences(scenarios))
    careful = list(cautions(scenarios, letters, fields))
    for run in runs:
        if run.result.rests_on:
            careful.append(f"{run.letter}: {run.result.rests_on}")
    return Comparison(runs, fields, careful)


# ---- what they come to


def _fullest_gb(result: RunResult) -> float | None:
    """Return the GB of weights and the most cache of a run on the device that they fill most; None
    without devices.
    """
    tokens = result.simulated.serving.most_kv_tokens
    groups = []
    for group in result.scenario.device_groups:
        size = group.needed_gb(0, 0) + tokens * group.token_gb
        groups.append((size / group.limit_gb, size))
    if not groups:
        return None
    _, fullest_gb = max(groups)
    return fullest_gb


def _speedup(result: RunResult) -> float | None:
    if result.scenario.schedule.window:
        return result.speedup
    return None


def _goodput(result: RunResult) -> float | None:
    """Return good requests per second; None without an SLO."""
    counted = result.simulated.serving.counted
    if counted.slo:
        return counted.goodput_requests_per_s
    return None


def _usd_per_million_tokens(result: RunResult) -> float | None:
    if result.expenses:
        return result.expenses.usd_per_million_tokens
    return None


def _most_j_per_token(result: RunResult) -> float | None:
    if result.expenses:
        return result.expenses.most_j_per_token
    return None


def _tokens_per_step(result: RunResult) -> float:
    return result.simulated.tokens_per_step


def _tokens_per_s(result: RunResult) -> float:
    return result.simulated.tokens_per_s


def _baseline_tpot_ms(result: RunResult) -> float:
    return result.baseline.tpot_s * 1e3


def _tbt_p99_ms(result: RunResult) -> float | None:
    return result.simulated.serving.tbt.quantile_ms(0.99)


MEASURES = (
    Measure("tpot_ms", "ms per token, simulation", lambda result: result.simulated.tpot_s * 1e3),
    Measure("law_tpot_ms", "ms per token, law", lambda result: result.law.tpot_s * 1e3),
    Measure("baseline_tpot_ms", "ms per token, autoregressive", _baseline_tpot_ms),
    Measure("speedup", "speed-up over autoregressive", _speedup),
    Measure("step_ms", "ms per step", lambda result: result.simulated.step_s * 1e3),
    Measure("tokens_per_step", "tokens per step and request", _tokens_per_step),
    Measure("tokens_per_s", "tokens per second, all requests", _tokens_per_s),
    Measure("goodput_requests_per_s", "good requests per second (SLO)", _goodput),
    Measure("ttft_ms", "TTFT, mean (ms)", lambda result: result.simulated.ttft_s * 1e3),
    Measure("tbt_p99_ms", "between deliveries, p99 (ms)", _tbt_p99_ms),
    Measure("usd_per_million_tokens", "USD per million tokens", _usd_per_million_tokens),
    Measure("most_j_per_token", "J per token, at most", _most_j_per_token),
    Measure("memory_gb", "GB on the fullest device", _fullest_gb),
)
"""The numbers that are compared."""


def measured(comparison: Comparison) -> Iterator[tuple[Measure, list[float | None]]]:
    """Yield the measures that any of the scenarios has, with their values in the order of the
    runs.
    """
    for measure in MEASURES:
        values = [measure.of(run.result) for run in comparison.runs]
        if any(value is not None for value in values):
            yield measure, values


def parts_ms(result: RunResult) -> dict[str, float]:
    """Return named durations in ms, mean over the steps of the simulation.

    Parts that run at the same time add up to more than a step.
    """
    steps = sum(result.simulated.kinds[kind] for kind in result.phases)
    means = defaultdict[str, float](float)
    for kind, parts in result.phases.items():
        for name, phase in parts.items():
            means[name] += phase.wall_s * 1e3 * result.simulated.kinds[kind] / steps
    return {name: mean for name, mean in means.items() if mean}


# ---- what differs in what went in


def differences(scenarios: Sequence[Scenario]) -> Iterator[Difference]:
    """Yield the fields in which resolved scenarios differ, of stages alike once; no names or
    descriptions.
    """
    plain = [resolved(scenario) for scenario in scenarios]
    for fields in plain:
        fields.pop("name", None)
    alike = defaultdict[tuple[str, tuple[Value | None, ...]], list[str]](list)
    for field, values in _differing(plain, ()):
        of_any_stage = INDEX.sub(".*", field)
        alike[of_any_stage, values].append(field)
    for (of_any_stage, values), fields_alike in alike.items():
        if len(fields_alike) > 1:
            yield Difference(of_any_stage, values)
        else:
            yield Difference(fields_alike[0], values)


def _differing(
    values: Sequence[Any], path: tuple[str, ...]
) -> Iterator[tuple[str, tuple[Value | None, ...]]]:
    """Yield path and values of the fields below ``path`` that differ; a part that not all scenarios
    have comes once.
    """
    if all(_number(value) == _number(values[0]) for value in values):
        return
    present = [value for value in values if value is not None]
    lacking = len(present) < len(values)
    nested = all(map(_has_fields, present))
    if not nested or (lacking and path):
        yield ".".join(path), tuple(_shown(values))
    if nested and (not lacking or any(value != present[0] for value in present)):
        yield from _differing_below([_keyed(value) for value in values], path)


def _differing_below(
    parts: Sequence[Mapping[Any, Any]], path: tuple[str, ...]
) -> Iterator[tuple[str, tuple[Value | None, ...]]]:
    """Yield path and values of the fields of parts that differ, in the order in which they come
    up.
    """
    keys: dict[Any, None] = {}
    for part in parts:
        keys |= dict.fromkeys(part)
    for key in keys:
        if key not in UNCOMPARED:
            yield from _differing([part.get(key) for part in parts], (*path, str(key)))


def _keyed(value: Any) -> Mapping[Any, Any]:
    """Return the fields of a mapping, or the entries of a list by their place; none for None."""
    if isinstance(value, list):
        return dict(enumerate(value))
    return value or {}


def _number(value: Any) -> Any:
    """Return a value without its source: another source for the same number changes nothing."""
    if isinstance(value, dict) and set(value) == SOURCED:
        return value["value"]
    return value


def _has_fields(value: Any) -> bool:
    """Whether a value is a mapping but no number with a source, or a list of mappings of mappings
    (stages of a pipeline).
    """
    if isinstance(value, list):
        return bool(value) and all(map(_nests, value))
    return isinstance(value, dict) and set(value) != SOURCED


def _nests(value: Any) -> bool:
    """Whether a value is a mapping of which any part has fields of its own."""
    return isinstance(value, dict) and any(map(_has_fields, value.values()))


def _shown(values: Sequence[Any]) -> Iterator[Value | None]:
    """Yield the values in a few words; different values with the same words are numbered."""
    shown = [_value(value) for value in values]
    alike = defaultdict[str, list[Any]](list)
    for value, words in zip(values, shown, strict=True):
        if words and value not in alike[words.text]:
            alike[words.text].append(value)
    for value, words in zip(values, shown, strict=True):
        if words and len(alike[words.text]) > 1:
            number = alike[words.text].index(value) + 1
            yield words._replace(text=f"{words.text}, no. {number}")
        else:
            yield words


def _value(value: Any) -> Value | None:
    if value is None:
        return None
    if isinstance(value, dict):
        if set(value) == SOURCED:
            return Value(f"{value['value']:g}", value["source"], value["confidence"])
        model = value.get("model")
        name = value.get("name") or (model and model["name"])
        return Value(str(name or "stated"))
    in_brackets = yaml.safe_dump([value], default_flow_style=True, allow_unicode=True, width=10_000)
    text = in_brackets[1:-2]
    if isinstance(value, list) and len(text) > LONGEST:
        return Value(f"{len(value)} entries")
    return Value(text)


# ---- whether that is one question


def _any_two(reference: Scenario, scenario: Scenario) -> bool:
    return True


def _two_targets(reference: Scenario, scenario: Scenario) -> bool:
    return bool(reference.target and scenario.target)


def _hardware_and_stated_times(reference: Scenario, scenario: Scenario) -> bool:
    return (reference.target is None) != (scenario.target is None)


def _two_that_draft(reference: Scenario, scenario: Scenario) -> bool:
    return bool(reference.schedule.window and scenario.schedule.window)


def _draft_ms(scenario: Scenario) -> float | None:
    if scenario.durations:
        return scenario.durations.draft_ms
    return None


def _same_stated_window(reference: Scenario, scenario: Scenario) -> bool:
    """Whether both state the same time in ms for a whole window, however long it is."""
    draft_ms = _draft_ms(reference)
    return draft_ms is not None and draft_ms == _draft_ms(scenario)


class AgreementCheck(NamedTuple):
    """Says which fields have to agree, themselves and below, between which pairs, and what it means
    where they do not.
    """

    fields: Sequence[str]
    between: Callable[[Scenario, Scenario], bool]
    words: str

    def asks(self, field: str) -> bool:
        """Return whether a field is among those that have to agree."""
        return any(field == name or field.startswith(f"{name}.") for name in self.fields)


CHECKS = (
    AgreementCheck(
        ("target.model", "target.weights"),
        _two_targets,
        "decodes another target: its times and its text are another model's",
    ),
    AgreementCheck(
        ("durations", "target"),
        _hardware_and_stated_times,
        "has its times from elsewhere: hardware in one, stated in the other",
    ),
    AgreementCheck(
        ("requests", "slo"),
        _any_two,
        "serves other requests: times, tokens per second and tails are under another load",
    ),
    AgreementCheck(
        (
            "acceptance.trace",
            "acceptance.flavours",
            "acceptance.rescale",
            "acceptance.rate",
            "acceptance.per_position",
            "acceptance.lengths",
            "acceptance.overlap",
            "acceptance.always",
            "acceptance.cycle",
        ),
        _two_that_draft,
        (
            "takes acceptance from elsewhere: keeping more or less may be due to the text, not to "
            "the method"
        ),
    ),
    AgreementCheck(
        ("strategy.gamma",),
        _same_stated_window,
        (
            "drafts another window in the same stated draft_ms, as if more tokens took no longer; "
            "draft_step_ms would grow with it"
        ),
    ),
    AgreementCheck(("seed",), _any_two, "has another seed: a small difference may be chance"),
)
"""What has to agree for two scenarios to answer the same question."""


def cautions(
    scenarios: Sequence[Scenario], letters: Sequence[str], differing: Sequence[Difference]
) -> Iterator[str]:
    """Yield what to know before numbers are compared, a sentence per scenario and question."""
    reference = scenarios[0]
    for letter, scenario in zip(letters, scenarios, strict=True):
        for words in continued_rates(scenario):
            yield (f"{letter}: {words}")
    for check in CHECKS:
        asked = [difference for difference in differing if check.asks(difference.field)]
        for place, scenario in enumerate(scenarios[1:], start=1):
            fields = [difference.field for difference in asked if place in difference.others()]
            if fields and check.between(reference, scenario):
                if len(fields) > 2:
                    more = f" and {len(fields) - 2} more"
                else:
                    more = ""
                yield f"{letters[place]} {check.words} ({', '.join(fields[:2])}{more})"
