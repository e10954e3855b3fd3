"""Hardware sets the cost: how long a pass of a model over some tokens takes, and on what the time
is spent.

:class:`HardwareCost` composes a pass from operation groups on devices and links (p-norm roofline,
token tiles, host, collectives); :mod:`simulator.core.cost.stated` repeats durations that a scenario
states outright. All times are in seconds.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import ClassVar, Literal, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from simulator.core.cost.device import Link
from simulator.core.cost.hull import Drafting
from simulator.core.cost.kernels import (
    LayerTime,
    all_reduce_time,
    attention_timer,
    exchange_time,
    further_rows,
    head_time,
    layer_products,
    products,
    routed_experts_time,
    side_product_time,
    transition_time,
)
from simulator.core.cost.mixer import LayerKind, Mixer
from simulator.core.cost.model import DraftHead
from simulator.core.cost.partition import Offload, message_bytes
from simulator.core.cost.placement import Placement
from simulator.core.cost.protocol import Depth, Purpose, Role
from simulator.core.cost.rows import Phase, Rows, together
from simulator.core.faults import BadInput, Fault
from simulator.core.numeric import Numbers, ordered_sum

Timer = Callable[[Rows], Numbers]
"""From rows to seconds."""
Key = TypeVar("Key")
Value = TypeVar("Value")
REMEMBERED = 1 << 14
"""Number of shapes of passes whose times a cache keeps; a full cache is emptied, so that memory
stays bounded.
"""
MOST_PLACES = 256
"""Placements whose layers are kept for further costs."""
MOST_RUNS = 4
"""Runs of passes whose times are kept for each place, role and part of the layers: 32 KiB each."""
LONGEST_RUN = 1_024
"""Passes of a run that is kept, at most."""
ELSEWHERE = "target elsewhere"
"""Lane of layers and experts of the target that lie on other devices."""
CARRIED = "target links"
"""Lane of the links to them, or between stages."""
TOKEN_BYTES = 4
"""Bytes of a token id on its way to the stages of a pipeline (assumed)."""


class PassParts(NamedTuple):
    """A pass consists of what no context changes, in seconds, and of attention."""

    device: float
    """LM head and sampling, and all layers without attention over a cache."""
    attention: tuple[tuple[int, Timer], ...]
    """(number of layers, timer of one of them), by mixer with a cache."""
    share: float
    """Share of the rows that passes one rank's mixers."""
    collectives: float
    """Collectives."""
    host: float
    """The host's work for the pass."""
    step: float
    """What nothing hides: the host's work once the pass has ended, and gaps between kernels."""
    ratio: float
    """How many times as long the pass takes as its parts, all but what nothing hides."""
    elsewhere: float = 0.0
    """Experts on other devices."""
    carried: float = 0.0
    """What goes over the links to them and back."""


class PricedRun(NamedTuple):
    """A run of passes that differ in their contexts alone is priced."""

    kv_tokens: NDArray[np.int64]
    attention_pairs: Numbers
    phase: Phase

    def is_of(self, rows: Rows) -> bool:
        """Return whether these are the passes over such ``rows``."""
        same_cache = np.array_equal(self.kv_tokens, rows.kv_tokens)
        return same_cache and np.array_equal(self.attention_pairs, rows.attention_pairs)


class PricedLayers:
    """Layers of one model on one device are timed; equal layers over as many rows once, and equal
    passes through them.
    """

    def __init__(self, place: Placement) -> None:
        self.place = place
        self._passes: dict[tuple[str, int, int, Drafting | None], PassTimes] = {}
        self._heads: dict[tuple[DraftHead, Drafting | None], HeadTimes] = {}
        self._products: dict[tuple[int, LayerKind, int, float, float, int, bool], LayerTime] = {}
        self._mixers: dict[Mixer, Timer] = {}

    def of(
        self,
        kinds: Mapping[LayerKind, int],
        tokens: int,
        rows: Rows,
        read: float,
        share: float,
        prompt_rows: int,
        routed_here: bool = True,
    ) -> tuple[float, tuple[tuple[int, Timer], ...]]:
        """Return the seconds of so many layers of each kind over ``tokens``
        (:func:`layer_products`, and mixers without a cache), and for each mixer with a cache the
        number of its layers and the timer of one.
        """
        seconds = 0.0
        attention = Counter[Timer]()
        for kind, count in kinds.items():
            key = (tokens, kind, rows.adapted, read, share, prompt_rows, routed_here)
            layer = self._products.get(key)
            if layer is None:
                make_room(self._products)
                layer = self._products[key] = layer_products(self.place, *key)
            seconds += count * (layer.qkv + layer.output + layer.mlp + layer.small)
            if kind.mixer is None:
                continue
            timer = self._timer(kind.mixer)
            if kind.mixer.kind == "linear":
                seconds += count * timer(rows.on_rank(share))
            else:
                attention[timer] += count
        return seconds, tuple((count, timer) for timer, count in attention.items())

    def passes(self, role: str, first: int, last: int, drafting: Drafting | None) -> "PassTimes":
        """Return the times of passes of a role through the layers from ``first`` to before
        ``last``.
        """
        key = (role, first, last, drafting)
        if key not in self._passes:
            self._passes[key] = PassTimes(self, *key)
        return self._passes[key]

    def head_passes(self, head: DraftHead, drafting: Drafting | None) -> "HeadTimes":
        """Return the times of passes of a draft head."""
        key = (head, drafting)
        if key not in self._heads:
            self._heads[key] = HeadTimes(self, *key)
        return self._heads[key]

    def _timer(self, mixer: Mixer) -> Timer:
        """Return the timer of a mixer, the same one for equal mixers."""
        if mixer not in self._mixers:
            self._mixers[mixer] = attention_timer(self.place, mixer)
        return self._mixers[mixer]


@lru_cache(MOST_PLACES)
def priced_layers(place: Placement) -> PricedLayers:
    """Return the times of the layers of a model where it is placed, the same for equal places."""
    return PricedLayers(place)


def make_room(remembered: dict[Key, Value]) -> None:
    """Empty what is remembered where it is full."""
    if len(remembered) >= REMEMBERED:
        remembered.clear()


class PassTimes:
    """Passes through the same layers of a model are timed where it is placed; what does not depend
    on the cached tokens, which differ from step to step, is worked out once.

    Nothing is rounded: a pass takes the same as a first one.
    """

    def __init__(
        self,
        layers: PricedLayers,
        role: str,
        first: int,
        last: int,
        drafting: Drafting | None = None,
    ) -> None:
        self.place = layers.place
        self.layers = layers
        self.kinds = self.place.model.kinds(first, last) if first < last else {}
        """Number of layers of each kind from ``first`` to before ``last``."""
        self.away = self.place.away_experts(first, last) if self.place.offload else ()
        """Layers whose routed experts lie elsewhere."""
        away = sum((Counter(one.kinds) for one in self.away), Counter[LayerKind]())
        self.kinds_with_experts_away = dict(away)
        self.ends = last == self.place.model.num_hidden_layers
        """Whether the model ends with them: the LM head belongs to its last layer."""
        self.schedules = first == 0
        """Whether the engine's time of a pass is counted here: where the model begins; where it
        ends, if it begins elsewhere.
        """
        if role.startswith("offload"):
            self.schedules = False
        elif self.place.offload and self.place.segments[0].offload:
            self.schedules = self.ends
        self.drafting = drafting
        self._engine = self.place.engine
        self._splits = self.place.attention == "data_parallel"
        self._drafts = role.startswith("draft")
        self._large_mixture = not self._drafts and self.place.large_mixture
        self._continued = further_rows(self.place, self.place.weights).value > 0.0
        self._busy = tuple(f"{role} {use}" for use in ("compute", "collectives", "host"))
        self._parts: dict[tuple[float, ...], PassParts] = {}
        self._runs: dict[tuple[float, ...], PricedRun] = {}

    def phase(self, rows: Rows) -> Phase:
        """Return the phase of a pass over ``rows``; of arrays where those of many passes are."""
        if not self.kinds:
            return Phase(0.0, {})
        shape = rows.shape
        parts = self._parts.get(shape)
        if parts is None:
            make_room(self._parts)
            place = self.place
            share = place.busiest_share(rows.sequences) if self._splits else 1.0
            computed = place.engine.captured(rows.tokens)
            read = place.model.experts_read(rows)
            layers, attention = self._layer_seconds(computed, rows, read, share)
            head, collectives, host = self._beside_layers(
                rows.tokens, self._logit_rows(rows), rows.tokens > rows.sequences
            )
            step = self._step_seconds(rows)
            ratio = self._ratio(rows)
            here, elsewhere, carried = self._away_seconds(rows, read)
            parts = PassParts(
                head + layers + here,
                attention,
                share,
                collectives,
                host,
                step,
                ratio,
                elsewhere,
                carried,
            )
            self._parts[shape] = parts
        contexts = rows.kv_tokens
        if isinstance(contexts, np.ndarray) and len(contexts) <= LONGEST_RUN:
            return self._run(parts, rows, contexts)
        return self._with_attention(parts, rows)

    def _run(self, parts: PassParts, rows: Rows, contexts: NDArray[np.int64]) -> Phase:
        """Return the phase of a run of passes, priced once as long as it is among the latest: other
        costs on this place ask for the same block of contexts.
        """
        key = (*rows.shape, rows.prompt_kv_tokens, rows.prompt_pairs, contexts.item(0))
        run = self._runs.pop(key, None)
        if run is None or not run.is_of(rows):
            phase = self._with_attention(parts, rows)
            run = PricedRun(contexts, rows.attention_pairs, phase)
        self._runs[key] = run  # the latest
        if len(self._runs) > MOST_RUNS:
            del self._runs[next(iter(self._runs))]
        return run.phase

    def _with_attention(self, parts: PassParts, rows: Rows) -> Phase:
        """Return the phase of a pass, or of a run of passes, from the parts of its shape."""
        device: Numbers = parts.device
        mixed = rows.on_rank(parts.share)
        for count, timer in parts.attention:
            device = device + count * timer(mixed)
        collectives = parts.collectives
        beside = collectives + parts.elsewhere + parts.carried
        wall = self._engine.wall_seconds(parts.host, device + beside)
        wall = wall * parts.ratio + parts.step
        compute_lane, collectives_lane, host_lane = self._busy
        busy = {
            compute_lane: device,
            collectives_lane: collectives,
            host_lane: parts.host + parts.step,
        }
        if self.away:
            busy |= {ELSEWHERE: parts.elsewhere, CARRIED: parts.carried}
        return Phase(wall, busy)

    def _layer_seconds(
        self, tokens: int, rows: Rows, read: float, share: float
    ) -> tuple[float, tuple[tuple[int, Timer], ...]]:
        """Return the seconds of the layers over ``tokens`` without attention over a cache, and its
        timers; experts that lie elsewhere are left out.
        """
        prompts = self._prompts(rows)
        if not self.away:
            return self.layers.of(self.kinds, tokens, rows, read, share, prompts)
        away = self.kinds_with_experts_away
        whole = {kind: count - away.get(kind, 0) for kind, count in self.kinds.items()}
        seconds, attention = self.layers.of(whole, tokens, rows, read, share, prompts)
        less, of_those = self.layers.of(away, tokens, rows, read, share, prompts, False)
        return seconds + less, attention + of_those

    def _away_seconds(self, rows: Rows, read: float) -> tuple[float, float, float]:
        """Return the seconds of routed experts that lie elsewhere: of those that are computed here
        all the same, as their weights are copied, of those computed there, and of the links.
        """
        here = elsewhere = carried = 0.0
        full = rows.tokens - rows.adapted
        model = self.place.model
        for away in self.away:
            layers = sum(away.kinds.values())
            link = away.offload.link
            if away.offload.copies(rows.tokens):
                size = read * self.place.expert_bytes
                carried += layers * link.transfer_seconds(size)
                prompts = self._prompts(rows)
                here += layers * routed_experts_time(self.place, full, read, prompts)
            else:
                carried += layers * 2 * link.transfer_seconds(message_bytes(model, full))
                continued = further_rows(away.place, away.place.expert_format).value
                prompts = rows.prompt_tokens if continued else 0
                elsewhere += layers * routed_experts_time(away.place, full, read, prompts)
        return here, elsewhere, carried

    def _ratio(self, rows: Rows) -> float:
        """Return how many times as long a pass takes as its parts."""
        if self._large_mixture and not rows.prompt_tokens:
            return self.place.engine.large_mixture_ratio.value
        return 1.0

    def _logit_rows(self, rows: Rows) -> int:
        """Return the rows that get logits where the pass reaches the LM head."""
        return self.place.engine.logit_rows(rows)

    def _prompts(self, rows: Rows) -> int:
        """Return the rows of prompts where an engine prices them otherwise than those of a
        verification.
        """
        if self._continued:
            return rows.prompt_tokens
        return 0

    def _step_seconds(self, rows: Rows) -> float:
        """Return the seconds of a pass that nothing hides: gaps between kernels that are not
        captured, and the host's work in a step once its pass has ended.
        """
        engine = self._engine
        gaps = engine.gap_seconds(self._launched, rows.tokens)
        sharded = self.place.tensor_parallel > 1
        if self._drafts:
            if rows.prompt_tokens:
                return gaps
            beside = engine.draft_pass_seconds(self.drafting, self._own_lm_head, sharded)
            return gaps + beside
        if not self.ends:
            return gaps
        requests = rows.sequences - rows.prompt_sequences
        verified = rows.tokens - rows.prompt_tokens
        drafting = self.drafting if verified > requests else None
        return gaps + engine.step_seconds(drafting, requests, verified, sharded)

    @property
    def _own_lm_head(self) -> bool:
        """Return whether a head drafts that has an LM head of its own."""
        return False

    def _beside_layers(
        self, tokens: int, logit_rows: int, many_rows: bool
    ) -> tuple[float, float, float]:
        """Return the seconds of LM head and sampling, of collectives, and of the host."""
        place = self.place
        collectives = all_reduce_time(place, tokens) * place.collectives.count
        if place.collectives.per == "layer":
            collectives = collectives * self._reduced
        else:
            collectives = collectives * self.ends
        collectives += exchange_time(place, tokens) * self._with_experts
        host = place.engine.host_seconds(self._launched, many_rows, tokens)
        if self.schedules:
            host += place.engine.pass_seconds()
        if self.ends:
            host += place.engine.row_seconds(logit_rows)
        return head_time(place, logit_rows) if self.ends else 0.0, collectives, host

    @cached_property
    def _with_experts(self) -> int:
        """Return how many of the layers have experts."""
        return sum(count for kind, count in self.kinds.items() if kind.experts)

    @cached_property
    def _launched(self) -> float:
        """Return how many layers of the usual two parts the host launches."""
        return sum(count * kind.parts for kind, count in self.kinds.items()) / 2

    @cached_property
    def _reduced(self) -> float:
        """Return for how many layers all-reduces are due, of the usual two a layer.

        With data-parallel attention a layer gathers and scatters its rows around the MLP, as long
        as one all-reduce.
        """
        parts = 0
        for kind, count in self.kinds.items():
            gathered = kind.mixer is not None and self._splits
            parts += count * (kind.parts - gathered)
        return parts / 2


class HeadTimes(PassTimes):
    """Passes of a draft head are timed on the target's device; its squares count with its LM
    head.
    """

    def __init__(
        self, layers: PricedLayers, head: DraftHead, drafting: Drafting | None = None
    ) -> None:
        super().__init__(layers, "draft head", 0, 0, drafting)
        self.head = head
        self.kinds = {head.layer(self.place.model): head.layers}

    @property
    def _own_lm_head(self) -> bool:
        return self.head.vocabulary is not None

    @cached_property
    def _widened(self) -> Placement:
        """Return the placement with an LM head as wide as the draft head's."""
        model = self.place.model
        widened = model.model_copy(update={"vocab_size": self.head.width(model)})
        return self.place.model_copy(update={"model": widened})

    def _logit_rows(self, rows: Rows) -> int:
        """Return the rows that get logits: those that need them."""
        return rows.logit_rows

    def _beside_layers(
        self, tokens: int, logit_rows: int, many_rows: bool
    ) -> tuple[float, float, float]:
        """Return the seconds of the matrices beside the layers, of collectives, and of the host."""
        place = self.place
        head = self.head
        matrices = head.squares * side_product_time(place, tokens, place.model.hidden_size)
        if head.rank:
            matrices += 2 * side_product_time(place, tokens, head.rank)
        if head.transition:
            matrices += transition_time(place, tokens, head.transition)
        if logit_rows:
            matrices += head_time(self._widened, logit_rows)
        collectives = all_reduce_time(place, tokens) * place.collectives.count * self._reduced
        host = place.engine.host_seconds(head.layers, many_rows, tokens)
        if head.layers or logit_rows:  # a block between two heads is called with the one before it
            host += place.engine.pass_seconds()
        return matrices, collectives, host


@dataclass(frozen=True)
class HardwareCost:
    """A hardware cost composes times from models, devices, links and engines; what no context
    changes is worked out once.
    """

    target_place: Placement
    """Where the target runs."""
    draft_place: Placement | None = None
    """Where the draft model runs; None: there is none."""
    channel: Link | None = None
    """The link between target and draft; None: they are on one machine."""
    contention: float = 1.0
    """How many times as long target and draft take while both are busy."""
    drafting: Drafting | None = None
    """How the drafts come about that a pass of the target verifies; it decides what the engine's
    host adds to the step.
    """
    random: np.random.Generator | None = None
    """Generator from which the jitter of links is drawn; None: jitter is at its mean."""
    reads_context: ClassVar[bool] = True
    _layers: dict[str, PricedLayers] = field(default_factory=dict, repr=False, compare=False)
    """Times of layers, by what they belong to; stages on equal devices have the same."""
    _passes: dict[tuple[str, int, int], PassTimes] = field(
        default_factory=dict, repr=False, compare=False
    )
    """Times of passes, by what they belong to, and from which layer to before which."""
    _read_by_draft: dict[Rows, Phase] = field(default_factory=dict, repr=False, compare=False)
    """Passes of the draft over prompts, many of which are equally long."""
    _otherwise: dict[Drafting, Self] = field(default_factory=dict, repr=False, compare=False)
    """This cost of steps that are drafted otherwise."""

    def drafted_by(self, drafting: Drafting) -> Self:
        """Return the cost of steps whose drafts come about in this way; layers are shared."""
        if drafting == self.drafting:
            return self
        if drafting not in self._otherwise:
            self._otherwise[drafting] = replace(
                self, drafting=drafting, _passes={}, _read_by_draft={}, _otherwise={}
            )
        return self._otherwise[drafting]

    def target(self, rows: Rows, start: Depth = 0.0, stop: Depth = 1.0) -> Phase:
        """Return the phase of one pass of the target from ``start`` to ``stop``; on a pipeline, of
        all its stages in turn.
        """
        place = self.target_place
        if place.offload and len(place.segments) > 1:
            return self._in_segments(rows, place.layer(start), place.layer(stop))
        if not place.on_stages:
            return self._between("target", start, stop).phase(rows)
        passes = []
        for index in range(self.stages):
            passes.append(self.stage(index, rows))
        transfers = ordered_sum(self.carry(index, rows.tokens) for index in range(self.stages - 1))
        return together(*passes, Phase(transfers, {CARRIED: transfers}))

    def _in_segments(self, rows: Rows, first: int, last: int) -> Phase:
        """Return the phase of a pass through the layers from ``first`` to before ``last``, of which
        some lie elsewhere.
        """
        place = self.target_place
        crossing = message_bytes(place.model, rows.tokens)
        phases = list[Phase]()
        behind: Offload | None = None
        for segment in place.segments:
            begin = max(first, segment.first)
            end = min(last, segment.last)
            if begin >= end:
                continue
            there = segment.offload
            if there and there.copies(rows.tokens):
                size = place.layer_bytes(begin, end, place.model.experts_read(rows))
                copied = there.link.transfer_seconds(size)
                phases.append(Phase(copied, {CARRIED: copied}))
                there = None
            crossed = behind or there
            if phases and crossed and behind is not there:
                carried = crossed.link.transfer_seconds(crossing)
                phases.append(Phase(carried, {CARRIED: carried}))
            behind = there
            if there:
                role = f"offload from {segment.first}"
                passed = self._times(role, segment.place, begin, end).phase(rows)
                phases.append(Phase(passed.wall_s, {ELSEWHERE: passed.wall_s}))
            else:
                phases.append(self._times("target", place, begin, end).phase(rows))
        return together(*phases)

    @property
    def method_host_ratio(self) -> float:
        """Return the host time of a method's own, relative to what its file states."""
        return (
            self.target_place.engine.method_host_ratio.value
            * self.target_place.engine.host_ratio.value
        )

    @property
    def outside_s(self) -> float:
        """Return the seconds of a request outside of the target's engine before its first token is
        seen.
        """
        return self.target_place.engine.outside_ms.value * 1e-3

    @property
    def stages(self) -> int:
        """Return the number of stages of the target's pipeline; 0 without a pipeline."""
        return len(self.target_place.on_stages)

    def stage(self, index: int, rows: Rows) -> Phase:
        """Return the phase of the layers of one stage on its device, the last stage with the LM
        head.

        Raises :class:`BadInput` where the target has no pipeline.
        """
        pipeline = self.target_place.pipeline
        if pipeline is None:
            raise BadInput(
                [Fault(("scenario", 0, 0), "target.pipeline", "is required and missing")]
            )
        place = self.target_place.on_stages[index]
        return self._times(f"stage {index + 1}", place, *pipeline.bounds[index]).phase(rows)

    def carry(self, index: int, tokens: int) -> float:
        """Return the seconds of the link behind a stage: latency, and hidden states over bandwidth
        (SP-9).
        """
        pipeline = self.target_place.pipeline
        size = message_bytes(self.target_place.model, tokens)
        if pipeline:
            return pipeline.links[index].transfer_seconds(size, self.random)
        return 0.0

    def token(self) -> float:
        """Return the seconds in which every link carries a token id, all at the same time: those of
        the slowest.
        """
        pipeline = self.target_place.pipeline
        if pipeline:
            return max(link.transfer_seconds(TOKEN_BYTES, self.random) for link in pipeline.links)
        return 0.0

    @cached_property
    def jitters(self) -> bool:
        """Return whether a link between stages has a jitter."""
        pipeline = self.target_place.pipeline
        if pipeline:
            return any(link.jitter is not None for link in pipeline.links)
        return False

    def drawn(self, seed: int) -> Self:
        """Return this cost with the jitter of links drawn from ``seed``; the cached times are
        shared.
        """
        if self.jitters:
            return replace(self, random=np.random.default_rng(seed))
        return self

    def draft(
        self, rows: Rows, purpose: Purpose = "window", start: Depth = 0.0, stop: Depth = 1.0
    ) -> Phase:
        """Return the phase of one pass of the draft from ``start`` to ``stop``, whatever the
        purpose.

        Raises :class:`BadInput` without a draft.
        """
        return self._between("draft", start, stop).phase(rows)

    def head(self, head: DraftHead, rows: Rows) -> Phase:
        """Return the phase of one pass of a draft head on the target's device."""
        layers = self._layers_of("target", self.target_place)
        return layers.head_passes(head, self.drafting).phase(rows)

    def prefill(self, role: Role, rows: Rows) -> Phase:
        """Return the phase of a pass of ``role`` over prompts; it takes no time where the role has
        no model.
        """
        if role == "target":
            return self.target(rows)
        if self.draft_place is None:
            return Phase(0.0, {})
        phase = self._read_by_draft.get(rows)
        if phase is None:
            make_room(self._read_by_draft)
            phase = self._read_by_draft[rows] = self.draft(rows)
        return phase

    def rendezvous(self, at: Literal["ee", "fv"], logit_rows: int, payload_bytes: float) -> Phase:
        """Return the phase of a rendezvous, which ends in a transfer.

        At ``ee`` the exit adapter H -> H/2 -> H, the shared LM head and sampling come before it.
        """
        transfer = self.channel.transfer_seconds(payload_bytes) if self.channel else 0.0
        if at == "fv":
            return Phase(transfer, {})
        place = self.target_place
        product = products(place)
        adapter = product.timed(
            *product.work(0.0, 0.0, logit_rows, float(place.model.hidden_size**2))
        )
        exit_head = adapter + head_time(place, logit_rows)
        return Phase(exit_head + transfer, {"target compute": exit_head})

    def copy(self, tokens: int) -> float:
        """Return the seconds to read and write every byte of the draft's cache of ``tokens``
        once.
        """
        place = self.draft_place
        if place:
            return 2.0 * place.kv_gb(tokens) / place.device.memory_bandwidth_gb_s.value
        return 0.0

    @cached_property
    def _between(self) -> Callable[[Role, Depth, Depth], PassTimes]:
        """Return :meth:`_passes_between`, remembered; the layer 1 is another depth than the share
        1.0.
        """
        return lru_cache(REMEMBERED, typed=True)(self._passes_between)

    def _passes_between(self, role: Role, start: Depth, stop: Depth) -> PassTimes:
        """Return the times of passes of a role from one depth to another; raises :class:`BadInput`
        without a draft.
        """
        place = self.target_place if role == "target" else self.draft_place
        if place is None:
            raise BadInput([Fault(("scenario", 0, 0), "draft", "this strategy needs a draft")])
        return self._times(role, place, place.layer(start), place.layer(stop))

    def _times(self, role: str, place: Placement, first: int, last: int) -> PassTimes:
        """Return the times of passes of a role through the layers from ``first`` to before
        ``last``.
        """
        key = (role, first, last)
        times = self._passes.get(key)
        if times is None:
            drafting = None if role.startswith("stage") else self.drafting
            times = self._layers_of(role, place).passes(role, first, last, drafting)
            self._passes[key] = times
        return times

    def _layers_of(self, role: str, place: Placement) -> PricedLayers:
        """Return the times of the layers of a role; stages on equal devices share them."""
        if role not in self._layers:
            self._layers[role] = self._equal_stage(role, place) or priced_layers(place)
        return self._layers[role]

    def _equal_stage(self, role: str, place: Placement) -> PricedLayers | None:
        """Return the times of another stage's layers on an equal device; None without one."""
        if not role.startswith("stage"):
            return None
        for name, layers in self._layers.items():
            if name.startswith("stage") and layers.place.device == place.device:
                return layers
        return None
