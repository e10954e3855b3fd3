"""The table of a sweep: a row for each point, its axes, what every evaluator found, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from simulator.files.schema import BadInput, Fault, did_you_mean
from simulator.files.writing import replacing
from simulator.scenario import Scenario
from simulator.studies.sweep.axes import Design
from simulator.studies.sweep.base import Evaluator
from simulator.studies.sweep.metrics import LAW_METRICS, METRICS
from simulator.studies.sweep.store import Store
from simulator.studies.sweep.study import SweepFile, layout

Frame: TypeAlias = pd.DataFrame


@dataclass(frozen=True)
class SweepTable:
    """A sweep as its store holds it."""

    name: str
    file: SweepFile
    design: Design
    frame: Frame
    """``point``, a column for each axis, ``EVALUATOR_METRIC`` for each number found, ``fault``; by number of the point."""

    @property
    def axes(self) -> list[str]:
        """Columns that are axes."""
        return [axis.key for axis in self.design.axes]

    def column(self, name: str) -> str:
        """The column of an axis or of a metric, by default as the last evaluator found it; raises :class:`BadInput`."""
        for found in (name, *(f"{evaluator}_{name}" for evaluator in reversed(self.file.evaluators))):
            if found in self.frame:
                return found
        short = [axis for axis in self.axes if axis.rpartition(".")[2] == name]
        if len(short) == 1:
            return short[0]
        known = [*self.axes, *(axis.rpartition(".")[2] for axis in self.axes), *METRICS]
        message = f"the sweep has no such column{did_you_mean(name, known)}"
        raise BadInput([Fault((self.name, 0, 0), name, message)])


def table(store: Store) -> SweepTable:
    """All points that have a result."""
    definition = store.fact("definition")
    file, design = layout(definition)
    frames = [_found(store, evaluator, file.metrics or tuple(METRICS)) for evaluator in file.evaluators]
    frame = frames[0]
    for other in frames[1:]:
        frame = frame.merge(other, on="point", how="left", suffixes=("", "_then"))
        frame["fault"] = frame["fault"].where(frame["fault"].notna(), frame.pop("fault_then"))
    points = [design.point(number).labels for number in frame["point"]]
    for place, axis in reversed(list(enumerate(design.axes))):
        frame.insert(1, axis.key, [labels[place] for labels in points])
    frame["fault"] = frame.pop("fault")  # behind all numbers
    return SweepTable(definition["name"], file, design, frame)


def _found(store: Store, evaluator: Evaluator, metrics: Sequence[str]) -> Frame:
    known = [name for name in metrics if evaluator != "law" or name in LAW_METRICS]
    columns = ["point", "fault", *(f"{evaluator}_{name}" for name in known)]
    frame = pd.DataFrame(store.rows(evaluator, known), columns=columns)
    return frame.astype(dict.fromkeys(columns[2:], float))


def export(found: SweepTable, path: Path) -> None:
    """The table as ``.csv`` or ``.parquet``; the same results give the same bytes. Raises :class:`BadInput`."""
    place = (f"--export {path}", 0, 0)
    try:
        with replacing(path, parents=True) as new:
            if path.suffix == ".csv":
                found.frame.to_csv(new, index=False, lineterminator="\n")
            elif path.suffix == ".parquet":
                mixed = [name for name in found.axes if pd.api.types.infer_dtype(found.frame[name]).startswith("mixed")]
                found.frame.astype(dict.fromkeys(mixed, str)).to_parquet(new, index=False)
            else:
                raise BadInput([Fault(place, "", "expected a name that ends in .csv or .parquet")])
    except ImportError as error:
        raise BadInput([Fault(place, "", "needs the extra 'parquet': pip install 'specdecode-sim[parquet]'")]) from error


def faults(found: SweepTable) -> dict[int, dict[str, str]]:
    """By number of the point: where it stands, and what is wrong with it."""
    wrong = found.frame[found.frame["fault"].notna()]
    return {
        int(row["point"]): {"at": ", ".join(f"{key}={row[key]}" for key in found.axes), "fault": str(row["fault"])}
        for _, row in wrong.iterrows()
    }


def cautions(found: SweepTable, base: Scenario) -> Iterator[str]:
    """What to know before points are held against each other; ``base`` is the scenario before any axis."""
    if base.acceptance.stand_in:
        yield "acceptance is a stand-in, recorded from other models"
    fields = {key for axis in found.design.axes for settings in axis.settings for key in settings}
    stated = base.durations and base.durations.draft_ms
    if stated is not None and "strategy.gamma" in fields and "durations.draft_ms" not in fields:
        yield (
            f"durations.draft_ms is the time of a whole window and stays {stated:g} ms whatever strategy.gamma is, so that "
            "longer windows cost nothing here; state durations.draft_step_ms instead to let it grow with them"
        )


def best(found: SweepTable) -> dict[str, dict[str, Any]]:
    """The best point by time per token and by speed-up, as the last evaluator found them; of equal ones the first."""
    chosen = {}
    for name in ("tpot_ms", "speedup"):
        column = f"{found.file.evaluators[-1]}_{name}"
        if column in found.frame and found.frame[column].notna().any():
            values = found.frame[column]
            row = found.frame.loc[values.idxmin() if METRICS[name].less_is_better else values.idxmax()]
            chosen[column] = {"value": float(row[column]), "point": int(row["point"]), "at": _labels(found, int(row["point"]))}
    return chosen


def _labels(found: SweepTable, number: int) -> dict[str, Any]:
    return dict(zip(found.axes, found.design.point(number).labels, strict=True))
