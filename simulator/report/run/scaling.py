"""How the number of replicas followed the load: what it came to, and when it changed."""

import csv
from io import StringIO

from simulator.core.numeric import quotient
from simulator.report.blocks import Block, Paragraph, Section
from simulator.report.columns import Column, table
from simulator.report.wording import number, share
from simulator.scenario.outcome import Outcome
from simulator.scenario.result.run_result import RunResult

TITLE = "Replicas over time"
CHANGES = "scaling.csv"
"""The file of all changes beside a report."""
MOST_ROWS = 40
"""Changes that a page shows."""
METRICS = {
    "outstanding": "requests of a replica",
    "kv_use": "KV cache in use",
    "slo": "requests that meet the SLO",
}


def section(result: RunResult) -> Section:
    """Return the table of changes; nothing where the number of replicas stayed."""
    scaling = result.simulated.scaling
    if scaling is None:
        return Section(TITLE, [])
    columns: list[Column[dict[str, float | int | str]]] = [
        Column("at (s)", lambda change: f"{change['at_s']:,g}"),
        Column("from", lambda change: change["from"]),
        Column("to", lambda change: change["to"]),
        Column("why", lambda change: change["why"]),
    ]
    blocks: list[Block] = [Paragraph(f"Replicas: {scaled(result)}")]
    changes = scaling.table
    if changes:
        title = "Changes of the number of replicas that are wanted"
        blocks.append(table(title, changes[:MOST_ROWS], columns))
    if len(changes) > MOST_ROWS:
        rest = f"The first {MOST_ROWS} of {len(changes):,} changes; all are in {CHANGES}."
        blocks.append(Paragraph(rest))
    return Section(TITLE, blocks)


def scaled(result: RunResult) -> str:
    """Return how many replicas there were, what they did and what idle ones cost; empty where their
    number stayed.
    """
    outcome = result.simulated
    scaling = outcome.scaling
    if scaling is None:
        return ""
    changes = len(scaling.changes)
    waited = ""
    if scaling.waiting_starts:
        waited = f", {scaling.waiting_starts:,} of which waited for a place"
    return (
        f"{number(outcome.mean_replicas, 3)} on average, {scaling.least_replicas:,} to "
        f"{scaling.most_replicas:,}, by {METRICS[scaling.by]} (target {scaling.target:g}); "
        f"{changes:,} {'change' if changes == 1 else 'changes'}, {scaling.starts:,} "
        f"{'start' if scaling.starts == 1 else 'starts'} of {number(scaling.start_s, 3)} s"
        f"{waited}. {_over_time(outcome)}{_price(result)}."
    )


def _over_time(outcome: Outcome) -> str:
    """Return replicas over time, and which parts of that served nobody."""
    scaling = outcome.scaling
    starting_s = scaling.starting_s if scaling else 0.0
    starting = share(quotient(starting_s, outcome.replica_s))
    idle = share(quotient(outcome.idle_s, outcome.replica_s))
    hours = number(outcome.replica_s / 3600.0, 3)
    return f"Of {hours} replica-hours {starting} went into starts and {idle} were idle"


def _price(result: RunResult) -> str:
    """Return what replicas cost over time, and idle ones of it, as far as that is known."""
    bill = result.expenses
    if bill is None or bill.usd is None or bill.idle_usd is None:
        return ""
    return f": {number(bill.usd, 3)} USD, {number(bill.idle_usd, 3)} of them for idle ones"


def changes_as_csv(outcome: Outcome) -> str | None:
    """Return a line of each change, below a head; None where the number of replicas stayed."""
    if outcome.scaling is None:
        return None
    text = StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(("at_s", "from", "to", "metric", "why"))
    for change in outcome.scaling.table:
        lines.writerow(change.values())
    return text.getvalue()
