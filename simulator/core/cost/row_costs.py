"""What a kernel takes for several rows of a product, relative to a single row: a verification pays
that for every token that it checks.

Kernels for one row read weights and little else. With further rows they multiply each weight again,
on vector units: that takes longer the fewer of these a device has beside its memory.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from simulator.core.cost.formats import WeightFormat
from simulator.core.quantities import ALL, NONE, Frozen, Open, Ranged

RowsOf = Literal["any", "quantised"] | WeightFormat
"""Of which weights rows are meant: any, those in less than 16 bits that are multiplied in 16, or
those in one format.
"""


class RowCosts(Frozen):
    """Kernels take this memory time for several rows of a product, relative to that for a single
    row.
    """

    kernels: str = ""
    """What multiplies: dp4a or mma, products with vectors or with matrices."""
    step: Ranged = ALL
    """Ratio of kernels for several rows to the kernel for one."""
    row: Ranged = NONE
    """What each further row adds to it, on any device."""
    operations: Ranged = NONE
    """Operations of vector units on each weight for each further row; they take the longer,
    relative to reading the weight, the more bandwidth a device has beside such operations.
    """
    most: int = Field(gt=1, le=1_000_000)
    """Rows up to which it grows so; what more of them cost says ``further_rows`` of the engine."""
    beyond: Ranged = ALL
    """Ratio of the kernels beyond that many rows to the last of those up to it."""

    def points(self, operation: float = 0.0) -> Iterator[tuple[int, float]]:
        """Yield rows and ratios between which the ratio is linear; ``operation`` is the time of one
        operation on a weight, relative to that of reading it.
        """
        yield 1, 1.0
        row = self.row.value + self.operations.value * operation
        last = self.step.value + row * (self.most - 1)
        if self.most > 2:
            yield 2, self.step.value + row
        yield self.most, last
        yield self.most + 1, last * self.beyond.value

    @property
    def monotone(self) -> bool:
        """Return whether more rows never take less time."""
        return self.beyond.value >= 1.0 and self.step.value + self.row.value >= 1.0


AS_STEEP = Open(
    value=1.0,
    low=0.2,
    high=2.0,
    source="assumed: on as steeply as before; on a GB10 in llama.cpp steps with 5, 11 and 17 rows "
    "lie on a line (vtimuchen-lab/qwen38-mtp-gb10-benchmark)",
)


class MeasuredRows(Frozen):
    """Kernels took this time for several rows of a product, relative to that for a single row, as a
    benchmark of batches prints it.
    """

    kernels: str = ""
    """What multiplies: dp4a or mma, products with vectors or with matrices."""
    ratios: dict[Annotated[int, Field(gt=1, le=1_000_000)], Annotated[float, Field(gt=0, le=1e6)]]
    """Time by number of rows, relative to that of one; linear between them."""
    growth: Open
    """What further rows cost, relative to ``ratios``: 1 where they were measured on this device;
    its source says where that was.
    """
    further: Open = AS_STEEP
    """What a row beyond those measured costs, relative to the mean of those from the second on."""

    @model_validator(mode="after")
    def _has_rows(self) -> Self:
        if not self.ratios:
            raise ValueError("ratios: expected at least one number of rows, as in {8: 2.4}")
        return self

    @property
    def most(self) -> int:
        """Return the most rows that were measured."""
        return max(self.ratios)

    def points(self, operation: float = 0.0) -> Iterator[tuple[int, float]]:
        """Yield rows and ratios between which the ratio is linear; ``operation`` plays no part."""
        del operation
        yield 1, 1.0
        for rows in sorted(self.ratios):
            yield rows, 1.0 + self.growth.value * (self.ratios[rows] - 1.0)
        yield self.most + 1, 1.0 + self.growth.value * (self.ratios[self.most] - 1.0)

    @property
    def monotone(self) -> bool:
        """Return whether more rows never take less time."""
        ratios = [self.ratios[rows] for rows in sorted(self.ratios)]
        return [1.0, *ratios] == sorted([1.0, *ratios])


def _kind(given: object) -> str:
    measured = isinstance(given, MeasuredRows) or (isinstance(given, dict) and "ratios" in given)
    if measured:
        return "as measured"
    return "by row"


AnyRows = Annotated[
    Annotated[RowCosts, Tag("by row")] | Annotated[MeasuredRows, Tag("as measured")],
    Discriminator(_kind),
]
"""What several rows of a product take: so much for each, or as measured."""
