"""The scenario that stands for a service: what was observed of it over a scenario that is named, or
a scenario by itself.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from simulator.core.faults import BadInput
from simulator.inputs import writing
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.services.joined import joined
from simulator.inputs.services.observation import observation_of, observed_file, read_later
from simulator.inputs.services.observation_files import OBSERVED, observation_files
from simulator.inputs.services.observed import Observed
from simulator.inputs.services.read import read_services
from simulator.scenario import Loaded, load
from simulator.scenario.live.service import SCENARIO, scenario_of, write

BEFORE = "before"
"""Folder for the service as it is, within that of the answer."""
REMEDY = (
    "name with --like a scenario of its model, devices and engine (specsim list scenario), or one "
    "that specsim calibrate service wrote"
)


@dataclass(frozen=True)
class ServiceScenario:
    """The scenario that stands for a service as it is."""

    loaded: Loaded
    like: str
    """What it is like, or its own name or path."""
    observed: Observed | None = None
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    """What was made of an observation, by name."""

    def written(self, out: Path) -> dict[str, str | bytes]:
        """Return its files, as they may stand in a folder within ``out``."""
        files = {f"{BEFORE}/{name}": content for name, content in self.files.items()}
        if files:
            stated = yaml.safe_load(self.files[SCENARIO])
            stated["like"] = seen_from(self.like, out / BEFORE)
            text = yaml.safe_dump(stated, sort_keys=False, width=100, allow_unicode=True)
            files[f"{BEFORE}/{SCENARIO}"] = text
        return files

    def like_of_changes(self, out: Path) -> str:
        """Return what the scenario of a change in a folder within ``out`` is like."""
        if self.files:
            return f"./../{BEFORE}/{SCENARIO}"
        return seen_from(self.like, out / BEFORE)


def seen_from(name: str, folder: Path) -> str:
    """Return a scenario as a file in ``folder`` names it: a path as it is seen from there."""
    if "/" not in name and not name.endswith(".yaml"):
        return name
    return os.path.join(".", os.path.relpath(Path(name).resolve(), folder.resolve()))


def service_of(
    sources: Sequence[str],
    like: str | None,
    folder: Path,
    catalogue: Catalogue,
    skipped: int = 0,
) -> ServiceScenario:
    """Return the scenario of a service, without the times of its first requests, ``skipped`` of
    them.

    With ``like`` the sources are files of the service, and what is made of them is written into
    ``folder``, which has to stay as long as the scenario runs; without it they name one scenario,
    or a folder with a ``scenario.yaml``. Raises :class:`BadInput`.
    """
    if like is None:
        if skipped:
            message = "is for files of a service; a scenario states requests.warm_up"
            raise BadInput.at("--skip", message)
        return _scenario(sources, catalogue)
    paths = list(map(Path, sources))
    written = observed_file(paths[0]) if len(paths) == 1 else None
    files: dict[str, str | bytes] = {}
    if written is None:
        observation_of(paths)  # its faults before anything is written
        services = read_services(paths)[0]
        files |= observation_files(joined(services), services)
        writing.write_all({folder / name: content for name, content in files.items()})
        written = folder / OBSERVED
    made = scenario_of(read_later(written, skipped), written.parent, like, catalogue)
    loaded = load(str(write(made, folder / BEFORE)), catalogue=catalogue)
    return ServiceScenario(loaded, like, made.observed, {**files, **made.files})


def _scenario(sources: Sequence[str], catalogue: Catalogue) -> ServiceScenario:
    """Return the one scenario that is named."""
    name = sources[0]
    path = Path(name)
    if path.is_dir() and (path / SCENARIO).is_file():
        name = str(path / SCENARIO)
    elif path.is_dir() or (path.is_file() and observed_file(path)):
        raise BadInput.at(name, f"was observed of a service; {REMEDY}")
    elif path.is_file() and path.suffix != ".yaml":
        raise BadInput.at(name, f"is a file of a service; {REMEDY}")
    if len(sources) > 1:
        raise BadInput.at(sources[1], f"expected one scenario; for files of a service, {REMEDY}")
    return ServiceScenario(load(name, catalogue=catalogue), name)
