"""The call that lists what there is."""

import pandas as pd

from simulator.api.asked import Folder, shelves
from simulator.api.result import Result
from simulator.inputs.catalogue import FOLDERS


def catalogue(
    kind: str | None = None, *, folder: Folder = None
) -> Result[dict[str, dict[str, str]]]:
    """Return what there is, by kind and name with a line about each: scenarios, strategies,
    devices, methods, traces, ...

    ``kind`` is one of them, None means all; ``folder`` is a catalogue of your own that is searched
    first.
    """
    known = shelves(folder)
    kinds = [kind] if kind else ["strategy", *FOLDERS]
    abouts = {entry: known.abouts(entry) for entry in kinds}
    rows = [
        (entry, name, about) for entry, names in abouts.items() for name, about in names.items()
    ]
    return Result(
        abouts, lambda: dict(abouts), lambda: pd.DataFrame(rows, columns=["kind", "name", "about"])
    )
