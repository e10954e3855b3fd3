"""Read the scenario that the points of a sweep start from once in each process, and keep what
points share.
"""

from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from simulator.core.acceptance.sources import Acceptance
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import Document
from simulator.scenario import Loaded, checked, evaluate
from simulator.scenario.loading import variant
from simulator.studies.sweep.axes import Settings
from simulator.studies.sweep.key import Fields, canonical, digest, fields_of

Evaluator = Literal["law", "replay", "simulation"]


@dataclass(frozen=True)
class Base:
    """Holds a scenario with a digest of each field, so that a point's key costs what the point
    changes.
    """

    loaded: Loaded
    catalogue: Catalogue
    fields: Fields

    def point(self, settings: Settings) -> tuple[Loaded, Fields]:
        """Return the scenario with fields set and the digests of all fields; raises
        :class:`BadInput` or ``Infeasible``.
        """
        loaded = with_settings(self.loaded, settings, self.catalogue)
        return loaded, fields_of(loaded, self.catalogue, self.loaded.scenario.__dict__, self.fields)

    def with_acceptance(self, loaded: Loaded, fields: Fields) -> Loaded:
        """Return a point with its acceptance read and its strategy tuned."""
        scenario = loaded.scenario
        sizes = canonical([scenario.seed, scenario.batch, scenario.stages, scenario.layers])
        stated = scenario.acceptance
        of_requests = stated.by_context or stated.kinds or stated.rescale
        lengths = [fields["requests"]] if of_requests else []
        shared = Shared(digest(fields["acceptance"], fields["strategy"], sizes, *lengths), loaded)
        return evaluate.tuned(replace(loaded, precomputed=_acceptance(shared)))


@dataclass(frozen=True)
class SweepJob:
    """Goes to a worker with the points: names the base scenario before any axis, and the
    evaluator.
    """

    identity: str
    """A text that is equal for equal bases: a worker reads the files of each base once."""
    evaluator: Evaluator
    document: Document = field(compare=False)
    catalogue: Catalogue = field(compare=False)

    @property
    def base(self) -> Base:
        """Return the scenario that the points start from, read once by each worker."""
        return _base(self)


@lru_cache(maxsize=8)
def _base(job: SweepJob) -> Base:
    loaded = checked(deepcopy(job.document), job.catalogue)
    return Base(loaded, job.catalogue, fields_of(loaded, job.catalogue))


def with_settings(base: Loaded, settings: Settings, catalogue: Catalogue) -> Loaded:
    """Return the base with fields set: first those that hold other fields that are set, as a
    strategy holds its window.
    """
    holders = {key for key in settings if any(inner.startswith(f"{key}.") for inner in settings)}
    for chosen in (holders, settings.keys() - holders):
        base = variant(base, {key: settings[key] for key in settings if key in chosen}, catalogue)
    return base


@dataclass(frozen=True)
class Shared:
    """Serves as key of a cache: all scenarios with this ``digest`` have the same acceptance or
    baseline.
    """

    digest: bytes
    loaded: Loaded = field(compare=False)


@lru_cache(maxsize=256)
def _acceptance(shared: Shared) -> Acceptance:
    return shared.loaded.acceptance()
