"""What a trace says, on a terminal: at most 100 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.acceptance.statistics import Statistics, WindowMean
from simulator.acceptance.trace import Trace
from simulator.report.console import BAR, WIDEST, item, new_table
from simulator.report.run_summary import number, percent, share

FLAVOUR_WINDOW = 7
"""Window at which flavours are compared, or the largest that the trace knows."""
COMPARED = (1, 2, 3, 4, 5, 7, 10, 16)
COMPARED_WIDTHS = (1, 8)
FORMULAS = (
    "Accepted draft tokens, correction or bonus not counted. i.i.d.: rate + rate² + ... with the replayed rate at γ = 1; "
    "law: from all positions, visited or not"
)
POSITIONS_SHOWN = 5
RUNS_SHOWN = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24)
"""Where the classes of the run-length histogram begin."""


def print_info(name: str, trace: Trace, found: Statistics, size_bytes: int, console: Console) -> None:
    """Header, flavours, windows, hits and run lengths of one trace."""
    width = min(console.width, WIDEST)
    console.print(Text(f"trace {name}", style="bold"), width=width)
    decoding = "temperature not stated" if trace.temperature is None else f"sampled at temperature {trace.temperature:g}"
    decoding = "greedy" if trace.temperature == 0 else decoding
    window = f"windows of up to {trace.window} draft tokens" if trace.window else "any window"
    vocabulary = f"vocabulary of {trace.vocabulary:,}" if trace.vocabulary else "vocabulary not known"
    facts = [
        f"{found.requests:,} requests, {found.tokens:,} tokens; accepted at {share(found.rate)} of all positions",
        f"{trace.pair[0].upper()}{trace.pair[1:]}; {vocabulary}; {decoding}; {window}; format {trace.header['format']}, "
        f"{size_bytes / trace.positions:.1f} bytes a token",
        *(f"{key}: {trace.header[key]}" for key in ("source", "replay", "command", "selection") if key in trace.header),
    ]
    derived = trace.header.get("derived_from")
    facts += [f"derived from a recording: {', '.join(f'{key} {value}' for key, value in derived.items())}"] if derived else []
    for fact in facts:
        item(console, fact, width)
    for title, table in (
        ("Accepted draft tokens per window (correction or bonus not counted), errors against the replay", _windows(found)),
        (
            f"By kind of text: accepted at all positions; the rest at γ = {_flavour_window(found)}",
            _flavours(found),
        ),
        ("Emitted token among the first k choices; at corrections: where the draft was rejected", _hits(found)),
        ("Every drafter of the same text: kept at each position, in % of the windows that got there", _drafters(found)),
        ("Dynamic trees in a pipeline (SpecPipe), as grown and verified", _pipelines(found)),
        ("Accepted in a row: windows without an end", _runs(found)),
    ):
        if table.row_count:
            console.print(Text(f"\n{title}", style="bold"), width=width)
            console.print(table, width=width)
    item(console, FORMULAS, width)


def print_comparison(found: Sequence[tuple[str, Statistics]], console: Console) -> None:
    """The same numbers, one column per trace."""
    table = Table.grid() if not found else new_table("", *(name for name, _ in found))
    for column in table.columns[1:]:
        column.overflow = "fold"
    every = [numbers for _, numbers in found]
    table.add_row("requests", *(f"{one.requests:,}" for one in every))
    table.add_row("tokens", *(f"{one.tokens:,}" for one in every))
    table.add_row("repeated four-grams", *(_share(one.repetition) for one in every))
    table.add_row("accepted, all positions", *(share(one.rate) for one in every))
    for flavour in dict.fromkeys(f.flavour for one in every for f in one.flavours):
        rates = [{f.flavour: f.rate for f in one.flavours}.get(flavour) for one in every]
        table.add_row(f"  {flavour}", *map(_share, rates))
    for label, value in (("replayed", _replayed), ("i.i.d. error", _independent), ("law error", _law)):
        table.add_section()
        for gamma in COMPARED:
            held = [{w.gamma: value(w) for w in one.windows}.get(gamma, "") for one in every]
            if any(held):
                table.add_row(f"γ = {gamma}: {label}", *held)
    table.add_section()
    hits = [{(hit.fraction, hit.width): hit.everywhere for hit in one.hits} for one in every]
    for fraction, wide in dict.fromkeys(key for one in hits for key in one):
        if wide in COMPARED_WIDTHS:
            table.add_row(f"{_place(fraction)}, first {wide}", *(_share(one.get((fraction, wide))) for one in hits))
    console.print(table, width=min(console.width, WIDEST))
    item(console, FORMULAS, min(console.width, WIDEST))


def _replayed(window: WindowMean) -> str:
    return number(window.replayed)


def _independent(window: WindowMean) -> str:
    return _error(window.independent_error_percent)


def _law(window: WindowMean) -> str:
    return _error(window.law_error_percent)


def _error(value: float | None) -> str:
    return "" if value is None else percent(value)


def _share(value: float | None) -> str:
    return "" if value is None else share(value)


def _place(fraction: float | None) -> str:
    return "draft" if fraction is None else f"exit at {fraction:g}"


def _windows(found: Statistics) -> Table:
    table = new_table("γ", "replayed", "i.i.d.", "error", "law", "error")
    for one in found.windows:
        means = number(one.independent), _independent(one), number(one.law), _law(one)
        table.add_row(str(one.gamma), number(one.replayed), *means)
    return table


def _flavour_window(found: Statistics) -> int:
    return min(FLAVOUR_WINDOW, len(found.windows))


def _flavours(found: Statistics) -> Table:
    table = new_table("", "tokens", "accepted", "replayed", "i.i.d. error", "law error", "repeats")
    for one in found.flavours:
        at = one.windows[_flavour_window(found) - 1]
        means = number(at.replayed), _independent(at), _law(at)
        table.add_row(one.flavour, f"{one.tokens:,}", share(one.rate), *means, _share(one.repetition))
    return table


def _hits(found: Statistics) -> Table:
    widths = list(dict.fromkeys(hit.width for hit in found.hits))
    table = new_table("", *(f"k = {wide}" for wide in widths))
    for fraction in dict.fromkeys(hit.fraction for hit in found.hits):
        here = [hit for hit in found.hits if hit.fraction == fraction]
        table.add_row(f"{_place(fraction)}, all positions", *(share(hit.everywhere) for hit in here))
        table.add_row(f"{_place(fraction)}, at corrections", *(_share(hit.at_corrections) for hit in here))
    return table


def _drafters(found: Statistics) -> Table:
    table = new_table("", *(str(place) for place in range(1, POSITIONS_SHOWN + 1)), "window", "kept a step")
    for one in found.drafters:
        rates = [f"{100.0 * rate:.1f}" for rate in one.by_position[:POSITIONS_SHOWN]]
        table.add_row(one.name, *rates, *[""] * (POSITIONS_SHOWN - len(rates)), str(one.window), number(one.kept_per_step))
    return table


def _pipelines(found: Statistics) -> Table:
    table = new_table("width", "children", "stages", "in the tree", "steps a token", "rows a step", "in flight")
    for one in found.pipelines:
        sizes = str(one.width), str(one.branching), str(one.stages)
        means = one.steps_per_token, one.rows_per_step, one.rows_in_flight
        table.add_row(*sizes, share(one.hit_rate), *map(number, means))
    return table


def _runs(found: Statistics) -> Table:
    table = new_table("tokens", "windows", "")
    table.columns[2].justify = "left"
    total = sum(found.runs.values())
    for low, after in zip(RUNS_SHOWN, [*RUNS_SHOWN[1:], None], strict=True):
        count = sum(windows for kept, windows in found.runs.items() if kept >= low and (after is None or kept < after))
        label = f"{low} or more" if after is None else str(low) if after == low + 1 else f"{low} to {after - 1}"
        if count:
            table.add_row(label, share(count / total), "#" * round(BAR * count / total))
    return table
