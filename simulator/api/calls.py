"""What the commands do, as functions whose results a notebook shows, tabulates and saves.

    import simulator

    result = simulator.run("mirror_qwen3_32b_a100", {"strategy.gamma": 5})
    result.speedup                 # any number of the run
    result.to_frame()              # law, replay and simulation as a pandas table
    result.save("reports/mine")    # the folder that `specsim run --out` writes

``simulator`` gives these names lazily, so that ``import simulator`` loads nothing else.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pandas as pd

from simulator.acceptance.iid import every_drafter
from simulator.acceptance.statistics import Statistics, statistics
from simulator.acceptance.trace import read
from simulator.api.result import Result
from simulator.cli.options import typed
from simulator.cli.studies import STUDIES, Asked
from simulator.files.document import in_a_line
from simulator.names import FOLDERS, Catalogue
from simulator.report.blocks import Page
from simulator.report.page import page_files, write_files
from simulator.report.pages import sweep as sweep_pages
from simulator.report.pages.iid import page as iid_page
from simulator.report.pages.plan import page as plan_page, write_plan
from simulator.report.run_page import run_page
from simulator.report.write import write as write_report
from simulator.scenario import Loaded, load as load_scenario
from simulator.scenario.run import (
    RunResult as Run,
    law as law_of,
    law_details,
    summary as run_summary,
)
from simulator.scenario.uncertainty import run_with_interval
from simulator.strategies.common.law import Law
from simulator.studies.compare import Comparison, measured
from simulator.studies.plan.file import load_plan
from simulator.studies.plan.study import (
    PlanStudy,
    finding_data,
    study as plan_study,
    summary as plan_summary,
)
from simulator.studies.sweep.executors import crew
from simulator.studies.sweep.store import reading, writing
from simulator.studies.sweep.study import study as read_study
from simulator.studies.sweep.sweeping import sweep as evaluate_points
from simulator.studies.sweep.table import SweepTable, best, faults, table
from simulator.studies.what_if import of_run
from simulator.studies.window import window_sweep

Overrides: TypeAlias = Mapping[str, object] | Sequence[str]
"""Fields to change: ``{"strategy.gamma": 5}``, or lines as after ``--set``:
``["strategy.gamma=5"]``.
"""
Source: TypeAlias = str | Path | Loaded
"""A scenario: its name in the catalogue, the path of a YAML file, or one that was loaded."""
Folder: TypeAlias = str | Path | None
"""A catalogue of the user's own, which is searched before the shipped one."""


def load(
    source: Source, overrides: Overrides = (), *, seed: int | None = None, catalogue: Folder = None
) -> Loaded:
    """Return a scenario, checked, with the trace it replays.

    Raises :class:`BadInput` with every fault of the file and of the overrides, :class:`Infeasible`
    where a model does not fit its devices, and TypeError for changes to a scenario that is loaded
    already.
    """
    if isinstance(source, Loaded):
        if overrides or seed is not None:
            raise TypeError(
                "overrides and seed change a scenario while it is read; give its name, not a "
                "loaded one"
            )
        return source
    return load_scenario(str(source), _lines(overrides), _catalogue(catalogue), seed)


def _lines(overrides: Overrides) -> tuple[str, ...]:
    """Return overrides as ``key=value``, with values as YAML."""
    if isinstance(overrides, Mapping):
        return tuple(f"{key}={in_a_line(value)}" for key, value in overrides.items())
    return tuple(overrides)


def _catalogue(folder: Folder) -> Catalogue:
    """Return the shipped catalogue, behind a folder of the user's own where there is one."""
    return Catalogue((Path(folder),) if folder else ())


def run(
    source: Source, overrides: Overrides = (), *, seed: int | None = None, catalogue: Folder = None
) -> Result[Run]:
    """Simulate a scenario beside its law, replay and autoregressive decoding; return all of them.
    Raises as :func:`load`.
    """
    loaded = load(source, overrides, seed=seed, catalogue=catalogue)
    command = (
        ""
        if isinstance(source, Loaded) or catalogue
        else typed("run", [str(source)], _lines(overrides), seed)
    )
    result, span = run_with_interval(loaded, command)  # what was changed in Python has no command

    def page() -> Page:
        return run_page(result, window_sweep(loaded, done=result), span, of_run(loaded, result))

    def frame() -> pd.DataFrame:
        numbers = run_summary(result)
        rows = {
            origin: numbers[origin]
            for origin in ("law", "law_replayed", "replay", "simulated", "baseline")
        }
        columns = ["step_ms", "tokens_per_step", "tpot_ms", "ttft_ms", "tokens_per_s"]
        return pd.DataFrame(rows).T.reindex(columns=columns).astype(float)

    return Result(
        result,
        lambda: run_summary(result) | {"speedup_interval": span._asdict()},
        frame,
        page,
        lambda folder: write_report(page(), result.spans, folder),
    )


def law(
    source: Source, overrides: Overrides = (), *, seed: int | None = None, catalogue: Folder = None
) -> Result[Law]:
    """Evaluate the closed form alone and return it, without a simulation; raises as
    :func:`load`.
    """
    loaded = load(source, overrides, seed=seed, catalogue=catalogue)
    details = law_details(loaded)

    def frame() -> pd.DataFrame:
        rows = [
            {key: kind[key] for key in ("name", "share", "step_ms")} | kind["durations"]
            for kind in details["kinds"]
        ]
        return pd.DataFrame(rows).set_index("name")

    return Result(law_of(loaded.scenario, loaded.acceptance()), lambda: details, frame)


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
    later call goes on; without one they are not kept. Raises :class:`BadInput` for a field that
    does not exist.
    """
    given = read_study(
        str(name), _catalogue(catalogue), _lines(overrides), _axes(axes), seed, evaluate=evaluate
    )
    with _place(store) as path:
        with writing(path) as database, crew(workers) as hired:
            evaluate_points(given, database, hired)
        with reading(path) as stored:
            points = table(stored)
    words = [word for axis in _axes(axes) for word in ("--axis", axis)] + (
        ["--evaluate", evaluate] if evaluate else []
    )
    command = typed("sweep", [str(name)], _lines(overrides), seed, words)

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


def plan(
    name: str | Path,
    overrides: Overrides = (),
    *,
    draws: int = 20,
    seed: int | None = None,
    catalogue: Folder = None,
) -> Result[PlanStudy]:
    """Find the cheapest fleet of a plan file that keeps its SLO, and return it with how firm that
    answer is.

    ``draws`` runs are resampled for the chance that the SLO is met. Raises :class:`BadInput` with
    the faults of the file, :class:`Infeasible` with the nearest miss where no fleet keeps the SLO.
    """
    command = typed(
        "plan", [str(name)], _lines(overrides), seed, [] if draws == 20 else ["--draws", str(draws)]
    )
    answer = plan_study(
        load_plan(str(name), _lines(overrides), _catalogue(catalogue), seed), command, draws
    )
    return Result(
        answer,
        lambda: plan_summary(answer),
        lambda: pd.json_normalize([finding_data(finding) for finding in answer.search.findings]),
        lambda: plan_page(answer),
        lambda folder: write_plan(answer, folder),
    )


def study(
    name: str,
    *scenarios: str | Path,
    overrides: Overrides = (),
    seed: int | None = None,
    catalogue: Folder = None,
    **options: Any,
) -> Result[Any]:
    """Do a study of scenarios and return it: ``study("trees", "specpipe_llama_3_1_70b_8x3090")``.

    ``name`` is the command of a study (batches, budget, capacity, compare, crossovers, drafts,
    load, methods, network, streams, trees); ``options`` are those of the command, with underscores.
    Raises ValueError for an unknown study, and as :func:`load`.
    """
    by_name = {command.name: command for command in STUDIES}
    if name not in by_name:
        raise ValueError(f"there is no study '{name}'; there are {', '.join(sorted(by_name))}")
    folders = (Path(catalogue),) if catalogue else ()
    asked = Asked(tuple(map(str, scenarios)), _lines(overrides), seed, None, False, folders)
    inputs, arguments = by_name[name].prepare(asked, by_name[name].defaults() | options)
    value = import_module(f"simulator.studies.{name}").study(inputs, **arguments)
    command = "" if options or catalogue else typed(name, asked.scenarios, asked.overrides, seed)

    def page() -> Page:
        made: Page = replace(
            import_module(f"simulator.report.pages.{name}").page(value), command=command
        )
        return made

    return Result(
        value,
        value.as_data,
        lambda: pd.json_normalize(_rows(value.as_data())),
        page,
        lambda folder: write_files(folder, page_files(page(), name)),
    )


def _rows(data: Any) -> list[dict[str, Any]]:
    """Return the rows of nested plain data: its innermost list of mappings, with the names of what
    holds it.
    """
    if isinstance(data, dict):
        lists = {
            key: value
            for key, value in data.items()
            if isinstance(value, list) and value and isinstance(value[0], dict)
        }
        plain = {key: value for key, value in data.items() if not isinstance(value, list | dict)}
        for value in lists.values():
            return [plain | row for entry in value for row in _rows(entry)]
        return [{key: value for key, value in data.items() if not isinstance(value, list)}]
    return [row for entry in data for row in _rows(entry)]


def compare(
    *scenarios: str | Path,
    overrides: Overrides = (),
    seed: int | None = None,
    catalogue: Folder = None,
) -> Result[Comparison]:
    """Run scenarios and return them side by side: A, B, C, ... in the order given, the others
    compared with A.

    An override may name a single scenario by its letter: ``["B:strategy.gamma=5"]``. Raises as
    :func:`load`.
    """
    result = study("compare", *scenarios, overrides=overrides, seed=seed, catalogue=catalogue)
    comparison: Comparison = result.value

    def frame() -> pd.DataFrame:
        columns = [f"{contestant.letter}: {contestant.name}" for contestant in comparison.runs]
        return pd.DataFrame.from_dict(
            {measure.key: values for measure, values in measured(comparison)},
            orient="index",
            columns=columns,
        )

    return Result(
        comparison,
        result.to_dict,
        frame,
        lambda: result.page,  # type: ignore[arg-type, return-value]
        result._write,
    )


def trace(name: str | Path, *, seed: int = 0, catalogue: Folder = None) -> Result[Statistics]:
    """Return the numbers of a recording, by name or path: its tokens per step by window, hits, run
    lengths, drafters.

    ``seed`` draws the acceptance of a sampled recording. Raises :class:`BadInput` for a file that
    is no recording.
    """
    path = _catalogue(catalogue).names("trace").get(str(name), Path(name))
    numbers = statistics(read(path), seed=seed)

    def frame() -> pd.DataFrame:
        rows = [
            {"gamma": mean.gamma, "tokens_per_step": 1.0 + mean.replayed}
            for mean in numbers.windows
        ]
        return pd.DataFrame(rows).set_index("gamma")

    return Result(numbers, lambda: asdict(numbers), frame)


def iid(
    name: str | Path,
    *,
    windows: Sequence[int] = (1, 3, 5, 8),
    seed: int = 0,
    catalogue: Folder = None,
) -> Result[list[Any]]:
    """Return how wrong the i.i.d. formula is for every drafter of a recording, fitted at one draft
    token.

    The table has the error in per cent by drafter and window; ``value`` the drafters with their
    shares by position.
    """
    path = _catalogue(catalogue).names("trace").get(str(name), Path(name))
    drafters = every_drafter(read(path), path.stem, (), tuple(windows), seed)

    def frame() -> pd.DataFrame:
        errors = {
            drafter.name: {f"gamma {error.gamma}": error.percent for error in drafter.errors}
            for drafter in drafters
        }
        return pd.DataFrame(errors).T

    return Result(
        drafters,
        lambda: {"drafters": [drafter._asdict() for drafter in drafters]},
        frame,
        lambda: iid_page(drafters, typed("trace iid", [str(name)], ())),
    )


def catalogue(
    kind: str | None = None, *, folder: Folder = None
) -> Result[dict[str, dict[str, str]]]:
    """Return what there is, by kind and name with a line about each: scenarios, strategies,
    devices, methods, traces, ...

    ``kind`` is one of them, None means all; ``folder`` is a catalogue of your own that is searched
    first.
    """
    shelves = _catalogue(folder)
    abouts = {
        entry: shelves.abouts(entry) for entry in ([kind] if kind else ["strategy", *FOLDERS])
    }
    rows = [
        (entry, name, about) for entry, names in abouts.items() for name, about in names.items()
    ]
    return Result(
        abouts, lambda: dict(abouts), lambda: pd.DataFrame(rows, columns=["kind", "name", "about"])
    )
