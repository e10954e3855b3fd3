"""Read the scenario that the points of a sweep start from once in each process, and keep what
points share.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, NamedTuple

from simulator.core.acceptance.sources import Acceptance
from simulator.core.faults import BadInput
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import Document, FieldChanges
from simulator.scenario import Loaded, checked, evaluate
from simulator.scenario.loading import joined, variant
from simulator.studies.sweep.axes import Settings
from simulator.studies.sweep.key import Fields, canonical, digest, fields_of

Evaluator = Literal["law", "replay", "simulation"]


SAME_PART = {"method": "strategy", "serving": "requests"}
"""Fields that are set together with another field: a method states its strategy, the policy bounds
the batch.
"""
MOST_PARTS = 512
"""Parts of settings that are kept at a time."""


class LaidOver(NamedTuple):
    """A part of the settings of points, laid over the base alone."""

    loaded: Loaded
    fields: Fields
    """Digests of all fields."""
    changes: FieldChanges
    """What it changes in the document of the base."""


@dataclass(frozen=True)
class Base:
    """Holds a scenario with a digest of each field, so that a point's key costs what the point
    changes.

    Each part of the settings of points is read and checked once; a point checks how its parts go
    together.
    """

    loaded: Loaded
    catalogue: Catalogue
    fields: Fields
    parts: dict[str, LaidOver] = field(default_factory=dict, repr=False, compare=False)

    def point(self, settings: Settings) -> tuple[Loaded, Fields]:
        """Return the scenario with fields set and the digests of all fields; raises
        :class:`BadInput` or ``Infeasible``.
        """
        parts = self._apart(settings)
        if not parts:
            loaded = with_settings(self.loaded, settings, self.catalogue)
            return loaded, self._fields(loaded)
        if len(parts) == 1:
            return parts[0].loaded, parts[0].fields
        laid = [part.loaded for part in parts]
        changes = [part.changes for part in parts]
        loaded = joined(self.loaded, laid, changes, self.catalogue)
        return loaded, self._fields(loaded, parts)

    def _apart(self, settings: Settings) -> list[LaidOver]:
        """Return the parts of a point's settings, each laid over the base alone; none where one is
        wrong alone, as it may be right with the rest, or where two change one field.
        """
        try:
            parts = [self.part(part) for part in parts_of(settings)]
        except BadInput:
            return []
        changed = [name for part in parts for name in part.changes.fields]
        if len(set(changed)) < len(changed):
            return []
        return parts

    def part(self, settings: Settings) -> LaidOver:
        """Return the base with a part of the settings of a point; raises as :meth:`point` does."""
        text = repr(settings)
        if text not in self.parts:
            if len(self.parts) >= MOST_PARTS:
                self.parts.clear()
            loaded = with_settings(self.loaded, settings, self.catalogue)
            written = loaded.as_read.document if loaded.as_read else loaded.document
            changes = self.loaded.document.changes(written)
            self.parts[text] = LaidOver(loaded, self._fields(loaded), changes)
        return self.parts[text]

    def _fields(self, loaded: Loaded, parts: Sequence[LaidOver] = ()) -> Fields:
        """Return digests of the fields of a variant, those that it shares with the base or with
        ``parts`` taken from there.
        """
        known = [(self.loaded.scenario, self.fields)]
        known += [(part.loaded.scenario, part.fields) for part in parts]
        return fields_of(loaded, self.catalogue, known)

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


def parts_of(settings: Settings) -> Iterator[Settings]:
    """Yield the parts of a point's settings that change different fields of the scenario."""
    parts = defaultdict[str, Settings](dict)
    for key, value in settings.items():
        first = key.partition(".")[0]
        parts[SAME_PART.get(first, first)][key] = value
    yield from parts.values()


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
