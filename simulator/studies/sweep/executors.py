"""Evaluate the points of a sweep: here, in processes of this machine, or on a Dask cluster.

All three are ``concurrent.futures`` executors. Points travel in bundles of about ``BUNDLE_S`` of
work, a few ahead of every worker, so that neither the way there nor a list of all points costs
anything. A worker that dies takes its bundle with it; such bundles are evaluated again, one at a
time and, where a worker dies once more, in halves: the point that kills whoever evaluates it is
found whatever happens around it, and all others get their result.
"""

import gc
import logging
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

from simulator.core.faults import BadInput
from simulator.core.parallel import CORES
from simulator.core.processes import Pool, begin_worker, ended
from simulator.studies.sweep.axes import Point

Value = TypeVar("Value")
BUNDLE_S = 0.5
"""Work that a bundle is to take (s)."""
AHEAD = 2
"""Bundles under way for each worker: one at work, one waiting."""
LARGEST = 20_000
"""Points of a bundle at most."""
SMALLEST = 1 / 8
"""Share of a bundle's size that it shrinks to at most, towards the end of a sweep."""
TRIES = 2
"""Deaths of a worker that has only this point to do, after which the point is blamed for them."""


class Bundle(NamedTuple, Generic[Value]):
    """Holds the results of points, and how long they took in the worker (s)."""

    results: list[Value]
    seconds: float


Work = Callable[[list[Point]], Bundle[Value]]


class InProcess(Executor):
    """Runs every task in this process when it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a task now; return a future that is done."""
        future = Future[Any]()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # the future raises it, as that of a worker does
            future.set_exception(error)
        return future


class Crew:
    """Evaluates points with an executor of so many workers; ``losses`` are the errors that say that
    a worker died.
    """

    def __init__(
        self,
        hire: Callable[[], Executor],
        workers: int,
        losses: tuple[type[BaseException], ...] = (),
    ) -> None:
        self._hire = hire
        self.executor = hire()
        self.workers = workers
        self.losses = losses

    def renew(self) -> None:
        """Hire a new executor after a loss, where the old one is of no more use."""
        if isinstance(self.executor, ProcessPoolExecutor):
            self.executor.shutdown(wait=False, cancel_futures=True)
            self.executor = self._hire()

    def results(
        self,
        work: Work[Value],
        points: Iterable[Point],
        count: int,
        blame: Callable[[Point], Value],
    ) -> Iterator[list[tuple[Point, Value]]]:
        """Yield every one of ``count`` points with the result of ``work``, bundle by bundle as they
        come.

        ``blame`` gives the result of a point that kills workers.
        """
        source = iter(points)
        places = AHEAD * self.workers
        pace = _Pace(count, shares=2 * places if self.workers > 1 else 1)
        under_way: dict[Future[Bundle[Value]], list[Point]] = {}
        while True:
            while len(under_way) < places and (bundle := list(islice(source, pace.next()))):
                self._send(work, bundle, under_way)
            if not under_way:
                return
            lost: list[list[Point]] = []
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                bundle = under_way.pop(future)
                try:
                    result = future.result()
                except self.losses:
                    lost.append(bundle)
                else:
                    pace.note(len(bundle), result.seconds)
                    yield list(zip(bundle, result.results, strict=True))
            if lost:
                lost += self._lost_with_pool(under_way)
                self.renew()
                for bundle in lost:
                    yield self._alone(work, bundle, blame)

    def _send(
        self,
        work: Work[Value],
        bundle: list[Point],
        under_way: dict[Future[Bundle[Value]], list[Point]],
    ) -> None:
        try:
            under_way[self.executor.submit(work, bundle)] = bundle
        except BrokenProcessPool as error:
            # A worker has died since the last look; the bundle is as lost as those under way.
            future = Future[Bundle[Value]]()
            future.set_exception(error)
            under_way[future] = bundle

    def _lost_with_pool(
        self, under_way: dict[Future[Bundle[Value]], list[Point]]
    ) -> Iterator[list[Point]]:
        """Take out the bundles that go down with a broken pool; a cluster has sent its bundles to
        other workers.
        """
        if isinstance(self.executor, ProcessPoolExecutor):
            for future in list(under_way):
                if not future.done() or future.exception() is not None:
                    yield under_way.pop(future)

    def _alone(
        self, work: Work[Value], bundle: list[Point], blame: Callable[[Point], Value]
    ) -> list[tuple[Point, Value]]:
        """Evaluate a bundle with nothing else under way; in halves where a worker dies of it
        again.
        """
        for _ in range(TRIES if len(bundle) == 1 else 1):
            try:
                return list(
                    zip(bundle, self.executor.submit(work, bundle).result().results, strict=True)
                )
            except self.losses:
                self.renew()
        if len(bundle) == 1:
            return [(bundle[0], blame(bundle[0]))]
        half = len(bundle) // 2
        return [*self._alone(work, bundle[:half], blame), *self._alone(work, bundle[half:], blame)]


class _Pace:
    """Says how many points make a bundle, from how long the last ones took.

    A bundle is at most one of ``shares`` equal parts of the points ``left``, so that all workers
    end together.
    """

    def __init__(self, left: int, shares: int) -> None:
        self.size = 1
        self.left = left
        self.shares = shares

    def next(self) -> int:
        """Return the number of points of the next bundle."""
        size = min(self.size, max(1, round(self.size * SMALLEST), self.left // self.shares))
        self.left -= size
        return size

    def note(self, points: int, seconds: float) -> None:
        """Move the size towards ``BUNDLE_S``, at most four times as many as before: the first
        points read files.
        """
        wanted = BUNDLE_S * points / max(seconds, 1e-6)
        self.size = max(1, min(LARGEST, 4 * self.size, round(wanted)))


@contextmanager
def crew(workers: int = CORES, scheduler: str | None = None) -> Iterator[Crew]:
    """Yield workers for the block: one is this process, more are processes, or those of the Dask
    ``scheduler``.

    Raises :class:`BadInput` where there is no such scheduler, or none of its workers shows up.
    """
    if scheduler is not None:
        yield from _cluster(scheduler)
    elif workers == 1:
        with _frozen():
            yield Crew(InProcess, 1)
    else:
        yield from _processes(workers)


@contextmanager
def _frozen() -> Iterator[None]:
    """Leave what is there already to itself for the block: it stays, and looking through it again
    and again for what nobody uses any more takes a fifth of a simulation. What the caller has
    frozen is left frozen.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.collect()  # what nobody uses any more is not to be frozen
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _processes(workers: int) -> Iterator[Crew]:
    # one process imports, all workers are made from it
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["simulator.studies.sweep.point"])

    def hire() -> Executor:
        return Pool(workers, context, _begin_worker)

    hired = Crew(hire, workers, (BrokenProcessPool,))
    with ended(lambda: hired.executor):
        yield hired


def _begin_worker() -> None:
    begin_worker()
    gc.freeze()  # as in _frozen


def _cluster(address: str) -> Iterator[Crew]:
    place = (f"--scheduler {address}", 0, 0)
    try:
        from distributed import Client, KilledWorker
        from distributed.comm import CommClosedError
    except ImportError as error:
        raise BadInput.at(
            place, "needs the extra 'dask': pip install 'specdecode-sim[dask]'"
        ) from error
    # what goes wrong there is said here, in a line
    for name in list(logging.root.manager.loggerDict):
        logging.getLogger(name).disabled |= name.startswith(("distributed", "tornado"))
    try:
        client: Any = Client(  # type: ignore[no-untyped-call]
            address, timeout=10, set_as_default=False
        )
    except (OSError, ValueError) as error:
        raise BadInput.at(place, f"no scheduler answers: {error}") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=30)
        except TimeoutError as error:
            raise BadInput.at(
                place, "the scheduler has no workers; start some with: dask worker ADDRESS"
            ) from error
        executor = client.get_executor(pure=False)
        try:
            yield Crew(lambda: executor, sum(client.nthreads().values()), (KilledWorker,))
        except (CancelledError, CommClosedError) as error:
            message = (
                "the scheduler is gone; the store keeps the points that are done, and --resume "
                "goes on with another"
            )
            raise BadInput.at(place, message) from error
