"""The header of a GGUF file says the shape of a model; a damaged or hostile one is refused in
words.
"""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.core.faults import BadInput
from simulator.inputs.models.huggingface import read_config

Value = tuple[int, Any]
"""Type of a value, and the value."""
LLAMA: dict[str, Value] = {
    "general.architecture": (8, "llama"),
    "general.file_type": (4, 15),
    "llama.block_count": (4, 4),
    "llama.embedding_length": (4, 100),
    "llama.attention.head_count": (4, 10),
    "llama.attention.head_count_kv": (4, 2),
    "llama.feed_forward_length": (4, 300),
    "llama.context_length": (4, 4096),
    "llama.rope.freq_base": (6, 10000.0),
    "tokenizer.ggml.tokens": (9, (8, ["<a>"] * 1000)),
}
TENSORS = {
    "token_embd.weight": (100, 1000),
    "output.weight": (100, 1000),
    "blk.0.attn_q.weight": (100, 100),
}


def text(words: str) -> bytes:
    return struct.pack("<Q", len(words.encode())) + words.encode()


def packed(kind: int, value: Any) -> bytes:
    if kind == 8:
        return text(value)
    if kind == 9:
        inner, entries = value
        return struct.pack("<IQ", inner, len(entries)) + b"".join(
            packed(inner, entry) for entry in entries
        )
    return struct.pack({4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q"}[kind], value)


def made(values: dict[str, Value], tensors: dict[str, tuple[int, ...]], version: int = 3) -> bytes:
    keys = b"".join(
        text(key) + struct.pack("<I", kind) + packed(kind, value)
        for key, (kind, value) in values.items()
    )
    sizes = b"".join(
        text(name) + struct.pack(f"<I{len(size)}QIQ", len(size), *size, 0, 0)
        for name, size in tensors.items()
    )
    return b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values)) + keys + sizes


def written(folder: Path, content: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(content)
    return path


def test_the_shape_and_the_format_of_the_weights(tmp_path):
    model = read_config(written(tmp_path, made(LLAMA, TENSORS)))
    sizes = (
        model.hidden_size,
        model.num_hidden_layers,
        model.num_key_value_heads,
        model.vocab_size,
        model.context_tokens,
    )
    assert sizes == (100, 4, 2, 1000, 4096)
    assert model.weights == 4 * (100 * 140 + 100 * 100 + 3 * 100 * 300) + 2 * 1000 * 100
    assert (model.weight_format, model.tie_word_embeddings, model.name) == ("q4_k", False, "model")
    assert model.about == "llama as its GGUF header describes it, with weights in Q4_K_M"


def test_without_an_output_matrix_embeddings_are_tied_and_tokens_are_counted_where_no_tensor_says(
    tmp_path,
):
    model = read_config(
        written(tmp_path, made(LLAMA, {"token_embd.weight": (100, 1024)}, version=2))
    )
    assert (model.tie_word_embeddings, model.vocab_size) == (True, 1024)
    assert read_config(written(tmp_path, made(LLAMA, {}))).vocab_size == 1000


def test_convolutions_are_layers_without_heads_of_keys(tmp_path):
    """LFM2-1.2B: as wide as its file says, not two thirds of it."""
    values: dict[str, Value] = {
        key.replace("llama.", "lfm2."): value for key, value in LLAMA.items()
    }
    values |= {"general.architecture": (8, "lfm2"), "lfm2.shortconv.l_cache": (4, 3)}
    values |= {"lfm2.attention.head_count_kv": (9, (5, [0, 2, 0, 2]))}
    model = read_config(written(tmp_path, made(values, TENSORS)))
    assert model.kv_bytes_per_token() == 2 * 2 * 20 * 2
    assert model.state_bytes == 2 * 2 * 100 * 2
    assert model.intermediate_size == 300


def test_a_mixture(tmp_path):
    values = {key.replace("llama.", "qwen3moe."): value for key, value in LLAMA.items()}
    values |= {
        "general.architecture": (8, "qwen3moe"),
        "qwen3moe.expert_count": (4, 8),
        "qwen3moe.expert_used_count": (4, 2),
    }
    model = read_config(
        written(tmp_path, made(values | {"qwen3moe.expert_feed_forward_length": (4, 50)}, TENSORS))
    )
    assert model.experts is not None
    assert (model.experts.routed, model.experts.per_token, model.experts.intermediate_size) == (
        8,
        2,
        50,
    )


def test_weights_in_a_format_that_is_not_known_are_said(tmp_path):
    model = read_config(written(tmp_path, made(LLAMA | {"general.file_type": (4, 18)}, TENSORS)))
    assert model.weight_format is None
    assert model.about.endswith(
        "with weights in Q6_K, of which no format here is like it: state the format of the weights"
    )


HUGE = struct.pack("<Q", 1 << 60)
WHOLE = made(LLAMA, TENSORS)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"GGUF\x03\x00\x00\x00", "ends within its header"),
        (b"", "does not begin as one"),
        (b"PK\x03\x04" + WHOLE[4:], "does not begin as one"),
        (b"GGUF" + struct.pack(">I", 3) + WHOLE[8:], "has version 50331648"),
        (b"GGUF" + struct.pack("<I", 1) + WHOLE[8:], "has version 1;"),
        (WHOLE[:8] + HUGE + WHOLE[16:], "tensors; at most"),
        (WHOLE[:16] + HUGE + WHOLE[24:], "keys; at most"),
        (WHOLE[:24] + HUGE + WHOLE[32:], "bytes of a text; at most"),
        (made({"a": (4, 1)}, {})[:-8] + struct.pack("<II", 77, 1), "has a value of type 77"),
        (WHOLE[:24] + text("a") + struct.pack("<IIQ", 9, 9, 1), "has a list within a list"),
        (WHOLE[:24] + text("a") + struct.pack("<II", 9, 4) + HUGE, "entries of a list; at most"),
        (WHOLE[:24] + text("a") + struct.pack("<IIQ", 9, 4, 3_000_000), "ends within its header"),
        (made(LLAMA, {"a": (1,) * 9}), "has a tensor of 9 dimensions"),
        *((WHOLE[:end], "ends within its header") for end in range(4, len(WHOLE), 1009)),
        (
            made(LLAMA | {"general.architecture": (8, "rwkv7")}, TENSORS),
            "of architecture 'rwkv7', which is not known here",
        ),
        (
            made({"general.architecture": (4, 3)}, {}),
            "of architecture '3', which is not known here",
        ),
        (made({"general.architecture": (8, "llama")}, {}), "hidden_size: is required and missing"),
        (
            made(LLAMA | {"llama.block_count": (8, "many")}, TENSORS),
            "num_hidden_layers: expected a whole number",
        ),
        (
            made(LLAMA | {"llama.ssm.state_size": (4, 16)}, TENSORS),
            "llama.ssm.state_size: is not understood in a GGUF file",
        ),
    ],
)
def test_a_header_that_cannot_be_read_says_why(tmp_path, content, words):
    with pytest.raises(BadInput) as error:
        read_config(written(tmp_path, content))
    assert words in str(error.value)
    assert str(tmp_path / "model.gguf") in str(error.value)


def test_every_command_that_takes_a_model_takes_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, made(LLAMA, TENSORS))
    shown = CliRunner().invoke(main, ["show", "./model.gguf", "--json"])
    assert json.loads(shown.output)["computed"]["kv_bytes_per_token"] == 320
    sets = ["--set", "target.tensor_parallel=1", "--set", "target.model=./model.gguf"]
    law = CliRunner().invoke(main, ["law", "autoregressive_qwen3_32b_a100", *sets, "--json"])
    assert law.exit_code == 0, law.output


@pytest.mark.parametrize("name", ["./none.gguf", "none.gguf", "./folder", "/none/at/all"])
def test_a_path_is_no_id_to_download(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "log.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,10,10\n1,10,10\n")
    line = [
        "plan",
        "--model",
        name,
        "--device",
        "h100_sxm",
        "--traffic",
        "log.csv",
        "--ttft-p95",
        "1s",
    ]
    result = CliRunner().invoke(main, line)
    assert result.exit_code == 2
    assert "hf download" not in result.output
    assert "a folder with a config.json, or a .gguf file" in result.output
