"""Work out the key under which a point's result is kept: the same for equal scenarios, however they
were written down.
"""

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from inspect import getfile
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from simulator.core.quantities import Frozen, Sourced, has_hash
from simulator.core.serving.fields import policies, routers
from simulator.core.serving.load.sessions import SessionFile
from simulator.core.strategies import strategies
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.reading import opened
from simulator.scenario import Loaded, Scenario

KEY_BYTES = 16
MOST_FILE_BYTES = 10_000_000_000
"""Most bytes of a file that a sweep reads; only its digest is held."""
MOST_MODELS = 4_096
"""Models whose digests are kept; points of a sweep share most of theirs."""
WORDS_ONLY = ("name", "about")
"""Fields of a scenario that change no number."""
NO_RESULTS = ("acceptance/record/", "evidence/", "report/", "cli/", "_shipped/")
"""Rooms of the package that no result of a sweep depends on."""


def digest(*parts: str | bytes) -> bytes:
    """Return 16 bytes of BLAKE2b over texts or bytes; the length of each goes in before it."""
    hashed = blake2b(digest_size=KEY_BYTES)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hashed.update(len(data).to_bytes(8, "big") + data)
    return hashed.digest()


def canonical(data: Any) -> str:
    """Return plain data as one text, whatever the order of its fields."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), default=_written)


def _written(value: Any) -> Any:
    """Return what stands for a value that JSON has no form of: every number of an array, as a text
    leaves most of a long one out.
    """
    return value.tolist() if isinstance(value, np.ndarray) else str(value)


Fields = dict[str, bytes]
"""Digests of those fields of a scenario that a result may depend on, by name."""


def key_of(fields: Fields, evaluator: str) -> bytes:
    """Return the digest of the resolved scenario with its seed and the files it reads, the
    evaluator and the code.
    """
    return digest(
        b"".join(name.encode() + b"=" + fields[name] for name in sorted(fields)),
        evaluator,
        code_version(),
    )


def fields_of(
    loaded: Loaded,
    catalogue: Catalogue,
    known: Iterable[tuple[Scenario, Fields]] = (),
) -> Fields:
    """Return digests of a scenario's fields, taken from those ``known`` of a scenario that holds
    the very same object.

    Defaults and looked-up files are in place; names, words about the scenario and sources of
    numbers are left out.
    """
    scenario = loaded.scenario
    fields = Fields()
    for name in type(scenario).model_fields:
        value = getattr(scenario, name)
        if name in WORDS_ONLY or value is None:
            continue
        for like, digests in known:
            if getattr(like, name) is value:
                fields[name] = digests[name]
                break
        else:
            fields[name] = _digest_of(loaded, catalogue, name, value)
    return fields


def _digest_of(loaded: Loaded, catalogue: Catalogue, name: str, value: Any) -> bytes:
    """Return the digest of the value of a field, with that of the files that it reads."""
    files = [file_digest(path) for path in _files(loaded, catalogue, name)]
    return digest(canonical(_bare(value)), *files)


def _bare(value: Any) -> Any:
    """Return a value as plain data: numbers without their sources, models by their digests."""
    if isinstance(value, Sourced):
        return value.value
    if isinstance(value, BaseModel):
        return _digest_of_model(value)
    if isinstance(value, dict):
        return {str(key): _bare(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_bare(inner) for inner in value]
    if isinstance(value, set | frozenset):
        return sorted(canonical(_bare(inner)) for inner in value)
    return value


def _digest_of_model(model: BaseModel) -> str:
    """Return the digest of the fields of a model that are stated, as a text."""
    if isinstance(model, Frozen) and has_hash(model):
        return _kept_digest(model)
    return _digest_of_fields(model)


def _digest_of_fields(model: BaseModel) -> str:
    values = {name: getattr(model, name) for name in type(model).model_fields}
    values |= model.model_extra or {}
    fields = {name: _bare(value) for name, value in values.items() if value is not None}
    return digest(canonical(fields)).hex()


_kept_digest = lru_cache(MOST_MODELS)(_digest_of_fields)


def _files(loaded: Loaded, catalogue: Catalogue, field: str) -> list[Path]:
    """Return the files that a field reads beside YAML: the trace of acceptance, the traffic of
    requests.
    """
    trace = loaded.scenario.acceptance.trace
    traffic = loaded.scenario.requests.traffic
    if field == "acceptance" and trace:
        return [catalogue.path("trace", trace, loaded.document, ("acceptance", "trace"))]
    if field == "requests" and traffic:
        return [Path(traffic.file)]
    sessions = loaded.scenario.requests.sessions
    if field == "requests" and isinstance(sessions, SessionFile):
        return [Path(sessions.file)]
    return []


def file_digest(path: Path) -> bytes:
    """Return the digest of a file's content, which is read again only when the file has changed."""
    facts = path.stat()
    return _file_digest(path, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=64)
def _file_digest(path: Path, *_: int) -> bytes:
    with opened(path, MOST_FILE_BYTES) as file:
        return hashlib.file_digest(file, lambda: blake2b(digest_size=KEY_BYTES)).digest()


@lru_cache(maxsize=1)
def code_version() -> bytes:
    """Return the digest of the source files that results depend on, and of the data that the code
    reads beside them.

    Commands, reports and recorders are left out; strategies, policies and routers of other packages
    are in it.
    """
    package = Path(__file__).parents[2]
    sources = {
        path.relative_to(package).as_posix(): path
        for kind in ("*.py", "*.yaml")
        for path in package.rglob(kind)
    }
    kept = {name: path for name, path in sources.items() if not name.startswith(NO_RESULTS)}
    for named in (*strategies().values(), *policies().values(), *routers().values()):
        if not named.__module__.startswith("simulator."):
            kept[named.__module__] = Path(getfile(named))
    return digest(*(part for name in sorted(kept) for part in (name, kept[name].read_bytes())))
