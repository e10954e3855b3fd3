"""Reading with an end: text up to a size, lines up to a length, JSON without surprises.

Whatever a file holds, reading it takes little memory and time. What cannot be read is an :class:`OSError` with words in
``strerror``, or a :class:`UnicodeDecodeError`, as for any file; :func:`reason` is either in words.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import IO, Any

MOST_BYTES = 500_000
"""Of a file that people write; sixty times the largest that is shipped."""
LONGEST_LINE = 4_000_000
"""Characters of a line of a table or a record."""


def text(path: Path) -> str:
    """A file of text, UTF-8 with or without a byte order mark; raises :class:`OSError`, :class:`UnicodeDecodeError`."""
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"holds more than {MOST_BYTES // 1000} kB, which no file of this kind needs")
    return content.decode("utf-8-sig")


def lines(file: IO[str]) -> Iterator[str]:
    """Lines of an open file, ends included; raises :class:`OSError` for one that does not end."""
    for number in count(1):
        line = file.readline(LONGEST_LINE)
        if not line:
            return
        if len(line) == LONGEST_LINE:
            raise OSError(errno.EFBIG, f"line {number} is longer than {LONGEST_LINE:,} characters")
        yield line


def from_json(text: str) -> Any:
    """A JSON value; raises :class:`json.JSONDecodeError` also for equal keys, depth and digits beyond all use."""

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        held = dict(found)
        if len(held) < len(found):
            twice = next(key for position, (key, _) in enumerate(found) if key in dict(found[:position]))
            raise json.JSONDecodeError(f"key '{twice}' written twice", text, max(0, text.rfind(f'"{twice}"')))
        return held

    try:
        return json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError:
        raise
    except RecursionError as error:
        raise json.JSONDecodeError("nested too deeply to be read", text, 0) from error
    except ValueError as error:  # more digits than Python turns into a number
        raise json.JSONDecodeError("a number with too many digits", text, 0) from error


def reason(error: OSError | UnicodeDecodeError) -> str:
    """Why a file could not be read."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else "not UTF-8 text"
