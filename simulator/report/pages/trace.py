"""What a recorded trace contains: the pages of ``specsim trace info`` and ``compare``, the figures
of ``plot``.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FixedLocator, NullLocator

from simulator.acceptance.statistics import Hits, Statistics
from simulator.acceptance.trace import Trace
from simulator.files.shell import typed
from simulator.numeric import grouped
from simulator.report.blocks import Block, Bullets, Page, Table, Words, sections
from simulator.report.drawing import canvas
from simulator.report.figures import panel
from simulator.report.panels import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, legend_above
from simulator.report.wording import Wording, share

FLAVOUR_WINDOW = 7
"""Window in draft tokens at which flavours are compared; a trace with shorter windows uses its
largest.
"""
COMPARED = (1, 2, 3, 4, 5, 7, 10, 16)
"""Windows in draft tokens at which traces are compared."""
COMPARED_WIDTHS = (1, 8)
"""Numbers of first choices at which traces are compared."""
say = Wording("trace")
RUNS_SHOWN = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24)
"""Where the classes of the run-length histogram begin, in tokens."""
COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, GREY, "black")
MARKS = "osD^vP*X"
LONGEST_RUN = 24
"""Runs of this many tokens or more share a bar of the figure."""


def page(name: str, trace: Trace, numbers: Statistics, size_bytes: int) -> Page:
    """Return the page of the trace ``name``: header, flavours, windows, hits and run lengths."""
    widths = ["", *(f"k = {width}" for width in _widths(numbers))]
    gamma = min(FLAVOUR_WINDOW, len(numbers.windows))

    tables: list[Block] = [
        say.table("windows", numbers.windows),
        say.table("flavours", numbers.flavours, gamma=gamma),
        Table(widths, list(_hit_rows(numbers)), "Hits"),
        say.table("drafters", numbers.drafters),
        say.table("pipelines", numbers.pipelines),
        Table(("tokens", "windows"), list(_run_rows(numbers)), "Run lengths", bars=(1,)),
    ]
    blocks: list[list[Block]] = [
        [table] if isinstance(table, Table) and table.rows else [] for table in tables
    ]
    blocks.append([Bullets([say("formulas")])])
    titled = zip(say.all("sections", gamma=gamma), blocks, strict=True)
    facts = Bullets(_facts(trace, numbers, size_bytes))
    return Page(
        f"trace {name}",
        opening=[facts],
        sections=sections(*titled),
        command=typed("specsim", "trace", "info", names=[name]),
    )


def _facts(trace: Trace, numbers: Statistics, size_bytes: int) -> list[str]:
    """Return what a trace was recorded from, a sentence each."""
    facts = list(say.all("facts", trace=trace, numbers=numbers, size=size_bytes))
    facts += [
        f"{key}: {trace.header[key]}"
        for key in ("source", "replay", "command", "selection")
        if key in trace.header
    ]
    if derived := trace.header.get("derived_from"):
        facts.append(
            "derived from a recording: "
            f"{', '.join(f'{key} {value}' for key, value in derived.items())}"
        )
    return facts


def comparison_page(traces: Sequence[tuple[str, Statistics]]) -> Page:
    """Return the page of several traces: their numbers, a column for each."""
    statistics = [numbers for _, numbers in traces]
    head = ("", *(name for name, _ in traces))
    rows = [*_size_rows(statistics), *_compared_windows(statistics)]
    hits = [
        {(hit.fraction, hit.width): hit.everywhere for hit in numbers.hits}
        for numbers in statistics
    ]
    for fraction, width in dict.fromkeys(place for by_place in hits for place in by_place):
        if width in COMPARED_WIDTHS:
            shares = (_share(by_place.get((fraction, width))) for by_place in hits)
            rows.append((f"{_place(fraction)}, first {width}", *shares))
    opening: list[Block] = [Table(head, rows, "Traces"), Bullets([say("formulas")])]
    command = typed("specsim", "trace", "compare", names=[name for name, _ in traces])
    return Page("Traces side by side", opening=opening, command=command)


def _size_rows(statistics: Sequence[Statistics]) -> Iterator[tuple[Words, ...]]:
    """Yield how much was recorded in each trace, and how much of it was accepted, over all and by
    kind of text.
    """
    yield from zip(say.head("sizes"), *say.rows("sizes", statistics), strict=True)
    rates = [
        {flavour.flavour: flavour.rate for flavour in numbers.flavours} for numbers in statistics
    ]
    for name in dict.fromkeys(name for by_flavour in rates for name in by_flavour):
        yield (f"  {name}", *(_share(by_flavour.get(name)) for by_flavour in rates))


def _compared_windows(statistics: Sequence[Statistics]) -> Iterator[tuple[Words, ...]]:
    """Yield a row for each number of a window at which traces are compared, with its value in each
    of them.
    """
    windows = [
        [window for window in numbers.windows if window.gamma in COMPARED] for numbers in statistics
    ]
    cells = [{row[0]: row for row in say.rows("compared", each)} for each in windows]
    for place, label in list(enumerate(say.head("compared")))[1:]:
        for gamma in map(str, COMPARED):
            if any(
                values := [
                    by_gamma[gamma][place] if gamma in by_gamma else "" for by_gamma in cells
                ]
            ):
                yield (f"γ = {gamma}: {label}", *values)


def _share(value: float | None) -> str:
    return "" if value is None else share(value)


def _place(fraction: float | None) -> str:
    return "draft" if fraction is None else f"exit at {fraction:g}"


def _widths(numbers: Statistics) -> list[int]:
    """Return the numbers of first choices that have hits."""
    return list(dict.fromkeys(hit.width for hit in numbers.hits))


def _hit_rows(numbers: Statistics) -> Iterator[tuple[str, ...]]:
    for fraction in dict.fromkeys(hit.fraction for hit in numbers.hits):
        hits = [hit for hit in numbers.hits if hit.fraction == fraction]
        yield (f"{_place(fraction)}, all positions", *(share(hit.everywhere) for hit in hits))
        yield (f"{_place(fraction)}, at corrections", *(_share(hit.at_corrections) for hit in hits))


def _run_rows(numbers: Statistics) -> Iterator[tuple[str, ...]]:
    total = sum(numbers.runs.values())
    for low, after in zip(RUNS_SHOWN, [*RUNS_SHOWN[1:], None], strict=True):
        count = sum(
            windows
            for kept, windows in numbers.runs.items()
            if kept >= low and (after is None or kept < after)
        )
        label = f"{low} or more" if after is None else f"{low} to {after - 1}"
        if count:
            yield str(low) if after == low + 1 else label, share(count / total)


def figures(numbers: Statistics) -> dict[str, Drawing]:
    """Return drawings by file name without ending, of what was recorded in the trace."""
    drawings = {
        "windows": lambda drawing, numbers: panel(
            drawing.subplots(), say, "windows_panel", numbers.windows
        ),
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


def _drawn(draw: Any, numbers: Statistics) -> Drawing:
    with canvas(3.2) as drawing:
        draw(drawing, numbers)
        return drawing


def _draw_runs(drawing: Drawing, numbers: Statistics) -> None:
    """Draw windows of unlimited length by accepted tokens, and what i.i.d. acceptance would
    give.
    """
    axes = drawing.subplots()
    longest = min(max(numbers.runs), LONGEST_RUN)
    shares = np.zeros(longest + 1)
    for kept, windows in numbers.runs.items():
        shares[min(kept, longest)] += windows
    shares *= 100.0 / shares.sum()
    lengths, rate = np.arange(longest + 1), numbers.windows[0].replayed
    expected = 100.0 * np.append(rate ** lengths[:-1] * (1.0 - rate), rate**longest)
    axes.bar(lengths, shares, width=0.7, color=BLUE, alpha=0.55, label="replay")
    axes.plot(
        lengths,
        expected,
        "D",
        mfc="white",
        mec=VERMILLION,
        mew=1.2,
        ms=4,
        label=f"i.i.d., rate {rate:.3f}",
    )
    panel(axes, say, "runs_panel", (), longest=longest)


def _by_position(drawing: Drawing, numbers: Statistics, of: str, verb: str) -> None:
    """Draw acceptance at each position of a window, of the windows that got there, by kind of text
    or by drafter.
    """
    axes = drawing.subplots()
    for index, curve in enumerate(getattr(numbers, of)):
        name, rates = curve.flavour if of == "flavours" else curve.name, curve.by_position
        axes.plot(
            range(1, len(rates) + 1), [100.0 * rate for rate in rates], label=name, **_look(index)
        )
    panel(axes, say, "position_panel", (), verb=verb)
    legend_above(axes, 4 if of == "flavours" else 5)


def _draw_hits(drawing: Drawing, numbers: Statistics) -> None:
    """Draw the share of emitted tokens among the first k choices of the draft and of each exit."""
    axes = drawing.subplots()
    for index, (name, hits) in enumerate(_by_place(numbers).items()):
        axes.plot(
            [hit.width for hit in hits],
            [100.0 * hit.everywhere for hit in hits],
            label=name,
            **_look(index),
        )
    panel(axes, say, "hits_panel", ())
    _width_axis(axes, _widths(numbers))


def _draw_corrections(drawing: Drawing, numbers: Statistics) -> None:
    """Draw exit hits at all positions against those at rejected ones, where a correction is looked
    up.
    """
    exits = {
        name: hits for name, hits in _by_place(numbers).items() if hits[0].fraction is not None
    }
    panels = drawing.subplots(1, len(exits), sharey=True, squeeze=False)[0]
    for axes, (name, hits) in zip(panels, exits.items(), strict=True):
        panel(axes, say, "corrections_panel", hits)
        _width_axis(axes, (hit.width for hit in hits))
        axes.set_title(name, size=9.0)
    panels[0].set_ylabel("emitted token among them (%)")
    drawing.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)


def _draw_pipelines(drawing: Drawing, numbers: Statistics) -> None:
    """Draw the share of tokens that were in the dynamic tree by its width, and the pipeline steps
    that a token took.
    """
    hits, steps = drawing.subplots(1, 2)
    families = grouped(numbers.pipelines, lambda pipeline: (pipeline.branching, pipeline.stages))
    for index, ((branching, stages), members) in enumerate(
        sorted(families.items(), key=lambda family: -len(family[1]))
    ):
        members.sort(key=lambda pipeline: pipeline.width)
        widths, style = (
            [pipeline.width for pipeline in members],
            _look(index) | {"ls": "-" if len(members) > 2 else ":"},
        )
        hits.plot(
            widths,
            [100.0 * pipeline.hit_rate for pipeline in members],
            label=f"{branching} children, {stages} stages",
            **style,
        )
        steps.plot(widths, [pipeline.steps_per_token for pipeline in members], **style)
    for axes, key in ((hits, "tree_hits_panel"), (steps, "tree_steps_panel")):
        panel(axes, say, key, ())
        _width_axis(axes, (pipeline.width for pipeline in numbers.pipelines))
    drawing.legend(*hits.get_legend_handles_labels(), loc="outside upper left", ncols=3)


def _by_place(numbers: Statistics) -> dict[str, list[Hits]]:
    return grouped(
        numbers.hits,
        lambda hit: "draft" if hit.fraction is None else f"exit at {hit.fraction:.0%} of depth",
    )


def _look(index: int) -> Any:
    line = "-" if index < len(COLOURS) else "--"
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": MARKS[index % len(MARKS)],
        "ms": 4,
        "ls": line,
    }


def _width_axis(axes: Any, widths: Iterable[int]) -> None:
    axes.xaxis.set_major_locator(FixedLocator(sorted(set(widths))))
    axes.xaxis.set_minor_locator(NullLocator())
