"""What the points of a sweep start from: the base scenario, read once by each process, and what points share."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from simulator.acceptance.sources import Acceptance
from simulator.catalogue import Catalogue
from simulator.files.schema import Document
from simulator.scenario import Loaded, checked, run
from simulator.scenario.loading import variant
from simulator.studies.sweep.axes import Settings
from simulator.studies.sweep.key import Fields, canonical, digest, fields_of

Evaluator = Literal["law", "replay", "simulation"]


@dataclass(frozen=True)
class SweepJob:
    """What a worker is told beside the points: the base scenario before any axis, and who evaluates."""

    identity: str
    """Equal for equal bases: a worker reads the files of each once."""
    evaluator: Evaluator
    document: Document = field(compare=False)
    catalogue: Catalogue = field(compare=False)

    @property
    def base(self) -> Base:
        """What the points start from, read once by each worker."""
        return _base(self)


@dataclass(frozen=True)
class Base:
    """A scenario whose fields points set; digests of its fields, so that a point's key costs what the point changes."""

    loaded: Loaded
    catalogue: Catalogue
    fields: Fields

    def point(self, settings: Settings) -> tuple[Loaded, Fields]:
        """With fields set, and the digests of all fields; raises :class:`BadInput` or :class:`Infeasible`."""
        found = with_settings(self.loaded, settings, self.catalogue)
        return found, fields_of(found, self.catalogue, self.loaded.scenario.__dict__, self.fields)

    def with_acceptance(self, loaded: Loaded, fields: Fields) -> Loaded:
        """A point with its acceptance read and its strategy tuned."""
        scenario = loaded.scenario
        sizes = canonical([scenario.seed, scenario.batch, scenario.stages, scenario.layers])
        shared = Shared(digest(fields["acceptance"], fields["strategy"], sizes), loaded)
        return run.tuned(replace(loaded, precomputed=_acceptance(shared)))


@lru_cache(maxsize=8)
def _base(job: SweepJob) -> Base:
    loaded = checked(deepcopy(job.document), job.catalogue)
    return Base(loaded, job.catalogue, fields_of(loaded, job.catalogue))


def with_settings(base: Loaded, settings: Settings, catalogue: Catalogue) -> Loaded:
    """The base with fields set: first what holds other fields that are set, as a strategy holds its window."""
    holders = {key for key in settings if any(other.startswith(f"{key}.") for other in settings)}
    for chosen in (holders, settings.keys() - holders):
        base = variant(base, {key: settings[key] for key in settings if key in chosen}, catalogue)
    return base


@dataclass(frozen=True)
class Shared:
    """A scenario of which something is needed that is the same for all with this ``digest``."""

    digest: bytes
    loaded: Loaded = field(compare=False)


@lru_cache(maxsize=256)
def _acceptance(shared: Shared) -> Acceptance:
    return shared.loaded.acceptance()
