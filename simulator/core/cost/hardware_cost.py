"""Hardware sets the cost: how long a pass of a model over some tokens takes, and on what the time
is spent.

:class:`HardwareCost` composes a pass from operation groups on devices and links (p-norm roofline,
token tiles, host, collectives); :mod:`simulator.core.cost.stated` repeats durations that a scenario
states outright. All times are in seconds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from simulator.core.cost.device import Link
from simulator.core.cost.engine import Drafting
from simulator.core.cost.kernels import (
    LayerTime,
    all_reduce_time,
    attention_timer,
    exchange_time,
    head_time,
    layer_products,
    product_timer,
    side_product_time,
)
from simulator.core.cost.mixer import LayerKind, Mixer
from simulator.core.cost.model import DraftHead
from simulator.core.cost.partition import message_bytes
from simulator.core.cost.placement import Placement
from simulator.core.cost.protocol import Depth, Purpose, Role
from simulator.core.cost.rows import Phase, Rows, together
from simulator.core.faults import BadInput, Fault
from simulator.core.numeric import Numbers, ordered_sum

Timer = Callable[[Rows], Numbers]
"""From rows to seconds."""
REMEMBERED = 1 << 16
"""Number of passes whose times a cache keeps; a full cache is emptied, so that memory stays
bounded.
"""
TOKEN_BYTES = 4
"""Bytes of a token id on its way to the stages of a pipeline (assumed)."""


class PassParts(NamedTuple):
    """A pass consists of these parts, in seconds, and of attention."""

    layers: tuple[tuple[int, LayerTime, Timer], ...]
    """(number of layers, seconds of one of them, timer of its mixer), by kind of layer."""
    head: float
    """LM head and sampling."""
    collectives: float
    """Collectives."""
    host: float
    """The host's work for the pass."""


class PassTimes:
    """Passes of one model are timed where it is placed; the parts that depend on few numbers are
    computed once.

    Only attention depends on the cached tokens, which differ from step to step. Nothing is rounded:
    a cached part equals a new one.
    """

    def __init__(
        self,
        place: Placement,
        role: str,
        drafting: Drafting | None = None,
        alike: Self | None = None,
    ) -> None:
        self.place = place
        self.role = role
        self.drafts = drafting
        self._products: dict[tuple[int, LayerKind, int, float, float, int], LayerTime] = (
            alike._products if alike else {}
        )
        self._mixers: dict[Mixer | None, Timer] = {}
        self._kinds: dict[tuple[int, int], dict[LayerKind, int]] = {}
        self._splits = place.attention == "data_parallel"
        self._parts: dict[tuple[int, int, int, bool, int, int, float, float, int], PassParts] = {}
        self._drafting: dict[
            tuple[DraftHead, int, int, int, bool, float, float, int], PassParts
        ] = {}
        self._with_logits: dict[int, Placement] = {}
        """The same placement with an LM head of so many logits."""
        self._busy = tuple(f"{role} {use}" for use in ("compute", "collectives", "host"))

    def phase(self, rows: Rows, first: int, last: int) -> Phase:
        """Return the phase of the layers from ``first`` to before ``last``; the LM head belongs to
        the model's last layer.
        """
        if first >= last:
            return Phase(0.0, {})
        logit_rows = self.place.engine.logit_rows(rows)
        read = self.place.model.experts_read(rows)
        share = self.place.busiest_share(rows.sequences) if self._splits else 1.0
        key = (
            rows.tokens,
            logit_rows,
            rows.adapted,
            rows.tokens > rows.sequences,
            first,
            last,
            read,
            share,
            self._prompts(rows),
        )
        parts = self._parts.get(key)
        if parts is None:
            parts = self._parts[key] = self.parts(*key)
        return self._phase(
            rows,
            parts,
            self._step_seconds(rows) if last == self.place.model.num_hidden_layers else 0.0,
        )

    def _prompts(self, rows: Rows) -> int:
        """Return the rows of prompts where an engine prices them otherwise than those of a
        verification.
        """
        if self.place.engine.further_rows.value:
            return rows.prompt_tokens
        return 0

    def _step_seconds(self, rows: Rows) -> float:
        """Return the host's seconds in a step that verifies drafts, which it spends once the pass
        has ended.
        """
        requests = rows.sequences - rows.prompt_sequences
        verifies = rows.tokens - rows.prompt_tokens > requests
        if verifies:
            return self.place.engine.step_seconds(self.drafts, requests)
        return 0.0

    def parts(
        self,
        tokens: int,
        logit_rows: int,
        adapted: int,
        many_rows: bool,
        first: int,
        last: int,
        read: float,
        share: float = 1.0,
        prompt_rows: int = 0,
    ) -> PassParts:
        """Return the seconds of a pass that do not depend on the cached tokens; its rows read
        ``read`` experts of a layer.

        A ``share`` of the rows passes a rank's mixers.
        """
        place = self.place
        model = self.place.model
        if (first, last) not in self._kinds:
            self._kinds[first, last] = model.kinds(first, last)
        kinds = self._kinds[first, last]
        ends = last == model.num_hidden_layers
        collectives = all_reduce_time(place, tokens) * place.collectives.count
        if place.collectives.per == "layer":
            collectives = collectives * self._reduced(kinds)
        else:
            collectives = collectives * ends
        collectives += exchange_time(place, tokens) * sum(
            count for kind, count in kinds.items() if kind.experts
        )
        host = place.engine.host_seconds(
            sum(count * kind.parts for kind, count in kinds.items()) / 2, many_rows, tokens
        )
        if first == 0:
            host += place.engine.pass_seconds()
        if ends:
            host += place.engine.row_seconds(logit_rows)
        layers = self._layers(
            kinds, place.engine.captured(tokens), adapted, read, share, prompt_rows
        )
        return PassParts(layers, head_time(place, logit_rows) if ends else 0.0, collectives, host)

    def _reduced(self, kinds: Mapping[LayerKind, int]) -> float:
        """Return for how many layers all-reduces are due, of the usual two a layer.

        With data-parallel attention a layer gathers and scatters its rows around the MLP, as long
        as one all-reduce.
        """
        return (
            sum(
                count * (kind.parts - (kind.mixer is not None and self._splits))
                for kind, count in kinds.items()
            )
            / 2
        )

    def _layers(
        self,
        kinds: Mapping[LayerKind, int],
        tokens: int,
        adapted: int,
        read: float,
        share: float,
        prompt_rows: int,
    ) -> tuple[tuple[int, LayerTime, Timer], ...]:
        """Return for each kind the number of its layers, the seconds of one of them, which passes
        on equal devices share, and the timer of its mixer.
        """
        layers = []
        for kind, count in kinds.items():
            key = (tokens, kind, adapted, read, share, prompt_rows)
            layer = self._products.get(key)
            if layer is None:
                layer = self._products[key] = layer_products(self.place, *key)
            layers.append((count, layer, self._timer(kind.mixer)))
        return tuple(layers)

    def _timer(self, mixer: Mixer | None) -> Timer:
        """Return the timer of a mixer, the same one for equal mixers; that of no mixer says 0."""
        if mixer not in self._mixers:
            self._mixers[mixer] = attention_timer(self.place, mixer) if mixer else lambda rows: 0.0
        return self._mixers[mixer]

    def drafting(self, rows: Rows, head: DraftHead) -> Phase:
        """Return the phase of a pass of a draft head; its LM head runs where rows need logits."""
        read = self.place.model.experts_read(rows)
        share = self.place.busiest_share(rows.sequences) if self._splits else 1.0
        many_rows = rows.tokens > rows.sequences
        prompt_rows = self._prompts(rows)
        key = head, rows.tokens, rows.logit_rows, rows.adapted, many_rows, read, share, prompt_rows
        parts = self._drafting.get(key)
        if parts is None:
            parts = self._drafting[key] = self.drafting_parts(*key)
        return self._phase(rows, parts)

    def drafting_parts(
        self,
        head: DraftHead,
        tokens: int,
        logit_rows: int,
        adapted: int,
        many_rows: bool,
        read: float,
        share: float = 1.0,
        prompt_rows: int = 0,
    ) -> PassParts:
        """Return the seconds of a draft head's pass that do not depend on the cached tokens;
        squares count with the LM head.
        """
        place = self.place
        model = self.place.model
        matrices = head.squares * side_product_time(place, tokens, model.hidden_size)
        if head.rank:
            matrices += 2 * side_product_time(place, tokens, head.rank)
        if logit_rows:
            matrices += head_time(self._widened(head.width(model)), logit_rows)
        kinds = {head.layer(model): head.layers}
        collectives = (
            all_reduce_time(place, tokens) * place.collectives.count * self._reduced(kinds)
        )
        host = place.engine.host_seconds(head.layers, many_rows, tokens)
        if head.layers or logit_rows:  # a block between two heads is called with the one before it
            host += place.engine.pass_seconds()
        layers = self._layers(
            kinds, place.engine.captured(tokens), adapted, read, share, prompt_rows
        )
        return PassParts(layers, matrices, collectives, host)

    def _widened(self, logits: int) -> Placement:
        """Return the placement with an LM head of so many logits in a row."""
        if logits not in self._with_logits:
            model = self.place.model.model_copy(update={"vocab_size": logits})
            self._with_logits[logits] = self.place.model_copy(update={"model": model})
        return self._with_logits[logits]

    def _phase(self, rows: Rows, parts: PassParts, step: float = 0.0) -> Phase:
        device = parts.head
        taken = dict[Timer, Numbers]()
        if self._splits:
            mixed = rows.on_rank(self.place.busiest_share(rows.sequences))
        else:
            mixed = rows
        for layers, layer, timer in parts.layers:
            if timer not in taken:
                taken[timer] = timer(mixed)
            device += layers * (layer.qkv + taken[timer] + layer.output + layer.mlp + layer.small)
        collectives = parts.collectives
        host = parts.host
        compute_lane, collectives_lane, host_lane = self._busy
        wall = self.place.engine.wall_seconds(host, device + collectives) + step
        if (
            self.role.startswith("draft")
            and self.place.tensor_parallel > 1
            and not rows.prompt_tokens
        ):
            wall = wall * self.place.engine.sharded_draft_ratio.value
        return Phase(
            wall, {compute_lane: device, collectives_lane: collectives, host_lane: host + step}
        )


@dataclass(frozen=True)
class HardwareCost:
    """A hardware cost composes times from models, devices, links and engines; the times of recent
    passes are cached.
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
    _passes: dict[tuple[Any, ...], Phase] = field(default_factory=dict, repr=False)
    _times: dict[str, PassTimes] = field(default_factory=dict, repr=False)

    def target(self, rows: Rows, start: Depth = 0.0, stop: Depth = 1.0) -> Phase:
        """Return the phase of one pass of the target from ``start`` to ``stop``; on a pipeline, of
        all its stages in turn.
        """
        place = self.target_place
        if self.stages:
            return self._through(rows)
        return self._pass("target", place, rows, place.layer(start), place.layer(stop))

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
        return self._pass(
            f"stage {index + 1}", self.target_place.on_stages[index], rows, *pipeline.bounds[index]
        )

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

    def _through(self, rows: Rows) -> Phase:
        """Return the phase of one pass through all stages, one after the other."""
        passes = []
        for index in range(self.stages):
            passes.append(self.stage(index, rows))
        transfers = ordered_sum(self.carry(index, rows.tokens) for index in range(self.stages - 1))
        return together(*passes, Phase(transfers, {"target links": transfers}))

    def draft(
        self, rows: Rows, purpose: Purpose = "window", start: Depth = 0.0, stop: Depth = 1.0
    ) -> Phase:
        """Return the phase of one pass of the draft from ``start`` to ``stop``, whatever the
        purpose.

        Raises :class:`BadInput` without a draft.
        """
        place = self.draft_place
        if place is None:
            raise BadInput([Fault(("scenario", 0, 0), "draft", "this strategy needs a draft")])
        return self._pass("draft", place, rows, place.layer(start), place.layer(stop))

    def head(self, head: DraftHead, rows: Rows) -> Phase:
        """Return the phase of one pass of a draft head on the target's device."""
        if "head" not in self._times:
            self._times["head"] = PassTimes(self.target_place, "draft head")
        return self._remembered(self._times["head"].drafting, rows, head)

    def prefill(self, role: Role, rows: Rows) -> Phase:
        """Return the phase of a pass of ``role`` over prompts; it takes no time where the role has
        no model.
        """
        if role == "draft":
            if self.draft_place:
                return self.draft(rows)
            return Phase(0.0, {})
        return self.target(rows)

    def rendezvous(self, at: Literal["ee", "fv"], logit_rows: int, payload_bytes: float) -> Phase:
        """Return the phase of a rendezvous, which ends in a transfer.

        At ``ee`` the exit adapter H -> H/2 -> H, the shared LM head and sampling come before it.
        """
        transfer = self.channel.transfer_seconds(payload_bytes) if self.channel else 0.0
        if at == "fv":
            return Phase(transfer, {})
        place = self.target_place
        adapter = product_timer(place, place.weights)(
            0.0, 0.0, logit_rows, float(place.model.hidden_size**2)
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

    def _pass(self, role: str, place: Placement, rows: Rows, first: int, last: int) -> Phase:
        if role not in self._times:
            stages = (
                times for name, times in self._times.items() if name[:5] == role[:5] == "stage"
            )
            alike = next((times for times in stages if times.place.device == place.device), None)
            self._times[role] = PassTimes(
                place, role, self.drafting if role == "target" else None, alike
            )
        return self._remembered(self._times[role].phase, rows, first, last)

    def _remembered(self, price: Callable[..., Phase], rows: Rows, *more: Any) -> Phase:
        """Return what ``price`` gives for ``rows``, once for equal ones; rows of many steps at once
        are priced anew.
        """
        if isinstance(rows.kv_tokens, np.ndarray):
            return price(rows, *more)
        key = (price, rows, *more)
        phase = self._passes.get(key)
        if phase is None:
            if len(self._passes) >= REMEMBERED:
                self._passes.clear()
            phase = self._passes[key] = price(rows, *more)
        return phase
