"""A ledger of errors: what was measured beside what is said of it, as page and JSON of ``specsim
validate --table``.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from simulator.core.numeric import grouped
from simulator.core.plain import PlainData
from simulator.evidence.ledger.rows import (
    RATE,
    SPEEDUP,
    TPOT,
    TTFT,
    LedgerRow,
    LeftOut,
    MeasuredTable,
)
from simulator.evidence.ledger.score import (
    EVERY,
    NEITHER,
    OURS,
    SHARE,
    CountedShare,
    JudgedSpeedup,
    Score,
    StepScore,
    judged,
    loop_scores,
    scores,
    speedups,
    step_scores,
)
from simulator.report.blocks import (
    Block,
    Bullets,
    Highlight,
    Page,
    Paragraph,
    Standing,
    Table,
    sections,
)
from simulator.report.columns import Column, table
from simulator.report.wording import number, plural, share, signed_share, whole_share
from simulator.scenario.decision.verdict import verdict

LEGEND = (
    f"A loss or a gain is a measured speed-up more than {whole_share(NEITHER)} from 1. A source "
    "counts once: mean over its rows, then over sources; shares of intervals are over rows. "
    "`may hurt` is half a loss found, and half a false alarm. Intervals should hold "
    f"{whole_share(SHARE)}."
)
GUESSES = (
    "tokens x constant: the tokens of a step times the mean of measured / tokens in all other "
    "sources. bytes alone: a pass takes as long as reading its weights. Their intervals are what "
    "all other sources leave."
)
LOOPS = (
    "Rows that say how many requests ran: simulated from the first request to the last under the "
    "engine's own policy; clients for which the KV cache has no room wait. Measured first, then "
    "what is said."
)


def page(ledgers: Sequence[MeasuredTable], command: str) -> Page:
    """Return the page of tables of measured rows."""
    rows = [row for ledger in ledgers for row in ledger.rows]
    left_out = [row for ledger in ledgers for row in ledger.left_out]
    every = scores(rows)
    overall = [score for score in every if score.group == EVERY]
    groups = [score for score in every if score.group != EVERY]
    ours = next((score for score in overall if score.guesser == OURS), None)
    opening: list[Block] = []
    if ours:
        opening = [_scores("Speed-up", overall), Bullets([LEGEND, GUESSES])]
    return Page(
        "What was measured, and what is said of it",
        answer=headline(ours, len(rows), len(left_out)),
        highlights=list(_highlights(ours)) if ours else (),
        opening=opening,
        sections=sections(*_sections(rows, groups, left_out)),
        command=command,
        standing=Standing(doubts=[f"left out: {row.fault}" for row in left_out]),
    )


def _sections(
    rows: Sequence[LedgerRow], groups: Sequence[Score], left_out: Sequence[LeftOut]
) -> Iterator[tuple[str, list[Block]]]:
    """Yield the sections for which there are rows."""
    if groups:
        yield "By group", [_scores("Speed-up by group", groups)]
    if steps := step_scores(rows):
        yield "Steps", [_steps(steps)]
    if loops := loop_scores(rows):
        yield "Closed loops", [*_loops(rows, loops), Paragraph(LOOPS)]
    if groups:
        yield "Row by row", [_rows(judged(speedups(rows))[OURS])]
    if left_out:
        yield "Left out", [Bullets(list(reasons(left_out)))]
    if assumed := list(_assumed(rows)):
        yield "Assumed", [Bullets(assumed)]


def headline(ours: Score | None, rows: int, left_out: int) -> str:
    """Return how many losses are found, and how far the rest is off."""
    read = plural(rows, "row")
    if left_out:
        read += f" and {left_out} left out"
    if ours is None:
        return f"{read}, no speed-up among them."
    losses = "no loss was measured"
    if ours.losses_found.rows:
        losses = (
            f"of {ours.losses_found.rows} measured losses {_share(ours.losses_found)} are found"
        )
    alarms = ""
    if ours.false_alarms.rows:
        alarms = (
            f", of {ours.false_alarms.rows} gains {_share(ours.false_alarms)} are called losses"
        )
    return (
        f"{read}: {losses}{alarms}; speed-ups are off by {share(ours.median_error)} (median), and "
        f"{_share(ours.held)} lie within intervals that should hold {whole_share(SHARE)}."
    )


def _highlights(ours: Score) -> Iterator[Highlight]:
    if ours.losses_found.rows:
        yield Highlight(_share(ours.losses_found), "of measured losses found")
    yield Highlight(share(ours.median_error), "median error of a speed-up")
    yield Highlight(_share(ours.held), f"within intervals of {whole_share(SHARE)}")


def _share(of: CountedShare) -> str:
    return whole_share(of.value)


def _counted(of: CountedShare) -> str:
    """Return a share with the number of its rows."""
    if of.value is None:
        return ""
    return f"{whole_share(of.value)} ({of.rows})"


def _scores(title: str, found: Sequence[Score]) -> Table:
    return table(
        title,
        found,
        [
            Column("rows", lambda score: score.group),
            Column("who says it", lambda score: score.guesser),
            Column("sign right", lambda score: _counted(score.sign)),
            Column("losses found", lambda score: _counted(score.losses_found)),
            Column("false alarms", lambda score: _counted(score.false_alarms)),
            Column("may hurt", lambda score: _share(score.undecided)),
            Column("error (median)", lambda score: share(score.median_error)),
            Column("held", lambda score: _counted(score.held)),
            Column("interval score", lambda score: number(score.interval_score, 2)),
            Column("width (log)", lambda score: number(score.width, 2)),
        ],
        terminal_columns=(0, 1, 2, 3, 4, 6, 7, 8),
    )


def _steps(found: Sequence[StepScore]) -> Table:
    return _singly("Times of steps, rows counted singly", "time of a", found)


def _loops(rows: Sequence[LedgerRow], found: Sequence[StepScore]) -> list[Block]:
    """Return the tables of closed loops: how far they are off, then row by row."""
    whole = [row for row in rows if row.of(RATE)]
    by_row = table(
        "Closed loops, measured and said",
        whole,
        [
            Column("line", lambda row: str(row.place[1])),
            Column("clients", lambda row: f"{row.loaded.scenario.requests.concurrency:,}"),
            Column("run", lambda row: f"{row.loaded.scenario.batch:,}"),
            Column("tokens/s", lambda row: _both(row, RATE, 1.0)),
            Column("ms per token", lambda row: _both(row, TPOT, 1e3)),
            Column("TTFT ms", lambda row: _both(row, TTFT, 1e3)),
            Column("of", lambda row: row.words),
        ],
        sortable=True,
        terminal_columns=(0, 1, 2, 3, 4, 5),
    )
    return [_singly("Closed loops as a whole, rows counted singly", "mean", found), by_row]


def _both(row: LedgerRow, quantity: str, scale: float) -> str:
    """Return what was measured of a row and what is said of it; empty where it was not."""
    compared = row.of(quantity)
    if compared is None:
        return ""
    measured = number(compared.measured * scale, 3)
    return f"{measured}, {number(compared.predicted.value * scale, 3)}"


def _singly(title: str, what: str, found: Sequence[StepScore]) -> Table:
    """Return the table of scores of quantities."""
    return table(
        title,
        found,
        [
            Column(what, lambda score: score.quantity),
            Column("rows", lambda score: str(score.rows)),
            Column("error (median)", lambda score: share(score.median_error)),
            Column("bias (median)", lambda score: signed_share(score.bias)),
            Column("held", lambda score: whole_share(score.held)),
        ],
    )


def _rows(rows: Sequence[JudgedSpeedup]) -> Table:
    return table(
        "Rows whose speed-up was measured",
        rows,
        [
            Column("line", lambda said: str(said.of.row.place[1])),
            Column("measured", lambda said: number(said.of.measured, 3)),
            Column("said", lambda said: number(said.guess.speedup, 3)),
            Column(f"interval of {whole_share(SHARE)}", _interval),
            Column("verdict", lambda said: said.guess.verdict),
            Column("run", lambda said: said.of.row.words),
            Column("chance of a gain", lambda said: whole_share(said.of.chance)),
            Column("source", lambda said: said.of.row.source),
        ],
        sortable=True,
        terminal_columns=(0, 1, 2, 3, 4, 5),
    )


def _interval(said: JudgedSpeedup) -> str:
    if said.guess.interval is None:
        return ""
    low, high = said.guess.interval
    return f"{number(low, 3)} to {number(high, 3)}"


def reasons(rows: Sequence[LeftOut]) -> Iterator[str]:
    """Yield why rows are left out, those of a file with one reason together."""
    by_reason = grouped(rows, lambda row: (row.fault.place[0], row.fault.field, row.fault.message))
    for (file, field, message), of_reason in by_reason.items():
        if len(of_reason) == 1:
            yield str(of_reason[0].fault)
            continue
        lines = consecutive(row.fault.place[1] for row in of_reason)
        named = f"{field}: " if field else ""
        yield f"{file}:{lines} ({plural(len(of_reason), 'row')}): {named}{message}"


def consecutive(lines: Iterable[int]) -> str:
    """Return numbers in a row as their first and last: '2-4, 9' of 2, 3, 4 and 9."""
    ranges: list[list[int]] = []
    for line in lines:
        if ranges and line == ranges[-1][1] + 1:
            ranges[-1][1] = line
        else:
            ranges.append([line, line])
    words = []
    for first, last in ranges:
        words.append(str(first) if first == last else f"{first}-{last}")
    return ", ".join(words)


def _assumed(rows: Sequence[LedgerRow]) -> Iterator[str]:
    """Yield what was taken where rows say nothing, with the number of rows."""
    counts = Counter(words for row in rows for words in row.assumed)
    for words, count in counts.items():
        yield f"{words} ({plural(count, 'row')})"


def as_data(ledgers: Sequence[MeasuredTable]) -> PlainData:
    """Return scores and rows as the object that ``--json`` prints; times in seconds, errors as
    shares.
    """
    rows = [row for ledger in ledgers for row in ledger.rows]
    left_out = []
    for ledger in ledgers:
        for row in ledger.left_out:
            left_out.append({"row": row.words, "reason": str(row.fault)})
    return {
        "scores": [asdict(score) for score in scores(rows)],
        "steps": [score._asdict() for score in step_scores(rows)],
        "closed_loops": [score._asdict() for score in loop_scores(rows)],
        "rows": [_row_data(row) for row in rows],
        "left_out": left_out,
    }


def _row_data(row: LedgerRow) -> PlainData:
    comparisons = []
    for comparison in row.comparisons:
        predicted = comparison.predicted
        low, high = predicted.interval(SHARE)
        compared: PlainData = {
            "quantity": comparison.quantity,
            "measured": comparison.measured,
            "predicted": predicted.value,
            "low": low,
            "high": high,
        }
        if comparison.quantity == SPEEDUP:
            chance = predicted.chance_above(1.0)
            compared |= {"chance": chance, "verdict": verdict(chance)}
        comparisons.append(compared)
    file, line, _ = row.place
    return {
        "file": file,
        "line": line,
        "row": row.words,
        "source": row.source,
        "tokens_per_step": row.tokens_per_step,
        "comparisons": comparisons,
        "assumed": list(row.assumed),
    }
