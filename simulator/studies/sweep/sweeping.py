"""Evaluate the points of a study that a store does not have yet."""

from collections.abc import Collection
from functools import partial

from simulator.core.parallel import counting
from simulator.studies.sweep.base import Evaluator
from simulator.studies.sweep.executors import Crew
from simulator.studies.sweep.key import code_version
from simulator.studies.sweep.metrics import METRICS
from simulator.studies.sweep.point import Row, evaluate_all, faulty, keys_of_all
from simulator.studies.sweep.store import DIED, Store
from simulator.studies.sweep.study import SweepStudy, kept, metric_of


def sweep(study: SweepStudy, store: Store, crew: Crew) -> None:
    """Run every evaluator over its points, and keep each bundle as soon as it is there.

    An interruption loses only the bundles under way.
    """
    store.begin(study.definition, study.identity)
    store.check(len(study.design), tuple(METRICS))
    for evaluator in study.file.evaluators:
        _evaluate(study, evaluator, chosen(study, store, evaluator), store, crew)


def chosen(study: SweepStudy, store: Store, evaluator: Evaluator) -> Collection[int]:
    """Return the numbers of the points that an evaluator looks at: all, or those that the law
    before it leaves.
    """
    if evaluator == study.file.evaluators[0]:
        return range(len(study.design))
    metric = metric_of(study.file.keep)
    return sorted(
        kept(study.file.keep, ((number, value) for number, _, value in store.rows("law", [metric])))
    )


def _evaluate(
    study: SweepStudy, evaluator: Evaluator, numbers: Collection[int], store: Store, crew: Crew
) -> None:
    """Recognise points whose result is in the store under another number, then evaluate the
    rest.
    """
    job = study.job(evaluator)
    done = store.done(evaluator)
    if not store.empty and len(done) < len(numbers):
        missing = (number for number in numbers if number not in done)
        count = len(numbers) - len(done)
        with counting("recognising", count) as advance:
            for keys in crew.results(
                partial(keys_of_all, job),
                map(study.design.point, missing),
                count,
                lambda point: None,
            ):
                store.match(evaluator, ((point.number, key) for point, key in keys))
                advance(len(keys))
        done = store.done(evaluator)
    ready = sum(number in done for number in numbers)
    missing = (number for number in numbers if number not in done)
    work = partial(evaluate_all, job, code_version())
    bundles = crew.results(
        work,
        map(study.design.point, missing),
        len(numbers) - ready,
        lambda point: faulty(job, point, DIED),
    )
    with counting(evaluator, len(numbers), ready) as advance:
        for bundle in bundles:
            rows: list[Row] = [row for _, row in bundle]
            store.add(evaluator, rows)
            advance(len(rows), sum(row.fault is not None for row in rows))
