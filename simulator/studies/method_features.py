"""The features by which methods differ (SpecPipe, Table 2), worked out from their data: ``specsim
list method``.

* *Draft adds no latency*: by the method's own law, a step gets no longer when its drafting takes 1
  ms instead of nothing and the target 1 s. What the host does in series counts as drafting; rows in
  the target's own pass do not.
* *No training*: it adds no weights to those of the target, and does not tune the target.
* *Large batch*: a program runs it for several requests at once, which the method's file names.
* *Dynamic draft*: what the draft says decides how many tokens, or which tree of them, it proposes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from simulator.core.acceptance.sources import Rates, odds_of
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.stated import StatedCost, StatedDurations
from simulator.core.plain import PlainData
from simulator.core.strategies import Strategy
from simulator.core.strategies.common.base import early_exit
from simulator.core.strategies.common.capabilities import NamesRecording, extra_memory
from simulator.core.strategies.common.method import Method
from simulator.core.strategies.common.step import Kind, Step
from simulator.inputs.catalogue import Catalogue, shown
from simulator.inputs.document import read
from simulator.inputs.schema import Model, validate
from simulator.scenario import AnyStrategy

REFERENCE = "vicuna_7b"
"""The target whose extra weights a table shows."""
STAGES = 8
TARGET_MS = 1e3
DRAFT_MS = 1.0


class MethodFile(Method):
    """Describes a method: what is published about it, and the strategy that runs it."""

    strategy: AnyStrategy
    """The strategy that runs the method, with its settings."""


@dataclass(frozen=True)
class Features:
    """Holds a row of the table of methods."""

    about: str
    strategy: str
    adds_no_latency: bool
    no_training: bool
    large_batch: bool
    dynamic_draft: bool
    verified_rows: int
    """Rows of the target's pass in a step of a single request."""
    extra_weights: int
    """Number of weights that a 7B target needs in addition."""
    acceptance: str
    """Where acceptance may come from: ``recorded``, a ``published`` mean, ``both``, or only
    ``yours``, in words.
    """


def read_method(path: Path) -> MethodFile:
    """Return the checked file of a method. Raises :class:`BadInput` for a faulty file."""
    return read_named(MethodFile, path)


def read_named(into: type[Model], path: Path) -> Model:
    """Return a checked file, called like itself where it states no name. Raises :class:`BadInput`
    for a faulty file.
    """
    document = read(path, shown(path))
    document.data.setdefault("name", path.stem)
    return validate(into, document)


def features(catalogue: Catalogue) -> Iterator[tuple[str, Features]]:
    """Yield name and features of all methods of the catalogue."""
    target = read_named(ModelSpec, catalogue.names("model")[REFERENCE])
    for name, path in catalogue.names("method").items():
        yield name, features_of(read_method(path), target)


def features_of(method: MethodFile, target: ModelSpec) -> Features:
    """Return the features of a method, with the extra weights for ``target``."""
    if method.strategy.traits.staged:
        strategy = method.strategy.fitted_to(stages=STAGES)
    else:
        strategy = method.strategy
    weights = extra_memory(strategy, target).weights
    idle, drafting = (_step_s(strategy, ms) for ms in (0.0, DRAFT_MS))
    return Features(
        about=method.about,
        strategy=strategy.name,
        adds_no_latency=drafting <= idle,
        no_training=not (weights or method.tunes_target),
        large_batch=bool(method.batched_by),
        dynamic_draft=strategy.needs.dynamic_draft,
        verified_rows=_rows(strategy),
        extra_weights=weights,
        acceptance=_acceptance(method),
    )


def _step_s(strategy: Strategy, draft_ms: float) -> float:
    """Return the law's step in s of a request whose drafts are all kept, with a target far slower
    than the draft.

    The host's part of a step is left out where nothing is drafted: it looks up and builds what is
    proposed.
    """
    whole: PlainData
    if strategy.traits.staged:
        whole = {"stages_ms": (TARGET_MS / STAGES,) * STAGES}
    else:
        whole = {"prefix_ms": TARGET_MS, "suffix_ms": TARGET_MS}
    cost = StatedCost(
        StatedDurations(**whole, draft_ms=draft_ms, redraft_ms=0.0),
        max(1, strategy.needs.draft_steps),
    )
    kind, step = _main(strategy)
    durations = strategy.durations(cost, step)
    if not draft_ms and "host" in durations._fields:
        durations = durations._replace(host=0.0)
    return float(strategy.step_seconds(durations, kind))


def _main(strategy: Strategy) -> tuple[Kind, Step]:
    """Return the commonest kind and step of a request whose drafts are all kept."""
    acceptance = strategy.reads(Rates((1.0,)))
    kinds = strategy.kinds(odds_of(acceptance, early_exit(strategy, None)), 1)
    kind = max(kinds, key=lambda kind: (kinds[kind], kind.verifying))
    return kind, strategy.step(kind, 0)


def _rows(strategy: Strategy) -> int:
    """Return the rows of the target's pass, or of the fullest stage of a pipeline."""
    step = _main(strategy)[1]
    return max((load.tokens for load in step.loads), default=step.rows.tokens)


def _acceptance(method: MethodFile) -> str:
    """Return where acceptance can come from without the user's own numbers."""
    strategy = method.strategy
    recorded = True
    if isinstance(strategy, NamesRecording):
        recorded = not strategy.borrows_recording and strategy.recorded_drafter is not None
    if recorded:
        if method.published:
            return "both"
        return "recorded"
    if method.published:
        return "published"
    return "yours"
