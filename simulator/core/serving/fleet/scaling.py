"""The law by which a service changes its number of replicas: that of Kubernetes' Horizontal Pod
Autoscaler (HPA).

At every look the metric is compared with its target (Kubernetes, Horizontal Pod Autoscaling,
"Algorithm details" and "Default behavior")::

    desired = ceil(replicas * metric / target)

* Within a *tolerance* nothing changes.
* A replica that *starts* counts as one without load where more are wanted, and not at all where
  fewer are; one that is to go does not count.
* *Up* goes at once, by as many as there are or by four, whichever is more, in 15 s.
* *Down* goes to the most that was wanted at any look of the last 300 s.

By ``slo`` the metric is the share of recent requests that missed, over the share that may. That
share falls to zero long before half the replicas would do, so that one goes at a time.
"""

from collections import deque
from math import ceil
from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from simulator.core.cost.device import Link
from simulator.core.quantities import Frozen, NonNegative, Positive, Ranged

HPA = "Kubernetes, HorizontalPodAutoscaler v2: default"
MOST_REPLICAS = 10_000
STEP_S = 15.0
"""Seconds within which the number of replicas at most doubles, or grows by ``STEP_REPLICAS``."""
STEP_REPLICAS = 4
ScalingMetric = Literal["outstanding", "kv_use", "slo"]


class Scaling(Frozen):
    """How the number of replicas follows the load: between ``least`` and ``most``, by the law of
    the Horizontal Pod Autoscaler.

    ``by`` says what is compared with ``target``. ``outstanding``: requests of a replica that wait
    or run. ``kv_use``: the share of its KV cache that running requests have. ``slo``: the share of
    requests that meet the SLO of their class, or of the scenario. Nothing of this is the same in
    two engines, so there is no default: Ray Serve has 2 ongoing requests, Knative 100, llm-d takes
    a replica with 0.8 of its cache in use as full.

    A replica starts in ``start_s``, or boots and gets its weights over ``link``. One that is to go
    gets no more requests, and goes when the last of those that it has is done.
    """

    least: int = Field(default=1, gt=0, le=MOST_REPLICAS)
    """Fewest replicas."""
    most: int = Field(gt=0, le=MOST_REPLICAS)
    """Most replicas, those that are to go included."""
    by: ScalingMetric = "outstanding"
    """What is compared with the target."""
    target: float = Field(gt=0)
    """Requests of a replica (``outstanding``), or a share (``kv_use``, ``slo``)."""
    recent_s: Positive = Positive(value=60.0, source="assumed: a minute of requests")
    """By ``slo``: the last seconds whose requests count."""
    every_s: Positive = Positive(value=15.0, source=f"{HPA} sync period", confidence="published")
    """Seconds between two looks."""
    tolerance: NonNegative = NonNegative(
        value=0.1, source=f"{HPA} tolerance", confidence="published"
    )
    """How far the metric may be from its target, relative to it, before anything changes."""
    stable_s: NonNegative = NonNegative(
        value=300.0, source=f"{HPA} stabilization window of scale-down", confidence="published"
    )
    """Seconds for which fewer replicas must have done before some go."""
    start_s: NonNegative | None = None
    """Seconds from the decision to the first request; by default ``boot_s`` and the weights over
    ``link``.
    """
    boot_s: Ranged = Ranged(
        value=90.0,
        low=34.0,
        high=260.0,
        source=(
            "assumed between two logs of vLLM without the loading of weights: 34 s with a warm "
            "compile cache (vllm#20264), 260 s with none (vllm#44881)"
        ),
    )
    """Seconds until a replica serves, but for its weights: container, compilation, graphs."""
    link: Link | None = None
    """What the weights of a new replica come over."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.least > self.most:
            raise ValueError(f"expected least <= most, got {self.least:,} and {self.most:,}")
        if self.by != "outstanding" and self.target > 1:
            raise ValueError(f"by {self.by}: expected a target up to 1, got {self.target:g}")
        if self.by == "slo" and self.target == 1:
            raise ValueError("by slo: expected a target below 1, as 0.95; some request misses")
        return self

    @property
    def moves(self) -> bool:
        """Return whether the number of replicas ever changes."""
        return self.least < self.most

    def seconds(self, weight_bytes: float) -> float:
        """Return the seconds from the decision to start a replica to its first request, whose
        weights are so many bytes.
        """
        if self.start_s is not None:
            return self.start_s.value
        carried = self.link.transfer_seconds(weight_bytes) if self.link else 0.0
        return self.boot_s.value + carried

    def work(self, metric: float, serving: int) -> float:
        """Return for how many replicas there is work at the target, where the ``metric`` is that of
        ``serving`` ones: the mean of each, or by ``slo`` the share of requests that met it.
        """
        if self.by == "slo":
            return serving * (1.0 - metric) / (1.0 - self.target)
        return serving * metric / self.target

    def desired(self, work: float, serving: int, current: int) -> int:
        """Return the replicas that are wanted where there is ``work`` for so many, of ``current``
        ones that are wanted so far, of which ``serving`` take requests.
        """
        ratio = work / serving
        if ratio > 1.0:
            ratio = max(1.0, work / current)
        if abs(ratio - 1.0) <= self.tolerance.value:
            return current
        if self.by == "slo" and ratio < 1.0:
            return current - 1
        return ceil(round(work, 9))


class Recommended(NamedTuple):
    """How many replicas were wanted at a look."""

    at_s: float
    replicas: int


class ScalingRule:
    """What a service remembers between looks: how many replicas were wanted, and how many came."""

    def __init__(self, scaling: Scaling, replicas: int) -> None:
        self.scaling = scaling
        self.wanted = replicas
        """Replicas that are wanted now: those that serve, start, or wait for a place."""
        self._recommended = deque([Recommended(0.0, replicas)])
        self._added = deque[Recommended]()
        """How many came when, of the last ``STEP_S``."""

    def look(self, now: float, metric: float | None, serving: int) -> int:
        """Return how many replicas are wanted from ``now`` on, by the metric of those ``serving``;
        None: nobody knows, and nothing changes.
        """
        scaling = self.scaling
        current = self.wanted
        desired = current
        if metric is not None:
            desired = scaling.desired(scaling.work(metric, serving), serving, current)
        desired = min(max(desired, scaling.least), scaling.most)
        self._recommended.append(Recommended(now, desired))
        since_s = now - scaling.stable_s.value
        while self._recommended[0].at_s <= since_s and len(self._recommended) > 1:
            self._recommended.popleft()
        if desired > current:
            desired = min(desired, self._most_now(now))
        elif desired < current:
            desired = min(current, max(one.replicas for one in self._recommended))
        if desired > current:
            self._added.append(Recommended(now, desired - current))
        self.wanted = desired
        return desired

    def _most_now(self, now: float) -> int:
        """Return up to how many replicas there may be now: as many again as there were ``STEP_S``
        ago, or ``STEP_REPLICAS`` more.
        """
        while self._added and self._added[0].at_s <= now - STEP_S:
            self._added.popleft()
        before = self.wanted - sum(one.replicas for one in self._added)
        return max(self.wanted, 2 * before, before + STEP_REPLICAS)
