"""Make the table of a sweep: a row for each point with its axes, the metrics of every evaluator,
and what went wrong.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from simulator.core.faults import BadInput, did_you_mean
from simulator.core.plain import PlainData
from simulator.inputs.writing import plain_frame, write
from simulator.scenario import Scenario
from simulator.studies.sweep.axes import Design
from simulator.studies.sweep.base import Evaluator
from simulator.studies.sweep.metrics import LAW_METRICS, METRICS
from simulator.studies.sweep.store import Store
from simulator.studies.sweep.study import SweepFile, layout

Frame: TypeAlias = pd.DataFrame
ENDINGS = (".csv", ".parquet")


@dataclass(frozen=True)
class SweepTable:
    """Holds a sweep as its store has it: what was asked for, and a data frame of the points that
    have a result.
    """

    name: str
    file: SweepFile
    design: Design
    frame: Frame
    """Columns are ``point``, each axis, ``EVALUATOR_METRIC`` for each metric, and ``fault``; rows
    go by number of the point.
    """

    @property
    def axes(self) -> list[str]:
        """Return the names of the columns that are axes."""
        return [axis.key for axis in self.design.axes]

    def column(self, name: str) -> str:
        """Return the column of an axis or metric, by default that of the last evaluator; raises
        :class:`BadInput`.
        """
        for column in (
            name,
            *(f"{evaluator}_{name}" for evaluator in reversed(self.file.evaluators)),
        ):
            if column in self.frame:
                return column
        short_names = [axis.rpartition(".")[2] for axis in self.axes]
        if short_names.count(name) == 1:
            return self.axes[short_names.index(name)]
        message = (
            "the sweep has no such "
            f"column{did_you_mean(name, [*self.axes, *short_names, *METRICS])}"
        )
        raise BadInput.at(self.name, message, name)


def table(store: Store) -> SweepTable:
    """Return the table of all points that have a result; raises :class:`BadInput` where the store
    is damaged.
    """
    file, design = layout(store.fact("definition"))
    metrics = file.metrics or tuple(METRICS)
    store.check(len(design), metrics)
    frame = _results(store, file.evaluators[0], metrics)
    for evaluator in file.evaluators[1:]:
        frame = frame.merge(
            _results(store, evaluator, metrics), on="point", how="left", suffixes=("", "_then")
        )
        frame["fault"] = frame["fault"].where(frame["fault"].notna(), frame.pop("fault_then"))
    points = [design.point(number).labels for number in frame["point"]]
    for place, axis in reversed(list(enumerate(design.axes))):
        frame.insert(1, axis.key, [labels[place] for labels in points])
    frame["fault"] = frame.pop("fault")  # behind all numbers
    return SweepTable(file.name, file, design, frame)


def _results(store: Store, evaluator: Evaluator, metrics: Sequence[str]) -> Frame:
    """Return number, fault and metrics of the points that an evaluator has done."""
    names = [name for name in metrics if evaluator != "law" or name in LAW_METRICS]
    columns = ["point", "fault", *(f"{evaluator}_{name}" for name in names)]
    frame = pd.DataFrame(store.rows(evaluator, names), columns=columns)
    return frame.astype(dict.fromkeys(columns[2:], float))


def check_ending(path: Path) -> None:
    """Raise :class:`BadInput` for a file whose name does not end as an exported table's does."""
    if path.suffix not in ENDINGS:
        raise BadInput.at(
            f"--export {path}", f"expected a name that ends in {' or '.join(ENDINGS)}"
        )


def export(points: SweepTable, path: Path) -> None:
    """Write the table as ``.csv`` or ``.parquet``; the same results give the same bytes. Raises
    :class:`BadInput`.
    """
    check_ending(path)
    write(path, table_writer(points))


def table_writer(points: SweepTable) -> Callable[[Path], None]:
    """Return a function that writes the table to a path that ends in ``.csv`` or ``.parquet``."""

    def written(path: Path) -> None:
        if path.suffix == ".csv":
            plain_frame(points.frame).to_csv(path, index=False, lineterminator="\n")
            return
        mixed = []
        for name in points.axes:
            if pd.api.types.infer_dtype(points.frame[name]).startswith("mixed"):
                mixed.append(name)
        try:
            points.frame.astype(dict.fromkeys(mixed, str)).to_parquet(path, index=False)
        except ImportError as error:
            raise BadInput.at(
                f"--export {path}",
                "needs the extra 'parquet': pip install 'specdecode-sim[parquet]'",
            ) from error

    return written


def faults(points: SweepTable) -> dict[int, dict[str, str]]:
    """Return by number of the point: its values on the axes, and what is wrong with it."""
    faulty = points.frame[points.frame["fault"].notna()]
    return {
        int(row["point"]): {
            "at": ", ".join(f"{key}={row[key]}" for key in points.axes),
            "fault": str(row["fault"]),
        }
        for _, row in faulty.iterrows()
    }


def cautions(points: SweepTable, base: Scenario) -> Iterator[str]:
    """Yield what to know before points are compared; ``base`` is the scenario before any axis."""
    if base.acceptance.stand_in:
        yield "acceptance is a stand-in, recorded from other models"
    fields: set[str] = set()
    for axis in points.design.axes:
        fields.update(*axis.settings)
    stated = base.durations and base.durations.draft_ms
    if stated is not None and "strategy.gamma" in fields and "durations.draft_ms" not in fields:
        yield (
            f"durations.draft_ms is the time of a whole window and stays {stated:g} ms whatever "
            "strategy.gamma is, so that longer windows cost nothing here; state "
            "durations.draft_step_ms instead to let it grow with them"
        )


def best(points: SweepTable) -> dict[str, PlainData]:
    """Return the best point by time per token (ms) and by speed-up, as the last evaluator has them;
    of equals the first.
    """
    chosen = {}
    for name in ("tpot_ms", "speedup"):
        column = f"{points.file.evaluators[-1]}_{name}"
        if column in points.frame and points.frame[column].notna().any():
            values = points.frame[column]
            row = points.frame.loc[
                values.idxmin() if METRICS[name].less_is_better else values.idxmax()
            ]
            number = int(row["point"])
            labels = dict(zip(points.axes, points.design.point(number).labels, strict=True))
            chosen[column] = {"value": float(row[column]), "point": number, "at": labels}
    return chosen
