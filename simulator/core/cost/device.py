"""Devices compute and links carry: here are the formulas for how long an operation, a transfer and
a collective take.

A file in ``hardware_profiles/`` holds the numbers, each with its source. Times are in seconds,
sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import log
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from simulator.core.cost.collectives import AllReduce, AllToAll
from simulator.core.cost.formats import ACTIVATION_BYTES, FORMATS, Arithmetic, NumberFormat
from simulator.core.cost.roofline import Attention, ExpertRoofline, Roofline
from simulator.core.cost.row_costs import AnyRows, RowsOf
from simulator.core.numeric import Numbers, p_norm
from simulator.core.quantities import Fraction, Frozen, NonNegative, OneOrMore, Positive, Ranged
from simulator.core.relation import Relation, by_relation, spreads_by_relation

if TYPE_CHECKING:  # profiles are listed without numpy
    from numpy.random import Generator


TIMED = 4_096
"""Numbers of tokens for which a timer of an operation is kept."""
OPERATIONS = frozenset({"matmul", "attention", "small_operations"})
"""Fields of a device that say how long its operations take."""


def _in_parts(given: object) -> str:
    in_parts = isinstance(given, Attention) or (
        isinstance(given, dict) and ("decode" in given or "prefill" in given)
    )
    if in_parts:
        return "parts"
    return "one roofline"


class Device(Frozen):
    """A device is hardware that computes."""

    name: str = ""
    """The name of its file."""
    about: str = ""
    """What the device is, in a sentence."""
    maker: str = ""
    """Who makes it; devices are listed by maker and age."""
    architecture: str = ""
    """Its maker's name for the generation of the chip; times of a host travel further within one
    than beyond.
    """
    year: int | None = Field(default=None, ge=1990, le=2100)
    """The year in which it came out."""
    kind: Literal["gpu", "npu", "cpu"]
    """Sort of processor."""
    memory_gb: Positive
    """Memory, in 1e9 bytes."""
    memory_bandwidth_gb_s: Positive
    """Memory bandwidth of the datasheet, in 1e9 bytes a second; operations reach a share of it."""
    ecc_data_share: Fraction | None = None
    """Share of that bandwidth that carries data where error correction lies in the same memory
    (GDDR); 1 where not stated.
    """
    peak_tflops: Positive
    """Dense peak of the datasheet in 16 bits, in 1e12 flops a second; operations reach a share of
    it.
    """
    peaks_tflops: dict[Arithmetic, Positive] = Field(default={})
    """Dense peaks of its other arithmetic, in 1e12 operations a second; where none is stated, all
    is computed in 16 bits.
    """
    cache_mb: Positive | None = None
    """Last-level cache that weights can stay in from pass to pass, in 1e6 bytes."""
    cache_bandwidth_gb_s: Positive | None = None
    """Bandwidth at which products read weights from that cache, in 1e9 bytes a second."""
    matmul: dict[str, Roofline]
    """Rooflines of matrix products: ``default``, and weight formats whose kernels differ; shares
    are of the format's peak.
    """
    attention: Annotated[
        Annotated[Roofline, Tag("one roofline")] | Annotated[Attention, Tag("parts")],
        Discriminator(_in_parts),
    ]
    """Attention over cached tokens: one roofline, or ``decode`` and ``prefill``."""
    latent_attention: Attention | None = None
    """Attention over latents (MLA), likewise; by default as over keys and values."""
    experts: dict[str, ExpertRoofline] = Field(default={})
    """Rooflines of a mixture's experts: ``default``, and weight formats whose kernels differ;
    without any, that of products.
    """
    small_operations: Roofline
    """Roofline of norms, activations and rotations."""
    spread: Annotated[
        Positive | None,
        BeforeValidator(by_relation, json_schema_input_type=Positive | Relation | None),
    ] = None
    """Standard deviation of a layer's measured time relative to the formula's, over points that
    were left out of the fit; where the kernels are another device's, how the two are related.
    """
    spreads: dict[str, Positive] = Field(default={})
    """The same of single operations, by the name of their field or of their entry in ``matmul``;
    others have ``spread``.
    """
    price_usd_per_hour: NonNegative | None = None
    """Price of one device, in US dollars an hour, for plans and costs per token."""
    multiprocessors: Positive | None = None
    """Multiprocessors, which thread blocks of attention fill; where none are stated, a cache is not
    cut into pieces.
    """
    clock_ghz: Positive | None = None
    """Highest clock of its cores, in 1e9 cycles a second."""
    dot_operations: Positive | None = None
    """Products and sums of 8-bit integers that the vector units of a multiprocessor do in a cycle
    (dp4a); where none are stated, vector units compute as fast as ``peak_tflops`` says.
    """
    rows: dict[str, dict[RowsOf, AnyRows]] = Field(default={})
    """What several rows of a product take in an engine's kernels, by the name of the engine and by
    format: what was measured on this device or on its generation, in place of what the engine says.
    """
    power_w: Positive | None = None
    """Power of the datasheet, in watts, for energy."""

    @model_validator(mode="before")
    @classmethod
    def _has_times(cls, given: object) -> object:
        if not isinstance(given, dict) or not cls.model_fields.keys() >= given.keys():
            return given  # a field that is not known comes first
        if not OPERATIONS & given.keys():
            raise ValueError(
                "states no times of operations (matmul, attention, small_operations); "
                "like, with the name of the nearest card that was measured, takes them from there"
            )
        if "spreads" in given:
            return given
        products = given.get("matmul")
        operations = {*given, *(products if isinstance(products, dict) else ())}
        spreads = spreads_by_relation(given.get("spread"), operations)
        return {**given, "spreads": spreads} if spreads else given

    @model_validator(mode="after")
    def _has_default(self) -> Device:
        if "default" not in self.matmul:
            raise ValueError(
                "matmul needs an entry 'default'; others are named after weight formats"
            )
        return self

    @model_validator(mode="after")
    def _spreads_of_operations(self) -> Device:
        known = self.matmul.keys() | {"attention", "latent_attention", "experts"}
        for name in self.spreads.keys() - known - {"small_operations"}:
            raise ValueError(
                f"spreads: there is no operation '{name}'; operations are "
                f"{', '.join(sorted(known))}, small_operations"
            )
        return self

    @property
    def chip(self) -> tuple[float, float]:
        """Return the number of multiprocessors and the size of the last-level cache in 1e6 bytes; 0
        where none is stated.
        """
        return (
            self.multiprocessors.value if self.multiprocessors else 0.0,
            self.cache_mb.value if self.cache_mb else 0.0,
        )

    @property
    def vector_rate(self) -> float:
        """Return the operations a second of vector units, on 8-bit integers where they have
        instructions for that.
        """
        if self.dot_operations and self.multiprocessors and self.clock_ghz:
            cycles = self.multiprocessors.value * self.clock_ghz.value * 1e9
            return self.dot_operations.value * cycles
        return self.peak_tflops.value * 1e12

    @property
    def monotone(self) -> bool:
        """Return whether more rows of a product never take an engine's kernels less time here."""
        return all(costs.monotone for rows in self.rows.values() for costs in rows.values())

    def rows_of(self, engine: str, weight_format: str) -> AnyRows | None:
        """Return what several rows of products with weights of this format take in an engine's
        kernels, if that was measured; ``engine`` may name an age, as in ``vllm@0.9``.
        """
        form = self.number_format(weight_format)
        names = [weight_format, *form.curves]
        if form.weight_bytes < ACTIVATION_BYTES and form.arithmetic == "fp16":
            names.append("quantised")
        rows = self.rows.get(engine.partition("@")[0], {}) | self.rows.get(engine, {})
        for name in (*names, "any"):
            if name in rows:
                return rows[name]
        return None

    def seconds(self, operation: Roofline, size_bytes: float, flops: float, tokens: float) -> float:
        """Return the seconds of one operation that moves ``size_bytes`` and does ``flops`` on
        ``tokens`` rows.
        """
        seconds: float = self.timer(operation)(size_bytes, flops, tokens)
        return seconds

    def number_format(self, weights: str) -> NumberFormat:
        """Return how products with weights of this format are computed here.

        A device that states no other peak computes everything in 16 bits. Raises
        :class:`ValueError` for arithmetic that the device does not have.
        """
        form = FORMATS[weights]
        if form.arithmetic in ("fp16", *self.peaks_tflops):
            return form
        if not self.peaks_tflops:
            return form.weight_only
        has = ", ".join(("fp16", *self.peaks_tflops))
        instead = f"{weights.partition('_')[0]}_wo"
        raise ValueError(
            f"{self.name or 'the device'} has no {form.arithmetic} arithmetic; it has {has}. "
            f"{instead} stores weights in this format and computes in 16 bits, as engines do on "
            "such a device"
        )

    @property
    def formats(self) -> tuple[str, ...]:
        """Return the names of the weight formats that the device computes as they are."""
        return tuple(
            name
            for name, form in FORMATS.items()
            if form.arithmetic in ("fp16", *self.peaks_tflops)
        )

    def timer(
        self, operation: Roofline, arithmetic: Arithmetic = "fp16", cached: bool = False
    ) -> Callable[..., float]:
        """Return a function (bytes, flops, tokens) to the seconds of one operation, which also
        takes the seconds of further terms of the norm.

        ``cached``: the bytes are in the cache, if the device has one.
        """
        over = self.timers(operation, arithmetic, cached)

        def seconds(size_bytes: float, flops: float, tokens: float, *apart: float) -> float:
            timed: float = over(tokens)(size_bytes, flops, *apart)
            return timed

        return seconds

    def timers(
        self, operation: Roofline, arithmetic: Arithmetic = "fp16", cached: bool = False
    ) -> Callable[[float], Callable[..., Numbers]]:
        """Return a function from tokens to one from bytes and flops to the seconds of an operation
        over so many tokens, which may be arrays; what was made of tokens is kept.

        The function of bytes and flops also takes the seconds of further terms of the norm.
        """
        bandwidth = operation.memory_efficiency.value * self.memory_bandwidth_gb_s.value * 1e9
        if cached and self.cache_bandwidth_gb_s is not None:
            bandwidth = self.cache_bandwidth_gb_s.value * 1e9
        peak = (
            operation.compute_efficiency.value
            * self.peaks_tflops.get(arithmetic, self.peak_tflops).value
            * 1e12
        )
        fixed_s = operation.fixed_us.value * 1e-6
        p = operation.p_norm.value

        @lru_cache(TIMED)
        def over(tokens: float) -> Callable[..., Numbers]:
            memory_ratio, fixed_ratio = operation.width_ratios(tokens)
            padding = operation.tiled(tokens) / tokens if tokens else 1.0
            byte_s = memory_ratio / bandwidth
            flop_s = padding / peak
            fixed = fixed_s * fixed_ratio

            def seconds(size_bytes: Numbers, flops: Numbers, *apart: Numbers) -> Numbers:
                return fixed + p_norm((size_bytes * byte_s, flops * flop_s, *apart), p)

            return seconds

        return over

    def attention_for(self, operation: str) -> Roofline | Attention:
        """Return the attention of an operation: over keys and values, or ``latent_attention`` where
        it is stated.
        """
        return (operation == "latent_attention" and self.latent_attention) or self.attention

    def matmul_for(self, weight_format: str) -> Roofline:
        """Return the roofline of matrix products with weights of this format, of the nearest one,
        or the default roofline.
        """
        names = (weight_format, *FORMATS[weight_format].curves)
        return next(
            (self.matmul[name] for name in names if name in self.matmul), self.matmul["default"]
        )

    def experts_for(self, weight_format: str) -> ExpertRoofline | None:
        """Return the roofline of experts with weights of this format, of the nearest one, or the
        default; None without any.
        """
        names = (weight_format, *FORMATS[weight_format].curves, "default")
        return next((self.experts[name] for name in names if name in self.experts), None)

    def lacks_experts(self, weight_format: str) -> bool:
        """Return whether experts in this format, not of 16 bits, take a roofline that was fitted to
        another one.
        """
        form = FORMATS[weight_format]
        return form.weight_bytes != ACTIVATION_BYTES and not {weight_format, *form.curves} & set(
            self.experts
        )


class Generation(Frozen):
    """A generation holds what its devices share; a device is of the one that its ``architecture``
    names.
    """

    name: str = ""
    """The name of its file: its architecture in small letters, with ``_`` for all that is no
    letter.
    """
    about: str = ""
    """What the generation is, in a sentence."""
    maker: str
    """Who makes it."""
    architecture: str
    """Its maker's name for it."""
    dot_operations: Positive | None = None
    """As in its devices."""
    rows: dict[str, dict[RowsOf, AnyRows]] = Field(default={})
    """As in its devices: measured on one of them, with a range for the others."""


class ExponentialJitter(Frozen):
    """Exponential jitter adds a memoryless time to a transfer; its standard deviation is its
    mean.
    """

    name: Literal["exponential"] = "exponential"
    mean_us: NonNegative
    """Mean of the added time, in us."""

    def draw_us(self, random: Generator) -> float:
        """Return the time that is added to one transfer, in us."""
        return random.exponential(self.mean_us.value)


class LogNormalJitter(Frozen):
    """Log-normal jitter adds a time to a transfer, with a tail of any length."""

    name: Literal["lognormal"] = "lognormal"
    mean_us: NonNegative
    """Mean of the added time, in us."""
    spread: Positive
    """Standard deviation of the added time, relative to its mean."""

    def draw_us(self, random: Generator) -> float:
        """Return the time that is added to one transfer, in us."""
        variance = log(1.0 + self.spread.value**2)
        return float(self.mean_us.value * random.lognormal(-variance / 2, variance**0.5))


Jitter = Annotated[ExponentialJitter | LogNormalJitter, Field(discriminator="name")]


UNMEASURED_START_US = Ranged(
    value=0.0,
    low=0.0,
    high=10_000.0,
    source="assumed: as the link has it, or as long as an iteration of a scheduler that looks for "
    "what has come; nobody measured it",
)
"""What caches that go over a link may take to begin, beyond its latency."""


class Link(Frozen):
    """A link is hardware that carries; ``jitter`` is added to every transfer."""

    name: str = ""
    """The name of its file."""
    about: str = ""
    """What the link is, in a sentence."""
    latency_us: NonNegative
    """Latency of every transfer, in us."""
    bandwidth_gb_s: Positive
    """Bandwidth in one direction, in 1e9 bytes a second."""
    jitter: Jitter | None = None
    """Time that is added to every transfer, drawn anew for each of them."""
    server_devices: OneOrMore | None = None
    """Devices of one server that it joins; by default as many as are asked for: it joins servers,
    or machines.
    """
    all_reduce: AllReduce = AllReduce()
    """Times of all-reduces, by form."""
    all_to_all: AllToAll | None = None
    """Times of sending rows to their experts and back."""
    spreads: dict[str, Positive] = Field(default={})
    """Standard deviation of a measured all-reduce's time relative to its table's, over sizes that
    were left out of it, by implementation; the others are taken as they are.
    """

    @model_validator(mode="after")
    def _spreads_of_tables(self) -> Link:
        for name in self.spreads.keys() - self.all_reduce.measured.keys():
            known = ", ".join(sorted(self.all_reduce.measured)) or "none"
            raise ValueError(f"spreads: there is no table '{name}'; measured ones are {known}")
        return self

    def transfer_seconds(self, size_bytes: float, random: Generator | None = None) -> float:
        """Return the seconds to carry ``size_bytes`` over the link; its jitter is drawn from
        ``random``, else at its mean.
        """
        seconds = self.latency_us.value * 1e-6 + size_bytes / (self.bandwidth_gb_s.value * 1e9)
        if self.jitter is None:
            return seconds
        return (
            seconds
            + (self.jitter.mean_us.value if random is None else self.jitter.draw_us(random)) * 1e-6
        )
