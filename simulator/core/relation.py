"""How a device is related to the one whose kernels it borrows, and how far off its times then are;
plain data, quick to import.
"""

from collections.abc import Container, Mapping
from typing import Literal, NamedTuple

Relation = Literal["same chip", "another chip", "another maker"]
"""Of which chip the device is whose kernels are borrowed."""


class BorrowedSpread(NamedTuple):
    """One standard deviation of a layer's time, relative to it, with where it comes from."""

    value: float
    source: str
    confidence: str


BORROWED_SPREADS: Mapping[Relation, BorrowedSpread] = {
    "same chip": BorrowedSpread(
        0.06,
        "computed: a card of the same chip, as H200 predicted from H100: mean error 4.7 % to 64 "
        "rows, times sqrt(pi / 2)",
        "computed",
    ),
    "another chip": BorrowedSpread(
        0.19,
        "computed: a card of another chip, as A100 predicted from H100, the worst of seven such "
        "tests: mean error 15.3 % to 64 rows, times sqrt(pi / 2)",
        "computed",
    ),
    "another maker": BorrowedSpread(
        0.3,
        "assumed, 0.18 to 0.5: a card of another maker, with kernels of its own; nothing of that "
        "kind was tested",
        "assumed",
    ),
}
"""The spread of a device whose kernels are another one's, by how the two are related
(docs/background/errors.md).
"""


OPERATION_SPREADS: Mapping[Relation, Mapping[str, float]] = {
    "same chip": {"fp8": 0.22, "fp8_block": 0.25, "attention": 0.14, "experts": 0.17},
    "another chip": {
        "fp8": 0.15,
        "fp8_block": 0.42,
        "nvfp4": 0.42,
        "attention": 0.25,
        "experts": 0.15,
    },
}
"""Spreads of single operations, and of products in a format, where the kernels are another
device's; the others have that of the relation, as all have with another maker's kernels.
"""
OPERATION_SOURCE = (
    "computed: with it 80 % of the rows of measured cards, each predicted from the nearest other "
    "one, lie within an interval of 80 % (python -m benchmarks.derived; docs/background/errors.md)"
)


def spreads_by_relation(stated: object, operations: Container[str]) -> dict[str, object]:
    """Return the spreads of those ``operations`` that have one of their own where a device is
    related as ``stated``; none for a number, or for words that are no relation.
    """
    spreads: dict[str, object] = {}
    for relation, values in OPERATION_SPREADS.items():
        for name, value in values.items():
            if stated == relation and name in operations:
                spreads[name] = BorrowedSpread(value, OPERATION_SOURCE, "computed")._asdict()
    return spreads


def by_relation(stated: object) -> object:
    """Return the number that stands for a relation, ``spread: another chip``; anything else as it
    is. Raises ValueError for words that are no relation.
    """
    if not isinstance(stated, str):
        return stated
    for relation, spread in BORROWED_SPREADS.items():
        if stated == relation:
            return spread._asdict()
    known = ", ".join(BORROWED_SPREADS)
    raise ValueError(f"expected a number, or one of {known}; got '{stated}'")
