"""What a recorded trace contains: the pages of ``specsim trace info`` and ``compare``, the figures
of ``plot``.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FixedLocator, NullLocator

from simulator.core.acceptance.statistics import (
    DrafterNumbers,
    FlavourNumbers,
    Hits,
    PipelineNumbers,
    Statistics,
    WindowMean,
)
from simulator.core.acceptance.trace import Trace
from simulator.core.numeric import grouped
from simulator.inputs.shell import typed
from simulator.report.blocks import (
    FIRST,
    THEN,
    Bullets,
    Page,
    Remark,
    Section,
    Standing,
    Table,
    Words,
)
from simulator.report.columns import Column, table
from simulator.report.drawing import canvas
from simulator.report.panels import (
    BLUE,
    ORANGE,
    VERMILLION,
    Curve,
    draw,
    dress,
    look,
)
from simulator.report.wording import number, percent, plural, share

FLAVOUR_WINDOW = 7
"""Window in draft tokens at which flavours are compared; a trace with shorter windows uses its
largest.
"""
COMPARED = (1, 2, 3, 4, 5, 7, 10, 16)
"""Windows in draft tokens at which traces are compared."""
COMPARED_WIDTHS = (1, 8)
"""Numbers of first choices at which traces are compared."""
FORMULAS = (
    "Accepted draft tokens, correction or bonus not counted. i.i.d.: rate + rate² + ... with the "
    "replayed rate at γ = 1; law: from all positions, visited or not"
)
RUNS_SHOWN = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24)
"""Where the classes of the run-length histogram begin, in tokens."""
LONGEST_RUN = 24
"""Runs of this many tokens or more share a bar of the figure."""
SHOWN_POSITIONS = (1, 2, 3, 4, 5)
"""Positions of a window at which drafters are compared."""
PERCENT_AXIS = (0.0, 101.0)
DRAFT = "draft"
"""What the place of a hit is called where it is no exit."""


def page(name: str, trace: Trace, numbers: Statistics, size_bytes: int) -> Page:
    """Return the page of the trace ``name``: header, flavours, windows, hits and run lengths."""
    widths = ["", *(f"k = {width}" for width in _widths(numbers))]
    gamma = min(FLAVOUR_WINDOW, len(numbers.windows))
    by_flavour = f"By kind of text: accepted at all positions; the rest at γ = {gamma}"
    run_rows = list(_run_rows(numbers))
    tables = {
        BY_WINDOW: table("Windows", numbers.windows, WINDOWS),
        by_flavour: table("Kinds of text", numbers.flavours, _flavour_columns(gamma)),
        BY_CHOICES: Table(widths, list(_hit_rows(numbers)), "Hits"),
        BY_DRAFTER: table("Drafters", numbers.drafters, _drafter_columns()),
        BY_TREE: table("Dynamic trees", numbers.pipelines, PIPELINES),
        BY_LENGTH: Table(("tokens", "windows"), run_rows, "Run lengths", bars=(1,)),
    }
    filled = [Section(title, [shown]) for title, shown in tables.items() if shown.rows]
    formulas = Section("How the means are computed", [Bullets([FORMULAS])])
    return Page(
        f"trace {name}",
        answer=_headline(numbers),
        opening=[Bullets(list(facts(trace, numbers, size_bytes)))],
        sections=[*filled, formulas],
        command=typed("specsim", "trace", "info", names=[name]),
        standing=_standing(numbers),
    )


def _headline(numbers: Statistics) -> str:
    """Return how much of what is drafted is kept, in a window as kinds of text are compared in."""
    window = numbers.windows[min(FLAVOUR_WINDOW, len(numbers.windows)) - 1]
    return (
        f"A window of {plural(window.gamma, 'draft token')} keeps {number(window.replayed, 3)} of "
        f"them in the mean; {share(numbers.rate)} are accepted over all positions."
    )


def _standing(numbers: Statistics) -> Standing:
    """Return what was recorded, acceptance by kind of text, and how far formulas are off."""
    recorded = f"{plural(numbers.requests, 'request')}, {numbers.tokens:,} tokens."
    more = [Remark("Recorded", recorded, FIRST)]
    texts = [f"{text.flavour} {share(text.rate)}" for text in numbers.flavours]
    if len(texts) > 1:
        more.append(Remark("Texts", f"{', '.join(texts)}.", THEN))
    drafters = [
        f"{drafter.name} {number(drafter.kept_per_step, 3)} a step" for drafter in numbers.drafters
    ]
    if drafters:
        more.append(Remark("Drafters", f"{', '.join(drafters)}.", THEN))
    window = numbers.windows[-1]
    doubts = []
    errors = {
        "the i.i.d. formula": window.independent_error_percent,
        "the mean of laws": window.law_error_percent,
    }
    for what, error in errors.items():
        if error is not None:
            doubts.append(f"{what} is {percent(error)} off at {window.gamma} draft tokens")
    return Standing(doubts=doubts, more=more)


BY_WINDOW = (
    "Accepted draft tokens per window (correction or bonus not counted), errors against the replay"
)
BY_CHOICES = "Emitted token among the first k choices; at corrections: where the draft was rejected"
BY_DRAFTER = (
    "Every drafter of the same text: kept at each position, in % of the windows that got there"
)
BY_TREE = "Dynamic trees in a pipeline (SpecPipe), as grown and verified"
BY_LENGTH = "Accepted in a row: windows as long as the recording allows"
WINDOWS: tuple[Column[WindowMean], ...] = (
    Column("γ", lambda window: window.gamma),
    Column("replayed", lambda window: number(window.replayed)),
    Column("i.i.d.", lambda window: number(window.independent)),
    Column("error", lambda window: percent(window.independent_error_percent)),
    Column("law", lambda window: number(window.law)),
    Column("error", lambda window: percent(window.law_error_percent)),
)
PIPELINES: tuple[Column[PipelineNumbers], ...] = (
    Column("width", lambda tree: tree.width),
    Column("children", lambda tree: tree.branching),
    Column("stages", lambda tree: tree.stages),
    Column("in the tree", lambda tree: share(tree.hit_rate)),
    Column("steps a token", lambda tree: number(tree.steps_per_token)),
    Column("rows a step", lambda tree: number(tree.rows_per_step)),
    Column("in flight", lambda tree: number(tree.rows_in_flight)),
)


def _flavour_columns(gamma: int) -> list[Column[FlavourNumbers]]:
    """Return the columns of kinds of text, with their windows of ``gamma`` draft tokens."""

    def window(flavour: FlavourNumbers) -> WindowMean:
        return flavour.windows[gamma - 1]

    return [
        Column("", lambda flavour: flavour.flavour),
        Column("tokens", lambda flavour: f"{flavour.tokens:,}"),
        Column("accepted", lambda flavour: share(flavour.rate)),
        Column("replayed", lambda flavour: number(window(flavour).replayed)),
        Column("i.i.d. error", lambda flavour: percent(window(flavour).independent_error_percent)),
        Column("law error", lambda flavour: percent(window(flavour).law_error_percent)),
        Column("repeats", lambda flavour: share(flavour.repetition)),
    ]


def _drafter_columns() -> list[Column[DrafterNumbers]]:
    """Return the columns of drafters: what is kept at each position, and in a step."""
    return [
        Column("", lambda drafter: drafter.name),
        *(_kept_at(position) for position in SHOWN_POSITIONS),
        Column("window", lambda drafter: drafter.window),
        Column("kept a step", lambda drafter: number(drafter.kept_per_step)),
    ]


def _kept_at(position: int) -> Column[DrafterNumbers]:
    """Return the column of what is kept at a position; empty where too few windows got there."""

    def kept(drafter: DrafterNumbers) -> str:
        if position > len(drafter.by_position):
            return ""
        return f"{100.0 * drafter.by_position[position - 1]:.1f}"

    return Column(str(position), kept)


def facts(trace: Trace, numbers: Statistics, size_bytes: int) -> Iterator[str]:
    """Yield how much was recorded, from what, and what else its header says."""
    yield (
        f"{numbers.requests:,} requests, {numbers.tokens:,} tokens; accepted at "
        f"{share(numbers.rate)} of all positions"
    )
    pair = trace.pair[0].upper() + trace.pair[1:]
    token_bytes = size_bytes / trace.positions
    vocabulary = "vocabulary not known"
    if trace.vocabulary:
        vocabulary = f"vocabulary of {trace.vocabulary:,}"
    windows = "any window"
    if trace.window:
        windows = f"windows of up to {trace.window} draft tokens"
    yield (
        f"{pair}; {vocabulary}; {_sampled(trace.temperature)}; {windows}; format "
        f"{trace.header['format']}, {token_bytes:.1f} bytes a token"
    )
    for key in ("source", "replay", "command", "selection"):
        if key in trace.header:
            yield f"{key}: {trace.header[key]}"
    derived = trace.header.get("derived_from")
    if derived:
        stated = ", ".join(f"{key} {value}" for key, value in derived.items())
        yield f"derived from a recording: {stated}"


def _sampled(temperature: float | None) -> str:
    """Return in words how tokens were drawn."""
    if temperature is None:
        return "temperature not stated"
    if temperature == 0:
        return "greedy"
    return f"sampled at temperature {temperature:g}"


def comparison_page(traces: Sequence[tuple[str, Statistics]]) -> Page:
    """Return the page of several traces: their numbers, a column for each."""
    names = [name for name, _ in traces]
    statistics = [numbers for _, numbers in traces]
    rows = list(_size_rows(statistics))
    rows += _compared_windows(statistics)
    rows += _compared_hits(statistics)
    compared = Table(["", *names], rows, "Traces")
    command = typed("specsim", "trace", "compare", names=names)
    kept = sorted(traces, key=lambda named: -named[1].rate)
    others = ", ".join(f"{name} {share(numbers.rate)}" for name, numbers in kept[1:])
    return Page(
        "Traces side by side",
        answer=f"{kept[0][0]} accepts most: {share(kept[0][1].rate)} of draft tokens.",
        opening=[compared, Bullets([FORMULAS])],
        command=command,
        standing=Standing(more=[Remark("Others", f"{others}.", FIRST)] if others else ()),
    )


SIZES: dict[str, Callable[[Statistics], str]] = {
    "requests": lambda numbers: f"{numbers.requests:,}",
    "tokens": lambda numbers: f"{numbers.tokens:,}",
    "repeated four-grams": lambda numbers: share(numbers.repetition),
    "accepted, all positions": lambda numbers: share(numbers.rate),
}
"""How much was recorded in a trace and how much of it was accepted, by label."""
MEASURES: dict[str, Callable[[WindowMean], str]] = {
    "replayed": lambda window: number(window.replayed),
    "i.i.d. error": lambda window: percent(window.independent_error_percent),
    "law error": lambda window: percent(window.law_error_percent),
}
"""What is compared of a window, by label."""


def _size_rows(statistics: Sequence[Statistics]) -> Iterator[tuple[Words, ...]]:
    """Yield how much was recorded in each trace, and how much of it was accepted, over all and by
    kind of text.
    """
    for label, show in SIZES.items():
        yield (label, *map(show, statistics))
    rates: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for place, numbers in enumerate(statistics):
        for flavour in numbers.flavours:
            rates[flavour.flavour][place] = flavour.rate
    for name, by_trace in rates.items():
        yield (f"  {name}", *_shares(by_trace, len(statistics)))


def _compared_windows(statistics: Sequence[Statistics]) -> Iterator[tuple[Words, ...]]:
    """Yield a row for each number of a window at which traces are compared, with its value in each
    of them.
    """
    for label, show in MEASURES.items():
        for gamma in COMPARED:
            values = [_at_window(numbers, gamma, show) for numbers in statistics]
            if any(values):
                yield (f"γ = {gamma}: {label}", *values)


def _at_window(numbers: Statistics, gamma: int, show: Callable[[WindowMean], str]) -> str:
    """Return what is shown of a window; nothing where the trace cannot answer for it."""
    for window in numbers.windows:
        if window.gamma == gamma:
            return show(window)
    return ""


def _compared_hits(statistics: Sequence[Statistics]) -> Iterator[tuple[Words, ...]]:
    """Yield the hits of the draft and of every exit at the widths at which traces are compared."""
    shares: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for place, numbers in enumerate(statistics):
        for hit in numbers.hits:
            if hit.width in COMPARED_WIDTHS:
                label = f"{_place(hit.fraction)}, first {hit.width}"
                shares[label][place] = hit.everywhere
    for label, by_trace in shares.items():
        yield (label, *_shares(by_trace, len(statistics)))


def _shares(by_trace: Mapping[int, float], traces: int) -> list[str]:
    """Return the shares of all traces, by their places; nothing for those that have none."""
    return [share(by_trace.get(place)) for place in range(traces)]


def _place(fraction: float | None) -> str:
    if fraction is None:
        return DRAFT
    return f"exit at {fraction:g}"


def _widths(numbers: Statistics) -> list[int]:
    """Return the numbers of first choices that have hits."""
    return list(dict.fromkeys(hit.width for hit in numbers.hits))


def _hit_rows(numbers: Statistics) -> Iterator[tuple[str, ...]]:
    for fraction in dict.fromkeys(hit.fraction for hit in numbers.hits):
        hits = [hit for hit in numbers.hits if hit.fraction == fraction]
        place = _place(fraction)
        everywhere = [share(hit.everywhere) for hit in hits]
        at_corrections = [share(hit.at_corrections) for hit in hits]
        yield f"{place}, all positions", *everywhere
        yield f"{place}, at corrections", *at_corrections


def _run_rows(numbers: Statistics) -> Iterator[tuple[str, ...]]:
    total = sum(numbers.runs.values())
    for low, after in zip(RUNS_SHOWN, [*RUNS_SHOWN[1:], None], strict=True):
        count = 0
        for kept, windows in numbers.runs.items():
            if kept >= low and (after is None or kept < after):
                count += windows
        if count:
            yield _length_class(low, after), share(count / total)


def _length_class(low: int, after: int | None) -> str:
    """Return the name of the lengths from ``low`` on, before ``after``."""
    if after is None:
        return f"{low} or more"
    if after == low + 1:
        return str(low)
    return f"{low} to {after - 1}"


def figures(numbers: Statistics) -> dict[str, Drawing]:
    """Return drawings by file name without ending, of what was recorded in the trace."""
    drawings: dict[str, Callable[[Drawing, Statistics], None]] = {
        "windows": _draw_windows,
        "run_lengths": _draw_runs,
        "acceptance_by_position": _draw_flavours,
    }
    if numbers.hits:
        drawings["hits_by_width"] = _draw_hits
    if any(hit.fraction is not None for hit in numbers.hits):
        drawings["exit_hits_at_corrections"] = _draw_corrections
    if numbers.drafters:
        drawings["drafters_by_position"] = _draw_drafters
    if len(numbers.pipelines) > 1:
        drawings["pipeline_hits"] = _draw_pipelines
    return {name: _drawn(drawing, numbers) for name, drawing in drawings.items()}


def _drawn(drawing: Callable[[Drawing, Statistics], None], numbers: Statistics) -> Drawing:
    with canvas(3.2) as empty:
        drawing(empty, numbers)
        return empty


def _draw_windows(drawing: Drawing, numbers: Statistics) -> None:
    """Draw accepted draft tokens by window: the replay beside both formulas."""
    axes = drawing.subplots()
    curves: list[Curve[WindowMean]] = [
        Curve(lambda window: window.independent, "--", ORANGE, "i.i.d., rate at γ = 1"),
        Curve(lambda window: window.law, "-", BLUE, "law, all positions"),
        Curve(lambda window: window.replayed, "o", VERMILLION, "replay", hollow=True),
    ]
    draw(axes, numbers.windows, lambda window: window.gamma, *curves)
    dress(
        axes,
        x_label="window γ (draft tokens)",
        y_label="accepted draft tokens",
        ylim=(0.0, None),
        integers=True,
        legend_columns=3,
    )


def _draw_runs(drawing: Drawing, numbers: Statistics) -> None:
    """Draw windows, as long as the recording allows, by accepted tokens, and what i.i.d. acceptance
    would give.
    """
    axes = drawing.subplots()
    longest = min(max(numbers.runs), LONGEST_RUN)
    shares = np.zeros(longest + 1)
    for kept, windows in numbers.runs.items():
        shares[min(kept, longest)] += windows
    shares *= 100.0 / shares.sum()
    lengths = np.arange(longest + 1)
    rate = numbers.windows[0].replayed
    ended = rate ** lengths[:-1] * (1.0 - rate)
    expected = 100.0 * np.append(ended, rate**longest)
    label = f"i.i.d., rate {rate:.3f}"
    axes.bar(lengths, shares, width=0.7, color=BLUE, alpha=0.55, label="replay")
    axes.plot(lengths, expected, "D", mfc="white", mec=VERMILLION, mew=1.2, ms=4, label=label)
    dress(
        axes,
        x_label=f"draft tokens accepted in a row (last: {longest} or more)",
        y_label="windows as long as the recording allows (%)",
        integers=True,
        legend_columns=2,
    )


def _draw_flavours(drawing: Drawing, numbers: Statistics) -> None:
    """Draw acceptance at each position of a window by kind of text."""
    rates = {flavour.flavour: flavour.by_position for flavour in numbers.flavours}
    _by_position(drawing.subplots(), rates, "accepted", 4)


def _draw_drafters(drawing: Drawing, numbers: Statistics) -> None:
    """Draw what is kept at each position of a window by drafter."""
    rates = {drafter.name: drafter.by_position for drafter in numbers.drafters}
    _by_position(drawing.subplots(), rates, "kept", 5)


def _by_position(
    axes: Axes, rates: Mapping[str, Sequence[float]], verb: str, legend_columns: int
) -> None:
    """Draw acceptance at each position of a window, of the windows that got there, by name."""
    for index, (name, by_position) in enumerate(rates.items()):
        positions = range(1, len(by_position) + 1)
        percents = [100.0 * rate for rate in by_position]
        axes.plot(positions, percents, label=name, **_look(index))
    dress(
        axes,
        x_label=f"position in the window (all before it {verb})",
        y_label=f"{verb} (%)",
        integers=True,
        ylim=PERCENT_AXIS,
        legend_columns=legend_columns,
    )


def _draw_hits(drawing: Drawing, numbers: Statistics) -> None:
    """Draw the share of emitted tokens among the first k choices of the draft and of each exit."""
    axes = drawing.subplots()
    for index, (name, hits) in enumerate(_by_place(numbers).items()):
        widths = [hit.width for hit in hits]
        percents = [100.0 * hit.everywhere for hit in hits]
        axes.plot(widths, percents, label=name, **_look(index))
    dress(
        axes,
        x_label="first k choices of the draft or exit",
        y_label="emitted token among them (%)",
        log_x=2,
        ylim=PERCENT_AXIS,
        legend_columns=4,
    )
    _width_axis(axes, _widths(numbers))


def _draw_corrections(drawing: Drawing, numbers: Statistics) -> None:
    """Draw exit hits at all positions against those at rejected ones, where a correction is looked
    up.
    """
    exits = _by_place(numbers)
    exits.pop(DRAFT, None)
    small = {"ms": 4}
    everywhere = Curve[Hits](
        lambda hit: 100.0 * hit.everywhere, "-o", BLUE, "all positions", look=small
    )
    corrections = Curve(_at_corrections, "--s", VERMILLION, "at corrections", look=small)
    panels = drawing.subplots(1, len(exits), sharey=True, squeeze=False)[0]
    for axes, (name, hits) in zip(panels, exits.items(), strict=True):
        draw(axes, hits, lambda hit: hit.width, everywhere, corrections)
        dress(axes, x_label="first k choices", log_x=2, ylim=PERCENT_AXIS)
        _width_axis(axes, (hit.width for hit in hits))
        axes.set_title(name, size=9.0)
    panels[0].set_ylabel("emitted token among them (%)")
    handles, labels = panels[0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside upper left", ncols=2)


def _at_corrections(hit: Hits) -> float | None:
    if hit.at_corrections is None:
        return None
    return 100.0 * hit.at_corrections


def _draw_pipelines(drawing: Drawing, numbers: Statistics) -> None:
    """Draw the share of tokens that were in the dynamic tree by its width, and the pipeline steps
    that a token took.
    """
    hits, steps = drawing.subplots(1, 2)
    families = grouped(numbers.pipelines, lambda tree: (tree.branching, tree.stages))
    largest_first = sorted(families.items(), key=lambda family: -len(family[1]))
    for index, ((branching, stages), members) in enumerate(largest_first):
        trees = sorted(members, key=lambda tree: tree.width)
        widths = [tree.width for tree in trees]
        style = _look(index)
        style["ls"] = "-"
        if len(trees) <= 2:
            style["ls"] = ":"
        label = f"{branching} children, {stages} stages"
        percents = [100.0 * tree.hit_rate for tree in trees]
        steps_per_token = [tree.steps_per_token for tree in trees]
        hits.plot(widths, percents, label=label, **style)
        steps.plot(widths, steps_per_token, **style)
    width = "width of the tree (nodes a level)"
    dress(hits, x_label=width, y_label="token in the tree (%)", log_x=2)
    dress(steps, x_label=width, y_label="pipeline steps a token", log_x=2, ylim=(0, None))
    every_width = [tree.width for tree in numbers.pipelines]
    for axes in (hits, steps):
        _width_axis(axes, every_width)
    handles, labels = hits.get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside upper left", ncols=3)


def _by_place(numbers: Statistics) -> dict[str, list[Hits]]:
    return grouped(numbers.hits, _place_by_depth)


def _place_by_depth(hit: Hits) -> str:
    if hit.fraction is None:
        return DRAFT
    return f"exit at {hit.fraction:.0%} of depth"


def _look(index: int) -> Any:
    colour, mark, line = look(index)
    return {"color": colour, "marker": mark, "ms": 4, "ls": line}


def _width_axis(axes: Axes, widths: Iterable[int]) -> None:
    distinct = sorted(set(widths))
    axes.xaxis.set_major_locator(FixedLocator(distinct))
    axes.xaxis.set_minor_locator(NullLocator())
