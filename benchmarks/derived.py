"""Leave whole measured cards out: what a file of its datasheet's numbers and ``like``, the nearest
other measured card, says of each operation.

    specsim calibrate import FILES --from aiconfigurator --device h100_sxm --cache-mb 50 --source
    SOURCE --out h100_sxm.csv.gz
    python -m benchmarks.derived h100_sxm.csv.gz h200_sxm.csv.gz l40s.csv.gz

Tables are called like their profiles. The nearest card has the same chip, else the same kind of
memory (HBM, GDDR), and of these the nearest year. ``as borrowed`` leaves constants in us at those
of that card; ``error`` has them go with clock and multiprocessors (``BY_CHIP`` in
``core/cost/borrowing.py``). ``width`` is the half-width of an interval of 80 % by the spread that
the other cards show of that operation, and ``held`` the share of rows within.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import expm1, log1p
from pathlib import Path
from statistics import NormalDist
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import yaml

from benchmarks.shelf import CATALOGUE, LEAST_WEIGHTS, SHEET, STACKS, profile
from simulator.core.cost import borrowing
from simulator.core.cost.device import Device
from simulator.evidence.calibrate import attention, fit
from simulator.evidence.calibrate.fit import Seconds, measured, seconds
from simulator.evidence.calibrate.measurements import LM_HEAD, Table, read
from simulator.inputs.document import read as read_document
from simulator.inputs.schema import validate

NEAREST = {
    "h200_sxm": "h100_sxm",
    "h100_sxm": "h200_sxm",
    "a100_80g_sxm": "h100_sxm",
    "b200_sxm": "h200_sxm",
    "l40s": "rtx_pro_6000",
    "rtx_pro_6000": "l40s",
}
"""The measured card from which each would start. An L40S and an RTX 4090 share a chip, but of that
one model in 16 bits was measured alone.
"""
SAME_CHIP = frozenset({"h100_sxm", "h200_sxm"})
CHIP = (*SHEET, "cache_mb", "multiprocessors", "clock_ghz", "maker")
MOST_TOKENS = 256
A100_CACHE_MB = 40.0
"""Last-level cache of an A100, which its profile does not state (its whitepaper)."""
SHARE = 0.8
DEVIATIONS = NormalDist().inv_cdf((1.0 + SHARE) / 2.0)


class Rows(NamedTuple):
    """Rows of one operation of a card and a format, and how a device prices them."""

    operation: str
    rows: Table
    price: Callable[[Device], Seconds]


class Missed(NamedTuple):
    """Logarithms of predicted over measured times of an operation of a card that was left out."""

    card: str
    origin: str
    operation: str
    borrowed: Seconds
    """With constants as they are on the card that it starts from."""
    scaled: Seconds

    @property
    def relation(self) -> str:
        """Return how the two cards are related."""
        return "same chip" if {self.card, self.origin} <= SAME_CHIP else "another chip"

    @property
    def entry(self) -> str:
        """Return the entry of ``spreads`` that the operation has in a profile."""
        operation, _, form = self.operation.partition(", ")
        if operation == "products":
            return "default" if form == "fp16" else form
        return "experts" if operation == "experts" else "attention"


def derived(name: str, origin: str) -> Device:
    """Return a card as a file of its datasheet's numbers and ``like`` would have it."""
    own = read_document(CATALOGUE.names("device")[name]).data
    stated = {key: own[key] for key in CHIP if key in own}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "card.yaml"
        path.write_text(yaml.safe_dump({"like": origin} | stated))
        return validate(Device, CATALOGUE.content("device", path))


@contextmanager
def constants_as_borrowed() -> Iterator[None]:
    """Have constants in us stay those of the card that is borrowed from, for a while."""
    before = dict(borrowing.BY_CHIP)
    borrowing.BY_CHIP.clear()
    try:
        yield
    finally:
        borrowing.BY_CHIP.update(before)


def operations(name: str, rows: Table) -> Iterator[Rows]:
    """Yield the rows of a card's table that no cache serves, by operation and format."""
    device: Any = profile(name)
    if device.cache_mb is None:
        capacity = device.memory_gb.model_copy(update={"value": A100_CACHE_MB})
        device = device.model_copy(update={"cache_mb": capacity})
    products = rows[(rows.operation == "matmul") & (rows.part != LM_HEAD)]
    for form, of_form in products.groupby("format"):
        some = of_form[of_form.model.str.startswith(STACKS.get((name, str(form)), ("",)))]
        if form == "fp16":
            some = some[~some.model.str.startswith("TRTLLM")]
        large = some.flops / (2.0 * some.tokens) >= LEAST_WEIGHTS
        some = some[large & (some.tokens <= MOST_TOKENS)]
        some = some[fit.cached_share(device, some) == 0.0] if len(some) else some
        if len(some):
            yield Rows(f"products, {form}", some, of_products(str(form), some))
    heads = rows[(rows.operation == "attention") & (rows.left_out == "")]
    for form, of_form in heads.groupby("format"):
        for part, of_part in attention.uncached(device, of_form).groupby("part"):
            timed = attention.with_queries(of_part)
            yield Rows(f"{part}, {form} cache", timed, of_attention(str(form), str(part), timed))
    mixtures = rows[(rows.operation == "experts") & (rows.left_out == "")]
    for form, some in mixtures[mixtures.tokens <= MOST_TOKENS].groupby("format"):
        yield Rows(f"experts, {form}", some, of_experts(str(form), some))


def of_products(form: str, rows: Table) -> Callable[[Device], Seconds]:
    """Return a function from a device to the seconds of products in a format."""
    return lambda device: seconds(device, device.matmul_for(form), rows)


def of_attention(form: Any, part: str, rows: Table) -> Callable[[Device], Seconds]:
    """Return a function from a device to the seconds of a part of attention over a cache."""

    def price(device: Device) -> Seconds:
        parts: Any = device.attention
        return seconds(device, getattr(parts.over(form), part), rows)

    return price


def of_experts(form: str, rows: Table) -> Callable[[Device], Seconds]:
    """Return a function from a device to the seconds of experts in a format."""

    def price(device: Device) -> Seconds:
        curve = device.experts_for(form)
        if curve is None:
            raise ValueError(f"{device.name} has no experts")
        return seconds(device, curve, rows)

    return price


def missed(name: str, rows: Table) -> Iterator[Missed]:
    """Yield what the nearest card says of the operations of another one."""
    origin = NEAREST[name]
    scaled = derived(name, origin)
    with constants_as_borrowed():
        as_borrowed = derived(name, origin)
    for one in operations(name, rows):
        truth = measured(one.rows)
        logs = [np.log(one.price(device) / truth) for device in (as_borrowed, scaled)]
        yield Missed(name, origin, one.operation, *logs)


def spread(errors: Sequence[Missed]) -> float:
    """Return by how much one standard deviation makes a time longer with which an interval of
    ``SHARE`` holds that share of rows, each group of a card weighing the same.
    """
    sizes = np.concatenate([abs(one.scaled) for one in errors])
    weights = np.concatenate([np.full(len(one.scaled), 1.0 / len(one.scaled)) for one in errors])
    order = np.argsort(sizes)
    share = np.cumsum(weights[order]) / weights.sum()
    at = min(int(np.searchsorted(share, SHARE)), len(order) - 1)
    return float(np.expm1(sizes[order][at] / DEVIATIONS))


def grouped(errors: Sequence[Missed], field: str) -> Mapping[tuple[str, str], list[Missed]]:
    """Return errors by relation and a field: the operation, or the entry of ``spreads``."""
    found: dict[tuple[str, str], list[Missed]] = {}
    for one in errors:
        found.setdefault((one.relation, getattr(one, field)), []).append(one)
    return found


def percent(logs: Seconds) -> float:
    """Return the mean absolute error in per cent of the measured time."""
    return float(100.0 * abs(np.expm1(logs)).mean())


def main(paths: Sequence[Path]) -> None:
    """Print errors by card, then spreads by relation."""
    errors: list[Missed] = []
    print("| card | from | of | rows | as borrowed | error | bias | width | held |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    groups: dict[str, list[Path]] = {}
    for path in paths:
        groups.setdefault(path.name.partition(".")[0], []).append(path)
    for name, files in groups.items():
        errors += missed(name, read(files))
    shown = grouped(errors, "operation")
    for one in errors:
        group = shown[one.relation, one.operation]
        others = [other for other in group if other.card != one.card]
        width = held = ""
        if others:
            farthest = DEVIATIONS * log1p(spread(others))
            width = f"{100.0 * expm1(farthest):.0f}"
            held = f"{100.0 * float((abs(one.scaled) <= farthest).mean()):.0f}"
        bias = float(100.0 * np.expm1(one.scaled).mean())
        print(
            f"| {one.card} | {one.origin} | {one.operation} | {len(one.scaled):,} | "
            f"{percent(one.borrowed):.1f} | {percent(one.scaled):.1f} | {bias:+.1f} | {width} | "
            f"{held} |"
        )
    print("\n| relation | of | cards | spread | held |\n| --- | --- | ---: | ---: | ---: |")
    for (relation, entry), group in sorted(grouped(errors, "entry").items()):
        deviation = spread(group)
        farthest = DEVIATIONS * log1p(deviation)
        inside = [float((abs(one.scaled) <= farthest).mean()) for one in group]
        mean = 100.0 * sum(inside) / len(inside)
        cards = len({one.card for one in group})
        print(f"| {relation} | {entry} | {cards} | {deviation:.2f} | {mean:.0f} |")


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
