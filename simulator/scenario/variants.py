"""Variants: a scenario with some of its fields changed, checked like the file and without reading it again.

What does not change is shared with the scenario that the variant was made from: models, devices, passes whose times
are known, the trace and the verdicts read from it. That makes a point of a sweep cost what its change costs.
"""

from __future__ import annotations

from collections.abc import Mapping

from simulator.catalogue import Catalogue
from simulator.scenario import Loaded, checked


def variant(base: Loaded, changes: Mapping[str, object], catalogue: Catalogue | None = None) -> Loaded:
    """``base`` with the value of each dotted key replaced, as ``load`` with ``key=value`` overrides would have it.

    Values are plain data: numbers, texts, lists, mappings; a text may name a file where the key holds one. A key is that
    of the scenario *as written*: fields that a program has replaced since (:meth:`Loaded.replace`) stay replaced as long
    as no key lies within them. Raises :class:`BadInput` and :class:`Infeasible` as ``load`` does, naming the key.
    """
    if not changes:
        return base
    paths = [tuple(key.split(".")) for key in changes]
    document = base.document.branched(paths)
    for path, (key, value) in zip(paths, changes.items(), strict=True):
        document.put(path, value, (f"--set {key}={value}", 0, 0))
    catalogue = catalogue or Catalogue()
    catalogue.expand(document)
    return checked(document, catalogue, base)
