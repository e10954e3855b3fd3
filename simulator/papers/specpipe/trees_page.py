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
    tpot = number(best.tpot_ms, 3)
    error = number(best.error_ms, 2)
    tree = f"w = {best.width}, k = {best.branching}"
    yield Highlight(f"{tpot} ms", f"per token with {tree}, the best tree (± {error})")
    yield Highlight(share(best.hit), "of the tokens are in it")
    others = sum(point.ties for point in study.points) - 1
    yield Highlight(str(others), "recorded trees differ from it by no more than chance")


def _section(study: TreeStudy) -> Section:
    """Return the sentences and the table of a scenario."""
    return Section(study.scenario, [Bullets(list(sentences(study))), _trees(study)])


def _trees(study: TreeStudy) -> Table:
    best = study.best

    def per_token(point: TreePoint) -> str:
        time = number(point.tpot_ms)
        error = number(point.error_ms, 2)
        return f"{time} ± {error}"

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

    columns: list[Column[TreePoint]] = [
        Column("w", lambda point: point.width),
        Column("k", lambda point: point.branching),
        Column("in tree", lambda point: share(point.hit)),
        Column("steps", lambda point: number(point.steps, 3)),
        Column("step ms", lambda point: number(point.mean_step_ms)),
        Column("ms per token", per_token),
        Column("behind", behind),
        Column("Eq. (1)", lambda point: number(point.printed_ms)),
        Column("", remark),
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
    paper_width, _ = PAPER
    same_width = [point for point in study.points if point.width == paper_width]
    enough = [point.tpot_ms for point in same_width if point.branching >= ENOUGH]
    if len(same_width) > 1 and enough:
        yield _branching(same_width, enough)


def _optimum(study: TreeStudy) -> str:
    """Return the best tree, what ties with it, and between which widths the optimum lies."""
    best = study.best
    below, above = study.interval
    ties = [point for point in study.points if point.ties and point is not best]
    if ties:
        trees = ", ".join(f"{point.width} x {point.branching}" for point in ties)
        tied = f"ties with {trees}"
    else:
        tied = "no other recorded tree ties with it"
    lower = "from the narrowest recorded"
    if below:
        lower = f"above {_slower(below)}"
    upper = "up to the widest recorded"
    if above:
        upper = f"below {_slower(above)}"
    tpot = number(best.tpot_ms)
    return (
        f"Best: w = {best.width}, k = {best.branching} with {tpot} ms per token; {tied}. "
        f"Interval of the optimum: {lower}, {upper}."
    )


def _slower(point: TreePoint) -> str:
    """Return a width beside the optimum, and by how much its best tree is slower."""
    behind = number(point.behind_ms)
    return f"{point.width} ({behind} ms slower)"


def _beside_the_paper(paper: TreePoint, best: TreePoint) -> str:
    """Return how the paper's tree stands to the best."""
    behind = number(paper.behind_ms)
    error = number(paper.behind_error_ms, 2)
    difference = f"{behind} ± {error} ms"
    if paper.ties:
        stands = f"ties with it ({difference} behind)"
    else:
        stands = f"is slower by {difference}"
    steps = number(paper.steps)
    step_ms = number(paper.mean_step_ms)
    best_steps = number(best.steps)
    best_step_ms = number(best.mean_step_ms)
    hit = share(paper.hit)
    best_hit = share(best.hit)
    return (
        f"The paper's tree, w = {paper.width} and k = {paper.branching}, {stands}: {steps} steps a "
        f"token of {step_ms} ms on average, against {best_steps} of {best_step_ms} ms. It holds "
        f"{hit} of the tokens, the best tree {best_hit}."
    )


def _branching(points: Sequence[TreePoint], enough: Sequence[float]) -> str:
    """Return the times of trees of one width by their branching, and what few children cost."""
    times = ", ".join(f"{number(point.tpot_ms)} (k = {point.branching})" for point in points)
    fastest = min(enough)
    slowest = max(enough)
    fewest = points[0]
    apart = share(slowest / fastest - 1)
    behind = share(fewest.tpot_ms / fastest - 1)
    return (
        f"Branching at w = {fewest.width}, ms per token: {times}. From k = {ENOUGH} on they are "
        f"within {apart}; k = {fewest.branching} is {behind} behind."
    )


def hiding(study: TreeStudy) -> str:
    """Return up to how many rows a level hides behind the last stage."""
    levels = study.levels
    widest = len(levels.body_ms)
    hidden = levels.hidden_rows
    last_ms = number(levels.last_ms)
    last = f"the last stage, one row and the LM head ({last_ms} ms)"
    if hidden >= widest:
        return f"A full level of up to {widest} rows hides behind {last}: width costs no time."
    if not hidden:
        return f"Any level takes longer than {last}."
    rows = f"{hidden} rows"
    longer = []
    for tile in levels.tiles:
        if tile <= hidden:
            continue
        if levels.body_ms[tile - 1] <= levels.last_ms:
            rows += f" and again at {tile}"
        else:
            longer.append(tile)
    beyond = longer[0] if longer else widest
    beyond_ms = number(levels.body_ms[beyond - 1])
    return (
        f"A full level hides behind {last} up to {rows}, where width costs no time; {beyond} rows "
        f"take {beyond_ms} ms."
    )


def tree_figure(studies: Sequence[TreeStudy]) -> Drawing:
    """Return t(w), P(w, k) and E(T) as rows, a column per scenario, the optimum shaded and the best
    tree starred.
    """
    columns = len(studies)
    width_in = WIDTH_IN * max(1.0, columns / 2.6)
    widest = max(len(study.levels.body_ms) for study in studies)
    looks = _looks(studies)
    names = short_names([study.scenario for study in studies])
    with canvas(7.6, width_in) as figure:
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
        handles = legend.values()
        labels = legend.keys()
        legend_columns = max(2, min(4, columns + 1))
        figure.legend(handles, labels, loc="outside lower center", ncols=legend_columns)
        return figure


def _looks(studies: Sequence[TreeStudy]) -> dict[int, tuple[str, str]]:
    """Return colour and marker of every branching."""
    branchings = {point.branching for study in studies for point in study.points}
    looks = {}
    for index, branching in enumerate(sorted(branchings)):
        looks[branching] = LINES[index % len(LINES)]
    return looks


def _scales(grid: Any, widest: int) -> None:
    for axes in grid.flat:
        logarithmic(axes, 2)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_locator(LogLocator(base=4))
        axes.set_xlim(0.9, 1.12 * widest)


def _level(axes: Axes, study: TreeStudy) -> None:
    """Draw Figure 9 for a stage: flat within a token tile."""
    levels = study.levels
    label: str | None = "end of a token tile"
    for tile in levels.tiles:
        axes.axvline(tile, color=ORANGE, lw=0.7, zorder=0, label=label)
        label = None
    rows = range(1, len(levels.body_ms) + 1)
    axes.plot(rows, levels.step_ms, "-", color=BLUE, label="step, full levels")
    axes.plot(rows, levels.body_ms, "-", color=GREEN, label="slowest stage before the last")
    last_ms = [levels.last_ms] * len(rows)
    axes.plot(rows, last_ms, "--", color=GREY, label="last stage: one row, LM head", lw=1.0)


def _curves(
    axes: Axes,
    study: TreeStudy,
    looks: Mapping[int, tuple[str, str]],
    value: Callable[[TreePoint], float],
) -> None:
    """Draw a line per branching over the recorded widths."""
    for branching, (colour, marker) in looks.items():
        points = [point for point in study.points if point.branching == branching]
        if not points:
            continue
        widths = [point.width for point in points]
        values = [value(point) for point in points]
        label = f"k = {branching}"
        axes.plot(widths, values, color=colour, marker=marker, ms=4, lw=1.2, label=label)


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
    bars: PlainData = {"color": GREY, "capsize": 2, "lw": 0.8, "zorder": 1}
    for point in study.points:
        axes.errorbar(point.width, point.tpot_ms, yerr=2 * point.error_ms, **bars)
    axes.plot(best.width, best.tpot_ms, "*", color="black", ms=9, zorder=5, label="best")
    swept = mode(point.branching for point in study.points)
    points = [point for point in study.points if point.branching == swept]
    widths = [point.width for point in points]
    printed_ms = [point.printed_ms for point in points]
    axes.plot(widths, printed_ms, ":", color=GREY, label="Eq. (1), at the k of most widths")
