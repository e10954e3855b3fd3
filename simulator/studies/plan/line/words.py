"""Read the words of a question: devices and how many of each, fleets, prices, limits, classes.

    devices   NAME, NAME:N            --device h100_sxm,l40s:8
    fleet     NAME:N+NAME:N           --compare h100_sxm:4 h100_sxm:4+l40s:8
    prices    NAME=USD,NAME=USD       --price h100_sxm=2.10
    limits    in words, commas between  --slo 'ttft_ms p95 < 500, tpot p99 < 40ms'
    class     NAME:KEY=VALUE,...      --class chat:share=0.7,ttft=1s

Each reader takes the words behind an option and raises :class:`BadInput` that names both.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from simulator.core.faults import BadInput
from simulator.core.plain import PlainData
from simulator.inputs.catalogue import Catalogue
from simulator.studies.plan.limits import milliseconds, read_limit

COUNT = re.compile(r"[1-9]\d{0,5}")
"""How many devices there are."""
OPTION_LIMIT = re.compile(r"(ttft|tpot|e2e)_(p\d+)")
"""Names of the options that limit a percentile of a time."""
CLASS_LIMIT = re.compile(r"(ttft|tpot|e2e)(?:_(p\d+))?")
"""The same of a class, whose percentile may be left out."""
NUMBER = re.compile(r"\d+\.?\d*|\.\d+")
SIDE_BY_SIDE = "+"
"""Between devices that serve together."""

Limits = dict[str, dict[str, float]]
"""Milliseconds by field of an SLO and percentile."""


@dataclass(frozen=True)
class TypedDevices:
    """Names devices of one kind, and how many of them there are; None: as many as are needed."""

    device: str
    count: int | None
    begun: str = field(default="", compare=False)
    """The beginning of the name that was typed instead of all of it; empty where it was whole."""

    @property
    def taken(self) -> str:
        """Return what was typed and as what it was taken, in words; empty for a whole name."""
        if not self.begun:
            return ""
        return f"{self.begun}: taken as {self.device}, the only device that begins so"


@dataclass(frozen=True)
class CountedGroup(TypedDevices):
    """Names so many devices of one kind."""

    count: int

    def __str__(self) -> str:
        """Return both as reports write them."""
        return f"{self.count} x {self.device}"


def option_fault(option: str, value: object, message: str) -> BadInput:
    """Return the error of what stands behind an option, as ``--price``."""
    return BadInput.at(f"{option} {value}", message)


def read_devices(text: str, catalogue: Catalogue) -> tuple[TypedDevices, ...]:
    """Return the devices of ``NAME,NAME:N``, each once; a number says how many are owned."""
    groups: dict[str, TypedDevices] = {}
    for part in text.split(","):
        if SIDE_BY_SIDE in part and not part.endswith(".yaml"):
            parts = [each.strip() for each in re.split(r"[,+]", text)]
            together = SIDE_BY_SIDE.join(_counted(parts))
            message = (
                f"+ joins what serves side by side, as in --compare {together}; to choose among "
                f"them write --device {','.join(parts)}"
            )
            raise option_fault("--device", text, message)
        group = _group("--device", part, catalogue)
        if group is None:
            message = f"expected NAME, or NAME:N with how many are owned, got '{part.strip()}'"
            raise option_fault("--device", text, message)
        if groups.setdefault(group.device, group).count != group.count:
            message = f"'{group.device}' is named twice; state it once"
            raise option_fault("--device", text, message)
    return tuple(groups.values())


def read_fleets(texts: Sequence[str], catalogue: Catalogue) -> tuple[tuple[CountedGroup, ...], ...]:
    """Return the devices of fleets, each ``NAME:N`` or several with + that serve side by side."""
    if any(text.startswith(SIDE_BY_SIDE) or text.endswith(SIDE_BY_SIDE) for text in texts):
        joined = re.sub(r"\s*\+\s*", SIDE_BY_SIDE, " ".join(texts))
        message = f"+ stands between devices without blanks; write --compare {joined}"
        raise option_fault("--compare", " ".join(texts), message)
    return tuple(_fleet(text, catalogue) for text in texts)


def _fleet(text: str, catalogue: Catalogue) -> tuple[CountedGroup, ...]:
    """Return the devices of a fleet, each kind with its number."""
    if "," in text:
        parts = _counted(part.strip() for part in text.split(","))
        together = SIDE_BY_SIDE.join(parts)
        message = (
            f"fleets stand behind each other with blanks between, as in --compare "
            f"{' '.join(parts)}; + joins what serves side by side, as in --compare {together}"
        )
        raise option_fault("--compare", text, message)
    groups: dict[str, CountedGroup] = {}
    for part in text.split(SIDE_BY_SIDE):
        group = _group("--compare", part, catalogue)
        if group is None or group.count is None:
            message = "expected NAME:N, a device and how many of it, as in h100_sxm:4"
            raise option_fault("--compare", text, message)
        if group.device in groups:
            message = f"'{group.device}' is named twice; state it once"
            raise option_fault("--compare", text, message)
        groups[group.device] = CountedGroup(group.device, group.count, group.begun)
    return tuple(groups.values())


def _counted(parts: Iterable[str]) -> list[str]:
    """Return devices as a fleet names them, one of each that was typed without a number."""
    return [part if ":" in part else f"{part}:1" for part in parts]


def _group(option: str, part: str, catalogue: Catalogue) -> TypedDevices | None:
    """Return the devices of ``NAME`` or ``NAME:N``; None for what is neither. Raises
    :class:`BadInput` for the beginning of several names.
    """
    name, colon, count = part.strip().rpartition(":")
    if not colon:
        name = count
    if not name or (colon and not COUNT.fullmatch(count)):
        return None
    device = called(name, catalogue)
    several = _begun(device, catalogue)
    if several and device not in catalogue.names("device"):
        message = f"is the beginning of {', '.join(several)}; name one of them, whole"
        raise option_fault(option, part.strip(), message)
    begun = name if name != device else ""
    return TypedDevices(device, int(count) if colon else None, begun)


def called(device: str, catalogue: Catalogue) -> str:
    """Return the name of a device; of the beginning of a single one (``b200``) the whole."""
    begun = _begun(device, catalogue)
    if device in catalogue.names("device") or len(begun) != 1:
        return device
    return begun[0]


def _begun(device: str, catalogue: Catalogue) -> list[str]:
    """Return the names of devices that begin so."""
    return [name for name in catalogue.names("device") if name.startswith(f"{device}_")]


def read_prices(text: str | None, catalogue: Catalogue) -> dict[str, float]:
    """Return USD an hour by device, of ``NAME=USD,NAME=USD``."""
    prices = {}
    for device, usd in read_pairs("--price", text):
        if not NUMBER.fullmatch(usd):
            message = "expected USD an hour, 0 for what is paid for anyway"
            raise option_fault("--price", f"{device}={usd}", message)
        prices[called(device, catalogue)] = float(usd)
    return prices


def read_pairs(
    option: str, text: str | None, keys: tuple[str, ...] = ()
) -> Iterator[tuple[str, str]]:
    """Yield names and values of ``NAME=VALUE,NAME=VALUE``; names are ``keys``, where there are
    some.
    """
    if not text:
        return
    names = "=...,".join(keys) or "NAME"
    for part in text.split(","):
        key, _, value = part.strip().partition("=")
        if not value or (keys and key not in keys):
            raise option_fault(option, text, f"expected {names}=..., got '{part}'")
        yield key, value


def read_slo(by_option: Mapping[str, str], in_words: Iterable[str]) -> Limits:
    """Return the limits of options (``ttft_p95``, with a time) and in words, as a plan file has
    them.
    """
    slo: Limits = {}
    for option, text in by_option.items():
        limit = OPTION_LIMIT.fullmatch(option)
        if limit is None:
            raise BadInput.at(option, "expected a limit as ttft_p95, tpot_p99 or e2e_p50")
        time, percentile = limit.groups()
        typed = f"--{option.replace('_', '-')}"
        slo.setdefault(f"{time}_ms", {})[percentile] = _stated_ms(typed, text)
    for text in in_words:
        for part in text.split(","):
            read = read_limit(part)
            if read is None:
                message = f"expected 'ttft_ms p95 < 500' or 'tpot p99 < 40ms', got '{part.strip()}'"
                raise option_fault("--slo", text, message)
            of_time = slo.setdefault(read.field, {})
            known = of_time.setdefault(read.percentile, read.milliseconds)
            if known != read.milliseconds:
                name = f"{read.field} {read.percentile}"
                raise option_fault("--slo", text, f"{name} is limited twice; state it once")
    return slo


def read_classes(texts: Iterable[str]) -> dict[str, PlainData]:
    """Return the fields of classes of requests by name, of ``NAME:KEY=VALUE,...`` each."""
    classes: dict[str, PlainData] = {}
    for text in texts:
        name, colon, rest = text.partition(":")
        if not colon or not name:
            raise option_fault("--class", text, "expected NAME:share=0.7,ttft=1s,tpot=40ms")
        if name in classes:
            raise option_fault("--class", text, f"'{name}' is named twice; state it once")
        classes[name] = _class(text, rest)
    return classes


def _class(text: str, fields: str) -> PlainData:
    """Return the fields of a class of requests, of ``KEY=VALUE,...``."""
    given: PlainData = {}
    slo: Limits = {}
    for key, value in read_pairs("--class", fields):
        limit = CLASS_LIMIT.fullmatch(key)
        if limit:
            time, percentile = limit.groups()
            slo.setdefault(f"{time}_ms", {})[percentile or "p95"] = _stated_ms("--class", value)
        elif key == "tasks":
            given["tasks"] = value.split("+")
        elif key == "share" and re.fullmatch(r"-?\d*\.?\d+", value):
            given["share"] = float(value)
        elif key == "priority" and re.fullmatch(r"-?\d+", value):
            given["priority"] = int(value)
        else:
            known = "share=0.7, tasks=a+b, priority=1 (a whole number) or a limit (ttft=1s)"
            raise option_fault("--class", text, f"expected {known}, got '{key}={value}'")
    if slo:
        given["slo"] = slo
    return given


def _stated_ms(option: str, text: str) -> float:
    """Return a time with its unit in milliseconds."""
    stated = milliseconds(text)
    if stated is None:
        raise option_fault(option, text, "expected a time with its unit, as in 1s or 40ms")
    return stated
