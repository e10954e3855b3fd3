"""The calls about running services: what one does, and how good a prediction was."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.api.result import Result

if TYPE_CHECKING:
    import pandas as pd

    from simulator.evidence.verified import VerifiedPredictions
    from simulator.inputs.services.observed import Observed
    from simulator.report.blocks import Page


def observe(*files: str | Path) -> Result[Observed]:
    """Return what files of a running service say of it: load, times, acceptance, state.

    Files are those that ``specsim observe`` reads, of one run; no server is asked. The table holds
    the times. Raises :class:`BadInput` with file and line.
    """
    from simulator.inputs.services.observation import observation_of

    observed = observation_of(list(map(Path, files)))

    def frame() -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame([time.model_dump() for time in observed.times])

    return Result(observed, lambda: observed.model_dump(mode="json"), frame)


def verify(
    prediction: str | Path | None = None,
    *after: str | Path,
    pairs: Sequence[tuple[str | Path, str | Path]] = (),
) -> Result[VerifiedPredictions]:
    """Return what was predicted of a service beside what was measured after the change.

    ``prediction`` is a ``prediction.yaml`` or its folder; ``after`` an ``observed.yaml``, or files
    that ``specsim observe`` reads. ``pairs`` are further predictions, each with what was measured
    after its change, for a ledger. The table has a row for every number. Raises :class:`BadInput`
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
        compared.append(verified(predicted, observation_of(list(map(Path, files)))))
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
