"""What a trace says, drawn: one SVG per question, in the look of :mod:`simulator.report.figures`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from simulator.acceptance.statistics import Hits, PipelineNumbers, Statistics
from simulator.report.figures import BLUE, GREEN, GREY, LOOK, ORANGE, VERMILLION, WIDTH_IN, svg

COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, "#CC79A7", "#56B4E9", GREY, "black")  # Okabe and Ito
MARKS = "osD^vP*X"
LONGEST_RUN = 24
"""Run lengths from here on share a bar."""


def figures(found: Statistics) -> dict[str, str]:
    """File name without ending -> SVG text; only what the trace can tell."""
    drawn = {"windows": _windows, "run_lengths": _runs, "acceptance_by_position": _positions}
    if found.hits:
        drawn["hits_by_width"] = _hits
    if any(hit.fraction is not None for hit in found.hits):
        drawn["exit_hits_at_corrections"] = _corrections
    if found.drafters:
        drawn["drafters_by_position"] = _drafters
    if len(found.pipelines) > 1:
        drawn["pipeline_hits"] = _pipelines
    return {name: _drawn(draw, found) for name, draw in drawn.items()}


def _drawn(draw: Any, found: Statistics) -> str:
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(WIDTH_IN, 3.2), layout="constrained")
        draw(figure, found)
        return svg(figure)


def _windows(figure: Figure, found: Statistics) -> None:
    """Mean accepted tokens by window: replayed, i.i.d., law."""
    axes = figure.subplots()
    gammas = [one.gamma for one in found.windows]
    axes.plot(gammas, [one.independent for one in found.windows], "--", color=ORANGE, label="i.i.d., rate at γ = 1")
    axes.plot(gammas, [one.law for one in found.windows], "-", color=BLUE, label="law, all positions")
    axes.plot(gammas, [one.replayed for one in found.windows], "o", mfc="none", mec=VERMILLION, ms=5, label="replay")
    axes.set_xlabel("window γ (draft tokens)")
    axes.set_ylabel("accepted draft tokens")
    axes.set_ylim(bottom=0.0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(axes, 3)


def _runs(figure: Figure, found: Statistics) -> None:
    """Windows without an end, by accepted tokens; beside them what i.i.d. acceptance would give."""
    axes = figure.subplots()
    longest = min(max(found.runs), LONGEST_RUN)
    shares = np.zeros(longest + 1)
    for kept, windows in found.runs.items():
        shares[min(kept, longest)] += windows
    shares *= 100.0 / shares.sum()
    lengths, rate = np.arange(longest + 1), found.windows[0].replayed
    expected = 100.0 * np.append(rate ** lengths[:-1] * (1.0 - rate), rate**longest)
    axes.bar(lengths, shares, width=0.7, color=BLUE, alpha=0.55, label="replay")
    axes.plot(lengths, expected, "D", mfc="white", mec=VERMILLION, mew=1.2, ms=4, label=f"i.i.d., rate {rate:.3f}")
    axes.set_xlabel(f"draft tokens accepted in a row (last: {longest} or more)")
    axes.set_ylabel("windows without an end (%)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(axes, 2)


def _positions(figure: Figure, found: Statistics) -> None:
    """Acceptance at each position of a window, of the windows that got there, by kind of text."""
    _by_position(figure, {one.flavour: one.by_position for one in found.flavours}, "accepted", 4)


def _drafters(figure: Figure, found: Statistics) -> None:
    """The same by drafter."""
    _by_position(figure, {one.name: one.by_position for one in found.drafters}, "kept", 5)


def _by_position(figure: Figure, rates_by_name: Mapping[str, Sequence[float]], verb: str, columns: int) -> None:
    axes = figure.subplots()
    for index, (name, rates) in enumerate(rates_by_name.items()):
        axes.plot(range(1, len(rates) + 1), [100.0 * rate for rate in rates], label=name, **_look(index))
    axes.set_xlabel(f"position in the window (all before it {verb})")
    axes.set_ylabel(f"{verb} (%)")
    axes.set_ylim(0.0, 101.0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(axes, columns)


def _hits(figure: Figure, found: Statistics) -> None:
    """Share of emitted tokens among the first k choices of the draft and of each exit."""
    axes = figure.subplots()
    for index, (name, hits) in enumerate(_by_place(found).items()):
        axes.plot([hit.width for hit in hits], [100.0 * hit.everywhere for hit in hits], label=name, **_look(index))
    _width_axis(axes, found)
    axes.set_ylabel("emitted token among them (%)")
    _legend(axes, 4)


def _corrections(figure: Figure, found: Statistics) -> None:
    """Exit hits at all positions against those at rejected ones, where a correction is looked up."""
    exits = {name: hits for name, hits in _by_place(found).items() if hits[0].fraction is not None}
    panels = figure.subplots(1, len(exits), sharey=True, squeeze=False)[0]
    for axes, (name, hits) in zip(panels, exits.items(), strict=True):
        widths = [hit.width for hit in hits]
        missed = [(hit.width, 100.0 * hit.at_corrections) for hit in hits if hit.at_corrections is not None]
        axes.plot(widths, [100.0 * hit.everywhere for hit in hits], "-o", color=BLUE, ms=4, label="all positions")
        axes.plot(*zip(*missed, strict=True) if missed else ([], []), "--s", color=VERMILLION, ms=4, label="at corrections")
        _width_axis(axes, found)
        axes.set_title(name, size=9.0)
        axes.set_xlabel("first k choices")
    panels[0].set_ylabel("emitted token among them (%)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=2)


def _pipelines(figure: Figure, found: Statistics) -> None:
    """Tokens that were in the dynamic tree, by its width, and the pipeline steps that each took."""
    hits, steps = figure.subplots(1, 2)
    families: dict[tuple[int, int], list[PipelineNumbers]] = {}
    for one in found.pipelines:
        families.setdefault((one.branching, one.stages), []).append(one)
    for index, ((branching, stages), members) in enumerate(sorted(families.items(), key=lambda item: -len(item[1]))):
        members.sort(key=lambda one: one.width)
        widths, style = [one.width for one in members], _look(index) | {"ls": "-" if len(members) > 2 else ":"}
        hits.plot(widths, [100.0 * one.hit_rate for one in members], label=f"{branching} children, {stages} stages", **style)
        steps.plot(widths, [one.steps_per_token for one in members], **style)
    for axes, name in ((hits, "token in the tree (%)"), (steps, "pipeline steps a token")):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(sorted({one.width for one in found.pipelines})))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.set_xlabel("width of the tree (nodes a level)")
        axes.set_ylabel(name)
    steps.set_ylim(bottom=0.0)
    handles, labels = hits.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=3)


def _by_place(found: Statistics) -> dict[str, list[Hits]]:
    places: dict[str, list[Hits]] = {}
    for hit in found.hits:
        name = "draft" if hit.fraction is None else f"exit at {hit.fraction:.0%} of depth"
        places.setdefault(name, []).append(hit)
    return places


def _look(index: int) -> Any:
    line = "-" if index < len(COLOURS) else "--"
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKS[index % len(MARKS)], "ms": 4, "ls": line}


def _width_axis(axes: Any, found: Statistics) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sorted({hit.width for hit in found.hits})))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set_xlabel("first k choices of the draft or exit")
    axes.set_ylim(0.0, 101.0)


def _legend(axes: Any, columns: int) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, borderaxespad=0.2, columnspacing=1.4)
