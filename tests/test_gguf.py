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
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.stored import ggml
from simulator.core.faults import BadInput
from simulator.inputs.models.huggingface import read_config
from simulator.scenario import load
from simulator.scenario.caveats import caveats

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
LAYER = {
    "attn_q": (100, 100),
    "attn_k": (100, 20),
    "attn_v": (100, 20),
    "attn_output": (100, 100),
    "ffn_gate": (100, 300),
    "ffn_up": (100, 300),
    "ffn_down": (300, 100),
}
TABLES = {"token_embd.weight": (100, 1000), "output.weight": (100, 1000)}
TENSORS = TABLES | {
    f"blk.{layer}.{name}.weight": sizes for layer in range(4) for name, sizes in LAYER.items()
}
OF_EXPERTS = {
    "ffn_gate_inp": (100, 8),
    "ffn_up_exps": (100, 50, 8),
    "ffn_gate_exps": (100, 50, 8),
    "ffn_down_exps": (50, 100, 8),
}
MIXTURE = TABLES | {
    f"blk.{layer}.{name}.weight": sizes
    for layer in range(4)
    for name, sizes in (
        {name: sizes for name, sizes in LAYER.items() if "attn" in name} | OF_EXPERTS
    ).items()
}
NORMS = {"blk.0.attn_norm.weight": (100,), "output_norm.weight": (100,)}
F32, Q8_0, Q4_K, Q6_K = 0, 8, 12, 14
MIXED = {"ffn_gate_inp.weight": F32, "ffn_down_exps.weight": Q6_K, "output.weight": Q6_K}


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


def made(
    values: dict[str, Value],
    tensors: dict[str, tuple[int, ...]],
    version: int = 3,
    kinds: dict[str, int] | None = None,
) -> bytes:
    """Return a header; ``kinds``: numbers of types by the end of a tensor's name, else Q4_K."""

    def kind(name: str) -> int:
        of_end = [number for end, number in (kinds or {}).items() if f".{name}".endswith(f".{end}")]
        return of_end[0] if of_end else Q4_K

    keys = b"".join(
        text(key) + struct.pack("<I", kind) + packed(kind, value)
        for key, (kind, value) in values.items()
    )
    sizes = b"".join(
        text(name) + struct.pack(f"<I{len(size)}QIQ", len(size), *size, kind(name), 0)
        for name, size in tensors.items()
    )
    return b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values)) + keys + sizes


def by_group(model: ModelSpec) -> list[float]:
    """Return the bits a weight of layers, experts, embedding and LM head."""
    assert model.stored
    return list(model.stored.model_dump().values())


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
    assert (model.weight_format, model.tie_word_embeddings, model.name) == (
        "q4_k_m",
        False,
        "model",
    )
    assert model.about == "llama as its GGUF header describes it, with weights in Q4_K_M"


def test_without_an_output_matrix_embeddings_are_tied_and_tokens_are_counted_where_no_tensor_says(
    tmp_path,
):
    of_one_table = {name: size for name, size in TENSORS.items() if name != "output.weight"}
    of_one_table["token_embd.weight"] = (100, 1024)
    model = read_config(
        written(
            tmp_path,
            made(LLAMA, of_one_table, version=2),
        )
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
    mixers = {"shortconv.in_proj": (100, 300), "shortconv.out_proj": (100, 100)}
    layers = [mixers, {name: LAYER[name] for name in LAYER if name.startswith("attn")}] * 2
    tensors = TABLES | {
        f"blk.{number}.{name}.weight": sizes
        for number, mixer in enumerate(layers)
        for name, sizes in (mixer | {name: LAYER[name] for name in LAYER if "ffn" in name}).items()
    }
    model = read_config(written(tmp_path, made(values, tensors)))
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
    values["qwen3moe.expert_feed_forward_length"] = (4, 50)
    model = read_config(written(tmp_path, made(values, MIXTURE, kinds=MIXED)))
    assert model.experts is not None
    blocks = (24_000 * 4.5 + 800 * 32) / 24_800  # the choice among experts has 32 bits
    assert by_group(model) == pytest.approx(
        [blocks, (2 * 4.5 + 6.5625) / 3, 4.5, 6.5625], rel=1e-12
    )
    assert (model.experts.routed, model.experts.per_token, model.experts.intermediate_size) == (
        8,
        2,
        50,
    )


def test_a_file_is_priced_by_the_bits_of_its_tensors(tmp_path):
    """Half of the values and of the matrices behind the activation in Q6_K: 24,000 + 60,000 weights
    of Q4_K a layer, 16,000 of Q6_K in two of four; an LM head in Q8_0. Norms are no products.
    """
    kinds = {"output.weight": Q8_0, "output_norm.weight": F32}
    for layer in (0, 3):
        kinds |= {f"blk.{layer}.attn_v.weight": Q6_K, f"blk.{layer}.ffn_down.weight": Q6_K}
    path = written(tmp_path, made(LLAMA, TENSORS | NORMS, kinds=kinds))
    model = read_config(path)
    raised = 2 * (2_000 + 30_000)
    block_bits = 4.5 + raised * (6.5625 - 4.5) / (4 * 114_000)
    assert by_group(model) == pytest.approx([block_bits, block_bits, 4.5, 8.5], rel=1e-12)
    scenario = tmp_path / "mine.yaml"
    scenario.write_text(
        "like: autoregressive_qwen3_32b_a100\n"
        f"target: {{model: {path}, tensor_parallel: 1, weights: null}}\n"
    )
    target = load(str(scenario)).scenario.target
    size = 4 * 114_000 * block_bits + 100_000 * (4.5 + 8.5)
    assert target.weights == "q4_k_m"
    assert target.weights_gb() == pytest.approx(size / 8e9, rel=1e-12)
    shown = json.loads(CliRunner().invoke(main, ["show", str(path), "--json"]).output)["computed"]
    assert shown["published_weight_gb"] == pytest.approx(size / 8e9, rel=1e-12)
    assert shown["bits_per_weight_blocks"] == pytest.approx(block_bits, rel=1e-12)
    assert (shown["bits_per_weight_embedding"], shown["bits_per_weight_head"]) == (4.5, 8.5)
    loaded = load(str(scenario), ["target.weights=q8_0"])
    noted = list(caveats(loaded, loaded.acceptance()))
    assert any("model is stored in q4_k_m, and priced as if in q8_0" in note for note in noted)
    other = loaded.scenario.target
    assert other.weights_gb() == pytest.approx(656_000 * 8.5 / 8e9, rel=1e-12), "stated otherwise"


def test_a_model_in_several_files_is_read_whole(tmp_path):
    names = list(TENSORS)
    values = LLAMA | {"split.count": (4, 2)}
    parts = [{name: TENSORS[name] for name in names[begin::2]} for begin in (0, 1)]
    first, second = (tmp_path / f"m-{number:05}-of-00002.gguf" for number in (1, 2))
    first.write_bytes(made(values, parts[0], kinds={"output.weight": Q6_K}))
    with pytest.raises(BadInput, match=r"one of 2 parts of a model, and m-00002-of-00002\.gguf is"):
        read_config(first)
    second.write_bytes(made({"split.count": (4, 2)}, parts[1], kinds={"output.weight": Q6_K}))
    model = read_config(first)
    assert (model.weights, model.stored.head_bits) == (656_000, 6.5625)
    with pytest.raises(BadInput, match=r"parts are called NAME-00001-of-00002\.gguf"):
        read_config(first.rename(tmp_path / "other.gguf"))


def test_matrices_that_the_keys_do_not_describe_are_refused(tmp_path):
    """A layer of a kind that nobody asked for would otherwise be priced as if it were not there."""
    extra = {f"blk.{layer}.per_token_gate.weight": (100, 300) for layer in range(4)}
    with pytest.raises(BadInput) as error:
        read_config(written(tmp_path, made(LLAMA, TENSORS | extra)))
    assert (
        "has matrices of 0.000776e9 weights, where its keys describe 0.000656e9 as llama: a layer "
        "of its architecture is not understood here" in str(error.value)
    )


@pytest.mark.parametrize("name", ggml.TYPES)
def test_every_type_of_llama_cpp_has_its_bits(tmp_path, name):
    kind = ggml.TYPES[name]
    model = read_config(written(tmp_path, made(LLAMA, TENSORS, kinds={"weight": kind.number})))
    assert model.stored.block_bits == pytest.approx(8 * kind.size / kind.weights, rel=1e-12)
    assert ggml.BY_NUMBER[kind.number] == name


def test_weights_in_a_format_that_is_not_known_are_said(tmp_path):
    values = LLAMA | {"general.file_type": (4, 1024)}
    model = read_config(written(tmp_path, made(values, {})))
    assert (model.weight_format, model.stored) == (None, None)
    assert model.about.endswith(
        "with weights in file type 1024, of which no format here is like it: state the format of "
        "the weights"
    )
    model = read_config(written(tmp_path, made(values, TENSORS, kinds={"ffn_up.weight": Q6_K})))
    assert model.weight_format == "q4_k"
    assert model.about.endswith("with weights in file type 1024, mostly Q4_K")


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
        (made(LLAMA, TENSORS | {"token_embd.weight": ()}), "has matrices of 0.000556e9 weights"),
        (made(LLAMA | {"llama.nextn_predict_layers": (4, 9)}, TENSORS), "num_hidden_layers"),
        (
            made(
                LLAMA
                | {"llama.attention.head_count_kv": (4, 10)}
                | {"llama.attention.key_length": (4, 900_000)},
                {},
            ),
            "num_attention_heads: make a mixer that is none: cached",
        ),
        (made(LLAMA, TENSORS, kinds={"attn_q.weight": 99}), "in a type of number 99, unknown here"),
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
