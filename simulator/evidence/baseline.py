"""The baseline: what somebody gets from the calibrated cells of a paper by arithmetic, without a
simulator.

A *sibling* of a cell is a calibrated cell of the same scenario and quantity. The baseline takes the
siblings that differ least: in model and hardware first, then in the number of other settings (task,
temperature, batch, each key that a row sets). Each gives an estimate, and the baseline is their
geometric mean:

* printed tokens times the sibling's ratio of speed-up to tokens, where both rows state tokens of a
  step;
* else the sibling's value, times the ratio that another method shows between the same two settings,
  where calibrated cells show one (the most alike method: that whose value is nearest);
* times the ratio of the output where both rows state its length, and of the layers of two models
  where it is a time.

A cell is an *interpolation* where a sibling of the same model and hardware differs in the task or
in one setting only; otherwise it is a *prediction*.
"""

from collections.abc import Iterator, Mapping
from math import log
from statistics import geometric_mean

from simulator.evidence.fits import Paper
from simulator.evidence.published import PublishedCell
from simulator.scenario import load

TOKENS = "acceptance.rescale.tokens_per_step"
OUTPUT = "requests.output_tokens.mean_tokens"
OF_TASK = ("acceptance.", "requests.prompt_tokens", "requests.output_tokens", "target.model")
"""Keys that a row sets because of its task or its model."""
TIMES: Mapping[str, int] = {"ms": 1, "tokens/s": -1}
"""Units whose values grow with the time of a pass, or fall with it."""
COLUMNS = ("model", "task", "hardware", "temperature", "batch_size")


def arithmetic(paper: Paper, cell: PublishedCell) -> float | None:
    """Return the baseline of a cell; None where it has no sibling."""
    near = _nearest(paper, cell)
    if near:
        return geometric_mean(_estimate(paper, cell, sibling) for sibling in near)
    return None


def interpolated(paper: Paper, cell: PublishedCell) -> bool:
    """Return whether a sibling of the same model and hardware differs in the task or in one setting
    only.
    """
    distances = (_distance(cell, sibling) for sibling in _siblings(paper, cell))
    return any(other == 0 and settings <= 1 for other, settings in distances)


def _siblings(paper: Paper, cell: PublishedCell) -> list[PublishedCell]:
    known = paper.with_role("calibrate")
    return [
        sibling
        for sibling in known
        if (sibling.scenario, sibling.quantity) == (cell.scenario, cell.quantity)
        and sibling is not cell
    ]


def _nearest(paper: Paper, cell: PublishedCell) -> list[PublishedCell]:
    siblings = _siblings(paper, cell)
    least = min((_distance(cell, sibling) for sibling in siblings), default=None)
    return [sibling for sibling in siblings if _distance(cell, sibling) == least]


def _stated(cell: PublishedCell) -> dict[str, str]:
    return dict(assignment.split("=", 1) for assignment in cell.assignments)


def _distance(cell: PublishedCell, other: PublishedCell) -> tuple[int, int]:
    """Return in how many of model and hardware two cells differ, and in how many settings."""
    differ = _differ(cell, other)
    of_machine = {"model", "hardware"} & differ
    own, others = (
        {key: value for key, value in _stated(one).items() if not key.startswith(OF_TASK)}
        for one in (cell, other)
    )
    keys = {key for key in {*own, *others} if own.get(key) != others.get(key)}
    shown_twice = {"requests.concurrency"} if "batch_size" in differ else set()
    if "hardware" in differ:
        shown_twice.add("target.device")
    return len(of_machine), len(differ - of_machine) + len(keys - shown_twice)


def _differ(cell: PublishedCell, other: PublishedCell) -> set[str]:
    """Return the columns in which two cells differ; a task may be named by its first letters."""
    columns = {column for column in COLUMNS if getattr(cell, column) != getattr(other, column)}
    if (
        cell.task
        and other.task
        and (cell.task.startswith(other.task) or other.task.startswith(cell.task))
    ):
        columns.discard("task")
    return columns


def _estimate(paper: Paper, cell: PublishedCell, sibling: PublishedCell) -> float:
    """Return what a sibling makes of a cell, by the rules above."""
    value = float(sibling.published)
    own = _stated(cell)
    other = _stated(sibling)
    times = TIMES.get(cell.unit, 0)
    if TOKENS in own and TOKENS in other:
        value *= (float(own[TOKENS]) / float(other[TOKENS])) ** (-1 if times > 0 else 1)
    else:
        value *= _shown_by_another(paper, cell, sibling)
    if OUTPUT in own and OUTPUT in other and times > 0:
        value *= float(own[OUTPUT]) / float(other[OUTPUT])
    if times and cell.model != sibling.model:
        value *= (_layers(paper, cell) / _layers(paper, sibling)) ** times
    return value


def _shown_by_another(paper: Paper, cell: PublishedCell, sibling: PublishedCell) -> float:
    """Return the ratio of another method between the settings of a cell and its sibling; 1 where no
    cells show one.
    """
    pairs = list(_pairs(paper, cell, sibling))
    if not pairs:
        return 1.0
    value = float(sibling.published)

    def alike(pair: tuple[int, PublishedCell, PublishedCell]) -> tuple[float, ...]:
        matched, here, there = pair
        return -matched, len(_differ(here, cell)), abs(log(float(there.published) / value))

    _, here, there = min(pairs, key=alike)
    return float(here.published) / float(there.published)


def _pairs(
    paper: Paper, cell: PublishedCell, sibling: PublishedCell
) -> Iterator[tuple[int, PublishedCell, PublishedCell]]:
    """Yield two calibrated cells of another method that differ as a cell from its sibling, and in
    how many columns.
    """
    known = []
    for fitted in paper.with_role("calibrate"):
        if fitted.scenario != cell.scenario and fitted.quantity == cell.quantity:
            known.append(fitted)
    columns = _differ(cell, sibling)
    for here in known:
        for there in known:
            differ = _differ(here, there)
            if here.scenario != there.scenario or not differ or not differ <= columns:
                continue
            if not differ & (_differ(here, cell) | _differ(there, sibling)):
                yield len(differ), here, there


def _layers(paper: Paper, cell: PublishedCell) -> int:
    target = load(str(paper.folder / f"{cell.scenario}.yaml"), cell.assignments).scenario.target
    if target:
        return target.model.num_hidden_layers
    return 1
