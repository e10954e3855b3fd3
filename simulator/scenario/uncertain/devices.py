"""Devices that are slower than their profiles by the spread of these."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from simulator.core.cost.device import Device
from simulator.core.cost.model import Experts
from simulator.core.cost.roofline import Attention, Roofline
from simulator.core.quantities import Positive, Ranged, nested, replace_nested
from simulator.core.relation import BORROWED_SPREADS
from simulator.scenario import Loaded, Scenario
from simulator.scenario.uncertain.doubts import changed
from simulator.scenario.uncertain.draws import SHARE_DEVIATIONS

UNMEASURED = 0.10
"""Spread of a device for which nothing was left out of a fit: between what the RTX 3090 leaves and
a datasheet's rates.
"""


def spread_of(device: Device) -> float:
    """Return one standard deviation of a layer's time, relative to it; where the profile states
    none, by whose products its own are.
    """
    if device.spread is not None:
        return device.spread.value
    if device.matmul["default"].memory_efficiency.confidence == "borrowed":
        return BORROWED_SPREADS["another chip"].value
    return UNMEASURED


def slowed(loaded: Loaded) -> Iterator[tuple[str, Callable[[Loaded], Loaded]]]:
    """Yield each device of a scenario by name, with what makes it slower by its spread in this or
    another scenario.

    Behind it comes what its attention takes for further rows of a verification, where that is known
    as a range alone, and then how alike the rows of a mixture route.
    """
    for name in devices(loaded.scenario):
        yield name, partial(with_slower, {name: 1.0})
    ranged = dict[str, None]()
    for device in nested(loaded.scenario, Device):
        if _widened(device) is not device:
            ranged[device.name] = None
    for name in ranged:
        widened = partial(_widened, only=name)
        yield f"{name}, rows of a verification", partial(changed, Device, widened)
    mixtures = list(nested(loaded.scenario, Experts))
    for field in ("window_exponent", "popularity"):
        if any(getattr(experts, field).high is not None for experts in mixtures):
            otherwise = partial(_routed_otherwise, field)
            yield f"experts read, {field}", partial(changed, Experts, otherwise)


def by_operation(loaded: Loaded) -> Iterator[tuple[str, str, Callable[[Loaded], Loaded]]]:
    """Yield name of a device, name of what is drawn, and what makes that slower by its spread: each
    operation that has a spread of its own, and all others of the device together; a device without
    such spreads as a whole.
    """
    for name in devices(loaded.scenario):
        device = next(one for one in nested(loaded.scenario, Device) if one.name == name)
        if not device.spreads:
            yield name, name, partial(with_slower, {name: 1.0})
            continue
        others = [*{*OPERATIONS, *device.matmul} - device.spreads.keys()]
        slower = partial(_longer, name, others, 1.0 + spread_of(device))
        yield name, name, partial(changed, Device, slower)
        for operation, spread in device.spreads.items():
            slower = partial(_longer, name, [operation], 1.0 + spread.value)
            yield name, f"{name}, {operation}", partial(changed, Device, slower)


RATES = ("memory_bandwidth_gb_s", "peak_tflops", "cache_bandwidth_gb_s", "dot_operations")
"""Fields of a device that are rates, beside the entries of ``peaks_tflops``; vector units are among
them, which further rows of a product take.
"""
OPERATIONS = ("attention", "latent_attention", "experts", "small_operations")
"""Fields of a device that are operations, beside the entries of ``matmul``."""


def _longer(name: str, operations: Sequence[str], factor: float, device: Device) -> Device:
    """Return a device whose operations take so many times as long; another one as it is."""
    if device.name != name:
        return device
    stretched = partial(_stretched, factor)
    fields: dict[str, object] = {}
    for operation in operations:
        if operation in OPERATIONS:
            part = getattr(device, operation)
            fields[operation] = replace_nested(part, Roofline, stretched)
    products = dict(device.matmul)
    for entry in device.matmul.keys() & {*operations}:
        products[entry] = stretched(products[entry])
    if "default" in operations and device.dot_operations is not None:
        fields["dot_operations"] = _divided(factor, device.dot_operations)
    return device.model_copy(update=fields | {"matmul": products})


def _stretched(factor: float, roofline: Roofline) -> Roofline:
    """Return a roofline whose every term takes so many times as long."""
    fields = {}
    for field in type(roofline).model_fields:
        number = getattr(roofline, field)
        if field.endswith("_us") and number is not None:
            fields[field] = number.model_copy(update={"value": number.value * factor})
        elif field in ("memory_efficiency", "compute_efficiency"):
            fields[field] = number.model_copy(update={"value": number.value / factor})
    return roofline.model_copy(update=fields)


def devices(scenario: Scenario) -> list[str]:
    """Return the names of the devices of a scenario, in the order in which they are first
    mentioned.
    """
    return list(dict.fromkeys(device.name for device in nested(scenario, Device)))


def with_slower(spreads: Mapping[str, float], loaded: Loaded) -> Loaded:
    """Return the scenario with devices slower, by name, by so many times their spread; faster where
    that is negative.
    """
    return changed(Device, partial(_slower, spreads), loaded)


def _widened(device: Device, only: str | None = None) -> Device:
    """Return a device whose attention takes one standard deviation longer for rows of a
    verification; itself without a range.

    ``only``: the name of the device that is meant. Between the number and its upper end lies half
    of what an interval holds.
    """
    if only not in (None, device.name):
        return device
    wider = {}
    for name in ("attention", "latent_attention"):
        part = getattr(device, name)
        if isinstance(part, Attention) and part.extra_row.high is not None:
            wider[name] = part.model_copy(update={"extra_row": _higher(part.extra_row)})
    if wider:
        return device.model_copy(update=wider)
    return device


def _higher(number: Ranged) -> Ranged:
    """Return a number one standard deviation higher; itself without a range."""
    if number.high is None:
        return number
    above = number.high - number.value
    return number.model_copy(update={"value": number.value + above / SHARE_DEVIATIONS})


def _routed_otherwise(field: str, experts: Experts) -> Experts:
    return experts.model_copy(update={field: _higher(getattr(experts, field))})


def _slower(spreads: Mapping[str, float], device: Device) -> Device:
    if not spreads.get(device.name):
        return device
    factor = (1.0 + spread_of(device)) ** spreads[device.name]
    divided = partial(_divided, factor)
    rates: dict[str, object] = {}
    for name in RATES:
        rate = getattr(device, name)
        if rate is not None:
            rates[name] = divided(rate)
    rates["peaks_tflops"] = {name: divided(peak) for name, peak in device.peaks_tflops.items()}
    return device.model_copy(update=rates)


def _divided(factor: float, rate: Positive) -> Positive:
    return rate.model_copy(update={"value": rate.value / factor})
