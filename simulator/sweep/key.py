"""The key under which a point's result is kept: the same for equal scenarios, however they were written down."""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from simulator.catalogue import Catalogue
from simulator.scenario import Loaded, Scenario, resolved

KEY_BYTES = 16
WORDS_ONLY = ("name", "about")
"""Fields of a scenario that change no number."""
NO_RESULTS = ("record", "report", "cli", "sweep_", "_shipped")
"""Parts of the package, by how their names begin, that no result of a sweep depends on."""


def digest(*parts: str | bytes) -> bytes:
    """BLAKE2b of texts or bytes, each told from the next."""
    found = blake2b(digest_size=KEY_BYTES)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "big") + data)
    return found.digest()


def canonical(data: Any) -> str:
    """Plain data as one text, whatever the order of its fields."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), default=str)


def key_of(loaded: Loaded, catalogue: Catalogue, evaluator: str) -> bytes:
    """BLAKE2b of the resolved scenario with its seed, the files it reads, the evaluator and the code.

    Defaults and looked-up files are in place; names, words about the scenario and sources of numbers are left out.
    """
    return digest(canonical(numbers(loaded.scenario)), *files(loaded, catalogue), evaluator, code_version())


def numbers(scenario: Scenario) -> dict[str, Any]:
    """Everything of a scenario that a result may depend on, as plain data."""
    found = {name: value for name, value in resolved(scenario).items() if name not in WORDS_ONLY}
    bare: dict[str, Any] = _bare(found)
    return bare


def _bare(data: Any) -> Any:
    """Sourced numbers as numbers."""
    if isinstance(data, dict):
        return data["value"] if "confidence" in data and "value" in data else {key: _bare(inner) for key, inner in data.items()}
    return [_bare(inner) for inner in data] if isinstance(data, list) else data


def files(loaded: Loaded, catalogue: Catalogue) -> list[bytes]:
    """Digests of what the scenario reads beside YAML: its trace, its traffic."""
    spec, traffic = loaded.scenario.acceptance, loaded.scenario.requests.traffic
    read = [catalogue.path("trace", spec.trace, loaded.document, ("acceptance", "trace"))] if spec.trace else []
    return [file_digest(path) for path in (*read, *([Path(traffic.file)] if traffic else []))]


def file_digest(path: Path) -> bytes:
    """Of its content, read again only when the file has changed."""
    facts = path.stat()
    return _file_digest(path, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=64)
def _file_digest(path: Path, *_: int) -> bytes:
    return digest(path.read_bytes())


@lru_cache(maxsize=1)
def code_version() -> bytes:
    """Of all source files of the package that results depend on: not of its commands, reports and recorders."""
    package = Path(__file__).parent.parent
    sources = {str(path.relative_to(package)): path for path in package.rglob("*.py")}
    kept = [name for name in sorted(sources) if not name.startswith(NO_RESULTS)]
    return digest(*(part for name in kept for part in (name, sources[name].read_bytes())))
