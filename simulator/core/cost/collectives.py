"""Collectives sum activations over the ranks of a tensor-parallel model; a link gives their times,
in seconds, by form.

``tree`` and ``ring`` are formulas; a table holds what was measured of one implementation. Sizes are
in bytes.
"""

from bisect import bisect_left
from math import log, log2
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from simulator.core.quantities import Frozen, NonNegative, Positive, Ranged, SourcedTable


class TreeAllReduce(Frozen):
    """The tree form takes ``alpha log G + beta M`` with M the *shard* of one rank, B S H / G
    elements (Mirror-SD App. C).

    The paper does not print the base of the logarithm; 2 (a tree) is assumed.
    """

    alpha_us: Ranged
    """Time of one level of the tree, in us."""
    bandwidth_gb_s: Positive
    """Bandwidth at which the shard of one rank moves, in 1e9 bytes a second."""
    log_base: Literal["2", "e"] = "2"
    """Base of the logarithm that counts the levels."""

    def seconds(self, size_bytes: float, ranks: int) -> float:
        """Return the seconds to sum an activation of ``size_bytes`` over ``ranks``; 0 for one
        rank.
        """
        if ranks == 1:
            return 0.0
        return self.alpha_us.value * 1e-6 * (
            log2(ranks) if self.log_base == "2" else log(ranks)
        ) + size_bytes / ranks / (self.bandwidth_gb_s.value * 1e9)


class RingAllReduce(Frozen):
    """The ring form takes ``fixed + 2 (G-1)/G * bytes / bandwidth`` over the whole activation, as
    NCCL measures.
    """

    fixed_us: Ranged
    """Constant part of the time, in us, whatever the size."""
    bandwidth_gb_s: Positive
    """Bandwidth at which 2 (G - 1) / G of the activation moves, in 1e9 bytes a second."""

    def seconds(self, size_bytes: float, ranks: int) -> float:
        """Return the seconds to sum an activation of ``size_bytes`` over ``ranks``; 0 for one
        rank.
        """
        if ranks == 1:
            return 0.0
        return self.fixed_us.value * 1e-6 + 2.0 * (ranks - 1) / ranks * size_bytes / (
            self.bandwidth_gb_s.value * 1e9
        )


class MeasuredAllReduce(SourcedTable):
    """A measured all-reduce takes the times of a table, linear between its sizes and its numbers of
    devices.

    Below the first size a time is that of the first; beyond the last it grows as between the last
    two. An engine picks a kernel by size and number of devices, so that a table holds its choice (a
    custom kernel, and NCCL for larger messages).
    """

    size_kib: tuple[Annotated[float, Field(gt=0)], ...] = Field(min_length=2)
    """Sizes of the whole activation, in units of 1,024 bytes, ascending."""
    time_us: dict[
        Annotated[int, Field(ge=2, le=65_536)], tuple[Annotated[float, Field(gt=0)], ...]
    ] = Field(min_length=1)
    """Time at each of these sizes, in us, by number of devices."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if list(self.size_kib) != sorted(set(self.size_kib)):
            raise ValueError("size_kib must ascend")
        for ranks, times in self.time_us.items():
            if len(times) != len(self.size_kib):
                raise ValueError(
                    f"time_us.{ranks} has {len(times)} times for {len(self.size_kib)} sizes"
                )
        return self

    @property
    def points(self) -> int:
        """Return how many times the table holds."""
        return len(self.time_us) * len(self.size_kib)

    def seconds(self, size_bytes: float, ranks: int) -> float:
        """Return the seconds to sum an activation of ``size_bytes`` over ``ranks``; 0 for one
        rank.
        """
        if ranks == 1:
            return 0.0
        sizes = self.size_kib
        size = max(size_bytes / 1024.0, sizes[0])
        at = min(max(1, bisect_left(sizes, size)), len(sizes) - 1)
        share = (size - sizes[at - 1]) / (sizes[at] - sizes[at - 1])
        times = {n: us[at - 1] + share * (us[at] - us[at - 1]) for n, us in self.time_us.items()}
        below = max((n for n in times if n <= ranks), default=min(times))
        above = min((n for n in times if n >= ranks), default=max(times))
        part = (ranks - below) / (above - below) if above > below else 0.0
        return (times[below] + part * (times[above] - times[below])) * 1e-6


OWN_KERNELS = ("vllm_graph", "sglang_graph", "eager")
"""Measured forms in which an engine's own kernel writes to the memory of the other devices."""


def needs_p2p(form: str) -> bool:
    """Return whether a form of all-reduce needs devices that reach each other's memory."""
    return form in OWN_KERNELS


AllReduceForm: TypeAlias = TreeAllReduce | RingAllReduce | MeasuredAllReduce


class AllReduce(Frozen):
    """A link gives the time of an all-reduce in these forms; an engine or a scenario chooses one of
    them.
    """

    tree: TreeAllReduce | None = None
    """Form of Mirror-SD."""
    ring: RingAllReduce | None = None
    """Form of NCCL."""
    fitted_ranks: dict[
        Literal["tree", "ring"], tuple[Annotated[int, Field(ge=2, le=65_536)], ...]
    ] = Field(default_factory=dict)
    """Numbers of devices that a formula was fitted to; a form that is not here was fitted to
    none.
    """
    measured: dict[str, MeasuredAllReduce] = Field(default_factory=dict)
    """Tables by implementation: ``vllm_graph``, ``sglang_graph`` (what these pick in a CUDA graph),
    ``eager``, ``nccl``.
    """

    def forms(self, ranks: int) -> dict[str, AllReduceForm]:
        """Return the forms for so many devices by name; a table serves no more devices than it was
        measured on.
        """
        stated = {"ring": self.ring, "tree": self.tree}
        tables = {
            name: table for name, table in self.measured.items() if ranks <= max(table.time_us)
        }
        return {name: form for name, form in stated.items() if form is not None} | tables


class Exchange(Frozen):
    """One direction of an all-to-all takes ``fixed + (G-1)/G * bytes / bandwidth`` for what a rank
    sends.
    """

    fixed_us: NonNegative
    """Constant part of the time, in us, whatever the size."""
    bandwidth_gb_s: Positive
    """Bandwidth at which the bytes of a rank for the others move, in 1e9 bytes a second."""

    def seconds(self, size_bytes: float, ranks: int) -> float:
        """Return the seconds in which each of ``ranks`` sends ``size_bytes``, its own share
        included.
        """
        return self.fixed_us.value * 1e-6 + (ranks - 1) / ranks * size_bytes / (
            self.bandwidth_gb_s.value * 1e9
        )


class AllToAll(Frozen):
    """Rows go to their experts and come back in two exchanges (DeepEP, low latency)."""

    dispatch: Exchange
    """Rows to the ranks of their experts."""
    combine: Exchange
    """Results back to the ranks of their rows."""
