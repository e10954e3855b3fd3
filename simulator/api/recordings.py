"""The calls about recordings of acceptance."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from simulator.api.asked import Folder, shelves
from simulator.api.result import Result
from simulator.core.acceptance.iid import every_drafter
from simulator.core.acceptance.statistics import Statistics, statistics
from simulator.inputs.shell import command_line
from simulator.inputs.traces.file import read
from simulator.inputs.traces.named import named
from simulator.report.pages.iid import page as iid_page


def trace(name: str | Path, *, seed: int = 0, catalogue: Folder = None) -> Result[Statistics]:
    """Return the numbers of a recording, by name or path: its tokens per step by window, hits, run
    lengths, drafters.

    ``NAME:DRAFTER`` is that of a drafter other than the first. ``seed`` draws the acceptance of a
    sampled recording. Raises :class:`BadInput` for a file that is no recording.
    """
    _, recorded = named(str(name), shelves(catalogue))
    numbers = statistics(recorded, seed=seed)

    def frame() -> pd.DataFrame:
        rows = []
        for mean in numbers.windows:
            rows.append({"gamma": mean.gamma, "tokens_per_step": 1.0 + mean.replayed})
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
    path = shelves(catalogue).names("trace").get(str(name), Path(name))
    drafters = every_drafter(read(path), path.stem, (), tuple(windows), seed)

    def frame() -> pd.DataFrame:
        errors = {}
        for drafter in drafters:
            errors[drafter.name] = {
                f"gamma {error.gamma}": error.percent for error in drafter.errors
            }
        return pd.DataFrame(errors).T

    return Result(
        drafters,
        lambda: {"drafters": [drafter._asdict() for drafter in drafters]},
        frame,
        lambda: iid_page(drafters, command_line("trace iid", [str(name)], ())),
    )
