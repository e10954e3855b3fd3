"""Files of recorded acceptance: a compressed ``.npz`` without pickles, read, checked and written.

``header`` is JSON as bytes; the arrays are those of
:class:`~simulator.core.acceptance.trace.Trace`, and ``arrays.yaml`` beside this module states type,
shape and meaning of each.
"""

import zipfile
import zlib
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np

from simulator.core.acceptance.tokenizers import share_tokenizer
from simulator.core.acceptance.trace import CONVERTED, FORMAT, Trace
from simulator.core.faults import BadInput
from simulator.core.plain import PlainData
from simulator.inputs.reading import from_json, opened
from simulator.inputs.traces.header import KINDS, check_arrays, check_header
from simulator.inputs.writing import json_text, replacing

MOST_BYTES = 400_000_000
"""Most bytes of all arrays of a file together; twenty-five times those of the largest shipped
trace.
"""
READ = 16
"""Traces that are kept as they were read: more than are shipped, as whoever looks for the nearest
one goes over all of them again and again.
"""
PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED = 1
"""Flag of a member of an archive."""
ARRAYS = tuple(name for name in KINDS if name != "run")
"""Arrays that every file holds."""
UNREADABLE = (
    ValueError,
    EOFError,
    MemoryError,
    RecursionError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What numpy and zipfile raise for an archive that is none, is damaged, or is of a later version
than they read.
"""


def read(path: Path) -> Trace:
    """Return the trace of a file, checked; raises :class:`BadInput` that names the file and what is
    wrong with it.
    """
    try:
        with opened(path, MOST_BYTES) as content:
            _check_archive(path, content)
            with np.load(content, allow_pickle=False) as file:
                header = from_json(bytes(file["header"]).decode())
                # how long the others are, before they are read
                check_arrays(path, {}, {"offsets": file["offsets"]})
                arrays = {}
                for name in file.files:
                    if name in (*ARRAYS, "run") or "." in name:
                        arrays[name] = np.asarray(file[name])
        extra = {name: array for name, array in arrays.items() if "." in name}
        own = {name: arrays[name] for name in ARRAYS}
        trace = Trace(header, **own, run=arrays.get("run"), extra=extra)
    except KeyError as error:
        missing, _, _ = str(error.args[0]).partition(" ")
        raise _bad(path, f"is not a trace: array {missing} is missing") from error
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror or error}") from error
    except UNREADABLE as error:
        raise _bad(path, f"is not a trace: {error}") from error
    _check(path, trace)
    return trace


def _check_archive(path: Path, content: IO[bytes]) -> None:
    """Raise :class:`BadInput` for what is no archive, or one of another kind or size than numpy
    writes.
    """
    if not zipfile.is_zipfile(content):
        raise _bad(path, "is not a trace: it is no .npz archive")
    members = zipfile.ZipFile(content).infolist()
    size = sum(member.file_size for member in members)
    if size > MOST_BYTES:
        most = f"expected at most {MOST_BYTES / 1e6:,.0f} MB"
        raise _bad(path, f"holds {size / 1e6:,.0f} MB of arrays; {most}")
    for member in members:
        if member.flag_bits & ENCRYPTED or member.compress_type not in PACKINGS:
            raise _bad(path, "is not a trace: it is encrypted, or packed otherwise than numpy does")
    content.seek(0)


def read_once(path: Path) -> Trace:
    """Return the trace of a file as :func:`read` does, from a cache as long as the file stays as it
    is.
    """
    facts = path.stat()
    return _kept(path, (facts.st_mtime_ns, facts.st_size))


@lru_cache(READ)
def _kept(path: Path, _: tuple[int, int]) -> Trace:
    return read(path)


def _check(path: Path, trace: Trace) -> None:
    """Raise :class:`BadInput` for a header or arrays that do not fit the format or each other."""
    if not isinstance(trace.header, dict):
        raise _bad(path, "expected a header that is a JSON object")
    form = trace.header.get("format")
    if form not in (FORMAT, CONVERTED):
        known = f"this version reads formats {FORMAT} and {CONVERTED}"
        raise _bad(path, f"has format {form}; {known}")
    check_header(path, trace.header)
    arrays = {name: getattr(trace, name) for name in (*ARRAYS, "run")}
    check_arrays(path, trace.header, arrays | dict(trace.extra))
    models = sorted(trace.header["models"].items(), reverse=True)
    sizes = {role: model["shape"]["vocabulary"] for role, model in models if model.get("shape")}
    if sizes and not share_tokenizer(*sizes.values(), trace.vocabulary):
        by_role = ", ".join(f"{role} {size:,}" for role, size in sizes.items())
        stated = "none"
        if trace.vocabulary is not None:
            stated = f"{trace.vocabulary:,}"
        rule = "target and draft must share one tokenizer"
        raise _bad(path, f"mixes vocabularies ({by_role}; header {stated}): {rule}")
    if trace.vocabulary and len(trace.token):
        largest = int(trace.token.max())
        if largest >= trace.vocabulary:
            outside = f"outside its vocabulary of {trace.vocabulary:,}"
            raise _bad(path, f"holds token {largest}, {outside}")
    _check_lengths(path, trace)


def _check_lengths(path: Path, trace: Trace) -> None:
    """Raise :class:`BadInput` for arrays whose lengths do not fit each other."""
    lengths = {len(array) for array in (trace.token, trace.draft_rank, trace.p, trace.q)}
    if trace.header["format"] == CONVERTED:
        lengths -= {0}
    lengths |= {array.shape[-1] for array in trace.extra.values()}
    if trace.run is not None:
        lengths.add(len(trace.run))
    elif not len(trace.draft_rank):
        raise _bad(path, "does not say what is accepted: it holds neither run nor draft_rank")
    lengths.add(trace.exit_rank.shape[-1])
    lengths.add(trace.positions)
    if lengths != {trace.positions} or len(trace.offsets) != len(trace.flavour) + 1:
        raise _bad(path, "holds arrays of different lengths")


def _bad(path: Path, message: str) -> BadInput:
    return BadInput.at(path, message, "trace")


def write(trace: Trace, path: Path) -> None:
    """Write a recording to its file, whole or not at all; the same content gives the same bytes.
    Raises :class:`BadInput`.
    """
    with replacing(path) as new:
        _save(trace, new)


def packed(trace: Trace) -> bytes:
    """Return the content of the file of a recording."""
    content = BytesIO()
    _save(trace, content)
    return content.getvalue()


def _save(trace: Trace, file: Path | BytesIO) -> None:
    arrays: PlainData = {name: getattr(trace, name) for name in ARRAYS}
    if trace.run is not None:
        arrays["run"] = trace.run
    text = json_text(trace.header, sort_keys=True, indent=1)
    header = np.frombuffer(text.encode(), dtype=np.uint8)
    np.savez_compressed(file, header=header, **arrays | dict(trace.extra))
