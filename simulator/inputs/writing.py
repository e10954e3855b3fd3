"""Write files and folders that take their name only when they are complete: there is always the old
one or the new one.

Until then they are written in a hidden folder next to their place. An error, Ctrl-C or SIGTERM
takes that folder away. A kill may leave it; then nothing reads it, and the next writing of the same
name takes it away.
"""

import csv
import fcntl
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from io import StringIO
from math import isfinite, isnan
from operator import is_
from pathlib import Path
from typing import IO, Any

from simulator.core.faults import BadInput
from simulator.core.plain import PlainData
from simulator.inputs import reading

WRITTEN: ContextVar[set[str] | None] = ContextVar("written", default=None)
"""Real paths of what the command under way has begun to write, where somebody asked for them."""
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h


@contextmanager
def apart() -> Iterator[None]:
    """Let nothing that the block writes be a file that it has read or written before:
    :func:`replacing` refuses it.
    """
    if WRITTEN.get() is not None:
        yield
        return
    read = reading.READ.set(set())
    written = WRITTEN.set(set())
    try:
        yield
    finally:
        reading.READ.reset(read)
        WRITTEN.reset(written)


def same(path: Path, other: Path) -> bool:
    """Return whether two paths are one file or would be: by links of both kinds, and in folders
    that tell no case apart.
    """
    with suppress(OSError):
        if os.path.samefile(path, other):
            return True
    first = Path(os.path.realpath(path))
    second = Path(os.path.realpath(other))
    if first == second:
        return True
    return (
        str(first).casefold() == str(second).casefold()
        and _folds_case(first.parent)
        and not (first.exists() or second.exists())
    )


def _folds_case(folder: Path) -> bool:
    """Return whether a folder is found by its name in the other case; never by one without letters,
    as the root's.
    """
    swapped = folder.parent / folder.name.swapcase()
    with suppress(OSError):
        return swapped != folder and os.path.samefile(folder, swapped)
    return False


@contextmanager
def replacing(path: Path, *, parents: bool = False, renewed: bool = False) -> Iterator[Path]:
    """Yield a path of the same name to write a file or a folder to; at the end it takes the place
    of ``path`` in one step.

    ``parents``: make the folders above. ``renewed``: the command reads the file to make it anew.
    Raises :class:`BadInput` where writing fails, and before the block is entered where nothing can
    be made here.
    """
    path = Path(os.path.realpath(path))
    _check(path, parents)
    if not renewed:
        _check_apart(path)
    try:
        with _folders_above(path) if parents else nullcontext(), _workplace(path) as folder:
            new = folder / path.name
            yield new
            flush(new)
            if path.is_dir() and new.is_dir():
                _exchange(new, path)
            else:
                new.replace(path)
    except OSError as error:
        raise BadInput.at(path, f"cannot be written: {error.strerror or error}") from error


@contextmanager
def _folders_above(path: Path) -> Iterator[None]:
    """Make the folders above ``path``; where the block fails, those that are new and empty go
    again.
    """
    missing = [folder for folder in path.parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):  # it has got something else meanwhile
                folder.rmdir()
        raise


def _check_apart(path: Path) -> None:
    """Raise :class:`BadInput` for a file that the command under way has read, or written
    already.
    """
    read = reading.READ.get()
    written = WRITTEN.get()
    if read and path.is_file():
        facts = path.stat()
        if (facts.st_dev, facts.st_ino) in read:
            raise BadInput.at(
                path, "is read by this command and stays as it is; choose another name to write to"
            )
    if written is not None:
        if str(path) in written:
            raise BadInput.at(
                path, "is written by this command already; choose another name for one of the two"
            )
        written.add(str(path))


@contextmanager
def new_file(path: Path, *, renewed: bool = False) -> Iterator[Path]:
    """Yield a path of the same name to write a file to, as :func:`replacing`; an empty file stands
    there already.
    """
    if path.is_dir():
        raise BadInput.at(path, "is a folder; expected the name of a file")
    with replacing(path, renewed=renewed) as new:
        new.touch()
        yield new


@contextmanager
def _workplace(path: Path) -> Iterator[Path]:
    """Yield a hidden folder beside ``path``, locked while it is written to; those that killed
    processes left go first.
    """
    # commands that write nothing start without it
    from tempfile import TemporaryDirectory

    prefix = f".{path.name[:100]}.specsim-"
    for left in [entry for entry in path.parent.iterdir() if entry.name.startswith(prefix)]:
        with suppress(OSError), _opened(left) as lock:  # somebody writes there, or it is no folder
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left)
    with ExitStack() as stack:
        name = None
        # another process may take it for one that a killed process left, until it is locked
        while name is None:
            name = stack.enter_context(
                TemporaryDirectory(prefix=prefix, dir=path.parent, ignore_cleanup_errors=True)
            )
            try:
                lock = stack.enter_context(_opened(Path(name)))
            except FileNotFoundError:
                name = None
                continue
            # a file system without locks, where nothing is taken away either
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            name = name if os.path.exists(name) else None
        yield Path(name)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """Yield the descriptor of a folder that is no link; raises :class:`OSError` for anything
    else.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def whole_file(path: Path | None, *, renewed: bool = False) -> Iterator[IO[str] | None]:
    """Yield a text file to write to, as :func:`replacing`; None without a path."""
    if path is None:
        yield None
        return
    with (
        new_file(path, renewed=renewed) as new,
        new.open("w", encoding="utf-8", newline="") as file,
    ):
        yield file


def plain_cell(value: Any) -> Any:
    """Return what goes into a cell of a CSV file: words that a spreadsheet would take for a formula
    behind an apostrophe.
    """
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    with suppress(ValueError):
        if isfinite(float(value)):
            return value
        return f"'{value}"
    return f"'{value}"


def csv_text(columns: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """Return a table as CSV text, below a head of ``columns``; no cell is a formula
    (:func:`plain_cell`).
    """
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        map(plain_cell, row) for row in (columns, *rows)
    )
    return text.getvalue()


def plain_frame(frame: Any) -> Any:
    """Return a data frame whose names and words are :func:`plain_cell`; its numbers stay as they
    are.
    """
    frame = frame.rename(index=plain_cell, columns=plain_cell)
    for name in [name for name, kind in frame.dtypes.items() if kind.kind not in "biuf"]:
        frame[name] = frame[name].map(plain_cell)
    return frame


def json_text(data: Any, **style: Any) -> str:
    """Return plain data as JSON text, which every reader of JSON takes; ``style`` goes to
    :func:`json.dumps`.

    JSON has no word for what is no number: it is null, which is what was not measured. Numbers of
    numpy become plain ones. Raises :class:`BadInput` with the key of an infinite number: no answer
    holds one.
    """
    chosen: PlainData = {"indent": 2, "default": _plain_number} | style
    try:
        return json.dumps(data, allow_nan=False, **chosen)
    except ValueError:  # something in it is no number
        return json.dumps(_finite(data, ()), allow_nan=False, **chosen)


def _finite(data: Any, path: tuple[object, ...]) -> Any:
    """Return data with None for what is no number; itself, not a copy, where nothing changes."""
    if isinstance(data, float) and not isfinite(data):
        if isnan(data):
            return None
        raise BadInput.at(
            ".".join(map(str, path)) or "answer",
            "is beyond every number, from inputs too large or too small",
        )
    if isinstance(data, dict):
        members = {key: _finite(value, (*path, key)) for key, value in data.items()}
        if all(members[key] is value for key, value in data.items()):
            return data
        return members
    if isinstance(data, list | tuple):
        parts = [_finite(value, (*path, place)) for place, value in enumerate(data)]
        if all(map(is_, parts, data)):
            return data
        return parts
    return data


def _plain_number(value: Any) -> Any:
    """Return a number or an array of numpy as plain data; raises TypeError for anything else, as
    JSON does.
    """
    if hasattr(value, "tolist"):
        return _finite(value.tolist(), ())
    raise TypeError(f"{type(value).__name__} is no part of JSON")


Content = str | bytes | Callable[[Path], object]
"""What a file holds: text, bytes, or a function that writes it to a path."""


def write(path: Path, content: Content) -> None:
    """Write a file and make the folders above it, as :func:`replacing`."""
    with replacing(path, parents=True) as new:
        _fill(new, content)


def write_all(contents: Mapping[Path, Content], ours: Collection[str] = ()) -> None:
    """Write several files, none of which takes its name before all are complete and on the disk.

    A folder that they make appears with all of them, or not at all. Of one that holds files of
    ``ours`` alone none is left of an earlier answer: it is replaced whole, or emptied of them where
    somebody stands in it or a disk is mounted there. Raises :class:`BadInput` where one cannot be
    written.
    """
    folders = {path.parent for path in contents}
    whole = next(iter(folders)) if len(folders) == 1 else None
    if whole is None or not _holds_alone(whole, ours):
        _write_each(contents)
    elif _stays(whole):
        _write_each(contents)
        for path in list(whole.iterdir()):
            if whole / path.name not in contents:
                path.unlink()
    else:
        with replacing(whole, parents=True) as new:
            new.mkdir()
            for path, content in contents.items():
                _fill(new / path.name, content)


def _write_each(contents: Mapping[Path, Content]) -> None:
    """Write several files; none takes its name before all are complete and on the disk."""
    with ExitStack() as stack:
        places = {path: stack.enter_context(replacing(path, parents=True)) for path in contents}
        for path, content in contents.items():
            try:
                _fill(places[path], content)
                flush(places[path])
            except OSError as error:
                raise BadInput.at(path, f"cannot be written: {error.strerror or error}") from error


def _holds_alone(folder: Path, ours: Collection[str]) -> bool:
    """Return whether a folder holds files of ``ours`` and nothing else, or is still to be made."""
    if not folder.exists():
        return True
    return (
        bool(ours)
        and folder.is_dir()
        and all(path.name in ours and path.is_file() for path in folder.iterdir())
    )


def _stays(folder: Path) -> bool:
    """Return whether another folder cannot take the place of one: a shell would stand in the old
    one, or a disk is there.
    """
    return folder.is_mount() or Path(os.path.realpath(".")).is_relative_to(os.path.realpath(folder))


def _fill(path: Path, content: Content) -> None:
    if isinstance(content, str | bytes):
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    else:
        content(path)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM and Ctrl-C end the block as exceptions, so that what it began is tidied up; its
    processes die as ever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    this_process = os.getpid()

    def end(number: int, _: object) -> None:
        if os.getpid() == this_process:
            sys.exit(128 + number)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    before = signal.signal(signal.SIGTERM, end)
    deadly = signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    if deadly:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if deadly:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _check(path: Path, parents: bool) -> None:
    """Raise :class:`BadInput` where no file can be made in the folder of ``path``, or a device or a
    pipe would be lost.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise BadInput.at(
            path, "is no regular file, and stays as it is; expected the name of a file"
        )
    above = path.parent
    while parents and not above.exists() and above != above.parent:
        above = above.parent
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise BadInput.at(
            path,
            f"cannot be made: {above} is no folder that can be written to; expected the name of "
            "a file",
        )


def flush(path: Path) -> None:
    """Write a file, or the files of a folder, onto the disk: a full one may say so only now."""
    for file in path.iterdir() if path.is_dir() else (path,):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())


def _exchange(new: Path, old: Path) -> None:
    """Let two folders change places: in one step where the system can, else in two."""
    import ctypes

    swap = getattr(ctypes.CDLL(None), "renameat2", None)
    if swap is None or swap(
        AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(old), RENAME_EXCHANGE
    ):
        aside = old.rename(new.with_name(f"{new.name}.old"))
        try:
            new.rename(old)
        except OSError:
            aside.rename(old)
            raise
