"""The call that evaluates many points around a scenario."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from simulator.api.asked import Folder, Overrides, lines, name_of, shelves
from simulator.api.result import Result
from simulator.inputs.shell import command_line
from simulator.report.pages import sweep as sweep_pages
from simulator.studies.sweep.executors import crew
from simulator.studies.sweep.store import reading, writing
from simulator.studies.sweep.study import study as read_study
from simulator.studies.sweep.sweeping import sweep as evaluate_points
from simulator.studies.sweep.table import SweepTable, best, faults, table


def sweep(
    name: str | Path,
    axes: Mapping[str, Iterable[object]] | Sequence[str] = (),
    overrides: Overrides = (),
    *,
    evaluate: str | None = None,
    store: str | Path | None = None,
    workers: int = 1,
    seed: int | None = None,
    catalogue: Folder = None,
) -> Result[SweepTable]:
    """Evaluate a scenario, or a sweep of the catalogue, at every combination of the values of
    ``axes``; return the points.

    ``axes`` maps a dotted field to its values, or holds lines as after ``--axis``. ``evaluate`` is
    one of the words of ``--evaluate``. Points are kept in ``store``, an SQLite file with which a
    later call goes on; without one they are not kept. A sweep of the catalogue says which
    pictures it draws; of any other ``to_frame().plot()`` draws one. Raises :class:`BadInput` for a
    field that does not exist, TypeError for a scenario that is loaded already.
    """
    scenario = name_of(name)
    given = read_study(
        scenario, shelves(catalogue), lines(overrides), _axes(axes), seed, evaluate=evaluate
    )
    with _place(store) as path:
        with writing(path) as database, crew(workers) as hired:
            evaluate_points(given, database, hired)
        with reading(path) as stored:
            points = table(stored)
    words = [word for axis in _axes(axes) for word in ("--axis", axis)] + (
        ["--evaluate", evaluate] if evaluate else []
    )
    command = command_line("sweep", [scenario], lines(overrides), seed, words)

    return Result(
        points,
        lambda: {
            "sweep": points.name,
            "points": len(points.design),
            "best": best(points),
            "faults": faults(points),
        },
        lambda: points.frame.set_index("point"),
        lambda: sweep_pages.page(points, given.base.scenario, command),
        lambda folder: sweep_pages.write_sweep(points, given.base.scenario, command, folder),
    )


@contextmanager
def _place(store: str | Path | None) -> Iterator[Path]:
    """Yield the file of a store; without one a file that is removed at the end of the block."""
    with TemporaryDirectory() as folder:
        yield Path(store) if store else Path(folder) / "points.sqlite"


def _axes(axes: Mapping[str, Iterable[object]] | Sequence[str]) -> tuple[str, ...]:
    """Return axes as ``key=value,value,...``."""
    if isinstance(axes, Mapping):
        return tuple(
            f"{key}={','.join(str(value) for value in values)}" for key, values in axes.items()
        )
    return tuple(axes)
