"""A trace file holds what a draft and the early exits of a target said about the tokens that the
target really emitted.

A compressed ``.npz`` without pickles. ``header`` is JSON as bytes; every other array is flat over
all positions of all requests, so that ``offsets[i] : offsets[i + 1]`` is request ``i``.
``arrays.yaml`` beside this module states type, shape and meaning of each; files are checked by it.
Arrays of further drafters have names with a dot (``Trace.extra``).

Ranks stop counting at 65,535. ``exit_layers`` and ``exit_rank`` are empty where no exits were
recorded.

Ranks break ties by the lower token id, so that the top-k sets are nested (MSD-6). All contexts are
the target's own output (teacher forcing), which is exact for chains: a proposal that is judged at
all stands behind accepted tokens only. Position 0 of a request is emitted by its prefill.

Format 2 is for converted records of other programs (:mod:`simulator.inputs.traces.converters`), in
which less is known. ``run`` is for drafters whose proposal depends on where it starts (EAGLE,
n-gram), so that agreement per position does not determine it. ``token``, ``draft_rank``, ``p`` and
``q`` may be empty, ``exit_rank`` may have no exits; in the header ``models`` may lack ``shape`` and
``parameters``, and ``vocabulary`` and ``temperature`` may be null. ``window`` in the header is the
largest window that the record can answer for; ``replay`` says how exactly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from simulator.core.plain import PlainMapping

FORMAT = 1
"""Version of the format that the recorder writes: every array in full."""
CONVERTED = 2
"""Version of the format of converted records: parts may be missing, and ``run`` may be there."""
UNKNOWN = 65_535
"""Rank of a position behind the end of a request."""
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Trace:
    """A trace is the recorded acceptance of one model pair at one temperature; the module names its
    arrays.
    """

    header: PlainMapping
    offsets: NDArray[np.int64]
    flavour: NDArray[np.uint8 | np.uint16]
    token: NDArray[Any]
    draft_rank: NDArray[np.uint16]
    p: NDArray[np.float16]
    q: NDArray[np.float16]
    exit_rank: NDArray[np.uint16]
    run: NDArray[np.uint16] | None = None
    extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    rule: Any = None
    """Rule by which trees are kept (:mod:`simulator.core.acceptance.lossy.rules`), where that is
    not the target's own choice; of chains ``run`` holds what it keeps.
    """

    @property
    def drafters(self) -> Sequence[str]:
        """Return the names of all recorded drafters; the first is that of ``draft_rank``."""
        names = set()
        for array in self.extra:
            name, _, _ = array.partition(".")
            if array.endswith((".rank", ".run")):
                names.add(name)
        return ("draft", *sorted(names))

    def drafted_by(self, name: str, seed: int = 0) -> Self:
        """Return the trace of the same text as the drafter called ``name`` proposed it; ``seed``
        draws sampled acceptance.
        """
        if name == "draft":
            return self
        models = self.header["models"]
        own_models = {"target": models.get("target", {}), "draft": models.get(name, {})}
        header = {**self.header, "models": own_models}
        if f"{name}.run" in self.extra:
            run = self.extra[f"{name}.run"]
            tree = self.header.get("trees", {}).get(name)
            if tree and "levels" in tree:
                header["window"] = tree["levels"]
            if run.ndim == 2:
                run = run[0]
            return self._by_run(header, run, name)
        rank = self.extra[f"{name}.rank"]
        q = self.extra.get(f"{name}.q")
        if rank.ndim == 1:
            own = {}
            for key, rows in self.extra.items():
                if key.startswith(f"{name}.rollout."):
                    own[key.removeprefix(f"{name}.")] = rows
            if q is None:
                q = self.q
            return replace(self, header=header, draft_rank=rank, q=q, extra=own)
        if self.temperature == 0 or q is None:
            kept = rank == 0
        else:
            kept = self._coupled(q, rank, seed)
        run = np.cumprod(kept, axis=0, dtype=np.uint16).sum(axis=0, dtype=np.uint16)
        return self._by_run({**header, "window": len(rank)}, run, name)

    def _by_run(self, header: PlainMapping, run: NDArray[np.uint16], name: str) -> Self:
        """Return the same text with the tokens kept by start, and how sure the drafter called
        ``name`` was of what it wrote, without the ranks of the first draft.
        """
        none = self.draft_rank[:0]
        sure = self.extra.get(f"{name}.rollout.q")
        own = {} if sure is None else {"rollout.q": sure}
        return replace(self, header=header, run=run, draft_rank=none, q=self.q[:0], extra=own)

    def _coupled(self, q: NDArray[np.float16], rank: NDArray[np.uint16], seed: int) -> Bools:
        """Return (depths, positions) draws by min(1, q/p); tokens behind the end of the recording
        are not kept.
        """
        depths, count = q.shape
        positions = np.arange(count) + np.arange(depths)[:, None]
        p = self.p.astype(np.float64)[np.minimum(positions, count - 1)]
        ratio = q.astype(np.float64) / np.maximum(p, 1e-12)
        drawn = np.random.default_rng(seed).random(q.shape) < ratio
        return np.asarray(drawn & (rank != UNKNOWN), dtype=bool)

    @property
    def positions(self) -> int:
        """Return the number of recorded tokens, those emitted by a prefill included."""
        return int(self.offsets[-1])

    @property
    def window(self) -> int | None:
        """Return the largest window, in draft tokens, that the trace can answer for; None: any."""
        window: int | None = self.header.get("window")
        return window

    @property
    def pair(self) -> str:
        """Return the recorded models, in words."""
        models = self.header["models"]
        roles = [role for role in ("target", "draft") if role in models]
        return " and ".join(_words(role, models[role]) for role in roles)

    @property
    def flavours(self) -> Sequence[str]:
        """Return the names of the recorded kinds of text."""
        return tuple(self.header["flavours"])

    @cached_property
    def exit_fractions(self) -> Sequence[float]:
        """Return the depth of every recorded early exit, as a share of the target's layers; empty
        where these are not known.
        """
        target = self.header["models"].get("target") or {}
        shape = target.get("shape") or {}
        layers = shape.get("layers")
        if layers:
            return tuple(layer / layers for layer in self.header["exit_layers"])
        return ()

    @property
    def vocabulary(self) -> int | None:
        """Return the number of tokens of the recorded pair's tokenizer; None where it is not
        known.
        """
        size: int | None = self.header["vocabulary"]
        return size

    @property
    def longest_context(self) -> int | None:
        """Return the most tokens of context behind which acceptance was recorded; None where
        prompts are not known.
        """
        prompts = self.header.get("prompts") or {}
        longest: int | None = self.header.get("prompt_tokens") or prompts.get("longest_tokens")
        if not longest:
            return longest
        return int(longest + np.diff(self.offsets).max())

    @property
    def temperature(self) -> float | None:
        """Return the temperature, 0 for greedy decoding; None where a converted record does not
        say.
        """
        temperature: float | None = self.header["temperature"]
        return temperature

    def accepted(self, seed: int) -> Bools:
        """Return (positions,) whether a draft token that is judged there is accepted.

        Greedy: whether the draft's first choice is the emitted token. Sampled: drawn once per seed
        with probability min(1, q/p), the chance that a draft token coupled to the emitted one
        equals it (X-2). With ``run``: whether a window that starts there keeps its first token. A
        derived trace has no p and q; its ranks hold the decisions that were drawn when it was made.
        """
        if self.run is not None:
            return np.greater(self.run, 0)
        if self.temperature == 0 or not len(self.p):
            return np.equal(self.draft_rank, 0)
        p = self.p.astype(np.float64)
        ratio = self.q.astype(np.float64) / np.maximum(p, 1e-12)
        uniform = np.random.default_rng(seed).random(len(ratio))
        return np.less(uniform, ratio)

    def on_exit(self, fraction: float, kappa: int) -> Bools:
        """Return (positions,) whether the emitted token is in the top kappa of the early exit at
        ``fraction``.
        """
        ranks = self.exit_rank[self.nearest_exit(fraction)]
        return np.asarray(ranks < kappa, dtype=bool)

    def nearest_exit(self, fraction: float) -> int:
        """Return the index of the recorded exit closest to ``fraction`` of the depth."""
        distances = [abs(fraction - recorded) for recorded in self.exit_fractions]
        return int(np.argmin(distances))

    @cached_property
    def requests_by_flavour(self) -> dict[str, list[int]]:
        """Return the request numbers of every flavour, in the order of the file."""
        names = self.flavours
        requests: dict[str, list[int]] = {name: [] for name in names}
        for request, code in enumerate(self.flavour.tolist()):
            requests[names[code]].append(request)
        return requests

    def named(self, name: str) -> list[int]:
        """Return the requests of a flavour, or the one called ``flavour/number``, counted from 1;
        none for an unknown name.
        """
        requests = self.requests_by_flavour
        if requests.get(name):
            return requests[name]
        flavour, _, number = name.rpartition("/")
        if not number.isdecimal() or len(number) >= 10:
            return []
        last = int(number)
        return requests.get(flavour, [])[max(0, last - 1) : last]

    def repetition(self, requests: Sequence[int] | None = None) -> float:
        """Return the share of four-token sequences that occur earlier in the same request; loops
        show here.
        """
        if requests is None:
            requests = range(len(self.flavour))
        repeated = 0
        total = 0
        for request in requests:
            start, end = self.offsets[request : request + 2]
            shifted = [self.token[start + place : end - 3 + place].tolist() for place in range(4)]
            grams = list(zip(*shifted, strict=True))
            repeated += len(grams) - len(set(grams))
            total += len(grams)
        if total:
            return repeated / total
        return 0.0


def _words(role: str, model: PlainMapping) -> str:
    """Return a recorded model in words."""
    if model.get("parameters"):
        return f"a {role} of {model['parameters']:,} parameters"
    if model.get("name"):
        return f"the {role} {model['name']}"
    return f"an unknown {role}"
