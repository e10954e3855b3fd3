"""Studies of papers: each is told to the command line and to Python in the module ``studies`` of
its paper's folder, and is found because it is there.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from simulator.core.plugin_group import PAPERS


class SizesOption(NamedTuple):
    """An option of a command that takes numbers in a row, such as ``1-8,16``."""

    flag: str
    parameter: str
    """The parameter of the function ``study`` that it is given as."""
    help: str


class StudyOfPaper(NamedTuple):
    """A study with its command ``specsim NAME``.

    ``module`` has a function ``study`` of loaded scenarios and options; the module of this name
    and ``_page`` has the function ``page`` of its result. Both are imported when they are called.
    """

    name: str
    module: str
    line: str
    """What ``specsim --help`` says of it."""
    help: str
    """What ``specsim NAME --help`` says of it."""
    status: str
    """What it does, while it does it."""
    several: bool = True
    """Whether it takes several scenarios."""
    options: tuple[SizesOption, ...] = ()
    if_pictured: str = ""
    """The parameter that is true where a picture is asked for; empty without one."""

    @property
    def page_module(self) -> str:
        """Return the module that shows the result."""
        return f"{self.module}_page"


@cache
def studies_of_papers() -> dict[str, StudyOfPaper]:
    """Return the studies of all papers that are there, by name, in order of papers."""
    (folder,) = import_module(PAPERS).__path__
    by_name = {}
    for path in sorted(Path(folder).glob("*/studies.py")):
        for study in import_module(f"{PAPERS}.{path.parent.name}.studies").STUDIES:
            by_name[study.name] = study
    return by_name
