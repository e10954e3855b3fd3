"""A plan in a folder: page, picture, and the answer in the words of the programs that serve it."""

from __future__ import annotations

from pathlib import Path

from simulator.atomic import whole_file
from simulator.plan_study import Study
from simulator.report.page import study_file
from simulator.report.plan import sections
from simulator.report.plan_figures import plan_figure
from simulator.schema import BadInput, Fault

PAGE = "plan.md"


def write_plan(done: Study, folder: Path) -> None:
    """Every file complete, or not at all; raises :class:`BadInput` where the folder cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput([Fault((str(folder), 0, 0), "", f"cannot be made: {error.strerror or error}")]) from error
    with study_file(folder / PAGE, done.command) as write:
        if write:
            write(f"Plan {done.search.plan.file.name}", plan_figure(done), sections(done))
    for name, text in done.exports.items():
        with whole_file(folder / name) as file:
            if file:
                file.write(text)
