"""What nobody measured, each with what moves it by one deviation;
:mod:`simulator.scenario.uncertain.draws` draws from it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from math import log
from typing import NamedTuple, TypeGuard

from pydantic import ValidationError

from simulator.core.cost.device import Device
from simulator.core.cost.engine import Engine
from simulator.core.cost.hardware_cost import HardwareCost
from simulator.core.cost.kernels import further_rows, lacks_curve, measured_rows, row_costs
from simulator.core.cost.placement import Placement
from simulator.core.cost.row_costs import RowCosts
from simulator.core.quantities import (
    Fraction,
    Open,
    Part,
    Ranged,
    Sourced,
    nested,
    provenance,
    replace_nested,
)
from simulator.core.strategies.common.base import rows_of_a_request
from simulator.scenario import Loaded, Scenario
from simulator.scenario.ranks import Continued, continued, placements
from simulator.scenario.uncertain.draws import SHARE_DEVIATIONS
from simulator.scenario.uncertain.homes import away, from_home

SPREADS = {
    **dict.fromkeys(("measured", "datasheet", "computed"), 0.02),
    **dict.fromkeys(("calibrated", "published"), 0.05),
    "borrowed": 0.15,
    "assumed": 0.3,
}
"""One deviation of a number without a range, relative to it, by its confidence: judged, not
measured.
"""
ROWS_WITHOUT_A_CURVE = RowCosts(row=Ranged(value=0.2), most=8)
"""What eight rows cost where no curve of a quantised format is known: 2.4 times one, as on an RTX
3090 in llama.cpp.
"""


def changed(kind: type[Part], change: Callable[[Part], Part], loaded: Loaded) -> Loaded:
    """Return the scenario with every ``kind`` in it replaced by what ``change`` returns."""
    return Loaded(replace_nested(loaded.scenario, kind, change), loaded.trace, loaded.document)


def uncurved(scenario: Scenario) -> Iterator[tuple[str, Callable[[Loaded], Loaded]]]:
    """Yield formats whose products take the curve of another format on the device, with rows that
    cost as in llama.cpp.
    """
    dearer = partial(
        changed,
        Engine,
        lambda engine: engine.model_copy(update={"rows": {"quantised": ROWS_WITHOUT_A_CURVE}}),
    )
    for role, place in (("target", scenario.target), ("draft", scenario.draft)):
        if (
            place
            and lacks_curve(place.device, place.weights)
            and row_costs(place, place.weights) is None
        ):
            yield f"{role}: rows of products in {place.weights} on {place.device.name}", dearer


def continued_further(scenario: Scenario) -> Iterator[tuple[str, Callable[[Loaded], Loaded]]]:
    """Yield all-reduces of more ranks than were fitted, each with what makes it one deviation
    slower, if never faster.
    """

    def slower(formula: Continued, loaded: Loaded) -> Loaded:
        times = 1.0 + (formula.longest - 1.0) / SHARE_DEVIATIONS
        return Loaded(formula.slower(times, loaded.scenario), loaded.trace, loaded.document)

    for formula in continued(scenario):
        yield formula.words, partial(slower, formula)


class Uneven(NamedTuple):
    """A number of a scenario whose range lies unevenly around it, or that was fitted on another
    device.
    """

    name: str
    number: Sourced
    known: Open
    """The number with its range and source as they are known here."""

    @property
    def ends(self) -> tuple[float, float]:
        """Return both ends of its range."""
        low, high = (
            self.known.value if end is None else end for end in (self.known.low, self.known.high)
        )
        return low, high

    def at(self, value: float, loaded: Loaded) -> Loaded:
        """Return the scenario in which the number has another value."""
        free = {"low": None, "high": None} if isinstance(self.number, Ranged) else {}
        other = self.number.model_copy(update={"value": value, **free})
        return changed(Sourced, lambda own: other if own == self.number else own, loaded)


def uneven(numbers: Mapping[str, Sourced], scenario: Scenario) -> Iterator[Uneven]:
    """Yield those of a scenario's numbers, by name, whose ends are taken apart; not those that play
    no part.
    """
    lent = _away(scenario)
    places = [place for _, place in placements(scenario)]
    unused: set[Sourced] = set()
    unused.update(*(_parts_of(place, played=False) for place in places))
    unused.difference_update(*(_parts_of(place, played=True) for place in places))
    for name, number in numbers.items():
        known = lent.get(number, number)
        if number in unused or not isinstance(known, Open):
            continue
        if (known.low, known.high) != (None, None):
            yield Uneven(name, number, known)


def _parts_of(place: Placement, played: bool) -> Iterator[Open]:
    """Yield the numbers of an engine that play a part only in some places, and do in this one, or
    do not.
    """
    engine = place.engine
    whole_experts = place.model.experts is not None and place.experts != "sliced"
    latents = any(mixer.widened for mixer, _ in place.model.mixer_layers)
    indexers = any(mixer.index_width for mixer, _ in place.model.mixer_layers)
    parts = (
        (engine.sharded_step_us, place.tensor_parallel > 1),
        (engine.sharded_pass_us, place.tensor_parallel > 1),
        (engine.large_mixture_ratio, place.large_mixture),
        (engine.latent_us, latents),
        (engine.index_us, indexers),
        (engine.busiest_rank_ratio, whole_experts),
    )
    return (number for number, plays in parts if plays == played)


def evenly(numbers: Mapping[str, Sourced], scenario: Scenario) -> dict[str, Sourced]:
    """Return the other numbers, which are moved by a deviation."""
    lent = _away(scenario)
    even = {}
    for name, number in numbers.items():
        if number not in lent and not isinstance(number, Open):
            even[name] = number
    return even


def _away(scenario: Scenario) -> dict[Sourced, Open]:
    """Return the numbers of engines that were fitted on other devices, as they are known here: the
    further of two.
    """
    found = dict[Sourced, Open]()
    for _, place in placements(scenario):
        for number, known in away(place.engine, place.device).items():
            if number not in found or (known.high or 0.0) > (found[number].high or 0.0):
                found[number] = known
    if scenario.target and scenario.method:
        numbers = nested(scenario.strategy, Sourced)
        found |= from_home(numbers, scenario.method.fitted_on, scenario.target.device)
    return found


def about_rows(scenario: Scenario) -> Iterator[str]:
    """Yield where products of more rows than were measured are continued in a line."""
    rows = {"target": rows_of_a_request(scenario.schedule), "draft": 1}
    for role, place in placements(scenario):
        most = measured_rows(place)
        verified = rows[role] * scenario.batch
        if most and verified > most:
            further = further_rows(place, place.weights)
            low = further.value if further.low is None else further.low
            high = further.value if further.high is None else further.high
            yield (
                f"products of more than {most} rows in {place.weights} were not measured under "
                f"{place.engine.name}: up to {verified:,} of the {role} cost on in a line "
                f"({low:g} to {high:g} times as steep as before)"
            )


def about_sharded_steps(scenario: Scenario) -> Iterator[str]:
    """Yield that speculative steps over several ranks, and passes of a draft over them, may take
    longer than they are computed.
    """
    if not isinstance(scenario.cost, HardwareCost) or scenario.cost.drafting is None:
        return
    target = scenario.target
    if target is not None and target.tensor_parallel > 1:
        step = target.engine.sharded_step_us
        if step.high is not None and step.confidence == "assumed":
            yield (
                f"a speculative step over {target.tensor_parallel} ranks may take up to "
                f"{_longest_ms(step)} ms longer than computed: nobody measured it alone under "
                f"{target.engine.name or 'this engine'}"
            )
    draft = scenario.draft if scenario.cost.drafting == "draft_model" else target
    if scenario.cost.drafting == "look_up" or draft is None or draft.tensor_parallel == 1:
        return
    each = draft.engine.sharded_pass_us
    if each.high is not None and each.confidence == "assumed":
        yield (
            f"each pass of the draft over {draft.tensor_parallel} ranks may take up to "
            f"{_longest_ms(each)} ms longer than computed: it is launched and summed on all of them"
        )


def about_large_mixtures(scenario: Scenario) -> Iterator[str]:
    """Yield that a mixture that no single device holds is computed for an ideal engine, and how
    much longer a measured one took.
    """
    if not isinstance(scenario.cost, HardwareCost):
        return
    place = scenario.target
    if place is None or not place.large_mixture:
        return
    ratio = place.engine.large_mixture_ratio
    if ratio.high is not None and ratio.high > ratio.value:
        yield (
            f"times of {place.model.name} over {place.devices} are those of an ideal engine, "
            f"from kernels measured alone; a real one may take up to {ratio.high:g} times as long "
            f"({ratio.source})"
        )


def about_start_ups(scenario: Scenario) -> Iterator[str]:
    """Yield that handovers, and loads from a tier of memory, may take longer to begin than
    computed.
    """
    handover = scenario.serving.handover
    if handover is not None and handover.start_up_us.high:
        yield (
            "a handover, and with it a first token, may take up to "
            f"{_longest_ms(handover.start_up_us)} ms longer than computed: nobody measured how "
            "it begins (serving.handover.start_up_us)"
        )
    by_ms: dict[str, list[str]] = {}
    for tier in scenario.serving.memory.tiers:
        if tier.start_up_us.high:
            by_ms.setdefault(_longest_ms(tier.start_up_us), []).append(tier.name)
    for longest_ms, names in by_ms.items():
        yield (
            f"a load from {' or '.join(names)} may take up to {longest_ms} ms longer than "
            "computed: nobody measured how it begins (start_up_us of a tier)"
        )


def _longest_ms(time_us: Ranged) -> str:
    """Return by how many ms a time may be longer than it is taken to be."""
    high = time_us.value if time_us.high is None else time_us.high
    return f"{(high - time_us.value) / 1e3:.3g}"


def at_ends(span: Uneven, loaded: Loaded, by_law: Callable[[Loaded], float]) -> tuple[float, float]:
    """Return the log changes of what ``by_law`` gives at both ends of a number whose ends lie
    unevenly, the lesser one first.
    """
    before = by_law(loaded)
    changes = [log(by_law(span.at(end, loaded)) / before) for end in span.ends]
    return min(0.0, *changes), max(0.0, *changes)


def deviation(number: Sourced) -> float:
    """Return one standard deviation of a number: of its range where it has one, else by how well it
    is known.
    """
    if _has_range(number):
        low = number.value
        high = number.value
        if number.low is not None:
            low = number.low
        if number.high is not None:
            high = number.high
        return (high - low) / 2.0 / SHARE_DEVIATIONS
    return SPREADS[number.confidence] * number.value


def _has_range(number: Sourced) -> TypeGuard[Ranged]:
    return isinstance(number, Ranged) and (number.low, number.high) != (None, None)


def in_doubt(number: Sourced) -> bool:
    """Return whether a number is assumed, borrowed, or known as a range."""
    return _has_range(number) or number.confidence in ("borrowed", "assumed")


def numbers_of(scenario: Scenario) -> dict[str, Sourced]:
    """Return the different numbers of a scenario by the dotted name of their first place."""
    names = {}
    for entry in reversed(list(provenance(scenario))):
        names[_stated(entry)] = str(entry["parameter"])
    numbers = {}
    for number in dict.fromkeys(nested(scenario, Sourced)):
        name = names.get(_stated(number.model_dump()), number.source)
        numbers[name] = number
    return numbers


def _stated(number: Mapping[str, object]) -> tuple[object, ...]:
    """Return all that a number states, which tells it from others."""
    return tuple(number.get(part) for part in ("value", "source", "confidence", "low", "high"))


def with_number(number: Sourced, loaded: Loaded) -> Loaded:
    """Return the scenario with a number one deviation higher; that much lower where it may be no
    higher, as a share of 1.
    """
    higher = number.value + deviation(number)
    lower = number.value
    if number.value:
        lower = number.value / (1.0 + deviation(number) / number.value)

    def at(value: float) -> Loaded:
        other = number.model_copy(update={"value": value})
        return changed(Sourced, lambda own: other if own == number else own, loaded)

    if isinstance(number, Fraction):
        return at(lower)
    try:
        return at(higher)
    except ValidationError:
        return at(lower)


def doubtful(
    loaded: Loaded, held: Collection[Sourced] = ()
) -> Iterator[tuple[str, Callable[[Loaded], Loaded]]]:
    """Yield what is assumed, borrowed or has a range outside of the devices, each with what moves
    it by one deviation; not the numbers in ``held``.
    """
    of_devices: set[Sourced] = set()
    for device in nested(loaded.scenario, Device):
        of_devices.update(nested(device.model_copy(update={"rows": {}}), Sourced))
    for name, number in evenly(numbers_of(loaded.scenario), loaded.scenario).items():
        elsewhere = number in of_devices or number in held
        if not elsewhere and in_doubt(number) and deviation(number):
            yield name, partial(with_number, number)
    yield from uncurved(loaded.scenario)
    yield from continued_further(loaded.scenario)
