"""Write files and folders that take their name only when they are complete: there is always the old one or the new one.

Until then they are written in a hidden folder next to their place. An error, Ctrl-C or SIGTERM takes that folder
away; a kill may leave it, or a signal that comes while it is taken away, and nothing reads it.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from simulator.files.document import BadInput, Fault

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h


@contextmanager
def replacing(path: Path, *, parents: bool = False) -> Iterator[Path]:
    """Yield a path of the same name to write a file or a folder to; at the end it takes the place of ``path`` in one step.

    ``parents``: make the folders above. Raises :class:`BadInput` where writing fails, and before the block is entered where
    nothing can be made here.
    """
    path = Path(os.path.realpath(path))
    _check(path, parents)
    try:
        if parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{path.name[:100]}.", dir=path.parent) as folder:
            new = Path(folder) / path.name
            yield new
            _flush(new)
            if path.is_dir() and new.is_dir():
                _exchange(new, path)
            else:
                new.replace(path)
    except OSError as error:
        raise _fault(path, f"cannot be written: {error.strerror or error}") from error


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a path of the same name to write a file to, as :func:`replacing`; an empty file stands there already."""
    if path.is_dir():
        raise _fault(path, "is a folder; expected the name of a file")
    with replacing(path) as new:
        new.touch()
        yield new


@contextmanager
def whole_file(path: Path | None) -> Iterator[IO[str] | None]:
    """Yield a text file to write to, as :func:`replacing`; None without a path."""
    if path is None:
        yield None
        return
    with new_file(path) as new, new.open("w", encoding="utf-8", newline="") as file:
        yield file


def write(path: Path, content: str | bytes) -> None:
    """Write a file of text or bytes and make the folders above it, as :func:`replacing`."""
    with replacing(path, parents=True) as new:
        new.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as an exception, so that what it began is tidied up; processes it started die as ever."""
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
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check(path: Path, parents: bool) -> None:
    """Raise :class:`BadInput` where no file can be made in the folder of ``path``."""
    above = path.parent
    while parents and not above.exists() and above != above.parent:
        above = above.parent
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise _fault(path, f"cannot be made: {above} is no folder that can be written to; expected the name of a file")


def _fault(path: Path, message: str) -> BadInput:
    return BadInput([Fault((str(path), 0, 0), "", message)])


def _flush(path: Path) -> None:
    """Write a file, or the files of a folder, onto the disk: a full one may say so only now."""
    for file in path.iterdir() if path.is_dir() else (path,):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())


def _exchange(new: Path, old: Path) -> None:
    """Let two folders change places: in one step where the system can, else in two."""
    swap = getattr(ctypes.CDLL(None), "renameat2", None)
    if swap is None or swap(AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(old), RENAME_EXCHANGE):
        aside = old.rename(new.with_name(f"{new.name}.old"))
        try:
            new.rename(old)
        except OSError:
            aside.rename(old)
            raise
