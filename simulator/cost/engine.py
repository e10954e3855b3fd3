"""An engine is the software between model and hardware; it is described by host times and traffic multipliers."""

from typing import Any, Literal

from simulator.cost.rows import Rows
from simulator.files.schema import Frozen, NonNegative, Positive
from simulator.numeric import elementwise_max


class Engine(Frozen):
    """An engine says what a serving program adds to a pass over the hardware.

    ``launch: asynchronous`` lets the host run ahead of the device, so that a pass takes the longer of
    the two; with ``synchronous`` it takes their sum. ``kv_traffic`` multiplies the KV bytes that
    attention reads (1 for paged kernels, 3 where every step concatenates the cache anew). With
    ``repeats_kv`` keys and values are written out and read once for every query head of a group.
    ``many_rows_host_ratio`` is the host's time for a layer over several rows of a sequence, relative to that over a single
    row: a mask is made and applied, and the cached rows of rejected tokens are removed.
    """

    name: str = ""
    """The name of its file."""
    about: str = ""
    """What the engine is, in a sentence."""
    launch: Literal["asynchronous", "synchronous"] = "asynchronous"
    """Whether the host runs ahead of the device, or in turn with it."""
    host_us_per_layer: NonNegative
    """Host time to launch the kernels of a layer, in us."""
    host_us_per_pass: NonNegative
    """Host time of a pass for scheduling and all that is not a layer, in us."""
    many_rows_host_ratio: Positive = Positive(value=1.0, source="assumed: not told apart")
    """Host time of a layer over several rows of a sequence, relative to that over a single row."""
    small_operations_ratio: Positive
    """Time of small operations, relative to that of the device's roofline."""
    kv_traffic_ratio: Positive
    """KV bytes that attention moves, relative to the bytes in the cache."""
    repeats_kv: bool = False
    """Whether keys and values are written out for every query head."""
    all_reduce: tuple[str, ...] = ("ring",)
    """Forms of all-reduce that the engine uses, best first: the first one that a link has is taken."""
    sampling_us: NonNegative
    """Time to choose tokens from the logits of an LM head, in us."""

    host_us_per_logit_row: NonNegative = NonNegative(value=0.0, source="assumed: all rows of a pass at once")
    """Host time to turn one row of logits into chances, in us, where that is done row after row."""
    all_logits: bool = False
    """Whether a pass that needs logits computes them for all of its rows, those of a prompt too."""

    def logit_rows(self, rows: Rows) -> int:
        """Return the rows of a pass that get logits."""
        return rows.tokens if self.all_logits and rows.logit_rows else rows.logit_rows

    def host_seconds(self, layers: float, many_rows: bool) -> float:
        """Return the host's seconds for ``layers``; ``many_rows``: over several rows of a sequence."""
        return layers * self.host_us_per_layer.value * 1e-6 * (self.many_rows_host_ratio.value if many_rows else 1.0)

    def wall_seconds(self, host: float, device: Any) -> Any:
        """Return the seconds of one pass whose host takes ``host`` seconds and whose device takes ``device``."""
        return host + device if self.launch == "synchronous" else elementwise_max(host, device)

    def kv_traffic(self, group: int) -> float:
        """Return the KV bytes that are moved for every cached byte, with ``group`` query heads to a key-value head."""
        return self.kv_traffic_ratio.value + (2.0 * group if self.repeats_kv and group > 1 else 0.0)
