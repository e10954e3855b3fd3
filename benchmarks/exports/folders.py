"""Folders that hold the config.json of checkpoints, named as on Hugging Face, so that an engine
makes its configuration without the hub.

Shapes are those of the catalogue; ``architectures.yaml`` has what Transformers asks beside them.
"""

from __future__ import annotations

from itertools import cycle, islice
from pathlib import Path
from typing import Any

import yaml

from benchmarks.exports.asked import AskedCommand
from simulator.core.cost.mixer import LayerRun
from simulator.core.cost.model import ModelSpec
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.models.named import find_model
from simulator.inputs.writing import json_text
from simulator.studies.plan.commands.checkpoints import published_as, repositories

FACTS = Path(__file__).with_name("architectures.yaml")
KINDS = {"eagle3": "eagle3", "eagle": "eagle", "dflash": "dflash", "dspark": "dspark"}
Config = dict[str, Any]


def write_folders(folder: Path, asked: list[AskedCommand]) -> None:
    """Write the folder of every checkpoint that the commands of vLLM name."""
    facts: Config = yaml.safe_load(FACTS.read_text("utf-8"))
    specs = {name: spec(name) for name in facts["models"]}
    written = {published_as(specs[name]): config(facts, name, specs[name]) for name in specs}
    for name, shape in specs.items():
        plain = config(facts, name, shape)
        for base in shape.huggingface:
            for weights, repository in repositories().get(base, {}).items():
                owner = repository.partition("/")[0]
                how = facts["quantised"].get(owner, facts["quantised"][weights])
                written[repository] = {**plain, "quantization_config": how}
    for command in asked:
        if command.engine == "vllm":
            head, kind = head_of(command.words)
            if head and head not in written:
                written[head] = head_config(facts, kind, written[command.words[2]])
    for name, fields in written.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "config.json").write_text(json_text(fields), "utf-8")


def spec(name: str) -> ModelSpec:
    """Return the shapes of a model of the catalogue."""
    return find_model(name, Catalogue(), name).spec


def config(facts: Config, name: str, shape: ModelSpec) -> Config:
    """Return the config.json of a model of the catalogue."""
    own = facts["models"][name]
    fields = dict(facts["families"][own["family"]])
    shapes: Config = {
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.num_hidden_layers,
        "num_attention_heads": shape.num_attention_heads,
        "num_key_value_heads": shape.num_key_value_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.intermediate_size,
        "vocab_size": shape.vocab_size,
        "max_position_embeddings": own.get("max_position_embeddings") or shape.context_tokens,
    }
    if shape.experts:
        shapes["moe_intermediate_size"] = shape.experts.intermediate_size
    if own["family"] == "opt":
        width = shape.embedding_width or shape.hidden_size
        shapes |= {"ffn_dim": shape.intermediate_size, "word_embed_proj_dim": width}
    if own["family"] == "gpt_oss":
        sees = {"sliding": "sliding_attention"}
        fields["layer_types"] = [sees.get(run.mixer or "", "full_attention") for run in runs(shape)]
    if own["family"] == "mimo_v2_flash":
        fields["hybrid_layer_pattern"] = [int(run.mixer == "sliding") for run in runs(shape)]
        fields["moe_layer_freq"] = [int(run.mlp == "experts") for run in runs(shape)]
    outside = {
        "tie_word_embeddings": shape.tie_word_embeddings,
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    text = fields.get("text_config")
    if text is None:
        return {**shapes, **outside, **fields}
    if own["family"].startswith("qwen3_5"):
        kinds = [f"{run.mixer}_attention" for run in runs(shape)]
        text = {**text, "layer_types": kinds}
    return {**outside, **fields, "text_config": {**shapes, **text}}


def runs(shape: ModelSpec) -> list[LayerRun]:
    """Return the run that each layer of a model is in, from the first on."""
    period: list[LayerRun] = []
    for run in shape.layers:
        period += [run] * run.count
    return list(islice(cycle(period), shape.num_hidden_layers))


def head_of(words: list[str]) -> tuple[str, str]:
    """Return the head that a command of vLLM names, and of which kind it is; empty for none."""
    if "--speculative-config" not in words:
        return "", ""
    stated = yaml.safe_load(words[words.index("--speculative-config") + 1])
    kind = "p_eagle" if stated.get("parallel_drafting") else KINDS.get(stated["method"], "")
    return (stated.get("model", ""), kind) if kind else ("", "")


def head_config(facts: Config, kind: str, target: Config) -> Config:
    """Return the config.json of a head for a target."""
    text = target.get("text_config", target)
    same = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")
    fields = {name: text[name] for name in same if text.get(name) is not None}
    fields["intermediate_size"] = text.get("intermediate_size_mlp", text["intermediate_size"])
    fields["max_position_embeddings"] = text["max_position_embeddings"]
    fields["torch_dtype"] = "bfloat16"
    return {**fields, **facts["heads"][kind]}
