"""PEARL in batches beside plain decoding as it was measured: nothing of it is fitted.

    python -m benchmarks.beside_plain --tables ../shared/data/engine_runs

The released cells do not print their prompts, and plain decoding behind long ones is slower than
the prompts that are assumed make it. So plain decoding is an input here: the target's time is
multiplied by what a plain step took over what the law says of it, which is printed. The draft's
time, the exchange, rows and tokens of a step are those of the law.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from benchmarks.ledger import TABLES, facts
from simulator.core.acceptance.sources import odds_of
from simulator.core.strategies.common.base import law_parts
from simulator.evidence.ledger.rows import PLAIN_STEP, SPEEDUP, LedgerRow, read_table
from simulator.inputs.catalogue import Catalogue
from simulator.papers.pearl.strategy import Pearl

SET = "PEARL"


class Cell(NamedTuple):
    """A measured speed-up, and what the law says of it."""

    words: str
    window: int
    slower: float
    """Measured plain step over that of the law."""
    said: float
    beside_plain: float
    """The same with the target slower by that."""
    measured: float

    def __str__(self) -> str:
        """The cell in a line."""
        return (
            f"{self.words:80} {self.window:6} {self.slower:8.2f} {self.measured:9.2f} "
            f"{self.said:6.2f} {self.said / self.measured - 1:+7.1%} {self.beside_plain:6.2f} "
            f"{self.beside_plain / self.measured - 1:+7.1%}"
        )


def cell(row: LedgerRow) -> Cell | None:
    """Return what the law says of a row; None where its plain run or its speed-up is not there."""
    scenario = row.loaded.scenario
    plain, speedup = row.of(PLAIN_STEP), row.of(SPEEDUP)
    if plain is None or speedup is None or not isinstance(scenario.schedule, Pearl):
        return None
    odds = odds_of(row.loaded.acceptance(), None)
    batch, context = scenario.batch, scenario.mean_context
    strategy = scenario.schedule.tuned(scenario.cost, odds, batch, context)
    slower = plain.measured / plain.predicted.value
    seconds = tokens = 0.0
    for part in law_parts(strategy, scenario.cost, odds, batch, context):
        durations = part.durations._replace(target=part.durations.target * slower)
        seconds += part.share * strategy.step_seconds(durations, part.kind)
        tokens += part.share * part.committed / batch
    beside_plain = plain.measured * tokens / seconds
    window = strategy.window_for(batch)
    return Cell(row.words, window, slower, speedup.predicted.value, beside_plain, speedup.measured)


def main() -> None:
    """Print every cell, and the mean errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, default=TABLES)
    folder = parser.parse_args().tables
    (released,) = [one for one in facts().sets if one.name == SET]
    ledger = read_table(folder / released.file, Catalogue(), released.shared)
    cells = [of_row for row in ledger.rows if (of_row := cell(row))]
    print(f"{'run':80} window plain by measured    law   error  beside plain, error")
    for one in cells:
        print(one)
    by_law = mean(abs(one.said / one.measured - 1) for one in cells)
    beside = mean(abs(one.beside_plain / one.measured - 1) for one in cells)
    print(f"{len(cells)} cells: {by_law:.1%} by law, {beside:.1%} with plain decoding as measured")


if __name__ == "__main__":
    main()
