"""Evaluate one point of a sweep: its metrics, or what is wrong with it.

A point lays its settings over the base scenario and is checked like a file, which costs what it
changes. Autoregressive baselines are kept for the points that share them.
"""

import traceback
from collections.abc import Callable, Mapping
from functools import lru_cache
from time import perf_counter
from typing import NamedTuple

from simulator.core.faults import BadInput
from simulator.core.numeric import quotient
from simulator.core.package_errors import raised_in_package
from simulator.scenario import Loaded, Scenario, evaluate
from simulator.scenario.outcome import Outcome
from simulator.scenario.result.run_result import speedup_between
from simulator.studies.sweep.axes import Point
from simulator.studies.sweep.base import Evaluator, Shared, SweepJob
from simulator.studies.sweep.executors import Bundle
from simulator.studies.sweep.key import Fields, canonical, code_version, digest, key_of
from simulator.studies.sweep.law_points import laws

SPECULATIVE = ("strategy", "method", "draft", "channel", "acceptance")
"""Fields of a scenario that autoregressive decoding of its requests does not depend on."""


class Row(NamedTuple):
    """Holds the result of a point: its key, and either a fault or a number for each of the
    evaluator's metrics.
    """

    number: int
    key: bytes
    fault: str | None
    metrics: Mapping[str, float | None]


def evaluate_all(job: SweepJob, version: bytes, points: list[Point]) -> Bundle[Row]:
    """Return the row of every point; raises :class:`BadInput` where this worker's code is not the
    ``version`` asked for.
    """
    if code_version() != version:
        theirs = code_version().hex()[:8]
        ours = version.hex()[:8]
        message = f"a worker runs other code of specsim ({theirs}) than this process ({ours})"
        raise BadInput.at("--scheduler", message)
    start = perf_counter()
    if job.evaluator == "law":
        rows = _by_law(job, points)
    else:
        rows = [row_at(job, point) for point in points]
    return Bundle(rows, perf_counter() - start)


def _by_law(job: SweepJob, points: list[Point]) -> list[Row]:
    """Return the rows of many points at once; in halves where a point is wrong, until that point is
    alone.
    """
    try:
        results = laws(job.base, points)
    except Exception:  # whatever it is, the point that it belongs to says it
        if len(points) == 1:
            return [row_at(job, points[0])]
        half = len(points) // 2
        return [*_by_law(job, points[:half]), *_by_law(job, points[half:])]
    rows = []
    for point, (key, metrics) in zip(points, results, strict=True):
        rows.append(Row(point.number, key, None, metrics))
    return rows


def keys_of_all(job: SweepJob, points: list[Point]) -> Bundle[bytes | None]:
    """Return the key of every point; None for a point that is no scenario."""
    start = perf_counter()
    keys = [_key(job, point) for point in points]
    return Bundle(keys, perf_counter() - start)


def _key(job: SweepJob, point: Point) -> bytes | None:
    try:
        _, fields = job.base.point(point.settings)
        return key_of(fields, job.evaluator)
    except Exception:  # whatever it is, the evaluation will say it
        return None


def row_at(job: SweepJob, point: Point) -> Row:
    """Return the row of one point; whatever goes wrong in it becomes its fault."""
    key = b""
    try:
        if job.evaluator == "law":
            [(key, metrics)] = laws(job.base, [point])
            return Row(point.number, key, None, metrics)
        loaded, fields = job.base.point(point.settings)
        key = key_of(fields, job.evaluator)
        run_point = EVALUATORS[job.evaluator]
        measured = run_point(job.base.with_acceptance(loaded, fields), fields)
        return Row(point.number, key, None, measured)
    except BadInput as error:
        kind = "bad input"
        if error.exit_code == 3:
            kind = "infeasible"
        first = error.faults[0]
        fault = f"{kind}: {first.field}: {first.message}"
    except Exception as error:  # a crash belongs to its point, not to the sweep
        fault = f"crashed: {_crash(error)}"
    return faulty(job, point, fault, key)


def _crash(error: Exception) -> str:
    """Return what raised, where: at the package whose code it is, or in our module."""
    package = raised_in_package(error)
    if package is not None:
        return str(package)
    last = traceback.extract_tb(error.__traceback__)[-1]
    _, _, module = last.filename.rpartition("simulator/")
    return f"{type(error).__name__}: {error} ({module}:{last.lineno})"


def faulty(job: SweepJob, point: Point, fault: str, key: bytes = b"") -> Row:
    """Return the row of a point that failed; without a ``key``, its settings make one."""
    if not key:
        stated = canonical([job.document.data, point.settings])
        key = digest(stated, job.evaluator, code_version())
    return Row(point.number, key, fault, {})


def replay(loaded: Loaded, fields: Fields) -> dict[str, float | None]:
    """Return metrics of a walk over recorded acceptance, each step timed by the law.

    Raises :class:`BadInput` where several steps are in flight.
    """
    scenario = loaded.scenario
    in_flight = scenario.schedule.needs.in_flight
    if in_flight > 1:
        has = f"{scenario.strategy.name} has {in_flight} steps in flight"
        raise BadInput.at(scenario.name, f"{has}, which only a simulation follows", "strategy")
    outcome = evaluate.replay(scenario, loaded.acceptance())
    return _metrics(scenario, outcome, _baseline_of(loaded, fields, "replay"))


def simulation(loaded: Loaded, fields: Fields) -> dict[str, float | None]:
    """Return metrics of a run in which every step is booked on the event engine."""
    outcome, *_ = evaluate.simulate(loaded.scenario, loaded.acceptance())
    return _metrics(loaded.scenario, outcome, _baseline_of(loaded, fields, "simulation"))


EVALUATORS: dict[Evaluator, Callable[[Loaded, Fields], dict[str, float | None]]] = {
    "replay": replay,
    "simulation": simulation,
}


def _metrics(scenario: Scenario, outcome: Outcome, baseline: Outcome) -> dict[str, float | None]:
    """Return all of :data:`~simulator.studies.sweep.metrics.METRICS` of a run; None where it could
    not measure one.
    """
    serving = outcome.serving
    return {
        "tpot_ms": outcome.tpot_s * 1e3,
        "tokens_per_s": outcome.tokens_per_s,
        "speedup": speedup_between(scenario, outcome, baseline),
        "tokens_per_step": outcome.tokens_per_step,
        "step_ms": outcome.step_s * 1e3,
        "speedup_with_prompts": quotient(outcome.tokens_per_s, baseline.tokens_per_s),
        "ttft_ms": outcome.ttft_s * 1e3,
        "ttft_p99_ms": serving.ttft.quantile(0.99) * 1e3,
        "tbt_p99_ms": serving.tbt.quantile_ms(0.99),
        "e2e_ms": serving.e2e.mean * 1e3,
        "mean_batch": serving.mean_batch,
        "fallback_per_step": outcome.fallback_per_step,
    }


def _baseline_of(loaded: Loaded, fields: Fields, evaluator: Evaluator) -> Outcome:
    """Return autoregressive decoding of the same requests on the same target, which no draft and no
    acceptance changes.
    """
    requests = loaded.scenario.requests
    lengths = (requests.prompt_tokens, requests.output_tokens)
    drawn = requests.varies or not all(isinstance(length, int) for length in lengths)
    free = {*SPECULATIVE}
    if not drawn and not loaded.scenario.cost.jitters:
        free.add("seed")
    plain = {name: part for name, part in fields.items() if name not in free}
    return _baseline(Shared(key_of(plain, evaluator), loaded), evaluator)


@lru_cache(maxsize=1_024)
def _baseline(shared: Shared, evaluator: Evaluator) -> Outcome:
    plain = evaluate.plain(shared.loaded.scenario)
    if evaluator == "replay":
        return evaluate.replay(plain, evaluate.NO_DRAFTS)
    return evaluate.simulate(plain, evaluate.NO_DRAFTS)[0]
