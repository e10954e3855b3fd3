"""The calls about running services: what one does, what a change would do to it, and how good that
prediction was.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.api.asked import Folder, shelves
from simulator.api.result import Result

if TYPE_CHECKING:
    import pandas as pd

    from simulator.evidence.verified import VerifiedPredictions
    from simulator.inputs.catalogue import Catalogue
    from simulator.inputs.services.observed import Observed
    from simulator.report.blocks import Page
    from simulator.studies.service.sources import ServiceScenario
    from simulator.studies.service.tried import WhatIfService


def observe(*files: str | Path, skipped: int = 0) -> Result[Observed]:
    """Return what files of a running service say of it: load, times, acceptance, state.

    Files are those that ``specsim observe`` reads, of one run; no server is asked. The first
    requests, ``skipped`` of them, are a warm-up, whose times do not count. The table holds the
    times. Raises :class:`BadInput` with file and line.
    """
    from simulator.inputs.services.observation import observation_of

    observed = observation_of(list(map(Path, files)), skipped)

    def frame() -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame([time.model_dump() for time in observed.times])

    return Result(observed, lambda: observed.model_dump(mode="json"), frame)


def what_if(
    *sources: str | Path,
    tries: Sequence[str],
    like: str | Path | None = None,
    catalogue: Folder = None,
    skipped: int = 0,
) -> Result[WhatIfService]:
    """Return what changes would do to a running service: helps, may hurt or hurts, by how much.

    ``sources`` are an ``observed.yaml`` or files that ``specsim observe`` reads, of a service
    ``like`` a scenario; or, without ``like``, one scenario. ``tries`` are as after ``--try``:
    ``["eagle_3", "gamma=2,4"]``. The first requests, ``skipped`` of them, are a warm-up, whose
    times do not count. The table has a row for every change and number. Raises
    :class:`BadInput` with file, line and column, :class:`Infeasible` as a scenario does.
    """
    service, result = tried_service(
        list(map(str, sources)), tries, str(like) if like else None, shelves(catalogue), skipped
    )

    def page() -> Page:
        from simulator.report.services.tried import page as page_of

        return page_of(result)

    def frame() -> pd.DataFrame:
        import pandas as pd

        rows = []
        for tried in result.as_data()["tries"]:
            shown = {"tried": tried["tried"], "verdict": tried["verdict"]}
            rows += [shown | number for number in tried["numbers"]]
        return pd.json_normalize(rows)

    def write(folder: Path) -> None:
        write_tried(service, result, page(), folder)

    return Result(result, result.as_data, frame, page, write)


def tried_service(
    sources: Sequence[str],
    texts: Sequence[str],
    like: str | None,
    catalogue: Catalogue,
    skipped: int = 0,
) -> tuple[ServiceScenario, WhatIfService]:
    """Return the scenario of a service, and what the changes that were typed would do to it."""
    from tempfile import TemporaryDirectory

    from simulator.studies.service.changes import changes_of
    from simulator.studies.service.sources import service_of
    from simulator.studies.service.tried import study

    with TemporaryDirectory(prefix="specsim-") as folder:
        service = service_of(sources, like, Path(folder), catalogue, skipped)
        changes, untried = changes_of(service.loaded, texts, catalogue)
        name = like or service.loaded.scenario.name
        return service, study(service.loaded, changes, untried, service.observed, name)


def write_tried(service: ServiceScenario, result: WhatIfService, page: Page, out: Path) -> None:
    """Write the page of tried changes into a folder, with what each of them needs."""
    from simulator.report.page import page_files, write_files
    from simulator.studies.service.files import tried_files

    files = page_files(page, "what_if") | service.written(out)
    files |= tried_files(result, service.like_of_changes(out))
    write_files(out, files)


def verify(
    prediction: str | Path | None = None,
    *after: str | Path,
    pairs: Sequence[tuple[str | Path, str | Path]] = (),
    skipped: int = 0,
) -> Result[VerifiedPredictions]:
    """Return what was predicted of a service beside what was measured after the change.

    ``prediction`` is a ``prediction.yaml`` or its folder; ``after`` an ``observed.yaml``, or files
    that ``specsim observe`` reads. ``pairs`` are further predictions, each with what was measured
    after its change, for a ledger. The first requests of each, ``skipped`` of them, are a warm-up,
    whose times do not count. The table has a row for every number. Raises :class:`BadInput`
    with file, line and column, ValueError where nothing is asked.
    """
    from simulator.evidence.verified import VerifiedPredictions, verified
    from simulator.inputs.services.observation import observation_of
    from simulator.inputs.services.prediction import read_prediction

    asked: list[tuple[str | Path, Sequence[str | Path]]] = []
    if prediction is not None:
        asked.append((prediction, after))
    for each, measured in pairs:
        asked.append((each, [measured]))
    if not asked:
        raise ValueError("expected a prediction and files of the service after the change")
    compared = []
    for each, files in asked:
        predicted = read_prediction(Path(each))
        compared.append(verified(predicted, observation_of(list(map(Path, files)), skipped)))
    result = VerifiedPredictions(compared)

    def page() -> Page:
        from simulator.report.services.verified import page as page_of

        return page_of(result)

    def frame() -> pd.DataFrame:
        import pandas as pd

        rows = []
        for pair in result.as_data()["pairs"]:
            tried = {"tried": pair["tried"], "scenario": pair["scenario"]}
            rows += [tried | number for number in pair["numbers"]]
        return pd.json_normalize(rows)

    return Result(result, result.as_data, frame, page)
