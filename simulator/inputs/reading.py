"""Reading is bounded: regular files alone, text up to a size, lines up to a length, JSON without
duplicate keys.

Whatever a file is and holds, reading it takes little memory and time. A file that cannot be read
raises an :class:`OSError` with words in ``strerror``, or a :class:`UnicodeDecodeError`;
:func:`reason` puts either into words.
"""

import errno
import gzip
import io
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from typing import IO, Any

from simulator.core.plain import PlainData

MOST_BYTES = 500_000
"""Most bytes of a file that people write; sixty times the largest that is shipped."""
MOST_TABLE_BYTES = 100_000_000
"""Most bytes of a table, a log or a list of prompts, unpacked; thirty times the largest that was
recorded.
"""
MOST_LINES = 1_700_000
"""Most lines of such a file; the longest public log that fits the bytes (BurstGPT) has 1.4
million.
"""
LONGEST_LINE = 4_000_000
"""Most characters of a line of a table or a record."""
READ: ContextVar[set[tuple[int, int]] | None] = ContextVar("read", default=None)
"""Device and inode of every file that the command under way has read, where somebody asked for
them.
"""


def text(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """Return the text of a UTF-8 file without its byte order mark; raises :class:`OSError`,
    :class:`UnicodeDecodeError`.
    """
    with opened(path, most_bytes) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise _too_much(path, most_bytes)
    return content.decode("utf-8-sig")


@contextmanager
def opened(path: Path, most_bytes: int) -> Iterator[io.BufferedReader]:
    """Yield a file of so many bytes at most; raises :class:`OSError` for more, and for what may
    never end or never begin.

    A device, a pipe and a socket are looked at when they are open, so that nothing can take the
    place of what was looked at.
    """
    # a pipe that nobody writes to does not block
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if stat.S_ISDIR(facts.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "is no regular file", str(path))
        if facts.st_size > most_bytes:
            raise _too_much(path, most_bytes)
        note(facts)
        yield file


def note(facts: os.stat_result) -> None:
    """Remember that a file was read, so that the same command does not write to it."""
    noted = READ.get()
    if noted is not None:
        noted.add((facts.st_dev, facts.st_ino))


@contextmanager
def lines(file: Path | str, most_bytes: int = MOST_TABLE_BYTES) -> Iterator[Iterator[str]]:
    """Yield the lines of a UTF-8 file, packed if its name ends in ``.gz``, with line ends as they
    are.

    Raises :class:`OSError` for a line that does not end and for a file that unpacks to more.
    """
    path = Path(file)
    with opened(path, most_bytes) as raw:
        content: Any = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        yield _bounded(path, io.TextIOWrapper(content, "utf-8-sig", newline=""), most_bytes)


def _bounded(path: Path, file: IO[str], most_bytes: int) -> Iterator[str]:
    left = most_bytes
    for number in count(1):
        line = file.readline(LONGEST_LINE)
        left -= len(line)
        if not line:
            return
        if len(line) == LONGEST_LINE:
            raise OSError(
                errno.EFBIG, f"line {number} is longer than {LONGEST_LINE:,} characters", str(path)
            )
        if left < 0:
            raise _too_much(path, most_bytes)
        if number > MOST_LINES:
            raise OSError(
                errno.EFBIG,
                f"holds more than {MOST_LINES:,} lines, which no file of this kind needs",
                str(path),
            )
        yield line


def _too_much(path: Path, most_bytes: int) -> OSError:
    if most_bytes < 10**7:
        most = f"{most_bytes // 1000} kB"
    else:
        most = f"{most_bytes // 10**6:,} MB"
    return OSError(
        errno.EFBIG, f"holds more than {most}, which no file of this kind needs", str(path)
    )


def from_json(text: str) -> Any:
    """Return a JSON value; raises :class:`json.JSONDecodeError`, also for duplicate keys and
    excessive depth or digits.
    """

    def without_duplicates(pairs: list[tuple[str, Any]]) -> PlainData:
        members: PlainData = {}
        for key, value in pairs:
            if key in members:
                raise json.JSONDecodeError(
                    f"key '{key}' written twice", text, max(0, text.rfind(f'"{key}"'))
                )
            members[key] = value
        return members

    try:
        return json.loads(text, object_pairs_hook=without_duplicates)
    except json.JSONDecodeError:
        raise
    except RecursionError as error:
        raise json.JSONDecodeError("nested too deeply to be read", text, 0) from error
    except ValueError as error:  # more digits than Python converts to a number
        raise json.JSONDecodeError("a number with too many digits", text, 0) from error


def reason(error: OSError | UnicodeDecodeError) -> str:
    """Return in words why a file could not be read."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "not UTF-8 text"
