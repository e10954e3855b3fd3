"""The sweep over trees of a pipeline: a table, and in words where its optimum lies and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from simulator.report.console import WIDEST, item, new_table
from simulator.report.markdown import table
from simulator.report.run_summary import number, share
from simulator.studies.trees import TreeStudy

PAPER = 64, 16
"""Width and branching that SpecPipe chose (sec. 4.1)."""
HEAD = ("w", "k", "in tree", "steps", "step ms", "ms per token", "behind", "Eq. (1)", "")
LEGEND = (
    "ms per token: replay of the recorded passages at the mean context, ± standard error over requests; it is the steps of a "
    "token times the mean step. Behind: the difference to the best tree, request by request; a tree ties if that is below two "
    "of its standard errors. Edge: the width fills whole token tiles. Eq. (1): law as printed, with the share of tokens in "
    "the tree."
)


def rows(study: TreeStudy) -> Iterator[tuple[str, ...]]:
    """One line for each tree, under ``HEAD``."""
    for one in study.points:
        marks = ["best" if one is study.best else "ties" if one.ties else "", "edge" if one.tile_edge else ""]
        behind = "" if one is study.best else number(one.behind_ms)
        yield (
            *(str(one.width), str(one.branching), share(one.hit), number(one.steps, 3), number(one.mean_step_ms)),
            *(f"{number(one.tpot_ms)} ± {number(one.error_ms, 2)}", behind, number(one.printed_ms)),
            " ".join(mark for mark in marks if mark),
        )


def sentences(study: TreeStudy) -> Iterator[str]:
    """The optimum with its interval, its tile, what a level hides behind, and how it stands to the paper's tree."""
    best, levels = study.best, study.levels
    ties = [f"{one.width} x {one.branching}" for one in study.points if one.ties and one is not best]
    tied = f"ties with {', '.join(ties)}" if ties else "no other recorded tree ties with it"
    yield f"Best: w = {best.width}, k = {best.branching} with {number(best.tpot_ms)} ms per token; {tied}. {_interval(study)}"
    if levels.tiles:
        ends = "ends" if best.tile_edge else "does not end"
        yield f"w = {best.width} {ends} a token tile (tiles of these devices: {', '.join(map(str, levels.tiles))} rows)."
    yield _level(study)
    if text := _against_paper(study):
        yield text
    if text := _branching(study):
        yield text


def _interval(study: TreeStudy) -> str:
    below, above = study.interval
    narrow = f"above {below.width} ({number(below.behind_ms)} ms slower)" if below else "from the narrowest recorded"
    wide = f"below {above.width} ({number(above.behind_ms)} ms slower)" if above else "up to the widest recorded"
    return f"Interval of the optimum: {narrow}, {wide}."


def _level(study: TreeStudy) -> str:
    levels, widest = study.levels, len(study.levels.body_ms)
    last = f"the last stage, one row and the LM head ({number(levels.last_ms)} ms)"
    if levels.hidden_rows >= widest:
        return f"A full level of up to {widest} rows hides behind {last}: width costs no time."
    if not levels.hidden_rows:
        return f"Any level takes longer than {last}."
    beyond = next((tile for tile in levels.tiles if tile > levels.hidden_rows), widest)
    longer = f"{beyond} rows take {number(levels.body_ms[beyond - 1])} ms"
    return f"A full level hides behind {last} up to {levels.hidden_rows} rows, where width costs no time; {longer}."


def _against_paper(study: TreeStudy) -> str | None:
    best, paper = study.best, study.find(*PAPER)
    if paper is None or best is paper:
        return None
    tree = f"The paper's tree, w = {PAPER[0]} and k = {PAPER[1]}"
    behind = f"{number(paper.behind_ms)} ± {number(paper.behind_error_ms, 2)} ms"
    stands = f"ties with it ({behind} behind)" if paper.ties else f"is slower by {behind}"
    return (
        f"{tree}, {stands}: {number(paper.steps)} steps a token of {number(paper.mean_step_ms)} ms on average, against "
        f"{number(best.steps)} of {number(best.mean_step_ms)} ms. "
        f"It holds {share(paper.hit)} of the tokens, the best tree {share(best.hit)}."
    )


def _branching(study: TreeStudy) -> str | None:
    found = [one for one in study.points if one.width == PAPER[0]]
    if len(found) < 2:
        return None
    enough = [one.tpot_ms for one in found if one.branching >= 4]
    times = ", ".join(f"{number(one.tpot_ms)} (k = {one.branching})" for one in found)
    return (
        f"Branching at w = {PAPER[0]}, ms per token: {times}. From k = 4 on they are within "
        f"{share(max(enough) / min(enough) - 1)}; k = 2 is {share(found[0].tpot_ms / min(enough) - 1)} behind."
    )


def print_trees(studies: Sequence[TreeStudy], console: Console) -> None:
    """A table and sentences for each scenario."""
    width = min(console.width, WIDEST)
    for study in studies:
        console.print(study.scenario, style="bold", highlight=False)
        shown = new_table(*HEAD)
        shown.columns[5].no_wrap = True
        for row in rows(study):
            shown.add_row(*row)
        console.print(shown, width=width)
        for sentence in sentences(study):
            item(console, sentence, width)
    item(console, LEGEND, width)


def sections(studies: Sequence[TreeStudy]) -> Iterator[str]:
    """The same as blocks of a page."""
    for study in studies:
        yield f"## {study.scenario}"
        yield "\n".join(f"- {sentence}" for sentence in sentences(study))
        yield table(HEAD, rows(study))
    yield LEGEND
