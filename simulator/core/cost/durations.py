"""A stated pass may take longer over more rows, behind more context, in a fuller batch: by a
formula or a profiler's table.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import product
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from simulator.core.cost.rows import Rows
from simulator.core.numeric import Numbers
from simulator.core.quantities import Frozen

Duration = Annotated[float, Field(ge=0)]
ByRows = Annotated[
    dict[Annotated[int, Field(gt=0, le=1_000_000_000)], Duration], Field(min_length=1)
]
"""Times at some numbers of rows, as measured; linear in between and flat outside."""
Column = Literal["rows", "cached_tokens", "sequences", "ms"]


class ByLoad(Frozen):
    """A duration is a sum over what a pass works on, all requests of its batch together."""

    model_config = ConfigDict(json_schema_extra={"variant": "a formula"})

    base_ms: Duration = 0.0
    """Time of any pass, in ms."""
    row_ms: Duration = 0.0
    """Time of each row, in ms: of each token that the pass works on."""
    cached_token_ms: Duration = 0.0
    """Time of each token that was cached before the pass, in ms."""
    sequence_ms: Duration = 0.0
    """Time of each sequence, in ms."""

    @property
    def reads_context(self) -> bool:
        """Return whether the duration grows with the cached tokens."""
        return self.cached_token_ms > 0.0

    def ms(self, rows: Rows) -> Numbers:
        """Return the duration of a pass over ``rows`` in ms; an array where their context is
        one.
        """
        cached = rows.kv_tokens - rows.tokens
        work = (
            self.row_ms * rows.tokens
            + self.cached_token_ms * cached
            + self.sequence_ms * rows.sequences
        )
        return self.base_ms + work


class Tabulated(Frozen):
    """A duration is read off a grid of measurements: linear between them, flat outside.

    ``file`` names a CSV with these columns, next to the scenario; its rows replace it when the
    scenario is read.
    """

    model_config = ConfigDict(json_schema_extra={"variant": "a table"})

    columns: tuple[Column, ...]
    """What was varied, in any order: rows, cached_tokens (before the pass) and sequences, each of
    the whole batch; and ms.
    """
    points: tuple[tuple[Duration, ...], ...] = Field(min_length=1)
    """A row for each measurement; every combination of the values must be there, once."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (
            len(set(self.columns)) != len(self.columns)
            or "ms" not in self.columns
            or len(self.columns) < 2
        ):
            raise ValueError(
                "columns: expected ms and at least one of rows, cached_tokens, sequences, each once"
            )
        if any(len(point) != len(self.columns) for point in self.points):
            raise ValueError(
                f"points: expected {len(self.columns)} numbers in each, as there are columns"
            )
        measured = {point[:-1] for point in self._sorted}
        if len(measured) != len(self.points):
            raise ValueError(
                "points: one combination of rows, cached_tokens and sequences was given twice"
            )
        if missing := next(
            (corner for corner in product(*self._axes) if corner not in measured), None
        ):
            where = ", ".join(
                f"{name} {value:g}" for name, value in zip(self._varied, missing, strict=True)
            )
            raise ValueError(f"points: expected a grid, in which {where} is missing")
        return self

    @property
    def reads_context(self) -> bool:
        """Return whether the duration was measured over different contexts."""
        return "cached_tokens" in self.columns

    @property
    def _varied(self) -> list[str]:
        return [name for name in self.columns if name != "ms"]

    @cached_property
    def _sorted(self) -> list[tuple[float, ...]]:
        """Return the points in ascending order, ms last."""
        last = self.columns.index("ms")
        return sorted((*point[:last], *point[last + 1 :], point[last]) for point in self.points)

    @cached_property
    def _axes(self) -> list[list[float]]:
        return [
            sorted({point[axis] for point in self._sorted}) for axis in range(len(self._varied))
        ]

    @cached_property
    def _read(self) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
        """Return the interpolation over the grid; an axis with a single value is left out."""
        # slow to load, and few scenarios tabulate
        from scipy.interpolate import RegularGridInterpolator

        times_ms = np.array([point[-1] for point in self._sorted]).reshape(
            [len(axis) for axis in self._axes]
        )
        return RegularGridInterpolator(
            [axis for axis in self._axes if len(axis) > 1], times_ms.squeeze()
        )

    def ms(self, rows: Rows) -> Numbers:
        """Return the duration of a pass over ``rows`` in ms; an array where their context is
        one.
        """
        loads = {
            "rows": rows.tokens,
            "cached_tokens": rows.kv_tokens - rows.tokens,
            "sequences": rows.sequences,
        }
        asked = [
            np.clip(loads[name], axis[0], axis[-1])
            for name, axis in zip(self._varied, self._axes, strict=True)
            if len(axis) > 1
        ]
        if not asked:
            return self._sorted[0][-1]
        read = self._read(np.stack(np.broadcast_arrays(*asked), axis=-1))
        if np.ndim(rows.kv_tokens):
            return read
        return float(read[0])


def _form(given: Any) -> str:
    """Return which form of a duration is stated."""
    if isinstance(given, ByLoad | Tabulated):
        if isinstance(given, ByLoad):
            return "by load"
        return "from a table"
    if not isinstance(given, Mapping):
        return "for any rows"
    if {"columns", "points", "file"} & set(given):
        return "from a table"
    if any(isinstance(key, str) and key.endswith("_ms") for key in given):
        return "by load"
    return "by rows"


PassDuration = Annotated[
    Annotated[Duration, Tag("for any rows")]
    | Annotated[ByRows, Tag("by rows")]
    | Annotated[ByLoad, Tag("by load")]
    | Annotated[Tabulated, Tag("from a table")],
    Discriminator(_form),
]
"""A number of ms, times by rows, a formula, or a table."""


def duration_ms(stated: PassDuration, rows: Rows) -> Numbers:
    """Return a stated duration over ``rows``, in ms."""
    if isinstance(stated, ByLoad | Tabulated):
        return stated.ms(rows)
    if isinstance(stated, Mapping):
        counts = sorted(stated)
        return float(np.interp(rows.tokens, counts, [stated[count] for count in counts]))
    return stated
