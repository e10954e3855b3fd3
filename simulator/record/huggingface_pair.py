"""A target and a draft from local Hugging Face folders: what they are, whether they belong
together, their weights.

Only files are read: nothing is fetched, no code that lies beside a model is run, and weights come
from safetensors.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.utils import logging

from simulator.core.faults import BadInput, told
from simulator.core.plain import PlainData
from simulator.inputs import reading
from simulator.record.scores import Sampling

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja"),
)
LOCAL: PlainData = {"local_files_only": True, "trust_remote_code": False}
SHAPE = {
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "hidden": "intermediate_size",
    "vocabulary": "vocab_size",
}
"""The header's words for sizes, in elements, and those of a config; a size that a config leaves out
is left out.
"""

REQUIRED = ("layers", "vocabulary")


class Folder:
    """One model as it lies on disk, its weights not loaded yet."""

    def __init__(self, role: str, path: Path) -> None:
        self.role = role
        self.path = path
        if not (path / "config.json").is_file():
            absent = "config.json here" if path.is_dir() else "such folder"
            raise BadInput.at(path, f"{role}: there is no {absent}")
        with _refusals(path, role):
            self.config = AutoConfig.from_pretrained(path, **LOCAL).get_text_config()
        self.shape = {word: getattr(self.config, key, None) for word, key in SHAPE.items()}
        missing = [SHAPE[word] for word in REQUIRED if not isinstance(self.shape[word], int)]
        if missing:
            raise BadInput.at(path / "config.json", f"{role}: {missing[0]} is required and missing")
        with _refusals(path, role):
            self.weight_files = self._weight_files()
            self.parameters = sum(_scalars(file) for file in self.weight_files)

    def _weight_files(self) -> list[Path]:
        index = self.path / INDEX
        names = [WEIGHTS]
        if index.is_file():
            names = sorted(
                set(
                    json.loads(reading.text(index, reading.MOST_TABLE_BYTES))["weight_map"].values()
                )
            )
        missing = [name for name in names if not (self.path / name).is_file()]
        if missing:
            raise BadInput.at(
                self.path,
                f"{self.role}: there is no {missing[0]} here; weights are read from safetensors "
                "only",
            )
        return [self.path / name for name in names]

    @property
    def vocabulary(self) -> int:
        """Return the number of logits."""
        return int(self.shape["vocabulary"] or 0)

    @property
    def positions(self) -> int | None:
        """Return the longest context in tokens, None where the config states none."""
        return getattr(self.config, "max_position_embeddings", None)

    def tokenizer(self) -> Any:
        """Return the tokenizer that lies beside the model."""
        if not any((self.path / name).is_file() for name in TOKENIZER_FILES):
            raise BadInput.at(
                self.path, f"{self.role}: there is no tokenizer here, such as a tokenizer.json"
            )
        with _refusals(self.path, self.role):
            return AutoTokenizer.from_pretrained(self.path, **LOCAL)

    def ends(self) -> tuple[int, ...]:
        """Return ids of the tokens that end a text; none where neither generation_config.json nor
        config.json names one.
        """
        ids = getattr(self.config, "eos_token_id", None)
        if (self.path / "generation_config.json").is_file():
            with _refusals(self.path, self.role):
                stated = GenerationConfig.from_pretrained(
                    self.path, local_files_only=True
                ).eos_token_id
            ids = ids if stated is None else stated
        if ids is None:
            return ()
        if isinstance(ids, list):
            return tuple(ids)
        return (ids,)

    def dtype(self, asked: str) -> str:
        """Return the number format to compute in; ``auto`` is the config's own, float32 where it
        states none.
        """
        own = getattr(self.config, "dtype", None) or torch.float32
        if asked == "auto":
            return str(own).removeprefix("torch.")
        return asked

    def describe(self, dtype: str) -> PlainData:
        """Return the model's entry in a trace's header; the hash is BLAKE2b over configs and
        weights.
        """
        configs = [self.path / name for name in ("config.json", "generation_config.json")]
        return {
            "name": self.path.resolve().name,
            "type": self.config.model_type,
            "shape": {word: size for word, size in self.shape.items() if size is not None},
            "parameters": self.parameters,
            "dtype": self.dtype(dtype),
            "hash": digest([*(file for file in configs if file.is_file()), *self.weight_files]),
        }

    def load(self, dtype: str, device: str) -> Any:
        """Load the model, ready to run; a missing weight is a fault, not a random number."""
        with _refusals(self.path, self.role):
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                self.path,
                dtype=getattr(torch, self.dtype(dtype)),
                use_safetensors=True,
                output_loading_info=True,
                **LOCAL,
            )
            model, report = loaded
            model.to(device).eval().requires_grad_(False)
        if report["missing_keys"]:
            raise BadInput.at(
                self.path, f"{self.role}: the weights lack {sorted(report['missing_keys'])[0]}"
            )
        return model


class Lens:
    """Logit lens: reads the residual stream behind some layers through the model's own final norm
    and head.

    Nothing is trained (nostalgebraist 2020, "interpreting GPT: the logit lens"). Hooks keep the
    last position only.
    """

    def __init__(self, model: Any, layers: Iterable[int], path: Path) -> None:
        self.states: dict[int, torch.Tensor] = {}
        self.layers = tuple(layers)
        if self.layers:
            decoder = model.get_decoder()
            blocks = _named(decoder, ("layers", "h"))
            self.norm = _named(decoder, ("norm", "final_layer_norm", "ln_f"))
            self.head = model.get_output_embeddings()
            if blocks is None or self.norm is None or self.head is None:
                raise BadInput.at(
                    path,
                    f"target: no layers, final norm or head known in a {type(model).__name__}; "
                    "leave out --exits",
                )
            for layer in self.layers:
                blocks[layer - 1].register_forward_hook(self._keep(layer))

    def _keep(self, layer: int) -> Any:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            self.states[layer] = (output[0] if isinstance(output, tuple) else output)[:, -1]

        return hook

    def logits(self) -> list[torch.Tensor]:
        """Return logits (batch, V) of each exit at the token that the model read last."""
        return [self.head(self.norm(self.states[layer])).float() for layer in self.layers]


@dataclass(frozen=True)
class Pair:
    """Target and draft on one device, and how text is drawn from them."""

    target: Any
    draft: Any
    sampling: Sampling
    ends: tuple[int, ...]
    lens: Lens

    @property
    def device(self) -> torch.device:
        """Return the device that both models are on."""
        return torch.device(self.target.device)


def check_vocabulary(
    target: Folder, draft: Folder, target_ids: dict[str, int], draft_ids: dict[str, int]
) -> None:
    """Raise BadInput unless a draft's tokens mean the target's: as many logits, the same tokens
    under the same ids.
    """
    sizes = f"target {target.vocabulary:,}, draft {draft.vocabulary:,}"
    if target.vocabulary != draft.vocabulary:
        raise BadInput.at(
            draft.path,
            f"target and draft must share one vocabulary; the models have {sizes} tokens",
        )
    for folder, ids in ((target, target_ids), (draft, draft_ids)):
        if max(ids.values()) >= folder.vocabulary:
            message = (
                f"{folder.role}: the tokenizer has token {max(ids.values()):,}, the model only "
                f"{folder.vocabulary:,}"
            )
            raise BadInput.at(folder.path, message)
    if target_ids != draft_ids:
        differ = {word for word, _ in target_ids.items() ^ draft_ids.items()}
        first = min(
            differ,
            key=lambda word: (
                min(ids[word] for ids in (target_ids, draft_ids) if word in ids),
                word,
            ),
        )
        here, there = (str(ids.get(first, "none")) for ids in (target_ids, draft_ids))
        sizes = f"target {len(target_ids):,}, draft {len(draft_ids):,} tokens"
        message = (
            f"target and draft must share one vocabulary ({sizes}); {told(first)} is {here} in "
            f"one, {there} in the other"
        )
        raise BadInput.at(draft.path, message)


def tokenizer_digest(folder: Folder) -> str:
    """Return the BLAKE2b digest over the tokenizer's files."""
    return digest(file for name in TOKENIZER_FILES if (file := folder.path / name).is_file())


def digest(files: Iterable[Path]) -> str:
    """Return the BLAKE2b digest over the content of files, in order."""
    state = hashlib.blake2b(digest_size=16)
    for file in files:
        with file.open("rb") as content:
            while block := content.read(1 << 22):
                state.update(block)
    return state.hexdigest()


def _scalars(file: Path) -> int:
    with safe_open(file, framework="pt") as weights:
        return sum(
            torch.Size(weights.get_slice(name).get_shape()).numel()
            for name in weights.keys()  # noqa: SIM118
        )


def _named(module: Any, names: Iterable[str]) -> Any:
    return next(
        (getattr(module, name) for name in names if getattr(module, name, None) is not None), None
    )


@contextmanager
def _refusals(path: Path, what: str) -> Iterator[None]:
    """What the library refuses, as one line; its own chatter and bars stay out of the way."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
        raise BadInput.at(path, f"{what}: {str(error).strip().partition(chr(10))[0]}") from error
