"""Records a trace from a pair of Hugging Face models, batch by batch, so that it can be interrupted
and taken up.
"""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from jinja2 import TemplateError

from simulator.core.acceptance.trace import FORMAT, Trace
from simulator.core.faults import BadInput
from simulator.core.parallel import counting
from simulator.core.plain import PlainData
from simulator.record.decoding import record_batch
from simulator.record.huggingface_pair import (
    Folder,
    Lens,
    Pair,
    check_vocabulary,
    digest,
    tokenizer_digest,
)
from simulator.record.parts import Parts, folder_of
from simulator.record.prompts import Prompt, read_prompts
from simulator.record.scores import Sampling

REPLAYABLE = 2
"""Positions below which a request says nothing: the first is emitted by the prefill and judged by
nobody.
"""

WIDE_VOCABULARY = 1 << 16


@dataclass(frozen=True)
class RecordingJob:
    """What a recording was asked to do on the command line."""

    target: Path
    draft: Path
    prompts: Path
    out: Path
    sampling: Sampling
    output_tokens: int
    limit: int | None
    batch: int
    seed: int
    exits: tuple[float, ...]
    chat: bool
    device: str
    dtype: str

    @property
    def command(self) -> str:
        """Return the command that makes the trace again, with names of folders and files instead of
        their paths.
        """
        paths = {"target": self.target, "draft": self.draft, "prompts": self.prompts}
        words = ["specsim", "trace", "record"]
        for name, path in paths.items():
            words += [f"--{name}", path.resolve().name]
        numbers = {
            "temperature": self.sampling.temperature,
            "top-k": self.sampling.top_k,
            "top-p": self.sampling.top_p,
        }
        numbers |= {"output-tokens": self.output_tokens, "batch": self.batch, "seed": self.seed}
        if self.limit is not None:
            numbers["limit"] = self.limit
        for name, value in numbers.items():
            words += [f"--{name}", f"{value:g}"]
        if self.exits:
            shares = ",".join(f"{share:g}" for share in self.exits)
            words += ["--exits", shares]
        if self.chat:
            words.append("--chat")
        words += ["--device", self.device, "--dtype", self.dtype, "--out", self.out.name]
        return shlex.join(words)


@dataclass(frozen=True)
class Ready:
    """Everything that is known before the weights are loaded."""

    target: Folder
    draft: Folder
    prompts: Sequence[Prompt]
    ids: Sequence[Sequence[int]]
    """Token ids of each prompt."""
    layers: tuple[int, ...]
    device: str
    header: PlainData


def record_pair(job: RecordingJob) -> Trace:
    """Record, or resume recording, write ``job.out`` and return the trace.

    Raises :class:`BadInput` before anything is written where the input is at fault.
    """
    folder = job.out.absolute().parent
    if job.out.suffix != ".npz" or not folder.is_dir():
        message = "expected a file name that ends in .npz, in a folder that exists"
        raise BadInput.at(job.out, message)
    if job.out.exists() and not folder_of(job.out).exists():
        raise BadInput.at(job.out, "is there already; delete it to record it anew")
    ready = prepare(job)
    parts = Parts(job.out, ready.header)
    batches = -(-len(ready.ids) // job.batch)
    with parts.opened():
        missing = [number for number in range(batches) if not parts.finished(number)]
        if missing:
            pair = load(job, ready)
            _record_missing(job, ready, pair, parts, missing)
        trace = assemble(ready, parts.merged(batches))
        parts.finish(trace)
    return trace


def prepare(job: RecordingJob) -> Ready:
    """Read and check everything but the weights."""
    prompts = read_prompts(job.prompts, job.limit)
    target = Folder("target", job.target)
    draft = Folder("draft", job.draft)
    tokenizer = target.tokenizer()
    vocabulary = tokenizer.get_vocab()
    drafts_vocabulary = draft.tokenizer().get_vocab()
    check_vocabulary(target, draft, vocabulary, drafts_vocabulary)
    ids = [_encode(job, tokenizer, prompt) for prompt in prompts]
    _check_lengths(job, (target, draft), prompts, ids)
    layers = _exit_layers(job, target)
    if job.device == "cuda" and not torch.cuda.is_available():
        raise BadInput.at("--device cuda", "torch finds no CUDA device here")
    device = job.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    header = describe(job, target, draft, ids, layers, device)
    return Ready(target, draft, prompts, ids, layers, device, header)


def _encode(job: RecordingJob, tokenizer: Any, prompt: Prompt) -> list[int]:
    """Return the token ids of a prompt, within the tokenizer's chat template where asked for."""
    if not job.chat:
        encoded = tokenizer(prompt.text)
        return list(encoded["input_ids"])
    conversation = [{"role": "user", "content": prompt.text}]
    try:
        text = tokenizer.apply_chat_template(
            conversation, add_generation_prompt=True, tokenize=False
        )
    except (ValueError, TemplateError) as error:
        first_line = str(error).splitlines()[0]
        message = f"--chat: the tokenizer's template refuses: {first_line}"
        raise BadInput.at(job.target, message) from error
    encoded = tokenizer(text, add_special_tokens=False)
    return list(encoded["input_ids"])


def _check_lengths(
    job: RecordingJob,
    folders: Sequence[Folder],
    prompts: Sequence[Prompt],
    ids: Sequence[Sequence[int]],
) -> None:
    for prompt, tokens in zip(prompts, ids, strict=True):
        place = (str(job.prompts), prompt.line, 1)
        if not tokens:
            raise BadInput.at(place, "the tokenizer makes no tokens of this prompt")
        prompt_tokens = len(tokens)
        wanted = prompt_tokens + job.output_tokens
        for folder in folders:
            positions = folder.positions
            if positions is not None and wanted > positions:
                message = (
                    f"{prompt_tokens:,} prompt and {job.output_tokens:,} output tokens are more "
                    f"than the {positions:,} positions of the {folder.role}"
                )
                raise BadInput.at(place, message)


def _exit_layers(job: RecordingJob, target: Folder) -> tuple[int, ...]:
    depth = int(target.shape["layers"] or 0)
    layers = tuple(round(share * depth) for share in job.exits)
    rising = list(layers) == sorted(set(layers))
    below_the_last = all(1 <= layer < depth for layer in layers)
    if not (rising and below_the_last):
        message = (
            f"expected rising shares of the target's {depth} layers, each another layer below "
            "the last"
        )
        raise BadInput.at("--exits", message)
    return layers


def describe(
    job: RecordingJob,
    target: Folder,
    draft: Folder,
    ids: Sequence[Sequence[int]],
    layers: tuple[int, ...],
    device: str,
) -> PlainData:
    """Return the header without results: everything that shapes the recording, and so its
    manifest.
    """
    lengths = [len(tokens) for tokens in ids]
    sampling = job.sampling
    return {
        "format": FORMAT,
        "temperature": sampling.temperature,
        "sampling": {"top_k": sampling.top_k, "top_p": sampling.top_p},
        "seed": job.seed,
        "command": job.command,
        "vocabulary": target.vocabulary,
        "tokenizer": tokenizer_digest(target),
        "ends": list(target.ends()),
        "output_tokens": job.output_tokens,
        "batch": job.batch,
        "device": device,
        "software": {"torch": torch.__version__, "transformers": transformers.__version__},
        "exit_layers": list(layers),
        "exits": "logit lens, untrained" if layers else "none",
        "prompts": {
            "file": job.prompts.name,
            "hash": digest([job.prompts]),
            "used": len(ids),
            "chat_template": job.chat,
            "tokens": sum(lengths),
            "longest_tokens": max(lengths),
        },
        "models": {folder.role: folder.describe(job.dtype) for folder in (target, draft)},
    }


def load(job: RecordingJob, ready: Ready) -> Pair:
    """Load both models."""
    target = ready.target.load(job.dtype, ready.device)
    draft = ready.draft.load(job.dtype, ready.device)
    ends = ready.target.ends()
    exits = Lens(target, ready.layers, job.target)
    return Pair(target, draft, job.sampling, ends, exits)


def _record_missing(
    job: RecordingJob, ready: Ready, pair: Pair, parts: Parts, missing: Sequence[int]
) -> None:
    count = len(ready.ids)
    batches = -(-count // job.batch)
    recorded = batches - len(missing)
    positions = batches * job.output_tokens
    with counting("positions", positions, recorded * job.output_tokens) as advance:
        for number in missing:
            begin = number * job.batch
            end = min(begin + job.batch, count)
            draws = []
            for request in range(begin, end):
                generator = np.random.default_rng((job.seed, request))
                draws.append(generator.random(job.output_tokens))
            uniforms = np.stack(draws)
            try:
                arrays = record_batch(pair, ready.ids[begin:end], uniforms, advance)
            except torch.OutOfMemoryError as error:
                message = (
                    f"{ready.device} has no memory for --batch {job.batch}; a smaller one needs "
                    "less"
                )
                raise BadInput.at("trace record", message) from error
            parts.add(number, arrays)
            longest = int(arrays["length"].max())
            advance(job.output_tokens - longest)


def assemble(ready: Ready, arrays: dict[str, np.ndarray[Any, Any]]) -> Trace:
    """Return the trace of all batches, without requests that ended at once."""
    lengths = arrays.pop("length")
    kept = lengths >= REPLAYABLE
    if not kept.any():
        message = "the target ended every text at once; nothing can be replayed"
        raise BadInput.at("trace record", message)
    names = [prompt.flavour for prompt, keep in zip(ready.prompts, kept, strict=True) if keep]
    flavours = list(dict.fromkeys(names))
    indices = [flavours.index(name) for name in names]
    index_type = np.min_scalar_type(len(flavours) - 1)
    positions = np.repeat(kept, lengths)
    of_kept: PlainData = {name: values[..., positions] for name, values in arrays.items()}
    token_type = np.uint16 if ready.target.vocabulary <= WIDE_VOCABULARY else np.uint32
    of_kept["token"] = of_kept["token"].astype(token_type)
    ends = np.cumsum(lengths[kept])
    offsets = np.concatenate(([0], ends)).astype(np.int64)
    count = Counter(names)
    header = ready.header | {
        "flavours": flavours,
        "requests": {
            "recorded": int(kept.sum()),
            "ended_at_once": int((~kept).sum()),
            "of": dict(sorted(count.items())),
        },
    }
    return Trace(
        header=header,
        offsets=offsets,
        flavour=np.array(indices, dtype=index_type),
        **of_kept,
    )
