"""Engine: the software between model and hardware, as host times and traffic multipliers."""

from __future__ import annotations

from typing import Any, Literal

from simulator.files.schema import Frozen, NonNegative, Positive
from simulator.numeric import elementwise_max


class Engine(Frozen):
    """What a serving program adds to a pass over the hardware.

    ``launch: asynchronous`` lets the host run ahead of the device, so that a pass takes the longer of
    the two; ``synchronous`` makes it take their sum. ``kv_traffic`` multiplies the KV bytes that
    attention reads (1 for paged kernels, 3 where every step concatenates the cache anew). With
    ``repeats_kv`` keys and values are written out and read once for every query head of a group.
    ``many_rows_host_ratio`` is the host's time for a layer over several rows of a sequence, to that over one row: a mask is
    made and applied, and cached rows that were not kept are taken out again.
    """

    name: str = ""
    """The file's name."""
    about: str = ""
    """What it is, in a sentence."""
    launch: Literal["asynchronous", "synchronous"] = "asynchronous"
    """Whether the host runs ahead of the device, or in turn with it."""
    host_us_per_layer: NonNegative
    """Launching the kernels of a layer."""
    host_us_per_pass: NonNegative
    """Scheduling and all else of a pass."""
    many_rows_host_ratio: Positive = Positive(value=1.0, source="assumed: not told apart")
    """Host time of a layer over several rows of a sequence, to that over one."""
    small_operations_ratio: Positive
    """How many times as long small operations take."""
    kv_traffic_ratio: Positive
    """How many times the cached bytes attention moves."""
    repeats_kv: bool = False
    """Keys and values are written out for every query head."""
    sampling_us: NonNegative
    """Choosing tokens behind an LM head."""

    def host_seconds(self, layers: int, many_rows: bool) -> float:
        """Host time of so many layers, in seconds; ``many_rows``: over several rows of a sequence."""
        return layers * self.host_us_per_layer.value * 1e-6 * (self.many_rows_host_ratio.value if many_rows else 1.0)

    def wall_seconds(self, host: float, device: Any) -> Any:
        """Time of one pass from its host and device times, in seconds."""
        return host + device if self.launch == "synchronous" else elementwise_max(host, device)

    def kv_traffic(self, group: int) -> float:
        """KV bytes moved for every cached byte, with ``group`` query heads to a key-value head."""
        return self.kv_traffic_ratio.value + (2.0 * group if self.repeats_kv and group > 1 else 0.0)
