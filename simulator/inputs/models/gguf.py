"""The header of a GGUF file says the shape of a model and how it is stored: keys with values, and
names, sizes and types of tensors; no weight is read.

The layout is that of ggml's ``docs/gguf.md``, versions 2 and 3, little-endian. Counts, lengths and
nesting are bounded, and a header that ends early or says what cannot be is refused in words.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from simulator.core.cost.formats import StoredBits
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.stored import ggml
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


SAME_WEIGHTS = 0.02
"""How far the weights of a file's matrices may be from those of the shapes that its keys describe,
as a share.
"""
SHARD = re.compile(r"(.*-)(\d{5})(-of-)(\d{5})(\.gguf)")
"""Name of a file that is one of several (``llama-gguf-split``)."""
MOST_SHARDS = 1_000


class GgufTensor(NamedTuple):
    """A tensor of a file."""

    sizes: tuple[int, ...]
    """Its sizes, the innermost first."""
    kind: str
    """The name of its type."""

    @property
    def weights(self) -> int:
        """Return the number of its weights."""
        return prod(self.sizes)

    @property
    def bits(self) -> float:
        """Return the bits of all its weights, scales included."""
        return self.weights * ggml.TYPES[self.kind].bits

    @property
    def is_matrix(self) -> bool:
        """Return whether products are computed with it: norms and biases have one dimension."""
        return sum(size > 1 for size in self.sizes) > 1


class GgufHeader(NamedTuple):
    """What the header of a GGUF file says."""

    values: PlainData
    """Values by key; of long lists their length."""
    tensors: dict[str, GgufTensor]
    """Every tensor by name."""


class GgufModel(NamedTuple):
    """What a GGUF file says of a model."""

    config: Config
    """Its shape, by the names of Hugging Face."""
    formats: PlainData
    """Fields of a model: the format of its weights, and their bits by group of tensors."""
    words: str
    """What the format is called there."""
    tensors: Mapping[str, GgufTensor]
    """Its tensors by name."""


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


def _tensor(reader: _Reader) -> tuple[str, GgufTensor]:
    name = reader.text()
    dimensions = reader.number("I")
    if dimensions > MOST_DIMENSIONS:
        raise _Damaged(f"has a tensor of {dimensions:,} dimensions")
    sizes = tuple(reader.number("Q") for _ in range(dimensions))
    number = reader.number("I")
    reader.bytes(8)  # where it begins
    kind = ggml.BY_NUMBER.get(number)
    if kind is None:
        raise _Damaged(f"stores {told(name[:60])} in a type of number {number}, unknown here")
    return name, GgufTensor(sizes, kind)


def read_parts(path: Path) -> GgufHeader:
    """Return the header of a GGUF file; of one of several that hold a model together, with the
    tensors of all, which lie beside it.

    Raises :class:`BadInput` as :func:`read_header`, also for a part that is not there.
    """
    header = read_header(path)
    count = header.values.get("split.count", 1)
    if not isinstance(count, int) or count <= 1:
        return header
    named = SHARD.fullmatch(path.name)
    if named is None or count > MOST_SHARDS or int(named[4]) != count:
        raise BadInput.at(
            str(path),
            f"is one of {count:,} parts of a model; parts are called NAME-00001-of-{count:05}.gguf",
        )
    values: PlainData = {}
    tensors: dict[str, GgufTensor] = {}
    for number in range(1, count + 1):
        part = path.with_name(f"{named[1]}{number:05}{named[3]}{named[4]}{named[5]}")
        if not part.is_file():
            raise BadInput.at(
                str(path), f"is one of {count} parts of a model, and {part.name} is not beside it"
            )
        of_part = read_header(part)
        values = of_part.values | values  # the first part has the keys of the model
        tensors |= of_part.tensors
    return GgufHeader(values, tensors)


def read_model(path: Path) -> GgufModel:
    """Return what a GGUF file says of a model: its shape, and in which formats it is stored.

    Raises :class:`BadInput` for a header that cannot be read, and for an architecture that is not
    known here.
    """
    header = read_parts(path)
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
    parts = [part for part in stated["refused"] if part != "ssm." or not _has_delta(architecture)]
    refused = [
        key
        for key in header.values
        if key.startswith(tuple(f"{architecture}.{part}" for part in parts))
    ]
    config = Config(str(path), "", data, FIELDS["families"].get(kind, {}))
    for key in refused:
        config.refuse(
            key,
            "is not understood in a GGUF file and changes the cost; a config.json may do instead",
        )
    name, form = _file_type(header)
    formats: PlainData = {"weight_format": form} if form else {}
    layers = data.get("num_hidden_layers")
    tensors = {name: tensor for name, tensor in header.tensors.items() if _is_of(name, layers)}
    if form and tensors:
        formats["stored"] = _stored(tensors).model_dump()
    return GgufModel(config, formats, name, tensors)


def _has_delta(architecture: str) -> bool:
    """Return whether layers of an architecture have a gated delta rule."""
    return architecture in FIELDS["gguf"]["with_gated_delta"]


def _is_of(name: str, layers: Any) -> bool:
    """Return whether a tensor belongs to one of so many layers, or to none: those behind them
    predict further tokens (MTP).
    """
    of_layer = re.match(r"blk\.(\d{1,6})\.", name)
    return of_layer is None or not isinstance(layers, int) or int(of_layer[1]) < layers


def _file_type(header: GgufHeader) -> tuple[str, str | None]:
    """Return what a file calls its format, and the format here: that of most bytes of its layers
    where the file names none that is known.
    """
    number = header.values.get("general.file_type")
    known = FIELDS["gguf"]["file_types"].get(number) if isinstance(number, int) else None
    if known:
        return known[0], known[1]
    sizes: dict[str, float] = {}
    for name, tensor in header.tensors.items():
        if name.startswith("blk.") and tensor.is_matrix:
            sizes[tensor.kind] = sizes.get(tensor.kind, 0.0) + tensor.bits
    if not sizes:
        return f"file type {number}", None
    most = max(sizes, key=lambda kind: sizes[kind])
    form = FIELDS["gguf"]["types"].get(most)
    return f"file type {number}, mostly {most.upper()}", form


def _stored(tensors: Mapping[str, GgufTensor]) -> StoredBits:
    """Return the bits a weight by group of tensors; a file without ``output.weight`` takes the
    embedding for it.
    """
    embedding = _mean_bits(tensors, "embedding") or 16.0
    blocks = _mean_bits(tensors, "blocks") or embedding
    return StoredBits(
        block_bits=blocks,
        expert_bits=_mean_bits(tensors, "experts") or blocks,
        embedding_bits=embedding,
        head_bits=_mean_bits(tensors, "head") or embedding,
    )


def group_of(name: str) -> str:
    """Return the group of a tensor by its name."""
    if name == "token_embd.weight":
        return "embedding"
    if name == "output.weight":
        return "head"
    if re.search(r"\.ffn_(up|down|gate|gate_up)_exps\.|\.ffn_(up|down|gate)\.\d+\.", name):
        return "experts"
    return "blocks"


def _mean_bits(tensors: Mapping[str, GgufTensor], group: str) -> float | None:
    """Return the bits a weight of the matrices of a group; None where there are none."""
    of_group = [
        tensor for name, tensor in tensors.items() if tensor.is_matrix and group_of(name) == group
    ]
    weights = sum(tensor.weights for tensor in of_group)
    if not weights:
        return None
    return sum(tensor.bits for tensor in of_group) / weights


def check_weights(path: Path, model: ModelSpec, tensors: Mapping[str, GgufTensor]) -> None:
    """Raise :class:`BadInput` where the matrices of a file have other weights than the shapes that
    its keys describe: then its layers are not what is taken for them.
    """
    stated = sum(tensor.weights for tensor in tensors.values() if tensor.is_matrix)
    if not tensors or abs(stated / model.weights - 1.0) <= SAME_WEIGHTS:
        return
    raise BadInput.at(
        str(path),
        f"has matrices of {stated / 1e9:.4g}e9 weights, where its keys describe "
        f"{model.weights / 1e9:.4g}e9 as {model.about.partition(' as ')[0]}: a layer of its "
        "architecture is not understood here. A folder with the model's config.json may do instead",
    )


def _of_delta(values: PlainData, architecture: str) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a gated delta rule; the width of all values is stated, not of a head."""
    for key, name in FIELDS["gguf"]["gated_delta"].items():
        value = values.get(f"{architecture}.{key}")
        if value is not None:
            yield name, value
    inner = values.get(f"{architecture}.ssm.inner_size")
    count = values.get(f"{architecture}.ssm.time_step_rank")
    if isinstance(inner, int) and isinstance(count, int) and count and inner % count == 0:
        yield "linear_value_head_dim", inner // count


def _tokens(header: GgufHeader, architecture: str) -> Any:
    """Return the number of tokens: rows of the embedding, else as a key says; None where neither
    is there.
    """
    embedding = header.tensors.get("token_embd.weight")
    if embedding and embedding.sizes:
        return embedding.sizes[-1]
    vocabulary = header.values.get("tokenizer.ggml.tokens")
    if isinstance(vocabulary, list):
        vocabulary = len(vocabulary)
    return header.values.get(f"{architecture}.vocab_size", vocabulary)


def _layers(values: Mapping[str, Any], architecture: str) -> Any:
    """Return the number of layers without those that only predict further tokens; None where it is
    not stated.
    """
    layers = values.get(f"{architecture}.block_count")
    further = values.get(f"{architecture}.nextn_predict_layers", 0)
    if isinstance(layers, int) and isinstance(further, int):
        return layers - further
    return layers


def _fields(header: GgufHeader, architecture: str) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a configuration by the names of Hugging Face."""
    values = header.values
    tensors = header.tensors
    for key, name in FIELDS["gguf"]["keys"].items():
        value = values.get(f"{architecture}.{key}")
        if value is not None and name != "num_hidden_layers":
            yield name, value
    layers = _layers(values, architecture)
    if layers is not None:
        yield "num_hidden_layers", layers
    if _has_delta(architecture):
        yield from _of_delta(values, architecture)
    tokens = _tokens(header, architecture)
    if tokens is not None:
        yield "vocab_size", tokens
    yield "tie_word_embeddings", bool(tensors) and "output.weight" not in tensors
    heads = values.get(f"{architecture}.attention.head_count_kv")
    if isinstance(heads, list) and 0 in heads and f"{architecture}.shortconv.l_cache" in values:
        yield "layer_types", ["full_attention" if count else "conv" for count in heads]
        yield "num_key_value_heads", [count for count in heads if count]
