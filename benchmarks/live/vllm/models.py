"""Tiny models of random weights, in the layouts that vLLM's loaders read."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

VOCABULARY = 512
WIDTH = 64
LAYERS = 3
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 2 * WIDTH,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "model_type": "llama",
    "torch_dtype": "float32",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
Weights = dict[str, torch.Tensor]


SCALE = 0.08
"""Of a layer's weights beside those of embeddings: what was said before decides now and then, the
last token mostly, so that drafts are often right.
"""


def layer(name: str, inputs: int, generator: torch.Generator) -> Weights:
    """Return the weights of a layer of a Llama whose attention reads ``inputs`` values a token."""
    shapes = {
        "self_attn.q_proj": (WIDTH, inputs),
        "self_attn.k_proj": (WIDTH, inputs),
        "self_attn.v_proj": (WIDTH, inputs),
        "self_attn.o_proj": (WIDTH, WIDTH),
        "mlp.gate_proj": (2 * WIDTH, WIDTH),
        "mlp.up_proj": (2 * WIDTH, WIDTH),
        "mlp.down_proj": (WIDTH, 2 * WIDTH),
    }
    made = {
        f"{name}.{part}.weight": SCALE * torch.randn(shape, generator=generator)
        for part, shape in shapes.items()
    }
    for norm in ("input_layernorm", "post_attention_layernorm"):
        made[f"{name}.{norm}.weight"] = torch.ones(WIDTH)
    return made


def write(
    folder: Path, architecture: str, layers: int, weights: Weights, **more: list[int]
) -> Path:
    """Write a checkpoint of so many layers into a folder; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**SHAPE, "architectures": [architecture], "num_hidden_layers": layers, **more}
    (folder / "config.json").write_text(json.dumps(config, allow_nan=False))
    contiguous = {name: tensor.contiguous() for name, tensor in weights.items()}
    save_file(contiguous, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_all(folder: Path, seed: int = 0) -> dict[str, Path]:
    """Write a target of three layers, a draft that often agrees with it, and heads of EAGLE and
    EAGLE-3; return their folders by name.
    """
    generator = torch.Generator().manual_seed(seed)
    target = {
        "model.embed_tokens.weight": torch.randn((VOCABULARY, WIDTH), generator=generator),
        "model.norm.weight": torch.ones(WIDTH),
        "lm_head.weight": torch.randn((VOCABULARY, WIDTH), generator=generator),
    }
    for index in range(LAYERS):
        target |= layer(f"model.layers.{index}", WIDTH, generator)
    draft = {
        name: tensor + 0.03 * torch.randn(tensor.shape, generator=generator)
        for name, tensor in target.items()
    }
    eagle = layer("layers.0", WIDTH, generator)
    del eagle["layers.0.input_layernorm.weight"]
    eagle["fc.weight"] = torch.cat([torch.eye(WIDTH), torch.zeros(WIDTH, WIDTH)], 1)
    eagle3 = layer("midlayer", 2 * WIDTH, generator)
    eagle3["midlayer.hidden_norm.weight"] = torch.ones(WIDTH)
    eagle3["norm.weight"] = torch.ones(WIDTH)
    eagle3["fc.weight"] = SCALE * torch.randn((WIDTH, LAYERS * WIDTH), generator=generator)
    eagle3["lm_head.weight"] = target["lm_head.weight"].clone()
    return {
        "target": write(folder / "target", "LlamaForCausalLM", LAYERS, target),
        "draft": write(folder / "draft", "LlamaForCausalLM", LAYERS, draft),
        "eagle": write(folder / "eagle", "LlamaForCausalLM", 1, eagle),
        "eagle3": write(
            folder / "eagle3",
            "LlamaForCausalLMEagle3",
            1,
            eagle3,
            eagle_aux_hidden_state_layer_ids=list(range(LAYERS)),
        ),
    }
