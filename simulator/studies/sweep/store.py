"""Keep a sweep in one SQLite file: what was asked for, and the result of every point.

Results stand under the key of their scenario, so that equal points are evaluated once and a changed
sweep finds what it shares with the old one. While it is written the file has a log ahead of it
(WAL), one transaction for each bundle of points: whenever a process is killed, what it committed is
there. Numbers are kept as 64-bit floats, bit for bit.

A store is known by its application id. A file without it is refused before anything is written to
it or beside it, and who only reads opens the file for reading.
"""

import fcntl
import json
import os
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from simulator.core.faults import BadInput
from simulator.core.plain import PlainData
from simulator.inputs.reading import from_json
from simulator.inputs.writing import json_text
from simulator.studies.sweep.base import Evaluator
from simulator.studies.sweep.key import code_version
from simulator.studies.sweep.metrics import METRICS
from simulator.studies.sweep.point import Row

FORMAT = 1
APPLICATION_ID = 0x73706563
"""The letters ``spec``, at byte 68 of the file: what tells a store from any other SQLite file."""
LOCK_SUFFIX = ".specsim-lock"
"""Ending of the empty file beside a store that exists while a process sweeps into it."""
PATIENCE_S = 60.0
"""How long to wait for a process that is reading the file just now (s)."""
MOST_BYTES = 20_000_000
"""Most bytes of a text in a store; a definition with a million values on an axis is half of
that.
"""
DAMAGE = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite raises for a damaged file: its own words may quote it, and then are no text."""
DIED = "its worker process died"
"""The fault of a point that killed its worker twice; a resumed sweep tries it again."""
_METRIC_COLUMNS = ", ".join(f"{name} REAL" for name in METRICS)
TABLES = f"""
    BEGIN;
    PRAGMA application_id={APPLICATION_ID};
    CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS results (key BLOB PRIMARY KEY, fault TEXT, {_METRIC_COLUMNS})
        WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS points
        (evaluator TEXT, number INTEGER, key BLOB, PRIMARY KEY (evaluator, number)) WITHOUT ROWID;
    COMMIT;
"""
WRITTEN_AHEAD = """
    PRAGMA journal_mode=WAL;
    PRAGMA cache_size=-65536;  -- KiB: keys come in no order, so every bundle touches many pages
    PRAGMA synchronous=NORMAL;  -- a killed process loses nothing; a power cut perhaps the last
"""


class SweepProgress(NamedTuple):
    """Counts the points of an evaluator that have a result, and those of them with a fault."""

    done: int
    faults: int


class Store:
    """Reads a store, and writes it where ``writable``; an empty file becomes a store when it is
    opened to be written.

    Raises :class:`BadInput` for a file that is no store, which stays as it is.
    """

    def __init__(self, path: Path, writable: bool = False) -> None:
        self.path = path
        self.writable = writable
        _refuse_other_files(path)
        try:
            if writable:
                uri = _uri(path, "rwc")
            else:
                uri = _uri(path, "ro", _unchanging(path))
            self._database = sqlite3.connect(
                uri, uri=True, isolation_level=None, timeout=PATIENCE_S
            )
            self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
            if self._database.execute(
                "SELECT 1 FROM sqlite_master WHERE type IN ('view', 'trigger')"
            ).fetchone():
                raise BadInput.at(path, "is no store of a sweep: it holds more than tables")
            if writable:
                self._database.executescript(TABLES)
                self._database.executescript(WRITTEN_AHEAD)
            stored_format = self.fact("format") or FORMAT
        except sqlite3.OperationalError as error:
            raise BadInput.at(
                path, f"cannot be {'written' if writable else 'read'}: {error}"
            ) from error
        except DAMAGE as error:
            raise BadInput.at(path, f"is no store of a sweep: {error}") from error
        if stored_format != FORMAT:
            raise BadInput.at(path, f"is a store of another version of specsim, {stored_format}")

    def close(self) -> None:
        """Close the file; one that was written is whole without its log, unless somebody is reading
        it.
        """
        if self.writable:
            # the log then stays beside the store, and is read with it
            with suppress(sqlite3.DatabaseError):
                self._database.executescript("PRAGMA busy_timeout=0; PRAGMA journal_mode=DELETE;")
        self._database.close()

    def fact(self, name: str) -> Any:
        """Return what the store says about its sweep under a name, as plain data; None if it says
        nothing.
        """
        row = self._database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        if not row:
            return None
        try:
            return from_json(row[0])
        except (TypeError, json.JSONDecodeError) as error:
            raise BadInput.at(
                self.path, f"is damaged: what it says of its {name} is no JSON"
            ) from error

    def check(self, points: int, metrics: Sequence[str] = ()) -> None:
        """Raise :class:`BadInput` where a page or a column of these metrics holds what no sweep of
        so many points writes.
        """
        (damage,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
        numbers = []
        for name in metrics:
            numbers.append(f"({name} IS NULL OR typeof({name}) = 'real' AND abs({name}) < 9e999)")
        sound = " AND ".join(["typeof(fault) IN ('text', 'null')", *numbers])
        in_sweep = "typeof(number) = 'integer' AND number >= 0 AND number < ?"
        if damage != "ok":
            raise BadInput.at(self.path, f"is damaged: {damage}")
        if self._database.execute(
            f"SELECT 1 FROM points WHERE NOT ({in_sweep})",
            (points,),
        ).fetchone():
            raise BadInput.at(
                self.path, f"is damaged: it holds points that are none of its sweep's {points:,}"
            )
        unsound = f"SELECT 1 FROM results WHERE NOT ({sound})"
        if self._database.execute(unsound).fetchone():
            raise BadInput.at(self.path, "is damaged: it holds results that are no numbers")

    def begin(self, definition: PlainData, identity: str) -> None:
        """Write down what is asked for; points of anything else are forgotten, their results are
        not.
        """
        if self.fact("identity") != identity:
            self._database.execute("DELETE FROM points")
        facts = {
            "format": FORMAT,
            "definition": definition,
            "identity": identity,
            "code_version": code_version().hex(),
        }
        with self._transaction():
            rows = [(name, json_text(value, indent=None)) for name, value in facts.items()]
            self._database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", rows)

    def add(self, evaluator: Evaluator, rows: Iterable[Row]) -> None:
        """Keep the results of points, all of them or none."""
        rows = list(rows)
        marks = ", ".join("?" * (2 + len(METRICS)))
        with self._transaction():
            self._database.executemany(
                f"INSERT OR REPLACE INTO results VALUES ({marks})",
                (
                    (row.key, row.fault, *(row.metrics.get(name) for name in METRICS))
                    for row in rows
                ),
            )
            self._match(evaluator, ((row.number, row.key) for row in rows))

    def match(self, evaluator: Evaluator, keys: Iterable[tuple[int, bytes | None]]) -> None:
        """Write down which key a point has, where there is a result under it; takes (number, key)
        of points.
        """
        with self._transaction():
            self._match(evaluator, keys)

    def _match(self, evaluator: Evaluator, keys: Iterable[tuple[int, bytes | None]]) -> None:
        rows = ((evaluator, number, key) for number, key in keys)
        self._database.executemany(
            "INSERT OR REPLACE INTO points SELECT ?, ?, key FROM results WHERE key = ?", rows
        )

    @property
    def empty(self) -> bool:
        """Return whether the store holds no result at all."""
        return not self._database.execute("SELECT 1 FROM results LIMIT 1").fetchone()

    def done(self, evaluator: Evaluator) -> set[int]:
        """Return the numbers of the points that need not be evaluated again."""
        query = (
            "SELECT number FROM points JOIN results USING (key) WHERE evaluator = ? AND fault "
            "IS NOT ?"
        )
        return {number for (number,) in self._database.execute(query, (evaluator, DIED))}

    def progress(self, evaluator: Evaluator) -> SweepProgress:
        """Return how many points an evaluator has done, and how many of these failed."""
        query = (
            "SELECT COUNT(*), COUNT(fault) FROM points JOIN results USING (key) WHERE evaluator = ?"
        )
        return SweepProgress(*self._database.execute(query, (evaluator,)).fetchone())

    def rows(self, evaluator: Evaluator, metrics: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Return (number, fault, metrics...) of every point that has a result, by number."""
        columns = ", ".join(("number", "fault", *metrics))
        results = "points JOIN results USING (key)"
        query = f"SELECT {columns} FROM {results} WHERE evaluator = ? ORDER BY number"
        return self._database.execute(query, (evaluator,))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            # of what a full disk stops, nothing is left to take back
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise


@contextmanager
def writing(path: Path, warn: Callable[[str], object] = lambda _: None) -> Iterator[Store]:
    """Yield the store, for one process at a time; a second process says so to ``warn`` and waits.

    Raises :class:`BadInput` where there can be no such file, where the file is no store (it stays
    as it is) or a damaged one, and where the disk is full; what the store holds is kept.
    """
    with ExitStack() as stack:
        try:
            _refuse_other_files(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(_locked(path, warn))
        except OSError as error:
            raise BadInput.at(
                path, f"cannot be written: {error.strerror} ({error.filename})"
            ) from error
        store = Store(path, writable=True)
        try:
            yield store
        except DAMAGE as error:
            raise BadInput.at(path, f"cannot be written: {error}") from error
        finally:
            store.close()


@contextmanager
def _locked(path: Path, warn: Callable[[str], object]) -> Iterator[None]:
    """Hold the lock of a store: an empty file of its own beside it, which is never written to and
    goes in the end.
    """
    store = Path(os.path.realpath(path))
    lock = store.with_name(store.name + LOCK_SUFFIX)
    while True:
        descriptor = os.open(
            lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666
        )
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                warn(f"another process sweeps into {path}; waiting for it")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not _is_at(descriptor, lock):  # whoever had it took it away when they were done
                continue
            try:
                yield
            finally:
                opened = os.fstat(descriptor)
                if stat.S_ISREG(opened.st_mode) and not opened.st_size and _is_at(descriptor, lock):
                    lock.unlink()
            return
        finally:
            os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one that has this name now."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    return False


@contextmanager
def reading(path: Path) -> Iterator[Store]:
    """Yield a store that must be there, also while it is being written, and write nothing.

    Raises :class:`BadInput`, also in the block, where the store turns out to be damaged.
    """
    if not os.access(path, os.R_OK) or not path.is_file():
        raise BadInput.at(path, "there is no such store; specsim sweep makes one")
    if not path.stat().st_size:
        raise BadInput.at(path, "is empty; specsim sweep makes a store")
    with closing(Store(path)) as store:
        try:
            if store.fact("definition") is None:
                raise BadInput.at(path, "holds no sweep yet")
            yield store
        except DAMAGE as error:
            raise BadInput.at(path, f"cannot be read: {error}") from error


def _unchanging(path: Path) -> str:
    """Return the option for a store that nothing can write, in a folder where SQLite can put no
    file of its own.
    """
    store = os.path.realpath(path)
    if os.path.exists(f"{store}-wal") or os.access(os.path.dirname(store), os.W_OK):
        return ""
    return "&immutable=1"


def _refuse_other_files(path: Path) -> None:
    """Raise :class:`BadInput` for a file that is neither empty nor a store; looking at it makes no
    file and no lock.
    """
    if not path.exists():
        return
    if not path.is_file():
        raise BadInput.at(path, "is no file; expected the name of a store")
    if not path.stat().st_size:
        return
    try:
        with closing(sqlite3.connect(_uri(path, "ro", "&immutable=1"), uri=True)) as database:
            (application,) = database.execute("PRAGMA application_id").fetchone()
    except DAMAGE as error:
        raise BadInput.at(path, f"is no store of a sweep: {error}") from error
    if application != APPLICATION_ID:
        raise BadInput.at(
            path, "is no store of a sweep, but another SQLite file; it stays as it is"
        )


def _uri(path: Path, mode: str, options: str = "") -> str:
    return f"file:{quote(str(path.absolute()))}?mode={mode}{options}"
