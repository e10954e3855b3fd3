"""The header of a GGUF file says the shape of a model: keys with values, names and sizes of
tensors; no weight is read.

The layout is that of ggml's ``docs/gguf.md``, versions 2 and 3, little-endian. Counts, lengths and
nesting are bounded, and a header that ends early or says what cannot be is refused in words.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from simulator.core.faults import BadInput, told
from simulator.core.plain import PlainData
from simulator.inputs import reading
from simulator.inputs.models.config_fields import FIELDS, Config

ENDING = ".gguf"
MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_KEYS = 10_000
MOST_TENSORS = 200_000
MOST_ENTRIES = 4_000_000
"""Most keys, tensors and entries of a list: vocabularies have up to 300,000 entries."""
LONGEST_TEXT = 1_000_000
"""Most bytes of a text; chat templates have up to 20,000."""
LONGEST_KEPT = 20_000
"""Most entries of a list that is kept: one entry a layer. Of a longer one the length is."""
MOST_DIMENSIONS = 8
NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
"""Number types of a value, as :mod:`struct` calls them."""
TEXT = 8
LIST = 9


class GgufHeader(NamedTuple):
    """What the header of a GGUF file says."""

    values: PlainData
    """Values by key; of long lists their length."""
    tensors: dict[str, tuple[int, ...]]
    """Sizes of every tensor by name, the innermost first."""


class _Damaged(ValueError):
    """Says what is wrong with a header."""


class _Reader:
    """Reads numbers and texts, never beyond the end of a file."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file = file
        self.left = size

    def bytes(self, count: int) -> bytes:
        self.left -= count
        if self.left < 0:
            raise _Damaged("ends within its header; it was perhaps not downloaded whole")
        return self.file.read(count)

    def number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self.bytes(struct.calcsize(f"<{form}")))[0]

    def bounded(self, most: int, what: str) -> int:
        count: int = self.number("Q")
        if count > most:
            raise _Damaged(f"states {count:,} {what}; at most {most:,} are read")
        return count

    def text(self) -> str:
        return self.bytes(self.bounded(LONGEST_TEXT, "bytes of a text")).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind == TEXT:
            return self.text()
        if kind != LIST:
            raise _Damaged(f"has a value of type {kind}, which no version knows")
        inner = self.number("I")
        count = self.bounded(MOST_ENTRIES, "entries of a list")
        if inner == LIST:
            raise _Damaged("has a list within a list")
        if inner in NUMBERS:
            form = NUMBERS[inner]
            packed = self.bytes(count * struct.calcsize(f"<{form}"))
            if count <= LONGEST_KEPT:
                return list(struct.unpack(f"<{count}{form}", packed))
            return count
        for _ in range(count):
            self.value(inner)
        return count


def read_header(path: Path) -> GgufHeader:
    """Return the header of a GGUF file; raises :class:`BadInput` for one that is damaged, or no
    such file.
    """
    try:
        with path.open("rb") as file:
            return _header(_Reader(file, path.stat().st_size))
    except OSError as error:
        raise BadInput.at(str(path), f"cannot be read: {reading.reason(error)}") from error
    except _Damaged as error:
        raise BadInput.at(
            str(path),
            f"is a GGUF file that {error}; a folder with the model's config.json will do instead",
        ) from error


def _header(reader: _Reader) -> GgufHeader:
    if reader.left < len(MAGIC) or reader.bytes(len(MAGIC)) != MAGIC:
        raise _Damaged("does not begin as one")
    version = reader.number("I")
    if version not in VERSIONS:
        raise _Damaged(f"has version {version}; versions 2 and 3 are read, little-endian")
    tensors = reader.bounded(MOST_TENSORS, "tensors")
    keys = reader.bounded(MOST_KEYS, "keys")
    values = {}
    for _ in range(keys):
        key = reader.text()
        values[key] = reader.value(reader.number("I"))
    return GgufHeader(values, dict(_tensor(reader) for _ in range(tensors)))


def _tensor(reader: _Reader) -> tuple[str, tuple[int, ...]]:
    name = reader.text()
    dimensions = reader.number("I")
    if dimensions > MOST_DIMENSIONS:
        raise _Damaged(f"has a tensor of {dimensions:,} dimensions")
    sizes = tuple(reader.number("Q") for _ in range(dimensions))
    reader.bytes(4 + 8)  # its type, and where it begins
    return name, sizes


def config_of(path: Path) -> tuple[Config, dict[str, str], str]:
    """Return the configuration that a GGUF file describes, the format of its weights, and what that
    is called there.

    Raises :class:`BadInput` for a header that cannot be read, and for an architecture that is not
    known here.
    """
    header = read_header(path)
    stated = FIELDS["gguf"]
    architecture = str(header.values.get("general.architecture", ""))
    kind = stated["architectures"].get(architecture)
    if kind is None:
        known = ", ".join(stated["architectures"])
        words = (
            f"is a GGUF file of architecture {told(architecture[:60])}, which is not known "
            f"here; known are {known}"
        )
        raise BadInput.at(
            str(path), f"{words}. A folder with the model's config.json may do instead"
        )
    data = {"model_type": kind, **dict(_fields(header, architecture))}
    refused = [
        key
        for key in header.values
        if key.startswith(tuple(f"{architecture}.{part}" for part in stated["refused"]))
    ]
    config = Config(str(path), "", data, FIELDS["families"].get(kind, {}))
    for key in refused:
        config.refuse(
            key,
            "is not understood in a GGUF file and changes the cost; a config.json may do instead",
        )
    file_type = header.values.get("general.file_type")
    name, form = stated["file_types"].get(file_type, [f"file type {file_type}", None])
    return config, {"weight_format": form} if form else {}, name


def _fields(header: GgufHeader, architecture: str) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a configuration by the names of Hugging Face."""
    values = header.values
    tensors = header.tensors
    for key, name in FIELDS["gguf"]["keys"].items():
        value = values.get(f"{architecture}.{key}")
        if value is not None:
            yield name, value
    embedding = tensors.get("token_embd.weight")
    tokens: Any
    if embedding:
        tokens = embedding[-1]
    else:
        tokens = values.get(f"{architecture}.vocab_size", values.get("tokenizer.ggml.tokens"))
    if isinstance(tokens, list):
        tokens = len(tokens)
    if tokens is not None:
        yield "vocab_size", tokens
    yield "tie_word_embeddings", bool(tensors) and "output.weight" not in tensors
    heads = values.get(f"{architecture}.attention.head_count_kv")
    if isinstance(heads, list) and 0 in heads and f"{architecture}.shortconv.l_cache" in values:
        yield "layer_types", ["full_attention" if count else "conv" for count in heads]
        yield "num_key_value_heads", [count for count in heads if count]
