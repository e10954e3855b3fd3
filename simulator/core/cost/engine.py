"""An engine is the software between model and hardware; it is described by host times and traffic
multipliers.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from simulator.core.cost.device import Device
from simulator.core.cost.formats import WeightFormat
from simulator.core.cost.hull import Drafting, Hull
from simulator.core.cost.row_costs import RowCosts, RowsOf
from simulator.core.cost.rows import Rows
from simulator.core.numeric import Numbers, elementwise_max
from simulator.core.quantities import ALL, NONE, Confidence, Frozen, Open, Positive, Ranged

SHARDED_STEP = Open(
    value=0.0,
    low=0.0,
    high=5_000.0,
    source="assumed: as on one rank; on two H100 a speculative step took some 4 ms more under "
    "SGLang (sgl-project/SpecForge#339)",
)
SHARDED_PASS = Open(
    value=0.0,
    low=0.0,
    high=1_500.0,
    source="assumed: products, all-reduces and launches as computed; if all of those 4 ms were "
    "spent in the three passes of its chain, 1,400 us each",
)
LARGE_MIXTURE = Open(
    value=1.0,
    low=0.9,
    high=3.0,
    source="DeepSeek-R1 in fp8, one request on eight H200 in SGLang of February 2025: 2.3 times, "
    "22.9 ms a step (sgl-project/sglang#3582); kernels of SGLang 0.5.14, summed: 0.9",
    confidence="assumed",
)
LATENT = Open(
    value=0.0,
    low=0.0,
    high=36.0,
    source="assumed: as in SGLang, whose modules take no longer than their products and "
    "attention; those of vLLM take 36 us longer",
)
INDEX = Open(
    value=0.0,
    low=0.0,
    high=113.0,
    source="assumed: not told apart; in vLLM 85 us, 47 to 113",
)
BUSIEST = Open(
    value=1.0,
    low=0.7,
    high=1.27,
    source="computed: 466 rows of DeepSeek-V3's experts on 2 to 64 ranks of H100 and H200, 1 to "
    "256 tokens routed by power laws (ai-dynamo/aiconfigurator@095f58a51c4c, moe and "
    "wideep_generation_moe): 0.87 of what is computed in the middle, nine of ten in this range",
    confidence="computed",
)
NO_FURTHER = Open(
    value=0.0, source="assumed: kernels for matrices, bound by compute", confidence="computed"
)


class SpeculationHost(Frozen):
    """A speculative step takes this beside what its passes compute, and nothing hides it: the host
    decides what is kept, and prepares each pass.
    """

    fixed_us: Ranged
    """Time of a step whatever the batch, in us: inputs of the draft, rejection, mask and paths of a
    tree.
    """
    pass_us: Ranged = NONE
    """Further time of each pass of the draft, in us: its inputs, its launch, its choice of
    tokens.
    """
    own_lm_head_us: Ranged = NONE
    """The same of a head that has an LM head of its own (EAGLE-3), in us, in addition."""
    request_us: Ranged = NONE
    """Further time for each request that verifies drafts, in us."""
    asynchronous: bool = True
    """Whether the next step is scheduled while this one runs; else its scheduling is waited for."""


class EngineErrors(Frozen):
    """What a fit of an engine to measured runs left (``specsim calibrate engine``)."""

    source: str
    """The runs, and the command."""
    rows: int = Field(le=1_000_000_000)
    """Number of measured runs."""
    free: int = Field(le=1_000_000_000)
    """Numbers that were fitted."""
    errors: dict[str, float]
    """Mean absolute errors as shares, by what they are of."""


class Home(Frozen):
    """The device that the numbers of an engine were fitted on."""

    card: str
    """The name of its file."""
    others: tuple[str, ...] = ()
    """Further devices that some of the runs were on, by the names of their files."""
    maker: str
    """Who makes it."""
    architecture: str
    """Its maker's name for the generation of the chip."""
    architectures: tuple[str, ...] = ()
    """Generations of the other devices, where they are others."""

    def near(self, device: Device) -> bool:
        """Return whether runs on the generation of a device were among those that decided the
        numbers.
        """
        of_runs = device.architecture in (self.architecture, *self.architectures)
        return device.maker == self.maker and of_runs

    def holds(self, device: Device) -> bool:
        """Return whether runs on a device were among those that decided the numbers."""
        return device.name == self.card or device.name in self.others


class Versions(Frozen):
    """For which versions of its software the numbers of an engine hold."""

    first: str = Field(pattern=r"^\d+(\.\d+)*$")
    """The first of them."""
    before: str | None = Field(default=None, pattern=r"^\d+(\.\d+)*$")
    """The first for which they no longer hold; None: the newest is among them."""
    since: str = Field(pattern=r"^\d{4}-\d{2}$")
    """Month in which the first was released, as in 2026-01."""
    changed: str
    """What changed from the age before, in a sentence."""


class Slicing(Frozen):
    """How an engine slices a model over the ranks of tensor parallelism, and with what it does not
    start.
    """

    even: bool = True
    """Whether every rank has as much of each weight as the others; else weights are cut at any row,
    and padded.
    """
    whole_heads: bool = False
    """Whether the heads of keys and values have to divide the ranks, or the ranks them; else they
    are cut anywhere.
    """
    whole_blocks: tuple[WeightFormat, ...] | None = None
    """Formats with which it does not start where a slice ends within a block that shares a scale;
    None: not known.
    """
    expert_groups: dict[WeightFormat, Annotated[int, Field(le=10_000_000)]] = Field(default={})
    """Inputs of an expert's product down to which it splits a group of such a format (a divisor of
    the group).
    """
    vocabulary_multiple: int = Field(default=1, gt=0, le=1_000_000)
    """Multiple to which embedding and LM head are padded before ranks share them; 1: to whatever
    divides.
    """
    source: str = "not stated"
    """Where that was read."""


class ServerLimits(Frozen):
    """These are the limits of a batch that a server takes by itself; of several, the first that
    fits holds.
    """

    least_memory_gb: float = Field(default=0.0, ge=0)
    """Memory from which on a device gets them, in 1e9 bytes."""
    not_named: tuple[str, ...] = ()
    """Parts of names of devices that do not get them."""
    kind: Literal["gpu", "npu", "cpu"] | None = None
    """Sort of processor that gets them; any, where none is stated."""
    drafts: bool | None = None
    """Whether they are for serving with speculation, or without; either, where nothing is
    stated.
    """
    max_requests: int = Field(gt=0, le=100_000)
    """Requests that run together, at most."""
    batch_tokens: int = Field(gt=0, le=1_000_000_000)
    """Tokens of a pass, at most."""

    def fits(self, device: Device, drafts: bool) -> bool:
        """Return whether a server on ``device`` takes them, with speculation or without."""
        named = any(part in device.name.lower() for part in self.not_named)
        large = device.memory_gb.value >= self.least_memory_gb
        return (
            large
            and not named
            and self.kind in (None, device.kind)
            and self.drafts in (None, drafts)
        )


class ServerDefaults(Frozen):
    """A server does this where nothing else is said: how it batches, its limits, and whether it
    keeps prompts.
    """

    policy: Literal["unified_budget", "chunked_prefill", "prefill_first"] = "prefill_first"
    """The policy that comes nearest to its scheduler (:mod:`simulator.core.serving.policies`)."""
    limits: tuple[ServerLimits, ...] = Field(
        default=(ServerLimits(max_requests=64, batch_tokens=8_192),), min_length=1
    )
    """Limits of a batch; the last has to fit every device."""
    prefix_caching: bool | None = None
    """Whether blocks of prompts stay for requests that begin alike; None where nobody has
    looked.
    """
    cache_unit_tokens: int = Field(default=16, gt=0, le=1_000_000)
    """Tokens of a block of the cache, the least that is kept or found."""
    state_fills_unit: bool = False
    """Whether a block of a model with states holds so many tokens that the keys and values of one
    layer take no less room than the state of another (vLLM: one size of page for all layers).
    """
    source: str = "nobody has looked up what a server of this engine takes by itself"
    """Where this stands: program, version and place."""
    confidence: Confidence = "assumed"
    """How well it is known."""

    @model_validator(mode="after")
    def _fits_all(self) -> Self:
        last = self.limits[-1]
        if last.least_memory_gb or last.not_named or last.kind or last.drafts is not None:
            raise ValueError(
                "limits: the last entry has to fit every device; state only max_requests and "
                "batch_tokens there"
            )
        return self

    def limits_on(self, device: Device, drafts: bool) -> ServerLimits:
        """Return the limits that hold on a device, with speculation or without."""
        return next(limits for limits in self.limits if limits.fits(device, drafts))


class WindowRules(Frozen):
    """A server chooses how many draft tokens are written or verified by one of these rules."""

    default: str = "fixed"
    """The rule where nothing else is said, by its name in ``strategy.adaptive``."""
    offered: dict[str, str] = Field(default={})
    """Other rules that it has, by their names, with the option that switches each on."""
    source: str = "nobody has looked up which rules a server of this engine has"
    """Where this stands: program, version and place."""
    confidence: Confidence = "assumed"
    """How well it is known."""


class Engine(Frozen):
    """An engine says what a serving program adds to a pass over the hardware.

    ``launch: asynchronous`` lets the host run ahead of the device, so that a pass takes the longer
    of the two; with ``synchronous`` it takes their sum. ``kv_traffic`` multiplies the KV bytes that
    attention reads (1 for paged kernels, 3 where every step concatenates the cache anew). With
    ``repeats_kv`` keys and values are written out and read once for every query head of a group.
    ``many_rows_host_ratio`` is the host's time for a layer over several rows of a sequence,
    relative to that over a single row: a mask is made and applied, and the cached rows of rejected
    tokens are removed.
    """

    name: str = ""
    """The name of its file."""
    about: str = ""
    """What the engine is, in a sentence."""
    version: str = ""
    """Version of the software that the times belong to."""
    versions: Versions | None = None
    """For which versions its numbers hold; other ages have files of their own
    (``NAME@VERSION``).
    """
    fitted_on: Home | None = None
    """The device that its calibrated numbers were fitted on; on others they are borrowed, with a
    range.
    """
    hull: Hull | None = None
    """What those numbers were fitted on, beside the device."""
    embeds_on_host: bool = False
    """Whether an embedding that is not also the LM head stays in the memory of the host
    (llama.cpp).
    """
    fit: EngineErrors | None = None
    """What the fit of its numbers left of the runs that decided them."""
    server: ServerDefaults = ServerDefaults()
    """What its server does where nothing else is said."""
    windows: WindowRules = WindowRules()
    """By which rules it chooses draft lengths."""
    launch: Literal["asynchronous", "synchronous"] = "asynchronous"
    """Whether the host runs ahead of the device, or in turn with it."""
    host_ratio: Ranged = ALL
    """Time of this host relative to that of the host on which all times of the host here were
    measured.
    """
    host_us_per_layer: Ranged
    """Host time to launch the kernels of a layer, in us."""
    graph_rows: tuple[Annotated[int, Field(le=1_000_000)], ...] = ()
    """Rows for which a pass is captured as a CUDA graph: it is padded to the next; with more rows
    it is launched eagerly.
    """
    eager_host_us_per_layer: Ranged = NONE
    """Host time of a layer in a pass of more rows than the largest captured, in us."""
    eager_gap_us_per_layer: Ranged = NONE
    """Time of a layer in such a pass beyond the longer of host and device, in us: gaps between
    kernels that are launched one by one.
    """
    asynchronous: bool = True
    """Whether a step is scheduled while the one before it runs; else every step waits for its
    scheduling. Of speculative steps ``speculation`` says so by kind of drafting.
    """
    schedule_us: Ranged = NONE
    """Host time to schedule a step, in us, waited for where scheduling is not asynchronous."""
    schedule_us_per_request: Ranged = NONE
    """The same for each request of the step, in us."""
    speculation: dict[Drafting, SpeculationHost] = Field(default={})
    """Time of the host in a speculative step, by kind of drafting."""
    verified_row_us: Ranged = NONE
    """Time of a speculative step for each verified row, in us: its logits are widened, compared and
    sampled.
    """
    sharded_step_us: Open = SHARDED_STEP
    """Further time of a speculative step whose target is on several ranks, in us, however many they
    are: what one of them decided is sent to the others, and all begin together.
    """
    sharded_pass_us: Open = SHARDED_PASS
    """Further time of each pass of a draft that is on several ranks, in us: all launch it and sum
    in it.
    """
    rows: dict[RowsOf, RowCosts] = Field(default={})
    """Rows of products: ``any`` in place of the device's curves, ``quantised`` of weights in less
    than 16 bits, beside ``any`` or where the device has no curve for a format. What a device or its
    generation says of this engine's kernels goes before.
    """
    further_rows: Open = NO_FURTHER
    """Cost of a row beyond those that were measured of a quantised product, relative to the mean of
    those from the second on; rows of prompts, for which kernels for matrices take over, cost
    nothing here."""
    beyond_curve_ratio: Ranged | None = None
    """Ratio of quantised products of more rows than the device's curve holds to the last of it;
    None: as the last.
    """
    method_host_ratio: Ranged = ALL
    """Host time of a method (``host_ms``, as its own program on Transformers takes it) under this
    engine, relative to there.
    """
    large_mixture_ratio: Open = LARGE_MIXTURE
    """Time of a pass without prompts of a mixture that no single device holds, relative to what its
    parts come to.
    """
    latent_us: Open = LATENT
    """Time of what runs between the products of a layer with latents (MLA) beside its small
    operations, in us: norms of latents, rotation, writing the cache.
    """
    index_us: Open = INDEX
    """Time of what runs around the indexer of a layer of sparse attention beside its products and
    the reading of its keys, in us: quantising, and choosing the tokens that attention reads.
    """
    busiest_rank_ratio: Open = BUSIEST
    """Time of whole experts on the busiest of their ranks, relative to that of rows that are routed
    independently.
    """
    outside_ms: Ranged = NONE
    """Time of a request outside of the engine before its first token is seen, in ms: API,
    tokenizer, streaming.
    """
    host_us_per_pass: Ranged
    """Host time of a pass for scheduling and all that is not a layer, in us."""
    many_rows_host_ratio: Positive = Positive(value=1.0, source="assumed: not told apart")
    """Host time of a layer over several rows of a sequence, relative to that over a single row."""
    small_operations_ratio: Positive
    """Time of small operations, relative to that of the device's roofline."""
    kv_traffic_ratio: Positive
    """KV bytes that attention moves, relative to the bytes in the cache."""
    repeats_kv: bool = False
    """Whether keys and values are written out for every query head."""
    slicing: Slicing = Slicing()
    """With which degrees of tensor parallelism it starts."""
    all_reduce: tuple[str, ...] = ("ring",)
    """Forms of all-reduce that the engine uses, best first: the first one that a link has is
    taken.
    """
    sampling_us: Ranged
    """Time to choose tokens from the logits of an LM head, in us."""

    host_us_per_logit_row: Ranged = Ranged(value=0.0, source="assumed: all rows of a pass at once")
    """Host time to turn one row of logits into chances, in us, where that is done row after row."""
    all_logits: bool = False
    """Whether a pass that needs logits computes them for all of its rows, those of a prompt too."""

    @model_validator(mode="before")
    @classmethod
    def _without_the_ratio_of_before(cls, data: Any) -> Any:
        """Drop ``sharded_draft_ratio``, which files of before state, where it changes nothing."""
        if not (isinstance(data, dict) and "sharded_draft_ratio" in data):
            return data
        ratio = data["sharded_draft_ratio"]
        if isinstance(ratio, dict):
            ratio = ratio.get("value")
        if ratio != 1:
            raise ValueError(
                "sharded_draft_ratio is no longer a field: state sharded_pass_us, by how many us "
                "a pass of a draft over several ranks takes longer than computed"
            )
        return {name: value for name, value in data.items() if name != "sharded_draft_ratio"}

    def logit_rows(self, rows: Rows) -> int:
        """Return the rows of a pass that get logits."""
        if self.all_logits and rows.logit_rows:
            return rows.tokens
        return rows.logit_rows

    @property
    def monotone(self) -> bool:
        """Return whether a pass over more rows never takes the host less time, nor a product by the
        engine's own kernels.
        """
        eager = (
            not self.graph_rows
            or self.eager_host_us_per_layer.value >= self.host_us_per_layer.value
        )
        growing = all(costs.monotone for costs in self.rows.values())
        return (
            min(self.many_rows_host_ratio.value, (self.beyond_curve_ratio or ALL).value) >= 1.0
            and eager
            and growing
        )

    def captured(self, tokens: int) -> int:
        """Return the rows that a pass over ``tokens`` computes: those of the next captured
        graph.
        """
        return next((rows for rows in self.graph_rows if rows >= tokens), tokens)

    def host_seconds(self, layers: float, many_rows: bool, tokens: int = 1) -> float:
        """Return the host's seconds for ``layers`` over ``tokens``; ``many_rows``: over several
        rows of a sequence.
        """
        eager = bool(self.graph_rows) and tokens > self.graph_rows[-1]
        per_layer = self.eager_host_us_per_layer.value if eager else self.host_us_per_layer.value
        return self._seconds(layers * per_layer) * (
            self.many_rows_host_ratio.value if many_rows else 1.0
        )

    def pass_seconds(self) -> float:
        """Return the host's seconds for a pass, all but its layers and rows of logits."""
        return self._seconds(self.host_us_per_pass.value)

    def row_seconds(self, logit_rows: int) -> float:
        """Return the host's seconds for rows of logits that it turns into chances one after the
        other.
        """
        return self._seconds(self.host_us_per_logit_row.value * logit_rows)

    def gap_seconds(self, layers: float, tokens: int) -> float:
        """Return the seconds of gaps between the kernels of ``layers`` over ``tokens`` that are not
        captured.
        """
        if self.graph_rows and tokens > self.graph_rows[-1]:
            return self._seconds(layers * self.eager_gap_us_per_layer.value)
        return 0.0

    def step_seconds(
        self, drafting: Drafting | None, requests: int, rows: int, sharded: bool = False
    ) -> float:
        """Return the seconds in a step that computes ``rows`` of ``requests``, beside its passes;
        ``drafting`` where they hold drafts.
        """
        host = self.speculation.get(drafting) if drafting else None
        us = 0.0
        if host:
            us += host.fixed_us.value + requests * host.request_us.value
        if drafting:
            us += rows * self.verified_row_us.value + sharded * self.sharded_step_us.value
        if not (self.asynchronous and (host is None or host.asynchronous)):
            us += self.schedule_us.value + requests * self.schedule_us_per_request.value
        return self._seconds(us)

    def draft_pass_seconds(
        self, drafting: Drafting | None, own_lm_head: bool, sharded: bool
    ) -> float:
        """Return the seconds of a pass of the draft beside what it computes."""
        us = sharded * self.sharded_pass_us.value
        host = self.speculation.get(drafting) if drafting else None
        if host:
            us += host.pass_us.value + own_lm_head * host.own_lm_head_us.value
        return self._seconds(us)

    def _seconds(self, microseconds: float) -> float:
        return microseconds * 1e-6 * self.host_ratio.value

    def wall_seconds(self, host: float, device: Numbers) -> Numbers:
        """Return the seconds of one pass whose host takes ``host`` seconds and whose device takes
        ``device``.
        """
        if self.launch == "synchronous":
            return host + device
        return elementwise_max(host, device)

    def kv_traffic(self, group: int) -> float:
        """Return the KV bytes that are moved for every cached byte, with ``group`` query heads to a
        key-value head.
        """
        return self.kv_traffic_ratio.value + (2.0 * group if self.repeats_kv and group > 1 else 0.0)
