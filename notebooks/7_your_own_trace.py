# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Record your own trace
#
# **How often does your target keep what your draft writes, and what is that worth?**
#
# Acceptance decides what speculation is worth, and it belongs to a pair of models and a kind of
# text. From two Hugging Face models that share a tokenizer a trace is one command (`pip install
# 'specdecode-sim[record]'`):
#
#     specsim trace record --target DIR --draft DIR --prompts FILE --out mine.npz
#
# Here with two random Llamas of thirty thousand weights, made on the spot, the draft a blurred copy
# of the target. Put your own folders in their place.

# %%
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import tokenizers
import torch
import transformers

import simulator

# %%
words = ["<unk>", *(f"w{index}" for index in range(198)), "<end>"]
vocabulary = {word: index for index, word in enumerate(words)}


def save(folder: str, blur: float) -> None:
    torch.manual_seed(1)
    shape = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    config = transformers.LlamaConfig(
        vocab_size=len(words), initializer_range=0.3, eos_token_id=len(words) - 1, **shape
    )
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=blur)
        model.lm_head.weight[-1] = 0.0
    model.save_pretrained(folder)
    words_only = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    words_only.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words_only, unk_token="<unk>", eos_token="<end>"
    ).save_pretrained(folder)


save("target", 0.0)
save("draft", 0.05)
prompts = [
    {"flavour": "odd" if index % 2 else "even", "prompt": f"w{index} w{index + 3} w{2 * index}"}
    for index in range(12)
]
Path("prompts.jsonl").write_text("\n".join(map(json.dumps, prompts)))

# %%
asked = [
    "--target",
    "target",
    "--draft",
    "draft",
    "--prompts",
    "prompts.jsonl",
    "--device",
    "cpu",
    "--output-tokens",
    "48",
]
command = [sys.executable, "-m", "simulator", "trace", "record", *asked, "--out", "mine.npz"]
recorded = subprocess.run(command, capture_output=True, text=True, check=False)
print(recorded.stdout.strip())

# %% [markdown]
# ## What it says

# %%
simulator.trace("mine.npz").to_frame().round(3)

# %% [markdown]
# ## What it is worth
#
# A trace of your own goes into any scenario by its path. The models of this notebook have another
# vocabulary than the target of the scenario, so the recording is a stand-in, and the report says so
# in every table.

# %%
acceptance = {"trace": str(Path("mine.npz").resolve()), "stand_in": True}
changes = {"acceptance": acceptance, "strategy.gamma": 3, "requests.count": 12}
result = simulator.run("vanilla_qwen3_32b_a100", changes)
pd.Series(
    {"times autoregressive": result.speedup, "tokens per step": result.simulated.tokens_per_step}
).round(3)

# %%
assert recorded.returncode == 0
assert any("stand-in" in note for note in result.caveats)
result.picture("accepted_lengths")
