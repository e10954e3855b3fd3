"""A target and a draft of thirty thousand weights, their prompts, and recording them from the
command line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from simulator.cli.main import main
from simulator.core.acceptance.trace import Trace
from simulator.inputs.traces.file import read

torch = pytest.importorskip("torch")
tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors")
torch.set_num_threads(1)  # matrices of a few kilobytes

WORDS = [f"w{index}" for index in range(198)]
VOCABULARY = len(WORDS) + 2
OUTPUT_TOKENS = 40
LENGTHS = (3, 11, 1, 7, 5, 2, 9)
NO_END = VOCABULARY - 1
UNKNOWN, END = "<unk>", "<end>"
PAIR = ("--target", "target", "--draft", "draft", "--prompts", "prompts.jsonl", "--device", "cpu")


def save_tokenizer(folder: Path, words: list[str]) -> None:
    ids = {word: index for index, word in enumerate([UNKNOWN, *words, END])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token=UNKNOWN, eos_token=END
    )
    fast.save_pretrained(folder)


def save_model(
    folder: Path, blur: float, vocabulary: int = VOCABULARY, words: list[str] | None = None
) -> None:
    """A random Llama; ``blur`` is noise on its weights, so that two of them agree on some tokens
    and not on others.
    """
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.3,
        eos_token_id=NO_END,
    )
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3 * blur)
        model.lm_head.weight[NO_END] = 0.0  # ends nothing unless a test says so
    model.save_pretrained(folder)
    save_tokenizer(folder, words or WORDS)


def make_pair(made: Path) -> Path:
    """A target, a draft and seven prompts of unequal length."""
    save_model(made / "target", blur=0.0)
    save_model(made / "draft", blur=0.12)
    lines = []
    for index, length in enumerate(LENGTHS):
        words = np.random.default_rng(index).choice(WORDS, length)
        lines.append(
            json.dumps({"prompt": " ".join(words), "flavour": "even" if index % 2 == 0 else "odd"})
        )
    (made / "prompts.jsonl").write_text("\n".join(lines))
    return made


def record(out: Path, *more: str) -> Result:
    arguments = [*PAIR, "--output-tokens", str(OUTPUT_TOKENS), "--out", str(out), *more]
    return CliRunner().invoke(main, ["trace", "record", *arguments])


def recorded(out: Path, *more: str) -> Trace:
    result = record(out, *more)
    assert result.exit_code == 0, result.output
    assert not out.with_name(out.name + ".part").exists()
    return read(out)


def requests(trace: Trace) -> list[list[int]]:
    return [
        trace.token[a:b].tolist()
        for a, b in zip(trace.offsets[:-1], trace.offsets[1:], strict=True)
    ]


def loaded(role: str) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(role, local_files_only=True).eval()


def prompt_ids(index: int) -> list[int]:
    line = Path("prompts.jsonl").read_text().splitlines()[index]
    return [1 + WORDS.index(word) for word in json.loads(line)["prompt"].split()]


@torch.no_grad()
def logits(model: Any, ids: list[int]) -> Any:
    """At every position, without cache, padding or batch."""
    return model(torch.tensor([ids])).logits[0].double()
