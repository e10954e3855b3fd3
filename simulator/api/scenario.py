"""The calls about a single scenario: load it, run it, evaluate its law."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from simulator.api.asked import Folder, Overrides, Source, lines, shelves
from simulator.api.result import Result
from simulator.core.plain import PlainData
from simulator.inputs.shell import command_line
from simulator.scenario import Loaded, load as load_scenario

if TYPE_CHECKING:
    import pandas as pd

    from simulator.core.strategies.common.law import Law
    from simulator.report.blocks import Page
    from simulator.scenario.result.run_result import RunResult


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
    return load_scenario(str(source), lines(overrides), shelves(catalogue), seed)


def run(
    source: Source, overrides: Overrides = (), *, seed: int | None = None, catalogue: Folder = None
) -> Result[RunResult]:
    """Simulate a scenario beside its law, replay and autoregressive decoding; return all of them.
    Raises as :func:`load`.
    """
    from simulator.scenario.result.data import result_data as run_summary
    from simulator.scenario.uncertain.intervals import run_with_interval

    loaded = load(source, overrides, seed=seed, catalogue=catalogue)
    command = ""  # what was changed in Python has none
    if not isinstance(source, Loaded) and not catalogue:
        command = command_line("run", [str(source)], lines(overrides), seed)
    result, span = run_with_interval(loaded, command)

    def page() -> Page:
        from simulator.report.run.page import run_page
        from simulator.studies.what_if import of_run
        from simulator.studies.window import window_sweep

        return run_page(result, window_sweep(loaded, result), span, of_run(loaded, result))

    def frame() -> pd.DataFrame:
        import pandas as pd

        numbers = run_summary(result)
        rows = {}
        for origin in ("law", "law_replayed", "replay", "simulated", "baseline"):
            rows[origin] = numbers[origin]
        columns = ["step_ms", "tokens_per_step", "tpot_ms", "ttft_ms", "tokens_per_s"]
        return pd.DataFrame(rows).T.reindex(columns=columns).astype(float)

    def write(folder: Path) -> None:
        from simulator.report.run.scaling import changes_as_csv
        from simulator.report.write import write as write_report

        write_report(page(), result.spans, folder, changes_as_csv(result.simulated))

    def data() -> PlainData:
        return run_summary(result) | {"speedup_interval": span._asdict()}

    return Result(result, data, frame, page, write)


def law(
    source: Source, overrides: Overrides = (), *, seed: int | None = None, catalogue: Folder = None
) -> Result[Law]:
    """Evaluate the closed form alone and return it, without a simulation; raises as
    :func:`load`.
    """
    from simulator.scenario.decision.by_law import by_law
    from simulator.scenario.evaluate import law as law_of, tuned
    from simulator.scenario.result.data import law_details

    loaded = tuned(load(source, overrides, seed=seed, catalogue=catalogue))
    details = law_details(loaded, by_law(loaded))

    def frame() -> pd.DataFrame:
        import pandas as pd

        rows = []
        for kind in details["kinds"]:
            rows.append(
                {key: kind[key] for key in ("name", "share", "step_ms")} | kind["durations"]
            )
        return pd.DataFrame(rows).set_index("name")

    return Result(law_of(loaded.scenario, loaded.acceptance()), lambda: details, frame)
