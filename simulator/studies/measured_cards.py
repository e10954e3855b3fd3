"""Which measured card one should be like of which only a datasheet is known: ``specsim list device
--like``.

Kernels are made for an architecture, so the same architecture is nearest, then the same maker
(:func:`~simulator.scenario.uncertain.homes.distance`) by years. Among those the nearest is the card
whose bandwidth and peak differ by the smallest factor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import log2

from simulator.core.cost.device import Device
from simulator.core.cost.engine import Home
from simulator.core.faults import BadInput, did_you_mean
from simulator.core.quantities import Positive
from simulator.core.relation import BORROWED_SPREADS, Relation
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.derived import FITTED
from simulator.inputs.document import head, read
from simulator.inputs.schema import validate
from simulator.scenario.uncertain.homes import OTHER_MAKER, SAME_MAKER, distance


@dataclass(frozen=True)
class Sheet:
    """What a datasheet says of a card."""

    memory_bandwidth_gb_s: float
    peak_tflops: float
    memory_gb: float | None = None
    maker: str = ""
    architecture: str = ""
    year: int | None = None


@dataclass(frozen=True)
class MeasuredCard:
    """A measured card next to another one."""

    name: str
    maker: str
    architecture: str
    year: int | None
    relation: Relation
    """What ``spread`` of the other card would say; two of one chip are nearer than this tells."""
    spread: float
    """The spread that the other card would have."""
    bandwidth_ratio: float
    """Bandwidth of the other card over that of this one."""
    peak_ratio: float
    """The same of peaks in 16 bits."""


@dataclass(frozen=True)
class Nearness:
    """The measured cards by how near they are to one."""

    card: str
    """What it is called; empty where only its numbers are known."""
    sheet: Sheet
    like: str
    """The card whose kernels its profile takes; empty without any."""
    measured: bool
    """Whether it is a measured card itself."""
    nearest: tuple[MeasuredCard, ...]


def near_card(name: str, catalogue: Catalogue) -> Nearness:
    """Return the measured cards by how near they are to one of the catalogue; raise
    :class:`BadInput` for a name that it does not have.
    """
    files = catalogue.names("device")
    if name not in files:
        meant = did_you_mean(name, files)
        remedy = "--memory-bandwidth and --peak-tflops state a card that is not here"
        raise BadInput.at("--like", f"there is no device '{name}'{meant} {remedy}")
    device = validate(Device, catalogue.content("device", files[name]))
    device = device.model_copy(update={"name": name})
    sheet = Sheet(
        device.memory_bandwidth_gb_s.value,
        device.peak_tflops.value,
        device.memory_gb.value,
        device.maker,
        device.architecture,
        device.year,
    )
    like = ""
    if not _measured(device):
        like = str(read(files[name]).data.get("like", ""))
    return Nearness(name, sheet, like, _measured(device), _nearest(device, catalogue))


def near_sheet(name: str, sheet: Sheet, catalogue: Catalogue) -> Nearness:
    """Return the measured cards by how near they are to one of which a datasheet is known."""
    heads = [head(path, name) for name, path in catalogue.names("device").items()]
    sheet = replace(
        sheet,
        maker=_as_here(sheet.maker, {fields.get("maker", "") for fields in heads}),
        architecture=_as_here(
            sheet.architecture, {fields.get("architecture", "") for fields in heads}
        ),
    )
    if not sheet.maker:
        sheet = replace(sheet, maker=_maker_of(sheet.architecture, heads))
    some_card = next(measured_cards(catalogue))
    described = {
        "name": name,
        "maker": sheet.maker,
        "architecture": sheet.architecture,
        "year": sheet.year,
        "memory_bandwidth_gb_s": Positive(value=sheet.memory_bandwidth_gb_s),
        "peak_tflops": Positive(value=sheet.peak_tflops),
    }
    device = some_card.model_copy(update=described)  # nobody looks at its times
    return Nearness(name, sheet, "", False, _nearest(device, catalogue))


def _maker_of(architecture: str, heads: Iterable[Mapping[str, str]]) -> str:
    """Return who makes the cards here of an architecture; nothing where there are none."""
    for fields in heads:
        if architecture and fields.get("architecture") == architecture:
            return fields.get("maker", "")
    return ""


def _as_here(word: str, known: set[str]) -> str:
    """Return a name as the catalogue writes it, of which the word may be the beginning; the word
    where it writes no such name, or several.
    """
    begun = [name for name in known if word and name.casefold().startswith(word.casefold())]
    same = [name for name in begun if len(name) == len(word)]
    if len(same or begun) == 1:
        return (same or begun)[0]
    return word


def _nearest(device: Device, catalogue: Catalogue) -> tuple[MeasuredCard, ...]:
    """Return the measured cards but for the device itself, the nearest first."""
    others = [other for other in measured_cards(catalogue) if other.name != device.name]

    def away(other: Device) -> tuple[float, int, float]:
        steps = _steps(device, other)
        years = 0
        if steps == SAME_MAKER and device.year and other.year:
            years = abs(device.year - other.year)
        doublings = [abs(log2(ratio)) for ratio in _ratios(device, other)]
        return steps, years, sum(doublings)

    return tuple(_beside(device, other) for other in sorted(others, key=away))


def measured_cards(catalogue: Catalogue) -> Iterator[Device]:
    """Yield the GPUs whose products were fitted to measurements of their own; other kinds of device
    were calibrated on what papers print.
    """
    for name, path in catalogue.names("device").items():
        if "matmul" not in read(path).data:
            continue
        device = validate(Device, catalogue.content("device", path))
        if device.kind == "gpu" and _measured(device):
            yield device.model_copy(update={"name": name})


def _measured(device: Device) -> bool:
    return device.matmul["default"].memory_efficiency.confidence in FITTED


def _steps(device: Device, other: Device) -> float:
    """Return how far numbers that were fitted on another device travel to this one."""
    home = Home(card=other.name, maker=other.maker, architecture=other.architecture)
    return distance(home, device)


def _ratios(device: Device, other: Device) -> tuple[float, float]:
    """Return bandwidth and peak of a device relative to another one's."""
    return (
        device.memory_bandwidth_gb_s.value / other.memory_bandwidth_gb_s.value,
        device.peak_tflops.value / other.peak_tflops.value,
    )


def _beside(device: Device, other: Device) -> MeasuredCard:
    relation: Relation = "another chip"
    if _steps(device, other) == OTHER_MAKER:
        relation = "another maker"
    bandwidth_ratio, peak_ratio = _ratios(device, other)
    return MeasuredCard(
        other.name,
        other.maker,
        other.architecture,
        other.year,
        relation,
        BORROWED_SPREADS[relation].value,
        bandwidth_ratio,
        peak_ratio,
    )
