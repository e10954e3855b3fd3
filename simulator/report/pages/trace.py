"""What a recorded trace contains: the pages of ``specsim trace info`` and ``compare``, the figures of ``plot``."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from simulator.acceptance.statistics import Hits, Statistics, WindowMean
from simulator.acceptance.trace import Trace
from simulator.numeric import grouped
from simulator.report.blocks import Block, Bullets, Page, Table, sections
from simulator.report.drawing import canvas
from simulator.report.figures import BLUE, GREEN, GREY, ORANGE, VERMILLION, legend_above, log_x
from simulator.report.numbers import number, percent, share

FLAVOUR_WINDOW = 7
"""Window in draft tokens at which flavours are compared; a trace with shorter windows uses its largest."""
COMPARED = (1, 2, 3, 4, 5, 7, 10, 16)
"""Windows in draft tokens at which traces are compared."""
COMPARED_WIDTHS = (1, 8)
"""Numbers of first choices at which traces are compared."""
FORMULAS = (
    "Accepted draft tokens, correction or bonus not counted. i.i.d.: rate + rate² + ... with the replayed rate at γ = 1; "
    "law: from all positions, visited or not"
)
POSITIONS_SHOWN = 5
WINDOW_HEAD = ("γ", "replayed", "i.i.d.", "error", "law", "error")
FLAVOUR_HEAD = ("", "tokens", "accepted", "replayed", "i.i.d. error", "law error", "repeats")
DRAFTER_HEAD = ("", *map(str, range(1, POSITIONS_SHOWN + 1)), "window", "kept a step")
PIPELINE_HEAD = ("width", "children", "stages", "in the tree", "steps a token", "rows a step", "in flight")
RUNS_SHOWN = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24)
"""Where the classes of the run-length histogram begin, in tokens."""
COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, "#CC79A7", "#56B4E9", GREY, "black")  # Okabe and Ito
MARKS = "osD^vP*X"
LONGEST_RUN = 24
"""Runs of this many tokens or more share a bar of the figure."""


def page(name: str, trace: Trace, numbers: Statistics, size_bytes: int) -> Page:
    """Return the page of the trace ``name``: header, flavours, windows, hits and run lengths."""
    widths = ("", *(f"k = {width}" for width in _widths(numbers)))
    gamma = _flavour_window(numbers)
    titles = (
        "Accepted draft tokens per window (correction or bonus not counted), errors against the replay",
        f"By kind of text: accepted at all positions; the rest at γ = {gamma}",
        "Emitted token among the first k choices; at corrections: where the draft was rejected",
        "Every drafter of the same text: kept at each position, in % of the windows that got there",
        "Dynamic trees in a pipeline (SpecPipe), as grown and verified",
        "Accepted in a row: windows of unlimited length",
        "How the means are computed",
    )
    blocks = (
        _table(WINDOW_HEAD, _window_rows(numbers), "Windows"),
        _table(FLAVOUR_HEAD, _flavour_rows(numbers), "Kinds of text"),
        _table(widths, _hit_rows(numbers), "Hits"),
        _table(DRAFTER_HEAD, _drafter_rows(numbers), "Drafters"),
        _table(PIPELINE_HEAD, _pipeline_rows(numbers), "Dynamic trees"),
        _table(("tokens", "windows"), _run_rows(numbers), "Run lengths", bars=(1,)),
        [Bullets([FORMULAS])],
    )
    facts = Bullets(_facts(trace, numbers, size_bytes))
    tables = sections(*zip(titles, blocks, strict=True))
    return Page(f"trace {name}", opening=[facts], sections=tables, command=f"specsim trace info {name}")


def _table(head: Sequence[str], rows: Iterable[tuple[str, ...]], title: str, bars: tuple[int, ...] = ()) -> Iterator[Block]:
    """Yield the table, unless it has no row."""
    if filled := list(rows):
        yield Table(head, filled, title, bars=bars)


def _facts(trace: Trace, numbers: Statistics, size_bytes: int) -> list[str]:
    """Return what a trace was recorded from, a sentence each."""
    if trace.temperature is None:
        decoding = "temperature not stated"
    elif trace.temperature == 0:
        decoding = "greedy"
    else:
        decoding = f"sampled at temperature {trace.temperature:g}"
    window = f"windows of up to {trace.window} draft tokens" if trace.window else "any window"
    vocabulary = f"vocabulary of {trace.vocabulary:,}" if trace.vocabulary else "vocabulary not known"
    facts = [
        f"{numbers.requests:,} requests, {numbers.tokens:,} tokens; accepted at {share(numbers.rate)} of all positions",
        f"{trace.pair[0].upper()}{trace.pair[1:]}; {vocabulary}; {decoding}; {window}; format {trace.header['format']}, "
        f"{size_bytes / trace.positions:.1f} bytes a token",
    ]
    facts += [f"{key}: {trace.header[key]}" for key in ("source", "replay", "command", "selection") if key in trace.header]
    if derived := trace.header.get("derived_from"):
        facts.append(f"derived from a recording: {', '.join(f'{key} {value}' for key, value in derived.items())}")
    return facts


def comparison_page(traces: Sequence[tuple[str, Statistics]]) -> Page:
    """Return the page of several traces: their numbers, a column for each."""
    statistics = [numbers for _, numbers in traces]
    head = ("", *(name for name, _ in traces))
    columns: dict[str, Callable[[WindowMean], str]] = {
        "replayed": lambda window: number(window.replayed),
        "i.i.d. error": lambda window: _error(window.independent_error_percent),
        "law error": lambda window: _error(window.law_error_percent),
    }
    rows = list(_size_rows(statistics))
    for label, value in columns.items():
        rows += _compared_windows(statistics, label, value)
    hits = [{(hit.fraction, hit.width): hit.everywhere for hit in numbers.hits} for numbers in statistics]
    for fraction, width in dict.fromkeys(place for by_place in hits for place in by_place):
        if width in COMPARED_WIDTHS:
            shares = (_share(by_place.get((fraction, width))) for by_place in hits)
            rows.append((f"{_place(fraction)}, first {width}", *shares))
    opening: list[Block] = [Table(head, rows, "Traces"), Bullets([FORMULAS])]
    names = " ".join(name for name, _ in traces)
    return Page("Traces side by side", opening=opening, command=f"specsim trace compare {names}")


def _size_rows(statistics: Sequence[Statistics]) -> Iterator[tuple[str, ...]]:
    """Yield how much was recorded in each trace, and how much of it was accepted, over all and by kind of text."""
    yield ("requests", *(f"{numbers.requests:,}" for numbers in statistics))
    yield ("tokens", *(f"{numbers.tokens:,}" for numbers in statistics))
    yield ("repeated four-grams", *(_share(numbers.repetition) for numbers in statistics))
    yield ("accepted, all positions", *(share(numbers.rate) for numbers in statistics))
    rates = [{flavour.flavour: flavour.rate for flavour in numbers.flavours} for numbers in statistics]
    for name in dict.fromkeys(name for by_flavour in rates for name in by_flavour):
        yield (f"  {name}", *(_share(by_flavour.get(name)) for by_flavour in rates))


def _compared_windows(
    statistics: Sequence[Statistics], label: str, value: Callable[[WindowMean], str]
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each window at which traces are compared, with a value of each of them."""
    cells = [{window.gamma: value(window) for window in numbers.windows} for numbers in statistics]
    for gamma in COMPARED:
        if any(by_gamma.get(gamma) for by_gamma in cells):
            yield (f"γ = {gamma}: {label}", *(by_gamma.get(gamma, "") for by_gamma in cells))


def _error(value: float | None) -> str:
    return "" if value is None else percent(value)


def _share(value: float | None) -> str:
    return "" if value is None else share(value)


def _place(fraction: float | None) -> str:
    return "draft" if fraction is None else f"exit at {fraction:g}"


def _window_rows(numbers: Statistics) -> Iterator[tuple[str, ...]]:
    for window in numbers.windows:
        formula = number(window.independent), _error(window.independent_error_percent)
        yield str(window.gamma), number(window.replayed), *formula, number(window.law), _error(window.law_error_percent)


def _flavour_window(numbers: Statistics) -> int:
    """Return the window in draft tokens at which flavours are compared."""
    return min(FLAVOUR_WINDOW, len(numbers.windows))


def _flavour_rows(numbers: Statistics) -> Iterator[tuple[str, ...]]:
    for flavour in numbers.flavours:
        window = flavour.windows[_flavour_window(numbers) - 1]
        means = number(window.replayed), *map(_error, (window.independent_error_percent, window.law_error_percent))
        yield flavour.flavour, f"{flavour.tokens:,}", share(flavour.rate), *means, _share(flavour.repetition)


def _widths(numbers: Statistics) -> list[int]:
    """Return the numbers of first choices that have hits."""
    return list(dict.fromkeys(hit.width for hit in numbers.hits))


def _hit_rows(numbers: Statistics) -> Iterator[tuple[str, ...]]:
    for fraction in dict.fromkeys(hit.fraction for hit in numbers.hits):
        hits = [hit for hit in numbers.hits if hit.fraction == fraction]
        yield (f"{_place(fraction)}, all positions", *(share(hit.everywhere) for hit in hits))
        yield (f"{_place(fraction)}, at corrections", *(_share(hit.at_corrections) for hit in hits))


def _drafter_rows(numbers: Statistics) -> Iterator[tuple[str, ...]]:
    for drafter in numbers.drafters:
        rates = [f"{100.0 * rate:.1f}" for rate in drafter.by_position[:POSITIONS_SHOWN]]
        missing = [""] * (POSITIONS_SHOWN - len(rates))
        yield drafter.name, *rates, *missing, str(drafter.window), number(drafter.kept_per_step)


def _pipeline_rows(numbers: Statistics) -> Iterator[tuple[str, ...]]:
    for pipeline in numbers.pipelines:
        sizes = str(pipeline.width), str(pipeline.branching), str(pipeline.stages)
        means = pipeline.steps_per_token, pipeline.rows_per_step, pipeline.rows_in_flight
        yield *sizes, share(pipeline.hit_rate), *map(number, means)


def _run_rows(numbers: Statistics) -> Iterator[tuple[str, ...]]:
    total = sum(numbers.runs.values())
    for low, after in zip(RUNS_SHOWN, [*RUNS_SHOWN[1:], None], strict=True):
        count = sum(windows for kept, windows in numbers.runs.items() if kept >= low and (after is None or kept < after))
        if not count:
            continue
        if after is None:
            label = f"{low} or more"
        elif after == low + 1:
            label = str(low)
        else:
            label = f"{low} to {after - 1}"
        yield label, share(count / total)


def figures(numbers: Statistics) -> dict[str, str]:
    """Return SVG texts by file name without ending, of what was recorded in the trace."""
    drawings = {
        "windows": _draw_windows,
        "run_lengths": _draw_runs,
        "acceptance_by_position": partial(_by_position, of="flavours", verb="accepted"),
    }
    if numbers.hits:
        drawings["hits_by_width"] = _draw_hits
    if any(hit.fraction is not None for hit in numbers.hits):
        drawings["exit_hits_at_corrections"] = _draw_corrections
    if numbers.drafters:
        drawings["drafters_by_position"] = partial(_by_position, of="drafters", verb="kept")
    if len(numbers.pipelines) > 1:
        drawings["pipeline_hits"] = _draw_pipelines
    return {name: _drawn(draw, numbers) for name, draw in drawings.items()}


def _drawn(draw: Any, numbers: Statistics) -> str:
    with canvas(3.2) as drawing:
        draw(drawing, numbers)
        return drawing


def _draw_windows(drawing: Drawing, numbers: Statistics) -> None:
    """Draw mean accepted tokens by window: replayed, i.i.d., law."""
    axes = drawing.subplots()
    gammas = [window.gamma for window in numbers.windows]
    axes.plot(gammas, [window.independent for window in numbers.windows], "--", color=ORANGE, label="i.i.d., rate at γ = 1")
    axes.plot(gammas, [window.law for window in numbers.windows], "-", color=BLUE, label="law, all positions")
    axes.plot(gammas, [window.replayed for window in numbers.windows], "o", mfc="none", mec=VERMILLION, ms=5, label="replay")
    axes.set_xlabel("window γ (draft tokens)")
    axes.set_ylabel("accepted draft tokens")
    axes.set_ylim(bottom=0.0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_above(axes, 3)


def _draw_runs(drawing: Drawing, numbers: Statistics) -> None:
    """Draw windows of unlimited length by accepted tokens, and what i.i.d. acceptance would give."""
    axes = drawing.subplots()
    longest = min(max(numbers.runs), LONGEST_RUN)
    shares = np.zeros(longest + 1)
    for kept, windows in numbers.runs.items():
        shares[min(kept, longest)] += windows
    shares *= 100.0 / shares.sum()
    lengths, rate = np.arange(longest + 1), numbers.windows[0].replayed
    expected = 100.0 * np.append(rate ** lengths[:-1] * (1.0 - rate), rate**longest)
    axes.bar(lengths, shares, width=0.7, color=BLUE, alpha=0.55, label="replay")
    axes.plot(lengths, expected, "D", mfc="white", mec=VERMILLION, mew=1.2, ms=4, label=f"i.i.d., rate {rate:.3f}")
    axes.set_xlabel(f"draft tokens accepted in a row (last: {longest} or more)")
    axes.set_ylabel("windows of unlimited length (%)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_above(axes, 2)


def _by_position(drawing: Drawing, numbers: Statistics, of: str, verb: str) -> None:
    """Draw acceptance at each position of a window, of the windows that got there, by kind of text or by drafter."""
    axes = drawing.subplots()
    for index, curve in enumerate(getattr(numbers, of)):
        name, rates = curve.flavour if of == "flavours" else curve.name, curve.by_position
        axes.plot(range(1, len(rates) + 1), [100.0 * rate for rate in rates], label=name, **_look(index))
    axes.set_xlabel(f"position in the window (all before it {verb})")
    axes.set_ylabel(f"{verb} (%)")
    axes.set_ylim(0.0, 101.0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_above(axes, 4 if of == "flavours" else 5)


def _draw_hits(drawing: Drawing, numbers: Statistics) -> None:
    """Draw the share of emitted tokens among the first k choices of the draft and of each exit."""
    axes = drawing.subplots()
    for index, (name, hits) in enumerate(_by_place(numbers).items()):
        axes.plot([hit.width for hit in hits], [100.0 * hit.everywhere for hit in hits], label=name, **_look(index))
    _width_axis(axes, _widths(numbers), "first k choices of the draft or exit")
    axes.set_ylim(0.0, 101.0)
    axes.set_ylabel("emitted token among them (%)")
    legend_above(axes, 4)


def _draw_corrections(drawing: Drawing, numbers: Statistics) -> None:
    """Draw exit hits at all positions against those at rejected ones, where a correction is looked up."""
    exits = {name: hits for name, hits in _by_place(numbers).items() if hits[0].fraction is not None}
    panels = drawing.subplots(1, len(exits), sharey=True, squeeze=False)[0]
    for axes, (name, hits) in zip(panels, exits.items(), strict=True):
        widths = [hit.width for hit in hits]
        missed = [(hit.width, 100.0 * hit.at_corrections) for hit in hits if hit.at_corrections is not None]
        axes.plot(widths, [100.0 * hit.everywhere for hit in hits], "-o", color=BLUE, ms=4, label="all positions")
        axes.plot(*zip(*missed, strict=True) if missed else ([], []), "--s", color=VERMILLION, ms=4, label="at corrections")
        _width_axis(axes, widths, "first k choices")
        axes.set_ylim(0.0, 101.0)
        axes.set_title(name, size=9.0)
    panels[0].set_ylabel("emitted token among them (%)")
    handles, labels = panels[0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside upper left", ncols=2)


def _draw_pipelines(drawing: Drawing, numbers: Statistics) -> None:
    """Draw the share of tokens that were in the dynamic tree by its width, and the pipeline steps that a token took."""
    hits, steps = drawing.subplots(1, 2)
    families = grouped(numbers.pipelines, lambda pipeline: (pipeline.branching, pipeline.stages))
    for index, ((branching, stages), members) in enumerate(sorted(families.items(), key=lambda family: -len(family[1]))):
        members.sort(key=lambda pipeline: pipeline.width)
        widths, style = [pipeline.width for pipeline in members], _look(index) | {"ls": "-" if len(members) > 2 else ":"}
        hits.plot(
            widths, [100.0 * pipeline.hit_rate for pipeline in members], label=f"{branching} children, {stages} stages", **style
        )
        steps.plot(widths, [pipeline.steps_per_token for pipeline in members], **style)
    for axes, name in ((hits, "token in the tree (%)"), (steps, "pipeline steps a token")):
        _width_axis(axes, (pipeline.width for pipeline in numbers.pipelines), "width of the tree (nodes a level)")
        axes.set_ylabel(name)
    steps.set_ylim(bottom=0.0)
    handles, labels = hits.get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside upper left", ncols=3)


def _by_place(numbers: Statistics) -> dict[str, list[Hits]]:
    return grouped(numbers.hits, lambda hit: "draft" if hit.fraction is None else f"exit at {hit.fraction:.0%} of depth")


def _look(index: int) -> Any:
    line = "-" if index < len(COLOURS) else "--"
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKS[index % len(MARKS)], "ms": 4, "ls": line}


def _width_axis(axes: Any, widths: Iterable[int], label: str) -> None:
    log_x(axes, 2)
    axes.xaxis.set_major_locator(FixedLocator(sorted(set(widths))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(label)
