"""The shipped family as folders of transformers, so that vLLM accepts and refuses its drafts.

Its networks are Qwen3's to the letter: norms before attention and MLP, queries and keys normalised
by head (their weights are ones here), rotary halves, a gated MLP, the embedding as output head. The
tokenizer's text is not shipped; a word here is a token's number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.family.network import VOCABULARY, Network
from benchmarks.family.pair import Family

PAIR = Path(__file__).parents[3] / "scenarios/pairs/six_flavours.npz"
CONTEXT = 1_024
"""Longest sequence in tokens."""
EPSILON = float(np.finfo(np.float32).eps)
"""Of every norm, as PyTorch's own has it."""
IDLE = 4_096
"""Width of the target's MLP as exported. What goes beyond the family's is idle: it is computed, and
multiplied by zeros on the way out. So the target writes the same tokens, and a pass of it takes
several times what vLLM takes around it, as passes of served models do.
"""


def export(folder: Path, hidden: int = IDLE) -> dict[str, Path]:
    """Write ``target``, its MLP widened to ``hidden``, and ``draft``; return their folders."""
    family = Family.read(PAIR)
    return {
        "target": _write(folder / "target", family.target, hidden),
        "draft": _write(folder / "draft", family.draft, family.draft.shape.hidden),
    }


def _write(folder: Path, network: Network, hidden: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    _tokenizer(folder)
    shape = network.shape
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": shape.width // shape.heads,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": EPSILON,
        "rope_theta": 10_000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": None,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1, allow_nan=False))
    weights = {name: tensor.contiguous() for name, tensor in renamed(network, hidden)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def renamed(network: Network, hidden: int) -> Iterator[tuple[str, Tensor]]:
    """Yield a network's weights by Qwen3's names; MLPs are widened to ``hidden`` by what leads
    nowhere.
    """
    generator = torch.Generator().manual_seed(0)
    shape = network.shape
    yield "model.embed_tokens.weight", network.embedding.weight
    yield "model.norm.weight", network.norm.weight
    for index, module in enumerate(network.blocks):
        name, weights = f"model.layers.{index}", dict(module.named_parameters())
        yield f"{name}.input_layernorm.weight", weights["norm_attention.weight"]
        yield f"{name}.post_attention_layernorm.weight", weights["norm_mlp.weight"]
        for part, rows in zip("qkv", weights["qkv.weight"].chunk(3), strict=True):
            yield f"{name}.self_attn.{part}_proj.weight", rows
        for part in "qk":
            yield f"{name}.self_attn.{part}_norm.weight", torch.ones(shape.width // shape.heads)
        yield f"{name}.self_attn.o_proj.weight", weights["out.weight"]
        idle = torch.randn((2, hidden - shape.hidden, shape.width), generator=generator)
        for part, rows, more in zip(
            ("gate", "up"), weights["up.weight"].chunk(2), 0.02 * idle, strict=True
        ):
            yield f"{name}.mlp.{part}_proj.weight", torch.cat((rows, more))
        nowhere = torch.zeros(shape.width, hidden - shape.hidden)
        yield f"{name}.mlp.down_proj.weight", torch.cat((weights["down.weight"], nowhere), 1)


def _tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word(token): token for token in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=word(0)))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=CONTEXT)
    fast.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    fast.save_pretrained(folder)


def word(token: int) -> str:
    """Return a token's text."""
    return f"t{token}"
