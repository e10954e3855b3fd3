"""A recorded pipeline tree is replayed in arrays: what a token takes when all stages step together.

It is the same process as the strategy ``specpipe`` with one request, at one context length, without
events and without a Python loop: a table of times by rows for every stage, looked up for all steps
at once.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from simulator.core.cost.protocol import Cost
from simulator.core.cost.rows import Rows
from simulator.papers.specpipe.strategy import SpecPipe

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class StepTables:
    """The tables hold seconds by rows from 0 to the tree's width, where 0 rows take no time.

    ``stages``: (stages, width + 1), ``links``: (stages - 1, width + 1), ``draft``: (width + 1,).
    """

    stages: Floats
    links: Floats
    draft: Floats
    verdict: float
    asynchronous: bool = True

    @classmethod
    def of(cls, strategy: SpecPipe, cost: Cost, context: int) -> Self:
        """Return the tables of a level of one request behind ``context`` cached tokens, as the
        strategy prices it.
        """
        rows = [Rows.decode(count, context) for count in range(1, strategy.beam.width + 1)]
        stages = [
            [0.0, *(cost.stage(index, level).wall_s for level in rows)]
            for index in range(cost.stages)
        ]
        links = [
            [0.0, *(cost.carry(index, level.tokens) for level in rows)]
            for index in range(cost.stages - 1)
        ]
        draft = [0.0, *(cost.draft(level).wall_s for level in rows)]
        verdict = cost.token() + strategy.prune_s
        return cls(
            np.array(stages), np.array(links), np.array(draft), verdict, strategy.asynchronous
        )

    def step(self, loads: Ints, begun: NDArray[np.bool_]) -> Floats:
        """Return the durations (steps,) for loads (stages, steps), which are rows at each stage."""
        compute = np.max(
            [table[rows] for table, rows in zip(self.stages, loads, strict=True)], axis=0
        )
        carried = np.max(
            [table[rows] for table, rows in zip(self.links, loads[1:], strict=True)], axis=0
        )
        verdict = begun * self.verdict
        exchange = np.maximum(verdict, carried) if self.asynchronous else verdict + carried
        durations: Floats = np.maximum(exchange + compute, self.draft[loads[0]])
        return durations


def token_seconds(
    tables: StepTables, steps: Ints, rows: Ints, hit: NDArray[np.bool_], late: bool = False
) -> Floats:
    """Return the seconds (tokens,) from each token to the next, for passages in a row.

    ``steps``: (tokens,), ``rows``: (stages or more, tokens), ``hit``: (tokens,), as a trace records
    them for one tree.
    """
    stages = len(tables.stages)
    entered = rows[:stages]
    token = np.repeat(np.arange(len(steps)), steps)
    first = np.cumsum(steps) - steps
    turn = np.arange(len(token)) - first[token]
    moved = np.concatenate((entered, np.zeros_like(entered)))
    loads = moved[np.arange(stages)[:, None] + (steps[token] - 1 - turn), token]
    waits: Floats = np.add.reduceat(tables.step(loads, turn == 0), first)
    if late:
        missed = np.flatnonzero(~hit[:-1])
        vain = np.concatenate((entered[:1, missed], entered[:-1, missed]))
        waits[missed + 1] += tables.step(vain, np.ones(len(missed), dtype=bool))
    return waits
