"""A report folder, all of it or nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from simulator.files.schema import BadInput, Fault
from simulator.files.writing import replacing
from simulator.report.page import page_files
from simulator.report.run_page import ACCEPTED, SWEEP, TIMELINE, TRACE, run_page
from simulator.report.timeline import chrome_trace
from simulator.scenario.run import Result
from simulator.scenario.uncertainty import Interval
from simulator.studies.window import SweepPoint

NAME = "report"
REPORT = f"{NAME}.md"
OURS = {REPORT, f"{NAME}.html", SWEEP, ACCEPTED, TIMELINE, TRACE}


def write(result: Result, sweep: Sequence[SweepPoint], folder: Path, speedup: Interval | None = None) -> list[Path]:
    """Write the report into ``folder``, which appears only when complete; the files in it.

    ``speedup``: the interval that it lies in.

    A folder that is there already is replaced if it holds a report and nothing else; otherwise :class:`BadInput`.
    """
    folder = free(folder)
    with replacing(folder, parents=True) as new:
        new.mkdir()
        for file, text in _files(result, sweep, speedup):
            (new / file).write_text(text, "utf-8")
    return sorted(folder.iterdir())


def free(folder: Path) -> Path:
    """The absolute folder, if a report may go there; else :class:`BadInput`. To be asked before long work."""
    folder = folder.resolve()
    here = (str(folder), 0, 0)
    above = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if above != folder and not (above.is_dir() and os.access(above, os.W_OK)):
        raise BadInput([Fault(here, "", f"cannot be made: {above} is no folder that can be written to")])
    _check(folder)
    return folder


def _check(folder: Path) -> None:
    if not folder.exists():
        return
    here = (str(folder), 0, 0)
    if not folder.is_dir():
        raise BadInput([Fault(here, "", "is a file; expected the folder of a report, or a name that is free")])
    held = {path.name for path in folder.iterdir()}
    if REPORT not in held:
        message = f"is there already and holds no {REPORT}, so it is no report to replace; choose another folder"
        raise BadInput([Fault(here, "", message)])
    if strangers := sorted(held - OURS):
        message = f"holds '{strangers[0]}', which is no part of a report and would be lost; move it or choose another folder"
        raise BadInput([Fault(here, "", message)])


def _files(result: Result, sweep: Sequence[SweepPoint], speedup: Interval | None) -> Iterator[tuple[str, str]]:
    yield from page_files(run_page(result, sweep, speedup), NAME).items()
    yield TRACE, json.dumps(chrome_trace(result.spans), separators=(",", ":")) + "\n"
