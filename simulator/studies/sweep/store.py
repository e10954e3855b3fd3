"""The store of a sweep: one SQLite file with what was asked for and what every point came to.

Results stand under the key of their scenario, so that equal points are evaluated once and a changed sweep finds what it
shares with the old one. The file is written ahead (WAL), one transaction for each bundle of points: whenever a process is
killed, what it committed is there. Numbers are kept as 64-bit floats, bit for bit.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from simulator.files.schema import BadInput, Fault
from simulator.studies.sweep.base import Evaluator
from simulator.studies.sweep.key import code_version
from simulator.studies.sweep.metrics import METRICS
from simulator.studies.sweep.point import Row

FORMAT = 1
DIED = "its worker process died"
"""The fault of a point that killed its worker twice; a resumed sweep tries it again."""
TABLES = f"""
    CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS results (key BLOB PRIMARY KEY, fault TEXT, {", ".join(f"{name} REAL" for name in METRICS)})
        WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS points (evaluator TEXT, number INTEGER, key BLOB, PRIMARY KEY (evaluator, number)) WITHOUT ROWID;
"""


class SweepProgress(NamedTuple):
    """How far an evaluator has come: points that have a result, and those of them with a fault."""

    done: int
    faults: int


class Store:
    """An open store; ``definition`` is the sweep as plain data, None to read whatever the file holds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = sqlite3.connect(path, isolation_level=None)
        try:
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA cache_size=-65536")  # KiB: keys come in no order, so every bundle touches many pages
            self._database.execute("PRAGMA synchronous=NORMAL")  # a killed process loses nothing; a power cut perhaps the last
            self._database.executescript(TABLES)
        except sqlite3.OperationalError as error:
            raise _unwritten(path, error) from error
        except sqlite3.DatabaseError as error:
            raise BadInput([Fault((str(path), 0, 0), "", f"is no store of a sweep: {error}")]) from error
        if (self.fact("format") or FORMAT) != FORMAT:
            raise BadInput([Fault((str(path), 0, 0), "", f"is a store of another version of specsim, {self.fact('format')}")])

    def close(self) -> None:
        """Fold the log into the file."""
        self._database.close()

    def fact(self, name: str) -> Any:
        """Something said about the sweep; None if it is not there."""
        found = self._database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return json.loads(found[0]) if found else None

    def begin(self, definition: dict[str, Any], identity: str) -> None:
        """Say what is asked for; points of anything else are forgotten, their results are not."""
        if self.fact("identity") != identity:
            self._database.execute("DELETE FROM points")
        facts = {"format": FORMAT, "definition": definition, "identity": identity, "code_version": code_version().hex()}
        self._write("INSERT OR REPLACE INTO facts VALUES (?, ?)", ((name, json.dumps(facts[name])) for name in facts))

    def add(self, evaluator: Evaluator, rows: Iterable[Row]) -> None:
        """Keep results, all of them or none."""
        rows = list(rows)
        marks = ", ".join("?" * (2 + len(METRICS)))
        with self._transaction():
            self._database.executemany(
                f"INSERT OR REPLACE INTO results VALUES ({marks})",  # noqa: S608
                ((row.key, row.fault, *(row.found.get(name) for name in METRICS)) for row in rows),
            )
            self._match(evaluator, ((row.number, row.key) for row in rows))

    def match(self, evaluator: Evaluator, found: Iterable[tuple[int, bytes | None]]) -> None:
        """Say which key a point has, where there is a result under it."""
        with self._transaction():
            self._match(evaluator, ((number, key) for number, key in found if key and self._knows(key)))

    def _match(self, evaluator: Evaluator, found: Iterable[tuple[int, bytes]]) -> None:
        rows = ((evaluator, number, key) for number, key in found)
        self._database.executemany("INSERT OR REPLACE INTO points VALUES (?, ?, ?)", rows)

    def _knows(self, key: bytes) -> bool:
        return bool(self._database.execute("SELECT 1 FROM results WHERE key = ?", (key,)).fetchone())

    @property
    def empty(self) -> bool:
        """No results at all."""
        return not self._database.execute("SELECT 1 FROM results LIMIT 1").fetchone()

    def done(self, evaluator: Evaluator) -> set[int]:
        """Numbers of the points that need not be evaluated again."""
        query = "SELECT number FROM points JOIN results USING (key) WHERE evaluator = ? AND fault IS NOT ?"
        return {number for (number,) in self._database.execute(query, (evaluator, DIED))}

    def progress(self, evaluator: Evaluator) -> SweepProgress:
        """How far it has come."""
        query = "SELECT COUNT(*), COUNT(fault) FROM points JOIN results USING (key) WHERE evaluator = ?"
        return SweepProgress(*self._database.execute(query, (evaluator,)).fetchone())

    def rows(self, evaluator: Evaluator, metrics: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """(number, fault, metrics...) of every point that has a result, by number."""
        columns = ", ".join(("number", "fault", *metrics))
        query = f"SELECT {columns} FROM points JOIN results USING (key) WHERE evaluator = ? ORDER BY number"  # noqa: S608
        return self._database.execute(query, (evaluator,))

    def _write(self, query: str, rows: Iterable[tuple[Any, ...]]) -> None:
        with self._transaction():
            self._database.executemany(query, rows)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:  # of what a full disk stops, nothing is left to take back
                self._database.execute("ROLLBACK")
            raise


@contextmanager
def writing(path: Path, tell: Callable[[str], object] = lambda _: None) -> Iterator[Store]:
    """The store, for one process at a time; a second one says so to ``tell`` and waits.

    Raises :class:`BadInput` where there can be no such file, and where the disk is full; what the store holds is kept.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = Path(f"{path}.lock").open("w")  # noqa: SIM115 - closed below
    except OSError as error:
        raise BadInput([Fault((str(path), 0, 0), "", f"cannot be written: {error.strerror}")]) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(f"another process sweeps into {path}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        store = Store(path)
        try:
            yield store
        except sqlite3.OperationalError as error:
            raise _unwritten(path, error) from error
        finally:
            store.close()


def _unwritten(path: Path, error: sqlite3.OperationalError) -> BadInput:
    return BadInput([Fault((str(path), 0, 0), "", f"cannot be written: {error}")])


def reading(path: Path) -> Store:
    """A store that must be there, also while it is being written; raises :class:`BadInput`."""
    if not path.is_file() or not os.access(path, os.R_OK):
        raise BadInput([Fault((str(path), 0, 0), "", "there is no such store; specsim sweep makes one")])
    if not path.stat().st_size:
        raise BadInput([Fault((str(path), 0, 0), "", "is empty; specsim sweep makes a store")])
    store = Store(path)
    if store.fact("definition") is None:
        store.close()
        raise BadInput([Fault((str(path), 0, 0), "", "holds no sweep yet")])
    return store
