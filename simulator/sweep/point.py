"""One point of a sweep: its scenario, its key and what an evaluator finds, or what is wrong with it.

A process reads the base scenario's files once. A point lays its settings over a copy of the document and is checked like a
file: about a millisecond. Acceptance and autoregressive baselines are kept for the points that share them.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from time import perf_counter
from typing import Literal, NamedTuple

from simulator import run
from simulator.acceptance import Acceptance, Cycle
from simulator.catalogue import Catalogue
from simulator.outcome import Outcome
from simulator.scenario import Loaded, checked
from simulator.schema import BadInput, Document, Fault
from simulator.sweep.axes import Point, Settings
from simulator.sweep.executors import Bundle
from simulator.sweep.key import Fields, canonical, code_version, digest, fields_of, key_of
from simulator.variants import variant

Evaluator = Literal["law", "replay", "simulation"]
SPECULATIVE = ("strategy", "method", "draft", "channel", "acceptance")
"""Fields of a scenario that autoregressive decoding of its requests does not depend on."""


class Row(NamedTuple):
    """What a point came to: its key, and either a fault or a number for each of the evaluator's metrics."""

    number: int
    key: bytes
    fault: str | None
    found: Mapping[str, float]


@dataclass(frozen=True)
class Job:
    """What a worker is told beside the points: the base scenario before any axis, and who evaluates."""

    identity: str
    """Equal for equal bases: a worker reads the files of each once."""
    evaluator: Evaluator
    document: Document = field(compare=False)
    catalogue: Catalogue = field(compare=False)

    @property
    def base(self) -> Base:
        """What the points start from, read once by each worker."""
        return _base(self)


@dataclass(frozen=True)
class Base:
    """A scenario whose fields points set; digests of its fields, so that a point's key costs what the point changes."""

    loaded: Loaded
    catalogue: Catalogue
    fields: Fields

    def point(self, settings: Settings) -> tuple[Loaded, Fields]:
        """With fields set, and the digests of all fields; raises :class:`BadInput` or :class:`Infeasible`."""
        found = with_settings(self.loaded, settings, self.catalogue)
        return found, fields_of(found, self.catalogue, self.loaded.scenario.__dict__, self.fields)


@lru_cache(maxsize=8)
def _base(job: Job) -> Base:
    loaded = checked(deepcopy(job.document), job.catalogue)
    return Base(loaded, job.catalogue, fields_of(loaded, job.catalogue))


def with_settings(base: Loaded, settings: Settings, catalogue: Catalogue) -> Loaded:
    """The base with fields set: first what holds other fields that are set, as a strategy holds its window."""
    holders = {key for key in settings if any(other.startswith(f"{key}.") for other in settings)}
    for chosen in (holders, settings.keys() - holders):
        base = variant(base, {key: settings[key] for key in settings if key in chosen}, catalogue)
    return base


def evaluate_all(job: Job, version: bytes, points: list[Point]) -> Bundle[Row]:
    """Every point in turn; raises :class:`BadInput` where this worker's code is not the ``version`` asked for."""
    if code_version() != version:
        message = f"a worker runs other code of specsim ({code_version().hex()[:8]}) than this process ({version.hex()[:8]})"
        raise BadInput([Fault(("--scheduler", 0, 0), "", message)])
    start = perf_counter()
    rows = [evaluate(job, point) for point in points]
    return Bundle(rows, perf_counter() - start)


def keys_of_all(job: Job, points: list[Point]) -> Bundle[bytes | None]:
    """Key of every point; None where it cannot be told."""
    start = perf_counter()
    found = [_key(job, point) for point in points]
    return Bundle(found, perf_counter() - start)


def _key(job: Job, point: Point) -> bytes | None:
    try:
        return key_of(job.base.point(point.settings)[1], job.evaluator)
    except Exception:  # whatever it is, the evaluation will say it
        return None


def evaluate(job: Job, point: Point) -> Row:
    """One point; whatever goes wrong in it becomes its fault."""
    key = b""
    try:
        loaded, fields = job.base.point(point.settings)
        key = key_of(fields, job.evaluator)
        return Row(point.number, key, None, EVALUATORS[job.evaluator](_with_acceptance(loaded, fields), fields))
    except BadInput as error:
        kind = "infeasible" if error.exit_code == 3 else "bad input"
        fault = f"{kind}: {error.faults[0].field}: {error.faults[0].message}"
    except Exception as error:  # a crash belongs to its point, not to the sweep
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rpartition('simulator/')[2]}:{last.lineno}"
        fault = f"crashed: {type(error).__name__}: {error} ({where})"
    return faulty(job, point, fault, key)


def faulty(job: Job, point: Point, fault: str, key: bytes = b"") -> Row:
    """The row of a point that came to nothing; one that is no scenario is known by its settings."""
    return Row(
        point.number, key or digest(canonical([job.document.data, point.settings]), job.evaluator, code_version()), fault, {}
    )


def law(loaded: Loaded, fields: Fields) -> dict[str, float]:
    """The closed form with marginal acceptance rates."""
    scenario = loaded.scenario
    found = run.law(scenario, loaded.acceptance())
    return {
        "tpot_ms": found.tpot_s * 1e3,
        "tokens_per_s": scenario.batch / found.tpot_s,
        "speedup": run.baseline(scenario).tpot_s / found.tpot_s,
        "tokens_per_step": found.tokens_per_step,
        "step_ms": found.step_s * 1e3,
    }


def replay(loaded: Loaded, fields: Fields) -> dict[str, float]:
    """The recorded acceptance walked, each step timed by the law; BadInput where several steps are in flight."""
    scenario = loaded.scenario
    if scenario.schedule.in_flight > 1:
        message = f"{scenario.strategy.name} has {scenario.schedule.in_flight} steps in flight, which only a simulation follows"
        raise BadInput([Fault((scenario.name, 0, 0), "strategy", message)])
    return _outcome(run.replay(scenario, loaded.acceptance()), _baseline_of(loaded, fields, "replay"))


def simulation(loaded: Loaded, fields: Fields) -> dict[str, float]:
    """Every step booked on the event engine."""
    scenario = loaded.scenario
    return _outcome(run.simulate(scenario, loaded.acceptance())[0], _baseline_of(loaded, fields, "simulation"))


EVALUATORS: dict[Evaluator, Callable[[Loaded, Fields], dict[str, float]]] = {
    "law": law,
    "replay": replay,
    "simulation": simulation,
}


def _outcome(outcome: Outcome, baseline: Outcome) -> dict[str, float]:
    serving = outcome.serving
    return {
        "tpot_ms": outcome.tpot_s * 1e3,
        "tokens_per_s": outcome.tokens_per_s,
        "speedup": baseline.tpot_s / outcome.tpot_s,
        "tokens_per_step": outcome.tokens_per_step,
        "step_ms": outcome.step_s * 1e3,
        "speedup_with_prompts": outcome.tokens_per_s / baseline.tokens_per_s,
        "ttft_ms": outcome.ttft_s * 1e3,
        "ttft_p99_ms": serving.ttft.quantile(0.99) * 1e3,
        "tbt_p99_ms": serving.tbt.quantile(0.99) * 1e3,
        "e2e_ms": serving.e2e.mean * 1e3,
        "mean_batch": serving.mean_batch,
        "fallback_per_step": outcome.fallback_per_step,
    }


# ---- what points share


@dataclass(frozen=True)
class _Shared:
    """A scenario of which something is needed that is the same for all with this ``digest``."""

    digest: bytes
    loaded: Loaded = field(compare=False)


def _with_acceptance(loaded: Loaded, fields: Fields) -> Loaded:
    """With its acceptance read and its strategy tuned."""
    scenario = loaded.scenario
    sizes = canonical([scenario.seed, scenario.batch, scenario.stages, scenario.layers])
    shared = _Shared(digest(fields["acceptance"], fields["strategy"], sizes), loaded)
    return run.tuned(replace(loaded, known=_acceptance(shared)))


@lru_cache(maxsize=256)
def _acceptance(shared: _Shared) -> Acceptance:
    return shared.loaded.acceptance()


def _baseline_of(loaded: Loaded, fields: Fields, evaluator: Evaluator) -> Outcome:
    """Autoregressive decoding of the same requests on the same target; strategy, draft and acceptance do not matter to it."""
    plain = {name: part for name, part in fields.items() if name not in SPECULATIVE}
    return _baseline(_Shared(key_of(plain, evaluator), loaded), evaluator)


@lru_cache(maxsize=1_024)
def _baseline(shared: _Shared, evaluator: Evaluator) -> Outcome:
    plain = run.plain(shared.loaded.scenario)
    return run.replay(plain, Cycle((0,))) if evaluator == "replay" else run.simulate(plain, Cycle((0,)))[0]
