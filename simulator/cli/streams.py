"""What a command prints reaches its reader: letters that a terminal lacks, a full disk, a pipe that
was closed.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from shutil import get_terminal_size
from typing import Any

NARROWEST = 40
"""Fewest columns that lines are made for; a narrower terminal breaks them itself."""
UNWRITTEN = 2
"""Exit code where what was to be printed cannot be written."""
CLOSED = 128 + signal.SIGPIPE
"""Exit code where nobody reads any more, as shells have it."""
OF_WRITING = frozenset(
    (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
)
"""What a stream fails with that takes no more."""


@contextmanager
def whole_streams() -> Iterator[None]:
    """Let the block print what any terminal or file takes, and say in words where it cannot be
    written; on a narrow terminal ``COLUMNS`` is set to ``NARROWEST``.

    Raises :class:`SystemExit`: ``CLOSED`` where nobody reads any more, else ``UNWRITTEN``.
    """
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:  # a letter that the reader has none for is a question mark
            reconfigure(errors="replace")
    if get_terminal_size().columns < NARROWEST:
        os.environ["COLUMNS"] = str(NARROWEST)
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno not in OF_WRITING:
            raise
        _give_up(error)
    finally:
        _flush()


def _flush() -> None:
    """Write out what is still held back: only now may a full disk say so."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _give_up(error)
    except ValueError:  # closed already
        pass


def _give_up(error: OSError) -> None:
    """End the command with a line about what cannot be printed; nothing of it is tried again when
    Python ends.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    _discard(sys.stdout)
    if error.errno == errno.EPIPE:
        _discard(sys.stderr)
        sys.exit(CLOSED)
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"error: what it prints cannot be written: {error.strerror or error}\n")
        sys.stderr.flush()
    sys.exit(UNWRITTEN)


def _discard(stream: Any) -> None:
    """Discard what a stream still holds back."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
