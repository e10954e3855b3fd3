"""Classes of service: requests with a priority and an SLO of their own.

A class has a share of all requests, drawn by request, or by session, whose turns are of one class;
or it has tasks of a traffic file. A lower priority goes first (``priority`` of vLLM; SGLang's
``--enable-priority-scheduling`` counts the other way round).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate
from math import isclose

import numpy as np
from pydantic import Field, model_validator

from simulator.core.numeric import ordered_sum
from simulator.core.quantities import Frozen
from simulator.core.serving.slo import Slo

DRAWS = 6
"""The stream of random numbers from which classes are drawn."""


class RequestClass(Frozen):
    """A class of requests: a share of all, or those of some tasks of a traffic file."""

    share: float | None = Field(default=None, gt=0, le=1)
    """Share of all requests; of sessions, share of all sessions."""
    tasks: tuple[str, ...] = ()
    """Tasks of a traffic file whose requests are of this class."""
    priority: int = Field(default=0, ge=-1_000_000, le=1_000_000)
    """Lower ones are admitted first, and lose their memory last."""
    slo: Slo | None = None
    """What users of this class were promised; runs then count its goodput."""

    @model_validator(mode="after")
    def _by_request(self) -> RequestClass:
        if self.slo is not None and self.slo.tbt_ms is not None:
            raise ValueError("tbt_ms is for all requests; of a class, state tpot_ms")
        return self


def wrong_classes(classes: Mapping[str, RequestClass], traffic: bool) -> str | None:
    """Return what is wrong with the classes of a workload together; None if nothing is.

    ``traffic``: its requests stand in a file, which may name tasks.
    """
    if any(given.tasks for given in classes.values()):
        return _wrong_tasks(classes, traffic)
    return _wrong_shares(classes)


def _wrong_tasks(classes: Mapping[str, RequestClass], traffic: bool) -> str | None:
    """Return what is wrong with classes some of which go by tasks."""
    if any(given.share is not None or not given.tasks for given in classes.values()):
        return "classes: expected tasks for every class and no share, or a share for every class"
    if not traffic:
        return "classes: tasks are those of a traffic file; without one, state a share of each"
    classes_of = Counter(task for given in classes.values() for task in given.tasks)
    twice = sorted(task for task, count in classes_of.items() if count > 1)
    if twice:
        return f"classes: task '{twice[0]}' is of two classes"
    return None


def _wrong_shares(classes: Mapping[str, RequestClass]) -> str | None:
    """Return what is wrong with classes that go by shares."""
    shares = [given.share for given in classes.values() if given.share is not None]
    if len(shares) < len(classes):
        return "classes: expected a share, or tasks of a traffic file, for every class"
    total = ordered_sum(shares)
    if shares and not isclose(total, 1.0, abs_tol=1e-9):
        return f"classes: expected shares that add up to 1, got {total:g}"
    return None


class ClassDraw:
    """Says of which class a request is, by its task or drawn."""

    def __init__(self, classes: Mapping[str, RequestClass], seed: int) -> None:
        self._names = list(classes)
        self._by_task = {task: name for name, given in classes.items() for task in given.tasks}
        self._ends = list(accumulate(given.share or 0.0 for given in classes.values()))
        self._seed = seed

    def class_of(self, number: int, task: str) -> str:
        """Return the class of a request of this task; ``number`` is what it is drawn by."""
        if self._by_task:
            return self._by_task[task]
        draw = np.random.default_rng((self._seed, DRAWS, number)).random()
        return self._names[min(bisect_right(self._ends, draw), len(self._names) - 1)]


def unknown_task(classes: Mapping[str, RequestClass], tasks: Iterable[str]) -> str | None:
    """Return a task that is of no class, where classes go by tasks; None if there is none."""
    known = {task for given in classes.values() for task in given.tasks}
    if not known:
        return None
    return next((task for task in tasks if task not in known), None)
