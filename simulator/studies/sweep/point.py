"""One point of a sweep: what an evaluator finds, or what is wrong with it.

A point lays its settings over the base scenario and is checked like a file, which costs what it changes. Autoregressive
baselines are kept for the points that share them.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from functools import lru_cache
from time import perf_counter
from typing import NamedTuple

from simulator.acceptance.sources import Cycle
from simulator.files.schema import BadInput, Fault
from simulator.scenario import Loaded, run
from simulator.scenario.outcome import Outcome
from simulator.studies.sweep.axes import Point
from simulator.studies.sweep.base import Evaluator, Shared, SweepJob
from simulator.studies.sweep.executors import Bundle
from simulator.studies.sweep.key import Fields, canonical, code_version, digest, key_of
from simulator.studies.sweep.law_points import laws

SPECULATIVE = ("strategy", "method", "draft", "channel", "acceptance")
"""Fields of a scenario that autoregressive decoding of its requests does not depend on."""


class Row(NamedTuple):
    """What a point came to: its key, and either a fault or a number for each of the evaluator's metrics."""

    number: int
    key: bytes
    fault: str | None
    found: Mapping[str, float]


def evaluate_all(job: SweepJob, version: bytes, points: list[Point]) -> Bundle[Row]:
    """Every point in turn; raises :class:`BadInput` where this worker's code is not the ``version`` asked for."""
    if code_version() != version:
        message = f"a worker runs other code of specsim ({code_version().hex()[:8]}) than this process ({version.hex()[:8]})"
        raise BadInput([Fault(("--scheduler", 0, 0), "", message)])
    start = perf_counter()
    rows = _by_law(job, points) if job.evaluator == "law" else [evaluate(job, point) for point in points]
    return Bundle(rows, perf_counter() - start)


def _by_law(job: SweepJob, points: list[Point]) -> list[Row]:
    """Laws of many points at once; in halves where something is wrong, until that is alone."""
    try:
        found = laws(job.base, points)
    except Exception:  # whatever it is, the point that it belongs to says it
        if len(points) == 1:
            return [evaluate(job, points[0])]
        half = len(points) // 2
        return [*_by_law(job, points[:half]), *_by_law(job, points[half:])]
    return [Row(point.number, key, None, metrics) for point, (key, metrics) in zip(points, found, strict=True)]


def keys_of_all(job: SweepJob, points: list[Point]) -> Bundle[bytes | None]:
    """Key of every point; None where it cannot be told."""
    start = perf_counter()
    found = [_key(job, point) for point in points]
    return Bundle(found, perf_counter() - start)


def _key(job: SweepJob, point: Point) -> bytes | None:
    try:
        return key_of(job.base.point(point.settings)[1], job.evaluator)
    except Exception:  # whatever it is, the evaluation will say it
        return None


def evaluate(job: SweepJob, point: Point) -> Row:
    """One point; whatever goes wrong in it becomes its fault."""
    key = b""
    try:
        if job.evaluator == "law":
            [(key, metrics)] = laws(job.base, [point])
            return Row(point.number, key, None, metrics)
        loaded, fields = job.base.point(point.settings)
        key = key_of(fields, job.evaluator)
        return Row(point.number, key, None, EVALUATORS[job.evaluator](job.base.with_acceptance(loaded, fields), fields))
    except BadInput as error:
        kind = "infeasible" if error.exit_code == 3 else "bad input"
        fault = f"{kind}: {error.faults[0].field}: {error.faults[0].message}"
    except Exception as error:  # a crash belongs to its point, not to the sweep
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rpartition('simulator/')[2]}:{last.lineno}"
        fault = f"crashed: {type(error).__name__}: {error} ({where})"
    return faulty(job, point, fault, key)


def faulty(job: SweepJob, point: Point, fault: str, key: bytes = b"") -> Row:
    """The row of a point that came to nothing; one that is no scenario is known by its settings."""
    return Row(
        point.number, key or digest(canonical([job.document.data, point.settings]), job.evaluator, code_version()), fault, {}
    )


def replay(loaded: Loaded, fields: Fields) -> dict[str, float]:
    """The recorded acceptance walked, each step timed by the law; BadInput where several steps are in flight."""
    scenario = loaded.scenario
    if scenario.schedule.needs.in_flight > 1:
        message = (
            f"{scenario.strategy.name} has {scenario.schedule.needs.in_flight} steps in flight, which only a simulation follows"
        )
        raise BadInput([Fault((scenario.name, 0, 0), "strategy", message)])
    return _outcome(run.replay(scenario, loaded.acceptance()), _baseline_of(loaded, fields, "replay"))


def simulation(loaded: Loaded, fields: Fields) -> dict[str, float]:
    """Every step booked on the event engine."""
    scenario = loaded.scenario
    return _outcome(run.simulate(scenario, loaded.acceptance())[0], _baseline_of(loaded, fields, "simulation"))


EVALUATORS: dict[Evaluator, Callable[[Loaded, Fields], dict[str, float]]] = {
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


def _baseline_of(loaded: Loaded, fields: Fields, evaluator: Evaluator) -> Outcome:
    """Autoregressive decoding of the same requests on the same target; strategy, draft and acceptance do not matter to it."""
    requests = loaded.scenario.requests
    drawn = requests.arrivals or not (isinstance(requests.prompt_tokens, int) and isinstance(requests.output_tokens, int))
    free = SPECULATIVE if drawn or loaded.scenario.cost.jitters else (*SPECULATIVE, "seed")
    plain = {name: part for name, part in fields.items() if name not in free}
    return _baseline(Shared(key_of(plain, evaluator), loaded), evaluator)


@lru_cache(maxsize=1_024)
def _baseline(shared: Shared, evaluator: Evaluator) -> Outcome:
    plain = run.plain(shared.loaded.scenario)
    return run.replay(plain, Cycle((0,))) if evaluator == "replay" else run.simulate(plain, Cycle((0,)))[0]
