"""One observation from whatever a user has of a service: ``observed.yaml``, a folder that holds
one, or files of the service itself.
"""

from collections.abc import Sequence
from pathlib import Path

from simulator.core.faults import BadInput
from simulator.inputs import reading
from simulator.inputs.document import readable
from simulator.inputs.services.joined import joined
from simulator.inputs.services.observation_files import OBSERVED, read_observed
from simulator.inputs.services.observed import Observed
from simulator.inputs.services.read import YAML, read_services
from simulator.inputs.services.tables import read_requests
from simulator.inputs.services.warm import without_first

MARK = "observed:"
"""How a line of ``observed.yaml`` begins, and none of a report of a benchmark."""


def observation_of(paths: Sequence[Path], skipped: int = 0) -> Observed:
    """Return what files say of a service, without the times of its first requests, ``skipped`` of
    them; raises :class:`BadInput` where one cannot be read, or they are of several runs.
    """
    written = [path for path in map(observed_file, paths) if path is not None]
    if written and len(paths) > 1:
        message = "is an observation already; name it alone, or the files that it was made of"
        raise BadInput.at(written[0], message)
    if written:
        return read_later(written[0], skipped)
    runs = read_services(paths)
    if len(runs) > 1:
        files = ", ".join(run[0].file for run in runs[:3])
        message = f"holds {len(runs):,} runs ({files}, ...); name the file of one run"
        raise BadInput.at(paths[0], message)
    return joined(runs[0], skipped)


def read_later(path: Path, skipped: int) -> Observed:
    """Return the observation of a file without the times of its first requests, ``skipped`` of
    them; raises :class:`BadInput`.
    """
    observed = read_observed(path)
    if skipped <= (observed.skipped or 0):
        return observed
    return without_first(observed, read_requests(observed, path.parent), skipped, str(path))


def observed_file(path: Path) -> Path | None:
    """Return the observation that a path names, by itself or as a folder; None for any other
    file.
    """
    if path.is_dir():
        inside = path / OBSERVED
        return inside if inside.is_file() else None
    if path.suffix not in YAML:
        return None
    with readable(path), reading.lines(path) as lines:
        for line in lines:
            if line.startswith(MARK):
                return path
    return None
