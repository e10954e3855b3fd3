"""Recordings as they are named on a command line and in a call: ``NAME``, ``FILE``,
``NAME:DRAFTER``.
"""

from pathlib import Path

from simulator.core.acceptance.trace import Trace
from simulator.core.faults import BadInput, did_you_mean
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.traces.file import read


def named(name: str, catalogue: Catalogue) -> tuple[Path, Trace]:
    """Return the path and the trace of a name or file; ``NAME:DRAFTER`` chooses a drafter other
    than the first. Raises :class:`BadInput` for a name or a drafter that is not there.
    """
    name, _, drafter = name.partition(":")
    path = Path(name)
    if "/" not in name and path.suffix != ".npz":
        names = catalogue.names("trace")
        if name not in names:
            raise BadInput.at(name, f"there is no trace of this name{did_you_mean(name, names)}")
        path = names[name]
    opened = read(path)
    if drafter and drafter not in opened.drafters:
        meant = did_you_mean(drafter, opened.drafters)
        raise BadInput.at(name, f"this trace has no drafter '{drafter}'{meant}")
    return path, opened.drafted_by(drafter or "draft")
