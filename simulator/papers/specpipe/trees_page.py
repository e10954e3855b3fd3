"""The sweep over trees of a pipeline: a table, and in words where its optimum lies and why."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import mode
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import LogLocator, NullLocator

from simulator.core.plain import PlainData
from simulator.papers.specpipe.trees import TreePoint, TreeStudies, TreeStudy
from simulator.report.blocks import (
    Bullets,
    Figure,
    Highlight,
    Page,
    Paragraph,
    Section,
    Table,
)
from simulator.report.columns import Column, table
from simulator.report.drawing import WIDTH_IN, canvas
from simulator.report.panels import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SHADE,
    VERMILLION,
    Curve,
    draw,
    logarithmic,
)
from simulator.report.wording import number, share, short_names

LEGEND = (
    "ms per token: replay of the recorded passages at the mean context, ± standard error over "
    "requests; it is the steps of a token times the mean step. Behind: the difference to the best "
    "tree, request by request; a tree ties if that is below two of its standard errors. Edge: the "
    "width fills whole token tiles. Eq. (1): law as printed, with the share of tokens in the tree."
)
PAPER = 64, 16
"""Width and branching that SpecPipe chose (sec. 4.1)."""
ENOUGH = 4
"""Children of a node from which on more of them change little."""
LINES = ((VERMILLION, "v"), (ORANGE, "s"), (GREEN, "D"), (BLUE, "o"), (PURPLE, "^"))


def page(result: TreeStudies) -> Page:
    """Return the page of the tree study: its picture, and where the optimum lies and a table of
    trees per scenario.
    """
    studies = result.studies
    picture = Figure(
        "Time of a level, tokens in the tree, time per token",
        "trees.svg",
        lambda: tree_figure(studies),
    )
    return Page(
        "Width and branching of the draft tree",
        answer=f"{'; '.join(map(headline, studies))}.",
        highlights=list(highlights(studies[0])),
        opening=[picture, Paragraph(LEGEND)],
        sections=[_section(study) for study in studies],
    )


def headline(study: TreeStudy) -> str:
    """Return the best tree of a scenario and its time per token."""
    best = study.best
    return (
        f"{study.scenario}: w = {best.width}, k = {best.branching} is best, with "
        f"{number(best.tpot_ms, 3)} ms per token"
    )


def highlights(study: TreeStudy) -> Iterator[Highlight]:
    """Yield the time per token of the best tree, the share of tokens in it, and how many trees tie
    with it.
    """
    best = study.best
    yield Highlight(
        f"{number(best.tpot_ms, 3)} ms",
        f"per token with w = {best.width}, k = {best.branching}, the best tree "
        f"(± {number(best.error_ms, 2)})",
    )
    yield Highlight(share(best.hit), "of the tokens are in it")
    ties = sum(point.ties for point in study.points) - 1
    yield Highlight(str(ties), "recorded trees differ from it by no more than chance")


def _section(study: TreeStudy) -> Section:
    """Return the sentences and the table of a scenario."""
    return Section(study.scenario, [Bullets(list(sentences(study))), _trees(study)])


def _trees(study: TreeStudy) -> Table:
    best = study.best

    def behind(point: TreePoint) -> str:
        if point is best:
            return ""
        return number(point.behind_ms)

    def remark(point: TreePoint) -> str:
        words = []
        if point is best:
            words.append("best")
        elif point.ties:
            words.append("ties")
        if point.tile_edge:
            words.append("edge")
        return " ".join(words)

    columns = [
        Column[TreePoint]("w", lambda point: point.width),
        Column[TreePoint]("k", lambda point: point.branching),
        Column[TreePoint]("in tree", lambda point: share(point.hit)),
        Column[TreePoint]("steps", lambda point: number(point.steps, 3)),
        Column[TreePoint]("step ms", lambda point: number(point.mean_step_ms)),
        Column[TreePoint](
            "ms per token",
            lambda point: f"{number(point.tpot_ms)} ± {number(point.error_ms, 2)}",
        ),
        Column[TreePoint]("behind", behind),
        Column[TreePoint]("Eq. (1)", lambda point: number(point.printed_ms)),
        Column[TreePoint]("", remark),
    ]
    return table(f"Trees of {study.scenario}", study.points, columns)


def sentences(study: TreeStudy) -> Iterator[str]:
    """Yield the optimum with its interval, its tile, what a level hides behind, and how it stands
    to the paper's tree.
    """
    best = study.best
    yield _optimum(study)
    tiles = ", ".join(map(str, study.levels.tiles))
    if tiles:
        ends = "ends" if best.tile_edge else "does not end"
        yield f"w = {best.width} {ends} a token tile (tiles of these devices: {tiles} rows)."
    yield hiding(study)
    paper = study.find(*PAPER)
    if paper and paper is not best:
        yield _beside_the_paper(paper, best)
    same_width = [point for point in study.points if point.width == PAPER[0]]
    enough = [point.tpot_ms for point in same_width if point.branching >= ENOUGH]
    if len(same_width) > 1 and enough:
        yield _branching(same_width, enough)


def _optimum(study: TreeStudy) -> str:
    """Return the best tree, what ties with it, and between which widths the optimum lies."""
    best = study.best
    below, above = study.interval
    ties = [point for point in study.points if point.ties and point is not best]
    if ties:
        tied = f"ties with {', '.join(f'{point.width} x {point.branching}' for point in ties)}"
    else:
        tied = "no other recorded tree ties with it"
    lower = "from the narrowest recorded"
    if below:
        lower = f"above {below.width} ({number(below.behind_ms)} ms slower)"
    upper = "up to the widest recorded"
    if above:
        upper = f"below {above.width} ({number(above.behind_ms)} ms slower)"
    return (
        f"Best: w = {best.width}, k = {best.branching} with {number(best.tpot_ms)} ms per token; "
        f"{tied}. Interval of the optimum: {lower}, {upper}."
    )


def _beside_the_paper(paper: TreePoint, best: TreePoint) -> str:
    """Return how the paper's tree stands to the best."""
    behind = f"{number(paper.behind_ms)} ± {number(paper.behind_error_ms, 2)} ms"
    if paper.ties:
        stands = f"ties with it ({behind} behind)"
    else:
        stands = f"is slower by {behind}"
    return (
        f"The paper's tree, w = {paper.width} and k = {paper.branching}, {stands}: "
        f"{number(paper.steps)} steps a token of {number(paper.mean_step_ms)} ms on average, "
        f"against {number(best.steps)} of {number(best.mean_step_ms)} ms. It holds "
        f"{share(paper.hit)} of the tokens, the best tree {share(best.hit)}."
    )


def _branching(points: Sequence[TreePoint], enough: Sequence[float]) -> str:
    """Return the times of trees of one width by their branching, and what few children cost."""
    times = ", ".join(f"{number(point.tpot_ms)} (k = {point.branching})" for point in points)
    apart = share(max(enough) / min(enough) - 1)
    behind = share(points[0].tpot_ms / min(enough) - 1)
    return (
        f"Branching at w = {points[0].width}, ms per token: {times}. From k = {ENOUGH} on they are "
        f"within {apart}; k = {points[0].branching} is {behind} behind."
    )


def hiding(study: TreeStudy) -> str:
    """Return up to how many rows a level hides behind the last stage."""
    levels = study.levels
    widest = len(levels.body_ms)
    last = f"the last stage, one row and the LM head ({number(levels.last_ms)} ms)"
    if levels.hidden_rows >= widest:
        return f"A full level of up to {widest} rows hides behind {last}: width costs no time."
    if not levels.hidden_rows:
        return f"Any level takes longer than {last}."
    wider = [tile for tile in levels.tiles if tile > levels.hidden_rows]
    again = [tile for tile in wider if levels.body_ms[tile - 1] <= levels.last_ms]
    beyond = next((tile for tile in wider if tile not in again), widest)
    rows = "".join([f"{levels.hidden_rows} rows", *(f" and again at {tile}" for tile in again)])
    return (
        f"A full level hides behind {last} up to {rows}, where width costs no time; {beyond} rows "
        f"take {number(levels.body_ms[beyond - 1])} ms."
    )


def tree_figure(studies: Sequence[TreeStudy]) -> Drawing:
    """Return t(w), P(w, k) and E(T) as rows, a column per scenario, the optimum shaded and the best
    tree starred.
    """
    columns = len(studies)
    widest = max(len(study.levels.body_ms) for study in studies)
    branchings = sorted({point.branching for study in studies for point in study.points})
    looks = {k: LINES[index % len(LINES)] for index, k in enumerate(branchings)}
    names = short_names([study.scenario for study in studies])
    with canvas(7.6, WIDTH_IN * max(1.0, columns / 2.6)) as figure:
        grid = figure.subplots(3, columns, sharex=True, sharey="row", squeeze=False)
        _scales(grid, widest)
        for name, study, (level, hits, time) in zip(names, studies, grid.T, strict=True):
            level.set_title(name, size=9)
            _level(level, study)
            _curves(hits, study, looks, lambda point: point.hit * 100)
            _curves(time, study, looks, lambda point: point.tpot_ms)
            _mark(time, study)
            time.set_xlabel("width w")
        grid[0, 0].set_ylabel("t(w), law (ms)")
        grid[1, 0].set_ylabel("tokens in the tree (%)")
        grid[2, 0].set_ylabel("E(T), replay (ms)")
        legend: PlainData = {}
        for axes in grid.flat:
            handles, labels = axes.get_legend_handles_labels()
            legend |= dict(zip(labels, handles, strict=True))
        figure.legend(
            legend.values(),
            legend.keys(),
            loc="outside lower center",
            ncols=max(2, min(4, columns + 1)),
        )
        return figure


def _scales(grid: Any, widest: int) -> None:
    for axes in grid.flat:
        logarithmic(axes, 2)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_locator(LogLocator(base=4))
        axes.set_xlim(0.9, 1.12 * widest)


def _level(axes: Axes, study: TreeStudy) -> None:
    """Draw Figure 9 for a stage: flat within a token tile."""
    levels = study.levels
    for tile in levels.tiles:
        axes.axvline(
            tile,
            color=ORANGE,
            lw=0.7,
            zorder=0,
            label="end of a token tile" if tile == levels.tiles[0] else None,
        )
    step = Curve[int](lambda rows: levels.step_ms[rows - 1], "-", BLUE, "step, full levels")
    body = Curve[int](
        lambda rows: levels.body_ms[rows - 1], "-", GREEN, "slowest stage before the last"
    )
    last = Curve[int](
        lambda rows: levels.last_ms, "--", GREY, "last stage: one row, LM head", look={"lw": 1.0}
    )
    draw(axes, range(1, len(levels.body_ms) + 1), lambda rows: rows, step, body, last)


def _curves(
    axes: Axes,
    study: TreeStudy,
    looks: Mapping[int, tuple[str, str]],
    value: Callable[[TreePoint], float],
) -> None:
    """Draw a line per branching over the recorded widths."""
    for branching, (colour, marker) in looks.items():
        places = []
        for point in study.points:
            if point.branching == branching:
                places.append((point.width, value(point)))
        if places:
            axes.plot(
                *zip(*places, strict=True),
                color=colour,
                marker=marker,
                ms=4,
                lw=1.2,
                label=f"k = {branching}",
            )


def _mark(axes: Axes, study: TreeStudy) -> None:
    """Draw two standard errors of all trees, shade where the optimum lies, and draw Eq. (1)."""
    best = study.best
    below, above = study.interval
    left, right = axes.get_xlim()
    if below:
        left = below.width
    if above:
        right = above.width
    axes.axvspan(left, right, color=SHADE, lw=0, zorder=0)
    for point in study.points:
        axes.errorbar(
            point.width,
            point.tpot_ms,
            yerr=2 * point.error_ms,
            color=GREY,
            capsize=2,
            lw=0.8,
            zorder=1,
        )
    axes.plot(best.width, best.tpot_ms, "*", color="black", ms=9, zorder=5, label="best")
    swept = mode(point.branching for point in study.points)
    printed = [
        (point.width, point.printed_ms) for point in study.points if point.branching == swept
    ]
    axes.plot(
        *zip(*printed, strict=True), ":", color=GREY, label="Eq. (1), at the k of most widths"
    )
