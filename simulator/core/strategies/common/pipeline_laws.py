"""Pipeline laws say how long a pipeline takes to bring a token: SpecPipe's equations, and the two
processes behind them.

A step moves one level of the tree into each of m stages (SP-12). While the next token is in the
tree, one token leaves a step. A token comes ``steps`` pipeline steps after the one before it: 1
with every level in place, m after a miss (its row starts at the first stage), in between where
pruning left a gap. Two ways to run a step:

* *barrier* (Algorithm 1): all stages step together. While the row to be verified is in stage a,
  only the first a stages have anything to do::

      stage 1  |==|x|==|x|==|x|...        x: pruning and transmission
      stage 2      |x|=====|x|===|...     a refill of m steps: a = 1, 2, ..., m
      stage 3             |x|====|...

* *tandem*: a stage runs as soon as its input is there and it has pruned. Levels follow each other
  at the pace of the slowest part, and a lone row meets no queue::

      exits after a miss: L, L + M, ...    M: slowest stage, link or draft; L: once through all

The equations charge a miss with a normal step *and* m steps; a row that enters right after its miss
was noticed needs m - 1 besides (K28), which is what ``late`` chooses: noticed one step late, m
steps besides.

    relation to          barrier, late   tandem, late   barrier        tandem
    Eq. (1) as printed   lower bound     exact          neither        upper bound

All times are in one unit; stage times may be arrays over a grid, stages first.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from simulator.core.numeric import Numbers, elementwise_max, ordered_sum
from simulator.core.strategies.common.claim import EXACT, Claim


def unequal_stages(stages: Numbers, hit: Numbers) -> Numbers:
    """Return the mean time of a token by Eq. (1): ``max t_i + (1 - P) sum t_i`` (SP-1); stages
    along the first axis.
    """
    return np.max(stages, axis=0) + (1.0 - hit) * np.sum(stages, axis=0)


def break_even(stage_one_s: float, stage_w_s: float, stages: int) -> float:
    """Return the P(w) above which Eq. (2) beats plain pipeline decoding, ``m t(1)`` a token (SP-2
    f).
    """
    return 1.0 - (stages * stage_one_s / stage_w_s - 1.0) / stages


@dataclass(frozen=True)
class PipelineTimes:
    """The times of a pipeline are those of m stages, m - 1 links, pruning, a verified token on its
    way, and a drafted level.

    ``asynchronous``: a link carries while its stages prune and compute; else both ends wait for it.
    """

    stages: tuple[float, ...]
    links: tuple[float, ...] = ()
    prune: float = 0.0
    token: float = 0.0
    """Time of a token from the last stage to all the others."""
    draft: float = 0.0
    asynchronous: bool = True

    def __post_init__(self) -> None:
        if len(self.stages) < 2:
            raise ValueError("a pipeline has two stages or more")
        if not self.links:
            object.__setattr__(self, "links", (0.0,) * (len(self.stages) - 1))
        if len(self.links) != len(self.stages) - 1:
            raise ValueError(
                f"{len(self.stages)} stages have {len(self.stages) - 1} links between them, got "
                f"{len(self.links)}"
            )

    @property
    def pace(self) -> Numbers:
        """Return M: the time that the slowest stage, link or the draft takes for a level."""
        sending = (*(0.0 if self.asynchronous else link for link in self.links), 0.0)
        visits = [
            stage + self.prune + sent for stage, sent in zip(self.stages, sending, strict=True)
        ]
        return elementwise_max(*visits, *self.links, self.draft)

    @property
    def latency(self) -> Numbers:
        """Return L: the time from a verified token through pruning and everything to the next
        one.
        """
        return self.token + self.prune + ordered_sum(self.stages) + ordered_sum(self.links)

    @property
    def keeps_pace(self) -> bool:
        """Return whether m levels in flight are enough to keep the slowest part busy; if not,
        tandem is slower than its law.
        """
        return bool(np.all(self.latency <= len(self.stages) * self.pace * (1 + 1e-12)))

    def at_most(self, steps: int) -> Numbers:
        """Return the tandem time of a passage: exact for 1 and for m and more, an upper bound in
        between.
        """
        m = len(self.stages)
        if steps > m:
            return self.pace + self.latency
        if steps == m:
            return self.latency
        return steps * self.pace

    def claim(self, shares: Mapping[int, float]) -> Claim:
        """Return how the mean of :meth:`at_most` relates to the process in tandem; ``shares`` of
        passages by their steps.
        """
        if not self.keeps_pace:
            words = (
                f"{len(self.stages)} levels in flight cannot keep the slowest part busy over "
                "all links"
            )
            return Claim("lower_bound", words)
        gaps = ordered_sum(share for steps, share in shares.items() if 1 < steps < len(self.stages))
        if np.any(gaps):
            return Claim(
                "upper_bound", "a partial refill is charged the pace for each of its steps"
            )
        return EXACT


def hit_shares(hit: Numbers, stages: int, late: bool = False) -> dict[int, Numbers]:
    """Return the shares of passages when a token is in the tree with chance ``hit`` and no refill
    is partial.
    """
    return {1: hit, stages + late: 1.0 - hit}
