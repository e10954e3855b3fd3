"""What is said of the cards that people own by engines that had not seen any row of the card.

    python -m benchmarks.cards --tables ../shared/data/engine_runs

``cards.yaml`` beside this file says what an engine knew without a card. Errors are of speed-ups, by
card and not by row, beside two other guesses: 1.75 everywhere, and so much for each token of a step
as on the other cards. Of a card with three window lengths or more it says which is best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import click
import numpy as np
import yaml

from benchmarks.ledger import TABLES
from benchmarks.left_out import UnseenSource
from simulator.evidence.ledger.rows import PLAIN_STEP, SPEEDUP, LedgerRow
from simulator.evidence.ledger.score import NEITHER, SHARE

ROOT = Path(__file__).parent
EVERYWHERE = 1.75
"""The speed-up that a page of advice gives every card."""
ALWAYS = 3
"""The drafts that it gives them."""
FEWEST_LENGTHS = 3
"""Lengths from which on the best of them says something."""


class CardRow(NamedTuple):
    """A measured speed-up and what was said of it."""

    measured: float
    said: float
    held: bool
    """Whether the 80 % interval holds what was measured."""
    tokens: float
    """Tokens of a step."""
    window: int
    """Drafted tokens of a step."""


class Card(NamedTuple):
    """All rows of one card."""

    name: str
    rows: Sequence[CardRow]
    plain: float | None
    """Mean error of plain steps; None where none was measured."""


def card(unseen: UnseenSource, tables: Path) -> Card:
    """Return what is said of the rows of a card."""
    with TemporaryDirectory() as folder:
        measured = unseen.rows(tables, Path(folder))
    rows = []
    steps = dict[float, float]()
    for row in measured:
        plain = row.of(PLAIN_STEP)
        if plain is not None:
            steps[plain.measured] = abs(plain.error)
        said = _of(row)
        if said is not None:
            rows.append(said)
    error = float(np.mean([*steps.values()])) if steps else None
    return Card(unseen.name, rows, error)


def _of(row: LedgerRow) -> CardRow | None:
    speedup = row.of(SPEEDUP)
    if speedup is None or not row.loaded.scenario.schedule.window:
        return None
    window = row.loaded.scenario.schedule.window
    value = speedup.predicted.value
    return CardRow(speedup.measured, value, speedup.held(SHARE), row.tokens_per_step, window)


def error(rows: Sequence[CardRow], guesses: Sequence[float]) -> float:
    """Return the mean absolute error of guesses of speed-ups, relative to what was measured."""
    errors = [abs(guess / row.measured - 1.0) for row, guess in zip(rows, guesses, strict=True)]
    return float(np.mean(errors))


def sign_is_right(row: CardRow) -> bool:
    """Return whether a gain is said to be one and a loss to be one; within 3 % of 1 either is."""
    if abs(row.measured - 1.0) <= NEITHER:
        return True
    return (row.measured > 1.0) == (row.said > 1.0)


def per_token(others: Sequence[Card]) -> float:
    """Return the speed-up for each token of a step that suits other cards best, each counted
    once.
    """
    ratios = []
    for other in others:
        of_card = [row.measured / row.tokens for row in other.rows]
        if of_card:
            ratios.append(float(np.median(of_card)))
    return float(np.median(ratios))


def guesses(own: Card, others: Sequence[Card]) -> Mapping[str, float]:
    """Return the error of every way to guess the speed-ups of a card."""
    constant = per_token(others)
    return {
        "ours": error(own.rows, [row.said for row in own.rows]),
        f"{EVERYWHERE} times": error(own.rows, [EVERYWHERE] * len(own.rows)),
        "tokens x constant": error(own.rows, [constant * row.tokens for row in own.rows]),
    }


def best_window(rows: Sequence[CardRow], measured: bool) -> int:
    """Return the window with the highest speed-up, as measured or as said."""
    return max(rows, key=lambda row: row.measured if measured else row.said).window


def sweep(rows: Sequence[CardRow]) -> str | None:
    """Return which window is best, as measured and as said, and what the usual one would lose; None
    where too few were measured.
    """
    windows = sorted({row.window for row in rows})
    if len(windows) < FEWEST_LENGTHS:
        return None
    best, said = best_window(rows, measured=True), best_window(rows, measured=False)
    apart = abs(windows.index(best) - windows.index(said))
    usual = min(windows, key=lambda window: abs(window - ALWAYS))
    speedups = {row.window: row.measured for row in rows}
    lost = 1.0 - speedups[usual] / speedups[best]
    return (
        f"of {windows} drafts {best} are best, {said} are said to be ({apart} lengths apart); "
        f"{usual}, nearest to always {ALWAYS}, lose {100 * lost:.0f} %"
    )


@click.command()
@click.option("--tables", type=click.Path(path_type=Path, exists=True), default=TABLES)
def main(tables: Path) -> None:
    """Print the errors of each card that is left out, and their means over cards."""
    stated = yaml.safe_load((ROOT / "cards.yaml").read_text("utf-8"))
    cards = [card(UnseenSource.model_validate(entry), tables) for entry in stated]
    sums: dict[str, list[float]] = {}
    right = held = rows = 0
    for own in cards:
        errors = guesses(own, [other for other in cards if other is not own])
        for name, value in errors.items():
            sums.setdefault(name, []).append(value)
        words = ", ".join(f"{name} {100 * value:.0f} %" for name, value in errors.items())
        print(f"{own.name}, {len(own.rows)} rows: {words}")
        if own.plain is not None:
            sums.setdefault("plain step", []).append(own.plain)
            print(f"  plain steps {100 * own.plain:.0f} % off")
        if best := sweep(own.rows):
            print(f"  {best}")
        right += sum(sign_is_right(row) for row in own.rows)
        held += sum(row.held for row in own.rows)
        rows += len(own.rows)
    print("mean over cards: " + ", ".join(f"{k} {100 * np.mean(v):.1f} %" for k, v in sums.items()))
    print(f"sign right in {right} of {rows} rows; 80 % intervals hold {held}")


if __name__ == "__main__":
    main()
