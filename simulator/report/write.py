"""The report folder of a run, written completely or not at all."""

import os
from collections.abc import Sequence
from pathlib import Path

from simulator.core.faults import BadInput
from simulator.core.world import Span
from simulator.inputs.writing import replacing
from simulator.report.blocks import Page
from simulator.report.page import DATA, page_files
from simulator.report.run.acceptance import ACCEPTED
from simulator.report.run.caches import PICTURE as CACHES
from simulator.report.run.scaling import CHANGES
from simulator.report.run.steps import TIMELINE, TRACE
from simulator.report.run.window import SWEEP
from simulator.report.timeline import chrome_trace

NAME = "report"
REPORT = f"{NAME}.md"
OURS = {
    REPORT,
    f"{NAME}.html",
    SWEEP,
    ACCEPTED,
    TIMELINE,
    TRACE,
    CACHES,
    *(Path(one).with_suffix(DATA).name for one in (SWEEP, ACCEPTED, CACHES)),
    CHANGES,
}


def write(
    page: Page, spans: Sequence[Span], folder: Path, changes: str | None = None
) -> list[Path]:
    """Write the page of a run, its ``spans`` and the changes of its replicas into ``folder``, which
    appears only when complete; return the files' paths.

    A folder that is there already is replaced if it is empty, or holds a report and nothing else;
    otherwise :class:`BadInput`.
    """
    folder = free(folder)
    with replacing(folder, parents=True) as new:
        new.mkdir()
        files = page_files(page, NAME) | {TRACE: chrome_trace(spans)}
        if changes is not None:
            files[CHANGES] = changes
        for file, content in files.items():
            (new / file).write_bytes(content.encode() if isinstance(content, str) else content)
    return sorted(folder.iterdir())


def free(folder: Path) -> Path:
    """Return the absolute folder if a report may be written there; else raise :class:`BadInput`.
    Call it before long work.
    """
    folder = folder.resolve()
    above = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if above != folder and not (above.is_dir() and os.access(above, os.W_OK)):
        raise BadInput.at(folder, f"cannot be made: {above} is no folder that can be written to")
    if above != folder:
        return folder
    if not folder.is_dir():
        raise BadInput.at(
            folder, "is a file; expected the folder of a report, or a name that is free"
        )
    present = {path.name for path in folder.iterdir()}
    if present and REPORT not in present:
        message = (
            f"is there already and holds no {REPORT}, so it is no report to replace; choose "
            "another folder"
        )
        raise BadInput.at(folder, message)
    if strangers := sorted(present - OURS):
        message = (
            f"holds '{strangers[0]}', which is no part of a report and would be lost; move it "
            "or choose another folder"
        )
        raise BadInput.at(folder, message)
    return folder
