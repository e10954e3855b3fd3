"""Reading is bounded: text up to a size, lines up to a length, JSON without duplicate keys.

Whatever a file holds, reading it takes little memory and time. A file that cannot be read raises an :class:`OSError` with
words in ``strerror``, or a :class:`UnicodeDecodeError`; :func:`reason` puts either into words.
"""

import errno
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import IO, Any

MOST_BYTES = 500_000
"""Most bytes of a file that people write; sixty times the largest that is shipped."""
LONGEST_LINE = 4_000_000
"""Most characters of a line of a table or a record."""


def text(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """Return the text of a UTF-8 file without its byte order mark; raises :class:`OSError`, :class:`UnicodeDecodeError`."""
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"holds more than {most_bytes // 1000} kB, which no file of this kind needs")
    return content.decode("utf-8-sig")


def check_regular(path: Path) -> None:
    """Raise :class:`OSError` for what may never end or never begin: a device, a pipe, a socket."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "is no regular file")


def lines(file: IO[str]) -> Iterator[str]:
    """Yield the lines of an open file, line ends included; raises :class:`OSError` for a line that does not end."""
    for number in count(1):
        line = file.readline(LONGEST_LINE)
        if not line:
            return
        if len(line) == LONGEST_LINE:
            raise OSError(errno.EFBIG, f"line {number} is longer than {LONGEST_LINE:,} characters")
        yield line


def from_json(text: str) -> Any:
    """Return a JSON value; raises :class:`json.JSONDecodeError`, also for duplicate keys and excessive depth or digits."""

    def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for key, value in pairs:
            if key in members:
                raise json.JSONDecodeError(f"key '{key}' written twice", text, max(0, text.rfind(f'"{key}"')))
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
    return (error.strerror or str(error)) if isinstance(error, OSError) else "not UTF-8 text"
