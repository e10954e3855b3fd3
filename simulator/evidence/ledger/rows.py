"""Measured rows, and what the laws say of them without having seen them.

A table is one CSV, as people publish them: a row for a run with speculation and the plain run
beside it, or a row for each. Its columns:

* ``source``, whose measurement it is; ``hardware`` and ``gpu_count`` (or ``tensor_parallel``),
  ``engine``, ``target_model``, ``target_format``, ``method``, ``draft_model``, ``draft_steps`` (or
  ``draft_length``), ``top_k``, ``verified_rows``, ``concurrency``, ``prompt_tokens``,
  ``output_tokens``, in words that :mod:`simulator.evidence.ledger.names` reads,
* ``tokens_per_step`` (or ``acceptance_length``), those that a step commits, the target's own
  counted; of a chain that never stops early ``accepted_share`` (or ``acceptance_rate``) of the
  drafted tokens instead,
* what was measured: ``plain_tokens_per_s`` and ``speculative_tokens_per_s`` of all requests
  together, or ``baseline_step_ms`` and ``step_ms``, or ``speedup`` alone; or ``median_itl_ms`` and
  ``output_tokens_per_s`` of one run, the plain one in a row of its own, with the same source,
  target, hardware and concurrency; or ``total_ms`` and ``steps`` of a run with its prompt, whose
  time is ``prefill_ms``, by default of the plain run (there ``generation_ms`` over all
  ``new_tokens`` but the first),
* ``requests``, how many ran in all: then ``output_tokens_per_s``, ``mean_tpot_ms`` and
  ``mean_ttft_ms`` are of a closed loop from its beginning to its end, prompts and queue included.
  They are held to a simulation under the engine's own policy, and so is the speed-up, as the ratio
  of two rates,
* any dotted key of a scenario's field, as for ``--set``: it holds in place of the words.

Some columns have other names, too (:data:`~simulator.evidence.ledger.written.ALSO`). Whatever else
a table holds is for its reader. A row that the catalogue cannot run is left out, and
says why.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from simulator.core.faults import BadInput, Fault, Place
from simulator.evidence.ledger.names import UnknownName
from simulator.evidence.ledger.written import TEMPERATURE, WrittenRow, scenario_of, written
from simulator.inputs import reading
from simulator.inputs.catalogue import Catalogue, shown
from simulator.inputs.document import readable
from simulator.scenario import Loaded
from simulator.scenario.evaluate import NO_DRAFTS, law, plain, simulate, tuned
from simulator.scenario.uncertain.draws import Deviates, Drawn
from simulator.scenario.uncertain.intervals import (
    Quantity,
    doubts_of,
    laws_of,
    plain_step_by_law,
    rate_by_law,
    speedup_by_law,
    step_by_law,
    tpot_by_law,
)

NOTHING_SHARED: Mapping[str, str] = {}
NOTHING_MEASURED: Mapping[str, float] = {}
SPEEDUP = "speed-up"
PLAIN_STEP = "plain step"
STEP = "speculative step"
RATE = "tokens per second"
TPOT = "time per token"
TTFT = "time to first token"
WHOLE_LOOP = (RATE, TPOT, TTFT)
"""What a row says of a closed loop from its beginning to its end."""


class Measured(NamedTuple):
    """What a row says was measured, as far as it says it; times in seconds."""

    speedup: float | None
    plain_step_s: float | None
    step_s: float | None
    whole_loop: Mapping[str, float] = NOTHING_MEASURED
    """Means of a whole closed loop, by quantity."""


class RowComparison(NamedTuple):
    """A measured number and what the law says of it, in the same unit."""

    quantity: str
    measured: float
    predicted: Drawn

    @property
    def error(self) -> float:
        """Return the relative error of the prediction."""
        return self.predicted.value / self.measured - 1.0

    def held(self, share: float) -> bool:
        """Return whether the interval that should hold a share holds what was measured."""
        return self.predicted.interval(share).holds(self.measured)


@dataclass(frozen=True)
class LedgerRow:
    """A row of a table with its scenario, and the law's word on everything that was measured."""

    place: Place
    source: str
    words: str
    """Which run it is, for a reader."""
    loaded: Loaded
    tokens_per_step: float
    comparisons: tuple[RowComparison, ...]
    assumed: tuple[str, ...]
    """What was taken where the row says nothing, in words."""

    def of(self, quantity: str) -> RowComparison | None:
        """Return the comparison of a quantity; None where it was not measured."""
        for comparison in self.comparisons:
            if comparison.quantity == quantity:
                return comparison
        return None


class LeftOut(NamedTuple):
    """A row that the catalogue cannot run, and why."""

    fault: Fault
    words: str
    source: str


class MeasuredTable(NamedTuple):
    """The rows of a table, and those that are left out."""

    rows: tuple[LedgerRow, ...]
    left_out: tuple[LeftOut, ...]


def read_table(
    path: Path, catalogue: Catalogue, shared: Mapping[str, str] = NOTHING_SHARED
) -> MeasuredTable:
    """Return the rows of a table with what the laws say of them. ``shared`` are cells of all its
    rows, by column, where a row does not state them.

    Raises :class:`BadInput` for a file that is no table.
    """
    file = shown(path)
    every = []
    try:
        with readable(file), reading.lines(path) as lines:
            reader = csv.DictReader(lines)
            for cells in reader:
                place = (file, reader.line_num, 1)
                stated = {column: cell for column, cell in cells.items() if column and cell}
                own = written(place, stated).cells  # under the names that are shared
                every.append(written(place, {**shared, **own}))
    except csv.Error as error:
        raise BadInput.at(file, f"cannot be read: {error}") from error
    if not every:
        raise BadInput.at((file, 1, 1), "holds no rows")
    rows = []
    left_out = []
    for row in every:
        try:
            rows.append(_row(row, every, catalogue))
        except BadInput as error:
            left_out.append(LeftOut(error.faults[0], row.words, row.origin))
        except UnknownName as error:
            left_out.append(LeftOut(Fault(row.place, "", str(error)), row.words, row.origin))
    return MeasuredTable(tuple(rows), tuple(left_out))


def _row(row: WrittenRow, every: Sequence[WrittenRow], catalogue: Catalogue) -> LedgerRow:
    """Return a row with its scenario and what the law says of it; raise :class:`BadInput` or
    :class:`UnknownName` where the catalogue cannot run it.
    """
    loaded = tuned(scenario_of(row, catalogue))
    tokens = float(law(loaded.scenario, loaded.acceptance()).verified_per_step)
    measured = _measured(row, every, tokens)
    if measured == Measured(None, None, None):
        message = (
            "expected plain and speculative rates, two steps, or a speed-up; state "
            "plain_tokens_per_s and speculative_tokens_per_s, baseline_step_ms and step_ms, or "
            "speedup"
        )
        raise BadInput.at(row.place, message)
    comparisons = tuple(_comparisons(loaded, measured))
    return LedgerRow(
        row.place, row.origin, row.words, loaded, tokens, comparisons, tuple(row.assumed)
    )


def _measured(row: WrittenRow, every: Sequence[WrittenRow], tokens: float) -> Measured:
    """Return what was measured of a row whose steps commit so many tokens, beside the plain run of
    the same table where it has one.

    A rate of all requests together is their number over the time per token.
    """
    whole_loop = _whole_loop(row)
    if not row.drafts:
        return Measured(None, _plain_step_s(row), None, whole_loop)
    beside = _plain_run(row, every)
    rate = row.number("speculative_tokens_per_s")
    tokens = row.number("tokens_per_step") or tokens
    step_s = _step_s(row, beside) or _step_at(row, rate, tokens)
    plain_rate = row.number("plain_tokens_per_s")
    plain_step_s = _seconds(row, "baseline_step_ms") or _step_at(row, plain_rate, 1.0)
    own_plain_step_s = plain_step_s
    if beside:  # a row of its own, where its step is compared
        own_plain_step_s = None
        plain_rate = plain_rate or beside.number("speculative_tokens_per_s")
        plain_step_s = plain_step_s or _plain_step_s(beside)
    speedup = row.number("speedup")
    if speedup is None and rate and plain_rate:
        speedup = rate / plain_rate
    if speedup is None and step_s and plain_step_s:
        speedup = tokens * plain_step_s / step_s
    return Measured(speedup, own_plain_step_s, step_s, whole_loop)


def _step_at(row: WrittenRow, tokens_per_s: float | None, tokens: float) -> float | None:
    """Return the seconds of a step that commits so many tokens a request, by the rate of all
    requests together; None without a rate, and where it is that of a whole loop.
    """
    if not tokens_per_s or row.whole_loop:
        return None
    return (row.number("concurrency") or 1.0) * tokens / tokens_per_s


def _whole_loop(row: WrittenRow) -> dict[str, float]:
    """Return what a row says of a whole closed loop, by quantity; nothing unless it says how many
    requests ran.
    """
    if not row.whole_loop:
        return {}
    stated = {
        RATE: row.number("speculative_tokens_per_s"),
        TPOT: _seconds(row, "mean_tpot_ms"),
        TTFT: _seconds(row, "mean_ttft_ms"),
    }
    return {name: number for name, number in stated.items() if number is not None}


def _plain_step_s(row: WrittenRow) -> float | None:
    """Return the time of a step of a plain run in seconds, as far as its row says it."""
    step_s = _seconds(row, "step_ms")
    if step_s is not None:
        return step_s
    generation_s = _seconds(row, "generation_ms")
    tokens = row.number("output_tokens")
    if generation_s and tokens and tokens > 1:
        return generation_s / (tokens - 1)
    return _step_at(row, row.number("speculative_tokens_per_s"), 1.0)


def _step_s(row: WrittenRow, beside: WrittenRow | None) -> float | None:
    """Return the time of a step that drafts in seconds; of a whole run what its prompt leaves."""
    step_s = _seconds(row, "step_ms")
    total_s = _seconds(row, "total_ms")
    steps = row.count("steps")
    if step_s is not None or total_s is None or steps is None:
        return step_s
    prompt_s = _seconds(row, "prefill_ms")
    if prompt_s is None and beside:
        prompt_s = _seconds(beside, "prefill_ms")
        row.assumed.append("a prompt takes as long as in the plain run")
    if prompt_s is None:
        message = "is missing: what the prompt takes of total_ms"
        raise BadInput.at(row.place, message, "prefill_ms")
    return (total_s - prompt_s) / steps


def _seconds(row: WrittenRow, column: str) -> float | None:
    milliseconds = row.number(column)
    if milliseconds is None:
        return None
    return milliseconds / 1e3


def _plain_run(row: WrittenRow, every: Sequence[WrittenRow]) -> WrittenRow | None:
    """Return the plain run of the same table that a row is divided by, at another temperature where
    there is none at its own; None without any. Raises :class:`BadInput` where it could be several.
    """
    found = [other for other in every if other.is_plain_run_of(row)]
    if not found:
        found = [other for other in every if other.is_plain_run_of(row, but=TEMPERATURE)]
        if found:
            row.assumed.append("a plain run takes as long at another temperature")
    if len(found) > 1:
        lines = ", ".join(str(other.place[1]) for other in found)
        message = (
            f"lines {lines} could all be its plain run; state what tells them apart (gpu_count, "
            "target_format, engine, task, lengths, run)"
        )
        raise BadInput.at(row.place, message)
    return next(iter(found), None)


def _comparisons(loaded: Loaded, measured: Measured) -> Iterator[RowComparison]:
    """Yield what was measured of a row beside the draws of it: by law, and of a whole closed loop
    as it is simulated, around which the draws are those of the law.
    """
    stated = {
        SPEEDUP: measured.speedup,
        PLAIN_STEP: measured.plain_step_s,
        STEP: measured.step_s,
        **measured.whole_loop,
    }
    asked = {name: number for name, number in stated.items() if number is not None}
    laws = laws_of(loaded.scenario, loaded.acceptance())
    values = {name: BY_LAW[name](laws) for name in asked}
    if measured.whole_loop:
        values |= _simulated(loaded, SPEEDUP in asked)
    doubts = doubts_of(loaded, (), [BY_LAW[name] for name in asked])
    deviates = Deviates()
    for (name, number), doubt in zip(asked.items(), doubts, strict=True):
        yield RowComparison(name, number, deviates.drawn(values[name], doubt))


def _simulated(loaded: Loaded, beside_plain: bool) -> dict[str, float]:
    """Return what a closed loop comes to from its first request to its last, by quantity: tokens
    per second, mean times in seconds, and the speed-up by tokens per second over plain decoding.
    """
    scenario = loaded.scenario
    outcome, _ = simulate(scenario, loaded.acceptance())
    found = {RATE: outcome.tokens_per_s, TPOT: outcome.tpot_s, TTFT: outcome.ttft_s}
    if beside_plain:
        without, _ = simulate(plain(scenario), NO_DRAFTS)
        found[SPEEDUP] = outcome.tokens_per_s / without.tokens_per_s
    return found


BY_LAW: Mapping[str, Quantity] = {
    SPEEDUP: speedup_by_law,
    PLAIN_STEP: plain_step_by_law,
    STEP: step_by_law,
    RATE: rate_by_law,
    TPOT: tpot_by_law,
    TTFT: tpot_by_law,
}
"""From which law a quantity has its value, or at least how it follows what is not known; a first
token that waits for those before it follows the time per token.
"""
